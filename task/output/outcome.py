"""Report → exit code, status, counts, and the JSON of contract section 9."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from task.errors import PRECEDENCE, Exit
from task.model import Commit, Decision, Problem, Report
from task.text import exact_json, without_logins
from task.urls import without_login

SCHEMA = "image-update/report/v1"
BY_HAND = ("hold", "release", "rollback")  # what they write may be a hold alone


def exit_code(
    decisions: Sequence[Decision], problems: Iterable[Problem], *, require_update: bool = False, unmatched: bool = False
) -> Exit:
    """The first of the exit codes that occurred, in the order of `PRECEDENCE`. No error ends as a success."""
    codes = {one.verdict.exit or int(Exit.CONFIGURATION) for one in decisions if one.verdict.verdict == "error"}
    codes |= {one.exit or int(Exit.CONFIGURATION) for one in problems if one.severity == "error"}
    if unmatched or (require_update and not any(one.verdict.verdict == "update" for one in decisions)):
        codes.add(int(Exit.NOTHING_UPDATED))
    return first_of(codes)


def first_of(codes: Collection[int]) -> Exit:
    """The exit code that a run with several ends with."""
    return next((code for code in PRECEDENCE if code in codes), Exit.DEFECT if any(codes) else Exit.OK)


def status(report: Report) -> str:
    """`updated`, `unchanged`, `refused` or `failed`."""
    if report.exit not in (Exit.OK, Exit.NOTHING_UPDATED):
        return "failed"
    verdicts = {one.verdict.verdict for one in report.decisions}
    if "update" in verdicts or (report.command in BY_HAND and any(not one.already_there for one in report.commits)):
        return "updated"
    return "refused" if verdicts & {"refuse", "defer"} and "unchanged" not in verdicts else "unchanged"


def counts(report: Report) -> dict[str, int]:
    """How many Applications and entries there were of each kind."""
    verdicts = [one.verdict.verdict for one in report.decisions]
    return {
        "applications": report.considered,
        "matched": len({one.subscription.application.key for one in report.decisions}),
        "updated": verdicts.count("update"),
        "unchanged": verdicts.count("unchanged"),
        "refused": verdicts.count("refuse"),
        "deferred": verdicts.count("defer"),
        "failed": verdicts.count("error"),
    }


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain data. Absent values are None, never left out."""
    timings = report.timings and {
        "started": report.timings.started,
        "seconds": round(report.timings.total, 3),
        "find": round(report.timings.find, 3),
        "land": round(report.timings.land, 3),
        "follow": round(report.timings.follow, 3),
    }
    return {
        "schema": SCHEMA,
        "command": report.command,
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
        "decisions": [_decision(one) for one in report.decisions],
        "commits": [_commit(one) for one in report.commits],
        "errors": [
            {
                "application": one.application or None,
                "rule": one.rule,
                "message": without_logins(one.message),
                "hint": without_logins(one.hint) or None,
                "severity": one.severity,
            }
            for one in report.problems
        ],
        "counts": counts(report),
        "timings": timings,
    }


def json_text(report: Report) -> str:
    """The report as one JSON text with a final newline."""
    return exact_json(json.dumps(as_json(report), indent=2, ensure_ascii=False)) + "\n"


def current(one: Decision) -> str | None:
    """What Git (else the live Application) says now: tag, tag@digest or digest."""
    tag, digest = one.current.tag, one.current.digest
    return f"{tag}@{digest}" if tag and digest else tag or digest or None


def _decision(one: Decision) -> dict[str, Any]:
    sub = one.subscription
    live = one.kind == "live"  # then nothing is in Git
    return {
        "application": sub.application.key,
        "alias": sub.entry.alias or None,
        "image": sub.entry.image.name,
        "strategy": sub.flaw.strategy if sub.flaw else sub.policy.strategy,
        "constraint": " and ".join(sub.policy.constraints) or sub.entry.constraint or None,
        "current": current(one),
        "candidate": one.candidate.version or None,
        "verdict": one.verdict.verdict,
        "rule": one.verdict.rule,
        "because": without_logins(one.verdict.because),
        "repository": None if live else without_login(sub.repo) or None,
        "branch": None if live else one.branch or sub.base or None,
        "head": None if live else one.head or one.branch or sub.base or None,
        "target": one.kind,
        "file": one.current.file or None,
    }


def _commit(one: Commit) -> dict[str, Any]:
    return {
        "repository": without_login(one.repo),
        "branch": one.branch,
        "head": one.head,
        "commit": one.commit,
        "tree": one.tree,
        "files": list(one.files),
        "applications": list(one.applications),
        "pull_request": one.pull_request,
        "attempts": one.attempts,
    } | ({"diff": one.diff} if one.diff is not None else {})
