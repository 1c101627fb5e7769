"""A fake world, in which a test provides only what the code under test needs."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from task.deciding.job import Followed, LandedApplication
from task.landing.ports import LiveApplications, World
from task.model import Answer, Application, Question, Subscription, Tracker


def fake_world(**given: Any) -> World:
    """Return a world without Argo CD, registries, and Git hosts. Using anything that the test does
    not provide fails immediately.
    """
    world = _Nobody()
    for name, value in given.items():
        assert hasattr(World, name), name
        setattr(world, name, value)
    return cast("World", world)


class _Nobody:
    """A world in which nothing is available."""

    always_prove = False

    def __getattr__(self, name: str) -> Any:
        def missing(*given: Any) -> None:
            raise NotImplementedError(name, given)

        return missing

    def passed_over(self) -> Sequence[Application]:
        return ()

    def application(self, namespace: str, name: str) -> Application | None:  # noqa: ARG002 - there is none
        return None

    def login(self, subscription: Subscription) -> str:  # noqa: ARG002 - all have the same
        return ""

    def ancestry(self, repository: str, new: str, old: str) -> str:  # noqa: ARG002 - it is unknown
        return ""

    def registry(self, questions: Collection[Question]) -> Mapping[Question, Answer]:  # noqa: ARG002 - no registry responds
        return {}

    def compare(self, repo: str, base: str, head: str) -> tuple[str, str]:  # noqa: ARG002 - it is unknown
        return "", ""

    def range_page(self, repo: str, old: str, new: str) -> str:  # noqa: ARG002 - it is unknown
        return ""

    def commit_page(self, repo: str, commit: str) -> str:  # noqa: ARG002 - it is unknown
        return ""

    def page(self, application: Tracker) -> str:  # noqa: ARG002 - it is unknown
        return ""

    def keys_wanted(self, subscription: Subscription) -> tuple[str, ...]:  # noqa: ARG002 - no project wants any
        return ()

    def signing_keys(self) -> tuple[str, ...]:
        return ()

    def hindrance(self, subscription: Subscription, now: str) -> tuple[str, str]:  # noqa: ARG002 - none is known
        return "", ""

    def synced(self, subscription: Subscription) -> tuple[str, ...]:  # noqa: ARG002 - it is unknown
        return ()

    def taken_back_by(self, manifest: Mapping[str, Any], field: str) -> str:  # noqa: ARG002 - nothing does
        return ""

    def live(self) -> LiveApplications | None:
        return None

    def follow(self, landed: Sequence[LandedApplication]) -> Followed:  # noqa: ARG002 - no rollout is followed
        return Followed()

    follow_back = follow

    def close(self) -> None:
        pass
