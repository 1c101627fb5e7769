"""Complete runs with JGit's Git server, which Gerrit also uses. It shares no code with git."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.github_api import GitHub
from real.programs import installed
from support import ROOT, commit, git, image_update, needs, show
from support.real_servers import free_port, started
from support.request_scenes import Scene, verdict
from support.runs import (
    KUSTOMIZATION,
    WEB,
    application,
    arguments,
    manifest,
    repository,
    start,
    target,
)
from support.serving import serving

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("jgit")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, repos: Path) -> Iterator[str]:
    port, libraries = free_port(), installed("jgit")
    argv = [
        *needs("java"),
        "-cp",
        f"{libraries}/*",
        str(ROOT / "tests/real/jgit/JGitServer.java"),
        str(port),
        str(repos),
    ]
    with started(argv, port, tmp_path_factory.mktemp("jgit") / "log"):
        yield f"http://127.0.0.1:{port}"


def accepting(repo: Path) -> Path:
    """Make a repository accept pushes over HTTP without authentication, which JGit rejects by
    default.
    """
    git(repo, "config", "http.receivepack", "true")
    return repo


def test_a_run_fetches_only_the_objects_that_it_needs(
    server: str, repos: Path, tmp_path: Path
) -> None:
    """JGit supports partial and shallow fetches, like git."""
    repo = accepting(repository(repos, "web", name="large.git"))
    commit(repo, {"big": os.urandom(1_500_000).hex()})
    result = image_update(
        *arguments(manifest(tmp_path, application("web", f"{server}/large.git"))),
        "--log-level=debug",
    )
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    sizes = [int(size) for size in re.findall(r"(\d+) bytes of objects", result.stderr)]
    assert sizes
    assert sum(sizes) < 10_000


def test_concurrent_runs_all_land(server: str, repos: Path, tmp_path: Path) -> None:
    names = [f"app{number}" for number in range(6)]
    repo = accepting(repository(repos, *names, name="race.git"))
    images = {name: f"ghcr.io/acme/{name}" for name in names}
    commit(
        repo, {target(name): KUSTOMIZATION.replace(WEB, image) for name, image in images.items()}
    )
    url = f"{server}/race.git"
    apps = manifest(
        tmp_path,
        *(application(name, url, image_list=f"x={image}") for name, image in images.items()),
    )
    running = [start(arguments(apps, image=f"{image}:1.1.0")) for image in images.values()]
    ended = [(one.communicate(timeout=100), one.wait()) for one in running]
    assert [code for _, code in ended] == [0] * len(names), [said[1] for said, _ in ended]
    assert all("newTag: 1.1.0" in show(repo, "main", target(name)) for name in names)
    assert git(repo, "rev-list", "--count", "--no-merges", "main") == str(2 + len(names))
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""


def test_a_pull_request_is_updated_with_newer_builds(server: str, repos: Path) -> None:
    """The branch is created, moved forward, and recreated on a base that has moved."""
    with serving(GitHub()) as forge:
        scene = Scene(repos, forge)
        accepting(scene.repo)
        rewrite = ("--rewrite-url", f"{scene.url}={server}/{scene.repo.name}")
        assert verdict(scene.event(f"{WEB}:1.1.0", *rewrite)) == ("update", "admitted")
        assert verdict(scene.event(f"{WEB}:1.2.0", *rewrite)) == ("update", "admitted")
        assert "newTag: 1.2.0" in scene.text()
        scene.person()
        assert verdict(scene.event(f"{WEB}:1.3.0", *rewrite)) == ("update", "admitted")
        assert "newTag: 1.3.0" in scene.text()
        assert "newTag: 1.0.0" in scene.text("main")
        assert len(forge.open) == 1


def test_the_reason_for_a_push_rejected_by_jgit_is_reported(
    server: str, repos: Path, tmp_path: Path
) -> None:
    repository(repos, "web", name="closed.git")  # JGit rejects a push without authentication
    refused = image_update(
        *arguments(manifest(tmp_path, application("web", f"{server}/closed.git")))
    )
    assert refused.code == 4
    assert "requires credentials" in refused.stderr
    absent = image_update(
        *arguments(manifest(tmp_path, application("web", f"{server}/absent.git")))
    )
    assert absent.code == 4, absent.stderr
    assert "absent.git" in absent.stderr
