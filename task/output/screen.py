"""Report → what a person reads on the terminal: one block per Application, then the commits."""

from __future__ import annotations

from collections.abc import Iterable

from task.model import Decision, Report
from task.output.outcome import counts, current, status
from task.text import printable
from task.urls import without_login

MARKS = {"update": "+", "unchanged": "=", "refuse": "-", "defer": "~", "error": "!"}


def screen(report: Report) -> str:
    """The whole report as text, each line telling one thing."""
    lines: list[str] = []
    app = ""
    for one in report.decisions:
        if one.subscription.application.key != app:
            app = one.subscription.application.key
            lines.append(app)
        lines += _decision(one)
    for commit in report.commits:
        name = f"commit {commit.commit[:12]}" if commit.commit else "would commit"
        if not commit.stands:
            lines.append(f"{name} on {commit.head} of {without_login(commit.repo)}: {_some(commit.files)}")
        if commit.pull_request:
            lines.append(f"pull request {commit.pull_request}")
        if commit.diff:
            lines += commit.diff.rstrip("\n").split("\n")
    failed = any(problem.severity == "error" for problem in report.problems)
    if not report.decisions and not failed and report.images:
        names = ", ".join(image.reference for image in report.images)
        lines.append(f"no Application takes {names} ({report.considered} looked at)")
    lines.append(_summary(report))
    return "\n".join(map(printable, lines)) + "\n"  # nearly all of it was named by others


def _decision(one: Decision) -> list[str]:
    alias = f"{one.subscription.entry.alias}=" if one.subscription.entry.alias else ""
    was = current(one) or "(none)"
    now = one.candidate.version
    arrow = f"{was} -> {now}" if one.verdict.verdict == "update" else f"{was}, offered {now}" if now else was
    mark = MARKS[one.verdict.verdict]
    lines = [f"  {mark} {one.verdict.verdict:9} {alias}{one.subscription.entry.image.name}  {arrow}"]
    lines.append(f"      {one.verdict.rule}: {one.verdict.because}")
    if one.verdict.hint and one.verdict.verdict == "error":
        lines.append(f"      do: {one.verdict.hint}")
    if one.current.file and one.verdict.verdict in ("update", "unchanged"):
        lines.append(f"      file: {one.current.file}")
    return lines


def _some(names: Iterable[str], most: int = 5) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _summary(report: Report) -> str:
    parts = (
        f"{number} {name}"
        for name, number in counts(report).items()
        if name not in ("applications", "matched") and number
    )
    nothing = "nothing was done" if status(report) == "failed" else "nothing to do"
    return f"{status(report)}: {', '.join(parts) or nothing}"
