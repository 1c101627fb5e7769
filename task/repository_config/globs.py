"""The globs of `match`. Each is compiled once, and no glob is slow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate


@dataclass(frozen=True)
class NameGlob:
    """A glob of names: `*` fits any text, `/` included, `?` one character, `[ab]` one of these."""

    text: str
    pattern: re.Pattern[str]

    @property
    def whole(self) -> bool:
        """Whether it is a glob of whole names, `namespace/name`."""
        return "/" in self.text

    def fits(self, name: str) -> bool:
        """Tell whether it fits the whole name."""
        return self.pattern.match(name) is not None


@dataclass(frozen=True)
class PathGlob:
    """A glob of paths: `*` fits within one folder or file name, `**` any number of folders.

    One that fits a folder fits everything in it.
    """

    parts: tuple[re.Pattern[str] | None, ...]  # None is `**`

    def fits(self, path: str) -> bool:
        """Tell whether it fits a path from the repository's root, or a folder above that path."""
        places = self._with_next({0})  # of all the parts that the next name may have to fit
        for name in (part for part in path.split("/") if part not in ("", ".")):
            if len(self.parts) in places:
                return True
            found = set()
            for place in places:
                part = self.parts[place]
                if part is None:
                    found.add(place)
                elif part.match(name):
                    found.add(place + 1)
            places = self._with_next(found)
        return len(self.parts) in places

    def _with_next(self, places: set[int]) -> set[int]:
        """Return these places, and the one behind each `**`, which may fit nothing."""
        return places | {place + 1 for place in places if place < len(self.parts) and self.parts[place] is None}


def name_glob(text: str) -> NameGlob:
    """Return the compiled glob."""
    return NameGlob(text, re.compile(translate(text)))


def path_glob(text: str) -> PathGlob:
    """Return the compiled glob. A `/` at its beginning or end changes nothing."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    once = [part for before, part in zip(["", *parts], parts, strict=False) if (before, part) != ("**", "**")]
    return PathGlob(tuple(None if part == "**" else re.compile(translate(part)) for part in once))
