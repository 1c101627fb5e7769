"""Argo CD's repository secrets → which credentials belong to which Git repository, as Argo CD finds them.

A `repository` secret is for one URL, a `repo-creds` secret for all URLs that begin with its own; a secret with a
project is for that project's Applications only. Values are wrapped at once: nothing here shows them.

An annotation may name such a secret, too. Its author need not be trusted, so `may_log_in` is stricter than Argo CD.
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
_WRITING = {"repository-write": REPOSITORY, "repo-write-creds": TEMPLATE}  # what Argo CD's source hydrator pushes with
# Without the label, and they open Argo CD itself.
_UNLABELLED = ("argocd-secret", "argocd-notifications-secret", "argocd-initial-admin-secret", "argocd-redis")
_NOTHING = Secret("")
_TRUE, _FALSE = ("1", "t", "true"), ("", "0", "f", "false")  # as Go's ParseBool takes them, whatever the case
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_GITHUB_API = "https://api.github.com"
_NAME_ANOTHER = (
    "name a secret of the Application's own namespace, or write git alone: Argo CD's secret for the repository is used"
)


@dataclass(frozen=True)
class AppKey:
    """A GitHub App as it is installed somewhere."""

    id: str
    installation: str
    key: Secret
    api: str


@dataclass(frozen=True)
class RepoCredentials:
    """A login for one Git server, and how it is reached. What the secret does not say is empty."""

    secret: str = ""  # namespace/name, for messages
    username: str = ""
    password: Secret = _NOTHING
    bearer: Secret = _NOTHING
    ssh_key: Secret = _NOTHING
    app: AppKey | None = None
    certificate: str = ""  # of TLS, PEM
    certificate_key: Secret = _NOTHING
    insecure: bool = False  # neither certificate nor host key of the server is checked
    proxy: Secret = _NOTHING  # its URL may hold a password
    no_proxy: str = ""
    known_hosts: str = ""  # what Argo CD's ConfigMaps say of the server
    authorities: str = ""
    owners: bool = False  # a secret of the Application's owner, and not one that the platform team made for Argo CD

    @property
    def anything(self) -> bool:
        """Whether it says who we are, and not only how the server is reached."""
        return bool(self.username or self.password or self.bearer or self.ssh_key or self.app or self.certificate)


@dataclass(frozen=True)
class RepoSecret:
    """One `repository` or `repo-creds` secret."""

    kind: str
    url: str
    project: str
    credentials: RepoCredentials


def repo_secret(kind: str, name: str, data: Mapping[str, str]) -> RepoSecret | None:
    """Read one secret; None where it is not about Git. `name` is for messages. Raises `Malformed`."""
    if data.get("type", "").lower() not in ("", "git"):
        return None
    return RepoSecret(kind, data.get("url", ""), data.get("project", ""), _credentials(name, data))


def choose(secrets: Sequence[RepoSecret], url: str, project: str = "") -> RepoCredentials | None:
    """The credentials for a repository: the secret of its URL, else the template with the longest fitting URL.

    A secret of the Application's project counts before one without; one of another project never does. A repository's
    own secret may say only how it is reached: then who we are comes from a template, as in Argo CD.
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
    """What a secret is to Argo CD, which the label says (`repository`, `cluster`, …); "" where it is not Argo CD's."""
    if LABEL in labels:
        return labels[LABEL] or "unknown"
    return name if name in _UNLABELLED else ""


def may_log_in(secret: str, kind: str, data: Mapping[str, str], url: str, project: str) -> None:
    """Whether an Application may name this secret of Argo CD's as its login for Git. Raises `Malformed` if not.

    Until this was asked, `git:secret:argocd/…` sent another team's password to any URL that an Application's author
    chose. The message tells the author nothing about the secret that its name does not tell.
    """
    kind = _WRITING.get(kind, kind)
    if kind not in (REPOSITORY, TEMPLATE) or data.get("type", "").lower() not in ("", "git"):
        raise Malformed(f"secret {secret} belongs to Argo CD itself and is not a login for Git", _NAME_ANOTHER)
    wanted, ours = argo_cd_url(url), argo_cd_url(data.get("url", ""))
    fits = wanted == ours if kind == REPOSITORY else wanted.startswith(f"{ours.rstrip('/')}/")
    # curl asks for /evil/x where a URL says /acme/../evil/x.
    climbs = any(part.lower().replace("%2e", ".") in (".", "..") for part in re.split(r"[/\\:]", url))
    if not fits or not login_and_host(ours) or climbs:  # a template of `https://` alone would be for every server
        raise Malformed(f"secret {secret} is Argo CD's login for another repository", _NAME_ANOTHER)
    if data.get("project", "") not in ("", project):
        raise Malformed(f"secret {secret} is for another project than {project or 'none'!r}", _NAME_ANOTHER)


def named_credentials(name: str, url: str, data: Mapping[str, str]) -> RepoCredentials:
    """The credentials of a secret that `git:secret:…` names, checked for the kind of URL. Raises `Malformed`."""
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
    """(namespace, name) of `secret:<namespace>/<name>` or `secret:<name>`; the latter is in the Application's own.

    Raises `Malformed`.
    """
    _, _, place = text.partition(":")
    first, slash, second = place.partition("/")
    found = (first, second) if slash else (namespace, first)
    if not all(found) or "/" in second or not all(_NAME.fullmatch(part) for part in found):
        raise Malformed(f"{text[:200]!r} names no secret", "write git:secret:<namespace>/<name>")
    return found


def _begins(url: str, prefix: str) -> bool:
    """Whether a template is for a URL. As in Argo CD, but for whole hosts, since others choose an Application's URL.

    `https://git.example.com` is not for `https://git.example.com.evil.org`.
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
        raise Malformed(f"secret {name} has no field {' and '.join(missing)}", "a GitHub App needs all three")
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
