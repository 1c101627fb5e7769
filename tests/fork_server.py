"""Runs the command in a fork of a process that has imported it: a Python that starts anew needs half a second for that.

`run` takes what `subprocess.run` takes and gives the same. The server is this file as a program, started by the first
call and ended with the tests. It imports and forks, nothing else: each fork becomes the process that was asked for,
runs the command as the console script does, and ends as Python ends.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from struct import Struct
from threading import Lock

# What Python and its libraries read when they start: each set of values has a server of its own.
AT_START = ("LANG", "LC_", "PYTHON", "TYPER_")
# What works on a new process only: measuring its coverage, and other libraries for the linker.
NO_FORK = ("COVERAGE_", "LD_")
NUMBER = Struct("i")
Done = subprocess.CompletedProcess[bytes]


def run(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, stdin: bytes, timeout: float) -> Done:
    """As `subprocess.run`, which does it where no fork will do, or while the server has another one."""
    server = None if any(name.startswith(NO_FORK) for name in env) else server_for(settings(env))
    if not server or not server.free.acquire(blocking=False):
        return subprocess.run(argv, env=env, cwd=cwd, input=stdin, timeout=timeout, capture_output=True, check=False)
    try:
        return server.run(argv, env, cwd, stdin, timeout)
    finally:
        server.free.release()


def settings(env: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """The variables for which a Python has to be started."""
    return frozenset((name, value) for name, value in env.items() if name.startswith(AT_START))


@cache
def server_for(settings: frozenset[tuple[str, str]]) -> "Server":
    """The server whose Python has been started with these."""
    return Server(dict(settings))


class Server:
    """One process that forks; it takes one call after another."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.free = Lock()
        self._door, theirs = socket.socketpair()
        pipe = subprocess.PIPE  # what sys.stdin and the others find when they are made, and find again in each fork
        with theirs:
            fd = theirs.fileno()
            argv = [sys.executable, "-P", __file__, str(fd)]
            self._process = subprocess.Popen(argv, env=env, pass_fds=[fd], stdin=pipe, stdout=pipe, stderr=pipe)
        atexit.register(self._process.communicate)
        atexit.register(self._door.close)  # called first; then the server ends

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, stdio: Sequence[int]
    ) -> tuple[int, socket.socket]:
        """Start the command: its process id, and a socket that gives its exit code once it has ended."""
        said, theirs = socket.socketpair()
        with theirs:
            folder = os.open(cwd or ".", os.O_RDONLY | os.O_DIRECTORY)
            socket.send_fds(self._door, [b"."], [theirs.fileno(), folder, *stdio])
            os.close(folder)
        said.sendall(json.dumps([list(argv), dict(env)]).encode())
        said.shutdown(socket.SHUT_WR)
        number = said.recv(NUMBER.size)
        assert number, self._process.communicate()[1].decode()
        return NUMBER.unpack(number)[0], said

    def run(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, stdin: bytes, timeout: float) -> Done:
        """Run the command, and write and read until nobody holds the other ends, as `Popen.communicate` does."""
        (their_in, to), (out, their_out), (err, their_err) = os.pipe(), os.pipe(), os.pipe()
        pid, said = self.start(argv, env, cwd, (their_in, their_out, their_err))
        for fd in (their_in, their_out, their_err):
            os.close(fd)
        end = time.monotonic() + timeout
        heard = {said.fileno(): b"", out: b"", err: b""}
        with said, open(to, "wb", 0) as feed, open(out, "rb", 0), open(err, "rb", 0), DefaultSelector() as waiting:
            waiting.register(to, EVENT_WRITE)
            for fd in heard:
                waiting.register(fd, EVENT_READ)
            while waiting.get_map():
                ready = waiting.select(max(0, end - time.monotonic()))
                if not ready:
                    if not heard[said.fileno()]:
                        os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(argv, timeout, heard[out], heard[err])
                for key, _ in ready:
                    if key.fd == to:
                        try:
                            stdin = more = stdin[os.write(to, stdin[: select.PIPE_BUF]) :]
                        except BrokenPipeError:
                            more = b""
                    else:
                        more = os.read(key.fd, 1 << 16)
                        heard[key.fd] += more
                    if not more:
                        waiting.unregister(key.fd)
                        if key.fd == to:
                            feed.close()
            code = NUMBER.unpack(heard[said.fileno()])[0]
        return Done(argv, code, heard[out], heard[err])


def become_the_next(door: socket.socket) -> None:
    """Fork for each call. Returns in the forks only, each of which is the process that was asked for."""
    while True:
        _, fds, _, _ = socket.recv_fds(door, 1, 5)
        if not fds:
            sys.exit()
        said = socket.socket(fileno=fds[0])
        pid = os.fork()
        if not pid:
            break
        for fd in fds[1:]:
            os.close(fd)
        with said, suppress(BrokenPipeError):  # of somebody whose time is over
            said.sendall(NUMBER.pack(pid))
            _, status = os.waitpid(pid, 0)
            said.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))
    with said, said.makefile("rb") as asked:
        sys.argv, environment = json.load(asked)
    os.environ.clear()
    os.environ.update(environment)
    os.fchdir(fds[1])
    for number, fd in enumerate(fds[2:]):
        os.dup2(fd, number)
    for fd in fds[1:]:
        os.close(fd)
    door.close()
    tempfile.tempdir = None
    time.tzset()


if __name__ == "__main__":
    import task.cli.app  # noqa: F401 - what `main` imports as late as it runs
    from task.__main__ import main

    gc.freeze()  # what was imported is nothing that a fork has to look through
    become_the_next(socket.socket(fileno=int(sys.argv[1])))
    main()
