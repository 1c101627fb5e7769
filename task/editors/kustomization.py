"""`images:` of a kustomization file (or a Component): `newTag`, `digest`, `newName`, edited in place.

kustomize joins `newTag` and `digest` to `name:tag@digest`; a digest without a tag replaces the
tag, so what the new image lacks is removed from its entry.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from task.editors.texts import alone, belongs, identity_of, refuse_taken, result, single, spelled, text_of, tree_of
from task.editors.yaml.grow import add_items, add_keys, begin, drop_key
from task.editors.yaml.layout import Data
from task.editors.yaml.scalar import sound
from task.editors.yaml.splice import splice
from task.editors.yaml.tree import Document, Node, Tree, pairs, resolved, value, values
from task.errors import TargetError
from task.model import Edit, Files, Image, Place, Reading, Target

NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_HEAD: Mapping[str, Data] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}


def places(target: Target) -> tuple[Place, ...]:
    """All three names that kustomize knows."""
    return tuple(Place(posixpath.join(target.path, name)) for name in NAMES)


def read(files: Files, target: Target) -> Reading:
    """The image's entry, that of `kustomize.image-name` first; not sound where its name does not lead to the image."""
    refuse_taken(target)
    path, _, document = _load(files, target)
    named = identity_of(target.keys.kustomize_name)
    mine = _mine(document, target, path) if document else []
    mine.sort(key=lambda node: bool(named) and identity_of(_text(document, node, "name")) != named)
    if not mine or document is None:
        return Reading(file=path)
    name, new, tag, digest = (_text(document, mine[0], field) for field in ("name", "newName", "newTag", "digest"))
    leads = not named or (identity_of(name) == named and identity_of(new or name) == target.image.identity)
    alike = len({version for _, version in _versions(document, target, path)}) == 1
    good = leads and alike and all(_sound(document, each) for each in mine)
    return Reading(new or name, tag, digest, sound=good, file=path)


def _sound(document: Document, entry: Node) -> bool:
    return all(sound(resolved(document, tag)) for tag in values(resolved(document, entry), "newTag"))


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """The file with every entry of the image at its version; a missing entry or list is added."""
    refuse_taken(target)
    path, tree, document = _load(files, target)
    before = _versions(document, target, path)
    if before:
        tree = _renew(tree, target, image, path)
    if not before or not _named(document, target, path):
        tree = _append(tree, _new(target, image), path)
    after = _versions(single(tree, path), target, path)
    old = dict(before)
    edits = (Edit(path, name, old.get(name, ""), version) for name, version in dict(after).items())
    return result(files, path, tree.text, tuple(edit for edit in edits if edit.old != edit.new) or _same(path, after))


def _named(document: Document | None, target: Target, path: str) -> bool:
    """Whether the name in the manifests, where one is annotated, has its entry."""
    named = identity_of(target.keys.kustomize_name)
    entries = _mine(document, target, path) if document else []
    return not named or any(identity_of(_text(document, each, "name")) == named for each in entries)


def _same(path: str, after: list[tuple[str, str]]) -> tuple[Edit, ...]:
    """The edit to show where only the spelling changed: a number that became a string."""
    return tuple(Edit(path, name, version, version) for name, version in after[:1])


def _load(files: Files, target: Target) -> tuple[str, Tree, Document | None]:
    candidates = [place.path for place in places(target)]
    there = [path for path in candidates if text_of(files, path) is not None]
    if not there:
        hint = "create one, or name its folder: write-back-target: kustomization:<folder>"
        raise TargetError("holds no kustomization file", hint=hint, subject=target.path or "/")
    if len(there) > 1:
        raise TargetError(f"lies beside {there[1]}: kustomize takes only one", hint="remove one", subject=there[0])
    tree = tree_of(files, there[0])
    return there[0], tree, single(tree, there[0])


def _entries(document: Document, path: str) -> tuple[Node, ...]:
    """The items of `images`; none where it is missing or null."""
    found = value(document.root, "images") if document.root.kind == "mapping" else None
    node = resolved(document, found) if found is not None else None
    if node is None or node.null:
        return ()
    if node.kind != "sequence":
        raise TargetError("images is no list", hint="kustomize expects a list of {name, newTag}", subject=path)
    return node.children


def _mine(document: Document, target: Target, path: str) -> list[Node]:
    """The entries about the image: by name, by `kustomize.image-name`, or because `newName` is the image."""
    wanted = {target.image.identity, identity_of(target.keys.kustomize_name)} - {""}
    return [
        each
        for each in _entries(document, path)
        if resolved(document, each).kind == "mapping"
        and (
            (name := identity_of(_text(document, each, "name"))) in wanted
            or identity_of(_text(document, each, "newName")) == target.image.identity
        )
        and belongs(name, target, "kustomize_name")
    ]


def _text(document: Document | None, entry: Node, field: str) -> str:
    found = value(resolved(document, entry), field) if document else None
    node = resolved(document, found) if document and found is not None else None
    return node.value if node is not None and node.kind == "scalar" and not node.null else ""


def _versions(document: Document | None, target: Target, path: str) -> list[tuple[str, str]]:
    """Key and version of each of the image's entries."""
    found = []
    for each in _mine(document, target, path) if document else ():
        tag, digest = _text(document, each, "newTag"), _text(document, each, "digest")
        version = f"{tag}@{digest}" if tag and digest else tag or digest
        found.append((f"kustomize.images[{_text(document, each, 'name')}]", version))
    return found


def _renew(tree: Tree, target: Target, image: Image, path: str) -> Tree:
    """The entries of the image with their new fields: those that are there, then those to add or remove."""
    document = tree.documents[0]
    changes = [
        (alone(tree, document, node), text)
        for entry in _mine(document, target, path)
        for name, text in _wanted(document, entry, target, image).items()
        for node in values(resolved(document, entry), name)
        if text and not _holds(document, node, text)
    ]
    tree = splice(tree, changes) if changes else tree
    while gap := next(_gaps(tree.documents[0], target, image, path), None):
        entry, name, text = gap
        alone(tree, tree.documents[0], entry)
        key = next((each for each, _ in pairs(entry) if each.value == name), None)
        tree = drop_key(tree, entry, key) if key is not None else add_keys(tree, entry, {name: text})
    return tree


def _holds(document: Document, node: Node, text: str) -> bool:
    there = resolved(document, node)
    return there.value == text and sound(there)


def _gaps(document: Document, target: Target, image: Image, path: str) -> Iterator[tuple[Node, str, str]]:
    """Fields to add (with their text) and fields to remove (without)."""
    for each in _mine(document, target, path):
        entry = resolved(document, each)
        for name, text in _wanted(document, each, target, image).items():
            if bool(values(entry, name)) != bool(text):
                yield entry, name, text


def _wanted(document: Document, entry: Node, target: Target, image: Image) -> dict[str, str]:
    """What the fields of an entry must say; "" for a field that must not be there."""
    fields = {"newTag": image.tag, "digest": image.digest}
    name, new = _text(document, entry, "name"), _text(document, entry, "newName")
    named = identity_of(target.keys.kustomize_name)
    if named and identity_of(name) == named and identity_of(new or name) != image.identity:
        fields["newName"] = spelled(image, target, *target.source.images)
    return fields


def _new(target: Target, image: Image) -> dict[str, Data]:
    """A whole new entry."""
    full = spelled(image, target, *target.source.images)
    name = target.keys.kustomize_name or full
    fields = {"name": name, "newName": full if name != full else "", "newTag": image.tag, "digest": image.digest}
    return {field: text for field, text in fields.items() if text}


def _append(tree: Tree, entry: Data, path: str) -> Tree:
    """The file with one more entry, in a list that is made where it is missing."""
    document = single(tree, path)
    if document is None:
        return begin(tree, {**_HEAD, "images": [entry]})
    if document.root.null:
        return add_keys(tree, document.root, {**_HEAD, "images": [entry]})
    found = value(document.root, "images")
    if found is None:
        return add_keys(tree, document.root, {"images": [entry]})
    if found.kind == "alias":
        raise TargetError(f"line {tree.line(found)}: images is an alias", hint="write the list out", subject=path)
    return add_items(tree, alone(tree, document, found), [entry])
