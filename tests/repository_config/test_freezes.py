"""When a freeze applies: by local time in its time zone, even when clocks go forward or back."""

import time
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.errors import Malformed
from task.repository_config.config import (
    Freeze,
    in_force,
    next_start,
    seconds_of,
    window,
    zone_of,
)
from task.repository_config.config import schedule as check

BERLIN = "Europe/Berlin"
WEEKEND = ("0 18 * * 5", "62h", BERLIN)
NIGHTLY = ("30 2 * * *", "1h", BERLIN)


def test_the_next_window_is_after_now_even_in_the_second_half_of_a_repeated_hour() -> None:
    """On 2026-10-25, 02:10 occurs twice. The second time, the 02:30 window has already begun."""
    schedule, _, zone = NIGHTLY
    assert next_start(schedule, zone_of(zone), "2026-10-25T00:10:00Z") == "2026-10-25T00:30:00Z"
    assert next_start(schedule, zone_of(zone), "2026-10-25T01:10:00Z") == "2026-10-26T01:30:00Z"


def held(schedule: str, duration: str, zone: str, now: str) -> tuple[str, str] | None:
    return window(schedule, seconds_of(duration), zone_of(zone), now)


@pytest.mark.parametrize(
    ("freeze", "now", "expected"),
    [
        (WEEKEND, "2026-11-20T16:59:59Z", None),
        (WEEKEND, "2026-11-20T17:00:00Z", ("2026-11-20T17:00:00Z", "2026-11-23T07:00:00Z")),
        (WEEKEND, "2026-11-23T06:59:59Z", ("2026-11-20T17:00:00Z", "2026-11-23T07:00:00Z")),
        (WEEKEND, "2026-11-23T07:00:00Z", None),
        # In summer, Berlin is two hours ahead of UTC.
        (WEEKEND, "2026-07-17T16:00:00Z", ("2026-07-17T16:00:00Z", "2026-07-20T06:00:00Z")),
        # The clocks go forward on 2026-03-29 and back on 2026-10-25, but 62 hours remain 62 hours.
        (WEEKEND, "2026-03-30T06:59:59Z", ("2026-03-27T17:00:00Z", "2026-03-30T07:00:00Z")),
        (WEEKEND, "2026-10-26T05:59:59Z", ("2026-10-23T16:00:00Z", "2026-10-26T06:00:00Z")),
        # 02:30 does not exist on 2026-03-29: the window begins at 03:00, when the clocks continue.
        (NIGHTLY, "2026-03-29T00:59:59Z", None),
        (NIGHTLY, "2026-03-29T01:00:00Z", ("2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z")),
        (NIGHTLY, "2026-03-29T02:00:00Z", None),
        # 02:30 occurs twice on 2026-10-25: the window begins the first time and ends the second
        # time.
        (NIGHTLY, "2026-10-25T00:30:00Z", ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z")),
        (NIGHTLY, "2026-10-25T01:15:00Z", ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z")),
        (NIGHTLY, "2026-10-25T01:30:00Z", None),
        # Overlapping windows are one window, which ends with the last one.
        (("0 * * * *", "90m", "UTC"), "2026-11-22T12:10:00Z", ("2026-11-22T12:00:00Z", "2026-11-22T13:30:00Z")),
        (("* * * * *", "366d", "UTC"), "2026-11-22T12:10:30Z", ("2026-11-22T12:10:00Z", "2027-11-23T12:10:00Z")),
        (("0 0 24 12 *", "9d", "US/Eastern"), "2027-01-01T00:00:00Z", ("2026-12-24T05:00:00Z", "2027-01-02T05:00:00Z")),
        (("0 0 29 2 *", "1d", "UTC"), "2028-02-29T12:00:00Z", ("2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z")),
        (("0 0 29 2 *", "1d", "UTC"), "2027-02-28T12:00:00Z", None),
        (("0 0 L * *", "1d", "UTC"), "2026-11-30T12:00:00Z", ("2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z")),
        # A time zone with a half-hour offset, and a day that a country skipped.
        (("0 9 * * *", "1h", "Asia/Kolkata"), "2026-11-22T03:30:00Z", ("2026-11-22T03:30:00Z", "2026-11-22T04:30:00Z")),
        (("0 9 30 12 *", "1h", "Pacific/Apia"), "2011-12-30T19:30:00Z", None),
        (("0 0 30 2 1,*", "1d", "UTC"), "2026-11-22T12:00:00Z", None),  # a window that never begins
        # As in Argo CD's cron (robfig/cron 3.0.1), one of the day fields must match, unless one is
        # `*`.
        (("0 0 */2 * 1", "1d", "UTC"), "2026-11-23T12:00:00Z", ("2026-11-23T00:00:00Z", "2026-11-24T00:00:00Z")),
        (("0 0 */2 * 1", "1d", "UTC"), "2026-11-25T12:00:00Z", ("2026-11-25T00:00:00Z", "2026-11-26T00:00:00Z")),
        (("0 0 */2 * 1", "1d", "UTC"), "2026-11-24T12:00:00Z", None),
        (("0 0 13 * */2", "1d", "UTC"), "2026-11-13T12:00:00Z", ("2026-11-13T00:00:00Z", "2026-11-14T00:00:00Z")),
        (("0 0 13 * */2", "1d", "UTC"), "2026-11-22T12:00:00Z", ("2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z")),
        (("0 0 */2 * *", "1d", "UTC"), "2026-11-24T12:00:00Z", None),
        (("0 0 */1 * 1", "1d", "UTC"), "2026-11-25T12:00:00Z", None),
        (("0 0 13,* * 1", "1d", "UTC"), "2026-11-13T12:00:00Z", None),
    ],
)  # fmt: skip
def test_freeze_windows_follow_time_zones_and_clock_changes(
    freeze: tuple[str, str, str], now: str, expected: tuple[str, str] | None
) -> None:
    assert held(*freeze, now) == expected


def beginnings(
    hour: int, minute: int, weekday: int, zone: ZoneInfo, days: list[date]
) -> list[datetime]:
    """Return when a window at this hour and minute begins on these days, computed from the calendar
    alone.
    """
    found = []
    for day in days:
        if weekday in (7, day.isoweekday() % 7):
            start = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            while start.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != start.replace(
                tzinfo=None
            ):
                start += timedelta(minutes=1)  # the clocks skip this minute
            found.append(start.astimezone(UTC))
    return found


ZONES = [BERLIN, "America/Sao_Paulo", "UTC", "Australia/Lord_Howe"]
MOMENTS = st.datetimes(datetime(2026, 3, 1), datetime(2026, 11, 30))  # noqa: DTZ001 - hypothesis wants it so


@given(
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 7),
    st.sampled_from(ZONES),
    st.integers(1, 80),
    MOMENTS,
)
def test_freeze_windows_agree_with_the_calendar(
    hour: int, minute: int, weekday: int, zone: str, hours: int, moment: datetime
) -> None:
    """Here, weekday 7 means every day."""
    now = moment.replace(microsecond=0, tzinfo=UTC)
    days = [(now - timedelta(days=n)).date() for n in range(-1, 6)]
    starts = beginnings(hour, minute, weekday, ZoneInfo(zone), days)
    expected = any(start <= now < start + timedelta(hours=hours) for start in starts)
    schedule = f"{minute} {hour} * * {'*' if weekday == 7 else weekday}"
    found = held(schedule, f"{hours}h", zone, now.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert (found is not None) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("62h", 223_200), ("1h30m", 5400), ("45m", 2700), ("3d", 259_200), ("1d2h3m", 93_780)],
)
def test_durations_are_parsed(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0h",
        "1",
        "h",
        "1.5h",
        "-1h",
        "1h 2m",
        "1m1h",
        "1s",
        "99999d",
        "9" * 500 + "h",
        "\u0661h",
    ],
)
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(Malformed):
        seconds_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Berlin",
        "../../etc/passwd",
        "/etc/passwd",
        "Europe",
        "Europe/Berlin/x",
        "a\0b",
        "x" * 500,
        "UTC\n",
        "Ä/B",
    ],
)
def test_invalid_time_zones_are_rejected(text: str) -> None:
    with pytest.raises(Malformed, match="is not a time zone"):
        zone_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@daily",
        "0 0 * *",
        "0 0 0 * * *",
        "60 0 * * *",
        "0 0 30 2 *",
        "0 0 0 * *",
        "0 0 * * x",
        "*/0 * * * *",
        "1-0 * * * *",
    ],
)
def test_invalid_schedules_are_rejected(text: str) -> None:
    with pytest.raises(Malformed):
        check(text)


fields = st.text(alphabet="0123456789*/,-L#WMONJA", min_size=1, max_size=18)


@given(
    st.lists(fields, min_size=5, max_size=5)
    | st.lists(st.text(max_size=19), min_size=5, max_size=5)
)
def test_any_schedule_is_either_rejected_or_evaluated_quickly(parts: list[str]) -> None:
    schedule = " ".join(parts)
    try:
        check(schedule)
    except Malformed:
        return
    began = time.process_time()
    held(schedule, "366d", BERLIN, "2026-11-22T12:00:00Z")
    assert time.process_time() - began < 1


def test_fifty_of_the_slowest_schedules_are_evaluated_within_seconds() -> None:
    """None of the windows ever begins, so fifty years of days are checked for each."""
    never = [Freeze("0 0 30 2 1,*", 3600, zone_of(BERLIN), "x")] * 50
    began = time.process_time()
    assert in_force(never, "2026-11-22T12:00:00Z") == []
    assert time.process_time() - began < 30
