"""`--commit-through github`: whole runs that read the repository with git and write to it through
GitHub's API.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.github_commits_api import CommittingGitHub
from support import commit, git, needs, show
from support.request_scenes import Scene, a_reviewers_week
from support.runs import WEB, repository, target
from support.serving import serving

WRITERS = [f"app{number}" for number in range(10)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CommittingGitHub]:
    with serving(CommittingGitHub(tmp_path / "repo.git")) as running:
        yield running


def scene_of(
    server: CommittingGitHub, folder: Path, *flags: str, names: tuple[str, ...] = ("a",)
) -> Scene:
    scene = Scene(folder, server, names=names)
    scene.flags = ("--commit-through", "github", *flags)
    return scene


def test_each_build_updates_the_open_pull_request(server: CommittingGitHub, tmp_path: Path) -> None:
    scene = scene_of(server, tmp_path, "--pull-request")
    tips: list[str] = []
    server.before = lambda _request: tips.extend(
        one for name, one in server.branches.items() if name != "main"
    )
    for tag in ("1.1.0", "1.2.0"):
        report = scene.event(f"{WEB}:{tag}")
        assert [(one["through"], one["head"]) for one in report["commits"]] == [
            ("github", scene.head)
        ]
        assert report["commits"][0]["commit"] == git(scene.repo, "rev-parse", scene.head)
        assert f"newTag: {tag}" in scene.text()
    assert (len(server.pulls), len(server.open), scene.on_top()) == (1, 1, 1)
    assert (
        git(scene.repo, "rev-parse", "main") not in tips[1:]
    )  # the head branch started there, and never moved back
    (there,) = scene.event(f"{WEB}:1.2.0")["commits"]
    assert (there["through"], there["commit"]) == (None, git(scene.repo, "rev-parse", scene.head))


def test_a_reviewers_changes_survive_later_builds(server: CommittingGitHub, tmp_path: Path) -> None:
    a_reviewers_week(scene_of(server, tmp_path, "--pull-request"))


def test_a_github_app_can_commit_through_the_api(server: CommittingGitHub, tmp_path: Path) -> None:
    key = tmp_path / "app.pem"
    subprocess.run(
        [*needs("openssl"), "genrsa", "-out", key, "2048"], check=True, capture_output=True
    )
    app = (
        "--github-app-id",
        "12",
        "--github-app-installation-id",
        "34",
        "--github-app-key-file",
        str(key),
    )
    scene = scene_of(server, tmp_path, *app)
    scene.env = {"GITHUB_SERVER_URL": server.url}
    plan = scene.call("plan", "--image", f"{WEB}:1.1.0").json
    assert server.seen == []
    (made,) = scene.event(f"{WEB}:1.1.0")["commits"]
    assert (made["tree"], made["through"]) == (
        plan["commits"][0]["tree"],
        plan["commits"][0]["through"],
    )
    assert made["commit"] == git(scene.repo, "rev-parse", "main")
    assert (
        git(scene.repo, "log", "-1", "--format=%an", "main") == "Tests"
    )  # the fake server's author rather than ours
    assert scene.event(f"{WEB}:1.1.0")["status"] == "unchanged"


def test_an_executable_file_is_an_error_only_for_its_own_application(
    server: CommittingGitHub, tmp_path: Path
) -> None:
    scene = scene_of(server, tmp_path, names=("a", "b"))
    blob = git(scene.repo, "rev-parse", f"main:{target('a')}")
    # Use plumbing commands to commit a file with the executable bit, because `support.commit`
    # writes only regular files.
    stream = "commit refs/heads/main\ncommitter T <t@example.com> 1700000000 +0000\ndata 1\nx\nfrom refs/heads/main^0\n"
    git(
        scene.repo,
        "fast-import",
        "--quiet",
        stdin=f"{stream}M 100755 {blob} {target('a')}\n".encode(),
    )
    for name in ("plan", "run"):
        result = scene.call(name, "--image", f"{WEB}:1.1.0")
        found = {one["application"]: one["verdict"] for one in result.json["decisions"]}
        assert (result.code, found) == (3, {"argocd/a": "error", "argocd/b": "update"})
        assert "executable bit" in result.json["errors"][0]["message"]
    assert "1.0.0" in show(scene.repo, "main", target("a"))
    assert "1.1.0" in show(scene.repo, "main", target("b"))


def test_committing_through_github_fails_for_repositories_on_other_forges(tmp_path: Path) -> None:
    folder = repository(tmp_path, "a")
    with serving(CommittingGitHub(folder)) as server:
        (tmp_path / "scene").mkdir()
        scene = Scene(tmp_path / "scene", server)
        scene.flags = ("--commit-through", "github", "--forge", "gitlab=" + server.url)
        plan, result = (scene.call(name, "--image", f"{WEB}:1.1.0") for name in ("plan", "run"))
    assert (plan.code, result.code) == (3, 3)
    assert "--commit-through git" in result.json["errors"][0]["hint"]
    assert plan.json["errors"] == result.json["errors"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_concurrent_writers_all_land_their_commits(
    server: CommittingGitHub, tmp_path: Path
) -> None:
    scene = scene_of(server, tmp_path, names=tuple(WRITERS))
    running = [scene.started("--image", f"{WEB}:1.1.0", "--application", name) for name in WRITERS]
    outs = [one.communicate(timeout=300) for one in running]
    assert [one.returncode for one in running] == [0] * len(running), [
        err for _, err in outs if err
    ][:3]
    commits = [made for out, _ in outs for made in json.loads(out)["commits"]]
    assert {one["through"] for one in commits} == {"github"}
    assert sum(one["attempts"] for one in commits) > len(WRITERS)
    assert sorted(one["commit"] for one in commits) == sorted(
        git(scene.repo, "rev-list", "main", "^main~10").split()
    )
    assert git(scene.repo, "rev-list", "--count", "main") == str(len(WRITERS) + 1)
    assert git(scene.repo, "rev-list", "--min-parents=2", "main") == ""
    assert all("1.1.0" in show(scene.repo, "main", target(name)) for name in WRITERS)


def test_a_commit_that_a_person_makes_during_the_run_is_kept(
    server: CommittingGitHub, tmp_path: Path
) -> None:
    scene = scene_of(server, tmp_path)

    def meanwhile(_request: object) -> None:
        server.before = lambda _request: None
        commit(scene.repo, {"README.md": "hello\n"})

    server.before = meanwhile
    (made,) = scene.event(f"{WEB}:1.1.0")["commits"]
    assert made["attempts"] == 2
    assert show(scene.repo, "main", "README.md") == "hello\n"
