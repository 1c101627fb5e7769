"""`status`: shows each image's versions in Git, in the cluster, and in the registry, its holds, and
its recent builds.
"""

from collections.abc import Mapping

from task import shutdown
from task.ci.publish import mask, tell, write_page
from task.cli.call import Call
from task.cli.job import duration_of, given_images, job_of
from task.commands import fail_on
from task.commands.status import StatusDetails
from task.commands.status import status as read_status
from task.errors import UsageError
from task.output.console import say, say_lines, stdout_console
from task.output.image_status import Status
from task.output.log import Log
from task.output.status_views import json_lines, page, plain, table
from task.settings import FORGE_TOKENS, SECRETS, Settings
from task.wiring.world import RealWorld


def status(settings: Settings, call: Call) -> int:
    """Show each image's version in Git and in the cluster, its holds, and its recent builds."""
    options = settings.status
    environ = call.environ
    log = call.log
    if options.older_than and not options.fail_on:
        raise UsageError(
            "--older-than requires --fail-on",
            hint="add the states to look for, such as --fail-on behind",
        )
    older_than = duration_of("--older-than", options.older_than)
    _check_combinations(settings)
    if environ.get("GITHUB_ACTIONS") == "true":
        mask(SECRETS, environ)

    images_status = _status_of_images(settings, environ, log)
    console = stdout_console(environ)
    for problem in images_status.problems:
        log.problem(problem.severity, problem.application, problem.message, problem.hint)

    is_brief = not options.app  # for all Applications, rather than for those named in the arguments
    if settings.html:
        write_page(page(images_status), settings.html)
    elif options.output == "json":
        say_lines(json_lines(images_status))
    elif console:
        say(table(images_status, console, brief=is_brief))
    else:
        say(plain(images_status, brief=is_brief))

    # one problem for each image in a state listed in `--fail-on`
    fail_on_problems = fail_on.late_images(images_status, options.fail_on, older_than)
    for problem in fail_on_problems:
        log.problem(problem.severity, problem.application, problem.message, problem.hint)
    problems = (*images_status.problems, *fail_on_problems)
    code = shutdown.code_of_run(problems)
    message = f"images shown: {len(images_status.images)}"
    tell("status", message, settings.handed, environ, problems=problems, code=code)
    return code


def _check_combinations(settings: Settings) -> None:
    """Raise `UsageError` for options that contradict each other."""
    options = settings.status
    if options.asks_for_newest and settings.registry_check == "never":
        option = "--newest" if options.newest else "--fail-on behind"
        raise UsageError(
            f"{option} and --registry-check=never cannot be combined",
            hint="remove one of them",
        )
    if settings.html and options.output == "json":
        raise UsageError("--html and --output=json cannot be combined", hint="remove one of them")


def _status_of_images(settings: Settings, environ: Mapping[str, str], log: Log) -> Status:
    """Read the images' status in Git, in the cluster, and in the registries.

    If the options name images, only those are included.
    """
    options = settings.status
    event = settings.event
    names_images = bool(event.image or event.images_from)
    images = given_images(event).images if names_images else ()
    job = job_of(settings, images, environ)

    has_token_file = bool(settings.forge.forge_token_file)
    token_variables = (*FORGE_TOKENS, "GITHUB_TOKEN")
    has_token = has_token_file or any(environ.get(name) for name in token_variables)
    # The build that wrote the current value reveals how long the cluster has differed from Git.
    needs_a_build = "differs" in options.fail_on and bool(options.older_than)
    details = StatusDetails(
        newest=options.asks_for_newest,
        builds=max(options.builds, 1) if needs_a_build else options.builds,
        requests=has_token,
        dates=bool(options.older_than),
    )
    world = RealWorld(settings, environ, log, job.scope, images)
    try:
        return read_status(job, world, details)
    finally:
        with shutdown.shield():
            world.close()
