r"""Which tags an entry takes at all: `allow-tags` and `ignore-tags`.

Both mean what Argo CD Image Updater makes of them: Go's regular expressions (RE2, which
cannot be made slow) and Go's `filepath.Match`, whose `[!a]` is no negation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from task.errors import Malformed

LONGEST = 4096  # characters of one pattern: 200,000 of them took RE2 25 seconds
# Bytes that RE2 may use for one pattern. A tag has 128 characters, and \pL{128} fits. With 32 MB, 4,096 characters took
# four seconds and a quarter of a gigabyte.
_MEMORY = 4 << 20
_QUOTED = 200
_GLOB = re.compile(r"[A-Za-z0-9_.*?-]+")
_IN_REGEXP = {".": r"\.", "*": ".*", "?": "."}
_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)


@dataclass(frozen=True)
class _Piece:
    """One character of a glob: in one of the ranges or, negated, in none."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def takes(self, letter: str) -> bool:
        return any(low <= letter <= high for low, high in self.ranges) != self.negated


@dataclass(frozen=True)
class _Chunk:
    """Characters in a row, after any run of others where there was a `*`."""

    star: bool
    pieces: tuple[_Piece, ...]

    def fits(self, tag: str, start: int) -> bool:
        """Whether the characters from `start` on are those of the chunk."""
        if len(tag) - start < len(self.pieces):
            return False
        return all(piece.takes(tag[start + index]) for index, piece in enumerate(self.pieces))


_NOT_SLASH = _Piece((("/", "/"),), negated=True)


def allow_pattern(value: str) -> str | None:
    """The pattern of an `allow-tags` value: `any` (and an empty value) is None, `regexp:<RE2>` its RE2.

    Behind the first colon every character counts. Raises `Malformed` for all else and for what Go's
    regexp refuses: a broken filter must not let a tag through.
    """
    value = value.strip()
    keyword, colon, pattern = value.partition(":")
    if not value or value.lower() == "any":
        return None
    if not colon or keyword.lower() != "regexp":
        raise Malformed(f"{_quote(value)} is neither 'any' nor 'regexp:…'", _allow_hint(keyword, colon, pattern))
    check_length(pattern)
    return readable(pattern)


def readable(pattern: str) -> str:
    """The same pattern. Raises `Malformed` for what RE2 or Go's regexp refuses."""
    _compiled(pattern)
    return pattern


def check_length(text: str) -> None:
    """Raise `Malformed` for a pattern or glob so long that it could cost a run minutes."""
    if len(text) > LONGEST:
        raise Malformed(
            f"{_quote(text)} has {len(text):,} characters, and a pattern may have {LONGEST:,}",
            "write a shorter pattern",
        )


def allowed(pattern: str | None, tag: str) -> bool:
    """Whether the pattern (of `allow_pattern`) is found anywhere in the tag; None takes every tag."""
    return pattern is None or _compiled(pattern).search(tag.encode("utf-8", "surrogatepass")) is not None


def ignore_globs(value: str) -> tuple[str, ...]:
    """The globs of an `ignore-tags` value, trimmed, without the empty ones.

    Raises `Malformed` for a glob that Go's `filepath.Match` calls a bad pattern.
    """
    globs = tuple(glob for part in value.split(",") if (glob := part.strip()))
    for glob in globs:
        check_length(glob)
        _chunks(glob)
    return globs


def glob_match(glob: str, tag: str) -> bool:
    """Whether the glob takes the whole tag, as Go's `filepath.Match` on Unix; a malformed one takes none."""
    try:
        return _chunks_match(_chunks(glob), tag)
    except Malformed:
        return False


def ignored(globs: Sequence[str], tag: str) -> str:
    """The first of the globs that takes the tag, or ""."""
    return next((glob for glob in globs if glob_match(glob, tag)), "")


def _allow_hint(keyword: str, colon: str, pattern: str) -> str:
    """What was probably meant."""
    if keyword.strip().lower() in {"regexp", "regex", "re"} and colon:
        return f"write regexp:{_cut(pattern)}"
    if keyword.strip().lower() == "glob":
        return f"globs are for ignore-tags; here write {regexp_of_glob(pattern) or 'regexp: and a regular expression'}"
    whole = keyword + colon + pattern
    if whole == "*":
        return "write any"
    return f"write {regexp_of_glob(whole) or f'regexp:{_cut(whole)}'}"


def regexp_of_glob(text: str) -> str:
    """`regexp:` and what a tag or a simple glob means; "" for what has other signs, or `.*` as a pattern has."""
    if not _GLOB.fullmatch(text) or ".*" in text or len(text) > _QUOTED:
        return ""
    return f"regexp:^{re.sub('[.*?]', lambda sign: _IN_REGEXP[sign.group()], text)}$"


@lru_cache(maxsize=16)  # each may hold all of its memory
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        compiled = re2.compile(pattern.encode(), options)
        names = compiled.groupindex
        if compiled.groups:  # what they hold does not matter, and a thousand of them cost each search milliseconds
            options.never_capture = True
            compiled = re2.compile(pattern.encode(), options)
    except re2.error as problem:
        raise _bad_pattern(pattern, _message(problem)) from problem
    except UnicodeEncodeError as problem:
        raise _bad_pattern(pattern, f"invalid UTF-8: {problem.reason}") from problem
    finally:
        re2.purge()  # it would remember 128 more
    if trouble := _refused_by_go(pattern, names):
        raise _bad_pattern(pattern, trouble)
    return compiled


def _refused_by_go(pattern: str, names: Iterable[bytes]) -> str:
    """What Go's regexp has against a pattern that the C++ library takes: a single byte, a name beyond ASCII."""
    if r"\C" in _ESCAPE.findall(pattern):
        return r"invalid escape sequence: \C"
    return next((f"invalid named capture: {name.decode()}" for name in names if not name.isascii()), "")


def _message(problem: Exception) -> str:
    """RE2's own words; they come as bytes."""
    words = problem.args[0] if problem.args else ""
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)


def _bad_pattern(pattern: str, trouble: str) -> Malformed:
    return Malformed(
        f"{_quote(pattern)} is not a regular expression that RE2 takes: {_cut(trouble)}",
        r"RE2 has no look-around (?=…) and no back-references \1; its syntax: https://github.com/google/re2/wiki/Syntax",
    )


@lru_cache(maxsize=1024)
def _chunks(glob: str) -> tuple[_Chunk, ...]:
    """The glob, cut before each run of stars."""
    chunks: list[_Chunk] = []
    star, pieces, position = False, list[_Piece](), 0
    while position < len(glob):
        if glob[position] == "*":
            if pieces:
                chunks.append(_Chunk(star, tuple(pieces)))
            star, pieces, position = True, [], position + 1
        else:
            piece, position = _piece(glob, position)
            pieces.append(piece)
    return (*chunks, _Chunk(star, tuple(pieces)))


def _piece(glob: str, position: int) -> tuple[_Piece, int]:
    """The piece that begins at `position`, and where the next one begins."""
    if glob[position] == "?":
        return _NOT_SLASH, position + 1
    if glob[position] == "[":
        return _class(glob, position + 1)
    letter, position = _letter(glob, position)
    return _Piece(((letter, letter),)), position


def _class(glob: str, position: int) -> tuple[_Piece, int]:
    """What stands between `[` and `]`; only `^` negates."""
    negated = glob.startswith("^", position)
    position += negated
    ranges: list[tuple[str, str]] = []
    while not (ranges and glob.startswith("]", position)):
        low, position = _class_letter(glob, position)
        high = low
        if glob.startswith("-", position):
            high, position = _class_letter(glob, position + 1)
        ranges.append((low, high))
    return _Piece(tuple(ranges), negated), position + 1


def _class_letter(glob: str, position: int) -> tuple[str, int]:
    if position < len(glob) and glob[position] in "-]":
        raise _bad_glob(glob, f"{glob[position]!r} at this place of a [class] needs a backslash")
    return _letter(glob, position, "a [class] is not closed")


def _letter(glob: str, position: int, trouble: str = "a backslash stands at the end") -> tuple[str, int]:
    """One character, escaped or not."""
    if glob.startswith("\\", position):
        position += 1
    if position >= len(glob):
        raise _bad_glob(glob, trouble)
    return glob[position], position + 1


def _bad_glob(glob: str, trouble: str) -> Malformed:
    return Malformed(f"{_quote(glob)} is not a glob: {trouble}", r"write \[ for the bracket itself, \\ for a backslash")


def _chunks_match(chunks: tuple[_Chunk, ...], tag: str) -> bool:
    """Each chunk where it first fits: nothing is tried twice, so no glob is slow."""
    position = 0
    for index, chunk in enumerate(chunks):
        last = index == len(chunks) - 1
        if last and chunk.star and not chunk.pieces:
            return "/" not in tag[position:]
        found = _place(chunk, tag, position, last=last)
        if found < 0:
            return False
        position = found + len(chunk.pieces)
    return position == len(tag)


def _place(chunk: _Chunk, tag: str, position: int, *, last: bool) -> int:
    """Where the chunk stands from `position` on, or -1; a star skips anything but `/`."""
    end = len(tag) - len(chunk.pieces)
    while position <= end:
        if (position == end or not last) and chunk.fits(tag, position):
            return position
        if not chunk.star or tag[position : position + 1] in {"", "/"}:
            break
        position += 1
    return -1


def _quote(text: str) -> str:
    return repr(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
