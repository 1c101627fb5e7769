"""What the words of git and of servers mean: a table, from words to our named errors. Pure.

Git runs with `LC_ALL=C`, so its own words are these. Earlier rows win: the particular before
the general ("Could not read from remote repository" ends every failure of ssh).
"""

import re
from typing import NamedTuple

from task.edges.git_names import printable, without_logins
from task.errors import CredentialsError, Outpaced, RepositoryError, SourceError, TaskError, UnreachableError

_LINES, _CHARACTERS = 12, 1500


class Meaning(NamedTuple):
    """One row: words that may occur, and what they mean for whom."""

    words: re.Pattern[str]
    error: type[TaskError]
    message: str
    hint: str


def _row(words: str, error: type[TaskError], message: str, hint: str) -> Meaning:
    return Meaning(re.compile(words, re.IGNORECASE), error, message, hint)


_ACCESS = "check the URL, and that the credentials given may read it; servers answer the same for both"
_AGAIN = "run it again"
_LOGIN = "check the user name and the password or token given for this server"
_CA = "give the server's certificate authority"
_PROTOCOL = "allow it with --allow-protocol, or change the repository URL"

FAILURES = (
    _row(r"transport '[^']*' not allowed", SourceError, "this Git transport is not allowed", _PROTOCOL),
    _row(
        r"couldn't find remote ref|invalid refspec|remote branch .* not found",
        SourceError,
        "the branch does not exist",
        "check the spelling of the branch, that it was not deleted, and that the repository is not empty",
    ),
    _row(
        r"remote host identification has changed",
        CredentialsError,
        "the server's SSH host key has changed",
        "if that is right, replace the key in known_hosts; if nobody changed it, somebody is in between",
    ),
    _row(
        r"host key verification failed|no \S+ host key is known",
        CredentialsError,
        "the server's SSH host key is not known",
        "add its host key to known_hosts",
    ),
    _row(
        r"no user exists for uid",
        CredentialsError,
        "ssh refuses to run for a user id without a passwd entry",
        "run as a user that exists in the image, or use https",
    ),
    _row(
        r"certificate verif|ssl certificate|peer certificate|certificate problem|unable to get local issuer|ssl ca cert"
        r"|cafile|client certificate|certificate (?:has expired|subject name)|self[- ]signed",
        CredentialsError,
        "the server's TLS certificate was not accepted",
        _CA,
    ),
    _row(
        r"load key .*(?:passphrase|invalid format|bad permissions|error in libcrypto)|bad permissions|unprotected private key",
        CredentialsError,
        "the SSH key cannot be used",
        "give a private key without passphrase, readable by this user only",
    ),
    _row(
        r"permission denied \([a-z,-]+\)|too many authentication failures|no supported authentication methods"
        r"|sign_and_send_pubkey|no mutual signature",
        CredentialsError,
        "the server did not accept the SSH key",
        "check that a key is given and that the server knows its public half",
    ),
    _row(
        r"could not read (?:username|password)|terminal prompts disabled",
        CredentialsError,
        "the server asks for a login and none was given; or the repository does not exist",
        "give credentials for this server, and check the URL",
    ),
    _row(
        r"authentication failed|returned error: 401|access denied\. .*password|http basic: access denied|bad credentials"
        r"|invalid (?:credentials|username or (?:token|password))|password authentication (?:was removed|is not supported)"
        r"|authentication required|http code 407",
        CredentialsError,
        "the server did not accept the login",
        _LOGIN,
    ),
    _row(r"no space left on device|disk quota exceeded", UnreachableError, "a disk is full", "make room and " + _AGAIN),
    _row(
        r"write access to repository not granted|read[- ]only|is archived|archived so|key you are authenticating with|returned error: 403"
        r"|insufficient permission|permission to \S+ denied|not allowed to|genericcontribute|access denied|forbidden",
        RepositoryError,
        "the server does not permit this",
        "check that these credentials may read and write the repository",
    ),
    _row(
        r"dubious ownership",
        RepositoryError,
        "git does not trust this local repository: it belongs to another user",
        "run as its owner, or set safe.directory",
    ),
    _row(
        r"repository .*not found|not found: |not found\b.*repository|does not appear to be a git repository|returned error: 404"
        r"|project you were looking for|repository not exported|could not find repository|no such repository|tf401019"
        r"|repository .*(?:does not|doesn't) exist|not exist or you do not have permission|not a git repository"
        r"|no such device or address.*username",
        RepositoryError,
        "the repository was not found, or there is no access to it",
        _ACCESS,
    ),
    _row(
        r"could not resolve|name resolution|name or service not known|connection (?:refused|reset|closed|timed out)"
        r"|operation timed out|operation too slow|failed to connect|couldn't connect|network is (?:unreachable|down)"
        r"|no route to host|empty reply|broken pipe|early eof|unexpected disconnect|rpc failed|returned error: (?:5\d\d|429|408)"
        r"|transfer closed|gnutls_handshake|ssl_error_syscall|ssl_connect|tls connect|kex_exchange_identification"
        r"|ssh_exchange_identification|remote end hung up|unable to connect|internal server error|commit_refs"
        r"|bad pack header|invalid index-pack output|index-pack (?:failed|died|abnormal)|unpack-objects (?:failed|abnormal)"
        r"|http/2 stream|early end of file|timeout|timed out|service unavailable|bad gateway|too many requests|rate limit"
        r"|unable to (?:write|create)|did not send all|protocol error|expected flush|bad line length|not our ref|proxy",
        UnreachableError,
        "the Git server could not be reached, or broke off",
        _AGAIN,
    ),
    _row(
        r"permission denied|unable to access|could not read from remote repository",
        RepositoryError,
        "the repository was not found, or there is no access to it",
        _ACCESS,
    ),
)

# Said by git, GitHub, GitLab (Gitaly), Gitea, Bitbucket, JGit servers and Azure when another push was faster.
_RACE = re.compile(
    r"fetch first|non-fast-forward|needs? force|stale info|remote ref updated|cannot lock ref|failed to (?:update ref|lock)"
    r"|unable to lock|lock(?:ing)? (?:failure|error)|incorrect old value|reference already exists"
    r"|is at [0-9a-f]+ but expected|does not point to (?:the )?expected|unexpected old|reference (?:has )?changed"
    r"|has already been updated by another|tf401028|concurrent(?:ly)?\b|atomic (?:push|transaction) fail|transaction aborted"
    r"|another (?:push|update|operation)",
    re.IGNORECASE,
)
# A lock that no later attempt will get either.
_FOR_GOOD = re.compile(r"exists; cannot create|permission denied|read-only file system|no space left", re.IGNORECASE)
_HOOK = re.compile(r"hook declined|protected|policy|\bGH0\d\d\b|prohibited|deny|denied|not permitted|not allowed", re.IGNORECASE)
_PROTECTED = re.compile(
    r"protected|GH006|GH013|rule violations|TF402455|pull request|merge request|not allowed to push", re.IGNORECASE
)
_SERVER_DENIES_FORCE = re.compile(r"\[remote rejected\].*\(non-fast-forward\)")
_NOISE = re.compile(r"(?:hint|warning|To|From|remote: (?:Enumerating|Counting|Compressing|Resolving|Processing)|remote: *$)\b")


def failure(stderr: str, subject: str) -> TaskError:
    """The named error for what git said when it could not read a repository, or not reach it for writing."""
    meaning = next((row for row in FAILURES if row.words.search(stderr)), None)
    said = quoted(stderr)
    if meaning is None:
        return RepositoryError(f"git failed: {said or 'without a word'}", hint=_ACCESS, subject=subject)
    return meaning.error(f"{meaning.message}{f' ({said})' if said else ''}", hint=meaning.hint, subject=subject)


def refusal(status: str, stderr: str, subject: str, *, forced: bool = False) -> TaskError | Outpaced:
    """What a refused push means: `status` is its line of `push --porcelain`, "" when there was none.

    `forced`: a head branch was to be replaced, so that "non-fast-forward" from the server is its policy and no race.
    """
    if not status:
        return failure(stderr, subject)
    reason = status.rpartition("\t")[2]
    denied = forced and _SERVER_DENIES_FORCE.search(reason)
    if not (denied or _HOOK.search(reason) or _FOR_GOOD.search(stderr)) and _is_race(reason, stderr):
        return Outpaced(f"{subject}: {printable(reason)}")
    if not _HOOK.search(reason) and isinstance(failure(f"{reason}\n{stderr}", subject), UnreachableError):
        return failure(stderr, subject)
    return _refused(reason, stderr, subject)


def _is_race(reason: str, stderr: str) -> bool:
    """Some servers name only the failed update in the status and the reason in a `remote:` line."""
    return bool(_RACE.search(reason)) or ("failure" in reason and bool(re.search(r"cannot lock ref|but expected", stderr)))


def _refused(reason: str, stderr: str, subject: str) -> RepositoryError:
    said = quoted(stderr) or printable(without_logins(reason))
    hint = "the server's own words say why"
    if _PROTECTED.search(reason + stderr):
        hint = "let this user push to the branch, or have a branch proposed: annotation git-branch with base:head"
    short = printable(without_logins(reason)).strip()
    why = f"{short}: {said}" if said != short else short
    return RepositoryError(f"the server refused the push {why}", hint=hint, subject=subject)


def quoted(stderr: str) -> str:
    """What was said, on one line: the server's lines first, then git's; no logins, no control characters."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", without_logins(stderr))]
    told = [line for line in lines if line and not _NOISE.match(line)]
    remote = [line for line in told if line.startswith("remote:")]
    rest = [line for line in told if not line.startswith("remote:") and "failed to push some refs" not in line]
    words = list(dict.fromkeys(printable(line) for line in remote + rest))
    return "; ".join(words[:_LINES])[:_CHARACTERS]
