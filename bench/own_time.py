"""`python own_time.py REPORT ARGUMENT…`: runs `image-update ARGUMENT…` and writes what its children cost to REPORT.

Whoever waits for this process sees its processor time with that of all its children;
the difference is what the command itself costs, from the first to the last moment.
"""

import atexit
import resource
import sys  # and no more than that: what is imported here counts

from task.__main__ import main

report = sys.argv.pop(1)


def write() -> None:
    """Leave the processor seconds of the children in the report."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(report, "w", encoding="utf-8") as file:  # loaded already, unlike others
        file.write(str(children.ru_utime + children.ru_stime))


if __name__ == "__main__":
    atexit.register(write)
    main()
