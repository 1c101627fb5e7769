"""A `check` report as seen by people and by programs."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft7Validator
from support.memory import SCOPE
from support.reports import WEB, decision

from task import schemas
from task.ci.publish import results
from task.commands.check_report import check_report
from task.deciding.job import AUTHOR, Job, Terms, Wording
from task.errors import Exit, Trouble
from task.model import Decision, Problem, Reading, Report, Verdict
from task.output.code_quality import code_quality
from task.output.log import Log
from task.output.markdown import summary
from task.output.report_json import as_json, json_text, report_of
from task.output.report_page import page
from task.output.report_text import plain

BASE = "b" * 40
HEAD = "a" * 40
JOB = Job("check", (), SCOPE, Terms(), Wording(AUTHOR), dry=True)
AT = Reading(tag="1.0.0", file="apps/web/values.yaml")


def version(name: str, verdict: str = "update", rule: str = "admitted", **more: Any) -> Decision:
    because = {"refuse": "1.1.0 is not in ~1.0", "defer": "held: load test", "error": "no answer"}
    judged = Verdict(verdict, rule, because.get(verdict, "1.1.0 is newer"), **more)  # type: ignore[arg-type]
    return replace(decision(name=name), judged=judged, current=AT, line=7)


def checked(*decisions: Decision, problems: tuple[Problem, ...] = ()) -> Report:
    return check_report(JOB, 3, decisions, problems, (BASE, HEAD))


MIXED = checked(
    version("web"),
    version("api", "refuse", "constraint"),
    version("blog", "defer", "held"),
    problems=(
        Problem(
            Trouble.warning("not-newer", "1.1.0 is older"),
            application="argocd/web",
            place="apps/web/values.yaml:9",
        ),
    ),
)


@pytest.mark.parametrize(
    ("found", "code", "status"),
    [
        (checked(), Exit.OK, "unchanged"),
        (checked(version("web")), Exit.OK, "updated"),
        (checked(version("web"), version("api", "refuse", "constraint")), 5, "refused"),
        (checked(version("web", "defer", "held")), 5, "refused"),
        (checked(version("web", "error", "registry", exit=75), version("b", "refuse")), 75, "failed"),
        (checked(version("web", "error", "target"), version("b", "defer", "held")), 3, "failed"),
        (checked(problems=(Problem(Trouble("repository", "x", exit=Exit.ACCESS)),)), 4, "failed"),
        (checked(problems=(Problem(Trouble.warning("x", "x")),)), 0, "unchanged"),
    ],
)  # fmt: skip
def test_a_check_report_with_a_refused_version_never_passes(
    found: Report, code: int, status: str
) -> None:
    assert (found.exit, results(found)["status"]) == (code, status)
    stops = any(item.verdict in ("refuse", "defer", "error") for item in found.decisions)
    assert not (stops and code == 0)
    assert any(problem.severity == "error" for problem in found.problems) == (code != 0)


def test_the_text_contains_a_line_for_each_version_with_its_location() -> None:
    head = (
        "image-update check ghcr.io/acme/web:1.1.0: 1 refused, 1 held, 1 admitted; exit code 5 (for the"
        " author of the change)"
    )
    assert [" ".join(line.split()) for line in plain(as_json(MIXED)).splitlines()] == [
        head,
        "refused argocd/api web=ghcr.io/acme/web 1.0.0 → 1.1.0 (constraint: 1.1.0 is not in ~1.0) apps/web/values.yaml:7",
        "held argocd/blog web=ghcr.io/acme/web 1.0.0 → 1.1.0 load test apps/web/values.yaml:7",
        "admitted argocd/web web=ghcr.io/acme/web 1.0.0 → 1.1.0 1.1.0 is newer apps/web/values.yaml:7",
    ]


def test_a_change_without_tracked_versions_is_reported_on_one_line() -> None:
    assert plain(as_json(checked())) == "image-update check: no tracked version has changed\n"


def test_the_summary_shows_refused_versions_with_their_locations() -> None:
    text = summary(as_json(MIXED), 10_000)
    assert text.startswith("### Image Update: 1 refused, 1 held, 1 admitted\n")
    assert "`apps/web/values.yaml:7`" in text
    assert "<details>" not in text
    assert f"`{HEAD[:12]}` against `{BASE[:12]}` · nothing was written" in text
    assert "1.1.0 is older" in text


def test_the_check_report_matches_its_schema() -> None:
    data = json.loads(json_text(MIXED))
    Draft7Validator(schemas.load("report.v1")).validate(data)
    assert (data["base"], data["head"]) == (BASE, HEAD)
    assert [item["line"] for item in data["decisions"]] == [7, 7, 7]
    assert "refused" in page(report_of(json_text(MIXED)))


def test_a_merge_request_shows_each_version_on_its_line() -> None:
    issues = json.loads(code_quality(MIXED))
    assert [
        (item["check_name"], item["severity"], item["location"]["lines"]["begin"]) for item in issues
    ] == [("constraint", "major", 7), ("held", "major", 7), ("admitted", "info", 7), ("not-newer", "minor", 9)]  # fmt: skip
    assert {item["location"]["path"] for item in issues} == {"apps/web/values.yaml"}
    assert len({item["fingerprint"] for item in issues}) == len(issues)
    assert issues[0]["description"] == (
        "refused: argocd/api: ghcr.io/acme/web 1.0.0 → 1.1.0; 1.1.0 is not in ~1.0"
    )
    assert json.loads(code_quality(checked())) == []
    lost = checked(problems=(Problem(Trouble("repository", "no such branch", exit=Exit.ACCESS)),))
    assert json.loads(code_quality(lost))[0]["location"] == {"path": ".", "lines": {"begin": 1}}


def test_hostile_names_are_made_printable_for_gitlab() -> None:
    bad = replace(version("a\n::error::b", "refuse"), current=Reading(file="x\u202e.yaml"))
    for issue in json.loads(code_quality(checked(bad))):
        assert issue["description"].isprintable()
        assert issue["location"]["path"].isprintable()


def test_github_shows_an_admitted_version_on_its_line() -> None:
    stream = io.StringIO()
    Log("info", "github", stream).notice("argocd/web", "50 % is\nnewer", "apps/a,b.yaml:7")
    assert stream.getvalue() == (
        "::notice file=apps/a%2Cb.yaml,line=7,title=argocd/web::argocd/web: 50 %25 is^Jnewer\n"
    )
    stream.truncate(0)
    Log("info", "text", stream).notice("argocd/web", "newer", "apps/a.yaml:7")
    assert "::" not in stream.getvalue()


def test_the_same_version_in_two_files_is_reported_at_both_locations() -> None:
    one = version("web", "refuse", "constraint")
    other = replace(one, current=replace(AT, file="apps/web/other.yaml"), line=0)
    found = checked(one, other)
    assert [item.place for item in found.problems] == [
        "apps/web/other.yaml:1",
        "apps/web/values.yaml:7",
    ]
    assert found.images == (WEB,)
