"""The log: one line per fact on stderr, in the host's own form."""

from __future__ import annotations

import sys
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
GITHUB = {"error": "::error::", "warning": "::warning::", "debug": "::debug::", "info": ""}


class Log:
    """Callable as `log(level, sentence)`; sentences never hold a secret."""

    def __init__(self, level: str = "info", form: str = "text", stream: TextIO | None = None) -> None:
        self.least = LEVELS.index(level)
        self.form = form
        self.stream = stream or sys.stderr

    def __call__(self, level: str, sentence: str) -> None:
        """Write one line, unless the level is below the wanted one."""
        if LEVELS.index(level) < self.least:
            return
        self.stream.write(self._line(level, sentence) + "\n")
        self.stream.flush()

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
        return f"{level}: {_one_line(sentence)}" if level != "info" else _one_line(sentence)


def _one_line(sentence: str) -> str:
    return "".join(char if char.isprintable() else " " for char in sentence)


def _harmless(sentence: str) -> str:
    line = _one_line(sentence)
    return f" {line}" if line.lstrip().startswith(("::", "##[")) else line
