"""What is closed where nothing waits any more."""

import pytest
from history_scenes import HEAD, Scene, verdicts

from task.errors import RepositoryError


def test_a_branch_that_the_server_does_not_delete_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GitLab and Gitea let nobody delete a protected branch by git. It is no failure of the build."""
    scene = Scene()
    scene.event("web:1.1.0")
    scene.write("web", "1.1.0")

    def drop(head: str, was: str) -> None:
        raise RepositoryError(f"the server refused the push: {head} at {was} is protected")

    with monkeypatch.context() as patched:
        patched.setattr(scene.branch, "drop", drop)
        assert verdicts(scene.event("web:1.1.0")) == ["unchanged"]
    assert HEAD in scene.branch.heads
    assert "main says 1.1.0 by now" in scene.branch.lists[HEAD].closing
    assert verdicts(scene.event("web:1.1.0")) == ["unchanged"]
    assert (scene.branch.proposals, scene.branch.lists) == ({}, {})
