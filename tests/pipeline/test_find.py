"""Which branch a run begins to fetch before it is needed."""

from typing import Any

import pytest
from fake_world import FakeWorld
from memory import NOW, SCOPE, URL, WORDING
from runs import WEB, application

from task.applications import Found
from task.image import parse_image
from task.model import Hold, Subscription
from task.pipeline.find import find
from task.pipeline.job import Intent, Job, Promotion, Terms

OTHER = "https://git.example/other.git"


def expected(*apps: dict[str, Any], job: Job | None = None) -> list[tuple[str, str]]:
    """(repository, branch) of what is fetched ahead for an event."""
    asked: list[tuple[str, str]] = []

    def expect(repo: str, _sub: Subscription, branch: str) -> None:
        asked.append((repo, branch))

    world = FakeWorld(
        applications=lambda: [Found(one, "applications.json:1") for one in apps],
        locate=lambda _origin: None, repository=lambda _url, _sub: None,
        now=lambda: 0.0, sleep=lambda _seconds: None, jitter=lambda: 0.5, log=lambda _level, _text: None, expect=expect,
    )  # fmt: skip
    find(job or Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(now=NOW), WORDING), world)
    return asked


def app(name: str = "a", repo: str = URL, branch: str = "main", **annotations: str) -> dict[str, Any]:
    made = application(name, repo, **annotations)
    made["spec"]["source"]["targetRevision"] = branch
    return made


@pytest.mark.parametrize(
    ("apps", "wanted"),
    [
        ([app()], [(URL, "main")]),
        ([app(branch="HEAD")], [(URL, "")]),
        ([app(), app("b")], [(URL, "main")]),
        ([app(git_branch="deploy")], [(URL, "deploy")]),
        ([app(), app("b", branch="test")], []),  # two branches
        ([app(), app("b", OTHER)], []),  # two repositories, which are read at the same time anyway
        ([app(git_branch="main:updates")], []),  # the tips of base and head branch come together
        ([app(pull_request="true")], []),
        ([app(image_list=f"web={WEB}:2.x")], []),  # refused without Git
        ([app(image_list="web=ghcr.io/acme/other")], []),
        ([app(write_back_method="argocd")], []),
    ],
)
def test_one_branch_of_one_repository_that_git_has_to_say_something_about(
    apps: list[dict[str, Any]], wanted: list[tuple[str, str]]
) -> None:
    assert expected(*apps) == wanted


def test_an_atomic_run_reads_nothing_for_an_application_that_another_stops() -> None:
    broken = app("b", update_strategy="nonsense")
    job = Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(now=NOW), WORDING)
    assert expected(app(), broken, job=job) == [(URL, "main")]
    assert expected(app(), broken, job=Job("run", job.images, SCOPE, job.terms, WORDING, atomic=True)) == []


def test_a_person_waits_as_little_as_an_event() -> None:
    hold = Intent("hold", Hold("why", "jane", NOW))
    assert expected(app(), job=Job("hold", (), SCOPE, Terms(now=NOW), WORDING, intent=hold)) == [(URL, "main")]


def test_scan_asks_the_registry_first() -> None:
    assert expected(app(), job=Job("scan", (), SCOPE, Terms(now=NOW), WORDING)) == []


def test_promote_reads_the_sources_first() -> None:
    job = Job("promote", (), SCOPE, Terms(now=NOW), WORDING, promotion=Promotion(("a",), ("b",)))
    assert expected(app(), app("b"), job=job) == []
