"""The `check` report as a GitLab Code Quality report, which merge requests show in their diff.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from task.model import Judged, Problem, Report
from task.output.report_json import current
from task.output.words import CHECKED
from task.text import exact_json, printable, without_logins

_SEVERITIES = {"error": "major", "warning": "minor"}


def code_quality(report: Report) -> str:
    """Return an issue for each version at its line, and an issue for each problem that is not
    covered by a version.
    """
    covered = {
        (decision.subscription.application.key, decision.because) for decision in report.decisions
    }
    issues = [_of_decision(decision) for decision in report.decisions]
    issues += [
        _issue_of_problem(problem)
        for problem in report.problems
        if (problem.application, problem.message) not in covered
    ]
    # Equal issues are numbered, because fingerprints must be unique.
    counts = Counter[str]()
    for issue in issues:
        identity = f"{issue['location']['path']}\0{issue['description']}"
        counts[identity] += 1
        text = f"{identity}\0{counts[identity]}".encode(errors="replace")
        issue["fingerprint"] = hashlib.sha256(text).hexdigest()
    return exact_json(json.dumps(issues, indent=2, ensure_ascii=False)) + "\n"


def _of_decision(judged: Judged) -> dict[str, Any]:
    sub = judged.subscription
    versions = " → ".join(filter(None, (current(judged), judged.candidate.version)))
    parts = (
        f"{CHECKED[judged.verdict]}: {sub.application.key}: {sub.entry.image.name} {versions}",
        judged.because,
        judged.hint,
    )
    severity = "info" if judged.verdict in ("update", "unchanged") else _SEVERITIES["error"]
    return _issue(parts, judged.rule, severity, judged.place)


def _issue_of_problem(problem: Problem) -> dict[str, Any]:
    start = f"{problem.application}: " if problem.application else ""
    parts = (f"{start}{problem.message}", problem.hint)
    return _issue(parts, problem.rule, _SEVERITIES[problem.severity], problem.place)


def _issue(parts: tuple[str, ...], rule: str, severity: str, place: str) -> dict[str, Any]:
    """Return an issue. GitLab requires a path and a line."""
    path, _, line = place.rpartition(":")
    return {
        "description": printable(without_logins("; ".join(filter(None, parts)))),
        "check_name": rule,
        "severity": severity,
        "location": {"path": printable(path) or ".", "lines": {"begin": int(line or 1)}},
    }
