"""The `image-update` command."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys

from task import shutdown
from task.errors import Exit
from task.output.console import abandon


def main() -> None:
    """Run the command line, and exit with its exit code."""
    _open_missing_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # escape unencodable characters, as Python does on stderr: the help goes beyond Latin-1
        sys.stdout.reconfigure(errors="backslashreplace")
    # the imports create hardly any garbage, but collecting it took up a tenth of their time
    gc.set_threshold(100_000)
    # A signal that arrives during the imports is held back until its handler is installed.
    # Otherwise, PID 1 of a container would never receive the signal (the kernel drops signals that
    # PID 1 does not handle), and any other process would exit without results.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    shutdown.install()
    code = _run_command_line()
    _flush_output()
    # without this, the interpreter would visit every object at exit, which takes 0.05 s
    gc.freeze()
    sys.exit(code)


def _open_missing_streams() -> None:
    """Open /dev/null as stdin, stdout, or stderr if the parent process has closed that stream
    (`<&-`).

    Otherwise, the next file to be opened would receive the stream's number (0, 1, or 2). If that
    file were a pipe to a child process, the child's own stdin would replace it.
    """
    # in file descriptor order
    for name, mode in (
        ("stdin", "r"),
        ("stdout", "w"),
        ("stderr", "w"),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process


def _run_command_line() -> int:
    """Run the command line, and return its exit code, even if a signal has stopped it."""
    try:
        # Imported late, so that a signal that arrives during the imports waits for its handler.
        from task.cli.app import main as run  # noqa: PLC0415

        code = run(sys.argv[1:])
        shutdown.deaf()  # all results have been written, so there is nothing left to interrupt
    except shutdown.Stopped:
        code = shutdown.code()
    except MemoryError:  # a second signal arrived while the first was being reported
        os.write(2, b"error: this step does not have enough memory\n  fix: raise its limit\n")
        code = int(Exit.TEMPORARY)
    return code


def _flush_output() -> None:
    """Flush stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the exit code already reports the write failure
            abandon(stream)


if __name__ == "__main__":
    main()
