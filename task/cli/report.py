"""`report`: shows the report of a run again, or makes an HTML page of it for a pipeline's artifacts."""

import os
import sys

import typer

from task.cli import options
from task.cli.html_page import HtmlCommand, write_page
from task.errors import Exit, Malformed, UsageError
from task.files import read_file
from task.output.console import plain_console, stdout_console
from task.output.report_table import table
from task.output.saved_report import LARGEST, report_of
from task.output.stdout import say


class ReportCommand(HtmlCommand):
    """A command for which `report --html FILE` means that FILE is the report."""

    takes_a_file = True


COMMAND_CLASS = ReportCommand  # Typer creates the command with this class


def report(
    context: typer.Context,
    report_file: options.ReportFile,
    *,
    html: options.Html = "",
) -> int:
    """Show the report of a run again, or turn it into an HTML page."""
    context.obj.log("debug", f"reading {report_file}")
    try:
        found = report_of(_read(report_file))
    except Malformed as error:
        raise UsageError(f"{report_file}: {error.message}", hint=error.hint) from None
    if html:  # the page shows its errors itself
        # Imported late: only this option of this command needs jinja2.
        from task.output.report_page import page  # noqa: PLC0415

        write_page(page(found), html)
    else:
        say(table(found, stdout_console(context.obj.environ) or plain_console()))
        in_table = {(one["application"], one["because"]) for one in found["decisions"] if one["verdict"] == "error"}
        for one in found["errors"]:  # those of an Application are in the table, the others on stderr, as in the run
            if (one["application"], one["message"]) not in in_table:
                log = context.obj.log
                log.problem(one["severity"], one["application"] or "", one["message"], one["hint"] or "")
    return int(Exit.OK)


def _read(path: str) -> str:
    """Return the text of a file, or of report.json in a folder. `-` means stdin."""
    if path != "-" and os.path.isdir(path):
        path = os.path.join(path, "report.json")
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if path == "-" else read_file(path, LARGEST)
    except OSError as error:
        raise UsageError(f"cannot read {path!r}: {error.strerror}", hint="name the JSON report of a run") from None
    if len(data) > LARGEST:
        raise UsageError(f"{path!r} is larger than {LARGEST >> 20} MB", hint="name the JSON report of a run")
    return data.decode("utf-8-sig", "replace")
