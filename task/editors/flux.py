"""Reads and writes the image in a Flux HelmRelease's `spec.values`,
and scalars with a setter comment.

`keys.tag` (or `keys.name`) is the container's name as in Flux v1: `chart-image` or "" means the
image at the top level of the values. Any other name is a key path in the values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from task.editors.file_text import about, result, split_tag, tag_value, tree_of
from task.editors.manifests import first_parts, marked
from task.editors.yaml.edit import add, alone, splice, with_texts
from task.editors.yaml.path import find, find_all, key_path, parse_path
from task.editors.yaml.spelling import sound
from task.editors.yaml.tree import Node, Tree, resolved, resolved_value, value
from task.errors import TargetError
from task.image import live_image
from task.model import Edit, Files, Image, Place, Reading, Target

TOP = "chart-image"


@dataclass(frozen=True)
class ImageValue:
    """Where the tag is written: to its own scalar, to a whole reference,
    or to a mapping without `tag`.
    """

    node: Node
    kind: str  # "tag", "reference", "missing"
    name: str  # the repository, as spelled in the values


def places(target: Target) -> tuple[Place, ...]:
    """Return the file with the HelmRelease."""
    return (Place(target.path),)


def read(files: Files, target: Target) -> Reading:
    """Return the image in the values, or else the image in marked scalars.

    Raises TargetError if neither exists.
    """
    tree = tree_of(files, target.path)
    with about(target.path):
        spot = _spot(tree, target)
    if spot is None:
        return Reading(
            *first_parts([hit.old for hit in marked(tree, target, None)]),
            file=target.path,
        )
    if spot.kind == "missing":
        return Reading(spot.name, file=target.path)
    node = resolved(spot.node)
    if spot.kind == "tag":
        return Reading(
            spot.name,
            *split_tag(node.value),
            sound=sound(node),
            file=target.path,
        )
    reference = live_image(node.value)
    version = (reference.tag, reference.digest) if reference else ("", "")
    return Reading(spot.name, *version, sound=sound(node), file=target.path)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the file with the new tag in its values and its marked scalars."""
    path = target.path
    before = tree = tree_of(files, path)
    edits = []
    with about(path):
        if spot := _spot(before, target):
            text = (
                replace(image, name=spot.name).reference
                if spot.kind == "reference"
                else tag_value(image)
            )
            key = key_path(before, spot.node)
            old = resolved(spot.node).value
            if spot.kind == "missing":
                key = f"{key}.tag"
                old = ""
                tree = add(
                    tree,
                    alone(tree, spot.node),
                    {"tag": text},
                )
            else:
                tree = with_texts(tree, [(spot.node, text)])
            edits = [Edit(path, key, old, text)] if tree.text != before.text else []
        hits = [hit for hit in marked(tree, target, image) if resolved(hit.node).value != hit.new]
        edits += [hit.edit(path, tree) for hit in hits]
        tree = splice(tree, [(alone(tree, hit.node), hit.new) for hit in hits])
    return result(files, path, tree.text, edits)


def _spot(tree: Tree, target: Target) -> ImageValue | None:
    """Return the tag's place in the values, or None if there are only markers.

    Raises TargetError if neither exists.
    """
    name = target.keys.tag or target.keys.name or target.keys.spec
    name = "" if name == TOP else name
    namespace, _, release = target.application.rpartition("/")
    for root in tree.roots:
        if _text_at_path(tree, root, "kind") != "HelmRelease":
            continue
        if release and _text_at_path(tree, root, "metadata.name") != release:
            continue
        # "": Kustomize or kubectl adds the namespace later
        if _text_at_path(tree, root, "metadata.namespace") not in {
            "",
            namespace,
        }:
            continue
        if (values := find(tree, root, parse_path("spec.values"))) is None:
            continue
        # The mapping with the image is the values mapping itself, or the one at the container's
        # path in it.
        holders = find_all(tree, values, parse_path(name)) if name else (values,)
        for holder in holders:
            if (spot := _tag(resolved(holder))) is not None:
                return spot
    if next(marked(tree, target, None), None):
        return None
    hint = (
        "add `image: {repository, tag}` or `image: name:tag`, or mark the scalar with a setter"
        " comment"
    )
    raise TargetError(
        f"no HelmRelease in this file has the image {name or TOP} in spec.values",
        hint=hint,
    )


def _text_at_path(tree: Tree, root: Node, path: str) -> str:
    node = find(tree, root, parse_path(path))
    return node.value if node else ""


def _tag(holder: Node) -> ImageValue | None:
    """Return the tag's place if the image has a form that Flux v1 supported, else None.

    The forms are `image: {repository, tag}`, `image: name` next to `tag:`, and `image: name:tag`.
    """
    image = value(holder, "image") if holder.kind == "mapping" else holder
    if image is None:
        return _beside(holder, "")
    node = resolved(image)
    if node.kind == "mapping":
        return _beside(node, "")
    if node.kind != "scalar" or (reference := live_image(node.value)) is None:
        return None
    beside = _beside(holder, node.value) if holder.kind == "mapping" and not reference.tag else None
    return (
        beside
        if beside and beside.kind == "tag"
        else ImageValue(image, "reference", reference.name)
    )


def _beside(mapping: Node, name: str) -> ImageValue | None:
    """Return the `tag` of a mapping, or the mapping itself
    if it has a repository and no `tag` yet.
    """
    repository = resolved_value(mapping, "repository") or resolved_value(mapping, "name")
    known = name or (repository.value if repository else "")
    tag = value(mapping, "tag")
    if tag and resolved(tag).kind == "scalar":
        return ImageValue(tag, "tag", known)
    return ImageValue(mapping, "missing", known) if known and tag is None else None
