"""Reads facts about the job from the CI system's variables: its source, run, build, and pull
request.

The variable names come from the CI systems' documentation. Only GitHub's event file for pull
requests is read from disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from task.ci_systems import SYSTEMS, Origin, RequestVariables
from task.errors import Malformed, UsageError
from task.files import read_text
from task.model import Build
from task.plain_data import parsed_json
from task.settings import EventOptions
from task.timestamps import of_unix, utc
from task.urls import host_and_path, without_login


def origin_of(environ: Mapping[str, str]) -> Origin:
    """Return the job's source (commit and repository) and run, as set by one CI system's variables.

    A system whose variables include the commit is preferred, then one whose variables include the
    repository, then one whose variables include the run.
    """
    variables = _trimmed_variables(environ)
    # Several CI systems may appear to be present, because Gitea's runner sets GitHub's variables,
    # and users may set variables by hand.
    origins = []
    for system in SYSTEMS:
        # `system.origin` is an `Origin` of templates, such as "{CI_COMMIT_SHA}"
        values = [filled(template, variables) for template in system.origin]
        origins.append(Origin(*values))

    def provided_facts(origin: Origin) -> tuple[bool, bool, bool]:
        """Return a sort key that is greater for preferred origins (True is greater than False)."""
        return bool(origin.commit), bool(origin.repository), bool(origin.run)

    return max(origins, key=provided_facts)


def _trimmed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with their values trimmed, omitting empty values."""
    return {variable: value.strip() for variable, value in environ.items() if value.strip()}


def actor_of(environ: Mapping[str, str]) -> str:
    """Return the person who started the pipeline, or "" if unknown."""
    for system in SYSTEMS:
        name = environ.get(system.actor, "").strip()
        if name:
            return name
    return ""


def filled(template: str, variables: Mapping[str, str]) -> str:
    """Return a template, such as "{SERVER}/{NAME}", with its variables filled in, or "" if any
    variable is missing.
    """
    try:
        return template.format_map(variables)
    except KeyError:
        return ""


_NUMBER = re.compile(r"[0-9]{1,20}")
# Numbers of seconds or milliseconds since 1970. Seconds have 9 or 10 digits (since 1973) or at most
# 5 (the first day of 1970), and milliseconds have 13 (since 2001). Other numbers may be dates, such
# as 20261121 or 202611210600.
_SECONDS = re.compile(r"([0-9]{1,5}|[0-9]{9,10})(?:\.([0-9]{1,9}))?")
_MILLISECONDS = re.compile(r"[0-9]{13}")
COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
# Dates that reproducible builds use for "no date": the epoch (Jib adds one second), and the
# earliest dates in ZIP files and in Go.
_NO_DATES = ("1970-01-01", "1980-01-01", "0001-01-01")


def build_of(environ: Mapping[str, str], options: EventOptions, repository: str) -> Build:
    """Return the build's identity (its number, commit, repository, and time), as set by the options
    or else by the CI system's variables. `repository` is the value of `--source-repository`.

    The variables fill in for missing options if the job itself may be the build. If
    `--source-commit` or `--source-repository` differs from the job's source, the job only deploys,
    and its number says nothing about the build's age. Tekton and Argo Workflows do not set such
    variables, so their manifests set `IMAGE_UPDATE_SEQUENCE` and others. CircleCI's configuration
    must do the same (`<< pipeline.number >>`), because the only number that CircleCI sets is
    `CIRCLE_BUILD_NUM`, which counts jobs and increases when an old workflow is rerun.

    Any credentials are removed from the repository's URL. The time is RFC 3339 in UTC, or "" if it
    merely stands for "no date". Raises `UsageError` for an invalid option.
    """
    number = sequence_of(options.sequence)
    counter = ""  # a number from `--sequence` has no counter
    time = created_of(options.created)
    commit = options.source_commit
    job = origin_of(environ)
    if _may_be_the_build(job, commit, repository):  # otherwise, the job only deploys
        if number is None:
            number, counter = _number_and_counter(environ)
        # The job's commit may not be a commit ID: BUILDKITE_COMMIT may be `HEAD`, and other
        # variables may contain a branch name.
        if not commit and COMMIT.fullmatch(job.commit):
            commit = job.commit.lower()
        repository = repository or job.repository
    return Build(
        sequence=number,
        counter=counter,
        commit=commit,
        repository=without_login(repository),
        created=time,
    )


def sequence_of(text: str) -> int | None:
    """Parse the value of `--sequence`, and return the number, or None for "".

    Raises `UsageError` for anything other than 1 to 20 digits.
    """
    text = text.strip()
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        hint = "use a number that increases with every build, up to 20 digits"
        raise UsageError(f"--sequence: {text[:50]!r} is not a build number", hint=hint)
    return int(text)


def created_of(text: str) -> str:
    """Convert the value of `--created` to RFC 3339 in UTC. Return "" for an empty value, or for a
    time that stands for "no date".

    Raises `UsageError` for an invalid value.
    """
    text = text.strip()
    if not text:
        return ""
    try:
        time = _parsed_time(text)
    except Malformed as error:
        hint = f"{error.hint}, or seconds or milliseconds since 1970"
        raise UsageError(f"--created: {error.message}", hint=hint) from error
    return "" if time.startswith(_NO_DATES) else time


def _parsed_time(text: str) -> str:
    """Convert a time to RFC 3339 in UTC. `text` is RFC 3339, or a number of seconds
    ("1764288000.5") or milliseconds (13 digits) since 1970.

    Raises `Malformed` for anything else.
    """
    if _MILLISECONDS.fullmatch(text):
        seconds, milliseconds = divmod(int(text), 1000)
        return of_unix(seconds, milliseconds)
    unix_time = _SECONDS.fullmatch(text)
    if unix_time:
        whole_seconds, fraction = unix_time.groups(default="")
        milliseconds_text = fraction.ljust(3, "0")[:3]  # "5" → "500", "123456" → "123"
        return of_unix(int(whole_seconds), int(milliseconds_text))
    return utc(text)


def _may_be_the_build(job: Origin, commit: str, repository: str) -> bool:
    """Return whether this job may be the build of a commit in a repository.

    This is impossible if the job's own commit or repository differs. A value of "" means unknown,
    and does not count as a difference.
    """
    job_commit = job.commit.lower()
    # either commit ID may be abbreviated, or "" if unknown
    is_same_commit = commit.startswith(job_commit) or job_commit.startswith(commit)
    if not is_same_commit:
        return False
    if not repository or not job.repository:
        return True
    return host_and_path(repository) == host_and_path(job.repository)


def _number_and_counter(environ: Mapping[str, str]) -> tuple[int | None, str]:
    """Return this run's number and the name of the counter that issued it, such as (42,
    "gitlab:host/group/project"). Return (None, "") if they are unknown.

    The first CI system whose variables contain both is used.
    """
    variables = _trimmed_variables(environ)
    # owner/repository/file@ref; the file's own name may contain an `@`, as in `release.yml@x.yml`
    workflow_path = variables.get("GITHUB_WORKFLOW_REF", "").partition("@refs/")[0]
    parts = workflow_path.split("/", 2)
    if len(parts) == 3:
        _owner, _repository, workflow_file = parts
        variables["WORKFLOW_FILE"] = workflow_file
    for system in SYSTEMS:
        counter = system.counter
        if not counter:
            continue
        number = filled(counter.number, variables)
        if not _NUMBER.fullmatch(number):
            continue
        for template in counter.names:
            name = filled(template, variables)
            if name:
                return int(number), _plain_counter(name)
    return None, ""


def _plain_counter(name: str) -> str:
    """Remove the scheme, the user, and any extra slashes from the URL in a counter's name:
    `gitlab:https://user@host/a/` → `gitlab:host/a`.
    """
    system, _, url = name.partition(":")
    _, _, after_scheme = url.partition("://")
    host, slash, path = (after_scheme or url).partition("/")
    _, _, host_without_user = host.rpartition("@")
    place = f"{host_without_user}{slash}{path}".replace("//", "/").rstrip("/")
    return f"{system}:{place}"


_REQUEST_NUMBER = re.compile(r"[0-9]{1,18}")  # a pull request's number
_REQUEST_PAGE = re.compile(r"https://[^\s?#]+/(?:pull|pull-requests|merge_requests)/([0-9]{1,18})")
_REQUEST_REF = re.compile(r"refs/pull/([0-9]{1,18})/(?:merge|head)")


def request_event(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the repository's URL and the number of the pull request for which this job runs.

    Raises a `UsageError` that says which variables are needed.
    """
    variables = _trimmed_variables(environ)
    if "GITHUB_REPOSITORY" in variables:  # Gitea's and Forgejo's runners set this, too
        return _request_in_actions(variables)
    number_variables = []  # one variable per CI system, for the error's hint
    for system in SYSTEMS:
        request = system.request
        if not request:
            continue
        if system.marker in variables:
            number = _request_number(request, variables)
            return _request_repository(request, variables), number
        number_variables.append(request.numbers[-1])
    hint = f"run it in a pull request job, or set one of {', '.join(number_variables)}"
    if "GITHUB_REF" in variables:
        hint += "; GITHUB_REF is used only together with GITHUB_REPOSITORY"
    raise UsageError("--comment: there are no CI variables for a pull request", hint=hint)


def _request_number(request: RequestVariables, variables: Mapping[str, str]) -> str:
    """Return the pull request's number. Raises `UsageError` if the job is not running for a pull
    request.

    `request` contains the names of the variables that may contain the number.
    """
    number = ""
    for name in request.numbers:
        if name in variables:
            number = variables[name]
            break
    page = _REQUEST_PAGE.fullmatch(number)  # CircleCI sets the pull request's URL
    if page:
        return page[1]
    if _REQUEST_NUMBER.fullmatch(number):
        return number
    problem = f"is {number[:100]!r}" if number else "is not set"
    raise UsageError(
        f"--comment: this job is not running for a pull request: {request.numbers[-1]} {problem}",
        hint=request.hint,
    )


def _request_repository(request: RequestVariables, variables: Mapping[str, str]) -> str:
    """Return the URL of the pull request's repository. Raises `UsageError` if the URL is unknown.

    `request` contains templates for the URL, such as "{SERVER}/{NAME}".
    """
    for template in request.repositories:
        url = filled(template, variables)
        if url:
            return url
    names = " or ".join(template.strip("{}") for template in request.repositories)
    raise UsageError(
        "--comment: cannot detect the pull request's repository",
        hint=f"set {names}",
    )


def _request_in_actions(variables: Mapping[str, str]) -> tuple[str, str]:
    """Return the repository's URL and the pull request's number from GitHub's variables.

    The number is taken from GITHUB_REF, or else from the event file, because for
    `pull_request_target`, GITHUB_REF is the base branch. Raises `UsageError`.
    """
    repository = filled("{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}", variables)
    if not repository:
        raise UsageError(
            "--comment: cannot detect the pull request's repository",
            hint="set GITHUB_SERVER_URL",
        )
    reference = variables.get("GITHUB_REF", "")
    request_reference = _REQUEST_REF.fullmatch(reference)
    if request_reference:
        return repository, request_reference[1]
    path = variables.get("GITHUB_EVENT_PATH", "")
    number = _number_in_event_file(path)
    if number:
        return repository, number
    event = "GITHUB_EVENT_PATH is not set"
    if path:
        event = f"the event file {path[:200]!r} (GITHUB_EVENT_PATH) has no pull request"
    message = (
        "--comment: this job is not running for a pull request: GITHUB_REF is"
        f" {reference[:200]!r}, and {event}"
    )
    raise UsageError(message, hint="run it in a workflow that is triggered on pull_request")


def _number_in_event_file(path: str) -> str:
    """Return the pull request number from GitHub's event file. Return "" if there is none, or if
    the file cannot be read.
    """
    if not path:
        return ""
    try:
        event = parsed_json(read_text(path))
        request = event.get("pull_request")
        if not request and event.get("issue", {}).get("pull_request"):
            request = event["issue"]  # GitHub treats a comment on a pull request as an issue event
        number = str(request.get("number", "")) if request else ""
    except (OSError, ValueError, AttributeError, TypeError):
        return ""
    return number if _REQUEST_NUMBER.fullmatch(number) else ""
