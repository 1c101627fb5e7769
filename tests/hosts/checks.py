"""What tests of manifests share: the documents of a file, and what the host's schema says of them."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from support import schemas

GROUPS = {
    "tekton.dev": "tekton",
    "argoproj.io/Workflow": "argo-workflows",
    "argoproj.io/WorkflowTemplate": "argo-workflows",
    "argoproj.io/ClusterWorkflowTemplate": "argo-workflows",
    "argoproj.io/CronWorkflow": "argo-workflows",
    "argoproj.io/EventSource": "argo-events",
    "argoproj.io/Sensor": "argo-events",
}


class _Texts(yaml.SafeLoader):
    """Leaves dates as they are written, as the API server does."""


_Texts.yaml_implicit_resolvers = {
    key: [(tag, found) for tag, found in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents(path: Path) -> list[Any]:
    """The documents of a YAML file."""
    return [one for one in yaml.load_all(path.read_text(encoding="utf-8"), _Texts) if one is not None]


def schema_of(document: Mapping[str, Any]) -> str:
    """The schema of a manifest's kind; "" where there is none (Tekton's triggers, Kubernetes' own kinds)."""
    group, _, version = document["apiVersion"].partition("/")
    name = GROUPS.get(group) or GROUPS.get(f"{group}/{document['kind']}")
    return f"strict/{name}-{document['kind'].lower()}-{version}.json" if name else ""


def problems(schema: str, document: Any) -> list[str]:
    """What a schema finds wrong."""
    return [f"{error.json_path}: {error.message}" for error in _validator(schema).iter_errors(document)]


@cache
def _validator(schema: str) -> Any:
    return jsonschema.Draft7Validator(json.loads((schemas() / schema).read_text(encoding="utf-8")))


def texts(value: Any) -> Iterator[str]:
    """Every text in a manifest."""
    if isinstance(value, Mapping):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


def maps(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every mapping in a manifest, the outermost first."""
    if isinstance(value, Mapping):
        yield value
        for one in value.values():
            yield from maps(one)
    elif isinstance(value, list):
        for one in value:
            yield from maps(one)
