"""Closing requests and deleting branches on which nothing is waiting anymore."""

import pytest
from support.history_scenes import HEAD, Scene, verdicts

from task.errors import RepositoryError, UnreachableError


def test_a_head_branch_that_the_server_refuses_to_delete_is_reported_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GitLab and Gitea forbid deleting a protected branch with git. The build does not fail."""
    scene = Scene()
    scene.event("web:1.1.0")
    scene.write("web", "1.1.0")

    def drop(head: str, was: str) -> None:
        raise RepositoryError(f"the server rejected the push: {head} at {was} is protected")

    monkeypatch.setattr(scene.branch, "drop", drop)
    scene.story.log.clear()
    assert verdicts(scene.event("web:1.1.0")) == ["unchanged"]
    assert [
        line
        for level, line in scene.story.log
        if f"{HEAD} was not deleted: the server" in line and level
    ]
    listed = scene.branch.lists[HEAD]
    assert (listed.builds, listed.closing) == ((), "")
    scene.story.log.clear()
    assert verdicts(scene.event("web:1.1.0")) == ["unchanged"]
    assert not [line for _, line in scene.story.log if "was not deleted" in line]
    scene.event("web:1.2.0")
    assert scene.branch.heads[HEAD].before == scene.branch.files  # ours, and recreated


@pytest.mark.parametrize("at", [0, 1], ids=["at once", "after a run"])
def test_a_head_branch_that_could_not_be_deleted_is_deleted_by_the_next_run(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    scene.write("web", "1.1.0")

    def drop(_head: str, _was: str) -> None:
        raise UnreachableError("the server closed the connection", hint="")

    with monkeypatch.context() as patched:
        patched.setattr(scene.branch, "drop", drop)
        for _ in range(1 + at):
            assert verdicts(scene.event("web:1.1.0")) == ["unchanged"]
    assert HEAD in scene.branch.heads
    assert "main now has 1.1.0" in scene.branch.lists[HEAD].closing
    assert verdicts(scene.event("web:1.1.0")) == ["unchanged"]
    assert (scene.branch.proposals, scene.branch.lists) == ({}, {})
