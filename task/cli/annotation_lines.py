"""Finds the line of an annotation in a file, for messages that people click on."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache

from task.applications.manifest_files import LARGEST
from task.editors.yaml.tree import Node, pairs, parse, resolved
from task.errors import TargetError
from task.files import read_text

LARGEST_DOCUMENT = 1_000_000  # characters of a document in which a field is looked for
MOST = 500  # lines examined for one annotation, because a List may have thousands of Applications with the same keys


def line_of(path: str, start: int, key: str, value: str, *, sure: bool = False, text: str | None = None) -> int:
    """Return the line of `key` (with its prefix) in the document that begins at `start`, or `start` if there is none.

    A List is one document with all its Applications. If several lines have the key, the first one with the value wins;
    if none of them has it, the first one, or `start` if the line has to be `sure`. `text` is that of a file that is not
    on this machine.
    """
    lines, _ = _read(path, text)
    begin, end = _document(path, start, text)
    numbers = _numbers(path, key, text)
    found = numbers[bisect_right(numbers, begin - 1) : bisect_left(numbers, end)][:MOST]
    shown = value.strip().partition("\n")[0]
    fitting = [number for number in found if shown in lines[number]] or ([] if sure and len(found) > 1 else found)
    return fitting[0] + 1 if fitting else start


def line_of_field(path: str, start: int, field: Sequence[str | int]) -> int:
    """Return the line of a field in the document that begins at `start`, by its keys and indices.

    If the document has no such field, it is the line of the nearest one above, in the end `start`.
    """
    lines, _ = _read(path, None)
    begin, end = _document(path, start, None)
    text = "\n".join(lines[begin:end])
    line = start
    try:
        (document, *_) = parse(text).documents if len(text) <= LARGEST_DOCUMENT else ()
    except (TargetError, ValueError):
        return start
    node: Node | None = document.root
    for part in field:
        node = resolved(document, node) if node else None
        if node and isinstance(part, int) and node.kind == "sequence":
            at = node = node.children[part] if part < len(node.children) else None
        elif node and isinstance(part, str) and node.kind == "mapping":
            at, node = next(((key, one) for key, one in pairs(node) if key.value == part), (None, None))
        else:
            break
        line = begin + text.count("\n", 0, at.start) + 1 if at else line
    return line


def _document(path: str, start: int, text: str | None) -> tuple[int, int]:
    """Return the first line, from 0, of the document that begins at a line, and the line after its last one."""
    lines, ends = _read(path, text)
    begin = max(start, 1) - 1
    last = bisect_left(ends, begin + 1)
    return begin, ends[last] if last < len(ends) else len(lines)


@lru_cache(maxsize=8)
def _read(path: str, text: str | None) -> tuple[list[str], list[int]]:
    """Return the lines of a file, and the line numbers (from 0) of its document separators; empty if unreadable."""
    try:
        lines = (read_text(path, LARGEST) if text is None else text).split("\n")
    except (OSError, ValueError):
        return [], []
    return lines, [number for number, line in enumerate(lines) if line.startswith("---")]


@lru_cache(maxsize=1024)
def _numbers(path: str, key: str, text: str | None) -> list[int]:
    """Return the numbers (from 0) of the lines that have a key as a whole word."""
    lines, _ = _read(path, text)
    return [
        number
        for number, line in enumerate(lines)
        if key in line and line.partition(key)[2][:1] in ("", ":", '"', "'", " ")
    ]
