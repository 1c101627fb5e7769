"""All requests in a run that opens a pull request, to the forge and the Git server: users wait.

A plain clone, commit, and push takes nine. The repository is private: credentials sent only on
request would show up as a 401.
"""

from pathlib import Path

import pytest
from support import git
from support.forge_kinds import KINDS
from support.git_servers import git_server
from support.request_scenes import Scene, verdict
from support.runs import WEB
from support.serving import serving


class HttpScene(Scene):
    """A scene in which the run pushes to the repository over HTTP, with credentials."""

    git_url = ""

    def given(self, *more: str) -> list[str]:
        given = super().given(*more)
        at = given.index("--rewrite-url") + 1
        given[at] = f"{self.url}={self.git_url}"
        login = ("--git-username", "ci", "--git-credentials-url", self.git_url)
        return [*given, *login, "--git-credentials-url", f"{self.server.url}/"]


# Forge, branch, requests for a new pull request, and for a newer build. These forges need the
# fewest and the most (see tests/forges/test_forge_requests.py). For HEAD, the run looks up the
# branch.
ROWS = [("gitea", "main", 7, 9), ("azure", "main", 7, 10), ("gitea", "HEAD", 9, 11)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "branch", "first", "newer"), ROWS)
def test_each_run_with_a_pull_request_sends_the_expected_number_of_requests(
    tmp_path: Path, kind: str, branch: str, first: int, newer: int
) -> None:
    with serving(KINDS[kind].fake()) as forge, git_server(tmp_path) as server:
        scene = HttpScene(tmp_path, forge, kind)
        scene.apps.write_text(
            scene.apps.read_text().replace(
                '"targetRevision": "main"', f'"targetRevision": "{branch}"'
            )
        )
        git(scene.repo, "config", "http.receivepack", "true")
        server.logins["ci"] = "s3cret"
        scene.git_url = f"{server.url}{scene.repo.name}"
        scene.env["IMAGE_UPDATE_GIT_PASSWORD"] = "s3cret"
        for image, count in (("1.1.0", first), ("1.2.0", newer)):
            forge.seen.clear()
            server.seen.clear()
            assert verdict(scene.event(f"{WEB}:{image}")) == ("update", "admitted")
            requests = [
                *(what for what, _ in server.seen),
                *(f"{one.method} {one.target}" for one in forge.seen),
            ]
            assert len(requests) == count, "\n".join(requests)
            assert all(user for _, user in server.seen), "asked without a login first"
