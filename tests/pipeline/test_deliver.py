"""The delivery loop for one branch, with a minimal repository and world."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest
from support.fake_world import fake_world
from support.memory import Branch, story
from support.runs import WEB, application, target

from task.annotations.application import PREFIX, Narrow, parse_application
from task.annotations.subscription import Defaults, Scope, subscribe
from task.deciding.job import Ask, Job, Terms, Wording
from task.errors import Outpaced, RepositoryError, Trouble
from task.image import parse_image
from task.landing.changeset import Prepared, prepare_commits
from task.landing.ports import Batch, World
from task.model import Changeset, LandedCommit, Person, Place, Problem, Snapshot
from task.pipeline.deliver import deliver
from task.pipeline.match import asks_for_images

URL = "https://git.example/gitops.git"
IMAGE = parse_image(f"{WEB}:1.1.0")


def says(tag: str) -> str:
    return f"images:\n- name: {WEB}\n  newTag: {tag}\n"


class Repository(Branch):
    """A branch on which another run wins once for these head branches, and leaves these files."""

    def __init__(self, outpaced: Collection[str], then: dict[str, str]) -> None:
        super().__init__({f"apps/{name}/kustomization.yaml": says("1.0.0") for name in "ab"})
        self.outpaced, self.then = set(outpaced), then
        self.landed: list[str] = []

    def land(self, change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        if change.head in self.outpaced:
            self.outpaced.discard(change.head)
            self.commit(self.then)
            raise Outpaced(change.head)
        self.landed.append(change.head)
        return super().land(change, memory_change)


def batch(repository: Repository) -> Batch:
    asks: list[Ask] = []
    for name in "ab":
        app = parse_application(application(name, URL, git_branch=f"main:head-{name}"), PREFIX)
        asks += asks_for_images([subscribe(app)], [IMAGE]).asks
    return Batch(repository, "main", tuple(asks))


def world() -> World:
    clock = iter(range(1000))
    return fake_world(
        applications=list, locate=lambda _origin: None, repository=lambda _url, _sub: Repository((), {}),
        now=lambda: float(next(clock)), sleep=lambda _seconds: None, jitter=lambda: 0.5, log=lambda _level, _text: None,
    )  # fmt: skip


JOB = Job(
    "run",
    (IMAGE,),
    Scope(PREFIX, Narrow(), Defaults()),
    Terms(),
    Wording(Person("a", "a@example.com")),
)


@pytest.mark.parametrize("atomic", [False, True])
def test_landed_commits_are_reported_even_if_a_later_commit_fails(atomic: bool) -> None:
    repository = Repository(["head-b"], {"apps/b/kustomization.yaml": "images: [unfinished\n"})
    outcome = deliver(batch(repository), replace(JOB, atomic=atomic), world())
    assert repository.landed == ["head-a"]
    assert [commit.head for commit in outcome.commits] == ["head-a"]
    verdicts = {one.subscription.application.name: one.verdict for one in outcome.decisions}
    assert verdicts == {"a": "update", "b": "error"}


def test_only_the_application_that_lost_the_race_is_reevaluated() -> None:
    repository = Repository(["head-b"], {"apps/b/kustomization.yaml": says("1.2.0")})
    outcome = deliver(batch(repository), JOB, world())
    assert repository.landed == ["head-a"]
    rules = {one.subscription.application.name: one.rule for one in outcome.decisions}
    assert rules == {"a": "admitted", "b": "not-newer"}


def test_a_decision_is_never_based_on_the_files_of_two_commits() -> None:
    """If the store has to discard what it has fetched, it continues at the branch's current tip."""

    class Restarting(Repository):
        def read_more(self, snapshot: Snapshot, places: Iterable[Place]) -> Snapshot:
            if self.then:
                self.commit(self.then)
                self.then = {}
                return replace(super().read_more(snapshot, places), tip=self.tip)
            return super().read_more(snapshot, places)

    path = "apps/a/kustomization.yaml"
    repository = Restarting((), {path: says("1.0.0")})
    message = {".image-update/message": "deploy: {{.AppName}}"}
    config = {".image-update/config": "version: 1\ncommit: {template: .image-update/message}\n"}
    repository.commit({**config, **message, path: says("1.1.0")})
    app = parse_application(application("a", URL), PREFIX)
    asks = asks_for_images([subscribe(app)], [IMAGE]).asks
    outcome = deliver(Batch(repository, "main", tuple(asks)), JOB, world())
    assert [one.verdict for one in outcome.decisions] == ["update"]
    assert repository.files[path] == says("1.1.0")


def test_a_stale_second_entry_for_an_image_does_not_count_as_current() -> None:
    told = story("semver")
    named = (
        f"images:\n- name: web\n  newName: {WEB}\n  newTag: 1.0.0\n- name: {WEB}\n  newTag: 2.0.0\n"
    )
    told.branch.commit({target("a"): named})
    assert told.event("1.5.0") == ("refuse", "not-newer")
    assert told.branch.files[target("a")] == named
    assert told.event("2.1.0") == ("update", "admitted")
    assert told.branch.files[target("a")] == named.replace("1.0.0", "2.1.0").replace(
        "2.0.0", "2.1.0"
    )


def test_differences_in_an_override_file_are_reported_even_if_the_push_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing(Repository):
        def land(self, change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:  # noqa: ARG002
            raise RepositoryError(f"a hook refuses {change.head}")

    def with_cautions(*args: Any) -> Prepared:
        prepared = prepare_commits(*args)
        caution = Problem(Trouble.warning("target", "f.yaml differs"), application="argocd/a")
        commits = tuple(replace(change, cautions=(caution,)) for change in prepared.commits)
        return replace(prepared, commits=commits)

    monkeypatch.setattr("task.pipeline.deliver.prepare_commits", with_cautions)
    outcome = deliver(batch(Refusing((), {})), JOB, world())
    assert {one.verdict for one in outcome.decisions} == {"error"}
    assert [one.message for one in outcome.cautions] == ["f.yaml differs", "f.yaml differs"]
