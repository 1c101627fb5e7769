"""Writes a report for pipes and logs: plain text with one fact on each line."""

from __future__ import annotations

from collections.abc import Iterator

from task.output.words import FOLDED, JSON, headline, lines, own_commits, requests, waiting_words
from task.text import and_more, printable


def plain(report: JSON) -> str:
    """Return the whole report as plain text.

    In a log of 2,000 lines, the first or the last line is enough: both say everything. The message of what failed is
    in the log, once, with what to do.
    """
    head = headline(report)
    shown = [head, *_decisions(report), *_commits(report)]
    for commit in report["commits"]:
        shown += commit["diff"].rstrip("\n").split("\n") if commit.get("diff") else []
    shown += [head] if len(shown) > 1 else []
    return "\n".join(map(printable, shown)) + "\n"  # nearly all of this is untrusted: names, URLs, diffs


def _decisions(report: JSON) -> Iterator[str]:
    rows = []
    for one in lines(report):
        why = one.rule if one.verdict == "error" else one.why
        bracketed = f"({why})" if one.verdict in (*FOLDED, "error") else why
        rows.append((one.word, one.application, one.image, one.version(), f"{bracketed}  {one.file}".rstrip()))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _commits(report: JSON) -> Iterator[str]:
    for commit in own_commits(report):
        word = "would commit" if not commit["commit"] else "rollback commit" if commit.get("rollback") else "commit"
        yield f"{word} {commit_words(commit)}: {and_more(commit['files'])}"
    yield from (f"request {url}" for url in requests(report))
    yield from (f"{one['outcome']} {waiting_words(one)}" for one in report.get("waiting", ()))


def commit_words(commit: JSON) -> str:
    """Return which commit it is: its page if the Git host is known, and its branch."""
    if url := commit.get("url"):
        return f"{url} on {commit['head']}"
    start = f"{commit['commit'][:12]} on " if commit["commit"] else "on "
    return f"{start}{commit['head']} of {commit['repository']}"
