"""Decides whether a tag may go in, and which rule decides: (candidate, policy, current) → Verdict.

Pure: the same question always has the same answer. After a lost push race the question is asked again for the new tip.
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
    """What the command line permits although the rules refuse it."""

    downgrade: bool = False


def objection(tag: str, policy: Policy) -> Verdict | None:
    """The refusal of a tag that the rules do not admit; None for an admitted tag. Git's version does not matter."""
    if policy.ignore and (glob := tag_filter.ignored(policy.ignore, tag)):
        return Verdict("refuse", "ignore-tags", f"ignore-tags {glob!r} matches {tag}")
    if policy.allow is not None and not tag_filter.allowed(policy.allow, tag):
        return Verdict(
            "refuse", "allow-tags", f"allow-tags regexp:{policy.allow} does not match {tag or 'an empty tag'}"
        )
    rule, why = STRATEGIES[policy.strategy].objection(tag, policy)
    return Verdict("refuse", rule, why) if rule else None


def judge(image: Image, policy: Policy, current: Reading, leave: Leave = Leave()) -> Verdict:
    """The verdict on writing `image`, with tag and digest as they would be written, over `current`."""
    if refusal := objection(image.tag, policy):
        return refusal
    # With `tagsortmode` AIU writes the plain tag here, which changes nothing in the cluster.
    if policy.strategy == "digest" and not image.digest:
        return Verdict("error", "registry", "the digest strategy needs the digest and the event has none")
    if same(image, current):
        return Verdict("unchanged", "same", f"Git already says {version_of(current)}")
    # Only a tag that the same rules admit can be newer: `latest`, or a version out of the range, is always replaced. So
    # an update may go down, as in AIU, which never compares with the running tag (2.0.0 runs, ~1.0 picks 1.0.5).
    comparable = current.tag and current.tag != image.tag and objection(current.tag, policy) is None
    if comparable and not leave.downgrade and (why := STRATEGIES[policy.strategy].older(image.tag, current.tag)):
        return Verdict("refuse", "not-newer", why)
    if policy.pin_digest and not image.digest:
        return Verdict("error", "registry", "pin-digest needs the digest and the event has none")
    was = f"replaces {version_of(current)}" if version_of(current) else "is the first tag written"
    return Verdict("update", "admitted", f"{image.version} passes all rules and {was}")


def same(image: Image, current: Reading) -> bool:
    """Whether the target says this image already: the same tag, and the same digest if the event has one.

    A target with a digest alone names the whole image; an event with that digest adds no tag to it.
    """
    now = live_image(current.name) if current.name else None
    # Not sound: a YAML reader takes the scalar for a number, which is not that tag even if its letters are equal.
    # Another identity: the target names another repository, and it is not enough to write the tag there.
    if not current.sound or (now is not None and now.identity != image.identity):
        return False
    if image.digest and current.digest:
        return image.digest == current.digest and ("" in (image.tag, current.tag) or image.tag == current.tag)
    return bool(image.tag) and image.tag == current.tag and not image.digest
