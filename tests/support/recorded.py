"""Recorded responses of real servers (tests/data/recorded), and functions that compare a fake's
responses with them.

Recorded bodies are never served. Instead, a test puts the fake into the situation described in
`when`, and sends it the recorded request.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlencode

import requests

from support import DATA

FOLDER = DATA / "recorded"


@dataclass(frozen=True)
class Exchange:
    """A request, and a real server's response."""

    when: str
    request: Mapping[str, Any]
    response: Mapping[str, Any]

    @property
    def body(self) -> Any:
        return self.response["body"]


@cache
def exchange(server: str, name: str) -> Exchange:
    """Return a recorded exchange. `server` is a folder, and `name` is a file name without
    `.json`.
    """
    return Exchange(**json.loads((FOLDER / server / f"{name}.json").read_text(encoding="utf-8")))


def names(server: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / server).glob("*.json"))


def sent(base: str, recorded: Exchange, token: str) -> requests.Response:
    """Send the recorded request to the fake, and return its response."""
    asked = recorded.request
    headers = {**asked["headers"], **({"Authorization": f"Bearer {token}"} if token else {})}
    query = urlencode(asked["query"], doseq=True, safe=",")
    return requests.request(
        asked["method"],
        f"{base}{asked['path']}{f'?{query}' if query else ''}",
        headers=headers,
        data=None if asked["body"] is None else json.dumps(asked["body"]),
        allow_redirects=False,
        timeout=10,
    )


def shape(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every path in a JSON value, with the type of the value at that path. The elements of a
    list share one path.
    """
    if isinstance(value, dict):
        yield path, "object"
        for key, one in value.items():
            yield from shape(one, f"{path}.{key}")
    elif isinstance(value, list):
        yield path, "list"
        for one in value:
            yield from shape(one, f"{path}[]")
    else:
        yield path, type(value).__name__


def head(
    response: requests.Response, recorded: Exchange
) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return the heads of the fake's response and of the real one: the status, and the headers for
    the content type, redirects, retries, and warnings.
    """
    kept = ("Content-Type", "Location", "Retry-After", "Warning")
    real = recorded.response["headers"]
    ours = tuple(response.headers.get(name) for name in kept)
    return (response.status_code, *ours), (
        recorded.response["status"],
        *(real.get(name) for name in kept),
    )


# The paths of the Application fields that we read. `[]` means each item of a list. Missing values
# are left out.
READ = (
    "metadata.name", "metadata.namespace", "metadata.deletionTimestamp",
    "metadata.annotations.argocd~argoproj~io/refresh", "metadata.annotations.argocd~argoproj~io/tracking-id",
    "spec.project", "spec.source", "spec.sources", "spec.syncPolicy.automated", "operation.sync.revision",
    "operation.sync.revisions",
    "status.sync.status", "status.sync.revision", "status.sync.revisions", "status.sync.comparedTo.source",
    "status.sync.comparedTo.sources",
    "status.health.status", "status.health.message", "status.health.lastTransitionTime", "status.reconciledAt",
    "status.summary.images", "status.sourceType", "status.sourceTypes", "status.conditions[].type",
    "status.conditions[].message",
    "status.resources[].kind", "status.resources[].name", "status.resources[].status", "status.resources[].health",
    "status.resources[].hook", "status.resources[].requiresPruning",
    "status.operationState.phase", "status.operationState.message", "status.operationState.startedAt",
    "status.operationState.finishedAt", "status.operationState.retryCount",
    "status.operationState.operation.retry.limit", "status.operationState.operation.sync.revision",
    "status.operationState.syncResult.revision", "status.operationState.syncResult.revisions",
    "status.operationState.syncResult.source", "status.operationState.syncResult.resources[].kind",
    "status.operationState.syncResult.resources[].name", "status.operationState.syncResult.resources[].status",
    "status.operationState.syncResult.resources[].message", "status.operationState.syncResult.resources[].hookType",
    "status.operationState.syncResult.resources[].hookPhase",
)  # fmt: skip


def application_fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an Application that we read. Times are replaced by their rank: 1 is the
    earliest.
    """
    found = {
        path: value for path in READ if (value := _at(item, path.split("."))) not in (None, [])
    }
    moments = sorted(
        {value for path, value in found.items() if path.endswith(("At", "Time", "Timestamp"))}
    )
    ranks = {moment: number for number, moment in enumerate(moments, 1)}
    return {
        path: ranks[value] if isinstance(value, str) and value in ranks else value
        for path, value in found.items()
    }


def _at(value: Any, path: list[str]) -> Any:
    if not path:
        return value
    name = path[0].removesuffix("[]").replace("~", ".")
    inner = value.get(name) if isinstance(value, dict) else None
    if path[0].endswith("[]"):
        return [_at(one, path[1:]) for one in inner or ()]
    return _at(inner, path[1:])
