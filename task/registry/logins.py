"""Which login a registry gets: what an annotation or registries.conf names, what options give, Docker's config files.

A source that is named and cannot be used is an error: no other one is tried. What an Application's owner names is not
trusted: secrets of other namespaces, variables that nobody allowed and scripts are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from threading import Lock

from task.annotations.credential_source import CredentialSource, parse_credential_source
from task.errors import AnnotationError, Malformed, RegistryAccessError, RegistryError
from task.registry import programs
from task.registry.config_files import config_files
from task.registry.docker_config import DockerConfig, RegistryLogin, best_key, normal, parse_docker_config, server_of
from task.secret import Secret

# (namespace, name) → the data of a secret of the cluster. Raises `LookupError` where there is none, `Malformed` for one
# that is no login for a registry.
Secrets = Callable[[str, str], Mapping[str, bytes]]

_ANNOTATION = "pull-secret"
_NO_USER = frozenset(" \"'{}[]")


@dataclass(frozen=True)
class RegistryLoginOptions:
    """A login that options give, and the registries or repositories it is for: `ghcr.io`, `ghcr.io/acme`."""

    login: RegistryLogin
    scopes: tuple[str, ...]


@dataclass(frozen=True)
class Allowed:
    """What an annotation may name."""

    env: Collection[str] = ()  # variables of `env:`; registries.conf may name any
    execute: bool = False  # `ext:`, in registries.conf as well
    namespace: str = ""  # the control plane's: its secrets, besides those of the Application's own namespace


class Logins:
    """All logins of one run. Safe to use from several threads."""

    def __init__(
        self,
        environ: Mapping[str, str],
        given: RegistryLoginOptions | None = None,
        allowed: Allowed = Allowed(),
        secret: Secrets | None = None,
    ) -> None:
        self._environ, self._given, self._allowed, self._secret = environ, given, allowed, secret
        self._lock = Lock()
        self._known: dict[object, tuple[RegistryLogin | None, float]] = {}
        self._files: tuple[DockerConfig, ...] | None = None
        self._helped: dict[tuple[str, str], RegistryLogin | None] = {}  # by helper and server

    def of_annotation(self, text: str, namespace: str, host: str, repository: str) -> RegistryLogin | None:
        """The login that `pull-secret` names, for the registry at `host`.

        Raises `RegistryError` and its kinds; `AnnotationError` for a secret that the Application's owner may not name.
        """
        try:
            source = parse_credential_source(text)
        except Malformed as problem:
            raise RegistryError(f"pull-secret: {problem.message}", hint=problem.hint) from None
        self._check(source, namespace)
        subject = _subject(source, host, repository)
        return self._once(subject, 0, lambda: self._named(source, _ANNOTATION, host, repository))

    def of_conf(self, source: CredentialSource, expire: float, host: str, repository: str) -> RegistryLogin | None:
        """The login that registries.conf names; asked for again after `expire` seconds."""
        if source.kind == "ext":
            self._check_script()
        where = "credentials in registries.conf"
        subject = _subject(source, host, repository)
        return self._once(subject, expire, lambda: self._named(source, where, host, repository))

    def of_host(self, host: str, repository: str) -> RegistryLogin | None:
        """The login that options or Docker's config files have for a registry; None where there is none."""
        return self._once((host, repository), 0, lambda: self._from_options(host, repository))

    def _once(self, key: object, expire: float, find: Callable[[], RegistryLogin | None]) -> RegistryLogin | None:
        with self._lock:
            known = self._known.get(key)
            if known is None or known[1] < time.monotonic():
                known = self._known[key] = (find(), time.monotonic() + (expire or float("inf")))
            return known[0]

    def _check(self, source: CredentialSource, namespace: str) -> None:
        """Whether the owner of an Application may name this."""
        if source.kind in ("secret", "pullsecret") and source.namespace not in (namespace, self._allowed.namespace):
            raise AnnotationError(
                f"pull-secret names a secret of namespace {source.namespace}, the Application is in {namespace}",
                hint="only secrets of the Application's own namespace and of Argo CD's are taken",
            )
        if source.kind == "env" and source.env not in self._allowed.env:
            raise RegistryError(
                f"pull-secret: the variable {source.env[:100]!r} is not one that annotations may name",
                hint="the pipeline's author allows variables one by one; registries.conf may name any",
            )
        if source.kind == "ext":
            self._check_script()

    def _check_script(self) -> None:
        if not self._allowed.execute:
            raise RegistryError("ext: credentials need --allow-exec", hint="allow it, or name a secret or a variable")

    def _named(self, source: CredentialSource, where: str, host: str, repository: str) -> RegistryLogin | None:
        if source.registry and best_key({normal(source.registry): ""}, host, repository) is None:
            return self._from_options(host, repository)
        if source.kind == "env":
            return _pair(self._environ.get(source.env, ""), f"{where}, variable {source.env}")
        if source.kind == "ext":
            return _pair(programs.script(source.script, self._environ), f"{where}, script {source.script}")
        return self._from_secret(source, where, host, repository)

    def _from_secret(self, source: CredentialSource, where: str, host: str, repository: str) -> RegistryLogin:
        name = f"secret {source.namespace}/{source.name}"
        if self._secret is None:
            raise RegistryError(
                f"{where} names {name}, and no cluster is at hand",
                hint="read Applications from the cluster, or give the login by Docker's config file or options",
            )
        try:
            data = self._secret(source.namespace, source.name)
        except LookupError:
            raise RegistryAccessError(f"{where}: there is no {name}", hint="create it, or name another one") from None
        except Malformed as refused:
            kind = AnnotationError if where == _ANNOTATION else RegistryError
            raise kind(f"{where}: {refused.message}", hint=refused.hint) from None
        fields = (source.field, ".dockercfg") if source.kind == "pullsecret" else (source.field,)
        raw = next((data[field] for field in fields if field in data), None)
        if raw is None:
            raise RegistryAccessError(f"{where}: {name} has no field {source.field}", hint="check the secret")
        text = raw.decode("utf-8", "replace")
        if source.kind == "secret":
            return _pair(text, f"{where}, {name}")
        try:
            config = parse_docker_config(text, f"{where}, {name}")
        except Malformed as problem:
            raise RegistryAccessError(f"{where}, {name} {problem.message}", hint=problem.hint) from None
        key = best_key(config.logins, host, repository)
        if key is None:
            message = f"{where}, {name} holds no login for {host}"
            raise RegistryAccessError(message, hint="add one, or name another secret")
        return config.logins[key]

    def _from_options(self, host: str, repository: str) -> RegistryLogin | None:
        given = self._given
        if given and best_key({normal(scope): "" for scope in given.scopes}, host, repository) is not None:
            return given.login
        if self._files is None:
            self._files = config_files(self._environ)
        found = (self._from_file(config, host, repository) for config in self._files)
        return next((login for login in found if login is not None), None)

    def _from_file(self, config: DockerConfig, host: str, repository: str) -> RegistryLogin | None:
        """The longest key wins; a helper named for the registry goes before the helper for all."""
        key, helped = best_key(config.logins, host, repository), best_key(config.helpers, host, repository)
        if helped and len(helped) >= len(key or ""):
            return self._help(config.helpers[helped], server_of(helped), needed=True)
        if key:
            return config.logins[key]
        return self._help(config.store, server_of(normal(host)), needed=False) if config.store else None

    def _help(self, name: str, server: str, *, needed: bool) -> RegistryLogin | None:
        """Each helper is asked once for each registry, however many repositories that has."""
        if (name, server) not in self._helped:
            self._helped[name, server] = programs.helper(name, server, self._environ, needed=needed)
        return self._helped[name, server]


def _subject(source: CredentialSource, host: str, repository: str) -> tuple[object, ...]:
    """What the login of a source depends on: only a pull secret may hold several."""
    return (source, host, repository) if source.kind == "pullsecret" or source.registry else (source,)


def _pair(text: str, where: str) -> RegistryLogin:
    """`user:password`; the first colon divides.

    JSON and PEM hold colons, too: what was never meant as a login is not sent to a registry as one.
    """
    user, colon, password = text.strip().partition(":")
    if not (user and colon and password) or not user.isprintable() or _NO_USER & set(user):
        raise RegistryAccessError(f"{where}: holds no user:password", hint="write user:password")
    return RegistryLogin(user, Secret(password), origin=where)
