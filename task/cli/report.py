"""`report`: shows a run's report again, or converts it to an HTML page for pipeline artifacts."""

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
from task.output.log import Log
from task.output.report_json import HINT, report_of
from task.output.report_page import page
from task.output.report_text import table
from task.settings import Settings
from task.text import one_line

LARGEST = 64 * 1024 * 1024  # bytes; a report from `plan` may include diffs


def report(settings: Settings, call: Call) -> int:
    """Show a run's report again, or convert it to an HTML page."""
    path = settings.report_file
    call.log("debug", f"reading {path}")
    try:
        run_report = report_of(_read_report(path))
        if settings.html:
            text = shown(run_report, page)
        else:
            console = stdout_console(call.environ) or plain_console()
            text = shown(run_report, lambda report: table(report, console))
    except Malformed as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None

    if settings.html:
        write_page(text, settings.html)  # not needed for a page, which already shows the errors
        return int(Exit.OK)
    say(text)
    _log_errors(run_report, call.log)
    return int(Exit.OK)


def _log_errors(run_report: Mapping[str, Any], log: Log) -> None:
    """Log the report's errors, except for those that the printed table already shows as a
    decision's reason.
    """
    in_table = {
        (decision["application"], decision["because"])
        for decision in run_report["decisions"]
        if decision["verdict"] == "error"
    }
    for problem in run_report["errors"]:
        if (problem["application"], problem["message"]) in in_table:
            continue
        log.problem(
            problem["severity"],
            problem["application"] or "",
            problem["message"],
            problem["hint"] or "",
        )


def shown(report: Mapping[str, Any], view: Callable[[Mapping[str, Any]], str]) -> str:
    """Return the report as formatted by `view`.

    Raises `Malformed` if a member of the report is missing or has the wrong type.
    """
    try:
        return view(report)
    except (AttributeError, KeyError, TypeError, ValueError, TemplateError) as error:
        raise Malformed(f"this report is incomplete: {one_line(str(error))}", HINT) from error


def _read_report(path: str) -> str:
    """Return the content of the file at `path` or, if that is a folder, of its report.json. `-`
    means stdin.

    Raises `UsageError` if the report cannot be read or is too large.
    """
    is_stdin = path == "-"
    if not is_stdin and os.path.isdir(path):
        path = os.path.join(path, "report.json")
    too_many = LARGEST + 1  # one byte over the limit proves that stdin is too large
    try:
        data = sys.stdin.buffer.read(too_many) if is_stdin else read_file(path, LARGEST)
    except OSError as error:
        raise UsageError(
            f"cannot read {path!r}: {error.strerror}",
            hint="pass a run's JSON report",
        ) from None
    if len(data) > LARGEST:
        raise UsageError(
            f"{path!r} is larger than {LARGEST // 1024**2} MB",
            hint="pass a run's JSON report",
        )
    return data.decode("utf-8-sig", "replace")
