"""Reads and writes `plugin.env` of an override file: the variables of a config management plugin.

AIU writes them since v1.3, for the same annotations.
"""

from __future__ import annotations

from task.editors.argocd_source import (
    PLUGIN,
    Item,
    Stray,
    items_below,
    items_of,
    load,
    merge_image,
    places,
    reading_of,
    stray_items,
    unsound_names,
)
from task.errors import AnnotationError
from task.model import Edit, Files, Image, Keys, Reading, Target

__all__ = ["places", "read", "strays", "write"]


def read(files: Files, target: Target) -> Reading:
    """Return the values of the image's variables. Raises AnnotationError if no variable is named for the tag."""
    _refuse_unnamed(target.keys)
    path, _, document = load(files, target)
    return reading_of(items_of(document, PLUGIN, path), target.keys, unsound_names(document, PLUGIN, path), path)


def _refuse_unnamed(keys: Keys) -> None:
    # Every plugin has its own variables, so no default could be right.
    if not (keys.spec or keys.tag):
        hint = "annotate <alias>.plugin.image-tag or <alias>.plugin.image-spec with the variable's name"
        raise AnnotationError("no annotation names the plugin's variable for the tag: it would go nowhere", hint=hint)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the file with the image's variables, and with the spec's others if the list takes them."""
    _refuse_unnamed(target.keys)
    return merge_image(files, target, PLUGIN, image, target.keys, _spec(target), force=None)


def read_below(files: Files, target: Target) -> Reading:
    """Return what the variables say that Argo CD uses if the override file has none."""
    return reading_of(items_below(files, target, PLUGIN, _spec(target)), target.keys, (), "")


def strays(files: Files, target: Target) -> tuple[Stray, ...]:
    """Return the variables of the spec that Argo CD does not use as they are."""
    return stray_items(files, target, PLUGIN, target.keys, _spec(target))


def _spec(target: Target) -> list[Item]:
    return [Item(name, value) for name, value in target.source.env]
