"""What a person reads of a report: plain in pipes, a table on terminals of any width."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.cli.help_page import PANELS, command_help, root_help
from task.cli.options import COMMANDS, OPTIONS, options_of
from task.output.colour import Look, coloured, forced, painted_diff, width_of
from task.output.columns import columns, pad, wrap
from task.output.table import table
from task.text import visible

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


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
    names = ("applications", "matched", "updated", "unchanged", "refused", "deferred", "failed")
    return {
        "schema": "image-update/report/v1", "command": "run", "status": "updated",
        "images": [{"reference": "ghcr.io/acme/web:1.1.0", "registry": "ghcr.io", "repository": "acme/web",
                    "tag": "1.1.0", "digest": None}],
        "decisions": list(decisions), "commits": [], "errors": [],
        "counts": {**dict.fromkeys(names, 0), "applications": 1, "updated": 1}, **more,
    }  # fmt: skip


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


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
@pytest.mark.parametrize("colour", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, colour: bool) -> None:
    shown = ESCAPE.sub("", table(MANY, Look(width, colour)))
    assert max(columns(line) for line in shown.splitlines()) <= width


@pytest.mark.parametrize("width", [40, 60, 80])
def test_nothing_is_lost_on_a_narrow_terminal(width: int) -> None:
    shown = re.sub(r"\s", "", table(MANY, Look(width)))
    told = ["doesnotsatisfy~1.0", "do:checkspec.source.path", "heldbyann", "0" * 64, "apps/shop/kustomization.yaml",
            "https://git.example.com/gitops/pulls/1", "otherswerefaster2times", "updated:1updated"]  # fmt: skip
    assert [word for word in told if word not in shown] == []


def test_every_application_is_named_once() -> None:
    assert table(MANY, Look(100)).count("argocd/z") == 1


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            120,
            "  ✓ update   web=ghcr.io/acme/web  1.0.0 → 1.1.0    admitted: 1.1.0 passes all rules and replaces 1.0.0",
        ),
        (80, "  ✓ update   web=ghcr.io/acme/web  1.0.0 → 1.1.0"),
        (40, "  ✓ update"),
    ],
)
def test_what_is_beside_each_other(width: int, line: str) -> None:
    assert line in table(report(decision()), Look(width)).splitlines()


def test_a_run_that_never_began_says_one_thing() -> None:
    counts = dict.fromkeys(("applications", "matched", "updated", "unchanged", "refused", "deferred", "failed"), 0)
    assert table(report(status="failed", images=[], counts=counts), Look(80)) == "failed: nothing was done\n"


def test_no_application_is_said() -> None:
    assert "no Application takes it (1 looked at)" in table(report(status="unchanged"), Look(80))


def test_without_colours_there_is_no_escape() -> None:
    assert "\x1b" not in table(MANY, Look(80, colour=False))


def test_without_symbols_the_table_itself_is_ascii() -> None:
    assert table(report(decision(), commits=[commit()]), Look(80, symbols=False)).isascii()


def test_colours_change_no_letter() -> None:
    assert ESCAPE.sub("", table(MANY, Look(80, colour=True))) == table(MANY, Look(80))


@pytest.mark.parametrize("field", ["application", "alias", "image", "current", "candidate", "because", "file"])
def test_a_terminal_obeys_nothing_that_others_named(field: str) -> None:
    shown = table(report(decision(**{field: "x\x1b]0;y\x07\x9b2J\u202ez"})), Look(100))
    assert not set(shown) & set("\x1b\x07\x9b\u202e")
    assert "^[" in shown


def test_a_diff_is_shown_and_not_sent() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\x1b[2J\n+\tb\r\n"
    shown = painted_diff(diff, Look(80, colour=True))
    assert shown[0].startswith("\x1b[1m")
    assert shown[4] == "\x1b[31m-a^[[2J\x1b[0m"
    assert shown[5] == "\x1b[32m+\tb^M\x1b[0m"


def test_a_line_of_dashes_in_a_diff_is_no_header() -> None:
    shown = painted_diff("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- old\n+++ new\n", Look(80, colour=True))
    assert [line[:5] for line in shown[4:]] == ["\x1b[31m", "\x1b[32m"]


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "xterm", "CLICOLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_when_there_are_colours(environ: dict[str, str], terminal: bool, expected: bool) -> None:
    assert coloured(environ, terminal=terminal) is expected


def test_zero_forces_nothing() -> None:
    assert not forced({"FORCE_COLOR": "0", "CLICOLOR_FORCE": ""})


@pytest.mark.parametrize(
    ("environ", "measured", "expected"),
    [({}, 0, 80), ({}, 100, 100), ({"COLUMNS": "60"}, 100, 60), ({}, 5, 20), ({}, 400, 160), ({"COLUMNS": "x"}, 0, 80),
     ({"COLUMNS": "0"}, 90, 90), ({"COLUMNS": "99999999"}, 90, 90), ({"COLUMNS": "²"}, 90, 90)],
)  # fmt: skip
def test_how_wide_it_is(environ: dict[str, str], measured: int, expected: int) -> None:
    assert width_of(environ, measured) == expected


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("👍", 2), ("☁\ufe0f", 1), ("", 0)]
)
def test_how_many_columns_a_text_takes(text: str, width: int) -> None:
    assert columns(text) == width
    assert columns(pad(text, 10)) == 10


@given(st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" ")), st.integers(2, 60))
def test_wrapped_text_fits_and_keeps_every_letter(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(columns(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_path_is_broken_behind_a_slash() -> None:
    assert wrap("apps/shop/kustomization.yaml", 20) == ["apps/shop/", "kustomization.yaml"]


def test_what_is_printable_stays() -> None:
    assert visible("日本 → ok") == "日本 → ok"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option_with_its_variable(command: str, width: int) -> None:
    shown = command_help(command, Look(width))
    for option in options_of(command):
        assert re.search(rf"(^|\s){option.variable}$", shown, re.MULTILINE)
        assert option.positional or re.search(rf"^  --(no-)?{option.name}\b", shown, re.MULTILINE)
    helps = [line for line in shown.splitlines() if line.startswith("      ") and "IMAGE_UPDATE" not in line]
    assert all(columns(line) <= width for line in helps)


def test_every_group_of_options_has_its_place() -> None:
    assert {option.panel for option in OPTIONS} <= set(PANELS)


def test_the_help_of_the_whole_names_every_command() -> None:
    shown = root_help(Look(80))
    assert all(re.search(rf"^  {command} ", shown, re.MULTILINE) for command in COMMANDS)
