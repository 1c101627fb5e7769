"""Where Applications are read from. Each source offers `all() -> Iterable[Found]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from task.record import NamedTuple


class Found(NamedTuple):
    """One manifest and where it was read; or, with `problem`, something that could not be read."""

    item: Mapping[str, Any]
    origin: str = ""  # "apps/web.yaml:12"
    problem: str = ""
    hint: str = ""
    place: tuple[str, str, str] | None = None  # (repository, branch, path in it), when read from Git
