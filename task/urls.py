r"""URLs: the one place that takes them apart. Pure.

URLs come from Applications and from servers, so from people who need not be trusted, and programs disagree about odd
ones: in `https://evil.example\@good/` urllib3 sees the host evil.example, curl sees good. `split` reads a URL as
urllib3 does, and decides where a login goes. A URL for git loses its login first (`without_login`): then all agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

_PORTS = {"https": "443", "http": "80", "ssh": "22"}
_SCHEMES = {"git+ssh": "ssh", "ssh+git": "ssh"}
_LOGIN = re.compile(r"(?<=://)([^/]*)@")  # up to the last @ before the path: a password may hold an @, a # or a ?
_BRACKETS = re.compile(r"\[([^/@\[\]]*@)?([^/:@\[\]]+:[0-9]+)\]:")  # git's `[user@host:port]:path`
_IPV6 = re.compile(r"((?:[^/@\[\]]*@)?\[[0-9A-Fa-f:.]+\]):")
_ARGO_CD_SSH = re.compile(r"(?:ssh://)?[^/:]*?@[^@]+")
_LOOPBACK = re.compile(r"localhost|127\.[0-9]+\.[0-9]+\.[0-9]+|\[::1\]", re.ASCII)


@dataclass(frozen=True)
class Url:
    """The parts of a URL; "" for what it does not have."""

    scheme: str  # lower case
    login: str  # `user:password`, as written
    host: str  # lower case; an IPv6 address in its brackets
    port: str  # as written
    path: str  # with its slash
    tail: str = ""  # query and fragment, with their marks

    @property
    def authority(self) -> str:
        """`host[:port]`, without a login."""
        return f"{self.host}:{self.port}" if self.port else self.host

    @property
    def server(self) -> str:
        """`host[:port]`; the scheme's own port is left out."""
        return self.host if self.port == _PORTS.get(self.scheme) else self.authority


def split(url: str) -> Url:
    """Take a URL apart. One that no program could contact has no host; a text without `://` is all path."""
    try:
        parts = urlsplit(url.replace("\\", "/"))
    except ValueError:  # brackets that do not fit, or letters that become a slash when they are normalized
        return Url(url.partition("://")[0].lower(), "", "", "", "")
    login, _, place = parts.netloc.rpartition("@")
    host, colon, port = place.rpartition(":")
    if not colon or "]" in port:
        host, port = place, ""
    tail = (f"?{parts.query}" if parts.query else "") + (f"#{parts.fragment}" if parts.fragment else "")
    return Url(parts.scheme, login, host.lower(), port, parts.path, tail)


def origin(url: str) -> str:
    """`scheme://host[:port]` in lower case, without a login; the scheme's own port is left out."""
    parts = split(url)
    return f"{parts.scheme}://{parts.server}"


def without_query(url: str) -> str:
    """The URL as a log may show it: no login, and no query, in which signed URLs hold a secret."""
    return f"{origin(url)}{split(url).path or '/'}"


def without_login(url: str) -> str:
    """The URL as it may be shown: no user, no password. The user of an ssh URL is part of its address, and stays."""
    found = _LOGIN.search(url)
    if found is None or "://" in url[: found.start() - 3]:
        return url
    user = found[1].partition(":")[0] if "ssh" in url[: found.start()].lower() else ""
    return f"{url[: found.start()]}{user}{'@' if user else ''}{url[found.end() :]}"


def login_of(url: str) -> tuple[str, str]:
    """(User, password) that `without_login` leaves out, as written."""
    found = _LOGIN.search(url)
    user, _, password = found[1].partition(":") if found else ("", "", "")
    return user, password


def as_ssh_url(url: str) -> str:
    """Git's `user@host:path` and `[user@host:port]:path` as an ssh URL; any other text as it is."""
    before, colon, path = url.partition(":")
    if "://" in url or not colon or "/" in before:
        return url
    if found := _BRACKETS.match(url):
        before, path = (found[1] or "") + found[2], url[found.end() :]
    elif found := _IPV6.match(url):
        before, path = found[1], url[found.end() :]
    elif path.startswith(":"):  # `ext::…` starts a program, and names no host
        return url
    return f"ssh://{before}/{path.lstrip('/')}"


@lru_cache(maxsize=4096)
def normal_url(url: str) -> str:
    """Equal for the spellings of one repository: those that Argo CD takes as equal (its NormalizeGitURL), and a few.

    These few are the scheme's own port, and over ssh slashes before the path, `git+ssh:` and git's `[user@host:port]:`.
    Two groups of one repository would write to it at the same time, and open two requests.
    """
    text = url.strip().rstrip("/").removesuffix(".git")
    text = as_ssh_url(text) if "@" in text else text
    scheme, marker, rest = text.partition("://")
    scheme = _SCHEMES.get(scheme.lower(), scheme.lower())
    if not marker or scheme == "file":  # folders differ by their case
        return f"file://{text.removeprefix('file://')}"
    parts = split(f"{scheme}://{rest}")
    path = f"/{parts.path.lstrip('/')}" if scheme == "ssh" else parts.path
    login = f"{parts.login}@" if parts.login else ""
    return f"{scheme}://{login}{parts.server}{path}{parts.tail}".lower()


def is_ssh_for_argo_cd(url: str) -> bool:
    """Whether Argo CD takes a URL for one of ssh (its IsSSHURL)."""
    return bool(_ARGO_CD_SSH.fullmatch(url)) or url.lower().startswith("ssh://")


def argo_cd_url(url: str) -> str:
    """Argo CD's NormalizeGitURL, by which it finds the secret of a repository; "" for what is no URL."""
    text = url.strip().lower()
    if _ARGO_CD_SSH.fullmatch(text) and not text.startswith("ssh://"):
        text = f"ssh://{text.replace(':', '/', 1)}"
    text = text.removesuffix(".git")
    if any(char in ' {}\\"<>^`|' or not char.isprintable() for char in text):
        return ""
    scheme, marker, rest = text.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    port = host.rpartition("]")[2].partition(":")[2] if marker else ""
    if scheme == "ssh" and port and not port.isdigit():  # `ssh://git@host:path`, which no URL parser takes
        return ""
    return rest if scheme == "ssh" else text


def login_and_host(url: str) -> str:
    """Login, host and port, as text: for comparing the beginning of an `argo_cd_url` with whole ones."""
    return (url.partition("://")[2] if "://" in url else url).partition("/")[0]


def host_and_path(url: str) -> str:
    """Equal for `https://user@host/a/b.git`, `ssh://git@host:22/a/b/` and `git@host:a/b`."""
    text = as_ssh_url(url)
    parts = split(text if "://" in text else f"//{text}")
    return f"{parts.host}{parts.path.rstrip('/').removesuffix('.git').lower()}"


def path_part(text: str) -> str:
    """The text as one part of a URL's path."""
    return quote(text, safe="")


def local_folder(url: str) -> str:
    """The folder that a local path or file:// URL means to git."""
    if not url.startswith("file://"):
        return url
    path = unquote(url[len("file://") :])
    return path if path.startswith("/") else f"//{path}"


def is_loopback(host: str) -> bool:
    """Whether `host`, without a port, is this machine."""
    return bool(_LOOPBACK.fullmatch(host))


def web_page(url: str | None, longest: int = 2000) -> str:
    """The address of a page as a server gave it; "" for anything that cannot be one."""
    known = url is not None and url.startswith(("https://", "http://")) and len(url.encode(errors="replace")) <= longest
    return url if url and known and url.isprintable() and not set(url) & set(" <>\"'`\\") else ""
