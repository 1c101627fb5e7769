"""The command line as one Typer app. It turns every error into a line on stderr and an exit code.

The commands are in the files of this folder, and their options are in `options.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from task import __version__, shutdown
from task.ci.publish import hand_over, publish
from task.ci.results import results
from task.cli.call import Call
from task.cli.command import record_of
from task.cli.command_files import CommandFiles, GroupedCommands
from task.cli.mistakes import as_given, explained
from task.cli.parameters import HOSTED
from task.cli.strange_variables import strange_variables
from task.errors import Exit, TaskError, UsageError
from task.files import exhausted
from task.model import Problem, Report
from task.output.notify import Receivers, notify
from task.output.stdout import abandon, unwritable
from task.settings import ResultOptions

SIGNALS = {int(Exit.INTERRUPTED): "interrupted", int(Exit.TERMINATED): "terminated"}
LOOKING = ("status", "wait")  # they print something else than a report
SHOWN_BY_TYPER = {"-h", "--help", "--help-all", "--version", "--show-completion", "--install-completion"}

app = typer.Typer(
    name="image-update",
    cls=GroupedCommands,
    help="Commits a newly built image to Git for every Argo CD Application that tracks it.",
    epilog="image-update help COMMAND shows the options of a command. Each of them can also be set by a variable: "
    "--git-username by IMAGE_UPDATE_GIT_USERNAME.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if wanted:
        typer.echo(f"image-update {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
    if not context.invoked_subcommand:
        typer.echo(context.get_help(), err=True)  # no command was given, so stdout stays empty
        raise typer.Exit(int(Exit.USAGE))


group = cast("TyperGroup", get_command(app))
group.commands = cast("dict[str, Any]", CommandFiles())


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    call = Call(group, argv)
    try:
        shutdown.hear()
        if call.mistake:
            return _end(call.mistake, call)
        return group.main(args=list(argv), prog_name="image-update", standalone_mode=False, obj=call) or 0
    except SystemExit as end:
        # Typer ends the program after any broken pipe; only one while it prints help is harmless
        broken = end.__context__
        if isinstance(broken, BrokenPipeError) and not SHOWN_BY_TYPER.intersection(argv):
            return _defect(broken, call)
        return int(end.code or 0)
    except UsageError as error:
        return _end(as_given(error, call.variables), call)
    except TaskError as error:
        return _end(error, call)
    except typer.TyperException as error:
        options = {
            name: [flag for one in found.params if not getattr(one, "hidden", False) for flag in one.opts]
            for name, found in group.commands.items()
        }
        return _end(as_given(explained(error, call.command, options, call.environ), call.variables), call)
    except shutdown.Stopped:
        name = SIGNALS.get(shutdown.code(), "stopped")
        return _end(shutdown.StoppedError(name, hint="nothing is left half done; run it again"), call)
    except Exception as error:  # noqa: BLE001 - people get the traceback, hosts their results
        if isinstance(error, OSError) and SHOWN_BY_TYPER.intersection(argv):  # to a full disk
            abandon(sys.stdout)
            return _end(unwritable(error), call)
        if spent := exhausted(error):
            return _end(spent, call)
        return _defect(error, call)


def _defect(error: Exception, call: Call) -> int:
    code = _end(
        TaskError(f"a defect of image-update: {type(error).__name__}", hint="please report it with the traceback"),
        call,
    )
    call.log.traceback(error)
    return code


def _end(error: TaskError, call: Call) -> int:
    """Print the error once, and write the results of a failed run, because a CI host waits for them."""
    code = int(shutdown.code() or error.exit)
    call.log.problem("error", error.subject, error.message, error.hint)
    if call.command in HOSTED:
        problem = Problem(rule=error.rule, message=str(error), hint=error.hint)
        problems = (problem, *strange_variables(call.environ))
        failure = Report(call.command, (), 0, (), (), problems, code)
        output = record_of(ResultOptions, call.given)
        with shutdown.shield():  # an error here stays silent, because the run has failed already
            if call.command in LOOKING:
                hand_over(results(failure), output, call.environ)
            else:
                publish(failure, output, call.environ)
            if path := call.given.get("metrics_file"):
                notify(failure, Receivers(path), 0.0, call.environ, call.log)
    return code
