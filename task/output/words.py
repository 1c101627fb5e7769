"""The words with which people read a report. They are the same in the text, the table, the page and GitHub's summary.

In JSON, results and metrics, the verdicts keep their names, because pipelines rely on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

VERDICTS = {"update": "update", "unchanged": "current", "refuse": "skipped", "defer": "held", "error": "failed"}
_ENDS = {"unchanged": "nothing to do", "refused": "not updated"}
_COUNTED = {"updated": "updated", "unchanged": "current", "refused": "skipped", "deferred": "held", "failed": "failed"}


def ending(status: str, numbers: Mapping[str, int], *, dry: bool) -> str:
    """Return the words for the status of a run, or for what a run would do.

    `numbers` are the decisions of each kind: `hold` commits something although it updates no image.
    """
    if status == "updated" and not numbers["updated"]:
        return "would commit" if dry else "committed"
    if dry and status == "updated":
        return "would update"
    return _ENDS.get(status, status)


def counted(numbers: Mapping[str, int], *, dry: bool) -> dict[str, int]:
    """Return the number of decisions for each verdict, by these words, without those that are 0."""
    words = _COUNTED | ({"updated": "to update"} if dry else {})
    return {word: numbers[name] for name, word in words.items() if numbers[name]}


def proved(decision: Mapping[str, Any]) -> str:
    """Return what was proved about the candidate of a decision in a JSON report, or ""."""
    proof = decision.get("proof") or {}  # older reports do not have the member
    return "; ".join(str(value) if key == "kind" else f"{key}={value}" for key, value in proof.items() if value)


ROLLED_BACK = "rolled back"


def went_back(report: Mapping[str, Any]) -> bool:
    """Tell whether a commit in a JSON report restored what was there before a failed rollout."""
    return any(commit.get("rollback") for commit in report["commits"])  # older reports do not have the member


def waiting_line(one: Mapping[str, Any]) -> str:
    """Return a line about a build that waited on a head branch before the run, and what became of it."""
    what = " ".join(filter(None, (one["application"], one["alias"], one["tag"] or one["digest"])))
    return f"{one['outcome']} {what} on {one['pull_request'] or one['head']}: {one['because']}"


NOT_READ = "not read"


def change(verdict: str, current: str, candidate: str, arrow: str = "->", *, read: bool = True) -> str:
    """Return the two versions of a decision: the one in Git, and the one on offer.

    `read` says whether Git was read.
    """
    was = current or ("(none)" if read else NOT_READ)
    if verdict == "update":
        return f"{was} {arrow} {candidate}"
    if verdict == "unchanged" or not candidate:
        return was
    return f"current {was}, candidate {candidate}"


def would_be(report: Mapping[str, Any]) -> bool:
    """Tell whether a JSON report only says what would happen."""
    return report["command"] == "plan" or any(commit["commit"] is None for commit in report["commits"])


ELSEWHERE = "only-repository"  # the rule of the warning that this option leaves out all Applications in question


def nothing_decided(images: str, considered: int, rules: Iterable[str]) -> str:
    """Return the sentence for a run without decisions, but with problems that have these rules."""
    if ELSEWHERE in rules:
        return f"no Application of these repositories tracks {images} ({considered} read)"
    read = f"{considered} read" if considered else "none with an image-list was read"
    return f"no Application tracks {images} ({read})"
