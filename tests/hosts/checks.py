"""Helpers for all manifest tests: the documents in a file, and their contents."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml


class _Texts(yaml.SafeLoader):
    """A YAML loader that leaves dates as written, like the API server."""


_Texts.yaml_implicit_resolvers = {
    key: [(tag, found) for tag, found in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return [
        one for one in yaml.load_all(path.read_text(encoding="utf-8"), _Texts) if one is not None
    ]


def texts(value: Any) -> Iterator[str]:
    """Yield every string in a manifest."""
    if isinstance(value, Mapping):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


def maps(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping in a manifest, the outermost first."""
    if isinstance(value, Mapping):
        yield value
        for one in value.values():
            yield from maps(one)
    elif isinstance(value, list):
        for one in value:
            yield from maps(one)
