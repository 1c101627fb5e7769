"""Checks for `lint` who can push to request branches and memory branches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from task import DOCS
from task.annotations.lint import Finding, noted
from task.errors import TaskError
from task.forges.host import Host
from task.git.names import PREFIX
from task.model import Subscription
from task.text import printable
from task.urls import normal_url, without_login

# Suffixes to append to the branch prefix. The results are used as sample branch names, because Git
# hosts only report whether a given name is protected.
_SUFFIXES = ("", "-memory")
PAGE = f"{DOCS}/how-to/protect-the-branches.md"


def open_branch_findings(
    subs: Iterable[Subscription],
    forge_of: Callable[[str], Host | None],
    prefixes: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield a warning for each repository in which others can push to Image Update's branches: the
    head branches, which pull requests propose, or the memory branches, which contain the holds.

    `forge_of` returns the client for a repository's Git host, or None. `prefixes` contains the
    `branchPrefix` of each repository for which it is known. Repositories whose Git host does not
    report who can push are skipped.
    """
    repos = dict.fromkeys(sub.repo for sub in subs if sub.pull_request or sub.head_template)
    for repo in repos:
        prefix = prefixes.get(normal_url(repo), PREFIX)
        suffixes = _open_suffixes(repo, prefix, forge_of)
        if not suffixes:
            continue
        patterns = " and ".join(f"{prefix}{suffix}/**" for suffix in suffixes)
        message = (
            f"{printable(without_login(repo))}: others can push to {patterns}, which lets them"
            " change what is proposed or held"
        )
        hint = f"allow only this account to push to {prefix}*/**: {PAGE}"
        yield Finding(noted("warning", message, hint))


def _open_suffixes(repo: str, prefix: str, forge_of: Callable[[str], Host | None]) -> list[str]:
    """Return those members of `_SUFFIXES` to whose branches others can push.

    The list is empty if the Git host is unknown, or does not report who can push.
    """
    with suppress(TaskError):
        forge = forge_of(repo)
        if forge:
            return [
                suffix for suffix in _SUFFIXES if forge.open_to_others(f"{prefix}{suffix}/lint")
            ]
    return []
