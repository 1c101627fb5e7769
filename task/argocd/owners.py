"""Finds the objects that control an Application: its ApplicationSet, a self-healing parent, and its
AppProject.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from task.argocd.rollout_causes import JsonObject, short_line
from task.plain_data import elements, mapping, mappings, parsed_json, text

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ID_DIGITS = 16  # a key's id is the last 16 hexadecimal digits of its fingerprint


def set_of(item: JsonObject) -> str:
    """Return the name of the ApplicationSet that owns the Application `item`, or "".

    An ApplicationSet and its Applications are always in the same namespace.
    """
    for owner in mappings(item, "metadata", "ownerReferences"):
        if text(owner, "kind") == "ApplicationSet":
            return text(owner, "name")
    return ""


def parent_of(item: JsonObject, namespace: str) -> tuple[str, str] | None:
    """Return the (namespace, name) of the parent Application that deployed the Application `item`
    (app of apps), or None if unknown.

    Argo CD records the parent's name in an annotation or a label. `namespace` is the control
    plane's; for a parent in any other namespace, the recorded name is `<namespace>_<name>`.
    """
    metadata = mapping(item, "metadata")
    # "apps:argoproj.io/Application:argocd/web" if the parent is `apps`
    tracking_id = text(metadata, "annotations", "argocd.argoproj.io/tracking-id")
    parent_name, _, tracked_object = tracking_id.partition(":")
    # there is no annotation, or it was copied from an object of another kind
    if not tracked_object.startswith("argoproj.io/Application:"):
        parent_name = text(metadata, "labels", "app.kubernetes.io/instance")
    parent_namespace, _, name = parent_name.rpartition("_")
    if not name:
        return None
    parent = (parent_namespace or namespace, name)
    if parent == (text(metadata, "namespace"), text(metadata, "name")):
        return None  # the Application deploys itself
    return parent


def step_of(owner: JsonObject, item: JsonObject) -> str:
    """Return a sentence about the RollingSync step that the Application `item` is waiting for, or
    "" if its ApplicationSet (`owner`) does not use RollingSync.

    With RollingSync, an ApplicationSet disables its Applications' auto-sync, and syncs them itself,
    step by step.
    """
    if text(owner, "spec", "strategy", "type") != "RollingSync":
        return ""
    name = text(item, "metadata", "name")
    own_status: JsonObject = {}  # {} if the ApplicationSet reports no status
    for application_status in mappings(owner, "status", "applicationStatus"):
        if text(application_status, "application") == name:
            own_status = application_status
            break
    values = {key: text(own_status, key) for key in ("step", "status")}
    details = [f"{key} {value}" for key, value in values.items() if value]
    message = text(own_status, "message")
    if message:
        details.append(short_line(message))
    return (
        f"it is waiting for its step in the RollingSync of ApplicationSet {set_of(item)}:"
        f" {', '.join(details) or 'not known'}"
    )


def set_takes_back(owner: JsonObject, name: str, field: str) -> bool:
    """Return whether an ApplicationSet (`owner`) reverts changes to a field of its Application in
    the cluster.

    `name` is the Application's, and `field` is a path such as `spec.source.helm.parameters`. The
    ApplicationSet leaves the field alone if its policy never updates Applications, or if one of its
    rules ignores the field.
    """
    spec = mapping(owner, "spec")
    if not spec:
        return False  # the ApplicationSet is unknown
    never_updates = text(spec, "syncPolicy", "applicationsSync") in (
        "create-only",
        "create-delete",
    )
    if never_updates:
        return False
    rules = mappings(spec, "ignoreApplicationDifferences")
    rules_for_application = [rule for rule in rules if text(rule, "name") in ("", name)]
    return not _rules_ignore(rules_for_application, field)


def parent_takes_back(parent: JsonObject, item: JsonObject, field: str) -> bool:
    """Return whether a parent (app of apps) reverts changes to a field of the Application `item` in
    the cluster.

    The parent does so if it has self-healing enabled, the Application's manifest in Git sets the
    field, and none of the parent's rules ignores the field.
    """
    spec = mapping(parent, "spec")
    automated = mapping(spec, "syncPolicy", "automated")
    heals_itself = automated.get("selfHeal") is True and automated.get("enabled") is not False
    if not heals_itself:
        return False
    metadata = mapping(item, "metadata")
    identity = {
        "group": "argoproj.io",
        "kind": "Application",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
    }
    rules = mappings(spec, "ignoreDifferences")
    rules_for_application = [rule for rule in rules if _is_rule_for(identity, rule)]
    if _rules_ignore(rules_for_application, field):
        return False
    return _was_applied(item, field)


def _is_rule_for(identity: Mapping[str, str], rule: JsonObject) -> bool:
    """Return whether a rule for ignoring differences applies to the object with this group, kind,
    name, and namespace (`identity`). Properties that the rule omits match any object.
    """
    return all(text(rule, key) in ("", "*", value) for key, value in identity.items())


def _rules_ignore(rules: Iterable[JsonObject], field: str) -> bool:
    """Return whether any of these rules for ignoring differences may apply to a field, such as
    `spec.source.helm.parameters`.

    A rule selects fields by their managers, by JSON pointers, or by jq expressions. Managers and jq
    expressions are not evaluated: any rule that lists managers is assumed to apply, and so is any
    jq expression that contains `source` or equals `.spec`.
    """
    # with a trailing slash, so that only whole names match
    field_pointer = f"/{field.replace('.', '/')}/"
    for rule in rules:
        if rule.get("managedFieldsManagers"):
            return True
        for path in elements(rule, "jsonPointers"):
            if not isinstance(path, str):
                continue
            pointer = f"{path.rstrip('/')}/"
            # the rule covers the field, an object that contains the field, or a part of the field
            if field_pointer.startswith(pointer) or pointer.startswith(field_pointer):
                return True
        for path in elements(rule, "jqPathExpressions"):
            if "source" in str(path) or str(path) == ".spec":
                return True
    return False


def _was_applied(item: JsonObject, field: str) -> bool:
    """Return whether the last manifest applied to the Application `item` sets the field, such as
    `spec.source.helm.parameters`. Return True if there is no record of that manifest.

    If the manifest does not set the field, Argo CD sees no difference, so it does not revert the
    field.
    """
    annotations = mapping(item, "metadata", "annotations")
    try:
        value: Any = parsed_json(text(annotations, LAST_APPLIED))
    except ValueError:
        return True  # without the annotation, the manifest was applied in some other way
    for part in field.split("."):  # a part is a key or an index, as in `spec.sources.0.helm`
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return False
    return value is not None


def keys_wanted(project: JsonObject, repo: str) -> tuple[str, ...]:
    """Return the ids of the GPG keys whose signatures an AppProject accepts, or () if it does not
    require signatures. Argo CD does not sync the project's Applications to a commit that is not
    signed with one of these keys.

    `repo` is the URL in the Application's source. `sourceIntegrity` (since Argo CD 3.5) requires
    signatures for individual repositories, and `signatureKeys` requires them for all. SSH
    signatures are never accepted.
    """
    spec = mapping(project, "spec")
    if spec.get("sourceIntegrity") is None:
        return _key_ids([entry.get("keyID") for entry in mappings(spec, "signatureKeys")])
    # the first policy that matches the repository decides
    for policy in mappings(spec, "sourceIntegrity", "git", "policies"):
        globs = []
        for entry in elements(policy, "repos"):
            # an entry is either a glob or a mapping whose `url` is the glob
            glob = text(entry, "url") if isinstance(entry, dict) else entry
            if isinstance(glob, str):
                globs.append(glob)
        if _globs_allow(globs, repo):
            gpg = mapping(policy, "gpg")
            if text(gpg, "mode") == "none":
                return ()
            return _key_ids(elements(gpg, "keys"))
    return ()


def accepted(wanted: Sequence[str], keys: Sequence[str]) -> bool:
    """Return whether any of the `keys` is also among the `wanted` keys. Each is the id or the
    fingerprint of a GPG key; a fingerprint ends with the id.
    """
    wanted_ids = {key[-_ID_DIGITS:].upper() for key in wanted}
    ids = {key[-_ID_DIGITS:].upper() for key in keys}
    return bool(wanted_ids & ids)


def _key_ids(keys: Sequence[Any]) -> tuple[str, ...]:
    """Return the ids without their `0x` prefix, omitting empty and malformed entries."""
    ids = (key.removeprefix("0x").strip() for key in keys if isinstance(key, str))
    return tuple(filter(None, ids))


def _globs_allow(globs: Sequence[str], repo: str) -> bool:
    """Return whether a glob matches the repository's URL and no glob with `!` excludes it.

    `*` also matches slashes.
    """
    including = []
    for glob in globs:
        if not glob.startswith("!"):
            including.append(glob)
        elif fnmatchcase(repo, glob.removeprefix("!")):
            return False
    return any(fnmatchcase(repo, glob) for glob in including)
