"""Checks documents against the CI hosts' schemas, which `python -m scripts.schemas` writes."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jsonschema

from support import DATA

GROUPS = {
    "argoproj.io": ("argo-cd", "argo-workflows", "argo-events"),
    "argocd-image-updater.argoproj.io": ("argocd-image-updater",),
    "tekton.dev": ("tekton",),
}
FACTS = DATA / "schemas.json"


def schema_of(document: Mapping[str, Any]) -> str:
    """Return the name of the schema for a manifest's kind, or "" for API groups without schemas
    (such as Tekton Triggers, and Kubernetes itself).
    """
    group, _, version = document.get("apiVersion", "").partition("/")
    if group not in GROUPS:
        return ""
    names = [f"{host}-{document['kind'].lower()}-{version}" for host in GROUPS[group]]
    (name,) = (name for name in names if name in _facts()["schemas"])
    return name


def problems(schema: str, document: Any) -> list[str]:
    """Return the errors in a document according to a schema."""
    return [
        f"{error.json_path}: {error.message}" for error in _validator(schema).iter_errors(document)
    ]


TYPES = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def violations(schema: str, document: Any) -> list[tuple[str, str, str]]:
    """Return (field, expected type, actual type) for each wrong type, and (field, "", "") for each
    missing field.
    """
    found = []
    for error in _validator(schema).iter_errors(document):
        path = "".join(
            f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.absolute_path
        ).lstrip(".")
        if error.validator == "required":
            missing = next(one for one in error.validator_value if one not in error.instance)
            found.append((f"{path}.{missing}".lstrip("."), "", ""))
        else:
            found.append(
                (path, str(error.validator_value), TYPES.get(type(error.instance), "null"))
            )
    return found


def fields(schema: str, *path: str) -> list[str]:
    """Return the paths of all fields below a field in a schema, with `[]` after lists."""
    node = _facts()["schemas"][schema]
    for name in path:
        node = _resolved(node)["properties"][name]
    return _fields(node, "")


def _fields(node: Any, path: str) -> list[str]:
    node = _resolved(node)
    found = []
    for name, one in node.get("properties", {}).items():
        found += [f"{path}{name}", *_fields(one, f"{path}{name}.")]
    if isinstance(items := node.get("items"), dict):
        found += _fields(items, f"{path.removesuffix('.')}[].")
    return found


def _resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in node:
        at = _facts()
        for part in node["$ref"].split("/")[1:]:
            at = at[part]
        node = at
    return node


@cache
def _facts() -> Any:
    return json.loads(FACTS.read_text(encoding="utf-8"))


@cache
def _validator(schema: str) -> Any:
    return jsonschema.Draft7Validator({"$ref": f"#/schemas/{schema}", **_facts()})
