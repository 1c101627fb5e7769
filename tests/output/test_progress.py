"""What is shown while rollouts are waited for, and what is said at the end."""

from dataclasses import replace
from unicodedata import combining, east_asian_width

import pytest

from task.output.progress import Row, line, picture, redraw, summary

OK = Row("argocd/api", "synced-and-healthy", "synced and healthy", seconds=42)
WAITS = Row("argocd/web", "waiting", "Argo CD has not compared yet", seconds=3)
GOES = Row("argocd/worker", "progressing", "synced, progressing: Deployment worker: 1 of 3 updated", seconds=61)
BAD = Row("argocd/job", "failed", "the sync failed: Job migrate: \x1b[31mno\n", "see the Application in Argo CD", 3700)
SLOW = Row("argocd/web", "timed-out", "the sync is running", "wait longer", 600)
MANUAL = Row("argocd/shop", "needs-sync", "auto-sync is off: someone must sync it", "argocd app sync", 5)

LINES = [
    (OK, "argocd/api: synced-and-healthy after 42 s: synced and healthy"),
    (WAITS, "argocd/web: waiting after 3 s: Argo CD has not compared yet"),
    (GOES, "argocd/worker: progressing after 1:01 min: synced, progressing: Deployment worker: 1 of 3 updated"),
    (BAD, "argocd/job: failed after 1:01:40: the sync failed: Job migrate: ^[[31mno^J; see the Application in Argo CD"),
]


@pytest.mark.parametrize(("row", "expected"), LINES, ids=[row.state for row, _ in LINES])
def test_one_line_per_change(row: Row, expected: str) -> None:
    assert line(row) == expected


def test_the_picture_has_a_bar_and_a_line_for_each() -> None:
    lines = picture((OK, WAITS), 61, 600, size=(100, 24), colour=False)
    assert lines == [
        "[##########----------] 1 of 2 rolled out, 1:01 min of 10:00 min",
        "ok argocd/api  synced and healthy",
        ".. argocd/web  Argo CD has not compared yet",
    ]


def test_colours_are_optional() -> None:
    assert "\x1b[32mok\x1b[0m" in picture((OK,), 1, 600, size=(80, 24), colour=True)[1]
    assert not any("\x1b" in one for one in picture((OK, BAD), 1, 600, size=(80, 24), colour=False))


@pytest.mark.parametrize("columns", [1, 20, 40, 79, 200])
@pytest.mark.parametrize("text", ["x" * 500, "\u6f22\u5b57" * 200, "e\u0301" * 300])
def test_no_line_is_wider_than_the_terminal(columns: int, text: str) -> None:
    rows = (Row("argocd/" + "a" * 60, "progressing", text), Row("x/y", "waiting", text))
    for one in picture(rows, 10_000, 36_000, size=(columns, 24), colour=False):
        wide = sum(0 if combining(char) else 1 + (east_asian_width(char) in "WF") for char in one)
        assert wide <= max(columns, 20)


def test_where_not_all_fit_the_open_and_failed_ones_come_first() -> None:
    rows = (*(replace(OK, application=f"argocd/a{number}") for number in range(40)), WAITS, BAD)
    lines = picture(rows, 1, 600, size=(80, 10), colour=False)
    assert len(lines) <= 9
    assert "argocd/job" in lines[1]
    assert "argocd/web" in lines[2]
    assert lines[-1] == "   and 35 more"


def test_the_picture_takes_the_place_of_the_last_one() -> None:
    assert redraw(["a", "b"], 0) == "a\nb\n"
    assert redraw(["a", "b"], 3) == "\x1b[3A\r\x1b[Ja\nb\n"


SENTENCES = [
    ((OK,), "argocd/api: synced and healthy"),
    ((OK, OK), "2 Applications: synced and healthy"),
    ((MANUAL,), "argocd/shop: auto-sync is off: someone must sync it"),
    ((OK, SLOW, MANUAL),
     ("2 of 3 Applications are not rolled out: "
     "argocd/web: not synced and healthy after 10:00 min: the sync is running; "
     "argocd/shop: auto-sync is off: someone must sync it")),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "expected"), SENTENCES)
def test_the_end_in_one_sentence(rows: tuple[Row, ...], expected: str) -> None:
    assert summary(rows) == expected


def test_no_applications_are_done() -> None:
    assert picture((), 0, 600, size=(80, 24), colour=False)[0].startswith("[####################] 0 of 0")
