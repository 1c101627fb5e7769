"""(candidate, policy, current) → Verdict: may this tag go in, and which rule decided.

Pure: the same question always gets the same answer, so a lost push race is answered by
asking again on the new tip.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from task.image import live_image
from task.model import Image, Policy, Reading, Verdict
from task.policy import tag_filter
from task.policy.strategies import STRATEGIES


@dataclass(frozen=True)
class Leave:
    """What the command line allows beyond the rules."""

    downgrade: bool = False


def objection(image: Image, policy: Policy) -> Verdict | None:
    """Why the tag is not admitted whatever Git says; None when it is admitted."""
    return _objection(image.tag, policy)


@lru_cache(maxsize=4096)
def _objection(tag: str, policy: Policy) -> Verdict | None:
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
    refusal = objection(image, policy)
    if refusal:
        return refusal
    if policy.strategy == "digest" and not image.digest:
        return Verdict("error", "registry", "the digest strategy needs the digest and the event has none")
    if same(image, current):
        return Verdict("unchanged", "same", f"Git already says {version(current)}")
    if not leave.downgrade and (older := _older(image, policy, current)):
        return Verdict("refuse", "not-newer", older)
    if policy.pin_digest and not image.digest:
        return Verdict("error", "registry", "pin-digest needs the digest and the event has none")
    was = f"replaces {version(current)}" if version(current) else "is the first tag written"
    return Verdict("update", "admitted", f"{image.version} passes all rules and {was}")


def same(image: Image, current: Reading) -> bool:
    """Whether the target already says so: the same tag, and the same digest if the event has one.

    A target that names the digest alone says the image whole: it gets no tag.
    """
    if not current.sound or _other_repository(image, current.name):
        return False
    if image.digest and current.digest:
        return image.digest == current.digest and ("" in (image.tag, current.tag) or image.tag == current.tag)
    return bool(image.tag) and image.tag == current.tag and not image.digest


def _other_repository(image: Image, name: str) -> bool:
    """Whether the target names another repository, whatever the spelling; the tag alone would not do then."""
    now = live_image(name) if name else None
    return now is not None and now.identity != image.identity


def version(current: Reading) -> str:
    """`tag`, `tag@digest` or digest, as a person writes it; "" where there is none."""
    return f"{current.tag}@{current.digest}" if current.tag and current.digest else current.tag or current.digest


def _older(image: Image, policy: Policy, current: Reading) -> str:
    """Only a current tag that the same rules admit can be newer; any other is always replaced."""
    if not current.tag or current.tag == image.tag:
        return ""
    if objection(replace(image, tag=current.tag), policy):
        return ""
    return STRATEGIES[policy.strategy].older(image.tag, current.tag)
