"""How Argo CD's repo-server reads override files, reimplemented for the tests.

Each file is a JSON merge patch (RFC 7396) for the source. The result is decoded into the old structure: absent fields
keep their values, and an element of a list inherits missing fields from the old element at the same place.
`tests/data/cases/argocd-merge.json` contains the real results.
"""

import copy
from typing import Any

import yaml

ELEMENTS: dict[str, dict[str, type]] = {
    "parameters": {"name": str, "value": str, "forceString": bool},
    "env": {"name": str, "value": str},
    "fileParameters": {"name": str, "path": str},
}
KEPT = ("chart", "path", "repoURL", "targetRevision")


class GenerationFailed(Exception):
    """Argo CD would not render the Application."""


def merged(source: dict[str, Any], *overrides: str) -> dict[str, Any]:
    """Return the source after merging its override files, `.argocd-source.yaml` first."""
    for text in overrides:
        patch = yaml.safe_load(text)
        if not isinstance(patch, dict):
            raise GenerationFailed("Invalid JSON Patch")
        source = decode(
            patched(source, {**patch, **{key: source.get(key) for key in KEPT if key in source}}),
            source,
        )
    return source


def patched(old: Any, patch: Any) -> Any:
    """Apply a patch as in RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


def decode(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return what Go's decoder produces from JSON in a structure that already contains `old`."""
    result = copy.deepcopy(old)
    for key, value in new.items():
        if key == "directory":
            result[key] = {}  # Argo CD does not take its fields from override files
        elif isinstance(value, dict):
            result[key] = decode(value, result.get(key) or {})
        elif isinstance(value, list):
            result[key] = [
                element(key, each, at(result.get(key), number)) for number, each in enumerate(value)
            ]
            if not value:
                del result[key]  # omitted when empty
        else:
            result[key] = value
    return result


def at(items: Any, number: int) -> Any:
    return items[number] if items and number < len(items) else None


def element(key: str, new: Any, old: Any) -> Any:
    """Return one list element, decoded into the old element at the same index."""
    if key not in ELEMENTS:
        return expect(str, new)
    fields = ELEMENTS[key]
    result = dict(old or {})
    for name in sorted(new):
        known = next((field for field in fields if field.lower() == name.lower()), None)
        if known and new[name] is not None:
            result[known] = expect(fields[known], new[name])
    return result


def expect(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise GenerationFailed(f"cannot unmarshal {value!r} into {kind.__name__}")
    return value
