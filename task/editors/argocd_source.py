"""The override file `.argocd-source-<app>.yaml`: what its three editors share.

Its name is made in `annotations.write_back.override_names`.

Argo CD (repo-server) reads it as a JSON merge patch over the source. Its lists replace those of the spec
(argo-cd issue 6665), and an element inherits the fields it lacks from the spec's element at the same place. So the
file must hold everything that is needed: each element complete, each value a string.

An element that was copied from the spec, or from the common file, says so in a comment and follows its origin. One
without the comment was written by a person, and stays: no surprise was worse than to see it overwritten.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from task.editors.file_text import alone, chosen, result, single, text_of, tree_of
from task.editors.yaml.check import Splice, checked
from task.editors.yaml.grow import add_items, add_keys, begin, drop_items
from task.editors.yaml.layout import Data, Word, content_end, line_end, only_blank
from task.editors.yaml.scalar import sound
from task.editors.yaml.splice import splice
from task.editors.yaml.tree import Document, Node, Tree, pairs, resolved, value
from task.errors import TargetError
from task.model import Edit, Files, Place, Target

COMMON = ".argocd-source.yaml"
FROM_SPEC, FROM_COMMON = "# from the Application", f"# from {COMMON}"
_ORIGIN = re.compile(r"[ \t]+(# from (?:the Application|\.argocd-source\.yaml))[ \t]*")


class Section(NamedTuple):
    """Where the list of one source type stands in an override file."""

    name: str  # helm
    list: str  # parameters


PLUGIN = Section("plugin", "env")


class Item(NamedTuple):
    """An element of `helm.parameters` or `plugin.env`."""

    name: str
    value: str
    force: bool | None = None  # forcestring; None where the list knows no such field

    def data(self) -> dict[str, Data]:
        """The whole element, as Argo CD Image Updater orders it."""
        fields: dict[str, Data] = {"name": self.name, "value": self.value}
        return fields if self.force is None else {**fields, "forcestring": self.force}


def places(target: Target) -> tuple[Place, ...]:
    """The override file under all its names, and the one that all Applications of the folder share."""
    paths = (target.path, *target.fallbacks, common_path(target))
    return tuple(Place(path) for path in dict.fromkeys(paths))


def common_path(target: Target) -> str:
    """`.argocd-source.yaml` in the source's folder."""
    override = posixpath.basename(target.path).startswith(".argocd-source-")
    folder = posixpath.dirname(target.path) if override else target.source.path.strip("/")
    return posixpath.normpath(posixpath.join(folder, COMMON))


def load(files: Files, target: Target) -> tuple[str, Tree, Document | None]:
    """The override file: its path, its tree, its only document (None: empty or absent)."""
    path = chosen(files, target)
    tree = tree_of(files, path)
    return path, tree, single(tree, path)


def elements(document: Document | None, section: Section, path: str) -> tuple[Node, ...]:
    """The nodes of the section's list; none where list, section or document are missing or null."""
    node = document.root if document else None
    for key in section:
        if node is None or node.null or document is None:
            return ()
        if node.kind != "mapping":
            raise _shape(f"{section.name} is no mapping", path)
        # Argo CD decodes keys in any case, but its merge patch does not: `Helm:` would stand beside the spec's `helm:`.
        if other := next((n.value for n, _ in pairs(node) if n.value != key and n.value.lower() == key), ""):
            raise _shape(f"has {other} where Argo CD expects {key}", path)
        found = value(node, key)
        node = resolved(document, found) if found is not None else None
    if node is None or node.null:
        return ()
    if node.kind != "sequence":
        raise _shape(f"{section.name}.{section.list} is no list", path)
    return node.children


def _shape(problem: str, path: str) -> TargetError:
    return TargetError(problem, hint="see Argo CD's documentation of override files, or remove the file", subject=path)


def grow(tree: Tree, section: Section, items: Sequence[Data], path: str) -> Tree:
    """The file with further elements at the end of the section's list, which is made where it is missing."""
    if not items:
        return tree
    document = single(tree, path)
    if document is None:
        return begin(tree, {section.name: {section.list: list(items)}})
    if document.root.null:
        return add_keys(tree, document.root, {section.name: {section.list: list(items)}})
    inner = value(document.root, section.name)
    if inner is None:
        return add_keys(tree, document.root, {section.name: {section.list: list(items)}})
    _refuse_alias(tree, document, inner, path)
    found = value(inner, section.list) if inner.kind == "mapping" else None
    if found is None:
        return add_keys(tree, inner, {section.list: list(items)})
    _refuse_alias(tree, document, found, "")
    return add_items(tree, found, list(items))


def _refuse_alias(tree: Tree, document: Document, node: Node, path: str) -> None:
    if node.kind == "alias":
        raise TargetError(
            f"line {tree.line(node)}: *{node.value} stands for a shared list", hint="write it out", subject=path
        )
    alone(tree, document, node)


def field(document: Document, element: Node, name: str) -> Node | None:
    """The node of one field of an element; Argo CD decodes field names in any case."""
    element = resolved(document, element)
    if element.kind != "mapping":
        return None
    found = value(element, name)
    return found or next((each for key, each in pairs(element) if key.value.lower() == name), None)


def text_field(document: Document, element: Node, name: str) -> str:
    """The text of one field; "" where it is missing."""
    node = field(document, element, name)
    return resolved(document, node).value if node is not None else ""


def items_of(document: Document | None, section: Section, path: str) -> tuple[Item, ...]:
    """The elements of the list that have a name."""
    if document is None:
        return ()
    return tuple(item for each in elements(document, section, path) if (item := _item(document, each)))


def _item(document: Document, element: Node) -> Item | None:
    name, text, flag = (text_field(document, element, field) for field in ("name", "value", "forcestring"))
    return Item(name, text, flag.lower() == "true") if name else None


def unsound_names(document: Document | None, section: Section, path: str) -> set[str]:
    """The names whose value some YAML reader takes for something else than a string, or that have several values."""
    if document is None:
        return set()
    unsound, values = set(), dict[str, str]()
    for element in elements(document, section, path):
        name, node = text_field(document, element, "name"), field(document, element, "value")
        text = resolved(document, node).value if node is not None else ""
        unquoted = node is not None and not sound(resolved(document, node))
        if unquoted or (name and values.setdefault(name, text) != text):
            unsound.add(name)
    return unsound


def common_document(files: Files, target: Target) -> tuple[str, Document | None]:
    """The common override file, which every Application of the folder reads first."""
    path = common_path(target)
    if text_of(files, path) is None or path == chosen(files, target):
        return path, None
    return path, single(tree_of(files, path), path)


@dataclass(frozen=True)
class OriginComment:
    """The comment that says where an element was copied from, with the blanks before it: `text[start:end]`."""

    text: str
    start: int
    end: int


def origin_comment(tree: Tree, element: Node) -> OriginComment | None:
    """The element's comment, on any of its lines; None for an element without one, and in flow style."""
    for end in _line_ends(tree, element):
        tail = line_end(tree.text, end)
        if found := _ORIGIN.fullmatch(tree.text, end, tail):
            return OriginComment(found[1], end, tail)
    return None


def _line_ends(tree: Tree, element: Node) -> Iterator[int]:
    """The ends of the element's values that a comment may follow."""
    parent = tree.parent(element)
    if element.kind == "alias" or element.style == "{" or (parent is not None and parent.style == "{"):
        return
    for node in (each for _, each in pairs(element)) if element.kind == "mapping" else (element,):
        if node.kind == "scalar" and node.style not in {"|", ">"}:
            yield content_end(tree.text, node)


def set_origin_comments(tree: Tree, section: Section, path: str, wanted: Callable[[Tree, Node], str | None]) -> Tree:
    """The file with the origin comment that `wanted` answers for each element: "" for no comment, None: as it is."""
    document, splices = single(tree, path), []
    for element in elements(document, section, path) if document else ():
        want, now = wanted(tree, element), origin_comment(tree, element)
        if want is None or want == (now.text if now else ""):
            continue
        if now:
            splices.append(Splice(now.start, now.end, f"  {want}" if want else ""))
        elif (at := next(_line_ends(tree, element), None)) is not None:
            tail = line_end(tree.text, at)
            splices += [Splice(at, tail, f"  {want}")] if only_blank(tree.text, at, tail) else []
    return checked(tree, splices, {}) if splices else tree


def without(tree: Tree, section: Section, path: str, gone: Callable[[Tree, Node], bool]) -> Tree:
    """The file without some elements of the list; one that shares its line with others stays."""
    document = single(tree, path)
    nodes = elements(document, section, path) if document else ()
    numbers = [number for number, each in enumerate(nodes) if gone(tree, each)]
    parent = tree.parent(nodes[numbers[0]]) if numbers else None
    return drop_items(tree, alone(tree, tree.documents[0], parent), numbers) if parent else tree


def merge_items(
    files: Files, target: Target, section: Section, own: Sequence[Item], spec: Sequence[Item]
) -> tuple[Files, tuple[Edit, ...]]:
    """The file with `own` set, and with all that the spec and the common file hold; what `write` answers.

    Elements are found by name, all of one name together. One with an origin comment follows its origin, and goes when
    that is gone; everything else stays as a person wrote it.
    """
    path, tree, document = load(files, target)
    before = {item.name: item.value for item in items_of(document, section, path)}
    mine = {item.name: item for item in own}
    carried = _carried(files, target, section, spec)

    def wanted(tree: Tree, element: Node) -> Item | None:
        """The wanted content of an element; None: it stays as it is."""
        name = text_field(tree.documents[0], element, "name")
        if name in mine:
            return mine[name]
        return carried[name][0] if name in carried and origin_comment(tree, element) else None

    def origin(tree: Tree, element: Node) -> str | None:
        name = text_field(tree.documents[0], element, "name")
        if name in mine:
            return ""
        follows = name in carried and (name not in before or origin_comment(tree, element))
        return carried[name][1] if follows else None

    def gone(tree: Tree, element: Node) -> bool:
        name = text_field(tree.documents[0], element, "name")
        return name not in mine and name not in carried and origin_comment(tree, element) is not None

    tree = _with_values(tree, section, path, wanted)
    # Argo CD fills a missing field from the element of the spec at the same place, whatever its name is.
    while gap := _gap(tree, section, path, wanted):
        element, name, data = gap
        tree = add_keys(tree, alone(tree, tree.documents[0], element), {name: data})
    whole = {**{name: item for name, (item, _) in carried.items()}, **mine}
    tree = grow(tree, section, [item.data() for name, item in whole.items() if name not in before], path)
    if target.carry:
        tree = without(tree, section, path, gone)
    tree = set_origin_comments(tree, section, path, origin)
    after = {item.name: item.value for item in items_of(single(tree, path), section, path)}
    edits = [Edit(path, name, before.get(name, ""), after.get(name, "")) for name in {**after, **before}]
    different = tuple(edit for edit in edits if edit.old != edit.new)
    return result(files, path, tree.text, different or tuple(edits[:1]))


def stray_items(
    files: Files, target: Target, section: Section, own: Collection[str], spec: Sequence[Item]
) -> tuple[tuple[str, str], ...]:
    """(name, origin) of each element that a person wrote, and whose origin has another value."""
    path, tree, document = load(files, target)
    carried = _carried(files, target, section, spec)
    found: dict[str, str] = {}
    for element in elements(document, section, path) if document else ():
        item = _item(document, element) if document else None
        if item is None or item.name not in carried or item.name in {*own, *target.managed}:
            continue
        theirs, origin = carried[item.name]
        same = item.value == theirs.value and theirs.force in (None, item.force)
        if not same and not origin_comment(tree, element):
            found[item.name] = origin
    return tuple(found.items())


def _carried(files: Files, target: Target, section: Section, spec: Sequence[Item]) -> dict[str, tuple[Item, str]]:
    """What the file must hold because its list replaces the others, with its origin; the common file beats the spec."""
    if not target.carry:
        return {}
    path, common = common_document(files, target)
    shared = items_of(common, section, path)
    if section == PLUGIN:
        shared = tuple(item._replace(force=None) for item in shared)
    return {**{item.name: (item, FROM_SPEC) for item in spec}, **{item.name: (item, FROM_COMMON) for item in shared}}


def _with_values(tree: Tree, section: Section, path: str, wanted: Callable[[Tree, Node], Item | None]) -> Tree:
    """The file with the wanted content of the fields that are there already."""
    document = single(tree, path)
    if document is None:
        return tree
    changes: list[tuple[Node, Word]] = []
    for element in elements(document, section, path):
        item = wanted(tree, element)
        if (node := field(document, element, "value")) is not None:
            now = resolved(document, node)
            text = item.value if item else now.value
            # A value that is not a string fails the whole Application, no matter who wrote it.
            if now.kind == "scalar" and (text != now.value or not (sound(now) or (now.null and item is None))):
                changes.append((alone(tree, document, node), text))
        if (flag := field(document, element, "forcestring")) is not None and item and item.force is not None:
            now = resolved(document, flag)
            plain = now.kind == "scalar" and not now.style
            if (now.value if plain else "") != ("true" if item.force else "false"):  # Argo CD reads plain booleans only
                changes.append((alone(tree, document, flag), item.force))
    return splice(tree, changes) if changes else tree


def _gap(
    tree: Tree, section: Section, path: str, wanted: Callable[[Tree, Node], Item | None]
) -> tuple[Node, str, Data] | None:
    """The first field that an element lacks, and its content."""
    document = single(tree, path)
    if document is None:
        return None
    for element in elements(document, section, path):
        item = wanted(tree, element)
        for name, data in item.data().items() if item else ():
            if field(document, element, name) is None:
                return resolved(document, element), name, data
    return None
