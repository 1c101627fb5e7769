"""Parses versions and version ranges like Masterminds/semver v3.4.

Argo CD Image Updater uses that library: `^1.2`, `~1.4`, `1.x`, `>=1 <2`, `1.2 - 1.4`, `a || b`. In
this module, python-semver compares the versions. It does not support such ranges, and its parser is
stricter than Masterminds' `NewVersion`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from semver import Version

from task.errors import Malformed

_WORDS = r"[0-9A-Za-z-]++(?:\.[0-9A-Za-z-]++)*+"
_VERSION = re.compile(
    rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(?:-({_WORDS}))?(?:\+({_WORDS}))?",
    re.ASCII,
)
# All quantifiers are possessive: backtracking would never
# find a match, but would make hostile constraints slow.
_BLANK = r"[\t\n\f\r ]"
_NUMBER = r"[0-9|xX*]++"  # Masterminds accepts "|" here, but rejects the number one step later
_LOOSE = rf"v?{_NUMBER}(?:\.{_NUMBER})?+(?:\.{_NUMBER})?+(?:-{_WORDS})?+(?:\+{_WORDS})?+"
_LOOSE_PARTS = (
    rf"v?({_NUMBER})(?:\.({_NUMBER}))?+(?:\.({_NUMBER}))?+(?:-({_WORDS}))?+(?:\+({_WORDS}))?+"
)
_OPERATOR = r"(?:[<>!]=|=[<>]|~>|[=<>~^])?+"
_TERM = re.compile(
    rf"({_OPERATOR}){_BLANK}*+({_LOOSE_PARTS})(?P<gap>{_BLANK}*+(?:,{_BLANK}*+)?+)",
    re.ASCII,
)
_HYPHEN = re.compile(rf"{_BLANK}*+({_LOOSE}){_BLANK}++-{_BLANK}++({_LOOSE}){_BLANK}*+", re.ASCII)
_ANY_PART = frozenset({None, "x", "X", "*"})
_MAJOR = 1
_MINOR = 2
_PATCH = 3  # how many of the version's parts are set or compared
_UINT64 = 2**64
_LONGEST_VERSION = 256
_LONGEST_RANGE = 4096
_HINT = (
    "a constraint is a version range, such as ^1.2, ~1.4, 1.x, '>=1 <2' or '1.x || >=3'; "
    "to follow one tag, such as latest, set update-strategy to digest"
)


@dataclass(frozen=True)
class Term:
    """A comparison, such as `>=1.2`.

    `number_count` is how many parts of the version are numbers: 3 for `1.2.3`, 1 for `1.x`, 0 for
    `*`.
    """

    operator: str
    version: Version  # omitted parts are 0
    number_count: int


@dataclass(frozen=True)
class Range:
    """A constraint. A version is in the range if it satisfies all terms of at least one group."""

    groups: tuple[tuple[Term, ...], ...]

    def admits(self, version: Version) -> bool:
        """Return whether the version is in the range.

        A group only admits pre-releases if one of its own terms contains a pre-release.
        """
        for group in self.groups:
            allows_prereleases = any(term.version.prerelease for term in group)
            if version.prerelease and not allows_prereleases:
                continue
            if all(_meets(version, term) for term in group):
                return True
        return False


@lru_cache(maxsize=1024)
def parse_version(tag: str) -> Version | None:
    """Return the version that a tag represents, or None if it does not represent one.

    The rules are those of Masterminds `NewVersion` v3.4: a leading `v` is allowed, `1` and `1.2`
    are complete versions, and leading zeros are allowed, except in a numeric part of the
    pre-release. Spaces, `V`, and numbers of 2**64 or more are not allowed.
    """
    if len(tag) > _LONGEST_VERSION:
        return None
    match = _VERSION.fullmatch(tag)
    if match is None:
        return None
    return _version(match.group(1, 2, 3), match[4], match[5])


@lru_cache(maxsize=1024)
def parse_range(text: str) -> Range:
    """Parse a constraint. An empty string means `*`, which matches every release.

    Raises `Malformed`, quoting the constraint, if Masterminds `NewConstraint` v3.4 rejects it.
    """
    text = text.strip()
    if len(text) > _LONGEST_RANGE:
        raise Malformed(f"the constraint has more than {_LONGEST_RANGE} characters", _HINT)
    constraint = text or "*"
    if "-" in constraint.split():
        # Like the library, replace the text `1.2 - 1.4` with two comparisons.
        for match in _HYPHEN.finditer(constraint):
            lowest, highest = match.groups()
            comparisons = f">= {lowest}, <= {highest} "
            constraint = constraint.replace(match[0], comparisons, 1)
    groups = tuple(_terms_of(part, text) for part in constraint.split("||"))
    return Range(groups)


def _version(
    numbers: tuple[str | None, ...],
    prerelease: str | None,
    build: str | None,
) -> Version | None:
    """Return the version with these parts, or None if Masterminds rejects one of them."""
    major, minor, patch = (int(number or 0) for number in numbers)
    if max(major, minor, patch) >= _UINT64:
        return None
    for word in (prerelease or "").split("."):
        has_leading_zero = len(word) > 1 and word.startswith("0")
        if word.isdecimal() and has_leading_zero:
            return None
    return Version(major, minor, patch, prerelease, build)


def _terms_of(part: str, text: str) -> tuple[Term, ...]:
    """Parse one group of terms (the part between two `||`), such as `>=1.2, <2`.

    The terms are separated by spaces or a comma. `text` is the whole constraint, for messages.
    Raises `Malformed`.
    """
    terms: list[Term] = []
    stripped = part.strip(" \t\n\f\r")
    position = 0
    separator = " "  # the text after the previous term; if this is "", no other term may follow
    while separator:
        match = _TERM.match(stripped, position)
        if match is None:
            break
        operator, version_text, *numbers, prerelease, build, separator = match.groups()
        given_numbers = _numbers_before_wildcard(numbers)
        are_decimal = all(number.isdecimal() for number in given_numbers)
        if len(version_text) > _LONGEST_VERSION or not are_decimal:
            raise _unparsable(version_text, text)
        number_count = len(given_numbers)
        omitted_numbers = ["0"] * (_PATCH - number_count)
        version = _version((*given_numbers, *omitted_numbers), prerelease, build)
        if version is None:
            raise _unparsable(version_text, text)
        terms.append(Term(_SYNONYMS.get(operator, operator), version, number_count))
        position = match.end()
    if separator or position < len(stripped):
        raise _unparsable(part, text)
    return tuple(terms)


def _numbers_before_wildcard(numbers: Sequence[str | None]) -> list[str]:
    """Return the parts of a version before the first part that is `x`, `*`, or omitted: `["1"]` for
    `1.x`.
    """
    given_numbers = []
    for number in numbers:
        if number is None or number in _ANY_PART:
            break
        given_numbers.append(number)
    return given_numbers


def _unparsable(part: str, text: str) -> Malformed:
    """Return the error for a constraint that contains this unparsable part."""
    where = f": {part.strip()[:200]!r} cannot be parsed" if part.strip() != text else ""
    return Malformed(f"{text[:200]!r} is not a version constraint{where}", _HINT)


def _meets(version: Version, term: Term) -> bool:
    """Return whether a version satisfies a comparison."""
    return _RULES[term.operator](version, term)


def _leading_parts(version: Version, count: int) -> tuple[int, ...]:
    """Return the first `count` parts of major, minor, and patch."""
    return (version.major, version.minor, version.patch)[:count]


# If parts are omitted, the library has a different rule for each operator.


def _greater(version: Version, term: Term) -> bool:
    """Return whether the version is greater than the term's. `>1` excludes every 1.x, so it starts
    at 2.0.0. `>*` means `>0.0.0`.
    """
    if term.number_count in (_MAJOR, _MINOR):
        return _leading_parts(version, term.number_count) > _leading_parts(
            term.version, term.number_count
        )
    return version > term.version


def _at_most(version: Version, term: Term) -> bool:
    """Return whether the version is at most the term's. `<=1.2` includes all of 1.2.x. `<=*` means
    `<=0.0`.
    """
    if term.number_count == _PATCH:
        return version <= term.version
    count = term.number_count or _MINOR
    return _leading_parts(version, count) <= _leading_parts(term.version, count)


def _not_equal(version: Version, term: Term) -> bool:
    """Return whether the version differs from the term's. `!=1` excludes every 1.x. `!=1.2`
    excludes 1.2.x versions with the same pre-release.
    """
    if term.number_count not in (_MAJOR, _MINOR):
        return version != term.version
    if _leading_parts(version, term.number_count) != _leading_parts(
        term.version, term.number_count
    ):
        return True
    return term.number_count == _MINOR and version.prerelease != term.version.prerelease


def _equal(version: Version, term: Term) -> bool:
    """Return whether the version equals the term's. `=1.2` means `~1.2`."""
    return version == term.version if term.number_count == _PATCH else _tilde(version, term)


def _tilde(version: Version, term: Term) -> bool:
    """Return whether the version is in a tilde range. `~1.2` fixes the minor version, and `~1`
    fixes the major version. `~0.0.0` and `~*` have no upper bound.
    """
    fixed = _MAJOR if term.number_count == _MAJOR else _MINOR
    if term.number_count in (0, _PATCH) and _leading_parts(term.version, _PATCH) == (0, 0, 0):
        fixed = 0  # no part is required to be equal
    return version >= term.version and _leading_parts(version, fixed) == _leading_parts(
        term.version, fixed
    )


def _caret(version: Version, term: Term) -> bool:
    """Return whether the version is in a caret range, which fixes all parts up to the first nonzero
    one.

    `^0` fixes the major version, `^0.0` also fixes the minor version, and `^*` admits only 0.0.0.
    """
    if term.version.major or term.number_count == _MAJOR:
        fixed = _MAJOR
    elif term.version.minor or term.number_count == _MINOR:
        fixed = _MINOR
    else:
        fixed = _PATCH
    return version >= term.version and _leading_parts(version, fixed) == _leading_parts(
        term.version, fixed
    )


_RULES: Mapping[str, Callable[[Version, Term], bool]] = {
    "<": lambda version, term: version < term.version,
    ">": _greater,
    "<=": _at_most,
    ">=": lambda version, term: version >= term.version,
    "=": _equal,
    "!=": _not_equal,
    "~": _tilde,
    "^": _caret,
}
_SYNONYMS = {
    "": "=",
    "=>": ">=",
    "=<": "<=",
    "~>": "~",
}
