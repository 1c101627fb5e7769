"""Pure code that follows a kustomization's references within one snapshot.

Kustomize builds the resources, then the components in order, and finally applies the
kustomization's own `images`. So the outermost list wins if it refers to the name that the inner
lists produce.
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
_MOST_VALUES = 100_000  # limits the values to read in one file
_MANIFESTS = (".yaml", ".yml", ".json")


def places_of_tree(files: Files, root: str) -> tuple[Place, ...]:
    """Return the places (paths in Git) of the kustomizations and manifests that the kustomization
    in the folder `root` includes, as far as this can be determined from the given files.

    A kustomization file may have one of several names, so each of these names is a place.
    """
    paths: list[str] = []
    for folder in folders_of_tree(files, root):
        paths += [posixpath.join(folder, name) for name in NAMES]
        for path in _listed_paths(files, folder, "resources", "bases", "components"):
            if path.endswith(_MANIFESTS):
                paths.append(path)
            else:  # a folder that may contain a kustomization
                paths += [posixpath.join(path, name) for name in NAMES]
    return tuple(map(Place, dict.fromkeys(paths)))


def lists_after(files: Files, root: str, target: str) -> list[str] | None:
    """Return the folders whose `images` lists are applied after that of the folder `target`, in
    Kustomize's order.

    Return None if the kustomization in the folder `root` does not include the target, as far as
    this can be determined from the given files.
    """
    return _lists_inside(files, root, target, 0)


def _lists_inside(files: Files, folder: str, target: str, depth: int) -> list[str] | None:
    """Return the folders in the tree of `folder` whose `images` lists are applied after that of the
    folder `target`, in order.

    Return None if the tree does not include the target, or is too deep. `depth` is the number of
    folders above this one.
    """
    if folder == target:
        return []
    if depth > _MOST_DEPTH:
        return None
    components = _listed_paths(files, folder, "components")

    # All components are applied after the resources.
    for resource in _listed_paths(files, folder, "resources", "bases"):
        lists_in_resource = _lists_inside(files, resource, target, depth + 1)
        if lists_in_resource is not None:
            return [*lists_in_resource, *_with_nested(files, components, depth), folder]

    # After a component, only later components are applied.
    for number, component in enumerate(components, start=1):
        lists_in_component = _lists_inside(files, component, target, depth + 1)
        if lists_in_component is not None:
            later_components = components[number:]
            return [*lists_in_component, *_with_nested(files, later_components, depth), folder]
    return None


def _with_nested(files: Files, components: list[str], depth: int) -> Iterator[str]:
    """Yield the folders of components and their nested components in the order in which Kustomize
    applies them, which means nested components first.
    """
    if depth > _MOST_DEPTH:
        return
    for component in components:
        nested_components = _listed_paths(files, component, "components")
        yield from _with_nested(files, nested_components, depth + 1)
        yield component


def folders_of_tree(files: Files, root: str) -> list[str]:
    """Return the folders of a kustomization and of everything that it includes.

    The outermost folder comes first, and components come before resources.
    """
    visited: dict[str, None] = {}  # a dict keeps the order
    queue = [root]
    while queue and len(visited) < _MOST_FOLDERS:
        folder = queue.pop(0)
        if folder in visited:
            continue
        visited[folder] = None
        # The last component is applied last, so it is the outermost.
        components = reversed(_listed_paths(files, folder, "components"))
        included_paths = [*components, *_listed_paths(files, folder, "resources", "bases")]
        queue += [path for path in included_paths if not path.endswith(_MANIFESTS)]
    return list(visited)


def _listed_paths(files: Files, folder: str, *keys: str) -> list[str]:
    """Return the paths in the repository that the kustomization in a folder lists under these keys,
    such as `resources`.

    URLs and paths outside the repository are omitted. The repository's root is "".
    """
    data = _kustomization(files, folder)
    paths = []
    for key in keys:
        for entry in elements(data, key):
            if not isinstance(entry, str) or "://" in entry or entry.startswith("/"):
                continue
            path = posixpath.normpath(posixpath.join(folder, entry))
            is_outside = path.startswith("..")
            if not is_outside:
                paths.append("" if path == "." else path)
    return paths


def _kustomization(files: Files, folder: str) -> Any:
    """Return the data of the folder's kustomization, or None if there is none or it is invalid."""
    for file_name in NAMES:
        path = posixpath.join(folder, file_name)
        if path in files:
            return _kustomization_in(files[path].text)
    return None


@lru_cache(maxsize=256)  # several images of an Application may share a tree
def _kustomization_in(kustomization: str) -> Any:
    try:
        return plain(kustomization)
    except Malformed:  # Kustomize reports this
        return None


def in_manifests(files: Files, root: str, image: Image) -> Reading:
    """Return an image's version in the manifests that the kustomization in the folder `root`
    includes, or an empty reading if no manifest contains the image.
    """
    _, _, short_name = image.repository.rpartition("/")
    for folder in folders_of_tree(files, root):
        for path in _listed_paths(files, folder, "resources"):
            manifest = files[path].text if path in files else ""
            if short_name not in manifest:  # checking this is faster than parsing the manifest
                continue
            for image_in_manifest in _images_in(manifest):
                is_same_image = image_in_manifest.identity == image.identity
                if is_same_image and image_in_manifest.version:
                    return Reading(
                        image_in_manifest.name,
                        image_in_manifest.tag,
                        image_in_manifest.digest,
                    )
    return Reading()


def names_in_tree(files: Files, root: str) -> set[str]:
    """Return the names of all images that the kustomization in the folder `root` includes, or an
    empty set if some of them are unknown.

    Names are unknown if a manifest is missing or in another repository, or if manifests are
    generated.
    """
    names: set[str] = set()
    for folder in folders_of_tree(files, root):
        data = _kustomization(files, folder)
        if not isinstance(data, dict):
            return set()
        has_generator = not _GENERATORS.isdisjoint(data)
        has_url = any("://" in str(resource) for resource in elements(data, "resources"))
        if has_generator or has_url:
            return set()

        for path in _listed_paths(files, folder, "resources"):
            if not path.endswith(_MANIFESTS):
                continue
            if path not in files:
                return set()
            names |= {image.name for image in _images_in(files[path].text)}
        # An outer kustomization has to match the name that an inner kustomization sets.
        names |= {text(image, "newName") for image in mappings(data, "images")}
    return names - {""}


_GENERATORS = {"helmCharts", "helmChartInflationGenerator", "generators", "transformers"}


def _images_in(manifest: str) -> Iterator[Image]:
    """Yield the image in each `image` field of a manifest. If the YAML is invalid,
    yield nothing.
    """
    try:
        unvisited: list[Any] = list(loaded_plain(manifest))
    except Malformed:
        return
    for _ in range(_MOST_VALUES):  # expanded aliases may yield many more values
        if not unvisited:
            return
        value = unvisited.pop()
        if isinstance(value, list):
            unvisited += value
        elif isinstance(value, dict):
            field = value.get("image")
            image = live_image(field) if isinstance(field, str) else None
            if image:
                yield image
            unvisited += value.values()
