"""Reads and writes `helm.parameters` of an override file `.argocd-source-<app>.yaml`."""

from __future__ import annotations

from task.editors.argocd_source import (
    Item,
    Section,
    items_of,
    load,
    merge_image,
    places,
    reading_of,
    stray_items,
    unsound_names,
)
from task.editors.yaml.scalar import looks_typed
from task.errors import AnnotationError
from task.model import Edit, Files, Image, Keys, Reading, Target

__all__ = ["places", "read", "strays", "write"]

SECTION = Section("helm", "parameters")


def read(files: Files, target: Target) -> Reading:
    """The values of the image's parameters; not sound where YAML or `helm --set` makes a number or boolean of one."""
    path, _, document = load(files, target)
    items = items_of(document, SECTION, path)
    unsound = unsound_names(document, SECTION, path)
    # Without forceString, Argo CD passes `--set`, and Helm makes a number or a boolean of such a value: 12345678 comes
    # out as an integer (Helm 3.19 and 4.1). With it Argo CD passes `--set-string`.
    unsound |= {item.name for item in items if not item.force and looks_typed(item.value)}
    return reading_of(items, _names(target.keys), unsound, path)


def _names(keys: Keys) -> Keys:
    """The parameters to use: the one for the whole reference alone, or those for name and tag."""
    if keys.spec:
        return Keys(spec=keys.spec)  # as in AIU, it wins over name and tag
    name, tag = keys.name or "image.name", keys.tag or "image.tag"  # AIU's defaults
    if name == tag:
        raise AnnotationError(
            f"helm.image-name and helm.image-tag are both {name!r}", hint=f"write helm.image-spec: {name}"
        )
    return Keys(name=name, tag=tag)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """The file with the image's parameters, each with `forcestring`, and with the spec's others carried along."""
    return merge_image(files, target, SECTION, image, _names(target.keys), _spec(target), force=True)


def strays(files: Files, target: Target) -> tuple[tuple[str, str], ...]:
    """(name, origin) of the parameters that a person wrote although their origin has another value."""
    return stray_items(files, target, SECTION, _names(target.keys), _spec(target))


def _spec(target: Target) -> list[Item]:
    return [Item(parameter.name, parameter.value, parameter.force_string) for parameter in target.source.parameters]
