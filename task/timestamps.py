"""Formats all times the same way: RFC 3339, in UTC, to the millisecond."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from task.errors import Malformed
from task.text import counted

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt"
    r" ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{1,12}))?)?\s?([Zz]|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
_HINT = "use the form 2026-11-21T06:00:00Z"


def utc(text: str) -> str:
    """Convert an RFC 3339 time to UTC, as `YYYY-MM-DDTHH:MM:SS[.fff]Z`. Raises `Malformed` for
    other strings.

    A date without a time means midnight, and a time without an offset is in UTC.
    `datetime.fromisoformat` alone would also accept weeks (`2026-W01-1`) and `20261121`, which are
    typos in this context, and it would reject a leap second.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise Malformed(f"{text[:50]!r} is not a time", _HINT)
    date, hour_and_minute, second, fraction, offset = match.groups(default="")
    hour_and_minute = hour_and_minute or "00:00"
    second = second or "00"
    if second == "60":  # a leap second, which `datetime` does not support
        second = "59"
    milliseconds = fraction.ljust(3, "0")[:3]
    is_utc = offset.upper() in {"", "Z"}
    zone = "+00:00" if is_utc else offset
    try:
        when = datetime.fromisoformat(f"{date}T{hour_and_minute}:{second}.{milliseconds}{zone}")
        return _formatted_utc(when)
    except (ValueError, OverflowError) as error:
        raise Malformed(f"{text[:50]!r} is not a time", _HINT) from error


def of_unix(seconds: int, milliseconds: int = 0) -> str:
    """Convert a Unix timestamp to the format of `utc`.

    Raises `Malformed` for times after the year 9999.
    """
    try:
        since_1970 = timedelta(seconds=seconds, milliseconds=milliseconds)
        return _formatted_utc(datetime(1970, 1, 1, tzinfo=UTC) + since_1970)
    except OverflowError as error:
        raise Malformed(f"{seconds} seconds since 1970 are out of range", _HINT) from error


def readable(text: str) -> str:
    """Return a human-readable time, to the minute: `2026-11-21 06:00 UTC`. "" remains ""."""
    return f"{text[:10]} {text[11:16]} UTC" if text else ""


def span(seconds: int) -> str:
    """Return a duration as text, in its largest whole unit: `3 days`."""
    for noun, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds % size == 0:
            return counted(seconds // size, noun)
    return counted(seconds, "second")


def epoch_seconds(text: str) -> float:
    """Convert an RFC 3339 time to seconds since 1970. A time without an offset is in UTC."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return when.timestamp()


def _formatted_utc(when: datetime) -> str:
    """Return a time in the format of `utc`."""
    text = when.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return text.removesuffix(".000") + "Z"
