"""The log: one line per fact on stderr, in the host's own form."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from task.edges.output import abandon

if TYPE_CHECKING:
    from task.words.colour import Look

LEVELS = ("debug", "info", "warning", "error")
STYLES = {"error": "bold red", "warning": "bold yellow", "debug": "dim"}
GITHUB = {"error": "::error::", "warning": "::warning::", "debug": "::debug::", "info": ""}


class Log:
    """Callable as `log(level, sentence)`; sentences never hold a secret."""

    def __init__(
        self, level: str = "info", form: str = "text", stream: TextIO | None = None, *, terminal: Look | None = None
    ) -> None:
        self.least = LEVELS.index(level)
        self.form = form
        self.stream = stream or sys.stderr
        self.terminal = terminal if form == "text" else None  # how a person sees it; None where nobody looks
        self.before: Callable[[], None] = lambda: None  # done before a line is written: what moves makes room

    def __call__(self, level: str, sentence: str) -> None:
        """Write one line, unless the level is below the wanted one."""
        if LEVELS.index(level) < self.least:
            return
        self.before()
        self._write(self._line(level, sentence))

    def problem(self, level: str, where: str, what: str, hint: str) -> None:
        """A line that says where, what, and what to do; on a terminal the last of these has a line of its own."""
        what = f"{where}: {what}" if where else what
        if hint and self.terminal and LEVELS.index(level) >= self.least:
            self(level, what)
            self._write(f"  {self._styled('do:', 'bold')} {_one_line(hint)}")
            return
        self(level, f"{what}; {hint}" if hint else what)

    def _write(self, line: str) -> None:
        """A log that nobody takes any more stops no run: results and exit code tell what became of it."""
        try:
            self.stream.write(line + "\n")
            self.stream.flush()
        except OSError:
            abandon(self.stream)

    def _styled(self, text: str, style: str) -> str:
        if not self.terminal:
            return text
        from task.words.colour import paint

        return paint(text, style, self.terminal)

    def _line(self, level: str, sentence: str) -> str:
        if self.form == "json":
            import json
            import time

            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            return json.dumps({"time": now, "level": level, "msg": sentence}, ensure_ascii=False)
        if self.form == "github":
            # A sentence of a server must not become a workflow command of its own.
            escaped = sentence.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
            return GITHUB[level] + (escaped if GITHUB[level] else _harmless(sentence))
        if level == "info":
            return _one_line(sentence)
        return f"{self._styled(f'{level}:', STYLES[level])} {_one_line(sentence)}"


def _one_line(sentence: str) -> str:
    return "".join(char if char.isprintable() else " " for char in sentence)


def _harmless(sentence: str) -> str:
    line = _one_line(sentence)
    return f" {line}" if line.lstrip().startswith(("::", "##[")) else line
