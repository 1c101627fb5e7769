"""The sources of Applications. Each one has a method `all() -> Iterable[Found]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Found:
    """One manifest and its origin; or, with `problem`, something unreadable."""

    item: Mapping[str, Any]
    origin: str = ""  # "apps/web.yaml:12"
    problem: str = ""
    hint: str = ""
    place: tuple[str, str, str] | None = None  # (repository, branch, path in it) of a manifest from Git
