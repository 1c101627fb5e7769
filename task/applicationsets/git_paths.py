"""Finds the folders and files for a `git` generator, and derives parameters from their paths."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

from task.applicationsets.arguments import go_value
from task.applicationsets.sprig_text import normalize
from task.errors import Malformed
from task.policy.tag_filter import LONGEST, glob_match

_POSIX = {
    "alnum": "A-Za-z0-9", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "space": r"\s",
    "xdigit": "0-9A-Fa-f", "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip
_NEVER = r"[^\s\S]"
# In brackets: a class such as `[:alpha:]`, or a character or a range, whose ends may be escaped.
_BRACKET_PART = re.compile(r"\[:([^]]*):\]|(\\?.)(?:-(\\.|[^]\\]))?", re.DOTALL)


def folders_of(files: Iterable[str]) -> list[str]:
    """Return all folders that contain these files, sorted. Folders whose names begin with a dot are
    omitted, with all folders below them.
    """
    folders: set[str] = set()
    for path in files:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]  # the parent folder
    # a dot at the start of the path, or after a slash
    return sorted(folder for folder in folders if "/." not in f"/{folder}")


def chosen_folders(entries: Sequence[tuple[str, bool]], files: Iterable[str]) -> list[str]:
    """Return those folders of these files that the `directories` entries of a `git` generator
    select.

    Each entry is (path, exclude).
    """
    return _matching_paths(
        [(partial(glob_match, path), exclude) for path, exclude in entries],
        folders_of(files),
    )


def chosen_files(entries: Sequence[tuple[str, bool]], files: Iterable[str]) -> list[str]:
    """Return the files that the `files` entries of a `git` generator select. Each entry is (path,
    exclude).

    Paths match as in `git ls-files`: `*` also matches `/`.
    """
    return _matching_paths(
        [(_pathspec(path).fullmatch, exclude) for path, exclude in entries],
        sorted(files),
    )


def _matching_paths(
    entries: Sequence[tuple[Callable[[str], object], bool]],
    paths: Iterable[str],
) -> list[str]:
    """Return the paths that match an inclusion, and no exclusion.

    Each entry is (matches, exclude): a function that returns whether a path matches, and True if
    the entry is an exclusion.
    """
    inclusions = [matches for matches, exclude in entries if not exclude]
    exclusions = [matches for matches, exclude in entries if exclude]
    matching = []
    for path in paths:
        is_included = any(matches(path) for matches in inclusions)
        if is_included and not any(matches(path) for matches in exclusions):
            matching.append(path)
    return matching


@lru_cache(maxsize=1024)
def _pathspec(spec: str) -> re.Pattern[str]:
    """Return a regular expression for a path in Git's wildmatch syntax, such as `apps/*/app.json`.

    `*` and `?` also match `/` (Git's flag `WM_PATHNAME` is off). As in Git, a path also matches a
    file or folder with exactly this name, and everything in the folder, even if the name contains
    wildcards. Raises `Malformed` for a path that is too long.
    """
    if len(spec) > LONGEST:
        raise Malformed(
            f"the path has {len(spec):,} characters, but at most {LONGEST:,} are allowed",
            "use a shorter path",
        )
    path = spec.removeprefix("./").removeprefix("/")
    if not path:
        return re.compile(".*", re.DOTALL)
    literal = re.escape(path.rstrip("/")) + "(?:/.*)?"
    has_wildcards = bool(set(path) & set("*?[\\"))
    if not has_wildcards:
        return re.compile(literal, re.DOTALL)

    first, *after_stars = _patterns_between_stars(path)
    if not after_stars:  # there are no stars, only other wildcards
        return re.compile(f"{literal}|{first}", re.DOTALL)
    *inner, last = after_stars
    # `apps/*/*.json` becomes `apps/(?>.*?/).*\.json`. With atomic groups, the part between two
    # stars matches only at the first possible position. The result is the same, and matching is
    # never slow.
    inner_patterns = "".join(f"(?>.*?{pattern})" for pattern in inner if pattern)
    return re.compile(f"{literal}|{first}{inner_patterns}.*{last}", re.DOTALL)


def _patterns_between_stars(path: str) -> list[str]:
    """Return a regular expression for each part of a path between its stars: `apps/` and `/.`
    (any character) for `apps/*/?`.
    """
    patterns = [""]  # the last pattern is for the current part
    position = 0
    while position < len(path):
        sign = path[position]
        if sign == "[":
            pattern, position = _bracket_pattern(path, position)
            patterns[-1] += pattern
            continue
        if sign == "*":
            patterns.append("")
        elif sign == "?":
            patterns[-1] += "."
        else:
            if sign == "\\":
                position += 1  # the next character is literal
            patterns[-1] += re.escape(path[position : position + 1]) or _NEVER
        position += 1
    return patterns


def _bracket_pattern(path: str, opening: int) -> tuple[str, int]:
    """Return the regular expression for the brackets at this position, such as `[a-z]`, and the
    position after them.

    `!` and `^` negate. A backslash makes the next character literal. A `[` without a `]` never
    matches.
    """
    is_negated = path.startswith(("!", "^"), opening + 1)
    start = opening + 2 if is_negated else opening + 1
    position = start
    characters = ""
    # a `]` in the first position is literal
    while position == start or not path.startswith("]", position):
        part = _BRACKET_PART.match(path, position)
        if not part:  # the path ends before the brackets do
            return _NEVER, len(path)
        position = part.end()
        class_name, low, high = part.groups()
        if low is None:  # [:alpha:]
            characters += _POSIX.get(class_name, "")
            continue
        low = low[-1]  # without its backslash
        high = high[-1] if high else low
        if low <= high:  # in an invalid range, such as z-a, there are no characters
            characters += f"{re.escape(low)}-{re.escape(high)}"
    if not characters:
        return "." if is_negated else _NEVER, position + 1
    negation = "^" if is_negated else ""
    return f"[{negation}{characters}]", position + 1


def path_params(path: str, prefix: str, *, go: bool, file: str = "") -> dict[str, Any]:
    """Return the path parameters, such as `path.basename`, for a folder and, if `file` is not "",
    for that file in it.

    `prefix` is `pathParamPrefix`. With `go` (goTemplate), the parameters are nested. Otherwise,
    their names are dotted: `path.basename`.
    """
    basename = posixpath.basename(path) or path
    names = {"basename": basename, "basenameNormalized": normalize(basename)}
    if file:
        names |= {"filename": file, "filenameNormalized": normalize(file)}
    segments = path.split("/")
    if go:
        nested: dict[str, Any] = {"path": {"path": path, "segments": segments, **names}}
        if prefix:
            nested = {prefix: nested}
        params: dict[str, Any] = go_value(nested)
        return params
    name = f"{prefix}.path" if prefix else "path"
    dotted = {name: path}
    for key, value in names.items():
        dotted[f"{name}.{key}"] = value
    for number, segment in enumerate(segments):
        if segment:
            dotted[f"{name}[{number}]"] = segment
    return dotted
