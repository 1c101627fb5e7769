"""The sources of Applications. Each one has a method `all() -> Iterable[Found]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_set(item: Mapping[str, Any]) -> bool:
    """Tell whether a manifest is an Argo CD ApplicationSet."""
    return item.get("kind") == "ApplicationSet" and str(item.get("apiVersion", "")).startswith("argoproj.io/")
