"""Notes: what a forge could not do, without being an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from task.errors import ForgeError, RepositoryError
from task.forges.marks import wish
from task.model import Proposed

LONGEST = 1000


class Notes:
    """Sentences about what a forge could not do, each once; they are shown with the request."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self.missed: set[str] = set()  # keys of what could not be set, and is tried again by the next run

    def add(self, sentence: str, kind: str = "", *names: str) -> None:
        """Add a sentence. With a `kind`, these labels or people are not set, or `auto-merge` is not."""
        if sentence and sentence not in self._said:
            self._said.append(sentence)
        self.missed.update(wish(kind, name) for name in (names or ("",)) if kind)

    def text(self) -> str:
        """Return all sentences as one text."""
        return "; ".join(self._said)[:LONGEST]


def noted(found: Proposed, notes: Notes) -> Proposed:
    """Return the request with all notes, and its own."""
    notes.add(found.note)
    return replace(found, note=notes.text())


@contextmanager
def tried(notes: Notes, what: str, kind: str, *names: str) -> Iterator[None]:
    """Turn a refusal inside the block into a note. A temporary error is raised, so that the job runs again."""
    try:
        yield
    except (ForgeError, RepositoryError) as error:
        notes.add(f"{what}: {error.message}", kind, *names)


def rows(value: Any) -> list[Any]:
    """Return the objects in a list. Anything else is left out, because the host may not be a forge at all."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def missing(wanted: Iterable[str], have: Iterable[str]) -> list[str]:
    """Return the names in order, each once. Upper and lower case are the same for labels and people."""
    there, found = {name.lower() for name in have}, []
    for name in wanted:
        if name.lower() not in there:
            there.add(name.lower())
            found.append(name)
    return found
