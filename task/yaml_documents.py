"""Reads manifest files of any size into plain data, document by document.

It works on parser events. Scalars stay texts: the tag `1.10` is not a number. Aliases are shared and never copied, and
the depth is limited, so an alias bomb does no harm. Merge keys (`<<`) are followed as kubectl and Argo CD do. Otherwise
a rule that they bring, such as `allow-tags`, would not count here. A broken document does not hide the others.
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
# A document without any of these cannot concern us, and is not parsed, because parsing takes most of the time.
OURS = re.compile(r"argoproj\.io|fluxcd\.io|weave\.works|argocd-image-updater-config")
_START = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_PLAIN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_MERGE = object()  # the key `<<`
_FEW = 10_000  # keys that merge keys may add to the smallest text


@dataclass(frozen=True)
class ManifestDocument:
    """One document: its data, or the reason why it cannot be read."""

    data: Any
    line: int  # of its first line, from 1
    problem: str = ""
    text: str = ""  # the YAML; "" for JSON, whose data has types already
    number: int = 0  # of this document in the text, from 0


def documents(text: str) -> Iterator[ManifestDocument]:
    """Yield the documents of a YAML or JSON file that may concern us."""
    text = text.removeprefix("\ufeff")
    if not OURS.search(text):
        return
    if text.lstrip().startswith("{"):
        try:
            yield ManifestDocument(_without_halves(json.loads(text), text), 1)
            return
        except (ValueError, RecursionError):
            pass  # a YAML flow mapping, or broken; then the YAML reader reports it
    for chunk, line in _chunks(text):
        if OURS.search(chunk):
            yield from _read(chunk, line)


def broken(text: str) -> Iterator[ManifestDocument]:
    """Yield the documents that `documents` leaves out, and that are not YAML. This parses all of them."""
    for chunk, line in _chunks(text.removeprefix("\ufeff")):
        if not OURS.search(chunk):
            yield from (document for document in _read(chunk, line) if document.problem)


def _chunks(text: str) -> Iterator[tuple[str, int]]:
    """Split a YAML text at the lines that begin a document. Yields each part with its first line, from 1."""
    starts = [match.start() for match in _START.finditer(text)]
    if re.search(r"^%", text, re.MULTILINE):  # directives belong to the document that follows
        starts = []
    bounds = [0, *[start for start in starts if start], len(text)]
    line = 1
    for start, end in pairwise(bounds):
        chunk = text[start:end]
        yield chunk, line
        line += chunk.count("\n")


def plain(text: str, *, exact: bool = False) -> Any:
    """Return the first document of any YAML text, or None for an empty text. Raises `Malformed`.

    A merge key is a key like any other. `exact` refuses what readers understand in different ways: explicit tags, and
    keys that are there twice.
    """
    data = parsed(text.removeprefix("\ufeff"), lambda events: list(_DataBuilder(exact=exact).build(events)))
    return data[0] if data else None


def _without_halves(data: Any, text: str) -> Any:
    r"""Replace half characters by U+FFFD, as Go does. JSON can write `\ud800`, but no text may have it."""
    if "\\ud" not in text and "\\uD" not in text:
        return data
    whole = json.dumps(data, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.loads(whole)


def _read(chunk: str, line: int) -> Iterator[ManifestDocument]:
    before = chunk[: len(chunk) - len(chunk.lstrip("-\r\n\t "))].count("\n")
    try:
        for number, data in enumerate(parsed(chunk, lambda events: list(_DataBuilder(len(chunk)).build(events)))):
            yield ManifestDocument(data, line + before, text=chunk, number=number)
    except NotYaml as error:
        yield ManifestDocument(None, line, f"line {line + max(error.line, 1) - 1}: {error.what}")
    except Malformed as error:
        yield ManifestDocument(None, line, error.message)


class _DataBuilder:
    """Builds data from an event stream, with a stack and without recursion."""

    def __init__(self, size: int = 0, *, exact: bool = False) -> None:
        """`size`: the characters of a text whose merge keys are followed, which limit what these may add."""
        self.exact = exact
        # container, [pending key] or [], and the mapping into which the container is merged
        self.stack: list[tuple[Any, list[Any], dict[Any, Any] | None]] = []
        self.follows, self.left = bool(size), _FEW + size
        self.anchors: dict[str, Any] = {}
        self.done: list[Any] = []

    def build(self, events: Any) -> Iterator[Any]:
        for event in events:
            kind = type(event).__name__  # PyYAML and ruamel.yaml have different classes, with the same names
            if self.exact and (tag := getattr(event, "tag", None)):
                raise Malformed(f"line {event.start_mark.line + 1}: the tag {str(tag)[:100]!r}", "leave the tag out")
            if kind == "ScalarEvent":
                if self._merges(event):
                    self._put(_MERGE, None)
                else:
                    self._put(self._scalar(event), event.anchor)
            elif kind == "MappingStartEvent":
                self._open({}, event.anchor)
            elif kind == "SequenceStartEvent":
                self._open([], event.anchor)
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                container, _, into = self.stack.pop()
                if into is not None:
                    self._merge(into, container)
            elif kind == "AliasEvent":
                self._put(self.anchors.get(event.anchor), None)
            elif kind == "DocumentEndEvent":
                yield from self.done
                self.done, self.anchors = [], {}

    def _open(self, container: Any, anchor: str | None) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise Malformed(f"nested more than {MAX_DEPTH} levels deep")
        into = None
        if self.stack and self.stack[-1][1] == [_MERGE]:  # it is merged when it is complete
            into = self.stack[-1][0]
            self.stack[-1][1].clear()
            if anchor:
                self.anchors[anchor] = container
        else:
            self._put(container, anchor)
        self.stack.append((container, [], into))

    def _merges(self, event: Any) -> bool:
        """Tell whether a scalar is a merge key. A quoted one is a key like any other."""
        plain = event.implicit[0] or event.tag == "tag:yaml.org,2002:merge"
        if event.value != "<<" or not plain or not self.follows or not self.stack:
            return False
        container, pending, _ = self.stack[-1]
        return isinstance(container, dict) and not pending

    def _merge(self, into: dict[Any, Any], value: Any) -> None:
        """Add the keys of a mapping, or of a list of mappings, of which the first one wins.

        For kubectl, the order of lines counts: a key that comes before `<<` is replaced, and one after it wins.
        """
        for one in reversed(value) if isinstance(value, list) else (value,):
            if not isinstance(one, dict):
                raise Malformed("a merge key (<<) takes a mapping or a list of mappings")
            self.left -= len(one)
            if self.left < 0:
                raise Malformed("merge keys (<<) add more keys than the text has letters")
            into.update(one)

    def _put(self, value: Any, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = value
        if not self.stack:
            self.done.append(value)
            return
        container, pending, _ = self.stack[-1]
        if isinstance(container, list):
            container.append(value)
        elif pending:
            key = pending.pop()
            if key is _MERGE:
                self._merge(container, value)
            else:
                container[key] = value
        else:
            known = isinstance(value, (str, bool)) or value is None or value is _MERGE
            key = value if known else str(type(value))
            if self.exact and key in container:
                raise Malformed(f"the key {str(key)[:100]!r} is there twice", "keep one of them")
            pending.append(key)

    @staticmethod
    def _scalar(event: Any) -> Any:
        value = event.value
        if event.style or event.tag:  # quoted, block or tagged: a string
            return value
        return None if value in _NULL else _PLAIN.get(value, value)
