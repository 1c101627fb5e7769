"""Retries after others changed the same branch or Application: the pauses between them, and the deadline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from task.errors import ContendedError
from task.pipeline.ports import World

LONGEST_PAUSE = 12.0  # seconds; with longer ones the last of fifty writers sleeps while nobody pushes


class Contention:
    """The attempts at one branch, or at one live Application, until the deadline."""

    def __init__(self, activity: str, deadline: float, world: World) -> None:
        """`activity` is what others do, as an error says it: "moving main"."""
        self.attempts = 0
        self._activity, self._deadline, self._world = activity, deadline, world
        self._end = world.now() + deadline
        self._began = 0.0
        self._quickest = deadline  # seconds of the shortest attempt; longer ones may have waited for something else

    def begin(self) -> None:
        """Another attempt begins."""
        self.attempts += 1
        self._began = self._world.now()

    @contextmanager
    def clock_paused(self) -> Iterator[None]:
        """Time spent in here does not count against the deadline: waiting for a signature is no contention."""
        before = self._world.now()
        yield
        waited = self._world.now() - before
        self._end += waited
        self._began += waited

    def pause(self, why: str = "") -> None:
        """Log why, and sleep before the next attempt. Raises `ContendedError` when the deadline is over."""
        now = self._world.now()
        if self._end <= now:
            raise ContendedError(
                f"others kept {self._activity}: {self.attempts} attempts in {self._deadline:g} seconds",
                hint="run it again, or give a longer --deadline",
            )
        if why:
            self._world.log("info", why)
        self._quickest = min(self._quickest, now - self._began)
        longest = longest_pause(self.attempts, self._quickest, self._end - now)
        self._world.sleep(longest * self._world.jitter())


def longest_pause(attempts: int, took: float, left: float) -> float:
    """The longest pause in seconds, after so many attempts, each of which took so long.

    The more often somebody else was faster, the more writers there are, each about as slow as we are. Some time is
    left for more attempts. Of the growth rates that were simulated for 2 to 50 writers, on two cores and on many, this
    one ends soonest: doubling lets the last ones sleep too long, a constant pause wastes attempts.
    """
    return min(2 * took * 1.5 ** min(attempts, 12), LONGEST_PAUSE, left / 4)
