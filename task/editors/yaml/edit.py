"""Edits YAML text with splices, so that only the intended bytes change.

Scalars keep their quotes and block style. New keys and items follow the style of their neighbors.
The new text is then parsed: only the intended nodes may differ from the old text, and every YAML
reader must read them as the new values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from task.editors.yaml.spelling import (
    STRING,
    Data,
    Word,
    block,
    flow,
    reads_as_string,
    reblock,
    spell,
)
from task.editors.yaml.tree import BREAKS, Node, Tree, pairs, parse, resolved, walk
from task.errors import TargetError

_LONGEST_HEADER = 3  # the longest header of a block scalar, such as `|+2`
_QUESTION_MARK = "? "  # introduces an explicit key
_WIDEST = 9  # columns after a dash; a wider gap does not count as the file's style
_BREAK = re.compile(f"[{BREAKS}]")
_PROPERTIES = re.compile(r"(?:[&!][^\s]*(?:\s+|$)|#[^\n\r]*|\s+)*")


class Splice(NamedTuple):
    """Replaces `[start:end]` with `text`."""

    start: int
    end: int
    text: str


More = Mapping[str, Data] | Sequence[Data]  # new entries to add to a collection
# Compares an old and a new node, without their children. Returns the pairs of children to compare
# next, or None if the new node is not as intended.
Pairs = Iterable[tuple[Node, Node]]
Comparison = Callable[[Node, Node], Pairs | None]


def apply(text: str, splices: Sequence[Splice]) -> str:
    """Return the text with all splices applied. Splices at the same position keep their order."""
    parts = []
    copied_until = 0  # up to here, the old text has been copied
    for start, end, new_text in sorted(splices, key=lambda splice: (splice.start, splice.end)):
        parts += [text[copied_until:start], new_text]
        copied_until = end
    return "".join(parts) + text[copied_until:]


def unintended_change() -> TargetError:
    """Return the error for an edit that would change more than intended."""
    hint = "put the value on its own line, as `key: value`"
    return TargetError("the edit would change more than intended", hint=hint)


def checked(tree: Tree, splices: Sequence[Splice], comparisons: Mapping[int, Comparison]) -> Tree:
    """Return the tree after the splices, in which only the intended nodes may differ.

    `comparisons` maps the id of each old node that may differ to the function that accepts the new
    node.

    Raises TargetError if any other node differs, or if a new node is not accepted.
    """
    try:
        new_tree = parse(apply(tree.text, splices))
    except TargetError as error:
        raise unintended_change() from error
    # a value such as `---` would begin a document, and `...` would end it
    if len(new_tree.roots) != len(tree.roots):
        raise unintended_change()

    pairs_to_compare = list(zip(tree.roots, new_tree.roots, strict=True))
    while pairs_to_compare:
        old_node, new_node = pairs_to_compare.pop()
        compare = comparisons.get(id(old_node), _accept_unchanged)
        inner_pairs = compare(old_node, new_node)
        if inner_pairs is None:
            raise unintended_change()
        pairs_to_compare.extend(inner_pairs)
    return new_tree


def _accept_unchanged(old: Node, new: Node) -> Pairs | None:
    """Return the pairs of children to compare if a node is otherwise unchanged, or else None."""
    is_same = (
        old.kind == new.kind
        and old.value == new.value
        and old.style == new.style  # without its quotes, a quoted number is a different value
        and old.anchor == new.anchor
        and old.tag == new.tag
    )
    return _paired(old.children, new.children) if is_same else None


def _paired(old: Sequence[Node], new: Sequence[Node]) -> Pairs | None:
    """Return pairs of old and new nodes, or None if the numbers of nodes differ."""
    return zip(old, new, strict=True) if len(old) == len(new) else None


def accept_new_entries(more: More, *, last: bool = True) -> Comparison:
    """Return a comparison that accepts a collection to which these entries have been added, at its
    end or, without `last`, before its last entry.
    """
    children_per_entry = 2 if isinstance(more, Mapping) else 1
    added_count = children_per_entry * len(more)

    def compare(old: Node, new: Node) -> Pairs | None:
        start = len(old.children)  # where the added entries start
        if not last:
            start -= children_per_entry
        end = start + added_count
        added_entries = Node(new.kind, 0, 0, children=new.children[start:end])
        if new.anchor != old.anchor or not reads_as(added_entries, more):
            return None
        other_children = new.children[:start] + new.children[end:]
        return _paired(old.children, other_children)

    return compare


def accept_removal(*numbers: int) -> Comparison:
    """Return a comparison that accepts a collection from which the entries at these positions have
    been removed.
    """
    removed = frozenset(numbers)

    def compare(old: Node, new: Node) -> Pairs | None:
        if new.kind != old.kind:
            return None
        children_per_entry = 2 if old.kind == "mapping" else 1
        remaining_children = [
            child
            for number, child in enumerate(old.children)
            if number // children_per_entry not in removed  # the entry's position
        ]
        return _paired(remaining_children, new.children)

    return compare


def reads_as(node: Node, data: Data) -> bool:
    """Return whether a node contains exactly this data, and every YAML reader reads its strings as
    strings.
    """
    if isinstance(data, bool):
        return node.kind == "scalar" and not node.style and node.value == str(data).lower()
    if isinstance(data, str):
        return node.value == data and reads_as_string(node)
    if isinstance(data, Mapping):
        if node.kind != "mapping":
            return False
        keys = [key.value for key, _ in pairs(node)]
        if keys != list(data):
            return False
        return all(reads_as(value, data[key.value]) for key, value in pairs(node))
    return (
        node.kind == "sequence"
        and len(node.children) == len(data)
        and all(map(reads_as, node.children, data))
    )


def accept_value(data: Word) -> Comparison:
    """Return a comparison that accepts a node if it has this value and keeps the old node's
    anchor.
    """

    def compare(old: Node, new: Node) -> Pairs | None:
        keeps_anchor = old.kind == "alias" or new.anchor == old.anchor
        return () if keeps_anchor and reads_as(new, data) else None

    return compare


def splice(tree: Tree, new: Sequence[tuple[Node, Word]]) -> Tree:
    """Return the tree after changing the contents of some scalars, YAML aliases, or nulls.

    Quotes, block headers, and anchors are kept. Raises TargetError if a node cannot take a value,
    or if anything else would change.
    """
    if not new:
        return tree
    splices = [_scalar_splice(tree, node, text) for node, text in new]
    return checked(tree, splices, {id(node): accept_value(text) for node, text in new})


def _scalar_splice(tree: Tree, node: Node, data: Word) -> Splice:
    """Return the splice that sets the new content of a scalar, YAML alias, or null.

    Raises TargetError if the node is a collection, if it has an unknown tag, or if it is empty and
    the content is a boolean.
    """
    # An application-specific tag (`!vault`) gives a value an unknown meaning.
    if node.tag not in {"", "!"} and not node.tag.startswith("tag:yaml.org,2002:"):
        raise TargetError(
            f"line {tree.line(node)} has a value tagged {node.tag}",
            hint="use a plain string",
        )
    start = content_start(tree.text, node)
    end = content_end(tree.text, node)
    is_empty = start >= node.end  # `key:`, or only an anchor or a tag
    is_collection = node.kind not in {"scalar", "alias"}
    fills_with_boolean = isinstance(data, bool) and is_empty
    if is_collection or fills_with_boolean:
        raise TargetError(
            f"line {tree.line(node)} does not have a single value",
            hint="use `key: value` on that line",
        )
    if isinstance(data, bool):
        return Splice(node.start, end, str(data).lower())
    if node.kind == "alias":
        # replace the alias itself, so that the anchor and its other uses keep the value
        return Splice(node.start, node.end, spell(data, quote=_must_be_quoted(tree, node, data)))
    if node.style in {"|", ">"}:
        return _block_scalar_splice(tree, node, data)
    if is_empty and not node.style:
        return _splice_for_first_value(tree, node, data)
    spelled = spell(data, node.style, quote=_must_be_quoted(tree, node, data))
    return Splice(node.start, end, _anchor_and_tag(tree, node, start) + spelled)


def _splice_for_first_value(tree: Tree, node: Node, text: str) -> Splice:
    """Return the splice that inserts a value for a key or item that has none."""
    if node.anchor or node.tag:  # `key: &anchor`
        properties = _anchor_and_tag(tree, node, node.end).rstrip()
        return Splice(node.start, node.end, f"{properties} {spell(text)}".lstrip())
    position = position_of_missing_value(tree, node)  # after the `:` or the `-`
    return Splice(position, position, " " + spell(text, quote=_must_be_quoted(tree, node, text)))


def _block_scalar_splice(tree: Tree, node: Node, content: str) -> Splice:
    """Return the splice that sets the new content of a block scalar (`|` or `>`). If a block scalar
    cannot represent the content, the content is quoted instead.
    """
    start = content_start(tree.text, node)
    end = content_end(tree.text, node)
    block_scalar = reblock(tree.text[start:end], content)
    if block_scalar is None:
        quoted = spell(content, quote=True)
        return Splice(node.start, end, _anchor_and_tag(tree, node, start) + quoted)
    return Splice(start, end, block_scalar)


def _anchor_and_tag(tree: Tree, node: Node, start: int) -> str:
    """Return the anchor and tag before `start` as they are written, but omit a tag such as
    `!!float`.

    AIU v0 wrote `!!float v2.0.0`.
    """
    if node.tag in {"", STRING, "!"}:
        return tree.text[node.start : start]
    return f"&{node.anchor} " if node.anchor else ""


def _must_be_quoted(tree: Tree, node: Node, text: str) -> bool:
    """Return whether the value needs quotes at its position in flow style (`{a: b}`) or JSON.

    Quotes are needed if the value contains a colon, if a colon directly precedes it, or if the keys
    around it are double-quoted, as in JSON.
    """
    parent = tree.parent(node)
    if parent is None or parent.style != "{":  # not in flow style
        return False
    follows_colon = node.start < node.end and tree.text[node.start - 1] == ":"  # {"a":1}
    if ":" in text or follows_colon:
        return True
    key = tree.key_of(node)
    if key is None:  # an item of a list
        return quoted_keys(tree, node)
    return key.style == '"'


def require_unshared(tree: Tree, node: Node) -> Node:
    """Return the node if it can be changed on its own.

    Raises TargetError if a YAML alias elsewhere shares the value of the node or of a collection
    around it, because the alias would change as well.
    """
    # an alias itself is not shared, so it may be replaced
    for ancestor in tree.ancestors(node):
        aliases = tree.aliases(ancestor)
        if aliases:
            lines = ", ".join(str(tree.line(alias)) for alias in aliases)
            name = ancestor.anchor
            hint = "write out the value where it must differ, or move the anchor"
            message = (
                f"line {tree.line(ancestor)}: the value of the anchor &{name} is also used by"
                f" *{name} on line {lines}"
            )
            raise TargetError(message, hint=hint)
    return node


def has_text(node: Node, text: str) -> bool:
    """Return whether a scalar, or the scalar that an alias refers to, has this value, and every
    YAML reader reads it as a string.
    """
    scalar = resolved(node)
    return scalar.kind == "scalar" and scalar.value == text and reads_as_string(scalar)


def with_texts(tree: Tree, wanted: Iterable[tuple[Node, str]]) -> Tree:
    """Return the tree with new values for some scalars. A scalar that already has its new value is
    left unchanged.

    Raises TargetError if a YAML alias elsewhere shares a scalar that must change.
    """
    outdated = [(node, text) for node, text in wanted if not has_text(node, text)]
    return splice(tree, [(require_unshared(tree, node), text) for node, text in outdated])


def add(tree: Tree, node: Node, more: More) -> Tree:
    """Return the tree with new keys at the end of a mapping, or new items at the end of a sequence.

    A null becomes a mapping or sequence. If the text contains no documents, the first document is
    added below its comments.
    """
    if not tree.roots:
        return _with_first_document(tree, more)
    if _keeps_brackets(tree, node, more):
        return checked(
            tree, _splices_in_brackets(tree, node, more), {id(node): accept_new_entries(more)}
        )
    if not node.children:
        return checked(
            tree, _splices_to_fill(tree, node, more), {id(node): accept_new_entries(more)}
        )
    return _with_block_entries(tree, node, more)


def _keeps_brackets(tree: Tree, node: Node, more: More) -> bool:
    """Return whether a node is a flow collection (`{…}` or `[…]`) that stays in flow style when
    these entries are added.

    An empty collection that is the value of a key in block style is converted to block style if the
    new entries are items of a list (AIU keeps a flow list).
    """
    has_brackets = node.kind != "scalar" and node.style == "{"
    if not has_brackets:
        return False
    parent = tree.parent(node)
    is_below_block_key = parent is not None and parent.style != "{"
    becomes_list = not node.children and not isinstance(more, Mapping)
    return not (is_below_block_key and becomes_list)


def _with_block_entries(tree: Tree, node: Node, more: More) -> Tree:
    """Return the tree with these entries as new lines at the end of a block collection, which must
    not be empty.
    """
    text = tree.text
    indent = column(text, node)
    try:
        end = line_end(text, content_end(text, node))
        width = dash_width(text, node) if node.kind == "sequence" else 2
        lines = eol(text) + _lines(tree, more, indent, width)
        return checked(tree, [Splice(end, end, lines)], {id(node): accept_new_entries(more)})
    except TargetError:
        # New lines cannot follow certain last entries, such as a block scalar at the end of the
        # file. In that case, insert the lines before the last entry.
        last_entry = node.children[-2] if node.kind == "mapping" else node.children[-1]
        start = line_start(text, last_entry.start)
        lines = _lines(tree, more, indent) + eol(text)
        return checked(
            tree, [Splice(start, start, lines)], {id(node): accept_new_entries(more, last=False)}
        )


def _with_first_document(tree: Tree, more: More) -> Tree:
    """Return the tree of a text that contains no documents, with these entries as its first
    document.
    """
    text = tree.text
    splice = _splice_to_append(text, len(text), _lines(tree, more, 0))
    new = parse(apply(text, [splice]))
    if len(new.roots) != 1 or not reads_as(new.roots[0], more):
        raise unintended_change()
    return new


def _lines(tree: Tree, data: More, indent: int, width: int = 2) -> str:
    """Return the data as lines in block style, without a trailing line ending."""
    lines = block(data, *indents(tree), width)
    return eol(tree.text).join(" " * indent + line for line in lines)


def _splices_in_brackets(tree: Tree, node: Node, more: More) -> list[Splice]:
    """Return the splices that add entries at the end of a flow collection."""
    text = tree.text
    closing_bracket = node.end - 1
    in_brackets = flow(more, quote=quoted_keys(tree, node))
    new_entries = in_brackets[1:-1]  # omit the brackets of `more`
    if not node.children:
        return [Splice(closing_bracket, closing_bracket, new_entries)]

    if node.kind == "mapping":
        end = entry_end(text, *node.children[-2:])
    else:
        end = content_end(text, node.children[-1])
    first_entry = node.children[0].start
    margin = text[line_start(text, first_entry) : first_entry]  # what precedes the first entry
    last_line_end = line_end(text, end)  # the end of the last entry's line
    first_has_own_line = not margin.strip(" \t")
    bracket_has_own_line = last_line_end <= closing_bracket
    if not first_has_own_line or not bracket_has_own_line:
        return [Splice(end, end, f", {new_entries}")]

    # Each entry has its own line. If the last entry has a trailing comma, the new entry also gets
    # one.
    new_line = f"{eol(text)}{margin}{new_entries}"
    has_trailing_comma = text[end:last_line_end].lstrip().startswith(",")
    if has_trailing_comma:
        return [Splice(last_line_end, last_line_end, f"{new_line},")]
    return [Splice(end, end, ","), Splice(last_line_end, last_line_end, new_line)]


def _splices_to_fill(tree: Tree, node: Node, more: More) -> list[Splice]:
    """Return the splices that fill a null or an empty flow collection with these entries.

    The entries are written in block style below the key or after the dash, or in flow style if the
    node is inside a flow collection.
    """
    text = tree.text
    parent = tree.parent(node)
    if parent is None:
        return [_splice_to_fill_root(tree, node, _lines(tree, more, 0))]

    start = content_start(text, node)
    is_empty = start >= node.end  # not even `~` or brackets
    if is_empty and not node.anchor:
        start = position_of_missing_value(tree, node)  # after the `:` or the `-`
    end = max(start, node.end)
    if parent.style == "{":
        gap = " " if is_empty else ""
        return [Splice(start, end, gap + flow(more, quote=quoted_keys(tree, parent)))]
    if parent.kind == "sequence":
        # The first line of the content follows the dash.
        content_column = column(text, parent) + len("- ")
        content = _lines(tree, more, content_column).lstrip(" ")
        gap = "" if text[start - 1 : start] == " " else " "
        return [Splice(start, end, gap + content)]

    mapping_indent, sequence_indent = indents(tree)
    indent = mapping_indent if isinstance(more, Mapping) else sequence_indent
    new_lines = eol(text) + _lines(tree, more, column(text, parent) + indent)
    if is_empty:
        end = line_end(text, start)
        return [Splice(end, end, new_lines)]
    # In `key: ~` or `key: []`, the value is removed, and a trailing comment remains on the key's
    # line.
    without_value = Splice(_without_blanks(text, start), node.end, "")
    end = line_end(text, node.end)
    return [without_value, Splice(end, end, new_lines)]


def _splice_to_fill_root(tree: Tree, node: Node, lines: str) -> Splice:
    """Return the splice that fills a document whose root is a null or an empty flow collection."""
    text = tree.text
    start = content_start(text, node)
    is_written_out = start < node.end  # an explicit null or empty brackets
    if is_written_out:
        own_line = line_start(text, start)
        if only_blank(text, own_line, start):
            return Splice(own_line, node.end, lines)
        return Splice(_without_blanks(text, start), node.end, eol(text) + lines)
    if node.anchor:
        return Splice(node.end, node.end, eol(text) + lines)
    ends = {id(root): end for root, end in zip(tree.roots, tree.ends, strict=True)}
    return _splice_to_append(text, ends[id(node)], lines)


def _without_blanks(text: str, end: int) -> int:
    """Return the position after the last character before `end` that is neither a space nor
    a tab.
    """
    return len(text[:end].rstrip(" \t"))


def _splice_to_append(text: str, position: int, lines: str) -> Splice:
    """Return the splice that inserts `lines` at the end of a document, as separate lines."""
    is_at_line_start = position == line_start(text, position)
    new_text = lines + eol(text) if is_at_line_start else eol(text) + lines
    return Splice(position, position, new_text)


def drop_key(tree: Tree, mapping: Node, key: Node) -> Tree:
    """Return the tree with a mapping key and its value removed. If the key is on its own line, that
    line is also removed.

    Raises TargetError if the key follows a dash and is the mapping's only key.
    """
    text = tree.text
    entries = list(pairs(mapping))
    index = next(number for number, (name, _) in enumerate(entries) if name is key)
    is_last = index == len(entries) - 1
    end = entry_end(text, *entries[index])
    start = line_start(text, key.start)
    in_brackets = mapping.style == "{"
    has_own_line = only_blank(text, start, key.start)
    if has_own_line and not in_brackets:
        cut = _splice_to_remove_lines(text, start, line_end(text, end))
    elif not is_last:  # in a flow collection or after a dash
        next_key, _ = entries[index + 1]
        cut = Splice(key.start, next_key.start, "")
    elif in_brackets:
        previous_key, previous_value = entries[index - 1]
        cut = Splice(entry_end(text, previous_key, previous_value), end, "")
    else:
        raise TargetError(
            f"line {tree.line(key)}: {key.value} is the only key",
            hint="remove the entry by hand",
        )
    return checked(tree, [cut], {id(mapping): accept_removal(index)})


def drop_items(tree: Tree, sequence: Node, numbers: Sequence[int]) -> Tree:
    """Return the tree without the items at these positions of a block sequence, and without their
    lines.

    An item is kept if its dash is not the first text on its line. If removing the items would
    change anything else, all of them are kept.
    """
    text = tree.text
    cuts: dict[int, Splice] = {}  # keyed by the item's position
    for number in numbers:
        item = sequence.children[number]
        # the item may start below its dash
        text_up_to_dash = text[: item.start].rstrip(" \t\r\n")
        dash = len(text_up_to_dash) - len("-")
        start = line_start(text, dash)
        has_own_line = text[dash] == "-" and only_blank(text, start, dash)
        if has_own_line:
            end = line_end(text, content_end(text, item))
            cuts[number] = _splice_to_remove_lines(text, start, end)
    try:
        return checked(tree, list(cuts.values()), {id(sequence): accept_removal(*cuts)})
    except TargetError:  # the removal is optional, so keep everything
        return tree


def _splice_to_remove_lines(text: str, start: int, end: int) -> Splice:
    """Return the splice that removes the whole lines from `start` to `end` together with one line
    ending: the one after them or, at the end of the text, the one before them.
    """
    if end < len(text):
        line_ending = "\r\n" if text.startswith("\r\n", end) else text[end]
        return Splice(start, end + len(line_ending), "")
    line_ending = "\r\n" if text[:start].endswith("\r\n") else "\n"
    return Splice(start - len(line_ending), end, "")


def eol(text: str) -> str:
    """Return the text's line ending, as used at the end of the first line."""
    first_line, line_feed, _ = text.partition("\n")
    if not line_feed:  # in YAML, a lone carriage return also ends a line
        return "\r" if "\r" in text else "\n"
    return "\r\n" if first_line.endswith("\r") else "\n"


def line_end(text: str, position: int) -> int:
    """Return the position where the line that contains a position ends, before its line ending."""
    match = _BREAK.search(text, position)
    return match.start() if match else len(text)


def line_start(text: str, position: int) -> int:
    """Return the position where the line that contains a position starts.

    A byte order mark does not count as part of the first line.
    """
    start_of_first_line = 1 if text.startswith("\ufeff") else 0
    start = position
    while start > start_of_first_line and text[start - 1] not in BREAKS:
        start -= 1
    return start


def only_blank(text: str, start: int, end: int) -> bool:
    """Return whether `text[start:end]` contains only spaces."""
    return not text[start:end].strip(" \t")


def content_start(text: str, node: Node) -> int:
    """Return the position where the node's own text starts, after its anchor and tag."""
    if not (node.anchor or node.tag) or node.kind == "alias":
        return node.start
    match = _PROPERTIES.match(text, node.start, node.end)
    return match.end() if match else node.start


def content_end(text: str, node: Node) -> int:
    """Return the end of the node's content, excluding trailing blank lines and comments."""
    # Parsers place the end of a block collection at the next token, so descend through the last
    # children to one that is not a block collection, and use its end.
    while node.children and node.style != "{":
        last_child = node.children[-1]
        if node.kind == "mapping":
            is_empty = last_child.kind == "scalar" and last_child.start >= last_child.end
            if is_empty:  # `key:` without a value
                last_key = node.children[-2]
                return max(last_key.end, position_after_colon(text, last_key) or 0)
        node = last_child
    is_block_scalar = node.kind == "scalar" and node.style in {"|", ">"}
    return _block_scalar_end(text, node) if is_block_scalar else node.end


def _block_scalar_end(text: str, node: Node) -> int:
    """Return the end of a block scalar's content. Trailing blank lines belong to the content only
    in the style `|+`.
    """
    start = content_start(text, node)
    header, _, _ = text[start : start + _LONGEST_HEADER].partition(" ")
    content = text[: node.end]
    keeps_blank_lines = "+" in header
    if not keeps_blank_lines:
        return len(content.rstrip())
    # without the last line ending
    if content.endswith("\r\n"):
        return node.end - len("\r\n")
    return node.end - 1 if content.endswith(tuple(BREAKS)) else node.end


def entry_end(text: str, key: Node, value: Node) -> int:
    """Return the end of a mapping entry: after its value, or after the `:` if it has no value."""
    return max(
        content_end(text, value),
        key.end,
        position_after_colon(text, key) or 0,
    )


def position_after_colon(text: str, key: Node) -> int | None:
    """Return the position after a key's `:`, or None if there is no `:`."""
    position = key.end
    while position < len(text) and text[position] in " \t":
        position += 1
    return position + len(":") if text.startswith(":", position) else None


def position_of_missing_value(tree: Tree, node: Node) -> int:
    """Return the position at which the missing value of a key or item belongs: after the `:` or the
    dash.

    Raises TargetError if the key has no `:`, or if the node is itself a key.
    """
    key = tree.key_of(node)
    if key is None:  # an item whose empty value is right after its dash
        return node.end
    position = None if key is node else position_after_colon(tree.text, key)
    if position is None:
        raise TargetError(
            f"line {tree.line(node)} has a key without a value",
            hint="use `key: value` on that line",
        )
    return position


def quoted_keys(tree: Tree, node: Node) -> bool:
    """Return whether the keys around the node are double-quoted, as in JSON."""
    for parent in tree.ancestors(node):
        if parent.kind == "mapping" and parent.children:
            return parent.style == "{" and parent.children[0].style == '"'
    return False


def column(text: str, node: Node) -> int:
    """Return the column in which a block collection's entries (its keys or dashes) begin.

    The column of an explicit key, `? key`, is that of its question mark.
    """
    if node.kind == "sequence":
        start = content_start(text, node)
        return start - line_start(text, start)
    start = node.children[0].start
    text_before = text[max(0, start - len(_QUESTION_MARK)) : start]
    if text_before == _QUESTION_MARK:
        start -= len(_QUESTION_MARK)
    return start - line_start(text, start)


@lru_cache(maxsize=2)
def indents(tree: Tree) -> tuple[int, int]:
    """Return the number of columns by which the text indents a mapping in a mapping, and a sequence
    in a mapping. If the text does not show its style, return (2, 0).

    The style is determined by the first mapping in a mapping and the first sequence in a mapping.
    If the text contains only such a sequence, mappings are indented like it.
    """
    mapping_indent: int | None = None
    sequence_indent: int | None = None
    for parent, child in _nested_blocks(tree):
        indent = column(tree.text, child) - column(tree.text, parent)
        if child.kind == "sequence" and sequence_indent is None:
            sequence_indent = max(0, indent)
        elif child.kind == "mapping" and mapping_indent is None and indent > 0:
            mapping_indent = indent
        if mapping_indent is not None and sequence_indent is not None:
            break
    # A sequence in the column of its key (0) does not show how to indent a mapping.
    return mapping_indent or sequence_indent or 2, sequence_indent or 0


def _nested_blocks(tree: Tree) -> Iterator[tuple[Node, Node]]:
    """Yield each block collection that is a value in a block mapping,
    together with that mapping.
    """
    for node in walk(*tree.roots):
        if node.kind != "mapping" or node.style == "{":
            continue
        for _, child in pairs(node):
            if child.children and child.style != "{":
                yield node, child


def dash_width(text: str, sequence: Node) -> int:
    """Return the number of columns from the last dash of a block sequence to its item: 2 for `-
    item`, and also if the gap is unusual.
    """
    item = sequence.children[-1].start
    width = item - line_start(text, item) - column(text, sequence)
    dash = item - width
    has_usual_gap = 1 < width < _WIDEST and only_blank(text, dash + len("-"), item)
    return width if has_usual_gap else len("- ")
