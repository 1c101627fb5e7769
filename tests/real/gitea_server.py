"""A real Gitea on loopback with its own database: Git over HTTP, and pull requests via the API."""

import getpass
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from real.programs import installed
from support import git
from support.real_servers import free_port, started
from support.runs import wait_until

PASSWORD = "s3cret-of-the-tests"
CONFIGURATION = """
RUN_USER = {user}
RUN_MODE = prod
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
WORK_PATH = {folder}
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = http://127.0.0.1:{port}/
STATIC_ROOT_PATH = {pages}
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = {folder}/gitea.db
[repository]
ROOT = {folder}/repositories
[security]
INSTALL_LOCK = true
SECRET_KEY = of-the-tests
[webhook]
ALLOWED_HOST_LIST = loopback
[log]
LEVEL = Warn
"""


@dataclass(frozen=True)
class GiteaServer:
    """A Gitea server on which runs log in as `ci`, and `person` owns the repositories."""

    url: str
    folder: Path
    tokens: dict[str, str]

    def ask(self, user: str, method: str, path: str, body: Any = None) -> Any:
        """Return the API's response to a user's request. Fail if the API rejects the request."""
        heads = {"Authorization": f"token {self.tokens[user]}"}
        answer = requests.request(
            method, f"{self.url}/api/v1/{path}", json=body, headers=heads, timeout=30
        )
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def take(self, repo: Path) -> Path:
        """Create a repository owned by `person` with the same main branch, to which `ci` may write.

        Return the repository's path on disk.
        """
        name = repo.stem
        self.ask("person", "POST", "user/repos", {"name": name, "default_branch": "main"})
        self.ask("person", "PUT", f"repos/person/{name}/collaborators/ci", {"permission": "write"})
        there = f"{self.url.replace('://', f'://person:{PASSWORD}@')}/person/{repo.name}"
        git(repo, "push", "--quiet", there, "main")
        wait_until(
            lambda: not self.ask("ci", "GET", f"repos/person/{name}")["empty"]
        )  # the API notices the push with a delay
        return self.folder / "repositories" / "person" / repo.name


@contextmanager
def gitea_server(folder: Path) -> Iterator[GiteaServer]:
    """Yield a Gitea server with the users `ci` and `person`."""
    program, port, file = installed("bin/gitea"), free_port(), folder / "app.ini"
    pages = installed("gitea")
    file.write_text(
        CONFIGURATION.format(user=getpass.getuser(), folder=folder, port=port, pages=pages)
    )
    gitea = [program, "--config", str(file)]
    _said(*gitea, "migrate")
    tokens = {}
    for user in ("person", "ci"):
        create = [
            *gitea,
            "admin",
            "user",
            "create",
            "--username",
            user,
            "--email",
            f"{user}@example.com",
        ]
        _said(*create, "--password", PASSWORD, "--must-change-password=false")
        make = [
            *gitea,
            "admin",
            "user",
            "generate-access-token",
            "--username",
            user,
            "--token-name",
            "tests",
        ]
        tokens[user] = _said(*make, "--scopes", "all", "--raw").split()[-1]
    with started([*gitea, "web"], port, folder / "gitea.log"):
        server = GiteaServer(f"http://127.0.0.1:{port}", folder, tokens)
        wait_until(
            lambda: requests.get(f"{server.url}/api/healthz", timeout=10).status_code == 200,
            seconds=60,
        )
        yield server


def _said(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
