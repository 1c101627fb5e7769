"""The order of tags whose letters are no version: what `tag-order` says. Pure.

`main-a91b7e2-99` comes before `main-04cc1f0-100`, and `v2026-9-01` before `v2026-10-03`. An order is total: of two
different tags, one is always the newer one, whichever is asked first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cmp_to_key, lru_cache
from typing import Any, Literal

from semver import Version

from task.errors import Malformed
from task.policy.tag_filter import check_length, compiled
from task.policy.version_range import parse_version
from task.text import shortened

Kind = Literal["numeric", "alphabetical", "regexp"]
KINDS: Mapping[str, Kind] = {"numeric": "numeric", "alphabetical": "alphabetical"}
VERSION_GROUP = "semver"  # the group that is compared as a version
# RE2 copies all groups for each letter of a tag, and a thousand of them cost seconds for a thousand tags.
MOST_GROUPS = 16
_RUN = re.compile(r"[0-9]+|[^0-9]+")
_DIGITS = re.compile(r"[0-9]+")
_DESCENDING = re.compile(r"\s+desc\Z")
_HINT = "write numeric, alphabetical, or regexp: and a pattern with named groups, such as regexp:-(?P<build>[0-9]+)$"
_by_version = cmp_to_key(Version.compare)


@dataclass(frozen=True)
class TagOrder:
    """One order. `groups` are the named groups of the pattern, in its order."""

    text: str  # as it was written
    kind: Kind
    descending: bool = False
    pattern: str = ""
    groups: tuple[tuple[str, int], ...] = ()  # each with its number in the pattern

    @property
    def has_version(self) -> bool:
        """Whether one of the groups is compared as a version."""
        return any(name == VERSION_GROUP for name, _ in self.groups)

    def read(self, tag: str) -> Mapping[str, str | None] | None:
        """Return what each group of the pattern matches, in its order, or None if the pattern does not match.

        A group that took no part has None. Without a pattern, the tag is one part without a name.
        """
        if self.kind != "regexp":
            return {"": tag}
        found = compiled(self.pattern, groups=True).search(tag.encode("utf-8", "surrogatepass"))
        if found is None:
            return None
        each = ((name, found.group(number)) for name, number in self.groups)
        return {name: None if part is None else part.decode("utf-8", "surrogatepass") for name, part in each}

    def sort_key(self, tag: str) -> Any:
        """Return a key that sorts tags, newest last. A tag without a place comes first.

        The numbers of all parts decide before the zeros of any: `2026-9-10` comes after `2026-09-05`.
        """
        raw = tag.encode("utf-8", "surrogatepass")
        if self.kind == "alphabetical":
            key: Any = raw
        else:
            parts = self.read(tag) or {}
            values = [_value(part, name) for name, part in parts.items()]
            zeros = [[len(run) for run in _RUN.findall(part or "")] for part in parts.values()]
            key = (values, zeros, raw)
        return _reversed(key) if self.descending else key


@lru_cache(maxsize=256)
def parse_tag_order(text: str) -> TagOrder:
    """Return the order that a text asks for. Raises `Malformed` for an unknown word and a nameless pattern."""
    written = text.strip()
    descending = bool(_DESCENDING.search(written))
    plain = _DESCENDING.sub("", written)
    if plain in KINDS:
        return TagOrder(written, KINDS[plain], descending)
    word, colon, pattern = plain.partition(":")
    if word != "regexp" or not colon:
        raise Malformed(f"{shortened(written)!r} is not an order of tags", _HINT)
    check_length(pattern)
    found = compiled(pattern, groups=True)
    if found.groups > MOST_GROUPS:
        hint = "write (?:…) for a group that only holds letters together"
        raise Malformed(f"the pattern has {found.groups} groups, and may have {MOST_GROUPS}", hint)
    groups = tuple(sorted(((name.decode(), at) for name, at in found.groupindex.items()), key=lambda one: one[1]))
    if not groups:
        hint = "name what to compare: (?P<build>[0-9]+)"
        raise Malformed(f"the pattern {shortened(pattern)!r} has no named group, so it says nothing about order", hint)
    return TagOrder(written, "regexp", descending, pattern, groups)


def _value(part: str | None, name: str) -> Any:
    """Return the key of one part. A group that took no part is the lowest."""
    if part is None:
        return (0,)
    if name == VERSION_GROUP:
        return 1, _by_version(parse_version(part) or Version(0))
    return 1, numeric(part)


def numeric(text: str) -> tuple[tuple[int, int, bytes], ...]:
    """Return a key that compares runs of digits as numbers, and other runs by bytes. Digits come before anything else.

    A number is its length and its digits: `int` would take quadratic time for a hostile tag.
    """
    found = []
    for run in _RUN.findall(text):
        raw = run.encode("utf-8", "surrogatepass")
        digits = raw.lstrip(b"0") if run[0] in "0123456789" else b""
        found.append((0, len(digits), digits) if run[0] in "0123456789" else (1, 0, raw))
    return tuple(found)


def newer_by_numbers(tag: str, current: str) -> bool:
    """Tell whether the numbers of a tag say that it is newer: all in turn, or the last of both if letters differ."""
    if numeric(tag) > numeric(current):
        return True
    shapes = [_DIGITS.sub("0", text) for text in (tag, current)]
    last = [numeric(found[-1]) if (found := _DIGITS.findall(text)) else () for text in (tag, current)]
    return shapes[0] != shapes[1] and bool(last[1]) and last[0] > last[1]


def _backwards(one: Any, other: Any) -> int:
    return int(other > one) - int(other < one)


_reversed = cmp_to_key(_backwards)
