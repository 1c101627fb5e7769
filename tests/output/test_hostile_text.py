"""Text from others is never interpreted, in any field of a report, a log line, or a finding."""

import io
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from support.reports import commit, decision, report
from support.runner_rules import ATTACKS, dangers
from support.runs import wait_until

from task.after import waiting
from task.annotations.lint import Finding
from task.argocd.rollouts import RolloutState
from task.ci.publish import repositories
from task.cli import lint_views
from task.errors import Trouble
from task.model import Problem, Report, Verdict, VerdictName
from task.output.console import console_of, write_stdout
from task.output.log import LEVELS, Log
from task.output.markdown import summary
from task.output.metrics import metrics
from task.output.report_json import as_json, json_text
from task.output.report_page import page
from task.output.report_text import diff_text, plain, table
from task.wiring import progress

# Fields that contain one of a few fixed words, which determine how other fields are shown.
OURS = {"verdict", "severity", "status", "schema", "kind", "state", "strategy", "method"}
DIFF = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n {0}\n-{0}\n+{0}\n{0}\n"
VERDICTS: tuple[VerdictName, ...] = ("update", "unchanged", "refuse", "defer", "error")
WHOLE = report(
    *(replace(decision(), judged=Verdict(one, "rule", "so", "hint")) for one in VERDICTS),
    commits=(
        commit(pull_request="https://x/1", diff="x"),
        commit(already_there=True, pull_request="y"),
        commit(commit=None),
    ),
    problems=(
        Problem(Trouble("rule", "message", "hint"), application="argocd/web"),
        Problem(Trouble.warning("rule", "so", "hint")),
    ),
)


def poisoned(value: Any, text: str, name: str = "") -> Any:
    """Return the value with this text in every field that others can set."""
    if name == "diff" and value:
        return DIFF.format(text)
    if isinstance(value, str):
        return value if name in OURS else text
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value,
            **{
                one.name: poisoned(getattr(value, one.name), text, one.name)
                for one in fields(value)
            },
        )
    if isinstance(value, tuple | list):
        return type(value)(poisoned(one, text, name) for one in value)
    if isinstance(value, Mapping):
        return {key: poisoned(one, text, str(key)) for key, one in value.items()}
    return value


def terminal(width: int = 80) -> Console:
    return console_of(io.StringIO(), {"NO_COLOR": "1", "COLUMNS": str(width)})


@pytest.fixture(params=ATTACKS)
def text(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def evil(text: str) -> Report:
    found: Report = poisoned(WHOLE, text)
    assert found.decisions[0].because == found.problems[0].hint == text
    return found


def test_plain_text_contains_no_dangerous_sequences(evil: Report) -> None:
    assert dangers(plain(as_json(evil))) == []
    assert dangers(plain(as_json(replace(evil, decisions=(), problems=())))) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [24, 60, 120])
def test_a_table_contains_no_dangerous_sequences(
    evil: Report, width: int, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The printed table is checked, because a wrapped line may begin at any point in the text."""
    for one in (evil, replace(evil, decisions=())):
        assert write_stdout(table(as_json(one), terminal(width))) is None
    assert dangers(capsysbinary.readouterr().out.decode()) == []


def test_hostile_metric_labels_stay_on_one_line(text: str) -> None:
    """Labels contain only our own words. But even with text from others, each sample would be one
    line.
    """
    one = decision("update", text)
    shown = generate_latest(
        metrics(report(one, decision("refuse", 'a"} 9\nb\\')), seconds=1, now=1)
    ).decode()
    families = {one.name: one for one in text_string_to_metric_families(shown)}
    rules = {one.labels["rule"] for one in families["image_update_decisions"].samples}
    assert rules == {text, 'a"} 9\nb\\'}


def test_a_page_contains_no_dangerous_sequences(evil: Report) -> None:
    assert dangers(page(as_json(evil))) == []


def test_a_summary_contains_no_dangerous_sequences(evil: Report) -> None:
    for html in (True, False):
        assert dangers(summary(as_json(evil), 60_000, html=html, diffs=True)) == []


def test_json_contains_no_dangerous_sequences_and_keeps_its_value(evil: Report) -> None:
    assert json.loads(json_text(evil)) == json.loads(json.dumps(as_json(evil)))
    assert dangers(json_text(evil)) == []
    assert dangers(repositories(evil)) == []


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json", "github"])
@pytest.mark.parametrize("person", [True, False])
def test_a_log_contains_no_dangerous_sequences(text: str, form: str, person: bool) -> None:
    stream = io.StringIO()
    log = Log(
        "debug", form, stream, console=console_of(stream, {"NO_COLOR": "1"}) if person else None
    )
    for level in LEVELS:
        log(level, text)
        log.problem(level, text, text, text)
        log.problem(level, "", text, "")
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if dangers(line)] == [
        line for line in lines if line.startswith("::")
    ]
    # Each of our own commands is on one line, and the runner decodes it to the same text.
    ours = [line for line in lines if line.startswith("::")]
    assert len(ours) == (9 if form == "github" else 0)
    assert [line for line in ours if dangers(line.split("::", 2)[2])] == []
    if form == "json":
        assert {json.loads(line)["msg"] for line in lines} == {text, f"{text}: {text}"}
        assert {json.loads(line).get("fix") for line in lines} == {None, text}


def test_a_traceback_contains_no_dangerous_sequences(text: str) -> None:
    stream = io.StringIO()
    Log(stream=stream).traceback(ValueError(f"first\n{text}"))
    assert dangers(stream.getvalue()) == []
    assert stream.getvalue().startswith("ValueError: first\n")


def test_lint_findings_contain_no_dangerous_sequences(text: str) -> None:
    found = [
        (Finding(Trouble(text, text, text, kind), text, text, text, text, text), text, 3)
        for kind in lint_views.SEVERITIES
    ]
    assert dangers(lint_views.as_text(found, 1)) == []
    for one in found:
        command = lint_views.as_annotation(*one)
        assert command.count("\n") == 1
        assert dangers(command.partition("::")[2].replace("%25", "%")) == []
        place, _, message = command.removeprefix("::").partition("::")
        assert ":" not in place
        assert dangers(message) == []
    for made in lint_views.REPORTS.values():
        shown = made(found)
        assert dangers(shown.replace("\n", "")) == []
    root = ET.fromstring(lint_views.junit(found))  # noqa: S314 - our own
    assert len(root.findall(".//testcase")) == 3


def test_rollout_lines_contain_no_dangerous_sequences(text: str) -> None:
    rows = [RolloutState(text, state, text, text, 1.0) for state in waiting.MARKS]
    told = [*map(waiting.line, rows), waiting.summary(rows), waiting.summary(rows[:1])]
    assert dangers("\n".join(told)) == []
    console = terminal()
    with console.capture() as drawn:
        console.print(waiting.picture(rows, 1.0, 2.0, console.size))
    assert dangers(drawn.get()) == []


def test_a_progress_line_contains_no_dangerous_sequences(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    file = io.StringIO()
    console = console_of(file, {"NO_COLOR": "1"})
    with progress.Phases(console).phase(f"fetching {text}"):
        wait_until(lambda: "fetching" in file.getvalue())
    shown = re.sub(r"\x1b\[(\?25[lh]|2K|1A)|\r", "\n", file.getvalue())  # sent by rich itself
    assert "fetching" in shown
    assert dangers(shown) == []


def test_a_diff_contains_no_dangerous_sequences(text: str) -> None:
    for console in (terminal(), None):
        assert dangers(diff_text(DIFF.format(text), console)) == []
