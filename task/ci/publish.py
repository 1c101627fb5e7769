"""Writes a report to where the host reads it: stdout, files, result folders, GitHub's command files."""

import os
from collections.abc import Mapping

from task.ci.results import LONGEST_MESSAGE, cut, dotenv, github_output, repositories, results
from task.errors import UsageError
from task.model import Problem, Report
from task.output.console import stdout_console
from task.output.report_json import as_json, json_text
from task.output.report_table import table
from task.output.report_text import plain
from task.output.stdout import unwritable, write_stdout
from task.output.summary import summary
from task.settings import HandedOptions, ResultOptions

LARGEST_SUMMARY = 250_000  # characters; GitHub drops a summary of more than 1 MiB
GITHUB = ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")


def check_places(output: ResultOptions, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` for a place that cannot be written. Call this before anything is done."""
    places = {
        "--results-dir": _folder(output) if output.results_dir else "",
        "--report": _report(output),
        "--dotenv": output.dotenv,
        **{name: environ.get(name, "") for name in GITHUB},
    }
    for option, path in places.items():
        if not path:
            continue
        is_folder = option == "--results-dir"
        parent = path if is_folder else os.path.dirname(path) or "."
        if option == "--report" and not os.path.isdir(parent):  # the name is misspelt, or the volume is not mounted
            raise _unwritable(option, path, f"there is no folder {parent!r}")
        try:
            os.makedirs(parent, exist_ok=True)
        except OSError as error:
            raise _unwritable(option, path, error.strerror) from None
        if os.path.isdir(path) and not is_folder:
            raise _unwritable(option, path, "it is a folder")
        if not os.access(path if os.path.exists(path) else parent, os.W_OK):
            raise _unwritable(option, path, "permission denied")


def publish(report: Report, output: ResultOptions, environ: Mapping[str, str]) -> list[UsageError]:
    """Write the report to all places, and return an error for each place that could not be written."""
    failed = _write([("--report", _report(output), json_text(report), "w")] if output.report else [])
    failed += hand_over(results(report), output, environ)
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        failed += _write([("GITHUB_STEP_SUMMARY", path, summary(as_json(report), LARGEST_SUMMARY, diffs=True), "a")])
    if output.output == "repositories":
        refused = write_stdout(repositories(report))
    else:
        refused = write_stdout(json_text(report) if output.output == "json" else shown(report, environ))
    if refused and not (report.dry and isinstance(refused, BrokenPipeError)):  # `plan | head`: nothing is lost
        failed.append(unwritable(refused))
    return failed


def tell(
    command: str,
    message: str,
    output: HandedOptions,
    environ: Mapping[str, str],
    *,
    commit: str = "",
    problems: tuple[Problem, ...] = (),
    code: int = 0,
) -> None:
    """Hand over the results of a command that writes nothing to Git. After an error, the error is the message.

    Raises `UsageError` if a place cannot be written.
    """
    named = results(Report(command, (), 0, (), (), problems, code))
    message = named["message"] if code else cut(message, LONGEST_MESSAGE)
    for failed in hand_over({**named, "commit": commit, "message": message}, output, environ):
        raise failed


def hand_over(named: Mapping[str, str], output: HandedOptions, environ: Mapping[str, str]) -> list[UsageError]:
    """Write the results to where the next step reads them. Return an error for each place that could not be written."""
    writes = []
    if output.results_dir:
        writes += [("--results-dir", os.path.join(_folder(output), name), text, "w") for name, text in named.items()]
    if output.dotenv:
        writes.append(("--dotenv", output.dotenv, dotenv(named), "w"))
    # GitHub's files belong to all steps of the job, so a step appends to them.
    if path := environ.get("GITHUB_OUTPUT"):
        writes.append(("GITHUB_OUTPUT", path, github_output(named), "a"))
    return _write(writes)


def _write(writes: list[tuple[str, str, str, str]]) -> list[UsageError]:
    failed = []
    for option, path, text, mode in writes:
        try:
            if option != "--report":
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, mode, encoding="utf-8", errors="backslashreplace", newline="") as file:
                file.write(text)
        except OSError as error:
            failed.append(_unwritable(option, path, error.strerror))
    return failed


def shown(report: Report, environ: Mapping[str, str]) -> str:
    """Return the report for people: a table with colours on a terminal, plain text for pipes and logs."""
    if console := stdout_console(environ):
        return table(as_json(report), console)
    return plain(as_json(report))


def _folder(output: HandedOptions) -> str:
    """Return the folder of the results, without `FILE/..`.

    A Tekton StepAction knows the path of each result, but not their folder: it passes `<path of a result>/..`.
    """
    return os.path.normpath(output.results_dir)


def _report(output: ResultOptions) -> str:
    """Return the path of the report. In a folder, such as Tekton's workspace `report`, it is report.json."""
    return os.path.join(output.report, "report.json") if os.path.isdir(output.report) else output.report


def _unwritable(option: str, path: str, why: str | None) -> UsageError:
    return UsageError(f"{option}: cannot write {path!r}: {why}", hint="choose a place that this user may write to")
