"""A wrapper for git on PATH: it runs the real git, and then records the call and how many bytes are
in RECORD_TMP.

Each call is written to a file PROCESS.json in the folder RECORD_GIT.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run a git command and return its exit code."""
    status = subprocess.run([os.environ["REAL_GIT"], *sys.argv[1:]], check=False).returncode
    taken = subprocess.run(
        ["du", "-s", "-B1", os.environ["RECORD_TMP"]], capture_output=True, text=True, check=False
    )
    note = Path(os.environ["RECORD_GIT"], f"{os.getpid()}.json")
    note.write_text(json.dumps([sys.argv[1:], int(taken.stdout.split()[0])]))
    return status


if __name__ == "__main__":
    sys.exit(main())
