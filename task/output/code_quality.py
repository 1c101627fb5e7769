"""Renders the `check` report as a GitLab Code Quality report, which merge requests display in their
diffs.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from task.model import Judged, Problem, Report
from task.output.report_json import current, indented_json
from task.output.words import CHECKED
from task.text import printable, without_logins

_SEVERITIES = {"error": "major", "warning": "minor"}


def code_quality(report: Report) -> str:
    """Return the report as JSON, with one issue for each version that was judged, and one for each
    problem that none of those issues mentions.
    """
    covered_by_versions = {
        (decision.subscription.application.key, decision.because) for decision in report.decisions
    }
    other_problems = [
        problem
        for problem in report.problems
        if (problem.application, problem.message) not in covered_by_versions
    ]
    issues = [_issue_of_decision(decision) for decision in report.decisions]
    issues += [_issue_of_problem(problem) for problem in other_problems]

    # Identical issues are numbered, because fingerprints must be unique.
    counts = Counter[str]()
    for issue in issues:
        identity = f"{issue['location']['path']}\0{issue['description']}"
        counts[identity] += 1
        text = f"{identity}\0{counts[identity]}".encode(errors="replace")
        issue["fingerprint"] = hashlib.sha256(text).hexdigest()
    return f"{indented_json(issues)}\n"


def _issue_of_decision(judged: Judged) -> dict[str, Any]:
    """Return the issue for the decision about a version, located at the version's line."""
    sub = judged.subscription
    versions = " → ".join(filter(None, (current(judged), judged.candidate.version)))
    sentences = (
        f"{CHECKED[judged.verdict]}: {sub.application.key}: {sub.entry.image.name} {versions}",
        judged.because,
        judged.hint,
    )
    is_allowed = judged.verdict in ("update", "unchanged")
    severity = "info" if is_allowed else _SEVERITIES["error"]
    return _issue(sentences, judged.rule, severity, judged.place)


def _issue_of_problem(problem: Problem) -> dict[str, Any]:
    """Return the issue for an error or a warning."""
    start = f"{problem.application}: " if problem.application else ""
    sentences = (f"{start}{problem.message}", problem.hint)
    return _issue(sentences, problem.rule, _SEVERITIES[problem.severity], problem.place)


def _issue(sentences: tuple[str, ...], rule: str, severity: str, place: str) -> dict[str, Any]:
    """Return an issue without a fingerprint.

    `place` is `file:line`, or "" if it is unknown. Because GitLab requires a path and a line, an
    unknown place becomes line 1 of the repository.
    """
    path, _, line = place.rpartition(":")
    description = "; ".join(filter(None, sentences))
    return {
        "description": printable(without_logins(description)),
        "check_name": rule,
        "severity": severity,
        "location": {"path": printable(path) or ".", "lines": {"begin": int(line or 1)}},
    }
