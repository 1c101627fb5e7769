"""Finds out which build this is, from `--sequence`, `--source-commit`, `--source-repository` and `--created`. Pure.

The CI system's variables complete the options if the job itself is the build. If `--source-commit` or
`--source-repository` name another source than the job's own, the job only deploys, and its number says nothing about
the age of the build. Tekton and Argo Workflows have no variables of their own, so their manifests pass on
`IMAGE_UPDATE_SEQUENCE` and others. CircleCI's configuration has to do the same (`<< pipeline.number >>`): its jobs know
only `CIRCLE_BUILD_NUM`, which counts jobs, and grows when an old workflow is run again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from task.ci.variables import Origin, filled, origin_of
from task.errors import Malformed, UsageError
from task.model import Build
from task.timestamps import of_unix, utc
from task.urls import host_and_path, without_login

_NUMBER = re.compile(r"[0-9]{1,20}")
# Seconds since 1973 or of the first day, milliseconds since 2001. Other numbers may mean 20261121 or 202611210600.
_SECONDS = re.compile(r"([0-9]{1,5}|[0-9]{9,10})(?:\.([0-9]{1,9}))?")
_MILLISECONDS = re.compile(r"[0-9]{13}")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
# For "no date", reproducible builds use these days: the epoch (Jib adds one second), ZIP's and Go's first day.
_NO_DATES = ("1970-01-01", "1980-01-01", "0001-01-01")

# The number of the run, and the counters that it may belong to, as templates with variables. The first system whose
# variables are set is used. Numbers of two counters are never compared.
_COUNTERS = (
    (  # GitHub, Gitea and Forgejo Actions: counted per workflow; running again keeps the number
        "{GITHUB_RUN_NUMBER}",
        (
            "github:{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/{WORKFLOW_FILE}",
            "github:{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/{GITHUB_WORKFLOW}",
        ),
    ),
    ("{CI_PIPELINE_IID}", ("gitlab:{CI_PROJECT_URL}",)),
    ("{CI_PIPELINE_NUMBER}", ("woodpecker:{CI_REPO_URL}",)),
    ("{BITBUCKET_BUILD_NUMBER}", ("bitbucket:{BITBUCKET_GIT_HTTP_ORIGIN}", "bitbucket:{BITBUCKET_REPO_FULL_NAME}")),
    ("{BUILDKITE_BUILD_NUMBER}", ("buildkite:{BUILDKITE_ORGANIZATION_SLUG}/{BUILDKITE_PIPELINE_SLUG}",)),
    ("{DRONE_BUILD_NUMBER}", ("drone:{DRONE_REPO_LINK}", "drone:{DRONE_REPO}")),
    ("{BUILD_BUILDID}", ("azure:{SYSTEM_COLLECTIONURI}",)),  # one count for the whole organization
    ("{BUILD_NUMBER}", ("jenkins:{JOB_URL}", "jenkins:{JENKINS_URL}/{JOB_NAME}", "jenkins:{JOB_NAME}")),
)


def build_of(
    environ: Mapping[str, str], *, sequence: str = "", source_commit: str = "", source_repository: str = "",
    created: str = "",
) -> Build:  # fmt: skip
    """Return the build's identity, from the options first, then from the CI system's variables.

    The repository is without a login. The time is RFC 3339 in UTC, or "" if it only means "no date". Raises
    `UsageError` for an invalid option.
    """
    number, counter, time = sequence_of(sequence), "", created_of(created)
    commit, repository = source_commit.strip().lower(), source_repository.strip()
    job = origin_of(environ)
    if _is_the_build(job, commit, repository):
        if number is None:
            number, counter = _counted(environ)
        # Buildkite's BUILDKITE_COMMIT may be `HEAD`, and others may have a branch's name.
        commit = commit or (job.commit.lower() if _COMMIT.fullmatch(job.commit) else "")
        repository = repository or job.repository
    return Build(sequence=number, counter=counter, commit=commit, repository=without_login(repository), created=time)


def sequence_of(text: str) -> int | None:
    """Return the number in `--sequence`, or None for "". Raises `UsageError` for anything but 1 to 20 digits."""
    text = text.strip()
    if text and not _NUMBER.fullmatch(text):
        raise UsageError(
            f"--sequence: {text[:50]!r} is not a build number",
            hint="write a number that grows with every build, up to 20 digits",
        )
    return int(text) if text else None


def created_of(text: str) -> str:
    """Return the time in `--created` as RFC 3339 in UTC, or "" for "" and for "no date".

    Raises `UsageError` for other texts.
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
    return not (repository and job.repository) or host_and_path(repository) == host_and_path(job.repository)


def _counted(environ: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the number of this run, and its counter, or (None, "")."""
    known = {name: text.strip() for name, text in environ.items() if text.strip()}
    workflow = known.get("GITHUB_WORKFLOW_REF", "").partition("@")[0].split("/", 2)  # owner/repository/file@ref
    known |= {"WORKFLOW_FILE": workflow[2]} if len(workflow) > 2 else {}
    for number, counters in _COUNTERS:
        for counter in counters:
            text, name = filled(number, known), filled(counter, known)
            if name and _NUMBER.fullmatch(text):
                # `gitlab:https://user@host/a/` → `gitlab:host/a`
                system, _, url = name.partition(":")
                host, slash, path = (url.partition("://")[2] or url).partition("/")
                place = f"{host.rpartition('@')[2]}{slash}{path}".replace("//", "/").rstrip("/")
                return int(text), f"{system}:{place}"
    return None, ""
