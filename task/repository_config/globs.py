"""The globs in `match`. Each is compiled once, and no glob is slow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate


@dataclass(frozen=True)
class NameGlob:
    """A glob for names: `*` matches any text, even with `/`, `?` matches one character, and `[ab]` one of these."""

    text: str
    pattern: re.Pattern[str]

    @property
    def whole(self) -> bool:
        """Whether it is a glob for full names, `namespace/name`."""
        return "/" in self.text

    def fits(self, name: str) -> bool:
        """Tell whether it matches the whole name."""
        return self.pattern.match(name) is not None


@dataclass(frozen=True)
class PathGlob:
    """A glob for paths: `*` matches within one folder or file name, and `**` matches any number of folders.

    One that matches a folder matches everything in it.
    """

    parts: tuple[re.Pattern[str] | None, ...]  # None is `**`

    def fits(self, path: str) -> bool:
        """Tell whether it matches a path from the repository's root, or a folder above that path."""
        places = self._with_next({0})  # the numbers of the parts that may have to match the next name
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
        """Return these places, and the one after each `**`, because that may match nothing."""
        return places | {place + 1 for place in places if place < len(self.parts) and self.parts[place] is None}


def name_glob(text: str) -> NameGlob:
    """Compile a glob for names."""
    return NameGlob(text, re.compile(translate(text)))


def path_glob(text: str) -> PathGlob:
    """Compile a glob for paths. A `/` at its beginning or end has no effect."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    once = [part for before, part in zip(["", *parts], parts, strict=False) if (before, part) != ("**", "**")]
    return PathGlob(tuple(None if part == "**" else re.compile(translate(part)) for part in once))
