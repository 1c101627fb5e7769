"""Finds the folders and files for a `git` generator, and the parameters from their paths."""

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


def folders_of(files: Iterable[str]) -> list[str]:
    """Return every folder that contains these files, sorted. Folders whose names begin with a dot,
    and all folders below them, are omitted.
    """
    folders: set[str] = set()
    for path in files:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    # at the start of the path, or after a slash
    return sorted(folder for folder in folders if "/." not in f"/{folder}")


def chosen_folders(entries: Sequence[tuple[str, bool]], files: Iterable[str]) -> list[str]:
    """Return the folders of these files that match the `directories` entries, (path, exclude)."""
    return _chosen(
        [(partial(glob_match, path), exclude) for path, exclude in entries],
        folders_of(files),
    )


def chosen_files(entries: Sequence[tuple[str, bool]], files: Iterable[str]) -> list[str]:
    """Return the files that match the `files` entries, (path, exclude).

    Paths match as in `git ls-files`: `*` also matches `/`.
    """
    return _chosen(
        [(_pathspec(path).fullmatch, exclude) for path, exclude in entries],
        sorted(files),
    )


def _chosen(
    entries: Sequence[tuple[Callable[[str], object], bool]],
    paths: Iterable[str],
) -> list[str]:
    """Return the paths that match an entry, (matches, exclude). Exclusions always win."""
    included = [matches for matches, exclude in entries if not exclude]
    excluded = [matches for matches, exclude in entries if exclude]
    return [
        path
        for path in paths
        if any(matches(path) for matches in included)
        and not any(matches(path) for matches in excluded)
    ]


@lru_cache(maxsize=1024)
def _pathspec(spec: str) -> re.Pattern[str]:
    """Return a pattern equivalent to Git's wildmatch without `WM_PATHNAME`.

    Without wildcards, it also matches everything below a path.
    """
    if len(spec) > LONGEST:
        raise Malformed(
            f"the path has {len(spec):,} characters, but at most {LONGEST:,} are allowed",
            "use a shorter path",
        )
    plain = spec.removeprefix("./").removeprefix("/")
    has_wildcards = bool(set(plain) & set("*?[\\"))
    if not plain:
        return re.compile(".*", re.DOTALL)
    if not has_wildcards:
        return re.compile(re.escape(plain.rstrip("/")) + "(?:/.*)?", re.DOTALL)
    # With atomic groups, the part between two stars matches only at the first possible position.
    # The result is the same, and matching is never slow.
    parts = [""]  # the patterns of the parts between the stars
    at = 0
    while at < len(plain):
        sign = plain[at]
        if sign == "*":
            parts.append("")
        elif sign == "?":
            parts[-1] += "."
        elif sign == "[":
            pattern, at = _bracket_pattern(plain, at)
            parts[-1] += pattern
            continue
        else:
            if sign == "\\":
                at += 1  # the next character stands for itself
            parts[-1] += re.escape(plain[at : at + 1])
        at += 1
    first, *after_stars = parts
    if not after_stars:
        return re.compile(first, re.DOTALL)
    *inner, last = after_stars
    inner_patterns = "".join(f"(?>.*?{part})" for part in inner if part)
    return re.compile(f"{first}{inner_patterns}.*{last}", re.DOTALL)


def _bracket_pattern(spec: str, at: int) -> tuple[str, int]:
    """Return the pattern for `[…]` and the position after it.

    `!` and `^` negate. A `[` without a `]` never matches.
    """
    never_matches = r"[^\s\S]"
    negated = spec[at + 1 : at + 2] in ("!", "^")
    start = at + 2 if negated else at + 1
    end = spec.find("]", start + 1)  # a `]` in the first place stands for itself
    # skip the end of each class, such as `[:alpha:]`
    while end > 0 and spec.rfind("[:", start, end) > spec.rfind(":]", start, end):
        end = spec.find("]", end + 1)
    if end < 0:
        return never_matches, len(spec)
    pattern = ""
    for part in re.split(r"(\[:[a-z]+:\])", spec[start:end]):
        is_class = part.startswith("[:") and part.endswith(":]")  # [:alpha:]
        class_name = part[2:-2] if is_class else ""
        if class_name:
            pattern += _POSIX.get(class_name, "")
        else:
            pattern += re.sub(r"([\[\]\\^&~|])", r"\\\1", part)
    try:
        re.compile(f"[{pattern}]")
    except re.error:  # [z-a]
        return never_matches, end + 1
    return f"[{'^' if negated else ''}{pattern}]", end + 1


def path_params(path: str, prefix: str, *, go: bool, file: str = "") -> dict[str, Any]:
    """Return the path parameters for a folder, and for the file in it, if any."""
    basename = posixpath.basename(path) or path
    names = {"basename": basename, "basenameNormalized": normalize(basename)}
    if file:
        names |= {"filename": file, "filenameNormalized": normalize(file)}
    segments = path.split("/")
    if go:
        nested = {"path": {"path": path, "segments": segments, **names}}
        params: dict[str, Any] = go_value({prefix: nested} if prefix else nested)
        return params
    name = f"{prefix}.path" if prefix else "path"
    flat = {name: path}
    flat |= {f"{name}.{key}": value for key, value in names.items()}
    flat |= {f"{name}[{at}]": segment for at, segment in enumerate(segments) if segment}
    return flat
