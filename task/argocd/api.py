"""Argo CD's REST API: lists, reads, refreshes and patches Applications, and asks why a rollout fails.

The API is a gateway to gRPC: errors are JSON with `error`, `code` (gRPC's) and `message`. To hide what exists, it
answers 403 "permission denied" also for an Application that does not exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from task.argocd.answers import explained, unreachable
from task.argocd.connection import Connection, connection
from task.argocd.rollout_causes import crashing, mapping, text
from task.errors import Malformed, SourceAccessError, SourceDownError, SourceError, UsageError
from task.files import check_file, read_text
from task.http import Http, Limits, NoAnswerError, Response
from task.kubernetes.pods import trouble
from task.urls import origin, path_part, web_page

_IN_CLUSTER = re.compile(r"\.svc(\.|$)|\.local$")
KIND = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}
# The gateway understands only these whole names (argo-cd server/application/forwarder_overwrite.go).
METADATA = ("metadata.name", "metadata.namespace", "metadata.annotations", "metadata.labels")
CRASHED = 3  # pods that are read to learn how their containers ended
REFRESH_PATIENCE = 15.0  # seconds; a refresh that takes longer happens nevertheless


class ArgoCDApi:
    """One Argo CD server. Safe to use from several threads. Errors are `SourceError`s: no access, down, not found."""

    def __init__(
        self,
        given: Connection,
        environ: Mapping[str, str],
        *,
        namespace: str = "argocd",
        limits: Limits = Limits(),
        log: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """`given` comes from options; variables fill the gaps. Raises `UsageError` if they contradict each other."""
        try:
            self._to = connection(given, environ)
        except Malformed as error:
            raise UsageError(error.message, hint=error.hint) from None
        for path in filter(None, (self._to.ca_file, self._to.certificate, self._to.key, self._to.token_file)):
            try:
                check_file(path)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or "it is not a path"
                raise UsageError(f"Argo CD: cannot read {path!r}: {why}", hint="name a readable file") from None
        self.namespace = namespace
        self._http = self._client(limits, log)
        self._quick = self._client(replace(limits, silence=min(limits.silence, REFRESH_PATIENCE)), log)

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
        """Return the token and the given headers. Both go only to this origin, as headers may be a proxy's login."""
        headers = {name: value.reveal() for name, value in self._to.headers}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _token(self) -> str:
        """Return the token, read again each time because the file may be renewed during a run."""
        if not self._to.token_file:
            token = self._to.token.reveal()
        else:
            try:
                token = read_text(self._to.token_file).strip()
            except (OSError, UnicodeDecodeError):
                raise SourceAccessError(
                    f"the file with Argo CD's token cannot be read: {self._to.token_file!r}", hint="mount it readable"
                ) from None
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise SourceAccessError(
                "Argo CD's token is not valid: it contains blanks or other characters that no token has",
                hint="copy it again, as argocd account generate-token prints it",
            )
        return token

    def list_applications(
        self, fields: Sequence[str] = METADATA, *, projects: Sequence[str] = (), selector: str = "", namespace: str = ""
    ) -> list[dict[str, Any]]:
        """Return the Applications that the token may get, with only these `fields`, or whole if there are none."""
        params: dict[str, Any] = {
            "fields": ",".join(("metadata.resourceVersion", *(f"items.{one}" for one in fields))) if fields else None,
            "projects": list(projects) or None,
            "selector": selector or None,
            "appNamespace": namespace or None,
        }
        found = self._get("/api/v1/applications", params, "applications, get, */*", "the list of Applications")
        items = found.get("items") or []
        if not isinstance(items, list):
            raise SourceDownError(
                "Argo CD answers with something other than a list of Applications",
                hint="run it again; if that does not help, check --argocd-server",
            )
        return [{**KIND, **item} for item in items if isinstance(item, dict)]

    def get_application(self, namespace: str, name: str, project: str = "") -> dict[str, Any]:
        """Return the Application. With its project, a missing one raises `AbsentError`; without, it looks forbidden."""
        where = {**self._where(namespace), **({"project": project} if project else {})}
        found = self._get(_path(name), where, *self._right("get", namespace, name))
        return {**KIND, **found}

    def refresh_application(self, namespace: str, name: str) -> None:
        """Make Argo CD compare with Git now. Return when it has, or after a while if that takes long."""
        params = {"refresh": "normal", **self._where(namespace)}
        right, subject = self._right("get", namespace, name)
        try:
            answer = self._quick.ask("GET", _path(name), params=params, again=False)
        except NoAnswerError as error:
            if error.kind == "slow":
                return
            raise unreachable(error, self._to) from None
        self._known(answer, right, subject)

    def patch_application(self, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Apply a JSON patch, and return the changed Application. Raises `Outpaced` if it changed meanwhile."""
        right, subject = self._right("update", namespace, name)
        body = {"name": name, "patch": json.dumps(list(operations)), "patchType": "json", **self._where(namespace)}
        try:
            answer = self._http.ask("PATCH", _path(name), json=body)
        except NoAnswerError as error:
            raise unreachable(error, self._to) from None
        return {**KIND, **self._known(answer, right, subject)}

    def resource_tree(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the live resources of the Application, down to its pods, each with its health.

        The tree does not have how a container ended, so the first few pods that crash are read, too.
        """
        right, where = self._right("get", namespace, name), self._where(namespace)
        tree = self._get(f"{_path(name)}/resource-tree", where, *right)
        for node in crashing(tree)[:CRASHED]:
            pod = {
                "kind": "Pod",
                "version": "v1",
                "namespace": text(node, "namespace"),
                "resourceName": text(node, "name"),
            }
            with suppress(SourceError, ValueError, RecursionError):
                found = json.loads(text(self._get(f"{_path(name)}/resource", {**where, **pod}, *right), "manifest"))
                _reason, message = trouble(mapping(found, "status")) if isinstance(found, dict) else ("", "")
                node["health"]["message"] = message or node["health"].get("message")
        return tree

    def sync_windows(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the Application's sync windows: `assignedWindows`, `activeWindows`, `canSync`."""
        right = self._right("get", namespace, name)
        return self._get(f"{_path(name)}/syncwindows", self._where(namespace), *right)

    def application_set(self, namespace: str, name: str) -> dict[str, Any]:
        """Return an ApplicationSet."""
        where = {"appsetNamespace": namespace} if namespace else {}
        right = f"applicationsets, get, <project>/{name}"
        return self._get(f"/api/v1/applicationsets/{path_part(name)}", where, right, f"ApplicationSet {name}")

    def project(self, _namespace: str, name: str) -> dict[str, Any]:
        """Return an AppProject. All of them are in the control plane's namespace."""
        return self._get(f"/api/v1/projects/{path_part(name)}", {}, f"projects, get, {name}", f"AppProject {name}")

    def web(self) -> str:
        """Return the URL of the user interface, from Argo CD's settings, else the API's if people can reach it.

        It is "" if only the cluster knows the address. The settings can be read without a token.
        """
        with suppress(NoAnswerError):
            said = self._http.ask("GET", "/api/v1/settings").mapping().get("url")
            if page := web_page(said if isinstance(said, str) else ""):
                return page.rstrip("/")
        host = self._to.server.partition(":")[0]
        return self._to.base if "." in host and not _IN_CLUSTER.search(host) else ""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
        self._quick.close()

    def _get(self, path: str, params: Mapping[str, Any], right: str, subject: str) -> dict[str, Any]:
        try:
            answer = self._http.ask("GET", path, params={key: one for key, one in params.items() if one is not None})
        except NoAnswerError as error:
            raise unreachable(error, self._to) from None
        return self._known(answer, right, subject)

    def _known(self, answer: Response, right: str, subject: str) -> dict[str, Any]:
        """Return the JSON object of a successful answer. Raises our error for any other one."""
        if answer.status == 200 and origin(answer.url) == origin(self._to.base):  # the gateway sends no other success
            try:
                found = answer.json()
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict):
                return found
        # No message may contain these, even if the server sends them.
        secrets = tuple(one for one in (self._token(), *(value.reveal() for _, value in self._to.headers)) if one)
        raise explained(answer, self._to, right, subject, secrets)

    def _where(self, namespace: str) -> dict[str, str]:
        return {"appNamespace": namespace} if namespace else {}

    def _right(self, action: str, namespace: str, name: str) -> tuple[str, str]:
        """Return the RBAC permission that the action needs, and what it is about."""
        elsewhere = f"{namespace}/" if namespace not in ("", self.namespace) else ""
        return f"applications, {action}, <project>/{elsewhere}{name}", f"{namespace or self.namespace}/{name}"


def _path(name: str) -> str:
    if name in ("", ".", ".."):
        raise SourceError(f"{name!r} is not a valid name of an Application", hint="write the name that Argo CD shows")
    return f"/api/v1/applications/{path_part(name)}"
