"""The decisions of a Kubernetes API: who may do what, and how a patch changes an object."""

from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]


class Unprocessable(Exception):
    """Raised when a JSON patch cannot be applied. The messages are those of the library that the
    API server uses.
    """


def granted(
    manifests: Iterable[Object], user: str, verb: str, resource: str, namespace: str, name: str
) -> bool:
    """Return whether RBAC manifests allow a user to do this."""
    documents = list(manifests)
    roles = [
        _role(documents, binding)
        for binding in documents
        if binding["kind"].endswith("RoleBinding")
        and (binding["kind"] == "ClusterRoleBinding" or _home(binding) == namespace)
        and user
        in [
            f"system:serviceaccount:{one['namespace']}:{one['name']}" for one in binding["subjects"]
        ]
    ]
    group, _, plural = resource.partition("/")
    return any(
        group in rule["apiGroups"]
        and plural in rule["resources"]
        and verb in rule["verbs"]
        and name in (rule.get("resourceNames") or [name])
        for role in roles
        for rule in role.get("rules", ())
    )


def _role(documents: Iterable[Object], binding: Object) -> Object:
    """Return the role that a binding refers to: a Role in the same namespace, or a ClusterRole."""
    wanted = (binding["roleRef"]["kind"], binding["roleRef"]["name"])
    same = [one for one in documents if (one["kind"], one["metadata"]["name"]) == wanted]
    return next(
        (one for one in same if one["kind"] == "ClusterRole" or _home(one) == _home(binding)), {}
    )


def _home(document: Object) -> str:
    return str(document["metadata"].get("namespace", ""))


def merged(old: Any, change: Any) -> Any:
    """Apply a merge patch (RFC 7386) to an object, and return the result."""
    if not isinstance(change, dict):
        return change
    done = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            done.pop(key, None)
        else:
            done[key] = merged(done.get(key), value)
    return done


def operate(document: Any, operations: Iterable[Object]) -> None:
    """Apply a JSON patch in place."""
    for one in operations:
        _operate(document, one)


def _operate(document: Any, operation: Object) -> None:
    """Apply one operation of a JSON patch (RFC 6902). The error messages are those of the library
    that the API server uses.
    """
    path = operation["path"]
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    at: Any = document
    try:
        for part in parts[:-1]:
            at = at[int(part)] if isinstance(at, list) else at[part]
        last: Any = parts[-1]
        if isinstance(at, list):
            last = len(at) if last == "-" else int(last)
        if operation["op"] == "test":
            there = at[last] if isinstance(at, list) else at.get(last)
            if there != operation.get("value"):
                raise Unprocessable(f"testing value {path} failed: test failed")
        elif operation["op"] == "remove":
            del at[last]
        elif operation["op"] == "replace":
            at[last] = (at[last], operation["value"])[1]  # fails if the path does not exist
        elif isinstance(at, list):
            at.insert(last, operation["value"])
        else:
            at[last] = operation["value"]
    except (KeyError, IndexError, TypeError, ValueError):
        raise Unprocessable(
            f"{operation['op']} operation does not apply: doc is missing path: {path}"
        ) from None
