"""Registries: who they are asked as, and what annotations may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace

from task.argocd.cluster_secrets import ClusterSecrets
from task.errors import UsageError
from task.files import read_text
from task.output.log import Log
from task.registry.api import LIMITS
from task.registry.client import Registry, Ways, read_registries_conf
from task.registry.config_files import password_of
from task.registry.keyless import Keyless
from task.registry.logins import Allowed, Logins, RegistryLoginOptions
from task.registry.signatures import Check, Signatures
from task.settings import Settings


def registry_of(
    settings: Settings,
    environ: Mapping[str, str],
    log: Log,
    opened: ExitStack,
    cluster: Callable[[], ClusterSecrets] | None,
) -> Registry:
    """All registries of one run. Raises `UsageError` for what makes no sense; nothing is contacted yet.

    `cluster`: the secrets that annotations may name, if Applications are read from a cluster.
    """
    given = settings.registry
    secret: Callable[[str, str], Mapping[str, bytes]] | None = None
    if cluster:

        def secret(namespace: str, name: str) -> Mapping[str, bytes]:
            return cluster().of_registry(namespace, name)

    logins = Logins(
        environ, _given(settings, environ), Allowed(given.env, given.execute, settings.argocd_namespace), secret
    )
    conf = read_registries_conf(given.conf) if given.conf else ()
    authorities = _text(settings.git.access.ca_file, "--ca-file") if settings.git.access.ca_file else ""
    hurried = replace(LIMITS, connect=5.0, silence=15.0, tries=2)
    limits = hurried if settings.check == "auto" and settings.command != "scan" else replace(hurried, tries=3)
    found = Registry(
        logins,
        Ways(entries=conf, ca=authorities, cache_dir=given.cache_dir, limits=limits),
        lambda line: log("debug", line),
    )
    opened.callback(found.close)
    return found


def signatures_of(settings: Settings, registry: Registry, log: Log) -> Signatures:
    """Whether images are signed as the settings want. Raises `UsageError` for text that is not a key."""
    given = settings.verify
    check: Check
    if given.keys:
        # Late: cryptography costs every pod 40 ms of processor time, and few verify signatures by keys.
        from task.registry.public_keys import PublicKeys  # noqa: PLC0415

        check = PublicKeys(given.keys)
    else:
        check = Keyless(given.identity, given.issuer, lambda line: log("debug", line))
    return Signatures(registry, check, given.timeout, lambda line: log("info", line))


def _given(settings: Settings, environ: Mapping[str, str]) -> RegistryLoginOptions | None:
    """The login that options give, and which registries it is for."""
    given = settings.registry
    login = password_of(given.username, given.password_file, environ)
    if login is None:
        return None
    if not given.scopes:  # an Application's owner chooses the registry
        raise UsageError(
            "a registry's password is given, but not for which registry",
            hint="name it: name it: --registry-credentials-for ghcr.io, or ghcr.io/acme",
        )
    return RegistryLoginOptions(login, given.scopes)


def _text(path: str, option: str) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{option}: cannot read {path!r}: {why}", hint="name a readable file") from None
