"""A clock that moves only when a test moves it, or when somebody sleeps."""


class Clock:
    """Stands in for the module `time`, and keeps the pauses that were slept."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.time += seconds
