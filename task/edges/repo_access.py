"""Credentials of a cluster's secret → what git is given for that one repository."""

from __future__ import annotations

import os

from task.edges.access import Plan
from task.edges.git_environment import Login
from task.edges.git_names import without_login
from task.edges.ssh_access import SshFiles
from task.edges.ssh_keys import has_passphrase, is_private_key
from task.errors import CredentialsError
from task.parse.repo_secrets import AppKey, RepoCredentials

_KEY = "image-update-key"
_UNCHECKED = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"  # the secret says `insecure`
_TOKEN_USER = "x-access-token"  # noqa: S105 - a user name


def plan_of(found: RepoCredentials, url: str) -> Plan:
    """Login, key, known hosts and authorities, for this repository only. Raises `CredentialsError` for a bad key."""
    prefix = _prefix(url)
    if not url.lower().startswith(("https://", "http://")):
        return Plan(ssh=_ssh(found))
    logins = (Login(prefix, found.username or _TOKEN_USER, found.password),) if found.password and not found.app else ()
    plan = Plan(logins=logins, certificates=found.authorities)
    if found.app is None:
        return plan
    app = found.app

    def login(temporary: str, ca_file: str) -> Login:
        return _app_login(app, prefix, temporary, ca_file)

    return plan._replace(app=login, app_server=prefix)


def settings_of(found: RepoCredentials, url: str, folder: str) -> list[tuple[str, str]]:
    """Git's settings for this repository beyond a login: by `GIT_CONFIG_*`, never as arguments, since some are secret.

    A client certificate is put into `folder`, which must be private.
    """
    if not url.lower().startswith(("https://", "http://")):
        return []
    prefix, pairs = f"http.{_prefix(url)}", []
    if found.insecure:
        pairs.append((f"{prefix}.sslVerify", "false"))
    if found.proxy:
        pairs.append((f"{prefix}.proxy", found.proxy.reveal()))
    if found.bearer:
        pairs.append((f"{prefix}.extraHeader", f"Authorization: Bearer {found.bearer.reveal()}"))
    if found.certificate:
        name = os.urandom(4).hex()
        pairs.append((f"{prefix}.sslCert", _write(folder, f"{name}.pem", found.certificate)))
        pairs.append((f"{prefix}.sslKey", _write(folder, f"{name}.key", found.certificate_key.reveal())))
    return pairs


def _prefix(url: str) -> str:
    """As git compares it; with and without `.git` are one repository."""
    return without_login(url).rstrip("/").removesuffix(".git")


def _ssh(found: RepoCredentials) -> SshFiles:
    key = found.ssh_key.reveal().replace("\r", "").strip()
    if key and not is_private_key(key):
        raise CredentialsError(f"secret {found.secret}: sshPrivateKey is no private key", hint="give the private half")
    if key and has_passphrase(key):
        raise CredentialsError(
            f"secret {found.secret}: sshPrivateKey has a passphrase, and nobody is there to be asked for it",
            hint="make a key of its own, without one: ssh-keygen -t ed25519 -N ''",
        )
    files = {_KEY: f"{key}\n"} if key else {}
    if found.insecure:
        return SshFiles({**files, "config": _UNCHECKED}, tuple(files), only_keys=bool(key))
    known = found.known_hosts.strip()
    files |= {"known_hosts": f"{known}\n"} if known else {}
    return SshFiles(files, (_KEY,) if key else (), only_keys=bool(key), known_hosts=bool(known))


def _app_login(app: AppKey, prefix: str, temporary: str, ca_file: str) -> Login:
    from task.edges.github_app import App, token

    return Login(prefix, _TOKEN_USER, token(App(app.id, app.installation, app.key, app.api), temporary, ca_file))


def _write(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path
