"""Creates Git clients, one for each set of credentials, and the commit signer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace

from task.errors import TaskError
from task.git.ancestry import Lineage
from task.git.command import Git
from task.git.credentials import Access, Credentials, access_of
from task.git.environment import Login
from task.git.names import rewritten
from task.git.signing import Signer, key_of
from task.model import Subscription
from task.output.log import Log
from task.processes import SPARE, Bounds, memory_of_step
from task.settings import GIT_SECRETS, AccessOptions, CommitOptions, Settings
from task.threads import once
from task.urls import without_login

# (subscription, its repository's URL) → (name of a cluster secret, its credentials), or None
FromCluster = Callable[[Subscription, str], "tuple[str, Credentials] | None"]


class GitClients:
    """Git clients for each repository, with credentials from the options, or else from the
    cluster's secrets.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        log: Log,
        opened: ExitStack,
        from_cluster: FromCluster | None = None,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._log = log
        self._opened = opened
        self._from_cluster = from_cluster
        has_secret = any(environ.get(variable) for variable in GIT_SECRETS)
        has_access = settings.access != AccessOptions() or has_secret
        self.access = access_of(settings.access, environ) if has_access else None
        self.git = once(lambda: self._open(self.access))
        # by repository and the name of its secret in the cluster
        self._private: dict[tuple[str, str], tuple[Git, Access]] = {}
        # secrets that were logged as unused, with their repositories
        self._unused: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def _open(self, access: Access | None) -> Git:
        """Return a new client with these credentials, which is closed at the end of the run."""
        options = self._settings.git
        transport = self._settings.transport
        # these variables contain registry credentials, for `pull-secret`
        excluded = self._settings.registry.allow_env
        client = Git(
            {name: value for name, value in self._environ.items() if name not in excluded},
            protocols=frozenset(transport.allow_protocol),
            rewrites=transport.rewrite_url,
            access=access,
            configured=transport.git_config,
            stall=options.stall_timeout,
            patience=min(20.0, options.deadline),
            bounds=Bounds(
                memory=memory_of_step(),
                seconds=options.deadline + self._settings.verify.verify_timeout + SPARE,
            ),
            log=lambda sentence: _log_of_git(sentence, self._log),
        )
        return self._opened.enter_context(closing(client))

    def client(self, repo: str, sub: Subscription | None) -> Git:
        """Return the client for this repository, with credentials from the options, or else from
        the cluster.

        `sub` is the subscription that writes to the repository. It decides which of the cluster's
        secrets may be used. Clients are kept, one for each secret.
        """
        if sub is None:
            return self.git()
        if self._from_cluster is None:
            if sub.credentials.startswith("secret:"):
                self._tell_unused(repo, sub)
            return self.git()
        if self.given_for(repo):
            return self.git()
        secret = self._from_cluster(sub, self._reached(repo))
        if secret is None:
            return self.git()
        name, credentials = secret
        with self._lock:
            if (repo, name) not in self._private:
                access = self._with_given(credentials)
                self._private[repo, name] = self._open(access), access
            client, _ = self._private[repo, name]
            return client

    def _tell_unused(self, repo: str, sub: Subscription) -> None:
        """Log once that the secret in an Application's annotation is not read, because no cluster
        is used. Don't log it if the options provide credentials.
        """
        with self._lock:
            was_logged = (repo, sub.credentials) in self._unused
            self._unused.add((repo, sub.credentials))
        if not was_logged and not self.given_for(repo):
            self._log(
                "info",
                f"git:{sub.credentials} of {sub.application.key} is read only with"
                f" --applications cluster; for {without_login(repo)}, this step's own"
                " credentials are used",
            )

    def logins(self, url: str) -> tuple[Login, ...]:
        """Return the credentials for a URL, for use with its forge: from the options, or else from
        the cluster if exactly one secret matches.
        """
        if self.access:
            from_options = self.access.logins(url, helped=False)
            if from_options:
                return from_options
        matching = [access for _, access in self._private.values() if _within(url, access.given)]
        return matching[0].logins(url, helped=False) if len(matching) == 1 else ()

    def given_for(self, repo: str) -> bool:
        """Return whether the options have credentials or a key for this repository."""
        if self.access is None:
            return False
        credentials = self.access.given
        url = self._reached(repo).lower()
        if url.startswith(("https://", "http://")):
            return _within(url, credentials)
        # if only known hosts are set, the user's own keys are used
        options = self._settings.access
        key_is_set = (
            options.ssh_key_file
            or options.ssh_directory
            or self._environ.get("IMAGE_UPDATE_SSH_KEY", "").strip()
        )
        return bool(key_is_set and credentials.ssh and credentials.ssh.keys)

    def descends(
        self,
        sub: Subscription | None,
        repo: str,
        revision: str,
        commit: str,
    ) -> str:
        """Return how a revision relates to a commit of the same repository, such as "newer" if it
        contains the commit. Return "" if Git cannot be queried.
        """
        try:
            lineage = Lineage(self.client(repo, sub))
        except TaskError as error:
            self._log("debug", f"cannot inspect {revision[:12]}: {error}")
            return ""
        with closing(lineage):
            kin = lineage.order(repo, commit, revision)
        if kin.why:
            self._log(
                "debug",
                f"cannot tell whether {revision[:12]} contains {commit[:12]}: {kin.why}",
            )
        return str(kin.order)

    def _reached(self, repo: str) -> str:
        """Return the URL to connect to, after `--rewrite-url`."""
        return without_login(rewritten(repo, self._settings.transport.rewrite_url))

    def _with_given(self, own: Credentials) -> Access:
        """Return the credentials of a secret in the cluster (`own`), together with the certificate
        authorities and known hosts from the options.
        """
        given = self.access.given if self.access else None
        if given is None:
            return Access(own, self._environ)

        certificates = "\n".join(filter(None, (own.certificates, given.certificates)))
        known_hosts = ""
        if given.ssh and given.ssh.known_hosts:
            known_hosts = given.ssh.files.get("known_hosts", "")
        ssh = own.ssh
        if ssh and known_hosts:
            files = {**ssh.files, "known_hosts": ssh.files.get("known_hosts", "") + known_hosts}
            ssh = replace(ssh, files=files, known_hosts=True)
        combined = replace(
            own,
            certificates=certificates,
            config_file=given.config_file,
            ssh=ssh,
        )
        return Access(combined, self._environ)


def _within(url: str, given: Credentials) -> bool:
    """Return whether any of the credentials are for that URL.

    Each is for the URLs with a prefix: a server, or an organization or a repository on it.
    """
    prefixes = [login.prefix for login in given.logins]
    if given.app:
        prefixes.append(given.app_server)
    if given.only and prefixes:
        prefixes = [given.only]
    # with a slash, so that a prefix only matches whole parts of the path
    folder = f"{_bare(url.lower())}/"
    return any(folder.startswith(f"{_bare(prefix.lower())}/") for prefix in prefixes)


def _bare(url: str) -> str:
    """Return the URL without `.git`, because both spellings are the same repository."""
    return url.rstrip("/").removesuffix(".git")


def _log_of_git(sentence: str, log: Log) -> None:
    """Log a line that git has printed, as a warning if git says that it is one."""
    is_warning = sentence.startswith(("warning: ", "git: warning: "))
    log("warning" if is_warning else "debug", sentence.replace("warning: ", "", 1))


def signers(
    given: CommitOptions,
    git: Callable[[], Git],
    opened: ExitStack,
) -> Callable[[], Signer | None]:
    """Return a function that creates the signer, or returns None without a key.

    Raises `UsageError` for an invalid key.
    """
    if not given.signing_key:
        return lambda: None
    key = key_of(given.signing_key, given.signing_format)

    return once(lambda: opened.enter_context(closing(Signer(git(), key))))
