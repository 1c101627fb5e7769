"""Writes a report to wherever the host reads it: stdout, files, result folders, GitHub's command files."""

import os
from collections.abc import Iterator, Mapping

from task.ci.results import dotenv, github_output, github_summary, repositories, results
from task.errors import UsageError
from task.model import Report
from task.output.console import stdout_console
from task.output.outcome import as_json, json_text
from task.output.report_text import plain, table
from task.output.stdout import unwritable, write_stdout
from task.settings import OutputSettings

Write = tuple[str, str, str, str]  # option, path, text, mode


def check_places(output: OutputSettings, environ: Mapping[str, str]) -> None:
    """Before anything is done: a place that cannot be written is a `UsageError` that names it."""
    folder = ((_folder(output), "--results-dir"),) if output.results_dir else ()
    files = ((_report(output), "--report"), (output.dotenv, "--dotenv"))
    for path, option in (*folder, *files, *((environ.get(name, ""), name) for name in GITHUB)):
        if path:
            _check(path, option, folder=option == "--results-dir")


GITHUB = ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")


def _folder(output: OutputSettings) -> str:
    """Without `FILE/..`: a Tekton StepAction knows the path of each result, and none of their folder."""
    return os.path.normpath(output.results_dir)


def _report(output: OutputSettings) -> str:
    """In a folder (Tekton's workspace `report`) the report is called report.json."""
    return os.path.join(output.report, "report.json") if os.path.isdir(output.report) else output.report


def _check(path: str, option: str, *, folder: bool) -> None:
    parent = path if folder else os.path.dirname(path) or "."
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError as error:
        raise _unwritable(option, path, error.strerror) from None
    if os.path.isdir(path) and not folder:
        raise _unwritable(option, path, "it is a folder")
    if not os.access(path if os.path.exists(path) else parent, os.W_OK):
        raise _unwritable(option, path, "permission denied")


def _unwritable(option: str, path: str, why: str | None) -> UsageError:
    return UsageError(f"{option}: cannot write {path!r}: {why}", hint="name a place that this user may write")


def publish(report: Report, output: OutputSettings, environ: Mapping[str, str]) -> list[UsageError]:
    """Write everything that can be written; an error for each place that could not be."""
    failed = [error for write in _writes(report, output, environ) if (error := _write(write))]
    refused = write_stdout(_stdout(report, output.format, environ))
    if refused and not (report.dry and isinstance(refused, BrokenPipeError)):  # `plan | head`: nothing is lost
        failed.append(unwritable(refused))
    return failed


def _stdout(report: Report, form: str, environ: Mapping[str, str]) -> str:
    if form == "repositories":
        return repositories(report)
    return json_text(report) if form == "json" else shown(report, environ)


def shown(report: Report, environ: Mapping[str, str]) -> str:
    """The report for people: a table with colours on a terminal, plain text for pipes and logs."""
    console = stdout_console(environ)
    return table(as_json(report), console) if console else plain(report)


def _writes(report: Report, output: OutputSettings, environ: Mapping[str, str]) -> Iterator[Write]:
    if output.report:
        yield "--report", _report(output), json_text(report), "w"
    if output.results_dir or output.dotenv or any(environ.get(name) for name in GITHUB):
        yield from _for_hosts(report, output, environ)


def _for_hosts(report: Report, output: OutputSettings, environ: Mapping[str, str]) -> Iterator[Write]:
    found = results(report)
    if output.results_dir:
        for name, value in found.items():
            yield "--results-dir", os.path.join(_folder(output), name), value, "w"
    if output.dotenv:
        yield "--dotenv", output.dotenv, dotenv(found), "w"
    if path := environ.get("GITHUB_OUTPUT"):
        yield "GITHUB_OUTPUT", path, github_output(found), "a"
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        yield "GITHUB_STEP_SUMMARY", path, github_summary(report), "a"


def _write(what: Write) -> UsageError | None:
    option, path, text, mode = what
    try:
        if folder := os.path.dirname(path):
            os.makedirs(folder, exist_ok=True)
        with open(path, mode, encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write(text)
    except OSError as error:
        return _unwritable(option, path, error.strerror)
    return None
