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
CRASHED = 3  # how many pods to read for their containers' exit codes
REFRESH_PATIENCE = 15.0  # seconds; a refresh that takes longer still completes
_TOKEN = (
    "create a token with argocd account generate-token, and pass it in"  # noqa: S105
    " ARGOCD_AUTH_TOKEN or --argocd-auth-token-file"
)
_SERVER_HINT = "run it again; if that does not help, check --argocd-server"
_NOT_FOUND = 5  # gRPC's code
_SHORTEST_SECRET = 4  # characters; a shorter secret would match parts of ordinary words
# The Application has changed: the patch's first operation tests the resourceVersion.
_CONFLICT_SIGNS = ("too many conflicts", "testing value")
# The test succeeded, but the patch does not match.
_UNFIT_PATCH_SIGNS = (
    "error applying patch",
    "error unmarshaling patched app",
    "error decoding json patch",
)
_DENIED_MESSAGE = re.compile(
    r"permission denied: (?P<permission>[^,]+, [^,]+, [^,]+)(?:, sub: (?P<who>[^,]+))?"
)


class ArgoCDApi:
    """An Argo CD server.

    Thread-safe. All errors are `SourceError`s: no access, server down, or not found.
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
        """`options` come from the command line. Environment variables provide missing values.

        Raises `UsageError` if they contradict each other, or name a file that cannot be read.
        """
        try:
            self._connection = connection(options, environ)
        except Malformed as error:
            raise UsageError(error.message, hint=error.hint) from None
        _check_files_of(self._connection)
        self.namespace = namespace
        self._http = self._client(limits, log)
        # do not wait as long for a refresh as for other requests: it completes without us
        refresh_limits = replace(limits, silence=min(limits.silence, REFRESH_PATIENCE))
        self._refresh_http = self._client(refresh_limits, log)

    def _client(self, limits: Limits, log: Callable[[str], None]) -> Http:
        """Return an HTTP client that sends the credentials with each request to the server."""
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
        """Return the HTTP headers: the one with the token, and those set by the user.

        They are sent only to this origin, because the user's may contain a proxy's credentials.
        """
        headers = {name: value.reveal() for name, value in self._connection.headers}
        token = self._token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _token(self) -> str:
        """Return the token, or "" if none is set. Raises `SourceAccessError`.

        A token file is read again each time, because it may be renewed during a run.
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
        """Return the Applications that the token has access to, each with only these `fields`, such
        as "metadata.name". If `fields` is empty, each Application is complete.

        `projects`, `selector`, and `namespace` narrow the list, unless they are empty.
        """
        requested_fields = None  # parameters that are None are not sent
        if fields:
            # the version of the list comes first, as in the requests of Argo CD's UI
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
        # an empty list may be null or missing
        has_list = isinstance(response.get("items") or [], list)
        if not has_list:
            raise SourceDownError(
                "Argo CD returned something other than a list of Applications",
                hint=_SERVER_HINT,
            )
        return [{**KIND, **item} for item in mappings(response, "items")]

    def keys(self) -> Sequence[tuple[str, str]]:
        """Return (namespace, name) of every Application that the token has access to.

        Raises `SourceError`.
        """
        return [key_of(item) for item in self.list_applications(METADATA[:2])]

    def get_application(self, namespace: str, name: str, project: str = "") -> dict[str, Any]:
        """Return the Application.

        A missing Application raises `AbsentError` if the project is given. Otherwise, Argo CD
        returns "forbidden".
        """
        params = {**self._namespace_param(namespace), "project": project or None}
        permission, subject = self._permission("get", namespace, name)
        application = self._request_object(
            "GET", _application_path(name), permission, subject, params
        )
        return {**KIND, **application}

    def refresh_application(self, namespace: str, name: str) -> None:
        """Have Argo CD compare the Application with Git now. Return when the comparison is done, or
        stop waiting if it takes too long.
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
        # the content does not matter, but this raises an error if the response is unsuccessful
        self._object_in(response, permission, subject)

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
        changed = self._request_object(
            "PATCH", _application_path(name), permission, subject, body=body
        )
        return {**KIND, **changed}

    def resource_tree(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the Application's live resources, down to its pods, each with its health.

        The tree does not include the containers' exit codes, so the first few crashing pods are
        also read, and their messages are added.
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
            # without the pod, the tree just has less detail
            with suppress(SourceError, ValueError):
                resource = self._request_object(
                    "GET", f"{_application_path(name)}/resource", permission, subject, pod_params
                )
                pod = parsed_json(text(resource, "manifest"))
                _reason, message = pod_problem(mapping(pod, "status"))
                if message:
                    node["health"]["message"] = message  # `node` is a part of `tree`
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
        """Return an AppProject. AppProjects are in the control plane's namespace."""
        return self._request_object(
            "GET",
            f"/api/v1/projects/{path_part(name)}",
            f"projects, get, {name}",
            f"AppProject {name}",
        )

    def web(self) -> str:
        """Return the UI's URL from Argo CD's settings, or else the API's URL if people can reach
        it.

        Return "" if the API's address appears to work only in the cluster. The settings can be read
        without a token.
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
        """Send a request, and return the JSON object in the response.

        `permission` (the RBAC permission that the request requires) and `subject` (the object that
        it is about) are for error messages. Raises `TaskError`.
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
        """Return the JSON object in a successful response. For any other response, raises the error
        that describes it.

        `permission`, `subject`, and `patched` (whether the request was a patch) are for the error.
        """
        is_from_server = origin(response.url) == origin(self._connection.base)
        # the gateway does not return any other success status
        if response.status == 200 and is_from_server:
            try:
                content = response.json()
            except ValueError:
                content = None
            if isinstance(content, dict):
                return content

        # The secrets must not appear in any message, even if the server sends them.
        headers = (value.reveal() for _name, value in self._connection.headers)
        secrets = tuple(filter(None, (self._token(), *headers)))
        raise explained(response, self._connection, permission, subject, secrets, patched=patched)

    def _namespace_param(self, namespace: str) -> dict[str, str]:
        return {"appNamespace": namespace} if namespace else {}

    def _permission(self, action: str, namespace: str, name: str) -> tuple[str, str]:
        """Return the RBAC permission that an action on an Application requires, and the
        Application's `namespace/name`.

        The permission omits the control plane's own namespace.
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
            # a ValueError, such as for a null byte in the path, has no `strerror`
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
    # a slow server was reached, so TLS is not the problem
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

    `permission` is the RBAC permission that the request requires, `subject` is the object that it
    is about, and `secrets` must not appear in the message. For a patch (`patched`) of an
    Application that has changed in the meantime, the error is `Outpaced`.
    """
    if origin(response.url) != origin(connection.base):
        return _redirect_error(response, connection)

    code, message = _grpc_message(response, secrets)
    lowercase_message = message.lower()
    # Client errors may also have the code 2 (unknown), with status 500.
    is_conflict = response.status == 409 or any(
        sign in lowercase_message for sign in _CONFLICT_SIGNS
    )
    if patched and is_conflict:
        return Outpaced(f"{subject}: {message}")

    if code is None:  # a proxy, a login page, or another program may have sent it
        foreign_error = _foreign_response_error(response, connection)
        if foreign_error:
            return foreign_error
    if response.status == 401:
        return _unauthenticated_error(message, connection)
    if response.status == 403:
        return _forbidden_error(message, permission, subject)
    if response.status == 404 and code == _NOT_FOUND:  # a proxy's 404 does not have this code
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
    """Return the error for a response that can only be identified by Argo CD's message (in lower
    case) or its status. `full_message` is the error's message.
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
    # A refresh writes an annotation, so even a GET can run into a conflict.
    if status in (409, 429) or status >= 500:
        return SourceDownError(full_message, hint="run it again")
    if status == 404:
        return SourceError(full_message, hint="check the name and --argocd-root-path")
    return SourceError(full_message, hint="see Argo CD's log for details")


def _forbidden_error(message: str, permission: str, subject: str) -> SourceAccessError:
    """Return the error for a 403. `message` is Argo CD's, `permission` is what the request
    requires, and `subject` is the object that it is about.

    Argo CD also returns 403 for a missing Application, unless the caller is allowed to get it. If
    its message does not name the missing permission, it could be either.
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
    """Return the gRPC code and the message from an error response.

    The code is None if the response does not come from Argo CD's gRPC gateway. Secrets in the
    message are replaced with `***`.
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
    """Return the error for a response that is not from Argo CD's API, such as a web page or a
    different service, or None if it may be from the API.
    """
    content_type = str(response.headers.get("Content-Type", ""))
    kind = content_type.partition(";")[0].strip().lower()
    is_html = kind == "text/html" or response.body.lstrip().startswith(b"<")
    is_login_page = is_html and response.status in (401, 403)
    # The API does not return a success or a 404 in this form. With a root path, the server returns
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
