"""Retries after somebody else changed the same branch or Application: the pauses in between,
and the deadline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from task.errors import ContendedError
from task.landing.ports import World

# seconds; with longer pauses, the last of fifty writers sleeps while nobody pushes
LONGEST_PAUSE = 12.0


class Contention:
    """The attempts to change one branch, or one live Application, until the deadline."""

    def __init__(self, activity: str, deadline: float, world: World) -> None:
        """`activity` is what the other writers do, in the words of the error: "moving main"."""
        self.attempts = 0
        self._activity = activity
        self._deadline = deadline
        self._world = world
        self._end = world.now() + deadline
        self._began = 0.0
        # duration of the shortest attempt; a longer one may have waited for something else
        self._quickest = deadline

    def begin(self) -> None:
        """Start another attempt."""
        self.attempts += 1
        self._began = self._world.now()

    @contextmanager
    def clock_paused(self) -> Iterator[None]:
        """Stop the clock of the deadline inside the block,
        for example while a signature is verified.
        """
        before = self._world.now()
        yield
        waited = self._world.now() - before
        self._end += waited
        self._began += waited

    def pause(self, why: str = "") -> None:
        """Log the reason, and sleep before the next attempt.

        Raises `ContendedError` after the deadline.
        """
        now = self._world.now()
        if self._end <= now:
            raise ContendedError(
                f"others kept {self._activity}: {self.attempts} attempts in {self._deadline:g}"
                " seconds",
                hint="run it again, or give a longer --deadline",
            )
        if why:
            self._world.log("info", why)
        self._quickest = min(self._quickest, now - self._began)
        longest = longest_pause(self.attempts, self._quickest, self._end - now)
        self._world.sleep(longest * self._world.jitter())


def longest_pause(attempts: int, took: float, left: float) -> float:
    """Return the longest pause in seconds after this many attempts,
    of which the shortest took `took` seconds.

    The more often somebody else was faster, the more writers there are, and each of them is about
    as slow as we are. Time for more attempts is left over. Growth rates were simulated for 2 to 50
    writers, on two cores and far from the server. If the pause grows by half each time, the last of
    20 far writers lands a fifth later. If it does not grow, 50 writers on two cores make half as
    many attempts again.
    """
    return min(3 * took * 1.2 ** min(attempts, 12), LONGEST_PAUSE, left / 4)
