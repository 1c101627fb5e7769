"""Finds who takes back a change of a live Application: its ApplicationSet, or a parent that heals itself. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from task.argocd.rollout_causes import mapping, said, text
from task.plain_data import elements, mappings

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def set_of(item: Mapping[str, Any]) -> str:
    """Return the name of the ApplicationSet that owns the Application, or "". Both are in the same namespace."""
    owners = mappings(mapping(item, "metadata").get("ownerReferences"))
    return next((text(one, "name") for one in owners if text(one, "kind") == "ApplicationSet"), "")


def step_of(owner: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    """Return the step of a RollingSync that an Application waits for, as far as it is known, or "" without one.

    Such an ApplicationSet turns auto-sync off in its Applications, and syncs them itself, one step after the other.
    """
    if text(mapping(mapping(owner, "spec"), "strategy"), "type") != "RollingSync":
        return ""
    name = text(mapping(item, "metadata"), "name")
    states = mappings(mapping(owner, "status").get("applicationStatus"))
    state = next((one for one in states if text(one, "application") == name), {})
    words = ("step", text(state, "step")), ("status", text(state, "status"))
    known = [f"{word} {value}" for word, value in words if value]
    known += [said(text(state, "message"))] if text(state, "message") else []
    return (
        f"it waits for its step in the RollingSync of ApplicationSet {set_of(item)}: {', '.join(known) or 'not known'}"
    )


def set_takes_back(owner: Mapping[str, Any], name: str, field: str) -> bool:
    """Tell whether an ApplicationSet writes this field of its Application again: `spec.source.helm.parameters`."""
    spec = mapping(owner, "spec")
    if text(mapping(spec, "syncPolicy"), "applicationsSync") in ("create-only", "create-delete"):
        return False
    ignored = mappings(spec.get("ignoreApplicationDifferences"))
    return bool(spec) and not _ignores((one for one in ignored if text(one, "name") in ("", name)), field)


def parent_takes_back(parent: Mapping[str, Any], item: Mapping[str, Any], field: str) -> bool:
    """Tell whether a parent (app of apps) heals this field: what is in Git counts, and no rule leaves it alone."""
    spec, metadata = mapping(parent, "spec"), mapping(item, "metadata")
    automated = mapping(mapping(spec, "syncPolicy"), "automated")
    if automated.get("selfHeal") is not True or automated.get("enabled") is False:
        return False
    wanted = {
        "group": "argoproj.io",
        "kind": "Application",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
    }
    rules = mappings(spec.get("ignoreDifferences"))
    ignored = (one for one in rules if all(text(one, key) in ("", "*", value) for key, value in wanted.items()))
    return not _ignores(ignored, field) and _applied(item, field)


def _ignores(rules: Iterable[Mapping[str, Any]], field: str) -> bool:
    """Tell whether one of the rules may leave the field alone. What a jq expression selects is not computed."""
    pointer = f"/{field.replace('.', '/')}/"
    for one in rules:
        pointers = [f"{path.rstrip('/')}/" for path in elements(one.get("jsonPointers")) if isinstance(path, str)]
        if one.get("managedFieldsManagers") or any(
            pointer.startswith(each) or each.startswith(pointer) for each in pointers
        ):
            return True
        if any("source" in str(path) or str(path) == ".spec" for path in elements(one.get("jqPathExpressions"))):
            return True
    return False


def _applied(item: Mapping[str, Any], field: str) -> bool:
    """Tell whether the manifest in Git has the field. If not, Argo CD sees no difference there, and heals nothing."""
    try:
        value: Any = json.loads(text(mapping(mapping(item, "metadata"), "annotations"), LAST_APPLIED))
    except (ValueError, RecursionError):
        return True  # it was applied in another way
    for part in field.split("."):
        if isinstance(value, list):
            value = value[int(part)] if part.isdigit() and int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value is not None
