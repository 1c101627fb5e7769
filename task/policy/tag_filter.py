r"""The filters `allow-tags` and `ignore-tags`, which limit the tags that an entry accepts.

They work as in Argo CD Image Updater: with Go's regular expressions (RE2, in which no pattern is
slow) and Go's `filepath.Match`, in which `[!a]` does not negate. `policy.judge` applies the
filters.
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

LONGEST = 4096  # maximum number of characters per pattern; RE2 took 25 seconds for 200,000
# Bytes that RE2 may use per pattern. Tags have up to 128 characters, and \pL{128} works within this
# limit. With 32 MB, a pattern of 4,096 characters took four seconds and a quarter of a gigabyte.
_MEMORY = 4 << 20
# To find groups, RE2 tracks all states of the pattern at each character of a tag. With 4 MB, a
# single tag took 0.1 seconds.
_MEMORY_WITH_GROUPS = 128 << 10
_LONGEST_SUGGESTION = 200
_GLOB = re.compile(r"[A-Za-z0-9_.*?-]+")
_IN_REGEXP = {
    ".": r"\.",
    "*": ".*",
    "?": ".",
}
_LOOK_AROUND = re.compile(r"\(\?(?:<?[=!]|P=)")  # matches Python's named backreference as well
_BACK = re.compile(r"\\[1-9k]")
_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)

_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|[^\]])*\]")
_NAMED = re.compile(r"\(\?P?<(\w+)>")


def allow_pattern(value: str) -> str | None:
    """Return the RE2 pattern in an `allow-tags` value such as `regexp:<RE2>`, or None for `any` or
    an empty value.

    Every character after the first colon is significant, even a space. Raises `Malformed` for other
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
    compiled(pattern)  # raises `Malformed` for a pattern that Go's regexp rejects
    return pattern


def check_length(text: str) -> None:
    """Raise `Malformed` for a pattern or glob that is so long that it could delay a run by
    minutes.
    """
    if len(text) > LONGEST:
        message = (
            f"{shortened(text)!r} has {len(text):,} characters, but at most {LONGEST:,} are allowed"
        )
        raise Malformed(message, "use a shorter pattern")


def allowed(pattern: str | None, tag: str) -> bool:
    """Return whether the pattern from `allow_pattern` matches anywhere in the tag.

    None matches every tag.
    """
    if pattern is None:
        return True
    return compiled(pattern).search(tag.encode("utf-8", "surrogatepass")) is not None


def split_globs(value: str) -> tuple[str, ...]:
    """Return the trimmed globs in an `ignore-tags` value, without empty ones.

    The globs are not checked: see `check_glob`.
    """
    globs = map(str.strip, value.split(","))
    return tuple(glob for glob in globs if glob)


def check_glob(glob: str) -> None:
    """Raise `Malformed` for a glob that Go's `filepath.Match` rejects as a bad pattern.

    Argo CD Image Updater ignores such a glob.
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
    for glob in globs:
        if glob_match(glob, tag):
            return glob
    return ""


def _allow_hint(keyword: str, colon: str, pattern: str) -> str:
    """Return a hint for an `allow-tags` value that is not `regexp:…`, such as "use any" for `*`.

    The arguments are the three parts of the value: the text before the first colon, the colon (or
    ""), and the text after the colon.
    """
    plain_keyword = keyword.strip().lower()
    # a tag cannot contain a colon, so the value must be a misspelled `regexp:`
    if plain_keyword.startswith("re") and colon:
        return f"use regexp:{shortened(unwrapped(pattern))}"
    if plain_keyword == "glob":
        suggestion = regexp_of_glob(pattern) or "regexp: followed by a regular expression"
        return f"globs are only for ignore-tags; instead, use {suggestion}"

    value = unwrapped(keyword + colon + pattern)
    if value == "*":
        return "use any"
    suggestion = regexp_of_glob(value) or f"regexp:{shortened(value)}"
    return f"use {suggestion}"


def unwrapped(pattern: str) -> str:
    """Remove spaces, slashes, and quotes around a pattern. Tags never contain these characters."""
    bare = pattern.strip()
    for mark in ("/", "'", '"'):
        if len(bare) > 1 and bare[0] == bare[-1] == mark:
            bare = bare[1:-1]
    return bare


def regexp_of_glob(text: str) -> str:
    """Return `regexp:` and a pattern that is equivalent to a tag or a simple glob, or "" for other
    strings and for strings that contain `.*`.
    """
    if not _GLOB.fullmatch(text) or ".*" in text or len(text) > _LONGEST_SUGGESTION:
        return ""
    pattern = "".join(_IN_REGEXP.get(character, character) for character in text)
    return f"regexp:^{pattern}$"


@lru_cache(maxsize=16)  # each cached pattern may use its full memory limit
def compiled(pattern: str, *, groups: bool = False) -> Any:
    """Return the compiled pattern. It only captures groups if `groups` is set.

    Raises `Malformed`.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_WITH_GROUPS if groups else _MEMORY
    try:
        regexp = re2.compile(pattern.encode(), options)
        group_names = regexp.groupindex
        if regexp.groups and not groups:  # a thousand groups would add milliseconds to each search
            options.never_capture = True
            regexp = re2.compile(pattern.encode(), options)
    except re2.error as problem:
        message = problem.args[0] if problem.args else ""
        if isinstance(message, bytes):  # the reason comes from RE2 itself
            message = message.decode("utf-8", "replace")
        raise _bad_pattern(pattern, str(message)) from problem
    except UnicodeEncodeError as problem:
        raise _bad_pattern(pattern, f"invalid UTF-8: {problem.reason}") from problem
    finally:
        re2.purge()  # google-re2 itself caches 128 patterns, including their memory

    # The C++ library accepts two constructs that Go's regexp rejects: matching a single byte, and
    # group names that are not ASCII.
    if r"\C" in _ESCAPE.findall(pattern):
        raise _bad_pattern(pattern, r"invalid escape sequence: \C")
    for name in group_names:
        if not name.isascii():
            raise _bad_pattern(pattern, f"invalid named capture: {name.decode()}")
    return regexp


def named_twice(pattern: str) -> str:
    """Return a name that several groups of a pattern share, or "" if all names are unique.

    RE2 finds only the first of these groups.
    """
    without_escapes = _ESCAPE.sub("", pattern)
    without_classes = _CLASS.sub("", without_escapes)
    counts: Counter[str] = Counter(_NAMED.findall(without_classes))
    for name, count in counts.items():
        if count > 1:
            return name
    return ""


def _bad_pattern(pattern: str, trouble: str) -> Malformed:
    """Return the error for an invalid pattern. `trouble` says what is wrong with the pattern."""
    has_look_around = _LOOK_AROUND.search(_ESCAPE.sub("", pattern))
    has_back_reference = any(_BACK.fullmatch(escape) for escape in _ESCAPE.findall(pattern))
    advice = "fix the pattern"
    if has_look_around or has_back_reference:
        advice = r"RE2 does not support look-around (?=…) or back-references \1"
    message = f"{shortened(pattern)!r} is not a valid RE2 regular expression: {shortened(trouble)}"
    return Malformed(message, f"{advice}; RE2's syntax: https://github.com/google/re2/wiki/Syntax")


@lru_cache(maxsize=1024)
def _compiled_glob(glob: str) -> re.Pattern[str]:
    """Convert a glob for Go's `filepath.Match` to a regular expression.

    Raises `Malformed` if Go rejects the glob as a bad pattern.

    Go matches the characters between two stars only at the first possible position. Atomic groups
    do the same, so the results are identical, and matching is never slow.
    """
    parts = [""]  # the patterns for the texts between the stars
    position = 0
    while position < len(glob):
        if glob[position] == "*":
            parts.append("")
            position += 1
        elif glob[position] == "?":
            parts[-1] += "[^/]"
            position += 1
        elif glob[position] == "[":
            class_pattern, position = _character_class(glob, position + 1)
            parts[-1] += class_pattern
        else:
            letter, position = _letter(glob, position, "it ends with a backslash")
            parts[-1] += re.escape(letter)

    if len(parts) == 1:  # the glob contains no star
        return re.compile(parts[0])
    # `a*b*c` becomes `a(?>[^/]*?b)[^/]*c`
    before_first_star, *between_stars, after_last_star = parts
    pattern = before_first_star
    for part in between_stars:
        if part:  # `**` means the same as `*`
            pattern += f"(?>[^/]*?{part})"
    return re.compile(f"{pattern}[^/]*{after_last_star}")


def _character_class(glob: str, position: int) -> tuple[str, int]:
    """Return the pattern for a character class, and the position after the class. `position` is
    right after the class's `[`.

    Only `^` negates: `[!a]` matches `!` and `a`.
    """
    negated = glob.startswith("^", position)
    if negated:
        position += 1
    ranges = ""
    while True:
        # a single letter is a range from itself to itself
        low, position = _class_letter(glob, position)
        high = low
        if glob.startswith("-", position):
            high, position = _class_letter(glob, position + 1)
        # Go accepts `[z-a]`, which never matches. Python rejects such a range.
        if low <= high:
            ranges += f"{re.escape(low)}-{re.escape(high)}"
        if glob.startswith("]", position):
            break

    if ranges and negated:
        pattern = f"[^{ranges}]"
    elif ranges:
        pattern = f"[{ranges}]"
    elif negated:
        pattern = r"[\s\S]"  # matches any character
    else:
        pattern = r"[^\s\S]"  # matches no character
    return pattern, position + 1


def _class_letter(glob: str, position: int) -> tuple[str, int]:
    """Return the character at `position` in a character class, and the position after that
    character.

    Raises `Malformed` for `-` and `]`, which must be escaped with a backslash here.
    """
    if position < len(glob) and glob[position] in "-]":
        raise _bad_glob(glob, f"{glob[position]!r} at this position in a [class] needs a backslash")
    return _letter(glob, position, "a [class] is not closed")


def _letter(glob: str, position: int, trouble: str) -> tuple[str, int]:
    """Return the character at `position`, whether escaped or not, and the position after it.

    Raises `Malformed` with the text `trouble` if the glob ends too early.
    """
    if glob.startswith("\\", position):
        position += 1
    if position >= len(glob):
        raise _bad_glob(glob, trouble)
    return glob[position], position + 1


def _bad_glob(glob: str, trouble: str) -> Malformed:
    hint = r"use \[ for a literal bracket and \\ for a backslash"
    return Malformed(f"{shortened(glob)!r} is not a glob: {trouble}", hint)
