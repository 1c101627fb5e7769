"""Reads an ApplicationSet before it is filled in: for `lint`, and to find out which images it may be about."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from task.model import Image

_TAG = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_CONTROL = re.compile(r"\{\{-?\s*(?:if|else|end|range|with|template|define|block|\$)")
_MOST = 10_000  # values that are searched
_DEEPEST = 6  # levels of a source that are kept


def may_name(manifest: Mapping[str, Any], images: Collection[Image], prefix: str) -> bool:
    """Tell whether an `image-list` in a template may name one of the images. A placeholder may become any text."""
    names = [image.repository.rpartition("/")[2].lower() for image in images]
    return any(
        "{{" in text or any(name in text.lower() for name in names)
        for text in _image_lists(manifest.get("spec"), f"{prefix}image-list")
    )


def _image_lists(value: Any, key: str) -> Iterator[str]:
    """Yield the values of a key at any depth, and each text that contains the key, such as a `templatePatch`."""
    waiting = [value]
    for _ in range(_MOST):
        if not waiting:
            return
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(found := one.get(key), str):
                yield found
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str) and key in one:
            yield one


def template_of(manifest: Mapping[str, Any], prefix: str) -> Mapping[str, Any] | None:
    """Return the template as an Application whose placeholders are unknown texts, or None if nothing is known about it.

    A value with a placeholder may become anything, and is left out, except `image-list`: its aliases are known.
    """
    spec, metadata = manifest.get("spec"), manifest.get("metadata")
    template = spec.get("template") if isinstance(spec, dict) else None
    about = template.get("metadata") if isinstance(template, dict) else None
    annotations = about.get("annotations") if isinstance(about, dict) else None
    if not isinstance(template, dict) or not isinstance(annotations, dict) or not isinstance(metadata, dict):
        return None
    image_list = annotations.get(f"{prefix}image-list")
    if not isinstance(image_list, str) or _CONTROL.search(image_list):
        return None
    known = {
        _TAG.sub("x", key): _TAG.sub("x", value) if key == f"{prefix}image-list" else value
        for key, value in annotations.items()
        if isinstance(value, str) and ("{{" not in value or key == f"{prefix}image-list")
    }
    spec = template.get("spec")
    sources = {key: _unknown(spec[key]) for key in ("source", "sources") if isinstance(spec, dict) and spec.get(key)}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": metadata.get("name"), "namespace": metadata.get("namespace"), "annotations": known},
        "spec": sources or {"source": {"repoURL": "x", "path": "x"}},  # the generators' templates may have it
    }


def _unknown(value: Any, depth: int = 0) -> Any:
    """Return the data with some text for each placeholder."""
    if isinstance(value, str):
        return _TAG.sub("x", value)
    if isinstance(value, list) and depth < _DEEPEST:
        return [_unknown(item, depth + 1) for item in value]
    if isinstance(value, dict) and depth < _DEEPEST:
        return {key: _unknown(item, depth + 1) for key, item in value.items()}
    return None
