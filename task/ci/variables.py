"""What a CI system's variables say about the job: its source and run, which build it is,
and its pull request.

The names come from the systems' own references. Only the event file of a pull request on GitHub is
read from the disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from task.ci_systems import SYSTEMS, Origin
from task.errors import Malformed, UsageError
from task.files import read_text
from task.model import Build
from task.plain_data import parsed_json
from task.settings import EventOptions
from task.timestamps import of_unix, utc
from task.urls import host_and_path, without_login


def origin_of(environ: Mapping[str, str]) -> Origin:
    """Return the origin from the system that knows most: the commit, else the repository,
    else the run.
    """
    known = {variable: text.strip() for variable, text in environ.items() if text.strip()}
    # Several systems may seem to be present: Gitea's runner sets GitHub's names, and people set
    # some by hand.
    origins = [Origin(*(filled(text, known) for text in system.origin)) for system in SYSTEMS]
    return max(
        origins,
        key=lambda origin: (bool(origin.commit), bool(origin.repository), bool(origin.run)),
    )


def actor_of(environ: Mapping[str, str]) -> str:
    """Return who started the pipeline, or "" if no CI system says it."""
    names = (environ.get(system.actor, "").strip() for system in SYSTEMS)
    return next(filter(None, names), "")


def filled(template: str, known: Mapping[str, str]) -> str:
    """Return the template with its variables filled in, or "" unless all of them are known."""
    try:
        return template.format_map(known)
    except KeyError:
        return ""


_NUMBER = re.compile(r"[0-9]{1,20}")
# Seconds since 1973 or of the first day, milliseconds since 2001. Other numbers may mean 20261121
# or 202611210600.
_SECONDS = re.compile(r"([0-9]{1,5}|[0-9]{9,10})(?:\.([0-9]{1,9}))?")
_MILLISECONDS = re.compile(r"[0-9]{13}")
COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
# For "no date", reproducible builds use these days: the epoch (Jib adds one second), ZIP's and Go's
# first day.
_NO_DATES = ("1970-01-01", "1980-01-01", "0001-01-01")


def build_of(environ: Mapping[str, str], given: EventOptions, repository: str) -> Build:
    """Return the build's identity, from the options first, then from the CI system's variables.

    `repository` is what `--source-repository` says.

    The variables complete the options if the job itself is the build. If `--source-commit` or
    `--source-repository` name another source than the job's own, the job only deploys, and its
    number says nothing about the age of the build. Tekton and Argo Workflows have no variables of
    their own, so their manifests pass on `IMAGE_UPDATE_SEQUENCE` and others. CircleCI's
    configuration has to do the same (`<< pipeline.number >>`): its jobs know only
    `CIRCLE_BUILD_NUM`, which counts jobs, and grows when an old workflow is run again.

    The repository is without a login. The time is RFC 3339 in UTC, or "" if it only means "no
    date". Raises `UsageError` for an invalid option.
    """
    number = sequence_of(given.sequence)
    counter = ""
    time = created_of(given.created)
    commit = given.source_commit
    job = origin_of(environ)
    if _is_the_build(job, commit, repository):
        if number is None:
            number, counter = _counted(environ)
        # Buildkite's BUILDKITE_COMMIT may be `HEAD`, and others may have a branch's name.
        commit = commit or (job.commit.lower() if COMMIT.fullmatch(job.commit) else "")
        repository = repository or job.repository
    return Build(
        sequence=number,
        counter=counter,
        commit=commit,
        repository=without_login(repository),
        created=time,
    )


def sequence_of(text: str) -> int | None:
    """Return the number in `--sequence`, or None for "".

    Raises `UsageError` for anything but 1 to 20 digits.
    """
    text = text.strip()
    if text and not _NUMBER.fullmatch(text):
        hint = "write a number that grows with every build, up to 20 digits"
        raise UsageError(f"--sequence: {text[:50]!r} is not a build number", hint=hint)
    return int(text) if text else None


def created_of(text: str) -> str:
    """Return the time in `--created` as RFC 3339 in UTC, or "" for "" and for "no date".

    Raises `UsageError` for other strings.
    """
    text = text.strip()
    if not text:
        return ""
    try:
        if _MILLISECONDS.fullmatch(text):
            time = of_unix(*divmod(int(text), 1000))
        elif unix := _SECONDS.fullmatch(text):
            seconds, fraction = unix.groups(default="")
            time = of_unix(int(seconds), int((fraction + "000")[:3]))
        else:
            time = utc(text)
    except Malformed as error:
        hint = f"{error.hint}, or seconds or milliseconds since 1970"
        raise UsageError(f"--created: {error.message}", hint=hint) from error
    return "" if time.startswith(_NO_DATES) else time


def _is_the_build(job: Origin, commit: str, repository: str) -> bool:
    """Tell whether the job's own source is the build's source, as far as both are known."""
    own = job.commit.lower()
    if commit and own and not (commit.startswith(own) or own.startswith(commit)):
        return False
    return not (repository and job.repository) or host_and_path(repository) == host_and_path(
        job.repository
    )


def _counted(environ: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the number of this run, and its counter, or (None, "")."""
    known = {name: text.strip() for name, text in environ.items() if text.strip()}
    # owner/repository/file@ref; a file may be called `release.yml@x.yml`
    workflow = known.get("GITHUB_WORKFLOW_REF", "").partition("@refs/")[0].split("/", 2)
    known |= {"WORKFLOW_FILE": workflow[2]} if len(workflow) > 2 else {}
    for counter in (system.counter for system in SYSTEMS if system.counter):
        text = filled(counter.number, known)
        for template in counter.names:
            name = filled(template, known)
            if name and _NUMBER.fullmatch(text):
                # `gitlab:https://user@host/a/` → `gitlab:host/a`
                system, _, url = name.partition(":")
                host, slash, path = (url.partition("://")[2] or url).partition("/")
                place = f"{host.rpartition('@')[2]}{slash}{path}".replace("//", "/").rstrip("/")
                return int(text), f"{system}:{place}"
    return None, ""


_REQUEST = re.compile(r"[0-9]{1,18}")  # the number of a pull request
_PAGE = re.compile(r"https://[^\s?#]+/(?:pull|pull-requests|merge_requests)/([0-9]{1,18})")
_REF = re.compile(r"refs/pull/([0-9]{1,18})/(?:merge|head)")


def request_event(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the repository's URL and the number of the pull request that this job runs for.

    Raises `UsageError`, which names the variables that are missing.
    """
    known = {name: text.strip() for name, text in environ.items() if text.strip()}
    if "GITHUB_REPOSITORY" in known:  # Gitea's and Forgejo's runners set GitHub's names
        return _number_of_actions(known)
    requests = [(system.marker, system.request) for system in SYSTEMS if system.request]
    for marker, request in requests:
        if marker not in known:
            continue
        number = next((known[name] for name in request.numbers if name in known), "")
        if match := _PAGE.fullmatch(number):  # CircleCI has the page
            number = match[1]
        if not _REQUEST.fullmatch(number):
            said = f"is {number[:100]!r}" if number else "is not set"
            raise UsageError(
                f"--comment: this job does not run for a pull request: {request.numbers[-1]}"
                f" {said}",
                hint=request.hint,
            )
        repository = next(filter(None, (filled(text, known) for text in request.repositories)), "")
        if not repository:
            names = " or ".join(text.strip("{}") for text in request.repositories)
            raise UsageError(
                "--comment: cannot tell the pull request's repository",
                hint=f"set {names}",
            )
        return repository, number
    names = ", ".join(request.numbers[-1] for _, request in requests)
    hint = f"run it in a job of a pull request, or set one of {names}"
    if "GITHUB_REF" in known:
        hint += "; GITHUB_REF counts only together with GITHUB_REPOSITORY"
    raise UsageError("--comment: no variable of a CI system contains a pull request", hint=hint)


def _number_of_actions(known: Mapping[str, str]) -> tuple[str, str]:
    """Return the pull request in the reference, else the one in the event.

    In `pull_request_target`, the reference is the base branch.
    """
    repository = filled("{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}", known)
    if not repository:
        raise UsageError(
            "--comment: cannot tell the pull request's repository",
            hint="set GITHUB_SERVER_URL",
        )
    reference = known.get("GITHUB_REF", "")
    path = known.get("GITHUB_EVENT_PATH", "")
    if match := _REF.fullmatch(reference):
        return repository, match[1]
    if number := _in_the_event(path):
        return repository, number
    event = (
        f"the event file {path[:200]!r} (GITHUB_EVENT_PATH) names none"
        if path
        else "GITHUB_EVENT_PATH is not set"
    )
    message = (
        "--comment: this job does not run for a pull request: GITHUB_REF is"
        f" {reference[:200]!r}, and"
        f" {event}"
    )
    raise UsageError(message, hint="run it in a workflow that is started on: pull_request")


def _in_the_event(path: str) -> str:
    """Return the number in the event's file, or "" if there is none, or the file cannot be read."""
    try:
        event: Any = parsed_json(read_text(path)) if path else {}
        request = event.get("pull_request") or (
            event["issue"] if event.get("issue", {}).get("pull_request") else {}
        )
        number = str(request.get("number", ""))
    except (OSError, ValueError, AttributeError, TypeError):
        return ""
    return number if _REQUEST.fullmatch(number) else ""
