"""The metrics text that Prometheus reads."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from support import ROOT
from support.reports import commit, decision

from task.errors import Trouble
from task.model import Commit, Decision, Problem, Report
from task.output.metrics import FAMILIES, PREFIX, metrics

LINE = re.compile(r'([a-z_]+)(\{[a-z]+="[a-z-]+"(?:,[a-z]+="[a-z-]+")*\})? ([0-9.]+(?:e\+[0-9]+)?)')


def text_of(*args: Any, **more: Any) -> str:
    return generate_latest(metrics(*args, **more)).decode()


def report(*decisions: Decision, commits: tuple[Commit, ...] = (), code: int = 0) -> Report:
    problems = (
        Problem(Trouble("usage", "m")),
        Problem(Trouble.warning("target", "m")),
    )
    return Report("run", (), 3, decisions, commits, problems, code)


DONE = report(
    decision("update", "admitted"),
    decision("update", "admitted"),
    decision("refuse", "not-newer"),
    commits=(
        commit(attempts=3),
        commit(pull_request="https://git/x/1", rollback=True),
        commit(commit=None, rollback=True),
    ),
)


def values(text: str) -> dict[str, float]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {
        found[1] + (found[2] or ""): float(found[3])
        for line in lines
        if (found := LINE.fullmatch(line))
    }


def test_every_line_is_valid_prometheus_text() -> None:
    text = text_of(DONE, seconds=1.25, now=1795247164.5)
    assert text.endswith("\n")
    for line in text.splitlines():
        assert re.fullmatch(
            r"# (?:HELP [a-z_]+ .+|TYPE [a-z_]+ (?:counter|gauge))", line
        ) or LINE.fullmatch(line)
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


@pytest.mark.parametrize(
    ("series", "value"),
    [
        ('runs_total{command="run",status="updated"}', 1),
        ('decisions_total{rule="admitted",verdict="update"}', 2),
        ('decisions_total{rule="not-newer",verdict="refuse"}', 1),
        ("commits_total", 2),
        ("attempts_total", 4),
        ('problems_total{severity="error"}', 1),
        ('problems_total{severity="warning"}', 1),
        ("run_seconds_total", 1.25),
        ("last_run_duration_seconds", 1.25),
        ("last_run_timestamp_seconds", 100),
        ("last_success_timestamp_seconds", 100),
        ("last_run_exit_code", 0),
        ('last_run_applications{state="considered"}', 3),
        ('last_run_applications{state="matched"}', 1),
        ('last_run_decisions{rule="admitted",verdict="update"}', 2),
        ("last_run_commits", 2),
        ("last_run_pull_requests", 1),
        ("last_run_attempts", 4),
        ("rollbacks_total", 1),
        ("last_run_rollbacks", 1),
    ],
)
def test_a_run_is_counted_in_the_expected_time_series(series: str, value: float) -> None:
    assert values(text_of(DONE, seconds=1.25, now=100))[PREFIX + series] == value


def test_counters_continue_and_gauges_are_replaced() -> None:
    first = text_of(DONE, seconds=1, now=100)
    found = values(text_of(report(code=75), seconds=2, now=200, before=first))
    assert found[f'{PREFIX}runs_total{{command="run",status="updated"}}'] == 1
    assert found[f'{PREFIX}runs_total{{command="run",status="failed"}}'] == 1
    assert found[f"{PREFIX}commits_total"] == 2
    assert found[f"{PREFIX}run_seconds_total"] == 3
    assert found[f"{PREFIX}last_run_commits"] == 0
    assert (found[f"{PREFIX}rollbacks_total"], found[f"{PREFIX}last_run_rollbacks"]) == (1, 0)
    assert found[f"{PREFIX}last_run_exit_code"] == 75
    assert found[f"{PREFIX}last_success_timestamp_seconds"] == 100
    assert not [series for series in found if "last_run_decisions" in series]


@pytest.mark.parametrize(
    "before",
    [
        "garbage",
        "image_update_commits_total many",
        "image_update_commits_total NaN",
        "image_update_commits_total -5",
        "image_update_commits_total +Inf",
        'image_update_commits_total{x="y\\"} 3"} 4',
        'image_update_commits_total{x="y"} 4',
        "image_update_commits_total 4 5 x",
        'image_update_problems_total{severity="error"',
        'image_update_problems_total{severity="error",severity="error"} 4',
        "image_update_problems_total{" + 'severity="error",' * 100_000 + "} 4",
        "image_update_last_run_commits 9",
        "other_commits_total 9",
        "image_update_unknown_total 9",
        "\x00\n{} 1\n",
    ],
)
def test_invalid_lines_in_the_previous_file_are_ignored(before: str) -> None:
    assert text_of(DONE, seconds=1, now=1, before=before) == text_of(DONE, seconds=1, now=1)


@given(st.text(st.sampled_from('{}=",\\# 1e.\t_seritymax')))
def test_no_line_in_the_previous_file_stops_a_run(rest: str) -> None:
    assert text_of(DONE, seconds=1, now=1, before=f"image_update_problems_total{rest}")


def test_counters_from_version_0_1_continue() -> None:
    before = (
        'image_update_run_seconds_total 2.250\nimage_update_problems_total{severity="error"} 7\n'
    )
    found = values(text_of(DONE, seconds=1, now=1, before=before))
    assert found[f"{PREFIX}run_seconds_total"] == 3.25
    assert found[f'{PREFIX}problems_total{{severity="error"}}'] == 8


def test_every_written_series_is_in_the_list_of_families() -> None:
    names = {
        line.partition("{")[0].partition(" ")[0]
        for line in text_of(DONE, seconds=1, now=1).splitlines()
    }
    assert names - {"#"} == {PREFIX + family for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_metric_is_documented(family: str) -> None:
    page = (ROOT / "docs" / "observability.md").read_text()
    assert re.search(rf"^\| `{PREFIX}{family}` \| {FAMILIES[family][0]} \|", page, re.MULTILINE)
