"""Repository addresses and branch names that are safe to pass to git. Pure.

Both come from Applications, whose authors may not be trusted to run commands on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import unquote

from task.errors import SourceError
from task.secret import Secret
from task.text import blanked
from task.urls import login_of, normal_url, split, without_login

PREFIX = "image-update"  # the prefix of our own branches, unless the config sets a different prefix
OURS = f"{PREFIX}/"  # the prefix of head branches
# the trailer that names the base branch, in the commits of its memory branch
BASE_TRAILER = "Image-Update-Base"
MEMORY = f"{PREFIX}-memory/"  # the prefix of memory branches
_TRANSPORTS = {"git+ssh": "ssh", "ssh+git": "ssh"}
_USE = "use https://host/path or ssh://host/path"
TO_WRITE = (
    "set the git-branch annotation to the branch to write to, such as git-branch: main, and set"
    " targetRevision to the same branch"
)
_HEX = frozenset("0123456789abcdef")
_ID_LENGTHS = (40, 64)
_NOT_IN_A_BRANCH = frozenset(" ~^:?*[\\\x7f") | {chr(code) for code in range(32)}


@dataclass(frozen=True)
class Address:
    """A repository's address: the URL for git, and the credentials that were part of it."""

    url: str  # without a password; without any credentials for http and https
    protocol: str  # "https", "ssh", "http", "file", or an unsupported one
    user: str = ""
    password: Secret = Secret("")


def address_of(url: str) -> Address:
    """Split a repository URL into a URL for git, and the credentials in it.

    As in git, URLs with a scheme, the short form `user@host:path`, and local paths are accepted.
    Raises `SourceError` if git would treat the URL as an option or a command, or if it has no host.
    """
    display_url = without_login(url)
    if not url or url.startswith("-") or _has_control(url):
        hint = "use https://host/path, ssh://host/path or user@host:path"
        raise SourceError(f"{blanked(display_url)!r} is not a repository URL", hint=hint)
    helper, helper_separator, _ = url.partition("::")
    if helper_separator and _is_scheme(helper):
        raise SourceError(f"{display_url!r} runs a program (git remote helper)", hint=_USE)
    scheme, separator, _ = url.partition("://")
    if separator and _is_scheme(scheme):
        return _split_with_scheme(url, scheme.lower(), display_url)
    # Like git, treat `user@host:path` as ssh, unless there is a slash before the colon. `host:path`
    # is ssh, too.
    user_and_host, colon, _ = url.partition(":")
    if not colon or "/" in user_and_host:
        return Address(url, "file")
    _, _, host = user_and_host.rpartition("@")
    _check_host(host, "", url=url)
    return Address(url, "ssh")


def _split_with_scheme(url: str, scheme: str, display_url: str) -> Address:
    """Split a URL that starts with `scheme://`. `scheme` must be lowercase, and `display_url` is
    the URL without credentials.

    Raises `SourceError`.
    """
    protocol = _TRANSPORTS.get(scheme, scheme)
    if protocol == "file":
        return Address(f"file://{url[len('file://') :]}", "file")
    bare_url = scheme + display_url[len(scheme) :]  # with the scheme in lowercase
    user, password = login_of(url)
    if "/" in password:
        message = "the password in the repository URL contains an unescaped slash"
        raise SourceError(
            message,
            hint="use %2F, or pass the credentials in options",
            subject=display_url,
        )
    host = split(bare_url).host
    if protocol == "ssh":
        _check_host(host, user, url=bare_url)
        return Address(bare_url, protocol)
    _check_host(host, "", url=bare_url)
    return Address(
        bare_url,
        protocol,
        user=_percent_decoded(user),
        password=Secret(_percent_decoded(password)),
    )


def _check_host(host: str, user: str, *, url: str) -> None:
    """Raise `SourceError` if the URL has no host, or if ssh would treat the host or the user as an
    option (git passes both to ssh). `url` is shown in the error message.
    """
    if not host or host.startswith("-") or user.startswith("-"):
        raise SourceError(f"{without_login(url)!r} has no host", hint=_USE)


def _percent_decoded(text: str) -> str:
    """Decode a percent-encoded username or password."""
    if "%" not in text:
        return text
    decoded = unquote(text)
    if _has_control(decoded):
        raise SourceError(
            "the credentials in the repository URL contain a control character",
            hint="pass the credentials in options",
        )
    return decoded


def _has_control(text: str) -> bool:
    return any(char < " " or char == "\x7f" for char in text)


def _is_scheme(text: str) -> bool:
    return (
        text.isascii()
        and text[:1].isalnum()
        and text.replace("+", "").replace("-", "").replace(".", "").isalnum()
    )


def rewritten(url: str, rewrites: tuple[tuple[str, str], ...]) -> str:
    """Return the URL to contact: the repository's URL with the longest matching prefix replaced.

    `rewrites` are pairs of (prefix, replacement), such as `("https://git.example.com/",
    "ssh://git@…/")`. If no prefix matches a URL with credentials, try the URL without them. If a
    prefix matches that URL, drop the credentials.
    """
    longest_prefix = ""
    new_start = ""
    for prefix, replacement in rewrites:
        if url.startswith(prefix) and len(prefix) > len(longest_prefix):
            longest_prefix = prefix
            new_start = replacement
    if longest_prefix:
        return new_start + url.removeprefix(longest_prefix)

    bare_url = without_login(url)
    if bare_url == url or not bare_url.startswith("http"):
        return url
    new_url = rewritten(bare_url, rewrites)
    is_rewritten = new_url != bare_url
    return new_url if is_rewritten else url


def has_our_prefix(head: str, prefix: str = PREFIX) -> bool:
    """Return whether a head branch's name starts with one of our prefixes."""
    return head.startswith((OURS, f"{prefix}/"))


def memory_branch(repo: str, base: str, prefix: str = PREFIX) -> str:
    """Return the name of a base's memory branch. This branch stores holds, and the builds that the
    holds defer, if changes are not written to the base branch itself.
    """
    return f"{prefix}-memory/{short_hash(normal_url(repo), base)}"


def short_hash(*words: str) -> str:
    """Return eight hexadecimal digits that identify these strings."""
    return sha256("\n".join(words).encode("utf-8", "replace")).hexdigest()[:8]


def base_branch_name(revision: str) -> str:
    """Return the branch that an Application's revision names, such as `main`, without
    `refs/heads/`.

    Raises `SourceError` if the revision is not a branch. A commit id is rejected here, not in
    `branch_name`, because only a revision can mean a commit. The text after the colon in
    `git-branch` is always a branch, even if it looks like a commit id: Image Updater's own example,
    `main:{{.SHA256}}`, expands to 64 hexadecimal digits.
    """
    name = revision.removeprefix("refs/heads/")
    if len(name) in _ID_LENGTHS and _HEX.issuperset(name):
        raise SourceError(
            f"the revision {name!r} is a commit, but updates can only be written to a branch",
            hint=TO_WRITE,
        )
    return branch_name(revision)


def branch_name(revision: str) -> str:
    """Return the branch name in a value, without `refs/heads/`.

    The rules are those of `git check-ref-format --branch`. Raises `SourceError` for a value that
    cannot be a branch name, such as a tag's full name or a version range.
    """
    name = revision.removeprefix("refs/heads/")
    if name.startswith("refs/"):
        raise SourceError(f"the revision {blanked(name)!r} is not a branch", hint=TO_WRITE)
    if not is_branch_name(name):
        raise SourceError(f"{blanked(name)!r} is not a valid branch name", hint=TO_WRITE)
    return name


def is_branch_name(name: str) -> bool:
    """Return whether git accepts the branch name. The rules are those of `git check-ref-format
    --branch`, except that `@{-1}` is rejected.
    """
    if name in {"", "HEAD"} or name.startswith("-") or name.endswith("."):
        return False
    if ".." in name or "@{" in name or _NOT_IN_A_BRANCH & set(name):
        return False
    for part in name.split("/"):
        if not part or part.startswith(".") or part.endswith(".lock"):
            return False
    return True
