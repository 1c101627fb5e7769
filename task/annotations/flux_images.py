"""Finds the images in `spec.values` of a Flux v1 HelmRelease.

The rules are those of Flux v1's `FindHelmReleaseContainers`: an image at the top level of the values, one below each
of their keys, and those whose keys annotations name. It looks no deeper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from task.image import live_image, split_registry
from task.model import Image

MAPPED = ("repository.fluxcd.io/", "tag.fluxcd.io/", "registry.fluxcd.io/")
TOP = "chart-image"  # the image at the top level of the values


@dataclass(frozen=True)
class Container:
    """One image in the values: Flux's name for it, and the key path that the editor takes."""

    name: str
    image: Image
    path: str  # below `spec.values`; "chart-image" is the top level; "" if the editor cannot write it

    @property
    def bare(self) -> Image:
        """The image without tag and digest."""
        return replace(self.image, tag="", digest="")


def containers(values: Mapping[str, Any], annotations: Mapping[str, str]) -> tuple[Container, ...]:
    """The images by name, each once; an image that annotations map wins over one of that name in the usual place."""
    usual = {TOP: _container(TOP, values, "")}
    usual |= {key: _container(key, expanded(value), key.replace(".", "\\.")) for key, value in values.items()}
    mapped = {name: _mapped(name, values, annotations) for name, _, _ in _mappings(annotations)}
    by_name = {name: container for name, container in usual.items() if container}
    by_name |= {name: container for name, container in mapped.items() if container}
    return tuple(by_name.values())


def unmapped(values: Mapping[str, Any], annotations: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """(key, value, message, hint) of each annotation that maps an image, but the values have none in that place."""
    for name, key, where in _mappings(annotations):
        if _mapped(name, values, annotations) is None:
            yield key, where, "spec.values has no image there", "name a key path below spec.values"


def _container(name: str, holder: Mapping[str, Any], path: str) -> Container | None:
    """The image of a mapping: `image: {repository, tag}`, or `image` with or without `tag`, and perhaps `registry`."""
    raw = holder.get("image")
    inner = {} if isinstance(raw, str) else expanded(raw)
    image = _image(raw, holder) if isinstance(raw, str) else _image(inner.get("repository"), inner)
    if image is None:
        return None
    # A whole reference in `repository` is rewritten there, as Flux does.
    if inner and not isinstance(inner.get("tag"), str) and image.version:
        path = f"{path}.image.repository".lstrip(".")
    return Container(name, image, path or TOP)


def _image(text: object, beside: Mapping[str, Any]) -> Image | None:
    """The image of a text with the registry and tag of its sibling keys; None if the text is no reference."""
    image = live_image(text) if isinstance(text, str) else None
    if image is None:
        return None
    registry, tag = beside.get("registry"), beside.get("tag")
    if isinstance(registry, str) and registry.strip("/ "):
        whole = live_image(f"{registry.strip('/ ')}/{split_registry(image.name)[1]}")
        image = whole and replace(whole, tag=image.tag, digest=image.digest)
    return replace(image, tag=tag) if image and isinstance(tag, str) and tag else image


def _mappings(annotations: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(container, key, key path of its repository) of each annotation that maps one."""
    for key, where in annotations.items():
        if key.startswith(MAPPED[0]):
            yield key.removeprefix(MAPPED[0]), key, where


def _mapped(name: str, values: Mapping[str, Any], annotations: Mapping[str, str]) -> Container | None:
    """The image whose keys the annotations `repository.fluxcd.io/<name>: path`, `tag…` and `registry…` name."""
    where, tag, registry = (annotations.get(prefix + name, "") for prefix in MAPPED)
    beside = {"tag": _at(values, tag), "registry": _at(values, registry)}
    image = _image(_at(values, where), beside)
    if image is None or any(path and not isinstance(_at(values, path), str) for path in (tag, registry)):
        return None
    return Container(name, image, _common(values, where, tag))


def _common(values: Mapping[str, Any], repository: str, tag: str) -> str:
    """The path of the mapping that holds both keys; without a tag key the repository's own path; "" if none does."""
    if not tag:
        return repository
    (folder, _, name_key), (tag_folder, _, tag_key) = repository.rpartition("."), tag.rpartition(".")
    if folder != tag_folder or name_key not in ("repository", "image") or tag_key != "tag":
        return ""
    holder = expanded(_at(values, folder)) if folder else values
    # Beside an `image`, the editor would take that one for the image of the mapping.
    return "" if name_key == "repository" and "image" in holder else folder or TOP


def _at(values: Mapping[str, Any], path: str) -> object:
    """The value at a dotted path; None if the path leads nowhere."""
    place: object = values
    for step in path.split("."):
        place = expanded(place).get(step)
    return place


def expanded(value: object) -> dict[str, Any]:
    """A mapping together with the keys that its merge keys (`<<`) bring in; {} for anything else."""
    whole: dict[str, Any] = {}
    queue, seen = [value], set[int]()
    while queue:
        source = queue.pop(0)
        if id(source) in seen:  # an alias may stand for a mapping that holds it
            continue
        if isinstance(source, list):
            seen.add(id(source))
            queue = [*source, *queue]
        elif isinstance(source, Mapping):
            seen.add(id(source))
            whole = {**{str(key): inner for key, inner in source.items() if key != "<<"}, **whole}
            queue.append(source.get("<<"))
    return whole if isinstance(value, Mapping) else {}
