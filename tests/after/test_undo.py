"""`--on-failure rollback`: what a run does and does not roll back after a failed rollout."""

import threading
from collections.abc import Callable, Collection, Sequence
from itertools import permutations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.memory import NOW, SCOPE, URL, WORDING, Branch, Story, story
from support.runs import KUSTOMIZATION, WEB, application, target

from task.after.follow_up import LONGEST_CAUSE
from task.deciding.job import Failure, Followed, Job, LandedApplication, Terms
from task.errors import Exit, TaskError, Trouble
from task.image import parse_image
from task.model import Answer, Build, Changeset, LandedCommit, Problem, Question, Report, Verdict
from task.proof import Proof

STATE = ".image-update/apps/a/argocd_a.state"
CAUSE = "degraded: Deployment web: exceeded its progress deadline"


def failing(
    scene: Story, meanwhile: Callable[[], object] = lambda: None, cause: str = CAUSE
) -> Story:
    """Return the scene with failing rollouts. `meanwhile` is called during the wait."""

    def follow(landed: Sequence[LandedApplication]) -> Followed:
        scene.follow = lambda _landed: Followed()  # only this run fails
        meanwhile()
        problem = Problem(Trouble("rollout", cause, exit=Exit.ROLLOUT), application="argocd/a")
        return Followed((problem,), tuple(Failure((one,), cause) for one in landed))

    scene.follow = follow
    return scene


def waited(scene: Story, tag: str, sequence: int | None = None) -> Report:
    """Run with `--wait --on-failure rollback`."""
    terms = Terms(build=Build(sequence=sequence), now=NOW)
    return scene.run(Job("run", (parse_image(f"{WEB}:{tag}"),), SCOPE, terms, WORDING, undo=True))


def notes(report: Report) -> list[tuple[str, str]]:
    return [(one.severity, one.message) for one in report.problems]


def test_a_failed_rollout_is_rolled_back_and_held() -> None:
    scene = failing(story("semver"))
    report = waited(scene, "1.1.0")
    assert report.exit == 6
    assert [one.verdict for one in report.decisions] == ["update"]
    assert [one.rollback for one in report.commits] == [False, True]
    assert [(one.current.tag, one.candidate.version) for one in report.undone] == [
        ("1.1.0", "1.0.0")
    ]
    assert scene.value == "1.0.0"
    assert len(scene.branch.commits) == 3
    assert notes(report) == [("error", CAUSE), ("warning", f"rolled back: {WEB} is held at 1.0.0")]
    (memory,) = yaml.safe_load(scene.branch.files[STATE])["files"].values()
    hold = memory["images"]["web"]["hold"]
    assert hold["reason"] == f"the rollout of 1.1.0 failed: {CAUSE}"
    assert hold["by"] == "image-update --on-failure rollback"
    assert scene.event("1.1.0") == ("refuse", "superseded")
    assert scene.event("1.2.0") == ("defer", "held")
    scene.release()
    assert scene.value == "1.2.0"


@pytest.mark.parametrize("strategy", ["newest-build", "alphabetical", "semver"])
@pytest.mark.parametrize("identified", [True, False])
def test_a_replay_of_a_rolled_back_build_changes_nothing(strategy: str, identified: bool) -> None:
    scene = failing(story(strategy))
    waited(scene, "1.1.0", 7 if identified else None)
    scene.release()
    assert scene.value == "1.0.0"
    assert scene.event("1.1.0", 7 if identified else None) == ("refuse", "superseded")
    assert scene.event("1.2.0", 8 if identified else None) == ("update", "admitted")


def test_a_newer_build_that_landed_before_the_rollback_is_kept() -> None:
    scene = story("semver")
    failing(scene, lambda: scene.event("1.2.0"))
    report = waited(scene, "1.1.0")
    assert (report.exit, scene.value) == (6, "1.2.0")
    assert [one.rollback for one in report.commits] == [False, False]
    (memory,) = yaml.safe_load(scene.branch.files[STATE])["files"].values()
    assert memory["images"]["web"] == {"failed": ["1.1.0"]}  # but no hold
    assert notes(report)[1] == (
        "warning",
        f"not rolled back: {WEB}: Git now has 1.2.0, not 1.1.0",
    )


def test_the_commit_about_a_late_failure_mentions_no_rollback() -> None:
    scene = story("semver")
    messages: list[str] = []
    land = scene.branch.land

    def told(change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        messages.append(change.message)
        return land(change, memory_change)

    scene.branch.land = told  # type: ignore[method-assign]
    waited(failing(scene, lambda: scene.event("1.2.0")), "1.1.0")
    assert messages[-1].splitlines() == [
        "remember a failed version of a",
        "",
        "a (web): Git now has 1.2.0, not 1.1.0",
        "",
        "Application: argocd/a",
    ]


def rollout(scene: Story, number: int) -> Callable[[], None]:
    """Land a build in a waiting run, and return a function that makes its rollout fail."""
    landed, fails = threading.Event(), threading.Event()

    def follow(given: Sequence[LandedApplication]) -> Followed:
        landed.set()
        assert fails.wait(60)
        return Followed((), tuple(Failure((one,), CAUSE) for one in given))

    scene.follow = follow
    run = threading.Thread(target=waited, args=(scene, f"1.{number}.0", number), daemon=True)
    run.start()
    assert landed.wait(60)

    def fail() -> None:
        fails.set()
        run.join(60)

    return fail


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["newest-build", "semver"])
@pytest.mark.parametrize("order", [*permutations((1, 2)), *permutations((1, 2, 3))])
def test_a_series_of_failing_builds_ends_at_the_version_before_them(
    order: Sequence[int], strategy: str
) -> None:
    """All builds land before the first one fails."""
    scene = story(strategy)
    fails = {number: rollout(scene, number) for number in sorted(order)}
    for number in order:
        fails[number]()
    assert scene.value == "1.0.0"


@pytest.mark.slow
@given(st.sampled_from(["newest-build", "semver"]), st.lists(st.integers(0, 5), max_size=14))
def test_a_rollback_never_restores_a_failed_version(strategy: str, steps: list[int]) -> None:
    """The numbers 0 and 1 land the next build. Any other number makes an awaited rollout fail."""
    scene = story(strategy)
    waiting: dict[int, Callable[[], None]] = {}
    failed: set[str] = set()
    number = 0
    for step in steps:
        if step < 2:
            number += 1
            waiting[number] = rollout(scene, number)
        elif waiting:
            fails = sorted(waiting)[step % len(waiting)]
            waiting.pop(fails)()
            failed.add(f"1.{fails}.0")
        assert scene.value not in failed
    for number in sorted(waiting):
        waiting[number]()
        assert scene.value != f"1.{number}.0"


def test_a_version_held_by_a_person_is_not_rolled_back() -> None:
    scene = story("semver")
    failing(scene, lambda: scene.hold("I am looking into it"))
    report = waited(scene, "1.1.0")
    assert scene.value == "1.1.0"
    assert "I am looking into it" in notes(report)[1][1]


def test_a_version_that_this_run_did_not_write_is_not_rolled_back() -> None:
    scene = story("semver")
    scene.event("1.1.0")
    report = waited(failing(scene), "1.1.0")
    assert [one.verdict for one in report.decisions] == ["unchanged"]
    assert scene.value == "1.1.0"
    assert notes(report)[1] == ("warning", "not rolled back: this run did not update it")


def test_a_first_version_is_not_rolled_back() -> None:
    scene = story("semver")
    scene.branch.commit({target("a"): "resources: []\n"})
    report = waited(failing(scene), "1.1.0")
    assert scene.value == "1.1.0"
    assert notes(report)[1] == (
        "warning",
        f"not rolled back: {WEB}: there is no previous version",
    )


def test_an_update_on_a_head_branch_is_not_rolled_back() -> None:
    scene = story("semver", git_branch="main:updates")
    report = waited(failing(scene), "1.1.0")
    told = f"not rolled back: {WEB}: it is on the branch updates, but it was never on main"
    assert notes(report)[1] == ("warning", told)


def test_without_the_on_failure_option_no_version_is_rolled_back() -> None:
    scene = failing(story("semver"))
    terms = Terms(now=NOW)
    report = scene.run(Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, terms, WORDING))
    assert (report.exit, scene.value, len(report.commits)) == (6, "1.1.0", 1)


def test_only_the_written_image_is_held() -> None:
    db = "ghcr.io/acme/db"
    scene = Story(
        application("a", URL, image_list=f"web={WEB},db={db}"),
        failing(story()).branch,
    )
    scene.branch.commit({target("a"): KUSTOMIZATION + f"- name: {db}\n  newTag: 1.0.0\n"})
    waited(failing(scene), "1.1.0")
    assert scene.value == "1.0.0"
    assert scene.event("2.0.0", image=db) == ("update", "admitted")
    assert scene.event("2.0.0") == ("defer", "held")


def test_a_digest_is_restored_together_with_its_tag() -> None:
    before, after = (f"sha256:{letter * 64}" for letter in "ab")
    scene = story("newest-build")
    scene.branch.commit(
        {target("a"): KUSTOMIZATION.replace("1.0.0", "live") + f"  digest: {before}\n"}
    )
    there = scene.branch.files[target("a")]
    waited(failing(scene), f"live@{after}", 7)
    assert scene.branch.files[target("a")] == there
    assert scene.event(f"live@{after}", 7)[0] != "update"


def test_the_rollback_commit_does_not_name_the_builds_source() -> None:
    scene = failing(story("semver"))
    messages: list[str] = []
    land = scene.branch.land

    def told(change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        messages.append(change.message)
        return land(change, memory_change)

    scene.branch.land = told  # type: ignore[method-assign]
    trailers = (
        ("Source-Commit", "a" * 40),
        ("Pipeline-Run", "https://ci/1"),
        ("Argocd-reference-commit-sha", "a" * 40),
    )
    wording = WORDING.__class__(WORDING.author, trailers=trailers)
    scene.run(Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(now=NOW), wording, undo=True))
    first, back = messages
    assert "Source-Commit: " in first
    assert back.startswith("roll back a from 1.1.0 to 1.0.0\n")
    assert "Source-Commit" not in back
    assert "Argocd-reference" not in back
    assert "Pipeline-Run: https://ci/1" in back


def test_a_hostile_failure_cause_is_reduced_to_one_printable_line() -> None:
    scene = failing(story("semver"), cause=f"\x1b[31m{'x' * 9999}\nhttps://me:secret@git.example/")
    waited(scene, "1.1.0")
    (memory,) = yaml.safe_load(scene.branch.files[STATE])["files"].values()
    reason = memory["images"]["web"]["hold"]["reason"]
    assert len(reason) < LONGEST_CAUSE + 100
    assert reason.isprintable()
    assert "secret" not in scene.branch.files[STATE]


class Raced(Branch):
    """A branch to which others push commits between a writer's read and push."""

    def __init__(self) -> None:
        super().__init__({target("a"): KUSTOMIZATION})
        self.before: dict[int, Callable[[], object]] = {}  # called before the n-th push

    def land(self, change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        self.before = {number - 1: happens for number, happens in self.before.items()}
        self.before.pop(0, lambda: None)()
        return super().land(change, memory_change)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(1, 6), st.booleans(), st.lists(st.integers(1, 9), max_size=2), st.booleans()
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_rollback_never_overwrites_a_newer_build(
    builds: list[tuple[int, bool, list[int], bool]],
) -> None:
    """Others push during the wait or right before the rollback's push. The newest build is kept."""
    branch = Raced()
    scene = Story(application("a", URL, update_strategy="newest-build"), branch)
    newest = 0
    for number, fails, others, late in builds:
        landed: list[int] = []

        def race(others: Sequence[int] = others, landed: list[int] = landed) -> None:
            branch.before = {}
            landed += [one for one in others if scene.event(f"b{one}", one)[0] == "update"]

        if fails:
            failing(scene, (lambda: None) if late else race)
            branch.before = {2: race} if late else {}
        before = scene.value
        report = waited(scene, f"b{number}", number)
        branch.before = {}
        wrote = any(one.verdict == "update" for one in report.decisions)
        undone = any(one.rollback for one in report.commits)
        assert undone == (fails and wrote and not landed)
        if undone:
            assert scene.value == before
            scene.release()
        else:
            newest = max([newest, *landed, *([number] if wrote else [])])
            assert scene.value == (f"b{newest}" if newest else "1.0.0")


def test_a_rollback_to_an_unproven_version_is_written_with_a_warning() -> None:
    """For a rollback, a missing proof only causes a warning. Any other write requires proof."""
    scene = story("semver")
    config = "version: 1\nsignatures: {keys: [ci.pub]}\n"
    scene.branch.commit({".image-update/config": config, "ci.pub": "a key"})
    scene.answer = Answer(digest=f"sha256:{'a' * 64}")
    good: list[str] = []

    def prove(questions: Collection[Question]) -> dict[Question, Proof | Verdict | TaskError]:
        no = Verdict("refuse", "signature", "the registry has no signature")
        return {
            one: Proof("signature", "ci.pub") if one.image.tag in good else no for one in questions
        }

    scene.prove = prove
    assert scene.event("1.1.0") == ("refuse", "signature")
    good.append("1.1.0")
    report = waited(failing(scene), "1.1.0")
    assert [one.proof for one in report.decisions] == [Proof("signature", "ci.pub")]
    assert (scene.value, [one.proof for one in report.undone]) == ("1.0.0", [None])
    assert [
        message
        for severity, message in notes(report)
        if "not proved" in message and severity == "warning"
    ]
