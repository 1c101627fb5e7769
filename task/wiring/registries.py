"""Creates a run's registry client, with credentials, and limits what annotations may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache, partial

from task.argocd.cluster_secrets import ClusterSecrets
from task.command_kinds import kind_of
from task.errors import Malformed, RegistryError, TargetError, UsageError
from task.files import read_text
from task.git.credentials import certificates
from task.model import KeySecret, Question
from task.output.log import Log
from task.proof import Demand, Identity
from task.registry.api import LIMITS
from task.registry.client import Registry
from task.registry.docker_config import RegistryLogin, hosts_of, normal, password_of
from task.registry.endpoint import read_registries_conf
from task.registry.logins import Logins
from task.registry.proofs import Asked, Check, Prover
from task.repository_config.config import PATH
from task.settings import Settings, VerifyOptions
from task.threads import once


def registry_of(
    settings: Settings,
    environ: Mapping[str, str],
    log: Log,
    opened: ExitStack,
    cluster: Callable[[], ClusterSecrets] | None,
) -> Registry:
    """Return the client for all registries of a run. `opened` closes it at the end of the run.

    Raises `UsageError` for invalid settings. Nothing is contacted yet.

    `cluster` returns the secrets that annotations can use, or is None if Applications are not read
    from a cluster.
    """
    options = settings.registry
    read_secret = partial(_registry_secret, cluster) if cluster else None
    logins = Logins(
        environ,
        _logins_from_options(settings, environ),
        read_secret,
        allow_env=options.allow_env,
        allow_exec=options.allow_exec,
        namespace=settings.sources.argocd_namespace,
    )
    entries = read_registries_conf(options.registries_conf) if options.registries_conf else ()
    is_optional = settings.registry_check == "auto" and not kind_of(settings.command).lists_tags
    tries = 2 if is_optional else 3  # with "auto", a run may continue without a response
    limits = replace(LIMITS, connect=5.0, silence=15.0, tries=tries)
    registry = Registry(
        logins,
        lambda line: log("debug", line),
        entries=entries,
        ca=certificates(settings.access.ca_file),
        cache_dir=options.registry_cache_dir,
        limits=limits,
    )
    return opened.enter_context(closing(registry))


def _registry_secret(
    cluster: Callable[[], ClusterSecrets], namespace: str, name: str
) -> Mapping[str, bytes]:
    """Return the values in a secret with registry credentials, by their keys. The connection to the
    cluster is not opened before this is called.
    """
    return cluster().of_registry(namespace, name)


def prover_of(
    options: VerifyOptions,
    registry: Callable[[], Registry],
    secrets: Callable[[], ClusterSecrets | None],
    log: Log,
) -> Prover:
    """Return the prover, which verifies image signatures. Raises `UsageError` immediately if the
    options cannot work.

    `secrets` returns the cluster's secrets, or None if they cannot be read.
    """
    wanted_proofs = WantedProofs(options, secrets, lambda line: log("debug", line))
    return Prover(registry, wanted_proofs, options.verify_timeout, lambda line: log("info", line))


class WantedProofs:
    """The proofs (signatures) that an image needs, as required by the command line, its
    ImageUpdater, and the repository's config.

    Thread-safe. Raises `UsageError` immediately for options that cannot work.
    """

    def __init__(
        self,
        given: VerifyOptions,
        secrets: Callable[[], ClusterSecrets | None],
        log: Callable[[str], None],
    ) -> None:
        """`given` are the command-line options. `secrets` returns the cluster's secrets, or None if
        they cannot be read.
        """
        self._secrets = once(secrets)
        self._keyless = once(lambda: _keyless(given.trust_root, log))
        # many images share a key or a demand
        self._of_secret = cache(self._check_of_secret)
        self._of_demand = cache(self._check_of_demand)
        if given.trust_root:
            try:
                read_text(given.trust_root)
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not a text file"
                message = f"--trust-root: cannot read {given.trust_root!r}: {why}"
                raise UsageError(message, hint="use the file with the trusted root") from error
        self._from_options: tuple[Asked, ...] = ()
        if given.verify:
            self._from_options = (Asked([_key_check(given.verify)]),)
        elif given.verify_identity:
            identities = (Identity(given.verify_identity, given.verify_issuer),)
            check = self._keyless()(identities, exact=True)
            self._from_options = (Asked([check]),)

    def __call__(self, question: Question) -> Sequence[Asked]:
        """Return the signature checks that an image must pass. Raises `TaskError` if a key is not
        available.
        """
        from_resource = [self._of_secret(question.signed_by)] if question.signed_by else []
        from_config = map(self._of_demand, question.demands)
        return (*self._from_options, *from_resource, *from_config)

    def _check_of_secret(self, key: KeySecret) -> Asked:
        """Return the check that verifies signatures with a public key. The key is in a secret in
        the cluster, and an ImageUpdater names that secret. Raises `RegistryError` if the key cannot
        be used.
        """
        secrets = self._secrets()
        if secrets is None:
            raise RegistryError(
                f"imagesVerification refers to the key in secret {key}, but no cluster is"
                " available",
                hint="set the cluster that contains it: --kubeconfig or --applications cluster",
            )
        text = secrets.public_key(key)
        try:
            check = _key_check(f"secret {key}", text)
        except Malformed as error:
            message = f"imagesVerification: secret {key}: {error.message}"
            raise RegistryError(
                message, hint=error.hint or "add cosign.pub to the secret"
            ) from None
        return Asked([check], by=f"; imagesVerification requires the key in secret {key}")

    def _check_of_demand(self, demand: Demand) -> Asked:
        """Return the checks that a rule in the repository's config (`demand`) requires. They verify
        signatures with public keys from files, and keyless signatures by identity. Raises
        `TargetError` for an invalid key.
        """
        checks = []
        for path, text in demand.texts:
            try:
                checks.append(_key_check(path, text))
            except Malformed as error:
                message = f"{PATH}, line {demand.line}: {path}: {error.message}"
                hint = error.hint or "add a public key to the file"
                raise TargetError(message, hint=hint) from None
        if demand.identities:
            checks.append(self._keyless()(demand.identities))
        return Asked(checks, demand, f"; {PATH}, line {demand.line}, requires it")


def _key_check(name: str, text: str | None = None) -> Check:
    """Return a check that verifies signatures with public keys in PEM format: those in `text`, or,
    if that is None, those in the file `name`.

    Raises `Malformed` and `UsageError`.
    """
    # Imported late, because cryptography takes 40 ms of CPU time, and few runs verify signatures
    # with keys.
    from task.registry.public_keys import PublicKeys, keys_in, keys_of_file

    return keys_of_file(name) if text is None else PublicKeys(keys_in(text), name)


def _keyless(trust_root: str, log: Callable[[str], None]) -> Callable[..., Check]:
    """Return a function that creates a check for keyless signatures, which name the signer's
    identity instead of a key.

    Raises `UsageError` if the required package is missing.
    """
    try:
        # Imported late, because the package is an extra, takes 230 ms to import, and is rarely
        # needed.
        from task.registry.keyless import Keyless, Sigstore
    except ImportError:
        hint = "install argocd-image-update[sigstore], or require signatures by a key"
        raise UsageError("keyless signatures require the sigstore package", hint=hint) from None
    return partial(Keyless, Sigstore(log, trust_root))


def _logins_from_options(
    settings: Settings, environ: Mapping[str, str]
) -> Mapping[str, RegistryLogin]:
    """Return the credentials from the options, by registry. Raises `UsageError` if they do not say
    which registry the password is for.
    """
    options = settings.registry
    login = password_of(options.registry_username, options.registry_password_file, environ)
    if login is None:
        return {}
    registries = options.registry_credentials_for
    if not registries:  # without this check, the Application's owner would choose the registry
        raise UsageError(
            "a registry password is set, but not the registry that it is for",
            hint="set the registry, such as --registry-credentials-for ghcr.io, or ghcr.io/acme",
        )
    login = replace(login, hosts=hosts_of(registries))
    return dict.fromkeys(map(normal, registries), login)
