"""Where a repository is: which forge it is on, where its API is, and the project there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from task.errors import Malformed
from task.urls import path_part

PAIR = 2  # parts of most projects: owner and repository


@dataclass(frozen=True)
class ForgeAddress:
    """One repository on a forge."""

    forge: str  # its name in `task.forges.table`
    host: str  # as messages name it: "github.com", "git.example.com:8443"
    api: str  # the API's base, without a slash at the end: "https://api.github.com"
    # (owner, repository); GitLab: all groups, then the project; Azure: (organization, project, repository);
    # Data Center: (project key or ~user, repository). Decoded: quote each part for a URL.
    project: tuple[str, ...]
    web: str = ""  # the repository's page, without a slash at the end


@dataclass(frozen=True)
class Known:
    """What is known of a forge by other means than the URL: `--forge NAME=URL`, CI_SERVER_URL, a probe."""

    forge: str
    root: str  # of its web: "https://git.example.com", "https://example.com/gitlab"; "" is wherever the URL says
    chosen: bool = False  # by `--forge`: it holds for ssh hosts of other names as well


def web_below(root: str, parts: Sequence[str]) -> str:
    """The address below a forge's root that these parts of a path name."""
    return "/".join((root, *map(path_part, parts)))


def names_none(forge: str, shape: str) -> Malformed:
    """The error for a URL that names no repository there."""
    return Malformed(f"the URL names no repository on {forge}", f"write {shape}")
