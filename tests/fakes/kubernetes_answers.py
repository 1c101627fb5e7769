"""The responses of a fake Kubernetes API: paginated lists, 410, 403, patches with tests, and
validation by Argo CD's own schema.

They were compared with recorded responses of Kubernetes 1.36 on 2026-11-22
(tests/kubernetes/test_kubernetes_recorded.py), and are compared with Kubernetes 1.37.2 by every
`make test-real` (tests/real/test_kubernetes_stand_in.py).
"""

import base64
import copy
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from fakes.kubernetes_rules import Unprocessable, granted, merged, operate
from fakes.kubernetes_state import (
    ADMIN,
    APPLICATIONS,
    EVENTS,
    KINDS,
    PARTIAL,
    Asked,
    KubernetesApi,
    Object,
    Status,
)
from support.host_schemas import violations


def answer_of(
    api: KubernetesApi, handler: Any, path: str, query: Mapping[str, str], content: bytes
) -> tuple[int, Any, Asked, Mapping[str, str]]:
    user = api.tokens.get(handler.headers.get("Authorization", "").removeprefix("Bearer "), "")
    resource, namespace, name = _place(path)
    verb = {
        "GET": "get" if name else "list",
        "POST": "create",
        "PATCH": "patch",
        "PUT": "update",
    }.get(handler.command, "delete")
    allowed = bool(user) and (
        user == ADMIN or granted(api.rules, user, verb, resource, namespace, name)
    )
    accept = handler.headers.get("Accept", "")
    asked = Asked(
        user, verb, resource, namespace, name, query, accept, 0, allowed, content.decode() or None
    )
    more: Mapping[str, str] = {}
    try:
        _admit(api, asked)
        api.before(asked)
        code, body = _do(api, asked, handler.headers.get("Content-Type", ""))
    except Status as status:
        code, body, more = status.code, status.body, status.headers
    return code, body, asked, more


def _admit(api: KubernetesApi, asked: Asked) -> None:
    if not asked.user:
        raise Status(401, "Unauthorized", "Unauthorized")
    group, _, plural = asked.resource.partition("/")
    if not asked.allowed:
        where = (
            f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        )
        raise Status(
            403,
            "Forbidden",
            f"{plural}{f'.{group}' if group else ''}{f' {_quoted(asked.name)}' if asked.name else ''} is forbidden: "
            f'User "{asked.user}" cannot {asked.verb} resource "{plural}" in API group "{group}" {where}',
            details=_details(asked),
        )
    if asked.resource not in api.objects:
        raise Status(404, "", "", text="404 page not found\n")
    if api.starting:
        said = "storage is (re)initializing"
        raise Status(
            429,
            "TooManyRequests",
            said,
            details={"retryAfterSeconds": 1},
            headers={"Retry-After": "1"},
        )


def _details(asked: Asked, kind: str = "") -> Object:
    """Return the `details` of an error about an object or a kind, without empty fields."""
    group, _, plural = asked.resource.partition("/")
    found = {"name": asked.name, "group": group, "kind": kind or plural}
    return {key: value for key, value in found.items() if value}


def _quoted(name: str) -> str:
    return f'"{name}"'


def _place(path: str) -> tuple[str, str, str]:
    """Return the (group/plural, namespace, name) that a path refers to."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return f"{group}/{rest[0]}", namespace, rest[1] if len(rest) > 1 else ""


def _do(api: KubernetesApi, asked: Asked, kind: str) -> tuple[int, Any]:
    if asked.verb == "list":
        return 200, _list(api, asked)
    group, _, plural = asked.resource.partition("/")
    if asked.verb == "create":
        return 201, _create(api, asked)
    found = api.objects[asked.resource].get((asked.namespace, asked.name))
    if found is None:
        kind = f"{plural}.{group}" if group else plural
        raise Status(404, "NotFound", f'{kind} "{asked.name}" not found', details=_details(asked))
    if asked.verb == "get":
        return 200, copy.deepcopy(found)
    if asked.verb != "patch":
        raise Status(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    return 200, _patch(api, asked, found, kind)


def _list(api: KubernetesApi, asked: Asked) -> Object:
    if asked.query.get("fieldSelector"):
        raise Status(
            400, "BadRequest", f"field label not supported: {asked.query['fieldSelector']}"
        )
    items = sorted(
        (key, one)
        for key, one in api.objects[asked.resource].items()
        if (not asked.namespace or key[0] == asked.namespace)
        and _selected(one, asked.query.get("labelSelector", ""))
    )
    limit, token = int(asked.query.get("limit") or 0), asked.query.get("continue", "")
    if asked.query.get("resourceVersion") == "0":
        limit = 0  # the limit does not apply to lists from the watch cache
    start, version = _continued(api, token)
    items = [(key, one) for key, one in items if key > start]
    page = items[:limit] if limit else items
    metadata: Object = {"resourceVersion": str(version)}
    if len(page) < len(items):
        metadata |= {
            "continue": _token(version, page[-1][0]),
            "remainingItemCount": len(items) - len(page),
        }
    version_of, kind = KINDS[asked.resource]
    accepted = asked.accept.split(",")
    if accepted and all(";as=" in one and PARTIAL not in one for one in accepted):
        raise Status(
            406, "NotAcceptable", "only the following media types are accepted: application/json"
        )
    if api.knows_metadata and PARTIAL in accepted[0]:
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        found = [{**partial, "metadata": one["metadata"]} for _, one in page] or None
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": found,
        }
    whole = [one for _, one in page]
    if version_of != "v1":
        metadata = {"continue": "", **metadata}
    else:  # only for built-in kinds, not for custom resources
        whole = [
            {key: value for key, value in one.items() if key not in ("apiVersion", "kind")}
            for one in whole
        ]
    return {"apiVersion": version_of, "kind": f"{kind}List", "metadata": metadata, "items": whole}


def _token(version: int, start: tuple[str, str]) -> str:
    """Return a continue token in Kubernetes' format: the position at which to continue, in base64
    without padding.
    """
    said = {"v": "meta.k8s.io/v1", "rv": version, "start": f"{'/'.join(start)}\0"}
    return (
        base64.urlsafe_b64encode(json.dumps(said, separators=(",", ":")).encode())
        .decode()
        .rstrip("=")
    )


def _continued(api: KubernetesApi, token: str) -> tuple[tuple[str, str], int]:
    if not token:
        return ("", ""), api.version
    try:
        said = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, (namespace, _, name) = said["rv"], said["start"].rstrip("\0").partition("/")
    except ValueError:
        why = (
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"
        )
        raise Status(400, "BadRequest", why) from None
    if version == -1:  # the token is from a 410: list the current state
        return (namespace, name), api.version
    if version <= api.compacted:
        raise Status(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results. Continuing with the provided token results in an inconsistent list - objects that were "
            "created, modified, or deleted between the time the first chunk was returned and now may show up in the "
            "list.",
            token=_token(-1, (namespace, name)) if api.own_continue else "",
        )
    return (namespace, name), version


def _selected(item: Object, selector: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    for part in (one for one in selector.split(",") if one):
        words = part.replace("(", " (").split()
        if len(words) > 1:
            wanted = "in, notin, =, ==, !=, gt, lt"
            raise Status(
                400,
                "BadRequest",
                f"unable to parse requirement: found '{words[1]}', expected: {wanted}",
            )
        key, found, value = part.partition("=")
        if (labels.get(key) != value.lstrip("=")) if found else key not in labels:
            return False
    return True


def _create(api: KubernetesApi, asked: Asked) -> Any:
    item = json.loads(asked.content)
    metadata = item["metadata"]
    if metadata.get("namespace", asked.namespace) != asked.namespace:
        raise Status(
            400, "BadRequest", "the namespace of the provided object does not match the request"
        )
    if asked.resource == EVENTS:
        _check_event(item, asked.namespace)
    if (asked.namespace, metadata["name"]) in api.objects[asked.resource]:
        plural, name = asked.resource.partition("/")[2], metadata["name"]
        details = {"name": name, "kind": plural}
        raise Status(409, "AlreadyExists", f'{plural} "{name}" already exists', details=details)
    api.add(asked.resource, item)
    return api.of(asked.resource, metadata["name"], asked.namespace)


def _check_event(item: Object, namespace: str) -> None:
    involved = item["involvedObject"]
    if involved.get("namespace") != namespace:
        raise Status(
            422,
            "Invalid",
            "Event is invalid: involvedObject.namespace: Invalid value: does not match event.namespace",
        )
    if item.get("type") not in ("Normal", "Warning") or len(item.get("message", "")) > 1024:
        raise Status(422, "Invalid", "Event is invalid")
    for name in ("firstTimestamp", "lastTimestamp"):
        time.strptime(item[name], "%Y-%m-%dT%H:%M:%SZ")


def _patch(api: KubernetesApi, asked: Asked, found: Object, kind: str) -> Any:
    change, made = json.loads(asked.content), copy.deepcopy(found)
    if kind == "application/json-patch+json":
        try:
            operate(made, change)
        except Unprocessable:  # a failed test or a missing path: the response is the same
            said = "the server rejected our request due to an error in our request"
            raise Status(422, "Invalid", said, details={}) from None
    elif kind == "application/merge-patch+json":
        made = merged(made, change)
    else:
        raise Status(
            415, "UnsupportedMediaType", "the body of the request was in an unknown format"
        )
    if made["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
        raise Status(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on applications.argoproj.io "{asked.name}": the object has been modified; '
            "please apply your changes to the latest version and try again",
            details=_details(asked),
        )
    if asked.resource == APPLICATIONS and (
        wrong := violations("argo-cd-application-v1alpha1", made)
    ):
        causes = [_cause(*one) for one in wrong]
        listed = ", ".join(f"{one['field']}: {one['message']}" for one in causes)
        said = f"[{listed}]" if len(causes) > 1 else listed
        details = {**_details(asked, "Application"), "causes": causes}
        raise Status(
            422,
            "Invalid",
            f'Application.argoproj.io "{asked.name}" is invalid: {said}',
            details=details,
        )
    if made != found:
        api.add(asked.resource, made)
    return api.of(asked.resource, asked.name, asked.namespace)


def _cause(field: str, wanted: str, there: str) -> Object:
    """Return the `cause` entry for a violation of the custom resource's schema."""
    if not wanted:
        return {"reason": "FieldValueRequired", "message": "Required value", "field": field}
    message = f'Invalid value: "{there}": {field} in body must be of type {wanted}: "{there}"'
    return {"reason": "FieldValueTypeInvalid", "message": message, "field": field}
