"""Parses versions and ranges of versions like Masterminds/semver v3.4.

Argo CD Image Updater uses that library: `^1.2`, `~1.4`, `1.x`, `>=1 <2`, `1.2 - 1.4`, `a || b`.
python-semver compares the versions here. It has no such ranges, and its parser is stricter than
Masterminds' `NewVersion`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from semver import Version

from task.errors import Malformed

_WORDS = r"[0-9A-Za-z-]++(?:\.[0-9A-Za-z-]++)*+"
_VERSION = re.compile(
    rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(?:-({_WORDS}))?(?:\+({_WORDS}))?",
    re.ASCII,
)
# All quantifiers are possessive, because backtracking could never find a match. So a hostile
# constraint costs no time.
_BLANK = r"[\t\n\f\r ]"
_NUMBER = r"[0-9|xX*]++"  # Masterminds accepts "|" here, and refuses such a number one step later
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
_PATCH = 3  # how many parts of a version are given, or compared
_UINT64 = 2**64
_LONGEST_VERSION = 256
_LONGEST_RANGE = 4096
_HINT = (
    "a constraint is a range of versions, such as ^1.2, ~1.4, 1.x, '>=1 <2' or '1.x || >=3'; "
    "to follow one tag, such as latest, set update-strategy to digest"
)


@dataclass(frozen=True)
class Term:
    """One comparison, such as `>=1.2`.

    `given` counts the parts written as numbers; it is 1 for `1.x`.
    """

    operator: str
    version: Version  # parts not given are 0
    given: int


@dataclass(frozen=True)
class Range:
    """A constraint. A version is in the range if all terms of one of the groups hold."""

    groups: tuple[tuple[Term, ...], ...]

    def admits(self, version: Version) -> bool:
        """Tell whether the version is in the range.

        A pre-release can be in a group only if a term of that group has a pre-release itself.
        """
        return any(
            (not version.prerelease or any(term.version.prerelease for term in group))
            and all(_holds(term, version) for term in group)
            for group in self.groups
        )


@lru_cache(maxsize=1024)
def parse_version(tag: str) -> Version | None:
    """Return the version that a tag stands for, or None.

    The rules are those of Masterminds `NewVersion` v3.4: a leading `v` is allowed, `1` and `1.2`
    are whole versions, and leading zeros are allowed, except in a numeric part of the pre-release.
    Blanks, `V`, and numbers from 2**64 on are not.
    """
    match = _VERSION.fullmatch(tag) if len(tag) <= _LONGEST_VERSION else None
    return _version(match.group(1, 2, 3), match[4], match[5]) if match else None


@lru_cache(maxsize=1024)
def parse_range(text: str) -> Range:
    """Return the range of a constraint. An empty string means `*`, which is every release.

    Raises `Malformed`, which quotes the constraint, if Masterminds `NewConstraint` v3.4 refuses it.
    """
    text = text.strip()
    if len(text) > _LONGEST_RANGE:
        raise Malformed(f"the constraint has more than {_LONGEST_RANGE} characters", _HINT)
    plain = text or "*"
    if "-" in plain.split():
        # The library turns `1.2 - 1.4` into two comparisons by replacing text, and so do we.
        for match in _HYPHEN.finditer(plain):
            plain = plain.replace(match[0], f">= {match[1]}, <= {match[2]} ", 1)
    return Range(tuple(_terms_of(part, text) for part in plain.split("||")))


def _version(
    numbers: tuple[str | None, ...],
    prerelease: str | None,
    build: str | None,
) -> Version | None:
    major, minor, patch = (int(number or 0) for number in numbers)
    words = (prerelease or "").split(".")
    if max(major, minor, patch) >= _UINT64 or any(
        len(w) > 1 and w[0] == "0" and w.isdecimal() for w in words
    ):
        return None
    return Version(major, minor, patch, prerelease, build)


def _terms_of(part: str, text: str) -> tuple[Term, ...]:
    """Return the terms between two `||`, which are separated by spaces or a comma."""
    terms: list[Term] = []
    stripped = part.strip(" \t\n\f\r")
    position = 0
    gap = " "
    while gap and (match := _TERM.match(stripped, position)):
        operator, written, *numbers, prerelease, build, gap = match.groups()
        given = next((index for index, number in enumerate(numbers) if number in _ANY_PART), _PATCH)
        known = tuple(numbers[:given])
        if len(written) > _LONGEST_VERSION or not all(number.isdecimal() for number in known):
            raise _improper(written, text)
        version = _version(known + ("0",) * (_PATCH - given), prerelease, build)
        if version is None:
            raise _improper(written, text)
        terms.append(Term(_SYNONYMS.get(operator, operator), version, given))
        position = match.end()
    if gap or position < len(stripped):
        raise _improper(part, text)
    return tuple(terms)


def _improper(part: str, text: str) -> Malformed:
    where = f": {part.strip()[:200]!r} cannot be read" if part.strip() != text else ""
    return Malformed(f"{text[:200]!r} is not a version constraint{where}", _HINT)


def _holds(term: Term, version: Version) -> bool:  # noqa: PLR0911 - a table of the operators
    """Tell whether one comparison holds.

    If some parts are not given, the library has a different rule for each operator.
    """
    order = version.compare(term.version)
    ours = version.to_tuple()[:_PATCH]
    theirs = term.version.to_tuple()[:_PATCH]
    # `>1` begins at 2.0.0, because no 1.x is above all of 1
    match term.operator:
        case "<":
            return order < 0
        case ">=":
            return order >= 0
        case "!=" if term.given == _MAJOR:
            return ours[:_MAJOR] != theirs[:_MAJOR]
        case "!=" if term.given == _MINOR:
            return ours[:_MINOR] != theirs[:_MINOR] or version.prerelease != term.version.prerelease
        case "!=":
            return order != 0
        case ">" if term.given in {
            _MAJOR,
            _MINOR,
        }:
            return ours[: term.given] > theirs[: term.given]
        case ">":
            return order > 0
        case "<=" if term.given == _PATCH:
            return order <= 0
        case "<=":  # `<=1.2` includes all of 1.2.x; `<=*` is `<=0.0`
            parts = term.given or _MINOR
            return ours[:parts] <= theirs[:parts]
        # the first part that is not 0 stays; `^0.0` keeps the minor, `^0` the major, and `^*` is
        # only 0.0.0
        case "^":
            if term.version.major or term.given == _MAJOR:
                parts = _MAJOR
            else:
                parts = _MINOR if term.version.minor or term.given == _MINOR else _PATCH
            return order >= 0 and ours[:parts] == theirs[:parts]
        case "=" if term.given == _PATCH:
            return order == 0
        case _:  # `~1.2`, `=1.2`: the same minor, or the same major if only that is given
            if term.given in {0, _PATCH} and theirs == (0, 0, 0):
                return order >= 0  # `~0.0.0` and `~*` have no upper end
            parts = _MAJOR if term.given == _MAJOR else _MINOR
            return order >= 0 and ours[:parts] == theirs[:parts]


_SYNONYMS = {
    "": "=",
    "=>": ">=",
    "=<": "<=",
    "~>": "~",
}
