"""`helm.parameters` of an override file `.argocd-source-<app>.yaml`."""

from __future__ import annotations

from dataclasses import replace

from task.editors.argocd_source import Item, Section, items_of, load, merge_items, places, stray_items, unsound_names
from task.editors.file_text import spelled, split_tag, tag_value
from task.editors.yaml.scalar import looks_typed
from task.errors import AnnotationError
from task.image import live_image
from task.model import Edit, Files, Image, Keys, Reading, Target

__all__ = ["places", "read", "strays", "write"]

SECTION = Section("helm", "parameters")


def read(files: Files, target: Target) -> Reading:
    """The parameters' values; one that YAML or `helm --set` takes for a number or a boolean is not sound."""
    path, _, document = load(files, target)
    items = items_of(document, SECTION, path)
    found = {item.name: item for item in items}
    name, tag = _names(target.keys)
    unsound = unsound_names(document, SECTION, path)
    # Without forceString, Argo CD passes `--set`, and Helm makes a number or a boolean of such a value.
    unsound |= {item.name for item in items if not item.force and looks_typed(item.value)}
    sound = not unsound & {name, tag}
    if target.keys.spec:
        image = live_image(found[tag].value) if tag in found else None
        return Reading(*(image.name, image.tag, image.digest) if image else ("", "", ""), sound=sound, file=path)
    version = split_tag(found[tag].value if tag in found else "")
    return Reading(found[name].value if name in found else "", *version, sound=sound, file=path)


def _names(keys: Keys) -> tuple[str, str]:
    """The parameters that hold name and version; with `helm.image-spec` one that holds both."""
    if keys.spec:
        return keys.spec, keys.spec
    name, tag = keys.name or "image.name", keys.tag or "image.tag"
    if name == tag:
        raise AnnotationError(
            f"helm.image-name and helm.image-tag are both {name!r}", hint=f"write helm.image-spec: {name}"
        )
    return name, tag


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """The file with the image's parameters, `forcestring` always there, and what the spec holds carried along."""
    name, tag = _names(target.keys)
    path, _, document = load(files, target)
    spec = _spec(target)
    texts = [item.value for item in (*items_of(document, SECTION, path), *spec) if item.name == name]
    full = spelled(image, target, *texts)
    own = {name: full, tag: tag_value(image)}
    if target.keys.spec:
        own = {tag: replace(image, name=full).reference}
    items = [Item(key, value, force=True) for key, value in own.items() if value]
    return merge_items(files, target, SECTION, items, spec)


def strays(files: Files, target: Target) -> tuple[tuple[str, str], ...]:
    """(name, origin) of the parameters that a person wrote, and whose origin has another value."""
    return stray_items(files, target, SECTION, _names(target.keys), _spec(target))


def _spec(target: Target) -> list[Item]:
    return [Item(each.name, each.value, each.force_string) for each in target.source.parameters]
