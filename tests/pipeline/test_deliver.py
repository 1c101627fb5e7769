"""The loop of one branch, with a repository and a world made of a few lines."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest
from fake_world import FakeWorld
from runs import WEB, application

from task.annotations.application import PREFIX, parse_application
from task.annotations.narrow import Narrow
from task.annotations.subscription import Defaults, Scope, subscribe
from task.deciding.ask import Ask
from task.deciding.job import Job, Stray, Terms, Wording
from task.errors import Outpaced, RepositoryError
from task.image import parse_image
from task.landing.changeset import Obsolete, PreparedCommit, prepare_commits
from task.landing.ports import Batch, World
from task.model import Changeset, Decision, File, FileVersion, Head, Landing, Person, Place, Snapshot
from task.pipeline.deliver import deliver
from task.pipeline.match import asks_for_images

URL = "https://git.example/gitops.git"
IMAGE = parse_image(f"{WEB}:1.1.0")


def says(tag: str) -> str:
    return f"images:\n- name: {WEB}\n  newTag: {tag}\n"


class Repository:
    """Somebody else is faster on these head branches once, and then leaves these files."""

    def __init__(self, outpaced: Collection[str], then: dict[str, str]) -> None:
        self.files = {f"apps/{name}/kustomization.yaml": says("1.0.0") for name in "ab"}
        self.outpaced, self.then = set(outpaced), then
        self.landed: list[str] = []

    def default_branch(self, *, tip: bool = True) -> str:  # noqa: ARG002 - nothing is fetched
        return "main"

    def snapshot(self, branch: str, places: Iterable[Place], heads: Collection[str] = ()) -> Snapshot:  # noqa: ARG002
        list(places)
        files = {path: File(text) for path, text in self.files.items()}
        files |= {path: File("", "040000") for path in ("apps", "apps/a", "apps/b")}
        return Snapshot(URL, branch, f"tip{len(self.landed)}", files)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:  # noqa: ARG002 - it shows everything
        return snapshot

    def head_snapshot(self, head: str, places: Collection[Place]) -> Head | None:  # noqa: ARG002 - there is none
        return None

    def drop(self, head: str, was: str) -> None:
        raise AssertionError(head, was)

    def remember(self, change: Changeset) -> Landing:
        raise AssertionError(change)

    def land(self, change: Changeset) -> Landing:
        head = change.destination.head
        if head in self.outpaced:
            self.outpaced.discard(head)
            self.files |= self.then
            raise Outpaced(head)
        self.landed.append(head)
        return Landing("c" * 40, "t" * 40)

    predict = land

    def earlier(self, branch: str, path: str, limit: int) -> Iterable[tuple[str, str | None]]:  # noqa: ARG002 - no history
        return ()

    def written(self, branch: str, paths: Collection[str], most: int) -> dict[str, list[FileVersion]]:  # noqa: ARG002 - no history
        return {path: [] for path in paths}

    def branches(self, beginnings: Collection[str]) -> list[str]:  # noqa: ARG002 - nobody asks
        return []

    def close(self) -> None:
        pass


def batch(repository: Repository) -> Batch:
    asks: list[Ask] = []
    for name in "ab":
        app = parse_application(application(name, URL, git_branch=f"main:head-{name}"), PREFIX)
        asks += asks_for_images([subscribe(app)], [IMAGE]).asks
    return Batch(repository, "main", tuple(asks))


def world() -> World:
    clock = iter(range(1000))
    return FakeWorld(
        applications=list, locate=lambda _origin: None, repository=lambda _url, _sub: Repository((), {}),
        now=lambda: float(next(clock)), sleep=lambda _seconds: None, jitter=lambda: 0.5, log=lambda _level, _text: None,
    )  # fmt: skip


JOB = Job("run", (IMAGE,), Scope(PREFIX, Narrow(), Defaults()), Terms(), Wording(Person("a", "a@example.com")))


@pytest.mark.parametrize("atomic", [False, True])
def test_what_has_landed_is_reported_whatever_comes_after(atomic: bool) -> None:
    repository = Repository(["head-b"], {"apps/b/kustomization.yaml": "images: [unfinished\n"})
    outcome = deliver(batch(repository), replace(JOB, atomic=atomic), world())
    assert repository.landed == ["head-a"]
    assert [commit.head for commit in outcome.commits] == ["head-a"]
    verdicts = {one.subscription.application.name: one.verdict.verdict for one in outcome.decisions}
    assert verdicts == {"a": "update", "b": "error"}


def test_the_one_that_was_outpaced_is_decided_again() -> None:
    repository = Repository(["head-b"], {"apps/b/kustomization.yaml": says("1.2.0")})
    outcome = deliver(batch(repository), JOB, world())
    assert repository.landed == ["head-a"]
    rules = {one.subscription.application.name: one.verdict.rule for one in outcome.decisions}
    assert rules == {"a": "admitted", "b": "not-newer"}


def test_what_an_override_file_says_differently_is_told_also_where_the_push_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing(Repository):
        def land(self, change: Changeset) -> Landing:
            raise RepositoryError(f"a hook refuses {change.destination.head}")

    def with_strays(*args: Any) -> tuple[list[PreparedCommit], list[Decision], list[Obsolete]]:
        changes, settled, obsolete = prepare_commits(*args)
        stray = Stray(changes[0].decisions[0].subscription, "f.yaml", (("a", "# from the Application"),))
        return [replace(change, strays=(stray,)) for change in changes], settled, obsolete

    monkeypatch.setattr("task.pipeline.deliver.prepare_commits", with_strays)
    outcome = deliver(batch(Refusing((), {})), JOB, world())
    assert {one.verdict.verdict for one in outcome.decisions} == {"error"}
    assert [stray.file for stray in outcome.strays] == ["f.yaml", "f.yaml"]
