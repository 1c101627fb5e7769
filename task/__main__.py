"""The command `image-update`. Answers `--version` without loading anything else."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        from task import __version__

        print(f"image-update {__version__}")
        return
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process
    gc.disable()  # a short run leaves little to collect, and looking for it costs a tenth of the start
    from task import light

    light.spare_typing()
    light.spare_signal()
    light.find_quickly()
    import signal

    # A signal that comes before there is somebody to hear it waits. Without this a container's first process would
    # not get it at all, and others would end without results.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    from task import stop

    stop.install()
    try:
        from task.cli import main as run

        code = run(sys.argv[1:])
        stop.deaf()  # what was done is told: too late to stop anything
    except stop.Stopped:
        code = stop.code()
    _leave(code)


def _leave(code: int) -> None:
    """End without clearing the memory, which costs a tenth of the run and which the system does anyway."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what could not be written has been told by the exit code
            continue
    os._exit(code)


if __name__ == "__main__":
    main()
