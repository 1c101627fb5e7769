r"""Parses URLs for the rest of the program. Pure.

URLs come from Applications and from servers, so they are untrusted. Moreover, programs disagree
about unusual URLs: in `https://evil.example\@good/`, urllib3 sees the host evil.example, and curl
sees good. `split` parses a URL like urllib3 does, and determines where credentials are sent. A
URL's own credentials are removed before git receives it (`without_login`), so that all programs
agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

_PORTS = {
    "https": "443",
    "http": "80",
    "ssh": "22",
}
_SCHEMES = {"git+ssh": "ssh", "ssh+git": "ssh"}
# The login: everything up to the last @ before the path, because a password may contain an @, a #,
# or a ?. If a password contains an unescaped slash, programs treat what precedes the slash as the
# host and port, but then the port is not a number.
_LOGIN = re.compile(r"(?<=://)([^/]*|[^/@:\[]*:(?!\d*(?:[/?#]|$)).*)@", re.DOTALL)
# git's form `[user@host:port]:path`
_BRACKETS = re.compile(r"\[([^/@\[\]]*@)?([^/:@\[\]]+:[0-9]+)\]:")
_IPV6 = re.compile(r"((?:[^/@\[\]]*@)?\[[0-9A-Fa-f:.]+\]):")
_ARGO_CD_SSH = re.compile(r"(?:ssh://)?[^/:]*?@[^@]+")
_LOOPBACK = re.compile(r"localhost|127\.[0-9]+\.[0-9]+\.[0-9]+|\[::1\]", re.ASCII)


@dataclass(frozen=True)
class Url:
    """The parts of a URL. Missing parts are ""."""

    scheme: str  # lowercase
    login: str  # `user:password`, as written
    host: str  # lowercase; an IPv6 address is in brackets
    port: str  # as written
    path: str  # starts with a slash
    tail: str = ""  # the query and fragment, including `?` and `#`

    @property
    def authority(self) -> str:
        """`host[:port]`, without credentials."""
        return f"{self.host}:{self.port}" if self.port else self.host

    @property
    def server(self) -> str:
        """`host[:port]`, without the port if it is the scheme's default."""
        return self.host if self.port == _PORTS.get(self.scheme) else self.authority


def split(url: str) -> Url:
    """Return the parts of a URL, as parsed by urllib3.

    The host is "" for a URL that cannot be parsed, and for a value without `://`, which is only a
    path.
    """
    try:
        parts = urlsplit(url.replace("\\", "/"))
    except ValueError:  # unbalanced brackets, or characters that NFKC turns into a slash (`℀`)
        scheme = url.partition("://")[0]
        return Url(scheme.lower(), login="", host="", port="", path="")
    login, _, host_and_port = parts.netloc.rpartition("@")
    host, colon, port = host_and_port.rpartition(":")
    # after a `]`, the colon would belong to an IPv6 address
    has_port = bool(colon) and "]" not in port
    if not has_port:
        host = host_and_port
        port = ""
    query = f"?{parts.query}" if parts.query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return Url(
        scheme=parts.scheme,
        login=login,
        host=host.lower(),
        port=port,
        path=parts.path,
        tail=query + fragment,
    )


def origin(url: str) -> str:
    """Return `scheme://host[:port]` in lowercase, without credentials or the scheme's
    default port.
    """
    parts = split(url)
    return f"{parts.scheme}://{parts.server}"


def without_query(url: str) -> str:
    """Return the URL without credentials and query, for logs. The query of a signed URL is a
    secret.
    """
    return f"{origin(url)}{split(url).path or '/'}"


def without_login(url: str) -> str:
    """Return the URL without its user and password, for display.

    The user in an SSH URL is part of its address and is kept.
    """
    login = _LOGIN.search(url)
    if login is None:
        return url
    scheme = url[: login.start()]  # including `://`
    # In `https://proxy/https://user@host`, the login is only part of the path.
    is_in_second_url = "://" in scheme.removesuffix("://")
    if is_in_second_url:
        return url
    address = url[login.end() :]
    user = login[1].partition(":")[0]
    is_ssh = "ssh" in scheme.lower()
    if user and is_ssh:
        return f"{scheme}{user}@{address}"
    return f"{scheme}{address}"


def login_of(url: str) -> tuple[str, str]:
    """Return the user and password that `without_login` removes, as written."""
    login = _LOGIN.search(url)
    if login is None:
        return "", ""
    user, _, password = login[1].partition(":")
    return user, password


def as_ssh_url(url: str) -> str:
    """Convert git's `user@host:path` and `[user@host:port]:path` to an SSH URL, such as
    `ssh://user@host/path`. Other text is returned unchanged.
    """
    address, colon, path = url.partition(":")
    is_url = "://" in url
    is_local_path = not colon or "/" in address
    if is_url or is_local_path:
        return url
    in_brackets = _BRACKETS.match(url)  # `[user@host:port]:path`
    ipv6_address = _IPV6.match(url)  # `user@[::1]:path`
    if in_brackets:
        user = in_brackets[1] or ""
        host_and_port = in_brackets[2]
        address = user + host_and_port
        path = url[in_brackets.end() :]
    elif ipv6_address:
        address = ipv6_address[1]
        path = url[ipv6_address.end() :]
    elif path.startswith(":"):  # `ext::…` runs a program, so it has no host
        return url
    return f"ssh://{address}/{path.lstrip('/')}"


@lru_cache(maxsize=4096)
def normal_url(url: str) -> str:
    """Return a key that is the same for all spellings of a repository's URL. For example, it is
    `https://host/owner/repo` for `https://HOST:443/owner/repo.git`.

    Argo CD's NormalizeGitURL treats most spellings as equal. This function also ignores the
    scheme's default port, `git+ssh:`, and, for SSH, extra slashes before the path and git's
    `[user@host:port]:`. If one repository had two keys, a run would write to it in two threads, and
    open two pull requests.
    """
    text = url.strip().rstrip("/").removesuffix(".git")
    if "@" in text:  # without a user, Argo CD does not treat it as an SSH URL
        text = as_ssh_url(text)
    scheme, separator, after_scheme = text.partition("://")
    scheme = scheme.lower()
    scheme = _SCHEMES.get(scheme, scheme)
    is_folder = not separator or scheme == "file"
    if is_folder:  # folder names are case-sensitive
        return f"file://{text.removeprefix('file://')}"

    parts = split(f"{scheme}://{after_scheme}")
    path = parts.path
    if scheme == "ssh":
        path = f"/{path.lstrip('/')}"
    login = f"{parts.login}@" if parts.login else ""
    return f"{scheme}://{login}{parts.server}{path}{parts.tail}".lower()


def is_ssh_for_argo_cd(url: str) -> bool:
    """Return whether Argo CD treats a URL as an SSH URL (its IsSSHURL)."""
    return bool(_ARGO_CD_SSH.fullmatch(url)) or url.lower().startswith("ssh://")


def argo_cd_url(url: str) -> str:
    """Return the result of Argo CD's NormalizeGitURL, which Argo CD uses to find a repository's
    secret. The result is "" if the text is not a URL.
    """
    text = url.strip().lower()
    lacks_scheme = not text.startswith("ssh://")
    if _ARGO_CD_SSH.fullmatch(text) and lacks_scheme:  # `git@host:path`
        text = f"ssh://{text.replace(':', '/', 1)}"
    text = text.removesuffix(".git")
    has_invalid_characters = not text.isprintable() or bool(set(text) & set(' {}\\"<>^`|'))
    if has_invalid_characters:
        return ""

    scheme, _, after_scheme = text.partition("://")
    if scheme != "ssh":
        return text
    # Go's URL parser rejects `ssh://git@host:path`
    login_host_and_port = after_scheme.partition("/")[0]
    host_and_port = login_host_and_port.rpartition("@")[2]
    after_ipv6_address = host_and_port.rpartition("]")[2]  # the whole text if there is no `]`
    port = after_ipv6_address.partition(":")[2]
    if port and not port.isdigit():
        return ""
    return after_scheme


def login_and_host(url: str) -> str:
    """Return the login, host, and port in one string, so that an `argo_cd_url` prefix is only
    compared with whole hosts.
    """
    _, separator, after_scheme = url.partition("://")
    address = after_scheme if separator else url
    return address.partition("/")[0]


def host_and_path(url: str) -> str:
    """Return the host and path of a URL, without the login, the port, and `.git`. For example, this
    is `host/a/b` for `https://user@host/a/b.git`, `ssh://git@host:22/a/b/`, and `git@host:a/b`.
    """
    text = as_ssh_url(url)
    if "://" not in text:
        text = f"//{text}"  # so that the text begins with a host
    parts = split(text)
    path = parts.path.rstrip("/").removesuffix(".git").lower()
    return f"{parts.host}{path}"


def path_part(text: str) -> str:
    """Escape a string for use as one segment of a URL path."""
    return quote(text, safe="")


def local_folder(url: str) -> str:
    """Return the folder that git uses for a local path or a file:// URL."""
    if not url.startswith("file://"):
        return url
    path = unquote(url[len("file://") :])
    return path if path.startswith("/") else f"//{path}"


def is_loopback(host: str) -> bool:
    """Return whether `host`, given without a port, is this machine. `localhost.evil.example` is
    not.
    """
    return bool(_LOOPBACK.fullmatch(host))


def web_page(url: str | None, longest: int = 2000) -> str:
    """Return the URL of a page, as sent by a server, or "" if the URL is not HTTP or HTTPS, is
    longer than `longest` bytes, or contains characters that are unsafe in a link.
    """
    if not url or not url.startswith(("https://", "http://")):
        return ""
    if len(url.encode(errors="replace")) > longest:
        return ""
    has_unsafe_characters = not url.isprintable() or bool(set(url) & set(" <>\"'`\\"))
    return "" if has_unsafe_characters else url
