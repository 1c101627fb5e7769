"""The progress display while a run waits for rollouts, and the final report."""

import re
from dataclasses import replace
from io import StringIO
from unicodedata import combining, east_asian_width

import pytest
from rich.console import Console

from task.after.waiting import display, line, picture, summary
from task.argocd.rollouts import RolloutState, Sight
from task.output.log import Log

OK = RolloutState("argocd/api", "synced-and-healthy", "synced and healthy", seconds=42)
WAITS = RolloutState("argocd/web", "waiting", "Argo CD has not compared it yet", seconds=3)
GOES = RolloutState(
    "argocd/worker",
    "progressing",
    "synced, progressing: Deployment worker: 1 of 3 updated",
    seconds=61,
)
BAD = RolloutState(
    "argocd/job",
    "failed",
    "the sync failed: Job migrate: \x1b[31mno\n",
    "see the Application in Argo CD",
    3700,
)
SLOW = RolloutState("argocd/web", "timed-out", "the sync is running", "wait longer", 600)
MANUAL = RolloutState(
    "argocd/shop", "needs-sync", "auto-sync is off: someone must sync it", "argocd app sync", 5
)

LINES = [
    (OK, "argocd/api: synced-and-healthy after 42 s: synced and healthy"),
    (WAITS, "argocd/web: waiting after 3 s: Argo CD has not compared it yet"),
    (
        GOES,
        "argocd/worker: progressing after 1:01 min: synced, progressing: Deployment worker: 1 of 3 updated",
    ),
    (
        BAD,
        "argocd/job: failed after 1:01:40: the sync failed: Job migrate: ^[[31mno^J; see the Application in Argo CD",
    ),
]


@pytest.mark.parametrize(("row", "expected"), LINES, ids=[row.state for row, _ in LINES])
def test_each_state_change_is_printed_on_one_line(row: RolloutState, expected: str) -> None:
    assert line(row) == expected


def terminal(columns: int = 80, lines: int = 24, *, colour: bool = False) -> Console:
    return Console(
        file=StringIO(),
        width=columns,
        height=lines,
        color_system="standard" if colour else None,
        force_terminal=True,
    )


def drawn(
    rows: tuple[RolloutState, ...], seconds: float, limit: float, console: Console
) -> list[str]:
    with console.capture() as shown:
        console.print(picture(rows, seconds, limit, console.size))
    return [shown_line.rstrip() for shown_line in shown.get().splitlines()]


def test_the_display_contains_a_progress_bar_and_a_line_for_each_application() -> None:
    assert drawn((OK, WAITS), 61, 600, terminal(100)) == [
        "━━━━━━━━━━           1 of 2 rolled out, 1:01 min of 10:00 min",
        "ok argocd/api synced and healthy",
        ".. argocd/web Argo CD has not compared it yet",
    ]


def test_colors_are_optional() -> None:
    assert drawn((OK,), 1, 600, terminal(colour=True))[1].startswith("\x1b[32mok\x1b[0m")
    assert not any("\x1b" in one for one in drawn((OK, BAD), 1, 600, terminal()))


@pytest.mark.parametrize("columns", [20, 40, 79, 200])
@pytest.mark.parametrize("text", ["x" * 500, "\u6f22\u5b57" * 200, "e\u0301" * 300])
def test_no_line_is_wider_than_the_terminal(columns: int, text: str) -> None:
    rows = (
        RolloutState("argocd/" + "a" * 60, "progressing", text),
        RolloutState("x/y", "waiting", text),
    )
    lines = drawn(rows, 10_000, 36_000, terminal(columns))
    assert [one[:2] for one in lines[-2:]] == ["->", ".."]  # one line per Application
    for one in lines:
        wide = sum(0 if combining(char) else 1 + (east_asian_width(char) in "WF") for char in one)
        assert wide <= columns


def test_unfinished_and_failed_rollouts_are_shown_first_if_space_is_limited() -> None:
    rows = (*(replace(OK, application=f"argocd/a{number}") for number in range(40)), WAITS, BAD)
    lines = drawn(rows, 1, 600, terminal(80, 10))
    assert len(lines) <= 9
    assert "argocd/job" in lines[1]
    assert "argocd/web" in lines[2]
    assert lines[-1] == "   and 35 more"


def sight(*rows: RolloutState) -> Sight:
    return Sight(rows, rows, 1.0)


def test_the_display_redraws_in_place_below_the_log_lines() -> None:
    console = terminal(colour=True)
    log = Log(console=console)
    with display(log, {}, 60) as show:
        show(sight(WAITS))
        log("warning", "the API is slow")
        show(sight(OK))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.startswith("\x1b[?25l")
    assert shown.endswith("\x1b[?25h")
    assert shown.count("\x1b[1A\x1b[2K") >= 2
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).splitlines()
    assert last[-1].strip() == "ok argocd/api synced and healthy"
    assert "warning: the API is slow" in last


@pytest.mark.parametrize("environ", [{}, {"CI": "true"}])
def test_without_a_terminal_each_change_is_logged_on_one_line(environ: dict[str, str]) -> None:
    stream = StringIO()
    log = Log(stream=stream) if not environ else Log(console=Console(file=stream, width=200))
    with display(log, environ, 60) as show:
        show(sight(WAITS, MANUAL, BAD))
        show(Sight((WAITS, MANUAL, BAD), (), 2.0))
    assert [one.partition(" after")[0] for one in stream.getvalue().splitlines()] == [
        "argocd/web: waiting",
        "argocd/shop: needs-sync",
        "argocd/job: failed",
    ]
    assert MANUAL.hint not in stream.getvalue()  # the final error contains the hint


SENTENCES = [
    ((MANUAL,), "argocd/shop: auto-sync is off: someone must sync it"),
    ((SLOW,), "argocd/web: not synced and healthy after 10:00 min: the sync is running"),
    ((OK, SLOW, MANUAL), "2 of 3 Applications did not roll out: argocd/web, argocd/shop"),
    ((MANUAL,) * 7, f"7 of 7 Applications did not roll out: {', '.join(['argocd/shop'] * 5)} and 2 more"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "expected"), SENTENCES)
def test_the_outcome_is_summarized_in_one_sentence(
    rows: tuple[RolloutState, ...], expected: str
) -> None:
    assert summary(rows) == expected


def test_the_display_works_without_applications() -> None:
    assert drawn((), 0, 600, terminal())[0].startswith("━━━━━━━━━━━━━━━━━━━━ 0 of 0")
