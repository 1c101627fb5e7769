"""The images in `spec.values` of a Flux v1 HelmRelease, where Flux finds them.

The rules are those of Flux's `FindHelmReleaseContainers`: an image at the top level of the values, one
under each key of them, and those whose keys annotations name. No deeper.
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
    """One image in the values: its name to Flux, and the key path under which the editor finds it."""

    name: str
    image: Image
    path: str  # below `spec.values`; "chart-image" is the top level; "": the editor cannot reach it

    @property
    def bare(self) -> Image:
        """The image without tag and digest."""
        return replace(self.image, tag="", digest="")


def containers(values: Mapping[str, Any], annotations: Mapping[str, str]) -> tuple[Container, ...]:
    """The images, each once; one that annotations map wins over one that was only found."""
    found = {TOP: _container(TOP, values, "")}
    found |= {key: _container(key, expanded(value), key.replace(".", "\\.")) for key, value in values.items()}
    found = {name: one for name, one in found.items() if one}
    found |= {name: one for name, _, _ in _mappings(annotations) if (one := _mapped(name, values, annotations))}
    return tuple(one for one in found.values() if one)


def unmapped(values: Mapping[str, Any], annotations: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """(key, value, message, hint) of each annotation that maps an image which is not there."""
    for name, key, where in _mappings(annotations):
        if _mapped(name, values, annotations) is None:
            yield key, where, "spec.values has no image there", "name a key path below spec.values"


def _container(name: str, holder: Mapping[str, Any], path: str) -> Container | None:
    """The image of a mapping: `image: {repository, tag}`, or `image` with or without `tag`, and perhaps `registry`."""
    said = holder.get("image")
    inner = {} if isinstance(said, str) else expanded(said)
    image = _image(said, holder) if isinstance(said, str) else _image(inner.get("repository"), inner)
    if image is None:
        return None
    # A whole reference in `repository` is rewritten there, as Flux does.
    if inner and not isinstance(inner.get("tag"), str) and image.version:
        path = f"{path}.image.repository".lstrip(".")
    return Container(name, image, path or TOP)


def _image(text: object, beside: Mapping[str, Any]) -> Image | None:
    """The image of a text, with the registry and tag of its sibling keys. None: the text is not a reference."""
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
    """The image whose keys annotations name: `repository.fluxcd.io/<name>: path`, and `tag…`, `registry…`."""
    where, tag, registry = (annotations.get(prefix + name, "") for prefix in MAPPED)
    beside = {"tag": _at(values, tag), "registry": _at(values, registry)}
    image = _image(_at(values, where), beside)
    if image is None or any(path and not isinstance(_at(values, path), str) for path in (tag, registry)):
        return None
    return Container(name, image, _common(values, where, tag))


def _common(values: Mapping[str, Any], repository: str, tag: str) -> str:
    """The path of the mapping that holds both keys; without a tag key the repository's own; "" for none."""
    if not tag:
        return repository
    (folder, _, one), (other, _, two) = repository.rpartition("."), tag.rpartition(".")
    if folder != other or one not in ("repository", "image") or two != "tag":
        return ""
    holder = expanded(_at(values, folder)) if folder else values
    return "" if one == "repository" and "image" in holder else folder or TOP


def _at(values: Mapping[str, Any], path: str) -> object:
    """What stands at a dotted path; None where nothing does."""
    place: object = values
    for step in path.split("."):
        place = expanded(place).get(step)
    return place


def expanded(value: object) -> dict[str, Any]:
    """A mapping with what its merge keys (`<<`) bring in; {} for anything else. No alias is followed twice."""
    found: dict[str, Any] = {}
    queue, seen = [value], set[int]()
    while queue:
        one = queue.pop(0)
        if isinstance(one, list) and id(one) not in seen:
            seen.add(id(one))
            queue = [*one, *queue]
        elif isinstance(one, Mapping) and id(one) not in seen:
            seen.add(id(one))
            found = {**{str(k): v for k, v in one.items() if k != "<<"}, **found}
            queue.append(one.get("<<"))
    return found if isinstance(value, Mapping) else {}
