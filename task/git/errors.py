"""Maps messages from git and from servers to our errors, using a table. Pure code.

Git runs with `LC_ALL=C`, so its messages are in English. The first matching row wins, so specific
messages come before general ones (every ssh failure ends with "Could not read from remote
repository").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import re2

from task import DOCS
from task.errors import (
    CredentialsError,
    Outpaced,
    RepositoryError,
    SourceError,
    TaskError,
    UnreachableError,
)
from task.git.hosts import software_of, wrong_issuer
from task.retry import NotDoneError
from task.secret import Secret
from task.text import blanked, without_logins

_LINES = 12  # of git's output to quote in a message
_CHARACTERS = 1500  # of git's output to quote in a message
_TEXT = 64_000  # characters of output to read, from its end
_LINE = 2000  # characters of a line to read, from its start


class GitFailed(Exception):
    """A git command failed. Callers turn this exception into an error that says what the command
    was for.
    """

    def __init__(self, command: str, code: int, out: bytes, err: str) -> None:
        super().__init__(f"git {command} exited with {code}")
        self.command = command
        self.code = code
        self.out = out
        self.err = err


class GitEnded(GitFailed):
    """A git command was stopped because it took too long, received too much data, or needed too
    much memory.
    """


@dataclass(frozen=True)
class Meaning:
    """A row of the table: a regular expression for git's message, and the error that it means."""

    words: str
    error: type[TaskError]
    message: str
    hint: str


def _any(*words: str) -> str:
    return "|".join(words)


def _has_words(text: str, words: str) -> bool:
    return _compiled_words(words).search(text) is not None


@cache
def _compiled_words(words: str) -> re2._Regexp:
    """Return the compiled regular expression, which is case-insensitive.

    RE2 takes linear time: Python's own patterns took 19 seconds for a 60 KB line from a server.
    """
    options = re2.Options()
    options.case_sensitive = False
    return re2.compile(words, options)


def _cleaned_output(output: str) -> str:
    """Return the end of the output, without credentials, and with long lines truncated."""
    # An invalid proxy setting may contain a password, but `without_logins` finds passwords only in
    # URLs.
    without_proxy = re.sub(
        r"(proxy (?:syntax in|url:?) )'.*'",
        r"\1'***'",
        output[-_TEXT:],
        flags=re.IGNORECASE,
    )
    lines = re.split(r"[\r\n]+", without_logins(without_proxy))
    return "\n".join(line[:_LINE] for line in lines)


_ACCESS = (
    "check the URL, and that the credentials have read and write access; servers return the same"
    " error for both"
)
_AGAIN = "run it again"
_NO_LOGIN = "the server requires credentials and none are set, or the repository does not exist"
_REFUSED = "the server did not accept the credentials"
_UNKNOWN_HOST = _any("could not resolve", "name resolution", "name or service not known")
_NO_PROXY = "the proxy could not be reached, or failed"
_UNREACHED = "the Git server could not be reached"
_CLOSED = "the Git server closed the connection"
_SLOW = "the Git server did not respond in time"
_HALF = "the Git server did not finish the transfer"
_CONNECTION_PROBLEMS = (_NO_PROXY, _UNREACHED, _CLOSED, _SLOW, _HALF)
_FAILED = "the Git server reported an internal error"
_BUSY = "the Git server's rate limit was exceeded"
_STALLED = _any("stalled", "operation too slow")
# These problems may disappear within moments.
_NO_WAY = _any(
    _UNKNOWN_HOST, "failed to connect", "no route to", "connection (?:refused|timed out)",
    "couldn't connect", "unable to connect", "network is (?:unreachable|down)",
)  # fmt: skip
_PROXY_DOWN = _any(
    "could not resolve proxy", "from proxy", "proxy connect aborted", r"tunnel failed, response 5\d\d",
)  # fmt: skip
_TOO_LATE = _any("timed out", "timeout", "returned error: 408")
_CUT = _any(
    "connection (?:reset|closed)", "empty reply", "broken pipe", "early (?:eof|end of file)",
    "unexpected disconnect", "transfer closed", "gnutls_handshake", "ssl_error_syscall", "ssl_connect", "tls connect",
    "kex_exchange_identification", "ssh_exchange_identification", "remote end hung up", "http/2 stream",
)  # fmt: skip
_DAMAGED = _any("rpc failed", "bad pack header", "internal error", "invalid index-pack output")
# What git prints if a connection failed or was lost.
_NO_CONNECTION = _any(_PROXY_DOWN, _NO_WAY, _TOO_LATE, _CUT, _DAMAGED)

_PROXY_FAILED = Meaning(
    _PROXY_DOWN, UnreachableError, _NO_PROXY,
    "check HTTPS_PROXY, or git's http.proxy; if this server does not need a proxy, add it to"
    " NO_PROXY",
)  # fmt: skip
# curl reports the host that it connects to. If this is not the URL's host, it is a proxy.
_CONNECTS = re.compile(
    r"unable to access '\w+://(?:[^/@']*@)?(?P<of_url>[^/:']+)[^']*':"
    r" Failed to connect to (?P<connected_to>\S+) port"
)

PAGE = "is this a git repository"  # git's message if it receives a web page of several lines
KILLED = "the step may have run out of memory: raise its memory limit, and run it again"

FAILURES = (
    Meaning("died of signal",
            UnreachableError, "a git process was killed", KILLED),
    Meaning(_any("it sent more than", "git would need more than"),
            UnreachableError, "the Git server sent more data than allowed",
            "check the server; if the repository really is that large, enable partial clones on"
            " the server (uploadpack.allowFilter), or raise the step's memory limit"),
    Meaning("the limit for one repository is",
            UnreachableError, "the Git server took too long",
            "run it again; a longer --deadline gives the repository more time"),
    Meaning('protocol "?http"? (?:not supported|disabled)',
            RepositoryError, "the server redirects from https to plain http",
            "set repoURL to the repository's https URL, or configure the server to redirect to"
            " https"),
    Meaning(_any(r"returned error: 30\d", "unable to update url base from redirection"),
            RepositoryError,
            "the server redirects to another address, but git does not follow the redirect",
            "set repoURL to the new address; if the address is a login page, check"
            " the URL and the credentials"),
    Meaning("transport '[^']*' not allowed",
            SourceError, "this Git transport is not allowed", "change the repository URL to https or ssh"),
    Meaning(_any(r"(?:http code|tunnel failed, response|returned error:) 407", "proxy authentication required"),
            CredentialsError, "the proxy did not accept the credentials",
            "check the username and the password in HTTPS_PROXY or git's http.proxy"),
    Meaning(_any(r"http code 4\d\d from proxy", r"tunnel failed, response 4\d\d"),
            RepositoryError, "the proxy does not allow this",
            "allow connections to this server in the proxy, or add the server to NO_PROXY"),
    Meaning(_any("unsupported proxy", "invalid proxy", "proxy url", "bad(?:/illegal)? format or missing url"),
            RepositoryError, "the proxy setting is not valid",
            "set HTTPS_PROXY, or git's http.proxy, to http://HOST:PORT"),
    Meaning(PAGE,
            RepositoryError, "the server returned a web page, not a Git repository",
            "open the URL in a browser: if it shows a login page, add credentials for this server,"
            " or allow the runner through the proxy that shows the page; if not, correct the URL"),
    Meaning("couldn't find remote ref",
            SourceError, "the branch does not exist",
            "check the branch name, and that the branch was not deleted"),
    Meaning("remote host identification has changed",
            CredentialsError, "the server's SSH host key has changed",
            "if the change was intended, replace the key in known_hosts; if not, someone may be"
            " intercepting the connection"),
    Meaning(_any("host key verification failed", r"no \S+ host key is known"),
            CredentialsError, "the server's SSH host key is not known",
            "compare its key with the key that its owner publishes, then pass it: --ssh-host-key"
            " 'HOST ssh-ed25519 "
            "AAAA…'"),
    Meaning("no user exists for uid",
            CredentialsError, "ssh refuses to run for a user id without a passwd entry",
            "install libnss_wrapper (included in the published image), run as a user that exists in"
            " the image, or use "
            "https"),
    Meaning(_any("certificate (?:verif|problem|has expired|subject name)", "(?:ssl|peer|client|issuer) certificate",
                 "ssl ca cert", "cafile", "self[- ]signed", "ssl: no alternative certificate"),
            CredentialsError, "the server's TLS certificate was not accepted",
            "pass the server's certificate authority (--ca-file); check the hostname in the URL"
            " and this machine's clock"),
    Meaning(_any("load key .*(?:passphrase|invalid format|libcrypto)", "bad permissions", "unprotected private key"),
            CredentialsError, "the SSH key cannot be used",
            "use a private key without a passphrase (--ssh-key-file or --ssh-directory)"),
    Meaning(_any(r"permission denied \([a-z,-]+\)", "too many authentication failures", "sign_and_send_pubkey",
                 "no supported authentication methods", "no mutual signature"),
            CredentialsError, "the server did not accept the SSH key",
            "check that a key is set (--ssh-key-file or --ssh-directory), and that its public key"
            " is registered on the server"),
    Meaning(_any("could not read (?:username|password)", "terminal prompts disabled"),
            CredentialsError, _NO_LOGIN,
            "set IMAGE_UPDATE_GIT_TOKEN, and --git-credentials-url if the token is for another"
            " server; or correct "
            f"the URL: {DOCS}/credentials.md"),
    Meaning(_any("authentication (?:failed|required)", "returned error: 401", "http basic: access denied",
                 "bad credentials", "invalid (?:credentials|username or (?:token|password))",
                 "password authentication (?:was removed|is not supported)"),
            CredentialsError, _REFUSED,
            "check the username and the password or token for this server; renew an expired token"),
    Meaning(_any("no space left on device", "disk quota exceeded", "file too large"),
            UnreachableError, "a disk is full", "free some space, then run it again"),
    Meaning("too many open files",
            UnreachableError, "too many open files",
            "raise the step's limit (ulimit -n 1024), or the Git server's limit if the server"
            " sent the message; run it again"),
    Meaning("dubious ownership",
            RepositoryError, "git does not trust this local repository: another user owns it",
            "run as its owner, or trust it: git config --global --add safe.directory PATH"),
    Meaning(_any("repository .*not found", "not found: ", "does not appear to be a git repository",
                 "returned error: 404", "project you were looking for", "repository not exported",
                 "could not find repository", "no such repository", "tf401019",
                 "repository .*(?:does not|doesn't) exist", "not a git repository",
                 "not exist or you do not have permission", "no longer exists"),
            RepositoryError, "the repository was not found, or access to it was denied", _ACCESS),
    Meaning(_any("write access to repository not granted", "read[- ]only", "archived", "returned error: 403",
                 "forbidden", "insufficient permission", r"permission to \S+ denied", "not allowed to",
                 "genericcontribute", "access denied", "not authorized", "unauthorized", "does not have permission",
                 "you cannot push", "unable to (?:create|write) .*permission denied"),
            RepositoryError, "the server does not allow this",
            "check that these credentials have read and write access to the repository"),
    Meaning(_any("returned error: 429", "too many requests", "rate limit"),
            UnreachableError, _BUSY, "run it again later, and start fewer runs at the same time"),
    Meaning(_any(r"returned error: 5\d\d", "internal server error", "bad gateway", "service unavailable"),
            UnreachableError, _FAILED, _AGAIN),
    _PROXY_FAILED,
    Meaning(_NO_WAY, UnreachableError, _UNREACHED, _AGAIN),
    Meaning(_any(_STALLED, _TOO_LATE), UnreachableError, _SLOW, _AGAIN),
    Meaning(_CUT, UnreachableError, _CLOSED, _AGAIN),
    Meaning(_any(_DAMAGED, "commit_refs", "(?:index-pack|unpack-objects) (?:failed|died|abnormal)",
                 "unable to (?:write|create)", "did not send all", "protocol error", "expected flush", "not our ref",
                 "remote failed to report status", "out of memory"),
            UnreachableError, _HALF, _AGAIN),
    Meaning(_any("permission denied", "unable to access", "could not read from remote repository"),
            RepositoryError, "the repository was not found, or access to it was denied", _ACCESS),
)  # fmt: skip

# What git, GitHub, GitLab (Gitaly), Gitea, Bitbucket, JGit servers, and Azure print when another
# push came first.
_RACE = _any(
    "fetch first", "non-fast-forward", "needs? force", "stale info", "remote ref updated", "cannot lock ref",
    "failed to (?:update ref|lock)", "unable to lock", "lock(?:ing)? (?:failure|error)", "incorrect old value",
    "invalid old id", "reference already exists", "is at [0-9a-f]+ but expected", "does not point to (?:the )?expected",
    "unexpected old", "reference (?:has )?changed", "already been updated by another", "tf401028", "concurrent",
    "atomic (?:push|transaction) fail", "transaction aborted", "another (?:push|update|operation)",
)  # fmt: skip
# What these servers print if a retry would not get the lock either.
_FOR_GOOD = _any(
    "exists; cannot create",
    "permission denied",
    "read-only file system",
    "no space left",
)
_RULE = _any(
    "hook declined", "protected", "policy", r"\bGH0\d\d\b", "prohibited", "deny", "denied", "not permitted",
    "not allowed",
)  # fmt: skip
_PROTECTED = _any(
    "protected", "GH006", "GH013", "rule violations", "TF402455", "pull request", "merge request",
    "not allowed to push",
)  # fmt: skip
_UNKNOWN = _any("remote failure", "remote failed to report")
# A server hook could not reach another part of the server. This is a server failure, not a rule.
_UNWELL = _any(
    "internal api (?:unreachable|error)", "api is not accessible", r"gitlab: 5\d\d", "internal server error",
    "unable to contact (?:gitea|forgejo)", "context deadline exceeded",
)  # fmt: skip
# GitHub rejects pushes to a branch whose pull request is in the merge queue (text after GH006).
_IN_QUEUE = _any("added to a merge queue", "queued for merging cannot be updated")
LEAVES_QUEUE = "run it again after the request has been merged or has left the merge queue"
# Gitea 1.26 returns this for every error that it does not recognize, usually an unsigned commit on
# a branch that requires signed ones. Gitea's source code contains better messages, but never sends
# them.
_GITEA_WITHOUT_WORDS = r"internal server error \(no message for end users\)"
_NOISE = _any(
    "hint:",
    "warning:",
    "To ",
    r"remote: *$",
    "remote: (?:Enumerating|Counting|Compressing|Resolving|Total)",
)


def _meaning_of(output: str) -> Meaning | None:
    """Return the first row of the table `FAILURES` that matches git's output, or None."""
    for meaning in FAILURES:
        if not _has_words(output, meaning.words):
            continue
        # The host that could not be reached may be a proxy.
        hosts = _CONNECTS.search(output) if meaning.message == _UNREACHED else None
        used_proxy = hosts is not None and hosts["of_url"] != hosts["connected_to"]
        if used_proxy:
            return _PROXY_FAILED
        return meaning
    return None


def failure(
    stderr: str,
    subject: str,
    scopes: Sequence[str] = (),
    token: Secret = Secret(""),
    host: str = "",
    *,
    proxied: bool = False,
) -> TaskError:
    """Return the error for git's output (`stderr`) when git could not reach or read a repository.
    `subject` names the repository in the error.

    `scopes`: the URL prefixes that the configured credentials are for. `token`: the token sent to
    the server at `host`. `proxied`: whether the environment sets a proxy.
    """
    output = _cleaned_output(stderr)
    quoted_output = quoted(stderr)
    meaning = _meaning_of(output)
    if meaning is None and not quoted_output:
        # For example, the kernel killed git's child process that communicates with the server.
        return UnreachableError(
            "git failed and gave no reason",
            hint=KILLED,
            subject=subject,
        )
    if meaning is None:
        return RepositoryError(f"git failed: {quoted_output}", hint=_ACCESS, subject=subject)

    # Improve the message or hint, using what else is known about the credentials and the server.
    message = meaning.message
    hint = meaning.hint
    if meaning.message == _NO_LOGIN and scopes:
        message = (
            "the server requires credentials, but the configured ones were not sent: they are for"
            f" {' and '.join(scopes)}"
        )
        hint = _hint_to_send_credentials(output)
    elif meaning.message == _REFUSED:
        hint = wrong_issuer(token, host, software_of(host, output)) or hint
    elif meaning.message == _UNREACHED and _has_words(output, _UNKNOWN_HOST):
        hint = "check the hostname in the URL; if it is correct, run it again"
    elif meaning.message == _SLOW and proxied:
        hint = "run it again; if the proxy still does not respond, check HTTPS_PROXY and NO_PROXY"

    if quoted_output:
        message = f"{message} ({quoted_output})"
    return meaning.error(message, hint=hint, subject=subject)


def _hint_to_send_credentials(output: str) -> str:
    """Return the hint for credentials that are configured, but not for this server."""
    prompt = re.search(r" for '(https?://[^'@\s]+)'", output)
    url = prompt[1] if prompt else "URL"
    return (
        "if this server is allowed to receive them, also pass --git-credentials-url"
        f" {url}; if not, use other credentials: {DOCS}/credentials.md"
    )


def broke_off(stderr: str) -> str:
    """Return a description of the server or connection problem if a retry may succeed, else "".

    `stderr` is the failed git command's output. If the server stalled, a retry is not worthwhile,
    because the run has already waited for it.
    """
    output = _cleaned_output(stderr)
    meaning = _meaning_of(output)
    if meaning is None or _has_words(output, _STALLED):
        return ""
    if meaning.message in (_FAILED, _BUSY):
        return meaning.message
    # Some causes of these messages cannot be fixed by a retry, such as a lack of memory.
    if meaning.message in _CONNECTION_PROBLEMS and _has_words(output, _NO_CONNECTION):
        return meaning.message
    return ""


def refusal(
    status: str,
    stderr: str,
    subject: str,
    *,
    forced: bool = False,
) -> TaskError | Outpaced:
    """Return the error for a rejected push.

    `status` is the branch's line in git's output with `--porcelain`, which ends with a reason such
    as `[remote rejected] (hook declined)`, or "" if there was no such line. `forced`: the push was
    meant to replace a head branch, so a "non-fast-forward" from the server indicates a rule, not a
    race. After an `UnreachableError`, it is unknown whether the push arrived.
    """
    stderr = _cleaned_output(stderr)
    _, _, last_column = status.rpartition("\t")
    reason = blanked(_cleaned_output(last_column)).strip()
    if not status or _has_words(reason, _UNKNOWN):  # the server did not report the push's result
        return failure(f"{stderr}\n{reason}", subject)
    if _is_race(reason, stderr, forced=forced):
        return Outpaced(f"{subject}: {reason}")

    # The server has rejected the push. Forges reject pushes in a hook, even if part of the forge is
    # down.
    was_declined_by_hook = "hook declined" in reason
    if was_declined_by_hook and _has_words(stderr, _GITEA_WITHOUT_WORDS):
        hint = (
            "if the branch requires signed commits, pass --signing-key; if not, see the server's"
            " log"
        )
        return RepositoryError(
            f"the server rejected the push: {reason}; {quoted(stderr)}",
            hint=hint,
            subject=subject,
        )
    if was_declined_by_hook and _has_words(stderr, _UNWELL):
        return UnreachableError(
            f"the Git server failed: {reason}; {quoted(stderr)}",
            hint=_AGAIN,
            subject=subject,
        )
    if is_in_merge_queue(stderr):
        message = f"this branch's pull request is in the merge queue: {quoted(stderr)}"
        return NotDoneError(message, hint=LEAVES_QUEUE, subject=subject)

    is_rule = _has_words(reason, _RULE)
    if not is_rule:  # the server or its disk may have failed
        error = failure(f"{reason}\n{stderr}", subject)
        if isinstance(error, UnreachableError):
            return error
    explanation = "; ".join(part for part in (reason, quoted(stderr)) if part)
    return RepositoryError(
        f"the server rejected the push: {explanation}",
        hint=_hint_for_rule(reason, stderr, subject, forced=forced),
        subject=subject,
    )


def _hint_for_rule(reason: str, stderr: str, subject: str, *, forced: bool) -> str:
    """Return the hint for a push that the server rejected because of a rule. `reason` is the
    server's reason, `subject` is `repository@branch`, and `forced` means that the push was meant to
    replace a head branch.
    """
    if "-memory/" in subject:  # a memory branch
        return (
            "allow this user to create, force-push, and delete the branch, which stores holds and"
            " waiting builds; or set branchPrefix in .image-update/config to a prefix that the"
            " server allows"
        )
    if _has_words(f"{reason}\n{stderr}", _PROTECTED):
        if forced:
            return (
                "allow this user to push to the head branch, or set another head branch in the"
                " git-branch annotation (base:head)"
            )
        return (
            "allow this user to push to the branch, or open a pull request instead: --pull-request"
        )
    if "(non-fast-forward)" in reason:
        return "allow this user to force-push to its own head branches, or delete the branch"
    if "exists; cannot create" in stderr:
        return "the name conflicts with the names of existing branches: choose another head branch"
    return (
        "follow the server's message; for a rule about commit messages, use"
        " --commit-message-template or --trailer"
    )


def is_in_merge_queue(message: str) -> bool:
    """Return whether GitHub rejected a change because the branch's pull request is in the merge
    queue.
    """
    return _has_words(message, _IN_QUEUE)


def _is_race(reason: str, stderr: str, *, forced: bool) -> bool:
    """Return whether a push was rejected because another push came first.

    `reason` is the server's reason in the status line, and `stderr` may contain more of the
    server's messages. `forced` means that the push was meant to replace a head branch.
    """
    without_names = re.sub(r"'[^']*'", "", reason)  # a branch's name may contain "policy"
    if _has_words(without_names, _RULE) or _has_words(f"{reason}\n{stderr}", _FOR_GOOD):
        return False
    if forced and reason.startswith("[remote rejected]") and "(non-fast-forward)" in reason:
        return False  # the server does not allow force-pushes
    if _has_words(reason, _RACE):
        return True
    # Some servers report only "failure" in the status line, and mention the lock in a `remote:`
    # line.
    return "failure" in reason and _has_words(stderr, _RACE)


def quoted(stderr: str) -> str:
    """Return git's output as a single line for a message: the server's lines first, then git's own.
    Credentials, control characters, and duplicates are removed.
    """
    from_server = []
    from_git = []
    for raw_line in _cleaned_output(stderr).splitlines():
        line = raw_line.strip()
        is_noise = re.match(_NOISE, line) is not None or "failed to push some refs" in line
        if not line or is_noise:
            continue
        if line.startswith("remote:"):
            from_server.append(blanked(line))
        else:
            from_git.append(blanked(line))
    unique_lines = list(dict.fromkeys((*from_server, *from_git)))
    return "; ".join(unique_lines[:_LINES])[:_CHARACTERS]
