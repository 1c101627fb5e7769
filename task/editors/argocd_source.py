"""The override file `.argocd-source-<app>.yaml`: what its three editors share.

Argo CD (repo-server) reads it as a JSON merge patch over the source: its lists replace those
of the spec, and an element inherits the fields it lacks from the spec's element at the same
place. So everything needed must stand in the file, each element complete, each value a string.

An element that we carried along says in a comment where it is from, and follows that. One without
the comment is somebody's own, and stays: to overwrite it was our worst surprise.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from task.editors.texts import alone, chosen, result, single, text_of, tree_of
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
_MARK = re.compile(r"[ \t]+(# from (?:the Application|\.argocd-source\.yaml))[ \t]*")


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
        _refuse_other_case(node, key, path)
        found = value(node, key)
        node = resolved(document, found) if found is not None else None
    if node is None or node.null:
        return ()
    if node.kind != "sequence":
        raise _shape(f"{section.name}.{section.list} is no list", path)
    return node.children


def _refuse_other_case(mapping: Node, key: str, path: str) -> None:
    """`Helm:` next to the spec's `helm:` are two keys for the merge patch; the spec's then wins."""
    for name, _ in pairs(mapping):
        if name.value != key and name.value.lower() == key:
            raise _shape(f"has {name.value} where Argo CD expects {key}", path)


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
    return _grow_list(tree, document, inner, section, items)


def _grow_list(tree: Tree, document: Document, inner: Node, section: Section, items: Sequence[Data]) -> Tree:
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
    """The list's elements as items."""
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
    found = [(each, field(document, each, "value")) for each in elements(document, section, path)]
    unsound = (each for each, node in found if node is not None and not sound(resolved(document, node)))
    values = {item[:2] for item in items_of(document, section, path)}
    names = [name for name, _ in values]
    return {text_field(document, each, "name") for each in unsound} | {name for name in names if names.count(name) > 1}


def common_document(files: Files, target: Target) -> tuple[str, Document | None]:
    """The common override file, which every Application of the folder reads first."""
    path = common_path(target)
    if text_of(files, path) is None or path == chosen(files, target):
        return path, None
    return path, single(tree_of(files, path), path)


@dataclass(frozen=True)
class OriginComment:
    """The comment that says where an element is from, with the blanks before it: `text[start:end]`."""

    text: str
    start: int
    end: int


def origin_comment(tree: Tree, element: Node) -> OriginComment | None:
    """The element's mark, on any of its lines; None for an element without one, and in flow style."""
    for end in _line_ends(tree, element):
        tail = line_end(tree.text, end)
        if found := _MARK.fullmatch(tree.text, end, tail):
            return OriginComment(found[1], end, tail)
    return None


def _line_ends(tree: Tree, element: Node) -> Iterator[int]:
    """Behind which of an element's values a comment may stand."""
    parent = tree.parent(element)
    if element.kind == "alias" or element.style == "{" or (parent is not None and parent.style == "{"):
        return
    for node in (each for _, each in pairs(element)) if element.kind == "mapping" else (element,):
        if node.kind == "scalar" and node.style not in {"|", ">"}:
            yield content_end(tree.text, node)


def set_origin_comments(tree: Tree, section: Section, path: str, wanted: Callable[[Tree, Node], str | None]) -> Tree:
    """The file with other marks: `wanted` tells an element's; "" is none, None is as it is."""
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
    """The file without some elements of the list; one that has no lines of its own stays."""
    document = single(tree, path)
    nodes = elements(document, section, path) if document else ()
    numbers = [number for number, each in enumerate(nodes) if gone(tree, each)]
    parent = tree.parent(nodes[numbers[0]]) if numbers else None
    return drop_items(tree, alone(tree, tree.documents[0], parent), numbers) if parent else tree


@dataclass(frozen=True)
class _Merge:
    """What the list of an override file is to say: the image's own elements, and what is carried along."""

    own: Mapping[str, Item]
    carried: Mapping[str, tuple[Item, str]]  # with the mark of where it is from

    def item(self, tree: Tree, element: Node) -> Item | None:
        """What an element is to say; None where it stays as it is."""
        name = text_field(tree.documents[0], element, "name")
        if name in self.own:
            return self.own[name]
        return self.carried[name][0] if name in self.carried and origin_comment(tree, element) else None

    def mark(self, tree: Tree, element: Node, before: Collection[str]) -> str | None:
        """Which mark an element is to have; None where it stays as it is."""
        name = text_field(tree.documents[0], element, "name")
        if name in self.own:
            return ""
        follows = name in self.carried and (name not in before or origin_comment(tree, element))
        return self.carried[name][1] if follows else None

    def gone(self, tree: Tree, element: Node) -> bool:
        """Whether an element followed what is not there any more."""
        name = text_field(tree.documents[0], element, "name")
        return name not in self.own and name not in self.carried and origin_comment(tree, element) is not None


def merge_items(
    files: Files, target: Target, section: Section, own: Sequence[Item], spec: Sequence[Item]
) -> tuple[Files, tuple[Edit, ...]]:
    """The file with `own` set, and with all that the spec and the common file hold; what `write` answers.

    Elements are found by name, all of one name together. What is marked follows where it is from, and goes when it
    is gone there; everything else stays as somebody wrote it.
    """
    path, tree, document = load(files, target)
    before = {item.name: item.value for item in items_of(document, section, path)}
    merge = _Merge({item.name: item for item in own}, _carried(files, target, section, spec))
    tree = _complete(_set_values(tree, section, merge, path), section, merge, path)
    wanted = {**{name: item for name, (item, _) in merge.carried.items()}, **merge.own}
    tree = grow(tree, section, [item.data() for name, item in wanted.items() if name not in before], path)
    if target.carry:
        tree = without(tree, section, path, merge.gone)
    tree = set_origin_comments(tree, section, path, lambda now, each: merge.mark(now, each, before))
    after = {item.name: item.value for item in items_of(single(tree, path), section, path)}
    edits = [Edit(path, name, before.get(name, ""), after.get(name, "")) for name in {**after, **before}]
    different = tuple(edit for edit in edits if edit.old != edit.new)
    return result(files, path, tree.text, different or tuple(edits[:1]))


def stray_items(
    files: Files, target: Target, section: Section, own: Collection[str], spec: Sequence[Item]
) -> tuple[tuple[str, str], ...]:
    """(name, mark) of what somebody wrote in the file and the spec, or the common file, says otherwise."""
    path, tree, document = load(files, target)
    carried = _carried(files, target, section, spec)
    found: dict[str, str] = {}
    for element in elements(document, section, path) if document else ():
        item = _item(document, element) if document else None
        theirs, mark = carried.get(item.name, (item, "")) if item else (None, "")
        if item and theirs and mark and item.name not in {*own, *target.managed} and not origin_comment(tree, element):
            same = (item.value, item.force if theirs.force is not None else None) == (theirs.value, theirs.force)
            found |= {} if same else {item.name: mark}
    return tuple(found.items())


def _carried(files: Files, target: Target, section: Section, spec: Sequence[Item]) -> dict[str, tuple[Item, str]]:
    """What must stand in the file because its list replaces the others; the common file beats the spec."""
    if not target.carry:
        return {}
    path, common = common_document(files, target)
    shared = items_of(common, section, path)
    if section == PLUGIN:
        shared = tuple(item._replace(force=None) for item in shared)
    return {**{item.name: (item, FROM_SPEC) for item in spec}, **{item.name: (item, FROM_COMMON) for item in shared}}


def _set_values(tree: Tree, section: Section, merge: _Merge, path: str) -> Tree:
    """The fields that are there already, with their wanted content."""
    document = single(tree, path)
    if document is None:
        return tree
    changes: list[tuple[Node, Word]] = []
    for element in elements(document, section, path):
        for node, data in _changes(document, element, merge.item(tree, element)):
            changes.append((alone(tree, document, node), data))
    return splice(tree, changes) if changes else tree


def _changes(document: Document, element: Node, item: Item | None) -> Iterator[tuple[Node, Word]]:
    node = field(document, element, "value")
    if node is not None:
        now = resolved(document, node)
        text = item.value if item else now.value
        # A value that is no string fails the whole Application, whoever wrote it.
        if now.kind == "scalar" and (text != now.value or not (sound(now) or (now.null and item is None))):
            yield node, text
    flag = field(document, element, "forcestring")
    if flag is not None and item and item.force is not None and _flag(resolved(document, flag)) is not item.force:
        yield flag, item.force


def _complete(tree: Tree, section: Section, merge: _Merge, path: str) -> Tree:
    """Elements with the fields that they lacked, which Argo CD would take from another element of the spec."""
    while gap := _gap(tree, section, merge, path):
        element, name, data = gap
        tree = add_keys(tree, alone(tree, tree.documents[0], element), {name: data})
    return tree


def _gap(tree: Tree, section: Section, merge: _Merge, path: str) -> tuple[Node, str, Data] | None:
    document = single(tree, path)
    for element in elements(document, section, path) if document else ():
        item = merge.item(tree, element)
        for name, data in item.data().items() if document and item else ():
            if document and field(document, element, name) is None:
                return resolved(document, element), name, data
    return None


def _flag(node: Node) -> bool | None:
    """What Argo CD reads as `forcestring`; None where it would fail."""
    plain = node.kind == "scalar" and not node.style
    return {"true": True, "false": False}.get(node.value) if plain else None
