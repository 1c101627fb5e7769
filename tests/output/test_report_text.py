"""A report as human-readable text, on a terminal of any width."""

import re
from io import BytesIO, TextIOWrapper
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from task.output.console import console_of, plain_console
from task.output.report_text import diff_text, plain, table
from task.output.words import headline
from task.schemas import load

COUNTS: list[str] = load("report.v1")["properties"]["counts"]["required"]
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def console(width: int = 80, *, colour: bool = False, encoding: str = "utf-8") -> Console:
    environ = {"COLUMNS": str(width), **({} if colour else {"NO_COLOR": "1"})}
    return console_of(TextIOWrapper(BytesIO(), encoding), environ)


def decision(app: str = "argocd/shop", verdict: str = "update", **more: Any) -> dict[str, Any]:
    return {
        "application": app, "alias": "web", "image": "ghcr.io/acme/web", "strategy": "semver", "constraint": "^1",
        "current": "1.0.0", "candidate": "1.1.0", "verdict": verdict, "rule": "admitted",
        "because": "semver ^1 admits it", "repository": "https://git.example.com/gitops.git",
        "branch": "main", "head": "main", "target": "kustomization", "file": "apps/shop/kustomization.yaml", **more,
    }  # fmt: skip


def commit(**more: Any) -> dict[str, Any]:
    return {
        "repository": "https://git.example.com/gitops.git", "branch": "main", "head": "main", "commit": "a" * 40,
        "tree": "b" * 40, "files": ["apps/shop/kustomization.yaml"], "applications": ["argocd/shop"],
        "pull_request": None, "attempts": 1, **more,
    }  # fmt: skip


def report(*decisions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema": "image-update/report/v1", "command": "run", "status": "updated",
        "images": [{"reference": "ghcr.io/acme/web:1.1.0", "registry": "ghcr.io", "repository": "acme/web",
                    "tag": "1.1.0", "digest": None}],
        "decisions": list(decisions), "commits": [], "errors": [],
        "counts": {**dict.fromkeys(COUNTS, 0), "applications": 1, "updated": 1}, **more,
    }  # fmt: skip


RUN, RELEASE = "image-update run ghcr.io/acme/web:1.1.0", "image-update release argocd/shop"
OWNER, DEVELOPER = "exit code 3 (for the Application's owner)", "exit code 6 (for the developer)"
FAILED = "1 failed rollout (argocd/shop)"
ROLLOUT = {
    "application": "argocd/shop",
    "rule": "rollout",
    "message": "x",
    "hint": "",
    "severity": "error",
}


@pytest.mark.parametrize(
    ("of", "line"),
    [
        (report(decision(verdict="defer"), commits=[commit()]), f"{RUN}: 1 held, committed"),
        (report(decision(verdict="defer"), commits=[commit(commit=None)]), f"{RUN}: 1 held, would commit"),
        (report(decision()), f"{RUN}: 1 updated"),
        (report(decision(), commits=[commit(commit=None)]), f"{RUN}: 1 to update"),
        (report(decision(), command="rollback"), f"{RUN.replace('run', 'rollback')}: 1 rolled back"),
        (report(decision(verdict="error"), exit_code=3, status="failed"), f"{RUN}: 1 failed (argocd/shop); {OWNER}"),
        (report(decision(), exit_code=6, errors=[ROLLOUT]), f"{RUN}: {FAILED}, 1 updated; {DEVELOPER}"),
        (report(decision(), exit_code=0), f"{RUN}: 1 updated"),
        (report(decision(verdict="unchanged"), images=[], command="release"), f"{RELEASE}: 1 current, committed"),
    ],
)  # fmt: skip
def test_the_headline_summarizes_the_report(of: dict[str, Any], line: str) -> None:
    assert headline(of) == line


WIDE = "argocd/日本語のアプリケーション"
ADMITTED = "semver ^1 admits it"
MANY = report(
    decision(),
    decision(verdict="refuse", rule="constraint", because="1.1.0 does not satisfy ~1.0", alias=None),
    decision(WIDE, "error", rule="source", because="the path 'apps/店舗' does not exist on main", file=None),
    decision("argocd/z", "defer", rule="held", because="held by ann: load test, until it is released", current=None),
    decision("argocd/z", "unchanged", rule="same", because="Git already says so", current="1.1.0@sha256:" + "0" * 64),
    commits=[commit(attempts=3, pull_request="https://git.example.com/gitops/pulls/1")],
    errors=[{"application": WIDE, "rule": "source", "message": "the path 'apps/店舗' does not exist on main",
             "hint": "check spec.source.path", "severity": "error"}],
)  # fmt: skip


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
@pytest.mark.parametrize("colour", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, colour: bool) -> None:
    shown = ESCAPE.sub("", table(MANY, console(width, colour=colour)))
    assert max(cell_len(line) for line in shown.splitlines()) <= width


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_shows_all_information(width: int) -> None:
    shown = re.sub(r"\s", "", table(MANY, console(width)))
    told = ["doesnotsatisfy~1.0", "fix:checkspec.source.path", "byann", "0" * 64, "apps/shop/kustomization.yaml",
            "https://git.example.com/gitops/pulls/1", "3attempts,becauseotherspushedfirst", "1updated"]  # fmt: skip
    assert [word for word in told if word not in shown] == []


def test_each_application_is_named_once() -> None:
    assert table(MANY, console(100)).count("argocd/z") == 1


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            120,
            "  ✓ updated  web=ghcr.io/acme/web  1.0.0 → 1.1.0  semver ^1 admits it",
        ),
        (80, "  ✓ updated  web=ghcr.io/acme/web  1.0.0 → 1.1.0"),
        (40, "  ✓ updated"),
    ],
)
def test_wide_terminals_show_more_columns_on_one_line(width: int, line: str) -> None:
    assert line in table(report(decision()), console(width)).splitlines()


def test_the_table_is_printed_as_expected() -> None:
    shown = table(
        report(decision(), decision(verdict="unchanged", rule="same"), commits=[commit()]),
        plain_console(),
    )
    assert (
        shown
        == """\
image-update run ghcr.io/acme/web:1.1.0: 1 updated, 1 current

argocd/shop
  + updated  web=ghcr.io/acme/web  1.0.0 -> 1.1.0  semver ^1 admits it
                                                   apps/shop/kustomization.yaml
  = current  web=ghcr.io/acme/web  1.0.0           same: semver ^1 admits it

commit aaaaaaaaaaaa on main of https://git.example.com/gitops.git
    apps/shop/kustomization.yaml
"""
    )


@pytest.mark.parametrize(("decisions", "times"), [(1, 1), (10, 1), (11, 2)])
def test_the_headline_is_repeated_only_below_a_long_report(decisions: int, times: int) -> None:
    found = report(*[decision()] * decisions)
    text = plain(found)
    head = text.splitlines()[0]
    assert text.splitlines().count(head) == times
    assert text.endswith(f"{head}\n") == (times == 2)
    far = table(report(*[decision()] * 30), plain_console())
    assert far.endswith("30 updated\n")


def test_a_run_that_never_started_is_reported_on_one_line() -> None:
    counts = dict.fromkeys(COUNTS, 0)
    ended = report(status="failed", images=[], counts=counts, exit_code=2)
    assert (
        table(ended, console(120))
        == "image-update run: nothing was done; exit code 2 (for the pipeline's author)\n"
    )


def test_an_untracked_image_is_reported() -> None:
    assert "no Application tracks it (1 read)" in table(report(status="unchanged"), console())


def test_output_without_colors_contains_no_escape_sequences() -> None:
    assert "\x1b" not in table(MANY, console())


@pytest.mark.parametrize("plain", [console(encoding="latin-1"), plain_console()])
def test_the_table_is_drawn_in_ascii_if_the_encoding_is_limited(plain: Console) -> None:
    assert table(report(decision(), commits=[commit()]), plain).isascii()


def test_colors_do_not_change_the_text() -> None:
    coloured = ESCAPE.sub("", table(MANY, console(colour=True)))
    assert [line.rstrip() for line in coloured.splitlines()] == table(MANY, console()).splitlines()


@pytest.mark.parametrize(
    "field", ["application", "alias", "image", "current", "candidate", "because", "file"]
)
def test_escape_sequences_in_names_are_neutralized(field: str) -> None:
    shown = table(report(decision(**{field: "x\x1b]0;y\x07\x9b2J\u202ez"})), console(100))
    assert not set(shown) & set("\x1b\x07\x9b\u202e")
    assert "^[" in shown


@pytest.mark.parametrize(
    "field", ["application", "alias", "image", "current", "candidate", "because", "file"]
)
def test_names_are_not_interpreted_as_markup(field: str) -> None:
    text = "[bold]x[/bold][link=https://evil.example.com]y[/link]:boom:[@click=z]"
    assert text in table(report(decision(**{field: text})), console(160, colour=True))


def test_control_characters_in_a_diff_are_made_visible() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\x1b[2J\n+[b]b  \r\n"
    shown = diff_text(diff, console(colour=True)).splitlines()
    assert shown[0].startswith("\x1b[1m")
    assert shown[4] == "\x1b[31m-a^[[2J\x1b[0m"
    assert shown[5] == "\x1b[32m+[b]b  ^M\x1b[0m"


def test_a_diff_keeps_its_lines_and_spaces() -> None:
    diff = f"diff --git a/x b/x\n@@ -1 +1 @@\n+{'x' * 200}\n \n+a  \n"
    assert diff_text(diff, console(40)) == diff_text(diff, None) == diff


def test_a_line_of_dashes_in_a_diff_is_not_treated_as_a_header() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- old\n+++ new\n"
    shown = diff_text(diff, console(colour=True)).splitlines()
    assert [line[:5] for line in shown[4:]] == ["\x1b[31m", "\x1b[32m"]


@pytest.mark.parametrize(
    ("verdict", "candidate", "target", "version"),
    [
        ("refuse", "2.0.0", None, "not read, offered 2.0.0"),
        ("error", "", None, "not read"),
        ("refuse", "2.0.0", "kustomization", "(none), offered 2.0.0"),
        ("update", "2.0.0", "kustomization", "(none) → 2.0.0"),
    ],
)
def test_an_unread_version_is_not_shown_as_none(
    verdict: str, candidate: str, target: str | None, version: str
) -> None:
    one = decision(verdict=verdict, candidate=candidate, current=None, target=target)
    several = report(one, images=[*report()["images"]] * 2)
    assert f"  {version}  " in plain(several)


def test_failures_are_listed_first_but_without_their_messages() -> None:
    lines = plain(MANY).splitlines()
    assert [line.split("  ")[0] for line in lines[1:6]] == [
        "failed",
        "held",
        "updated",
        "skipped",
        "current",
    ]
    assert lines[1].endswith("  (source)")
    assert lines[4].endswith("  (constraint: 1.1.0 does not satisfy ~1.0)")
