"""Reads manifest files of any size into plain data, document by document.

It works on parser events. Scalars stay texts: the tag `1.10` is not a number. Aliases are shared and never copied, and
the depth is limited, so an alias bomb does no harm. Merge keys (`<<`) are followed as kubectl and Argo CD do. Otherwise
a rule that they bring, such as `allow-tags`, would not count here. A broken document does not hide the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from task.errors import Malformed
from task.yaml_events import NULL, DataBuilder, Dialect, NotYaml, parsed

# A document without any of these cannot concern us, and is not parsed, because parsing takes most of the time.
OURS = re.compile(r"argoproj\.io|fluxcd\.io|weave\.works|argocd-image-updater-config")
_START = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_PLAIN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
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
    data = parsed(text.removeprefix("\ufeff"), lambda events: list(DataBuilder(_dialect(exact=exact)).build(events)))
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
        made = parsed(chunk, lambda events: list(DataBuilder(_dialect(len(chunk))).build(events)))
        for number, data in enumerate(made):
            yield ManifestDocument(data, line + before, text=chunk, number=number)
    except NotYaml as error:
        yield ManifestDocument(None, line, f"line {line + max(error.line, 1) - 1}: {error.what}")
    except Malformed as error:
        yield ManifestDocument(None, line, error.message)


def _dialect(size: int = 0, *, exact: bool = False) -> Dialect:
    """Return how to read a text. `size`: its characters, if its merge keys are followed; they limit what these add."""
    return Dialect(_scalar, _unique if exact else _key, merged=size and _FEW + size, tags=not exact)


def _key(value: Any, _container: Mapping[Any, Any]) -> Any:
    return value if isinstance(value, (str, bool)) or value is None else str(type(value))


def _unique(value: Any, container: Mapping[Any, Any]) -> Any:
    key = _key(value, container)
    if key in container:
        raise Malformed(f"the key {str(key)[:100]!r} is there twice", "keep one of them")
    return key


def _scalar(event: Any) -> Any:
    value = event.value
    if event.style or event.tag:  # quoted, block or tagged: a string
        return value
    return None if value in NULL else _PLAIN.get(value, value)
