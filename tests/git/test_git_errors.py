# ruff: noqa: ISC004 - server output keeps its lines
"""Messages from Git servers, and the kind of error that each is mapped to."""

import time

import pytest

from task.errors import (
    CredentialsError,
    Outpaced,
    RepositoryError,
    SourceError,
    TaskError,
    UnreachableError,
)
from task.git.errors import FAILURES, _has_words, broke_off, failure, quoted, refusal
from task.retry import NotDoneError

SSH_TAIL = (
    "fatal: Could not read from remote repository.\n\n"
    "Please make sure you have the correct access rights\nand the repository exists.\n"
)
SAID = [
    (
        UnreachableError,
        "fatal: unable to access 'https://h/x/': Could not resolve proxy: nope.invalid\n",
    ),
    (
        UnreachableError,
        "fatal: remote error: upload-pack: not our ref 1111111111111111111111111111111111111111\n",
    ),
    (
        RepositoryError,
        "fatal: unable to access 'https://x/y/': Protocol \"http\" not supported or disabled in libcurl\n",
    ),
    (
        RepositoryError,
        "fatal: unable to access 'https://x/y/': Protocol \"http\" disabled in redirect\n",
    ),
    (
        RepositoryError,
        "fatal: unable to access 'https://x/y/': The requested URL returned error: 301\n",
    ),
    (
        RepositoryError,
        "fatal: unable to update url base from redirection:\n  asked for: https://x/y/info/refs\n"
        "   redirect: https://x/login\n",
    ),
    (CredentialsError, "fatal: Authentication failed for 'https://host/x/'\n"),
    (
        CredentialsError,
        "fatal: could not read Username for 'https://host': terminal prompts disabled\n",
    ),
    (
        CredentialsError,
        "fatal: could not read Password for 'https://u@host': terminal prompts disabled\n",
    ),
    (
        CredentialsError,
        "remote: HTTP Basic: Access denied. The provided password or token is incorrect\n"
        "fatal: Authentication failed for 'https://gitlab.com/x/y.git/'\n",
    ),
    (
        CredentialsError,
        "remote: Invalid username or token. Password authentication is not supported for Git operations.\n"
        "fatal: Authentication failed for 'https://github.com/x/y.git/'\n",
    ),
    (
        CredentialsError,
        "fatal: unable to access 'https://h/x/': The requested URL returned error: 401\n",
    ),
    (
        CredentialsError,
        "fatal: unable to access 'https://h/x/': Received HTTP code 407 from proxy after CONNECT\n",
    ),
    (
        CredentialsError,
        "fatal: unable to access 'https://h/x/': CONNECT tunnel failed, response 407\n",
    ),
    (
        RepositoryError,
        "fatal: unable to access 'https://h/x/': Received HTTP code 403 from proxy after CONNECT\n",
    ),
    (
        RepositoryError,
        "fatal: unable to access 'https://h/x/': CONNECT tunnel failed, response 403\n",
    ),
    (
        UnreachableError,
        "fatal: unable to access 'https://h/x/': CONNECT tunnel failed, response 503\n",
    ),
    (
        RepositoryError,
        "fatal: unable to access 'https://h/x/': Unsupported proxy syntax in 'a b:1'\n",
    ),
    (
        UnreachableError,
        "fatal: sha1 file '<stdout>' write error: File too large\nfatal: early EOF\n",
    ),
    (CredentialsError, "git@host: Permission denied (publickey).\r\n" + SSH_TAIL),
    (CredentialsError, "git@host: Permission denied (publickey,password).\r\n" + SSH_TAIL),
    (CredentialsError, "Host key verification failed.\r\n" + SSH_TAIL),
    (
        CredentialsError,
        "No ED25519 host key is known for h and you have requested strict checking.\r\n" + SSH_TAIL,
    ),
    (
        CredentialsError,
        "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n"
        + SSH_TAIL,
    ),
    (CredentialsError, "No user exists for uid 54321\r\n" + SSH_TAIL),
    (
        CredentialsError,
        'Load key "/k": invalid format\r\ngit@h: Permission denied (publickey).\r\n' + SSH_TAIL,
    ),
    (
        CredentialsError,
        "fatal: unable to access 'https://h/x/': server certificate verification failed. CAfile: none CRLfile: none\n",
    ),
    (
        CredentialsError,
        "fatal: unable to access 'https://h/x/': SSL certificate problem: unable to get local issuer certificate\n",
    ),
    (
        CredentialsError,
        "fatal: unable to access 'https://h/x/': SSL: no alternative certificate subject name matches target host name\n",
    ),
    (
        CredentialsError,
        "fatal: unable to access 'https://h/x/': Problem with the SSL CA cert (path? access rights?)\n",
    ),
    (
        RepositoryError,
        "remote: Repository not found.\nfatal: repository 'https://github.com/x/y/' not found\n",
    ),
    (RepositoryError, "ERROR: Repository not found.\r\n" + SSH_TAIL),
    (
        RepositoryError,
        "remote: The project you were looking for could not be found or you don't have permission to view it.\n"
        "fatal: repository 'https://gitlab.com/x/y.git/' not found\n",
    ),
    (RepositoryError, "fatal: '/srv/x' does not appear to be a git repository\n" + SSH_TAIL),
    (
        RepositoryError,
        "fatal: unable to access 'https://h/x/': The requested URL returned error: 403\n",
    ),
    (
        RepositoryError,
        "remote: Permission to a/b.git denied to c.\nfatal: unable to access 'https://github.com/a/b/': "
        "The requested URL returned error: 403\n",
    ),
    (RepositoryError, "fatal: remote error: access denied or repository not exported: /x\n"),
    (
        RepositoryError,
        "remote: TF401019: The Git repository with name or identifier x does not exist or you do not have "
        "permissions for the operation you are attempting.\nfatal: repository 'https://h/' not found\n",
    ),
    (
        RepositoryError,
        "ERROR: The key you are authenticating with has been marked as read only.\r\n" + SSH_TAIL,
    ),
    (RepositoryError, SSH_TAIL),
    (RepositoryError, "fatal: detected dubious ownership in repository at '/srv/x'\n"),
    (SourceError, "fatal: couldn't find remote ref refs/heads/none\n"),
    (SourceError, "fatal: transport 'file' not allowed\n"),
    (UnreachableError, "fatal: unable to access 'https://h/x/': Could not resolve host: h\n"),
    (
        UnreachableError,
        "fatal: unable to access 'https://h/x/': Failed to connect to h port 443: Connection refused\n",
    ),
    (UnreachableError, "ssh: connect to host h port 22: Connection timed out\r\n" + SSH_TAIL),
    (
        UnreachableError,
        "ssh: Could not resolve hostname h: Name or service not known\r\n" + SSH_TAIL,
    ),
    (
        UnreachableError,
        "kex_exchange_identification: Connection closed by remote host\r\n" + SSH_TAIL,
    ),
    (
        UnreachableError,
        "fatal: unable to access 'https://h/x/': The requested URL returned error: 502\n",
    ),
    (
        UnreachableError,
        "fatal: unable to access 'https://h/x/': The requested URL returned error: 429\n",
    ),
    (
        UnreachableError,
        "error: RPC failed; curl 56 Recv failure: Connection reset by peer\nfatal: expected 'packfile'\n",
    ),
    (
        UnreachableError,
        "error: RPC failed; curl 28 Operation too slow. Less than 1 bytes/sec transferred\n",
    ),
    (
        UnreachableError,
        "fetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF\n",
    ),
    (UnreachableError, "fatal: the remote end hung up unexpectedly\n"),
    (UnreachableError, "fatal: write error: No space left on device\nfatal: index-pack failed\n"),
    (
        UnreachableError,
        "error: cannot create async process: Too many open files\nfatal: could not read from remote\n",
    ),
    (
        UnreachableError,
        "remote: Internal Server Error\nfatal: the remote end hung up unexpectedly\n",
    ),
    (UnreachableError, "\ntimed out after 900 seconds"),
    (
        UnreachableError,
        "remote: Repository not found.\nit sent more than 64 MB of refs and messages",
    ),
    (
        UnreachableError,
        "fatal: Out of memory, realloc failed\ngit would need more than 1 GiB of memory for it",
    ),
    (
        UnreachableError,
        "error: pack-objects died of signal 9\nerror: failed to push some refs to 'https://h/x/'\n",
    ),
    (UnreachableError, "error: git-remote-https died of signal 9\n"),
    (RepositoryError, "fatal: https://h/x/info/refs not valid: is this a git repository?\n"),
    (UnreachableError, "remote: please wait\nthe limit for one repository is 720 seconds"),
]
# Prefixes of patterns: from each of them, Python's `re` would search to the end of the line.
ENDLESS = (
    "load key ", "repository ", "unable to write ", "permission to x", "no x", "proxy url '", "transport '", "://",
    "permission denied (", "certificate ", "remote: ", "is at 1f", "'", " ",
)  # fmt: skip
MAIN = "!\tabc:refs/heads/main\t"
RACES = [
    ("[rejected] (fetch first)", ""),
    ("[rejected] (non-fast-forward)", ""),
    ("[rejected] (stale info)", ""),
    ("[remote rejected] (failed to update ref)", "remote: error: cannot lock ref 'refs/heads/main': is at 1 but expected 2"),
    ("[remote rejected] (cannot lock ref 'refs/heads/main': is at 1f but expected 2e)", ""),
    ("[remote rejected] (incorrect old value provided)", ""),
    ("[remote rejected] (reference already exists)", ""),
    ("[remote rejected] (failed to lock)", ""),
    ("[remote rejected] (lock failure)", ""),
    ("[remote rejected] (invalid old id sent)", ""),  # JGit 7.3, after the branch moved
    ("[remote rejected] (TF401028: The reference 'refs/heads/main' has already been updated by another client, so you "
     "cannot update it. Please try again.)", ""),
    ("[remote rejected] (reference does not point to expected object)", ""),
    ("[remote rejected] (atomic transaction failed)", ""),
    ("[remote rejected] (cannot lock ref 'refs/heads/protected-policy': is at 1f but expected 2e)", ""),
    ("[remote rejected] (failed to update ref)", "remote: error: cannot lock ref 'refs/heads/main': Unable to create "
     "'/srv/x.git/refs/heads/main.lock': File exists."),
]  # fmt: skip
# github.com/SharezoneApp/sharezone-app/pull/605, 2023-04-06; same wording on 2026-09-02.
QUEUED = (
    "remote: error: GH006: Protected branch update failed for refs/heads/test-pr.        \n"
    "remote: error: A pull request for this branch has been added to a merge queue. Branches that        \n"
    "remote: are queued for merging cannot be updated. To modify this branch, dequeue the        \n"
    "remote: associated pull request.        \n"
)
REFUSALS = [
    (RepositoryError, "[remote rejected] (pre-receive hook declined)", "remote: rejected by policy: no\n"),
    (RepositoryError, "[remote rejected] (update hook declined)", ""),
    (RepositoryError, "[remote rejected] (hook declined)", "remote: error: cannot lock ref 'x': is at 1 but expected 2\n"),
    (RepositoryError, "[remote rejected] (protected branch hook declined)", "remote: error: GH006: Protected branch\n"),
    (NotDoneError, "[remote rejected] (protected branch hook declined)", QUEUED),
    (RepositoryError, "[remote rejected] (push declined due to repository rule violations)", "remote: error: GH013: x\n"),
    (RepositoryError, "[remote rejected] (TF402455: Pushes to this branch are not permitted; use a pull request)", ""),
    (RepositoryError, "[remote rejected] (TF401027: You need the Git 'GenericContribute' permission)", ""),
    (RepositoryError, "[remote rejected] (permission denied)", ""),
    (RepositoryError, "[remote rejected] (branch is currently checked out)", ""),
    (RepositoryError, "[remote rejected] (failed to update ref)",
     "remote: error: cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists; cannot create 'refs/heads/a/b'\n"),
    (RepositoryError, "[remote rejected] (failed to update ref)",
     "remote: error: cannot lock ref 'refs/heads/a': Unable to create '/x/a.lock': Permission denied\n"),
    (RepositoryError, "[remote rejected] (unpacker error)",
     "remote: error: insufficient permission for adding an object to repository database ./objects\n"),
    (UnreachableError, "[remote rejected] (unpacker error)", "remote: fatal: write error: No space left on device\n"),
    (UnreachableError, "[remote rejected] (failure)", "remote: fatal error in commit_refs\n"),
    (UnreachableError, "[remote failure] (remote failed to report status)", ""),
    (UnreachableError, "[remote rejected] (unpacker error)", "error: pack-objects died of signal 9\n"),
    (UnreachableError, "[remote rejected] (Internal Server Error)", ""),
    # The server's own hook could not reach the rest of the server, so no rule rejected the push.
    (UnreachableError, "[remote rejected] (pre-receive hook declined)", "remote: GitLab: 500 Internal Server Error\n"),
    (UnreachableError, "[remote rejected] (pre-receive hook declined)",
     "remote: GitLab: Failed to authorize your Git request: internal API unreachable\n"),
    (UnreachableError, "[remote rejected] (pre-receive hook declined)", "remote: GitLab: API is not accessible\n"),
    (UnreachableError, "[remote rejected] (pre-receive hook declined)",
     "remote: Gitea: Internal Server Error\nremote: Unable to contact gitea: Post http://x: connection refused\n"),
    (RepositoryError, "[remote rejected] (pre-receive hook declined)",
     "remote: GitLab: You are not allowed to push code to protected branches on this project.\n"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stderr"), SAID)
def test_each_server_message_is_mapped_to_an_error(kind: type[TaskError], stderr: str) -> None:
    error = failure(stderr, "https://host/x@main")
    assert type(error) is kind
    assert error.hint
    assert error.subject == "https://host/x@main"


def test_a_failure_without_a_message_is_temporary() -> None:
    assert type(failure("", "x")) is type(refusal("", "", "x")) is UnreachableError


def test_every_row_of_the_failure_table_is_covered() -> None:
    met = {next(row for row in FAILURES if _has_words(stderr, row.words)) for _, stderr in SAID}
    assert {row.message for row in FAILURES} == {row.message for row in met}


@pytest.mark.parametrize(
    ("again", "stderr"),
    [
        (True, "fatal: early EOF\nfatal: fetch-pack: invalid index-pack output\n"),
        (True, "fatal: unable to access 'https://h/x/': The requested URL returned error: 502\n"),
        (True, "error: RPC failed; curl 56 Recv failure: Connection reset by peer\n"),
        (
            True,
            "ssh: connect to host h port 22: Connection refused\nfatal: Could not read from remote repository.\n",
        ),
        (False, "fatal: write error: No space left on device\nfatal: early EOF\n"),
        (
            False,
            "error: RPC failed; curl 28 Operation too slow. Less than 1 bytes/sec transferred the last 60 seconds\n",
        ),
        (False, "fatal: early EOF\nstalled: no data was sent or received for 60 seconds\n"),
        (False, "fatal: remote error: upload-pack: not our ref 1234\n"),
        (
            False,
            "git@h: Permission denied (publickey).\nfatal: the remote end hung up unexpectedly\n",
        ),
        (False, "fatal: repository 'https://h/x/' not found\n"),
        (False, ""),
    ],
)
def test_only_broken_connections_are_retried(again: bool, stderr: str) -> None:
    assert bool(broke_off(stderr)) is again


@pytest.mark.parametrize("proxy", ["bob:se'cret/x@h:1", "http://bob:se/cret@h:1"])
def test_a_proxy_that_is_not_a_url_is_not_shown(proxy: str) -> None:
    shown = quoted(
        f"fatal: unable to access 'https://h/x/': Unsupported proxy syntax in '{proxy}'\nfatal: it's over\n"
    )
    assert "cret" not in shown
    assert "bob" not in shown
    assert "it's over" in shown


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "fatal: unable to access 'https://h/x/': The requested URL returned error: 429\n",
            "rate limit was exceeded",
        ),
        (
            "remote: Too Many Requests\nfatal: the remote end hung up unexpectedly\n",
            "rate limit was exceeded",
        ),
        (
            "error: RPC failed; HTTP 503 curl 22 The requested URL returned error: 503\n",
            "reported an internal error",
        ),
        (
            "remote: Internal Server Error\nfatal: the remote end hung up unexpectedly\n",
            "reported an internal error",
        ),
        (
            "fatal: unable to access 'https://h/x/': Failed to connect to h port 443: Connection refused\n",
            "be reached",
        ),
    ],
)
def test_a_server_that_responded_is_not_reported_as_unreachable(said: str, words: str) -> None:
    assert words in failure(said, "x").message
    assert words in broke_off(said)


def test_a_repository_not_found_error_mentions_missing_access() -> None:
    assert (
        "not found, or access to it was denied"
        in failure("ERROR: Repository not found.\n", "x").message
    )


def test_unknown_messages_are_shown() -> None:
    error = failure("fatal: something nobody has seen\n", "x")
    assert isinstance(error, RepositoryError)
    assert "something nobody has seen" in error.message


@pytest.mark.parametrize(("reason", "stderr"), RACES)
def test_rejections_due_to_a_lost_race_are_recognized(reason: str, stderr: str) -> None:
    assert isinstance(refusal(MAIN + reason, stderr, "x@main"), Outpaced)


@pytest.mark.parametrize(("kind", "reason", "stderr"), REFUSALS)
def test_each_rejected_push_is_mapped_to_an_error(
    kind: type[TaskError], reason: str, stderr: str
) -> None:
    assert type(refusal(MAIN + reason, stderr, "x@main")) is kind


def test_the_server_may_refuse_to_replace_a_head_branch() -> None:
    denied = "!\tabc:refs/heads/bot\t[remote rejected] (non-fast-forward)"
    error = refusal(
        denied, "remote: error: denying non-fast-forward refs/heads/bot\n", "x@bot", forced=True
    )
    assert isinstance(error, RepositoryError)
    assert "force-push" in error.hint


def test_a_push_without_a_status_line_is_a_failure() -> None:
    assert isinstance(
        refusal("", "fatal: Authentication failed for 'https://h/'\n", "x@main"), CredentialsError
    )


def test_the_servers_own_message_reaches_the_user() -> None:
    stderr = "remote: error: GH006: Protected branch update failed for refs/heads/main.        \nremote: \nerror: failed to push some refs to 'x'\n"
    error = refusal(MAIN + "[remote rejected] (protected branch hook declined)", stderr, "x@main")
    assert isinstance(error, RepositoryError)
    assert "GH006: Protected branch update failed" in error.message
    assert "--pull-request" in error.hint


def test_a_branch_protected_by_gitea_is_reported_with_a_hint() -> None:
    """As in Gitea 1.26 (November 2026): the base, or a request's branch that a pattern protects."""
    for branch, forced, word in (
        ("main", False, "--pull-request"),
        ("image-update/a-0123abcd", True, "git-branch"),
    ):
        said = f"Not allowed to push to protected branch {branch}"
        stderr = f"remote: \nremote: error:        \nremote: error: {said}        \nremote: error:        \n"
        status = f"!\tHEAD:refs/heads/{branch}\t[remote rejected] (pre-receive hook declined)"
        error = refusal(status, stderr, f"x@{branch}", forced=forced)
        assert isinstance(error, RepositoryError)
        assert said in error.message
        assert word in error.hint


def test_no_login_and_no_control_character_is_shown() -> None:
    error = failure(
        "remote: \x1b[31mRepository not found.\nfatal: repository 'https://u:secret@host/x' not found\n",
        "x",
    )
    assert "secret" not in str(error)
    assert str(error).isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("length", [60_000, 1_200_000])
@pytest.mark.parametrize("words", ENDLESS)
def test_long_lines_are_processed_quickly(words: str, length: int) -> None:
    """A line of 60 KB once took 19 seconds, and 1.2 MB took hours and blocked signals."""
    line = words * (length // len(words))
    began = time.process_time()
    failure(line, "x")
    failure(f"{line}\nfatal: early EOF\n", "x")
    broke_off(line)
    refusal(f"{MAIN}[remote rejected] ({line})", f"remote: {line}\n", "x")
    assert time.process_time() - began < 5


def test_the_last_line_of_very_long_output_determines_the_error() -> None:
    flood = "remote: Repository not found.\n" * 100_000
    assert isinstance(failure(f"{flood}{'x' * 70_000}\nfatal: early EOF\n", "x"), UnreachableError)


def test_long_messages_are_truncated() -> None:
    assert len(quoted("".join(f"remote: line {n} {'x' * 500}\n" for n in range(100)))) <= 1500


@pytest.mark.parametrize(
    ("url", "connects", "message"),
    [
        ("https://h/x/", "proxy.example", "the proxy could not be reached"),
        ("https://u:p@h:8443/x/", "127.0.0.1", "the proxy could not be reached"),
        ("https://h/x/", "h", "the Git server could not be reached"),
        ("https://u@h:8443/x/", "h", "the Git server could not be reached"),
    ],
)
def test_a_failed_connection_to_another_host_is_attributed_to_the_proxy(
    url: str, connects: str, message: str
) -> None:
    said = f"fatal: unable to access '{url}': Failed to connect to {connects} port 80 after 0 ms: Couldn't connect to server\n"
    assert failure(said, "r").message.startswith(message)
    assert broke_off(said) in (f"{message}, or failed", message)


def test_the_hint_for_a_silent_server_behind_a_proxy_names_the_proxy_variables() -> None:
    said = "stalled: no data was sent or received for 60 seconds"
    assert failure(said, "r").hint == "run it again"
    assert "check HTTPS_PROXY and NO_PROXY" in failure(said, "r", proxied=True).hint


def test_a_failed_authentication_hints_at_expired_tokens() -> None:
    said = "fatal: Authentication failed for 'https://host/x/'\n"
    assert "renew an expired token" in failure(said, "r").hint
