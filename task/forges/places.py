"""The table of forges, and the detection of a repository's forge: from its URL, or by probing its
host.

The URL comes from an Application, so no part of it is trusted as a request path. A host is probed
at addresses that each forge serves without authentication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from task.errors import ForgeError, Malformed, NoAnswerError, UnreachableError
from task.forges import azure, bitbucket_cloud, bitbucket_data_center, gitea, github, gitlab
from task.forges.client import ForgeAddress
from task.forges.host import ForgeKind
from task.git.hosts import RemoteUrl, remote_of
from task.http import Http, Limits
from task.urls import split

# The probing order: Gitea's paths first, because no other forge has /api/v1/version.
FORGES: Mapping[str, ForgeKind] = {
    forge_kind.name: forge_kind
    for forge_kind in (
        gitea.KIND,
        gitlab.KIND,
        github.KIND,
        bitbucket_cloud.KIND,
        bitbucket_data_center.KIND,
        azure.KIND,
    )
}
*_FIRST, _LAST = FORGES
HINT = f"use --forge NAME or --forge NAME=https://HOST; NAME is {', '.join(_FIRST)} or {_LAST}"
LIMITS = Limits(
    connect=5.0,
    silence=10.0,
    total=15.0,
    size=1024 * 1024,
    tries=1,
)


@dataclass(frozen=True)
class Known:
    """A forge (a Git host such as GitHub) that is known from `--forge NAME=URL`, CI_SERVER_URL, or
    a probe, rather than from the repository's URL.
    """

    forge: str
    # the root URL of its web pages: "https://git.example.com", "https://example.com/gitlab"; ""
    # means that the repository's URL determines the root
    root: str
    chosen: bool = False  # set by `--forge`, so it also applies to ssh hosts with different names


def forge_option(text: str) -> Known:
    """Parse the value of `--forge`: `gitlab`, or `gitlab=https://git.example.com`. Without a URL,
    the result's `root` is "". Raises `Malformed` for an invalid value.
    """
    name, _, root = text.strip().partition("=")
    name = name.strip().lower()
    root = root.strip().rstrip("/")
    for forge in FORGES.values():
        if name in forge.aliases:
            name = forge.name
    if name not in FORGES:
        raise Malformed(f"{name[:100]!r} is not a known kind of Git host", HINT)
    is_http = root.startswith(("https://", "http://"))
    has_login_or_query = any(character in root for character in "@?# ")
    if root and (not is_http or has_login_or_query):
        raise Malformed(
            "the Git host's address must be an http or https URL without credentials", HINT
        )
    return Known(name, root, chosen=True)


def servers_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the URL of the CI system's own Git host, from its variables, keyed by kind of forge:
    {"gitlab": "https://gitlab.example.com"}. Return {} if there is none.
    """
    # Gitea and Forgejo also set GitHub's variables.
    is_like_gitea = "true" in (environ.get("GITEA_ACTIONS"), environ.get("FORGEJO_ACTIONS"))
    forge_of_actions = "gitea" if is_like_gitea else "github"
    variables = {
        forge_of_actions: "GITHUB_SERVER_URL",
        "gitlab": "CI_SERVER_URL",
        "azure": "SYSTEM_COLLECTIONURI",
    }
    servers = {}
    for forge, variable in variables.items():
        url = environ.get(variable, "").strip().rstrip("/")
        if url.startswith(("https://", "http://")):
            servers[forge] = url
    return servers


def known_to(environ: Mapping[str, str]) -> tuple[Known, ...]:
    """Return the CI system's own forge, according to its variables, or () if there is none."""
    servers = servers_of(environ)
    if "azure" in servers:  # remove the collection's path, which is part of a project's address
        scheme_and_host = servers["azure"].split("/")[:3]  # "https:", "", and the host
        servers["azure"] = "/".join(scheme_and_host)
    # a URL with credentials (`user@host`) is skipped
    return tuple(Known(forge, root) for forge, root in servers.items() if "@" not in root)


def place_of(url: str, known: Sequence[Known] = ()) -> ForgeAddress | None:
    """Return the address of the repository at this URL on its forge (a Git host such as GitHub).
    Return None if the kind of forge is unknown (`probe` can detect it).

    The kind of forge is determined by the first of these that applies: a public host, a `known`
    forge whose root URL the repository is below, a `known` forge without a root, which applies to
    every other host, and a guess from the URL. Raises `Malformed` if the URL is not a repository on
    the forge.
    """
    remote = remote_of(url)
    public_forge = _public_forge(remote.host)
    if public_forge:
        return _address_on(public_forge, remote, f"https://{remote.host}")

    # the longest root first, because one may be below another
    with_root = [entry for entry in known if entry.root]
    with_root.sort(key=lambda entry: len(entry.root), reverse=True)
    for entry in with_root:
        parts = _path_below(remote, entry.root)
        if parts is not None:
            host = split(entry.root).authority
            return _address_on(entry.forge, replace(remote, parts=parts, host=host), entry.root)

    for entry in known:
        # an ssh hostname may differ from the web hostname in `--forge NAME=URL`
        applies_to_any_host = not entry.root or (remote.ssh and entry.chosen)
        if applies_to_any_host:
            host = split(entry.root).authority or remote.host
            return _address_on(entry.forge, replace(remote, host=host), entry.root or remote.root)

    name = _guess_forge(remote)
    return _address_on(name, remote, remote.root) if name else None


def _public_forge(host: str) -> str:
    """Return the forge that has this public host, such as "github" for github.com, or ""."""
    for forge in FORGES.values():
        if host in forge.hosts or host.endswith(forge.host_ends):
            return forge.name
    return ""


def _path_below(remote: RemoteUrl, root: str) -> tuple[str, ...] | None:
    """Return the segments of a repository's path below a forge's root URL. Return None if the
    repository is not below that URL.

    `https://example.com/gitlab/acme/web` below `https://example.com/gitlab` is ("acme", "web").
    """
    root_url = split(root)
    if remote.ssh:  # an ssh URL does not include the root's path
        same_host = root_url.host == split(remote.root).host
        return remote.parts if same_host else None
    if root_url.authority != remote.host:
        return None
    root_parts = tuple(part for part in root_url.path.split("/") if part)
    is_below = remote.parts[: len(root_parts)] == root_parts
    return remote.parts[len(root_parts) :] if is_below else None


def _guess_forge(remote: RemoteUrl) -> str:
    """Return the kind of forge suggested by the URL's shape or the hostname, such as "gitlab" for
    `gitlab.example.com`, or "".
    """
    if "_git" in remote.parts:  # …/project/_git/repository
        return "azure"
    if not remote.ssh and len(remote.parts) > 2 and remote.parts[-3] == "scm":
        return "bitbucket-server"  # …/scm/project/repository
    if "." not in remote.host:  # a hostname without a domain
        return ""
    first_label = remote.host.partition(":")[0].partition(".")[0]
    words = set(first_label.split("-"))  # `my-gitea.example.com` contains the word `gitea`
    for forge in FORGES.values():
        if words & set(forge.words):
            return forge.name
    return ""


def _address_on(forge: str, remote: RemoteUrl, root: str) -> ForgeAddress:
    """Return the address of a repository on this kind of forge, with its host."""
    address = FORGES[forge].place(remote, root.rstrip("/"))
    return replace(address, host=split(address.web or root).authority)


def compare_url(address: ForgeAddress, base: str, head: str) -> str:
    """Return the URL of the page that compares the branches `base` and `head` of a repository."""
    page_format = FORGES[address.forge].compare
    return page_format.format(
        address.web,
        quote(base),
        quote(head),
    )


def range_url(address: ForgeAddress, old: str, new: str) -> str:
    """Return the URL of the page that compares two commits of a repository."""
    kind = FORGES[address.forge]
    page_format = kind.range or kind.compare
    return page_format.format(
        address.web,
        quote(old),
        quote(new),
    )


def probe(
    remote: RemoteUrl,
    more_ca: str = "",
    log: Callable[[str], None] = lambda _line: None,
    limits: Limits = LIMITS,
) -> Known:
    """Detect a host's kind of forge and the root URL of its web pages, by requesting addresses that
    only one kind of forge serves.

    Raises `ForgeError` if the host is not a known kind of forge, and `UnreachableError` if it does
    not respond.
    """
    # The forge may be served below a path, which then precedes the owner and the repository, as in
    # https://example.com/gitlab/owner/repository.
    folders = [""]
    may_have_folder = len(remote.parts) > 2
    if not remote.ssh and may_have_folder:
        folders.append(f"/{quote(remote.parts[0])}")

    http = Http(
        remote.root,
        more_ca=more_ca,
        log=log,
        limits=limits,
    )
    is_reachable = False
    try:
        for folder in folders:
            for forge in FORGES.values():
                if forge.question is None:  # cannot be detected without a token
                    continue
                path, is_this_forge = forge.question
                try:
                    answer = http.ask("GET", f"{folder}{path}")
                except NoAnswerError:
                    continue
                is_reachable = True
                if is_this_forge(answer):
                    return Known(forge.name, f"{remote.root}{folder}")
    finally:
        http.close()

    if not is_reachable:
        raise UnreachableError(
            f"cannot tell what kind of Git host {remote.host} is: it does not respond over https",
            hint=f"{HINT}; or --ca-file",
        )
    # the host is known, so only the kind of forge is missing
    hint = HINT.replace("NAME or --forge NAME=https://HOST", f"NAME={remote.root}")
    raise ForgeError(f"cannot tell what kind of Git host {remote.host} is", hint=hint)
