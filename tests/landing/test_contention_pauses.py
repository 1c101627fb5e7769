"""The longest pause after a lost race."""

import pytest

from task.landing.contention import LONGEST_PAUSE, longest_pause


@pytest.mark.parametrize(
    ("attempts", "took", "left", "pause"),
    [
        (1, 0.1, 120.0, 0.36),
        (2, 0.1, 120.0, 0.432),
        (4, 1.0, 120.0, 6.2208),
        (4, 3.0, 120.0, LONGEST_PAUSE),
        (500, 0.2, 120.0, 0.6 * 1.2**12),
        (4, 1.0, 8.0, 2.0),  # time for more attempts is left
    ],
)
def test_it_grows_with_the_losses_and_leaves_time(attempts: int, took: float, left: float, pause: float) -> None:
    assert longest_pause(attempts, took, left) == pytest.approx(pause)
