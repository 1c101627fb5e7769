"""Turns credentials from a cluster's secret into what git needs for that repository."""

from __future__ import annotations

import os
from dataclasses import replace

from task.argocd.repo_secrets import RepoCredentials
from task.errors import CredentialsError
from task.git.access import Credentials
from task.git.environment import Login
from task.git.github_app import App, Way, token
from task.git.ssh import SshFiles
from task.git.ssh_keys import has_passphrase, is_private_key
from task.urls import origin, without_login

_KEY = "image-update-key"
_UNCHECKED = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"  # if the secret says `insecure`
_TOKEN_USER = "x-access-token"  # noqa: S105 - a user name


def credentials_of(found: RepoCredentials, url: str) -> Credentials:
    """Return the login, key, known hosts and certificates for this repository. Raises `CredentialsError` for a bad key.

    Git gets the server without the repository's path, because a renamed repository is redirected on its server. The
    result is used only for this repository.
    """
    if not url.lower().startswith(("https://", "http://")):
        return Credentials(ssh=_ssh(found))
    server, proxied = origin(url), ("no_proxy", "NO_PROXY") if found.proxy else ()
    made = Credentials(
        certificates=found.authorities,
        variables=tuple((name, found.no_proxy) for name in proxied),  # like Argo CD, use these instead of the pod's own
        only=without_login(url).rstrip("/").removesuffix(".git"),
        # An owner who names a proxy and turns off checks can read along, so only the owner's own login goes there.
        alone=found.owners and found.insecure,
    )
    if found.app is None:
        login = Login(server, found.username or _TOKEN_USER, found.password)
        return replace(made, logins=(login,)) if found.password else made
    app = App(found.app.id, found.app.installation, found.app.key, found.app.api)

    def of_app(ca_file: str) -> Login:
        way = Way(ca_file, verify=not found.insecure, proxy=found.proxy, no_proxy=found.no_proxy)
        return Login(server, _TOKEN_USER, token(app, way))

    return replace(made, app=of_app, app_server=server)


def settings_of(found: RepoCredentials, url: str, folder: str) -> list[tuple[str, str]]:
    """Return Git's other settings for this repository, for `GIT_CONFIG_*`, because some are secret.

    A client certificate is written into `folder`, which must be private.
    """
    if not url.lower().startswith(("https://", "http://")):
        return []
    prefix, pairs = f"http.{origin(url)}", []
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


def _ssh(found: RepoCredentials) -> SshFiles:
    key = found.ssh_key.reveal().replace("\r", "").strip()
    if key and not is_private_key(key):
        raise CredentialsError(
            f"secret {found.secret}: sshPrivateKey is not a private key", hint="give the private half"
        )
    if key and has_passphrase(key):
        raise CredentialsError(
            f"secret {found.secret}: sshPrivateKey has a passphrase, which a pipeline cannot type",
            hint="make a key without one: ssh-keygen -t ed25519 -N ''",
        )
    files = {_KEY: f"{key}\n"} if key else {}
    if found.insecure:
        return SshFiles({**files, "config": _UNCHECKED}, tuple(files), only_keys=bool(key))
    known = found.known_hosts.strip()
    files |= {"known_hosts": f"{known}\n"} if known else {}
    return SshFiles(files, (_KEY,) if key else (), only_keys=bool(key), known_hosts=bool(known))


def _write(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path
