"""The credentials for Git servers.

The servers that may receive them are determined before any server is contacted.

An Application's owner chooses the repository's URL. So a username, password, or token is sent only
to URLs that the pipeline's author has set, or to the CI system's own server. Git itself compares
the URLs (`credential.<url>`), after rewriting and after every redirect.

`Access` passes a run's credentials to git: in environment variables, and in copied files that only
this user can read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock

from task.errors import SourceError, UsageError
from task.files import LARGEST, check_file, read_file, remove_folder, temporary_folder
from task.git.environment import Login
from task.git.github_app import App, token
from task.git.hosts import ATLASSIAN
from task.git.names import address_of
from task.git.ssh import (
    PLAIN,
    SshFiles,
    collect,
    needs_own_files,
    passwd_home,
    read_given,
    write,
    write_passwd_entry,
)
from task.secret import Secret
from task.settings import AccessOptions
from task.urls import split

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)  # fmt: skip


@dataclass(frozen=True)
class Credentials:
    """The configured credentials, after they have been read and checked."""

    logins: tuple[Login, ...] = ()
    spare: tuple[Login, ...] = ()  # the CI system's own token, used if no other credentials are set
    app: Callable[[str], Login] | None = None  # CA file → the login with the App's token
    app_server: str = ""  # the server that the App's token is for
    ssh: SshFiles | None = None
    certificates: str = ""
    config_file: str = ""  # a `.gitconfig` in `--basic-auth-directory`
    # (private folder) → git's settings for the server
    pairs: Callable[[str], list[tuple[str, str]]] | None = None
    variables: tuple[tuple[str, str], ...] = ()  # environment variables for git
    # send no other credentials, because the Application's owner may be able to read the traffic,
    # through an unverified proxy
    alone: bool = False
    only: str = ""  # the only repository to use these for, even if a login matches others


class Access:
    """A run's credentials. Several threads may share them."""

    def __init__(
        self,
        given: Credentials | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.given = given or Credentials()  # as configured
        self._environ = environ or {}
        self._lock = Lock()
        # All of these are set on first use.
        self._folder = ""  # the private folder for copied files
        self._app_login: Login | None = None  # contains the GitHub App's token
        self._pairs: list[tuple[str, str]] | None = None
        self._ssh = ""  # the ssh command

    def logins(self, url: str = "", *, helped: bool) -> tuple[Login, ...]:
        """Return the logins for this URL ("" means any URL). Each login includes the URL prefix
        that it may be sent to.

        These are the configured logins, and the token of the configured GitHub App if the URL may
        be on its server. If neither is configured, return the CI system's own token, unless the
        user's git configuration has credentials (`helped`). Raises the errors of
        `task.git.github_app`.
        """
        credentials = self.given
        if credentials.app is None:
            has_own_credentials = bool(credentials.logins) or helped
            return credentials.logins if has_own_credentials else credentials.spare
        may_be_app_server = not url or url.lower().startswith(credentials.app_server.lower())
        if not may_be_app_server:
            return credentials.logins
        with self._lock:
            if self._app_login is None:  # request the App's token only once
                self._app_login = credentials.app(self._ca_bundle())
            return (self._app_login, *credentials.logins)

    def pairs(self) -> list[tuple[str, str]]:
        """Return git's settings for the server, as (key, value), except logins. Some settings are
        secret.
        """
        with self._lock:
            if self._pairs is None:
                self._pairs = []
                if self.given.pairs:
                    self._pairs = self.given.pairs(self._private_folder())
            return self._pairs

    def environment(self) -> dict[str, str]:
        """Return the environment variables that git needs besides logins: the configured variables,
        the path of the trusted CA certificates, and, if only our credentials may be used (`alone`),
        a home without any other credentials.
        """
        env = dict(self.given.variables)
        with self._lock:
            if self.given.alone:
                # curl would send the credentials from ~/.netrc to the server
                env |= {"HOME": self._private_folder(), "GIT_ASKPASS": ""}
            bundle = self._ca_bundle()
            if bundle:
                env["GIT_SSL_CAINFO"] = bundle
        return env

    def ssh(self) -> tuple[str, bool]:
        """Return the ssh command, such as `ssh -F …/config -o BatchMode=yes`, and whether options
        set its keys or known hosts.

        The first call copies the files for ssh to the private folder: the files that options
        specify, or else those in `~/.ssh` if ssh itself would not find that folder.
        """
        is_from_options = self.given.ssh is not None
        with self._lock:
            if not self._ssh:
                files = self.given.ssh
                home = self._environ.get("HOME", "")
                if files is None and needs_own_files(home):
                    files = collect(AccessOptions(), Secret(""), home)  # as if no options were set
                self._ssh = write(files, self._private_folder()) if files else PLAIN
            return self._ssh, is_from_options

    def passwd_variables(self) -> dict[str, str]:
        """Return the environment variables that ssh needs if this user has no passwd entry."""
        if passwd_home() is not None:
            return {}
        with self._lock:
            return write_passwd_entry(self._private_folder(), self._environ.get("HOME", ""))

    def close(self) -> None:
        """Remove all copies."""
        with self._lock:
            if self._folder:
                remove_folder(self._folder)
            self._folder = self._ssh = ""
            self._app_login = self._pairs = None

    def _ca_bundle(self) -> str:
        """Return the path of a file with the CA certificates, both the configured ones and the
        machine's own, because a run may contact servers of both kinds. Return "" if none are
        configured.
        """
        if not self.given.certificates:
            return ""
        path = os.path.join(self._private_folder(), "ca.pem")
        if not os.path.exists(path):
            candidates = (
                self._environ.get("GIT_SSL_CAINFO", ""),
                self._environ.get("SSL_CERT_FILE", ""),
                *_BUNDLES,
            )
            machine_bundles = [candidate for candidate in candidates if os.path.isfile(candidate)]
            with open(path, "wb") as file:
                if machine_bundles:
                    file.write(read_file(machine_bundles[0]))
                file.write(f"\n{self.given.certificates}\n".encode())
        return path

    def _private_folder(self) -> str:
        """Return the folder for copies that only this user can read. It is created if needed."""
        if not self._folder:
            self._folder = temporary_folder(self._environ.get("TMPDIR") or "/tmp")  # noqa: S108 - a private folder in it
        return self._folder


_GITHUB = "https://github.com"
# Usernames that Git hosts require with a token. Most hosts accept any username.
_TOKEN_USERS = (("gitlab", "oauth2"), ("bitbucket", "x-token-auth"))
_TOKEN_USER = "x-access-token"  # noqa: S105 - a user name
_ATLASSIAN_USER = "x-bitbucket-api-token-auth"
_NAME_THE_SERVER = "specify the server: --git-credentials-url https://git.example.com/"


def access_of(options: AccessOptions, environ: Mapping[str, str]) -> Access:
    """Read and check all configured credentials. No server is contacted. Raises `UsageError`."""
    logins = _configured_logins(options, environ)
    github = environ.get("GITHUB_SERVER_URL", "").strip().rstrip("/")
    github_token = _secret_variable(environ, "GITHUB_TOKEN")
    own_logins = []  # the login with the CI system's own token
    if github_token and github.startswith("https://"):
        own_logins.append(Login(github, _TOKEN_USER, github_token))
    ssh_key = _secret_variable(environ, "IMAGE_UPDATE_SSH_KEY")
    config_file, credentials_file = _tekton_files(options.basic_auth_directory)
    credentials = Credentials(
        logins=(*_stored_logins(credentials_file), *logins),
        spare=tuple(own_logins),
        app=_app_login_function(options, environ),
        app_server=github or _GITHUB,
        ssh=_ssh_files(options, ssh_key, environ.get("HOME", "")),
        certificates=certificates(options.ca_file),
        config_file=config_file,
    )
    return Access(credentials, environ)


def _ssh_files(options: AccessOptions, key: Secret, home: str) -> SshFiles | None:
    """Return the files for ssh that the options and `key`, the private key from a variable,
    specify. Return None if they specify nothing.
    """
    with suppress(OSError):  # `collect` reports a folder that cannot be read
        if os.path.isdir(options.ssh_directory) and not os.listdir(options.ssh_directory):
            # Kubernetes mounts a missing optional secret as an empty folder
            options = replace(options, ssh_directory="")
    sets_key = bool(key or options.ssh_key_file or options.ssh_directory)
    sets_known_hosts = bool(options.ssh_known_hosts_file or options.ssh_host_key)
    if not sets_key and not sets_known_hosts:
        return None
    return collect(options, key, home)


def _configured_logins(options: AccessOptions, environ: Mapping[str, str]) -> list[Login]:
    """Return one login, with the configured password or token, for each server that it may be sent
    to. Return [] if no password or token is configured.

    Raises `UsageError` if there is a password or token, but no server for it.
    """
    prefixes = _login_scope(options, environ)
    user, password = _password(options, environ)
    if not password:
        return []
    if not prefixes:
        raise UsageError(
            "a password or token is set, but not the server it is for", hint=_NAME_THE_SERVER
        )
    return [Login(url, user or _token_user(url, password), password) for url in prefixes]


def _tekton_files(folder: str) -> tuple[str, str]:
    """Return the paths of `.gitconfig` and `.git-credentials` in a Tekton folder. A path is "" if
    there is no such file.

    Raises `UsageError` if git could not read the `.gitconfig`.
    """
    names = _names_in_folder(folder)
    credentials_file = ""
    if ".git-credentials" in names:
        credentials_file = os.path.join(folder, ".git-credentials")
    if ".gitconfig" not in names:
        return "", credentials_file
    config_file = os.path.join(folder, ".gitconfig")
    try:
        check_file(config_file)  # git will read this file
    except OSError as error:
        message = f"--basic-auth-directory: cannot read {config_file!r}: {error.strerror}"
        raise UsageError(message, hint="make it a readable file") from None
    return config_file, credentials_file


def _login_scope(options: AccessOptions, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the URL prefixes to which a login may be sent: the values of `--git-credentials-url`,
    else the CI system's server. Raises `UsageError` for a value that is not a URL prefix.
    """
    for url in options.git_credentials_url:
        if not _is_web_prefix(url):
            hint = "use https://host/ or https://host/path/, without credentials"
            raise UsageError("--git-credentials-url: not an https URL prefix", hint=hint)
    if options.git_credentials_url:
        return tuple(url.rstrip("/") for url in options.git_credentials_url)

    prefixes = []
    for variable in ("GITHUB_SERVER_URL", "CI_SERVER_URL"):
        server = environ.get(variable, "").strip()
        if server.startswith(("https://", "http://")):
            prefixes.append(server.rstrip("/"))
    return tuple(prefixes)


def _is_web_prefix(url: str) -> bool:
    """Return whether this is an https or http URL that contains no credentials, query, or
    wildcards.
    """
    try:
        address = address_of(url)
    except SourceError:
        return False
    if address.protocol not in {"https", "http"} or address.user or address.password:
        return False
    return not set(url) & set("?#*@ ")


def _token_user(url: str, token: Secret) -> str:
    """Return the username that this server requires with a token."""
    if token.reveal().startswith(ATLASSIAN):
        return _ATLASSIAN_USER
    host = split(url).host
    for part_of_host, user in _TOKEN_USERS:
        if part_of_host in host:
            return user
    return _TOKEN_USER


def _password(options: AccessOptions, environ: Mapping[str, str]) -> tuple[str, Secret]:
    """Return (user, password or token) from the one source that is set: a variable, a file, or a
    folder. Both values are empty if no source is set.

    Raises `UsageError` if more than one source is set, or if a user is set without a password.
    """
    user = options.git_username
    passwords: dict[str, Secret] = {}  # the source's variable or option → its secret
    for variable in ("IMAGE_UPDATE_GIT_TOKEN", "IMAGE_UPDATE_GIT_PASSWORD"):
        secret = _secret_variable(environ, variable)
        if secret:
            passwords[variable] = secret
    if options.git_password_file:
        option = "--git-password-file"
        passwords[option] = _secret_line(options.git_password_file, option)
    folder = options.basic_auth_directory
    names = _names_in_folder(folder)
    if "password" in names:
        option = "--basic-auth-directory"
        passwords[option] = _secret_line(os.path.join(folder, "password"), option)
        if not user and "username" in names:
            user = _secret_line(os.path.join(folder, "username"), option).reveal()

    if len(passwords) > 1:
        raise UsageError(f"{' and '.join(passwords)} are both set", hint="set only one of them")
    if user and not passwords:
        hint = "set IMAGE_UPDATE_GIT_TOKEN, or pass --git-password-file"
        raise UsageError("a Git username is set, but no password or token", hint=hint)
    password = next(iter(passwords.values()), Secret(""))
    return user, password


def _stored_logins(path: str) -> tuple[Login, ...]:
    """Return the logins in a `.git-credentials` file, each restricted to the URL on its line."""
    if not path:
        return ()
    logins = []
    for line in _text_of_file(path, "--basic-auth-directory").splitlines():
        try:
            address = address_of(line.strip())
        except SourceError:
            continue  # comments, and other lines that git itself ignores
        if address.password and address.protocol in {"https", "http"}:
            logins.append(Login(address.url.rstrip("/"), address.user, address.password))
    return tuple(reversed(logins))  # the file's first match must win, but git prefers the last one


def _app_login_function(
    options: AccessOptions, environ: Mapping[str, str]
) -> Callable[[str], Login] | None:
    """Return a function that requests the GitHub App's token. Return None if no App is configured.

    The function expects the path of a CA file. Raises `UsageError` for an incomplete configuration.
    """
    key = _secret_variable(environ, "IMAGE_UPDATE_GITHUB_APP_KEY")
    if options.github_app_key_file:
        key = Secret(_text_of_file(options.github_app_key_file, "--github-app-key-file"))
    required = (options.github_app_id, options.github_app_installation_id, bool(key))
    if not any(required):
        return None
    if not all(required):
        hint = (
            "pass --github-app-id, --github-app-installation-id, and --github-app-key-file (or set"
            " its variable)"
        )
        raise UsageError(
            "a GitHub App needs an app id, an installation id, and a private key", hint=hint
        )
    if not options.github_app_installation_id.isdigit():
        hint = "use the last part of the App installation's URL"
        raise UsageError("--github-app-installation-id: not a number", hint=hint)
    server = environ.get("GITHUB_SERVER_URL", "").strip().rstrip("/") or _GITHUB
    api = environ.get("GITHUB_API_URL", "").strip().rstrip("/")
    if not api:
        api = "https://api.github.com" if server == _GITHUB else f"{server}/api/v3"

    def login(ca_file: str) -> Login:
        """Request a token from GitHub, and return the login with it."""
        # A variable may contain the key on one line, with `\n` written out.
        key_text = key.reveal().replace("\\n", "\n")
        app = App(
            id=options.github_app_id,
            installation=options.github_app_installation_id,
            key=Secret(key_text),
            api=api,
        )
        return Login(server, _TOKEN_USER, token(app, ca_file))

    return login


def certificates(path: str) -> str:
    """Return the certificates, as text, in a file or in all files of a folder (a mounted ConfigMap,
    possibly empty). Return "" if `path` is "".

    Raises `UsageError` if there are files, but none contains a certificate.
    """
    if not path:
        return ""
    files = [path]
    if os.path.isdir(path):
        names = sorted(_names_in_folder(path, "--ca-file"))
        paths_in_folder = [os.path.join(path, name) for name in names]
        files = [file for file in paths_in_folder if os.path.isfile(file)]
    texts = "\n".join(_text_of_file(file, "--ca-file") for file in files)
    has_certificate = "BEGIN CERTIFICATE" in texts or "BEGIN TRUSTED CERTIFICATE" in texts
    if files and not has_certificate:
        raise UsageError(
            f"--ca-file: no certificate in {path!r}",
            hint="use a file with PEM certificates",
        )
    return texts


def _names_in_folder(folder: str, option: str = "--basic-auth-directory") -> frozenset[str]:
    """Return the filenames in a folder, or none if `folder` is "". Names that start with ".." are
    skipped, because Kubernetes adds them to mounted volumes.
    """
    if not folder:
        return frozenset()
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise UsageError(
            f"{option}: cannot read {folder!r}: {error.strerror}",
            hint="specify a readable folder",
        ) from None
    return frozenset(name for name in names if not name.startswith(".."))


def _secret_variable(environ: Mapping[str, str], name: str) -> Secret:
    """Return the secret in an environment variable. Raises `UsageError` if the secret has several
    lines but is not a key.
    """
    text = environ.get(name, "").strip()
    if "\n" in text and not text.startswith("-----BEGIN"):
        raise UsageError(
            f"{name} has more than one line", hint="set it to only the password or token"
        )
    return Secret(text)


def _secret_line(path: str, option: str) -> Secret:
    """Return the secret in a file that contains a single line. Raises `UsageError` for any other
    file.
    """
    text = _text_of_file(path, option).strip()
    if not text or "\n" in text or "\x00" in text:
        hint = "put only the password or token in the file"
        raise UsageError(f"{option}: {path!r} must contain exactly one line", hint=hint)
    return Secret(text)


def _text_of_file(path: str, option: str) -> str:
    return read_given(path, option, LARGEST, "strict")
