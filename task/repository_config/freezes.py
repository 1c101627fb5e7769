"""Freezes: periods in which nothing is deployed, in the notation of Argo CD's sync windows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from itertools import takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from task.errors import Malformed
from task.text import shortened
from task.timestamps import epoch_seconds, of_unix

LONGEST_SCHEDULE = 100  # characters
LONGEST_WINDOW = 366 * 86_400  # seconds
_DURATION = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,3}")
_ANY = re.compile(r"\*(?:/0*1)?", re.ASCII)
_UNITS = (86_400, 3_600, 60)
_EXAMPLE = '"0 18 * * 5" is 18:00 on each Friday: minute, hour, day, month, day of the week'


def schedule(text: str) -> str:
    """Return the text. Raises `Malformed` if it is not a schedule of five fields."""
    if len(text) > LONGEST_SCHEDULE or len(text.split()) != 5:
        raise Malformed(f"{shortened(text, 50)!r} is not a schedule of five fields", _EXAMPLE)
    try:
        CronSim(text, datetime(2026, 1, 1))  # noqa: DTZ001 - only the syntax is checked
    except CronSimError as error:
        raise Malformed(f"{text!r} is not a schedule: {error}", _EXAMPLE) from error
    return text


def seconds_of(text: str) -> int:
    """Return the seconds in a duration such as `62h`, `1h30m` or `3d`. Raises `Malformed`."""
    match = _DURATION.fullmatch(text)
    length = sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS, strict=True)) if match else 0
    if not 0 < length <= LONGEST_WINDOW:
        raise Malformed(f"{shortened(text, 50)!r} is not a duration of at most 366 days", "write 62h, 1h30m, 45m or 3d")
    return length


@lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """Return the time zone with that name. Raises `Malformed`."""
    try:
        if _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder, such as `Europe`
        pass
    raise Malformed(f"{shortened(name, 50)!r} is not a time zone", "write a name such as Europe/Berlin or UTC")


def window(schedule: str, seconds: int, zone: ZoneInfo, now: str) -> tuple[str, str] | None:
    """Return when the present window began and when it ends, or None outside a window. Times are RFC 3339, in UTC.

    Schedules are in local time of the zone. If clocks skip an hour, a window that begins in it begins after it. If an
    hour comes twice, a window begins in it once. The duration is elapsed time, whatever clocks show.
    """
    at = epoch_seconds(now)
    # Search forwards, from one length before: a search backwards from the second of two equal hours misses the first.
    starts = takewhile(lambda start: start <= at, _starts(schedule, zone, at - seconds))
    first = next((start for start in starts if start > at - seconds), None)
    if first is None:
        return None
    latest = next((start for start in _starts(schedule, zone, at + 1, reverse=True) if start <= at), first)
    begins = int(max(first, latest))  # where windows overlap, the last one ends last
    return of_unix(begins), of_unix(begins + seconds)


def _starts(schedule: str, zone: ZoneInfo, at: float, *, reverse: bool = False) -> Iterator[float]:
    """Yield when windows begin after a time, or before it. Yield nothing if none begins within fifty years."""
    found = CronSim(schedule, datetime.fromtimestamp(at, zone), reverse=reverse)
    # A day must fit both day fields if one of them is `*`, else one of the two. For Argo CD's cron (robfig/cron 3.0),
    # `*/2` is not `*`, but for the cron of Debian, which CronSim follows, it is.
    _, _, day, _, weekday = schedule.split()
    found.day_and = any(_ANY.fullmatch(item) for field in (day, weekday) for item in field.split(","))
    return (start.timestamp() for start in found)  # within one zone, `datetime` would compare local times
