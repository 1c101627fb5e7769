"""Creates the registries of a run, with their logins and what annotations may name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from threading import Lock

from task.argocd.cluster_secrets import ClusterSecrets
from task.errors import Malformed, RegistryError, TaskError, UsageError
from task.git.credentials import certificates
from task.model import KeySecret, Question
from task.output.log import Log
from task.registry.api import LIMITS
from task.registry.client import Registry, Ways, read_registries_conf
from task.registry.config_files import password_of
from task.registry.docker_config import hosts_of
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
    """Return all registries of one run. Raises `UsageError` for invalid settings. Nothing is contacted yet.

    `cluster`: the secrets that annotations may name, if Applications are read from a cluster.
    """
    given = settings.registry
    secret: Callable[[str, str], Mapping[str, bytes]] | None = None
    if cluster:

        def secret(namespace: str, name: str) -> Mapping[str, bytes]:
            return cluster().of_registry(namespace, name)

    logins = Logins(
        environ,
        _given(settings, environ),
        Allowed(given.allow_env, given.allow_exec, settings.sources.argocd_namespace),
        secret,
    )
    conf = read_registries_conf(given.registries_conf) if given.registries_conf else ()
    authorities = certificates(settings.access.ca_file)
    hurried = replace(LIMITS, connect=5.0, silence=15.0, tries=2)
    limits = (
        hurried
        if settings.decide.registry_check == "auto" and settings.command != "scan"
        else replace(hurried, tries=3)
    )
    found = Registry(
        logins,
        Ways(entries=conf, ca=authorities, cache_dir=given.registry_cache_dir, limits=limits),
        lambda line: log("debug", line),
    )
    opened.callback(found.close)
    return found


def signatures_of(settings: Settings, registry: Registry, log: Log) -> Signatures:
    """Return a check of signatures, as the settings require. Raises `UsageError` for text that is not a key."""
    given = settings.verify
    check: Check
    if given.verify:
        # Imported late: cryptography costs every pod 40 ms of processor time, and few runs verify signatures with keys.
        from task.registry.public_keys import keys_of_file  # noqa: PLC0415

        check = keys_of_file(given.verify)
    else:
        check = Keyless(given.verify_identity, given.verify_issuer, lambda line: log("debug", line))
    return Signatures(registry, check, given.verify_timeout, lambda line: log("info", line))


class KeysOfResources:
    """Checks signatures with the keys that ImageUpdaters name. Safe to use from several threads."""

    def __init__(
        self,
        registry: Callable[[], Registry],
        secrets: Callable[[], ClusterSecrets] | None,
        timeout: float,
        log: Log,
    ) -> None:
        """`secrets`: those of the cluster, or None if they cannot be read."""
        self._registry, self._secrets, self._timeout, self._log = registry, secrets, timeout, log
        self._lock = Lock()
        self._opened: dict[KeySecret, Signatures | TaskError] = {}

    def __call__(self, questions: Collection[Question]) -> Mapping[Question, str | TaskError]:
        """As `Signatures`, each by the key that the question names."""
        by_key: dict[KeySecret, list[Question]] = {}
        for question in questions:
            if question.signed_by:
                by_key.setdefault(question.signed_by, []).append(question)
        answers: dict[Question, str | TaskError] = {}
        for key, members in by_key.items():
            signatures = self._of(key)
            if isinstance(signatures, TaskError):
                answers |= dict.fromkeys(members, signatures)
                continue
            for question, why in signatures(members).items():
                told = isinstance(why, TaskError) or not why
                answers[question] = why if told else f"{why}; imagesVerification wants the key of secret {key}"
        return answers

    def _of(self, key: KeySecret) -> Signatures | TaskError:
        with self._lock:
            if key not in self._opened:
                try:
                    self._opened[key] = self._open(key)
                except TaskError as error:
                    self._opened[key] = error
            return self._opened[key]

    def _open(self, key: KeySecret) -> Signatures:
        # Imported late, as above.
        from task.registry.public_keys import PublicKeys, keys_in  # noqa: PLC0415

        if self._secrets is None:
            raise RegistryError(
                f"imagesVerification names the key of secret {key}, and no cluster is available",
                hint="give the cluster that has it: --kubeconfig, or --applications cluster",
            )
        text = self._secrets().public_key(key)
        try:
            check = PublicKeys(keys_in(text))
        except Malformed as error:
            message = f"imagesVerification: secret {key}: {error.message}"
            raise RegistryError(message, hint=error.hint or "put cosign.pub into it") from None
        return Signatures(self._registry(), check, self._timeout, lambda line: self._log("info", line))


def _given(settings: Settings, environ: Mapping[str, str]) -> RegistryLoginOptions | None:
    """Return the login from options, with the registries that it is for."""
    given = settings.registry
    login = password_of(given.registry_username, given.registry_password_file, environ)
    if login is None:
        return None
    if not given.registry_credentials_for:  # the owner of an Application chooses the registry
        raise UsageError(
            "a registry's password is given, but not for which registry",
            hint="name it: --registry-credentials-for ghcr.io, or ghcr.io/acme",
        )
    named = given.registry_credentials_for
    return RegistryLoginOptions(replace(login, hosts=hosts_of(named)), named)
