"""One after the other: runs on one machine that are after the same branch take turns, in place of racing for it.

A race is lost by everyone but one, who all fetch, decide and push again. Nothing depends on a turn: who waited long
enough goes on without, as do runs on other machines, and where the system knows no such names.
"""

from __future__ import annotations

import time
from errno import EADDRINUSE
from typing import Any

from task import stop

_NAP = 0.02  # seconds
_PRIME = (1 << 61) - 1  # what is left of a long subject: the names of such sockets are short

_OURS: set[str] = set()  # what this process holds: it does not wait for itself


class Turn:
    """The turn of one store at one branch; it ends with the process at the latest."""

    def __init__(self, longest: float) -> None:
        self._longest = longest  # seconds; whoever is before us may be after something large
        self._name = ""
        self._held: Any = None

    def take(self, subject: str) -> bool:
        """Wait for it, a while; whether that was necessary. Raises `StoppedError` when a signal comes meanwhile."""
        self.end()
        if subject in _OURS or self._taken(subject):
            return False
        end = time.monotonic() + self._longest
        while not self._taken(subject) and time.monotonic() < end:
            stop.sleep(_NAP)
            stop.check()
        return True

    def _taken(self, subject: str) -> bool:
        """A name of the abstract kind: no file, nothing to clean up, given back by the kernel when a process dies."""
        try:
            from _socket import AF_UNIX, socket  # the module around it takes milliseconds to load

            held = socket(AF_UNIX)
        except (ImportError, OSError):
            return True
        try:
            held.bind(b"\0image-update-%016x" % (int.from_bytes(subject.encode("utf-8", "surrogateescape")) % _PRIME))
        except OSError as error:
            held.close()
            return error.errno != EADDRINUSE
        self._name, self._held = subject, held
        _OURS.add(subject)
        return True

    def end(self) -> None:
        """The next one, please."""
        if self._held:
            _OURS.discard(self._name)
            self._held.close()
            self._held = None
