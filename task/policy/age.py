"""How old something must be before it goes further (`minimumAge`). Pure."""

from __future__ import annotations

from math import ceil

from task.model import Verdict
from task.timestamps import epoch_seconds, of_unix

MOST_YOUNG = 200  # tags of one entry whose dates `scan` asks, newest first


def young_until(since: str, seconds: int, now: str) -> str:
    """Return the time from which a thing is old enough, or "" if it is by now. `since` is when its age began."""
    admitted = epoch_seconds(since) + seconds
    return "" if admitted <= epoch_seconds(now) else of_unix(ceil(admitted))


def too_young(what: str, until: str) -> Verdict:
    """Return the refusal of a version that is too young until then, or of one without a date."""
    when = f"is too young: it is admitted from {until} on" if until else "has no date, so it counts as too young"
    return Verdict("refuse", "too-young", f"{what} {when} (minimumAge)")
