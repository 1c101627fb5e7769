"""Where Applications are read from. Each source offers `all() -> Iterable[Found]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Found:
    """One manifest and where it was read; or, with `problem`, something that could not be read."""

    item: Mapping[str, Any]
    origin: str = ""  # "apps/web.yaml:12"
    problem: str = ""
    hint: str = ""
    place: tuple[str, str, str] | None = None  # (repository, branch, path in it), when read from Git
