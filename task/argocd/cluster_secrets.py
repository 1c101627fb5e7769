"""Credentials in a cluster: Argo CD's repository secrets, and secrets set in annotations.

The owner of an Application is not trusted. Only secrets in the Application's own namespace and in
the control plane's are read, and Argo CD's own secrets are used only for their purpose. Servers are
verified with Argo CD's known hosts and certificates.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
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
    """Reads secrets on first use, once per run.

    Thread-safe. Raises the errors of `Kubernetes`.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        argocd_namespace: str = "argocd",
        log: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._kubernetes = kubernetes
        self._home = argocd_namespace
        self._log = log
        self._lock = Lock()
        self._secrets: tuple[RepoSecret, ...] | None = None
        self._maps: dict[str, Mapping[str, str]] = {}

    def repository(self, url: str, project: str = "") -> RepoCredentials | None:
        """Return the credentials that Argo CD uses for this repository, or None if they do not
        exist or we are not allowed to read them.
        """
        with self._lock:
            if self._secrets is None:
                self._secrets = self._listed()
            found = choose(self._secrets, url, project)
            return None if found is None else self._with_server(found, url)

    def named(
        self,
        place: str,
        url: str,
        namespace: str,
        project: str = "",
    ) -> RepoCredentials:
        """Return the credentials from the secret in `git:secret:…`: `secret:[<namespace>/]<name>`.

        Raises `AnnotationError` if an Application in this namespace and project is not allowed to
        use the secret for this URL, and `CredentialsError` if the secret is missing or does not
        match the URL.
        """
        home, name = secret_place(place, namespace)
        secret = f"{home}/{name}"
        if home not in (namespace, self._home):
            raise AnnotationError(
                f"secret {secret} is not in the Application's namespace ({namespace})",
                hint="use a secret in the Application's own namespace, or in Argo CD's",
            )
        item = self._kubernetes.get(SECRETS, home, name)
        if item is None:
            raise CredentialsError(
                f"secret {secret} not found",
                hint="create it, or use another secret",
            )
        kind = argo_cds_kind(item)
        data = _text_values(item)
        if not kind and home != namespace:
            raise AnnotationError(
                f"secret {secret} is for Applications in namespace {home}, but this Application is"
                f" in {namespace}",
                hint=(
                    "use a secret in the Application's own namespace, or have a repository secret"
                    " created in Argo CD"
                ),
            )
        if kind:
            may_log_in(secret, kind, data, url, project)
        found = named_credentials(secret, url, data)
        with self._lock:
            return self._with_server(replace(found, owners=not kind), url)

    def of_registry(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return the decoded values of a registry secret. The caller checks who is allowed to use
        it.

        Raises `LookupError` if it is missing, and `Malformed` if it is Argo CD's own.
        """
        item = self._kubernetes.get(SECRETS, namespace, name)
        if item is None:
            raise LookupError(name)
        if argo_cds_kind(item):
            # `secret:argocd/cluster-prod#config` is JSON with a colon, so a cluster's token could
            # go to any registry.
            raise Malformed(
                f"secret {namespace}/{name} belongs to Argo CD and does not contain registry"
                " credentials",
                "use a secret created for this registry",
            )
        return _bytes(item)

    def public_key(self, key: KeySecret) -> str:
        """Return an ImageUpdater's key.

        Raises `CredentialsError`, `AnnotationError`, and the errors of `Kubernetes`.

        Messages never show the Secret's content, because the resource's author chooses the Secret.
        """
        item = self._kubernetes.get(SECRETS, key.namespace, key.name)
        if item is None:
            hint = (
                f"kubectl -n {key.namespace} create secret generic {key.name}"
                f" --from-file={key.key}=cosign.pub"
            )
            raise CredentialsError(
                f"imagesVerification: secret {key.namespace}/{key.name} not found",
                hint=hint,
            )
        if argo_cds_kind(item):
            message = f"imagesVerification: secret {key.namespace}/{key.name} belongs to Argo CD"
            raise AnnotationError(message, hint="use a secret created for this key")
        found = _text_values(item).get(key.key, "")
        if not found:
            message = (
                f"imagesVerification: secret {key.namespace}/{key.name} has no text at {key.key!r}"
            )
            raise CredentialsError(message, hint="check cosignKey.key, and the secret")
        return found

    def _listed(self) -> tuple[RepoSecret, ...]:
        """Return Argo CD's repository secrets, or () if we are not allowed to list them."""
        found = []
        try:
            for kind in (REPOSITORY, TEMPLATE):
                for item in self._kubernetes.list(
                    SECRETS,
                    self._home,
                    selector=f"{LABEL}={kind}",
                    full=True,
                ):
                    name = f"{self._home}/{text(item, 'metadata', 'name')}"
                    try:
                        secret = repo_secret(kind, name, _text_values(item))
                    except CredentialsError as error:  # the other secrets are still used
                        self._log("warning", f"{error.message}: it is skipped; {error.hint}")
                        continue
                    if secret:
                        found.append(secret)
        except ForbiddenError as error:
            self._log(
                "info",
                f"Argo CD's repository secrets are not used: {error.message}; {error.hint}",
            )
            return ()
        return tuple(found)

    def _with_server(self, found: RepoCredentials, url: str) -> RepoCredentials:
        """Add Argo CD's settings for the server."""
        if url.lower().startswith(("https://", "http://")):
            host = split(url).host.strip("[]")
            return replace(found, authorities=self._map(AUTHORITIES).get(host, ""))
        return replace(found, known_hosts=self._map(KNOWN_HOSTS).get("ssh_known_hosts", ""))

    def _map(self, name: str) -> Mapping[str, str]:
        """Return one of Argo CD's ConfigMaps, or {} if we are not allowed to read it."""
        if name not in self._maps:
            try:
                self._maps[name] = self._kubernetes.config_map(self._home, name)
            except ForbiddenError as error:
                self._log("info", f"{error.message}; {error.hint}")
                self._maps[name] = {}
        return self._maps[name]


def _bytes(item: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the decoded values of a secret."""
    found = {}
    for key, value in mapping(item, "data").items():
        try:
            found[key] = b64decode(value or "")
        except (ValueError, TypeError):
            continue  # the API server does not accept such a value
    return found


def _text_values(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the string values. Credentials only have string values."""
    found = {}
    for key, value in _bytes(item).items():
        try:
            found[key] = value.decode()
        except UnicodeDecodeError:
            continue
    return found
