"""The log: one line per fact on stderr, in the host's own form."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import TextIO

from task.output.colour import Look, paint
from task.output.stdout import abandon
from task.text import exact_json, printable, printable_lines, without_logins

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
            self._write(f"  {self._styled('do:', 'bold')} {printable(hint)}")
            return
        self(level, f"{what}; {hint}" if hint else what)

    def traceback(self, error: Exception) -> None:
        """Where a defect of ours came up. Its message may quote others."""
        self.before()
        self._write(printable_lines("".join(traceback.format_exception(error)).rstrip("\n")))

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
        return paint(text, style, self.terminal)

    def _line(self, level: str, sentence: str) -> str:
        if self.form == "json":
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            said = {"time": now, "level": level, "msg": without_logins(sentence)}
            return exact_json(json.dumps(said, ensure_ascii=False))
        sentence = printable(sentence)
        if self.form == "github":
            return GITHUB[level] + (sentence.replace("%", "%25") if GITHUB[level] else sentence)
        return sentence if level == "info" else f"{self._styled(f'{level}:', STYLES[level])} {sentence}"
