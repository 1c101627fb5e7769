"""What is closed where nothing waits any more."""

from types import SimpleNamespace
from typing import Any

from task.errors import RepositoryError
from task.landing.pull_request import close
from task.model import Head


def test_a_branch_that_the_server_does_not_delete_stays_with_a_warning() -> None:
    """GitLab and Gitea let nobody delete a protected branch by git."""
    told: list[tuple[str, str]] = []

    def drop(head: str, was: str) -> None:
        raise RepositoryError(f"the server refused the push: {head} at {was} is protected")

    repository: Any = SimpleNamespace(drop=drop)
    world: Any = SimpleNamespace(log=lambda level, text: told.append((level, text)))
    head = Head("https://git.example.com/acme/deploy", "image-update/web-1", "a" * 40, {})
    close(head, "main has it", None, repository, world)
    assert [level for level, _ in told] == ["warning"]
    assert told[0][1].startswith("image-update/web-1 was not deleted: the server refused the push")
