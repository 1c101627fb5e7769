"""Finds which OpenPGP keys an AppProject wants for the commits of a repository. Pure.

Argo CD syncs no Application of the project at a commit without such a signature. `sourceIntegrity` (since 3.5) says so
for each repository, and `signatureKeys` for all of them. Signatures with SSH keys never count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from task.argocd.rollout_causes import mapping, text
from task.plain_data import mappings

_ID = 16  # hexadecimal digits at the end of a fingerprint


def keys_wanted(project: Mapping[str, Any], repo: str) -> tuple[str, ...]:
    """Return the ids of the keys one of which must have signed, or () if the project does not ask for signatures.

    `repo` is the URL as the Application's source has it.
    """
    spec = mapping(project, "spec")
    if spec.get("sourceIntegrity") is None:
        return _ids([one.get("keyID") for one in mappings(spec.get("signatureKeys"))])
    for policy in mappings(mapping(mapping(spec, "sourceIntegrity"), "git").get("policies")):
        repos = policy.get("repos")
        globs = [text(one, "url") if isinstance(one, dict) else one for one in repos] if isinstance(repos, list) else []
        if _matches([one for one in globs if isinstance(one, str)], repo):
            gpg = mapping(policy, "gpg")
            keys = gpg.get("keys")
            return () if text(gpg, "mode") == "none" or not isinstance(keys, list) else _ids(keys)
    return ()


def accepted(wanted: Sequence[str], keys: Sequence[str]) -> bool:
    """Tell whether one of these keys is wanted. Each is an id or a fingerprint."""
    return bool({one[-_ID:].upper() for one in wanted} & {one[-_ID:].upper() for one in keys})


def _ids(keys: Sequence[Any]) -> tuple[str, ...]:
    return tuple(key for one in keys if isinstance(one, str) and (key := one.removeprefix("0x").strip()))


def _matches(globs: Sequence[str], repo: str) -> bool:
    """Tell whether a glob names the repository, and none with `!` excludes it. A `*` also counts across slashes."""
    excluded = any(fnmatchcase(repo, one[1:]) for one in globs if one.startswith("!"))
    return not excluded and any(fnmatchcase(repo, one) for one in globs if not one.startswith("!"))
