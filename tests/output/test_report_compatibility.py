"""Fields are only ever added to the report, so 0.1 readers work, and 0.1 reports are shown."""

import json
from typing import Any

from rich.console import Console
from support.memory import NOW, SCOPE, WORDING, story
from support.runs import WEB

from task.deciding.job import Job, Terms
from task.image import parse_image
from task.output.report_json import as_json, report_of
from task.output.report_page import page
from task.output.report_text import table
from task.schemas import load

# The fields that 0.1 promised, keyed by list.
REQUIRED = {
    "": "schema command status images decisions commits errors counts",
    "images": "reference registry repository tag digest",
    "decisions": "application alias image strategy constraint current candidate verdict rule because repository branch "
    "head target file",
    "commits": "repository branch head commit tree files applications pull_request attempts",
    "errors": "application rule message hint severity",
    "counts": "applications matched updated unchanged refused deferred failed",
}


def as_0_1(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report without fields that were added after 0.1."""
    kept = {name: report[name] for name in REQUIRED[""].split()}
    for part in ("images", "decisions", "commits", "errors"):
        kept[part] = [{name: one[name] for name in REQUIRED[part].split()} for one in kept[part]]
    return kept


def test_the_required_fields_of_a_report_match_version_0_1() -> None:
    schema = load("report.v1")
    for part, names in REQUIRED.items():
        of = schema["properties"][part] if part else schema
        assert of.get("items", of)["required"] == names.split()


def test_a_report_from_version_0_1_is_read_and_shown() -> None:
    job = Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(now=NOW), WORDING)
    old = report_of(json.dumps(as_0_1(as_json(story("semver").run(job)))))
    assert "rollback" not in old["commits"][0]
    assert "1.1.0" in table(old, Console(width=120))
    assert "1.0.0 → 1.1.0" in page(old)
