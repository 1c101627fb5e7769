"""Computes a run's status, counts, and JSON report (docs/report.md), and parses JSON reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from task.command_kinds import kind_of
from task.errors import Exit, Malformed
from task.model import (
    Commit,
    Decision,
    HeadBuildRow,
    Judged,
    Problem,
    Report,
    Subscription,
    Unusable,
)
from task.plain_data import parsed_json
from task.text import exact_json, without_logins
from task.urls import without_login

SCHEMA = "image-update/report/v1"
HINT = "pass a file that --report or --output json wrote"


def status(report: Report) -> str:
    """Return the report's status: "updated", "unchanged", "refused", or "failed"."""
    # the exit code NOTHING_UPDATED means only that --require-update was set
    if report.exit not in (Exit.OK, Exit.NOTHING_UPDATED):
        return "failed"
    kind = kind_of(report.command)
    if kind.judges and report.exit == Exit.NOTHING_UPDATED:
        return "refused"

    verdicts = {decision.verdict for decision in report.decisions}
    if "update" in verdicts:
        return "updated"
    own_commits = [
        commit for commit in report.commits if not commit.already_there and not commit.notes
    ]
    if kind.by_hand and own_commits:
        return "updated"

    has_refusal = "refuse" in verdicts or "defer" in verdicts
    if has_refusal and "unchanged" not in verdicts:
        return "refused"
    return "unchanged"


def counts(report: Report) -> dict[str, int]:
    """Return how many Applications were read ("applications"), how many have a decision
    ("matched"), and how many decisions have each verdict, such as "updated".
    """
    verdicts = [decision.verdict for decision in report.decisions]
    return {
        "applications": report.considered,
        "matched": len({decision.subscription.application.key for decision in report.decisions}),
        "updated": verdicts.count("update"),
        "unchanged": verdicts.count("unchanged"),
        "refused": verdicts.count("refuse"),
        "deferred": verdicts.count("defer"),
        "failed": verdicts.count("error"),
    }


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as plain data that conforms to `schemas/report.v1.json`.

    Absent values are None; only `diff` is omitted if absent.
    """
    timings = None
    if report.timings:
        timings = {
            "started": report.timings.started,
            "seconds": round(report.timings.total, 3),
            "find": round(report.timings.find, 3),
            "land": round(report.timings.land, 3),
            "follow": round(report.timings.follow, 3),
        }
    return {
        "schema": SCHEMA,
        "command": report.command,
        "dry_run": report.dry,
        "status": status(report),
        "images": [
            {
                "reference": image.reference,
                "registry": image.registry,
                "repository": image.repository,
                "tag": image.tag or None,
                "digest": image.digest or None,
            }
            for image in report.images
        ],
        "decisions": [_decision(decision) for decision in report.decisions],
        "commits": [_commit_as_json(commit) for commit in report.commits],
        "waiting": [head_build_as_json(waited) for waited in report.waiting],
        "errors": [problem_as_json(problem) for problem in report.problems],
        "counts": counts(report),
        "timings": timings,
        "exit_code": report.exit,
        "source": without_login(report.source) or None,
        "pipeline_run": without_login(report.pipeline_run) or None,
        "images_passed_over": report.passed_over,
        "base": report.base or None,
        "head": report.head or None,
    }


def json_text(report: Report) -> str:
    """Return the report as a JSON string with a final newline."""
    return f"{indented_json(as_json(report))}\n"


def indented_json(data: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return data as JSON on several lines."""
    return exact_json(json.dumps(data, indent=2, ensure_ascii=False))


def report_of(text: str) -> Mapping[str, Any]:
    """Parse a text, and return the JSON report that it contains. Raises `Malformed` if the text is
    not a report.

    Unknown members are allowed, because the report may come from a later version.
    """
    try:
        report = parsed_json(text)
    except ValueError as error:
        raise Malformed(f"this is not JSON: {error}", HINT) from None
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise Malformed(f"this is not an image-update report: its schema is not {SCHEMA}", HINT)
    return report


def current(decision: Judged) -> str | None:
    """Return the current version in Git or in the live Application, as tag, tag@digest, or
    digest.
    """
    return decision.current.version or None


def problem_as_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as one element of the JSON report's `errors`."""
    return {
        "application": problem.application or None,
        "rule": problem.rule,
        "message": without_logins(problem.message),
        "hint": without_logins(problem.hint) or None,
        "severity": problem.severity,
    }


def constraint_of(sub: Subscription) -> str | None:
    """Return an entry's constraints, all of which must be satisfied, as one string. Return None if
    there are no constraints.
    """
    if sub.policy.constraints:
        return " and ".join(sub.policy.constraints)
    return sub.entry.constraint or None


def _decision(decision: Decision | Unusable) -> dict[str, Any]:
    """Return a decision as one element of the JSON report's `decisions`.

    An `Unusable` is an entry with invalid annotations, so parts of it are unknown.
    """
    application = decision.subscription.application
    entry = decision.subscription.entry
    proof = None
    if decision.proof:
        proof = {key: value or None for key, value in asdict(decision.proof).items()}
    if isinstance(decision, Unusable):
        strategy = decision.strategy  # null, rather than a default, if the annotation is unreadable
        constraint = entry.constraint or None
        event = ""
    else:
        strategy = decision.subscription.policy.strategy
        constraint = constraint_of(decision.subscription)
        event = decision.event
    return {
        "application": application.key,
        "alias": entry.alias or None,
        "image": entry.image.name,
        "strategy": strategy,
        "constraint": constraint,
        "current": current(decision),
        "candidate": decision.candidate.version or None,
        "verdict": decision.verdict,
        "rule": decision.rule,
        "because": without_logins(decision.because),
        **_branches(decision),
        "target": decision.kind,
        "file": decision.current.file or None,
        "line": decision.line or None,
        "generated_by": application.generated_by or None,
        "from": decision.source or None,
        "event": event or None,
        "proof": proof,
        "overridden_by": decision.overridden_by or None,
    }


def _branches(decision: Decision | Unusable) -> dict[str, str | None]:
    """Return the JSON members that locate a decision: its repository, its base branch, and the
    branch that it writes (`head`).
    """
    if decision.kind == "live":  # a live Application is not in Git
        return {
            "repository": None,
            "branch": None,
            "head": None,
        }
    repo = ""
    configured_base = ""
    if not isinstance(decision, Unusable):
        repo = decision.subscription.repo
        configured_base = decision.subscription.base
    branch = decision.branch or configured_base or None
    return {
        "repository": without_login(repo) or None,
        "branch": branch,
        "head": decision.head or branch,
    }


def head_build_as_json(waited: HeadBuildRow) -> dict[str, Any]:
    """Return a build that is waiting on a head branch as one element of the JSON report's
    `waiting`.
    """
    return {
        "application": waited.application,
        "alias": waited.alias or None,
        "tag": waited.tag or None,
        "digest": waited.digest or None,
        "head": waited.head,
        "pull_request": waited.pull_request or None,
        "outcome": waited.outcome,
        "because": without_logins(waited.because),
    }


def _commit_as_json(commit: Commit) -> dict[str, Any]:
    """Return a commit as one element of the JSON report's `commits`."""
    fields = {
        "repository": without_login(commit.repo),
        "branch": commit.branch,
        "head": commit.head,
        "commit": commit.commit,
        "tree": commit.tree,
        "files": list(commit.files),
        "applications": list(commit.applications),
        "pull_request": commit.pull_request,
        "attempts": commit.attempts,
        "rollback": commit.rollback,
        "through": commit.through,
        "url": commit.url or None,
    }
    if commit.diff is not None:
        fields["diff"] = commit.diff
    return fields
