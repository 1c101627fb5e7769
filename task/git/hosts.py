"""Git hosts: the parts of a repository URL, the software that a host runs, and the tokens that it
issues.

Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from task.errors import Malformed
from task.secret import Secret
from task.urls import as_ssh_url, split, without_login

# Hosts for SSH over the https port, and Azure's ssh and legacy hosts → the host of the web pages.
OTHER_HOSTS = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
    "www.github.com": "github.com",
    "ssh.dev.azure.com": "dev.azure.com",
    "vs-ssh.visualstudio.com": "dev.azure.com",
}
HOST = re.compile(r"(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\])(?::\d{1,5})?")


@dataclass(frozen=True)
class RemoteUrl:
    """The parts of a repository URL."""

    root: str  # the host's web pages, as far as known from the URL: "https://git.example.com:8443"
    host: str  # including any port in `root`
    parts: tuple[str, ...]  # the decoded path's segments, without ".git"
    ssh: bool


def remote_of(url: str) -> RemoteUrl:
    """Split a repository URL, such as `https://git.example.com:8443/team/app.git`, into the host's
    web address and the path's segments (`team`, `app`).

    The URL may be https, http, ssh, or `user@host:path`. Raises `Malformed` for any other URL, for
    a local path, and for a URL whose path is not a repository's.
    """
    if "\\" in url:  # different programs parse such URLs differently
        raise Malformed(
            "the repository URL contains a backslash", "use https://host/owner/repository"
        )
    # `git@host:team/app` becomes `ssh://git@host/team/app`
    bare_url = without_login(as_ssh_url(url.strip()))
    scheme, separator, host_and_path = bare_url.partition("://")
    if not separator:
        raise Malformed("a local repository has no Git host", "use its https or ssh URL")
    scheme = scheme.lower().removeprefix("git+").removesuffix("+git")
    if scheme not in {"https", "http", "ssh"}:
        raise Malformed(
            f"a repository with a {scheme[:20]} URL is not on a known Git host",
            "use its https or ssh URL",
        )
    url_parts = split(f"{scheme}://{host_and_path}")
    if not HOST.fullmatch(url_parts.authority):
        raise Malformed("the URL has no host", "use https://host/owner/repository")

    is_ssh = scheme == "ssh"
    # the host of the web pages, which do not use the ssh port
    host = url_parts.host if is_ssh else url_parts.server
    host = OTHER_HOSTS.get(host, host)

    path = url_parts.path.strip("/").removesuffix(".git")
    names = tuple(unquote(name) for name in path.split("/") if name)
    for name in names:
        has_special_characters = set(name) & set("/\\?#%") or not name.isprintable()
        if name in {".", ".."} or has_special_characters:
            raise Malformed(
                "the URL does not point to a repository",
                "use https://host/owner/repository",
            )
    web_scheme = "http" if scheme == "http" else "https"
    return RemoteUrl(root=f"{web_scheme}://{host}", host=host, parts=names, ssh=is_ssh)


# Prefixes as documented by the Git hosts. Gitea, Forgejo, and Azure DevOps have no prefix.
PREFIXES = {
    "github_pat_": "GitHub", "ghp_": "GitHub", "gho_": "GitHub", "ghu_": "GitHub", "ghs_": "GitHub", "ghr_": "GitHub",
    "glpat-": "GitLab", "gldt-": "GitLab", "glcbt-": "GitLab", "gloas-": "GitLab", "glptt-": "GitLab",
    "ATCTT3": "Bitbucket Cloud", "ATATT": "Bitbucket Cloud", "ATBB": "Bitbucket Cloud",
    "BBDC-": "Bitbucket Data Center",
}  # fmt: skip
ATLASSIAN = "ATATT"  # a personal account's API token (successor of app passwords)
_REMOVED_KIND = "ATBB"  # an app password
SERVERS = {
    "github": "GitHub",
    "gitlab": "GitLab",
    "gitea": "Gitea",
    "forgejo": "Forgejo",
    "codeberg.org": "Forgejo",
    "bitbucket.org": "Bitbucket Cloud",
    "dev.azure.com": "Azure DevOps",
    "visualstudio.com": "Azure DevOps",
}


def wrong_issuer(token: Secret, server: str, software: str) -> str:
    """If a different kind of Git host than this server issued the token, return a sentence that
    says so, else "". `software` is the server's software, or "" if unknown.

    Bitbucket Cloud has removed app passwords, so an app password does not match any server.
    """
    text = token.reveal()
    prefixes = [prefix for prefix in PREFIXES if text.startswith(prefix)]
    if not prefixes:
        return ""
    prefix = prefixes[0]
    issuer = PREFIXES[prefix]
    if software not in ("", issuer):
        return (
            f"this token starts with {prefix}, like tokens from {issuer}, but {server} runs"
            f" {software}: use a token from {software}"
        )
    if prefix == _REMOVED_KIND:
        return (
            "this is an app password, and Bitbucket removed app passwords in June 2026: use an API"
            " token"
        )
    return ""


def software_of(host: str, message: str = "") -> str:
    """Return a Git server's software if the server's hostname or message reveals it, else ""."""
    if "http basic: access denied" in message.lower():  # only GitLab uses this phrase
        return "GitLab"
    for part_of_host, software in SERVERS.items():
        if part_of_host in host.lower():
            return software
    return ""
