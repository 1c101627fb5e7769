"""The update strategies: which tags they admit, and when a candidate is newer than the current tag.

To add a strategy, add a class here and to `STRATEGIES`, add its name to `Strategy` in
task/model.py, and add a row to docs/annotations.md. Nothing else is needed: annotations,
`--strategy`, and all rules use these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cmp_to_key, lru_cache
from typing import Any, Literal

from semver import Version

from task.errors import Malformed
from task.model import Fact, Policy, Strategy
from task.policy.tag_filter import check_length, compiled, named_twice
from task.policy.version_range import parse_range, parse_version
from task.text import shortened
from task.timestamps import epoch_seconds

Kind = Literal["numeric", "alphabetical", "regexp"]
KINDS: Mapping[str, Kind] = {"numeric": "numeric", "alphabetical": "alphabetical"}
VERSION_GROUP = "semver"  # the name of the group that is compared as a version
# RE2 copies all groups for each character in a tag, so a pattern with a thousand groups would take
# seconds for a thousand tags.
MOST_GROUPS = 16
_RUN = re.compile(r"[0-9]+|[^0-9]+")
_DIGITS = re.compile(r"[0-9]+")
# Requires both letters and digits, so that dates and words are not mistaken for commit IDs.
_COMMIT = re.compile(
    r"(?<![0-9A-Za-z])g?(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,40}(?![0-9A-Za-z])"
)
_DESCENDING = re.compile(r"\s+desc\Z")
_HINT = (
    "use numeric, alphabetical, or regexp: followed by a pattern with named groups, such as"
    " regexp:-(?P<build>[0-9]+)$"
)
_by_version = cmp_to_key(Version.compare)


@dataclass(frozen=True)
class TagOrder:
    """A tag order. `groups` are the pattern's named groups, in order."""

    text: str  # as written
    kind: Kind
    descending: bool = False
    pattern: str = ""
    groups: tuple[tuple[str, int], ...] = ()  # each group's name, and its number in the pattern

    @property
    def has_version(self) -> bool:
        """Whether any of the groups is compared as a version."""
        return any(group == VERSION_GROUP for group, _ in self.groups)

    def read(self, tag: str) -> Mapping[str, str | None] | None:
        """Return the part of the tag that each group in the pattern matches, in order.

        Return None if the pattern does not match. A group that did not participate in the match
        maps to None. If there is no pattern, the whole tag is a single unnamed part.
        """
        if self.kind != "regexp":
            return {"": tag}
        raw_tag = tag.encode("utf-8", "surrogatepass")
        match = compiled(self.pattern, groups=True).search(raw_tag)
        if match is None:
            return None
        parts: dict[str, str | None] = {}
        for name, number in self.groups:
            part = match.group(number)
            parts[name] = None if part is None else part.decode("utf-8", "surrogatepass")
        return parts

    def sort_key(self, tag: str) -> Any:
        """Return a key that sorts tags, newest last. Tags that do not match come first.

        The numbers in all parts are compared first, and leading zeros only if the numbers are
        equal: `2026-9-10` comes after `2026-09-05`.
        """
        raw_tag = tag.encode("utf-8", "surrogatepass")
        key: Any = raw_tag
        if self.kind != "alphabetical":
            parts = self.read(tag) or {}
            values = []
            lengths = []
            for group, part in parts.items():
                values.append(_sort_value(part, group))
                # If the values are equal, longer runs of digits contain more leading zeros.
                lengths.append([len(run) for run in _RUN.findall(part or "")])
            key = (values, lengths, raw_tag)
        return _reversed(key) if self.descending else key


@lru_cache(maxsize=256)
def parse_tag_order(text: str) -> TagOrder:
    """Parse a tag order.

    Examples are `numeric`, `alphabetical desc`, and `regexp:-(?P<build>[0-9]+)$`. Raises
    `Malformed` for an unknown word, and for a pattern whose named groups cannot define an order.
    """
    stripped = text.strip()
    descending = bool(_DESCENDING.search(stripped))
    without_desc = _DESCENDING.sub("", stripped)
    if without_desc in KINDS:
        return TagOrder(stripped, KINDS[without_desc], descending)

    word, colon, pattern = without_desc.partition(":")
    if word != "regexp" or not colon:
        raise Malformed(f"{shortened(stripped)!r} is not a tag order", _HINT)
    check_length(pattern)
    regexp = compiled(pattern, groups=True)
    if regexp.groups > MOST_GROUPS:
        hint = "use (?:…) for groups that are not compared"
        raise Malformed(
            f"the pattern has {regexp.groups} groups, but at most {MOST_GROUPS} are allowed", hint
        )
    repeated_name = named_twice(pattern)
    if repeated_name:
        hint = "give each group a unique name; groups are compared from left to right"
        raise Malformed(f"the pattern has two groups named {repeated_name!r}", hint)

    names_by_number = {number: name.decode() for name, number in regexp.groupindex.items()}
    groups = tuple((names_by_number[number], number) for number in sorted(names_by_number))
    if not groups:
        hint = "name the part to compare: (?P<build>[0-9]+)"
        raise Malformed(
            f"the pattern {shortened(pattern)!r} has no named group, so it does not define an"
            " order",
            hint,
        )
    return TagOrder(stripped, "regexp", descending, pattern=pattern, groups=groups)


def _sort_value(part: str | None, name: str) -> Any:
    """Return the sort key for the part of a tag that the group `name` matched.

    A group that did not participate (None) sorts first.
    """
    if part is None:
        return (0,)
    if name == VERSION_GROUP:
        return 1, _by_version(parse_version(part) or Version(0))
    return 1, numeric(part)


def numeric(text: str) -> tuple[tuple[int, int, bytes], ...]:
    """Return a key that compares runs of digits as numbers, and other runs byte by byte.

    A run of digits comes before any other run. For a number, the key contains the number's length
    and digits instead of an `int`, which would take quadratic time on a hostile tag.
    """
    key = []
    for run in _RUN.findall(text):
        raw = run.encode("utf-8", "surrogatepass")
        if run[0] in "0123456789":
            digits = raw.lstrip(b"0")
            key.append((0, len(digits), digits))
        else:
            key.append((1, 0, raw))
    return tuple(key)


def commit_in(order: TagOrder, tag: str) -> str:
    """Return a commit ID in a part of the tag whose numbers the order would compare, or "" if there
    is none. An alphabetical order does not compare numbers.
    """
    if order.kind == "alphabetical":
        return ""
    parts = order.read(tag) or {}
    for part in parts.values():
        match = _COMMIT.search(part or "")
        if match:
            return match[0]
    return ""


def newer_by_numbers(tag: str, current: str) -> bool:
    """Return whether the numbers in a tag make the tag newer than the tag `current`.

    All numbers are compared in order. If the tags differ in more than their numbers, it is
    sufficient that the last number is higher.
    """
    if numeric(tag) > numeric(current):
        return True
    differ_only_in_numbers = _DIGITS.sub("0", tag) == _DIGITS.sub("0", current)
    if differ_only_in_numbers:
        return False
    numbers = _DIGITS.findall(tag)
    current_numbers = _DIGITS.findall(current)
    if not numbers or not current_numbers:
        return False
    return numeric(numbers[-1]) > numeric(current_numbers[-1])


def _backwards(key: Any, other: Any) -> int:
    """Compare two keys in descending order, for `cmp_to_key`."""
    return int(other > key) - int(other < key)


_reversed = cmp_to_key(_backwards)


Constraint = Literal["range", "tag", ""]
UNFIT_HINT = (
    "use regexp: followed by a pattern with a group (?P<semver>…), or update-strategy: alphabetical"
)


class Rules:
    """A strategy's rules. The base class admits every tag and does not order tags."""

    ordered = False  # whether tags alone determine the order; if not, builds do
    needs: tuple[Fact, ...] = ()  # facts that a decision requires besides the tag
    # how the constraint is used: as a range, as the tag to follow, or not at all, as in AIU
    constraint: Constraint = ""

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Return (rule, reason) if the tag is not admitted, or ("", "") if it is."""
        return "", ""

    def older(self, tag: str, current: str) -> str:
        """Return why `tag` does not come after `current`, or "" if it does.

        Both tags are admitted, and they differ. If tags have no order, whichever tag arrives later
        is newer.
        """
        return ""

    def sort_key(self, tag: str, date: str) -> Any:
        """Return a key that sorts a repository's admitted tags, newest last.

        `date` is the date from the registry, or "".
        """
        return tag


class Semver(Rules):
    """The highest version that the constraints admit.

    Among equal versions, the greatest tag string wins, as in AIU since v0.13.
    """

    ordered = True
    constraint = "range"

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Return (rule, reason) if the tag is not a version that satisfies every constraint, or
        else ("", "").

        Without a constraint, only releases are admitted, as in AIU v1.3.
        """
        version = parse_version(tag)
        if version is None:
            why = _why_no_version(tag, policy) if tag else "the image has no tag"
            return "not-a-version", why
        if not policy.constraints and version.prerelease:
            why = (
                f"{tag} is a pre-release: without a constraint, only releases are admitted; to"
                " admit it, use the constraint >=0-0"
            )
            before_dash, _, _ = tag.partition("-")
            may_be_no_version = "." not in before_dash  # such as `20240131-2f4a9c1`
            if may_be_no_version:
                why = f"{why}; if it is not a version, set a tag-order"
            return "constraint", why
        for text in policy.constraints:
            if not parse_range(text).admits(version):
                return "constraint", _why_not_in_range(text, tag, version)
        return "", ""

    def older(self, tag: str, current: str) -> str:
        """Return why the version `tag` does not come after `current`, or "" if it does.

        Version comparison ignores build metadata, so string order decides between `1.1.0` and
        `1.1.0+x`.
        """
        new = parse_version(tag)
        old = parse_version(current)
        if new is None or old is None:
            return ""
        sorts_after = new == old and tag > current
        if new > old or sorts_after:
            return ""
        if new == old:
            why = f"{current} is the same version as {tag} and sorts after it as text"
        else:
            why = f"{current} is newer than {tag}"

        # If both are true, the tags only differ in the text after the version numbers. A tag-order
        # could compare the numbers in that text.
        have_same_numbers = new.finalize_version() == old.finalize_version()
        are_same_kind = bool(new.prerelease) == bool(old.prerelease)
        if have_same_numbers and are_same_kind:
            why = f"{why}{_numbers_advice(tag, current)}"
        return why

    def sort_key(self, tag: str, date: str) -> Any:
        """Return a key that sorts by version, then by tag."""
        return _by_version(parse_version(tag) or Version(0)), tag


class NewestBuild(Rules):
    """The newest build.

    An event is the newest build simply because it arrives last. A list of tags, however, is sorted
    by date.
    """

    needs = ("created",)

    def sort_key(self, tag: str, date: str) -> Any:
        """Return a key that sorts by date, then by tag. An image without a date counts as older
        than any other image.
        """
        if not date:
            return float("-inf"), "", tag
        # Registries return nanoseconds. As floats, two different times might become equal, so keep
        # the fraction as a string.
        whole, _, fraction = date.removesuffix("Z").partition(".")
        return epoch_seconds(f"{whole}Z"), fraction, tag


class Alphabetical(Rules):
    """The greatest tag in byte order: `2024-9` > `2024-10`, `b` > `B`."""

    ordered = True

    def older(self, tag: str, current: str) -> str:
        """Return why `tag` does not come after `current` in byte order, or "" if it does."""
        if tag.encode() > current.encode():
            return ""
        return f"{current} comes after {tag} in alphabetical order{_numbers_advice(tag, current)}"

    def sort_key(self, tag: str, date: str) -> Any:
        """Return the tag's bytes as the sort key."""
        return tag.encode()


class Digest(Rules):
    """The current digest of one mutable tag. The constraint is that tag."""

    needs = ("digest",)
    constraint = "tag"

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Return (rule, reason) for any tag other than the constraint, or else ("", "")."""
        wanted = policy.constraints[0] if policy.constraints else ""
        if tag == wanted:
            return "", ""
        offered = f"tag {tag}" if tag else "an image without a tag"
        return "constraint", f"the digest strategy follows the tag {wanted}, but this is {offered}"


class InTagOrder(Rules):
    """Another strategy's rules, but with the order from `tag-order`."""

    ordered = True

    def __init__(self, rules: Rules, order: TagOrder) -> None:
        self.needs = rules.needs
        self.constraint = rules.constraint
        self._rules = rules
        self._order = order

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Return (rule, reason) if the tag does not match the order, if the version within the tag
        is invalid, or if the other strategy does not admit that version, or else ("", "").

        If the other strategy uses a constraint, it applies to the version, which must not be
        missing.
        """
        parts = self._order.read(tag)
        if parts is None:
            order = shortened(self._order.text)
            return "tag-order", f"tag-order {order} does not match {tag or 'an empty tag'}"

        version = parts.get(VERSION_GROUP)
        group = f"the group {VERSION_GROUP} of tag-order"  # the constraints, for messages
        if version is not None and parse_version(version) is None:
            return "tag-order", f"{group} matches {version!r} in {tag}, which is not a version"
        if not self.constraint:
            return "", ""
        if version is None:
            return "tag-order", f"{group} matches nothing in {tag}"

        rule, why = self._rules.objection(version, policy)
        if not rule:
            return "", ""
        return rule, f"{tag}: {why}"

    def older(self, tag: str, current: str) -> str:
        """Return why `tag` does not come after `current` in the tag order, or "" if it does."""
        if self._order.sort_key(tag) > self._order.sort_key(current):
            return ""
        return f"{current} comes after {tag} in the order {shortened(self._order.text)} (tag-order)"

    def sort_key(self, tag: str, date: str) -> Any:
        """Return a key that sorts tags in the tag order, newest last."""
        return self._order.sort_key(tag)


def _why_no_version(tag: str, policy: Policy) -> str:
    """Return why a tag that is not a version is rejected, and which strategy to use for
    such tags.
    """
    if policy.tag_order:
        return f"{tag!r} is not a version"
    has_digits = any(character.isdecimal() for character in tag)
    alternative = (
        "or a tag-order for the numbers in them" if has_digits else "or digest to follow this tag"
    )
    return (
        f"{tag!r} is not a version, and the strategy is semver (the default)."
        f" For such tags, use update-strategy: newest-build, {alternative}"
    )


def _why_not_in_range(text: str, tag: str, version: Version) -> str:
    """Return why the version in a tag is not in the range `text`, and how to admit a pre-release.

    Most people do not expect a range without a pre-release to exclude all pre-releases.
    """
    release = version.finalize_version()
    is_prerelease_of_admitted = bool(version.prerelease) and parse_range(text).admits(release)
    if not is_prerelease_of_admitted:
        return f"{tag} does not satisfy {text}"

    why = f"{tag} is a pre-release, but {text} admits only releases; to admit it, "
    with suppress(Malformed):
        with_prereleases = f"{text}-0"
        if parse_range(with_prereleases).admits(version):
            return f"{why}use {with_prereleases}"
    return f"{why}add -0 to a version, as in >=1.0-0"


def _numbers_advice(tag: str, current: str) -> str:
    """Return advice to use `tag-order` if the numbers in `tag` are higher than those in `current`,
    or else "".
    """
    return (
        "; use tag-order to compare the numbers in the tags"
        if newer_by_numbers(tag, current)
        else ""
    )


STRATEGIES: Mapping[Strategy, Rules] = {
    "semver": Semver(),
    "newest-build": NewestBuild(),
    "alphabetical": Alphabetical(),
    "digest": Digest(),
}


def rules_of(policy: Policy) -> Rules:
    """Return the rules for the policy's strategy. If the strategy orders tags, the policy's
    `tag-order` applies.
    """
    rules = STRATEGIES[policy.strategy]
    if policy.tag_order and rules.ordered:
        return InTagOrder(rules, parse_tag_order(policy.tag_order))
    return rules


def unfit_order(policy: Policy) -> str:
    """Return why the strategy cannot use the policy's `tag-order`, or ""."""
    if not policy.tag_order or STRATEGIES[policy.strategy].constraint != "range":
        return ""
    if parse_tag_order(policy.tag_order).has_version:
        return ""
    return (
        f"tag-order {shortened(policy.tag_order)} has no group for the version that"
        f" {policy.strategy} compares"
    )


def needs(policy: Policy, fact: Fact) -> bool:
    """Return whether a decision requires this fact, whatever the image."""
    return fact in rules_of(policy).needs or (fact == "digest" and policy.pin_digest)
