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

from task.argocd.application_store import key_of, pod_problem
from task.argocd.connection import Connection, connection
from task.argocd.rollout_causes import ADVICE, crashing_pods, is_transient
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
CRASHED = 3  # the number of pods to fetch for their containers' exit codes
REFRESH_PATIENCE = 15.0  # seconds; a refresh that takes longer still completes
_TOKEN = (
    "create a token with argocd account generate-token, and pass it in"  # noqa: S105
    " ARGOCD_AUTH_TOKEN or --argocd-auth-token-file"
)
_SERVER_HINT = "run it again; if that does not help, check --argocd-server"
_NOT_FOUND = 5  # gRPC's status code NOT_FOUND
_SHORTEST_SECRET = 4  # characters; a shorter secret would match parts of ordinary words
# The Application has changed, so the patch's first operation (a resourceVersion test) failed.
_CONFLICT_SIGNS = ("too many conflicts", "testing value")
# The resourceVersion test passed, but the patch does not fit the Application.
_UNFIT_PATCH_SIGNS = (
    "error applying patch",
    "error unmarshaling patched app",
    "error decoding json patch",
)
_DENIED_MESSAGE = re.compile(
    r"permission denied: (?P<permission>[^,]+, [^,]+, [^,]+)(?:, sub: (?P<who>[^,]+))?"
)


class ArgoCDApi:
    """A client for an Argo CD server's API.

    Thread-safe. All errors are `SourceError`s: access denied, server down, or not found.
    """

    def __init__(
        self,
        options: Connection,
        environ: Mapping[str, str],
        *,
        namespace: str = "argocd",
        limits: Limits = Limits(),
        log: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """Connect with the command-line `options`; environment variables supply missing values.

        Raises `UsageError` if these values contradict each other, or name a file that cannot be
        read.
        """
        try:
            self._connection = connection(options, environ)
        except Malformed as error:
            raise UsageError(error.message, hint=error.hint) from None
        _check_files_of(self._connection)
        self.namespace = namespace
        self._http = self._client(limits, log)
        # a shorter timeout than for other requests, because a refresh completes even if we stop
        # waiting
        refresh_limits = replace(limits, silence=min(limits.silence, REFRESH_PATIENCE))
        self._refresh_http = self._client(refresh_limits, log)

    def _client(self, limits: Limits, log: Callable[[str], None]) -> Http:
        """Return an HTTP client that sends the credentials to the server with each request."""
        certificate = None
        if self._connection.certificate:
            certificate = (self._connection.certificate, self._connection.key)
        return Http(
            self._connection.base,
            login=self._login,
            ca_file=self._connection.ca_file,
            verify=not self._connection.insecure,
            certificate=certificate,
            limits=limits,
            log=log,
        )

    def _login(self) -> dict[str, str]:
        """Return the HTTP headers to send: the `Authorization` header with the token, and the
        headers set by the user.

        The headers are sent only to this server's origin, because the user's headers may contain
        credentials for a proxy.
        """
        headers = {name: value.reveal() for name, value in self._connection.headers}
        token = self._token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _token(self) -> str:
        """Return the token, or "" if none is set. Raises `SourceAccessError`.

        A token file is reread on every call, because the token may be renewed during a run.
        """
        path = self._connection.token_file
        if path:
            try:
                token = read_text(path).strip()
            except (OSError, UnicodeDecodeError):
                raise SourceAccessError(
                    f"cannot read Argo CD's token file: {path!r}",
                    hint="make it readable",
                ) from None
        else:
            token = self._connection.token.reveal()
        fits_in_a_header = token.isascii() and token.isprintable() and " " not in token
        if not fits_in_a_header:
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
        """Return the Applications that the token can access, each with only these `fields`, such as
        "metadata.name". If `fields` is empty, all fields are included.

        `projects`, `selector`, and `namespace` filter the list unless they are empty.
        """
        requested_fields = None  # None: the parameter is not sent
        if fields:
            # the list's resourceVersion comes first, as in requests from Argo CD's UI
            names = ["metadata.resourceVersion", *(f"items.{field}" for field in fields)]
            requested_fields = ",".join(names)
        params: dict[str, Any] = {
            "fields": requested_fields,
            "projects": list(projects) or None,
            "selector": selector or None,
            "appNamespace": namespace or None,
        }
        response = self._request_object(
            "GET",
            "/api/v1/applications",
            "applications, get, */*",
            "the list of Applications",
            params,
        )
        # if there are no Applications, `items` may be null or missing
        has_list = isinstance(response.get("items") or [], list)
        if not has_list:
            raise SourceDownError(
                "Argo CD returned something other than a list of Applications",
                hint=_SERVER_HINT,
            )
        return [{**KIND, **item} for item in mappings(response, "items")]

    def keys(self) -> Sequence[tuple[str, str]]:
        """Return the (namespace, name) of every Application that the token can access.

        Raises `SourceError`.
        """
        return [key_of(item) for item in self.list_applications(METADATA[:2])]

    def get_application(self, namespace: str, name: str, project: str = "") -> dict[str, Any]:
        """Return the Application.

        Raises `AbsentError` if the Application is missing and `project` is given. Without a
        project, Argo CD reports a missing Application as forbidden.
        """
        params = {**self._namespace_param(namespace), "project": project or None}
        permission, subject = self._permission("get", namespace, name)
        application = self._request_object(
            "GET", _application_path(name), permission, subject, params
        )
        return {**KIND, **application}

    def refresh_application(self, namespace: str, name: str) -> None:
        """Have Argo CD compare the Application with Git now, and wait until the comparison is done
        or takes too long.
        """
        params = {"refresh": "normal", **self._namespace_param(namespace)}
        permission, subject = self._permission("get", namespace, name)
        try:
            # do not retry: once started, a refresh completes even if the response is late
            response = self._refresh_http.ask(
                "GET", _application_path(name), params=params, again=False
            )
        except NoAnswerError as error:
            if error.kind == "slow":
                return  # Argo CD still completes the refresh
            raise unreachable(error, self._connection) from None
        # only to raise an error for an unsuccessful response; its content does not matter
        self._object_in(response, permission, subject)

    def patch_application(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Apply a JSON patch, and return the changed Application.

        Raises `Outpaced` if the Application has changed in the meantime.
        """
        body = {
            "name": name,
            "patch": json.dumps(list(operations)),
            "patchType": "json",
            **self._namespace_param(namespace),
        }
        permission, subject = self._permission("update", namespace, name)
        changed = self._request_object(
            "PATCH", _application_path(name), permission, subject, body=body
        )
        return {**KIND, **changed}

    def resource_tree(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the Application's live resources, down to its pods, each with its health.

        Argo CD's tree does not include the containers' exit codes, so the first few crashing pods
        are also fetched, and their error messages are added to the tree.
        """
        permission, subject = self._permission("get", namespace, name)
        params = self._namespace_param(namespace)
        tree = self._request_object(
            "GET", f"{_application_path(name)}/resource-tree", permission, subject, params
        )
        for node in crashing_pods(tree)[:CRASHED]:  # each pod takes one request
            pod_params = {
                **params,
                "kind": "Pod",
                "version": "v1",
                "namespace": text(node, "namespace"),
                "resourceName": text(node, "name"),
            }
            # if a pod cannot be fetched, the tree is just less detailed
            with suppress(SourceError, ValueError):
                resource = self._request_object(
                    "GET", f"{_application_path(name)}/resource", permission, subject, pod_params
                )
                pod = parsed_json(text(resource, "manifest"))
                _reason, message = pod_problem(mapping(pod, "status"))
                if message:
                    node["health"]["message"] = message  # `node` is part of `tree`
        return tree

    def sync_windows(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the Application's sync windows: `assignedWindows`, `activeWindows`, `canSync`."""
        permission, subject = self._permission("get", namespace, name)
        params = self._namespace_param(namespace)
        return self._request_object(
            "GET", f"{_application_path(name)}/syncwindows", permission, subject, params
        )

    def application_set(self, namespace: str, name: str) -> dict[str, Any]:
        """Return an ApplicationSet."""
        path = f"/api/v1/applicationsets/{path_part(name)}"
        permission = f"applicationsets, get, <project>/{name}"
        params = {"appsetNamespace": namespace or None}
        return self._request_object("GET", path, permission, f"ApplicationSet {name}", params)

    def project(self, namespace: str, name: str) -> dict[str, Any]:  # noqa: ARG002 - as in Kubernetes
        """Return an AppProject, which is always in the control plane's namespace."""
        return self._request_object(
            "GET",
            f"/api/v1/projects/{path_part(name)}",
            f"projects, get, {name}",
            f"AppProject {name}",
        )

    def web(self) -> str:
        """Return the UI's URL from Argo CD's settings or, failing that, the API's URL if users can
        reach it.

        Return "" if the API's address appears to work only inside the cluster. Reading the settings
        does not require a token.
        """
        with suppress(NoAnswerError):
            settings = self._http.ask("GET", "/api/v1/settings").mapping()
            page = web_page(text(settings, "url"))
            if page:
                return page.rstrip("/")

        host = self._connection.server.partition(":")[0]
        is_public = "." in host and not _IN_CLUSTER.search(host)
        return self._connection.base if is_public else ""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
        self._refresh_http.close()

    def _request_object(
        self,
        method: str,
        path: str,
        permission: str,
        subject: str,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send a request, and return the JSON object from the response.

        `permission` (the RBAC permission that the request requires) and `subject` (the object that
        the request is about) are used in error messages. Raises `TaskError`.
        """
        try:
            response = self._http.ask(method, path, params=params, json=body)
        except NoAnswerError as error:
            raise unreachable(error, self._connection) from None
        return self._object_in(response, permission, subject, patched=method == "PATCH")

    def _object_in(
        self,
        response: Response,
        permission: str,
        subject: str,
        *,
        patched: bool = False,
    ) -> dict[str, Any]:
        """Return the JSON object from a successful response, or raise an error that describes any
        other response.

        `permission`, `subject`, and `patched` (whether the request was a patch) are used only for
        the error.
        """
        is_from_server = origin(response.url) == origin(self._connection.base)
        # 200 is the only success status that the gateway returns
        if response.status == 200 and is_from_server:
            try:
                content = response.json()
            except ValueError:
                content = None
            if isinstance(content, dict):
                return content

        # Secrets must not appear in error messages, even if the server echoes them.
        headers = (value.reveal() for _name, value in self._connection.headers)
        secrets = tuple(filter(None, (self._token(), *headers)))
        raise explained(response, self._connection, permission, subject, secrets, patched=patched)

    def _namespace_param(self, namespace: str) -> dict[str, str]:
        return {"appNamespace": namespace} if namespace else {}

    def _permission(self, action: str, namespace: str, name: str) -> tuple[str, str]:
        """Return the RBAC permission that an action on an Application requires, and the
        Application's `namespace/name`.

        If the Application is in the control plane's own namespace, the permission omits the
        namespace.
        """
        is_in_other_namespace = namespace not in ("", self.namespace)
        object_name = f"{namespace}/{name}" if is_in_other_namespace else name
        permission = f"applications, {action}, <project>/{object_name}"
        return permission, f"{namespace or self.namespace}/{name}"


def _check_files_of(connection: Connection) -> None:
    """Raise `UsageError` if a file with a certificate, a key, or the token cannot be read."""
    files = (connection.ca_file, connection.certificate, connection.key, connection.token_file)
    for path in filter(None, files):
        try:
            check_file(path)
        except (OSError, ValueError) as error:
            # a ValueError (raised for a null byte in the path, for example) has no `strerror`
            reason = getattr(error, "strerror", None) or "it is not a path"
            raise UsageError(
                f"Argo CD: cannot read {path!r}: {reason}",
                hint="specify a readable file",
            ) from None


def _application_path(name: str) -> str:
    """Return the URL path of an Application."""
    if name in ("", ".", ".."):
        raise SourceError(
            f"{name!r} is not a valid Application name",
            hint="use the name that Argo CD shows",
        )
    return f"/api/v1/applications/{path_part(name)}"


def unreachable(error: NoAnswerError, connection: Connection) -> TaskError:
    """Return the error for a request that did not get a response, with a hint about the cause."""
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
    # if the server was merely slow, it was reached, so TLS is not the problem
    may_lack_tls = error.kind != "slow" and not connection.plaintext
    plaintext_hint = " (and --argocd-plaintext)" if may_lack_tls else ""
    return SourceDownError(message, hint=f"{_SERVER_HINT}{plaintext_hint}")


def explained(
    response: Response,
    connection: Connection,
    permission: str,
    subject: str,
    secrets: tuple[str, ...],
    *,
    patched: bool = False,
) -> Exception:
    """Return the error that explains an unsuccessful response.

    `permission` is the RBAC permission that the request requires, `subject` is the object that the
    request is about, and `secrets` must not appear in the message. If the request was a patch
    (`patched`), and the Application has changed in the meantime, the error is `Outpaced`.
    """
    if origin(response.url) != origin(connection.base):
        return _redirect_error(response, connection)

    code, message = _grpc_message(response, secrets)
    lowercase_message = message.lower()
    # Conflicts may also be reported with status 500 and gRPC code 2 (unknown).
    is_conflict = response.status == 409 or any(
        sign in lowercase_message for sign in _CONFLICT_SIGNS
    )
    if patched and is_conflict:
        return Outpaced(f"{subject}: {message}")

    if code is None:  # the response may be from a proxy, a login page, or another program
        foreign_error = _foreign_response_error(response, connection)
        if foreign_error:
            return foreign_error
    if response.status == 401:
        return _unauthenticated_error(message, connection)
    if response.status == 403:
        return _forbidden_error(message, permission, subject)
    if response.status == 404 and code == _NOT_FOUND:  # a proxy's 404 has no gRPC code
        return AbsentError(f"{subject}: does not exist", hint="check the name and its namespace")
    if "parsing the selector" in lowercase_message:
        return UsageError(
            f"--selector: Argo CD says: {message}",
            hint="use a=b, a!=b, a in (b,c), a, or !a",
        )
    full_message = f"{subject}: Argo CD says: {message or 'nothing'} ({response.status})"
    return _other_error(response.status, full_message, lowercase_message)


def _redirect_error(response: Response, connection: Connection) -> SourceAccessError:
    """Return the error for a response from a server other than the configured one."""
    if connection.plaintext:
        hint = "omit --argocd-plaintext"
    else:
        hint = "pass the headers that the proxy requires: --argocd-header"
    return SourceAccessError(
        f"Argo CD's server redirects to {origin(response.url)}, and the token is not sent to other"
        " servers",
        hint=hint,
    )


def _unauthenticated_error(message: str, connection: Connection) -> SourceAccessError:
    """Return the error for a 401. `message` is Argo CD's."""
    if connection.token or connection.token_file:
        problem = "Argo CD does not accept the token"
    else:
        problem = "Argo CD requires a token, and none is set"
    return SourceAccessError(f"{problem} ({message or 'unauthenticated'})", hint=_TOKEN)


def _other_error(status: int, full_message: str, argocd_message: str) -> TaskError:
    """Return the error for a response that is identified by its status or by Argo CD's message in
    lower case (`argocd_message`). `full_message` becomes the error's message.
    """
    cannot_render = (
        "unable to generate manifests" in argocd_message
        or "repository not accessible" in argocd_message
    )
    if cannot_render:
        # Argo CD accepts a patch only after its repository server has rendered the patched
        # manifests.
        if is_transient(argocd_message):
            return SourceDownError(
                full_message,
                hint="Argo CD's repository server could not generate the manifests: run it again",
            )
        hint = (
            "the manifests cannot be generated with this change: correct the Application's source"
            " or its parameters"
        )
        return SourceError(full_message, hint=hint)
    if any(sign in argocd_message for sign in _UNFIT_PATCH_SIGNS):
        return SourceError(
            full_message,
            hint="the Application is not structured as Image Update expects: write to Git instead",
        )
    # A refresh writes an annotation, so even a GET request can cause a conflict.
    if status in (409, 429) or status >= 500:
        return SourceDownError(full_message, hint="run it again")
    if status == 404:
        return SourceError(full_message, hint="check the name and --argocd-root-path")
    return SourceError(full_message, hint="see Argo CD's log for details")


def _forbidden_error(message: str, permission: str, subject: str) -> SourceAccessError:
    """Return the error for a 403. `message` is Argo CD's, `permission` is the RBAC permission that
    the request requires, and `subject` is the object that the request is about.

    Argo CD also returns 403 for a missing Application, unless the caller would be allowed to get
    it. So if Argo CD's message does not name a missing permission, either could be the cause.
    """
    denied = _DENIED_MESSAGE.search(message)
    if not denied:
        hint = f"check the name, or grant it in argocd-rbac-cm: p, <subject>, {permission}, allow"
        return SourceAccessError(
            f"{subject}: does not exist, or the token lacks the permission ({permission})",
            hint=hint,
        )
    missing_permission = denied["permission"].strip()
    user = denied["who"]
    return SourceAccessError(
        f"{subject}: {user or 'the token'} lacks the permission ({missing_permission})",
        hint=f"grant it in argocd-rbac-cm: p, {user or '<subject>'}, {missing_permission}, allow",
    )


def _grpc_message(response: Response, secrets: tuple[str, ...]) -> tuple[int | None, str]:
    """Return the gRPC code and message from an error response.

    The code is None if the response is not from Argo CD's gRPC gateway. Secrets in the message are
    replaced with `***`.
    """
    content = response.mapping()
    code = content.get("code")
    if not isinstance(code, int):
        return None, ""
    message = blanked(str(content.get("message") or content.get("error") or ""))
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            message = message.replace(secret, "***")
    words = message.replace(ADVICE, "").split()
    return code, both_ends(" ".join(words), 400)


def _foreign_response_error(response: Response, connection: Connection) -> TaskError | None:
    """Return the error for a response that is not from Argo CD's API (such as a web page or another
    service's response). Return None if the response may be from the API.
    """
    content_type = str(response.headers.get("Content-Type", ""))
    kind = content_type.partition(";")[0].strip().lower()
    is_html = kind == "text/html" or response.body.lstrip().startswith(b"<")
    is_login_page = is_html and response.status in (401, 403)
    # The API never sends a success or a 404 in this form. If Argo CD has a root path, it returns
    # "404 page not found" as plain text for all other paths.
    has_unexpected_status = response.status < 300 or response.status == 404
    may_be_from_api = not is_login_page and not has_unexpected_status
    if may_be_from_api:
        return None
    server = origin(connection.base)
    content = "a web page" if is_html else f"{kind or 'something'} in an unknown format"
    return SourceAccessError(
        f"{server} returned {content} ({response.status}), not an Argo CD API response",
        hint=(
            "if the server is behind a login page, pass the headers that the page requires with"
            " --argocd-header; if the API is at another path, pass --argocd-root-path"
        ),
    )
