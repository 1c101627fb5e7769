"""What a person reads of a report on a terminal of any width."""

import re
from io import BytesIO, TextIOWrapper
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from task.output.console import console_of, plain_console
from task.output.report_table import diff_text, table
from task.output.report_text import summary
from task.output.words import change
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
        "because": "1.1.0 passes all rules and replaces 1.0.0", "repository": "https://git.example.com/gitops.git",
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


@pytest.mark.parametrize(
    ("updated", "dry", "line"),
    [
        (0, False, "committed: 1 held"),
        (0, True, "would commit: 1 held"),
        (1, False, "updated: 1 updated, 1 held"),
        (1, True, "would update: 1 to update, 1 held"),
    ],
)
def test_a_commit_that_only_holds_updates_nothing(updated: int, dry: bool, line: str) -> None:
    numbers = {"updated": updated, "unchanged": 0, "refused": 0, "deferred": 1, "failed": 0}
    assert summary("updated", numbers, dry=dry, back=False) == line


WIDE = "argocd/日本語のアプリケーション"
ADMITTED = "admitted: 1.1.0 passes all rules and replaces 1.0.0"
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
def test_nothing_is_lost_on_a_narrow_terminal(width: int) -> None:
    shown = re.sub(r"\s", "", table(MANY, console(width)))
    told = ["doesnotsatisfy~1.0", "fix:checkspec.source.path", "heldbyann", "0" * 64, "apps/shop/kustomization.yaml",
            "https://git.example.com/gitops/pulls/1", "otherswerefaster2times", "updated:1updated"]  # fmt: skip
    assert [word for word in told if word not in shown] == []


def test_every_application_is_named_once() -> None:
    assert table(MANY, console(100)).count("argocd/z") == 1


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            120,
            "  ✓ update    web=ghcr.io/acme/web  1.0.0 → 1.1.0  admitted: 1.1.0 passes all rules and replaces 1.0.0",
        ),
        (80, "  ✓ update    web=ghcr.io/acme/web  1.0.0 → 1.1.0"),
        (40, "  ✓ update"),
    ],
)
def test_what_is_beside_each_other(width: int, line: str) -> None:
    assert line in table(report(decision()), console(width)).splitlines()


def test_the_whole_table() -> None:
    shown = table(report(decision(), decision(verdict="unchanged", rule="same"), commits=[commit()]), plain_console())
    assert (
        shown
        == """\
run ghcr.io/acme/web:1.1.0

argocd/shop
  + update    web=ghcr.io/acme/web  1.0.0 -> 1.1.0  admitted: 1.1.0 passes all rules and replaces 1.0.0
                                                    apps/shop/kustomization.yaml
  = current   web=ghcr.io/acme/web  1.0.0           same: 1.1.0 passes all rules and replaces 1.0.0
                                                    apps/shop/kustomization.yaml

commit aaaaaaaaaaaa on main of https://git.example.com/gitops.git
    apps/shop/kustomization.yaml

updated: 1 updated
"""
    )


def test_a_run_that_never_began_says_one_thing() -> None:
    counts = dict.fromkeys(COUNTS, 0)
    assert table(report(status="failed", images=[], counts=counts), console()) == "failed: nothing was done\n"


def test_no_application_is_said() -> None:
    assert "no Application tracks it (1 read)" in table(report(status="unchanged"), console())


def test_without_colours_there_is_no_escape() -> None:
    assert "\x1b" not in table(MANY, console())


@pytest.mark.parametrize("plain", [console(encoding="latin-1"), plain_console()])
def test_where_letters_are_few_the_table_itself_is_ascii(plain: Console) -> None:
    assert table(report(decision(), commits=[commit()]), plain).isascii()


def test_colours_change_no_letter() -> None:
    assert ESCAPE.sub("", table(MANY, console(colour=True))) == table(MANY, console())


@pytest.mark.parametrize("field", ["application", "alias", "image", "current", "candidate", "because", "file"])
def test_a_terminal_obeys_nothing_that_others_named(field: str) -> None:
    shown = table(report(decision(**{field: "x\x1b]0;y\x07\x9b2J\u202ez"})), console(100))
    assert not set(shown) & set("\x1b\x07\x9b\u202e")
    assert "^[" in shown


@pytest.mark.parametrize("field", ["application", "alias", "image", "current", "candidate", "because", "file"])
def test_what_others_named_is_no_markup(field: str) -> None:
    text = "[bold]x[/bold][link=https://evil.example.com]y[/link]:boom:[@click=z]"
    assert text in table(report(decision(**{field: text})), console(160, colour=True))


def test_a_diff_is_shown_and_not_sent() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\x1b[2J\n+[b]b  \r\n"
    shown = diff_text(diff, console(colour=True)).splitlines()
    assert shown[0].startswith("\x1b[1m")
    assert shown[4] == "\x1b[31m-a^[[2J\x1b[0m"
    assert shown[5] == "\x1b[32m+[b]b  ^M\x1b[0m"


def test_a_diff_keeps_its_lines_and_its_blanks() -> None:
    diff = f"diff --git a/x b/x\n@@ -1 +1 @@\n+{'x' * 200}\n \n+a  \n"
    assert diff_text(diff, console(40)) == diff_text(diff, None) == diff


def test_a_line_of_dashes_in_a_diff_is_no_header() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- old\n+++ new\n"
    shown = diff_text(diff, console(colour=True)).splitlines()
    assert [line[:5] for line in shown[4:]] == ["\x1b[31m", "\x1b[32m"]


@pytest.mark.parametrize(
    ("verdict", "candidate", "read", "text"),
    [
        ("refuse", "2.0.0", False, "current not read, candidate 2.0.0"),
        ("error", "", False, "not read"),
        ("refuse", "2.0.0", True, "current (none), candidate 2.0.0"),
        ("update", "2.0.0", True, "(none) -> 2.0.0"),
    ],
)
def test_a_version_that_was_not_read_is_not_called_none(verdict: str, candidate: str, read: bool, text: str) -> None:
    assert change(verdict, "", candidate, read=read) == text
