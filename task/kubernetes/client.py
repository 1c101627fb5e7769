"""A small client of the Kubernetes API that lists, reads and patches objects, and creates Events.

Lists come page by page, as metadata only unless whole objects are requested. At most one page is in memory, whatever
the server does. If a right is missing, the error shows the rule that grants it.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from task.errors import (
    AbsentError,
    AnnotationError,
    Outpaced,
    SourceAccessError,
    SourceDownError,
    SourceError,
    TaskError,
    UsageError,
)
from task.http import Http, Limits, NoAnswerError, Response
from task.kubernetes.access import ClusterAccess
from task.plain_data import mapping
from task.secret import Secret
from task.text import one_line
from task.urls import origin, path_part

PAGE = 500  # objects, as many as kubectl requests
# Whole objects: an Application has 16 kB and more, and takes several times as much while it is parsed.
WHOLE_PAGE = 50
_LARGE_PAGE = 2 * 1024 * 1024  # bytes
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
NARROW = "narrow the Applications: --namespace, --selector"
_VERSION = "/metadata/resourceVersion"
_FAILURES = 20  # how often the pages of one list may expire
_TRIES = 8  # brackets that may be inside strings
_KEY = b'"managedFields":['  # only a key; inside a string its quotes are escaped
_LONGEST = 300  # characters of a server's message
_AGAIN = "run it again"


@dataclass(frozen=True)
class ResourceListLimits:
    """Limits for one list, for all of its pages together."""

    size: int = 512 * 1024 * 1024  # bytes
    pages: int = 10_000
    seconds: float = 600.0


@dataclass(frozen=True)
class Resource:
    """One kind of object."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the API's path of the objects."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inner = f"/namespaces/{_segment(namespace)}" if namespace else ""
        return f"{root}{inner}/{self.plural}{f'/{_segment(name)}' if name else ''}"


APPLICATIONS = Resource("argoproj.io", "v1alpha1", "applications")
APPLICATION_SETS = Resource("argoproj.io", "v1alpha1", "applicationsets")
PROJECTS = Resource("argoproj.io", "v1alpha1", "appprojects")
UPDATERS = Resource("argocd-image-updater.argoproj.io", "v1alpha1", "imageupdaters")
EVENTS = Resource("", "v1", "events")
SECRETS = Resource("", "v1", "secrets")
CONFIG_MAPS = Resource("", "v1", "configmaps")
PODS = Resource("", "v1", "pods")
Operation = Mapping[str, Any]  # of a JSON patch


class ForbiddenError(SourceAccessError):
    """The server knows us, but forbids this (403)."""


@dataclass(frozen=True)
class Act:
    """An attempted request, in the words of Kubernetes' access control."""

    verb: str  # "get", "list", "patch", "create"
    group: str
    resource: str  # plural
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace!r}" if self.namespace else " in all namespaces"
        which = f" {self.name!r}" if self.name else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{which}{where}"

    @property
    def rule(self) -> str:
        """The rule of a Role or ClusterRole that grants it."""
        kind = f"a Role of namespace {self.namespace!r}" if self.namespace else "a ClusterRole"
        return f'{kind} needs {{apiGroups: ["{self.group}"], resources: [{self.resource}], verbs: [{self.verb}]}}'


class Kubernetes:
    """One API server. Safe to use from several threads.

    Every method raises `SourceAccessError` (401, 403: `ForbiddenError`, TLS), `SourceDownError` (unreachable, slow,
    busy), `SourceError` and `UsageError`.
    """

    def __init__(
        self,
        access: ClusterAccess,
        limits: Limits = Limits(),
        log: Callable[[str, str], None] = lambda *_: None,
        lists: ResourceListLimits = ResourceListLimits(),
    ) -> None:
        self._access, self._limits, self._log, self._lists = access, limits, log, lists

    def close(self) -> None:
        """Close the connections."""
        self._access.close()

    def list(
        self, resource: Resource, namespace: str = "", *, selector: str = "", full: bool = False, page: int = 0
    ) -> Iterator[Mapping[str, Any]]:
        """Yield every object once, of one namespace or of all. A server may return whole objects without `full`."""
        act = Act("list", resource.group, resource.plural, namespace)
        wanted = {"Accept": "application/json" if full else _METADATA}
        page = page or (WHOLE_PAGE if full else PAGE)
        params = {"labelSelector": selector} if selector else {}
        seen: set[tuple[str, str]] = set()
        for item in self._items(act, resource.path(namespace), params, wanted, page):
            if not isinstance(item, dict):
                continue
            known = mapping(item, "metadata")
            key = (str(known.get("namespace", "")), str(known.get("name", "")))
            if key not in seen:
                seen.add(key)
                yield item

    def get(self, resource: Resource, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return one whole object, or None if it does not exist."""
        act = Act("get", resource.group, resource.plural, namespace, name)
        answer = self._ask("GET", resource.path(namespace, name), act)
        return None if answer.status == 404 else self._object(answer, act)

    def patch(
        self, resource: Resource, namespace: str, name: str, operations: Sequence[Operation]
    ) -> Mapping[str, Any]:
        """Change an object by a JSON patch. Raises `Outpaced` if its `test` of the resourceVersion fails."""
        act = Act("patch", resource.group, resource.plural, namespace, name)
        tested = next((one["value"] for one in operations if one["op"] == "test" and one["path"] == _VERSION), None)
        # With this test the patch may be sent twice: if the first one landed, the test of the second one fails.
        again = tested is not None
        answer = self._ask("PATCH", resource.path(namespace, name), act, operations, "json-patch", again=again)
        if answer.status == 409:
            raise Outpaced
        # A failed test and a missing path get the same answer, byte for byte (seen with Kubernetes 1.36): 422 with
        # empty details. Only the object itself shows which of them it was.
        if answer.status == 422 and tested is not None and not mapping(status_of(answer).get("details")).get("causes"):
            now = self.get(resource, namespace, name)
            if now is None or now.get("metadata", {}).get("resourceVersion") != tested:
                raise Outpaced
        return self._object(answer, act)

    def merge(self, resource: Resource, namespace: str, name: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change an object by a merge patch. Raises `Outpaced` if the patch names another resourceVersion."""
        act = Act("patch", resource.group, resource.plural, namespace, name)
        answer = self._ask("PATCH", resource.path(namespace, name), act, change, "merge-patch", again=True)
        if answer.status == 409:
            raise Outpaced
        return self._object(answer, act)

    def post(self, event: Mapping[str, Any]) -> None:
        """Create a Kubernetes Event from `task.after.follow`. It is no error if the Event exists already."""
        namespace = str(event["metadata"]["namespace"])
        act = Act("create", "", "events", namespace)
        # the Event has a name, so it is never created twice
        answer = self._ask("POST", EVENTS.path(namespace), act, event, again=True)
        if answer.status != 409:
            self._object(answer, act)

    def secret(self, namespace: str, name: str) -> Mapping[str, Secret] | None:
        """Return the decoded values of a Secret, or None if it does not exist. Binary values are left out."""
        found = self.get(SECRETS, namespace, name)
        return None if found is None else secret_data(found)

    def config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return the values of a ConfigMap, or None if it does not exist."""
        found = self.get(CONFIG_MAPS, namespace, name)
        data = (found or {}).get("data") or {}
        return None if found is None else {key: value for key, value in data.items() if isinstance(value, str)}

    def _items(
        self, act: Act, path: str, params: Mapping[str, str], headers: Mapping[str, str], page: int
    ) -> Iterator[Any]:
        """Yield the objects page by page. If the list starts over, some come twice."""
        cursor = _Cursor(act, page, self._lists)
        while cursor.more:
            cursor.check()
            try:
                answer = self._ask("GET", path, act, params={**params, **cursor.params}, headers=headers, whole=False)
            except NoAnswerError as error:
                if error.kind != "large" or not cursor.smaller():
                    raise no_answer(error, act) from None
                continue
            cursor.took(len(answer.body))
            if cursor.expired(answer):
                continue
            if headers["Accept"] == _METADATA:
                answer = replace(answer, body=without_managed_fields(answer.body))
            body = self._object(answer, act)
            items = body.get("items")
            if items is not None and not isinstance(items, list):
                raise foreign(answer)
            cursor.turn(body)
            # What this loop still knows would be in memory while the next page is read, too.
            del answer, body
            items = iter(items or ())
            yield from items
            del items

    def _object(self, answer: Response, act: Act) -> Mapping[str, Any]:
        """Return the object of a successful answer. Raises the error for any other answer."""
        kind = answer.headers.get("Content-Type", "").lower()
        if kind.startswith("text/html") and answer.status < 500:
            raise foreign(answer)
        if not 200 <= answer.status < 300:
            raise problem(answer, act, self._access.what)
        if not kind.startswith("application/json"):
            raise foreign(answer)
        try:
            body = answer.json()
        except (ValueError, RecursionError):
            raise SourceDownError(f"cannot {act}: the answer is incomplete", hint="run it again") from None
        if not isinstance(body, dict):
            raise foreign(answer)
        return body

    def _ask(
        self,
        method: str,
        path: str,
        act: Act,
        body: Any = None,
        patch: str = "",
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool | None = None,
        whole: bool = True,
    ) -> Response:
        """Return one answer. Renew a refused login once. `whole=False` lets `NoAnswerError` pass."""
        kind = (
            {"Content-Type": f"application/{patch}+json" if patch else "application/json"} if body is not None else {}
        )
        data = None if body is None else json.dumps(body).encode()
        heads = {"Accept": "application/json", **kind, **(headers or {})}
        try:
            answer = self._client().ask(method, path, params=params, data=data, headers=heads, again=again)
            if answer.status == 401 and self._access.renew():
                answer = self._client().ask(method, path, params=params, data=data, headers=heads, again=again)
        except NoAnswerError as error:
            if not whole:
                raise
            raise no_answer(error, act) from None
        return answer

    def _client(self) -> Http:
        return self._access.http(self._limits, lambda line: self._log("debug", line))


class _Cursor:
    """The progress of one list."""

    def __init__(self, act: Act, limit: int, lists: ResourceListLimits) -> None:
        self.more = True
        self._act, self._limit, self._token, self._failures = act, limit, "", 0
        self._lists, self._size, self._pages, self._end = lists, 0, 0, time.monotonic() + lists.seconds
        self._seen: set[int] = set()  # hashes of the tokens that were used

    @property
    def params(self) -> dict[str, str]:
        """Return the parameters for the next page."""
        return {"limit": str(self._limit), **({"continue": self._token} if self._token else {})}

    def check(self) -> None:
        """Check the time before each page. Raises `SourceDownError` if the list takes too long."""
        if self._pages >= self._lists.pages:
            raise self._endless()
        if time.monotonic() > self._end:
            raise SourceDownError(
                f"cannot {self._act}: the list takes more than {self._lists.seconds:g} seconds",
                hint=f"run it again; {NARROW}",
            )

    def took(self, size: int) -> None:
        """Count a page's size, and make the next pages smaller if it is large.

        Raises `SourceError` if all pages together are too large.
        """
        self._pages += 1
        self._size += size
        if size > _LARGE_PAGE:
            self._limit = max(self._limit * _LARGE_PAGE // size, 1)
        if self._size > self._lists.size:
            raise SourceError(f"cannot {self._act}: the list has more than {self._lists.size:,} bytes", hint=NARROW)

    def smaller(self) -> bool:
        """Make the pages smaller, and tell whether that is possible."""
        possible, self._limit = self._limit > 1, max(self._limit // 8, 1)
        return possible

    def expired(self, answer: Response) -> bool:
        """Tell whether the token was too old (a 410 may have a new one) or invalid (400), and prepare to continue."""
        if answer.status != 410 and not (self._token and answer.status == 400):
            return False
        self._token = _token(status_of(answer)) if answer.status == 410 else ""
        self._failures += 1
        self._seen.clear()
        if self._failures > _FAILURES:
            raise SourceDownError(f"cannot {self._act}: its pages expire too fast", hint="run it again")
        return True

    def turn(self, body: Mapping[str, Any]) -> None:
        """Go to the next page. Raises `SourceDownError` if that page came before."""
        self._token = _token(body)
        self.more = bool(self._token)
        if hash(self._token) in self._seen:
            raise self._endless()
        self._seen.add(hash(self._token))

    def _endless(self) -> SourceDownError:
        return SourceDownError(
            f"cannot {self._act}: its pages do not end", hint="run it again; if that does not help, check the server"
        )


def secret_data(item: Mapping[str, Any]) -> dict[str, Secret]:
    """Return the decoded texts of a Secret."""
    found = {}
    for key, value in (item.get("data") or {}).items():
        try:
            found[key] = Secret(b64decode(value or "").decode())
        except (ValueError, TypeError):
            continue
    return found


def _token(body: Mapping[str, Any]) -> str:
    metadata = body.get("metadata")
    token = metadata.get("continue") if isinstance(metadata, dict) else ""
    return token if isinstance(token, str) else ""


def _segment(text: str) -> str:
    """Quote one segment of a path, so that a name from an annotation cannot lead elsewhere."""
    if text in (".", ".."):
        raise AnnotationError(
            f"{text!r} is not a valid name of a Kubernetes object", hint="write the name that kubectl shows"
        )
    return path_part(text)


def without_managed_fields(body: bytes) -> bytes:
    """Return JSON of the API with empty lists as `managedFields`. A list stays as it is if its end is uncertain.

    They are most of the metadata, and are not used here. Parsing them would cost five times as much as everything else.
    Finding them by their brackets costs next to nothing.
    """
    parts, done = [], 0
    while (start := body.find(_KEY, done)) >= 0:
        inner = start + len(_KEY)
        end = _end(body, inner)
        parts.append(body[done:inner])
        done = inner if end < 0 else end
    return b"".join((*parts, body[done:])) if parts else body


def _end(body: bytes, start: int) -> int:
    """Return the end of the list, or -1 if it is uncertain. It has objects and strings, but no other list."""
    end = start - 1
    for _ in range(_TRIES):
        end = body.find(b"]", end + 1)
        if end < 0:
            break
        inner = body[start:end]
        if b"[" in inner or b"\\\\" in inner:
            return -1
        if (inner.count(b'"') - inner.count(b'\\"')) % 2 == 0:  # not inside a string
            return end
    return -1


def problem(answer: Response, act: Act, who: str) -> TaskError:
    """Return the error for an unsuccessful answer."""
    said, status = sentence(answer), answer.status
    words = f": {said}" if said else ""
    if status == 401:
        return SourceAccessError(
            f"the Kubernetes API at {origin(answer.url)} does not accept {who} (401){words}",
            hint="renew its token or certificate, and check it: kubectl auth whoami",
        )
    if status == 403:
        return ForbiddenError(f"{who} may not {act}{words}", hint=act.rule)
    if status == 429 or status >= 500:
        return SourceDownError(f"the Kubernetes API cannot {act} now ({status}){words}", hint=_AGAIN)
    if status == 404:
        if act.group != "argoproj.io" or act.name:
            return AbsentError(
                f"there is nothing to {act}", hint="check the name, and whether it was deleted meanwhile"
            )
        return SourceAccessError(
            f"Argo CD is not installed here: {origin(answer.url)} does not have {act.resource}.{act.group}",
            hint="check which cluster the kubeconfig names: kubectl config current-context",
        )
    if status == 400 and act.verb == "list":
        return UsageError(f"the Kubernetes API cannot {act} like this{words}", hint="check --selector and --namespace")
    return SourceError(
        f"the Kubernetes API does not {act} ({status}){words}",
        hint="correct what it names, or let an administrator of the cluster look",
    )


def no_answer(error: NoAnswerError, act: Act) -> TaskError:
    """Return the error for a missing answer."""
    if error.kind == "tls":
        return SourceAccessError(error.message, hint="give the cluster's certificate authority in the kubeconfig")
    if error.kind == "large":
        return SourceAccessError(
            f"{error.message} to {act}", hint="check the server's address: no Kubernetes API does this"
        )
    if error.kind == "redirect":
        return SourceAccessError(error.message, hint="check the server's address in the kubeconfig")
    return SourceDownError(f"cannot {act}: {error.message}", hint=_AGAIN)


def foreign(answer: Response) -> TaskError:
    """Return the error for a success that does not come from a Kubernetes API, such as a login page of a proxy."""
    kind = "".join(char for char in answer.headers.get("Content-Type", "nothing") if char.isprintable())
    return SourceAccessError(
        f"{origin(answer.url)} answers with {kind.partition(';')[0][:80]}: that is not a Kubernetes API",
        hint="correct the server's address in the kubeconfig; if it is right, let the runner past the proxy or login "
        "page in front of it",
    )


def sentence(answer: Response) -> str:
    """Return the message of a `Status` as one printable line, or "" if there is none."""
    message = status_of(answer).get("message")
    text = message if isinstance(message, str) else ""
    return one_line(text)[:_LONGEST]


def status_of(answer: Response) -> dict[str, object]:
    """Return the `Status` object of an unsuccessful answer, or an empty one."""
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) and body.get("kind") == "Status" else {}
