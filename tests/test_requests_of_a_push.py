"""All requests that a whole run sends to the Git server. Users have to wait for each of them.

The branch is fetched before the rest of the program is imported, and must not be fetched again when
it is read. Over HTTP, `info/refs` is one request, and so is each POST. The repository is private,
so there would be an additional, rejected request if git waited for the server to demand a login.
"""

from pathlib import Path

import pytest
from support import git
from support.git_servers import git_server
from support.runs import application, arguments, manifest, repository, start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "revision", "requests"),
    [("run", "main", 5), ("run", "HEAD", 7), ("plan", "main", 3), ("plan", "HEAD", 5)],
)
def test_each_command_makes_the_expected_number_of_requests(
    tmp_path: Path, command: str, revision: str, requests: int
) -> None:
    repo = repository(tmp_path, "a", "b")
    git(repo, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server:
        server.logins["ci"] = "s3cret"
        apps = [application(name, f"{server.url}{repo.name}") for name in ("a", "b")]
        for app in apps:
            app["spec"]["source"]["targetRevision"] = revision
        login = ("--git-username", "ci", "--git-credentials-url", server.url)
        _, *rest = arguments(manifest(tmp_path, *apps), *login)
        running = start([command, *rest], env={"IMAGE_UPDATE_GIT_PASSWORD": "s3cret"})
        out, err = running.communicate(timeout=60)
        assert running.returncode == 0, err
        assert b'"status": "updated"' in out
        assert len(server.seen) == requests, "\n".join(what for what, _ in server.seen)
        assert all(user for _, user in server.seen), "asked without a login first"
