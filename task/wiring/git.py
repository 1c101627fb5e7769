"""Git: who signs, and a client for each repository."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace

from task.git.access import Access, Plan
from task.git.command import Git
from task.git.credentials import access_of
from task.git.environment import Login
from task.git.names import rewritten
from task.git.repository.bare import BareRepository
from task.git.repository.committed_by_api import CommitApi, CommittedByApi
from task.git.signing import Signer, key_of
from task.model import Subscription
from task.once import once
from task.output.log import Log
from task.process_bounds import SPARE, Bounds
from task.settings import AccessSettings, GitSettings, Settings
from task.urls import without_login

# Variables that hold a secret, beside the options: secrets are never arguments.
SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "GITHUB_TOKEN",
)  # fmt: skip
Gits = Callable[[], "Git"]
# (who is written, the URL that its repository is reached under) → (the name of a secret of the cluster, what it gives);
# None where there is none
FromCluster = Callable[[Subscription, str], "tuple[str, Plan] | None"]


class GitClients:
    """How each repository is reached: with what was given, else with what the cluster's secrets hold for it."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], log: Log, opened: ExitStack) -> None:
        self._settings, self._environ, self._log, self._opened = settings, environ, log, opened
        self.access = access_given(settings.git.access, environ)
        self.git: Gits = once(lambda: self._open(self.access))
        # By the repository and the cluster's secret for it.
        self._private: dict[tuple[str, str], tuple[Git, Access]] = {}
        self._lock = threading.Lock()

    def _open(self, access: Access | None) -> Git:
        given, verify = self._settings.git, self._settings.verify
        named = self._settings.registry.env  # by pull-secret: these hold registries' logins
        client = Git(
            {name: value for name, value in self._environ.items() if name not in named},
            protocols=given.protocols,
            rewrites=given.rewrites,
            access=access,
            configured=given.access.configured,
            stall=given.stall,
            patience=min(20.0, given.deadline),
            bounds=Bounds(seconds=given.deadline + verify.timeout + SPARE),
            log=lambda sentence: _of_git(sentence, self._log),
        )
        self._opened.callback(client.close)
        return client

    def repository(
        self,
        signer: Callable[[], Signer | None],
        from_cluster: FromCluster | None,
        api: Callable[[str], CommitApi] | None = None,
    ) -> Callable[[str, Subscription | None], BareRepository]:
        """How a URL becomes a repository. `api`: what commits to it, instead of git."""

        def repository(repo: str, sub: Subscription | None = None) -> BareRepository:
            git = self.client(repo, sub, from_cluster)
            if api:
                return CommittedByApi(git, repo, lambda: api(repo), self._settings.git.cache_dir)
            return BareRepository(git, repo, signer(), self._settings.git.cache_dir)

        return repository

    def client(self, repo: str, sub: Subscription | None, from_cluster: FromCluster | None) -> Git:
        """Git, with what was given for this repository, else with what the cluster's secrets hold for it."""
        if from_cluster is None or sub is None or self.given_for(repo):
            return self.git()
        found = from_cluster(sub, self._reached(repo))
        if found is None:
            return self.git()
        name, plan = found
        with self._lock:
            if (repo, name) not in self._private:
                access = self._with_given(plan)
                self._private[repo, name] = self._open(access), access
            return self._private[repo, name][0]

    def logins(self, url: str) -> tuple[Login, ...]:
        """Git's logins for a URL, for its forge: those given, else the cluster's, where there is one secret for it."""
        if found := self.access.logins(url, helped=False) if self.access else ():
            return found
        several = [access for _, access in self._private.values() if _within(url, access.plan)]
        return several[0].logins(url, helped=False) if len(several) == 1 else ()

    def given_for(self, repo: str) -> bool:
        """Whether a login or key was given that is for this repository."""
        if self.access is None:
            return False
        plan, url = self.access.plan, self._reached(repo).lower()
        if not url.startswith(("https://", "http://")):
            given = self._settings.git.access  # with known hosts alone, the keys are those of the home
            asked = given.ssh_key_file or given.ssh_directory or self._environ.get("IMAGE_UPDATE_SSH_KEY", "").strip()
            return bool(asked and plan.ssh and plan.ssh.keys)
        return _within(url, plan)

    def _reached(self, repo: str) -> str:
        return without_login(rewritten(repo, self._settings.git.rewrites))

    def _with_given(self, plan: Plan) -> Access:
        """A secret's login, and the authorities and known hosts that were given besides."""
        given = self.access.plan if self.access else None
        if given is None:
            return Access(plan, self._environ)
        certificates = "\n".join(filter(None, (plan.certificates, given.certificates)))
        known = given.ssh.files.get("known_hosts", "") if given.ssh and given.ssh.known_hosts else ""
        ssh = plan.ssh
        if ssh and known:
            files = {**ssh.files, "known_hosts": ssh.files.get("known_hosts", "") + known}
            ssh = replace(ssh, files=files, known_hosts=True)
        return Access(replace(plan, certificates=certificates, config_file=given.config_file, ssh=ssh), self._environ)


def _within(url: str, plan: Plan) -> bool:
    """Whether one of the logins is for that URL."""
    prefixes = [login.prefix for login in plan.logins] + ([plan.app_server] if plan.app else [])
    prefixes = [plan.only] if plan.only and prefixes else prefixes
    return any(f"{_bare(url.lower())}/".startswith(f"{_bare(prefix.lower())}/") for prefix in prefixes)


def _bare(url: str) -> str:
    """With and without `.git` are one repository."""
    return url.rstrip("/").removesuffix(".git")


def _of_git(sentence: str, log: Log) -> None:
    warning = sentence.startswith(("warning: ", "git: warning: "))
    log("warning" if warning else "debug", sentence.replace("warning: ", "", 1))


def access_given(given: AccessSettings, environ: Mapping[str, str]) -> Access | None:
    """What was given to log in with; None where that is nothing."""
    if replace(given, configured=True) == AccessSettings() and not any(environ.get(name) for name in SECRETS):
        return None
    return access_of(given, environ)


def signers(given: GitSettings, git: Callable[[], Git], opened: ExitStack) -> Callable[[], Signer | None]:
    """Who signs the commits; nobody without a key. Raises `UsageError` for text that is not a key."""
    if not given.signing_key:
        return lambda: None
    key = key_of(given.signing_key, given.signing_format)

    @once
    def signer() -> Signer:
        found = Signer(git(), key)
        opened.callback(found.close)
        return found

    return signer
