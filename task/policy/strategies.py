"""The update strategies: which tags each admits, and when a candidate supersedes the current tag.

A new strategy is one class here, one line in `STRATEGIES`, and one row in docs/annotations.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cmp_to_key
from typing import Any, Protocol

from semver import Version

from task.model import Policy, Strategy
from task.policy.version_range import parse_range, parse_version
from task.timestamps import epoch_seconds


class Rules(Protocol):
    """The rules of one strategy."""

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """(rule, why) where the tag is not admitted; ("", "") where it is."""

    def older(self, tag: str, current: str) -> str:
        """Why `tag` does not come after `current` (both admitted, different texts); "" if it does."""

    def sort_key(self, tag: str, date: str) -> Any:
        """The key that sorts admitted tags of one repository, the newest last; `date` is the registry's, or ""."""


class Semver:
    """The highest version that the constraints admit; of equal versions the greatest text, as in AIU since v0.13."""

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """A tag must be a version that satisfies every constraint; without one, releases only, as in AIU v1.3."""
        version = parse_version(tag)
        if version is None:
            return "not-a-version", f"{tag!r} is not a semantic version" if tag else "the image has no tag"
        if not policy.constraints and version.prerelease:
            return "constraint", f"{tag} is a pre-release and no constraint admits it (>=0-0 would)"
        for text in policy.constraints:
            if not parse_range(text).admits(version):
                return "constraint", f"{tag} does not satisfy {text}"
        return "", ""

    def older(self, tag: str, current: str) -> str:
        """Versions are compared; build metadata does not count, so the text decides between `1.1.0` and `1.1.0+x`."""
        new, old = parse_version(tag), parse_version(current)
        if new is None or old is None:
            return ""
        order = new.compare(old)
        if order > 0 or (order == 0 and tag > current):
            return ""
        if order == 0:
            return f"{current} is the same version as {tag} and its text is the greater one"
        return f"{current} is newer than {tag}"

    def sort_key(self, tag: str, date: str) -> Any:
        """The version, then the text."""
        del date
        return cmp_to_key(Version.compare)(parse_version(tag) or Version(0)), tag


class NewestBuild:
    """The build that comes last. An event is the newest build by arrival; a list of tags is sorted by creation date."""

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Every tag is admitted; the constraint has no effect, as in AIU."""
        del tag, policy
        return "", ""

    def older(self, tag: str, current: str) -> str:
        """Tags have no order here: what arrives is newer."""
        del tag, current
        return ""

    def sort_key(self, tag: str, date: str) -> Any:
        """The date, then the text; an image without a date is older than any other."""
        if not date:
            return float("-inf"), "", tag
        # Registries give nanoseconds. A float of seconds cannot tell two of them apart, so the fraction stays text.
        whole, _, fraction = date.removesuffix("Z").partition(".")
        return epoch_seconds(f"{whole}Z"), fraction, tag


class Alphabetical:
    """The greatest tag by byte order: `2024-9` > `2024-10`, `b` > `B`."""

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Every tag is admitted; the constraint has no effect, as in AIU."""
        del tag, policy
        return "", ""

    def older(self, tag: str, current: str) -> str:
        """The bytes are compared."""
        return "" if tag.encode() > current.encode() else f"{current} comes after {tag} in alphabetical order"

    def sort_key(self, tag: str, date: str) -> Any:
        """The bytes."""
        del date
        return tag.encode()


class Digest:
    """Follows one mutable tag, named by the constraint, by its digest."""

    def objection(self, tag: str, policy: Policy) -> tuple[str, str]:
        """Only the constraint's own tag is admitted."""
        wanted = policy.constraints[0] if policy.constraints else ""
        if tag == wanted:
            return "", ""
        given = f"tag {tag}" if tag else "an image without a tag"
        return "constraint", f"the digest strategy follows the tag {wanted} and this is {given}"

    def older(self, tag: str, current: str) -> str:
        """Digests have no order: what arrives is newer."""
        del tag, current
        return ""

    def sort_key(self, tag: str, date: str) -> Any:
        """One tag at most is admitted."""
        del date
        return tag


STRATEGIES: Mapping[Strategy, Rules] = {
    "semver": Semver(),
    "newest-build": NewestBuild(),
    "alphabetical": Alphabetical(),
    "digest": Digest(),
}
