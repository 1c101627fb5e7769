"""Reads and writes `helm.parameters` of an override file `.argocd-source-<app>.yaml`."""

from __future__ import annotations

from collections.abc import Iterable

from task.editors.argocd_source import (
    Item,
    Section,
    Stray,
    items_below,
    items_of,
    load,
    merge_image,
    reading_of,
    stray_items,
    unsound_names,
)
from task.editors.argocd_source import places as override_places
from task.editors.helm_values import known_digest
from task.editors.yaml.layout import looks_typed
from task.errors import AnnotationError
from task.model import Edit, Files, Image, Keys, Parameter, Place, Reading, Target

SECTION = Section("helm", "parameters")


def places(target: Target) -> tuple[Place, ...]:
    """Return the override file in all its spellings, the common one, and the values files that Helm reads."""
    return (*override_places(target), *map(Place, target.values))


def read(files: Files, target: Target) -> Reading:
    """Return the values of the image's parameters.

    The reading is not sound if YAML or `helm --set` turns one of them into a number or a boolean.
    """
    path, _, document = load(files, target)
    items = items_of(document, SECTION, path)
    _digest(files, target, items)
    unsound = unsound_names(document, SECTION, path)
    # Without forceString, Argo CD passes `--set`, and Helm turns such a value into a number or a boolean: 12345678
    # becomes an integer (Helm 3.19 and 4.1). With forceString, Argo CD passes `--set-string`.
    unsound |= {item.name for item in items if not item.force and looks_typed(item.value)}
    return reading_of(items, names_of(target.keys), unsound, path)


def names_of(keys: Keys) -> Keys:
    """Return the parameters to use: only the one for the whole reference, or those for name and tag."""
    if keys.spec:
        return Keys(spec=keys.spec)  # as in AIU, it wins over name and tag
    name, tag = keys.name or "image.name", keys.tag or "image.tag"  # AIU's defaults
    if name == tag:
        raise AnnotationError(
            f"helm.image-name and helm.image-tag are both {name!r}", hint=f"write helm.image-spec: {name}"
        )
    return Keys(name=name, tag=tag, digest=keys.digest)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the file with the image's parameters, each with `forcestring`.

    The spec's other parameters are carried along if the list takes them.
    """
    path, _, document = load(files, target)
    digest = _digest(files, target, items_of(document, SECTION, path))
    return merge_image(files, target, SECTION, image, names_of(target.keys), _spec(target), force=True, digest=digest)


def _digest(files: Files, target: Target, items: Iterable[Item]) -> str:
    """Return the value of the key for the digest, if one is annotated. Raises as `known_digest`."""
    listed = tuple(Parameter(item.name, item.value, item.force or False) for item in items)
    return known_digest(files, target, names_of(target.keys), listed or target.source.parameters)


def read_below(files: Files, target: Target) -> Reading:
    """Return what the parameters say that Argo CD uses if the override file has none."""
    return reading_of(items_below(files, target, SECTION, _spec(target)), names_of(target.keys), (), "")


def strays(files: Files, target: Target) -> tuple[Stray, ...]:
    """Return the parameters of the spec that Argo CD does not use as they are."""
    return stray_items(files, target, SECTION, names_of(target.keys), _spec(target))


def _spec(target: Target) -> list[Item]:
    return [Item(parameter.name, parameter.value, parameter.force_string) for parameter in target.source.parameters]
