"""`report`: shows a run's report again, or converts the report to an HTML page for a pipeline's
artifacts.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import TemplateError

from task.ci.publish import write_page
from task.cli.call import Call
from task.errors import Exit, Malformed, UsageError
from task.files import read_file
from task.output.console import plain_console, say, stdout_console
from task.output.report_json import HINT, report_of
from task.output.report_page import page
from task.output.report_text import table
from task.settings import Settings
from task.text import one_line

LARGEST = 64 * 1024 * 1024  # bytes; the report may include the diffs from `plan`


def report(settings: Settings, call: Call) -> int:
    """Show a run's report again, or convert it to an HTML page."""
    path = settings.report_file
    html = settings.html
    log = call.log
    log("debug", f"reading {path}")
    try:
        found = report_of(_read(path))
        console = stdout_console(call.environ) or plain_console()
        view = page if html else (lambda report: table(report, console))
        text = shown(found, view)
    except Malformed as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None
    if html:  # the page shows its errors itself
        write_page(text, html)
    else:
        say(text)
        in_table = {
            (decision["application"], decision["because"])
            for decision in found["decisions"]
            if decision["verdict"] == "error"
        }
        # Applications' errors are in the table; all other errors go to stderr, as in the run
        for problem in found["errors"]:
            if (problem["application"], problem["message"]) not in in_table:
                log.problem(
                    problem["severity"],
                    problem["application"] or "",
                    problem["message"],
                    problem["hint"] or "",
                )
    return int(Exit.OK)


def shown(report: Mapping[str, Any], view: Callable[[Mapping[str, Any]], str]) -> str:
    """Return a view of a report.

    Raises `Malformed` if a member is missing or has the wrong type.
    """
    try:
        return view(report)
    except (AttributeError, KeyError, TypeError, ValueError, TemplateError) as error:
        raise Malformed(f"this report is incomplete: {one_line(str(error))}", HINT) from error


def _read(path: str) -> str:
    """Return the content of a file, or of report.json in a folder. `-` means stdin."""
    if path != "-" and os.path.isdir(path):
        path = os.path.join(path, "report.json")
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if path == "-" else read_file(path, LARGEST)
    except OSError as error:
        raise UsageError(
            f"cannot read {path!r}: {error.strerror}",
            hint="pass a run's JSON report",
        ) from None
    if len(data) > LARGEST:
        raise UsageError(
            f"{path!r} is larger than {LARGEST >> 20} MB",
            hint="pass a run's JSON report",
        )
    return data.decode("utf-8-sig", "replace")
