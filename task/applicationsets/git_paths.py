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
    found: set[str] = set()
    for path in files:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(
        folder for folder in found if not any(part.startswith(".") for part in folder.split("/"))
    )


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
    wanted = [fits for fits, exclude in entries if not exclude]
    out = [fits for fits, exclude in entries if exclude]
    return [
        path
        for path in paths
        if any(fits(path) for fits in wanted) and not any(fits(path) for fits in out)
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
    if not set(plain) & set("*?[\\"):
        return re.compile(re.escape(plain.rstrip("/")) + "(?:/.*)?" if plain else ".*", re.DOTALL)
    # With atomic groups, the part between two stars matches only at the first possible position.
    # The result is the same, and matching is never slow.
    runs = [""]
    at = 0
    while at < len(plain):
        sign = plain[at]
        if sign == "*":
            runs.append("")
        elif sign == "?":
            runs[-1] += "."
        elif sign == "[":
            piece, at = _bracket_pattern(plain, at)
            runs[-1] += piece
            continue
        else:
            at += sign == "\\"
            runs[-1] += re.escape(plain[at : at + 1])
        at += 1
    first, *between = runs
    if not between:
        return re.compile(first, re.DOTALL)
    *inner, last = between
    return re.compile(
        first + "".join(f"(?>.*?{run})" for run in inner if run) + f".*{last}",
        re.DOTALL,
    )


def _bracket_pattern(spec: str, at: int) -> tuple[str, int]:
    """Return the pattern for `[…]` and the position after it.

    `!` and `^` negate. A `[` without a `]` never matches.
    """
    negated = spec[at + 1 : at + 2] in ("!", "^")
    start = at + 2 if negated else at + 1
    end = spec.find("]", start + 1)
    while end > 0 and spec.rfind("[:", start, end) > spec.rfind(":]", start, end):
        end = spec.find("]", end + 1)
    if end < 0:
        return r"[^\s\S]", len(spec)
    pattern = ""
    for part in re.split(r"(\[:[a-z]+:\])", spec[start:end]):
        name = part[2:-2] if part.startswith("[:") and part.endswith(":]") else ""
        pattern += _POSIX.get(name, "") if name else re.sub(r"([\[\]\\^&~|])", r"\\\1", part)
    try:
        re.compile(f"[{pattern}]")
    except re.error:  # [z-a]
        return r"[^\s\S]", end + 1
    return f"[{'^' if negated else ''}{pattern}]", end + 1


def path_params(path: str, prefix: str, *, go: bool, file: str = "") -> dict[str, Any]:
    """Return the path parameters for a folder, and for the file in it, if any."""
    basename = posixpath.basename(path) or path
    names = {"basename": basename, "basenameNormalized": normalize(basename)}
    if file:
        names |= {"filename": file, "filenameNormalized": normalize(file)}
    if go:
        found = {
            "path": {
                "path": path,
                "segments": path.split("/"),
                **names,
            }
        }
        params: dict[str, Any] = go_value({prefix: found} if prefix else found)
        return params
    name = f"{prefix}.path" if prefix else "path"
    flat = {name: path} | {f"{name}.{key}": value for key, value in names.items()}
    return flat | {f"{name}[{at}]": part for at, part in enumerate(path.split("/")) if part}
