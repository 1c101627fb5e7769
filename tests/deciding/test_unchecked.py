"""Warnings about facts that registries could not provide: their consequences and hints."""

import pytest
from support.memory import SCOPE, URL, WORDING, Branch, Story
from support.runs import KUSTOMIZATION, WEB, application, target

from task.annotations.subscription import subscribe
from task.deciding.job import Job, Terms
from task.deciding.weigh import unchecked
from task.errors import CredentialsError, TamperedError, UnreachableError
from task.image import parse_image
from task.model import Answer, Application, Build, Fact, Report, Source

(SUB,) = subscribe(
    Application(
        "argocd",
        "web",
        {"image-list": "web=ghcr.io/acme/web", "web.platforms": "linux/arm64,linux/amd64"},
        (Source("https://git.example/x.git", "apps/web", "main", kind="Helm", section="Helm"),),
    )
).subscriptions
DOWN = Answer(error=UnreachableError("ghcr.io is down", hint="run it again"))
NO_LOGIN = Answer(error=CredentialsError("there is no secret x", hint="create it"))


@pytest.mark.parametrize(
    ("answer", "needed", "message", "hint"),
    [
        (
            NO_LOGIN,
            ["platforms"],
            "could not check whether the image supports linux/arm64 or linux/amd64: there is",
            "create it",
        ),
        (
            DOWN,
            ["platforms"],
            "could not check whether the image supports",
            "pass --registry-check always to block such updates",
        ),
        (
            DOWN,
            ["created", "created"],
            "the build that arrives last counts as newer: ghcr.io is down",
            "--sequence",
        ),
        (
            DOWN,
            ["platforms", "created"],
            "or linux/amd64; cannot tell which build is newer",
            "--sequence",
        ),
        (
            DOWN,
            ["labels"],
            "the commit message lacks the image's labels: ghcr.io",
            "--registry-check always",
        ),
    ],
)
def test_a_warning_names_the_unknown_fact_and_a_remedy(
    answer: Answer, needed: list[Fact], message: str, hint: str
) -> None:
    found = unchecked(answer, needed, SUB)
    assert found is not None
    assert message in found.message
    assert hint in found.hint
    assert "run it again" not in found.hint


def test_only_decisions_that_needed_the_fact_include_a_warning() -> None:
    """Each decision has access to the results of all registry queries in the run."""
    newest = application("web", URL, update_strategy="newest-build")
    story = Story(newest, Branch({target(name): KUSTOMIZATION for name in ("web", "api")}))
    story.others, story.answer = [application("api", URL)], DOWN
    report = story.run(Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(), WORDING))
    assert [one.verdict for one in report.decisions] == ["update", "update"]
    assert [one.application for one in report.problems] == ["argocd/web"]


@pytest.mark.parametrize(
    "annotations", [{"update_strategy": "newest-build"}, {"web.platforms": "linux/amd64"}]
)
def test_content_that_does_not_match_its_digest_is_an_error(
    annotations: dict[str, str],
) -> None:
    """The image is written if it is unknown which build is newer."""
    story = Story(application("web", URL, **annotations), Branch({target("web"): KUSTOMIZATION}))
    story.answer = Answer(error=TamperedError("ghcr.io answers with other bytes", hint="check it"))
    report = story.run(Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(), WORDING))
    (decision,) = report.decisions
    assert (decision.verdict, decision.judged.rule) == ("error", "registry")
    assert report.commits == ()


def test_a_complete_result_causes_no_warning() -> None:
    assert unchecked(Answer(), ["platforms"], SUB) is None
    assert unchecked(None, ["platforms"], SUB) is None


def test_a_failed_comparison_across_two_counters_is_explained() -> None:
    """The hint used to be "pass --sequence", although both builds had a sequence number."""
    newest = application("web", URL, update_strategy="newest-build")
    story = Story(newest, Branch({target("web"): KUSTOMIZATION}))
    story.answer = DOWN

    def run(tag: str, build: Build) -> Report:
        terms = Terms(build=build)
        return story.run(Job("run", (parse_image(f"{WEB}:{tag}"),), SCOPE, terms, WORDING))

    run("1.1.0", Build(7, "github:github.com/acme/web"))
    (problem,) = run("1.2.0", Build(3, "jenkins:ci.example.com/web")).problems
    assert "cannot tell which build is newer" in problem.message
    assert (
        "this build uses jenkins:ci.example.com/web, the one in Git github:github.com/acme/web"
        in (problem.hint)
    )
