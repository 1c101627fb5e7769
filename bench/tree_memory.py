"""`python tree_memory.py PROGRAM ARGUMENT…`: runs a program, and prints the peak memory of the
program and its children.

The number is in bytes. Memory that several processes share is counted once (Pss), as it is for a
container's memory limit.
"""

import subprocess
import sys


def held(pid: int) -> int:
    """Return the current memory of a process and all its child processes, in bytes."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            own = next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return own * 1024 + sum(held(int(child)) for child in file.read().split())
    except (OSError, StopIteration):  # the process has exited in the meantime
        return 0


def main() -> int:
    """Run the program and return its exit code."""
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        most = max(most, held(process.pid))
    sys.stdout.write(str(most))
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
