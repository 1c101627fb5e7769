"""Builds a run's job from the settings. Raises `UsageError` for an invalid value."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from task.annotations.application import Narrow
from task.annotations.subscription import Defaults, Scope
from task.ci.events.event import Events
from task.ci.images import TAG, event_images, with_built
from task.ci.variables import actor_of, build_of, origin_of, request_event
from task.ci_systems import Origin
from task.command_kinds import kind_of
from task.deciding.job import (
    DeployedSource,
    Intent,
    Job,
    PlanComment,
    Promotion,
    PullRequestOptions,
    Terms,
    Wording,
)
from task.errors import Malformed, UsageError
from task.files import read_text
from task.git.hosts import remote_of
from task.git.names import rewritten
from task.image import parse_image
from task.model import Build, Hold, Image, Person
from task.option import flag_of, variable_of
from task.repository_config.config import seconds_of
from task.settings import SECRETS, CommitOptions, EventOptions, HoldOptions, Settings
from task.templates.commit_message import KEY as TRAILER_KEY
from task.templates.commit_message import Trailer, build_trailers, check_template, commit_references
from task.text import one_line
from task.urls import without_login

if TYPE_CHECKING:
    from task.ci.images_from import ImagesFrom


@dataclass(frozen=True)
class GivenImages:
    """A run's images, which come from a single build, or from events, each of which is a separate
    build.
    """

    images: tuple[Image, ...] = ()
    events: Events | None = None

    @property
    def nothing_to_do(self) -> bool:
        """Whether there are events, but none is a push of a tagged image."""
        return self.events is not None and not self.images


def given_images(options: EventOptions, applications: Sequence[str] = ()) -> GivenImages:
    """Return the images specified by the options and by the `--images-from` files.

    A file contains either a single build's images, which are added to those from the options, or
    registry events, each of which is a separate build. `applications` are the values of
    `--applications`, which may also read stdin.
    """
    if not options.images_from:
        return GivenImages(event_images(options.image, options.image_digest, options.tag))

    # Imported late, because the module parses events from fifteen registries, and few runs need it.
    from task.ci.images_from import STDIN, read_images_from  # noqa: PLC0415

    if STDIN in options.images_from and STDIN in applications:
        raise UsageError(
            "--images-from - and --applications - both read stdin",
            hint="use a file for one of them",
        )
    files = read_images_from(options.images_from, options.images_format, options.images_registry)
    if files.events is None:
        references, digest = with_built(options.image, options.image_digest, files.built)
        return GivenImages(event_images(references, digest, options.tag))
    _refuse_build_options(options, files)
    images = tuple(dict.fromkeys(event.image for event in files.events.pushes))
    return GivenImages(images, files.events)


def _refuse_build_options(options: EventOptions, files: ImagesFrom) -> None:
    """Raise `UsageError` if a file or an option that describes a single build is used together with
    events, because each event is a separate build.
    """
    if files.built:
        raise UsageError(
            "--images-from: a builder's file cannot be mixed with events",
            hint="run it once for each",
        )
    for field in ("image", "image_digest", "tag", "sequence", "source_commit", "created"):
        if getattr(options, field):
            raise UsageError(
                f"{flag_of(field)} cannot be used with events: it is for a single build",
                hint="remove it: each event is a separate build with its own identity",
            )


def job_of(
    settings: Settings,
    images: tuple[Image, ...],
    environ: Mapping[str, str],
    events: Events | None = None,
) -> Job:
    """Return the job (a run's work) that the options and the CI system's variables describe. Raises
    `UsageError` for an invalid value.

    `images` are the images from the options or from `events`. Each event is a separate build.
    """
    event_options = settings.event
    commits = settings.commit
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    origin = origin_of(environ)  # the CI job's own commit, repository, and run
    # the CI job's repository, even if the job did not build the images
    job_repository = without_login(settings.source_repository or origin.repository)
    # Events are about builds in other jobs, and commands such as `promote` deploy earlier builds.
    is_build_of_job = events is None and not kind_of(settings.command).deploys_only
    if not is_build_of_job:  # apart from the run, the CI job's facts do not apply
        origin = Origin(run=origin.run)

    build = Build()
    if not events:  # even if the variables do not describe the build, the options may
        build_variables = environ if is_build_of_job else {}
        build = build_of(build_variables, event_options, settings.source_repository)

    # the images' source, which only the options can specify if the job did not build the images
    source_repository = without_login(settings.source_repository or origin.repository)
    source_commit = event_options.source_commit or origin.commit
    source_page = _commit_page(source_repository.removesuffix(".git"), source_commit)
    run = commits.pipeline_run or without_login(origin.run)
    return Job(
        command=settings.command,
        images=images,
        scope=scope_of(settings),
        terms=_terms(settings, build, now),
        wording=_wording(settings, origin),
        deadline=settings.git.deadline,
        atomic=commits.atomic,
        require_update=settings.require_update,
        require_match=settings.require_match,
        only=settings.git.only_repository,
        dry=settings.dry,
        intent=_intent(settings, now, environ),
        aliases=settings.aliases,
        deployed=_deployed_source(
            settings, job_repository.removesuffix(".git"), source_commit, environ
        ),
        comment=_plan_comment(settings, images, environ) if settings.comment else None,
        requests=_requests(commits, environ, source_page, run),
        promotion=_promotion(settings, job_repository),
        undo=settings.on_failure == "rollback",
        events=events.pushes if events else (),
        passed_over=len(events.passed_over) if events else 0,
        source_repository=without_login(settings.source_repository) if events else "",
    )


def _terms(settings: Settings, build: Build, now: str) -> Terms:
    """Return the options that affect decisions. `now` is the current time in RFC 3339 format."""
    return Terms(
        allow_downgrade=settings.rules.allow_downgrade,
        carry=settings.git.carry_parameters,
        require_live=settings.rules.require_live,
        build=build,
        check=settings.registry_check,
        now=now,
        through=settings.commit.commit_through,
        minimum_age=duration_of("--minimum-age", settings.minimum_age),
        verify=settings.verify.wanted,
    )


def _wording(settings: Settings, origin: Origin) -> Wording:
    """Return the settings for commit messages. `origin` is the build's source.

    Raises `UsageError` for an invalid template or trailer.
    """
    commits = settings.commit
    # The GitHub API makes the token's owner the author, and nobody else can sign off on the owner's
    # behalf.
    sign_off = False if commits.commit_through == "github" else commits.sign_off
    return Wording(
        author=Person(commits.git_author_name, commits.git_author_email),
        template=_template(commits.commit_message_template),
        trailers=_build_trailers(settings, origin),
        command=settings.command,
        sign_off=sign_off,
        push_options=commits.push_option,
    )


def _requests(
    commits: CommitOptions, environ: Mapping[str, str], page: str, run: str
) -> PullRequestOptions:
    """Return the settings for pull requests. `page` is the URL of the built commit, and `run` is
    the URL of the pipeline run.
    """
    return PullRequestOptions(
        labels=commits.pull_request_label,
        reviewers=commits.pull_request_reviewer,
        assignees=commits.pull_request_assignee,
        draft=commits.pull_request_draft,
        auto_merge=commits.auto_merge,
        named=_flags_on_command_line(commits, environ),
        source=page,
        run=run,
    )


def duration_of(option: str, text: str) -> int:
    """Convert the duration in an option's value, such as 3d, to seconds. Raises `UsageError`."""
    try:
        return seconds_of(text) if text else 0
    except Malformed as error:
        raise UsageError(f"{option}: {error.message}", hint=error.hint) from None


def _flags_on_command_line(commits: CommitOptions, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the pull request options, such as `--auto-merge`, that are set on the command line.
    Options whose variables are set are omitted, because a platform may set these variables for
    everyone. `--pull-request` itself is never included.
    """
    fields = (
        "pull_request_label",
        "pull_request_reviewer",
        "pull_request_assignee",
        "pull_request_draft",
        "auto_merge",
    )
    set_flags = [flag_of(field) for field in fields if getattr(commits, field)]
    return tuple(flag for flag in set_flags if not environ.get(variable_of(flag), "").strip())


def _plan_comment(
    settings: Settings,
    images: tuple[Image, ...],
    environ: Mapping[str, str],
) -> PlanComment:
    """Return the pull request to comment on, and a key that identifies this plan's comment.

    Plans for different images or Applications have separate comments, so the key is a hash of both.
    Raises `UsageError` if the run is not a plan, or if the CI job is not running for a pull
    request.
    """
    if not settings.dry:
        raise UsageError(
            "--comment works only with a plan",
            hint="run image-update plan --comment, or add --dry-run",
        )
    repository, number = request_event(environ)

    scope = settings.scope
    sources = settings.sources
    identifying_options = (
        sorted({image.identity for image in images}),
        tuple(without_login(source) for source in sources.applications),
        sources.argocd_server or environ.get("ARGOCD_SERVER", ""),
        sources.kube_context,
        (settings.application, scope.project, scope.namespace, scope.selector),
    )
    key = sha256(json.dumps(identifying_options).encode()).hexdigest()
    return PlanComment(repository=repository, number=number, key=key)


def _deployed_source(
    settings: Settings,
    repository: str,
    commit: str,
    environ: Mapping[str, str],
) -> DeployedSource | None:
    """Return the source commit whose deployments the forge should show, or None without
    `--deployments` or in a dry run.

    `repository` and `commit` are the build's source. For a promotion, `commit` is "", because it is
    determined later. Raises `UsageError` if the source is unknown.
    """
    shows_deployments = settings.deployments and not settings.dry
    if not shows_deployments:
        return None
    _check_deployed_source(settings, repository, commit)

    ref = ""  # the branch or tag, known only if this CI job built the commit
    job_commit = environ.get("CI_COMMIT_SHA", "").strip()
    if commit and commit == job_commit:
        ref = environ.get("CI_COMMIT_REF_NAME", "").strip()
    is_tag = bool(ref) and ref == environ.get("CI_COMMIT_TAG", "").strip()
    return DeployedSource(
        repository=repository,
        commit=commit,
        ref=ref,
        is_tag=is_tag,
        waits_for_rollouts=settings.rollout.wait,
    )


def _check_deployed_source(settings: Settings, repository: str, commit: str) -> None:
    """Raise `UsageError` if the repository or commit is unknown, or if the repository's URL is not
    an https or ssh URL. For `promote`, the commit may still be unknown.
    """
    if not repository:
        raise UsageError(
            "--deployments: cannot tell which repository was built",
            hint="set --source-repository; in CI, it is read from variables such as"
            " GITHUB_REPOSITORY, CI_PROJECT_URL",
        )
    if not commit and settings.command != "promote":
        raise UsageError(
            "--deployments: cannot tell which commit was built",
            hint="set --source-commit; in CI, it is read from variables such as GITHUB_SHA,"
            " CI_COMMIT_SHA",
        )
    rewritten_url = rewritten(repository, settings.transport.rewrite_url)
    if not _is_remote(repository) and not _is_remote(rewritten_url):
        hint = "set it to the source code repository, as https://host/owner/repository"
        raise UsageError(
            (
                f"--source-repository: cannot report a deployment for {repository!r}: it is not an"
                " https or ssh URL"
            ),
            hint=hint,
        )


def _is_remote(url: str) -> bool:
    """Return whether this is an https or ssh URL."""
    try:
        remote_of(url)
    except Malformed:
        return False
    return True


def scope_of(settings: Settings) -> Scope:
    """Return the scope: which Applications to consider, and defaults for settings without an
    annotation.

    Applications can be named with the argument APP and with `--application`. If both are used, an
    Application must match both.
    """
    options = settings.scope
    typed_names = settings.app or settings.status.app  # from the argument APP
    option_names = settings.application  # from `--application`
    # If both are used, `within` restricts the names in the argument to those in the option.
    names_to_match_too = option_names if typed_names else ()
    return Scope(
        prefix=options.annotation_prefix,
        narrow=Narrow(
            names=typed_names or option_names,
            namespaces=options.namespace,
            projects=options.project,
            selector=options.selector,
            within=names_to_match_too,
            typed=bool(typed_names),
        ),
        defaults=Defaults(
            argocd_namespace=settings.sources.argocd_namespace,
            strategy=options.strategy,
            pin_digest=settings.pin_digest,
            pull_request=settings.git.pull_request,
        ),
    )


def _promotion(settings: Settings, repository: str) -> Promotion | None:
    """Return the requested promotion, or None for commands other than `promote`.

    `repository` is the CI job's repository, or the one set with the options.
    """
    if settings.command != "promote":
        return None
    # Imported late, so that other commands do not have to load a module that they never use.
    from task.commands.promotion import check_promotion  # noqa: PLC0415

    options = settings.promote
    promotion = Promotion(
        sources=options.promote_from,
        targets=options.promote_to,
        source_selector=options.from_selector,
        target_selector=options.to_selector,
        images=settings.aliases,
        healthy=options.healthy,
        repository=repository,
    )
    check_promotion(promotion)
    return promotion


def _intent(settings: Settings, now: str, environ: Mapping[str, str]) -> Intent | None:
    """Return what the user requests with `hold`, `release`, or `rollback`, or None for any other
    command. A hold is an order to keep a version.

    `now` is the current time in RFC 3339 format. Raises `UsageError` for an invalid value.
    """
    if not kind_of(settings.command).by_hand:
        return None
    _refuse_secrets(settings.hold, environ)

    rollback = settings.rollback
    rolls_back = settings.command == "rollback"
    holds_afterwards = settings.command == "hold" or (rolls_back and rollback.hold)
    hold = None
    if holds_afterwards:
        hold = _requested_hold(settings.hold, now, environ)
    names_single_images = bool(settings.aliases or rollback.failed)
    return Intent(
        verb=settings.command,
        hold=hold,
        whole=not names_single_images,
        to=_checked_destination(rollback.to) if rolls_back and rollback.to else "",
        discard=settings.discard,
        unknown=rollback.unknown_tag,
        failed=_failed_image(rollback.failed) if rolls_back and rollback.failed else None,
    )


def _refuse_secrets(options: HoldOptions, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` if `--reason` or `--by`, which will be visible in a commit, contains the
    value of a secret variable.

    A CI system may expand variables in these options' values, as GitLab does for $NAME.
    """
    for name in SECRETS:
        secret = environ.get(name, "").strip()
        if secret and secret in f"{options.reason} {options.by}":
            raise UsageError(
                "--reason and --by must not contain a secret",
                hint=f"remove the value of {name}: everyone who can see the commit would see it",
            )


def _requested_hold(options: HoldOptions, now: str, environ: Mapping[str, str]) -> Hold:
    """Return the hold that the options describe. A hold is an order to keep a version.

    Without `--by`, the hold is attributed to the person who started the pipeline ("" if unknown).
    """
    by = options.by or actor_of(environ)[:LONGEST]
    return Hold(
        reason=_short_line(options.reason),
        by=_short_line(by),
        at=now,
        until=until_of(options.until, now),
    )


def _failed_image(text: str) -> Image:
    """Return the image from `--failed`. Raises `UsageError` if the image has no version."""
    hint = "use the full image reference from the build, such as ghcr.io/acme/web:1.2.3"
    try:
        image = parse_image(text)
    except Malformed as error:
        raise UsageError(f"--failed: {error.message}", hint=error.hint or hint) from None
    if not image.version:
        raise UsageError(f"--failed: {text!r} has neither a tag nor a digest", hint=hint)
    return image


def _commit_page(repository: str, commit: str) -> str:
    """Return the URL of a commit, or just its ID if the repository has no web page."""
    if commit and repository.startswith(("https://", "http://")):
        return f"{repository}/commit/{commit}"
    return commit


def _build_trailers(settings: Settings, origin: Origin) -> tuple[Trailer, ...]:
    """Return the commit message trailers (`KEY: value` lines at the end) that describe the build.

    `origin` contains the CI system's facts about the commit that the CI job built. These facts are
    ignored if `--source-commit` is a different commit. Raises `UsageError` for an invalid
    `--trailer`.
    """
    options = settings.commit
    for key, _ in options.trailer:
        if not TRAILER_KEY.fullmatch(key):
            raise UsageError(
                f"--trailer: {key!r} is not a valid key",
                hint="use only letters, digits, and dashes, as in Ticket=ABC-1",
            )

    given_commit = settings.event.source_commit
    is_other_commit = bool(given_commit) and given_commit != origin.commit.lower()
    if is_other_commit:
        origin = Origin(run=origin.run)
    commit = given_commit or origin.commit
    repository = settings.source_repository or without_login(origin.repository)
    run = options.pipeline_run or without_login(origin.run)
    references = commit_references(commit, repository, origin.author, origin.date, origin.message)
    return build_trailers(commit, run, options.trailer, references)


def _template(path: str) -> str | None:
    """Return the commit message template's text, or None if there is no template. Raises
    `UsageError` if the template cannot be read or used.
    """
    if not path:
        return None
    try:
        text = read_text(path)
        check_template(text)
    except OSError as error:
        raise UsageError(
            f"--commit-message-template: cannot read {path!r}: {error.strerror}",
            hint="use a readable file",
        ) from None
    except (Malformed, UnicodeDecodeError) as error:
        raise UsageError(
            f"--commit-message-template: {error}",
            hint="use a Go text/template, as in Image Updater",
        ) from None
    return text


DURATION = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
SECONDS = {
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 7 * 86400,
}
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
BACK = re.compile(r"[1-9][0-9]{0,3}-back")
_LIKE_BACK = re.compile(r"[0-9]+-back")  # `0-back` is more likely to be a mistake than a tag
LONGEST = 500  # maximum number of characters in a reason or name


def until_of(text: str, now: str) -> str:
    """Return the time when a hold ends, as RFC 3339 in UTC, or "" if `text` is empty.

    `text` is a time, a date (meaning the start of that day), or a duration that starts at `now`,
    such as 3d. Raises `UsageError` for anything else, or for a time in the past.
    """
    if not text:
        return ""
    start = datetime.fromisoformat(now)
    try:
        end = _end_of_hold(text, start)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--until: {text!r} is not a time or duration",
            hint=(
                "use a time such as 2026-12-24 or 2026-12-24T08:00:00Z, or a duration such as 90m,"
                " 12h, 3d, or 2w"
            ),
        ) from None
    if end <= start:
        raise UsageError(f"--until: {text!r} is in the past", hint="use a time in the future")
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")


def _end_of_hold(text: str, start: datetime) -> datetime:
    """Convert a duration that starts at `start`, such as 3d, or an ISO 8601 time to a time in UTC.
    A time without a time zone is taken as UTC. Raises `ValueError` or `OverflowError` for other
    strings.
    """
    duration = DURATION.fullmatch(text)
    if duration:
        number, unit = duration.groups()
        return start + timedelta(seconds=int(number) * SECONDS[unit])
    end = datetime.fromisoformat(text)
    if end.tzinfo is None:
        return end.replace(tzinfo=UTC)
    return end.astimezone(UTC)


def _checked_destination(text: str) -> str:
    """Return the value of `--to` unchanged. Raises `UsageError` unless it is a tag, `tag@digest`, a
    digest, `previous`, or `N-back`, such as 3-back.
    """
    if text == "previous" or BACK.fullmatch(text) or DIGEST.fullmatch(text):
        return text
    tag, separator, digest = text.partition("@")
    has_valid_digest = not separator or bool(DIGEST.fullmatch(digest))
    is_misspelled_back = bool(_LIKE_BACK.fullmatch(text))
    if TAG.fullmatch(tag) and has_valid_digest and not is_misspelled_back:
        return text
    raise UsageError(
        f"--to: {text!r} is not a version to roll back to",
        hint="use a tag, tag@sha256:…, previous, or 3-back",
    )


def _short_line(text: str) -> str:
    """Return a reason or name as a single line, without terminal or log control characters."""
    return one_line(text)[:LONGEST]
