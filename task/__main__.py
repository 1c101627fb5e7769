"""The command `image-update`."""

from __future__ import annotations

import io
import os
import signal
import sys

from task import shutdown
from task.output.stdout import abandon


def main() -> None:
    """Run the command line and exit with its code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr is: help has letters that Latin-1 has not
    # A signal that comes during the imports waits until there is somebody to hear it. Without this a container's
    # first process would not get it at all, and others would end without results.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    shutdown.install()
    try:
        from task.cli.app import main as run  # noqa: PLC0415 - a signal that comes during the imports has to wait

        code = run(sys.argv[1:])
        shutdown.deaf()  # what was done is told: too late to stop anything
    except shutdown.Stopped:
        code = shutdown.code()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what could not be written has been told by the exit code
            abandon(stream)
    sys.exit(code)


if __name__ == "__main__":
    main()
