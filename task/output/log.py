"""Writes the log to stderr: one line for each fact, in a format for terminals, GitHub, or
programs.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from task.output.console import abandon
from task.text import exact_json, printable, printable_lines, without_logins

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
TITLE = "Image Update"  # the title of a GitHub annotation that is not about an Application
STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "debug": "dim",
}


class Log:
    """The log of a run. Call it as `log(level, sentence)`. A sentence never contains a secret."""

    def __init__(
        self,
        level: str = "info",
        form: str = "text",
        stream: TextIO | None = None,
        *,
        console: Console | None = None,
    ) -> None:
        self.form = form
        # the terminal; None if a program captures the output
        self.console = console if form == "text" else None
        handler = _Terminal(self.console) if self.console else _Stream(stream or sys.stderr)
        handler.setFormatter(FORMATTERS[form]())
        self._logger = logging.getLogger("image-update")
        # lines must not be printed twice if a library configures the root logger
        self._logger.propagate = False
        self._logger.setLevel(LEVELS[level])
        self._logger.handlers = [handler]

    def __call__(self, level: str, sentence: str) -> None:
        """Write one line, unless its level is below the log level."""
        self._logger.log(LEVELS[level], sentence)

    def problem(
        self,
        level: str,
        where: str,
        what: str,
        hint: str,
        place: str = "",
    ) -> None:
        """Write a line about a problem, with its location (`where`) and its fix (`hint`).

        `place` is a `file:line` in the workspace. GitHub attaches the problem to it.
        """
        extra = {
            "hint": hint,
            "title": where or TITLE,
            "place": place,
        }
        sentence = f"{where}: {what}" if where else what
        self._logger.log(LEVELS[level], sentence, extra=extra)

    def notice(self, where: str, what: str, place: str) -> None:
        """Write a line that is not about a problem, but that GitHub attaches to `place`."""
        extra = {
            "title": where,
            "place": place,
            "notice": True,
        }
        self._logger.info("%s: %s", where, what, extra=extra)

    def traceback(self, error: Exception) -> None:
        """Write the traceback of a bug in our own code."""
        self._logger.error("", exc_info=error)


class TextFormatter(logging.Formatter):
    """Formats lines as `warning: what happened`, with the fix on a separate line.

    Info lines have no prefix.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text, including the fix if there is one.

        A traceback, which may quote untrusted text, looks the same in every log format.
        """
        if record.exc_info:
            return printable_lines(self.formatException(record.exc_info))
        level = record.levelname.lower()
        hint = str(getattr(record, "hint", ""))
        return self.line(level, record.getMessage(), hint)

    def line(self, level: str, sentence: str, hint: str) -> str:
        """Return the line for a sentence, followed by a second line with the fix if there is a
        hint.
        """
        text = printable(sentence)
        if hint:
            text = f"{text}\n  fix: {printable(hint)}"
        return text if level == "info" else f"{level}: {text}"


class GitHubFormatter(TextFormatter):
    """Formats log lines so that GitHub's runner turns them into annotations."""

    def line(self, level: str, sentence: str, hint: str) -> str:
        """Return a sentence and its fix as a GitHub annotation, such as
        `::warning::what happened%0A  fix: what to do`.

        The runner decodes `%` sequences, so it shows two lines.
        """
        text = super().line("info", sentence, hint)  # "info", so that no level is prepended
        return text if level == "info" else f"::{level}::{escaped(text)}"

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a GitHub annotation, such as
        `::warning file=apps/web.yaml,line=7,title=argocd/web::…`.

        A record without a title becomes an annotation without properties. Info lines are not
        annotations, except for a notice.
        """
        line = super().format(record)
        title = getattr(record, "title", "")
        level = record.levelname.lower()
        if getattr(record, "notice", False):
            level = "notice"
            line = f"::notice::{escaped(line)}"
        if not title or level == "info":
            return line
        place = str(getattr(record, "place", ""))
        file, _, line_number = place.rpartition(":")
        annotation = properties(title, file, int(line_number) if file else 0)
        # Replace only the first occurrence, our own prefix: the untrusted text may contain the same
        # characters.
        return line.replace(f"::{level}::", f"::{level} {annotation}::", 1)


def escaped(text: str) -> str:
    """Escape an annotation's text for GitHub's runner."""
    return text.replace("%", "%25").replace("\n", "%0A")


def properties(title: str, file: str = "", line: int = 0) -> str:
    """Return the properties of a GitHub annotation, such as `file=a.yaml,line=7,title=…`.

    GitHub's list of annotations shows the title first.
    """
    values = {"title": title}
    if file and line:
        values = {"file": file, "line": str(line), "title": title}
    assignments = []
    for name, value in values.items():
        text = escaped(printable(value)).replace(":", "%3A").replace(",", "%2C")
        assignments.append(f"{name}={text}")
    return ",".join(assignments)


class JsonFormatter(TextFormatter):
    """Formats each log line as a JSON object whose `msg` and `fix` are unmodified."""

    def line(self, level: str, sentence: str, hint: str) -> str:
        """Return a sentence and its fix as a JSON object, such as
        `{"time": …, "level": "warning", "msg": …, "fix": …}`.
        """
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record = {
            "time": now,
            "level": level,
            "msg": without_logins(sentence),
        }
        if hint:
            record["fix"] = without_logins(hint)
        return exact_json(json.dumps(record, ensure_ascii=False))


FORMATTERS = {
    "text": TextFormatter,
    "json": JsonFormatter,
    "github": GitHubFormatter,
}


class _Stream(logging.StreamHandler[Any]):
    """A stream handler that gives up on a log that can no longer be written, without stopping the
    run.

    The results and the exit code still report what happened.
    """

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if isinstance(sys.exception(), OSError):
            abandon(self.stream)
        else:
            super().handleError(record)


class _Terminal(_Stream):
    """A handler that writes log lines through rich, which moves progress lines out of the way."""

    def __init__(self, console: Console) -> None:
        super().__init__(console.file)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record, with a colored level and the fix on a separate line."""
        level = record.levelname.lower()
        if record.exc_info:
            line = Text(self.format(record))
        elif level == "info":
            line = Text(printable(record.getMessage()))
        else:
            sentence = printable(record.getMessage())
            line = Text.assemble((f"{level}:", STYLES[level]), f" {sentence}")
        hint = getattr(record, "hint", "")
        if hint:
            line.append_text(Text.assemble("\n  ", ("fix:", "bold"), f" {printable(hint)}"))
        try:
            self._console.print(line, soft_wrap=True)
        except OSError:
            self.handleError(record)
