"""Parses Docker's config file: which login belongs to which registry, and which helper has it.

Keys are hosts, URLs (`https://index.docker.io/v1/`), paths (`ghcr.io/acme`, from podman) or hosts with `*` (which the
kubelet accepts in pull secrets). The longest fitting key wins. Messages never quote a value, because most are secrets.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from task.errors import Malformed
from task.secret import Secret
from task.urls import split

HUB = "docker.io"
HUB_SERVER = "https://index.docker.io/v1/"  # Docker Hub's name in `docker login`, and so in credential helpers
_HUBS = frozenset({HUB, "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"})
_NOTHING = Secret("")
_HINT = 'write {"auths": {"<registry>": {"auth": "<base64 of user:password>"}}}'


@dataclass(frozen=True)
class RegistryLogin:
    """A login to one registry: user and password, an identity token to be exchanged, or a bearer token."""

    username: str = ""
    password: Secret = _NOTHING
    identity: Secret = _NOTHING
    token: Secret = _NOTHING
    origin: str = ""  # where it was found, for messages
    hosts: frozenset[str] = frozenset()  # for which its user has named it, without ports


@dataclass(frozen=True)
class DockerConfig:
    """One config file. Keys are in normal form: `host[:port][/path]`."""

    logins: Mapping[str, RegistryLogin] = field(default_factory=dict)
    helpers: Mapping[str, str] = field(default_factory=dict)  # credHelpers: key → name of a helper
    store: str = ""  # credsStore: the helper for all other registries


def parse_docker_config(text: str, origin: str = "") -> DockerConfig:
    """Parse the text of a config file, or of its older form without `auths`. Raises `Malformed`."""
    try:
        data = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        raise Malformed("is not JSON", _HINT) from None
    if not isinstance(data, dict):
        raise Malformed("is not a JSON object", _HINT)
    # In a `.dockercfg`, the older form, the hosts are the keys.
    old = "auths" not in data and any(isinstance(entry, dict) and "auth" in entry for entry in data.values())
    auths = data if old else data.get("auths")
    logins = {normal(key): _login(key, entry, origin) for key, entry in _mapping(auths, "auths").items()}
    helpers = _mapping(data.get("credHelpers"), "credHelpers")
    store = data.get("credsStore") or ""
    if not all(isinstance(name, str) for name in (*helpers.values(), store)):
        raise Malformed("names a credential helper that is not text")
    given = {key: login for key, login in logins.items() if login is not None}
    keys: dict[tuple[str, ...], list[str]] = {}
    for key, login in given.items():
        keys.setdefault(_revealed(login), []).append(key)
    return DockerConfig(
        {key: replace(login, hosts=hosts_of(keys[_revealed(login)])) for key, login in given.items()},
        {normal(key): name for key, name in helpers.items() if name},
        store,
    )


def normal(key: str) -> str:
    """Normalise a key or a registry's host: no scheme, no API version, and Docker Hub is `docker.io`."""
    url = split(key.strip() if "://" in key else f"//{key.strip()}")
    host, path = HUB if url.authority in _HUBS else url.authority, url.path.strip("/")
    return f"{host}/{path}" if path and path not in ("v1", "v2") else host


def best_key(keys: Mapping[str, Any], registry: str, repository: str) -> str | None:
    """Return the longest of the keys that covers `registry/repository`, or None if no key does."""
    name = normal(f"{registry}/{repository}")
    fitting = [key for key in keys if _covers(key, name)]
    return max(fitting, key=lambda key: ("*" not in key, key.count("/"), len(key)), default=None)


def hosts_of(keys: Iterable[str]) -> frozenset[str]:
    """Return the hosts in keys, without ports. A pattern is no host."""
    return frozenset(split(f"//{normal(key)}").host.strip("[]") for key in keys if "*" not in key)


def server_of(key: str) -> str:
    """Return the name of a registry that credential helpers use."""
    return HUB_SERVER if key == HUB else key


def _covers(key: str, name: str) -> bool:
    host, _, path = key.partition("/")
    names_host, _, names_path = name.partition("/")
    same = host == names_host
    if "*" in host:  # as in the kubelet, `*` matches within one part of a host's name, and the port must be equal
        parts, names = host.split("."), names_host.split(".")
        same = len(parts) == len(names) and all(map(fnmatchcase, names, parts))
    return same and (not path or f"{names_path}/".startswith(f"{path}/"))


def _login(key: str, entry: Any, origin: str) -> RegistryLogin | None:
    """Return the login of one entry of `auths`, or None for an empty entry.

    Docker writes an empty entry if a credential helper has the login.
    """
    entry = _mapping(entry, "an entry of auths")
    texts = {name: entry.get(name) or "" for name in ("username", "password", "auth", "identitytoken", "registrytoken")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise Malformed(f"the entry of {normal(key)} holds something other than text")
    user, password = texts["username"], texts["password"]
    if texts["auth"]:
        auth = texts["auth"].strip()
        try:
            text = b64decode(auth + "=" * (-len(auth) % 4), validate=True).decode()
        except ValueError:
            text = ""
        user, colon, password = text.partition(":")
        if not colon:
            raise Malformed(f"the entry of {normal(key)}: auth is not the base64 form of user:password")
        password = password.rstrip("\x00")  # Docker itself does this when it reads the file
    identity, token = Secret(texts["identitytoken"]), Secret(texts["registrytoken"])
    if not (password or identity or token):
        return None
    return RegistryLogin(user, Secret(password), identity, token, origin)


def _revealed(login: RegistryLogin) -> tuple[str, ...]:
    return (login.username, login.password.reveal(), login.identity.reveal(), login.token.reveal())


def _mapping(data: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(data, dict | None):
        raise Malformed(f"{what} is not a JSON object")
    return data or {}
