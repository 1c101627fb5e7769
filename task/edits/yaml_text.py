"""Changes YAML text by splicing: only the bytes that are meant, in the style of what stands around them.

Every change is checked by parsing the new text: it must differ from the old one in the meant
values only. A change that would do more is refused, never written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from task.edits.yaml_layout import (
    Data,
    block,
    body,
    column,
    content_end,
    eol,
    flow,
    indent_step,
    line_end,
    line_start,
    only_blank,
    sequence_shift,
    value_slot,
)
from task.edits.yaml_scalar import STRING, reblock, sound, spell
from task.edits.yaml_tree import Document, Node, Tree, pairs, parse
from task.errors import TargetError


class Splice(NamedTuple):
    """Put `text` in place of `[start:end]`."""

    start: int
    end: int
    text: str


Same = Callable[[Node, Node], Iterable[tuple[Node, Node]] | None]  # pairs still to compare, or None: not what was meant


def replace(tree: Tree, new: Sequence[tuple[Node, str | bool]]) -> Tree:
    """Other contents for scalars (or aliases, or nulls) of the tree; quotes, block headers and anchors stay."""
    splices = [_scalar(tree, node, text) for node, text in new]
    return _checked(tree, splices, {id(node): _becomes(text, node) for node, text in new})


def _becomes(data: str | bool, old: Node) -> Same:
    def same(_: Node, now: Node) -> tuple[tuple[Node, Node], ...] | None:
        return () if _holds(now, data) and (old.kind == "alias" or now.anchor == old.anchor) else None

    return same


def _scalar(tree: Tree, node: Node, data: str | bool) -> Splice:
    if node.tag not in {"", "!"} and not node.tag.startswith("tag:yaml.org,2002:"):
        raise TargetError(f"line {tree.line(node)} has a value tagged {node.tag}", hint="write it as a plain string")
    start = body(tree.text, node)
    if isinstance(data, bool) or node.kind not in {"scalar", "alias"}:
        return _flag(tree, node, start, data)
    text = data
    if node.kind == "alias":
        return Splice(node.start, node.end, spell(text, quote=_quotes(tree, node, text)))
    if not node.style and start >= node.end:
        return _into_nothing(tree, node, text)
    end = content_end(tree.text, node)
    if node.style in {"|", ">"}:
        return _into_block(tree, Splice(start, max(end, node.start), text), node)
    props = _props(tree, node, start)
    return Splice(node.start, end, props + spell(text, node.style, quote=_quotes(tree, node, text)))


def _flag(tree: Tree, node: Node, start: int, data: str | bool) -> Splice:
    if node.kind not in {"scalar", "alias"} or start >= node.end or not isinstance(data, bool):
        raise TargetError(f"line {tree.line(node)} holds no single value", hint="write `key: value` there")
    return Splice(node.start, content_end(tree.text, node), str(data).lower())


def _into_block(tree: Tree, at: Splice, node: Node) -> Splice:
    fresh = reblock(tree.text[at.start : at.end], at.text)
    if fresh is None:
        return Splice(node.start, at.end, _props(tree, node, at.start) + spell(at.text, quote=True))
    return Splice(at.start, at.end, fresh)


def _props(tree: Tree, node: Node, start: int) -> str:
    """The anchor and tag as written; a tag that makes it something else than a string goes."""
    if node.tag in {"", STRING, "!"}:
        return tree.text[node.start : start]
    return f"&{node.anchor} " if node.anchor else ""


def _into_nothing(tree: Tree, node: Node, text: str) -> Splice:
    """A value where nothing stands, behind the `:` or the `-` (or behind the anchor that stands there)."""
    if node.anchor or node.tag:
        props = (
            _props(tree, node, node.end) if node.tag in {"", STRING, "!"} else f"&{node.anchor}" if node.anchor else ""
        )
        return Splice(node.start, node.end, f"{props.rstrip()} {spell(text)}".lstrip())
    at = _slot(tree, node)
    return Splice(at, at, " " + spell(text, quote=_quotes(tree, node, text)))


def _slot(tree: Tree, node: Node) -> int:
    """Where a value that is not there would begin."""
    key = tree.key_of(node)
    at = node.end if key is None else value_slot(tree.text, key)
    if at is None or key is node:
        raise TargetError(f"line {tree.line(node)} has a key without a value", hint="write `key: value` there")
    return at


def _quotes(tree: Tree, node: Node, text: str) -> bool:
    """Whether the value needs quotes where it stands: in JSON, behind `"key":`, and in flow if it holds a colon."""
    parent, key = tree.parent(node), tree.key_of(node)
    if parent is None or parent.style != "{":
        return False
    behind = tree.text[node.start - 1] == ":"
    return ":" in text or behind or bool(key and key.style == '"') or (key is None and _quoted_keys(tree, node))


def add_keys(tree: Tree, mapping: Node, data: Mapping[str, Data]) -> Tree:
    """New last keys in a mapping (or in place of a null)."""
    return _grow(tree, mapping, data)


def add_items(tree: Tree, sequence: Node, data: Sequence[Data]) -> Tree:
    """New last items in a sequence (or in place of a null)."""
    return _grow(tree, sequence, data)


def _grow(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> Tree:
    check = {id(node): _grows(more)}
    if node.kind == "scalar":
        return _checked(tree, _fill(tree, node, more), check)
    if node.style == "{" and (node.children or isinstance(more, Mapping) or _in_flow(tree, node)):
        return _checked(tree, _grow_flow(tree, node, more), check)
    if not node.children:
        return _checked(tree, _fill(tree, node, more), check)
    try:
        return _checked(tree, _grow_block(tree, node, more), check)
    except TargetError:
        # What stands last cannot be followed by a line: a block scalar that ends with the file, for one.
        return _checked(tree, _grow_before(tree, node, more), {id(node): _grows(more, last=False)})


def _in_flow(tree: Tree, node: Node) -> bool:
    parent = tree.parent(node)
    return parent is None or parent.style == "{"


def _grow_block(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    at = line_end(tree.text, content_end(tree.text, node))
    return [Splice(at, at, _lines(tree, more, column(tree.text, node)))]


def _grow_before(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    """The same before the last entry."""
    last = node.children[-2] if node.kind == "mapping" else node.children[-1]
    at = line_start(tree.text, last.start)
    return [Splice(at, at, _lines(tree, more, column(tree.text, node))[len(eol(tree.text)) :] + eol(tree.text))]


def _lines(tree: Tree, data: Mapping[str, Data] | Sequence[Data], indent: int) -> str:
    """The data as block lines, each behind a line end."""
    lines = block(data, indent_step(tree), sequence_shift(tree))
    return "".join(f"{eol(tree.text)}{' ' * indent}{line}" for line in lines)


def _grow_flow(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    text, close = tree.text, node.end - 1
    quote = _quoted_keys(tree, node)
    fresh = flow(more, quote=quote)[1:-1]
    if not node.children:
        return [Splice(close, close, fresh)]
    end = content_end(text, node.children[-1])
    if node.kind == "mapping" and end <= node.children[-2].end:
        end = max(node.children[-2].end, value_slot(text, node.children[-2]) or 0)
    first = node.children[0].start
    if not only_blank(text, line_start(text, first), first):
        return [Splice(end, end, f", {fresh}")]
    tail = line_end(text, end)
    if tail > close:
        return [Splice(end, end, f", {fresh}")]
    comma = "" if text[end:tail].lstrip().startswith(",") else ","
    margin = text[line_start(text, first) : first]
    return [Splice(end, end, comma), Splice(tail, tail, f"{eol(text)}{margin}{fresh}" + ("" if comma else ","))]


def _quoted_keys(tree: Tree, node: Node) -> bool:
    """Whether keys are in double quotes here: JSON."""
    each: Node | None
    for each in tree.ancestors(node):
        if each.kind == "mapping" and each.children:
            return each.style == "{" and each.children[0].style == '"'
    return False


def _fill(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    """In place of a null or of empty brackets: block lines below the key, or flow inside flow."""
    text, parent = tree.text, tree.parent(node)
    start = body(text, node)
    if parent is None:
        return _fill_root(tree, node, more)
    empty = start >= node.end
    at = _slot(tree, node) if empty and not node.anchor else start
    if parent.style == "{":
        gap = " " if empty else ""
        return [Splice(at, max(at, node.end), gap + flow(more, quote=_quoted_keys(tree, parent)))]
    cut = [] if empty else [_without_blanks(text, Splice(start, node.end, ""))]
    if parent.kind == "sequence":
        return _fill_item(tree, Splice(at, max(at, node.end), ""), more, column(text, parent))
    indent = column(text, parent) + (indent_step(tree) if isinstance(more, Mapping) else sequence_shift(tree))
    tail = line_end(text, at if empty else node.end)
    return [*cut, Splice(tail, tail, _lines(tree, more, indent))]


def _fill_item(tree: Tree, at: Splice, more: Mapping[str, Data] | Sequence[Data], dash: int) -> list[Splice]:
    lines = _lines(tree, more, dash + 2)[len(eol(tree.text)) + dash + 2 :]
    gap = "" if tree.text[at.start - 1 : at.start] == " " else " "
    return [Splice(at.start, at.end, gap + lines)]


def _without_blanks(text: str, cut: Splice) -> Splice:
    start = cut.start
    while text[start - 1] in " \t":
        start -= 1
    return Splice(start, cut.end, "")


def _fill_root(tree: Tree, node: Node, more: Mapping[str, Data] | Sequence[Data]) -> list[Splice]:
    start = body(tree.text, node)
    fresh = _lines(tree, more, 0)[len(eol(tree.text)) :]
    if start < node.end:  # an explicit null or empty brackets
        at = line_start(tree.text, start)
        gap = "" if only_blank(tree.text, at, start) else eol(tree.text)
        return [Splice(start if gap else at, node.end, gap + fresh)]
    if node.anchor:
        return [Splice(node.end, node.end, eol(tree.text) + fresh)]
    at = next(doc.end for doc in tree.documents if doc.root is node)
    return [append(tree.text, at, fresh)]


def append(text: str, at: int, lines: str) -> Splice:
    """`lines` on lines of their own at the end of a document."""
    before = "" if at == line_start(text, at) else eol(text)
    return Splice(at, at, before + lines + ("" if before else eol(text)))


def begin(tree: Tree, data: Mapping[str, Data]) -> Tree:
    """The first document of a text that holds none, behind its comments."""
    splice = append(tree.text, len(tree.text), _lines(tree, data, 0)[len(eol(tree.text)) :])
    new = parse(_apply(tree.text, [splice]))
    if len(new.documents) != 1 or not _holds(new.documents[0].root, data):
        raise _more_than_meant()
    return new


def drop_key(tree: Tree, mapping: Node, key: Node) -> Tree:
    """The mapping without one of its keys, with its whole line."""
    index = next(number for number, (name, _) in enumerate(pairs(mapping)) if name is key)
    return _checked(tree, [_cut(tree, mapping, index)], {id(mapping): _shrinks(index)})


def _cut(tree: Tree, mapping: Node, index: int) -> Splice:
    text, entries = tree.text, list(pairs(mapping))
    key, gone = entries[index]
    end = max(content_end(text, gone), key.end, value_slot(text, key) or 0)
    following = entries[index + 1][0].start if index + 1 < len(entries) else None
    if mapping.style == "{":
        if following is not None:
            return Splice(key.start, following, "")
        before = entries[index - 1]
        return Splice(max(content_end(text, before[1]), before[0].end, value_slot(text, before[0]) or 0), end, "")
    if not only_blank(text, line_start(text, key.start), key.start):  # behind a dash
        if following is None:
            raise TargetError(f"line {tree.line(key)}: {key.value} is all there is", hint="remove that entry by hand")
        return Splice(key.start, following, "")
    start, tail = line_start(text, key.start), line_end(text, end)
    if tail < len(text):
        return Splice(start, tail + (2 if text[tail : tail + 2] == "\r\n" else 1), "")
    return Splice(start - (2 if text[start - 2 : start] == "\r\n" else 1), tail, "")


def _apply(text: str, splices: Iterable[Splice]) -> str:
    for start, end, fresh in reversed(sorted(splices, key=lambda splice: splice[:2])):
        text = text[:start] + fresh + text[end:]
    return text


def _more_than_meant() -> TargetError:
    return TargetError(
        "the edit would change more than was meant", hint="write the value on a line of its own, as `key: value`"
    )


def _checked(tree: Tree, splices: Sequence[Splice], meant: Mapping[int, Same]) -> Tree:
    try:
        new = parse(_apply(tree.text, splices))
    except TargetError as error:
        raise _more_than_meant() from error
    if len(new.documents) != len(tree.documents) or not _same(zip(tree.documents, new.documents, strict=True), meant):
        raise _more_than_meant()
    return new


def _same(documents: Iterable[tuple[Document, Document]], meant: Mapping[int, Same]) -> bool:
    """Whether two streams say the same, but for the nodes that were meant to change."""
    stack = [(old.root, new.root) for old, new in documents]
    while stack:
        old, new = stack.pop()
        more = meant[id(old)](old, new) if id(old) in meant else _alike(old, new)
        if more is None:
            return False
        stack.extend(more)
    return True


def _alike(old: Node, new: Node) -> Iterable[tuple[Node, Node]] | None:
    if (old.kind, old.value, old.style, old.anchor, old.tag) != (new.kind, new.value, new.style, new.anchor, new.tag):
        return None
    return zip(old.children, new.children, strict=True) if len(old.children) == len(new.children) else None


def _grows(more: Mapping[str, Data] | Sequence[Data], *, last: bool = True) -> Same:
    count = 2 * len(more) if isinstance(more, Mapping) else len(more)
    width = 2 if isinstance(more, Mapping) else 1

    def same(old: Node, new: Node) -> Iterable[tuple[Node, Node]] | None:
        at = len(old.children) - (0 if last else width)
        fresh = Node(new.kind, 0, 0, children=new.children[at : at + count])
        if len(new.children) != len(old.children) + count or new.anchor != old.anchor or not _holds(fresh, more):
            return None
        return zip(old.children, new.children[:at] + new.children[at + count :], strict=True)

    return same


def _shrinks(index: int) -> Same:
    def same(old: Node, new: Node) -> Iterable[tuple[Node, Node]] | None:
        left = old.children[: 2 * index] + old.children[2 * index + 2 :]
        return (
            zip(left, new.children, strict=True) if len(left) == len(new.children) and new.kind == "mapping" else None
        )

    return same


def _holds(node: Node, data: Data) -> bool:
    """Whether a node says exactly this data, its strings being strings for every reader."""
    if isinstance(data, bool):
        return node.kind == "scalar" and not node.style and node.value == str(data).lower()
    if isinstance(data, str):
        return node.value == data and sound(node)
    if isinstance(data, Mapping):
        keys = [key.value for key, _ in pairs(node)] if node.kind == "mapping" else None
        return keys == list(data) and all(_holds(value, data[key.value]) for key, value in pairs(node))
    return node.kind == "sequence" and len(node.children) == len(data) and all(map(_holds, node.children, data))
