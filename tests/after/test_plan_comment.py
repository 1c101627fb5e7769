"""The text of the plan comment, and the warning if the comment cannot be posted."""

from collections.abc import Callable
from typing import Any

from support.fake_world import fake_world
from support.memory import SCOPE, WORDING
from support.reports import decision, report

from task.after.follow_up import commented
from task.deciding.job import Job, PlanComment, PullRequestOptions, Terms
from task.errors import CredentialsError, TaskError
from task.landing.ports import World
from task.output.markdown import summary
from task.output.report_json import as_json

MARK = f"<!-- image-update-plan: {'ab' * 32} -->"
LINKS = PullRequestOptions(
    source="https://github.com/acme/web/commit/0123456", run="https://ci.example.com/runs/7"
)
REQUEST = PlanComment("https://github.com/acme/web", "7", "ab" * 32)
JOB = Job("plan", (), SCOPE, Terms(), WORDING, dry=True, requests=LINKS, comment=REQUEST)


class Page:
    """A fake of a forge's comment API that records what is posted."""

    def __init__(self, forge: str = "github") -> None:
        self.forge, self.given = forge, list[tuple[str, str, str]]()

    def put(self, request: str, mark: str, body: str) -> str:
        self.given.append((request, mark, body))
        return "https://x.example/7#1"


def world(comments: Callable[[str], Page]) -> World:
    """Return a world that contains only comments and the log."""
    said: list[str] = []
    nothing: list[Any] = []
    return fake_world(
        applications=list, locate=lambda _origin: None, repository=lambda *_: nothing[0],
        now=lambda: 0.0, sleep=lambda _seconds: None, jitter=lambda: 0.5, log=lambda _level, text: said.append(text),
        comments=comments,
    )  # fmt: skip


def test_the_comment_is_posted_to_the_pull_request_of_the_ci_job() -> None:
    page = Page()
    plan = report(decision(), command="plan")
    assert commented(plan, JOB, world(lambda _repo: page)) == plan
    ((request, mark, body),) = page.given
    assert (request, mark) == ("7", MARK)
    assert body == f"{summary(as_json(plan), 60_000)}\n{MARK}\n"


def test_the_comment_marker_is_plain_markdown_on_bitbucket() -> None:
    page = Page("bitbucket")
    commented(report(decision(), command="plan"), JOB, world(lambda _repo: page))
    assert page.given[0][1] == f"[//]: # (image-update-plan: {'ab' * 32})"


def test_a_comment_that_cannot_be_posted_causes_a_warning() -> None:
    def fails(_repo: str) -> Page:
        raise error

    error: TaskError = CredentialsError("no API token", hint="give one")
    plan = report(decision(), command="plan")
    (told,) = commented(plan, JOB, world(fails)).problems
    assert (told.severity, told.rule, told.exit) == ("warning", "credentials", 0)
    assert (told.message, told.hint) == (
        "could not post the plan as a comment: no API token",
        "give one",
    )
