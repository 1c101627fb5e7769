"""Reads and writes the image in a Flux HelmRelease's `spec.values`, and in scalars with a setter
comment.

`keys.tag` (or `keys.name`) is the container's name as in Flux v1: `chart-image` or "" stands for
the image at the top level of the values. Any other name is a key path in the values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from task.editors.file_text import about, result_of_write, split_tag, tag_value, tree_of
from task.editors.manifests import first_parts, marked_scalars
from task.editors.yaml.edit import add, require_unshared, splice, with_texts
from task.editors.yaml.path import find, find_all, key_path, parse_path
from task.editors.yaml.spelling import reads_as_string
from task.editors.yaml.tree import Node, Tree, resolved, resolved_value, value
from task.errors import TargetError
from task.image import live_image
from task.model import Edit, Files, Image, Place, Reading, Target

TOP = "chart-image"


@dataclass(frozen=True)
class ImageValue:
    """The place where the tag is written: a scalar of its own, a complete image reference, or a
    mapping that lacks `tag`.
    """

    node: Node
    # "tag": the node is the tag; "reference": the node is `name:tag`; "missing": the node is the
    # mapping that lacks `tag`
    kind: str
    name: str  # the repository, as spelled in the values


def places(target: Target) -> tuple[Place, ...]:
    """Return the place of the file with the HelmRelease."""
    return (Place(target.path),)


def read(files: Files, target: Target) -> Reading:
    """Return the image in `spec.values`, or else the image in the scalars marked by setter
    comments.

    The reading is not sound (the value must be rewritten) if the value is not a string. Raises
    TargetError if the file contains neither an image in `spec.values` nor a marked scalar.
    """
    tree = tree_of(files, target.path)
    with about(target.path):
        image_value = _image_value(tree, target)
    if image_value is None:
        name, tag, digest = first_parts([hit.old for hit in marked_scalars(tree, target, None)])
        return Reading(name, tag, digest, file=target.path)
    name = image_value.name
    if image_value.kind == "missing":
        return Reading(name, file=target.path)
    node = resolved(image_value.node)
    tag = ""
    digest = ""
    if image_value.kind == "tag":
        tag, digest = split_tag(node.value)
    else:
        reference = live_image(node.value)
        if reference is not None:
            tag = reference.tag
            digest = reference.digest
    return Reading(name, tag, digest, sound=reads_as_string(node), file=target.path)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the file with the new image written to `spec.values` and to the scalars marked by
    setter comments.
    """
    path = target.path
    old_tree = tree_of(files, path)
    tree = old_tree
    edits = []
    with about(path):
        image_value = _image_value(old_tree, target)
        if image_value is not None:
            tree, edit = _with_image_value(old_tree, path, image_value, image)
            if tree.text != old_tree.text:
                edits.append(edit)

        outdated = [
            hit
            for hit in marked_scalars(tree, target, image)
            if resolved(hit.node).value != hit.new
        ]
        edits += [hit.edit(path, tree) for hit in outdated]
        changes = [(require_unshared(tree, hit.node), hit.new) for hit in outdated]
        tree = splice(tree, changes)
    return result_of_write(files, path, tree.text, edits)


def _with_image_value(
    tree: Tree,
    path: str,
    image_value: ImageValue,
    image: Image,
) -> tuple[Tree, Edit]:
    """Return the tree with the new image written to its place in `spec.values`, and the edit."""
    node = image_value.node
    key = key_path(tree, node)
    if image_value.kind == "missing":
        tag = tag_value(image)
        changed = add(tree, require_unshared(tree, node), {"tag": tag})
        return changed, Edit(path, f"{key}.tag", "", tag)
    if image_value.kind == "reference":
        text = replace(image, name=image_value.name).reference
    else:
        text = tag_value(image)
    return with_texts(tree, [(node, text)]), Edit(path, key, resolved(node).value, text)


def _image_value(tree: Tree, target: Target) -> ImageValue | None:
    """Return where `spec.values` contains the tag, or None if the file contains only scalars marked
    by setter comments.

    Raises TargetError if the file contains neither.
    """
    name = target.keys.tag or target.keys.name or target.keys.spec
    name = "" if name == TOP else name
    for root in tree.roots:
        if not _is_helm_release(tree, root, target):
            continue
        values = find(tree, root, parse_path("spec.values"))
        if values is None:
            continue
        # The image is specified in the values mapping itself, or in the mapping at the container's
        # path in it.
        holders = find_all(tree, values, parse_path(name)) if name else (values,)
        for holder in holders:
            image_value = _image_value_in(resolved(holder))
            if image_value is not None:
                return image_value
    has_marked_scalars = next(marked_scalars(tree, target, None), None) is not None
    if has_marked_scalars:
        return None
    hint = (
        "add `image: {repository, tag}` or `image: name:tag`, or mark the scalar with a setter"
        " comment"
    )
    raise TargetError(
        f"no HelmRelease in this file has the image {name or TOP} in spec.values",
        hint=hint,
    )


def _is_helm_release(tree: Tree, root: Node, target: Target) -> bool:
    """Return whether a document is the target's HelmRelease, according to its kind, name, and
    namespace.
    """
    namespace, _, release = target.application.rpartition("/")
    if _text_at_path(tree, root, "kind") != "HelmRelease":
        return False
    if release and _text_at_path(tree, root, "metadata.name") != release:
        return False
    # "" means that Kustomize or kubectl adds the namespace later
    return _text_at_path(tree, root, "metadata.namespace") in {"", namespace}


def _text_at_path(tree: Tree, root: Node, path: str) -> str:
    """Return the value at a key path, such as `metadata.name`, or "" if there is no such path."""
    node = find(tree, root, parse_path(path))
    return node.value if node else ""


def _image_value_in(holder: Node) -> ImageValue | None:
    """Return where a container's values contain the tag, or None if they do not specify an image.

    `holder` is the mapping that contains the image, or the image itself. The image may have any of
    the forms that Flux v1 supported: `image: {repository, tag}`, `image: name` next to `tag:`, or
    `image: name:tag`.
    """
    is_mapping = holder.kind == "mapping"
    image = value(holder, "image") if is_mapping else holder
    if image is None:
        return _tag_of_mapping(holder, "")
    image_node = resolved(image)
    if image_node.kind == "mapping":  # image: {repository, tag}
        return _tag_of_mapping(image_node, "")
    if image_node.kind != "scalar":
        return None
    reference = live_image(image_node.value)
    if reference is None:
        return None
    if is_mapping and not reference.tag:  # perhaps `image: name` next to `tag:`
        separate_tag = _tag_of_mapping(holder, image_node.value)
        if separate_tag and separate_tag.kind == "tag":
            return separate_tag
    return ImageValue(image, "reference", reference.name)


def _tag_of_mapping(mapping: Node, name: str) -> ImageValue | None:
    """Return the `tag` of a mapping, or the mapping itself if it has no `tag` yet.

    `name` is the image's repository, or "" to read the repository from the mapping. Return None if
    the `tag` is not a single value, or if the mapping has no `tag` and the repository is unknown.
    """
    if not name:
        repository = resolved_value(mapping, "repository") or resolved_value(mapping, "name")
        if repository is not None:
            name = repository.value
    tag = value(mapping, "tag")
    if tag is None:
        return ImageValue(mapping, "missing", name) if name else None
    if resolved(tag).kind != "scalar":
        return None
    return ImageValue(tag, "tag", name)
