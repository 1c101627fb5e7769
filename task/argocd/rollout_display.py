"""Shows rollouts while they are waited for: a picture on a terminal, one line per change everywhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

from task.argocd.rollouts import Sight
from task.output.log import Log
from task.output.progress import line, picture, redraw


class Display:
    """Writes to the log's stream. A picture needs a terminal whose cursor moves, and nobody who collects lines."""

    def __init__(self, log: Log, environ: Mapping[str, str], limit: float) -> None:
        self._log, self._limit = log, limit
        self._stream: TextIO = log.stream
        dumb = environ.get("TERM", "") in ("", "dumb") or bool(environ.get("CI"))
        self._draws = log.form in ("auto", "text") and not dumb and self._stream.isatty()
        self._colour = not environ.get("NO_COLOR")
        self._drawn = 0

    def show(self, sight: Sight) -> None:
        """What is seen now."""
        if self._draws:
            self._draw(sight)
            return
        for row in sight.changed:
            level = "error" if row.state in ("failed", "timed-out") else "info"
            self._log("warning" if row.state == "needs-sync" else level, line(row))

    def _draw(self, sight: Sight) -> None:
        lines = picture(sight.rows, sight.seconds, self._limit, size=self._size(), colour=self._colour)
        self._stream.write(redraw(lines, self._drawn))
        self._stream.flush()
        self._drawn = len(lines)

    def _size(self) -> tuple[int, int]:
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return 80, 24
        return columns, lines
