"""Changes scalars in YAML text by splices: only their bytes change. Quotes and block style stay."""

from __future__ import annotations

from collections.abc import Sequence

from task.editors.yaml.check import Splice, becomes, checked
from task.editors.yaml.layout import Word, body, content_end, quoted_keys, slot
from task.editors.yaml.scalar import STRING, reblock, spell
from task.editors.yaml.tree import Node, Tree
from task.errors import TargetError


def splice(tree: Tree, new: Sequence[tuple[Node, Word]]) -> Tree:
    """Return the tree with new contents for some scalars, aliases or nulls. Quotes, block headers and anchors stay."""
    splices = [_scalar(tree, node, text) for node, text in new]
    return checked(tree, splices, {id(node): becomes(text, node) for node, text in new})


def _scalar(tree: Tree, node: Node, data: Word) -> Splice:
    # An application's own tag (`!vault`) gives the text an unknown meaning.
    if node.tag not in {"", "!"} and not node.tag.startswith("tag:yaml.org,2002:"):
        raise TargetError(f"line {tree.line(node)} has a value tagged {node.tag}", hint="write it as a plain string")
    text, start = tree.text, body(tree.text, node)
    nothing = start >= node.end
    if node.kind not in {"scalar", "alias"} or (isinstance(data, bool) and nothing):
        raise TargetError(f"line {tree.line(node)} does not have a single value", hint="write `key: value` there")
    if isinstance(data, bool):
        return Splice(node.start, content_end(text, node), str(data).lower())
    if node.kind == "alias":  # replace the alias itself, so that the anchor and its other uses keep their value
        return Splice(node.start, node.end, spell(data, quote=_quotes(tree, node, data)))
    if not node.style and nothing and (node.anchor or node.tag):  # `key: &anchor` without a value
        return Splice(node.start, node.end, f"{_props(tree, node, node.end).rstrip()} {spell(data)}".lstrip())
    if not node.style and nothing:
        at = slot(tree, node)  # after the `:` or the `-`
        return Splice(at, at, " " + spell(data, quote=_quotes(tree, node, data)))
    end = content_end(text, node)
    if node.style not in {"|", ">"}:
        spelled = spell(data, node.style, quote=_quotes(tree, node, data))
        return Splice(node.start, end, _props(tree, node, start) + spelled)
    end = max(end, node.start)
    fresh = reblock(text[start:end], data)
    if fresh is None:  # a block scalar without content has no indentation to follow
        return Splice(node.start, end, _props(tree, node, start) + spell(data, quote=True))
    return Splice(start, end, fresh)


def _props(tree: Tree, node: Node, start: int) -> str:
    """Return the anchor and tag as written, but without a tag such as `!!float`. AIU v0 wrote `!!float v2.0.0`."""
    if node.tag in {"", STRING, "!"}:
        return tree.text[node.start : start]
    return f"&{node.anchor} " if node.anchor else ""


def _quotes(tree: Tree, node: Node, text: str) -> bool:
    """Tell whether the value needs quotes at its place.

    It does in JSON, after `"key":`, and in flow style if it has a colon.
    """
    parent, key = tree.parent(node), tree.key_of(node)
    if parent is None or parent.style != "{":
        return False
    behind = node.start < node.end and tree.text[node.start - 1] == ":"
    return ":" in text or behind or bool(key and key.style == '"') or (key is None and quoted_keys(tree, node))
