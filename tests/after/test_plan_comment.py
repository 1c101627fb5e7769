"""The text of a plan's comment, and what happens where it cannot be written."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from fake_world import FakeWorld
from hypothesis import given
from hypothesis import strategies as st
from memory import SCOPE, WORDING
from reports import decision, report
from runner_rules import ATTACKS

from task.after.plan_comment import commented, text_of
from task.deciding.job import Job, PlanComment, PullRequestOptions, Terms
from task.errors import CredentialsError, TaskError
from task.landing.ports import Comments, World
from task.model import Application, Problem, Reading, Report, TargetKind, Verdict

MARK = f"<!-- image-update-plan: {'ab' * 32} -->"
LINKS = PullRequestOptions(source="https://github.com/acme/web/commit/0123456", run="https://ci.example.com/runs/7")
REQUEST = PlanComment("https://github.com/acme/web", "7", "ab" * 32)
JOB = Job("plan", (), SCOPE, Terms(), WORDING, dry=True, requests=LINKS, comment=REQUEST)


def test_it_says_who_would_take_the_build_and_why() -> None:
    plan = report(
        decision("unchanged", "same", name="c"),
        replace(decision(name="b"), judged=Verdict("refuse", "constraint", "1.1.0 is outside ~2")),
        decision(name="a"),
        problems=(
            Problem(
                application="argocd/d",
                rule="annotation",
                message="strange key",
                hint="write another",
                severity="warning",
            ),
        ),
        command="plan",
    )
    assert (
        text_of(plan, JOB, MARK)
        == f"""\
### Image Update: 1 to update, 1 current, 1 skipped

Plan for `ghcr.io/acme/web:1.1.0`

| Application | Image | Now | Decision | Why |
| --- | --- | --- | --- | --- |
| `argocd/a` | `ghcr.io/acme/web:1.1.0` | `1.0.0` | update `admitted` | `so` |
| `argocd/b` | `ghcr.io/acme/web:1.1.0` | `1.0.0` | skipped `constraint` | `1.1.0 is outside ~2` |
| `argocd/c` | `ghcr.io/acme/web:1.1.0` | `1.0.0` | current `same` | `so` |

- warning: `argocd/d` `strange key` `write another`

Built from [`commit/0123456`](https://github.com/acme/web/commit/0123456) · \
planned by [`runs/7`](https://ci.example.com/runs/7) · Nothing was written.

{MARK}
"""
    )


def test_nobody_takes_it() -> None:
    shown = text_of(report(command="plan"), JOB, MARK)
    assert shown.startswith("### Image Update: no Application tracks this build\n")
    assert "1 Application was read." in shown
    assert "7 Applications were read." in text_of(replace(report(command="plan"), considered=7), JOB, MARK)


@pytest.mark.parametrize(("kind", "shown"), [(None, "not read"), ("helm-override", "(none)")])
def test_a_version_that_is_not_known_has_words(kind: TargetKind | None, shown: str) -> None:
    unread = replace(decision("error", "target"), current=Reading(), kind=kind)
    assert f"| `ghcr.io/acme/web:1.1.0` | {shown} | failed `target` |" in text_of(report(unread), JOB, MARK)


def evil(text: str) -> Report:
    app = Application(text, text, {}, ())
    one = decision()
    sub = replace(one.subscription, application=app)
    one = replace(one, subscription=sub, judged=Verdict("error", text, text, text))
    return report(one, problems=(Problem(application=text, rule=text, message=f"x{text}", hint=text),), command="plan")


def outside_code(shown: str) -> str:
    return re.sub(r"`[^`\n]*`", "CODE", shown).replace(MARK, "")


@pytest.mark.parametrize("text", [*ATTACKS, "@all", "`x` | y", "<!-- -->", "--> x", "/merge", "x\n/merge", "![x](//y)"])
def test_what_others_name_is_code(text: str) -> None:
    shown = text_of(evil(text), JOB, MARK)
    plain = outside_code(shown)
    assert not set(plain) & set("<>@`!"), plain
    assert [line for line in shown.splitlines() if line.startswith("/")] == []
    assert [line.count("|") for line in plain.splitlines() if "|" in line] == [6, 6, 6]


@given(st.text(max_size=300), st.integers(0, 200), st.sampled_from([4_000, 32_768, 65_536]))
def test_it_is_never_too_long_and_the_mark_is_whole(text: str, many: int, longest: int) -> None:
    one = evil(text)
    shown = text_of(replace(one, decisions=one.decisions * many, problems=one.problems[:1]), JOB, MARK, longest)
    assert len(shown) <= longest
    assert shown.endswith(f"\n{MARK}\n")


def test_a_login_in_a_url_is_not_shown() -> None:
    url = "https://jane:secret@git.example.com/x"
    one = replace(decision(), judged=Verdict("error", "source", f"see {url}"))
    plan = report(one, problems=(Problem(rule="source", message=url, hint=url),), command="plan")
    assert "secret" not in text_of(plan, JOB, MARK)


class Page:
    """The comments of a forge, which keeps what it is given."""

    def __init__(self, forge: str = "github") -> None:
        self.forge, self.given = forge, list[tuple[str, str, str]]()

    def put(self, request: str, mark: str, body: str) -> str:
        self.given.append((request, mark, body))
        return "https://x.example/7#1"


def world(comments: Callable[[str], Comments]) -> World:
    """Of which only comments and the log are needed."""
    said: list[str] = []
    nothing: list[Comments] = []
    return FakeWorld(
        applications=list, locate=lambda _origin: None, repository=lambda *_: nothing[0],
        now=lambda: 0.0, sleep=lambda _seconds: None, jitter=lambda: 0.5, log=lambda _level, text: said.append(text),
        comments=comments,
    )  # fmt: skip


def test_it_is_put_where_the_job_says() -> None:
    page = Page()
    plan = report(decision(), command="plan")
    assert commented(plan, JOB, world(lambda _repo: page)) == plan
    ((request, mark, body),) = page.given
    assert (request, mark) == ("7", MARK)
    assert body == text_of(plan, JOB, MARK)


def test_the_mark_where_html_is_shown_as_text() -> None:
    page = Page("bitbucket")
    commented(report(decision(), command="plan"), JOB, world(lambda _repo: page))
    assert page.given[0][1] == f"[//]: # (image-update-plan: {'ab' * 32})"


def test_a_comment_that_fails_is_a_warning() -> None:
    def fails(_repo: str) -> Comments:
        raise error

    error: TaskError = CredentialsError("no API token", hint="give one")
    plan = report(decision(), command="plan")
    (told,) = commented(plan, JOB, world(fails)).problems
    assert (told.severity, told.rule, told.exit) == ("warning", "credentials", 0)
    assert (told.message, told.hint) == ("the plan is in no comment: no API token", "give one")
