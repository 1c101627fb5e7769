"""Strategy `digest`: follows one mutable tag, named by the constraint, by its digest."""

from __future__ import annotations

from task.model import Policy


def objection(tag: str, policy: Policy) -> tuple[str, str]:
    """Only the constraint's own tag is admitted."""
    wanted = policy.constraints[0] if policy.constraints else ""
    if tag == wanted:
        return "", ""
    given = f"tag {tag}" if tag else "an image without a tag"
    return "constraint", f"the digest strategy follows the tag {wanted} and this is {given}"


def older(tag: str, current: str) -> str:
    """Digests carry no order: what arrives is newer."""
    del tag, current
    return ""
