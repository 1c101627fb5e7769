"""The editors, one for each kind of write-back target. Editors turn text into text, without side
effects.

To add a target, add a module with `places`, `read`, and `write`, and a line in `EDITORS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Protocol

from task.editors import flux, helm_values, kustomization, manifests, override_kustomize, overrides
from task.editors.file_text import belongs, chosen, split_tag, tree_of
from task.editors.overrides import Stray
from task.editors.yaml.path import entries, key_path
from task.editors.yaml.tree import Node, Tree, value, walk
from task.errors import TargetError
from task.image import live_image, split_registry
from task.model import Edit, Files, Image, Place, Reading, Target, TargetKind


class Editor(Protocol):
    """Reads and writes one kind of target, and must obey two laws.

    Writing twice has the same result as writing once, and `read` returns what `write` has written.
    """

    def places(self, target: Target) -> tuple[Place, ...]:
        """Return the places of the files that `read` and `write` need."""

    def read(self, files: Files, target: Target) -> Reading:
        """Return the target's current image. All parts are "" if the target's file does not exist.

        Raises TargetError if the file cannot be edited safely, and AnnotationError if the keys do
        not specify where the tag goes.
        """

    def write(self, files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
        """Return the changed files and the edits in them.

        Both are empty if the update does not change anything. Raises the same errors as `read`.
        """


class Override(Editor, Protocol):
    """An editor for override files, which may also be edited by people."""

    def strays(self, files: Files, target: Target) -> tuple[Stray, ...]:
        """Return the elements of the Application's spec or of `.argocd-source.yaml` that have no
        effect, and that an update of the override file would not restore.

        Either the override file contains the element with different fields, or its list lacks the
        element.
        """


OVERRIDES: Mapping[TargetKind, Override] = {
    "helm-override": overrides,
    "kustomize-override": override_kustomize,
    "plugin-override": overrides,
}
EDITORS: Mapping[TargetKind, Editor] = {
    **OVERRIDES,
    "kustomization": kustomization,
    "helmvalues": helm_values,
    "manifests": manifests,
    "flux": flux,
}


def strays(kind: TargetKind, files: Files, target: Target) -> tuple[Stray, ...]:
    """Return the result of `Override.strays` for an override file, or () for other kinds of
    targets.
    """
    return OVERRIDES[kind].strays(files, target) if kind in OVERRIDES else ()


def also_at(
    kind: TargetKind,
    files: Files,
    target: Target,
    image: Image,
) -> tuple[tuple[str, int], ...]:
    """Return the path and line of each scalar in the target's files that contains a different
    version of the image, such as `image: acme/api:1.0` after an update to 1.1.

    `files` are the files after an update, so these are scalars that the update did not write.
    Scalars that another alias of the Application writes are skipped, and so are files that cannot
    be parsed.
    """
    short_name = image.repository.rpartition("/")[2]
    # matches the short name followed by a tag or digest that is not the new version
    other_version = re.compile(
        rf"{re.escape(short_name)}[:@](?!{re.escape(image.version)}(?![\w.-]))\w"
    )
    # Helm values may store the name and the version under separate keys: `repository` and `tag`.
    may_be_in_parts = kind in ("helmvalues", "helm-override")
    locations = []
    for path in _paths_that_argo_cd_reads(kind, files, target):
        text = files[path].text
        # Parsing is slow, and most files do not contain a different version.
        may_have_parts = may_be_in_parts and short_name in text
        may_have_reference = other_version.search(text) is not None
        if not may_have_parts and not may_have_reference:
            continue
        with suppress(TargetError):
            tree = tree_of(files, path)
            lines = set(_lines_of_references(tree, target, image))
            if may_be_in_parts:
                lines.update(_lines_of_parts(tree, target, image))
            locations += [(path, line) for line in sorted(lines)]
    return tuple(locations)


def _paths_that_argo_cd_reads(kind: TargetKind, files: Files, target: Target) -> list[str]:
    """Return the paths of the target's existing files.

    The target's own file may have several spellings (`path` and `fallbacks`). Only the one that
    `chosen` selects is returned.
    """
    if kind == "manifests":
        return list(manifests.manifests_in(files, target))
    unused_spellings = {target.path, *target.fallbacks} - {chosen(files, target)}
    # omit lock files, of which only the existence matters
    places = [place for place in EDITORS[kind].places(target) if place.want == "text"]
    return [
        place.path for place in places if place.path in files and place.path not in unused_spellings
    ]


# Charts store an image's name and version under keys such as `repository` and `tag`, `imageName`
# and `image_tag`, or `workerImage` and `workerVersion`. The parts of the keys before these endings
# must be equal.
_NAME = re.compile(r"(.*?)(?:repository|repo|name|image)")
_VERSION = re.compile(r"(.*?)(?:tag|version)")
_REGISTRY = re.compile(r"(.*?)(?:registry|hub|host)")


def _lines_of_parts(tree: Tree, target: Target, image: Image) -> Iterator[int]:
    """Yield the line of each tag that is next to the image's name but differs from the image's tag,
    such as `tag: "1.0"` next to `repository: acme/api`.

    Tags that another alias writes are skipped.
    """
    for mapping in walk(*tree.roots):
        if mapping.kind != "mapping":
            continue
        for version_node in _versions_beside_the_name(mapping, image):
            if not _is_other_tag(version_node.value, image):
                continue
            if not _has_another_owner(tree, version_node, target):
                yield tree.line(version_node)


def _is_other_tag(text: str, image: Image) -> bool:
    """Return whether a value is a tag without a digest, and differs from the image's tag."""
    tag, digest = split_tag(text)
    if digest or not tag:
        return False
    other = live_image(f"{image.name}:{tag}")  # None if it is not a valid tag
    return other is not None and other.tag != image.tag


def _versions_beside_the_name(mapping: Node, image: Image) -> Iterator[Node]:
    """Yield the scalars in a mapping that contain a version of the image. Each has a key that
    corresponds to a key with the image's name, as `workerTag` corresponds to `workerImage`.
    """
    scalars: dict[str, Node] = {}  # keyed by the key in lowercase, without `_` and `-`
    for key, child in entries(mapping).items():
        if child.kind == "scalar" and not child.null and child.value:
            normalized_key = re.sub("[_-]", "", key.lower())
            scalars[normalized_key] = child
    name_stems: set[str] = set()
    for key, child in scalars.items():
        stems = _stems(_NAME, key)
        if stems and _is_name_of(child.value, scalars, image):
            name_stems |= stems
    for key, child in scalars.items():
        if name_stems & _stems(_VERSION, key):
            yield child


def _stems(pattern: re.Pattern[str], key: str) -> set[str]:
    """Return the part of a key before the ending that the pattern matches, with and without
    "image". For example, `workerimagetag` has the stems "workerimage" and "worker". If the pattern
    does not match the key, return an empty set.
    """
    match = pattern.fullmatch(key)
    return {match[1], match[1].removesuffix("image")} if match else set()


def _is_name_of(name: str, siblings: Mapping[str, Node], image: Image) -> bool:
    """Return whether a value is the image's name: the full name, a name next to a registry key, or
    a name without a registry.

    `siblings` are the scalars in the same mapping, keyed by their normalized keys.
    """
    registries = [node.value for key, node in siblings.items() if _REGISTRY.fullmatch(key)]
    names_with_registry = [f"{registry}/{name}" for registry in registries]
    for full_name in (name, *names_with_registry):
        image_in_value = live_image(full_name)
        if image_in_value and image_in_value.identity == image.identity:
            return True
    if registries:
        return False
    _, name_without_registry = split_registry(image.name)
    has_registry = name_without_registry != image.name
    return has_registry and name == name_without_registry


def _lines_of_references(tree: Tree, target: Target, image: Image) -> Iterator[int]:
    """Yield the line of each scalar that is a complete reference to a different version of the
    image, such as `acme/api:1.0`.

    Keys are skipped, and so are scalars that another alias writes.
    """
    # The nodes are in document order, so each line break is counted only once.
    line = 1
    counted_until = 0  # up to here, line breaks are included in `line`
    for node in walk(*tree.roots):
        if node.kind != "scalar" or not _is_other_reference(node.value, image):
            continue
        is_key = tree.key_of(node) is node
        if is_key or _has_another_owner(tree, node, target):
            continue
        line += tree.text.count("\n", counted_until, node.start)
        counted_until = node.start
        yield line


def _is_other_reference(text: str, image: Image) -> bool:
    """Return whether a value is a complete reference to a different version of this image.

    The tags are compared if both references have one. Otherwise, the digests are compared.
    """
    if image.repository.rpartition("/")[2] not in text:  # much faster than parsing the value
        return False
    other = live_image(text)
    if other is None or other.identity != image.identity or not other.version:
        return False
    if other.tag and image.tag:
        return other.tag != image.tag
    return other.digest != image.digest


def _has_another_owner(tree: Tree, node: Node, target: Target) -> bool:
    """Return whether an alias of the Application already manages the scalar, or whether the scalar
    is an `image-list` annotation.
    """
    key = tree.key_of(node)
    if key is not None and key.value.endswith("image-list"):
        return True
    # `target.managed` lists the key paths and parameter names that any alias writes.
    possible_names = {key_path(tree, node)}
    if key is not None and key.value == "value":  # a parameter: {name: …, value: …}
        parameter_name = value(tree.parent(node), "name")
        if parameter_name is not None:
            possible_names.add(parameter_name.value)
    if not possible_names.isdisjoint(target.managed):
        return True
    # For these kinds, an alias may use its own name for the image.
    identity = target.image.identity
    if target.kind == "manifests":
        return not belongs(identity, target, "manifests_name")
    if target.kind == "kustomize-override":
        return not belongs(identity, target, "kustomize_name")
    return False
