"""Notes: what a forge could not do, without being an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from task.errors import ForgeError, RepositoryError

LONGEST = 1000


class Notes:
    """Sentences about what a forge could not do, each once; they are shown with the request."""

    def __init__(self) -> None:
        self._said: list[str] = []

    def add(self, sentence: str) -> None:
        """Add a sentence."""
        if sentence and sentence not in self._said:
            self._said.append(sentence)

    def text(self, first: str = "") -> str:
        """Return all sentences as one text, after `first`."""
        return "; ".join(part for part in (first, *self._said) if part)[:LONGEST]


@contextmanager
def tried(notes: Notes, what: str) -> Iterator[None]:
    """Turn a refusal inside the block into a note. A temporary error is raised, so that the job runs again."""
    try:
        yield
    except (ForgeError, RepositoryError) as error:
        notes.add(f"{what}: {error.message}")


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
