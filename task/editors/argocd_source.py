"""What the three editors of the override file `.argocd-source-<app>.yaml` share.

`annotations.write_back.override_names` makes the file's name.

Argo CD's repo-server applies the file to the source as a JSON merge patch. The file's lists replace those of the spec
(argo-cd issue 6665), and an element inherits missing fields from the spec's element at the same index. So the file must
have everything that is needed: each element must be complete, and each value a string.

An element that we copied from the spec, or from the common file, has a comment that names its origin, and follows it.
An element without the comment was written by a person, and stays as it is.

A list without any such comment was written by somebody else, such as AIU. It has hidden the spec's other elements from
Argo CD since it was made, so nothing is copied into it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from task.editors.file_text import (
    alone,
    chosen,
    result,
    single,
    spelled,
    split_tag,
    tag_value,
    text_of,
    tree_of,
)
from task.editors.helm_values import digest_of, digest_value
from task.editors.yaml.edit import Splice, add_items, add_keys, begin, checked, drop_items, splice
from task.editors.yaml.layout import Data, Word, content_end, line_end, only_blank, sound
from task.editors.yaml.tree import Document, Node, Tree, pairs, resolved, value
from task.errors import TargetError
from task.image import live_image
from task.model import Edit, Files, Image, Keys, Place, Reading, Target

COMMON = ".argocd-source.yaml"
FROM_SPEC, FROM_COMMON = "# from the Application", f"# from {COMMON}"
_ORIGIN = re.compile(r"[ \t]+(# from (?:the Application|\.argocd-source\.yaml))[ \t]*")


class Section(NamedTuple):
    """The place of a source type's list in an override file."""

    name: str  # "helm"
    list: str  # "parameters"


PLUGIN = Section("plugin", "env")


class Item(NamedTuple):
    """An element of `helm.parameters` or `plugin.env`."""

    name: str
    value: str
    force: bool | None = None  # forcestring; None if the list has no such field

    def data(self) -> dict[str, Data]:
        """Return the whole element, with its fields in AIU's order."""
        fields: dict[str, Data] = {"name": self.name, "value": self.value}
        # AIU writes and reads only `forcestring`. Argo CD ignores the case.
        return fields if self.force is None else {**fields, "forcestring": self.force}


def places(target: Target) -> tuple[Place, ...]:
    """Return the override file in all its spellings, and the file that all Applications of the folder share."""
    paths = (target.path, *target.fallbacks, common_path(target))
    return tuple(Place(path) for path in dict.fromkeys(paths))


def common_path(target: Target) -> str:
    """Return the path of `.argocd-source.yaml` in the source's folder."""
    # A `write-back-target` may name any file as the override file, and only the usual name says which folder it is for.
    override = posixpath.basename(target.path).startswith(".argocd-source-")
    folder = posixpath.dirname(target.path) if override else target.source.path.strip("/")
    return posixpath.normpath(posixpath.join(folder, COMMON))


def load(files: Files, target: Target) -> tuple[str, Tree, Document | None]:
    """Return the override file's path, its tree, and its only document, or None if the file is empty or absent."""
    path = chosen(files, target)
    tree = tree_of(files, path)
    return path, tree, single(tree, path)


def elements(document: Document | None, section: Section, path: str) -> tuple[Node, ...]:
    """Return the nodes of the section's list, or () if there is none."""
    return listed.children if (listed := _list(document, section, path)) else ()


def _list(document: Document | None, section: Section, path: str) -> Node | None:
    """Return the section's list, or None if the list, the section or the document is missing or null."""
    node = document.root if document else None
    for key in section:
        if node is None or node.null or document is None:
            return None
        if node.kind != "mapping":
            raise _shape(f"{section.name} is not a mapping", path)
        # Argo CD ignores the case of keys, but its merge patch does not: it would have both `Helm:` and `helm:`.
        if other := next((name.value for name, _ in pairs(node) if name.value.lower() == key != name.value), ""):
            raise _shape(f"has {other} where Argo CD expects {key}", path)
        below = value(node, key)
        node = resolved(document, below) if below is not None else None
    if node is None or node.null:
        return None
    if node.kind != "sequence":
        raise _shape(f"{section.name}.{section.list} is not a list", path)
    return node


@dataclass(frozen=True)
class Below:
    """The lists that an override file's list hides, and whether it copies their elements."""

    spec: bool  # whether the spec's list counts; the common file's would replace it
    common: Document | None  # the common override file
    used: bool  # whether Argo CD uses these lists, because the override file has none
    carries: bool  # whether the override file's list gets copies of the elements that it lacks


def below(files: Files, target: Target, section: Section) -> Below:
    """Return the lists that Argo CD would use if the override file had none."""
    path, tree, document = load(files, target)
    own = _list(document, section, path)
    marks = {mark.text for element in own.children if (mark := origin_comment(tree, element))} if own else set()
    common_at, common = common_document(files, target)
    # The common file's list replaces that of the spec, too.
    spec = bool(target.carry) or FROM_SPEC in marks or _list(common, section, common_at) is None
    carries = (own is None or bool(marks)) if target.carry is None else target.carry
    return Below(spec, common, own is None, carries)


def _shape(problem: str, path: str) -> TargetError:
    return TargetError(problem, hint="see Argo CD's documentation of override files, or remove the file", subject=path)


def grow(tree: Tree, section: Section, items: Sequence[Data], path: str) -> Tree:
    """Return the file with more elements at the end of the section's list. A missing list is added."""
    if not items:
        return tree
    document = single(tree, path)
    # Argo CD fails for an empty or comment-only file ("Invalid JSON Patch"), so such a file is filled.
    if document is None:
        return begin(tree, {section.name: {section.list: list(items)}})
    if document.root.null:
        return add_keys(tree, document.root, {section.name: {section.list: list(items)}})
    mapping = value(document.root, section.name)
    if mapping is None:
        return add_keys(tree, document.root, {section.name: {section.list: list(items)}})
    _refuse_alias(tree, document, mapping, path)
    sequence = value(mapping, section.list) if mapping.kind == "mapping" else None
    if sequence is None:
        return add_keys(tree, mapping, {section.list: list(items)})
    _refuse_alias(tree, document, sequence, "")
    return add_items(tree, sequence, list(items))


def _refuse_alias(tree: Tree, document: Document, node: Node, path: str) -> None:
    if node.kind == "alias":
        raise TargetError(
            f"line {tree.line(node)}: *{node.value} refers to a shared list", hint="write it out", subject=path
        )
    alone(tree, document, node)


def field(document: Document, element: Node, name: str) -> Node | None:
    """Return the node of one field of an element, or None. Argo CD ignores the case of field names."""
    element = resolved(document, element)
    if element.kind != "mapping":
        return None
    return value(element, name) or next((node for key, node in pairs(element) if key.value.lower() == name), None)


def text_field(document: Document, element: Node, name: str) -> str:
    """Return the text of one field, or "" if it is missing."""
    node = field(document, element, name)
    return resolved(document, node).value if node is not None else ""


def items_of(document: Document | None, section: Section, path: str) -> tuple[Item, ...]:
    """Return the elements of the list that have a name."""
    if document is None:
        return ()
    return tuple(item for element in elements(document, section, path) if (item := _item(document, element)))


def _item(document: Document, element: Node) -> Item | None:
    name, text, flag = (text_field(document, element, field) for field in ("name", "value", "forcestring"))
    return Item(name, text, flag.lower() == "true") if name else None


def unsound_names(document: Document | None, section: Section, path: str) -> set[str]:
    """Return the names with several values, or with a value that some YAML reader does not take for a string."""
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


def reading_of(items: Collection[Item], keys: Keys, unsound: Collection[str], path: str) -> Reading:
    """Return the image in the items with the names in `keys`. It is not sound if one of these names is in `unsound`."""
    values = {item.name: item.value for item in items}
    good = not {keys.spec or keys.name, keys.spec or keys.tag, keys.digest} & set(unsound)
    if keys.spec:
        image = live_image(values.get(keys.spec, ""))
        return Reading(*(image.name, image.tag, image.digest) if image else ("", "", ""), sound=good, file=path)
    tag, digest = split_tag(values.get(keys.tag, ""))
    if keys.digest:  # without the parameter, a digest of the chart's own would stay
        good = good and not digest and (keys.digest in values or not tag)
        digest = digest_of(values.get(keys.digest, ""))
    return Reading(values.get(keys.name, ""), tag, digest, sound=good, file=path)


def common_document(files: Files, target: Target) -> tuple[str, Document | None]:
    """Return the path and document of the common override file, which all Applications of the folder read first."""
    path = common_path(target)
    if text_of(files, path) is None or path == chosen(files, target):
        return path, None
    return path, single(tree_of(files, path), path)


@dataclass(frozen=True)
class OriginComment:
    """The comment that names an element's origin. `[start:end]` includes the blanks before it."""

    text: str
    start: int
    end: int


def origin_comment(tree: Tree, element: Node) -> OriginComment | None:
    """Return the element's origin comment, on any of its lines, or None if it has none, or is in flow style."""
    for end in _line_ends(tree, element):
        tail = line_end(tree.text, end)
        if match := _ORIGIN.fullmatch(tree.text, end, tail):
            return OriginComment(match[1], end, tail)
    return None


def _line_ends(tree: Tree, element: Node) -> Iterator[int]:
    """Yield the ends of those values of the element that a comment may follow."""
    parent = tree.parent(element)
    # After flow style, the comment could belong to any element of the line.
    if element.kind == "alias" or element.style == "{" or (parent is not None and parent.style == "{"):
        return
    for node in (child for _, child in pairs(element)) if element.kind == "mapping" else (element,):
        if node.kind == "scalar" and node.style not in {"|", ">"}:  # in a block scalar, the comment would be text
            yield content_end(tree.text, node)


def set_origin_comments(tree: Tree, section: Section, path: str, wanted: Callable[[Tree, Node], str | None]) -> Tree:
    """Return the file with other origin comments.

    For each element, `wanted` returns its new comment, "" for none, or None to leave it as it is.
    """
    document, splices = single(tree, path), []
    for element in elements(document, section, path) if document else ():
        want, now = wanted(tree, element), origin_comment(tree, element)
        if want is None or want == (now.text if now else ""):
            continue
        if now:
            splices.append(Splice(now.start, now.end, f"  {want}" if want else ""))
        elif (at := next(_line_ends(tree, element), None)) is not None:
            tail = line_end(tree.text, at)
            # A person's comment on that line is more important than ours.
            splices += [Splice(at, tail, f"  {want}")] if only_blank(tree.text, at, tail) else []
    return checked(tree, splices, {}) if splices else tree


def without(tree: Tree, section: Section, path: str, gone: Callable[[Tree, Node], bool]) -> Tree:
    """Return the file without the elements that are `gone`. One that shares its line with something else stays."""
    document = single(tree, path)
    nodes = elements(document, section, path) if document else ()
    numbers = [number for number, element in enumerate(nodes) if gone(tree, element)]
    parent = tree.parent(nodes[numbers[0]]) if numbers else None
    return drop_items(tree, alone(tree, tree.documents[0], parent), numbers) if parent else tree


def merge_image(
    files: Files,
    target: Target,
    section: Section,
    image: Image,
    keys: Keys,
    spec: Sequence[Item],
    *,
    force: bool | None,
    digest: str = "",
) -> tuple[Files, tuple[Edit, ...]]:
    """Return the result of `write` for Helm parameters and plugin variables.

    The new file has the image under the names in `keys`, and copies of what the spec and the common file say. `digest`
    is the present value of the key for the digest. Elements are found by name. An element with an origin comment
    follows its origin, and goes when its origin goes. All others stay as a person wrote them.
    """
    path, tree, document = load(files, target)
    items = items_of(document, section, path)
    before = {item.name: item.value for item in items}
    full = spelled(image, target, *(item.value for item in (*items, *spec) if item.name == (keys.spec or keys.name)))
    texts = {keys.name: full, keys.tag: tag_value(image)}
    if keys.spec:
        texts = {keys.spec: replace(image, name=full).reference}
    mine = {name: Item(name, text, force) for name, text in texts.items() if name and text}
    if keys.digest:
        mine[keys.tag] = Item(keys.tag, image.tag or "latest", force)
        mine[keys.digest] = Item(keys.digest, digest_value(image, keys.digest, digest), force)
    there = below(files, target, section)
    carried = _origins(there, target, section, spec) if there.carries else {}

    def wanted(tree: Tree, element: Node) -> Item | None:
        """Return the wanted content of an element, or None if it stays as it is."""
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
    # Argo CD takes a missing field from the spec's element at the same index, even if that has another name.
    while gap := _gap(tree, section, path, wanted):
        element, name, data = gap
        tree = add_keys(tree, alone(tree, tree.documents[0], element), {name: data})
    whole = {**{name: item for name, (item, _) in carried.items()}, **mine}
    tree = grow(tree, section, [item.data() for name, item in whole.items() if name not in before], path)
    if target.carry is not False:
        tree = without(tree, section, path, gone)
    tree = set_origin_comments(tree, section, path, origin)
    after = {item.name: item.value for item in items_of(single(tree, path), section, path)}
    edits = [Edit(path, name, before.get(name, ""), after.get(name, "")) for name in {**after, **before}]
    different = tuple(edit for edit in edits if edit.old != edit.new)
    return result(files, path, tree.text, different or tuple(edits[:1]))


class Stray(NamedTuple):
    """An element of the spec or the common file that Argo CD does not use as it is, because of the override file."""

    name: str
    origin: str
    hidden: bool  # whether the override file has no such element; otherwise it has another value


def stray_items(files: Files, target: Target, section: Section, keys: Keys, spec: Sequence[Item]) -> tuple[Stray, ...]:
    """Return each element to which a person gave another value than its origin has, and each that the list hides."""
    if target.carry is False:
        return ()
    path, tree, document = load(files, target)
    there = below(files, target, section)
    origins, own = _origins(there, target, section, spec), {keys.name, keys.tag, keys.spec, keys.digest}
    strays, names = dict[str, Stray](), set[str]()
    for element in elements(document, section, path) if document else ():
        item = _item(document, element) if document else None
        names |= {item.name} if item else set()
        if item is None or item.name not in origins or item.name in {*own, *target.managed}:
            continue
        theirs, origin = origins[item.name]
        same = item.value == theirs.value and theirs.force in (None, item.force)
        if not same and not origin_comment(tree, element):
            strays[item.name] = Stray(item.name, origin, hidden=False)
    hidden = () if there.carries else [name for name in origins if name not in names | own]
    return (*strays.values(), *(Stray(name, origins[name][1], hidden=True) for name in hidden))


def items_below(files: Files, target: Target, section: Section, spec: Sequence[Item]) -> Sequence[Item]:
    """Return the items that Argo CD uses if the override file says nothing about them."""
    if not target.kind.endswith("-override"):
        return spec
    there = below(files, replace(target, carry=None), section)
    return [item for item, _ in _origins(there, target, section, spec).values()] if there.used else []


def _origins(there: Below, target: Target, section: Section, spec: Sequence[Item]) -> dict[str, tuple[Item, str]]:
    """Return each item of the lists below the override file's list, with its origin, by name."""
    shared = []
    for number, element in enumerate(elements(there.common, section, common_path(target))):
        # Argo CD takes a missing field from the spec's element at the same index.
        under = spec[number] if number < len(spec) else Item("", "", force=False)
        fields = ("name", "value", "forcestring")
        name, text, flag = (
            text_field(there.common, element, one) if there.common and field(there.common, element, one) else None
            for one in fields
        )
        item = Item(
            under.name if name is None else name,
            under.value if text is None else text,
            None if section == PLUGIN else under.force if flag is None else flag.lower() == "true",
        )
        shared += [item] if item.name else []
    own = {item.name: (item, FROM_SPEC) for item in spec} if there.spec else {}
    return {**own, **{item.name: (item, FROM_COMMON) for item in shared}}


def _with_values(tree: Tree, section: Section, path: str, wanted: Callable[[Tree, Node], Item | None]) -> Tree:
    """Return the file with the wanted content in fields that exist."""
    document = single(tree, path)
    if document is None:
        return tree
    changes: list[tuple[Node, Word]] = []
    for element in elements(document, section, path):
        item = wanted(tree, element)
        if (node := field(document, element, "value")) is not None:
            now = resolved(document, node)
            text = item.value if item else now.value
            # A value that is not a string (`1.10`, `true`) breaks the whole Application, even if a person wrote it:
            # Argo CD cannot generate its manifests.
            if now.kind == "scalar" and (text != now.value or not (sound(now) or (now.null and item is None))):
                changes.append((alone(tree, document, node), text))
        if (flag := field(document, element, "forcestring")) is not None and item and item.force is not None:
            now = resolved(document, flag)
            plain = now.kind == "scalar" and not now.style
            # Argo CD accepts only plain booleans: its JSON decoder fails for the string `"true"`.
            if (now.value if plain else "") != ("true" if item.force else "false"):
                changes.append((alone(tree, document, flag), item.force))
    return splice(tree, changes) if changes else tree


def _gap(
    tree: Tree, section: Section, path: str, wanted: Callable[[Tree, Node], Item | None]
) -> tuple[Node, str, Data] | None:
    """Return the first element that lacks a field, that field and its content, or None."""
    document = single(tree, path)
    if document is None:
        return None
    for element in elements(document, section, path):
        item = wanted(tree, element)
        for name, data in item.data().items() if item else ():
            if field(document, element, name) is None:
                return resolved(document, element), name, data
    return None
