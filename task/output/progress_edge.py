"""One line at the foot of a terminal that says what takes so long; gone as soon as it is over.

A timer of the system draws it, in the main thread, whatever that waits for: no thread, and nothing at all where nobody
looks. Python goes on with a call that the timer interrupted.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from task.output.colour import Look, paint
from task.output.columns import wrap
from task.text import printable

_PATIENCE, _BEAT = 1.0, 0.2  # seconds: before anything is shown, and between two pictures
_TURN, _ASCII_TURN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"


class Progress:
    """Shows the phases that are under way; several threads may have one each."""

    def __init__(self, stream: TextIO, look: Look, width: Callable[[], int]) -> None:
        self._handle, self._look, self._width = stream.fileno(), look, width
        self._phases: list[tuple[str, float]] = []
        self._shown = False
        self._turn = 0
        signal.signal(signal.SIGALRM, self._beat)

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """`what` is under way; shown when it takes longer than a second."""
        one = (what, time.monotonic())
        self._phases.append(one)
        if len(self._phases) == 1:
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE, _BEAT)
        try:
            yield
        finally:
            self._phases.remove(one)
            if not self._phases:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.clear()

    def clear(self) -> None:
        """Make room for a line of somebody else."""
        if self._shown:
            self._shown = False
            self._write("\r\x1b[K")

    def _beat(self, _number: int, _frame: object) -> None:
        now = time.monotonic()
        late = [(what, now - began) for what, began in tuple(self._phases) if now - began >= _PATIENCE]
        if late:
            self._turn += 1
            self._shown = True
            self._write(f"\r\x1b[K{self._line(late)}")

    def _line(self, late: list[tuple[str, float]]) -> str:
        what, seconds = late[0]
        turns = _TURN if self._look.symbols else _ASCII_TURN
        more = f", and {len(late) - 1} more" if len(late) > 1 else ""
        end = f" {int(seconds)} s{more}"
        room = self._width() - len(end) - 4  # the last column stays empty: some terminals wrap
        text = printable(what)
        first = wrap(text, max(room, 10))[0]
        cut = first if first == text else f"{first}..."
        return f"{paint(turns[self._turn % len(turns)], 'cyan', self._look)} {cut}{paint(end, 'dim', self._look)}"

    def _write(self, text: str) -> None:
        """Past Python's own buffers: the main thread may be in the midst of writing to them."""
        with suppress(OSError):
            os.write(self._handle, text.encode("utf-8", "replace"))
