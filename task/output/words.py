"""The words in which people read a report; the same in the text, the table, the page and GitHub's summary.

In JSON, results and metrics the verdicts keep their names, which pipelines rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERDICTS = {"update": "update", "unchanged": "current", "refuse": "skipped", "defer": "held", "error": "failed"}
_ENDS = {"unchanged": "nothing to do", "refused": "not updated"}
_COUNTED = {"updated": "updated", "unchanged": "current", "refused": "skipped", "deferred": "held", "failed": "failed"}


def ending(status: str, *, dry: bool) -> str:
    """The status of a run, or of what a run would do."""
    if dry and status == "updated":
        return "would update"
    return _ENDS.get(status, status)


def counted(numbers: Mapping[str, int], *, dry: bool) -> dict[str, int]:
    """The numbers of decisions by verdict, in these words; those that are 0 are left out."""
    words = _COUNTED | ({"updated": "to update"} if dry else {})
    return {word: numbers[name] for name, word in words.items() if numbers[name]}


ROLLED_BACK = "rolled back"


def went_back(report: Mapping[str, Any]) -> bool:
    """Whether a JSON report says that a commit put back what was there before a failed rollout."""
    return any(commit.get("rollback") for commit in report["commits"])  # older reports do not have the member


NOT_READ = "not read"


def change(verdict: str, current: str, candidate: str, arrow: str = "->", *, read: bool = True) -> str:
    """What a decision is between: the version that Git has, and the one on offer. `read`: whether Git was read."""
    was = current or ("(none)" if read else NOT_READ)
    if verdict == "update":
        return f"{was} {arrow} {candidate}"
    if verdict == "unchanged" or not candidate:
        return was
    return f"current {was}, candidate {candidate}"


def would_be(report: Mapping[str, Any]) -> bool:
    """Whether a JSON report only says what would happen."""
    return report["command"] == "plan" or any(commit["commit"] is None for commit in report["commits"])


def tracked_by_nobody(images: str, considered: int) -> str:
    """Said where no decision was to be made."""
    return f"no Application tracks {images} ({considered} read)"
