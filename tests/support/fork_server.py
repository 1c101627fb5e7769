"""Runs the command in a fork of a process that has already imported it.

A new Python process would need half a second for the imports. The server is this file, run as a
program. It is started by the first call, exits when the tests end, and does nothing but import and
fork. Each fork becomes the requested process, runs the command like the console script, and exits
as Python would, except that modules are not torn down: that would copy the server's memory, and
take a fifth of a short run's time.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from struct import Struct
from subprocess import PIPE

# Python and its libraries read these variables at startup, so there is a separate server for each
# set of values.
AT_START = ("LANG", "LC_", "PYTHON", "TYPER_", "_TYPER_COMPLETE_TEST_")
# These variables affect only new processes: they tell the linker to load other libraries.
NO_FORK = ("LD_",)
# These modules need an optional dependency, which takes up a quarter of the memory. Each fork of
# the server, and each later fork for git, would copy it.
LARGE = ("task.registry.keyless",)
NUMBER = Struct("i")


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    before: str = "",
    files: Sequence[int] = (PIPE, PIPE, PIPE),
) -> "Running":
    """Start the console script `argv[0]`.

    `before` is Python code to run first, and `files` are stdin, stdout, and stderr.
    """
    if any(name.startswith(NO_FORK) for name in env) or not hasattr(os, "pidfd_open"):
        if before:
            argv = [
                sys.executable,
                "-c",
                f"{before}\nfrom task.__main__ import main\nmain()",
                *argv[1:],
            ]
        stdin, stdout, stderr = files
        return subprocess.Popen(argv, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr)
    return Forked(argv, env, cwd, before, files)


@cache
def _server(
    settings: frozenset[tuple[str, str]], *, measured: bool
) -> "tuple[socket.socket, subprocess.Popen[bytes]]":
    """Return the server whose Python process was started with these variables, and the socket for
    requests to it.

    If the server is `measured`, its forks can measure their coverage.
    """
    door, theirs = socket.socketpair()
    with theirs:
        modules = ["coverage"] if measured else []
        argv = [sys.executable, "-P", __file__, str(theirs.fileno()), *modules]
        # Here, Python sets up sys.stdin, sys.stdout, and sys.stderr for pipes. Each fork has pipes,
        # too.
        server = subprocess.Popen(
            argv,
            env=dict(settings),
            pass_fds=[theirs.fileno()],
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
    atexit.register(server.communicate)
    atexit.register(door.close)  # registered last, so it is called first; it makes the server exit
    return door, server


class Forked:
    """A running command, with the parts of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None,
        before: str,
        files: Sequence[int],
    ) -> None:
        door, server = _server(
            frozenset((name, value) for name, value in env.items() if name.startswith(AT_START)),
            measured=any(name.startswith("COVERAGE_") for name in env),
        )
        folder = os.open(cwd or ".", os.O_RDONLY | os.O_DIRECTORY)
        self._end, theirs = socket.socketpair()
        pipes = [os.pipe() if fd == PIPE else (-1, -1) for fd in files]
        (_, self._stdin), (out, _), (err, _) = pipes
        its = [
            pipe[number > 0] if fd == PIPE else fd
            for number, (fd, pipe) in enumerate(zip(files, pipes, strict=True))
        ]
        socket.send_fds(door, [b"."], [theirs.fileno(), folder, *its])
        for fd in (theirs.detach(), folder, *set(its).difference(files)):
            os.close(fd)
        self._end.sendall(json.dumps([list(argv), dict(env), before]).encode())
        self._end.shutdown(socket.SHUT_WR)
        pid = self._end.recv(NUMBER.size)
        assert pid, server.communicate()[1].decode()
        self.pid = NUMBER.unpack(pid)[0]
        self.args = argv
        self.returncode: int | None = None
        self._heard = [_Reader(fd) if fd >= 0 else None for fd in (out, err)]

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to exit, and return its exit code."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            with self._end:
                self.returncode = int(NUMBER.unpack(self._end.recv(NUMBER.size))[0])
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, or None while the process is running."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has exited."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, stdin: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        """Return everything that is written to the pipes until the process has exited and the pipes
        are closed. Kill the process after the timeout.
        """
        with suppress(BrokenPipeError), open(self._stdin, "wb", 0) as feed:
            feed.write(stdin)
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait(timeout)
            raise
        return self._said(0, timeout), self._said(1, timeout)

    def _said(self, number: int, timeout: float | None) -> bytes:
        if not (reader := self._heard[number]):
            return b""
        reader.join(timeout)
        return reader.text


class _Reader(threading.Thread):
    """A thread that reads a pipe to its end."""

    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True)
        self._fd, self.text = fd, b""
        self.start()

    def run(self) -> None:
        """Read the pipe."""
        with open(self._fd, "rb") as pipe:
            self.text = pipe.read()


Running = Forked | subprocess.Popen[bytes]


def become_the_next(door: socket.socket) -> None:
    """Fork for each call. This function returns only in the forks, each of which is the requested
    process.
    """
    running: dict[
        int, tuple[int, socket.socket]
    ] = {}  # keyed by the file that becomes readable when the process exits
    while True:
        (ready, *_), _, _ = select.select([door.fileno(), *running], [], [])
        if ready in running:
            pid, end = running.pop(ready)
            os.close(ready)
            with end, suppress(BrokenPipeError):  # the caller has given up
                end.sendall(NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
            continue
        _, fds, _, _ = socket.recv_fds(door, 1, 5)
        if not fds:
            sys.exit()
        end = socket.socket(fileno=fds[0])
        pid = os.fork()
        if not pid:
            break
        for fd in fds[1:]:
            os.close(fd)
        running[os.pidfd_open(pid)] = pid, end
        with suppress(BrokenPipeError):
            end.sendall(NUMBER.pack(pid))
    with end, end.makefile("rb") as asked:
        sys.argv, environment, before = json.load(asked)
    os.environ.clear()
    os.environ.update(environment)
    os.fchdir(fds[1])
    for number, fd in enumerate(fds[2:]):
        os.dup2(fd, number)
    for fd in (*fds[1:], *running):
        os.close(fd)
    for one in (door, *(end for _, end in running.values())):
        one.close()
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    tempfile.tempdir = None
    time.tzset()
    if "coverage" in sys.modules:
        sys.modules["coverage"].process_startup()
    exec(before, {})  # noqa: S102 - the test's own


if __name__ == "__main__":
    import task.cli.app
    from task.__main__ import main

    # Modules that `main` imports late.
    for late in pkgutil.walk_packages(task.__path__, "task."):
        if late.name not in LARGE:
            importlib.import_module(late.name)
    list(task.cli.app.group.commands.values())
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()  # so that forks do not search the imported objects for garbage
    become_the_next(socket.socket(fileno=int(sys.argv[1])))
    try:
        main()
    except SystemExit as end:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, like Python before it ends
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))
