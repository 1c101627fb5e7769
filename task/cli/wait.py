"""`wait`: waits until the named Applications are synced to a revision and healthy."""

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import typer

from task.argocd.rollout import Rollout
from task.argocd.rollout_display import line
from task.argocd.rollouts import Awaited, Judge, RolloutApi
from task.cli import options
from task.cli.records import settings_of
from task.errors import Exit, UsageError
from task.output.log import Log
from task.output.stdout import say
from task.wiring.argo import Argo
from task.wiring.waiting import (
    Descends,
    accepts,
    descends_of,
    holding,
    judge_of,
    repositories,
    rollout_error,
    same,
    watch,
)

_REVISION = re.compile(r"[0-9a-f]{7,64}")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class WaitSettings:
    """What to wait for."""

    applications: tuple[str, ...]  # `name` or `namespace/name`
    revision: str
    repository: str = ""  # only its sources must be at the revision; "" means any source
    limit: float = 600.0  # seconds
    argocd_namespace: str = "argocd"  # used for an Application without a namespace


def wait(
    context: typer.Context,
    *,
    app: options.WaitApp,
    applications: options.Applications = None,
    clusters: options.Clusters = "",
    render: options.Render = None,
    follow_apps: options.FollowApps = 0,
    argocd_namespace: options.ArgocdNamespace = "argocd",
    log_level: options.LogLevel = "info",
    log_format: options.LogFormat = "auto",
    allow_protocol: options.AllowProtocol = None,
    rewrite_url: options.RewriteUrl = None,
    git_username: options.GitUsername = "",
    git_password_file: options.GitPasswordFile = "",
    git_credentials_url: options.GitCredentialsUrl = None,
    basic_auth_directory: options.BasicAuthDirectory = "",
    github_app_id: options.GithubAppId = "",
    github_app_installation_id: options.GithubAppInstallationId = "",
    github_app_key_file: options.GithubAppKeyFile = "",
    ssh_key_file: options.SshKeyFile = "",
    ssh_directory: options.SshDirectory = "",
    ssh_known_hosts_file: options.SshKnownHostsFile = "",
    ssh_host_key: options.SshHostKey = None,
    ca_file: options.CaFile = "",
    git_config: options.GitConfig = True,
    kubeconfig: options.Kubeconfig = "",
    kube_context: options.KubeContext = "",
    argocd_server: options.ArgocdServer = "",
    argocd_auth_token_file: options.ArgocdAuthTokenFile = "",
    argocd_plaintext: options.ArgocdPlaintext = False,
    argocd_insecure: options.ArgocdInsecure = False,
    argocd_ca_file: options.ArgocdCaFile = "",
    argocd_root_path: options.ArgocdRootPath = "",
    argocd_header: options.ArgocdHeader = None,
    wait_timeout: options.WaitTimeout = 600,
    revision: options.Revision,
    repository: options.Repository = "",
) -> int:
    """Wait until Argo CD has synced a revision and its Applications are healthy."""
    settings, environ, log = settings_of("wait", context.params), context.obj.environ, context.obj.log
    with ExitStack() as opened:
        argo = Argo(settings, environ, log, opened)
        if not argo.where:
            raise UsageError("nothing says which Argo CD to ask", hint="give --applications cluster or argocd")
        given = settings.argo
        asked = WaitSettings(
            settings.held.apps, given.revision, given.repository, given.limit, settings.argocd_namespace
        )
        return wait_for(asked, argo.patient, environ, log, descends_of(settings, environ, log, opened))


def wait_for(
    settings: WaitSettings,
    api: Callable[[], RolloutApi],
    environ: Mapping[str, str],
    log: Log,
    descends: Descends = lambda *_: "",
) -> int:
    """Wait with progress on stderr, print a line for each Application, and return 0.

    A later revision counts as well if `descends` knows that it contains the wanted one.

    Raises `RolloutError` if an Application is not rolled out, `SourceError` if Argo CD cannot tell, and `UsageError`.
    """
    revision = settings.revision.strip().lower()
    if not _REVISION.fullmatch(revision):
        raise UsageError(
            f"--revision: {settings.revision!r} is not the id of a commit",
            hint="give the id of the commit that was pushed, 40 hexadecimal digits",
        )
    keys = [key_of(one, settings.argocd_namespace) for one in settings.applications]
    awaited = [Awaited(*key, _judge(revision, settings.repository, descends)) for key in dict.fromkeys(keys)]
    rows, errors = watch(api(), awaited, settings.limit, environ, log)
    say("".join(f"{line(row)}\n" for row in rows))
    for row in rows:
        if row.state == "paused":
            log("warning", f"{row.application}: {row.warning}; {row.hint}")
    if found := rollout_error(rows, errors):
        raise found
    return int(Exit.OK)


def _judge(revision: str, repository: str, descends: Descends) -> Judge:
    """Return a judge for the wanted revision, or for a later one in any repository of the Application."""
    itself, later = judge_of(lambda found: accepts(revision, found), repository), dict[str, Judge]()

    def of(repo: str) -> Judge:
        if repo not in later:
            later[repo] = judge_of(holding(lambda found: descends(None, repo, found, revision), revision), repo)
        return later[repo]

    def judge(item: Mapping[str, Any], *seen: Any) -> Rollout:
        found = itself(item, *seen)
        if found.state != "waiting":
            return found
        repos = dict.fromkeys(repo for repo in repositories(item) if same(repository, repo))
        others = (of(repo)(item, *seen) for repo in repos)
        return next((one for one in others if one.state != "waiting"), found)

    return judge


def key_of(text: str, namespace: str) -> tuple[str, str]:
    """Split `name` or `namespace/name` into (namespace, name). Raises `UsageError` for an impossible name."""
    first, slash, rest = text.strip().partition("/")
    key = (first, rest) if slash else (namespace, first)
    if not all(_NAME.fullmatch(part) for part in key):
        raise UsageError(f"{text!r} is not a valid name of an Application", hint="write NAME or NAMESPACE/NAME")
    return key
