"""Finds the credentials for a Git repository in Argo CD's repository secrets, by Argo CD's rules.

A `repository` secret is for one URL, and a `repo-creds` secret for all URLs that begin with its own. A secret with a
project is only for that project's Applications. Values are wrapped at once, so nothing here shows them.

An annotation may name such a secret, too. Its author may not be trustworthy, so `may_log_in` is stricter than Argo CD.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from task.errors import Malformed
from task.secret import Secret
from task.urls import argo_cd_url, is_ssh_for_argo_cd, login_and_host

LABEL = "argocd.argoproj.io/secret-type"
REPOSITORY, TEMPLATE = "repository", "repo-creds"  # values of the label
# the secrets with which Argo CD's source hydrator pushes
_WRITING = {"repository-write": REPOSITORY, "repo-write-creds": TEMPLATE}
# These have no such label, and they give access to Argo CD itself.
_UNLABELLED = ("argocd-secret", "argocd-notifications-secret", "argocd-initial-admin-secret", "argocd-redis")
_NOTHING = Secret("")
_TRUE, _FALSE = ("1", "t", "true"), ("", "0", "f", "false")  # as Go's ParseBool accepts them, in any case
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_GITHUB_API = "https://api.github.com"
_NAME_ANOTHER = (
    "name a secret of the Application's own namespace, or write git alone: Argo CD's secret for the repository is used"
)


@dataclass(frozen=True)
class AppKey:
    """An installation of a GitHub App."""

    id: str
    installation: str
    key: Secret
    api: str


@dataclass(frozen=True)
class RepoCredentials:
    """A login for one Git server, and how to reach the server. Fields that the secret lacks are empty."""

    secret: str = ""  # namespace/name, for messages
    username: str = ""
    password: Secret = _NOTHING
    bearer: Secret = _NOTHING
    ssh_key: Secret = _NOTHING
    app: AppKey | None = None
    certificate: str = ""  # a TLS certificate, PEM
    certificate_key: Secret = _NOTHING
    insecure: bool = False  # check neither the server's certificate nor its host key
    proxy: Secret = _NOTHING  # secret, because its URL may have a password
    no_proxy: str = ""
    known_hosts: str = ""  # the server's entries in Argo CD's ConfigMaps
    authorities: str = ""
    owners: bool = False  # a secret of the Application's owner, not one that the platform team made for Argo CD

    @property
    def anything(self) -> bool:
        """Whether it has a login, and not only how to reach the server."""
        return bool(self.username or self.password or self.bearer or self.ssh_key or self.app or self.certificate)


@dataclass(frozen=True)
class RepoSecret:
    """One `repository` or `repo-creds` secret."""

    kind: str
    url: str
    project: str
    credentials: RepoCredentials


def repo_secret(kind: str, name: str, data: Mapping[str, str]) -> RepoSecret | None:
    """Read one secret; return None if it is not about Git. `name` is for messages. Raises `Malformed`."""
    if data.get("type", "").lower() not in ("", "git"):
        return None
    return RepoSecret(kind, data.get("url", ""), data.get("project", ""), _credentials(name, data))


def choose(secrets: Sequence[RepoSecret], url: str, project: str = "") -> RepoCredentials | None:
    """Return a repository's credentials: its own secret's, else those of the longest template that fits its URL.

    A secret of the Application's project is preferred to one without a project, and one of another project never
    counts. If a repository's own secret has no login, the login comes from a template, as in Argo CD.
    """
    wanted = argo_cd_url(url)
    same = [one for one in secrets if one.kind == REPOSITORY and wanted and argo_cd_url(one.url) == wanted]
    scoped = (one.credentials for scope in dict.fromkeys((project, "")) for one in same if one.project == scope)
    own = next(scoped, None)
    fitting = [
        one for one in secrets
        if one.kind == TEMPLATE and one.project in ("", project) and _begins(wanted, argo_cd_url(one.url))
    ]  # fmt: skip
    longest = max(fitting, key=lambda one: len(argo_cd_url(one.url)), default=None)
    template = longest.credentials if longest else None
    if own is None or template is None or own.anything:
        return own or template
    proxy = own.proxy or template.proxy
    no_proxy = own.no_proxy if own.proxy else template.no_proxy
    return replace(template, insecure=own.insecure, proxy=proxy, no_proxy=no_proxy)


def argo_cds_kind(name: str, labels: Mapping[str, str]) -> str:
    """Return a secret's role in Argo CD from its label (`repository`, `cluster`, …), or "" if it is not Argo CD's."""
    if LABEL in labels:
        return labels[LABEL] or "unknown"
    return name if name in _UNLABELLED else ""


def may_log_in(secret: str, kind: str, data: Mapping[str, str], url: str, project: str) -> None:
    """Check that an Application may name this secret of Argo CD as its login for Git. Raises `Malformed` if not.

    Without this check, `git:secret:argocd/…` sent another team's password to any URL that an Application's author
    chose. The message reveals nothing about the secret but its name.
    """
    kind = _WRITING.get(kind, kind)
    if kind not in (REPOSITORY, TEMPLATE) or data.get("type", "").lower() not in ("", "git"):
        raise Malformed(f"secret {secret} belongs to Argo CD itself and is not a login for Git", _NAME_ANOTHER)
    wanted, ours = argo_cd_url(url), argo_cd_url(data.get("url", ""))
    fits = wanted == ours if kind == REPOSITORY else wanted.startswith(f"{ours.rstrip('/')}/")
    # For /acme/../evil/x in a URL, curl requests /evil/x.
    climbs = any(part.lower().replace("%2e", ".") in (".", "..") for part in re.split(r"[/\\:]", url))
    if not fits or not login_and_host(ours) or climbs:  # a template for `https://` alone would fit every server
        raise Malformed(f"secret {secret} is Argo CD's login for another repository", _NAME_ANOTHER)
    if data.get("project", "") not in ("", project):
        raise Malformed(f"secret {secret} is for another project than {project or 'none'!r}", _NAME_ANOTHER)


def named_credentials(name: str, url: str, data: Mapping[str, str]) -> RepoCredentials:
    """Return the credentials from a secret that `git:secret:…` names, if they fit the URL. Raises `Malformed`."""
    found = _credentials(name, data)
    if is_ssh_for_argo_cd(url):
        if not found.ssh_key:
            raise Malformed(f"secret {name} has no field sshPrivateKey, which an SSH URL needs", "add it")
    elif not url.lower().startswith("https://"):
        raise Malformed(f"secret {name} serves https and SSH URLs only", "use one of them as repoURL")
    elif not found.app and not found.bearer and not (found.username and found.password):
        raise Malformed(
            f"secret {name} has neither username and password nor a bearerToken nor a GitHub App's fields",
            "add username and password, or githubAppID, githubAppInstallationID and githubAppPrivateKey",
        )
    return found


def secret_place(text: str, namespace: str) -> tuple[str, str]:
    """Return (namespace, name) from `secret:<namespace>/<name>`, or `secret:<name>` in `namespace`.

    Raises `Malformed`.
    """
    _, _, place = text.partition(":")
    first, slash, second = place.partition("/")
    found = (first, second) if slash else (namespace, first)
    if not all(found) or "/" in second or not all(_NAME.fullmatch(part) for part in found):
        raise Malformed(f"{text[:200]!r} names no secret", "write git:secret:<namespace>/<name>")
    return found


def _begins(url: str, prefix: str) -> bool:
    """Tell whether a template fits a URL. Unlike Argo CD, compare whole hosts, since others choose the URL.

    `https://git.example.com` does not fit `https://git.example.com.evil.org`.
    """
    if not prefix or not url.startswith(prefix):
        return False
    host = login_and_host(prefix)
    return not host or host == login_and_host(url)


def _credentials(name: str, data: Mapping[str, str]) -> RepoCredentials:
    app = _app(name, data)
    certificate, key = data.get("tlsClientCertData", ""), data.get("tlsClientCertKey", "")
    if bool(certificate) != bool(key):
        raise Malformed(f"secret {name} has only one of tlsClientCertData and tlsClientCertKey", "add the other one")
    insecure = [_boolean(name, data, field) for field in ("insecure", "insecureIgnoreHostKey")]
    return RepoCredentials(
        secret=name,
        username=data.get("username", ""),
        password=Secret(data.get("password", "")),
        bearer=Secret(data.get("bearerToken", "")),
        ssh_key=Secret(data.get("sshPrivateKey", "")),
        app=app,
        certificate=certificate,
        certificate_key=Secret(key),
        insecure=any(insecure),
        proxy=Secret(data.get("proxy", "")),
        no_proxy=data.get("noProxy", ""),
    )


def _app(name: str, data: Mapping[str, str]) -> AppKey | None:
    fields = ("githubAppID", "githubAppInstallationID", "githubAppPrivateKey")
    number, installation, key = (data.get(field, "").strip() for field in fields)
    if not any((number, installation, key)):
        return None
    missing = [field for field in fields if not data.get(field, "").strip()]
    if missing:
        raise Malformed(f"secret {name} has no field {' and '.join(missing)}", "add it: a GitHub App needs all three")
    for field, value in (("githubAppID", number), ("githubAppInstallationID", installation)):
        if not value.isascii() or not value.isdigit():
            raise Malformed(f"secret {name}: {field} is not a number", "see the App's settings on GitHub")
    api = data.get("githubAppEnterpriseBaseUrl", "").strip().rstrip("/") or _GITHUB_API
    if not api.lower().startswith("https://"):
        raise Malformed(f"secret {name}: githubAppEnterpriseBaseUrl is not an https URL", "write https://<host>/api/v3")
    return AppKey(number, installation, Secret(key), api)


def _boolean(name: str, data: Mapping[str, str], field: str) -> bool:
    text = data.get(field, "").strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise Malformed(f"secret {name}: {field} is neither true nor false", "write true or false, in quotes")
    return text in _TRUE
