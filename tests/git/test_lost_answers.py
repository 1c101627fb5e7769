"""A change whose answer is lost lands once, and its sender learns that it landed."""

from collections.abc import Callable, Sequence

import pytest

from task import shutdown
from task.errors import Outpaced, RepositoryError, SourceError, UnreachableError
from task.git.repository import lost_answers
from task.git.repository.lost_answers import NotDoneError, land_once

LOST, DONE, RACE = UnreachableError("broke off", subject="repo"), "c0ffee", Outpaced("it moved")
REFUSED, LIMITED, BLIND = RepositoryError("no"), NotDoneError("limited"), SourceError("cannot look")

Answer = str | Exception


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_answers, "_PAUSES", (0.001, 0.001))


def giving(answers: Sequence[Answer]) -> Callable[[], str]:
    left = list(answers)

    def give() -> str:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return give


# what each sending and each look answers; the result
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
    # It landed after the first look, so the second sending finds it in its way.
    ([LOST, RACE], ["", DONE], DONE),
    ([LOST, REFUSED], ["", DONE], DONE),
    ([LOST, RACE], ["", ""], RACE),
    ([LOST, REFUSED], ["", ""], REFUSED),
]


@pytest.mark.parametrize(("sent", "seen", "end"), ENDS)
def test_how_it_ends(sent: list[Answer], seen: list[Answer], end: Answer) -> None:
    send, look = giving(sent), giving(seen)
    if isinstance(end, str):
        assert land_once(send, look, "whether it arrived") == end
    else:
        with pytest.raises(type(end)) as caught:
            land_once(send, look, "whether it arrived")
        assert caught.value is end
    for all_used in (send, look):
        with pytest.raises(IndexError):
            all_used()


@pytest.mark.parametrize(("sent", "seen"), [([LOST], [BLIND]), ([LOST, RACE], ["", BLIND])])
def test_an_end_that_cannot_be_seen_is_called_unknown(sent: list[Answer], seen: list[Answer]) -> None:
    with pytest.raises(UnreachableError) as caught:
        land_once(giving(sent), giving(seen), "whether it arrived")
    assert (caught.value.message, caught.value.subject) == ("broke off", "repo")
    assert caught.value.hint == "whether it arrived is not known; run it again: it finds what has landed"


def test_a_signal_ends_the_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "code", lambda: 143)
    with pytest.raises(UnreachableError) as caught:
        land_once(giving([LOST]), giving([""]), "whether it arrived")
    assert caught.value is LOST
