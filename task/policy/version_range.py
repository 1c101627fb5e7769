"""Versions and ranges of versions, read as Masterminds/semver v3.4 reads them.

That is the library of Argo CD Image Updater: `^1.2`, `~1.4`, `1.x`, `>=1 <2`, `1.2 - 1.4`, `a || b`.
python-semver orders pre-releases; it has no ranges of its own, and three numbers need no package.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import semver

from task.errors import Malformed

_WORDS = r"[0-9A-Za-z-]++(?:\.[0-9A-Za-z-]++)*+"
_VERSION = re.compile(rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(?:-({_WORDS}))?(?:\+({_WORDS}))?", re.ASCII)
# Possessive throughout: nothing given back could ever match, and a hostile constraint costs no time.
_BLANK = r"[\t\n\f\r ]"
_NUMBER = r"[0-9|xX*]++"  # the "|" is the library's own slip; such a number is refused one step later
_LOOSE = rf"v?{_NUMBER}(?:\.{_NUMBER})?+(?:\.{_NUMBER})?+(?:-{_WORDS})?+(?:\+{_WORDS})?+"
_LOOSE_PARTS = rf"v?({_NUMBER})(?:\.({_NUMBER}))?+(?:\.({_NUMBER}))?+(?:-({_WORDS}))?+(?:\+({_WORDS}))?+"
_OPERATOR = r"(?:[<>!]=|=[<>]|~>|[=<>~^])?+"
_TERM = re.compile(rf"({_OPERATOR}){_BLANK}*+({_LOOSE_PARTS})(?P<gap>{_BLANK}*+(?:,{_BLANK}*+)?+)", re.ASCII)
_HYPHEN = rf"{_BLANK}*+({_LOOSE}){_BLANK}++-{_BLANK}++({_LOOSE}){_BLANK}*+"  # compiled where one may be: few have it
_ANY_PART = frozenset({None, "x", "X", "*"})
_MAJOR, _MINOR, _PATCH = 1, 2, 3  # how many parts of a version are written, or compared
_UINT64 = 2**64
_LONGEST_VERSION = 256
_LONGEST_RANGE = 4096
_HINT = (
    "a constraint is a range of versions, such as ^1.2, ~1.4, 1.x, '>=1 <2' or '1.x || >=3'; "
    "to follow one tag, such as latest, set update-strategy to digest"
)


class Version(NamedTuple):
    """One version; comparing is `compare`'s work, as tuples do not order pre-releases."""

    major: int
    minor: int
    patch: int
    prerelease: str | None = None
    build: str | None = None

    def __str__(self) -> str:
        release = f"{self.major}.{self.minor}.{self.patch}"
        return release + (f"-{self.prerelease}" if self.prerelease else "") + (f"+{self.build}" if self.build else "")


@dataclass(frozen=True)
class Term:
    """One comparison: `>=1.2`. `given` counts the parts that are written as numbers (`1.x`: 1)."""

    operator: str
    version: Version  # parts not given are 0
    given: int


@dataclass(frozen=True)
class Range:
    """A constraint: a version is in it when all terms of one of the groups hold."""

    text: str
    groups: tuple[tuple[Term, ...], ...]

    def admits(self, version: Version) -> bool:
        """Whether the version is in the range.

        A pre-release is in a group only if some term of that group carries a pre-release itself.
        """
        return any(_group_holds(group, version) for group in self.groups)

    def objection(self, version: Version) -> str:
        """Why the version is not in the range, as the end of a sentence; "" if it is."""
        if self.admits(version):
            return ""
        if version.prerelease and not any(_takes_prereleases(group) for group in self.groups):
            return f"{version} is a pre-release and {self.text!r} takes releases only (-0 behind a version admits both)"
        return f"{version} is not in {self.text!r}"


@lru_cache(maxsize=1024)
def parse_version(tag: str) -> Version | None:
    """The version a tag is, or None: `v` may lead, `1` and `1.2` are whole versions, leading zeros are fine.

    As Masterminds `NewVersion` v3.4: no blanks, no `V`, numbers below 2**64, and no leading zero in a
    numeric part of the pre-release.
    """
    match = _VERSION.fullmatch(tag) if len(tag) <= _LONGEST_VERSION else None
    return _version(match.group(1, 2, 3), match[4], match[5]) if match else None


def compare(one: Version, other: Version) -> int:
    """-1, 0 or 1, by SemVer precedence: build metadata does not count."""
    if one[:3] != other[:3]:
        return 1 if one[:3] > other[:3] else -1
    if one.prerelease == other.prerelease:
        return 0
    return semver.Version(*one[:4]).compare(semver.Version(*other[:4]))


@lru_cache(maxsize=1024)
def parse_range(text: str) -> Range:
    """The range a constraint stands for; an empty text is `*`, every release.

    Raises `Malformed`, quoting the constraint, for what Masterminds `NewConstraint` v3.4 refuses.
    """
    text = text.strip()
    if len(text) > _LONGEST_RANGE:
        raise Malformed(f"the constraint has more than {_LONGEST_RANGE} characters", _HINT)
    return Range(text, tuple(_group(part, text) for part in _without_hyphens(text or "*").split("||")))


def _version(numbers: tuple[str | None, ...], prerelease: str | None, build: str | None) -> Version | None:
    major, minor, patch = (int(number or 0) for number in numbers)
    if max(major, minor, patch) >= _UINT64 or any(map(_has_leading_zero, (prerelease or "").split("."))):
        return None
    return Version(major, minor, patch, prerelease, build)


def _has_leading_zero(part: str) -> bool:
    return len(part) > 1 and part[0] == "0" and part.isdecimal()


def _without_hyphens(text: str) -> str:
    """`1.2 - 1.4` as comparisons, replaced by text as the library does it."""
    result = text
    if "-" in text.split():
        for match in re.finditer(_HYPHEN, text, re.ASCII):
            result = result.replace(match[0], f">= {match[1]}, <= {match[2]} ", 1)
    return result


def _group(part: str, text: str) -> tuple[Term, ...]:
    """The terms between two `||`, with blanks or a comma between them."""
    terms: list[Term] = []
    stripped, position, gap = part.strip(" \t\n\f\r"), 0, " "
    while gap and (match := _TERM.match(stripped, position)):
        terms.append(_term(match, text))
        position, gap = match.end(), match["gap"]
    if gap or position < len(stripped):
        raise _improper(part, text)
    return tuple(terms)


def _term(match: re.Match[str], text: str) -> Term:
    operator, written, *numbers, prerelease, build, _ = match.groups()
    given = next((index for index, number in enumerate(numbers) if number in _ANY_PART), _PATCH)
    known = tuple(numbers[:given])
    if len(written) > _LONGEST_VERSION or not all(number.isdecimal() for number in known):
        raise _improper(written, text)
    version = _version(known + ("0",) * (_PATCH - given), prerelease, build)
    if version is None:
        raise _improper(written, text)
    return Term(_SYNONYMS.get(operator, operator), version, given)


def _improper(part: str, text: str) -> Malformed:
    where = f": {part.strip()[:200]!r} cannot be read" if part.strip() != text else ""
    return Malformed(f"{text[:200]!r} is not a version constraint{where}", _HINT)


def _group_holds(group: tuple[Term, ...], version: Version) -> bool:
    if version.prerelease and not _takes_prereleases(group):
        return False
    return all(_COMPARISONS[term.operator](version, term) for term in group)


def _takes_prereleases(group: tuple[Term, ...]) -> bool:
    return any(term.version.prerelease for term in group)


def _leading(version: Version, count: int) -> tuple[int, ...]:
    """The first parts of a version: what `1.x` and `1.2.x` compare."""
    return (version.major, version.minor, version.patch)[:count]


def _same_leading(version: Version, term: Term, count: int) -> bool:
    return _leading(version, count) == _leading(term.version, count)


def _equal(version: Version, term: Term) -> bool:
    return compare(version, term.version) == 0 if term.given == _PATCH else _tilde(version, term)


def _not_equal(version: Version, term: Term) -> bool:
    if term.given == _MAJOR:
        return not _same_leading(version, term, _MAJOR)
    if term.given == _MINOR:
        return not _same_leading(version, term, _MINOR) or version.prerelease != term.version.prerelease
    return compare(version, term.version) != 0


def _greater(version: Version, term: Term) -> bool:
    """`>1` begins at 2.0.0: nothing of 1.x is above all of 1."""
    if term.given in {_MAJOR, _MINOR}:
        return _leading(version, term.given) > _leading(term.version, term.given)
    return compare(version, term.version) > 0


def _less(version: Version, term: Term) -> bool:
    return compare(version, term.version) < 0


def _at_least(version: Version, term: Term) -> bool:
    return compare(version, term.version) >= 0


def _at_most(version: Version, term: Term) -> bool:
    """`<=1.2` includes all of 1.2.x; `<=*` is `<=0.0`."""
    if term.given == _PATCH:
        return compare(version, term.version) <= 0
    count = term.given or _MINOR
    return _leading(version, count) <= _leading(term.version, count)


def _tilde(version: Version, term: Term) -> bool:
    """Same minor, or same major where only that is given; `~0.0.0` and `~*` have no upper end."""
    if _less(version, term):
        return False
    if term.given in {0, _PATCH} and _leading(term.version, _PATCH) == (0, 0, 0):
        return True
    return _same_leading(version, term, _MAJOR if term.given == _MAJOR else _MINOR)


def _caret(version: Version, term: Term) -> bool:
    """The first part that is not 0 stays; `^0.0` keeps the minor, `^0` the major, `^*` is 0.0.0 alone."""
    if _less(version, term):
        return False
    if term.version.major or term.given == _MAJOR:
        return _same_leading(version, term, _MAJOR)
    return _same_leading(version, term, _MINOR if term.version.minor or term.given == _MINOR else _PATCH)


_SYNONYMS = {"": "=", "=>": ">=", "=<": "<=", "~>": "~"}
_COMPARISONS: dict[str, Callable[[Version, Term], bool]] = {
    "=": _equal,
    "!=": _not_equal,
    ">": _greater,
    "<": _less,
    ">=": _at_least,
    "<=": _at_most,
    "~": _tilde,
    "^": _caret,
}
