"""Finds the line of an annotation in a file, for messages that people click on."""

from bisect import bisect_left, bisect_right
from functools import lru_cache

from task.applications.manifest_files import LARGEST
from task.files import read_text

MOST = 500  # lines examined for one annotation, because a List may have thousands of Applications with the same keys


def line_of(path: str, start: int, key: str, value: str) -> int:
    """Return the line of `key` (with its prefix) in the document that begins at `start`, or `start` if there is none.

    A List is one document with all its Applications. If several lines have the key, the first one with the value wins.
    """
    lines, ends = _read(path)
    begin = max(start, 1) - 1
    last = bisect_left(ends, begin + 1)
    end = ends[last] if last < len(ends) else len(lines)
    numbers = _numbers(path, key)
    found = numbers[bisect_right(numbers, begin - 1) : bisect_left(numbers, end)][:MOST]
    shown = value.strip().partition("\n")[0]
    best = next((number for number in found if shown in lines[number]), found[0] if found else begin)
    return best + 1 if found else start


@lru_cache(maxsize=8)
def _read(path: str) -> tuple[list[str], list[int]]:
    """Return the lines of a file, and the line numbers (from 0) of its document separators; empty if unreadable."""
    try:
        lines = read_text(path, LARGEST).split("\n")
    except (OSError, ValueError):
        return [], []
    return lines, [number for number, line in enumerate(lines) if line.startswith("---")]


@lru_cache(maxsize=1024)
def _numbers(path: str, key: str) -> list[int]:
    """Return the numbers (from 0) of the lines that have a key as a whole word."""
    lines, _ = _read(path)
    return [
        number
        for number, line in enumerate(lines)
        if key in line and line.partition(key)[2][:1] in ("", ":", '"', "'", " ")
    ]
