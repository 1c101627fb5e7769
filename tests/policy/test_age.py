"""When something is old enough, with clocks before and after."""

import pytest

from task.policy.judge import too_young, young_until

DAY = 86_400


@pytest.mark.parametrize(
    ("since", "seconds", "now", "until"),
    [
        ("2026-11-20T12:00:00Z", 3 * DAY, "2026-11-23T11:59:59Z", "2026-11-23T12:00:00Z"),
        ("2026-11-20T12:00:00Z", 3 * DAY, "2026-11-23T12:00:00Z", ""),
        ("2026-11-20T12:00:00.123456789Z", 3 * DAY, "2026-11-23T12:00:00Z", "2026-11-23T12:00:01Z"),
        ("2027-01-01T00:00:00Z", DAY, "2026-11-23T12:00:00Z", "2027-01-02T00:00:00Z"),  # a clock that is ahead
        ("1970-01-01T00:00:00Z", 366 * DAY, "2026-11-23T12:00:00Z", ""),
        # Europe's clocks go back on the 25th: 48 hours are 48 hours
        ("2026-10-24T12:00:00+02:00", 2 * DAY, "2026-10-26T10:59:59+01:00", "2026-10-26T10:00:00Z"),
        ("2026-10-24T12:00:00+02:00", 2 * DAY, "2026-10-26T11:00:00+01:00", ""),
    ],
)
def test_until_when_it_is_too_young(since: str, seconds: int, now: str, until: str) -> None:
    found = young_until(since, seconds, now)
    assert found.replace(".000Z", "Z") == until


def test_the_refusal_says_the_time_or_that_there_is_none() -> None:
    assert "from 2026-11-23T12:00:00Z on" in too_young("1.2.0", "2026-11-23T12:00:00Z").because
    assert "has no date" in too_young("1.2.0", "").because
