"""A clock that advances only when a test advances it or when something sleeps."""


class Clock:
    """A replacement for the module `time` that records every sleep."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Return the seconds since the clock was created."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.slept.append(seconds)
        self.time += seconds
