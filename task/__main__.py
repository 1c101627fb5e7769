"""The command `image-update`. Answers `--version` without loading anything else."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        from task import __version__

        print(f"image-update {__version__}")
        return
    gc.disable()  # a short run leaves little to collect, and looking for it costs a tenth of the start
    from task import stop

    stop.install()
    try:
        from task.cli import main as run

        code = run(sys.argv[1:])
    except stop.Stopped:
        code = stop.code()
    sys.exit(code)


if __name__ == "__main__":
    main()
