"""Finds out from a repository's URL which forge it is on, where its API is, and which project it is there.

The URL comes from an Application, so no part of it is trusted as the path of a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from task.errors import Malformed
from task.forges.address import PAIR, ForgeAddress, Known
from task.forges.table import FORGES
from task.git.remote_url import RemoteUrl, remote_of
from task.urls import split

*_FIRST, _LAST = FORGES
HINT = f"write --forge NAME or --forge NAME=https://HOST; NAME is {', '.join(_FIRST)} or {_LAST}"


def forge_option(text: str) -> Known:
    """Parse `NAME` (root "") or `NAME=URL` of `--forge`. Raises `Malformed`."""
    name, _, root = text.strip().partition("=")
    name = name.strip().lower()
    name = next((forge.name for forge in FORGES.values() if name in forge.aliases), name)
    if name not in FORGES:
        raise Malformed(f"{name[:100]!r} is not a kind of Git host that is known here", HINT)
    root = root.strip().rstrip("/")
    if root and (not root.startswith(("https://", "http://")) or "@" in root or set(root) & set("?# ")):
        raise Malformed("the Git host's address must be an http or https URL without a login", HINT)
    return Known(name, root, chosen=True)


def known_to(environ: Mapping[str, str]) -> tuple[Known, ...]:
    """Return the forge that the CI system belongs to, from its variables.

    Gitea and Forgejo set GitHub's variables, too.
    """
    found: list[Known] = []
    gitea = any(environ.get(name) == "true" for name in ("GITEA_ACTIONS", "FORGEJO_ACTIONS"))
    for name, forge in (
        ("GITHUB_SERVER_URL", "gitea" if gitea else "github"),
        ("CI_SERVER_URL", "gitlab"),
        ("SYSTEM_COLLECTIONURI", "azure"),
    ):
        root = environ.get(name, "").strip().rstrip("/")
        if root.startswith(("https://", "http://")) and "@" not in root:
            root = "/".join(root.split("/")[:3]) if forge == "azure" else root  # the collection is part of a project
            found.append(Known(forge, root))
    return tuple(found)


def place_of(url: str, known: Sequence[Known] = ()) -> ForgeAddress | None:
    """Return where the repository of this URL is, or None if the host's forge is unknown (`probe` can ask it).

    Public hosts come first, then `known`, then the URL's shape and the host's name. A `Known` without a root is for
    every other host. Raises `Malformed` for a URL that does not name a repository there.
    """
    remote = remote_of(url)
    for forge in FORGES.values():
        if remote.host in forge.hosts or remote.host.endswith(forge.host_ends or "-"):
            return _built(forge.name, remote, f"https://{remote.host}")
    for one in sorted(known, key=lambda one: len(one.root), reverse=True):
        if one.root and (inner := _below(remote, one.root)) is not None:
            return _built(one.forge, replace(remote, parts=inner, host=split(one.root).authority), one.root)
    for one in known:
        if not one.root or (remote.ssh and one.chosen):
            return _built(
                one.forge, replace(remote, host=split(one.root).authority or remote.host), one.root or remote.root
            )
    name = _by_shape(remote) or _by_name(remote.host)
    return _built(name, remote, remote.root) if name else None


def _below(remote: RemoteUrl, root: str) -> tuple[str, ...] | None:
    """Return the parts of the path below a forge's root, or None if the repository is not there.

    An ssh URL does not have the root's path.
    """
    there = split(root)
    if remote.ssh:
        return remote.parts if there.host == split(remote.root).host else None
    folders = tuple(part for part in there.path.split("/") if part)
    if there.authority != remote.host or remote.parts[: len(folders)] != folders:
        return None
    return remote.parts[len(folders) :]


def _by_shape(remote: RemoteUrl) -> str:
    if "_git" in remote.parts:
        return "azure"
    if not remote.ssh and "scm" in remote.parts[:-PAIR] and remote.parts[-PAIR - 1] == "scm":
        return "bitbucket-server"
    return ""


def _by_name(host: str) -> str:
    words = host.partition(":")[0].partition(".")[0].split("-") if "." in host else []
    return next((forge.name for forge in FORGES.values() if not set(words).isdisjoint(forge.words)), "")


def _built(forge: str, remote: RemoteUrl, root: str) -> ForgeAddress:
    place = FORGES[forge].place(remote, root.rstrip("/"))
    return replace(place, host=split(place.web or root).authority)


def compare_url(place: ForgeAddress, base: str, head: str) -> str:
    """Return the page that shows what the head branch changes."""
    return FORGES[place.forge].compare.format(place.web, quote(base), quote(head))
