"""Settings → Order: what a call asks the pipeline to do, every text of it validated before anything is done."""

from __future__ import annotations

import time
from collections.abc import Mapping

from task.annotations.narrow import Narrow
from task.annotations.subscription import Defaults
from task.ci.build import build_of
from task.ci.variables import Origin, origin_of
from task.cli.hold_words import actor_of, destination_of, until_of, words_of
from task.errors import Malformed, UsageError
from task.files import read_text
from task.model import Hold, Image
from task.pipeline.changeset import Wording
from task.pipeline.discover import Scope
from task.pipeline.job import Job, PullRequestOptions
from task.pipeline.weigh import Intent, Terms
from task.policy.judge import Leave
from task.settings import BuildSettings, GitSettings, HoldSettings, Settings
from task.templates.commit_message import check_template
from task.templates.trailers import KEY as TRAILER_KEY
from task.templates.trailers import Trailer, build_trailers, commit_references
from task.urls import without_login


def order_of(settings: Settings, images: tuple[Image, ...], environ: Mapping[str, str]) -> Job:
    """What a command is asked to do. Raises `UsageError` for what makes no sense."""
    origin, now = origin_of(environ), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if settings.command == "scan":  # the CI job that scans has built nothing
        origin, environ = Origin(run=origin.run), {}
    given, git = settings.build, settings.git
    build = build_of(
        environ,
        sequence=given.sequence,
        source_commit=given.commit,
        source_repository=given.repository,
        created=given.created,
    )
    return Job(
        command=settings.command,
        images=images,
        scope=scope_of(settings),
        terms=Terms(Leave(settings.allow_downgrade), settings.carry, settings.require_live, build, settings.check, now),
        wording=Wording(git.author, _template(git.template_file), _trailers(git, given, origin), settings.command),
        deadline=git.deadline,
        atomic=settings.atomic,
        require_update=settings.require_update,
        require_match=settings.require_match,
        only=git.only,
        dry=settings.dry,
        intent=_intent(settings, now, environ),
        meant=settings.held.images,
        requests=_requests(settings, origin),
    )


def _requests(settings: Settings, origin: Origin) -> PullRequestOptions:
    given = settings.request
    repository = without_login(settings.build.repository or origin.repository).removesuffix(".git")
    commit = settings.build.commit or origin.commit
    page = f"{repository}/commit/{commit}" if repository.startswith(("https://", "http://")) and commit else commit
    run = settings.git.pipeline_run or without_login(origin.run)
    return PullRequestOptions(
        given.labels, given.reviewers, given.assignees, given.draft, given.auto_merge, source=page, run=run
    )


def _intent(settings: Settings, now: str, environ: Mapping[str, str]) -> Intent | None:
    """What a person wants held, released or rolled back; None for an event."""
    given = settings.held
    if not given.apps:
        return None
    hold = _hold(given, now, environ) if settings.command != "release" and given.hold else None
    try:
        to = destination_of(given.to) if settings.command == "rollback" else ""
    except Malformed as error:
        raise UsageError(f"--to: {error.message}", hint=error.hint) from None
    return Intent(settings.command, hold, not given.images, to, given.discard, given.unknown)


def _hold(given: HoldSettings, now: str, environ: Mapping[str, str]) -> Hold:
    try:
        until = until_of(given.until, now)
    except Malformed as error:
        raise UsageError(f"--until: {error.message}", hint=error.hint) from None
    return Hold(words_of(given.reason), words_of(given.by or actor_of(environ)), now, until)


def _trailers(given: GitSettings, build: BuildSettings, origin: Origin) -> tuple[Trailer, ...]:
    """What is known of the build; what the CI system says of its own commit is not said of another one."""
    for key, _ in given.trailers:
        if not TRAILER_KEY.fullmatch(key):
            raise UsageError(f"--trailer: {key!r} is no key", hint="letters, digits and dashes only: Ticket=ABC-1")
    if build.commit and build.commit != origin.commit.lower():
        origin = Origin(run=origin.run)
    commit, repository = (
        build.commit or origin.commit,
        build.repository or without_login(origin.repository),
    )
    references = commit_references(commit, repository, origin.author, origin.date, origin.message)
    run = given.pipeline_run or without_login(origin.run)
    signed = (("Signed-off-by", f"{given.author.name} <{given.author.email}>"),) if given.sign_off else ()
    return (*build_trailers(commit, run, given.trailers, references), *signed)


def scope_of(settings: Settings) -> Scope:
    """Which Applications are considered, and what holds where no annotation says otherwise."""
    return Scope(
        settings.annotation_prefix,
        Narrow((*settings.application, *settings.held.apps), settings.namespace, settings.project, settings.selector),
        Defaults(settings.argocd_namespace, settings.strategy, settings.pin_digest, settings.request.wanted),
    )


def _template(path: str) -> str | None:
    if not path:
        return None
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
