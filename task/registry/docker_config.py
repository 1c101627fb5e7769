"""Logins from options, and from Docker's config file, which podman, Tekton, and GitLab also use.

Keys are hosts, URLs (`https://index.docker.io/v1/`), paths (`ghcr.io/acme`, from podman), or hosts
with `*` (as the kubelet accepts in pull secrets). The longest matching key wins. Messages never
quote a value, because most are secrets.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from task.errors import Malformed, RegistryAccessError, TaskError, UsageError
from task.files import LARGEST, read_text
from task.plain_data import parsed_json
from task.secret import Secret
from task.urls import split

HUB = "docker.io"
_HUBS = frozenset({HUB, "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"})
_NOTHING = Secret("")
# Tekton puts the service account's secrets here; HOME may be a different folder
_TEKTON = "/tekton/creds"
_LARGEST = 1024 * 1024
_HINT = 'use {"auths": {"<registry>": {"auth": "<base64 of user:password>"}}}'


@dataclass(frozen=True)
class RegistryLogin:
    """A registry login: a username and password, an identity token to exchange, or a bearer
    token.
    """

    username: str = ""
    password: Secret = _NOTHING
    identity: Secret = _NOTHING
    token: Secret = _NOTHING
    origin: str = ""  # where the credentials are from, for messages
    hosts: frozenset[str] = frozenset()  # the hosts, without ports, that the user set it for


@dataclass(frozen=True)
class DockerConfig:
    """A config file. Keys are in normal form: `host[:port][/path]`."""

    logins: Mapping[str, RegistryLogin]
    helpers: Mapping[str, str]  # credHelpers: key → a helper's name
    store: str  # credsStore: the helper for all other registries


def parse_docker_config(text: str, origin: str = "") -> DockerConfig:
    """Parse Docker's config file, or its older form without `auths`. Raises `Malformed`.

    `origin` says where the file is from, in messages about its logins.
    """
    try:
        data = parsed_json(text.removeprefix("\ufeff"))
    except ValueError:
        raise Malformed("is not JSON", _HINT) from None
    if not isinstance(data, dict):
        raise Malformed("is not a JSON object", _HINT)

    auths = _mapping(_auths_in(data), "auths")
    logins = {normal(key): _login(key, entry, origin) for key, entry in auths.items()}
    helpers = _mapping(data.get("credHelpers"), "credHelpers")
    store = data.get("credsStore") or ""
    for helper_name in (*helpers.values(), store):
        if not isinstance(helper_name, str):
            raise Malformed("has a credential helper that is not a string")
    return DockerConfig(
        logins=_with_hosts(logins),
        helpers={normal(key): name for key, name in helpers.items() if name},
        store=store,
    )


def _auths_in(data: Mapping[str, Any]) -> Any:
    """Return a config file's logins, keyed by host: the value of `auths` or, in the older
    `.dockercfg` format, the whole file.
    """
    if "auths" not in data:
        for entry in data.values():
            if isinstance(entry, dict) and "auth" in entry:
                return data
    return data.get("auths")


def _with_hosts(logins: Mapping[str, RegistryLogin | None]) -> dict[str, RegistryLogin]:
    """Return the logins by key, each with `hosts` set to the hosts of all keys with the same login,
    because the user trusts all of these hosts with it. Keys without a login are omitted.
    """
    keys_by_login: dict[RegistryLogin, list[str]] = {}
    for key, login in logins.items():
        if login is not None:
            keys_by_login.setdefault(login, []).append(key)

    logins_by_key: dict[str, RegistryLogin] = {}
    for login, keys in keys_by_login.items():
        login_with_hosts = replace(login, hosts=hosts_of(keys))
        logins_by_key |= dict.fromkeys(keys, login_with_hosts)
    return logins_by_key


def normal(key: str) -> str:
    """Normalize a key of a config file, or a registry's host: remove the scheme and the API
    version, and use `docker.io` for Docker Hub. `https://index.docker.io/v1/` becomes `docker.io`.
    """
    key = key.strip()
    url = split(key if "://" in key else f"//{key}")
    host = HUB if url.authority in _HUBS else url.authority
    path = url.path.strip("/")
    return f"{host}/{path}" if path and path not in ("v1", "v2") else host


def best_key(keys: Iterable[str], registry: str, repository: str) -> str | None:
    """Return the key of a config file that best fits `registry/repository`, or None if none does.

    A key without `*` wins, then the longest path, then the longest key.
    """
    name = normal(f"{registry}/{repository}")
    fitting_keys = [key for key in keys if _covers(key, name)]
    return max(
        fitting_keys,
        key=lambda key: ("*" not in key, key.count("/"), len(key)),
        default=None,
    )


def hosts_of(keys: Iterable[str]) -> frozenset[str]:
    """Return the hosts in keys, without ports. Patterns are omitted."""
    return frozenset(split(f"//{normal(key)}").host.strip("[]") for key in keys if "*" not in key)


def _covers(key: str, name: str) -> bool:
    """Return whether a key of a config file, such as `ghcr.io/acme` or `*.example.com`, is for a
    repository, such as `ghcr.io/acme/web`.
    """
    key_host, _, key_path = key.partition("/")
    host, _, path = name.partition("/")
    matches_host = key_host == host
    if "*" in key_host:
        # as in the kubelet, `*` matches within a single label of a hostname, and the ports must be
        # equal
        patterns = key_host.split(".")
        labels = host.split(".")
        matches_host = len(patterns) == len(labels) and all(map(fnmatchcase, labels, patterns))
    # a key with a path is for this path and everything below it
    matches_path = not key_path or f"{path}/".startswith(f"{key_path}/")
    return matches_host and matches_path


def _login(key: str, entry: Any, origin: str) -> RegistryLogin | None:
    """Return the login from the entry with this key in `auths`, or None if the entry is empty.
    Raises `Malformed`.

    Docker writes an empty entry if a credential helper has the credentials.
    """
    entry = _mapping(entry, "an auths entry")
    texts = {
        name: entry.get(name) or ""
        for name in ("username", "password", "auth", "identitytoken", "registrytoken")
    }
    if not all(isinstance(text, str) for text in texts.values()):
        raise Malformed(f"the entry for {normal(key)} contains a value that is not a string")

    user = texts["username"]
    password = texts["password"]
    if texts["auth"]:
        user, colon, password = _decoded_auth(texts["auth"]).partition(":")
        if not colon:
            raise Malformed(
                f"the entry for {normal(key)}: auth is not base64-encoded user:password"
            )
        password = password.rstrip("\x00")  # Docker also does this when it reads the file
    identity = Secret(texts["identitytoken"])
    token = Secret(texts["registrytoken"])
    has_secret = bool(password or identity or token)
    if not has_secret:
        return None
    return RegistryLogin(
        username=user,
        password=Secret(password),
        identity=identity,
        token=token,
        origin=origin,
    )


def _decoded_auth(auth: str) -> str:
    """Return the text in a base64-encoded `auth` value, or "" if it is not valid base64."""
    auth = auth.strip()
    # base64 comes in groups of four, but some programs omit the "="
    padding = "=" * (-len(auth) % 4)
    try:
        return b64decode(auth + padding, validate=True).decode()
    except ValueError:
        return ""


def _mapping(data: Any, what: str) -> Mapping[str, Any]:
    """Return a JSON object, or {} for null. For any other value, raises `Malformed`, whose message
    says `what` it is.
    """
    if not isinstance(data, dict | None):
        raise Malformed(f"{what} is not a JSON object")
    return data or {}


def config_files(environ: Mapping[str, str]) -> tuple[DockerConfig, ...]:
    """Read Docker's config files from all the places where they may be. Return the most explicit
    file first.

    Raises `RegistryAccessError` for an invalid file, and for an unreadable file that the user has
    set.
    """
    configs: list[DockerConfig] = []
    # GitLab's variable, which contains the file's content
    content = environ.get("DOCKER_AUTH_CONFIG", "").strip()
    if content:
        configs.append(_parse_config(content, "variable DOCKER_AUTH_CONFIG"))

    read_paths: set[str] = set()
    for path, set_by_user in _places(environ):
        real_path = os.path.realpath(path)
        if real_path in read_paths or not os.path.isfile(real_path):
            continue
        # A shared home may contain another user's file, which is skipped. But a file that the user
        # has set must be readable.
        if not set_by_user and not os.access(real_path, os.R_OK):
            continue
        read_paths.add(real_path)  # because of links, several places may have the same file
        text = text_of(
            path,
            "cannot read Docker's config",
            hint="make it readable, or set DOCKER_CONFIG",
            error=RegistryAccessError,
            most=_LARGEST,
        )
        configs.append(_parse_config(text, path))
    return tuple(configs)


def password_of(
    username: str,
    password_file: str,
    environ: Mapping[str, str],
) -> RegistryLogin | None:
    """Return the login from `--registry-username` and the password file or variable, or None if
    none is set.

    Raises `UsageError` if the username or password is missing, or two passwords are set.
    """
    variable = environ.get("IMAGE_UPDATE_REGISTRY_PASSWORD", "").strip()
    if variable and password_file:
        raise UsageError(
            "--registry-password-file and IMAGE_UPDATE_REGISTRY_PASSWORD are both set",
            hint="set only one of them",
        )
    if password_file:
        origin = "--registry-password-file"
        password = text_of(password_file, f"{origin}: cannot read", most=_LARGEST).strip()
        if not password:
            raise UsageError(
                f"--registry-password-file: {password_file!r} is empty",
                hint="put the password or token in the file",
            )
    else:
        origin = "IMAGE_UPDATE_REGISTRY_PASSWORD"
        password = variable

    if not username and not password:
        return None
    if not username or not password:
        missing = "--registry-username"
        if username:
            missing = "--registry-password-file (or IMAGE_UPDATE_REGISTRY_PASSWORD)"
        raise UsageError(
            f"the registry credentials are incomplete: {missing} is missing",
            hint="set both",
        )
    return RegistryLogin(username, Secret(password), origin=origin)


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield the path of each place where Docker's config file may be, and whether the user set it."""
    auth_file = environ.get("REGISTRY_AUTH_FILE", "").strip()
    docker_config = environ.get("DOCKER_CONFIG", "").strip()
    home = environ.get("HOME", "").strip()
    runtime = environ.get("XDG_RUNTIME_DIR", "").strip()
    if auth_file:
        yield auth_file, True
    if docker_config:
        yield docker_config, True  # Docker expects a folder, but some people set the file itself
        yield os.path.join(docker_config, "config.json"), True
        yield os.path.join(docker_config, ".dockerconfigjson"), True  # in a mounted secret
    elif home:
        yield os.path.join(home, ".docker", "config.json"), False
    if runtime:
        yield os.path.join(runtime, "containers", "auth.json"), False
    yield os.path.join(_TEKTON, ".docker", "config.json"), False


def _parse_config(text: str, origin: str) -> DockerConfig:
    """Parse a config file. Raises `RegistryAccessError`, which mentions the file's origin."""
    try:
        return parse_docker_config(text, origin)
    except Malformed as problem:
        raise RegistryAccessError(
            f"Docker's config ({origin}) {problem.message}",
            hint=problem.hint,
        ) from None


def text_of(
    path: str,
    what: str,
    hint: str = "specify a readable file",
    error: type[TaskError] = UsageError,
    most: int = LARGEST,
) -> str:
    """Return the text in a file of at most `most` bytes.

    If it cannot be read, raises an `error` whose message consists of `what`, the path, and the
    reason.
    """
    try:
        return read_text(path, most)
    except (OSError, UnicodeDecodeError) as read_error:
        reason = getattr(read_error, "strerror", None) or "it is not a text file"
        raise error(f"{what} {path!r}: {reason}", hint=hint) from None
