"""Finds annotations that have no effect here, and says what people probably meant, and what to write instead.

A misspelt rule never lets a tag through, so a misspelling is exactly defined. A *near miss* equals a known key in lower
case with `-` for `_` and `.`, or differs from one in at most two letters, or in the order of its words. Keys of older
versions and of forks of Argo CD Image Updater (AIU) are not near misses. `FORMER` has advice for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from task.annotations.keys import APPLICATION_KEYS, IMAGE_KEYS, prefixes, split_key
from task.errors import Malformed
from task.image import parse_image_list, split_image_list

# Keys from older manifests, guides and forks of AIU, in the normal form of `_normal`. `{}` is the alias with its dot.
# Deckhouse's fork updates charts (`chart-version`). The `git-…` keys are settings of AIU's ConfigMap or command line,
# but guides show them as annotations.
FORMER: Mapping[str, str] = {
    "credentials": "write {}pull-secret",
    "git-credentials": "write write-back-method: git:secret:<namespace>/<name>",
    "git-secret": "write write-back-method: git:secret:<namespace>/<name>",
    "git-commit-message": "give the step --commit-message-template",
    "git-commit-message-template": "give the step --commit-message-template",
    "git-commit-user": "give the step --git-author-name",
    "git-user": "give the step --git-author-name",
    "git-username": "give the step --git-author-name",
    "git-commit-email": "give the step --git-author-email",
    "git-email": "give the step --git-author-email",
    "git-commit-sign-off": "give the step --sign-off",
    "git-commit-signing-key": "give the step --signing-key",
    "git-commit-signing-method": "give the step --signing-format",
    # No version ever read these, but people guess them (AIU issue 1018).
    "filter-tag": "write {}allow-tags: regexp:…",
    "filter-tags": "write {}allow-tags: regexp:…",
    "image-name": "write {0}helm.image-name, or {0}kustomize.image-name",
    "image-tag": "write {}helm.image-tag",
    "chart-version": "write the range as targetRevision of the chart's source: Argo CD follows it",
}
MOST_LETTERS = 2  # a near miss may differ in so many letters
SHOWN = 10  # aliases that a hint lists
LONGEST = 253  # characters; Kubernetes allows 63 after the prefix, but nobody has checked a manifest in Git


@dataclass(frozen=True)
class Doubt:
    """A key without effect, the reason, and what to write instead of it."""

    # near: a near miss of a known key. former: a key of older versions or forks. level: an Application-wide key under
    # an alias. orphan: a per-image key whose prefix is not that of an entry. unknown: none of these.
    kind: Literal["near", "former", "level", "orphan", "unknown"]
    message: str
    hint: str
    meant: str = ""  # the key that was probably meant, in full: "web.allow-tags"
    name: str = ""  # for a near miss, the prefix of the entries that it governs; "" is every entry

    @property
    def governs(self) -> bool:
        """Whether the key is a misspelt rule or place, so that the entries that it governs must not be updated."""
        return self.kind == "near" and self.meant != "image-list"


@dataclass(frozen=True)
class Names:
    """The prefixes of entries."""

    known: frozenset[str]
    shown: tuple[str, ...]  # one for each entry, in its usual spelling


def doubts(annotations: Mapping[str, str]) -> tuple[tuple[str, Doubt], ...]:
    """Return the annotations (keys without prefix) that have no effect, each with its doubt."""
    names = names_of(annotations.get("image-list", ""))
    return tuple((key, doubtful) for key in annotations if (doubtful := doubt(key, names)))


@lru_cache(maxsize=4096)
def names_of(image_list: str) -> Names:
    """Return the prefixes for the entries of an `image-list`. A malformed entry keeps its alias."""
    listed = zip(split_image_list(image_list), parse_image_list(image_list), strict=True)
    entries, malformed = [], []
    for text, parsed in listed:
        if isinstance(parsed, Malformed):
            alias, equals, _ = text.partition("=")
            malformed += [alias.strip()] if equals else []
        else:
            entries.append(parsed)
    aliases = frozenset(name for entry in entries if entry.alias for name in prefixes(entry))
    bare = [names for entry in entries if not entry.alias and (names := prefixes(entry, aliases))]
    known = aliases.union(malformed, *bare)
    shown = (*(prefixes(entry)[0] for entry in entries if entry.alias), *malformed, *(names[-1] for names in bare))
    return Names(known, tuple(dict.fromkeys(shown)))


@lru_cache(maxsize=4096)
def doubt(key: str, names: Names) -> Doubt | None:
    """Return the doubt about a key without effect on these entries, or None for a key that has an effect."""
    name, known = split_key(key)
    if key in APPLICATION_KEYS or (known and (not name or name in names.known)):
        return None
    if len(key) > LONGEST:
        return Doubt("unknown", f"unknown annotation {key[:LONGEST]!r}…", "remove it")
    if found := (
        _after_an_alias(key, names)
        or _for_the_application(key)
        or _misspelt(key, names, known=bool(known))
        or _after_no_alias(key, names)
    ):
        return found
    guess = nearest(key, (*APPLICATION_KEYS, *IMAGE_KEYS), len(key) // 3)
    hint = f"did you mean {guess}? " if guess else ""
    return Doubt("unknown", f"unknown annotation {key!r}", f"{hint}See the list of annotations, or remove it", guess)


def _after_an_alias(key: str, names: Names) -> Doubt | None:
    # An alias may have dots, so a key may be split in several places. The longest alias comes first.
    for name, rest in _splits(key):
        if name in names.known:
            if rest in APPLICATION_KEYS:
                return _level(key, rest)
            if _normal(rest) in FORMER:
                return _former(key, name, rest)
            if near := nearest(rest, IMAGE_KEYS):
                return _near(key, near, name)
    return None


def _for_the_application(key: str) -> Doubt | None:
    if _normal(key) in FORMER:
        return _former(key, "", key)
    return next((_level(key, rest) for _, rest in _splits(key) if rest in APPLICATION_KEYS), None)


def _misspelt(key: str, names: Names, *, known: bool) -> Doubt | None:
    # If the key is spelt right (`known`), only its prefix can be wrong.
    if not known and (near := nearest(key, (*APPLICATION_KEYS, *IMAGE_KEYS))):
        return _near(key, near)
    normal = {_normal(name): name for name in sorted(names.known)}
    for prefix, rest in _splits(key, "." if known else "._-"):
        if (alias := normal.get(_normal(prefix))) and (near := nearest(rest, IMAGE_KEYS)):
            return _near(key, near, alias)
    return None


def _after_no_alias(key: str, names: Names) -> Doubt | None:
    """Return the doubt about a key for one image whose prefix names no entry."""
    for prefix, rest in reversed(_splits(key)):
        if _normal(rest) in FORMER:
            return _former(key, prefix, rest)
        if near := nearest(rest, IMAGE_KEYS):
            return _orphan(key, prefix, near, names)
    return None


def _splits(key: str, at: str = ".") -> list[tuple[str, str]]:
    """Return every way to split an alias off a key, the longest alias first."""
    return [(key[:i], key[i + 1 :]) for i in range(len(key) - 1, 0, -1) if key[i] in at]


def _near(key: str, known: str, name: str = "") -> Doubt:
    known = "allow-tags" if known == "tag-match" else known
    meant = f"{name}.{known}" if name else known
    return Doubt("near", f"unknown annotation {key!r}", f"rename it to {meant}, or remove it", meant, name)


def _former(key: str, name: str, rest: str) -> Doubt:
    way = FORMER[_normal(rest)].format(f"{name}." if name else "")
    return Doubt("former", f"{key} is not read: it comes from another version, a fork or a guide of Image Updater", way)


def _level(key: str, known: str) -> Doubt:
    hint = f"write {known}, for the whole Application"
    return Doubt("level", f"{key} is not read: {known} has no per-image form", hint, known)


def _orphan(key: str, prefix: str, known: str, names: Names) -> Doubt:
    close = nearest(prefix, names.shown)
    aliases = ", ".join(names.shown[:SHOWN]) + (", …" if len(names.shown) > SHOWN else "")
    listed = f"the aliases are {aliases}" if aliases else "no entry has an alias"
    hint = f"did you mean {close}.{known}? " if close else f"write {prefix}=<image> in image-list, or remove it; "
    return Doubt(
        "orphan",
        f"{key} is not read: no entry of image-list has the alias {prefix!r}",
        f"{hint}{listed[:1].upper() + listed[1:] if close else listed}",
        f"{close}.{known}" if close else "",
    )


def nearest(word: str, known: Iterable[str], most: int = MOST_LETTERS) -> str:
    """Return the known key that equals a word or differs from it in at most `most` letters, or ""."""
    normal, words = _normal(word), _words(word)
    best, least = "", most + 1
    for key in known:
        if normal == _normal(key) or words == _words(key):
            return key
        if (letters := differ(normal, _normal(key), least)) < least:
            best, least = key, letters
    return best


@lru_cache(maxsize=4096)
def _normal(key: str) -> str:
    return key.lower().replace("_", "-").replace(".", "-")


@lru_cache(maxsize=4096)
def _words(key: str) -> Sequence[str]:
    return sorted(re.split(r"[-._]+", key.lower()))


def differ(one: str, other: str, limit: int) -> int:
    """Return in how many letters two words differ (inserted, dropped, replaced or swapped), but at most `limit`.

    This is the Damerau-Levenshtein distance. It stops early, because a manifest may have many long keys.
    """
    if abs(len(one) - len(other)) >= limit:
        return limit
    start = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if start is None:
        return min(limit, abs(len(one) - len(other)))
    one, other = one[start:], other[start:]
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        new = [i]
        for j, against in enumerate(other, 1):
            cost = min(row[j] + 1, new[-1] + 1, row[j - 1] + (letter != against))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == against:
                cost = min(cost, before[j - 2] + 1)
            new.append(cost)
        if min(new) >= limit and min(row) >= limit:
            return limit
        before, row = row, new
    return min(row[-1], limit)
