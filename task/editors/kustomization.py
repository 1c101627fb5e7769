"""Edits `newTag`, `digest`, and `newName` in the `images:` of a kustomization file or Component, in
place.

Kustomize combines `newTag` and `digest` into `name:tag@digest`, and a digest without a tag replaces
the tag. So if the new image lacks a tag or a digest, that field is removed from the entry. AIU
replaces the whole entry, which loses the entry's comments and `newName`, and silently writes
nothing if `images:` is null.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from task.editors.file_text import (
    about,
    belongs,
    identity_of,
    name_as_spelled,
    refuse_taken_entry,
    result_of_write,
    root_of_only_document,
    text_of,
    tree_of,
)
from task.editors.yaml.edit import add, drop_key, require_unshared, with_texts
from task.editors.yaml.spelling import Data, reads_as_string
from task.editors.yaml.tree import Node, Tree, pairs, resolved, resolved_value, value, values
from task.errors import TargetError
from task.model import Edit, Files, Image, Place, Reading, Target

NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")


@dataclass(frozen=True)
class Replacement:
    """An entry in `images:`, which replaces an image's name, tag, or digest.
    Missing fields are "".
    """

    name: str
    new: str
    tag: str
    digest: str

    @property
    def version(self) -> str:
        """The part after the image's name."""
        return "@".join(filter(None, (self.tag, self.digest)))


# Kustomize rejects an empty file ("kustomization.yaml is empty"). So when an empty file is filled,
# it begins with these fields.
_HEAD: Mapping[str, Data] = {
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
}


def places(target: Target) -> tuple[Place, ...]:
    """Return the places of all three file names that Kustomize supports."""
    return tuple(Place(posixpath.join(target.path, file_name)) for file_name in NAMES)


def read(files: Files, target: Target) -> Reading:
    """Return the image's version according to its entries in `images:`.

    The reading is not sound (the entries must be rewritten) in the cases that `reading_of` lists,
    or if a `newTag` is not a string.
    """
    refuse_taken_entry(target)
    path, tree = _load(files, target)
    entry_nodes = _entries_of_image(tree, target)
    if not entry_nodes:
        return Reading(file=path)
    entries = [_replacement(node) for node in entry_nodes]
    reading = reading_of(entries, entries, target, path)
    for node in entry_nodes:
        for tag_node in values(node, "newTag"):
            is_string = reads_as_string(resolved(tag_node))
            if not is_string:
                reading = replace(reading, sound=False)
    return reading


def replacements(files: Files, target: Target) -> list[Replacement]:
    """Return the image's entries, in the order of the file."""
    _, tree = _load(files, target)
    return [_replacement(entry) for entry in _entries_of_image(tree, target)]


def every_entry(files: Files, target: Target, folder: str) -> list[Replacement]:
    """Return all entries in a folder's kustomization, including those for other images.

    Return [] if the folder has no usable kustomization file.
    """
    try:
        _, tree = _load(files, replace(target, path=folder))
    except TargetError:
        return []
    return [_replacement(entry) for entry in _all_entries(tree)]


def aliased(files: Files, target: Target) -> tuple[str, ...]:
    """Return the YAML aliases in the image's entries, such as `line 4: newTag: *version`."""
    _, tree = _load(files, target)
    descriptions = []
    for entry in _entries_of_image(tree, target):
        for field in ("newTag", "digest"):
            aliases = [node for node in values(entry, field) if node.kind == "alias"]
            descriptions += [f"line {tree.line(node)}: {field}: *{node.value}" for node in aliases]
    return tuple(descriptions)


def is_component(files: Files, folder: str) -> bool:
    """Return whether a folder contains a Component, which changes the resources of other
    kustomizations.
    """
    for name in NAMES:
        path = posixpath.join(folder, name)
        if path in files:
            kind = resolved_value(tree_of(files, path).root, "kind")
            return kind is not None and kind.value == "Component"
    return False


def made_of(image: Replacement, lists: Iterable[Iterable[Replacement]]) -> Replacement:
    """Return the image that results when Kustomize applies these lists of entries one after the
    other. A list that does not set a version leaves the image's version unchanged.
    """
    for entries in lists:
        replacement = _replacement_of(image.name, entries)
        sets_version = replacement.version != ""
        if not sets_version:
            replacement = replace(replacement, tag=image.tag, digest=image.digest)
        image = replacement  # the next list applies to the result
    return image


def reading_of(
    applied_entries: Sequence[Replacement],
    written_entries: Sequence[Replacement],
    target: Target,
    path: str,
) -> Reading:
    """Return the image's version after Kustomize has applied the image's entries. The reading's
    `also` contains the other tags in these entries.

    `written_entries` are the image's entries as written in the file, and `applied_entries` are the
    entries that Kustomize applies, in Kustomize's order. Neither may be empty.

    The reading is not sound (an update must rewrite the entries) if the written entries have
    different versions. If `kustomize.image-name` is annotated, the reading is also not sound if no
    entry has that name, or if that name is replaced with a different image.
    """
    identity = target.image.identity
    annotated = identity_of(target.keys.kustomize_name)
    names = list(dict.fromkeys(entry.name for entry in applied_entries))
    if annotated:
        names.sort(key=lambda name: identity_of(name) != annotated)  # the annotated name first
    # for each name in the manifests, the image into which Kustomize turns it
    results = [_replacement_of(name, applied_entries) for name in names]

    versions = {entry.version for entry in written_entries}
    is_sound = len(versions) == 1
    if annotated:
        has_annotated_name = identity_of(names[0]) == annotated
        gives_the_image = identity_of(results[0].name) == identity
        is_sound = is_sound and has_annotated_name and gives_the_image

    # An entry may have no effect on the image if its result is changed by a later entry, such as
    # AIU appends.
    results_with_image = [
        result for result in results if identity_of(result.name) == identity and result.version
    ]
    current = results_with_image[0] if results_with_image else results[0]
    tags = dict.fromkeys(entry.tag for entry in (*results_with_image, *written_entries))
    other_tags = tuple(tag for tag in tags if tag not in ("", current.tag))
    return Reading(
        current.name,
        current.tag,
        current.digest,
        sound=is_sound,
        file=path,
        also=other_tags,
    )


def _replacement_of(name: str, entries: Iterable[Replacement]) -> Replacement:
    """Return the result of applying these entries to an image with this name. A tag or digest that
    no entry sets is "".

    Kustomize applies the entries in sequence, and an entry may change the name that the next entry
    has to match.
    """
    tag = ""
    digest = ""
    for entry in entries:
        if entry.name != name:
            continue
        if entry.new:
            name = entry.new
        if entry.version:
            tag = entry.tag
            digest = entry.digest
    return Replacement(name, "", tag, digest)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the file with the new version in every entry for the image.

    An entry is added if the image has none, or if no entry has the annotated
    `kustomize.image-name`.

    A file may contain several entries with the same name, which Kustomize applies in order. AIU
    also updates all of them.
    """
    refuse_taken_entry(target)
    path, tree = _load(files, target)
    old_versions = _versions_of_entries(tree, target)
    annotated = identity_of(target.keys.kustomize_name)
    with about(path):
        tree = _with_new_fields(tree, target, image)
        names = {identity_of(_text(entry, "name")) for entry in _entries_of_image(tree, target)}
        lacks_annotated_name = annotated != "" and annotated not in names
        if not old_versions or lacks_annotated_name:
            tree = _with_new_entry(tree, target, image)
    new_versions = _versions_of_entries(tree, target)
    edits = [
        Edit(path, key, old_versions.get(key, ""), version) for key, version in new_versions.items()
    ]
    return result_of_write(files, path, tree.text, edits)


def _load(files: Files, target: Target) -> tuple[str, Tree]:
    """Return the path and tree of the kustomization file.

    Raises TargetError unless the folder contains exactly one usable kustomization file.
    """
    paths = [place.path for place in places(target) if text_of(files, place.path) is not None]
    if not paths:
        hint = "use write-back-target: kustomization:<folder>; for plain manifests, use manifests"
        raise TargetError(
            "contains no kustomization file",
            hint=hint,
            subject=target.path or "/",
        )
    path, *others = paths
    # AIU uses the first file, but Kustomize rejects the folder ("Found multiple kustomization
    # files")
    if others:
        raise TargetError(
            f"is next to {others[0]}, but kustomize accepts only one",
            hint="remove one",
            subject=path,
        )
    tree = tree_of(files, path)
    with about(path):
        root = root_of_only_document(tree)
        _refuse_other_spelling(tree, root, ("images",))
        images = resolved_value(root, "images")
        if images and not images.null and images.kind != "sequence":
            raise TargetError("images is not a list", hint="use a list of {name, newTag}")
    return path, tree


_FIELDS = ("name", "newName", "newTag", "digest", "tagSuffix")


def _refuse_other_spelling(tree: Tree, mapping: Node, known: Sequence[str]) -> None:
    """Raise TargetError if a known key is written with different capitalization.

    Kustomize also reads `newtag`, and if both `newtag` and `newTag` are set, it uses only one of
    them.
    """
    for key, _ in pairs(mapping):
        for name in known:
            differs_only_in_case = key.value != name and key.value.lower() == name.lower()
            if differs_only_in_case:
                problem = f"Kustomize reads {key.value!r} as {name}, but other tools do not"
                raise TargetError(f"line {tree.line(key)}: {problem}", hint=f"use {name}")


def _all_entries(tree: Tree) -> list[Node]:
    """Return all entries in `images:`, or [] if there is no list."""
    images = resolved_value(tree.root, "images")
    return [resolved(entry) for entry in images.children] if images else []


def _entries_of_image(tree: Tree, target: Target) -> list[Node]:
    """Return the nodes of the image's entries. In such an entry, `name` is the image or the
    annotated `kustomize.image-name`, or `newName` is the image.

    Entries that belong to another alias of the Application are skipped. Raises TargetError if a
    field is written with different capitalization, such as `newtag`.
    """
    wanted_names = {target.image.identity, identity_of(target.keys.kustomize_name)} - {""}
    own_entries = []
    for entry in _all_entries(tree):
        _refuse_other_spelling(tree, entry, ("name",))
        name = identity_of(_text(entry, "name"))
        new_name = identity_of(_text(entry, "newName"))
        # AIU finds entries only by name, so it appends a second entry if `newName` is the image.
        is_for_image = name in wanted_names or new_name == target.image.identity
        if is_for_image and belongs(name, target, "kustomize_name"):
            _refuse_other_spelling(tree, entry, _FIELDS)
            own_entries.append(entry)
    return own_entries


def _text(entry: Node, field: str) -> str:
    """Return the value of a field, or "" if the field is missing, null, or not a scalar."""
    node = resolved_value(entry, field)
    return node.value if node and node.kind == "scalar" and not node.null else ""


def _versions_of_entries(tree: Tree, target: Target) -> dict[str, str]:
    """Return the versions of the image's entries, keyed by the entries' keys."""
    entries = map(_replacement, _entries_of_image(tree, target))
    return {f"kustomize.images[{entry.name}]": entry.version for entry in entries}


def _replacement(entry: Node) -> Replacement:
    """Return the fields of an entry."""
    return Replacement(*(_text(entry, field) for field in ("name", "newName", "newTag", "digest")))


def _with_new_fields(tree: Tree, target: Target, image: Image) -> Tree:
    """Return the tree with the wanted fields written to the image's entries.

    Existing fields are changed first. Then missing fields are added and extra fields are removed,
    one at a time.
    """
    changes = []
    for entry in _entries_of_image(tree, target):
        for field, text in _wanted_fields(entry, target, image).items():
            if text:
                changes += [(node, text) for node in values(entry, field)]
    tree = with_texts(tree, changes)

    # Each added or removed line moves the nodes after it, so search the new tree again.
    while next_field := _first_field_to_add_or_remove(tree, target, image):
        entry, field, text = next_field
        require_unshared(tree, entry)
        existing_key = next((key for key, _ in pairs(entry) if key.value == field), None)
        if existing_key is not None:
            tree = drop_key(tree, entry, existing_key)
        else:
            tree = add(tree, entry, {field: text})
    return tree


def _first_field_to_add_or_remove(
    tree: Tree,
    target: Target,
    image: Image,
) -> tuple[Node, str, str] | None:
    """Return an entry of the image, the name of a field to add to or remove from the entry, and the
    field's value ("" to remove the field). Return None if all entries already have the wanted
    fields.
    """
    for entry in _entries_of_image(tree, target):
        for field, text in _wanted_fields(entry, target, image).items():
            exists = bool(values(entry, field))
            must_exist = text != ""
            if exists != must_exist:
                return entry, field, text
    return None


def _wanted_fields(entry: Node, target: Target, image: Image) -> dict[str, str]:
    """Return the wanted fields of an entry, such as `{"newTag": "1.2", "digest": ""}`. "" means
    that the field must not exist.

    `newName` is included only for the entry with the annotated name, and only if that entry
    currently resolves to a different image.
    """
    fields = {"newTag": image.tag, "digest": image.digest}
    name = _text(entry, "name")
    current_result = _text(entry, "newName") or name
    annotated = identity_of(target.keys.kustomize_name)
    has_annotated_name = annotated != "" and identity_of(name) == annotated
    if has_annotated_name and identity_of(current_result) != image.identity:
        fields["newName"] = name_as_spelled(image, target, *target.source.images)
    return fields


def _with_new_entry(tree: Tree, target: Target, image: Image) -> Tree:
    """Return the tree with one more entry in `images:`, whose name is the annotated one or else the
    image's. A missing list is added.
    """
    full_name = name_as_spelled(image, target, *target.source.images)
    name = target.keys.kustomize_name or full_name
    new_name = full_name if name != full_name else ""
    fields = {"name": name, "newName": new_name, "newTag": image.tag, "digest": image.digest}
    entry: Data = {field: text for field, text in fields.items() if text}
    images = value(tree.root, "images")
    if images is None:
        head = _HEAD if tree.root.null else {}
        return add(tree, tree.root, {**head, "images": [entry]})
    if images.kind == "alias":
        raise TargetError(
            f"line {tree.line(images)}: images is an alias",
            hint="write out the list",
        )
    return add(tree, require_unshared(tree, images), [entry])
