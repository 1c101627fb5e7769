"""An image's `status`: rows for an in-memory branch, and builds found in a file's history."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.fake_world import fake_world
from support.memory import NOW, SCOPE, WORDING, Branch, story
from support.runs import KUSTOMIZATION

from task.annotations.application import PREFIX, parse_application
from task.annotations.subscription import subscribe
from task.commands.status import StatusDetails, past_builds, status
from task.deciding.job import Intent, Job, Terms
from task.errors import exit_of
from task.image import parse_image
from task.model import FileVersion, Found, Hold, Policy, Reading
from task.output.image_status import ImageStatus, Status
from task.output.status_views import facts, rules, state, summary

DIGEST = "sha256:" + "a" * 64


def said(
    *tags: str | None, commits: str = "abcdefghij"
) -> list[tuple[FileVersion, Reading | None]]:
    """Return a file's versions with these values, newest first. A blank means an unknown commit."""
    known = (f"{letter.strip()}" for letter in commits)
    return [
        (
            FileVersion("", next(known), NOW, "jane", "Change"),
            None if tag is None else Reading(tag=tag),
        )
        for tag in tags
    ]


@pytest.mark.parametrize(
    ("tags", "commits", "most", "cut", "found"),
    [
        ([], "", 5, False, []),
        (["2", "1"], "ab", 5, False, ["2a", "1b"]),
        (
            ["2", "2", "1"],
            "abc",
            5,
            False,
            ["2b", "1c"],
        ),  # the oldest version that contains the value wrote it
        (["2", "1", "2"], "abc", 5, False, ["2a", "1b", "2c"]),
        (["2", None, "2", "1"], "abcd", 5, False, ["2c", "1d"]),  # an unreadable version is ignored
        (["2", "", "2"], "abc", 5, False, ["2a", "2c"]),  # the value was missing for a while
        (["", ""], "ab", 5, False, []),
        (["3", "2", "1"], "abc", 2, False, ["3a", "2b"]),
        (["3", "3", "2", "2"], "abcd", 1, False, ["3b"]),
        (
            ["2", "1"],
            "a ",
            5,
            False,
            ["2a"],
        ),  # builds that predate the fetched history have no commit
        (["2", "1"], "ab", 5, True, ["2a"]),  # more versions exist, so 1 may be older than b
        (["2", "2"], "ab", 5, True, []),
        (["3", "2", "1"], "abc", 2, True, ["3a", "2b"]),
    ],
)
def test_the_latest_builds_are_found_in_the_file_history(
    tags: Sequence[str | None], commits: str, most: int, cut: bool, found: list[str]
) -> None:
    builds = past_builds(said(*tags, commits=commits), most, cut=cut)
    assert [f"{one.tag}{one.commit}" for one in builds] == found


def test_a_build_names_its_pipeline_run_without_credentials() -> None:
    message = "Update\n\nImage: a\nPipeline-Run: https://user:secret@ci.example/7\n"
    ((version, reading),) = said("1")
    (build,) = past_builds([(replace(version, message=message), reading)], 5)
    assert (build.pipeline_run, build.by, build.at) == ("https://ci.example/7", "jane", NOW)


def row(strategy: str = "newest-build", **more: object) -> ImageStatus:
    (sub,) = subscribe(parse_application(story(strategy).app, PREFIX)).subscriptions
    return replace(ImageStatus(sub, "main", "kustomization", Reading(tag="1.0.0")), **more)  # type: ignore[arg-type]


IMAGE = parse_image("ghcr.io/acme/web:1.1.0")


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (row(), "ok"),
        (row(live=(IMAGE,)), "differs"),
        (row(live=(IMAGE, replace(IMAGE, tag="1.0.0"))), "ok"),
        (row(live=(replace(IMAGE, tag="1.0.0", digest=DIGEST),)), "ok"),
        (row(live=(IMAGE,), in_git=Reading()), "ok"),  # not in Git
        (row(newest=IMAGE, live=(IMAGE,)), "behind"),
        (row(newest=replace(IMAGE, tag="1.0.0")), "ok"),
        (
            row(newest=replace(IMAGE, tag="0.9.0"), strategy="semver"),
            "ok",
        ),  # the registry no longer contains the newer tags
        (row(newest=replace(IMAGE, tag="1.0.0", digest=DIGEST)), "ok"),  # Git does not pin a digest
        (
            row(
                newest=replace(IMAGE, digest=DIGEST),
                in_git=Reading(tag="1.1.0", digest=DIGEST[:-1] + "b"),
            ),
            "behind",
        ),
        (row(newest=IMAGE, in_git=Reading()), "behind"),
        (
            row(
                newest=replace(IMAGE, tag="0.9.0"), strategy="semver", in_git=Reading(tag="nightly")
            ),
            "behind",
        ),
        (row(newest=replace(IMAGE, tag="0.9.0")), "behind"),  # newest-build does not order tags
        (row(hold=Hold("x"), newest=IMAGE), "held"),
    ],
)
def test_each_images_state_is_summarized_in_one_word(one: ImageStatus, word: str) -> None:
    assert state(one) == word


def test_an_images_rules_are_described_in_words() -> None:
    (sub,) = subscribe(parse_application(story().app, PREFIX)).subscriptions
    policy = Policy(
        "semver", ("~1", "<1.5"), "^v", ("*-rc*", "nightly"), ("linux/amd64",), pin_digest=True
    )
    one = ImageStatus(replace(sub, policy=policy, pull_request=True, head_template="updates"))
    assert rules(one) == (
        "semver ~1 and <1.5; allow-tags ^v; ignore-tags *-rc*, nightly; platforms linux/amd64; pin-digest; "
        "by pull request; to branch updates"
    )
    assert (
        dict(facts(row(hold=Hold("why", "jane", NOW))))["hold"]
        == "by jane since 2026-11-22 12:00 UTC: why (all images of the Application)"
    )
    assert (
        dict(facts(row(hold=Hold("locked by flux"), scope="image")))["hold"]
        == "locked by flux (this image)"
    )
    assert (
        summary(Status((row(), row(hold=Hold("x"))), (), 1))
        == "2 images of 1 Application: 1 held, 1 ok"
    )


def look_at(branch: Branch, *images: str, builds: int = 5, app: object = None) -> Status:
    """Return the status of the Application `a` on an in-memory branch."""
    world = fake_world(
        applications=lambda: [Found(app or story("semver").app, "applications.json:1")], locate=lambda _origin: None,  # type: ignore[arg-type]
        repository=lambda _url, _subscription: branch, now=lambda: 0.0, sleep=lambda _seconds: None,
        jitter=lambda: 0.5, log=lambda _level, _text: None,
    )  # fmt: skip
    job = Job("status", tuple(map(parse_image, images)), SCOPE, Terms(now=NOW), WORDING, dry=True)
    return status(job, world, StatusDetails(builds=builds))


def test_a_hold_is_shown_with_its_start_and_the_waiting_version() -> None:
    made = story("semver")
    made.event("1.1.0")
    made.hold("freeze")
    made.event("1.2.0")
    made.event("1.3.0")
    before = list(made.branch.commits)
    (one,) = look_at(made.branch).images
    assert made.branch.commits == before
    assert one.hold == Hold("freeze", "jane", NOW)
    assert (one.scope, one.in_git.tag, one.deferred and one.deferred.tag) == (
        "application",
        "1.1.0",
        "1.3.0",
    )
    assert one.deferred_at == NOW
    assert [(build.tag, build.pipeline_run) for build in one.builds] == [
        ("1.1.0", "https://ci.example/2"),
        ("1.0.0", "https://ci.example/1"),
    ]
    assert look_at(made.branch, builds=0).images[0].builds == ()


@pytest.mark.parametrize(("until", "held"), [("2026-11-22T12:00:01Z", True), (NOW, False)])
def test_an_expired_hold_is_not_shown(until: str, held: bool) -> None:
    made = story("semver")
    hold = Intent("hold", Hold("freeze", "jane", NOW, until))
    made.run(Job("hold", (), SCOPE, Terms(now="2026-11-22T11:00:00Z"), WORDING, intent=hold))
    assert (look_at(made.branch).images[0].hold is not None) == held


def test_the_builds_before_and_after_a_rollback_are_shown() -> None:
    made = story("semver")
    made.event("1.1.0")
    made.rollback("previous")
    (one,) = look_at(made.branch).images
    assert [build.tag for build in one.builds] == ["1.0.0", "1.1.0", "1.0.0"]
    assert one.hold


@pytest.mark.parametrize("tag", ["1.2.0", "1.0.0", "0.1.0", "latest"])
@pytest.mark.parametrize("held", [True, False])
def test_the_predicted_decision_matches_the_actual_decision(tag: str, held: bool) -> None:
    made = story("semver")
    if held:
        made.hold("freeze")
    (one,) = look_at(made.branch, f"ghcr.io/acme/web:{tag}").images
    assert one.would
    assert (one.would.verdict, one.would.rule) == made.event(tag)


def test_a_missing_target_is_reported_as_an_error_and_as_a_row() -> None:
    found = look_at(Branch({"other": KUSTOMIZATION}))
    assert [(one.in_git.tag, one.kind) for one in found.images] == [("", None)]
    assert [(one.application, one.rule) for one in found.problems] == [("argocd/a", "source")]
    assert exit_of(found.problems) == 3
