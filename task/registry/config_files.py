"""Reads the login files of Docker, podman, Tekton and GitLab, and logins from options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from task.errors import Malformed, RegistryAccessError, UsageError
from task.files import read_text
from task.registry.docker_config import DockerConfig, RegistryLogin, parse_docker_config
from task.secret import Secret

_TEKTON = "/tekton/creds"  # Tekton puts the service account's secrets here; HOME may be another folder
_LARGEST = 1024 * 1024


def config_files(environ: Mapping[str, str]) -> tuple[DockerConfig, ...]:
    """Return all config files, the most explicit one first. Raises `RegistryAccessError` for an unreadable file."""
    text = environ.get("DOCKER_AUTH_CONFIG", "").strip()  # GitLab's variable, which has the file's text
    inline = [_parsed(text, "variable DOCKER_AUTH_CONFIG")] if text else []
    seen: dict[str, DockerConfig] = {}
    for path, named in _places(environ):
        real = os.path.realpath(path)
        # A shared home may have another user's file, which is skipped. But a file that the user named must be readable.
        if real not in seen and os.path.isfile(real) and (named or os.access(real, os.R_OK)):
            try:
                text = read_text(path, _LARGEST)
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise RegistryAccessError(
                    f"cannot read Docker's config {path!r}: {reason}", hint="make it readable, or set DOCKER_CONFIG"
                ) from None
            seen[real] = _parsed(text, path)
    return (*inline, *seen.values())


def password_of(username: str, password_file: str, environ: Mapping[str, str]) -> RegistryLogin | None:
    """Return the login from `--registry-username` and the password file or variable, or None.

    Raises `UsageError` if half of it is missing, or two passwords are given.
    """
    variable = environ.get("IMAGE_UPDATE_REGISTRY_PASSWORD", "").strip()
    if variable and password_file:
        raise UsageError(
            "--registry-password-file and IMAGE_UPDATE_REGISTRY_PASSWORD are both given", hint="give one of them"
        )
    password, where = variable, "IMAGE_UPDATE_REGISTRY_PASSWORD"
    if password_file:
        try:
            password, where = read_text(password_file, _LARGEST).strip(), "--registry-password-file"
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise UsageError(
                f"--registry-password-file: cannot read {password_file!r}: {reason}", hint="name a readable file"
            ) from None
        if not password:
            hint = "put the password or token into it"
            raise UsageError(f"--registry-password-file: {password_file!r} is empty", hint=hint)
    if bool(username) != bool(password):
        missing = "--registry-password-file (or IMAGE_UPDATE_REGISTRY_PASSWORD)" if username else "--registry-username"
        raise UsageError(f"the registry's login is incomplete: {missing} is missing", hint="give both")
    return RegistryLogin(username, Secret(password), origin=where) if username else None


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield each path to check, and whether the user named it."""
    given = {name: environ.get(name, "").strip() for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG")}
    if file := given["REGISTRY_AUTH_FILE"]:
        yield file, True
    if folder := given["DOCKER_CONFIG"]:
        yield folder, True  # Docker wants a folder here, but some people name the file itself
        for name in ("config.json", ".dockerconfigjson"):  # the second one is the only key of a mounted secret
            yield os.path.join(folder, name), True
    elif home := environ.get("HOME", "").strip():
        yield os.path.join(home, ".docker", "config.json"), False
    if runtime := environ.get("XDG_RUNTIME_DIR", "").strip():
        yield os.path.join(runtime, "containers", "auth.json"), False
    yield os.path.join(_TEKTON, ".docker", "config.json"), False


def _parsed(text: str, where: str) -> DockerConfig:
    try:
        return parse_docker_config(text, where)
    except Malformed as problem:
        raise RegistryAccessError(f"Docker's config ({where}) {problem.message}", hint=problem.hint) from None
