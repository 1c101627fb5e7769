"""Finds the images in `spec.values` of a Flux v1 HelmRelease.

The rules are those of Flux v1's `FindHelmReleaseContainers`: an image at the top level of the values, one below each
top-level key, and those whose keys are in annotations. It searches no deeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from task.image import live_image, split_registry
from task.model import Image
from task.plain_data import mapping

MAPPED = ("repository.fluxcd.io/", "tag.fluxcd.io/", "registry.fluxcd.io/")
TOP = "chart-image"  # the image at the top level of the values


@dataclass(frozen=True)
class Container:
    """One image in the values: Flux's name for it, and the key path for the editor."""

    name: str
    image: Image
    path: str  # below `spec.values`; "chart-image" is the top level; "" if the editor cannot write it

    @property
    def bare(self) -> Image:
        """The image without tag and digest."""
        return replace(self.image, tag="", digest="")


def containers(values: Mapping[str, Any], annotations: Mapping[str, str]) -> tuple[Container, ...]:
    """Return the images by name, each once.

    An image in annotations wins over one of that name in the usual place.
    """
    usual = {TOP: _container(TOP, values, "")}
    usual |= {
        str(key): _container(str(key), mapping(value), str(key).replace(".", "\\.")) for key, value in values.items()
    }
    mapped = {name: _mapped(name, values, annotations) for name, _, _ in _mappings(annotations)}
    by_name = {name: container for name, container in usual.items() if container}
    by_name |= {name: container for name, container in mapped.items() if container}
    return tuple(by_name.values())


def unmapped(values: Mapping[str, Any], annotations: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield (key, value, message, hint) of each annotation whose image is not in the values."""
    for name, key, where in _mappings(annotations):
        if _mapped(name, values, annotations) is None:
            yield key, where, "spec.values has no image there", "name a key path below spec.values"


def _container(name: str, holder: Mapping[str, Any], path: str) -> Container | None:
    """Return the image in a mapping, or None.

    It is `image: {repository, tag}`, or `image` with or without `tag`, and perhaps `registry`.
    """
    raw = holder.get("image")
    inner = {} if isinstance(raw, str) else mapping(raw)
    image = _image(raw, holder) if isinstance(raw, str) else _image(inner.get("repository"), inner)
    if image is None:
        return None
    # A whole reference in `repository` is rewritten there, as Flux does.
    if inner and not isinstance(inner.get("tag"), str) and image.version:
        path = f"{path}.image.repository".lstrip(".")
    return Container(name, image, path or TOP)


def _image(text: object, beside: Mapping[str, Any]) -> Image | None:
    """Return the image in a text, with the registry and tag of its sibling keys, or None if it is not a reference."""
    image = live_image(text) if isinstance(text, str) else None
    if image is None:
        return None
    registry, tag = beside.get("registry"), beside.get("tag")
    if isinstance(registry, str) and registry.strip("/ "):
        whole = live_image(f"{registry.strip('/ ')}/{split_registry(image.name)[1]}")
        image = whole and replace(whole, tag=image.tag, digest=image.digest)
    return replace(image, tag=tag) if image and isinstance(tag, str) and tag else image


def _mappings(annotations: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield (container, key, key path of its repository) of each annotation about an image's place."""
    for key, where in annotations.items():
        if key.startswith(MAPPED[0]):
            yield key.removeprefix(MAPPED[0]), key, where


def _mapped(name: str, values: Mapping[str, Any], annotations: Mapping[str, str]) -> Container | None:
    """Return the image at the keys in `repository.fluxcd.io/<name>: path`, `tag…` and `registry…`, or None."""
    where, tag, registry = (annotations.get(prefix + name, "") for prefix in MAPPED)
    beside = {"tag": _at(values, tag), "registry": _at(values, registry)}
    image = _image(_at(values, where), beside)
    if image is None or any(path and not isinstance(_at(values, path), str) for path in (tag, registry)):
        return None
    return Container(name, image, _common(values, where, tag))


def _common(values: Mapping[str, Any], repository: str, tag: str) -> str:
    """Return the path of the mapping that has both keys, or "" if there is none.

    Without a tag key, return the repository's own path.
    """
    if not tag:
        return repository
    (folder, _, name_key), (tag_folder, _, tag_key) = repository.rpartition("."), tag.rpartition(".")
    if folder != tag_folder or name_key not in ("repository", "image") or tag_key != "tag":
        return ""
    holder = mapping(_at(values, folder)) if folder else values
    # If there is also an `image`, the editor would take that for the mapping's image.
    return "" if name_key == "repository" and "image" in holder else folder or TOP


def _at(values: Mapping[str, Any], path: str) -> object:
    """Return the value at a dotted path, or None if there is none."""
    place: object = values
    for step in path.split("."):
        place = mapping(place).get(step)
    return place
