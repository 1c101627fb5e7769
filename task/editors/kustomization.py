"""Edits `newTag`, `digest` and `newName` in the `images:` of a kustomization file or Component, in place.

kustomize joins `newTag` and `digest` to `name:tag@digest`, and a digest without a tag replaces the tag. So a field that
the new image lacks is removed from its entry. AIU replaces the whole entry, which loses its comments and `newName`, and
silently writes nothing if `images:` is null.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from task.editors.file_text import (
    alone,
    belongs,
    identity_of,
    refuse_taken,
    result,
    single,
    spelled,
    text_of,
    tree_of,
    with_texts,
)
from task.editors.yaml.edit import add_items, add_keys, begin, drop_key
from task.editors.yaml.layout import Data, sound
from task.editors.yaml.tree import Document, Node, Tree, pairs, resolved, value, values
from task.errors import TargetError
from task.model import Edit, Files, Image, Place, Reading, Target

NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")


@dataclass(frozen=True)
class Replacement:
    """One entry of `images:`. Fields that it lacks are ""."""

    name: str
    new: str
    tag: str
    digest: str

    @property
    def version(self) -> str:
        """The part after the image's name."""
        return f"{self.tag}@{self.digest}" if self.tag and self.digest else self.tag or self.digest


# kustomize refuses an empty file ("kustomization.yaml is empty"), so a file that we fill begins with these.
_HEAD: Mapping[str, Data] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}


def places(target: Target) -> tuple[Place, ...]:
    """Return all three names that kustomize knows."""
    return tuple(Place(posixpath.join(target.path, name)) for name in NAMES)


def read(files: Files, target: Target) -> Reading:
    """Return the version that the image's entries give it."""
    refuse_taken(target)
    path, _, document = _load(files, target)
    nodes = _mine(document, target, path)
    if not nodes or document is None:
        return Reading(file=path)
    mine = [_replacement(document, node) for node in nodes]
    tags = [node for entry in nodes for node in values(resolved(document, entry), "newTag")]
    strings = all(sound(resolved(document, node)) for node in tags)
    found = reading_of(mine, mine, target, path)
    return replace(found, sound=found.sound and strings)


def replacements(files: Files, target: Target) -> list[Replacement]:
    """Return the image's entries, in the order of the file."""
    path, _, document = _load(files, target)
    return [_replacement(document, node) for node in _mine(document, target, path)]


def reading_of(mine: Sequence[Replacement], every: Sequence[Replacement], target: Target, path: str) -> Reading:
    """Return the version that the image's entries give it in kustomize's order, and all others in `every` entry.

    An image that has the name `kustomize.image-name` comes first. The reading is not sound if it leads to another
    image, or if the entries differ.
    """
    named = identity_of(target.keys.kustomize_name)
    names = sorted({entry.name: None for entry in mine}, key=lambda name: bool(named) and identity_of(name) != named)
    results = [_result(name, mine) for name in names]
    leads = not named or (identity_of(names[0]) == named and identity_of(results[0].name) == target.image.identity)
    # An entry may have no effect, because a later one changes what it makes: AIU appends such entries.
    about = [one for one in results if identity_of(one.name) == target.image.identity and one.version]
    now = (about or results)[0]
    others = {entry.tag: None for entry in (*about, *every) if entry.tag and entry.tag != now.tag}
    alike = len({entry.version for entry in every}) == 1
    return Reading(now.name, now.tag, now.digest, sound=leads and alike, file=path, also=tuple(others))


def _result(name: str, entries: Iterable[Replacement]) -> Replacement:
    """Return what an image of this name becomes. kustomize applies the entries one after the other."""
    tag = digest = ""
    for entry in entries:
        if entry.name == name:
            name = entry.new or name
            if entry.version:
                tag, digest = entry.tag, entry.digest
    return Replacement(name, "", tag, digest)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the file with the new version in every entry of the image. A missing entry or list is added.

    A file may have several entries with one name (AIU replaces all of them, too). kustomize applies them in order.
    """
    refuse_taken(target)
    path, tree, document = _load(files, target)
    before = _versions(document, target, path)
    named = identity_of(target.keys.kustomize_name)
    if before:
        tree = _renewed(tree, target, image, path)
    names = {identity_of(_text(document, entry, "name")) for entry in _mine(document, target, path)}
    if not before or (named and named not in names):
        tree = _with_new_entry(tree, target, image, path)
    after = _versions(single(tree, path), target, path)
    old = dict(before)
    edits = [Edit(path, name, old.get(name, ""), version) for name, version in dict(after).items()]
    changed = tuple(edit for edit in edits if edit.old != edit.new)
    # If only the spelling changed (a number became a string), one edit says which entry it was.
    same = [Edit(path, name, version, version) for name, version in after[:1]]
    return result(files, path, tree.text, changed or tuple(same))


def _load(files: Files, target: Target) -> tuple[str, Tree, Document | None]:
    paths = [place.path for place in places(target) if text_of(files, place.path) is not None]
    if not paths:
        hint = "name its folder: write-back-target: kustomization:<folder>; for plain manifests, write manifests"
        raise TargetError("contains no kustomization file", hint=hint, subject=target.path or "/")
    if (
        len(paths) > 1
    ):  # AIU uses the first one, but kustomize refuses the folder ("Found multiple kustomization files")
        raise TargetError(f"is next to {paths[1]}, and kustomize takes only one", hint="remove one", subject=paths[0])
    tree = tree_of(files, paths[0])
    return paths[0], tree, single(tree, paths[0])


def _mine(document: Document | None, target: Target, path: str) -> list[Node]:
    """Return the entries for the image: by name, by `kustomize.image-name`, or because `newName` is the image."""
    node = value(document.root, "images") if document and document.root.kind == "mapping" else None
    images = resolved(document, node) if document and node is not None else None
    if document is None or images is None or images.null:
        return []
    if images.kind != "sequence":
        raise TargetError("images is not a list", hint="write a list of {name, newTag}", subject=path)
    wanted = {target.image.identity, identity_of(target.keys.kustomize_name)} - {""}
    mine = []
    for entry in images.children:
        name, new = (identity_of(_text(document, entry, field)) for field in ("name", "newName"))
        # AIU finds an entry only by its name, and appends a second one if `newName` is the image.
        about = name in wanted or new == target.image.identity
        if about and resolved(document, entry).kind == "mapping" and belongs(name, target, "kustomize_name"):
            mine.append(entry)
    return mine


def _text(document: Document | None, entry: Node, field: str) -> str:
    mapping = resolved(document, entry) if document else entry
    inner = value(mapping, field) if document and mapping.kind == "mapping" else None
    node = resolved(document, inner) if document and inner is not None else None
    return node.value if node is not None and node.kind == "scalar" and not node.null else ""


def _versions(document: Document | None, target: Target, path: str) -> list[tuple[str, str]]:
    """Return the key and version of each of the image's entries."""
    versions = []
    for entry in _mine(document, target, path):
        found = _replacement(document, entry)
        versions.append((f"kustomize.images[{found.name}]", found.version))
    return versions


def _replacement(document: Document | None, entry: Node) -> Replacement:
    return Replacement(*(_text(document, entry, field) for field in ("name", "newName", "newTag", "digest")))


def _renewed(tree: Tree, target: Target, image: Image, path: str) -> Tree:
    """Return the tree with the new fields in the image's entries.

    Existing fields are changed first, and then others are added or removed.
    """
    document = tree.documents[0]
    texts = [
        (node, text)
        for entry in _mine(document, target, path)
        for field, text in _fields(document, entry, target, image).items()
        for node in values(resolved(document, entry), field)
        if text
    ]
    tree = with_texts(tree, document, texts)
    # Each new or removed line moves the nodes after it, so the tree is searched again.
    while gap := _gap(tree.documents[0], target, image, path):
        entry, field, text = gap
        alone(tree, tree.documents[0], entry)
        key = next((key for key, _ in pairs(entry) if key.value == field), None)
        tree = drop_key(tree, entry, key) if key is not None else add_keys(tree, entry, {field: text})
    return tree


def _gap(document: Document, target: Target, image: Image, path: str) -> tuple[Node, str, str] | None:
    """Return the first entry with a field to add or remove, the field, and its text ("" to remove it); None if none."""
    for node in _mine(document, target, path):
        entry = resolved(document, node)
        for field, text in _fields(document, node, target, image).items():
            if bool(values(entry, field)) != bool(text):
                return entry, field, text
    return None


def _fields(document: Document, entry: Node, target: Target, image: Image) -> dict[str, str]:
    """Return the wanted fields of an entry. The text "" means that the field must not exist."""
    fields = {"newTag": image.tag, "digest": image.digest}
    name, new = _text(document, entry, "name"), _text(document, entry, "newName")
    named = identity_of(target.keys.kustomize_name)
    if named and identity_of(name) == named and identity_of(new or name) != image.identity:
        fields["newName"] = spelled(image, target, *target.source.images)
    return fields


def _with_new_entry(tree: Tree, target: Target, image: Image, path: str) -> Tree:
    """Return the file with one more entry. A missing list is added."""
    full = spelled(image, target, *target.source.images)
    name = target.keys.kustomize_name or full
    fields = {"name": name, "newName": full if name != full else "", "newTag": image.tag, "digest": image.digest}
    entry: Data = {field: text for field, text in fields.items() if text}
    document = single(tree, path)
    if document is None:
        return begin(tree, {**_HEAD, "images": [entry]})
    if document.root.null:
        return add_keys(tree, document.root, {**_HEAD, "images": [entry]})
    images = value(document.root, "images")
    if images is None:
        return add_keys(tree, document.root, {"images": [entry]})
    if images.kind == "alias":
        raise TargetError(f"line {tree.line(images)}: images is an alias", hint="write the list out", subject=path)
    return add_items(tree, alone(tree, document, images), [entry])
