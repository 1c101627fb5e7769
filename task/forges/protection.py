"""Checks whether the Git host's rules allow others to push a branch with a given name. Pure
functions.

Anyone who can push to our branches can control what is proposed and held
(docs/how-to/protect-the-branches.md). Each function returns True only if the host's response says
so. Roles that can change the rules themselves are not "others".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from task.plain_data import dig, mappings, value_at

NEEDED_ON_GITHUB = frozenset({"creation", "update"})
AZURE_NAMESPACE = "2e9eb7ed-3c0a-47d4-87c1-0ffdd275fd87"  # "Git Repositories"
_AZURE_CONTRIBUTE = 4
_GITLAB_MAINTAINER = 40
_READ_ONLY = "read-only"


def rules_in(response: object, *keys: str) -> list[Mapping[str, Any]]:
    """Return the rules in a response. Raises `TypeError` if the response does not have the expected
    shape.
    """
    if not isinstance(value_at(response, *keys), list):
        raise TypeError("no list of rules")
    return mappings(response, *keys)


def open_on_github(rules: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether rulesets allow others to push a branch. `rules` are the rules that apply to
    the branch's name.
    """
    types = {dig(rule, "type") for rule in rules}
    is_protected = NEEDED_ON_GITHUB.issubset(types)
    return not is_protected


def open_on_gitlab(protected: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Return whether developers may push a branch with this name. If several rules match, the most
    permissive one wins.
    """
    matching = [rule for rule in protected if _glob_fits(dig(rule, "name"), name, across=True)]
    if not matching:
        return True
    levels = [level for rule in matching for level in mappings(rule, "push_access_levels")]
    return any(_is_a_role_below_maintainer(level) for level in levels)


def open_on_gitea(rules: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Return whether everyone with write access may push a branch with this name. If several rules
    match, the one with the lowest priority number wins.
    """
    matching = [rule for rule in rules if _glob_fits(_rule_name(rule), name)]
    if not matching:
        return True
    deciding = min(matching, key=lambda rule: int(dig(rule, "priority") or 0))
    may_push = deciding.get("enable_push") is True
    only_some_may_push = deciding.get("enable_push_whitelist") is True
    return may_push and not only_some_may_push


def open_on_bitbucket_cloud(restrictions: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Return whether a branch with this name is free of restrictions of the kind `push`."""
    patterns = (
        dig(restriction, "pattern")
        for restriction in restrictions
        if dig(restriction, "kind") == "push" and dig(restriction, "branch_match_kind") == "glob"
    )
    return not any(_glob_fits(pattern, name, across=True) for pattern in patterns)


def open_on_data_center(restrictions: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Return whether a branch with this name is free of restrictions that make it read-only."""
    for restriction in restrictions:
        if dig(restriction, "type") != _READ_ONLY:
            continue
        kind = dig(restriction, "matcher", "type", "id")
        pattern = dig(restriction, "matcher", "id")
        if kind == "ANY_REF" or pattern == f"refs/heads/{name}":
            return False
        if kind == "PATTERN" and _glob_fits(pattern, name):
            return False
    return True


def open_on_azure(lists: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the access control `lists` of the branch's folder allow others to push. They
    do if each list inherits the repository's permissions, and none denies anyone the permission to
    contribute.
    """
    for access_list in lists:
        if access_list.get("inheritPermissions") is False:
            return False
        entries = access_list.get("acesDictionary")
        if not isinstance(entries, dict):
            continue
        for entry in entries.values():
            denied_permissions = value_at(entry, "deny")  # one bit for each permission
            if isinstance(denied_permissions, int) and denied_permissions & _AZURE_CONTRIBUTE:
                return False
    return True


def azure_token(project: str, repository: str, branch: str) -> str:
    """Return Azure's security token (an identifier) for a branch or folder: its path segments as
    hexadecimal UTF-16.
    """
    parts = (part.encode("utf-16-le").hex() for part in branch.split("/"))
    return f"repoV2/{project}/{repository}/refs/heads/{'/'.join(parts)}/"


def _is_a_role_below_maintainer(level: Mapping[str, Any]) -> bool:
    """Return whether an access level in a GitLab rule grants access to everyone with a role below
    maintainer.

    An access level for a single user, group, or deploy key does not count: that is the owner's
    choice.
    """
    is_for_one = any(level.get(name) for name in ("user_id", "group_id", "deploy_key_id"))
    role = level.get("access_level")  # 0 means no one
    return not is_for_one and isinstance(role, int) and 0 < role < _GITLAB_MAINTAINER


def _rule_name(rule: Mapping[str, Any]) -> str:
    return dig(rule, "rule_name") or dig(rule, "branch_name")


def _glob_fits(pattern: str, name: str, *, across: bool = False) -> bool:
    """Return whether a glob, such as `release/*`, matches a branch's name.

    `**` matches any characters. So does `*` if `across` is true; otherwise, `*` matches any
    characters except slashes.
    """
    regex = ""
    for part in re.split(r"(\*+)", pattern[:500]):
        if part == "*" and not across:
            regex += "[^/]*"
        elif part.startswith("*"):
            regex += ".*"
        else:
            regex += re.escape(part)
    return re.fullmatch(regex, name) is not None
