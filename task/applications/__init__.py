"""The sources of Applications. Each one has a method `all() -> Iterable[Found]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The kinds of Argo CD and of AIU that are read where a program or a parent may also yield many others.
KINDS = frozenset(("Application", "ApplicationSet", "AppProject", "ImageUpdater"))


def is_set(item: Mapping[str, Any]) -> bool:
    """Tell whether a manifest is an Argo CD ApplicationSet."""
    return item.get("kind") == "ApplicationSet" and str(item.get("apiVersion", "")).startswith("argoproj.io/")


def is_project(item: Mapping[str, Any]) -> bool:
    """Tell whether a manifest is an AppProject with a name."""
    ours = item.get("kind") == "AppProject" and str(item.get("apiVersion", "")).startswith("argoproj.io/")
    metadata = item.get("metadata")
    return ours and isinstance(metadata, dict) and isinstance(metadata.get("name"), str)
