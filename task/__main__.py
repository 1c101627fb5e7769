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
        # as Python does for stderr, because the help contains characters that are not in Latin-1
        sys.stdout.reconfigure(errors="backslashreplace")
    # the imports create hardly any garbage, and collecting it took a tenth of their time
    gc.set_threshold(100_000)
    # A signal that arrives during the imports waits until there is a handler for it. Otherwise the
    # first process of a container would not get it at all (the kernel drops signals to PID 1
    # without a handler), and any other process would exit without results.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    shutdown.install()
    code = _run_command_line()
    _flush_output()
    # otherwise, the interpreter visits every object before it exits, which takes 0.05 s
    gc.freeze()
    sys.exit(code)


def _open_missing_streams() -> None:
    """Open /dev/null as stdin, stdout, or stderr if the parent process has closed it (`<&-`).

    Otherwise, the next file that is opened would get the stream's number (0, 1, or 2). If that file
    were a pipe to a child process, the child's own stdin would replace it.
    """
    # in the order of their numbers
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
        shutdown.deaf()  # all results have been written, so it is too late to stop anything
    except shutdown.Stopped:
        code = shutdown.code()
    except MemoryError:  # a second signal arrived while the first was being reported
        os.write(2, b"error: this step does not have enough memory\n  fix: raise its limit\n")
        code = int(Exit.TEMPORARY)
    return code


def _flush_output() -> None:
    """Write the buffered output of stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the exit code already reports the failure to write
            abandon(stream)


if __name__ == "__main__":
    main()
