"""Pull requests that the repository's own config requires."""

from pathlib import Path

import pytest
from fakes.github_api import GitHub
from support import commit, git, show
from support.request_scenes import API, Scene, verdict
from support.runs import WEB, application, manifest, target

CONFIG = ".image-update/config"


def test_a_rule_in_the_config_can_request_a_pull_request(server: GitHub, tmp_path: Path) -> None:
    scene = Scene(tmp_path, server, names=("a", "b"))
    scene.flags = ()
    config = (
        "version: 1\npullRequests: {group: application}\nrules:\n- match: {paths: [apps/a]}\n"
        "  pullRequests: {enabled: true, labels: [production], reviewers: [ann], draft: true}\n"
    )
    commit(scene.repo, {CONFIG: config})
    report = scene.event(f"{WEB}:1.1.0")
    (page,) = [one["pull_request"] for one in report["commits"] if one["pull_request"]]
    assert [one["verdict"] for one in report["decisions"]] == ["update", "update"]
    assert "newTag: 1.1.0" in scene.text("main", "b")
    assert "newTag: 1.0.0" in scene.text("main", "a")
    (pull,) = server.open
    assert (pull.labels, pull.reviewers, pull.draft) == (["production"], ["ann"], True)
    # A second image of the Application joins the waiting builds.
    scene.event(f"{API}:2.0.0")
    assert all(words in scene.text() for words in ("newTag: 1.1.0", "newTag: 2.0.0"))
    assert len(server.pulls) == 1
    # The annotation does not disable the pull request, and a specified label replaces those in the
    # config.
    apps = [application("a", scene.url, image_list=f"web={WEB}", pull_request="false")]
    manifest(tmp_path, *apps)
    assert (
        scene.event(f"{WEB}:1.2.0", "--pull-request-label", "given")["commits"][0]["pull_request"]
        == page
    )
    assert "given" in server.open[0].labels


@pytest.mark.parametrize(("group", "requests"), [("application", 2), ("image", 2), ("project", 1)])
def test_the_group_setting_decides_the_number_of_pull_requests(
    server: GitHub, tmp_path: Path, group: str, requests: int
) -> None:
    scene = Scene(tmp_path, server, names=("a", "b"))
    scene.flags = ()
    commit(scene.repo, {CONFIG: f"version: 1\npullRequests: {{enabled: true, group: {group}}}\n"})
    images = f"{WEB}:1.1.0 {API}:2.0.0"
    report = scene.event(images)
    assert len(report["commits"]) == len(server.open) == requests
    assert len({one.head for one in server.open}) == requests
    for pull in server.open:
        files = {name: show(scene.repo, pull.head, target(name)) for name in "ab"}
        if group == "application":
            assert (
                sum("newTag: 1.1.0" in text and "newTag: 2.0.0" in text for text in files.values())
                == 1
            )
        elif group == "image":
            new = "1.1.0" if "newTag: 1.1.0" in files["a"] else "2.0.0"
            assert all(
                text.count("newTag: 1.1.0") + text.count("newTag: 2.0.0") == 1
                for text in files.values()
            )
            assert pull.title.endswith(new)
    again = scene.event(images)
    assert {one["verdict"] for one in again["decisions"]} == {"unchanged"}
    assert len(server.pulls) == requests


def test_a_freeze_defers_updates_that_would_be_proposed(scene: Scene, server: GitHub) -> None:
    scene.event(f"{API}:2.0.0")
    scene.flags = ("--pull-request", "--auto-merge")
    freezes = 'freezes: [{schedule: "* * * * *", duration: 1h, reason: sale}]'
    frozen = f"version: 1\npullRequests: {{group: application}}\n{freezes}\n"
    commit(scene.repo, {CONFIG: frozen})
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("defer", "held")
    assert "newTag: 2.0.0" in scene.text()  # the update proposed before the freeze remains proposed
    assert "newTag: 1.1.0" not in scene.text()
    assert [pull.auto for pull in server.open] == [
        None
    ]  # GitHub would merge the request as soon as its checks pass
    commit(scene.repo, {CONFIG: "version: 1\npullRequests: {group: application}\n"})
    assert verdict(scene.event(f"{WEB}:1.0.5")) == ("update", "admitted")
    assert [pull.auto is not None for pull in server.open] == [True]
    assert all(words in scene.text() for words in ("newTag: 1.1.0", "newTag: 2.0.0"))
    assert len(server.pulls) == 1


def test_a_template_in_the_config_does_not_replace_a_rollbacks_title(
    server: GitHub, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, server, update_strategy="newest-build")
    config = {
        CONFIG: "version: 1\npullRequests: {group: application}\ncommit: {template: .image-update/message}",
        ".image-update/message": "chore: {{.AppName}}\n\nAsk @ops.",
    }
    commit(scene.repo, {**config, target("a"): scene.text("main").replace("1.0.0", "1.5.0")})
    scene.event(f"{API}:2.0.0")
    assert server.open[0].title == "chore: a"
    scene.call("hold", "a", "--image", "web", "--reason", "INC-42")
    assert server.open[0].title == "chore: a"
    assert "INC-42" in scene.memory
    scene.event(f"{WEB}:1.6.0")
    scene.call("release", "a", "--image", "web")
    assert server.open[0].title.startswith("release a: ")
    scene.call("rollback", "a", "--image", "web", "--to", "1.0.0", "--reason", "5xx since noon")
    assert server.open[0].title == "roll back a: ghcr.io/acme/web 1.5.0 → 1.0.0"
    assert "5xx since noon" in server.open[0].body
    assert "5xx since noon" in git(scene.repo, "log", "-1", "--format=%B", scene.head)
