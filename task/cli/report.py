"""`report`: the report of a run, shown again or made into one page that people attach to a pipeline."""

import os
import sys
from typing import Any

import typer

from task.cli import options
from task.cli.grouped_help import GroupedHelp
from task.errors import Exit, Malformed, UsageError
from task.files import read_file
from task.output.console import plain_console, stdout_console
from task.output.report_text import table
from task.output.saved_report import LARGEST, report_of
from task.output.stdout import say


class ReportCommand(GroupedHelp):
    """`report FILE --html` without a file to write means stdout; Typer knows no value that may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give `--html` its value where it has none."""
        if "--html" in args:
            at = args.index("--html")
            following = args[at + 1] if at + 1 < len(args) else "--"
            plain = [word for word in args if not word.startswith("-") or word == "-"]
            if (following.startswith("-") and following != "-") or len(plain) == 1:
                args = [*args[:at], "--html=-", *args[at + 1 :]]
        return super().parse_args(ctx, args)


COMMAND_CLASS = ReportCommand  # Typer makes the command of it


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
    if html:
        # Late: of all commands only this one, with this option, needs jinja2.
        from task.output.report_page import page  # noqa: PLC0415

        _write(page(found), html)
    else:
        _write(table(found, stdout_console(context.obj.environ) or plain_console()), "-")
    return int(Exit.OK)


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
            f"--html: cannot write {path!r}: {error.strerror}", hint="choose a place that this user may write to"
        ) from None
