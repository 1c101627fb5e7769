"""Pure code for the address of a repository on a forge: the kind of forge, its API, and the project there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from task.errors import Malformed
from task.urls import path_part

PAIR = 2  # most projects have two parts: owner and repository


@dataclass(frozen=True)
class ForgeAddress:
    """One repository on a forge."""

    forge: str  # its name in `task.forges.table`
    host: str  # in the form for messages: "github.com", "git.example.com:8443"
    api: str  # the API's base, without a slash at the end: "https://api.github.com"
    # (owner, repository); GitLab: all groups, then the project; Azure: (organization, project, repository);
    # Data Center: (project key or ~user, repository). Decoded: quote each part for a URL.
    project: tuple[str, ...]
    web: str = ""  # the repository's page, without a slash at the end


@dataclass(frozen=True)
class Known:
    """What is known about a forge from elsewhere than the URL: `--forge NAME=URL`, CI_SERVER_URL, a probe."""

    forge: str
    root: str  # of its web pages: "https://git.example.com", "https://example.com/gitlab"; "" means: as in the URL
    chosen: bool = False  # by `--forge`: then it also applies to ssh hosts with other names


def web_below(root: str, parts: Sequence[str]) -> str:
    """Return the address that these parts of a path have below a forge's root."""
    return "/".join((root, *map(path_part, parts)))


def names_none(forge: str, shape: str) -> Malformed:
    """Return the error for a URL that is not the address of a repository there."""
    return Malformed(f"the URL does not name a repository on {forge}", f"write {shape}")
