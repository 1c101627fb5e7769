"""Regular expressions that are compiled when first used.

Compiling all patterns of the house at import takes 20 ms; one run uses a third of them.
"""

from __future__ import annotations

import re
from typing import Any, cast


def pattern(source: str, flags: int = 0) -> re.Pattern[str]:
    """As `re.compile`, but an invalid `source` is noticed when first used (tests use every one)."""
    return cast("re.Pattern[str]", _Later(source, flags))


class _Later:
    """Stands for a compiled pattern; its first use compiles it and keeps the bound methods."""

    def __init__(self, source: str, flags: int) -> None:
        self.pattern = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, found)
        return found
