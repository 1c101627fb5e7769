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
        # secrets that have been logged as unused, with their repositories
        self._unused: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def _open(self, access: Access | None) -> Git:
        """Return a new client with these credentials, which is closed at the end of the run."""
        options = self._settings.git
        transport = self._settings.transport
        # these variables contain registry credentials for `pull-secret`
        excluded = self._settings.registry.allow_env
        environ = {name: value for name, value in self._environ.items() if name not in excluded}
        client = Git(
            environ,
            protocols=frozenset(transport.allow_protocol),
            rewrites=transport.rewrite_url,
            access=access,
            configured=transport.git_config,
            stall=options.stall_timeout,
            patience=min(20.0, options.deadline),  # Git's default, but within the deadline
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

        `sub` is the subscription (what to update, and where) that writes to the repository. It
        determines which of the cluster's secrets may be used. One client is kept for each
        repository and secret.
        """
        if sub is None:
            return self.git()
        if self._from_cluster is None:  # no Applications come from a cluster
            if sub.credentials.startswith("secret:"):
                self._log_unused_secret(repo, sub)
            return self.git()
        if self.options_cover(repo):
            return self.git()
        secret = self._from_cluster(sub, self._url_to_connect(repo))
        if secret is None:
            return self.git()
        name, credentials = secret
        with self._lock:
            if (repo, name) not in self._private:
                access = self._access_with_secret(credentials)
                self._private[repo, name] = self._open(access), access
            client, _access = self._private[repo, name]
            return client

    def _log_unused_secret(self, repo: str, sub: Subscription) -> None:
        """Log that the secret in an Application's annotation is not read, because no cluster is
        used. This is logged only once for each repository and secret, and not at all if the options
        provide credentials.
        """
        with self._lock:
            was_logged = (repo, sub.credentials) in self._unused
            self._unused.add((repo, sub.credentials))
        if not was_logged and not self.options_cover(repo):
            self._log(
                "info",
                f"git:{sub.credentials} of {sub.application.key} is read only with"
                f" --applications cluster; for {without_login(repo)}, this step's own"
                " credentials are used",
            )

    def logins(self, url: str) -> tuple[Login, ...]:
        """Return the credentials for a URL, for use with its forge. They come from the options, or
        else from the cluster if exactly one secret matches.
        """
        if self.access:
            from_options = self.access.logins(url, helped=False)
            if from_options:
                return from_options
        matching = [
            access for _, access in self._private.values() if _any_login_for(url, access.given)
        ]
        if len(matching) != 1:
            return ()
        return matching[0].logins(url, helped=False)

    def options_cover(self, repo: str) -> bool:
        """Return whether the options contain credentials or a key for this repository."""
        if self.access is None:
            return False
        credentials = self.access.given
        url = self._url_to_connect(repo).lower()
        if url.startswith(("https://", "http://")):
            return _any_login_for(url, credentials)
        # For SSH, a key must be set. If only known hosts are set, the user's own keys are used.
        options = self._settings.access
        is_key_set = bool(
            options.ssh_key_file
            or options.ssh_directory
            or self._environ.get("IMAGE_UPDATE_SSH_KEY", "").strip()
        )
        return bool(is_key_set and credentials.ssh and credentials.ssh.keys)

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
            kinship = lineage.order(repo, commit, revision)
        if kinship.why:  # the order is unknown
            self._log(
                "debug",
                f"cannot tell whether {revision[:12]} contains {commit[:12]}: {kinship.why}",
            )
        return str(kinship.order)

    def _url_to_connect(self, repo: str) -> str:
        """Return the URL to connect to, after `--rewrite-url`."""
        return without_login(rewritten(repo, self._settings.transport.rewrite_url))

    def _access_with_secret(self, from_secret: Credentials) -> Access:
        """Return an `Access` with the credentials from a secret in the cluster.

        The CA certificates and known hosts in the options are added to those in the secret. The git
        config file comes from the options.
        """
        from_options = self.access.given if self.access else None
        if from_options is None:
            return Access(from_secret, self._environ)

        all_certificates = (from_secret.certificates, from_options.certificates)
        certificates = "\n".join(text for text in all_certificates if text)
        more_known_hosts = ""
        if from_options.ssh and from_options.ssh.known_hosts:
            more_known_hosts = from_options.ssh.files.get("known_hosts", "")
        ssh = from_secret.ssh
        if ssh and more_known_hosts:  # the `known_hosts` file contains the lines from both
            known_hosts = ssh.files.get("known_hosts", "") + more_known_hosts
            files = {**ssh.files, "known_hosts": known_hosts}
            ssh = replace(ssh, files=files, known_hosts=True)
        combined = replace(
            from_secret,
            certificates=certificates,
            config_file=from_options.config_file,
            ssh=ssh,
        )
        return Access(combined, self._environ)


def _any_login_for(url: str, credentials: Credentials) -> bool:
    """Return whether any of these credentials are for that URL.

    Each credential is for URLs with a certain prefix: a server, or an organization or repository on
    it, such as `https://github.com/acme`. If `only` is set, it is the prefix for all credentials.
    """
    prefixes = [login.prefix for login in credentials.logins]
    if credentials.app:
        prefixes.append(credentials.app_server)
    if credentials.only and prefixes:
        prefixes = [credentials.only]
    # With a slash at the end, `https://host/acme` does not match `https://host/acme-web`.
    folder = f"{_without_git_suffix(url.lower())}/"
    return any(folder.startswith(f"{_without_git_suffix(prefix.lower())}/") for prefix in prefixes)


def _without_git_suffix(url: str) -> str:
    """Return the URL without `.git`, because both spellings refer to the same repository."""
    return url.rstrip("/").removesuffix(".git")


def _log_of_git(sentence: str, log: Log) -> None:
    """Log a line of git's output, as a warning if git marks it as one."""
    is_warning = sentence.startswith(("warning: ", "git: warning: "))
    log("warning" if is_warning else "debug", sentence.replace("warning: ", "", 1))


def signers(
    options: CommitOptions,
    git: Callable[[], Git],
    opened: ExitStack,
) -> Callable[[], Signer | None]:
    """Return a function that returns the signer for commits (None if there is no key). The signer
    is created when the function is first called. `opened` closes the signer at the end of the run.

    Raises `UsageError` immediately for an invalid key.
    """
    if not options.signing_key:
        return lambda: None
    key = key_of(options.signing_key, options.signing_format)

    return once(lambda: opened.enter_context(closing(Signer(git(), key))))
