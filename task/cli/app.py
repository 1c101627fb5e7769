"""The command-line interface as a Typer app. Every error results in a line on stderr and an exit
code.

A command's module is imported only when the command is called (Click's lazy loading of
subcommands). So `run` neither imports the modules of `wait`, `lint`, and other commands, nor
creates their options. Likewise, `task.wiring` imports only the clients that a run uses. Together,
these measures save almost half of the CPU time at startup, which matters when many pods start on
the same node.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from task import DOCS, __version__, shutdown
from task.ci.publish import hand_over, publish, results
from task.cli.call import Call, strange_variables
from task.cli.command import GroupedHelp, function_of, record_of
from task.cli.exit_codes import TABLE
from task.cli.form import shown_flags
from task.cli.mistakes import explained, in_words_of_the_user
from task.command_kinds import kind_of
from task.errors import Exit, TaskError, Trouble, UsageError
from task.files import exhausted
from task.model import Problem, Report
from task.output.console import abandon, unwritable
from task.output.notify import count_run
from task.settings import ResultOptions

SIGNALS = {int(Exit.INTERRUPTED): "interrupted", int(Exit.TERMINATED): "terminated"}
SHOWN_BY_TYPER = {
    "-h",
    "--help",
    "--help-all",
    "--version",
    "--show-completion",
    "--install-completion",
}


class About(NamedTuple):
    """A command's help text."""

    sentence: str
    examples: tuple[str, ...]
    page: str


GITOPS = "https://github.com/acme/gitops.git//applications?ref=main"
# The command groups, in the order of the help. Each command's sentence, examples, and documentation
# page are defined here, so that `--help` does not have to import every command.
GROUPS = {
    "Update": {
        "run": About(
            "Write the version of a newly built image to Git, for every Argo CD Application that"
            " tracks it.",
            (
                "--image ghcr.io/acme/web:1.5.0 --applications argocd",
                "--image ghcr.io/acme/web:1.5.0 --applications apps/ --pull-request",
                f"--image ghcr.io/acme/web:1.5.0 --applications '{GITOPS}' --wait",
            ),
            "reference.md",
        ),
        "scan": About(
            "Look up the newest allowed tag of every tracked image in the registries, then"
            " continue like run.",
            (
                "--applications cluster --dry-run",
                "--applications cluster --application 'team-a/*' --minimum-age 3d",
            ),
            "registry.md#scan",
        ),
        "promote": About(
            "Promote versions from some Applications to others, if the rules of the target"
            " Applications allow it.",
            (
                "--from web-staging --to web-production --applications argocd",
                "--from 'staging/*' --to 'production/{name}' --healthy --applications cluster",
                "--from web-staging --to web-production --applications argocd --pull-request",
            ),
            "how-to/promote.md",
        ),
    },
    "By hand": {
        "rollback": About(
            "Roll back to an older tag and hold the image at that tag, in one commit.",
            (
                'web --to previous --reason "errors at checkout" --applications argocd',
                "web --alias api --to 1.4.2 --applications apps/",
            ),
            "how-to/rollback.md",
        ),
        "hold": About(
            "Keep images at their current version. Later builds are remembered but not written.",
            (
                'web --reason "load test" --until 3d --applications argocd',
                'web --alias api --reason "incident 42" --applications apps/',
            ),
            "how-to/rollback.md",
        ),
        "release": About(
            "End a hold and write the newest waiting build.",
            ("web --applications argocd", "web --discard --applications argocd"),
            "how-to/rollback.md",
        ),
    },
    "Inspect": {
        "plan": About(
            "Show what run would do, with the exact diff, without writing anything.",
            (
                "--image ghcr.io/acme/web:1.5.0 --applications apps/",
                f"--image ghcr.io/acme/web:1.5.0 --applications '{GITOPS}' --comment",
            ),
            "deployments.md",
        ),
        "status": About(
            "Show each image's version in Git and in the cluster, its holds, and its recent"
            " builds.",
            (
                "web --applications argocd",
                "--applications cluster --newest --html status.html",
                "--applications cluster --fail-on behind,held --older-than 3d",
            ),
            "status.md",
        ),
        "lint": About(
            "Check all Applications' annotations and the repository's config, and list every"
            " problem with a fix.",
            ("apps/", ". -o sarif", "apps/ config.yaml --from-image-updater"),
            "lint.md",
        ),
        "check": About(
            "Check every version change between two commits against the rules, as a required check"
            " for pull requests.",
            (
                "--base origin/main --head HEAD --applications apps/",
                "--applications apps/ --comment",
            ),
            "how-to/check.md",
        ),
        "wait": About(
            "Wait until Argo CD has synced a revision and its Applications are healthy.",
            (
                "web --revision 4f2a9c1d --applications argocd",
                "'team-a/*' --revision 4f2a9c1d --wait-timeout 900 --applications cluster",
            ),
            "rollouts.md#wait-for-another-commit",
        ),
        "report": About(
            "Show a run's report again, or convert it to an HTML page.",
            ("report.json", "report.json --html report.html"),
            "observability.md#a-page-of-a-run",
        ),
    },
    "Try": {
        "demo": About(
            "Try an update in a throwaway repository: one build, the decisions, the diff, and"
            " the commit.",
            ("", "--keep"),
            "tutorial.md",
        ),
    },
}
COMMANDS = {name: about for commands in GROUPS.values() for name, about in commands.items()}


class GroupedCommands(TyperGroup):
    """The root command, with a help section for each command group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one help section per command group, in order."""
        del ctx
        width = max(map(len, COMMANDS))  # the same in all sections, so that they are aligned
        for group_name, commands in GROUPS.items():
            rows = [(name.ljust(width), about.sentence) for name, about in commands.items()]
            with formatter.section(group_name):
                formatter.write_dl(rows)


class CommandFiles(Mapping[str, TyperCommand]):
    """Maps each command's name to its Typer command, which is created from the function of the same
    name.

    Commands that write, or that take images, are defined in `update.py`; each of the others has its
    own module.
    """

    def __getitem__(self, name: str) -> TyperCommand:
        if name not in COMMANDS:
            raise KeyError(name)
        return _command(name)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def _command(name: str) -> TyperCommand:
    """Import the module of a command, such as `task.cli.wait`, and return its Typer command."""
    kind = kind_of(name)
    is_update = kind.writes or kind.takes_images
    module_name = "update" if is_update else name
    # A signal during the import would leave modules half imported, and a stopped run still needs
    # this module to write its results.
    with shutdown.shield():
        module = import_module(f"task.cli.{module_name}")
    function = function_of(name, getattr(module, name))

    sentence, examples, page = COMMANDS[name]
    example_lines = "\n".join(f"  image-update {name} {example}".rstrip() for example in examples)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(
        name,
        cls=GroupedHelp,
        # Click does not rewrap the paragraph after \b.
        help=f"{sentence}\n\n\b\nExamples:\n{example_lines}\n\n\b\nDocumentation: {DOCS}/{page}",
        # otherwise, Typer would shorten the help in the list of commands
        short_help=sentence,
        # Click caches the names of the help option from a command's first context
        context_settings={"help_option_names": ["-h", "--help"]},
    )(function)
    return cast("TyperCommand", get_command(app))


VARIABLES = (
    "image-update help COMMAND shows a command's options. Each option can also be set with a"
    " variable, such as IMAGE_UPDATE_GIT_USERNAME for --git-username."
)
app = typer.Typer(
    name="image-update",
    cls=GroupedCommands,
    help="Writes the version of a newly built image to Git, for every Argo CD Application that tracks it.",
    epilog=f"{VARIABLES}\n\n\b\n{TABLE}",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    """If `--version` is set, print the version and exit."""
    if wanted:
        typer.echo(f"image-update {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root_options(
    context: typer.Context,
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    del version  # `_print_version` has already handled it
    if not context.invoked_subcommand:
        typer.echo(context.get_help(), err=True)  # stdout remains empty without a command
        raise typer.Exit(int(Exit.USAGE))


group = cast("TyperGroup", get_command(app))
group.commands = cast("dict[str, Any]", CommandFiles())


def main(argv: Sequence[str]) -> int:
    """Run a command line, and return its exit code.

    `argv` contains the arguments after the program's name. Every exception is reported and
    converted to an exit code.
    """
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    call = Call(group, argv)
    try:
        shutdown.hear()
        if list(argv) == ["exit-codes", "--help"]:  # `image-update help exit-codes`
            typer.echo(TABLE)
            return int(Exit.OK)
        if call.mistake:
            return _report_error(call.mistake, call)
        code = group.main(
            args=list(call.argv),
            prog_name="image-update",
            standalone_mode=False,  # raise errors instead of printing them
            obj=call,
        )
        return code or 0
    except SystemExit as end:
        return _code_of_exit(end, argv, call)
    except UsageError as error:
        return _report_error(in_words_of_the_user(error, call.variables), call)
    except TaskError as error:
        return _report_error(error, call)
    except typer.TyperException as error:
        mistake = explained(error, call.command, _flags_of_commands(), call.environ, argv)
        return _report_error(in_words_of_the_user(mistake, call.variables), call)
    except shutdown.Stopped:
        name = SIGNALS.get(shutdown.code(), "stopped")
        return _report_error(
            shutdown.StoppedError(name, hint="nothing is left half done; run it again"),
            call,
        )
    except Exception as error:  # noqa: BLE001 - people get the traceback, CI systems get results
        return _report_unexpected_error(error, argv, call)


def _code_of_exit(end: SystemExit, argv: Sequence[str], call: Call) -> int:
    """Return the exit code for a `SystemExit` that Typer raised.

    Typer exits on any broken pipe. While printing help, a broken pipe is harmless; otherwise, it is
    reported as a defect.
    """
    cause = end.__context__
    prints_help = bool(SHOWN_BY_TYPER.intersection(argv))
    if isinstance(cause, BrokenPipeError) and not prints_help:
        return _report_defect(cause, call)
    return int(end.code or 0)


def _report_unexpected_error(error: Exception, argv: Sequence[str], call: Call) -> int:
    """Report an exception of an unexpected class, and return the exit code.

    The exception counts as a defect unless the help could not be printed, or the machine has run
    out of some resource.
    """
    prints_help = bool(SHOWN_BY_TYPER.intersection(argv))
    if isinstance(error, OSError) and prints_help:  # for example, the disk is full
        abandon(sys.stdout)
        return _report_error(unwritable(error), call)
    no_resources = exhausted(error)
    if no_resources:
        return _report_error(no_resources, call)
    return _report_defect(error, call)


def _flags_of_commands() -> dict[str, list[str]]:
    """Return the flags listed in each command's help, keyed by command."""
    return {name: shown_flags(command.params) for name, command in group.commands.items()}


def _report_defect(error: Exception, call: Call) -> int:
    """Report a defect of this program with its traceback, and return the exit code."""
    code = _report_error(
        TaskError(
            f"a defect in image-update: {type(error).__name__}",
            hint="please report it with the traceback",
        ),
        call,
    )
    call.log.traceback(error)
    return code


def _report_error(error: TaskError, call: Call) -> int:
    """Print an error, and return the exit code. For commands that CI systems call, also write the
    results.

    If the options come from a CI system's form, the message uses the names of the form's
    parameters.
    """
    code = shutdown.code_of_run([error.trouble])
    # includes the subject, which is passed to the log separately
    message = call.in_words_of_the_form(str(error))
    hint = call.in_words_of_the_form(error.hint)
    call.log.problem("error", error.subject, call.in_words_of_the_form(error.message), hint)
    if kind_of(call.command).for_ci:
        trouble = Trouble(error.rule, message, hint, exit=error.exit)
        _write_failure(trouble, code, call)
    return code


def _write_failure(trouble: Trouble, code: int, call: Call) -> None:
    """Write a failed run's results to the files that the options specify.

    Depending on the command, these are either the complete report or only the CI system's results.
    """
    failure = Report(
        command=call.command,
        images=(),
        considered=0,
        decisions=(),
        commits=(),
        problems=(Problem(trouble), *strange_variables(call.environ)),
        exit=code,
    )
    output = record_of(ResultOptions, call.given)
    with shutdown.shield():  # errors are not reported, because the run has already failed
        if kind_of(call.command).reports:
            publish(failure, output, call.environ)
        else:
            hand_over(results(failure), output, call.environ)
        metrics_file = call.given.get("metrics_file")
        if metrics_file:
            count_run(failure, metrics_file, 0.0, call.log)
