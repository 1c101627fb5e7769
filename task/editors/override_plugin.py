"""`plugin.env` of an override file `.argocd-source-<app>.yaml`: the variables of a config management plugin."""

from __future__ import annotations

from dataclasses import replace

from task.editors.argocd_source import PLUGIN, Item, items_of, load, merge_items, places, stray_items, unsound_names
from task.editors.file_text import spelled, split_tag, tag_value
from task.errors import AnnotationError
from task.image import live_image
from task.model import Edit, Files, Image, Keys, Reading, Target

__all__ = ["places", "read", "strays", "write"]

SECTION = PLUGIN


def read(files: Files, target: Target) -> Reading:
    """The variables' values."""
    _refuse_unnamed(target.keys)
    path, _, document = load(files, target)
    found = {item.name: item.value for item in items_of(document, SECTION, path)}
    keys = target.keys
    sound = not unsound_names(document, SECTION, path) & {keys.spec or keys.name, keys.spec or keys.tag}
    if keys.spec:
        image = live_image(found.get(keys.spec, ""))
        return Reading(*(image.name, image.tag, image.digest) if image else ("", "", ""), sound=sound, file=path)
    return Reading(found.get(keys.name, ""), *split_tag(found.get(keys.tag, "")), sound=sound, file=path)


def _refuse_unnamed(keys: Keys) -> None:
    if not (keys.spec or keys.tag):
        hint = "annotate <alias>.plugin.image-tag or <alias>.plugin.image-spec with the variable's name"
        raise AnnotationError("no variable of the plugin is named for the tag: it would go nowhere", hint=hint)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """The file with the image's variables, and with the spec's carried along."""
    _refuse_unnamed(target.keys)
    path, _, document = load(files, target)
    spec = _spec(target)
    known = target.keys.spec or target.keys.name
    texts = [item.value for item in (*items_of(document, SECTION, path), *spec) if item.name == known]
    full = spelled(image, target, *texts)
    own = {target.keys.name: full, target.keys.tag: tag_value(image)}
    if target.keys.spec:
        own = {target.keys.spec: replace(image, name=full).reference}
    items = [Item(key, value) for key, value in own.items() if key and value]
    return merge_items(files, target, SECTION, items, spec)


def strays(files: Files, target: Target) -> tuple[tuple[str, str], ...]:
    """(name, origin) of the variables that a person wrote, and whose origin has another value."""
    keys = target.keys
    return stray_items(files, target, SECTION, (keys.name, keys.tag, keys.spec), _spec(target))


def _spec(target: Target) -> list[Item]:
    return [Item(name, value) for name, value in target.source.env]
