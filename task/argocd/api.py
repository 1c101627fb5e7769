"""Argo CD's REST API: lists, reads, refreshes, and patches Applications, and finds the causes of
failed rollouts.

The API is a gRPC gateway: errors are JSON with `error`, `code` (gRPC's), and `message`. To hide
which Applications exist, the API also returns 403 "permission denied" for missing Applications.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from task.argocd.application_store import key_of, trouble
from task.argocd.connection import Connection, connection
from task.argocd.rollout_causes import ADVICE, crashing, passing
from task.errors import (
    AbsentError,
    Malformed,
    NoAnswerError,
    Outpaced,
    SourceAccessError,
    SourceDownError,
    SourceError,
    TaskError,
    UsageError,
)
from task.files import check_file, read_text
from task.http import Http, Limits, Response
from task.plain_data import mapping, mappings, parsed_json, text
from task.text import blanked, both_ends
from task.urls import origin, path_part, web_page

_IN_CLUSTER = re.compile(r"\.svc(\.|$)|\.local$")
KIND = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}
# The gateway only supports these full names (argo-cd server/application/forwarder_overwrite.go).
METADATA = ("metadata.name", "metadata.namespace", "metadata.annotations", "metadata.labels")
CRASHED = 3  # pods to read for the exit codes of their containers
REFRESH_PATIENCE = 15.0  # seconds; a refresh that takes longer still completes
_TOKEN = (
    "create a token with argocd account generate-token, and pass it in"  # noqa: S105
    " ARGOCD_AUTH_TOKEN or --argocd-auth-token-file"
)
_SERVER = "run it again; if that does not help, check --argocd-server"
_NOT_FOUND = 5  # gRPC's code
_SHORT = 4  # characters; a shorter secret would match parts of ordinary words
# The Application has changed: the patch's first operation tests the resourceVersion.
_MEANWHILE = ("too many conflicts", "testing value")
# The test succeeded, but the patch does not match.
_MALFORMED = ("error applying patch", "error unmarshaling patched app", "error decoding json patch")
_DENIED = re.compile(
    r"permission denied: (?P<permission>[^,]+, [^,]+, [^,]+)(?:, sub: (?P<who>[^,]+))?"
)


class ArgoCDApi:
    """An Argo CD server.

    Thread-safe. Errors are `SourceError`s: no access, down, not found.
    """

    def __init__(
        self,
        given: Connection,
        environ: Mapping[str, str],
        *,
        namespace: str = "argocd",
        limits: Limits = Limits(),
        log: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """`given` comes from options; environment variables provide missing values.

        Raises `UsageError` if they contradict each other.
        """
        try:
            self._to = connection(given, environ)
        except Malformed as error:
            raise UsageError(error.message, hint=error.hint) from None
        files = (self._to.ca_file, self._to.certificate, self._to.key, self._to.token_file)
        for path in filter(None, files):
            try:
                check_file(path)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or "it is not a path"
                raise UsageError(
                    f"Argo CD: cannot read {path!r}: {why}",
                    hint="specify a readable file",
                ) from None
        self.namespace = namespace
        self._http = self._client(limits, log)
        self._quick = self._client(
            replace(limits, silence=min(limits.silence, REFRESH_PATIENCE)),
            log,
        )

    def _client(self, limits: Limits, log: Callable[[str], None]) -> Http:
        to = self._to
        return Http(
            to.base,
            login=self._login,
            ca_file=to.ca_file,
            verify=not to.insecure,
            certificate=(to.certificate, to.key) if to.certificate else None,
            limits=limits,
            log=log,
        )

    def _login(self) -> dict[str, str]:
        """Return the token and the given headers.

        Both are sent only to this origin, because headers may contain a proxy's credentials.
        """
        headers = {header: value.reveal() for header, value in self._to.headers}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _token(self) -> str:
        """Return the token. It is read again each time, because the file may be renewed during a
        run.
        """
        if not self._to.token_file:
            token = self._to.token.reveal()
        else:
            try:
                token = read_text(self._to.token_file).strip()
            except (OSError, UnicodeDecodeError):
                raise SourceAccessError(
                    f"cannot read Argo CD's token file: {self._to.token_file!r}",
                    hint="make it readable",
                ) from None
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise SourceAccessError(
                "Argo CD's token is not valid: it contains spaces or other characters that are not"
                " allowed in a token",
                hint="copy it again from the output of argocd account generate-token",
            )
        return token

    def list_applications(
        self,
        fields: Sequence[str] = METADATA,
        *,
        projects: Sequence[str] = (),
        selector: str = "",
        namespace: str = "",
    ) -> list[dict[str, Any]]:
        """Return the Applications that the token has access to, with only these `fields`, or
        complete if there are none.
        """
        full_names = ["metadata.resourceVersion", *(f"items.{field}" for field in fields)]
        params: dict[str, Any] = {
            "fields": ",".join(full_names) if fields else None,
            "projects": list(projects) or None,
            "selector": selector or None,
            "appNamespace": namespace or None,
        }
        found = self._ask(
            "GET",
            "/api/v1/applications",
            "applications, get, */*",
            "the list of Applications",
            params,
        )
        items = found.get("items") or []
        if not isinstance(items, list):
            raise SourceDownError(
                "Argo CD returned something other than a list of Applications",
                hint=_SERVER,
            )
        return [{**KIND, **item} for item in mappings(found, "items")]

    def keys(self) -> Sequence[tuple[str, str]]:
        """Return (namespace, name) of every Application that the token has access to.

        Raises `SourceError`.
        """
        return [key_of(item) for item in self.list_applications(METADATA[:2])]

    def get_application(self, namespace: str, name: str, project: str = "") -> dict[str, Any]:
        """Return the Application.

        With the project, a missing Application raises `AbsentError`; without it, Argo CD returns
        "forbidden".
        """
        params = {**self._namespace_param(namespace), "project": project or None}
        permission, subject = self._permission("get", namespace, name)
        found = self._ask("GET", _path(name), permission, subject, params)
        return {**KIND, **found}

    def refresh_application(self, namespace: str, name: str) -> None:
        """Have Argo CD compare the Application with Git now. Return when the comparison is done, or
        after a while if it takes long.
        """
        params = {"refresh": "normal", **self._namespace_param(namespace)}
        permission, subject = self._permission("get", namespace, name)
        try:
            answer = self._quick.ask("GET", _path(name), params=params, again=False)
        except NoAnswerError as error:
            if error.kind == "slow":
                return
            raise unreachable(error, self._to) from None
        self._json_object(answer, permission, subject)

    def patch_application(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Apply a JSON patch, and return the changed Application.

        Raises `Outpaced` if it has changed in the meantime.
        """
        body = {
            "name": name,
            "patch": json.dumps(list(operations)),
            "patchType": "json",
            **self._namespace_param(namespace),
        }
        permission, subject = self._permission("update", namespace, name)
        changed = self._ask("PATCH", _path(name), permission, subject, body=body)
        return {**KIND, **changed}

    def resource_tree(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the Application's live resources, down to its pods, each with its health.

        The tree does not include exit codes of containers, so the first few crashing pods are read
        too.
        """
        permission, subject = self._permission("get", namespace, name)
        params = self._namespace_param(namespace)
        tree = self._ask("GET", f"{_path(name)}/resource-tree", permission, subject, params)
        for node in crashing(tree)[:CRASHED]:
            pod_params = {
                **params,
                "kind": "Pod",
                "version": "v1",
                "namespace": text(node, "namespace"),
                "resourceName": text(node, "name"),
            }
            with suppress(SourceError, ValueError):
                found = self._ask("GET", f"{_path(name)}/resource", permission, subject, pod_params)
                pod = parsed_json(text(found, "manifest"))
                _reason, message = trouble(mapping(pod, "status"))
                if message:
                    node["health"]["message"] = message  # `node` is a part of `tree`
        return tree

    def sync_windows(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the Application's sync windows: `assignedWindows`, `activeWindows`, `canSync`."""
        permission, subject = self._permission("get", namespace, name)
        params = self._namespace_param(namespace)
        return self._ask("GET", f"{_path(name)}/syncwindows", permission, subject, params)

    def application_set(self, namespace: str, name: str) -> dict[str, Any]:
        """Return an ApplicationSet."""
        path = f"/api/v1/applicationsets/{path_part(name)}"
        permission = f"applicationsets, get, <project>/{name}"
        return self._ask(
            "GET",
            path,
            permission,
            f"ApplicationSet {name}",
            {"appsetNamespace": namespace or None},
        )

    def project(self, namespace: str, name: str) -> dict[str, Any]:  # noqa: ARG002 - as in Kubernetes
        """Return an AppProject. AppProjects are in the control plane's namespace."""
        return self._ask(
            "GET",
            f"/api/v1/projects/{path_part(name)}",
            f"projects, get, {name}",
            f"AppProject {name}",
        )

    def web(self) -> str:
        """Return the UI's URL from Argo CD's settings, else the API's URL if people can reach it.

        Return "" if the address only works in the cluster. The settings can be read without a
        token.
        """
        with suppress(NoAnswerError):
            settings = self._http.ask("GET", "/api/v1/settings").mapping()
            page = web_page(text(settings, "url"))
            if page:
                return page.rstrip("/")
        host = self._to.server.partition(":")[0]
        is_public = "." in host and not _IN_CLUSTER.search(host)
        return self._to.base if is_public else ""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
        self._quick.close()

    def _ask(
        self,
        method: str,
        path: str,
        permission: str,
        subject: str,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        try:
            answer = self._http.ask(method, path, params=params, json=body)
        except NoAnswerError as error:
            raise unreachable(error, self._to) from None
        return self._json_object(answer, permission, subject, patched=method == "PATCH")

    def _json_object(
        self,
        answer: Response,
        permission: str,
        subject: str,
        *,
        patched: bool = False,
    ) -> dict[str, Any]:
        """Return the JSON object from a successful response. Raises our own error for any other
        response.
        """
        # the gateway does not return any other success status
        if answer.status == 200 and origin(answer.url) == origin(self._to.base):
            try:
                found = answer.json()
            except ValueError:
                found = None
            if isinstance(found, dict):
                return found
        # These must not appear in any message, even if the server sends them.
        headers = (value.reveal() for _, value in self._to.headers)
        secrets = tuple(filter(None, (self._token(), *headers)))
        raise explained(answer, self._to, permission, subject, secrets, patched=patched)

    def _namespace_param(self, namespace: str) -> dict[str, str]:
        return {"appNamespace": namespace} if namespace else {}

    def _permission(self, action: str, namespace: str, name: str) -> tuple[str, str]:
        """Return the RBAC permission that the action requires, and the object that it is for."""
        elsewhere = f"{namespace}/" if namespace not in ("", self.namespace) else ""
        return (
            f"applications, {action}, <project>/{elsewhere}{name}",
            f"{namespace or self.namespace}/{name}",
        )


def _path(name: str) -> str:
    if name in ("", ".", ".."):
        raise SourceError(
            f"{name!r} is not a valid Application name",
            hint="use the name that Argo CD shows",
        )
    return f"/api/v1/applications/{path_part(name)}"


def unreachable(error: NoAnswerError, to: Connection) -> TaskError:
    """Return the error for a request without a response."""
    message = f"Argo CD: {error.message}"
    if error.kind == "tls":
        hint = (
            "pass its certificate authority with --argocd-ca-file; for a server without TLS, pass"
            " --argocd-plaintext"
        )
        return SourceAccessError(message, hint=hint)
    if error.kind == "redirect":
        return SourceAccessError(
            message,
            hint="set --argocd-server to the address it redirects to",
        )
    if error.kind == "large":
        return SourceError(
            message,
            hint="select fewer Applications: --project, --selector, --namespace",
        )
    plain = "" if error.kind == "slow" or to.plaintext else " (and --argocd-plaintext)"
    return SourceDownError(message, hint=f"{_SERVER}{plain}")


def explained(
    answer: Response,
    to: Connection,
    permission: str,
    subject: str,
    secrets: tuple[str, ...],
    *,
    patched: bool = False,
) -> Exception:
    """Return the error for an unsuccessful response.

    `Outpaced` is only for a patch: the caller decides again.
    """
    if origin(answer.url) != origin(to.base):
        return _redirected(answer, to)
    code, message = _grpc_message(answer, secrets)
    low = message.lower()
    # Client errors may also have the code 2 (unknown), with status 500.
    conflict = answer.status == 409 or any(sign in low for sign in _MEANWHILE)
    if patched and conflict:
        return Outpaced(f"{subject}: {message}")
    not_from_api = _not_from_api(answer, to) if code is None else None
    if not_from_api:
        return not_from_api
    if answer.status == 401:
        return _unauthenticated(message, to)
    if answer.status == 403:
        return _forbidden(message, permission, subject)
    if answer.status == 404 and code == _NOT_FOUND:
        return AbsentError(f"{subject}: does not exist", hint="check the name and its namespace")
    if "parsing the selector" in low:
        return UsageError(
            f"--selector: Argo CD says: {message}",
            hint="use a=b, a!=b, a in (b,c), a, or !a",
        )
    return _other_error(
        answer.status,
        f"{subject}: Argo CD says: {message or 'nothing'} ({answer.status})",
        message,
    )


def _redirected(answer: Response, to: Connection) -> SourceAccessError:
    hint = (
        "omit --argocd-plaintext"
        if to.plaintext
        else "pass the headers that the proxy requires: --argocd-header"
    )
    return SourceAccessError(
        f"Argo CD's server redirects to {origin(answer.url)}, and the token is not sent to other"
        " servers",
        hint=hint,
    )


def _unauthenticated(message: str, to: Connection) -> SourceAccessError:
    what = (
        "Argo CD does not accept the token"
        if to.token or to.token_file
        else "Argo CD requires a token, and none is set"
    )
    return SourceAccessError(f"{what} ({message or 'unauthenticated'})", hint=_TOKEN)


def _other_error(status: int, said: str, message: str) -> TaskError:
    """Return the error for a response that is only identified by its text or status."""
    low = message.lower()
    if "unable to generate manifests" in low or "repository not accessible" in low:
        # Argo CD accepts a patch only after its repository server has rendered the patched
        # manifests.
        if passing(message):
            return SourceDownError(
                said,
                hint="Argo CD's repository server could not generate the manifests: run it again",
            )
        hint = (
            "the manifests cannot be generated with this change: correct the Application's source"
            " or its parameters"
        )
        return SourceError(said, hint=hint)
    if any(sign in low for sign in _MALFORMED):
        return SourceError(
            said,
            hint="the Application is not structured as Image Update expects: write to Git instead",
        )
    # A refresh writes an annotation, so even a GET can meet a conflict.
    if status in (409, 429) or status >= 500:
        return SourceDownError(said, hint="run it again")
    if status == 404:
        return SourceError(said, hint="check the name and --argocd-root-path")
    return SourceError(said, hint="see Argo CD's log for details")


def _forbidden(message: str, permission: str, subject: str) -> SourceAccessError:
    """Return the error for a 403.

    Argo CD also returns 403 for a missing Application, unless the caller is allowed to get it.
    """
    denied = _DENIED.search(message)
    if not denied:
        hint = f"check the name, or grant it in argocd-rbac-cm: p, <subject>, {permission}, allow"
        return SourceAccessError(
            f"{subject}: does not exist, or the token lacks the permission ({permission})",
            hint=hint,
        )
    missing = denied["permission"].strip()
    user = denied["who"]
    return SourceAccessError(
        f"{subject}: {user or 'the token'} lacks the permission ({missing})",
        hint=f"grant it in argocd-rbac-cm: p, {user or '<subject>'}, {missing}, allow",
    )


def _grpc_message(answer: Response, secrets: tuple[str, ...]) -> tuple[int | None, str]:
    """Return the gRPC code (None if the gateway did not send one) and the message without
    secrets.
    """
    found = answer.mapping()
    if not isinstance(found.get("code"), int):
        return None, ""
    message = blanked(str(found.get("message") or found.get("error") or ""))
    for secret in secrets:
        if len(secret) >= _SHORT:
            message = message.replace(secret, "***")
    words = message.replace(ADVICE, "").split()
    return found["code"], both_ends(" ".join(words), 400)


def _not_from_api(answer: Response, to: Connection) -> TaskError | None:
    """Return the error for a response that is not from the API, such as a web page or a different
    service, or None if it may be from the API.
    """
    content_type = str(answer.headers.get("Content-Type", ""))
    kind = content_type.partition(";")[0].strip().lower()
    html = kind == "text/html" or answer.body.lstrip()[:1] == b"<"
    login_page = html and answer.status in (401, 403)
    # With a root path, the server returns "404 page not found" as plain text for all other paths.
    if not (answer.status < 300 or answer.status == 404 or login_page):
        return None
    what = "a web page" if html else f"{kind or 'something'} in an unknown format"
    return SourceAccessError(
        f"{origin(to.base)} returned {what} ({answer.status}), not an Argo CD API response",
        hint=(
            "if the server is behind a login page, pass the headers that the page requires with"
            " --argocd-header; if the API is at another path, pass --argocd-root-path"
        ),
    )
