"""Strategy `semver`: the highest version that the constraints admit; ties go to the greatest text."""

from __future__ import annotations

from task.model import Policy
from task.policy.version_range import compare, parse_range, parse_version


def objection(tag: str, policy: Policy) -> tuple[str, str]:
    """Why the tag is no version, or which constraint keeps it out; without one releases only, as AIU v1."""
    version = parse_version(tag)
    if version is None:
        return "not-a-version", f"{tag!r} is not a semantic version" if tag else "the image has no tag"
    if not policy.constraints and version.prerelease:
        return "constraint", f"{tag} is a pre-release and no constraint admits it (>=0-0 would)"
    for text in policy.constraints:
        if not parse_range(text).admits(version):
            return "constraint", f"{tag} does not satisfy {text}"
    return "", ""


def older(tag: str, current: str) -> str:
    """Why `tag` does not come after `current`; equal versions are told apart by their text, as in AIU."""
    new, old = parse_version(tag), parse_version(current)
    if new is None or old is None:
        return ""
    order = compare(new, old)
    if order > 0 or (order == 0 and tag > current):
        return ""
    if order == 0:
        return f"{current} is the same version as {tag} and its text is the greater one"
    return f"{current} is newer than {tag}"
