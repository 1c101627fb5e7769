"""`rollback --failed`: a late post-deployment test rolls back only the build that it tested."""

from collections.abc import Sequence

import pytest
import yaml
from support.memory import NOW, SCOPE, WORDING, Story, story
from support.runs import KUSTOMIZATION, WEB, target

from task.cli.job import job_of
from task.deciding.job import Failure, Followed, Job, LandedApplication, Terms
from task.errors import UsageError
from task.image import parse_image
from task.model import Build
from task.settings import RollbackOptions, Settings

STATE = ".image-update/apps/a/argocd_a.state"
CAUSE = "degraded: Deployment web: exceeded its progress deadline"


def three_builds() -> Story:
    """Land 1.1.0 and 1.2.0 after 1.0.0, while both are still being tested."""
    scene = story("semver")
    scene.event("1.1.0")
    scene.event("1.2.0")
    return scene


def test_a_late_failure_does_not_undo_a_newer_build() -> None:
    scene = three_builds()
    commits = len(scene.branch.commits)
    for _retried in range(2):
        found = scene.failed("1.1.0")
        assert (found.verdict, found.because) == ("unchanged", "nothing to undo: Git now has 1.2.0")
    assert (scene.value, len(scene.branch.commits)) == ("1.2.0", commits + 1)
    (memory,) = yaml.safe_load(scene.branch.files[STATE])["files"].values()
    assert memory["images"]["web"]["failed"] == ["1.1.0"]  # and no hold is set


def test_a_failure_of_an_unknown_version_is_not_remembered() -> None:
    scene = three_builds()
    commits = len(scene.branch.commits)
    assert scene.failed("0.9.0").because == "nothing to undo: Git now has 1.2.0"
    assert len(scene.branch.commits) == commits


def test_a_failed_build_is_rolled_back_and_held() -> None:
    scene = three_builds()
    assert scene.failed("1.2.0").verdict == "update"
    assert scene.value == "1.1.0"
    (memory,) = yaml.safe_load(scene.branch.files[STATE])["files"].values()
    assert memory["images"]["web"]["hold"]["reason"] == "a test of 1.2.0 failed"
    assert scene.event("1.2.0") == ("refuse", "superseded")
    assert scene.event("1.3.0") == ("defer", "held")


@pytest.mark.parametrize(
    ("order", "values"),
    [
        (("1.2.0", "1.1.0"), ("1.1.0", "1.0.0")),
        (("1.1.0", "1.2.0"), ("1.2.0", "1.0.0")),
    ],
)
def test_two_failures_in_any_order_end_at_the_last_good_version(
    order: Sequence[str], values: Sequence[str]
) -> None:
    """If the test of 1.1.0 fails first, the rollback of 1.2.0 takes that failure into account."""
    scene = three_builds()
    found = []
    for tag in order:
        scene.failed(tag)
        found.append(scene.value)
    assert tuple(found) == tuple(values)
    scene.failed("1.1.0")
    assert scene.value == "1.0.0"
    scene.failed("1.1.0")  # a retried job
    assert scene.value == "1.0.0"


def test_a_rollback_skips_versions_that_argo_cd_never_synced() -> None:
    scene = three_builds()
    scene.synced = (f"{3:040x}", f"{1:040x}")  # the hook of 1.1.0 failed
    scene.failed("1.2.0")
    assert scene.value == "1.0.0"
    assert scene.event("1.1.0") == ("refuse", "superseded")


def test_an_unrelated_sync_history_is_ignored() -> None:
    scene = three_builds()
    scene.synced = ("f" * 40,)
    scene.failed("1.2.0")
    assert scene.value == "1.1.0"


def test_an_explicit_rollback_target_wins() -> None:
    scene = three_builds()
    scene.failed("1.2.0", to="1.0.0")
    assert scene.value == "1.0.0"


def test_a_failure_of_the_first_version_causes_an_error() -> None:
    scene = story("semver")
    found = scene.failed("1.0.0")
    assert (found.verdict, found.rule) == ("error", "target")
    assert "no earlier version" in found.because


def test_two_builds_with_one_tag_are_distinguished_by_their_digests() -> None:
    one, other, unknown = (f"sha256:{letter * 64}" for letter in "abc")
    scene = story("newest-build")
    scene.branch.commit({target("a"): KUSTOMIZATION + f"  digest: {one}\n"})
    image = parse_image(f"{WEB}:1.0.0@{other}")
    scene.run(Job("run", (image,), SCOPE, Terms(build=Build(sequence=8), now=NOW), WORDING))
    nothing = f"nothing to undo: Git now has 1.0.0@{other}"
    assert scene.failed(f"1.0.0@{unknown}").because == nothing
    assert scene.failed(f"1.0.0@{other}").verdict == "update"
    assert one in scene.branch.files[target("a")]


def test_a_failed_version_is_remembered_with_its_digest() -> None:
    one, other = (f"sha256:{letter * 64}" for letter in "ab")
    scene = story("newest-build")
    text = scene.branch.files[target("a")]
    scene.branch.commit({target("a"): f"{text}  digest: {one}\n"})
    scene.branch.commit({target("a"): f"{text}  digest: {other}\n"})
    assert scene.failed(f"1.0.0@{one}").verdict == "unchanged"
    assert scene.failed(f"1.0.0@{other}").verdict == "update"
    assert "digest" not in scene.branch.files[target("a")]


def test_a_failure_that_cannot_be_remembered_is_reported() -> None:
    """With pull requests, there is no commit that only changes the state file."""
    scene = story("semver", git_branch="main:updates")
    text = scene.branch.files[target("a")]
    for tag in ("1.1.0", "1.2.0"):
        scene.branch.commit({target("a"): text.replace("1.0.0", tag)})
    commits = len(scene.branch.commits)
    assert scene.failed("1.1.0").because == (
        "nothing to undo: Git now has 1.2.0; the failure of 1.1.0 cannot be remembered, so a"
        " later rollback may return to it"
    )
    assert len(scene.branch.commits) == commits


def test_an_untracked_failed_image_causes_a_usage_error() -> None:
    scene = story("semver")
    job = job_of(
        Settings(command="rollback", app=("a",), rollback=RollbackOptions(failed="other:1")), (), {}
    )
    report = scene.run(job)
    assert report.exit == 2
    assert "none of these Applications tracks" in report.problems[0].message


@pytest.mark.parametrize("text", ["ghcr.io/acme/web", "ghcr.io/acme/web:", "a b:1"])
def test_a_failed_image_must_have_a_version(text: str) -> None:
    settings = Settings(command="rollback", app=("a",), rollback=RollbackOptions(failed=text))
    with pytest.raises(UsageError, match="--failed"):
        job_of(settings, (), {})


def undone(scene: Story, tag: str) -> None:
    """Run with `--wait --on-failure rollback` and a failing rollout."""

    def follow(landed: Sequence[LandedApplication]) -> Followed:
        scene.follow = lambda _landed: Followed()
        return Followed((), tuple(Failure((one,), CAUSE) for one in landed))

    scene.follow = follow
    image = parse_image(f"{WEB}:{tag}")
    scene.run(Job("run", (image,), SCOPE, Terms(now=NOW), WORDING, undo=True))


def test_a_failed_rollout_is_rolled_back_past_a_version_that_was_never_synced() -> None:
    scene = story("semver")
    scene.event("1.1.0")
    scene.synced = (f"{1:040x}",)
    undone(scene, "1.2.0")
    assert scene.value == "1.0.0"


def test_two_failed_rollouts_in_a_row_end_at_the_version_before_both() -> None:
    """The newer build fails first and is rolled back to the older one, which then fails, too."""
    scene = story("semver")

    def newer_one_fails(landed: Sequence[LandedApplication]) -> Followed:
        undone(scene, "1.2.0")
        assert scene.value == "1.1.0"
        return Followed((), tuple(Failure((one,), CAUSE) for one in landed))

    scene.follow = newer_one_fails
    image = parse_image(f"{WEB}:1.1.0")
    scene.run(Job("run", (image,), SCOPE, Terms(now=NOW), WORDING, undo=True))
    assert scene.value == "1.0.0"
