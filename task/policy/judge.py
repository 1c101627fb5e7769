"""(candidate, policy, current) → Verdict: may this tag go in, and which rule decided.

Pure: the same question always gets the same answer, so a lost push race is answered by
asking again on the new tip.
"""

from __future__ import annotations

from dataclasses import dataclass

from task.image import live_image
from task.model import Image, Policy, Reading, Verdict
from task.policy import tag_filter
from task.policy.order import version_of
from task.policy.strategies import STRATEGIES


@dataclass(frozen=True)
class Leave:
    """What the command line allows beyond the rules."""

    downgrade: bool = False


def objection(tag: str, policy: Policy) -> Verdict | None:
    """Why a tag is not admitted, whatever Git says; None when it is admitted."""
    if policy.ignore and (glob := tag_filter.ignored(policy.ignore, tag)):
        return Verdict("refuse", "ignore-tags", f"ignore-tags {glob!r} matches {tag}")
    if policy.allow is not None and not tag_filter.allowed(policy.allow, tag):
        return Verdict(
            "refuse", "allow-tags", f"allow-tags regexp:{policy.allow} does not match {tag or 'an empty tag'}"
        )
    rule, why = STRATEGIES[policy.strategy].objection(tag, policy)
    return Verdict("refuse", rule, why) if rule else None


def judge(image: Image, policy: Policy, current: Reading, leave: Leave = Leave()) -> Verdict:
    """What the rules say about writing `image` (tag and digest as they would be written) over `current`."""
    if refusal := objection(image.tag, policy):
        return refusal
    if policy.strategy == "digest" and not image.digest:
        return Verdict("error", "registry", "the digest strategy needs the digest and the event has none")
    if same(image, current):
        return Verdict("unchanged", "same", f"Git already says {version_of(current)}")
    # Only a tag that the same rules admit can be newer: `latest`, or a version out of the range, is always replaced.
    comparable = current.tag and current.tag != image.tag and objection(current.tag, policy) is None
    if comparable and not leave.downgrade and (why := STRATEGIES[policy.strategy].older(image.tag, current.tag)):
        return Verdict("refuse", "not-newer", why)
    if policy.pin_digest and not image.digest:
        return Verdict("error", "registry", "pin-digest needs the digest and the event has none")
    was = f"replaces {version_of(current)}" if version_of(current) else "is the first tag written"
    return Verdict("update", "admitted", f"{image.version} passes all rules and {was}")


def same(image: Image, current: Reading) -> bool:
    """Whether the target already says so: the same tag, and the same digest if the event has one.

    A target that names only the digest names the whole image: it gets no tag.
    """
    now = live_image(current.name) if current.name else None
    if not current.sound or (now is not None and now.identity != image.identity):
        return False  # the target names another repository: the tag alone would not do
    if image.digest and current.digest:
        return image.digest == current.digest and ("" in (image.tag, current.tag) or image.tag == current.tag)
    return bool(image.tag) and image.tag == current.tag and not image.digest
