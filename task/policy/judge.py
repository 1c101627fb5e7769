"""Decides whether a tag may go in, and by which rule: (candidate, policy, current) → Verdict.

Pure: the same question always has the same answer. After a lost push race, the question is asked again for the new tip.
"""

from __future__ import annotations

from task.errors import Exit
from task.image import live_image
from task.model import Image, Policy, Reading, Verdict
from task.policy import tag_filter
from task.policy.strategies import UNFIT_HINT, rules_of, unfit_order


def objection(tag: str, policy: Policy) -> Verdict | None:
    """Return why the rules refuse a tag, or None if they admit it. The version in Git does not matter here."""
    if policy.ignore and (glob := tag_filter.ignored(policy.ignore, tag)):
        return Verdict("refuse", "ignore-tags", f"ignore-tags {glob!r} matches {tag}")
    if policy.allow is not None and not tag_filter.allowed(policy.allow, tag):
        return Verdict(
            "refuse", "allow-tags", f"allow-tags regexp:{policy.allow} does not match {tag or 'an empty tag'}"
        )
    if why := unfit_order(policy):
        return Verdict("error", "annotation", why, UNFIT_HINT, int(Exit.CONFIGURATION))
    rule, why = rules_of(policy).objection(tag, policy)
    return Verdict("refuse", rule, why) if rule else None


def judge(image: Image, policy: Policy, current: Reading, *, allow_downgrade: bool = False) -> Verdict:
    """Return the verdict on replacing `current` by `image`, which has the tag and digest that would be written."""
    if refusal := objection(image.tag, policy):
        return refusal
    # AIU with `tagsortmode` writes the plain tag here, which changes nothing in the cluster.
    if "digest" in rules_of(policy).needs and not image.digest:
        return Verdict(
            "error", "registry", f"the {policy.strategy} strategy needs the digest, and the build gives none"
        )
    if same(image, current):
        return Verdict("unchanged", "same", "Git has it already")
    # Only a tag that the same rules admit can be newer. `latest`, or a version out of the range, is always replaced. So
    # an update may be a downgrade: if 2.0.0 runs, ~1.0 picks 1.0.5. AIU never compares with the running tag.
    for tag in () if allow_downgrade else (current.tag, *current.also):
        comparable = tag and tag != image.tag and objection(tag, policy) is None
        if comparable and (why := rules_of(policy).older(image.tag, tag)):
            return Verdict(
                "refuse", "not-newer", why if tag == current.tag else f"{why}, in another entry of the image"
            )
    if policy.pin_digest and not image.digest:
        return Verdict("error", "registry", "pin-digest needs the digest, and the build gives none")
    rules = f"{policy.strategy} {' and '.join(policy.constraints)}".rstrip()
    return Verdict("update", "admitted", f"{rules} admits it")


def same(image: Image, current: Reading) -> bool:
    """Tell whether the target has this image already: the same tag, and the same digest if the event has one.

    A target that has only a digest names the whole image, and an event with that digest does not add a tag.
    """
    now = live_image(current.name) if current.name else None
    # Not sound: a YAML reader takes the scalar for a number, so it is not that tag although its text is equal. Another
    # identity: the target names another repository, so it is not enough to write the tag.
    if not current.sound or (now is not None and now.identity != image.identity):
        return False
    if image.digest and current.digest:
        return image.digest == current.digest and ("" in (image.tag, current.tag) or image.tag == current.tag)
    return bool(image.tag) and image.tag == current.tag and not image.digest
