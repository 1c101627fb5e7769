"""Finds the objects that control an Application: its ApplicationSet, a self-healing parent, and its
AppProject.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from task.argocd.rollout_causes import said
from task.plain_data import elements, mapping, mappings, parsed_json, text

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ID = 16  # hexadecimal digits at the end of a fingerprint


def set_of(item: Mapping[str, Any]) -> str:
    """Return the name of the ApplicationSet that owns the Application, or "".

    Both are in the same namespace.
    """
    for owner in mappings(item, "metadata", "ownerReferences"):
        if text(owner, "kind") == "ApplicationSet":
            return text(owner, "name")
    return ""


def parent_of(item: Mapping[str, Any], namespace: str) -> tuple[str, str] | None:
    """Return (namespace, name) of the Application that deployed this one (app of apps),
    or None if unknown.

    `namespace` is the control plane's. In other namespaces, the instance label is
    `<namespace>_<name>`.
    """
    metadata = mapping(item, "metadata")
    tracking_id = text(metadata, "annotations", "argocd.argoproj.io/tracking-id")
    instance, _, tracked_object = tracking_id.partition(":")
    if not tracked_object.startswith("argoproj.io/Application:"):
        instance = text(metadata, "labels", "app.kubernetes.io/instance")
    instance_namespace, _, name = instance.rpartition("_")
    if not name:
        return None
    parent = (instance_namespace or namespace, name)
    if parent == (text(metadata, "namespace"), text(metadata, "name")):
        return None  # it deploys itself
    return parent


def step_of(owner: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    """Return the RollingSync step that an Application is waiting for, as far as known, or "" if
    there is none.

    An ApplicationSet with RollingSync turns off auto-sync in its Applications, and syncs them
    itself, step by step.
    """
    if text(owner, "spec", "strategy", "type") != "RollingSync":
        return ""
    name = text(item, "metadata", "name")
    states = mappings(owner, "status", "applicationStatus")
    state = next((entry for entry in states if text(entry, "application") == name), {})
    details = [f"{key} {text(state, key)}" for key in ("step", "status") if text(state, key)]
    if text(state, "message"):
        details.append(said(text(state, "message")))
    return (
        f"it is waiting for its step in the RollingSync of ApplicationSet {set_of(item)}:"
        f" {', '.join(details) or 'not known'}"
    )


def set_takes_back(owner: Mapping[str, Any], name: str, field: str) -> bool:
    """Return whether an ApplicationSet overwrites this field of its Application, such as
    `spec.source.helm.parameters`.
    """
    spec = mapping(owner, "spec")
    if text(spec, "syncPolicy", "applicationsSync") in ("create-only", "create-delete"):
        return False
    rules = mappings(spec, "ignoreApplicationDifferences")
    rules_for_it = [rule for rule in rules if text(rule, "name") in ("", name)]
    return bool(spec) and not _ignores(rules_for_it, field)


def parent_takes_back(parent: Mapping[str, Any], item: Mapping[str, Any], field: str) -> bool:
    """Return whether a parent (app of apps) restores this field: the manifest in Git has it, and no
    rule ignores it.
    """
    spec = mapping(parent, "spec")
    metadata = mapping(item, "metadata")
    automated = mapping(spec, "syncPolicy", "automated")
    if automated.get("selfHeal") is not True or automated.get("enabled") is False:
        return False
    identity = {
        "group": "argoproj.io",
        "kind": "Application",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
    }
    rules_for_it = [
        rule
        for rule in mappings(spec, "ignoreDifferences")
        if all(text(rule, key) in ("", "*", value) for key, value in identity.items())
    ]
    return not _ignores(rules_for_it, field) and _applied(item, field)


def _ignores(rules: Iterable[Mapping[str, Any]], field: str) -> bool:
    """Return whether one of the rules may ignore the field.

    jq expressions are not evaluated.
    """
    # with a slash at the end, so that only whole names match
    field_pointer = f"/{field.replace('.', '/')}/"
    for rule in rules:
        if rule.get("managedFieldsManagers"):
            return True
        for path in elements(rule, "jsonPointers"):
            if not isinstance(path, str):
                continue
            pointer = f"{path.rstrip('/')}/"
            if field_pointer.startswith(pointer) or pointer.startswith(field_pointer):
                return True
        for path in elements(rule, "jqPathExpressions"):
            if "source" in str(path) or str(path) == ".spec":
                return True
    return False


def _applied(item: Mapping[str, Any], field: str) -> bool:
    """Return whether the manifest in Git has the field.

    If not, Argo CD does not see a difference, and does not restore it.
    """
    try:
        value: Any = parsed_json(text(mapping(item, "metadata", "annotations"), LAST_APPLIED))
    except ValueError:
        return True  # it was applied in a different way
    for part in field.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return False
    return value is not None


def keys_wanted(project: Mapping[str, Any], repo: str) -> tuple[str, ...]:
    """Return the ids of the accepted signing keys, or () if the project does not require
    signatures.

    `repo` is the URL in the Application's source. Argo CD does not sync the project's Applications
    to a commit without a signature by one of these keys. `sourceIntegrity` (since 3.5) requires
    this per repository, and `signatureKeys` for all repositories. Signatures with SSH keys are
    never accepted.
    """
    spec = mapping(project, "spec")
    if spec.get("sourceIntegrity") is None:
        return _ids([item.get("keyID") for item in mappings(spec, "signatureKeys")])
    for policy in mappings(spec, "sourceIntegrity", "git", "policies"):
        # an entry is a glob, or a mapping with the glob as its `url`
        entries = [
            text(entry, "url") if isinstance(entry, dict) else entry
            for entry in elements(policy, "repos")
        ]
        globs = [glob for glob in entries if isinstance(glob, str)]
        if _globs_allow(globs, repo):
            gpg = mapping(policy, "gpg")
            return () if text(gpg, "mode") == "none" else _ids(elements(gpg, "keys"))
    return ()


def accepted(wanted: Sequence[str], keys: Sequence[str]) -> bool:
    """Return whether one of these keys is accepted. Each is an id or a fingerprint."""
    wanted_ids = {key[-_ID:].upper() for key in wanted}
    ids = {key[-_ID:].upper() for key in keys}
    return bool(wanted_ids & ids)


def _ids(keys: Sequence[Any]) -> tuple[str, ...]:
    """Return the ids without their prefix `0x`, and without empty and malformed entries."""
    ids = (key.removeprefix("0x").strip() for key in keys if isinstance(key, str))
    return tuple(filter(None, ids))


def _globs_allow(globs: Sequence[str], repo: str) -> bool:
    """Return whether a glob matches the repository, and no glob with `!` excludes it.

    `*` also matches slashes.
    """
    excluding = [glob.removeprefix("!") for glob in globs if glob.startswith("!")]
    including = [glob for glob in globs if not glob.startswith("!")]
    if any(fnmatchcase(repo, glob) for glob in excluding):
        return False
    return any(fnmatchcase(repo, glob) for glob in including)
