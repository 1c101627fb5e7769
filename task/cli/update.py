"""What all commands that write to Git do: settings → pipeline → report and exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from hashlib import sha256

from task import shutdown
from task.annotations.narrow import Narrow
from task.annotations.subscription import Defaults
from task.ci.build import build_of
from task.ci.builder_files import read_built
from task.ci.builders import with_built
from task.ci.event import event_images
from task.ci.job_pull_request import request_event
from task.ci.masking import mask
from task.ci.publish import check_places, publish
from task.ci.variables import Origin, origin_of
from task.cli.hold_words import actor_of, destination_of, until_of, words_of
from task.cli.options import variable_of
from task.cli.strange_variables import strange_variables
from task.errors import Malformed, UsageError
from task.files import read_text
from task.git.names import rewritten
from task.git.remote_url import remote_of
from task.model import Hold, Image, Problem, Report
from task.output.log import Log
from task.output.notify import Receivers, check_url, notify
from task.output.outcome import first_of
from task.pipeline.discover import Scope
from task.pipeline.find import find
from task.pipeline.job import DeployedSource, Intent, Job, PlanComment, Promotion, PullRequestOptions, Terms, Wording
from task.settings import RequestSettings, Settings
from task.templates.trailers import KEY as TRAILER_KEY
from task.templates.trailers import Trailer, build_trailers, commit_references
from task.text import and_more
from task.urls import without_login
from task.wiring import SECRETS, world_of

BY_HAND = ("hold", "release", "rollback")
FEW = 5  # how many Applications have a line each for the same problem, and how many a common line names


def update(settings: Settings, environ: Mapping[str, str], log: Log) -> int:
    """Run the pipeline, publish its report, and return the exit code."""
    if environ.get("GITHUB_ACTIONS") == "true":
        mask(SECRETS, environ)
    output = settings.output
    check_places(output, environ)
    if output.cloudevent_url:
        check_url(output.cloudevent_url, environ)
    began = time.monotonic()
    with ExitStack() as until_told:
        report = carry_out(settings, environ, log, until_told)
        # The table of decisions shows these errors to a person already.
        on_screen = {
            (one.subscription.application.key, one.verdict.because)
            for one in report.decisions
            if one.verdict.verdict == "error" and log.console and sys.stdout.isatty() and output.format == "text"
        }
        untold = [one for one in report.problems if (one.application, one.message) not in on_screen]
        for where, problem in told_together(untold):
            log.problem(problem.severity, where, problem.message, problem.hint)
        # they are in the log already
        report = replace(report, problems=(*report.problems, *strange_variables(environ)))
        failed = publish(report, output, environ)
        for error in failed:
            log.problem("error", "", error.message, error.hint)
        # The results say what landed and are kept. The exit code says that something could not be written.
        code = shutdown.code() or int(first_of((report.exit, *(error.exit for error in failed))))
        if output.metrics_file or output.cloudevent_url:
            source = without_login(settings.git.pipeline_run or origin_of(environ).run)
            receivers = Receivers(output.metrics_file, output.cloudevent_url, source, settings.git.access.ca_file)
            notify(replace(report, exit=code), receivers, time.monotonic() - began, environ, log)
        shutdown.deaf()  # everything is told: it is too late to stop anything
    return code


def told_together(problems: Iterable[Problem]) -> Iterator[tuple[str, Problem]]:
    """Yield the problems in order, each with the Applications that it is about, as the log names them.

    If a server is down, hundreds of Applications may have the same problem. More than a few share one line, which names
    the first of them. The report has one element for each.
    """
    alike = [(replace(one, application=""), one) for one in problems]
    same: dict[Problem, list[str]] = {}
    for what, one in alike:
        same.setdefault(what, []).append(one.application)
    for what, one in alike:
        apps = same.get(what, [])
        if len(apps) > FEW:
            yield and_more(same.pop(what), FEW), one
        elif apps:
            yield one.application, one


def carry_out(settings: Settings, environ: Mapping[str, str], log: Log, until_told: ExitStack) -> Report:
    """Run the pipeline with the clients that these settings need, and return its report. `until_told`: see `run`."""
    images: tuple[Image, ...] = ()
    if settings.command not in (*BY_HAND, "scan", "promote"):
        references, digest = settings.images, settings.image_digest
        if settings.images_from:
            references, digest = with_built(references, digest, read_built(settings.images_from))
        images = event_images(references, digest, settings.tag)
    job = job_of(settings, images, environ)
    world = world_of(settings, environ, log, job.scope, images)
    try:
        found = find(job, world)
        # The Git server is asked already. Until it answers, there is time to import what decides and writes.
        from task.pipeline.run import run  # noqa: PLC0415

        return run(job, world, until_told, found)
    finally:
        with shutdown.shield():
            world.close()


def job_of(settings: Settings, images: tuple[Image, ...], environ: Mapping[str, str]) -> Job:
    """Return the pipeline's job. Raises `UsageError` for an impossible value."""
    asked, named = settings.request, _named_for_requests(settings.request, environ)
    origin, now = origin_of(environ), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    own = without_login(settings.build.repository or origin.repository)
    if settings.command in ("scan", "promote"):  # the CI job has built nothing
        origin, environ = Origin(run=origin.run), {}
    given, git = settings.build, settings.git
    build = build_of(
        environ,
        sequence=given.sequence,
        source_commit=given.commit,
        source_repository=given.repository,
        created=given.created,
    )
    repository = without_login(given.repository or origin.repository).removesuffix(".git")
    commit, run = given.commit or origin.commit, git.pipeline_run or without_login(origin.run)
    page = f"{repository}/commit/{commit}" if repository.startswith(("https://", "http://")) and commit else commit
    return Job(
        command=settings.command,
        images=images,
        scope=scope_of(settings),
        terms=Terms(
            settings.allow_downgrade,
            settings.carry,
            settings.require_live,
            build,
            settings.check,
            now,
            through=git.through,
        ),
        wording=Wording(
            git.author,
            _template(git.template_file),
            _trailers(settings, origin),
            settings.command,
            # GitHub's API makes whom the token belongs to the author: nobody can sign off for them.
            False if git.through == "github" else git.sign_off,
        ),
        deadline=git.deadline,
        atomic=settings.atomic,
        require_update=settings.require_update,
        require_match=settings.require_match,
        only=git.only,
        dry=settings.dry,
        intent=_intent(settings, now, environ),
        aliases=settings.held.images,
        deployed=_deployed(settings, own.removesuffix(".git"), commit, environ),
        comment=_comment(settings, images, environ) if settings.request.comment else None,
        repository_config=settings.repository_config,
        requests=PullRequestOptions(
            asked.labels,
            asked.reviewers,
            asked.assignees,
            asked.draft,
            asked.auto_merge,
            named,
            source=page,
            run=run,
        ),
        promotion=Promotion(**asdict(settings.promote), repository=own) if settings.command == "promote" else None,
        undo=settings.argo.on_failure == "rollback",
    )


def _named_for_requests(asked: RequestSettings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options about pull requests, except `--pull-request`, that the command line has and no variable."""
    values = {
        "--pull-request-label": asked.labels,
        "--pull-request-reviewer": asked.reviewers,
        "--pull-request-assignee": asked.assignees,
        "--pull-request-draft": asked.draft,
        "--auto-merge": asked.auto_merge,
    }
    return tuple(name for name, value in values.items() if value and not environ.get(variable_of(name), "").strip())


def _comment(settings: Settings, images: tuple[Image, ...], environ: Mapping[str, str]) -> PlanComment:
    """Return the pull request for the plan's comment. Plans of other images or Applications have their own comments."""
    if not settings.dry:
        raise UsageError("--comment is for a plan only", hint="run image-update plan --comment, or add --dry-run")
    event, argo = request_event(environ), settings.argo
    narrowed = (settings.application, settings.project, settings.namespace, settings.selector)
    sources = tuple(without_login(one) for one in settings.applications)
    plan = (
        sorted({image.identity for image in images}),
        sources,
        argo.server or environ.get("ARGOCD_SERVER", ""),
        argo.context,
        narrowed,
    )
    return PlanComment(event.repository, event.number, sha256(json.dumps(plan).encode()).hexdigest())


def _deployed(settings: Settings, repository: str, commit: str, environ: Mapping[str, str]) -> DeployedSource | None:
    """Return what was built, if its deployments are to be shown. Raises `UsageError` if that is not known.

    The commit of what is promoted is known later. The branch is the CI job's, if that job built the commit.
    """
    if settings.dry or not settings.request.deployments:
        return None
    for name, option, value, variables in (
        ("repository", "--source-repository", repository, "GITHUB_REPOSITORY, CI_PROJECT_URL"),
        ("commit", "--source-commit", commit, "GITHUB_SHA, CI_COMMIT_SHA"),
    ):
        if not value and (name, settings.command) != ("commit", "promote"):
            hint = f"give {option}; without it, the CI system's variables tell ({variables} and others)"
            raise UsageError(f"--deployments: the {name} that was built is not known", hint=hint)
    if not (_is_remote(repository) or _is_remote(rewritten(repository, settings.git.rewrites))):
        hint = "write it as https://host/owner/repository: it is the repository of the source code"
        message = f"--source-repository: no deployment is shown for {repository!r}: it is not an https or ssh URL"
        raise UsageError(message, hint=hint)
    of_the_job = bool(commit) and environ.get("CI_COMMIT_SHA", "").strip() == commit
    ref = environ.get("CI_COMMIT_REF_NAME", "").strip() if of_the_job else ""
    is_tag = bool(ref) and environ.get("CI_COMMIT_TAG", "").strip() == ref
    return DeployedSource(repository, commit, ref, is_tag, settings.argo.wait)


def _is_remote(url: str) -> bool:
    try:
        remote_of(url)
    except Malformed:
        return False
    return True


def scope_of(settings: Settings) -> Scope:
    """Return which Applications are considered, and the defaults for settings without an annotation."""
    return Scope(
        settings.annotation_prefix,
        Narrow(
            settings.held.apps or settings.application,
            settings.namespace,
            settings.project,
            settings.selector,
            within=settings.application if settings.held.apps else (),
        ),
        Defaults(settings.argocd_namespace, settings.strategy, settings.pin_digest, settings.request.wanted),
    )


def _intent(settings: Settings, now: str, environ: Mapping[str, str]) -> Intent | None:
    """Return what a person wants to hold, release or roll back, or None for an event."""
    given, hold, to = settings.held, None, ""
    if settings.command not in BY_HAND:
        return None
    if settings.command != "release" and given.hold:
        try:
            until = until_of(given.until, now)
        except Malformed as error:
            raise UsageError(f"--until: {error.message}", hint=error.hint) from None
        hold = Hold(words_of(given.reason), words_of(given.by or actor_of(environ)), now, until)
    if settings.command == "rollback":
        try:
            to = destination_of(given.to)
        except Malformed as error:
            raise UsageError(f"--to: {error.message}", hint=error.hint) from None
    return Intent(settings.command, hold, not given.images, to, given.discard, given.unknown)


def _trailers(settings: Settings, origin: Origin) -> tuple[Trailer, ...]:
    """Return what is known about the build. The CI system's facts count only for its own commit."""
    git, build = settings.git, settings.build
    for key, _ in git.trailers:
        if not TRAILER_KEY.fullmatch(key):
            raise UsageError(f"--trailer: {key!r} is not a key", hint="letters, digits and dashes only: Ticket=ABC-1")
    if build.commit and build.commit != origin.commit.lower():
        origin = Origin(run=origin.run)
    commit, repository = build.commit or origin.commit, build.repository or without_login(origin.repository)
    references = commit_references(commit, repository, origin.author, origin.date, origin.message)
    run = git.pipeline_run or without_login(origin.run)
    return build_trailers(commit, run, git.trailers, references)


def _template(path: str) -> str | None:
    if not path:
        return None
    # Only a run with a template needs this before the Git server is asked; see `carry_out`.
    from task.templates.commit_message import check_template  # noqa: PLC0415

    try:
        text = read_text(path)
        check_template(text)
    except OSError as error:
        raise UsageError(
            f"--commit-message-template: cannot read {path!r}: {error.strerror}", hint="name a readable file"
        ) from None
    except (Malformed, UnicodeDecodeError) as error:
        raise UsageError(
            f"--commit-message-template: {error}", hint="write a Go text/template, as Image Updater takes it"
        ) from None
    return text
