"""Reads manifest files of any size into plain data, document by document.

It is built on parse events. Scalars stay texts: a tag `1.10` is not a number. Aliases are shared and never copied,
merge keys are not followed, and depth is limited, so that no alias bomb goes off. A broken document does not hide the
others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from task.errors import Malformed
from task.yaml_events import NotYaml, parsed

MAX_DEPTH = 200
# A document without any of these cannot concern us and is not parsed: parsing takes most of the time.
OURS = re.compile(r"argoproj\.io|fluxcd\.io|weave\.works")
_START = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_PLAIN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULL = frozenset(("", "~", "null", "Null", "NULL"))


@dataclass(frozen=True)
class ManifestDocument:
    """One document: its data, or the reason why it could not be read."""

    data: Any
    line: int  # of its first line, from 1
    problem: str = ""
    text: str = ""  # of YAML, and which of the documents in it this is; data of JSON has types already
    number: int = 0


def documents(text: str) -> Iterator[ManifestDocument]:
    """The documents of a YAML or JSON file that may concern us."""
    text = text.removeprefix("\ufeff")
    if not OURS.search(text):
        return
    if text.lstrip().startswith("{"):
        try:
            yield ManifestDocument(_without_halves(json.loads(text), text), 1)
            return
        except (ValueError, RecursionError):
            pass  # a YAML flow mapping, or broken: the YAML reader says so
    starts = [match.start() for match in _START.finditer(text)]
    if re.search(r"^%", text, re.MULTILINE):  # directives belong to the document that follows
        starts = []
    bounds = [0, *[start for start in starts if start], len(text)]
    line = 1
    for start, end in pairwise(bounds):
        chunk = text[start:end]
        if OURS.search(chunk):
            yield from _read(chunk, line)
        line += chunk.count("\n")


def plain(text: str) -> Any:
    """The first document of any YAML text, None for an empty text. Raises `Malformed`."""
    data = parsed(text.removeprefix("\ufeff"), lambda events: list(_DataBuilder().build(events)))
    return data[0] if data else None


def _without_halves(data: Any, text: str) -> Any:
    r"""The data with U+FFFD for half characters, as Go reads them: JSON can write `\ud800`, which no text may hold."""
    if "\\ud" not in text and "\\uD" not in text:
        return data
    whole = json.dumps(data, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.loads(whole)


def _read(chunk: str, line: int) -> Iterator[ManifestDocument]:
    before = chunk[: len(chunk) - len(chunk.lstrip("-\r\n\t "))].count("\n")
    try:
        for number, data in enumerate(parsed(chunk, lambda events: list(_DataBuilder().build(events)))):
            yield ManifestDocument(data, line + before, text=chunk, number=number)
    except NotYaml as error:
        yield ManifestDocument(None, line, f"line {line + max(error.line, 1) - 1}: {error.what}")
    except Malformed as error:
        yield ManifestDocument(None, line, error.message)


class _DataBuilder:
    """Builds data from an event stream, with a stack and without recursion."""

    def __init__(self) -> None:
        self.stack: list[tuple[Any, list[Any]]] = []  # container, [pending key] or []
        self.anchors: dict[str, Any] = {}
        self.done: list[Any] = []

    def build(self, events: Any) -> Iterator[Any]:
        for event in events:
            kind = type(event).__name__  # PyYAML and ruamel.yaml have classes of their own, with the same names
            if kind == "ScalarEvent":
                self._put(self._scalar(event), event.anchor)
            elif kind == "MappingStartEvent":
                self._open({}, event.anchor)
            elif kind == "SequenceStartEvent":
                self._open([], event.anchor)
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self.stack.pop()
            elif kind == "AliasEvent":
                self._put(self.anchors.get(event.anchor), None)
            elif kind == "DocumentEndEvent":
                yield from self.done
                self.done, self.anchors = [], {}

    def _open(self, container: Any, anchor: str | None) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise Malformed(f"nested more than {MAX_DEPTH} levels deep")
        self._put(container, anchor)
        self.stack.append((container, []))

    def _put(self, value: Any, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = value
        if not self.stack:
            self.done.append(value)
            return
        container, pending = self.stack[-1]
        if isinstance(container, list):
            container.append(value)
        elif pending:
            container[pending.pop()] = value
        else:
            pending.append(value if isinstance(value, (str, bool)) or value is None else str(type(value)))

    @staticmethod
    def _scalar(event: Any) -> Any:
        value = event.value
        if event.style or event.tag:  # quoted, block or tagged: a string
            return value
        return None if value in _NULL else _PLAIN.get(value, value)
