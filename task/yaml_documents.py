"""Parses YAML text into events with the best available parser, and loads manifest files of any size
as plain data.

Go's YAML parser, which Helm, Argo CD, and Kustomize use, is derived from libyaml 0.2. PyYAML's
wheels include libyaml 0.2. It is ten times faster than ruamel.yaml's Python parser, which is the
fallback if libyaml rejects a text (`%YAML 1.2`, `[a:1]`) or is missing. ruamel.yaml's own C
extension is libyaml 0.1, which rejects `{url: https://example.com}`.

In manifests, scalars remain strings: the tag `1.10` is not a number. Aliases are shared and never
copied, and the depth is limited, so an alias bomb is harmless. Merge keys (`<<`) are applied as in
kubectl and Argo CD. Otherwise, a rule that is merged in, such as `allow-tags`, would have no effect
here. A broken document does not hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import yaml

from task.errors import Malformed
from task.plain_data import parsed_json

# Go's parsers skip a byte order mark before the first word of each document: a file may be the
# result of concatenating two files.
_BOM = re.compile(r"((?:\A|^---[^\n]*\n)(?:[ \t]*(?:#[^\n]*)?\r?\n)*)\ufeff", re.MULTILINE)
# In characters. For larger texts, there is no fallback,
# because the Python parser would take minutes.
_LARGE = 1_000_000
NULL = frozenset(("", "~", "null", "Null", "NULL"))
_MERGE = object()  # stands for the merge key `<<`
# Documents that contain none of these words are irrelevant. They are not parsed, because parsing
# takes up most of the run time.
OURS = re.compile(r"argoproj\.io|fluxcd\.io|weave\.works|argocd-image-updater-config")
_START = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_PLAIN = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_FEW = 10_000  # keys that merge keys may add, even to a tiny text


def parsed(text: str, build: Callable[[Iterator[Any]], Any]) -> Any:
    """Parse YAML text, call `build` with the parser's events, and return the result of `build`.

    Raises `NotYaml` if no parser can read the text, and the errors of `build`. The text must not
    begin with a byte order mark, because parsers do not include it in positions.
    """
    if "\ufeff" in text:
        # the replacement has the same length, so that positions in the text do not change
        text = _BOM.sub(r"\1\n", text)

    fast_parser_error: Exception | None = None
    if yaml.__with_libyaml__:
        try:
            return build(yaml.parse(text, Loader=yaml.CSafeLoader))
        except Malformed:
            raise
        except (yaml.YAMLError, ValueError) as error:
            fast_parser_error = error
            if len(text) > _LARGE:
                raise NotYaml(error) from error

    # Imported here because few runs need this module, and importing it would take up a thirtieth of
    # every other run's start time.
    from ruamel.yaml import YAML  # noqa: PLC0415
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    try:
        return build(YAML(typ="safe", pure=True).parse(text))
    except Malformed:
        raise
    except (YAMLError, RecursionError, ValueError) as error:
        # report the error of the first parser
        raise NotYaml(fast_parser_error or error) from error


class NotYaml(Malformed):
    """No parser can read the text. `line` counts from 1, or is 0 if unknown."""

    def __init__(self, error: Exception) -> None:
        """`error` is raised by one of the two parsers, whose errors have the same attributes."""
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None)
        self.line = mark.line + 1 if mark is not None else 0
        self.what = str(problem or "cannot be read")
        place = f", line {self.line}" if self.line else ""
        super().__init__(f"not valid YAML: {self.what}{place}")


@dataclass(frozen=True)
class Dialect:
    """How data is built from events, and how large a document may become."""

    scalar: Callable[[Any], Any]  # converts the event of a scalar to a value
    # converts a value to a key; the second argument is the mapping that receives the key
    key: Callable[[Any, Mapping[Any, Any]], Any]
    value: Callable[[Any], Any] = lambda value: value  # converts everything other than keys
    deepest: int = 200
    merged: int = 0  # how many keys `<<` may add to all mappings; if 0, `<<` is an ordinary key
    # Maximum number of values after alias expansion, because
    # seven lines can expand to ten million. 0 means no limit.
    most: int = 0
    tags: bool = True  # whether explicit tags are allowed


def loaded(text: str, dialect: Dialect) -> list[Any]:
    """Return the documents in a YAML string as dictionaries, lists, and the values that `dialect`
    converts scalars to. Raises `Malformed`.
    """
    documents: list[Any] = parsed(text.removeprefix("\ufeff"), _Builder(dialect).build)
    return documents


class _Builder:
    """Builds data from events, with a stack instead of recursion. Aliases share their values."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._mergeable_keys = dialect.merged  # how many more keys `<<` may still add
        # The open containers, each with its anchor and with a list that contains the pending key
        # (the key whose value comes next). The list is [] if there is no pending key.
        self._stack: list[tuple[Any, list[Any], str | None]] = []
        self._sizes = [0]  # the sizes of the open containers, counting expanded aliases
        # the value of each anchor, and the value's size
        self._anchors: dict[str | None, tuple[Any, int]] = {}
        self._documents: list[Any] = []  # the documents that are complete

    def build(self, events: Iterator[Any]) -> list[Any]:
        """Return the documents in a stream of parser events. Raises `Malformed` for anything that
        the dialect does not allow, and for an unknown anchor.
        """
        for event in events:
            # PyYAML's and ruamel.yaml's event classes are different, but have the same names
            kind = type(event).__name__
            tag = None if self._dialect.tags else getattr(event, "tag", None)
            if tag:
                raise Malformed(
                    f"line {event.start_mark.line + 1} has the tag {str(tag)[:100]!r}",
                    "remove the tag",
                )
            if kind == "ScalarEvent":
                value = _MERGE if self._merges(event) else self._dialect.scalar(event)
                self._put(value, 1, event.anchor)
            elif kind == "MappingStartEvent":
                self._open({}, event.anchor)
            elif kind == "SequenceStartEvent":
                self._open([], event.anchor)
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                container, _, anchor = self._stack.pop()
                self._put(container, self._sizes.pop(), anchor)
            elif kind == "AliasEvent":
                if event.anchor not in self._anchors:
                    raise Malformed(
                        f"anchor '{event.anchor}' value contains itself, or is not defined"
                    )
                value, size = self._anchors[event.anchor]
                self._put(value, size, None)
            elif kind == "DocumentEndEvent":
                self._anchors = {}
                self._sizes = [0]
        return self._documents

    def _open(self, container: Any, anchor: str | None) -> None:
        """Open a mapping or a sequence (`container`). Values are added to it until it is closed."""
        if len(self._stack) >= self._dialect.deepest:
            raise Malformed(f"nested more than {self._dialect.deepest} levels deep")
        self._stack.append((container, [], anchor))
        self._sizes.append(1)
        # an alias inside the container must not refer to an
        # earlier value with the container's anchor
        self._anchors.pop(anchor, None)

    def _merges(self, event: Any) -> bool:
        """Return whether a scalar is a merge key: an unquoted `<<` in the position of a mapping's
        next key.
        """
        if event.value != "<<" or not self._dialect.merged or not self._stack:
            return False
        is_plain = event.implicit[0] or event.tag == "tag:yaml.org,2002:merge"
        container, pending_key, _ = self._stack[-1]
        is_key = isinstance(container, dict) and not pending_key
        return bool(is_plain) and is_key

    def _merge(self, into: dict[Any, Any], value: Any) -> None:
        """Add the keys of `value`, the value of a merge key, to the mapping `into`. If `value` is a
        list of mappings, the first mapping that contains a key wins. Raises `Malformed`.

        As in Go, the order of lines matters: a key before `<<` is replaced, and a key after `<<`
        wins.
        """
        # The first mapping is added last, so that it wins.
        mappings = value[::-1] if isinstance(value, list) else [value]
        for mapping in mappings:
            if not isinstance(mapping, dict):
                raise Malformed("a merge key (<<) expects a mapping or a list of mappings")
            self._mergeable_keys -= len(mapping)
            if self._mergeable_keys < 0:
                raise Malformed(
                    "merge keys (<<) expand to more keys than the document has characters"
                )
            into.update(mapping)

    def _put(self, value: Any, size: int, anchor: str | None) -> None:
        """Add a value to the innermost open container: as an item, as the next key, or as the value
        of the pending key. If no container is open, the value is a document.

        `size` is the number of values in `value`, including itself, with aliases expanded.
        """
        self._sizes[-1] += size
        most = self._dialect.most  # 0 means no limit
        if most and self._sizes[-1] > most:
            raise Malformed("document contains excessive aliasing")
        if anchor:
            self._anchors[anchor] = (value, size)

        if not self._stack:
            self._documents.append(self._dialect.value(value))
            return
        container, pending_key, _ = self._stack[-1]
        if isinstance(container, list):
            container.append(self._dialect.value(value))
            return
        if not pending_key:
            pending_key.append(value if value is _MERGE else self._dialect.key(value, container))
            return
        key = pending_key.pop()
        if key is _MERGE:
            self._merge(container, value)
        else:
            container[key] = self._dialect.value(value)


@dataclass(frozen=True)
class ManifestDocument:
    """A document: its data, or the reason why it cannot be read."""

    data: Any
    line: int  # the number of its first line, counting from 1
    problem: str = ""
    text: str = ""  # the YAML; "" for JSON, whose data is already typed
    number: int = 0  # the document's index in its part of the file, counting from 0


def documents(text: str) -> Iterator[ManifestDocument]:
    """Yield the relevant documents of a YAML or JSON file: those that contain a word in `OURS`,
    such as `argoproj.io`.
    """
    text = text.removeprefix("\ufeff")
    if not OURS.search(text):
        return
    may_be_json = text.lstrip().startswith("{")
    if may_be_json:
        try:
            yield ManifestDocument(parsed_json(text), 1)
            return
        except ValueError:
            pass  # a YAML flow mapping, or broken JSON, which the YAML parser reports
    for chunk, line in _chunks(text):
        if OURS.search(chunk):
            yield from _read_chunk(chunk, line)


def broken(text: str) -> Iterator[ManifestDocument]:
    """Yield the documents that are not valid YAML among those that `documents` skips as irrelevant.
    To find them, all skipped documents are parsed.
    """
    for chunk, line in _chunks(text.removeprefix("\ufeff")):
        if OURS.search(chunk):
            continue
        for document in _read_chunk(chunk, line):
            if document.problem:
                yield document


def _chunks(text: str) -> Iterator[tuple[str, int]]:
    """Split a YAML text at the lines that start a document (`---`). Yield each part with the number
    of its first line, counting from 1.

    A text with directives (`%YAML 1.2`) is not split, because a directive belongs to the document
    that follows it.
    """
    starts = [match.start() for match in _START.finditer(text)]
    has_directives = re.search(r"^%", text, re.MULTILINE) is not None
    if has_directives:
        starts = []
    bounds = [0, *(start for start in starts if start > 0), len(text)]
    line = 1
    for start, end in pairwise(bounds):
        chunk = text[start:end]
        yield chunk, line
        line += chunk.count("\n")


def plain(text: str, *, exact: bool = False) -> Any:
    """Return the first document of any YAML text, or None if the text is empty. Raises `Malformed`.

    Merge keys are treated as ordinary keys. `exact` rejects constructs that parsers interpret
    differently: explicit tags and duplicate keys.
    """
    dialect = Dialect(_scalar, _unique_key if exact else _key, tags=not exact)
    data = loaded(text, dialect)
    return data[0] if data else None


def loaded_plain(text: str) -> list[Any]:
    """Return all documents of any YAML text, with the same rules as `plain`. Raises `Malformed`."""
    return loaded(text, Dialect(_scalar, _key, tags=True))


def _read_chunk(chunk: str, line: int) -> Iterator[ManifestDocument]:
    """Yield the documents in a part of a text. If the part cannot be read, yield one document with
    the reason in `problem`. `line` is the number of the part's first line in the text.
    """
    content = chunk.lstrip("-\r\n\t ")
    before_content = chunk.removesuffix(content)
    first_line = line + before_content.count("\n")
    dialect = Dialect(_scalar, _key, merged=_FEW + len(chunk))
    try:
        for number, data in enumerate(loaded(chunk, dialect)):
            yield ManifestDocument(data, first_line, text=chunk, number=number)
    except NotYaml as error:
        error_line = line + max(error.line, 1) - 1
        what = error.what
        if "\t" in chunk:
            # the parser does not name the character, which is probably a tab in the indentation
            what = what.replace("found character that", "found a character (a tab?) that")
        yield ManifestDocument(None, line, f"line {error_line}: {what}")
    except Malformed as error:
        yield ManifestDocument(None, line, error.message)


def _key(value: Any, _container: Mapping[Any, Any]) -> Any:
    """Return a value as a key. Mappings and sequences cannot be keys in Python, so their type is
    used instead.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    return str(type(value))


def _unique_key(value: Any, container: Mapping[Any, Any]) -> Any:
    """Return a value as a key. Raises `Malformed` if the mapping already contains it."""
    key = _key(value, container)
    if key in container:
        raise Malformed(f"the key {str(key)[:100]!r} appears twice", "keep one of them")
    return key


def _scalar(event: Any) -> Any:
    """Return the value of a scalar: a bool or None for an unquoted `true`, `false`, or `null` (in
    any of their spellings), and a string for everything else.
    """
    value = event.value
    is_string = event.style or event.tag  # a quoted, block, or tagged scalar
    if is_string:
        return value
    return None if value in NULL else _PLAIN.get(value, value)
