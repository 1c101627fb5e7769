"""`report`: the report of a run, shown again or made into one page that people attach to a pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from task.errors import Malformed, UsageError
from task.files import read_file
from task.output.console import plain_console, stdout_console
from task.output.report_page import page
from task.output.report_text import table
from task.output.saved_report import LARGEST, report_of
from task.output.stdout import say
from task.settings import Settings


def report(settings: Settings, environ: Mapping[str, str]) -> int:
    """Read the report, write what is asked for; 0. Raises `UsageError` for what is no report."""
    given = settings.shown
    try:
        found = report_of(_read(given.file))
    except Malformed as error:
        raise UsageError(f"{given.file}: {error.message}", hint=error.hint) from None
    if given.html:
        _write(_page(found), given.html)
    else:
        _write(table(found, stdout_console(environ) or plain_console()), "-")
    return 0


def _page(found: Mapping[str, Any]) -> str:
    return page(found)


def _read(path: str) -> str:
    """The text of a file, or of report.json in a folder; - is stdin."""
    if path != "-" and os.path.isdir(path):
        path = os.path.join(path, "report.json")
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if path == "-" else read_file(path, LARGEST)
    except OSError as error:
        raise UsageError(f"cannot read {path!r}: {error.strerror}", hint="name the JSON report of a run") from None
    if len(data) > LARGEST:
        raise UsageError(f"{path!r} is larger than {LARGEST >> 20} MB", hint="name the JSON report of a run")
    return data.decode("utf-8-sig", "replace")


def _write(text: str, path: str) -> None:
    if path == "-":
        say(text)
        return
    try:
        with open(path, "wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(
            f"--html: cannot write {path!r}: {error.strerror}", hint="name a place that this user may write"
        ) from None
