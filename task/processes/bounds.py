"""Limits what a Git server may cost a run, in bytes and in time. A hostile server could otherwise send for hours."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from task.errors import UnreachableError

MEMORY, _LEAST = 1 << 30, 64 << 20  # bytes; with less, git cannot read an ordinary repository
SPARE = 600.0  # seconds for one repository, besides the time in which others may keep pushing to its branches
_AGAIN = "run it again; a longer --deadline gives the repository more time"


@dataclass(frozen=True)
class Bounds:
    """The limits for one repository. They are far above the needs of any update, and tests lower them."""

    messages: int = 64_000_000  # bytes of refs and messages that one command prints
    pack: int = 2 << 30  # bytes of packs of one repository
    memory: int = MEMORY  # bytes of each git process: it collects refs and error pages before it prints them
    seconds: float = 120.0 + SPARE  # for all commands about one repository

    def limits(self) -> Callable[[], None]:
        """Return a function that a new git process calls first, so that the kernel enforces these limits.

        A stricter limit of our own process (`ulimit -f`) stays. The limit on file size works for packs only because
        `fetch.unpackLimit=1` keeps each pack in one file.
        """
        wanted = ((resource.RLIMIT_FSIZE, self.pack), (resource.RLIMIT_DATA, self.memory))
        lower = []
        for which, most in wanted:
            soft, hard = resource.getrlimit(which)
            if soft == resource.RLIM_INFINITY or soft > most:
                lower.append((which, (most, hard)))

        def limit() -> None:
            for which, pair in lower:
                with suppress(OSError, ValueError):  # the system has no such limit
                    resource.setrlimit(which, pair)

        return limit

    def passed(self, messages: str) -> str:
        """Return which limit git has hit according to its own messages, or "". The server's begin with `remote:`."""
        ours = [line for line in messages.splitlines() if not line.startswith("remote:")]
        if any("Out of memory" in line for line in ours):
            return f"git would need more than {_amount(self.memory)} of memory for it"
        soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if any("File too large" in line for line in ours) and (soft == resource.RLIM_INFINITY or soft > self.pack):
            return self.too_much_pack
        return ""

    @property
    def too_much_pack(self) -> str:
        """The reason to give for a transfer that was stopped."""
        return f"it sent more than {_amount(self.pack)} of packs"

    @property
    def too_many_messages(self) -> str:
        """The reason to give for a command that was stopped."""
        return f"it sent more than {_amount(self.messages)} of refs and messages"


def memory_of_step(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the memory for each git process: 1 GiB, or half of the step's limit if that is less.

    Git can say that it ran out of memory. If the step reaches its own limit first, the kernel kills git without a word.
    """
    limits = [2 * MEMORY]
    with suppress(OSError, ValueError):  # not on Linux
        for line in own.read_text(encoding="utf-8").splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            folder, name = ("memory", "memory.limit_in_bytes") if controllers else (".", "memory.max")
            here = PurePosixPath(place)
            for group in (here, *here.parents):  # every group above limits it, too
                with suppress(OSError, ValueError):  # not visible in a container; "max" if there is no limit
                    limits.append(int((cgroups / folder / group.relative_to("/") / name).read_text(encoding="ascii")))
    return max(min(limits) // 2, _LEAST)


class Clock:
    """The time for one repository. It begins with the first command."""

    def __init__(self, seconds: float, subject: str) -> None:
        self.seconds = seconds
        self.subject = subject
        self._end = 0.0

    def left(self) -> float:
        """Return the seconds that are left. Raises `UnreachableError` when the time is over."""
        now = time.monotonic()
        self._end = self._end or now + self.seconds
        if now >= self._end:
            raise UnreachableError(f"the Git server takes too long ({self.why})", hint=_AGAIN, subject=self.subject)
        return self._end - now

    @property
    def why(self) -> str:
        """The reason to give for a command that was stopped."""
        return f"one repository may take {self.seconds:.0f} seconds in all"


def _amount(count: int) -> str:
    for unit, bits in (("GiB", 30), ("MiB", 20)):
        if count % (1 << bits) == 0:
            return f"{count >> bits} {unit}"
    return f"{count / 1_000_000:g} MB"
