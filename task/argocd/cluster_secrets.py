"""Reads credentials from a cluster: Argo CD's repository secrets, and secrets that annotations
name.

The owner of an Application is not trusted. Secrets are read only from the Application's own
namespace and from the control plane's, and Argo CD's own secrets are used only for their intended
purpose. Servers are verified against Argo CD's known hosts and certificates.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

from task.argocd.repo_secrets import (
    LABEL,
    REPOSITORY,
    TEMPLATE,
    RepoCredentials,
    RepoSecret,
    argo_cds_kind,
    choose,
    may_log_in,
    named_credentials,
    repo_secret,
    secret_place,
)
from task.errors import AnnotationError, CredentialsError, Malformed
from task.kubernetes.client import SECRETS, ForbiddenError, Kubernetes
from task.model import KeySecret
from task.plain_data import mapping, text
from task.urls import split

KNOWN_HOSTS = "argocd-ssh-known-hosts-cm"
AUTHORITIES = "argocd-tls-certs-cm"


class ClusterSecrets:
    """Reads secrets when they are first needed, once per run.

    Thread-safe. Raises the errors of `Kubernetes`.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        argocd_namespace: str = "argocd",
        log: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._kubernetes = kubernetes
        self._argocd_namespace = argocd_namespace
        self._log = log
        self._lock = Lock()
        self._repo_secrets: tuple[RepoSecret, ...] | None = None  # None until first needed
        self._config_maps: dict[str, Mapping[str, str]] = {}

    def repository(self, url: str, project: str = "") -> RepoCredentials | None:
        """Return the credentials that Argo CD uses for the repository at this URL, or None if there
        are none or we are not allowed to read them.
        """
        with self._lock:
            if self._repo_secrets is None:  # not loaded yet
                self._repo_secrets = self._list_repo_secrets()
            credentials = choose(self._repo_secrets, url, project)
            if credentials is None:
                return None
            return self._with_server_settings(credentials, url)

    def named(
        self,
        place: str,
        url: str,
        namespace: str,
        project: str = "",
    ) -> RepoCredentials:
        """Return the credentials from the secret that an annotation names (`git:secret:…`).

        `place` is `secret:<namespace>/<name>`, or `secret:<name>` for a secret in the Application's
        own namespace. `namespace` and `project` are the Application's.

        Raises `AnnotationError` if the Application is not allowed to use the secret for this URL,
        and `CredentialsError` if the secret is missing or lacks what the URL needs.
        """
        secret_namespace, name = secret_place(place, namespace)
        secret = f"{secret_namespace}/{name}"
        if secret_namespace not in (namespace, self._argocd_namespace):
            raise AnnotationError(
                f"secret {secret} is not in the Application's namespace ({namespace})",
                hint="use a secret in the Application's own namespace, or in Argo CD's",
            )
        item = self._kubernetes.get(SECRETS, secret_namespace, name)
        if item is None:
            raise CredentialsError(
                f"secret {secret} not found",
                hint="create it, or use another secret",
            )
        kind = argo_cds_kind(item)
        belongs_to_argo_cd = bool(kind)
        data = _text_values(item)
        # Of the secrets in other namespaces, only Argo CD's own may be used, and only if
        # `may_log_in` allows it.
        if not belongs_to_argo_cd and secret_namespace != namespace:
            raise AnnotationError(
                f"secret {secret} is for Applications in namespace {secret_namespace}, but this"
                f" Application is in {namespace}",
                hint=(
                    "use a secret in the Application's own namespace, or have a repository secret"
                    " created in Argo CD"
                ),
            )
        if belongs_to_argo_cd:
            may_log_in(secret, kind, data, url, project)
        # `owners`: whether the secret belongs to the Application's owner
        credentials = replace(named_credentials(secret, url, data), owners=not belongs_to_argo_cd)
        with self._lock:  # so that each ConfigMap is read only once across all threads
            return self._with_server_settings(credentials, url)

    def of_registry(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return the decoded values of a registry secret. The caller must check who is allowed to
        use the secret.

        Raises `LookupError` if the secret is missing, and `Malformed` if it belongs to Argo CD.
        """
        item = self._kubernetes.get(SECRETS, namespace, name)
        if item is None:
            raise LookupError(name)
        if argo_cds_kind(item):
            # The value of `secret:argocd/cluster-prod#config` is JSON, which contains a colon like
            # a username:password pair, so a cluster's token could be sent to any registry.
            raise Malformed(
                f"secret {namespace}/{name} belongs to Argo CD and does not contain registry"
                " credentials",
                "use a secret created for this registry",
            )
        return _decoded_values(item)

    def public_key(self, key: KeySecret) -> str:
        """Return the public key for an ImageUpdater's `imagesVerification` from a Secret.

        Raises `CredentialsError`, `AnnotationError`, and the errors of `Kubernetes`.

        Error messages never contain the Secret's content, because the ImageUpdater's author chooses
        which Secret is read.
        """
        secret_name = f"{key.namespace}/{key.name}"
        item = self._kubernetes.get(SECRETS, key.namespace, key.name)
        if item is None:
            hint = (
                f"kubectl -n {key.namespace} create secret generic {key.name}"
                f" --from-file={key.key}=cosign.pub"
            )
            raise CredentialsError(f"imagesVerification: secret {secret_name} not found", hint=hint)
        if argo_cds_kind(item):
            raise AnnotationError(
                f"imagesVerification: secret {secret_name} belongs to Argo CD",
                hint="use a secret created for this key",
            )
        public_key = _text_values(item).get(key.key, "")
        if not public_key:
            raise CredentialsError(
                f"imagesVerification: secret {secret_name} has no text at {key.key!r}",
                hint="check cosignKey.key, and the secret",
            )
        return public_key

    def _list_repo_secrets(self) -> tuple[RepoSecret, ...]:
        """Return Argo CD's repository secrets of both kinds (`repository` and `repo-creds`), or ()
        if we are not allowed to list secrets.
        """
        secrets: list[RepoSecret] = []
        try:
            for kind in (REPOSITORY, TEMPLATE):
                secrets += self._secrets_of_kind(kind)
        except ForbiddenError as error:
            self._log(
                "info",
                f"Argo CD's repository secrets are not used: {error.message}; {error.hint}",
            )
            return ()
        return tuple(secrets)

    def _secrets_of_kind(self, kind: str) -> Iterator[RepoSecret]:
        """Yield Argo CD's secrets of this kind (a label's value): `repository` or `repo-creds`.

        Secrets that are not for Git are skipped, and invalid secrets are logged and skipped. Raises
        `ForbiddenError` if we are not allowed to list secrets.
        """
        selector = f"{LABEL}={kind}"
        items = self._kubernetes.list(SECRETS, self._argocd_namespace, selector=selector, full=True)
        for item in items:
            name = f"{self._argocd_namespace}/{text(item, 'metadata', 'name')}"
            try:
                secret = repo_secret(kind, name, _text_values(item))
            except CredentialsError as error:  # one invalid secret does not affect the others
                self._log("warning", f"{error.message}: it is skipped; {error.hint}")
                continue
            if secret:
                yield secret

    def _with_server_settings(self, credentials: RepoCredentials, url: str) -> RepoCredentials:
        """Return the credentials, plus the data from Argo CD's ConfigMaps that is needed to verify
        the URL's server: CA certificates for an HTTP URL, or else SSH known hosts.
        """
        if url.lower().startswith(("https://", "http://")):
            host = split(url).host.strip("[]")  # the ConfigMap's keys are host names without ports
            authorities = self._config_map(AUTHORITIES).get(host, "")
            return replace(credentials, authorities=authorities)
        known_hosts = self._config_map(KNOWN_HOSTS).get("ssh_known_hosts", "")
        return replace(credentials, known_hosts=known_hosts)

    def _config_map(self, name: str) -> Mapping[str, str]:
        """Return one of Argo CD's ConfigMaps, or {} if we are not allowed to read it."""
        if name not in self._config_maps:
            try:
                config_map = self._kubernetes.config_map(self._argocd_namespace, name)
            except ForbiddenError as error:
                self._log("info", f"{error.message}; {error.hint}")
                config_map = {}
            self._config_maps[name] = config_map
        return self._config_maps[name]


def _decoded_values(item: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the decoded values of a secret."""
    values = {}
    for key, encoded in mapping(item, "data").items():
        try:
            values[key] = b64decode(encoded or "")
        except (ValueError, TypeError):
            continue  # an API server never returns invalid base64
    return values


def _text_values(item: Mapping[str, Any]) -> dict[str, str]:
    """Return a secret's decoded values, omitting any that are not UTF-8 text. Credentials always
    are.
    """
    texts = {}
    for key, content in _decoded_values(item).items():
        try:
            texts[key] = content.decode()
        except UnicodeDecodeError:
            continue
    return texts
