"""Finds a Git repository's credentials in Argo CD's repository secrets, by Argo CD's rules, and
passes them to git.

A `repository` secret is for one URL, and a `repo-creds` secret for all URLs that start with its
own. A secret with a project is only for that project's Applications. Values are wrapped
immediately, so they are never shown.

An annotation may also refer to such a secret. Its author may not be trusted, so `may_log_in` is
stricter than Argo CD.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
TEMPLATE = "repo-creds"  # values of the label
# the secrets that Argo CD's source hydrator uses to push
_WRITING = {"repository-write": REPOSITORY, "repo-write-creds": TEMPLATE}
# These have no such label, but give access to Argo CD itself.
_UNLABELLED = (
    "argocd-secret",
    "argocd-notifications-secret",
    "argocd-initial-admin-secret",
    "argocd-redis",
)
_NOTHING = Secret("")
_TRUE = ("1", "t", "true")
_FALSE = ("", "0", "f", "false")  # accepted by Go's ParseBool, in any case
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_GITHUB_API = "https://api.github.com"
_NAME_ANOTHER = (
    "use a secret in the Application's own namespace, or only git, which uses Argo CD's secret for"
    " the repository"
)
_KEY = "image-update-key"
# if the secret has `insecure`
_UNCHECKED = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
_TOKEN_USER = "x-access-token"  # noqa: S105 - a user name


@dataclass(frozen=True)
class RepoCredentials:
    """Credentials for a Git server, and how to reach the server.

    Missing fields are empty.
    """

    secret: str = ""  # namespace/name, for messages
    username: str = ""
    password: Secret = _NOTHING
    bearer: Secret = _NOTHING
    ssh_key: Secret = _NOTHING
    app: App | None = None
    certificate: str = ""  # a TLS certificate, PEM
    certificate_key: Secret = _NOTHING
    insecure: bool = False  # do not verify the server's certificate or host key
    proxy: Secret = _NOTHING  # secret, because its URL may contain a password
    no_proxy: str = ""
    known_hosts: str = ""  # the server's entries in Argo CD's ConfigMaps
    authorities: str = ""
    # a secret of the Application's owner, not of the platform team
    owners: bool = False

    @property
    def anything(self) -> bool:
        """Whether it has credentials, not just settings for reaching the server."""
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
    """Parse a secret; return None if it is not for Git.

    `name` is for messages. Raises `CredentialsError`.
    """
    if data.get("type", "").lower() not in ("", "git"):
        return None
    return RepoSecret(
        kind,
        data.get("url", ""),
        data.get("project", ""),
        _credentials(name, data),
    )


def choose(secrets: Sequence[RepoSecret], url: str, project: str = "") -> RepoCredentials | None:
    """Return a repository's credentials: from its own secret, else from the longest template that
    matches its URL.

    A secret for the Application's project is preferred to a secret without a project, and secrets
    for other projects are never used. If a repository's own secret does not have credentials, they
    come from a template, as in Argo CD.
    """
    wanted_url = argo_cd_url(url)
    own = _own_credentials(secrets, wanted_url, project)
    if own is not None and own.anything:
        return own
    templates = [
        secret
        for secret in secrets
        if secret.kind == TEMPLATE
        and secret.project in ("", project)
        and _begins(wanted_url, argo_cd_url(secret.url))
    ]
    if not templates:
        return own
    longest = max(templates, key=lambda secret: len(argo_cd_url(secret.url)))
    template = longest.credentials
    if own is None:
        return template
    # only the template has credentials, but its own secret may say how to reach the server
    proxy = own.proxy or template.proxy
    no_proxy = own.no_proxy if own.proxy else template.no_proxy
    return replace(
        template,
        insecure=own.insecure,
        proxy=proxy,
        no_proxy=no_proxy,
    )


def _own_credentials(
    secrets: Sequence[RepoSecret],
    wanted: str,
    project: str,
) -> RepoCredentials | None:
    """Return the credentials in the repository's own secret, preferring the project's."""
    if not wanted:
        return None
    for scope in (project, ""):
        for secret in secrets:
            if secret.kind != REPOSITORY or secret.project != scope:
                continue
            if argo_cd_url(secret.url) == wanted:
                return secret.credentials
    return None


def argo_cds_kind(secret: Mapping[str, Any]) -> str:
    """Return a secret's role in Argo CD from its label (`repository`, `cluster`, …),
    or "" if it is not Argo CD's.
    """
    name = text(secret, "metadata", "name")
    labels = mapping(secret, "metadata", "labels")
    if LABEL in labels:
        return labels[LABEL] or "unknown"
    return name if name in _UNLABELLED else ""


def may_log_in(
    secret: str,
    kind: str,
    data: Mapping[str, str],
    url: str,
    project: str,
) -> None:
    """Check that an Application is allowed to use this Argo CD secret as its Git credentials.

    Raises `AnnotationError` if not.

    Without this check, `git:secret:argocd/…` would send another team's password to any URL chosen
    by an Application's author. The message does not reveal anything about the secret except its
    name.
    """
    kind = _WRITING.get(kind, kind)
    is_git = data.get("type", "").lower() in ("", "git")
    if kind not in (REPOSITORY, TEMPLATE) or not is_git:
        raise AnnotationError(
            f"secret {secret} belongs to Argo CD and does not contain Git credentials",
            hint=_NAME_ANOTHER,
        )
    wanted_url = argo_cd_url(url)
    secrets_url = argo_cd_url(data.get("url", ""))
    if kind == REPOSITORY:
        matches = wanted_url == secrets_url
    else:
        matches = wanted_url.startswith(f"{secrets_url.rstrip('/')}/")
    # For /acme/../evil/x in a URL, curl requests /evil/x.
    parts = re.split(r"[/\\:]", url)
    leaves_its_folder = any(part.lower().replace("%2e", ".") in (".", "..") for part in parts)
    # a template for `https://` alone would match every server
    has_host = bool(login_and_host(secrets_url))
    if not matches or not has_host or leaves_its_folder:
        raise AnnotationError(
            f"secret {secret} contains Argo CD's credentials for another repository",
            hint=_NAME_ANOTHER,
        )
    if data.get("project", "") not in ("", project):
        raise AnnotationError(
            f"secret {secret} is for a project other than {project or 'none'!r}",
            hint=_NAME_ANOTHER,
        )


def named_credentials(name: str, url: str, data: Mapping[str, str]) -> RepoCredentials:
    """Return the credentials from a secret in `git:secret:…`, if the secret matches the URL.

    Raises `CredentialsError`.
    """
    found = _credentials(name, data)
    if is_ssh_for_argo_cd(url):
        if not found.ssh_key:
            raise CredentialsError(
                f"secret {name} has no field sshPrivateKey, which an SSH URL needs",
                hint="add it",
            )
    elif not url.lower().startswith("https://"):
        raise CredentialsError(
            f"secret {name} works only with https and SSH URLs",
            hint="use an https or SSH URL as repoURL",
        )
    elif not found.app and not found.bearer and not (found.username and found.password):
        raise CredentialsError(
            f"secret {name} does not have a username and password, a bearerToken, or a GitHub"
            " App's fields",
            hint=(
                "add username and password, or githubAppID, githubAppInstallationID, and"
                " githubAppPrivateKey"
            ),
        )
    return found


def secret_place(words: str, namespace: str) -> tuple[str, str]:
    """Return (namespace, name) from `secret:<namespace>/<name>`, or `secret:<name>` in `namespace`.

    Raises `AnnotationError`.
    """
    _, _, place = words.partition(":")
    first, slash, second = place.partition("/")
    found = (first, second) if slash else (namespace, first)
    if not all(_NAME.fullmatch(part) for part in found):
        raise AnnotationError(
            f"{words[:200]!r} does not refer to a secret",
            hint="use git:secret:<namespace>/<name>",
        )
    return found


def credentials_of(found: RepoCredentials, url: str) -> Credentials:
    """Return the credentials, key, known hosts, and certificates for this repository.

    Raises `CredentialsError` for a bad key.

    Git gets the server without the repository's path, because the server may redirect a renamed
    repository. The result is used only for this repository.
    """
    if not url.lower().startswith(("https://", "http://")):
        return Credentials(ssh=_ssh(found))
    app = found.app
    server = origin(url)
    # like Argo CD, use the secret's value instead of the pod's own
    replaced_variables = ("no_proxy", "NO_PROXY") if found.proxy else ()
    credentials = Credentials(
        certificates=found.authorities,
        variables=tuple((name, found.no_proxy) for name in replaced_variables),
        only=without_login(url).rstrip("/").removesuffix(".git"),
        pairs=lambda folder: _settings(found, server, folder),
        # An owner who sets a proxy and turns off verification can read the traffic, so only the
        # owner's own credentials are sent.
        alone=found.owners and found.insecure,
    )
    if app is None:
        login = Login(server, found.username or _TOKEN_USER, found.password)
        return replace(credentials, logins=(login,)) if found.password else credentials

    def login_of_app(ca_file: str) -> Login:
        secret = token(
            app,
            ca_file,
            verify=not found.insecure,
            proxy=found.proxy,
            no_proxy=found.no_proxy,
        )
        return Login(server, _TOKEN_USER, secret)

    return replace(credentials, app=login_of_app, app_server=server)


def _settings(found: RepoCredentials, server: str, folder: str) -> list[tuple[str, str]]:
    """Return Git's other settings for this server, to be set with `GIT_CONFIG_*`, because some of
    them are secret.

    A client certificate is written into `folder`, which must be private.
    """
    prefix = f"http.{server}"
    pairs = []
    if found.insecure:
        pairs.append((f"{prefix}.sslVerify", "false"))
    if found.proxy:
        pairs.append((f"{prefix}.proxy", found.proxy.reveal()))
    if found.bearer:
        pairs.append((f"{prefix}.extraHeader", f"Authorization: Bearer {found.bearer.reveal()}"))
    if found.certificate:
        name = os.urandom(4).hex()
        certificate = _write_secret(folder, f"{name}.pem", found.certificate)
        key = _write_secret(folder, f"{name}.key", found.certificate_key.reveal())
        pairs.append((f"{prefix}.sslCert", certificate))
        pairs.append((f"{prefix}.sslKey", key))
    return pairs


def _begins(url: str, prefix: str) -> bool:
    """Return whether a template matches a URL.

    Unlike Argo CD, compare whole hosts, because the URL may not be trusted.

    `https://git.example.com` does not match `https://git.example.com.evil.org`.
    """
    if not prefix or not url.startswith(prefix):
        return False
    host = login_and_host(prefix)
    return not host or host == login_and_host(url)


def _credentials(name: str, data: Mapping[str, str]) -> RepoCredentials:
    """Parse the fields of a secret. Raises `CredentialsError`."""
    certificate = data.get("tlsClientCertData", "")
    key = data.get("tlsClientCertKey", "")
    if bool(certificate) != bool(key):
        raise CredentialsError(
            f"secret {name} has tlsClientCertData or tlsClientCertKey, but not both",
            hint="add the missing field",
        )
    insecure = [_boolean(name, data, field) for field in ("insecure", "insecureIgnoreHostKey")]
    return RepoCredentials(
        secret=name,
        username=data.get("username", ""),
        password=Secret(data.get("password", "")),
        bearer=Secret(data.get("bearerToken", "")),
        ssh_key=Secret(data.get("sshPrivateKey", "")),
        app=_github_app_of(name, data),
        certificate=certificate,
        certificate_key=Secret(key),
        insecure=any(insecure),
        proxy=Secret(data.get("proxy", "")),
        no_proxy=data.get("noProxy", ""),
    )


def _github_app_of(name: str, data: Mapping[str, str]) -> App | None:
    """Return the GitHub App in a secret, or None if there is none. Raises `CredentialsError`."""
    fields = ("githubAppID", "githubAppInstallationID", "githubAppPrivateKey")
    app_id, installation, key = (data.get(field, "").strip() for field in fields)
    if not any((app_id, installation, key)):
        return None
    missing = [field for field in fields if not data.get(field, "").strip()]
    if missing:
        raise CredentialsError(
            f"secret {name} has no field {' and '.join(missing)}",
            hint="add it: a GitHub App needs all three fields",
        )
    for field, value in (("githubAppID", app_id), ("githubAppInstallationID", installation)):
        if not value.isascii() or not value.isdigit():
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
    return App(app_id, installation, Secret(key), api)


def _boolean(name: str, data: Mapping[str, str], field: str) -> bool:
    """Return the value of a field, or False if it is missing. Raises `CredentialsError`."""
    word = data.get(field, "").strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise CredentialsError(
            f"secret {name}: {field} is neither true nor false",
            hint="use true or false, in quotes",
        )
    return word in _TRUE


def _ssh(found: RepoCredentials) -> SshFiles:
    """Return the files for ssh: the key, and the known hosts or a config that ignores them.

    Raises `CredentialsError` for a bad key.
    """
    key = found.ssh_key.reveal().replace("\r", "").strip()
    if key and not is_private_key(key):
        raise CredentialsError(
            f"secret {found.secret}: sshPrivateKey is not a private key",
            hint="use the private key",
        )
    if key and has_passphrase(key):
        raise CredentialsError(
            f"secret {found.secret}: sshPrivateKey has a passphrase, which a pipeline cannot enter",
            hint="create a key without a passphrase: ssh-keygen -t ed25519 -N ''",
        )
    files = {_KEY: f"{key}\n"} if key else {}
    if found.insecure:
        return SshFiles(
            {**files, "config": _UNCHECKED},
            tuple(files),
            only_keys=bool(key),
        )
    known = found.known_hosts.strip()
    if known:
        files["known_hosts"] = f"{known}\n"
    return SshFiles(
        files,
        (_KEY,) if key else (),
        only_keys=bool(key),
        known_hosts=bool(known),
    )


def _write_secret(folder: str, name: str, content: str) -> str:
    """Create a file that only the user can read, and return its path."""
    path = os.path.join(folder, name)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
        "w",
        encoding="utf-8",
    ) as file:
        file.write(content)
    return path
