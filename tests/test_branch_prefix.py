"""Whole runs with the config setting `branchPrefix`, for servers that restrict branch names."""

from pathlib import Path

import pytest
from fakes.github_api import GitHub
from support import commit, git, image_update
from support.request_scenes import Scene
from support.runs import WEB, application, arguments, hook, manifest, repository
from support.serving import serving

CONFIG = {".image-update/config": "version: 1\nbranchPrefix: bots/iu\n"}


class Here:
    """An Application whose updates wait on a head branch."""

    def __init__(self, folder: Path) -> None:
        self.repo = repository(folder, "a")
        self.apps = manifest(folder, application("a", self.repo, git_branch="main:bump"))

    def event(self, tag: str, code: int = 0) -> tuple[list[str], str]:
        """Send an event, and return the rules of the resulting decisions and the text on stderr."""
        result = image_update(*arguments(self.apps, image=f"{WEB}:{tag}"))
        assert result.code == code, result.stderr
        return [one["rule"] for one in result.json["decisions"]], result.stderr

    def by_hand(self, *words: str) -> str:
        given = ("--applications", self.apps, "--allow-protocol", "file")
        result = image_update(*words, *given)
        assert result.code == 0, result.stderr
        return result.stdout + result.stderr

    @property
    def branches(self) -> set[str]:
        """The first parts of all branch names except `main`."""
        lines = git(self.repo, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/")
        return {name.rpartition("/")[0] or name for name in lines.split()} - {"main"}


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_the_memory_branch_uses_the_prefix_that_the_server_requires(here: Here) -> None:
    rule = 'case "$1" in refs/heads/bump|refs/heads/main|refs/heads/bots/*) ;; *) exit 1;; esac'
    hook(here.repo, "update", rule)
    _, said = here.event("1.1.0", code=4)
    assert "branchPrefix in .image-update/config" in said
    commit(here.repo, CONFIG)
    assert here.event("1.1.0")[0] == ["admitted"]
    here.by_hand("hold", "a", "--reason", "INC-1")
    assert here.branches == {"bots/iu-memory"}
    assert here.event("1.2.0")[0] == ["held"]
    assert "INC-1" in here.by_hand("status")
    here.by_hand("release", "a")
    assert here.branches == {"bump", "bots/iu-memory"}
    assert here.event("1.1.5")[0] == ["superseded"]  # the waiting list under the prefix is read


def test_remembered_holds_move_to_the_new_prefix_with_a_warning(here: Here) -> None:
    here.event("1.1.0")
    here.by_hand("hold", "a", "--reason", "INC-1")
    commit(here.repo, CONFIG)
    rules, said = here.event("1.2.0")
    assert rules == ["held"]
    assert "the memory moves from " in said
    assert " to bots/iu-memory/" in said
    assert here.branches == {"bots/iu-memory"}
    rules, said = here.event("1.2.0")
    assert (rules, "moves" in said) == (["held"], False)


def test_check_reads_the_memory_branch_under_the_prefix(here: Here) -> None:
    commit(here.repo, CONFIG)
    here.by_hand("hold", "a", "--reason", "INC-1")
    git(here.repo, "branch", "change", "main")
    text = git(here.repo, "show", "main:apps/a/kustomization.yaml").replace("1.0.0", "1.1.0")
    commit(here.repo, {"apps/a/kustomization.yaml": f"{text}\n"}, "change")
    given = ("--applications", here.apps, "--allow-protocol", "file", "--output", "json")
    result = image_update(
        "check", "--repository", f"{here.repo}", "--base", "main", "--head", "change", *given
    )
    assert (result.code, [one["rule"] for one in result.json["decisions"]]) == (5, ["held"])


def test_pull_requests_use_head_branches_under_the_prefix(tmp_path: Path) -> None:
    with serving(GitHub()) as server:
        scene = Scene(tmp_path, server, group="application")
        scene.event(f"{WEB}:1.1.0")
        (old,) = server.open
        commit(
            scene.repo,
            {
                ".image-update/config": "version: 1\nbranchPrefix: bots/iu\n"
                "pullRequests: {group: application}\n"
            },
        )
        report = scene.event(f"{WEB}:1.2.0")
        (new,) = server.open
        assert (old.head.partition("/")[0], new.head[:8]) == ("image-update", "bots/iu/")
        assert [row["outcome"] for row in report["waiting"]] == ["superseded"]
        names = [name for name in server.branches if name != "main"]
        assert all(name.startswith("bots/iu") for name in names), names
