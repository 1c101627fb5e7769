"""`wait`: waits until the given Applications are synced to a revision and healthy."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Any

from task.after.waiting import (
    Descends,
    accepts,
    holding,
    judge_of,
    line,
    repositories,
    rollout_error,
    same,
    watch,
)
from task.annotations.application import is_glob
from task.argocd.application_store import ApplicationApi
from task.argocd.rollout import Details, Rollout
from task.argocd.rollouts import Awaited, Judge
from task.ci.publish import tell
from task.cli.call import Call
from task.errors import Exit, SourceError, UsageError
from task.output.console import say
from task.output.log import Log
from task.pipeline.overlooked import refuse_several
from task.settings import Settings, WaitOptions
from task.text import and_more
from task.threads import once
from task.wiring.argo import Argo
from task.wiring.git import GitClients

_REVISION = re.compile(r"[0-9a-f]{7,64}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


def wait(settings: Settings, call: Call) -> int:
    """Wait until Argo CD has synced a revision and its Applications are healthy."""
    options = settings.wait
    environ = call.environ
    log = call.log
    with ExitStack() as opened:  # closes the clients
        argo = Argo(settings, environ, log, opened)
        if not argo.where:
            raise UsageError(
                "cannot tell which Argo CD to query",
                hint="set --applications to cluster or argocd",
            )
        # created only if a later revision has to be checked
        clients = once(lambda: GitClients(settings, environ, log, opened))
        code = wait_for(
            options,
            settings.sources.argocd_namespace,
            argo.patient,
            environ,
            log,
            lambda *arguments: clients().descends(*arguments),
        )
    message = f"rolled out: {and_more(options.app)}"
    revision = options.revision.strip().lower()
    tell("wait", message, settings.handed, environ, commit=revision)
    return code


def wait_for(
    options: WaitOptions,
    namespace: str,
    api: Callable[[], ApplicationApi],
    environ: Mapping[str, str],
    log: Log,
    descends: Descends = lambda *_: "",
) -> int:
    """Wait until the Applications in the options are rolled out, print a line for each, and return
    0. Progress is shown on stderr.

    `namespace` is the namespace of Applications that are named without one. `api` returns the
    client for Argo CD. A later revision also counts if `descends` confirms that it contains the
    requested revision. By default, no later revision counts.

    Raises `RolloutError` if an Application is not rolled out, `SourceError` if Argo CD does not
    report its status, and `UsageError` for an invalid option.
    """
    revision = options.revision.strip().lower()
    if not _REVISION.fullmatch(revision):
        raise UsageError(
            f"--revision: {options.revision!r} is not a commit ID",
            hint="use the full ID of the pushed commit (40 hex digits)",
        )
    for text in options.app:
        if not is_glob(text):
            key_of(text, namespace)  # report mistakes before sending any request

    argo = api()
    keys = _keys_of_names(options.app, namespace, argo)
    awaited = [
        Awaited(app_namespace, name, _judge_for_revision(revision, options.repository, descends))
        for app_namespace, name in dict.fromkeys(keys)
    ]
    rows, errors = watch(argo, awaited, options.wait_timeout, environ, log)

    say("".join(f"{line(row)}\n" for row in rows))
    for row in rows:
        if row.state == "paused":
            log("warning", f"{row.application}: {row.warning}; {row.hint}")
    error = rollout_error(rows, errors)
    if error:
        raise error
    return int(Exit.OK)


def _judge_for_revision(revision: str, repository: str, descends: Descends) -> Judge:
    """Return a judge, which is a function that determines the state of an Application's rollout.

    The rollout may be of the requested revision, or of a later revision that contains it.
    `repository` is the URL of the revision's repository, or "" for any of the Application's
    repositories.
    """
    judge_requested = judge_of(lambda synced: accepts(revision, synced), repository)
    later_judges = dict[str, Judge]()  # keyed by repository

    def judge_later(repo: str) -> Judge:
        """Return the judge for later revisions in a repository. Each judge is created only once, so
        that it can remember the revisions that it has looked up.
        """
        if repo not in later_judges:
            contains_revision = holding(
                lambda synced: descends(None, repo, synced, revision), revision
            )
            later_judges[repo] = judge_of(contains_revision, repo)
        return later_judges[repo]

    def judge(item: Mapping[str, Any], since: str, details: Details) -> Rollout:
        """Return the first state other than "waiting", trying the requested revision first,
        followed by later revisions in each of the Application's repositories that matches
        `repository`. If all states are "waiting", return that of the requested revision.
        """
        requested = judge_requested(item, since, details)
        if requested.state != "waiting":
            return requested
        for repo in dict.fromkeys(repositories(item)):
            if not same(repository, repo):
                continue
            later = judge_later(repo)(item, since, details)
            if later.state != "waiting":
                return later
        return requested

    return judge


def _keys_of_names(
    names: Sequence[str], namespace: str, api: ApplicationApi
) -> list[tuple[str, str]]:
    """Return the (namespace, name) of each Application that the names and globs refer to.

    `namespace` applies to bare names, which do not include a namespace. Raises `UsageError` if a
    bare name exists in several namespaces, or if a glob matches nothing.
    """
    names = [name.strip() for name in names]
    listed_keys = _list_applications(names, api)
    for name in names:
        if _is_bare(name):
            same_name = [
                f"{space}/{app_name}" for space, app_name in listed_keys if app_name == name
            ]
            refuse_several(name, same_name)

    keys = []
    for name in names:
        if not is_glob(name):
            keys.append(key_of(name, namespace))
            continue
        matching = [key for key in listed_keys if _glob_fits_key(name, key)]
        if not matching:
            raise UsageError(
                f"no Application name matches {name!r}",
                hint="check the name: there is no such Application in Argo CD",
            )
        keys += matching
    return keys


def _is_bare(name: str) -> bool:
    """Return whether this is a bare name: not a glob, and without a namespace."""
    return "/" not in name and not is_glob(name)


def _list_applications(names: Sequence[str], api: ApplicationApi) -> Sequence[tuple[str, str]]:
    """Return the sorted (namespace, name) of all Applications in Argo CD, or () if none of the
    `names` is a bare name or a glob.

    If the list cannot be read, raises `SourceError` if there is a glob. Otherwise, the result is
    (), because waiting for an Application requires only the permission to read that Application.
    """
    needs_list = any(_is_bare(name) or is_glob(name) for name in names)
    if not needs_list:
        return ()
    try:
        return sorted(api.keys())
    except SourceError:
        if any(map(is_glob, names)):
            raise
        return ()


def _glob_fits_key(glob: str, key: tuple[str, str]) -> bool:
    """Return whether a glob matches an Application's name or, if the glob has a slash, its
    `namespace/name`.
    """
    namespace, name = key
    if "/" in glob:
        return fnmatchcase(f"{namespace}/{name}", glob)
    return fnmatchcase(name, glob)


def key_of(text: str, namespace: str) -> tuple[str, str]:
    """Split `name` or `namespace/name` into (namespace, name). `namespace` is used if `text` does
    not include one.

    Raises `UsageError` for an invalid name.
    """
    first_part, slash, second_part = text.strip().partition("/")
    key = (first_part, second_part) if slash else (namespace, first_part)
    if not all(_NAME.fullmatch(part) for part in key):
        raise UsageError(
            f"{text!r} is not a valid Application name",
            hint="use NAME or NAMESPACE/NAME",
        )
    return key
