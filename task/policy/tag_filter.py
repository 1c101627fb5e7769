r"""The filters `allow-tags` and `ignore-tags`: which tags an entry can accept.

Their meaning is the same as in Argo CD Image Updater: Go's regular expressions (RE2, in which no
pattern is slow) and Go's `filepath.Match`, in which `[!a]` does not negate. `policy.judge` applies
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import re2

from task.errors import Malformed
from task.text import shortened

LONGEST = 4096  # characters per pattern; RE2 took 25 seconds for 200,000
# Bytes that RE2 may use per pattern. Tags have up to 128 characters, and \pL{128} works. With 32
# MB, a pattern of 4,096 characters took four seconds and a quarter of a gigabyte.
_MEMORY = 4 << 20
# To find groups, RE2 follows all states of the pattern at each character of a tag. With 4 MB, one
# tag took 0.1 seconds.
_MEMORY_WITH_GROUPS = 128 << 10
_LONGEST_SUGGESTION = 200
_GLOB = re.compile(r"[A-Za-z0-9_.*?-]+")
_IN_REGEXP = {
    ".": r"\.",
    "*": ".*",
    "?": ".",
}
_LOOK_AROUND = re.compile(r"\(\?(?:<?[=!]|P=)")  # also Python's named backreference
_BACK = re.compile(r"\\[1-9k]")
_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)

_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|[^\]])*\]")
_NAMED = re.compile(r"\(\?P?<(\w+)>")


def allow_pattern(value: str) -> str | None:
    """Return the RE2 pattern in an `allow-tags` value such as `regexp:<RE2>`, or None for `any` or
    an empty value.

    Every character after the first colon is significant, even spaces. Raises `Malformed` for other
    values, and for patterns that Go's regexp rejects: a broken filter must not let a tag through.
    """
    value = value.strip()
    keyword, colon, pattern = value.partition(":")
    if not value or value.lower() == "any":
        return None
    if not colon or keyword.lower() != "regexp":
        raise Malformed(
            f"{shortened(value)!r} is neither 'any' nor 'regexp:…'",
            _allow_hint(keyword, colon, pattern),
        )
    check_length(pattern)
    compiled(pattern)
    return pattern


def check_length(text: str) -> None:
    """Raise `Malformed` for a pattern or glob so long that it could cost a run minutes."""
    if len(text) > LONGEST:
        message = (
            f"{shortened(text)!r} has {len(text):,} characters, but at most {LONGEST:,} are allowed"
        )
        raise Malformed(message, "use a shorter pattern")


def allowed(pattern: str | None, tag: str) -> bool:
    """Return whether the pattern from `allow_pattern` matches anywhere in the tag.

    None matches every tag.
    """
    return (
        pattern is None
        or compiled(pattern).search(tag.encode("utf-8", "surrogatepass")) is not None
    )


def split_globs(value: str) -> tuple[str, ...]:
    """Return the globs in an `ignore-tags` value, trimmed, skipping empty ones.

    The globs may be invalid.
    """
    return tuple(glob for part in value.split(",") if (glob := part.strip()))


def check_glob(glob: str) -> None:
    """Raise `Malformed` for a glob that Go's `filepath.Match` rejects as a bad pattern.

    AIU ignores such a glob.
    """
    check_length(glob)
    _compiled_glob(glob)


def glob_match(glob: str, tag: str) -> bool:
    """Return whether the glob matches the whole tag, as in Go's `filepath.Match` on Unix.

    A malformed glob never matches.
    """
    try:
        return _compiled_glob(glob).fullmatch(tag) is not None
    except Malformed:
        return False


def ignored(globs: Sequence[str], tag: str) -> str:
    """Return the first glob that matches the tag, or ""."""
    return next((glob for glob in globs if glob_match(glob, tag)), "")


def _allow_hint(keyword: str, colon: str, pattern: str) -> str:
    """Return the hint for a value that is not `regexp:…`."""
    # tags cannot contain a colon, so the value is a misspelled `regexp:`
    if keyword.strip().lower().startswith("re") and colon:
        return f"use regexp:{shortened(unwrapped(pattern))}"
    if keyword.strip().lower() == "glob":
        return (
            "globs are only for ignore-tags; instead, use"
            f" {regexp_of_glob(pattern) or 'regexp: followed by a regular expression'}"
        )
    whole = unwrapped(keyword + colon + pattern)
    if whole == "*":
        return "use any"
    return f"use {regexp_of_glob(whole) or f'regexp:{shortened(whole)}'}"


def unwrapped(pattern: str) -> str:
    """Remove spaces, slashes, and quotes around a pattern. These characters are never part of a
    tag.
    """
    bare = pattern.strip()
    for mark in ("/", "'", '"'):
        if len(bare) > 1 and bare[0] == bare[-1] == mark:
            bare = bare[1:-1]
    return bare


def regexp_of_glob(text: str) -> str:
    """Return `regexp:` and the pattern for a tag or a simple glob, or "" for other strings and
    strings that contain `.*`.
    """
    if not _GLOB.fullmatch(text) or ".*" in text or len(text) > _LONGEST_SUGGESTION:
        return ""
    return f"regexp:^{re.sub('[.*?]', lambda sign: _IN_REGEXP[sign.group()], text)}$"


@lru_cache(maxsize=16)  # each pattern may use its full memory limit
def compiled(pattern: str, *, groups: bool = False) -> Any:
    """Return the compiled pattern, which captures groups only if `groups` is set.

    Raises `Malformed`.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_WITH_GROUPS if groups else _MEMORY
    try:
        found = re2.compile(pattern.encode(), options)
        names = found.groupindex
        if found.groups and not groups:  # a thousand groups add milliseconds to each search
            options.never_capture = True
            found = re2.compile(pattern.encode(), options)
    except re2.error as problem:
        words = problem.args[0] if problem.args else ""  # RE2's own message, as bytes
        trouble = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
        raise _bad_pattern(pattern, trouble) from problem
    except UnicodeEncodeError as problem:
        raise _bad_pattern(pattern, f"invalid UTF-8: {problem.reason}") from problem
    finally:
        re2.purge()  # google-re2 itself caches 128 patterns, including their memory
    # The C++ library accepts two things that Go's regexp rejects: a single byte, and non-ASCII
    # group names.
    if r"\C" in _ESCAPE.findall(pattern):
        raise _bad_pattern(pattern, r"invalid escape sequence: \C")
    if odd := next((group for group in names if not group.isascii()), b""):
        raise _bad_pattern(pattern, f"invalid named capture: {odd.decode()}")
    return found


def named_twice(pattern: str) -> str:
    """Return a name that several groups share, or "". RE2 finds only the first of them."""
    plain = _CLASS.sub("", _ESCAPE.sub("", pattern))
    counted = Counter(_NAMED.findall(plain))
    return next((group for group, count in counted.items() if count > 1), "")


def _bad_pattern(pattern: str, trouble: str) -> Malformed:
    lacking = _LOOK_AROUND.search(_ESCAPE.sub("", pattern)) or any(
        map(_BACK.fullmatch, _ESCAPE.findall(pattern))
    )
    first = (
        r"RE2 does not support look-around (?=…) or back-references \1"
        if lacking
        else "fix the pattern"
    )
    message = f"{shortened(pattern)!r} is not a valid RE2 regular expression: {shortened(trouble)}"
    return Malformed(message, f"{first}; RE2's syntax: https://github.com/google/re2/wiki/Syntax")


@lru_cache(maxsize=1024)
def _compiled_glob(glob: str) -> re.Pattern[str]:
    """Turn a glob for Go's `filepath.Match` into a regular expression.

    Raises `Malformed` if Go rejects the glob as a bad pattern.

    Go matches the characters between two stars only at the first possible position. The atomic
    groups do the same, so the results are the same, and matching is never slow.
    """
    runs = [""]
    position = 0  # the parts between the stars
    while position < len(glob):
        if glob[position] == "*":
            runs.append("")
            position += 1
        elif glob[position] == "?":
            runs[-1] += "[^/]"
            position += 1
        elif glob[position] == "[":
            text, position = _class(glob, position + 1)
            runs[-1] += text
        else:
            letter, position = _letter(glob, position, "it ends with a backslash")
            runs[-1] += re.escape(letter)
    if len(runs) == 1:
        return re.compile(runs[0])
    first, *between, last = runs
    return re.compile(
        first + "".join(f"(?>[^/]*?{run})" for run in between if run) + f"[^/]*{last}"
    )


def _class(glob: str, position: int) -> tuple[str, int]:
    """Return the pattern for a character class after its `[`, and the position after the class.

    Only `^` negates: `[!a]` matches `!` and `a`.
    """
    negated = glob.startswith("^", position)
    position += negated
    ranges: list[tuple[str, str]] = []
    while not (ranges and glob.startswith("]", position)):
        low, position = _class_letter(glob, position)
        high = low
        if glob.startswith("-", position):
            high, position = _class_letter(glob, position + 1)
        ranges.append((low, high))
    # Go accepts `[z-a]`, which never matches. Python rejects such a range.
    text = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in ranges if low <= high)
    if not text:
        return (r"[\s\S]" if negated else r"[^\s\S]"), position + 1
    return (f"[^{text}]" if negated else f"[{text}]"), position + 1


def _class_letter(glob: str, position: int) -> tuple[str, int]:
    if position < len(glob) and glob[position] in "-]":
        raise _bad_glob(glob, f"{glob[position]!r} at this position in a [class] needs a backslash")
    return _letter(glob, position, "a [class] is not closed")


def _letter(glob: str, position: int, trouble: str) -> tuple[str, int]:
    """Return one character, escaped or not, and the position after it."""
    if glob.startswith("\\", position):
        position += 1
    if position >= len(glob):
        raise _bad_glob(glob, trouble)
    return glob[position], position + 1


def _bad_glob(glob: str, trouble: str) -> Malformed:
    hint = r"use \[ for a literal bracket and \\ for a backslash"
    return Malformed(f"{shortened(glob)!r} is not a glob: {trouble}", hint)
