"""Reads plain data from outside: manifests, answers, configs. A value of another type than expected counts as empty.

Each function follows keys into nested mappings first: `text(item, "metadata", "name")`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from task.errors import Malformed


def value_at(value: object, *keys: str) -> Any:
    """Return the value at these keys, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def mapping(value: object, *keys: str) -> Mapping[str, Any]:
    """Return a mapping, or an empty one for anything else."""
    found = value_at(value, *keys)
    return found if isinstance(found, dict) else {}


def mappings(value: object, *keys: str) -> list[Mapping[str, Any]]:
    """Return the mappings in a list, without its other elements."""
    return [one for one in elements(value, *keys) if isinstance(one, dict)]


def elements(value: object, *keys: str) -> list[Any]:
    """Return a list, or an empty one for anything else."""
    found = value_at(value, *keys)
    return found if isinstance(found, list) else []


def text(value: object, *keys: str) -> str:
    """Return a text, or "" for anything else."""
    found = value_at(value, *keys)
    return found if isinstance(found, str) else ""


def texts(value: object, *keys: str) -> dict[str, str]:
    """Return the texts in a mapping, without its other values."""
    return {key: one for key, one in mapping(value, *keys).items() if isinstance(one, str)}


def dig(value: Any, *names: str | int) -> str:
    """Return the text or number under these names and positions, or "" if it is missing or of another type."""
    for name in names:
        try:
            value = value[name]
        except (KeyError, IndexError, TypeError):
            return ""
    return str(value) if isinstance(value, str | int) else ""


def parsed_json(text: str) -> Any:
    """Parse JSON. Raises `Malformed` if it is none, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise Malformed("it is nested too deeply", "give it as it was sent") from None
    except ValueError as problem:
        raise Malformed(
            f"it cannot be parsed as JSON: {problem}", "give it as it was sent"
        ) from None
