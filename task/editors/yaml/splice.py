"""Changes scalars in YAML text by splicing: only their bytes, in the quotes or the block they stand in."""

from __future__ import annotations

from collections.abc import Sequence

from task.editors.yaml.check import Splice, becomes, checked
from task.editors.yaml.layout import Word, body, content_end, quoted_keys, slot
from task.editors.yaml.scalar import STRING, reblock, spell
from task.editors.yaml.tree import Node, Tree
from task.errors import TargetError


def splice(tree: Tree, new: Sequence[tuple[Node, Word]]) -> Tree:
    """Other contents for scalars (or aliases, or nulls) of the tree; quotes, block headers and anchors stay."""
    splices = [_scalar(tree, node, text) for node, text in new]
    return checked(tree, splices, {id(node): becomes(text, node) for node, text in new})


def _scalar(tree: Tree, node: Node, data: Word) -> Splice:
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


def _flag(tree: Tree, node: Node, start: int, data: Word) -> Splice:
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
    at = slot(tree, node)
    return Splice(at, at, " " + spell(text, quote=_quotes(tree, node, text)))


def _quotes(tree: Tree, node: Node, text: str) -> bool:
    """Whether the value needs quotes where it stands: in JSON, behind `"key":`, and in flow if it holds a colon."""
    parent, key = tree.parent(node), tree.key_of(node)
    if parent is None or parent.style != "{":
        return False
    behind = node.start < node.end and tree.text[node.start - 1] == ":"
    return ":" in text or behind or bool(key and key.style == '"') or (key is None and quoted_keys(tree, node))
