"""Pure code that turns messages of git and of servers into our named errors, by a table.

Git runs with `LC_ALL=C`, so its messages are in English. Earlier rows win: a particular message
comes before a general one ("Could not read from remote repository" ends every failure of ssh).
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

_LINES = 12
_CHARACTERS = 1500
_TEXT = 64_000
_LINE = 2000  # characters that are read: at the end of the output, and at the beginning of a line


class GitFailed(Exception):
    """A git command failed. The caller knows what it was for."""

    def __init__(self, command: str, code: int, out: bytes, err: str) -> None:
        super().__init__(f"git {command} ended with {code}")
        self.command = command
        self.code = code
        self.out = out
        self.err = err


class GitEnded(GitFailed):
    """A git command was stopped because it took too long, or because it sent or needed too much."""


@dataclass(frozen=True)
class Meaning:
    """One row: a regular expression for the message, and the error that it means."""

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
    """RE2 takes linear time: on a line of 60 KB from a server,
    Python's own patterns took 19 seconds.
    """
    options = re2.Options()
    options.case_sensitive = False
    return re2.compile(words, options)


def _heard(said: str) -> str:
    """Return the end of the output, without logins, and with long lines cut."""
    # no URL to git
    kept = re.sub(
        r"(proxy (?:syntax in|url:?) )'.*'",
        r"\1'***'",
        said[-_TEXT:],
        flags=re.IGNORECASE,
    )
    kept = without_logins(kept)
    return "\n".join(line[:_LINE] for line in re.split(r"[\r\n]+", kept))


_ACCESS = (
    "check the URL, and that the credentials may read and write it; servers answer the same for"
    " both"
)
_AGAIN = "run it again"
_NO_LOGIN = "the server asks for a login and none was given; or the repository does not exist"
_REFUSED = "the server did not accept the login"
_UNKNOWN_HOST = _any("could not resolve", "name resolution", "name or service not known")
_NO_PROXY = "the proxy could not be reached, or failed"
_UNREACHED = "the Git server could not be reached"
_CLOSED = "the Git server closed the connection"
_SLOW = "the Git server did not answer in time"
_HALF = "the Git server did not finish the transfer"
_DOWN = (_NO_PROXY, _UNREACHED, _CLOSED, _SLOW, _HALF)
_FAILED = "the Git server reported an internal error"
_BUSY = "the Git server's rate limit is exceeded"
_STALLED = _any("stalled", "operation too slow")
# These may be over a moment later.
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
_BROKE_OFF = _any(_PROXY_DOWN, _NO_WAY, _TOO_LATE, _CUT, _DAMAGED)

_PROXY_FAILED = Meaning(
    _PROXY_DOWN, UnreachableError, _NO_PROXY,
    "check HTTPS_PROXY, or git's http.proxy; if this server needs no proxy, name it in NO_PROXY",
)  # fmt: skip
# curl names the host that it connects to: if it is not the URL's, it is a proxy.
_CONNECTS = re.compile(
    r"unable to access '\w+://(?:[^/@']*@)?([^/:']+)[^']*': Failed to connect to (\S+) port"
)

PAGE = "is this a git repository"  # what git says about a page of several lines
KILLED = "the step may have run out of memory: give it more, and run it again"

FAILURES = (
    Meaning("died of signal",
            UnreachableError, "a git process was killed", KILLED),
    Meaning(_any("it sent more than", "git would need more than"),
            UnreachableError, "the Git server sent more data than the limit",
            "check the server; if the repository really is that large, allow partial clones there "
            "(uploadpack.allowFilter), or give the step more memory"),
    Meaning("one repository may take",
            UnreachableError, "the Git server takes too long",
            "run it again; a longer --deadline gives the repository more time"),
    Meaning('protocol "?http"? (?:not supported|disabled)',
            RepositoryError, "the server redirects from https to plain http",
            "write the repository's own https URL as repoURL, or have the server redirect to"
            " https"),
    Meaning(_any(r"returned error: 30\d", "unable to update url base from redirection"),
            RepositoryError, "the server redirects to another address, which git does not follow",
            "write the address that it redirects to as repoURL; if that is a login page, check"
            " the URL and the login"),
    Meaning("transport '[^']*' not allowed",
            SourceError, "this Git transport is not allowed", "change the repository URL to https or ssh"),
    Meaning(_any(r"(?:http code|tunnel failed, response|returned error:) 407", "proxy authentication required"),
            CredentialsError, "the proxy did not accept the login",
            "check the user name and the password in HTTPS_PROXY, or in git's http.proxy"),
    Meaning(_any(r"http code 4\d\d from proxy", r"tunnel failed, response 4\d\d"),
            RepositoryError, "the proxy does not permit this",
            "let it pass connections to this server, or name the server in NO_PROXY"),
    Meaning(_any("unsupported proxy", "invalid proxy", "proxy url", "bad(?:/illegal)? format or missing url"),
            RepositoryError, "the proxy cannot be used as it is given",
            "write it as http://HOST:PORT in HTTPS_PROXY, or in git's http.proxy"),
    Meaning(PAGE,
            RepositoryError, "the server shows a web page here, not a Git repository",
            "open the URL in a browser: if a login page answers, give a login for this server,"
            " or let the runner "
            "past the proxy that shows it; if not, correct the URL"),
    Meaning("couldn't find remote ref",
            SourceError, "the branch does not exist", "check the spelling of the branch, and that it was not deleted"),
    Meaning("remote host identification has changed",
            CredentialsError, "the server's SSH host key has changed",
            "if that was intended, replace the key in known_hosts; if not, somebody may"
            " intercept the connection"),
    Meaning(_any("host key verification failed", r"no \S+ host key is known"),
            CredentialsError, "the server's SSH host key is not known",
            "compare its key with the one that its owner publishes, then give it: --ssh-host-key"
            " 'HOST ssh-ed25519 "
            "AAAA…'"),
    Meaning("no user exists for uid",
            CredentialsError, "ssh refuses to run for a user id without a passwd entry",
            "install libnss_wrapper (the published image has it), run as a user that exists in"
            " the image, or use "
            "https"),
    Meaning(_any("certificate (?:verif|problem|has expired|subject name)", "(?:ssl|peer|client|issuer) certificate",
                 "ssl ca cert", "cafile", "self[- ]signed", "ssl: no alternative certificate"),
            CredentialsError, "the server's TLS certificate was not accepted",
            "give the server's certificate authority (--ca-file); check the host name in the"
            " URL, and this "
            "machine's clock"),
    Meaning(_any("load key .*(?:passphrase|invalid format|libcrypto)", "bad permissions", "unprotected private key"),
            CredentialsError, "the SSH key cannot be used",
            "give a private key without a passphrase (--ssh-key-file or --ssh-directory)"),
    Meaning(_any(r"permission denied \([a-z,-]+\)", "too many authentication failures", "sign_and_send_pubkey",
                 "no supported authentication methods", "no mutual signature"),
            CredentialsError, "the server did not accept the SSH key",
            "check that a key is given (--ssh-key-file or --ssh-directory), and that the server"
            " knows its public half"),
    Meaning(_any("could not read (?:username|password)", "terminal prompts disabled"),
            CredentialsError, _NO_LOGIN,
            "set IMAGE_UPDATE_GIT_TOKEN, and --git-credentials-url if the token is for another"
            " server; or correct "
            f"the URL: {DOCS}/credentials.md"),
    Meaning(_any("authentication (?:failed|required)", "returned error: 401", "http basic: access denied",
                 "bad credentials", "invalid (?:credentials|username or (?:token|password))",
                 "password authentication (?:was removed|is not supported)"),
            CredentialsError, _REFUSED, "check the user name and the password or token given for this server; renew a token that has expired"),
    Meaning(_any("no space left on device", "disk quota exceeded", "file too large"),
            UnreachableError, "a disk is full", "free some space and run it again"),
    Meaning("too many open files",
            UnreachableError, "too many files are open",
            "raise the limit of the step (ulimit -n 1024), or of the Git server if the message"
            " is its own; run it "
            "again"),
    Meaning("dubious ownership",
            RepositoryError, "git does not trust this local repository: it belongs to another user",
            "run as its owner, or trust it: git config --global --add safe.directory PATH"),
    Meaning(_any("repository .*not found", "not found: ", "does not appear to be a git repository",
                 "returned error: 404", "project you were looking for", "repository not exported",
                 "could not find repository", "no such repository", "tf401019",
                 "repository .*(?:does not|doesn't) exist", "not a git repository",
                 "not exist or you do not have permission", "no longer exists"),
            RepositoryError, "the repository was not found, or there is no access to it", _ACCESS),
    Meaning(_any("write access to repository not granted", "read[- ]only", "archived", "returned error: 403",
                 "forbidden", "insufficient permission", r"permission to \S+ denied", "not allowed to",
                 "genericcontribute", "access denied", "not authorized", "unauthorized", "does not have permission",
                 "you cannot push", "unable to (?:create|write) .*permission denied"),
            RepositoryError, "the server does not permit this",
            "check that these credentials may read and write the repository"),
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
            RepositoryError, "the repository was not found, or there is no access to it", _ACCESS),
)  # fmt: skip

# Said by git, GitHub, GitLab (Gitaly), Gitea, Bitbucket, JGit servers and Azure when another push
# was faster.
_RACE = _any(
    "fetch first", "non-fast-forward", "needs? force", "stale info", "remote ref updated", "cannot lock ref",
    "failed to (?:update ref|lock)", "unable to lock", "lock(?:ing)? (?:failure|error)", "incorrect old value",
    "invalid old id", "reference already exists", "is at [0-9a-f]+ but expected", "does not point to (?:the )?expected",
    "unexpected old", "reference (?:has )?changed", "already been updated by another", "tf401028", "concurrent",
    "atomic (?:push|transaction) fail", "transaction aborted", "another (?:push|update|operation)",
)  # fmt: skip
# A lock that no later attempt will get either.
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
# A hook of the server could not reach another part of the server. This is no rule that somebody
# made.
_UNWELL = _any(
    "internal api (?:unreachable|error)", "api is not accessible", r"gitlab: 5\d\d", "internal server error",
    "unable to contact (?:gitea|forgejo)", "context deadline exceeded",
)  # fmt: skip
# GitHub lets nobody push to a branch whose pull request is in the merge queue (words after GH006).
_IN_QUEUE = _any("added to a merge queue", "queued for merging cannot be updated")
LEAVES_QUEUE = "run it again when the request is merged, or has left the merge queue"
# Gitea 1.26 says this for every error that it does not know itself, usually for an unsigned commit
# on a branch that requires signed ones. Its source has better messages, which are never sent.
_GITEA_WITHOUT_WORDS = r"internal server error \(no message for end users\)"
_NOISE = _any(
    "hint:",
    "warning:",
    "To ",
    r"remote: *$",
    "remote: (?:Enumerating|Counting|Compressing|Resolving|Total)",
)


def _meaning_of(heard: str) -> Meaning | None:
    meaning = next((row for row in FAILURES if _has_words(heard, row.words)), None)
    connects = _CONNECTS.search(heard)
    if meaning and meaning.message == _UNREACHED and connects and connects[1] != connects[2]:
        return _PROXY_FAILED
    return meaning


def failure(
    stderr: str,
    subject: str,
    scopes: Sequence[str] = (),
    token: Secret = Secret(""),
    host: str = "",
    *,
    proxied: bool = False,
) -> TaskError:
    """Return the named error for what git said when it could not reach a repository,
    or not read it.

    `scopes`: the beginnings of the URLs that the given logins are for. `token`: the one that the
    server at `host` got. `proxied`: the environment names a proxy.
    """
    heard = _heard(stderr)
    said = quoted(stderr)
    meaning = _meaning_of(heard)
    if meaning is None and not said:
        # As when the kernel kills the child of git that talks to the server.
        return UnreachableError(
            "git failed and gave no reason",
            hint=KILLED,
            subject=subject,
        )
    if meaning is None:
        return RepositoryError(f"git failed: {said}", hint=_ACCESS, subject=subject)
    message = meaning.message
    hint = meaning.hint
    if meaning.message == _NO_LOGIN and scopes:
        asking = re.search(r" for '(https?://[^'@\s]+)'", heard)
        message = (
            "the server asks for a login, and the one given was not sent: it is for"
            f" {' and '.join(scopes)}"
        )
        allow = f"--git-credentials-url {asking[1] if asking else 'URL'}"
        hint = (
            f"if this server may have it, give {allow} as well; if not, give another login:"
            f" {DOCS}/credentials.md"
        )
    elif meaning.message == _REFUSED:
        hint = wrong_issuer(token, host, software_of(host, heard)) or hint
    elif meaning.message == _UNREACHED and _has_words(heard, _UNKNOWN_HOST):
        hint = "check the host name in the URL; if it is right, run it again"
    elif meaning.message == _SLOW and proxied:
        hint = "run it again; if the proxy does not answer either, see HTTPS_PROXY and NO_PROXY"
    return meaning.error(
        f"{message}{f' ({said})' if said else ''}",
        hint=hint,
        subject=subject,
    )


def broke_off(stderr: str) -> str:
    """Return what was wrong with the server or the connection if another attempt
    in a moment may succeed, else "".

    If a server was silent for long, another attempt is not worth it, because the run has waited for
    it already.
    """
    heard = _heard(stderr)
    meaning = _meaning_of(heard)
    if meaning is None or _has_words(heard, _STALLED):
        return ""
    if meaning.message in (_FAILED, _BUSY):
        return meaning.message
    return meaning.message if meaning.message in _DOWN and _has_words(heard, _BROKE_OFF) else ""


def refusal(
    status: str,
    stderr: str,
    subject: str,
    *,
    forced: bool = False,
) -> TaskError | Outpaced:
    """Return what a refused push means.

    `status` is its line in `push --porcelain`, or "" if there was none.

    An `UnreachableError` leaves open whether the push arrived. `forced`: a head branch was to be
    replaced, so that a "non-fast-forward" of the server's own is its rule, and not a race.
    """
    stderr = _heard(stderr)
    reason = blanked(_heard(status.rpartition("\t")[2])).strip()
    if not status or _has_words(reason, _UNKNOWN):
        return failure(f"{stderr}\n{reason}", subject)
    if _is_race(reason, stderr, forced=forced):
        return Outpaced(f"{subject}: {reason}")
    if "hook declined" in reason and _has_words(stderr, _GITEA_WITHOUT_WORDS):
        hint = (
            "if the branch requires signed commits, give --signing-key; if not, the server's log"
            " says why"
        )
        return RepositoryError(
            f"the server refused the push: {reason}; {quoted(stderr)}",
            hint=hint,
            subject=subject,
        )
    if "hook declined" in reason and _has_words(stderr, _UNWELL):
        return UnreachableError(
            f"the Git server failed: {reason}; {quoted(stderr)}",
            hint=_AGAIN,
            subject=subject,
        )
    if is_in_merge_queue(stderr):
        message = f"the pull request of this branch is in the merge queue: {quoted(stderr)}"
        return NotDoneError(message, hint=LEAVES_QUEUE, subject=subject)
    if not _has_words(reason, _RULE) and isinstance(
        down := failure(f"{reason}\n{stderr}", subject), UnreachableError
    ):
        return down
    hint = (
        "do what the server's message says; for a rule about commit messages:"
        " --commit-message-template, --trailer"
    )
    if "-memory/" in subject:
        hint = (
            "let this user create, replace and delete the branch: it keeps holds and waiting"
            " builds; or set a prefix that the server allows: branchPrefix in"
            " .image-update/config"
        )
    elif _has_words(f"{reason}\n{stderr}", _PROTECTED):
        hint = (
            "let this user push to the head branch, or name another one: annotation git-branch with"
            " base:head"
            if forced
            else "let this user push to the branch, or open a pull request instead: --pull-request"
        )
    elif "(non-fast-forward)" in reason:
        hint = "let this user replace its own head branches (force push), or delete the branch"
    elif "exists; cannot create" in stderr:
        hint = "the name is also the folder of other branches: choose another head branch"
    said = "; ".join(filter(None, (reason, quoted(stderr))))
    return RepositoryError(
        f"the server refused the push: {said}",
        hint=hint,
        subject=subject,
    )


def is_in_merge_queue(said: str) -> bool:
    """Tell whether GitHub refuses a change because the branch's request is in the merge queue."""
    return _has_words(said, _IN_QUEUE)


def _is_race(reason: str, stderr: str, *, forced: bool) -> bool:
    said = re.sub(r"'[^']*'", "", reason)  # a branch may be named "policy"
    if _has_words(said, _RULE) or _has_words(f"{reason}\n{stderr}", _FOR_GOOD):
        return False
    if forced and reason.startswith("[remote rejected]") and "(non-fast-forward)" in reason:
        return False
    # Some servers say only "failure" in the status, and name the lock in a `remote:` line.
    return _has_words(reason, _RACE) or ("failure" in reason and _has_words(stderr, _RACE))


def quoted(stderr: str) -> str:
    """Return the output as one line: the server's lines first, then git's,
    without logins and control characters.
    """
    lines = [line.strip() for line in _heard(stderr).splitlines()]
    told = [
        line
        for line in lines
        if line and not re.match(_NOISE, line) and "failed to push some refs" not in line
    ]
    words = [
        blanked(line) for line in sorted(told, key=lambda line: not line.startswith("remote:"))
    ]
    return "; ".join(list(dict.fromkeys(words))[:_LINES])[:_CHARACTERS]
