"""Which operations are retried, and when retries stop."""

from collections.abc import Callable, Sequence

import pytest
from support.clock import Clock

from task.errors import Outpaced, RepositoryError, SourceError, UnreachableError
from task.retry import NotDoneError, again, send_once, until


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = Clock()
    monkeypatch.setattr("task.retry.time", clock)
    monkeypatch.setattr("task.shutdown.sleep", clock.sleep)
    return clock.slept


def failing(times: int) -> Callable[[], str]:
    left = [OSError(number) for number in range(times)]

    def ask() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return ask


@pytest.mark.parametrize(("times", "slept"), [(0, []), (1, [0.5]), (2, [0.5, 2.0])])
def test_a_transient_error_is_retried(times: int, slept: list[float], naps: list[float]) -> None:
    assert again(failing(times), (0.5, 2.0), OSError) == "answer"
    assert naps == slept


def test_the_last_error_is_raised() -> None:
    with pytest.raises(OSError, match="2"):
        again(failing(3), (0.5, 2.0), OSError)


@pytest.mark.parametrize("deadline", [0.0, 1.0])
def test_no_pause_extends_beyond_the_deadline(deadline: float, naps: list[float]) -> None:
    with pytest.raises(OSError, match="0" if deadline < 0.5 else "1"):
        again(failing(9), (0.5, 2.0), OSError, deadline=deadline)
    assert naps == [0.5][: deadline >= 0.5]


def test_a_permanent_error_is_raised_at_once(naps: list[float]) -> None:
    with pytest.raises(OSError, match="0"):
        again(failing(1), (0.5,), OSError, lambda error: error.args != (0,))
    with pytest.raises(ZeroDivisionError):
        again(lambda: str(1 // 0), (0.5,), OSError)
    assert naps == []


@pytest.mark.parametrize(
    ("pauses", "answer", "slept"),
    [((), 1, []), ((0.5,), 2, [0.5]), ((0.5, 0.5, 0.5), 3, [0.5, 0.5])],
)
def test_repeats_until_the_result_is_satisfactory(
    pauses: tuple[float, ...], answer: int, slept: list[float], naps: list[float]
) -> None:
    answers = iter([1, 2, 3, 4])
    assert until(lambda one: one == 3, next(answers), lambda: next(answers), pauses) == answer
    assert naps == slept


def test_the_last_pause_ends_at_the_deadline(naps: list[float]) -> None:
    assert until(lambda _: False, 1, lambda: 1, (30.0,), 5.0) == 1
    assert naps == [5.0]


def test_a_signal_skips_the_remaining_pauses(
    monkeypatch: pytest.MonkeyPatch, naps: list[float]
) -> None:
    monkeypatch.setattr("task.shutdown.code", lambda: 143)
    assert until(lambda _: False, 1, lambda: 2, (30.0,)) == 1
    assert naps == []


LOST, DONE, RACE = UnreachableError("broke off", subject="repo"), "c0ffee", Outpaced("it moved")
REFUSED, LIMITED, BLIND = RepositoryError("no"), NotDoneError("limited"), SourceError("cannot look")

Answer = str | Exception


def giving(answers: Sequence[Answer]) -> Callable[[], str]:
    left = list(answers)

    def give() -> str:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return give


# A change whose response is lost lands only once, and its sender learns that it has landed. Each
# case consists of the results of the attempts to send, the results of the checks, and the outcome.
ENDS: list[tuple[list[Answer], list[Answer], Answer]] = [
    ([DONE], [], DONE),
    ([LOST], [DONE], DONE),
    ([LOST, DONE], [""], DONE),
    ([LOST, LOST, DONE], ["", ""], DONE),
    ([LOST, LOST, LOST], ["", "", DONE], DONE),
    ([LOST, LOST, LOST], ["", "", ""], LOST),
    ([RACE], [], RACE),
    ([REFUSED], [], REFUSED),
    ([LIMITED], [], LIMITED),
    ([LOST, LIMITED], [""], LIMITED),
    # The change landed after the first check, so the second attempt to send conflicts with it.
    ([LOST, RACE], ["", DONE], DONE),
    ([LOST, REFUSED], ["", DONE], DONE),
    ([LOST, RACE], ["", ""], RACE),
    ([LOST, REFUSED], ["", ""], REFUSED),
]


@pytest.mark.parametrize(("sent", "seen", "end"), ENDS)
def test_each_combination_of_sending_and_checking_has_a_defined_outcome(
    sent: list[Answer], seen: list[Answer], end: Answer
) -> None:
    send, look = giving(sent), giving(seen)
    if isinstance(end, str):
        assert send_once(send, look, "whether it arrived") == end
    else:
        with pytest.raises(type(end)) as caught:
            send_once(send, look, "whether it arrived")
        assert caught.value is end
    for all_used in (send, look):
        with pytest.raises(IndexError):
            all_used()


@pytest.mark.parametrize(("sent", "seen"), [([LOST], [BLIND]), ([LOST, RACE], ["", BLIND])])
def test_an_outcome_that_cannot_be_checked_is_reported_as_unknown(
    sent: list[Answer], seen: list[Answer]
) -> None:
    with pytest.raises(UnreachableError) as caught:
        send_once(giving(sent), giving(seen), "whether it arrived")
    assert (caught.value.message, caught.value.subject) == ("broke off", "repo")
    assert (
        caught.value.hint
        == "it is unknown whether it arrived; run it again: the next run detects what has landed"
    )


def test_a_signal_stops_the_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("task.shutdown.code", lambda: 143)
    with pytest.raises(UnreachableError) as caught:
        send_once(giving([LOST]), giving([""]), "whether it arrived")
    assert caught.value is LOST
