"""What may be handed to git: addresses of repositories and names of branches. Pure.

Both come from Applications, so from people who need not be trusted with this machine.
"""

import re
from typing import NamedTuple

from task.errors import SourceError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_USERINFO = re.compile(r"(?P<start>[A-Za-z][A-Za-z0-9+.-]*://)(?P<info>[^/?#\s]*)@")
_SECRETS = re.compile(r"(://)[^/@\s'\"]*@")
_TRANSPORTS = {"git+ssh": "ssh", "ssh+git": "ssh"}
_OBJECT_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_NO_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[/.-]|[/.]$")


class Address(NamedTuple):
    """Where a repository is: what git may be told, and a login that must not be shown."""

    url: str  # without password; without any login for http and https
    protocol: str  # "https", "ssh", "http", "file", or one that is not supported
    user: str = ""
    password: str = ""


def address_of(url: str) -> Address:
    """Take a URL apart. Raises `SourceError` for what git would read as an option or a command."""
    shown = without_login(url)
    if not url or url.startswith("-") or _CONTROL.search(url):
        raise SourceError(
            f"{printable(shown)!r} is not a repository URL",
            hint="use https://host/path, ssh://host/path or user@host:path",
        )
    if _HELPER.match(url):
        raise SourceError(
            f"{shown!r} starts a program (git remote helper)", hint="use https://host/path or ssh://host/path"
        )
    scheme = _SCHEME.match(url)
    if scheme:
        return _of_scheme(url, scheme[1].lower())
    colon, slash = url.find(":"), url.find("/")
    if colon < 0 or 0 <= slash < colon:
        return Address(url, "file")
    return _checked_host(Address(url, "ssh"), url[:colon].rpartition("@")[2])


def _of_scheme(url: str, scheme: str) -> Address:
    rest = url[len(scheme) + 3 :]
    protocol = _TRANSPORTS.get(scheme, scheme)
    if protocol == "file":
        return Address(f"file://{rest}", "file")
    host, slash, path = rest.partition("/")
    login, at, host = host.rpartition("@")
    user, _, password = login.partition(":")
    if protocol == "ssh":
        return _checked_host(Address(f"{scheme}://{user}{at}{host}{slash}{path}", protocol), host, user)
    return _checked_host(Address(f"{scheme}://{host}{slash}{path}", protocol, *map(_unquoted, (user, password))), host)


def _checked_host(address: Address, host: str, user: str = "") -> Address:
    """Git passes host and user to ssh: neither may read as an option."""
    if not host or host.startswith("-") or user.startswith("-"):
        raise SourceError(
            f"{without_login(address.url)!r} names no host", hint="use https://host/path or ssh://host/path"
        )
    return address


def _unquoted(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote

    plain = unquote(text)
    if _CONTROL.search(plain):
        raise SourceError(
            "the login in the repository URL holds a control character", hint="give credentials by options"
        )
    return plain


def without_login(url: str) -> str:
    """The URL as it may be shown: no user, no password (the user of an ssh URL is its address, and stays)."""
    found = _USERINFO.match(url)
    if not found:
        return url
    user = found["info"].partition(":")[0] if "ssh" in found["start"].lower() else ""
    return f"{found['start']}{user}{'@' if user else ''}{url[found.end() :]}"


def without_logins(text: str) -> str:
    """Any text of git, with the logins of all URLs in it left out."""
    return _SECRETS.sub(r"\1", text)


def printable(text: str) -> str:
    """The text without control characters, line ends included: a server must not move a terminal's cursor."""
    return "".join(char if char.isprintable() else " " for char in text)


def rewritten(url: str, rewrites: tuple[tuple[str, str], ...]) -> str:
    """The URL to contact: the longest prefix wins; unchanged where none fits."""
    fitting = [pair for pair in rewrites if pair[0] and url.startswith(pair[0])]
    if not fitting:
        return url
    prefix, replacement = max(fitting, key=lambda pair: len(pair[0]))
    return replacement + url[len(prefix) :]


def branch_name(revision: str) -> str:
    """The branch that a revision names, without `refs/heads/`.

    The rules are those of `git check-ref-format --branch`. Raises `SourceError` for what can be no branch: a commit,
    a tag's full name, a version range.
    """
    name = revision.removeprefix("refs/heads/")
    if _OBJECT_ID.fullmatch(name):
        raise SourceError(f"{name!r} is a commit, not a branch", hint="a commit cannot be written to: name a branch")
    if name.startswith("refs/"):
        raise SourceError(f"{printable(name)!r} is not a branch", hint="only branches can be written to")
    if not is_branch_name(name):
        raise SourceError(f"{printable(name)!r} is not a branch name", hint="name one branch, not a range or pattern")
    return name


def is_branch_name(name: str) -> bool:
    """Whether git accepts the name for a branch; equals `git check-ref-format --branch`, without its `@{-1}`."""
    return name not in {"", "HEAD"} and not _NO_BRANCH.search(name)
