"""Retries after someone else has changed the same branch or Application, with pauses and a
deadline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from task.errors import ContendedError
from task.landing.ports import World

# seconds; with longer pauses, the last of fifty writers would sleep after all others are done
LONGEST_PAUSE = 12.0


class Contention:
    """Attempts to change one branch or one live Application, until the deadline."""

    def __init__(self, activity: str, deadline: float, world: World) -> None:
        """`activity` says in the error message what the other writers were doing: "moving main"."""
        self.attempts = 0
        self._activity = activity
        self._deadline = deadline
        self._world = world
        self._end = world.now() + deadline
        self._began = 0.0
        # the shortest attempt, in seconds; a longer attempt may have waited for something else
        self._quickest = deadline

    def begin(self) -> None:
        """Start another attempt."""
        self.attempts += 1
        self._began = self._world.now()

    @contextmanager
    def clock_paused(self) -> Iterator[None]:
        """Stop the deadline's clock inside the block, for example during signature verification."""
        before = self._world.now()
        yield
        paused = self._world.now() - before
        self._end += paused
        self._began += paused

    def pause(self, why: str = "") -> None:
        """Sleep for a random time before another attempt. `why` is logged first, unless it is "".

        Raises `ContendedError` after the deadline.
        """
        now = self._world.now()
        if self._end <= now:
            raise ContendedError(
                f"others kept {self._activity}: {self.attempts} attempts in {self._deadline:g}"
                " seconds",
                hint="run it again, or use a longer --deadline",
            )
        if why:
            self._world.log("info", why)
        self._quickest = min(self._quickest, now - self._began)
        longest = longest_pause(self.attempts, self._quickest, self._end - now)
        self._world.sleep(longest * self._world.jitter())


def longest_pause(attempts: int, took: float, remaining: float) -> float:
    """Return the longest pause, in seconds, after this many attempts. The shortest attempt took
    `took` seconds, and `remaining` seconds are left until the deadline.

    The more races this run has lost, the more writers there are likely to be, each about as slow as
    this run. So the pause grows by 20% with each attempt. Growth rates were simulated for 2 to 50
    writers, both on two cores and far from the server. If the pause grows by 50% each time, the
    last of 20 distant writers finishes 20% later. If it does not grow, 50 writers on two cores need
    50% more attempts.
    """
    growing_pause = 3 * took * 1.2 ** min(attempts, 12)  # grows up to ninefold
    leaves_time = remaining / 4  # for more attempts
    return min(growing_pause, LONGEST_PAUSE, leaves_time)
