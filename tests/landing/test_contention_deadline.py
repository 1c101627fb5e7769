"""How long a run tries to change a contended branch: until its deadline, on a pausable clock."""

from collections.abc import Iterator
from itertools import islice

import pytest
from support.clock import Clock
from support.fake_world import fake_world

from task.errors import ContendedError
from task.landing.contention import LONGEST_PAUSE, Contention, longest_pause
from task.landing.ports import World


class ClockOfRun(Clock):
    """A world's clock that logs the reason for each wait."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def world(self) -> World:
        return fake_world(
            now=lambda: self.time,
            sleep=self.sleep,
            jitter=lambda: 1.0,
            log=lambda level, text: self.said.append(f"{level}: {text}"),
        )


def attempts(clock: ClockOfRun, contention: Contention, took: float) -> Iterator[int]:
    """Lose the race again and again. Each attempt takes this many seconds."""
    while True:
        contention.begin()
        clock.time += took
        yield contention.attempts
        contention.pause("somebody was faster")


def test_a_run_gives_up_on_a_contended_branch_at_the_deadline_and_names_it() -> None:
    clock = ClockOfRun()
    contention = Contention("moving main", 10.0, clock.world())
    with pytest.raises(ContendedError) as raised:
        list(islice(attempts(clock, contention, 1.0), 1000))
    # a pause never ends after the deadline, although an attempt may
    assert 10.0 <= clock.time < 10.0 + 1.0
    count = contention.attempts
    assert count == len(clock.slept) + 1
    assert count > 3
    assert str(raised.value) == f"others kept moving main: {count} attempts in 10 seconds"
    assert raised.value.hint == "run it again, or use a longer --deadline"
    assert clock.said == ["info: somebody was faster"] * (count - 1)


def test_no_attempt_is_made_after_the_deadline() -> None:
    clock = ClockOfRun()
    contention = Contention("changing argocd/web", 5.0, clock.world())
    contention.begin()
    clock.time = 5.0
    with pytest.raises(
        ContendedError, match="others kept changing argocd/web: 1 attempts in 5 seconds"
    ):
        contention.pause()
    assert clock.slept == []


def test_time_spent_on_verifying_signatures_does_not_count_towards_the_deadline() -> None:
    clock = ClockOfRun()
    contention = Contention("moving main", 10.0, clock.world())
    contention.begin()
    with contention.clock_paused():
        clock.time += 100.0
    clock.time += 0.5
    contention.pause()  # no error, although 100 seconds have passed
    assert clock.slept == [pytest.approx(3 * 0.5 * 1.2)]  # and the attempt counts as half a second
    clock.time = 110.0
    with pytest.raises(ContendedError):
        contention.pause()


@pytest.mark.parametrize(
    ("attempts", "took", "left", "pause"),
    [
        (1, 0.1, 120.0, 0.36),
        (2, 0.1, 120.0, 0.432),
        (4, 1.0, 120.0, 6.2208),
        (4, 3.0, 120.0, LONGEST_PAUSE),
        (500, 0.2, 120.0, 0.6 * 1.2**12),
        (4, 1.0, 8.0, 2.0),  # the pause leaves time for more attempts
    ],
)
def test_the_pause_grows_with_each_lost_race_and_leaves_time_for_more_attempts(
    attempts: int, took: float, left: float, pause: float
) -> None:
    assert longest_pause(attempts, took, left) == pytest.approx(pause)
