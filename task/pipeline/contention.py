"""Others write to the same place: how often we were outpaced, how long to pause, and when to give up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from task.errors import ContendedError
from task.pipeline.ports import World

LONGEST_PAUSE = 20.0  # seconds


class Contention:
    """The attempts at one branch, or at one live Application, until the deadline."""

    def __init__(self, doing: str, deadline: float, world: World) -> None:
        """`doing` says in an error what others kept doing: "moving main"."""
        self.attempts = 0
        self._doing, self._deadline, self._world = doing, deadline, world
        self._end = world.now() + deadline
        self._began = 0.0
        self._quickest = deadline  # seconds that an attempt took: any other one may have been held up

    def begin(self) -> None:
        """Another attempt begins."""
        self.attempts += 1
        self._began = self._world.now()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The clock stands still: a signature may take minutes to come, and nobody has outpaced us by that."""
        before = self._world.now()
        yield
        waited = self._world.now() - before
        self._end += waited
        self._began += waited

    def pause(self, why: str = "") -> None:
        """Say why in the log, and sleep before the next attempt. Raises `ContendedError` when the deadline is over."""
        now = self._world.now()
        if self._end <= now:
            raise ContendedError(
                f"others kept {self._doing}: {self.attempts} attempts in {self._deadline:g} seconds",
                hint="run it again, or give a longer --deadline",
            )
        if why:
            self._world.log("info", why)
        self._quickest = min(self._quickest, now - self._began)
        longest = pause(self.attempts, self._quickest, self._end - now)
        self._world.sleep(longest * self._world.jitter())


def pause(attempts: int, took: float, left: float) -> float:
    """The longest pause in seconds, after so many attempts, each of which took so long.

    The more often we were outpaced, the more writers there are, each about as slow as we are. Some time is left for
    more attempts.
    """
    return min(took * (1 << min(attempts, 8)), LONGEST_PAUSE, left / 4)
