"""Finds a Git repository's credentials in Argo CD's repository secrets, by Argo CD's rules, and
passes them to git.

A `repository` secret applies to one URL. A `repo-creds` secret applies to all URLs that start with
its own. A secret with a project applies only to that project's Applications. Values are wrapped
immediately, so that they are never shown.

An annotation may also refer to such a secret. The annotation's author may not be trusted, so
`may_log_in` is stricter than Argo CD.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from task.errors import AnnotationError, CredentialsError
from task.git.credentials import Credentials
from task.git.environment import Login
from task.git.github_app import App, token
from task.git.ssh import SshFiles, has_passphrase, is_private_key
from task.plain_data import mapping, text
from task.secret import Secret
from task.urls import argo_cd_url, is_ssh_for_argo_cd, login_and_host, origin, without_login

LABEL = "argocd.argoproj.io/secret-type"
REPOSITORY = "repository"
TEMPLATE = "repo-creds"  # REPOSITORY and TEMPLATE are values of the label
# kinds of secrets with which Argo CD's source hydrator pushes
_KINDS_FOR_WRITING = {"repository-write": REPOSITORY, "repo-write-creds": TEMPLATE}
# Secrets that lack the label, but grant access to Argo CD itself.
_SECRETS_WITHOUT_LABEL = (
    "argocd-secret",
    "argocd-notifications-secret",
    "argocd-initial-admin-secret",
    "argocd-redis",
)
_NO_SECRET = Secret("")
_TRUE = ("1", "t", "true")
_FALSE = ("", "0", "f", "false")  # as in Go's ParseBool, but case-insensitive
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_GITHUB_API = "https://api.github.com"
_USE_ANOTHER = (
    "use a secret in the Application's own namespace, or only git, which uses Argo CD's secret for"
    " the repository"
)
_KEY_FILE = "image-update-key"
# the SSH config for secrets with `insecure`
_CONFIG_WITHOUT_CHECKS = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
_TOKEN_USER = "x-access-token"  # noqa: S105 - a user name


@dataclass(frozen=True)
class RepoCredentials:
    """Credentials for a Git server, and settings for reaching the server.

    Missing fields are empty.
    """

    secret: str = ""  # namespace/name, for messages
    username: str = ""
    password: Secret = _NO_SECRET
    bearer: Secret = _NO_SECRET
    ssh_key: Secret = _NO_SECRET
    app: App | None = None
    certificate: str = ""  # a TLS certificate, PEM
    certificate_key: Secret = _NO_SECRET
    insecure: bool = False  # do not verify the server's certificate or host key
    proxy: Secret = _NO_SECRET  # secret, because its URL may contain a password
    no_proxy: str = ""
    known_hosts: str = ""  # from Argo CD's ConfigMaps, like `authorities`
    authorities: str = ""
    # whether the secret belongs to the Application's owner, not to the platform team
    owners: bool = False

    @property
    def anything(self) -> bool:
        """Whether there are any credentials, not just settings for reaching the server."""
        return bool(
            self.username
            or self.password
            or self.bearer
            or self.ssh_key
            or self.app
            or self.certificate
        )


@dataclass(frozen=True)
class RepoSecret:
    """One `repository` or `repo-creds` secret."""

    kind: str
    url: str
    project: str
    credentials: RepoCredentials


def repo_secret(kind: str, name: str, data: Mapping[str, str]) -> RepoSecret | None:
    """Parse the `data` of one of Argo CD's secrets. Return None if the secret is not for Git.

    `kind` is `repository` or `repo-creds`, and `name` is for messages. Raises `CredentialsError`.
    """
    is_for_git = data.get("type", "").lower() in ("", "git")
    if not is_for_git:
        return None
    return RepoSecret(
        kind,
        url=data.get("url", ""),
        project=data.get("project", ""),
        credentials=_parsed_credentials(name, data),
    )


def choose(secrets: Sequence[RepoSecret], url: str, project: str = "") -> RepoCredentials | None:
    """Return a repository's credentials, from its own secret or else from the longest template that
    matches its URL. Return None if neither exists.

    A template is a `repo-creds` secret, which applies to all URLs that start with its own. As in
    Argo CD, if the repository's own secret contains no credentials, a template supplies them.
    Secrets for projects other than `project` are never used.
    """
    repository_url = argo_cd_url(url)
    own = _own_credentials(secrets, repository_url, project)
    if own is not None and own.anything:
        return own
    template = _template_credentials(secrets, repository_url, project)
    if template is None:
        return own  # may still contain settings for reaching the server
    if own is None:
        return template
    # Use the template's credentials, with the settings for reaching the server from the
    # repository's own secret, if there are any.
    proxy_source = own if own.proxy else template
    return replace(
        template,
        insecure=own.insecure,
        proxy=proxy_source.proxy,
        no_proxy=proxy_source.no_proxy,
    )


def _own_credentials(
    secrets: Sequence[RepoSecret],
    repository_url: str,
    project: str,
) -> RepoCredentials | None:
    """Return the credentials from the repository's own secret, or None if there is no such secret.

    A secret for the project takes precedence over one without a project.
    """
    if not repository_url:  # not a valid URL; "" would match every secret without a URL
        return None
    for secret_project in (project, ""):
        for secret in secrets:
            if secret.kind != REPOSITORY or secret.project != secret_project:
                continue
            if argo_cd_url(secret.url) == repository_url:
                return secret.credentials
    return None


def _template_credentials(
    secrets: Sequence[RepoSecret],
    repository_url: str,
    project: str,
) -> RepoCredentials | None:
    """Return the credentials from the template (`repo-creds` secret) with the longest matching URL
    prefix, or None if no template matches.
    """
    longest_url = ""
    credentials = None
    for secret in secrets:
        if secret.kind != TEMPLATE or secret.project not in ("", project):
            continue
        template_url = argo_cd_url(secret.url)
        if _is_prefix(template_url, repository_url) and len(template_url) > len(longest_url):
            longest_url = template_url
            credentials = secret.credentials
    return credentials


def argo_cds_kind(secret: Mapping[str, Any]) -> str:
    """Return a secret's role in Argo CD according to its label (`repository`, `cluster`, …), or ""
    if the secret does not belong to Argo CD.
    """
    labels = mapping(secret, "metadata", "labels")
    if LABEL in labels:
        return labels[LABEL] or "unknown"
    name = text(secret, "metadata", "name")
    return name if name in _SECRETS_WITHOUT_LABEL else ""


def may_log_in(
    secret: str,
    kind: str,
    data: Mapping[str, str],
    url: str,
    project: str,
) -> None:
    """Raise `AnnotationError` if an Application is not allowed to use this Argo CD secret for its
    Git credentials.

    `secret` is the secret's name, `kind` is its role (such as "repo-creds"), and `data` contains
    its values. `url` and `project` are the Application's.

    Without this check, `git:secret:argocd/…` would send another team's password to any URL chosen
    by an Application's author. The error message reveals nothing about the secret except its name.
    """
    base_kind = _KINDS_FOR_WRITING.get(kind, kind)
    is_for_git = data.get("type", "").lower() in ("", "git")
    if base_kind not in (REPOSITORY, TEMPLATE) or not is_for_git:
        raise AnnotationError(
            f"secret {secret} belongs to Argo CD and does not contain Git credentials",
            hint=_USE_ANOTHER,
        )
    repository_url = argo_cd_url(url)
    secret_url = argo_cd_url(data.get("url", ""))
    if base_kind == REPOSITORY:
        url_matches = repository_url == secret_url
    else:  # unlike Argo CD, match whole folders: .../acme does not match .../acme-evil
        url_matches = repository_url.startswith(f"{secret_url.rstrip('/')}/")
    # a template for `https://` alone would match every server
    has_host = bool(login_and_host(secret_url))
    is_for_url = url_matches and has_host and not _has_dot_segments(url)
    if not is_for_url:
        raise AnnotationError(
            f"secret {secret} contains Argo CD's credentials for another repository",
            hint=_USE_ANOTHER,
        )
    if data.get("project", "") not in ("", project):
        raise AnnotationError(
            f"secret {secret} is for a project other than {project or 'none'!r}",
            hint=_USE_ANOTHER,
        )


def _has_dot_segments(url: str) -> bool:
    """Return whether a URL contains `.` or `..` as a path segment, possibly encoded as `%2e`.

    This matters because curl turns /acme/../evil/x into /evil/x.
    """
    parts = re.split(r"[/\\:]", url)
    return any(part.lower().replace("%2e", ".") in (".", "..") for part in parts)


def named_credentials(name: str, url: str, data: Mapping[str, str]) -> RepoCredentials:
    """Return the credentials from a secret that an annotation names (`git:secret:…`).

    `name` is the secret's, and `url` is the repository's. Raises `CredentialsError` if the secret
    lacks what this kind of URL needs: an SSH key or, for https, a username and password, a token,
    or a GitHub App.
    """
    credentials = _parsed_credentials(name, data)
    if is_ssh_for_argo_cd(url):
        if not credentials.ssh_key:
            raise CredentialsError(
                f"secret {name} has no field sshPrivateKey, which an SSH URL needs",
                hint="add it",
            )
        return credentials
    if not url.lower().startswith("https://"):
        raise CredentialsError(
            f"secret {name} works only with https and SSH URLs",
            hint="use an https or SSH URL as repoURL",
        )
    has_login = bool(credentials.username and credentials.password)
    has_token = bool(credentials.bearer or credentials.app)
    if not has_login and not has_token:
        raise CredentialsError(
            f"secret {name} does not have a username and password, a bearerToken, or a GitHub"
            " App's fields",
            hint=(
                "add username and password, or githubAppID, githubAppInstallationID, and"
                " githubAppPrivateKey"
            ),
        )
    return credentials


def secret_place(reference: str, namespace: str) -> tuple[str, str]:
    """Parse `secret:<namespace>/<name>`, or `secret:<name>` for a secret in `namespace`, and return
    the secret's (namespace, name).

    Raises `AnnotationError`.
    """
    _, _, namespace_and_name = reference.partition(":")
    if "/" in namespace_and_name:
        namespace, _, name = namespace_and_name.partition("/")
    else:
        name = namespace_and_name
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(name):
        raise AnnotationError(
            f"{reference[:200]!r} does not refer to a secret",
            hint="use git:secret:<namespace>/<name>",
        )
    return namespace, name


def credentials_of(repo_credentials: RepoCredentials, url: str) -> Credentials:
    """Return the settings that make git use these credentials for the repository at this URL: SSH
    files for an SSH URL, or else a login and HTTP settings for the URL's server.

    The login is for the whole server, not just for the repository's path, because the server may
    redirect requests for a renamed repository. Raises `CredentialsError` for an invalid SSH key.
    """
    is_http = url.lower().startswith(("https://", "http://"))
    if not is_http:
        return Credentials(ssh=_ssh_files(repo_credentials))
    server = origin(url)
    variables: tuple[tuple[str, str], ...] = ()
    if repo_credentials.proxy:
        # like Argo CD, use the secret's value instead of the pod's variable
        no_proxy = repo_credentials.no_proxy
        variables = (("no_proxy", no_proxy), ("NO_PROXY", no_proxy))
    credentials = Credentials(
        certificates=repo_credentials.authorities,
        variables=variables,
        only=without_login(url).rstrip("/").removesuffix(".git"),
        pairs=lambda folder: _git_settings(repo_credentials, server, folder),
        # An owner who sets a proxy and turns off verification could read the traffic, so send only
        # the owner's own credentials.
        alone=repo_credentials.owners and repo_credentials.insecure,
    )
    if repo_credentials.app is not None:
        app_login = partial(_app_login, repo_credentials, repo_credentials.app, server)
        return replace(credentials, app=app_login, app_server=server)
    if repo_credentials.password:
        user = repo_credentials.username or _TOKEN_USER
        login = Login(server, user, repo_credentials.password)
        return replace(credentials, logins=(login,))
    return credentials


def _app_login(credentials: RepoCredentials, app: App, server: str, ca_file: str) -> Login:
    """Create a token for the GitHub App, and return a login to the server that uses it."""
    app_token = token(
        app,
        ca_file,
        verify=not credentials.insecure,
        proxy=credentials.proxy,
        no_proxy=credentials.no_proxy,
    )
    return Login(server, _TOKEN_USER, app_token)


def _git_settings(credentials: RepoCredentials, server: str, folder: str) -> list[tuple[str, str]]:
    """Return Git's settings for this server as (name, value), such as
    ("http.https://git.example.com.sslVerify", "false"). The values include secrets.

    A client certificate is written to files in `folder`, which must be private.
    """
    prefix = f"http.{server}"
    settings = []
    if credentials.insecure:
        settings.append((f"{prefix}.sslVerify", "false"))
    if credentials.proxy:
        settings.append((f"{prefix}.proxy", credentials.proxy.reveal()))
    if credentials.bearer:
        header = f"Authorization: Bearer {credentials.bearer.reveal()}"
        settings.append((f"{prefix}.extraHeader", header))
    if credentials.certificate:
        name = os.urandom(4).hex()
        certificate = _write_secret(folder, f"{name}.pem", credentials.certificate)
        key = _write_secret(folder, f"{name}.key", credentials.certificate_key.reveal())
        settings.append((f"{prefix}.sslCert", certificate))
        settings.append((f"{prefix}.sslKey", key))
    return settings


def _is_prefix(template_url: str, url: str) -> bool:
    """Return whether a template's URL is a prefix of the repository's URL.

    Unlike Argo CD, this function compares whole host names, because the repository's URL may not be
    trusted: `https://git.example.com` is not a prefix of `https://git.example.com.evil.org`.
    """
    if not template_url or not url.startswith(template_url):
        return False
    host = login_and_host(template_url)  # "" if it applies to all servers (`https://`)
    return not host or host == login_and_host(url)


def _parsed_credentials(name: str, data: Mapping[str, str]) -> RepoCredentials:
    """Parse a secret's fields. Raises `CredentialsError`."""
    certificate = data.get("tlsClientCertData", "")
    key = data.get("tlsClientCertKey", "")
    has_only_one_of_both = bool(certificate) != bool(key)
    if has_only_one_of_both:
        raise CredentialsError(
            f"secret {name} has tlsClientCertData or tlsClientCertKey, but not both",
            hint="add the missing field",
        )
    # read both fields, so that an invalid value in either causes an error
    insecure = _boolean_field(name, data, "insecure")
    ignores_host_key = _boolean_field(name, data, "insecureIgnoreHostKey")
    return RepoCredentials(
        secret=name,
        username=data.get("username", ""),
        password=Secret(data.get("password", "")),
        bearer=Secret(data.get("bearerToken", "")),
        ssh_key=Secret(data.get("sshPrivateKey", "")),
        app=_github_app_of(name, data),
        certificate=certificate,
        certificate_key=Secret(key),
        insecure=insecure or ignores_host_key,
        proxy=Secret(data.get("proxy", "")),
        no_proxy=data.get("noProxy", ""),
    )


def _github_app_of(name: str, data: Mapping[str, str]) -> App | None:
    """Return the GitHub App from a secret, or None if there is none. Raises `CredentialsError`."""
    required = ("githubAppID", "githubAppInstallationID", "githubAppPrivateKey")
    values = {field: data.get(field, "").strip() for field in required}
    missing = [field for field in required if not values[field]]
    if len(missing) == len(required):
        return None
    if missing:
        raise CredentialsError(
            f"secret {name} has no field {' and '.join(missing)}",
            hint="add it: a GitHub App needs all three fields",
        )
    for field in ("githubAppID", "githubAppInstallationID"):
        is_number = values[field].isascii() and values[field].isdigit()
        if not is_number:
            raise CredentialsError(
                f"secret {name}: {field} is not a number",
                hint="see the App's settings on GitHub",
            )
    api = data.get("githubAppEnterpriseBaseUrl", "").strip().rstrip("/") or _GITHUB_API
    if not api.lower().startswith("https://"):
        raise CredentialsError(
            f"secret {name}: githubAppEnterpriseBaseUrl is not an https URL",
            hint="use https://<host>/api/v3",
        )
    return App(
        id=values["githubAppID"],
        installation=values["githubAppInstallationID"],
        key=Secret(values["githubAppPrivateKey"]),
        api=api,
    )


def _boolean_field(name: str, data: Mapping[str, str], field: str) -> bool:
    """Return the boolean value of a secret's field, or False if the field is missing. Raises
    `CredentialsError` for any value other than true or false.
    """
    value = data.get(field, "").strip().lower()
    if value not in (*_TRUE, *_FALSE):
        raise CredentialsError(
            f"secret {name}: {field} is neither true nor false",
            hint="use true or false, in quotes",
        )
    return value in _TRUE


def _ssh_files(credentials: RepoCredentials) -> SshFiles:
    """Return the files for ssh: the key, and either the known hosts or, for `insecure` credentials,
    a config file that disables host key checks. The key and the known hosts are omitted if they are
    missing.

    Raises `CredentialsError` for an invalid key.
    """
    key = credentials.ssh_key.reveal().replace("\r", "").strip()
    secret = credentials.secret
    if key and not is_private_key(key):
        raise CredentialsError(
            f"secret {secret}: sshPrivateKey is not a private key",
            hint="use the private key",
        )
    if key and has_passphrase(key):
        raise CredentialsError(
            f"secret {secret}: sshPrivateKey has a passphrase, which a pipeline cannot enter",
            hint="create a key without a passphrase: ssh-keygen -t ed25519 -N ''",
        )
    files = {}
    key_files: tuple[str, ...] = ()
    if key:
        files[_KEY_FILE] = f"{key}\n"
        key_files = (_KEY_FILE,)
    known_hosts = credentials.known_hosts.strip()
    if credentials.insecure:
        known_hosts = ""  # the config file disables host key checks
        files["config"] = _CONFIG_WITHOUT_CHECKS
    elif known_hosts:
        files["known_hosts"] = f"{known_hosts}\n"
    return SshFiles(
        files,
        key_files,
        only_keys=bool(key),
        known_hosts=bool(known_hosts),
    )


def _write_secret(folder: str, name: str, content: str) -> str:
    """Create a file with mode 0600 in the folder, and return its path."""
    path = os.path.join(folder, name)
    # O_EXCL: an existing file is never overwritten
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
        "w",
        encoding="utf-8",
    ) as file:
        file.write(content)
    return path
