"""`python own_time.py REPORT ARGUMENT…`: runs `image-update ARGUMENT…` and writes what its children cost to REPORT.

Whoever waits for this process sees its processor time with that of all its children;
the difference is what the command itself costs, from the first to the last moment.
"""

import atexit
import os
import resource
import sys  # and no more than that: what is imported here counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

from task.__main__ import main  # noqa: E402 - nothing above costs time

report = sys.argv.pop(1)
leave = os._exit  # a command may leave without saying goodbye to atexit


def write() -> None:
    """Leave the processor seconds of the children in the report."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(report, "w", encoding="utf-8") as file:  # loaded already, unlike others
        file.write(str(children.ru_utime + children.ru_stime))


def write_and_leave(status: int) -> "NoReturn":
    """`os._exit`, with the report."""
    write()
    leave(status)


if __name__ == "__main__":
    os._exit = write_and_leave
    atexit.register(write)
    main()
