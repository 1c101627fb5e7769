"""Reads logins from options, and from Docker's config file, which podman, Tekton, and GitLab also
use.

The file's keys are hosts, URLs (`https://index.docker.io/v1/`), paths (`ghcr.io/acme`, as in
podman), or hosts with `*` (as the kubelet accepts in pull secrets). The most specific matching key
wins. Error messages never quote a value, because most values are secrets.
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
# where Tekton puts the service account's secrets, even if HOME is a different folder
_TEKTON = "/tekton/creds"
_LARGEST = 1024 * 1024
_HINT = 'use {"auths": {"<registry>": {"auth": "<base64 of user:password>"}}}'


@dataclass(frozen=True)
class RegistryLogin:
    """A registry login: a username and password, an identity token (to be exchanged for a bearer
    token), or a bearer token.
    """

    username: str = ""
    password: Secret = _NOTHING
    identity: Secret = _NOTHING
    token: Secret = _NOTHING
    origin: str = ""  # where the credentials come from, for messages
    # the hosts, without ports, for which the user has set this login
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DockerConfig:
    """The content of a Docker config file. Keys are normalized: `host[:port][/path]`."""

    logins: Mapping[str, RegistryLogin]
    helpers: Mapping[str, str]  # `credHelpers`: key → name of a credential helper
    store: str  # `credsStore`: the credential helper for all other registries


def parse_docker_config(text: str, origin: str = "") -> DockerConfig:
    """Parse Docker's config file, or its older format without `auths`. Raises `Malformed`.

    `origin` describes where the file comes from, for messages about its logins.
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
    """Return the part of a config file that contains the logins, keyed by host: the value of
    `auths` or, in the older `.dockercfg` format, the whole file. Return None if there is neither.
    """
    if "auths" not in data:
        for entry in data.values():
            if isinstance(entry, dict) and "auth" in entry:
                return data
    return data.get("auths")


def _with_hosts(logins: Mapping[str, RegistryLogin | None]) -> dict[str, RegistryLogin]:
    """Return key → login, omitting keys without a login. In each login, set `hosts` to the hosts of
    all keys that have the same login, because the user trusts all of these hosts with it.
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
    """Normalize a config file's key or a registry's host: remove the scheme and the API version,
    and use `docker.io` for Docker Hub. For example, `https://index.docker.io/v1/` becomes
    `docker.io`.
    """
    key = key.strip()
    url = split(key if "://" in key else f"//{key}")
    host = HUB if url.authority in _HUBS else url.authority
    path = url.path.strip("/")
    return f"{host}/{path}" if path and path not in ("v1", "v2") else host


def best_key(keys: Iterable[str], registry: str, repository: str) -> str | None:
    """Return the config file key that best matches `registry/repository`, or None if no key
    matches.

    Keys without `*` take precedence, then those with the longest path, then the longest key.
    """
    name = normal(f"{registry}/{repository}")
    fitting_keys = [key for key in keys if _covers(key, name)]
    return max(
        fitting_keys,
        key=lambda key: ("*" not in key, key.count("/"), len(key)),
        default=None,
    )


def hosts_of(keys: Iterable[str]) -> frozenset[str]:
    """Return the hosts that occur in the keys, without ports. Keys with `*` are omitted."""
    return frozenset(split(f"//{normal(key)}").host.strip("[]") for key in keys if "*" not in key)


def _covers(key: str, name: str) -> bool:
    """Return whether a config file key, such as `ghcr.io/acme` or `*.example.com`, covers a
    repository, such as `ghcr.io/acme/web`.
    """
    key_host, _, key_path = key.partition("/")
    host, _, path = name.partition("/")
    matches_host = key_host == host
    if "*" in key_host:
        # as in the kubelet, `*` matches only within a single label of the host name, and the ports
        # must be equal
        patterns = key_host.split(".")
        labels = host.split(".")
        matches_host = len(patterns) == len(labels) and all(map(fnmatchcase, labels, patterns))
    # a key with a path covers this path and everything below it
    matches_path = not key_path or f"{path}/".startswith(f"{key_path}/")
    return matches_host and matches_path


def _login(key: str, entry: Any, origin: str) -> RegistryLogin | None:
    """Parse an entry of `auths`, and return its login, or None if the entry is empty. Raises
    `Malformed`.

    Docker writes an empty entry if the credentials are in a credential helper. `key` is the entry's
    key.
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
        password = password.rstrip("\x00")  # as Docker does when it reads the file
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
    """Decode a base64-encoded `auth` value. Return "" if it is not valid."""
    auth = auth.strip()
    # base64 consists of groups of four characters, but some programs omit the trailing "="
    padding = "=" * (-len(auth) % 4)
    try:
        return b64decode(auth + padding, validate=True).decode()
    except ValueError:
        return ""


def _mapping(data: Any, what: str) -> Mapping[str, Any]:
    """Return a JSON object unchanged, and {} for null. Raises `Malformed` for any other value;
    `what` describes the value in the message.
    """
    if not isinstance(data, dict | None):
        raise Malformed(f"{what} is not a JSON object")
    return data or {}


def config_files(environ: Mapping[str, str]) -> tuple[DockerConfig, ...]:
    """Read Docker's config files from all possible places. Return the most explicitly configured
    file first.

    Raises `RegistryAccessError` for an invalid file, or for an unreadable file that the user has
    configured.
    """
    configs: list[DockerConfig] = []
    # a GitLab variable that contains the file's content
    content = environ.get("DOCKER_AUTH_CONFIG", "").strip()
    if content:
        configs.append(_parse_config(content, "variable DOCKER_AUTH_CONFIG"))

    read_paths: set[str] = set()
    for path, set_by_user in _places(environ):
        real_path = os.path.realpath(path)
        if real_path in read_paths or not os.path.isfile(real_path):
            continue
        # A shared home folder may contain another user's file, which is skipped. But a file that
        # the user has configured must be readable.
        if not set_by_user and not os.access(real_path, os.R_OK):
            continue
        read_paths.add(real_path)  # because of links, several places may refer to the same file
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
    none of these is set.

    Raises `UsageError` if either the username or the password is missing, or if two passwords are
    set.
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
    """Yield each path where Docker's config file may be, and whether the user has set the path."""
    auth_file = environ.get("REGISTRY_AUTH_FILE", "").strip()
    docker_config = environ.get("DOCKER_CONFIG", "").strip()
    home = environ.get("HOME", "").strip()
    runtime = environ.get("XDG_RUNTIME_DIR", "").strip()
    if auth_file:
        yield auth_file, True
    if docker_config:
        yield docker_config, True  # Docker expects a folder, but some users set the file itself
        yield os.path.join(docker_config, "config.json"), True
        # the name of the file in a mounted secret
        yield os.path.join(docker_config, ".dockerconfigjson"), True
    elif home:
        yield os.path.join(home, ".docker", "config.json"), False
    if runtime:
        yield os.path.join(runtime, "containers", "auth.json"), False
    yield os.path.join(_TEKTON, ".docker", "config.json"), False


def _parse_config(text: str, origin: str) -> DockerConfig:
    """Parse a config file. Raises `RegistryAccessError`, which names the file's origin."""
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
    """Return a file's text. The file may have at most `most` bytes.

    If the file cannot be read, raises an `error` whose message consists of `what`, the path, and
    the reason.
    """
    try:
        return read_text(path, most)
    except (OSError, UnicodeDecodeError) as read_error:
        reason = getattr(read_error, "strerror", None) or "it is not a text file"
        raise error(f"{what} {path!r}: {reason}", hint=hint) from None
