"""Pure code that follows a kustomization's references within one snapshot.

Kustomize builds the resources first, then the components in order, and then applies the
kustomization's own `images`. So the outermost list wins if it uses the name that the inner lists
produce.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from task.editors.kustomization import NAMES
from task.errors import Malformed
from task.image import live_image
from task.model import Files, Image, Place, Reading
from task.plain_data import elements, mappings, text
from task.yaml_documents import loaded_plain, plain

_MOST_FOLDERS = 200
_MOST_DEPTH = 20
_MOST_VALUES = 100_000  # in one file
_MANIFESTS = (".yaml", ".yml", ".json")


def places_of_tree(files: Files, root: str) -> tuple[Place, ...]:
    """Return the kustomizations and manifests that the kustomization in this folder includes."""
    paths: dict[str, None] = {}
    for folder in folders_of_tree(files, root):
        paths |= {posixpath.join(folder, name): None for name in NAMES}
        for path in _named_paths(files, folder, "resources", "bases", "components"):
            if path.endswith(_MANIFESTS):
                paths[path] = None
            else:
                paths |= {posixpath.join(path, name): None for name in NAMES}
    return tuple(map(Place, paths))


def lists_after(files: Files, root: str, target: str) -> list[str] | None:
    """Return the folders whose `images` apply after the target's, in Kustomize's order.

    Return None if the root does not include the target, as far as these files show.
    """
    return _lists_inside(files, root, target, 0)


def _lists_inside(files: Files, folder: str, target: str, depth: int) -> list[str] | None:
    """Return the folders in this folder's tree that apply after the target's, in order.

    Return None if the tree does not include the target, or is too deep.
    """
    if folder == target:
        return []
    if depth > _MOST_DEPTH:
        return None
    components = _named_paths(files, folder, "components")
    for path in _named_paths(files, folder, "resources", "bases"):
        inner = _lists_inside(files, path, target, depth + 1)
        if inner is not None:
            return [*inner, *_with_components(files, components, depth), folder]
    for number, path in enumerate(components, 1):
        inner = _lists_inside(files, path, target, depth + 1)
        if inner is not None:
            later_components = components[number:]
            return [*inner, *_with_components(files, later_components, depth), folder]
    return None


def _with_components(files: Files, components: list[str], depth: int) -> Iterator[str]:
    """Yield components and their nested components, in the order in which they change resources."""
    if depth > _MOST_DEPTH:
        return
    for path in components:
        yield from _with_components(files, _named_paths(files, path, "components"), depth + 1)
        yield path


def folders_of_tree(files: Files, root: str) -> list[str]:
    """Return the folders of a kustomization and everything that it includes.

    The outermost folder comes first, and components come before resources.
    """
    seen: dict[str, None] = {}
    queue = [root]
    while queue and len(seen) < _MOST_FOLDERS:
        folder = queue.pop(0)
        if folder in seen:
            continue
        seen[folder] = None
        components = reversed(_named_paths(files, folder, "components"))
        folders = [*components, *_named_paths(files, folder, "resources", "bases")]
        queue += [path for path in folders if not path.endswith(_MANIFESTS)]
    return list(seen)


def _named_paths(files: Files, folder: str, *keys: str) -> list[str]:
    """Return the paths in the repository that a kustomization lists under these keys."""
    data = _kustomization(files, folder)
    paths = []
    for key in keys:
        for entry in elements(data, key):
            if not isinstance(entry, str) or "://" in entry or entry.startswith("/"):
                continue
            path = posixpath.normpath(posixpath.join(folder, entry))
            if not path.startswith(".."):
                paths.append("" if path == "." else path)
    return paths


def _kustomization(files: Files, folder: str) -> Any:
    """Return the data of the folder's kustomization, or None if it is missing or broken."""
    for file_name in NAMES:
        path = posixpath.join(folder, file_name)
        if path in files:
            return _kustomization_in(files[path].text)
    return None


@lru_cache(maxsize=256)  # an Application's images may share a tree
def _kustomization_in(kustomization: str) -> Any:
    try:
        return plain(kustomization)
    except Malformed:  # Kustomize reports it
        return None


def in_manifests(files: Files, root: str, image: Image) -> Reading:
    """Return an image's version in a tree's manifests, or an empty reading."""
    short_name = image.repository.rpartition("/")[2]
    for folder in folders_of_tree(files, root):
        for path in _named_paths(files, folder, "resources"):
            manifest = files[path].text if path in files else ""
            if short_name not in manifest:  # faster than parsing the manifest
                continue
            for running in _images_in(manifest):
                if running.identity == image.identity and running.version:
                    return Reading(running.name, running.tag, running.digest)
    return Reading()


def names_in_tree(files: Files, root: str) -> set[str]:
    """Return all image names in a tree, or an empty set if parts of the tree are missing."""
    names: set[str] = set()
    for folder in folders_of_tree(files, root):
        data = _kustomization(files, folder)
        if not isinstance(data, dict) or set(data) & _GENERATORS:
            return set()
        for path in _named_paths(files, folder, "resources"):
            if path.endswith(_MANIFESTS):
                if path not in files:
                    return set()
                names |= {image.name for image in _images_in(files[path].text)}
        if any("://" in str(element) for element in elements(data, "resources")):
            return set()
        names |= {text(mapping, "newName") for mapping in mappings(data, "images")}
    return names - {""}


_GENERATORS = {"helmCharts", "helmChartInflationGenerator", "generators", "transformers"}


def _images_in(manifest: str) -> Iterator[Image]:
    """Yield the image in each `image` field of a manifest. Nothing if the YAML is broken."""
    try:
        stack: list[Any] = list(loaded_plain(manifest))
    except Malformed:
        return
    for _ in range(_MOST_VALUES):  # aliases may expand to many more values
        if not stack:
            return
        value = stack.pop()
        if isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            field = value.get("image")
            image = live_image(field) if isinstance(field, str) else None
            if image:
                yield image
            stack += value.values()
