"""Repository URL → which forge it is on, where its API is, and the project there. Pure.

The URL comes from an Application: nothing of it is trusted to be a path that a server should be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args
from urllib.parse import quote

from task.errors import Malformed
from task.git.remote_url import RemoteUrl, remote_of
from task.urls import path_part, split

ForgeName = Literal["github", "gitlab", "gitea", "bitbucket", "bitbucket-server", "azure"]
NAMES: tuple[str, ...] = get_args(ForgeName)
ALIASES = {"forgejo": "gitea", "bitbucket-cloud": "bitbucket", "bitbucket-data-center": "bitbucket-server"}
HINT = (
    "write --forge github, gitlab, gitea, bitbucket, bitbucket-server or azure; "
    "NAME=URL where its web is at another address than the repository's URL says"
)
PUBLIC: Mapping[str, ForgeName] = {
    "github.com": "github",
    "gitlab.com": "gitlab",
    "gitea.com": "gitea",
    "codeberg.org": "gitea",
    "bitbucket.org": "bitbucket",
    "dev.azure.com": "azure",
}
# A host that is named after what runs there (`gitlab.example.com`, `my-gitea.example.com`).
WORDS: Mapping[str, ForgeName] = {
    "github": "github",
    "gitlab": "gitlab",
    "gitea": "gitea",
    "forgejo": "gitea",
    "bitbucket": "bitbucket-server",
}
PAIR = 2  # parts of most projects: owner and repository


@dataclass(frozen=True)
class ForgeAddress:
    """One repository on a forge."""

    forge: ForgeName
    host: str  # as messages name it: "github.com", "git.example.com:8443"
    api: str  # the API's base, without a slash at the end: "https://api.github.com"
    # (owner, repository); GitLab: all groups, then the project; Azure: (organization, project, repository);
    # Data Center: (project key or ~user, repository). Decoded: quote each part for a URL.
    project: tuple[str, ...]
    web: str = ""  # the repository's page, without a slash at the end


@dataclass(frozen=True)
class Known:
    """What is known of a forge by other means than the URL: `--forge NAME=URL`, CI_SERVER_URL, a probe."""

    forge: ForgeName
    root: str  # of its web: "https://git.example.com", "https://example.com/gitlab"; "" is wherever the URL says
    chosen: bool = False  # by `--forge`: it holds for ssh hosts of other names as well


def forge_option(text: str) -> Known:
    """`NAME` (root "") or `NAME=URL` of `--forge`. Raises `Malformed`."""
    name, _, root = text.strip().partition("=")
    name = ALIASES.get(name.strip().lower(), name.strip().lower())
    if name not in NAMES:
        raise Malformed(f"{name[:100]!r} is no forge that is known here", HINT)
    root = root.strip().rstrip("/")
    if root and (not root.startswith(("https://", "http://")) or "@" in root or set(root) & set("?# ")):
        raise Malformed("the forge's address is not an http URL without login", HINT)
    return Known(cast("ForgeName", name), root, chosen=True)


def known_to(environ: Mapping[str, str]) -> tuple[Known, ...]:
    """The forge that the CI system belongs to, by its own variables; Gitea's and Forgejo's speak as GitHub's do."""
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
            found.append(Known(cast("ForgeName", forge), root))
    return tuple(found)


def place_of(url: str, known: Sequence[Known] = ()) -> ForgeAddress | None:
    """Where the repository of this URL is; None if it is not known which forge that host is (`probe` can ask it).

    Public hosts first; then `known`; then what the URL's shape and the host's name tell. A `Known` without a root
    is for every other host. Raises `Malformed` for a URL that names no repository there.
    """
    remote = remote_of(url)
    forge = PUBLIC.get(remote.host)
    if remote.host.endswith(".visualstudio.com"):  # a host for each customer, on the forge's own domain
        forge = "azure"
    elif remote.host.endswith(".ghe.com"):
        forge = "github"
    if forge:
        return _built(forge, remote, f"https://{remote.host}")
    for one in sorted(known, key=lambda one: len(one.root), reverse=True):
        if one.root and (inner := _below(remote, one.root)) is not None:
            return _built(one.forge, replace(remote, parts=inner, host=split(one.root).authority), one.root)
    for one in known:
        if not one.root or (remote.ssh and one.chosen):
            return _built(
                one.forge, replace(remote, host=split(one.root).authority or remote.host), one.root or remote.root
            )
    forge = _by_shape(remote) or _by_name(remote.host)
    return _built(forge, remote, remote.root) if forge else None


def _below(remote: RemoteUrl, root: str) -> tuple[str, ...] | None:
    """The parts of the path below a forge's root; None where the repository is not there. ssh knows no root's path."""
    there = split(root)
    if remote.ssh:
        return remote.parts if there.host == split(remote.root).host else None
    folders = tuple(part for part in there.path.split("/") if part)
    if there.authority != remote.host or remote.parts[: len(folders)] != folders:
        return None
    return remote.parts[len(folders) :]


def _by_shape(remote: RemoteUrl) -> ForgeName | None:
    if "_git" in remote.parts:
        return "azure"
    if not remote.ssh and "scm" in remote.parts[:-PAIR] and remote.parts[-PAIR - 1] == "scm":
        return "bitbucket-server"
    return None


def _by_name(host: str) -> ForgeName | None:
    words = host.partition(":")[0].partition(".")[0].split("-") if "." in host else []
    return next((forge for word, forge in WORDS.items() if word in words), None)


def _built(forge: ForgeName, remote: RemoteUrl, root: str) -> ForgeAddress:
    place = BUILDERS[forge](remote, root.rstrip("/"))
    return replace(place, host=split(place.web or root).authority)


def _wrong(forge: str, shape: str) -> Malformed:
    return Malformed(f"the URL names no repository on {forge}", f"write {shape}")


def _github(remote: RemoteUrl, root: str) -> ForgeAddress:
    if len(remote.parts) != PAIR:
        raise _wrong("GitHub", "https://github.com/owner/repository")
    host = split(root).authority
    api = f"{root}/api/v3"
    if host == "github.com" or host.endswith(".ghe.com"):
        api = f"https://api.{host}"
    return ForgeAddress("github", host, api, remote.parts, _page(root, remote.parts))


def _gitlab(remote: RemoteUrl, root: str) -> ForgeAddress:
    if len(remote.parts) < PAIR:
        raise _wrong("GitLab", "https://gitlab.com/group/project")
    return ForgeAddress("gitlab", split(root).authority, f"{root}/api/v4", remote.parts, _page(root, remote.parts))


def _gitea(remote: RemoteUrl, root: str) -> ForgeAddress:
    """A project has two parts. What stands before them is the path of Gitea itself."""
    if len(remote.parts) < PAIR:
        raise _wrong("Gitea", "https://gitea.example.com/owner/repository")
    root = _page(root, remote.parts[:-PAIR])
    return ForgeAddress(
        "gitea", split(root).authority, f"{root}/api/v1", remote.parts[-PAIR:], _page(root, remote.parts[-PAIR:])
    )


def _bitbucket(remote: RemoteUrl, root: str) -> ForgeAddress:
    if len(remote.parts) != PAIR:
        raise _wrong("Bitbucket", "https://bitbucket.org/workspace/repository")
    return ForgeAddress(
        "bitbucket", split(root).authority, "https://api.bitbucket.org/2.0", remote.parts, _page(root, remote.parts)
    )


def _data_center(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Clone URLs have /scm/PROJECT/repository, pages /projects/PROJECT/repos/repository, ssh the two alone."""
    parts, folders = remote.parts, remote.parts[:-PAIR]
    if len(parts) >= 4 and parts[-4] in {"projects", "users"} and parts[-2] == "repos":
        folders, owner = parts[:-4], parts[-3] if parts[-4] == "projects" else f"~{parts[-3]}"
    elif len(parts) >= PAIR and (remote.ssh or not folders or folders[-1] == "scm"):
        folders, owner = () if remote.ssh else folders[:-1], parts[-PAIR]
    else:
        raise _wrong("Bitbucket Data Center", "https://bitbucket.example.com/scm/PROJECT/repository.git")
    root = _page(root, folders)
    kind, name = ("users", owner[1:]) if owner.startswith("~") else ("projects", owner)
    web = _page(root, (kind, name, "repos", parts[-1]))
    return ForgeAddress("bitbucket-server", split(root).authority, f"{root}/rest/api/1.0", (owner, parts[-1]), web)


def _azure(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Services: ORGANIZATION/PROJECT/_git/REPOSITORY; Server: the collection's path stands before the project."""
    parts = remote.parts
    if remote.ssh and parts[:1] in {("v3",), ("V3",)} and len(parts) == 4:
        return _azure_place(root, parts[1], parts[2], parts[3])
    at = parts.index("_git") if "_git" in parts else -1
    if at < 0 or at + PAIR != len(parts):
        raise _wrong("Azure DevOps", "https://dev.azure.com/organization/project/_git/repository")
    repository, before = parts[-1], parts[:at]
    host = remote.host
    if host.endswith(".visualstudio.com"):
        before = (host.partition(".")[0], *(part for part in before if part.lower() != "defaultcollection"))
        root = "https://dev.azure.com"
    if not before:
        raise _wrong("Azure DevOps", "https://dev.azure.com/organization/project/_git/repository")
    if len(before) == 1:  # the project of that name is left out
        before = (*before, repository)
    return _azure_place(_page(root, before[:-PAIR]), before[-PAIR], before[-1], repository)


def _azure_place(root: str, organization: str, project: str, repository: str) -> ForgeAddress:
    api = _page(root, (organization,))
    project_parts = (organization, project, repository)
    return ForgeAddress("azure", split(root).authority, api, project_parts, _page(api, (project, "_git", repository)))


BUILDERS: Mapping[ForgeName, Callable[[RemoteUrl, str], ForgeAddress]] = {
    "github": _github,
    "gitlab": _gitlab,
    "gitea": _gitea,
    "bitbucket": _bitbucket,
    "bitbucket-server": _data_center,
    "azure": _azure,
}


def _page(root: str, parts: Sequence[str]) -> str:
    return "/".join((root, *map(path_part, parts)))


# {0} is the repository's page, {1} the base branch, {2} the head branch.
COMPARISONS: Mapping[ForgeName, str] = {
    "github": "{0}/compare/{1}...{2}",
    "gitlab": "{0}/-/compare/{1}...{2}",
    "gitea": "{0}/compare/{1}...{2}",
    "bitbucket": "{0}/branches/compare/{2}%0D{1}",
    "bitbucket-server": "{0}/compare/commits?targetBranch=refs/heads/{1}&sourceBranch=refs/heads/{2}",
    "azure": "{0}/branchCompare?baseVersion=GB{1}&targetVersion=GB{2}",
}
COMMITS: Mapping[ForgeName, str] = {
    "gitlab": "{0}/-/commit/{1}",
    "bitbucket": "{0}/commits/{1}",
    "bitbucket-server": "{0}/commits/{1}",
}


def compare_url(place: ForgeAddress, base: str, head: str) -> str:
    """The page that shows what the head branch changes."""
    return COMPARISONS[place.forge].format(place.web, quote(base), quote(head))


def commit_url(place: ForgeAddress, commit: str) -> str:
    """The page of a commit."""
    return COMMITS.get(place.forge, "{0}/commit/{1}").format(place.web, path_part(commit))
