"""Recorded answers of real servers (tests/data/recorded), and how a stand-in's answers are compared with them.

No recorded body is served: a test puts the stand-in into the situation of `when` and sends the recorded request.
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
    """One request, and what a real server answered."""

    when: str
    request: Mapping[str, Any]
    response: Mapping[str, Any]

    @property
    def body(self) -> Any:
        return self.response["body"]


@cache
def exchange(server: str, name: str) -> Exchange:
    """`server` is a folder, `name` a file without `.json`."""
    return Exchange(**json.loads((FOLDER / server / f"{name}.json").read_text(encoding="utf-8")))


def names(server: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / server).glob("*.json"))


def sent(base: str, recorded: Exchange, token: str) -> requests.Response:
    """The stand-in's answer to the recorded request."""
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
    """Every path of a JSON value with the type that stands there; elements of lists share one path."""
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


def head(response: requests.Response, recorded: Exchange) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """(what the stand-in says, what the real server said): status, type, and where it redirects to or when to ask."""
    kept = ("Content-Type", "Location", "Retry-After", "Warning")
    real = recorded.response["headers"]
    ours = tuple(response.headers.get(name) for name in kept)
    return (response.status_code, *ours), (recorded.response["status"], *(real.get(name) for name in kept))
