"""The same repository store over HTTP, with authentication and server faults."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import bare_repo, commit, git, show
from support.git_servers import GitServer, git_server

from task.errors import CredentialsError, RepositoryError, SourceError, TaskError, UnreachableError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Changeset, File, LandedCommit, Person, Place

VALUES = "apps/web/values.yaml"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("task.retry._PAUSES", (0.01, 0.01))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = bare_repo(tmp_path, {VALUES: "tag: v1\n", "README.md": "r\n"})
    git(folder, "config", "http.receivepack", "true")
    return folder


@pytest.fixture
def server(repo: Path) -> Iterator[GitServer]:
    with git_server(repo.parent) as running:
        yield running


def land(url: str, **environ: str) -> LandedCommit:
    with BareRepository(Git({**os.environ, **environ}), url) as store:
        snapshot = store.snapshot(store.default_branch(), [Place(VALUES)])
        files = {VALUES: File(snapshot.files[VALUES].text.replace("v1", "v2"))}
        destination = (snapshot.repo, snapshot.branch, snapshot.branch)
        return store.land(
            Changeset(*destination, snapshot.tip, files, "Change", Person("T", "t@example.com"))
        )


@pytest.mark.parametrize(
    "page", [b"<html>Sign in</html>", b"<html>\n\t<body>Sign in</body>\n</html>\n"]
)
@pytest.mark.parametrize("branch", ["", "main"])
def test_a_web_page_is_not_mistaken_for_an_empty_repository(
    server: GitServer, page: bytes, branch: str
) -> None:
    server.page = page
    with (
        BareRepository(Git(os.environ), server.url + "repo.git") as store,
        pytest.raises(RepositoryError, match="returned a web page") as caught,
    ):
        store.snapshot(branch, [Place(VALUES)])
    assert caught.value.subject.startswith(server.url)


def test_an_empty_repository_is_not_mistaken_for_a_web_page(server: GitServer) -> None:
    git(server.folder, "init", "-q", "--bare", "empty.git")
    with (
        BareRepository(Git(os.environ), server.url + "empty.git") as store,
        pytest.raises(SourceError, match="it is empty"),
    ):
        store.default_branch()


def with_login(server: GitServer, login: str) -> str:
    return server.url.replace("://", f"://{login}@") + "repo.git"


def test_a_change_is_read_and_pushed_over_http(server: GitServer, repo: Path) -> None:
    landing = land(server.url + "repo.git")
    assert landing.commit == git(repo, "rev-parse", "main")
    assert show(repo, "main", VALUES) == "tag: v2\n"


@pytest.mark.usefixtures("large")
def test_a_new_head_branch_requires_one_more_request_if_its_base_moved(
    server: GitServer, repo: Path
) -> None:
    """The extra request finds common commits. It is not sent if the base has not moved."""
    asked = []
    for head, moves in (("quiet", False), ("bot", True)):
        with BareRepository(Git(os.environ), server.url + "repo.git") as store:
            snapshot = store.snapshot("main", [Place(VALUES)])
            if moves:
                commit(repo, {"README.md": "moved\n"})
            server.seen.clear()
            wanted = Changeset(
                snapshot.repo,
                "main",
                head,
                snapshot.tip,
                {VALUES: File("tag: v2\n")},
                head,  # otherwise, both commits would be identical if created in the same second
                Person("T", "t"),
            )
            assert store.land(wanted).commit == git(repo, "rev-parse", head)
            asked.append(sum("receive-pack" in what for what, _ in server.seen))
    assert asked == [2, 3]


def test_a_login_in_the_url_is_sent_with_the_first_request(server: GitServer, repo: Path) -> None:
    server.logins["bot"] = "p@ss w:rd"
    assert land(with_login(server, "bot:p%40ss%20w%3Ard")).commit == git(repo, "rev-parse", "main")
    assert {user for _, user in server.seen} == {"bot"}  # sent preemptively


@pytest.mark.parametrize(
    ("login", "error", "words"),
    [
        ("", CredentialsError, "requires credentials and none are set"),
        ("bot:wrong", CredentialsError, "did not accept the credentials"),
        ("reader:read", RepositoryError, "does not allow this"),
    ],
)
def test_missing_invalid_and_read_only_credentials_are_reported_without_the_secret(
    server: GitServer, login: str, error: type[TaskError], words: str
) -> None:
    server.logins = {"bot": "right", "reader": "read"}
    server.readers = {"reader"}
    url = with_login(server, login) if login else server.url + "repo.git"
    with pytest.raises(error, match=words) as caught:
        land(url)
    assert str(caught.value).startswith(server.url + "repo.git")
    shown = str(caught.value) + caught.value.hint
    assert "wrong" not in shown
    assert "bot:" not in shown


def test_a_login_is_not_sent_to_another_server(server: GitServer, repo: Path) -> None:
    server.logins["bot"] = "right"
    git_door = Git(os.environ, rewrites=[("http://elsewhere/", server.url)])
    with (
        BareRepository(git_door, "http://elsewhere/repo.git") as store,
        pytest.raises(CredentialsError),
    ):
        store.default_branch()
    assert {user for _, user in server.seen} == {""}
    assert repo.exists()


def test_the_users_credential_helper_is_used(server: GitServer, repo: Path, tmp_path: Path) -> None:
    server.logins["bot"] = "right"
    (tmp_path / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    (tmp_path / ".git-credentials").write_text(
        with_login(server, "bot:right").removesuffix("/repo.git") + "\n"
    )
    landing = land(server.url + "repo.git", HOME=str(tmp_path), XDG_CONFIG_HOME="")
    assert landing.commit == git(repo, "rev-parse", "main")


def test_url_rewriting_in_the_configuration_of_the_user_is_applied(
    server: GitServer, repo: Path, tmp_path: Path
) -> None:
    (tmp_path / ".gitconfig").write_text(
        f'[url "{server.url}"]\n\tinsteadOf = https://example.invalid/\n'
    )
    landing = land("https://example.invalid/repo.git", HOME=str(tmp_path), XDG_CONFIG_HOME="")
    assert landing.commit == git(repo, "rev-parse", "main")


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        ("git-upload-pack", 500, UnreachableError),
        ("git-upload-pack", 429, UnreachableError),
        ("git-upload-pack", 404, RepositoryError),
        ("git-upload-pack", 403, RepositoryError),
        ("git-upload-pack", 0, UnreachableError),
        ("?service=git-receive-pack", 502, UnreachableError),
        ("/git-receive-pack", 503, UnreachableError),
        ("/git-receive-pack", 403, RepositoryError),
        ("git-receive-pack", 0, UnreachableError),
    ],
)
def test_server_faults_leave_the_branch_unchanged(
    server: GitServer, repo: Path, end: str, status: int, error: type[TaskError]
) -> None:
    before = git(repo, "rev-parse", "main")
    server.faults[end] = status
    with pytest.raises(error) as caught:
        land(server.url + "repo.git")
    assert caught.value.hint
    assert git(repo, "rev-parse", "main") == before


def test_a_missing_repository_is_a_repository_error(server: GitServer) -> None:
    with pytest.raises(RepositoryError, match="not found, or access to it was denied"):
        land(server.url + "none.git")


def test_a_closed_port_is_reported_as_unreachable(server: GitServer) -> None:
    server.server_close()
    with pytest.raises(UnreachableError):
        land("http://127.0.0.1:9/repo.git")


def test_a_push_with_a_lost_response_is_recognized_as_landed(server: GitServer, repo: Path) -> None:
    server.faults["/git-receive-pack"] = -1
    landing = land(server.url + "repo.git")
    assert landing == LandedCommit(
        git(repo, "rev-parse", "main"), git(repo, "rev-parse", "main^{tree}")
    )


def test_a_deletion_with_a_lost_response_is_recognized_as_landed(
    server: GitServer, repo: Path
) -> None:
    git(repo, "branch", "bump", "main")
    server.faults["/git-receive-pack"] = -1
    with BareRepository(Git(os.environ), server.url + "repo.git") as store:
        head = store.head("bump")
        assert head is not None
        store.drop("bump", head.tip)
    assert "bump" not in git(repo, "branch")


def test_no_process_argument_contains_a_secret(server: GitServer, tmp_path: Path) -> None:
    server.logins["bot"] = "tops3cret"
    log = tmp_path / "argv"
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    real = git(tmp_path, "--exec-path")
    wrapper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {log}\nexec {real}/git "$@"\n')
    wrapper.chmod(0o755)
    trace = tmp_path / "trace"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "task.git.environment._SETTINGS", {"GIT_TRACE2_EVENT": str(trace), "LC_ALL": "C"}
        )
        land(with_login(server, "bot:tops3cret"), PATH=f"{wrapper.parent}:{os.environ['PATH']}")
    assert "push" in log.read_text()
    assert "remote-http" in trace.read_text()
    assert "tops3cret" not in log.read_text()
    assert "tops3cret" not in trace.read_text()


@pytest.mark.parametrize(("size", "more"), [("small", 0), ("large", 2)])
def test_an_update_sends_its_credentials_preemptively_and_needs_few_requests(
    server: GitServer, size: str, more: int, request: pytest.FixtureRequest
) -> None:
    """An update consists of one or two fetches and a push, each on a separate connection."""
    if size == "large":
        request.getfixturevalue("large")
    server.logins["bot"] = "secret"
    with BareRepository(Git(os.environ), with_login(server, "bot:secret")) as store:
        snapshot = store.snapshot("main", [Place(VALUES)])
        assert (
            len(server.seen) == 3 + more
        )  # the requests sent by `plan`: the refs are listed once, to find the tip
        files, destination = {VALUES: File("tag: v2\n")}, (snapshot.repo, "main", "main")
        store.land(Changeset(*destination, snapshot.tip, files, "x", Person("T", "t@example.com")))
    fetching = ["GET info/refs?service=git-upload-pack", "POST git-upload-pack"]
    pushing = ["GET info/refs?service=git-receive-pack", "POST git-receive-pack"]
    asked = [what.replace("/repo.git/", "") for what, _ in server.seen]
    assert asked == [*fetching, "POST git-upload-pack", *fetching[:more], *pushing]
    assert {user for _, user in server.seen} == {"bot"}


def test_looking_up_the_default_branch_takes_two_more_requests(server: GitServer) -> None:
    with BareRepository(Git(os.environ), server.url + "repo.git") as store:
        store.snapshot(store.default_branch(), [Place(VALUES)])
    assert len(server.seen) == 5


def test_a_public_repository_can_be_read_despite_outdated_credentials(
    server: GitServer,
) -> None:
    """The credentials are sent preemptively. Once rejected, they are sent only on request."""
    server.public, server.logins = True, {"bot": "right"}
    with BareRepository(Git(os.environ), with_login(server, "bot:outdated")) as store:
        assert store.snapshot("main", [Place(VALUES)]).files[VALUES].text == "tag: v1\n"


@pytest.mark.usefixtures("large")
def test_each_transfer_is_logged(server: GitServer) -> None:
    lines: list[str] = []
    with BareRepository(Git(os.environ, log=lines.append), server.url + "repo.git") as store:
        snapshot = store.snapshot("main", [Place(VALUES)])
        files, destination = {VALUES: File("tag: v2\n")}, (snapshot.repo, "main", "main")
        store.land(Changeset(*destination, snapshot.tip, files, "x", Person("T", "t@example.com")))
    told = [
        re.sub(r"\d+ bytes of objects, \d+\.\d\d s$", "SIZE", line.partition("repo.git: ")[2])
        for line in lines
    ]
    assert told[1:] == [
        "fetch the tip of the branch: SIZE",
        "fetch 1 file: SIZE",
        "push to main: SIZE",
    ]
    assert all(" 0 bytes" not in line for line in lines)
