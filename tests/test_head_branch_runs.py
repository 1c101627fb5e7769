"""Head branches in whole runs: how they are created and replaced, and how updates wait there to be
merged.
"""

from pathlib import Path
from typing import Any

import pytest
from support import commit, git, image_update, show
from support.runs import WEB, application, arguments, hook, manifest, repository, start, target

API = "ghcr.io/acme/api"
STATE = ".image-update/apps/a/argocd_a.state"


class Scene:
    """One Application with two images, whose updates are committed to a separate branch."""

    def __init__(
        self, folder: Path, strategy: str = "semver", head: str = "updates/{{.AppName}}"
    ) -> None:
        self.repo = repository(folder, "a")
        app = application(
            "a",
            self.repo,
            image_list=f"web={WEB},api={API}",
            update_strategy=strategy,
            git_branch=f"main:{head}",
        )
        self.apps = manifest(folder, app)

    def call(self, command: str, *more: str) -> Any:
        given = ("--applications", str(self.apps), "--allow-protocol", "file", "--output", "json")
        result = image_update(command, *more, *given)
        assert result.code == 0, result.stderr
        return result.json

    def event(self, image: str, *more: str) -> tuple[str, str]:
        (found,) = self.call("run", "--image", image, *more)["decisions"]
        return found["verdict"], found["rule"]

    def text(self, branch: str = "updates/a") -> str:
        return show(self.repo, branch, target("a"))

    def on_top(self) -> int:
        return int(git(self.repo, "rev-list", "--count", "main..updates/a"))

    def memories(self) -> list[str]:
        return git(
            self.repo,
            "for-each-ref",
            "--format=%(refname:short)",
            "refs/heads/image-update-memory/",
        ).split()


def test_an_update_of_another_image_keeps_the_waiting_update(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.event(f"{WEB}:1.1.0") == ("update", "admitted")
    assert scene.event(f"{API}:2.0.0") == ("update", "admitted")
    assert "newTag: 1.1.0" in scene.text()
    assert "newTag: 2.0.0" in scene.text()
    assert scene.on_top() == 1
    message = git(scene.repo, "log", "-1", "--format=%B", "updates/a")
    assert f"Image: {WEB}:1.1.0" in message
    assert f"Image: {API}:2.0.0" in message
    assert "1.0.0" in scene.text("main")


def test_a_waiting_update_survives_a_change_of_the_base(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.event(f"{WEB}:1.1.0")
    commit(scene.repo, {target("a"): scene.text("main") + "namePrefix: x-\n"})
    scene.event(f"{API}:2.0.0")
    assert all(
        words in scene.text() for words in ("newTag: 1.1.0", "newTag: 2.0.0", "namePrefix: x-")
    )
    assert scene.on_top() == 1


@pytest.mark.parametrize("strategy", ["semver", "newest-build"])
def test_an_older_build_does_not_replace_a_newer_waiting_build(
    tmp_path: Path, strategy: str
) -> None:
    scene = Scene(tmp_path, strategy)
    assert scene.event(f"{WEB}:1.2.0", "--sequence", "2") == ("update", "admitted")
    assert scene.event(f"{WEB}:1.1.0", "--sequence", "1") == ("refuse", "superseded")
    assert "newTag: 1.2.0" in scene.text()
    tip = git(scene.repo, "rev-parse", "updates/a")
    assert scene.event(f"{WEB}:1.2.0", "--sequence", "2")[0] == "unchanged"
    assert git(scene.repo, "rev-parse", "updates/a") == tip
    assert scene.event(f"{WEB}:1.3.0", "--sequence", "3") == ("update", "admitted")
    assert "newTag: 1.3.0" in scene.text()


def test_a_merged_head_branch_that_was_not_deleted_does_not_bring_back_its_update(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    scene.event(f"{WEB}:1.1.0")
    # The update is merged, and then the base is updated again.
    commit(scene.repo, {target("a"): scene.text().replace("1.1.0", "1.4.0")})
    assert scene.event(f"{WEB}:1.3.0") == ("refuse", "not-newer")
    assert scene.event(f"{API}:2.0.0") == ("update", "admitted")
    assert "newTag: 1.4.0" in scene.text()


def test_a_hold_takes_effect_before_the_head_branch_is_merged(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.call("hold", "a", "--reason", "freeze")
    (memory,) = scene.memories()
    assert "freeze" in show(scene.repo, memory, STATE)
    assert scene.event(f"{WEB}:1.1.0") == ("defer", "held")
    assert all(words in show(scene.repo, memory, STATE) for words in ("freeze", "1.1.0"))
    scene.call("release", "a")
    assert "newTag: 1.1.0" in scene.text()
    (memory,) = scene.memories()  # including the waiting list
    assert STATE not in git(scene.repo, "ls-tree", "-r", "--name-only", memory)


def test_a_commit_by_a_person_is_kept_and_named_in_the_log(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.event(f"{WEB}:1.1.0")
    theirs = commit(scene.repo, {"people.yaml": "x\n"}, "updates/a", "Our own change\n\nMore of it")
    given = (
        "--image",
        f"{WEB}:1.2.0",
        "--applications",
        str(scene.apps),
        "--allow-protocol",
        "file",
    )
    said = image_update("run", *given).stderr
    assert f"updates/a keeps commit {theirs[:12]} by Tests: Our own change\n" in said
    assert git(scene.repo, "rev-parse", "updates/a^") == theirs


def test_a_rollback_also_waits_on_the_head_branch(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    commit(scene.repo, {target("a"): scene.text("main").replace("1.0.0", "1.5.0")})
    scene.call("rollback", "a", "--image", "web", "--to", "previous")
    assert "newTag: 1.0.0" in scene.text()
    # The build is compared with the version on the base, which is still this one.
    assert scene.event(f"{WEB}:1.5.0")[0] == "unchanged"
    assert scene.event(f"{WEB}:1.6.0") == ("defer", "held")
    assert "newTag: 1.0.0" in scene.text()


class Heads:
    """A repository whose changes are proposed on a separate branch."""

    def __init__(self, folder: Path, branch: str = "main:bot") -> None:
        self.folder = folder
        self.repo = repository(folder, "a")
        self.apps = manifest(folder, application("a", self.repo, git_branch=branch))

    def run(self, tag: str, *more: str) -> tuple[int, str]:
        running = start(arguments(self.apps, *more, image=f"ghcr.io/acme/web:{tag}"))
        out, err = running.communicate()
        return running.wait(), (out + err).decode()

    def tip(self, branch: str = "bot") -> str:
        return git(self.repo, "rev-parse", branch)


def test_a_head_branch_is_created_reused_and_replaced(tmp_path: Path) -> None:
    heads = Heads(tmp_path)
    assert heads.run("1.1.0")[0] == 0
    first = heads.tip()
    assert heads.run("1.1.0")[0] == 0
    assert heads.tip() == first
    base = commit(heads.repo, {"README.md": "changed\n"})
    assert heads.run("1.2.0")[0] == 0
    assert git(heads.repo, "rev-list", "bot").splitlines()[1] == base
    assert "1.2.0" in show(heads.repo, "bot", target("a"))
    assert heads.tip("main") == base


def test_a_head_branch_on_an_old_base_is_moved_to_the_new_base(tmp_path: Path) -> None:
    heads = Heads(tmp_path)
    heads.run("1.1.0")
    base = commit(heads.repo, {"README.md": "changed\n"})
    assert heads.run("1.1.0")[0] == 0
    assert git(heads.repo, "rev-list", "bot").splitlines()[1] == base


def test_no_head_branch_is_created_if_the_base_has_the_version(tmp_path: Path) -> None:
    heads = Heads(tmp_path)
    assert heads.run("1.0.0")[0] == 0
    assert git(heads.repo, "for-each-ref", "refs/heads/bot") == ""


def test_no_head_branch_is_created_if_the_base_does_not_exist(tmp_path: Path) -> None:
    heads = Heads(tmp_path, "nowhere:bot")
    assert heads.run("1.1.0")[0] == 3
    assert git(heads.repo, "for-each-ref", "refs/heads/bot") == ""


def test_a_concurrent_push_to_the_head_branch_is_replaced_on_retry(tmp_path: Path) -> None:
    """The first push fails because of the lease. The next attempt finds the other commit and
    replaces it, because the branch is ours: one commit on top of the base.
    """
    heads = Heads(tmp_path)
    heads.run("1.1.0")
    hook(heads.repo, "update", f'rm "$0"; git update-ref refs/heads/bot {heads.tip("main")}')
    code, said = heads.run("1.2.0")
    assert code == 0, said
    assert f"{heads.repo}: main has moved" in said
    assert git(heads.repo, "rev-list", "--count", "main..bot") == "1"


@pytest.mark.parametrize(
    "name",
    ["a..b", "-f", "a b", "x.lock", "a:b:c", "refs/heads/x~1", "@{-1}", "a\\b", ".x", "HEAD"],
)
def test_an_invalid_branch_name_is_an_error(tmp_path: Path, name: str) -> None:
    heads = Heads(tmp_path, f"main:{name}")
    code, said = heads.run("1.1.0")
    assert code == 3, said
    assert git(heads.repo, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
