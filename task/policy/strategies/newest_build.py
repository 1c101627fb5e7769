"""Strategy `newest-build`: the build that comes last. An event is the newest build by arrival."""

from __future__ import annotations

from task.model import Policy


def objection(tag: str, policy: Policy) -> tuple[str, str]:
    """Every tag is admitted; the constraint has no effect, as in AIU."""
    del tag, policy
    return "", ""


def older(tag: str, current: str) -> str:
    """Tags carry no order here: what arrives is newer."""
    del tag, current
    return ""
