"""Reads kubeconfig files as kubectl does: how to reach a cluster, and with which identity.

If several files are merged, the first file with a cluster, a user, a context, or the current
context wins. Paths are relative to their file. No server is contacted, and no program is started.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from task.errors import Malformed, UsageError
from task.files import read_text
from task.plain_data import mapping, mappings, text
from task.secret import Secret
from task.yaml_documents import plain

_EXTENSION = "client.authentication.k8s.io/exec"  # a cluster's extension for exec plugins
_KINDS_OF_ENTRIES = {"clusters": "cluster", "users": "user", "contexts": "context"}
_FOLDER = "folder"  # the folder of the file that contains an entry
_PROXIES = ("http://", "https://")
_IMPERSONATED = (("Impersonate-User", "as"), ("Impersonate-Uid", "as-uid"))
_LONGEST = 10_000_000  # maximum file size in bytes


@dataclass(frozen=True)
class Server:
    """A cluster's API server."""

    url: str = ""
    ca_file: str = ""
    ca_data: str = ""  # PEM; takes precedence over the file
    verify: bool = True
    name: str = ""  # tls-server-name
    proxy: str | None = None
    extension: Any = None


@dataclass(frozen=True)
class Plugin:
    """An exec credential plugin: a program that prints credentials."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    version: str = ""
    tell_cluster: bool = False
    hint: str = ""


@dataclass(frozen=True)
class User:
    """The identity for requests to a cluster."""

    token: Secret = Secret("")
    token_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    certificate: str = ""  # PEM; data takes precedence over files
    key: Secret = Secret("")
    name: str = ""
    password: Secret = Secret("")
    plugin: Plugin | None = None
    headers: tuple[tuple[str, str], ...] = ()  # for impersonation


@dataclass(frozen=True)
class Kubeconfig:
    """An API server, and an identity for it."""

    who: str  # the identity in messages
    server: Server
    user: User


def kubeconfig(environ: Mapping[str, str], path: str = "", context: str = "") -> Kubeconfig | None:
    """Return the server and the identity of a context, or None if there is no kubeconfig.

    `context` is the context's name; "" means the current context. `path` takes precedence over
    KUBECONFIG and ~/.kube/config, and must exist. Raises `UsageError`, which does not contain
    secrets.
    """
    merged = _merged_files(_paths(environ, path))
    name = context or merged["current-context"]
    if not name and not merged["contexts"]:
        return None
    if name not in merged["contexts"]:
        problem = f"has no context {name!r}" if name else "has no current context"
        hint = "it has no contexts: pass another file with --kubeconfig"
        if merged["contexts"]:
            hint = f"use one of these: {', '.join(sorted(merged['contexts']))}"
        raise UsageError(f"the kubeconfig {problem}", hint=hint)

    cluster = text(merged["contexts"][name], "cluster")
    user = text(merged["contexts"][name], "user")
    references = [("clusters", cluster)]
    if user:  # a context may have no user
        references.append(("users", user))
    for kind, reference in references:
        if reference not in merged[kind]:
            raise UsageError(
                f"the kubeconfig's context {name!r} refers to {reference!r}, which is not among"
                f" its {kind}",
                hint="correct it (see kubectl config view)",
            )

    server = _server(merged["clusters"][cluster], cluster)
    identity = _user(merged["users"].get(user, {}), user)
    return Kubeconfig(f"context {name!r}", server, identity)


def _merged_files(files: Iterable[str]) -> dict[str, Any]:
    """Return the merged content of all files. Each list becomes a mapping by name: `clusters` may
    be `{"prod": {"server": …}}`. As in kubectl, the first file with an entry wins.
    """
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for file in files:
        data = _read(file)
        folder = os.path.dirname(os.path.abspath(file))
        merged["current-context"] = merged["current-context"] or text(data, "current-context")
        for kind, key in _KINDS_OF_ENTRIES.items():
            for item in mappings(data, kind):
                entry = {**mapping(item, key), _FOLDER: folder}
                merged[kind].setdefault(text(item, "name"), entry)
    return merged


def _paths(environ: Mapping[str, str], path: str) -> list[str]:
    """Return the kubeconfig files that exist: `path` if it is set, else the files in KUBECONFIG,
    else ~/.kube/config.

    Raises `UsageError` if `path` does not exist.
    """
    if path:
        if not os.path.exists(path):
            raise UsageError(
                f"the kubeconfig {path!r} does not exist", hint="specify a readable file"
            )
        return [path]
    candidates = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    home = environ.get("HOME", "")
    if home and not candidates:
        candidates = [os.path.join(home, ".kube", "config")]
    return [file for file in dict.fromkeys(candidates) if os.path.exists(file)]


def _read(path: str) -> Mapping[str, Any]:
    """Return a file's content, or {} if it is empty. Raises `UsageError`."""
    try:
        data = plain(read_text(path, _LONGEST))
    except OSError as error:
        raise UsageError(
            f"cannot read the kubeconfig {path!r}: {error.strerror}",
            hint="make it readable for this user",
        ) from None
    except (UnicodeDecodeError, Malformed):
        raise UsageError(
            f"the kubeconfig {path!r} is not YAML",
            hint="correct it (see kubectl config view)",
        ) from None
    if data is not None and not isinstance(data, dict):
        raise UsageError(
            f"the kubeconfig {path!r} is not a mapping",
            hint="correct it (see kubectl config view)",
        )
    return data or {}


def _server(raw: Mapping[str, Any], name: str) -> Server:
    """Return the API server in a cluster entry. Raises `UsageError`, with the cluster's `name`, if
    the entry is unusable.
    """
    url = text(raw, "server")
    where = f"cluster {name!r}"
    skips_verification = raw.get("insecure-skip-tls-verify") is True
    tls_keys = ("certificate-authority", "certificate-authority-data", "tls-server-name")
    uses_tls = skips_verification or any(raw.get(key) for key in tls_keys)
    if not url:
        raise UsageError(
            f"the kubeconfig's {where} has no server",
            hint="see kubectl config set-cluster",
        )
    if "://" not in url:  # kubectl always uses http, and sends no credentials (seen with 1.32)
        scheme = "https" if uses_tls else "http"
        url = f"{scheme}://{url}"
    proxy = text(raw, "proxy-url") or None
    if proxy and not proxy.startswith(_PROXIES):
        raise UsageError(
            f"the kubeconfig's {where}: proxies of this kind are not supported",
            hint="use http or https",
        )

    extensions = {text(item, "name"): item.get("extension") for item in mappings(raw, "extensions")}
    return Server(
        url=url.rstrip("/"),
        ca_file=_path(raw, "certificate-authority"),
        ca_data=_decoded_field(raw, "certificate-authority-data", where),
        verify=not skips_verification,
        name=text(raw, "tls-server-name"),
        proxy=proxy,
        extension=extensions.get(_EXTENSION),
    )


def _user(raw: Mapping[str, Any], name: str) -> User:
    """Return the identity in a user entry. Raises `UsageError`, with the user's `name`, if the
    entry is unusable.
    """
    where = f"user {name!r}"
    if raw.get("auth-provider"):
        raise UsageError(
            f"the kubeconfig's {where} uses an auth-provider, which Kubernetes no longer supports",
            hint="create a new kubeconfig: current tools use exec",
        )
    # these would need several headers with the same name
    if raw.get("as-groups") or raw.get("as-user-extra"):
        raise UsageError(
            "the kubeconfig impersonates groups, which is not supported",
            hint="use a separate user",
        )
    return User(
        token=Secret(text(raw, "token")),
        token_file=_path(raw, "tokenFile"),
        certificate_file=_path(raw, "client-certificate"),
        key_file=_path(raw, "client-key"),
        certificate=_decoded_field(raw, "client-certificate-data", where),
        key=Secret(_decoded_field(raw, "client-key-data", where)),
        name=text(raw, "username"),
        password=Secret(text(raw, "password")),
        plugin=_plugin(
            mapping(raw, "exec"),
            text(raw, _FOLDER),
            where,
        ),
        headers=tuple((header, text(raw, key)) for header, key in _IMPERSONATED if raw.get(key)),
    )


def _plugin(raw: Mapping[str, Any], folder: str, where: str) -> Plugin | None:
    """Return the plugin in a user's `exec` section, or None if the section is empty.

    `folder` is the kubeconfig's folder, and `where` names the user in messages. Raises
    `UsageError`.
    """
    if not raw:
        return None
    version = text(raw, "apiVersion")
    command = text(raw, "command")
    if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise UsageError(
            f"the kubeconfig's {where}: exec plugins of {version!r} are not supported",
            hint="use client.authentication.k8s.io/v1 or v1beta1",
        )
    if text(raw, "interactiveMode") == "Always":
        raise UsageError(
            f"the kubeconfig's {where}: its exec plugin needs to prompt the user",
            hint="use a plugin that does not prompt",
        )

    if "/" in command:  # a path, relative to the kubeconfig
        command = os.path.join(folder, command)
    args = raw.get("args") or []
    return Plugin(
        command=command,
        args=tuple(arg for arg in args if isinstance(arg, str)),
        env=tuple((text(item, "name"), text(item, "value")) for item in mappings(raw, "env")),
        version=version,
        tell_cluster=raw.get("provideClusterInfo") is True,
        hint=text(raw, "installHint"),
    )


def _path(raw: Mapping[str, Any], key: str) -> str:
    """Return the path in an entry's field, resolved relative to the kubeconfig, or "" if the field
    is not set.
    """
    path = text(raw, key)
    return os.path.join(text(raw, _FOLDER), path) if path else ""


def _decoded_field(raw: Mapping[str, Any], key: str, where: str) -> str:
    """Return the decoded text of a base64 field, or "" if it is not set. Raises `UsageError`."""
    try:
        return b64decode("".join(text(raw, key).split()), validate=True).decode()
    except ValueError:  # UnicodeDecodeError is a ValueError
        raise UsageError(
            f"the kubeconfig's {where}: {key} is not base64-encoded PEM text",
            hint="create it again",
        ) from None
