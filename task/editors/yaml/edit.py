"""Edits YAML text with splices, so that only the intended bytes change.

Scalars keep their quotes and block style. New keys and items follow the style of their neighbors.
The new text is then parsed: it may differ from the old text only in the intended nodes, and every
YAML reader must read the new values from those nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from task.editors.yaml.spelling import STRING, Data, Word, block, flow, reblock, sound, spell
from task.editors.yaml.tree import BREAKS, Node, Tree, pairs, parse, resolved, walk
from task.errors import TargetError

_WIDEST = 9  # columns after a dash; a wider gap does not count as the file's style
_BREAK = re.compile(f"[{BREAKS}]")
_PROPS = re.compile(r"(?:[&!][^\s]*(?:\s+|$)|#[^\n\r]*|\s+)*")


class Splice(NamedTuple):
    """Replaces `[start:end]` with `text`."""

    start: int
    end: int
    text: str


More = Mapping[str, Data] | Sequence[Data]  # new entries for a collection
# Compares an old and a new node. Returns the pairs to compare next, or None if the new node is not
# as intended.
Pairs = Iterable[tuple[Node, Node]]
Same = Callable[[Node, Node], Pairs | None]


def apply(text: str, splices: Sequence[Splice]) -> str:
    """Return the text with all splices applied. Splices at the same position keep their order."""
    parts = []
    copied = 0
    for start, end, fresh in sorted(splices, key=lambda splice: splice[:2]):  # sorting is stable
        parts += [text[copied:start], fresh]
        copied = end
    return "".join(parts) + text[copied:]


def more_than_meant() -> TargetError:
    """Return the error for an edit that would change more than intended."""
    hint = "put the value on its own line, as `key: value`"
    return TargetError("the edit would change more than intended", hint=hint)


def checked(tree: Tree, splices: Sequence[Splice], meant: Mapping[int, Same]) -> Tree:
    """Return the tree after the splices.

    `meant` says which nodes may differ (by the old node's id), and how.

    Raises TargetError if any other node differs, or if one of these nodes differs in a different
    way.
    """
    try:
        new = parse(apply(tree.text, splices))
    except TargetError as error:
        raise more_than_meant() from error
    # a value such as `---` would begin a document, and `...` would end it
    if len(new.roots) != len(tree.roots):
        raise more_than_meant()
    stack = list(zip(tree.roots, new.roots, strict=True))
    while stack:
        old, now = stack.pop()
        more = meant.get(id(old), _alike)(old, now)
        if more is None:
            raise more_than_meant()
        stack.extend(more)
    return new


def _alike(old: Node, new: Node) -> Pairs | None:
    same = (
        old.kind == new.kind
        and old.value == new.value
        and old.style == new.style  # a quoted number without its quotes is a different value
        and old.anchor == new.anchor
        and old.tag == new.tag
    )
    return _paired(old.children, new.children) if same else None


def _paired(old: Sequence[Node], new: Sequence[Node]) -> Pairs | None:
    return zip(old, new, strict=True) if len(old) == len(new) else None


def grows(more: More, *, last: bool = True) -> Same:
    """Accept a collection with these new entries at its end, or before its last entry."""
    width = 2 if isinstance(more, Mapping) else 1  # the children of one entry
    count = width * len(more)

    def same(old: Node, new: Node) -> Pairs | None:
        start = len(old.children) - (0 if last else width)
        end = start + count
        added = Node(new.kind, 0, 0, children=new.children[start:end])
        if new.anchor != old.anchor or not reads_as(added, more):
            return None
        return _paired(old.children, new.children[:start] + new.children[end:])

    return same


def shrinks(*numbers: int) -> Same:
    """Accept a collection without the entries at these positions."""
    gone = frozenset(numbers)

    def same(old: Node, new: Node) -> Pairs | None:
        if new.kind != old.kind:
            return None
        width = 2 if old.kind == "mapping" else 1  # the children of one entry
        left = [child for place, child in enumerate(old.children) if place // width not in gone]
        return _paired(left, new.children)

    return same


def reads_as(node: Node, data: Data) -> bool:
    """Return whether a node is exactly this data,
    and every YAML reader reads its strings as strings.
    """
    if isinstance(data, bool):
        return node.kind == "scalar" and not node.style and node.value == str(data).lower()
    if isinstance(data, str):
        return node.value == data and sound(node)
    if isinstance(data, Mapping):
        keys = [key.value for key, _ in pairs(node)] if node.kind == "mapping" else None
        return keys == list(data) and all(
            reads_as(value, data[key.value]) for key, value in pairs(node)
        )
    return (
        node.kind == "sequence"
        and len(node.children) == len(data)
        and all(map(reads_as, node.children, data))
    )


def becomes(data: Word, old: Node) -> Same:
    """Accept a node that has this value and keeps its anchor."""

    def same(_: Node, now: Node) -> Pairs | None:
        keeps_anchor = old.kind == "alias" or now.anchor == old.anchor
        return () if keeps_anchor and reads_as(now, data) else None

    return same


def splice(tree: Tree, new: Sequence[tuple[Node, Word]]) -> Tree:
    """Return the tree with new contents for some scalars, aliases, or nulls.

    Quotes, block headers, and anchors are kept.
    """
    if not new:
        return tree
    splices = [_scalar(tree, node, text) for node, text in new]
    return checked(tree, splices, {id(node): becomes(text, node) for node, text in new})


def _scalar(tree: Tree, node: Node, data: Word) -> Splice:
    # An application-specific tag (`!vault`) gives the value an unknown meaning.
    if node.tag not in {"", "!"} and not node.tag.startswith("tag:yaml.org,2002:"):
        raise TargetError(
            f"line {tree.line(node)} has a value tagged {node.tag}",
            hint="use a plain string",
        )
    text = tree.text
    start = body(text, node)
    nothing = start >= node.end
    if node.kind not in {"scalar", "alias"} or (isinstance(data, bool) and nothing):
        raise TargetError(
            f"line {tree.line(node)} does not have a single value",
            hint="use `key: value` on that line",
        )
    if isinstance(data, bool):
        return Splice(
            node.start,
            content_end(text, node),
            str(data).lower(),
        )
    # replace the alias itself, so that the anchor and its other uses keep their value
    if node.kind == "alias":
        return Splice(node.start, node.end, spell(data, quote=_quotes(tree, node, data)))
    if not node.style and nothing and (node.anchor or node.tag):  # `key: &anchor` without a value
        return Splice(
            node.start,
            node.end,
            f"{_props(tree, node, node.end).rstrip()} {spell(data)}".lstrip(),
        )
    if not node.style and nothing:
        at = slot(tree, node)  # after the `:` or the `-`
        return Splice(at, at, " " + spell(data, quote=_quotes(tree, node, data)))
    end = content_end(text, node)
    if node.style not in {"|", ">"}:
        spelled = spell(data, node.style, quote=_quotes(tree, node, data))
        return Splice(node.start, end, _props(tree, node, start) + spelled)
    end = max(end, node.start)
    fresh = reblock(text[start:end], data)
    if fresh is None:  # a block scalar without content has no indentation to copy
        return Splice(node.start, end, _props(tree, node, start) + spell(data, quote=True))
    return Splice(start, end, fresh)


def _props(tree: Tree, node: Node, start: int) -> str:
    """Return the anchor and tag as written, omitting a tag such as `!!float`.

    AIU v0 wrote `!!float v2.0.0`.
    """
    if node.tag in {"", STRING, "!"}:
        return tree.text[node.start : start]
    return f"&{node.anchor} " if node.anchor else ""


def _quotes(tree: Tree, node: Node, text: str) -> bool:
    """Return whether the value needs quotes at its position.

    Quotes are needed in JSON, after `"key":`, and in flow style if the value contains a colon.
    """
    parent = tree.parent(node)
    key = tree.key_of(node)
    if parent is None or parent.style != "{":
        return False
    behind = node.start < node.end and tree.text[node.start - 1] == ":"
    return (
        ":" in text
        or behind
        or bool(key and key.style == '"')
        or (key is None and quoted_keys(tree, node))
    )


def require_unshared(tree: Tree, node: Node) -> Node:
    """Return the node.

    Raises TargetError if an alias elsewhere shares its value and would change with it.
    """
    # an alias itself may be replaced, because it is not shared
    for parent in tree.ancestors(node):
        if others := tree.aliases(parent):
            here = tree.line(parent)
            lines = ", ".join(str(tree.line(other)) for other in others)
            name = parent.anchor
            hint = "write out the value where it must differ, or move the anchor"
            message = (
                f"line {here}: the value of the anchor &{name} is also used by *{name} on line"
                f" {lines}"
            )
            raise TargetError(message, hint=hint)
    return node


def has_text(node: Node, text: str) -> bool:
    """Return whether a scalar, or the scalar that an alias refers to, has this value and is a
    string for every YAML reader.
    """
    scalar = resolved(node)
    return scalar.kind == "scalar" and scalar.value == text and sound(scalar)


def with_texts(tree: Tree, wanted: Iterable[tuple[Node, str]]) -> Tree:
    """Return the tree with new values for some scalars.

    Raises TargetError if an alias elsewhere shares a scalar that must change.
    """
    return splice(
        tree,
        [(require_unshared(tree, node), text) for node, text in wanted if not has_text(node, text)],
    )


def add(tree: Tree, node: Node, more: More) -> Tree:
    """Return the tree with new keys at the end of a mapping, or new items at the end of a sequence.

    A null becomes a mapping or sequence. If the text has no documents, the first one begins below
    its comments.
    """
    text = tree.text
    if not tree.roots:
        return _with_first_document(tree, more)
    check = {id(node): grows(more)}
    parent = tree.parent(node)
    below_block_key = parent is not None and parent.style != "{"
    # Brackets are kept, but an empty list below a block key becomes a block list (in AIU, it
    # remains a flow list).
    becomes_block = not node.children and not isinstance(more, Mapping) and below_block_key
    if node.kind != "scalar" and node.style == "{" and not becomes_block:
        return checked(tree, _grow_flow(tree, node, more), check)
    if not node.children:
        return checked(tree, _fill(tree, node, more), check)
    try:
        at = line_end(text, content_end(text, node))
        width = dash_width(text, node) if node.kind == "sequence" else 2
        lines = eol(text) + _lines(tree, more, column(text, node), width)
        return checked(tree, [Splice(at, at, lines)], check)
    except TargetError:
        # Some last entries cannot be followed by a line, such as a block scalar at the end of the
        # file. Insert before them.
        last = node.children[-2] if node.kind == "mapping" else node.children[-1]
        at = line_start(text, last.start)
        lines = _lines(tree, more, column(text, node)) + eol(text)
        before_last = {id(node): grows(more, last=False)}
        return checked(tree, [Splice(at, at, lines)], before_last)


def _with_first_document(tree: Tree, more: More) -> Tree:
    text = tree.text
    splice = _append(text, len(text), _lines(tree, more, 0))
    new = parse(apply(text, [splice]))
    if len(new.roots) != 1 or not reads_as(new.roots[0], more):
        raise more_than_meant()
    return new


def _lines(tree: Tree, data: More, indent: int, width: int = 2) -> str:
    """Return the data as block lines, without a trailing line ending."""
    lines = block(data, *indents(tree), width)
    return eol(tree.text).join(" " * indent + line for line in lines)


def _grow_flow(tree: Tree, node: Node, more: More) -> list[Splice]:
    text = tree.text
    close = node.end - 1
    quote = quoted_keys(tree, node)
    fresh = flow(more, quote=quote)[1:-1]
    if not node.children:
        return [Splice(close, close, fresh)]
    end = content_end(text, node.children[-1])
    if node.kind == "mapping" and end <= node.children[-2].end:  # `{a: }`: the last value is empty
        last_key = node.children[-2]
        end = max(last_key.end, value_slot(text, last_key) or 0)
    first = node.children[0].start
    if not only_blank(text, line_start(text, first), first):
        return [Splice(end, end, f", {fresh}")]
    tail = line_end(text, end)
    if tail > close:  # the closing bracket is on the last entry's line
        return [Splice(end, end, f", {fresh}")]
    # There is one entry per line. If the last entry has a trailing comma, the new entry also
    # gets one.
    comma = "" if text[end:tail].lstrip().startswith(",") else ","
    margin = text[line_start(text, first) : first]
    return [
        Splice(end, end, comma),
        Splice(tail, tail, f"{eol(text)}{margin}{fresh}" + ("" if comma else ",")),
    ]


def _fill(tree: Tree, node: Node, more: More) -> list[Splice]:
    """Return the splices that fill a null or empty brackets.

    The new content is written as block lines below the key, or in flow style if the key is inside
    flow style.
    """
    text = tree.text
    parent = tree.parent(node)
    start = body(text, node)
    empty = start >= node.end
    if parent is None:
        return [_fill_root(tree, node, _lines(tree, more, 0))]
    at = slot(tree, node) if empty and not node.anchor else start
    if parent.style == "{":
        gap = " " if empty else ""
        fresh = flow(more, quote=quoted_keys(tree, parent))
        return [Splice(at, max(at, node.end), gap + fresh)]
    if parent.kind == "sequence":
        dash = column(text, parent)
        lines = _lines(tree, more, dash + 2).lstrip(" ")
        gap = "" if text[at - 1 : at] == " " else " "
        return [Splice(at, max(at, node.end), gap + lines)]
    # `key: ~` or `key: []` loses its value, and a trailing comment stays on the key's line.
    cut = [] if empty else [Splice(_without_blanks(text, start), node.end, "")]
    step, shift = indents(tree)
    indent = column(text, parent) + (step if isinstance(more, Mapping) else shift)
    tail = line_end(text, at if empty else node.end)
    return [*cut, Splice(tail, tail, eol(text) + _lines(tree, more, indent))]


def _fill_root(tree: Tree, node: Node, lines: str) -> Splice:
    text = tree.text
    start = body(text, node)
    if start < node.end:  # an explicit null or empty brackets
        at = line_start(text, start)
        if only_blank(text, at, start):
            return Splice(at, node.end, lines)
        return Splice(_without_blanks(text, start), node.end, eol(text) + lines)
    if node.anchor:
        return Splice(node.end, node.end, eol(text) + lines)
    ends = zip(tree.roots, tree.ends, strict=True)
    return _append(text, next(end for root, end in ends if root is node), lines)


def _without_blanks(text: str, end: int) -> int:
    return len(text[:end].rstrip(" \t"))


def _append(text: str, at: int, lines: str) -> Splice:
    """Return the splice that appends `lines` to a document, on separate lines."""
    before = "" if at == line_start(text, at) else eol(text)
    return Splice(at, at, before + lines + ("" if before else eol(text)))


def drop_key(tree: Tree, mapping: Node, key: Node) -> Tree:
    """Return the tree without a mapping key, including its line.

    Raises TargetError if it is the only key.
    """
    text = tree.text
    entries = list(pairs(mapping))
    index = next(number for number, (name, _) in enumerate(entries) if name is key)
    following = entries[index + 1][0].start if index + 1 < len(entries) else None
    end = entry_end(text, *entries[index])
    start = line_start(text, key.start)
    if mapping.style == "{":
        before = entries[index - 1]
        cut = (
            Splice(key.start, following, "")
            if following is not None
            else Splice(entry_end(text, *before), end, "")
        )
    elif only_blank(text, start, key.start):
        cut = _without_lines(text, start, line_end(text, end))
    elif following is not None:  # after a dash
        cut = Splice(key.start, following, "")
    else:
        raise TargetError(
            f"line {tree.line(key)}: {key.value} is the only key",
            hint="remove the entry by hand",
        )
    return checked(
        tree,
        [cut],
        {id(mapping): shrinks(index)},
    )


def drop_items(tree: Tree, sequence: Node, numbers: Sequence[int]) -> Tree:
    """Return the tree without some items of a block sequence, including their lines.

    An item that shares its line with anything else is kept.
    """
    text = tree.text
    cuts: dict[int, Splice] = {}
    for number in numbers:
        item = sequence.children[number]
        dash = len(text[: item.start].rstrip(" \t\r\n")) - 1  # the item may start below its dash
        start = line_start(text, dash)
        if text[dash] == "-" and only_blank(text, start, dash):
            cuts[number] = _without_lines(text, start, line_end(text, content_end(text, item)))
    # The removal is optional, so if it would change anything else, keep these items.
    try:
        return checked(
            tree,
            [*cuts.values()],
            {id(sequence): shrinks(*cuts)},
        )
    except TargetError:
        return tree


def _without_lines(text: str, start: int, tail: int) -> Splice:
    """Return the splice that removes whole lines and one line ending."""
    if tail < len(text):
        return Splice(start, tail + (2 if text[tail : tail + 2] == "\r\n" else 1), "")
    return Splice(start - (2 if text[start - 2 : start] == "\r\n" else 1), tail, "")


def eol(text: str) -> str:
    """Return the text's line ending, which is that of its first line."""
    at = text.find("\n")
    if at < 0 and "\r" in text:  # in YAML, a lone carriage return also ends a line
        return "\r"
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def line_end(text: str, at: int) -> int:
    """Return the end of the line that contains `at`, before its line ending."""
    match = _BREAK.search(text, at)
    return match.start() if match else len(text)


def line_start(text: str, at: int) -> int:
    """Return the start of the line that contains `at`.

    A byte order mark before the first line is not part of it.
    """
    while at > 0 and text[at - 1] not in BREAKS and not (at == 1 and text[0] == "\ufeff"):
        at -= 1
    return at


def only_blank(text: str, start: int, end: int) -> bool:
    """Return whether `text[start:end]` contains only spaces."""
    return not text[start:end].strip(" \t")


def body(text: str, node: Node) -> int:
    """Return the start of the node's own text, after its anchor and tag."""
    if not (node.anchor or node.tag) or node.kind == "alias":
        return node.start
    match = _PROPS.match(text, node.start, node.end)
    return match.end() if match else node.start


def content_end(text: str, node: Node) -> int:
    """Return the end of the node's content.

    Trailing blank lines and comments are not part of it.
    """
    # Parsers place the end of a block collection at the next token, so use the end of its last
    # scalar.
    while node.children and node.style != "{":
        key = node.children[-2] if node.kind == "mapping" else None
        node = node.children[-1]
        # `key:` without a value
        if key is not None and node.kind == "scalar" and node.start >= node.end:
            return max(key.end, value_slot(text, key) or 0)
    if node.kind != "scalar" or node.style not in {"|", ">"}:
        return node.end
    start = body(text, node)
    if "+" not in text[start : start + 3].split(" ", maxsplit=1)[0]:
        return len(text[: node.end].rstrip())
    # `|+` keeps its trailing blank lines
    end = node.end - int(text[: node.end].endswith(tuple(BREAKS)))
    return end - int(text[:end].endswith("\r") and text[end : end + 1] == "\n")


def entry_end(text: str, key: Node, value: Node) -> int:
    """Return the end of a mapping entry: after its value, or after `:` if it has no value."""
    return max(
        content_end(text, value),
        key.end,
        value_slot(text, key) or 0,
    )


def value_slot(text: str, key: Node) -> int | None:
    """Return the position after a key's `:`, or None if the key has no `:`."""
    at = key.end
    while at < len(text) and text[at] in " \t":
        at += 1
    return at + 1 if text[at : at + 1] == ":" else None


def slot(tree: Tree, node: Node) -> int:
    """Return the position where the value of a key or item without a value belongs.

    Raises TargetError if the key has no `:`.
    """
    key = tree.key_of(node)
    at = node.end if key is None else value_slot(tree.text, key)
    if at is None or key is node:
        raise TargetError(
            f"line {tree.line(node)} has a key without a value",
            hint="use `key: value` on that line",
        )
    return at


def quoted_keys(tree: Tree, node: Node) -> bool:
    """Return whether the keys around the node are double-quoted, as in JSON."""
    for parent in tree.ancestors(node):
        if parent.kind == "mapping" and parent.children:
            return parent.style == "{" and parent.children[0].style == '"'
    return False


def column(text: str, node: Node) -> int:
    """Return the column of a block collection's entries: its keys or its dashes."""
    if node.kind == "sequence":
        at = body(text, node)
    else:
        at = node.children[0].start
        # an explicit key starts at its question mark
        at = at - 2 if text[at - 2 : at] == "? " else at
    return at - line_start(text, at)


@lru_cache(maxsize=2)
def indents(tree: Tree) -> tuple[int, int]:
    """Return by how many columns the text indents a mapping in a mapping, and a sequence in a
    mapping.

    The first mapping and the first sequence in a mapping show the file's style. Otherwise, the
    mapping's indentation is that of the sequence, or 2, and the sequence's is 0.
    """
    of_mapping: int | None = None
    of_sequence: int | None = None
    for parent, child in _nested_blocks(tree):
        distance = column(tree.text, child) - column(tree.text, parent)
        if child.kind == "sequence" and of_sequence is None:
            of_sequence = max(0, distance)
        elif child.kind == "mapping" and of_mapping is None and distance > 0:
            of_mapping = distance
        if of_mapping is not None and of_sequence is not None:
            break
    return of_mapping or of_sequence or 2, of_sequence or 0


def _nested_blocks(tree: Tree) -> Iterator[tuple[Node, Node]]:
    """Yield each block collection that is a value in a block mapping, with that mapping."""
    for root in tree.roots:
        for node in walk(root):
            if node.kind != "mapping" or node.style == "{":
                continue
            for _, child in pairs(node):
                if child.children and child.style != "{":
                    yield node, child


def dash_width(text: str, sequence: Node) -> int:
    """Return the number of columns from the dash to the last item of a block sequence:
    2 for `- item`.
    """
    item = sequence.children[-1].start
    width = item - line_start(text, item) - column(text, sequence)
    return width if 1 < width < _WIDEST and only_blank(text, item - width + 1, item) else 2
