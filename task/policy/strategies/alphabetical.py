"""Strategy `alphabetical`: the greatest tag by byte order (`2024-9` > `2024-10`, `b` > `B`)."""

from __future__ import annotations

from task.model import Policy


def objection(tag: str, policy: Policy) -> tuple[str, str]:
    """Every tag is admitted; the constraint has no effect, as in AIU."""
    del tag, policy
    return "", ""


def older(tag: str, current: str) -> str:
    """Why `tag` does not come after `current` by byte order."""
    if tag.encode() > current.encode():
        return ""
    return f"{current} comes after {tag} in alphabetical order"
