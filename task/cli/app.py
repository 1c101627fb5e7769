"""The command line: argv and environment → Settings → the work; errors → stderr and exit code.

The only reader of `os.environ`. A plain call goes straight through `task.cli.door`; Typer is
loaded for help, completion and mistakes (`task.cli.typer_door`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise

from task import shutdown
from task.ci.publish import publish
from task.cli.door import Call, read, with_environment
from task.cli.lint import lint
from task.cli.report import report
from task.cli.run import run
from task.cli.strange_variables import strange_variables
from task.cli.typer_door import enter
from task.cli.wait import wait_for
from task.errors import Exit, TaskError
from task.files import exhausted
from task.model import Problem, Report
from task.output.colour import Look, width_of
from task.output.console import stderr_console, stdout_console
from task.output.log import Log
from task.output.notify import Told, notify
from task.settings import Output, Settings, settings_of

NAMES = {int(Exit.INTERRUPTED): "interrupted", int(Exit.TERMINATED): "terminated"}


def main(argv: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    call = read(argv)
    if call is None:
        try:
            return enter(argv, execute, _stdout_look())
        except TaskError as error:
            Log(console=stderr_console(os.environ)).problem("error", error.subject, error.message, error.hint)
            if argv[:1] and argv[0] in ("run", "plan", "scan"):
                _tell_hosts(argv)
            return int(error.exit)
    return execute(call)


def _tell_hosts(argv: Sequence[str]) -> None:
    """Typer refused the command line and said why; the hosts get their results all the same."""
    environ = dict(os.environ)
    places = {"results-dir", "dotenv", "report"}
    pairs = [*pairwise(argv), *(tuple(word.split("=", 1)) for word in argv if "=" in word)]
    given = {flag[2:]: (value,) for flag, value in pairs if flag.startswith("--") and flag[2:] in places}
    call = with_environment(Call(argv[0], given), environ)
    if call.values.keys() & places or environ.keys() & {"GITHUB_OUTPUT"}:
        _publish(TaskError("the command line is wrong", hint="see the log"), call, environ, int(Exit.USAGE), Log())


def execute(call: Call) -> int:
    """Carry out one call; whatever goes wrong is said once, on stderr, and told by the exit code."""
    environ = dict(os.environ)
    try:
        call = with_environment(call, environ)
        settings = settings_of(call)
        form = _log_format(settings.output.log_format, environ)
        log = Log(settings.output.log_level, form, console=stderr_console(environ))
    except TaskError as error:
        log = Log(console=stderr_console(environ))
        _tell_strange(environ, log)
        return _end(error, call, environ, log)
    _tell_strange(environ, log)
    try:
        shutdown.hear()
        return _command(settings, environ, log)
    except TaskError as error:
        return _end(error, call, environ, log)
    except shutdown.Stopped:
        stopped = shutdown.StoppedError(
            NAMES.get(shutdown.code(), "stopped"), hint="nothing is half-done; run it again"
        )
        return _end(stopped, call, environ, log)
    except Exception as error:  # noqa: BLE001 - people get the traceback, hosts their results
        if spent := exhausted(error):
            return _end(spent, call, environ, log)
        defect = TaskError(f"a defect: {type(error).__name__}", hint="report it with the traceback")
        code = _end(defect, call, environ, log)
        log.traceback(error)
        return code


def _tell_strange(environ: Mapping[str, str], log: Log) -> None:
    """Said first: a variable that nobody reads may be why the rest goes wrong."""
    for one in strange_variables(environ):
        log.problem(one.severity, "", one.message, one.hint)


def _stdout_look() -> Look:
    console = stdout_console(os.environ)
    return Look(console.width, console.color_system is not None) if console else Look(width_of(os.environ, 0))


def _log_format(wanted: str, environ: Mapping[str, str]) -> str:
    if wanted != "auto":
        return wanted
    return "github" if environ.get("GITHUB_ACTIONS") == "true" else "text"


def _command(settings: Settings, environ: Mapping[str, str], log: Log) -> int:
    if settings.command == "lint":
        return lint(settings, environ, log)
    if settings.command == "wait":
        return wait_for(settings, environ, log)
    if settings.command == "report":
        return report(settings, environ)
    return run(settings, environ, log)


def _end(error: TaskError, call: Call, environ: Mapping[str, str], log: Log) -> int:
    """Say the error once, and write the results of a failure: a host waits for them."""
    code = int(shutdown.code() or error.exit)
    log.problem("error", error.subject, error.message, error.hint)
    if call.command not in ("lint", "wait", "report"):
        _publish(error, call, environ, code, log)
    return code


def _publish(error: TaskError, call: Call, environ: Mapping[str, str], code: int, log: Log) -> None:
    problem = Problem("", error.rule, str(error), error.hint)
    report = Report(call.command, (), 0, (), (), (problem, *strange_variables(environ)), code)
    last = {name: texts[-1] for name, texts in call.values.items() if texts}
    output = Output(
        last.get("output", "text"), last.get("report", ""), last.get("results-dir", ""), last.get("dotenv", "")
    )
    with shutdown.shield():
        publish(report, output, environ)  # what cannot be written is not said: the run has failed already
        if path := last.get("metrics-file"):
            notify(report, Told(path), 0.0, environ, log)
