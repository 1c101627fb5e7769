"""Writes a report for pipes and logs: plain text with one fact on each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from task.model import Judged, Report
from task.output.report_json import counts, current, status, waited_as_json
from task.output.words import (
    ROLLED_BACK,
    VERDICTS,
    change,
    counted,
    ending,
    nothing_decided,
    waiting_line,
)
from task.text import and_more, printable
from task.urls import without_login

MARKS = {"update": "+", "unchanged": "=", "refuse": "-", "defer": "~", "error": "!"}


def plain(report: Report) -> str:
    """Return the whole report as plain text, with one fact on each line."""
    lines: list[str] = []
    app = ""
    for decision in report.decisions:
        if decision.subscription.application.key != app:
            app = decision.subscription.application.key
            lines.append(app)
        lines += _plain_decision(decision)
    for commit in report.commits:
        if not commit.already_there:
            name = f"commit {commit.commit[:12]}" if commit.commit else "would commit"
            name = f"rollback {name}" if commit.rollback else name
            files = and_more(commit.files)
            lines.append(f"{name} on {commit.head} of {without_login(commit.repo)}: {files}")
        if commit.pull_request:
            lines.append(f"pull request {commit.pull_request}")
        if commit.diff:
            lines += commit.diff.rstrip("\n").split("\n")
    lines += [waiting_line(waited_as_json(one)) for one in report.waiting]
    failed = any(problem.severity == "error" for problem in report.problems)
    if not report.decisions and not failed and report.images:
        names = ", ".join(image.reference for image in report.images)
        lines.append(nothing_decided(names, report.considered, (one.rule for one in report.problems)))
    back = any(commit.rollback for commit in report.commits)
    lines.append(summary(status(report), counts(report), dry=report.dry, back=back))
    return "\n".join(map(printable, lines)) + "\n"  # nearly all of this is untrusted: names, URLs, diffs


def _plain_decision(decision: Judged) -> Iterator[str]:
    entry, verdict = decision.subscription.entry, decision.judged
    alias = f"{entry.alias}=" if entry.alias else ""
    versions = change(verdict.verdict, current(decision) or "", decision.candidate.version, read=bool(decision.kind))
    yield f"  {MARKS[verdict.verdict]} {VERDICTS[verdict.verdict]:8} {alias}{entry.image.name}  {versions}"
    yield f"      {verdict.rule}: {verdict.because}"
    if decision.source:
        yield f"      from: {decision.source}"
    if decision.proof:
        yield f"      proof: {decision.proof}"
    if verdict.hint and verdict.verdict == "error":
        yield f"      fix: {verdict.hint}"
    if decision.current.file and verdict.verdict in ("update", "unchanged"):
        yield f"      file: {decision.current.file}"


def summary(end: str, numbers: Mapping[str, int], *, dry: bool, back: bool) -> str:
    """Return the last line: how the run ended, and how many decisions of each kind it made."""
    words = [f"{number} {word}" for word, number in counted(numbers, dry=dry).items()]
    verdicts = ", ".join([*words, ROLLED_BACK] if back else words)
    return ": ".join(
        filter(None, (ending(end, numbers, dry=dry), verdicts or ("nothing was done" if end == "failed" else "")))
    )
