"""Git: the one door to it, who signs, and a store for each repository."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from task.edges.log import Log
from task.light import libyaml_parser, once
from task.model import Subscription
from task.settings import AccessSettings, GitSettings, Settings
from task.world import Store

if TYPE_CHECKING:
    from task.edges.access import Access, Plan
    from task.edges.git import Git
    from task.edges.signing import Signer

# Variables that hold a secret, beside the options: secrets are never arguments.
SECRETS = (
    "IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD", "IMAGE_UPDATE_SSH_KEY", "IMAGE_UPDATE_GITHUB_APP_KEY",
    "GITHUB_TOKEN",
)  # fmt: skip
Gits = Callable[[], "Git"]
# (repository's URL, who is written there) → what a cluster's secrets hold for it; None where that is nothing
FromCluster = Callable[[str, Subscription], "Plan | None"]


class Doors:
    """How each repository is reached: with what was given, else with what the cluster's secrets hold for it."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], log: Log, opened: ExitStack) -> None:
        self._settings, self._environ, self._log, self._opened = settings, environ, log, opened
        self.access = access_given(settings.git.access, environ)
        self.git: Gits = once(lambda: self._open(self.access))

    def _open(self, access: Access | None) -> Git:
        from task.edges.git import Git

        given = self._settings.git
        door = Git(
            self._environ,
            protocols=given.protocols,
            rewrites=given.rewrites,
            access=access,
            configured=given.access.configured,
            stall=given.stall,
            patience=min(20.0, given.deadline),
            meanwhile=libyaml_parser,  # what Git sends will be read with it
            log=lambda sentence: _of_git(sentence, self._log),
        )
        self._opened.callback(door.close)
        return door

    def store(
        self, signer: Callable[[], Signer | None], from_cluster: FromCluster | None, *, in_turn: float = 0
    ) -> Callable[[str, Subscription | None], Store]:
        """How a repository becomes a store."""

        def store(repo: str, sub: Subscription | None = None) -> Store:
            from task.edges.stores.bare import BareStore

            plan = from_cluster(repo, sub) if from_cluster and sub and self.access is None else None
            git = self.git() if plan is None else self._private(plan)
            return BareStore(git, repo, signer(), self._settings.git.cache_dir, in_turn=in_turn)

        return store

    def _private(self, plan: Plan) -> Git:
        from task.edges.access import Access

        return self._open(Access(plan, self._environ))


def _of_git(sentence: str, log: Log) -> None:
    warning = sentence.startswith(("warning: ", "git: warning: "))
    log("warning" if warning else "debug", sentence.replace("warning: ", "", 1))


def access_given(given: AccessSettings, environ: Mapping[str, str]) -> Access | None:
    """What was given to log in with; None where that is nothing."""
    if given._replace(configured=True) == AccessSettings() and not any(environ.get(name) for name in SECRETS):
        return None
    from task.edges.credentials import access_of

    return access_of(given, environ)


def signers(given: GitSettings, git: Callable[[], Git], opened: ExitStack) -> Callable[[], Signer | None]:
    """Who signs the commits; nobody without a key. Raises `UsageError` for a key that is none."""
    if not given.signing_key:
        return lambda: None
    from task.edges.signing import Signer, key_of

    key = key_of(given.signing_key, given.signing_format)

    @once
    def signer() -> Signer:
        found = Signer(git(), key)
        opened.callback(found.close)
        return found

    return signer
