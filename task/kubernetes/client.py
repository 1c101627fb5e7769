"""A small Kubernetes API client that lists, reads, and patches objects, and creates Events.

Lists are read page by page, with metadata only unless whole objects are requested. Only one page is
in memory at a time, regardless of the server's behavior. If a permission is missing, the error
shows the rule that would grant it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from task.errors import (
    AbsentError,
    AnnotationError,
    NoAnswerError,
    Outpaced,
    SourceAccessError,
    SourceDownError,
    SourceError,
    TaskError,
    UsageError,
)
from task.http import Http, Limits, Response
from task.kubernetes.access import ClusterAccess
from task.plain_data import mapping, mappings, text, value_at
from task.text import one_line
from task.urls import origin, path_part

PAGE = 500  # objects per page, as many as kubectl requests
# Whole objects: an Application is 16 kB or more, and needs several times as much memory while it is
# parsed (measured: 5 MB for 50 Applications).
WHOLE_PAGE = 25
_LARGE_PAGE = 2 * 1024 * 1024  # in bytes
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
NARROW = "select fewer Applications: --namespace, --selector"
_VERSION = "/metadata/resourceVersion"
_MOST_EXPIRIES = 20  # how many times a list may expire before an error is raised
_MOST_BRACKETS = 8  # how many closing brackets to try, because the first ones may be inside strings
_KEY = b'"managedFields":['  # only matches a key; in a string, its quotes are escaped
_LONGEST = 300  # maximum characters of a server's message to show
_AGAIN = "run it again"


@dataclass(frozen=True)
class ResourceListLimits:
    """The limits for all pages of a list combined."""

    size: int = 512 * 1024 * 1024  # in bytes
    pages: int = 10_000
    seconds: float = 600.0


@dataclass(frozen=True)
class Resource:
    """A kind of object."""

    group: str
    version: str
    plural: str

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


APPLICATIONS = Resource("argoproj.io", "v1alpha1", "applications")
APPLICATION_SETS = Resource("argoproj.io", "v1alpha1", "applicationsets")
PROJECTS = Resource("argoproj.io", "v1alpha1", "appprojects")
UPDATERS = Resource("argocd-image-updater.argoproj.io", "v1alpha1", "imageupdaters")
EVENTS = Resource("", "v1", "events")
SECRETS = Resource("", "v1", "secrets")
CONFIG_MAPS = Resource("", "v1", "configmaps")
PODS = Resource("", "v1", "pods")
Operation = Mapping[str, Any]  # an operation in a JSON patch


class ForbiddenError(SourceAccessError):
    """The server recognizes us, but forbids the request (403)."""


@dataclass(frozen=True)
class Act:
    """An attempted request, in Kubernetes RBAC terms."""

    verb: str  # "get", "list", "patch", "create"
    resource: Resource
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace!r}" if self.namespace else " in all namespaces"
        which = f" {self.name!r}" if self.name else ""
        return f"{self.verb} {self.resource}{which}{where}"

    @property
    def path(self) -> str:
        """The API path of the object, or of all objects."""
        group = self.resource.group
        version = self.resource.version
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        namespace = f"/namespaces/{_segment(self.namespace)}" if self.namespace else ""
        name = f"/{_segment(self.name)}" if self.name else ""
        return f"{root}{namespace}/{self.resource.plural}{name}"

    @property
    def rule(self) -> str:
        """The rule in a Role or ClusterRole that grants the request."""
        kind = f"a Role in namespace {self.namespace!r}" if self.namespace else "a ClusterRole"
        group = self.resource.group
        plural = self.resource.plural
        return (
            f'{kind} needs {{apiGroups: ["{group}"], resources: [{plural}], verbs: [{self.verb}]}}'
        )


class Kubernetes:
    """An API server. Thread-safe.

    Every method raises `SourceAccessError` (401, 403: `ForbiddenError`, TLS), `SourceDownError`
    (unreachable, slow, busy), `SourceError`, and `UsageError`.
    """

    def __init__(
        self,
        access: ClusterAccess,
        limits: Limits = Limits(),
        log: Callable[[str, str], None] = lambda *_: None,
        lists: ResourceListLimits = ResourceListLimits(),
    ) -> None:
        self._access = access
        self._limits = limits
        self._log = log
        self._list_limits = lists

    def close(self) -> None:
        """Close the connections."""
        self._access.close()

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        selector: str = "",
        full: bool = False,
        page: int = 0,
    ) -> Iterator[Mapping[str, Any]]:
        """Yield every object once, in one namespace or in all namespaces ("").

        `selector` is a label selector, such as `team=web`. Without `full`, only the metadata is
        requested, but a server may return whole objects. `page` is the number of objects to request
        at once; 0 means the default.
        """
        act = Act("list", resource, namespace)
        params = {"labelSelector": selector} if selector else {}
        accept = _JSON if full else _METADATA
        default_page = WHOLE_PAGE if full else PAGE
        page_size = page or default_page
        # (namespace, name) of each: a list that starts over returns some objects again
        yielded: set[tuple[str, str]] = set()
        for item in self._read_pages(act, params, accept, page_size):
            key = text(item, "metadata", "namespace"), text(item, "metadata", "name")
            if key not in yielded:
                yielded.add(key)
                yield item

    def get(self, resource: Resource, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a whole object, or None if it does not exist."""
        act = Act("get", resource, namespace, name)
        answer = self._ask("GET", act)
        return None if answer.status == 404 else self._object(answer, act)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        operations: Sequence[Operation],
    ) -> Mapping[str, Any]:
        """Change an object with a JSON patch, and return the changed object.

        One of the operations may be a `test`, which makes the server reject the patch if the object
        no longer has the given resourceVersion. In that case, raises `Outpaced`.
        """
        act = Act("patch", resource, namespace, name)
        tested_version = None
        for operation in operations:
            if operation["op"] == "test" and operation["path"] == _VERSION:
                tested_version = operation["value"]
                break
        has_test = tested_version is not None
        # With this test, the patch may be sent twice: if the first patch landed, the second patch's
        # test fails.
        answer = self._ask("PATCH", act, operations, "application/json-patch+json", again=has_test)
        if answer.status == 409:
            raise Outpaced

        # A failed test and a missing path return the same response, byte for byte (seen with
        # Kubernetes 1.36): 422 with empty details. Only the object itself shows which of the two
        # happened.
        may_have_failed_test = has_test and answer.status == 422
        if may_have_failed_test and not value_at(status_of(answer), "details", "causes"):
            current = self.get(resource, namespace, name)
            if value_at(current, "metadata", "resourceVersion") != tested_version:
                raise Outpaced
        return self._object(answer, act)

    def merge(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Change an object with a merge patch, and return the changed object.

        Raises `Outpaced` if the patch contains a resourceVersion that the object no longer has.
        """
        act = Act("patch", resource, namespace, name)
        answer = self._ask("PATCH", act, change, "application/merge-patch+json", again=True)
        if answer.status == 409:
            raise Outpaced
        return self._object(answer, act)

    def post(self, event: Mapping[str, Any]) -> None:
        """Create a Kubernetes Event. It is not an error if the Event already exists."""
        act = Act("create", EVENTS, str(event["metadata"]["namespace"]))
        # the Event has a name, so it is never created twice
        answer = self._ask("POST", act, event, again=True)
        if answer.status != 409:
            self._object(answer, act)

    def config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the values of a ConfigMap, or {} if it does not exist."""
        data = mapping(self.get(CONFIG_MAPS, namespace, name), "data")
        return {key: value for key, value in data.items() if isinstance(value, str)}

    def _read_pages(
        self,
        act: Act,
        params: Mapping[str, str],
        accept: str,
        page_size: int,
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a list, requesting one page of `page_size` objects after another.

        The server may let the rest of a list expire. The list then starts over, and some objects
        are yielded again. `params` are query parameters, such as the label selector, and `accept`
        is the media type to request.
        """
        cursor = _Cursor(act, page_size, self._list_limits)  # tracks the next page and the limits
        while cursor.has_more:
            # raises an error if the list has too many pages, or takes too long
            cursor.check_limits()
            try:
                answer = self._ask(
                    "GET",
                    act,
                    params={**params, **cursor.params},
                    accept=accept,
                    explain_no_answer=False,
                )
            except NoAnswerError as error:
                # If a response is too large, request the page again with fewer objects.
                if error.kind == "large" and cursor.shrink_pages():
                    continue
                raise error_for_no_answer(error, act) from None
            cursor.count_page(len(answer.body))  # raises an error if the whole list is too large
            if cursor.restart_if_expired(answer):
                continue

            if accept == _METADATA:
                answer = replace(answer, body=without_managed_fields(answer.body))
            body = self._object(answer, act)
            items = body.get("items")
            if items is not None and not isinstance(items, list):
                raise error_for_foreign_answer(answer)
            cursor.go_to_next_page(body)

            # When the loop reads the next page, it must no longer refer to this page's objects.
            # Otherwise, two pages would be in memory.
            del answer, body
            items = iter(mappings(items))
            yield from items
            del items

    def _object(self, answer: Response, act: Act) -> Mapping[str, Any]:
        """Return the object in a successful response. For any other response, raises the error that
        describes it.
        """
        content_type = answer.headers.get("Content-Type", "").lower()
        # a proxy's login page; with 5xx, it is a gateway's error page, so a retry may help
        if content_type.startswith("text/html") and answer.status < 500:
            raise error_for_foreign_answer(answer)
        if not 200 <= answer.status < 300:
            raise error_for_answer(answer, act, self._access.who)
        if not content_type.startswith("application/json"):
            raise error_for_foreign_answer(answer)
        try:
            body = answer.json()
        except ValueError:
            raise SourceDownError(
                f"cannot {act}: the response is incomplete",
                hint="run it again",
            ) from None
        if not isinstance(body, dict):
            raise error_for_foreign_answer(answer)
        return body

    def _ask(
        self,
        method: str,
        act: Act,
        body: Any = None,
        content_type: str = _JSON,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = _JSON,
        again: bool | None = None,
        explain_no_answer: bool = True,
    ) -> Response:
        """Send a request, and return the response.

        If the server rejects the credential (401), renew it, and send the request once more.
        `again` says whether the request may be retried after a broken connection (None: only if its
        method is safe). Without `explain_no_answer`, a `NoAnswerError` is raised unchanged, instead
        of an error that explains it.
        """
        data = None
        headers = {"Accept": accept}
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = content_type

        def send_request() -> Response:
            """Send the request with the current credential."""
            return self._client().ask(
                method,
                act.path,
                params=params,
                data=data,
                headers=headers,
                again=again,
            )

        try:
            answer = send_request()
            if answer.status == 401 and self._access.renew():
                answer = send_request()
        except NoAnswerError as error:
            if not explain_no_answer:
                raise
            raise error_for_no_answer(error, act) from None
        return answer

    def _client(self) -> Http:
        return self._access.http(self._limits, lambda line: self._log("debug", line))


class _Cursor:
    """The position in a list that is read page by page, and what has been read so far."""

    def __init__(self, act: Act, page_size: int, limits: ResourceListLimits) -> None:
        self.has_more = True  # whether the list may have another page
        self._act = act
        self._page_size = page_size  # objects to request at once
        self._token = ""  # the server's `continue` token for the next page; "" for the first page
        self._expiries = 0  # how many times the server has rejected the token
        self._limits = limits
        self._bytes_read = 0
        self._pages_read = 0
        self._deadline = time.monotonic() + limits.seconds
        self._used_tokens: set[int] = set()  # hashes of the tokens used so far

    @property
    def params(self) -> dict[str, str]:
        """Return the parameters for the next page."""
        params = {"limit": str(self._page_size)}
        if self._token:
            params["continue"] = self._token
        return params

    def check_limits(self) -> None:
        """Raise `SourceDownError` if the list has had too many pages, or takes too long."""
        if self._pages_read >= self._limits.pages:
            raise self._endless()
        if time.monotonic() > self._deadline:
            raise SourceDownError(
                f"cannot {self._act}: the list took more than {self._limits.seconds:g} seconds",
                hint=f"run it again; {NARROW}",
            )

    def count_page(self, size: int) -> None:
        """Count a page of `size` bytes. If it is large, request fewer objects from now on.

        Raises `SourceError` if all pages together are too large.
        """
        self._pages_read += 1
        self._bytes_read += size
        if size > _LARGE_PAGE:
            self._page_size = max(self._page_size * _LARGE_PAGE // size, 1)
        if self._bytes_read > self._limits.size:
            raise SourceError(
                f"cannot {self._act}: the list is larger than {self._limits.size:,} bytes",
                hint=NARROW,
            )

    def shrink_pages(self) -> bool:
        """Request fewer objects from now on. Return False if it was already only one."""
        can_shrink = self._page_size > 1
        self._page_size = max(self._page_size // 8, 1)
        return can_shrink

    def restart_if_expired(self, answer: Response) -> bool:
        """Return whether the server no longer accepts the `continue` token. If so, set the token
        for the next request.

        The token may be too old (410; the response may include a new token) or invalid (400).
        Without a new token, the list starts over. Raises `SourceDownError` if this happens too
        often.
        """
        is_too_old = answer.status == 410
        is_invalid = answer.status == 400 and bool(self._token)
        if not is_too_old and not is_invalid:
            return False
        self._token = text(status_of(answer), "metadata", "continue") if is_too_old else ""
        self._expiries += 1
        self._used_tokens.clear()
        if self._expiries > _MOST_EXPIRIES:
            raise SourceDownError(
                f"cannot {self._act}: its pages expire too fast",
                hint="run it again",
            )
        return True

    def go_to_next_page(self, body: Mapping[str, Any]) -> None:
        """Continue with the page after this one. Raises `SourceDownError` if the server has
        returned the same `continue` token before.
        """
        self._token = text(body, "metadata", "continue")
        self.has_more = bool(self._token)
        if hash(self._token) in self._used_tokens:
            raise self._endless()
        self._used_tokens.add(hash(self._token))

    def _endless(self) -> SourceDownError:
        return SourceDownError(
            f"cannot {self._act}: the API keeps returning more pages",
            hint="run it again; if that does not help, check the server",
        )


def _segment(name: str) -> str:
    """Quote a path segment, so that a name from an annotation cannot change the path."""
    if name in (".", ".."):
        raise AnnotationError(
            f"{name!r} is not a valid Kubernetes object name",
            hint="use the name that kubectl shows",
        )
    return path_part(name)


def without_managed_fields(body: bytes) -> bytes:
    """Return the API's JSON with every `managedFields` list emptied.

    A list is left unchanged if its end is uncertain.

    Managed fields make up most of the metadata, and are not used here. Parsing them would cost five
    times as much as everything else. Finding these lists by their brackets costs almost nothing.
    """
    parts = []
    handled = 0  # up to this byte, everything is already in `parts`
    key = body.find(_KEY)
    while key >= 0:
        list_start = key + len(_KEY)
        list_end = _end_of_list(body, list_start)
        parts.append(body[handled:list_start])
        handled = list_start if list_end < 0 else list_end
        key = body.find(_KEY, handled)
    if not parts:
        return body
    return b"".join((*parts, body[handled:]))


def _end_of_list(body: bytes, start: int) -> int:
    """Return the position of the bracket that closes a list, or -1 if it is uncertain. `start` is
    the position after the opening bracket.

    The list contains objects and strings, but no other lists. Each closing bracket is tried in
    turn. If the number of quotes before it is odd, it is part of a string.
    """
    bracket = start - 1
    for _ in range(_MOST_BRACKETS):
        bracket = body.find(b"]", bracket + 1)
        if bracket < 0:
            break
        content = body[start:bracket]
        # a bracket that opens another list or is in a string, or an escaped backslash
        is_uncertain = b"[" in content or b"\\\\" in content
        if is_uncertain:
            return -1
        unescaped_quotes = content.count(b'"') - content.count(b'\\"')
        is_in_string = unescaped_quotes % 2 == 1
        if not is_in_string:
            return bracket
    return -1


def error_for_answer(answer: Response, act: Act, who: str) -> TaskError:
    """Return the error for an unsuccessful response. `who` is our identity, for messages."""
    message = one_line(text(status_of(answer), "message"))[:_LONGEST]
    status = answer.status
    details = f": {message}" if message else ""
    if status == 401:
        return SourceAccessError(
            f"the Kubernetes API at {origin(answer.url)} does not accept {who} (401){details}",
            hint="renew its token or certificate, and check it: kubectl auth whoami",
        )
    if status == 403:
        return ForbiddenError(f"{who} is not allowed to {act}{details}", hint=act.rule)
    if status == 429 or status >= 500:
        return SourceDownError(
            f"the Kubernetes API cannot {act} right now ({status}){details}",
            hint=_AGAIN,
        )
    if status == 404:
        lists_argo_kind = act.resource.group == "argoproj.io" and not act.name
        if lists_argo_kind:  # the server does not know Argo CD's kinds of objects
            return SourceAccessError(
                f"Argo CD is not installed in this cluster: {origin(answer.url)} does not have"
                f" {act.resource}",
                hint="check which cluster the kubeconfig uses: kubectl config current-context",
            )
        return AbsentError(
            f"cannot {act}: not found",
            hint="check the name, and whether the object has been deleted",
        )
    # Go's server returns this for an http request to an https port
    if status == 400 and answer.url.startswith("http://") and not status_of(answer):
        return SourceAccessError(
            f"{origin(answer.url)} rejected an unencrypted request (400)",
            hint="start the server's address in the kubeconfig with https://",
        )
    if status == 400 and act.verb == "list":
        return UsageError(
            f"the Kubernetes API rejected the request to {act}{details}",
            hint="check --selector and --namespace",
        )
    return SourceError(
        f"the Kubernetes API refused to {act} ({status}){details}",
        hint="fix the reported problem, or ask a cluster administrator",
    )


def error_for_no_answer(error: NoAnswerError, act: Act) -> TaskError:
    """Return the error for a request that received no response. `error.kind` is the reason."""
    if error.kind == "tls":
        return SourceAccessError(
            error.message,
            hint="set the cluster's certificate authority in the kubeconfig",
        )
    if error.kind == "large":
        return SourceAccessError(
            f"cannot {act}: {error.message}",
            hint="check the server's address: this is not how a Kubernetes API responds",
        )
    if error.kind == "redirect":
        return SourceAccessError(error.message, hint="check the server's address in the kubeconfig")
    return SourceDownError(f"cannot {act}: {error.message}", hint=_AGAIN)


def error_for_foreign_answer(answer: Response) -> TaskError:
    """Return the error for a successful response that is not from a Kubernetes API, such as a
    proxy's login page.
    """
    header = answer.headers.get("Content-Type", "nothing")
    content_type, _, _ = "".join(char for char in header if char.isprintable()).partition(";")
    return SourceAccessError(
        f"{origin(answer.url)} returned {content_type[:80]}: it is not a Kubernetes API",
        hint=(
            "correct the server's address in the kubeconfig; if it is correct, allow the runner"
            " through the proxy or login page in front of it"
        ),
    )


def status_of(answer: Response) -> Mapping[str, Any]:
    """Return the `Status` object of an unsuccessful response, or {}."""
    body = answer.mapping()
    return body if body.get("kind") == "Status" else {}
