"""Lists of head branches that a run does not touch, and Applications outside of the run."""

from dataclasses import replace

import pytest
from support.history_scenes import FIRST, HEAD, Scene, told, values_in, verdicts
from support.memory import NOW, SCOPE, URL, WORDING, Story
from support.runs import KUSTOMIZATION, WEB, application, target

from task.annotations.application import Narrow
from task.deciding.job import Intent, Job, Promotion, Terms
from task.landing.waiting_list import list_path
from task.model import Answer, Hold, Report

API = "ghcr.io/acme/api"
STATE = ".image-update/apps/b/argocd_b.state"


def two_heads() -> tuple[Scene, Story]:
    """Return the Application `a`, and the story of `b`, whose updates wait on `other`."""
    scene = Scene()
    scene.branch.commit({target("b"): KUSTOMIZATION})
    app = application(
        "b", URL, image_list=f"web={WEB}", git_branch="main:other", update_strategy="semver"
    )
    return scene, Story(app, scene.branch)


def on(scene: Scene, head: str) -> list[str]:
    """Return the versions in a head branch's list."""
    listed = scene.branch.lists.get(head)
    return [build.tag for build in listed.builds] if listed else []


@pytest.mark.parametrize("known", [False, True], ids=["not read", "read"])
def test_a_merged_build_leaves_a_list_that_the_run_does_not_touch(known: bool) -> None:
    scene, other = two_heads()
    scene.event("web:1.1.0", story=other)
    assert on(scene, "other") == ["1.1.0"]
    scene.branch.commit({target("b"): KUSTOMIZATION.replace("1.0.0", "1.1.0")})
    scene.story.others = [other.app] if known else []
    report = scene.event("cron:1.2.0")
    assert [(one.application, one.tag, one.outcome) for one in report.waiting] == [
        ("argocd/b", "1.1.0", "merged")
    ]
    assert on(scene, "other") == []
    assert sorted(scene.branch.proposals) == ([HEAD] if known else [HEAD, "other"])
    said = [problem.message for problem in report.problems]
    stays = "other was not changed: no Application that this run read has it in git-branch"
    assert (stays in said) is not known


def test_a_newer_version_on_the_base_also_empties_an_untouched_list() -> None:
    scene, other = two_heads()
    scene.event("web:1.1.0", story=other)
    scene.branch.commit({target("b"): KUSTOMIZATION.replace("1.0.0", "1.5.0")})
    scene.story.others = [other.app]
    scene.event("cron:1.2.0")
    assert sorted(scene.branch.proposals) == [HEAD]


def test_an_update_missing_from_the_base_remains_in_its_list() -> None:
    scene, other = two_heads()
    scene.event("web:1.1.0", story=other)
    before = scene.branch.heads["other"]
    scene.branch.commit({target("b"): KUSTOMIZATION.replace("1.0.0", "1.0.5")})
    scene.story.others = [other.app]
    assert told(scene.event("cron:1.2.0")) == []
    assert (on(scene, "other"), scene.branch.heads["other"]) == (["1.1.0"], before)


def test_an_untouched_head_branch_with_a_commit_by_a_person_is_kept() -> None:
    scene, other = two_heads()
    scene.event("web:1.1.0", story=other)
    scene.branch.commit_on("other", {"notes.md": "mine\n"})
    scene.branch.commit({target("b"): KUSTOMIZATION.replace("1.0.0", "1.1.0")})
    scene.event("cron:1.2.0")
    assert on(scene, "other") == []
    assert scene.branch.heads["other"].files["notes.md"] == "mine\n"
    assert told(scene.event("cron:1.3.0")) == [("cron", "1.2.0", "superseded")]  # only once


def test_a_listed_application_is_checked_even_if_the_event_does_not_concern_it() -> None:
    """The Application's own rules apply, and so does a hold that was added in the meantime."""
    scene = Scene()
    scene.branch.commit({target("b"): KUSTOMIZATION.replace(WEB, API)})
    app = application(
        "b", URL, image_list=f"api={API}", git_branch=f"main:{HEAD}", update_strategy="semver"
    )
    other = Story(app, scene.branch)
    scene.event("api:1.1.0", story=other)
    scene.story.others = [app]
    scene.branch.commit({target("b"): KUSTOMIZATION.replace(WEB, API).replace("1.0.0", "1.0.5")})
    report = scene.event("web:1.2.0")
    (row,) = [one for one in report.waiting if one.application == "argocd/b"]
    assert (row.tag, row.outcome, row.because[:6]) == ("1.1.0", "waits", "semver")
    held = f"files:\n  {target('b')}:\n    images:\n      api:\n        hold: {{reason: broken}}\n"
    scene.branch.commit({STATE: held})
    report = scene.event("web:1.3.0")
    (row,) = [one for one in report.waiting if one.application == "argocd/b"]
    assert (row.tag, row.outcome) == ("1.1.0", "deferred")
    assert "1.1.0" not in scene.branch.heads[HEAD].files[target("b")]


@pytest.mark.parametrize("narrowed", [False, True])
def test_rules_apply_to_listed_applications_that_options_exclude_from_the_run(
    narrowed: bool,
) -> None:
    """Options select the Applications that the event applies to, not those that are checked."""
    scene = Scene()
    scene.branch.commit({target("b"): KUSTOMIZATION.replace(WEB, API)})
    app = application(
        "b", URL, image_list=f"api={API}", git_branch=f"main:{HEAD}", update_strategy="semver"
    )
    scene.event("api:1.1.0", story=Story(app, scene.branch))
    refused = application(
        "b",
        URL,
        image_list=f"api={API}",
        git_branch=f"main:{HEAD}",
        update_strategy="semver",
        **{"api.allow-tags": "regexp:^2"},
    )
    scene.story.others = [refused]
    report = scene.event("web:1.2.0", names=("a",) if narrowed else ())
    (row,) = [one for one in report.waiting if one.application == "argocd/b"]
    assert (row.tag, row.outcome) == ("1.1.0", "dropped")
    assert "1.1.0" not in scene.branch.heads[HEAD].files[target("b")]


def test_a_persons_commit_on_a_shared_head_branch_preserves_the_other_application() -> None:
    scene = Scene()
    scene.branch.commit({target("b"): KUSTOMIZATION})
    app = application("b", URL, image_list=f"web={WEB}", git_branch=f"main:{HEAD}")
    other = Story(app, scene.branch)
    scene.event("web:1.1.0", story=other)
    scene.branch.commit_on(HEAD, {"notes.md": "mine\n"})
    report = scene.event("cron:1.2.0")
    (row,) = [one for one in report.waiting if one.application == "argocd/b"]
    assert (row.tag, row.outcome) == ("1.1.0", "waits")
    assert sorted(build.application for build in scene.branch.lists[HEAD].builds) == [
        "argocd/a",
        "argocd/b",
    ]
    assert values_in(scene.branch.heads[HEAD].files, "b") == {"web": "1.1.0"}


def promoted(scene: Scene, has: str) -> Report:
    """Give the source `s` a version, and promote that to `a`."""
    source = application("s", URL, image_list=f"web={WEB}", update_strategy="semver")
    scene.branch.commit({target("s"): KUSTOMIZATION.replace("1.0.0", has)})
    scene.story.others = [source]
    promotion = Promotion(("s",), ("a",))
    report = scene.story.run(
        Job("promote", (), SCOPE, Terms(now=NOW), WORDING, promotion=promotion)
    )
    scene.story.others = []
    return report


VERSIONED = "main:bump-{{range .Images}}{{.Alias}}-{{.NewTag}}{{end}}"


@pytest.mark.parametrize("branch", [f"main:{HEAD}", VERSIONED], ids=["one head", "versioned"])
@pytest.mark.parametrize(
    ("back", "outcome", "waits"),
    [("1.2.0", "superseded", ["1.2.0"]), (FIRST, "dropped", []), ("1.3.0", "waits", ["1.3.0"])],
)
def test_a_promotion_is_removed_from_the_list_if_its_source_no_longer_has_the_version(
    branch: str, back: str, outcome: str, waits: list[str]
) -> None:
    scene = Scene(branch=branch)
    promoted(scene, "1.3.0")
    report = promoted(scene, back)
    if (branch, outcome) == (VERSIONED, "superseded"):
        outcome = "dropped"  # the new version waits on a separate branch
    assert told(report) == [("web", "1.3.0", outcome)]
    lists = scene.branch.lists.values()
    assert [build.tag for one in lists for build in one.builds] == waits
    assert len(scene.branch.proposals) == len(waits)


@pytest.mark.parametrize("direct", [True, False])
def test_rolling_back_the_source_removes_the_waiting_promotion(direct: bool) -> None:
    scene = Scene()
    promoted(scene, "1.3.0")
    source = application(
        "s",
        URL,
        image_list=f"web={WEB}",
        update_strategy="semver",
        git_branch="main" if direct else "main:source",
    )
    story = Story(source, scene.branch)
    story.others = [scene.story.app]
    scope = replace(SCOPE, narrow=Narrow(("s",)))
    back = Intent("rollback", Hold("broken", "jane", NOW), to="1.1.0", unknown=True)
    story.run(Job("rollback", (), scope, Terms(now=NOW), WORDING, intent=back))
    assert on(scene, HEAD) == []
    assert HEAD not in scene.branch.heads


def names(report: Report) -> dict[str, tuple[str, ...]]:
    """Return the Applications in each commit, keyed by the prefix of the commit's branch."""
    return {one.head.partition("/")[0]: one.applications for one in report.commits}


def test_a_hold_reports_its_own_commit_separately_from_the_head_branch() -> None:
    scene = Scene()
    scene.event("web:1.1.0", "cron:1.1.0")
    report = scene.by_hand("hold", "web")
    assert names(report)["image-update-memory"] == ("argocd/a",)
    assert HEAD in names(report)
    assert [one.message for one in report.problems] == []


def test_a_waiting_build_is_reported_as_one_commit() -> None:
    scene = Scene()
    assert set(names(scene.event("web:1.1.0"))) == {HEAD}
    (caution,) = scene.by_hand("rollback", "web", "0.9.0").problems
    assert caution.message.startswith("this rollback of argocd/a is waiting on bump")


@pytest.mark.parametrize(
    ("verb", "held"), [("hold", True), ("rollback", True), ("rollback", False)]
)
def test_a_hold_or_rollback_removes_every_versioned_head_branch_of_the_image(
    verb: str, held: bool
) -> None:
    scene = Scene(branch=VERSIONED)
    scene.event("web:1.1.0")
    scene.event("web:1.2.0")
    scene.event("cron:1.2.0")
    report = scene.by_hand(verb, "web", "" if verb == "hold" else "0.9.0", held=held)
    outcome = "deferred" if held else "dropped"
    assert told(report) == [("web", "1.1.0", outcome), ("web", "1.2.0", outcome)]
    left = {"bump-cron-1.2.0"} | ({"bump-web-0.9.0"} if verb == "rollback" else set())
    assert set(scene.branch.proposals) == set(scene.branch.lists) == left
    if held:
        assert names(report)["image-update-memory"] == ("argocd/a",)
        scene.by_hand("release", "web")
        assert on(scene, "bump-web-1.2.0") == ["1.2.0"]  # the newer of the two builds


@pytest.mark.parametrize("answers", [True, False], ids=["registry", "no registry"])
def test_enabling_digest_pinning_keeps_the_newer_waiting_build(answers: bool) -> None:
    scene = Scene()
    scene.event("web:1.2.0")
    scene.branch.commit({".image-update/config": "version: 1\npinDigest: true\n"})
    digest = "sha256:" + "a" * 64
    scene.story.answers = {"1.2.0": Answer(digest=digest)} if answers else {}
    report = scene.event("web:1.1.0@sha256:" + "b" * 64)
    assert (verdicts(report), told(report)) == (["refuse"], [("web", "1.2.0", "waits")])
    (build,) = scene.branch.lists[HEAD].builds
    assert (build.tag, build.digest) == ("1.2.0", digest if answers else "")


def test_the_commit_message_for_a_pinned_build_names_its_tag() -> None:
    scene = Scene(pin_digest="true")
    digest = "sha256:" + "a" * 64
    scene.event(f"web:1.1.0@{digest}")
    message = scene.branch.heads[HEAD].message
    assert f"updates image acme/web tag '1.0.0' to '1.1.0@{digest}'" in message


@pytest.mark.parametrize("message", ["", "Image: evil\n", "x" * 1000])
def test_a_head_branch_reset_to_the_listed_tree_carries_over_no_foreign_content(
    message: str,
) -> None:
    """The commit's tree and parent match, so it is ours. We do not reuse its message or author."""
    scene = Scene()
    scene.event("web:1.1.0")
    ours = scene.branch.heads[HEAD]
    scene.branch.heads[HEAD] = replace(ours, id="b" * 40, message=message)
    report = scene.event("cron:1.1.0")
    made = scene.branch.heads[HEAD]
    assert (made.parent, made.before) == (scene.branch.tip, scene.branch.files)
    differs = {path for path in made.files if made.files[path] != scene.branch.files.get(path)}
    assert differs == {target("a")}
    assert scene.waiting == {"web": "1.1.0", "cron": "1.1.0"}
    assert not message or message not in made.message
    assert "evil" not in str([one.because for one in report.waiting])


def test_a_head_branch_with_another_parent_belongs_to_a_person() -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    ours = scene.branch.heads[HEAD]
    scene.branch.heads[HEAD] = replace(ours, id="b" * 40, parent="c" * 40, before=None)
    scene.event("cron:1.1.0")
    made = scene.branch.heads[HEAD]
    assert (made.parent, made.before) == ("b" * 40, None)


@pytest.mark.parametrize("pushed", ["nothing", "the same tree", "a commit on top"])
def test_a_head_branch_kept_after_its_merge_is_ours_only_while_unchanged(pushed: str) -> None:
    """The branch's list is empty, but still names our commit."""
    scene = Scene()
    scene.event("web:1.1.0")
    scene.branch.merge(HEAD, keep=True, style="merge")
    scene.event("web:1.1.0")
    listed = scene.branch.lists[HEAD]
    assert (listed.builds, listed.commit is not None) == ((), True)
    ours = scene.branch.heads[HEAD]
    evil = {"ci.yaml": "evil\n"}
    if pushed == "the same tree":
        scene.branch.heads[HEAD] = replace(ours, id="b" * 40, message="evil\n\nImage: evil\n")
    elif pushed == "a commit on top":
        scene.branch.commit_on(HEAD, evil)
    report = scene.event("cron:1.2.0")
    made = scene.branch.heads[HEAD]
    assert "evil" not in made.message + str([row.because for row in report.waiting])
    if pushed == "a commit on top":
        assert (made.before, made.files["ci.yaml"]) == (None, "evil\n")
        assert "ci.yaml" not in scene.branch.files
    else:
        assert made.before == scene.branch.files
        assert scene.waiting == {"cron": "1.2.0"}


def test_an_unreadable_list_stays_an_error_after_a_rollback_was_merged() -> None:
    """The run once decided again without the rollback's hold, and the error was lost."""
    scene, other = two_heads()
    scene.event("web:1.1.0", story=other)
    scene.by_hand("rollback", "web", "0.9.0")
    scene.branch.merge(HEAD)
    (name,) = [name for name in scene.branch.heads if name.startswith("image-update-memory/")]
    there = scene.branch.heads[name]
    files = {**there.files, list_path("other"): "version: 2\n"}
    scene.branch.heads[name] = replace(there, files=files)
    before = scene.branch.heads["other"]
    scene.story.others = [other.app]
    report = scene.event("web:1.2.0")
    said = {one.subscription.application.name: one.verdict for one in report.decisions}
    assert said["b"] == "error"
    assert scene.branch.heads["other"] == before
