"""The update strategies: which tags each one admits, and when a candidate is newer than the current tag.

A new strategy is one class here with its line in `STRATEGIES`, its name in `Strategy` of task/model.py, and one row in
docs/annotations.md. Annotations, `--strategy` and all rules follow from these.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cmp_to_key
from typing import Any, Literal

from semver import Version

from task.errors import Malformed
from task.model import Fact, Policy, Strategy
from task.policy.tag_order import VERSION_GROUP, TagOrder, newer_by_numbers, parse_tag_order
from task.policy.version_range import parse_range, parse_version
from task.text import shortened
from task.timestamps import epoch_seconds

Constraint = Literal["range", "tag", ""]
UNFIT_HINT = "write regexp: and a pattern with a group (?P<semver>…), or update-strategy: alphabetical"


class Rules:
    """The rules of one strategy. These here admit every tag, and know no order of tags."""

    ordered = False  # whether tags alone say which is newer; if not, builds do
    needs: tuple[Fact, ...] = ()  # what a decision needs besides the tag
    constraint: Constraint = ""  # what the constraint means: versions, the one tag to follow, or nothing, as in AIU

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Return (rule, why) if the tag is not admitted, and ("", "") if it is."""
        return "", ""

    def older(self, tag: str, current: str) -> str:
        """Return why `tag` does not come after `current` (both admitted, different texts), or "" if it does.

        Without an order of tags, what arrives later is newer.
        """
        return ""

    def sort_key(self, tag: str, date: str) -> Any:
        """Return a key that sorts admitted tags of one repository, newest last. `date` is the registry's, or ""."""
        return tag


class Semver(Rules):
    """The highest version that the constraints admit.

    Of equal versions, the greatest text wins, as in AIU since v0.13.
    """

    ordered = True
    constraint = "range"

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Refuse anything but a version that satisfies every constraint.

        Without a constraint, only releases are admitted, as in AIU v1.3.
        """
        version = parse_version(tag)
        if version is None:
            return "not-a-version", _no_version(tag, policy) if tag else "the image has no tag"
        if not policy.constraints and version.prerelease:
            way_out = "" if "." in tag.partition("-")[0] else "; if it is no version, write a tag-order"
            why = f"{tag} is a pre-release, and without a constraint only releases go in"
            return "constraint", f"{why}; to admit it, write the constraint >=0-0{way_out}"
        outside = next((text for text in policy.constraints if not parse_range(text).admits(version)), None)
        return ("", "") if outside is None else ("constraint", _not_in(outside, tag, version))

    def older(self, tag: str, current: str) -> str:
        """Compare the versions.

        Build metadata does not count there, so the text decides between `1.1.0` and `1.1.0+x`.
        """
        new, old = parse_version(tag), parse_version(current)
        if new is None or old is None:
            return ""
        order = new.compare(old)
        if order > 0 or (order == 0 and tag > current):
            return ""
        if order == 0:
            why = f"{current} is the same version as {tag} and its text is the greater one"
        else:
            why = f"{current} is newer than {tag}"
        of_letters = new.finalize_version() == old.finalize_version() and bool(new.prerelease) == bool(old.prerelease)
        return f"{why}{_by_numbers(tag, current)}" if of_letters else why

    def sort_key(self, tag: str, date: str) -> Any:
        """Return the version, then the text."""
        return cmp_to_key(Version.compare)(parse_version(tag) or Version(0)), tag


class NewestBuild(Rules):
    """The build that comes last.

    An event is the newest build because it arrives last, but lists of tags are sorted by date.
    """

    needs = ("created",)

    def sort_key(self, tag: str, date: str) -> Any:
        """Return the date, then the text. An image without a date is older than any other."""
        if not date:
            return float("-inf"), "", tag
        # Registries give nanoseconds. As floats of seconds, two times may be equal, so the fraction stays text.
        whole, _, fraction = date.removesuffix("Z").partition(".")
        return epoch_seconds(f"{whole}Z"), fraction, tag


class Alphabetical(Rules):
    """The greatest tag by byte order: `2024-9` > `2024-10`, `b` > `B`."""

    ordered = True

    def older(self, tag: str, current: str) -> str:
        """Compare the bytes."""
        if tag.encode() > current.encode():
            return ""
        return f"{current} comes after {tag} in alphabetical order{_by_numbers(tag, current)}"

    def sort_key(self, tag: str, date: str) -> Any:
        """Return the bytes."""
        return tag.encode()


class Digest(Rules):
    """Follows the digest of one mutable tag, which is the constraint."""

    needs = ("digest",)
    constraint = "tag"

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Refuse any tag but the constraint's own."""
        wanted = policy.constraints[0] if policy.constraints else ""
        if tag == wanted:
            return "", ""
        given = f"tag {tag}" if tag else "an image without a tag"
        return "constraint", f"the digest strategy follows the tag {wanted} and this is {given}"


class InTagOrder(Rules):
    """A strategy that orders tags, with another order for them (`tag-order`)."""

    ordered = True

    def __init__(self, rules: Rules, order: TagOrder) -> None:
        self.needs = rules.needs
        self.constraint = rules.constraint
        self._rules, self._order = rules, order

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Refuse a tag that has no place in the order. The constraint is for the version that is in the tag."""
        read = self._order.read(tag)
        if read is None:
            return "tag-order", f"tag-order {shortened(self._order.text)} does not match {tag or 'an empty tag'}"
        group, version = f"the group {VERSION_GROUP} of tag-order", read.get(VERSION_GROUP)
        if version is not None and parse_version(version) is None:
            return "tag-order", f"{group} matches {version!r} of {tag}, which is not a version"
        if not self.constraint:
            return "", ""
        if version is None:
            return "tag-order", f"{group} has no part in {tag}"
        rule, why = self._rules.objection(version, policy)
        return rule, f"{tag}: {why}" if rule else ""

    def older(self, tag: str, current: str) -> str:
        """Compare by the order."""
        if self._order.sort_key(tag) > self._order.sort_key(current):
            return ""
        return f"{current} comes after {tag} in the order {shortened(self._order.text)} (tag-order)"

    def sort_key(self, tag: str, date: str) -> Any:
        """Return the order's key."""
        return self._order.sort_key(tag)


def _no_version(tag: str, policy: Policy) -> str:
    """Return why a tag is refused that is no version, with what fits such tags."""
    if policy.tag_order:
        return f"{tag!r} is not a semantic version"
    fits = "a tag-order for the numbers in it" if any(map(str.isdecimal, tag)) else "digest to follow this tag"
    return (
        f"{tag!r} is not a semantic version, which semver, the default strategy, needs; "
        f"write update-strategy: newest-build, or {fits}"
    )


def _not_in(text: str, tag: str, version: Version) -> str:
    """Return why a version is not in a range. Most people do not expect that a range without one has no pre-release."""
    if not (version.prerelease and parse_range(text).admits(version.finalize_version())):
        return f"{tag} does not satisfy {text}"
    why = f"{tag} is a pre-release, and {text} admits releases only; to admit it, "
    with suppress(Malformed):
        if parse_range(f"{text}-0").admits(version):
            return f"{why}write {text}-0"
    return f"{why}write -0 after a version, as in >=1.0-0"


def _by_numbers(tag: str, current: str) -> str:
    """Return the advice for a tag that only its letters make older."""
    return "; tag-order compares the numbers in them" if newer_by_numbers(tag, current) else ""


STRATEGIES: Mapping[Strategy, Rules] = {
    "semver": Semver(),
    "newest-build": NewestBuild(),
    "alphabetical": Alphabetical(),
    "digest": Digest(),
}


def rules_of(policy: Policy) -> Rules:
    """Return the rules of the policy's strategy, in the order of its `tag-order` if tags have an order."""
    rules = STRATEGIES[policy.strategy]
    return InTagOrder(rules, parse_tag_order(policy.tag_order)) if policy.tag_order and rules.ordered else rules


def unfit_order(policy: Policy) -> str:
    """Return why the strategy cannot use the policy's `tag-order`, or ""."""
    if not policy.tag_order or STRATEGIES[policy.strategy].constraint != "range":
        return ""
    if parse_tag_order(policy.tag_order).has_version:
        return ""
    return f"tag-order {shortened(policy.tag_order)} has no group for the version that {policy.strategy} compares"


def needs(policy: Policy, fact: Fact) -> bool:
    """Tell whether a decision needs this fact, whatever the image is."""
    return fact in rules_of(policy).needs or (fact == "digest" and policy.pin_digest)
