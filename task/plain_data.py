"""Reads plain data from outside: manifests, answers, configs. A value of another type than expected counts as empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings in a list, without its other elements."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def elements(value: object) -> list[Any]:
    """Return a list, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """Return a text, or "" for anything else."""
    return value if isinstance(value, str) else ""
