"""Builds that are waiting on a head branch while other events occur."""

from dataclasses import replace
from textwrap import dedent

import pytest
from support.history_scenes import FIRST, HEAD, Scene, told, values_in, verdicts
from support.memory import NOW, SCOPE, URL, WORDING, Story
from support.runs import KUSTOMIZATION, WEB, application, target

from task.annotations.application import Narrow
from task.deciding.job import Intent, Job, Promotion, Terms
from task.errors import UnreachableError
from task.image import parse_image
from task.model import Answer, Report, Verdict
from task.proof import Proof

SIGNED = "version: 1\nsignatures: {keys: [cosign.pub]}\n"
KEY = "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"
STATE = ".image-update/apps/a/argocd_a.state"


def test_updates_merged_by_others_are_kept() -> None:
    """A pull request for one image never reverts another image or that image's build identity."""
    scene = Scene("newest-build")
    scene.event("web:main-1", sequence=1)
    scene.event("api:main-9", sequence=9, story=scene.direct)
    report = scene.event("web:main-2", sequence=2)
    assert verdicts(report) == ["update"]
    assert told(report) == [("web", "main-1", "superseded")]
    assert scene.waiting == {"web": "main-2"}
    scene.branch.merge(HEAD)
    assert scene.base == {"web": "main-2", "api": "main-9", "cron": FIRST}
    assert verdicts(scene.event("api:main-7", sequence=7)) == ["refuse"]


@pytest.mark.parametrize("back", [FIRST, "1.0.5"])
def test_a_rollback_on_the_base_keeps_a_head_branch_that_no_application_names(
    back: str,
) -> None:
    """Anyone with push access could have forged the branch's list. The next run that names it
    decides.
    """
    scene = Scene()
    scene.event("web:1.1.0", story=scene.direct)
    scene.event("web:1.2.0", "cron:1.2.0")
    scene.story, indirect = scene.direct, scene.story
    report = scene.by_hand("rollback", "web", back)
    assert told(report) == [("cron", "1.2.0", "waits"), ("web", "1.2.0", "waits")]
    (problem,) = report.problems
    assert problem.message.startswith(
        "bump was not changed: no Application that this run read has it"
    )
    scene.story = indirect
    report = scene.event("web:1.3.0", "cron:1.3.0")
    assert sorted(verdicts(report)) == ["defer", "update"]
    assert told(report) == [("cron", "1.2.0", "superseded"), ("web", "1.2.0", "superseded")]
    assert scene.waiting == {"cron": "1.3.0"}
    scene.branch.merge(HEAD)
    assert scene.base == {"web": back, "api": FIRST, "cron": "1.3.0"}
    assert verdicts(scene.event("web:1.4.0")) == ["defer"]  # the hold still exists


def test_a_rejected_tag_removes_no_waiting_updates() -> None:
    scene = Scene()
    scene.event("web:1.3.0", "cron:1.4.0")
    report = scene.event("web:0.9.0", "cron:1.5.0")
    assert sorted(verdicts(report)) == ["refuse", "update"]
    assert scene.waiting == {"web": "1.3.0", "cron": "1.5.0"}
    assert ("web", "1.3.0", "waits") in told(report)


def test_a_hold_or_rollback_keeps_the_waiting_update_for_the_release() -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    report = scene.by_hand("hold", "web")
    assert told(report) == [("web", "1.1.0", "deferred")]
    assert (scene.waiting, scene.branch.proposals) == ({}, {})
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.1.0"}
    assert scene.branch.memory == {}
    scene.branch.merge(HEAD)
    scene.event("web:1.2.0")
    assert told(scene.by_hand("rollback", "web", FIRST)) == [("web", "1.2.0", "deferred")]
    assert scene.waiting == {"web": FIRST}
    assert verdicts(scene.event("web:1.1.5")) == [
        "refuse"
    ]  # the event is older than the remembered build
    scene.branch.merge(HEAD)
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.2.0"}
    scene.branch.merge(HEAD)
    assert scene.base["web"] == "1.2.0"
    assert verdicts(scene.event("web:1.3.0")) == ["update"]
    assert scene.branch.memory == {}


def test_a_rollback_without_a_hold_drops_the_waiting_update() -> None:
    scene = Scene()
    scene.event("web:1.1.0", story=scene.direct)
    scene.event("web:1.2.0")
    report = scene.by_hand("rollback", "web", FIRST, held=False)
    assert told(report) == [("web", "1.2.0", "dropped")]
    assert scene.waiting == {"web": FIRST}


def test_two_applications_can_share_a_head_branch() -> None:
    """Each run knows only one of the Applications."""
    scene = Scene()
    scene.branch.commit({target("b"): KUSTOMIZATION})
    other = Story(
        application("b", URL, image_list=f"web={WEB}", git_branch=f"main:{HEAD}"), scene.branch
    )
    scene.event("web:1.1.0", story=other)
    scene.event("web:1.2.0", "cron:1.2.0")
    assert values_in(scene.branch.heads[HEAD].files, "b") == {"web": "1.1.0"}
    report = scene.event("web:1.3.0", story=other)
    (row,) = [one for one in report.waiting if one.application == "argocd/a" and one.alias == "web"]
    assert (row.tag, row.head, row.outcome) == ("1.2.0", HEAD, "waits")
    assert sorted(told(report)) == [
        ("cron", "1.2.0", "waits"),
        ("web", "1.1.0", "superseded"),
        ("web", "1.2.0", "waits"),
    ]
    message = scene.branch.heads[HEAD].message
    assert all(
        words in message
        for words in ("Application: argocd/a\n", "Application: argocd/b\n", "cron:1.2.0\n")
    )
    scene.by_hand("hold", "web")
    assert (
        "Application: argocd/b\n" in scene.branch.heads[HEAD].message
    )  # the builds of b and cron are still waiting
    scene.by_hand("release", "web")
    scene.branch.merge(HEAD)
    assert values_in(scene.branch.files, "b") == {"web": "1.3.0"}
    assert scene.base == {"web": "1.2.0", "api": FIRST, "cron": "1.2.0"}


def test_a_branch_by_another_author_receives_one_additional_commit() -> None:
    scene = Scene()
    scene.branch.commit_on(HEAD, {"people.yaml": "theirs\n"})
    scene.branch.commit({"later.yaml": "on the base only\n"})
    scene.event("web:1.1.0")
    files = scene.branch.heads[HEAD].files
    assert files["people.yaml"] == "theirs\n"
    assert "later.yaml" not in files
    assert values_in(files)["web"] == "1.1.0"
    assert verdicts(scene.event("web:1.0.5")) == ["refuse"]  # the branch's own values apply
    scene.by_hand("hold", "web")
    assert verdicts(scene.event("web:1.2.0")) == ["defer"]
    assert values_in(scene.branch.heads[HEAD].files)["web"] == "1.1.0"


def test_the_config_on_another_authors_branch_applies_as_well() -> None:
    scene = Scene()
    scene.branch.commit_on(
        HEAD, {".image-update/config": "version: 1\npullRequests: {enabled: true}\n"}
    )
    report = scene.event("web:1.1.0")
    assert verdicts(report) == ["error"]
    assert f"the config on {HEAD} requires a pull request" in report.decisions[0].because


def test_a_freeze_on_the_base_applies_to_another_authors_branch() -> None:
    scene = Scene()
    scene.branch.commit_on(HEAD, {".image-update/config": "version: 1\nminimumAge: 1h\n"})
    scene.freeze()
    assert verdicts(scene.event("web:1.1.0")) == ["defer"]
    scene.freeze(ends=True)
    assert verdicts(scene.event("web:1.2.0")) == ["update"]


@pytest.mark.parametrize(
    ("config", "verdict"),
    [
        ("rules: [{match: {paths: [apps/a/prod.yaml]}, writes: {paths: []}}]", "error"),
        (
            """
            freezes:
            - match: {paths: [apps/a/prod.yaml]}
              schedule: "* * * * *"
              duration: 1h
              reason: sale
            """,
            "defer",
        ),
    ],
    ids=["writes", "freeze"],
)
def test_a_rule_on_the_base_applies_to_a_file_found_only_on_another_branch(
    config: str, verdict: str
) -> None:
    """The target is a folder, and the branch's own config lacks the rule."""
    scene = Scene(write_back_target="manifests:/apps/a")
    pod = "kind: Pod\napiVersion: v1\nspec: {containers: [{name: web, image: ghcr.io/acme/web:1.0.0}]}\n"
    scene.branch.commit(
        {
            ".image-update/config": f"version: 1\n{dedent(config)}\n",
            "apps/a/dev.yaml": pod,
            target("a"): "resources: []\n",
        }
    )
    theirs = {"apps/a/prod.yaml": pod, ".image-update/config": "version: 1\n"}
    scene.branch.commit_on(HEAD, theirs)
    assert verdicts(scene.event("web:1.1.0")) == [verdict]
    assert "1.1.0" not in "".join(scene.branch.heads[HEAD].files.values())


def test_an_amended_commit_belongs_to_another_author() -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    ours = scene.branch.heads[HEAD]
    scene.branch.heads[HEAD] = replace(ours, before=None, files={**ours.files, "mine.yaml": "x\n"})
    scene.event("web:1.2.0")
    assert scene.branch.heads[HEAD].files["mine.yaml"] == "x\n"


def test_a_freeze_keeps_waiting_updates_and_defers_new_builds() -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    frozen = 'version: 1\nfreezes: [{schedule: "* * * * *", duration: 1h, reason: sale}]\n'
    scene.branch.commit({".image-update/config": frozen})
    report = scene.event("web:1.2.0", "cron:1.2.0")
    assert verdicts(report) == ["defer", "defer"]
    assert scene.waiting == {"web": "1.1.0"}
    assert told(report) == [("web", "1.1.0", "waits")]
    scene.branch.commit({".image-update/config": "version: 1\n"})
    scene.by_hand("release", "cron")
    assert scene.waiting == {"web": "1.1.0", "cron": "1.2.0"}


def shared(scene: Scene, name: str = "web") -> Story:
    """Return the story of another team's Application that writes the same files."""
    other = application(
        "b", URL, image_list=f"{name}=ghcr.io/acme/{name}", update_strategy="semver"
    )
    other["spec"]["source"]["path"] = "apps/a"
    story = Story(other, scene.branch)
    story.others, scene.direct.others = [scene.direct.app], [other]
    scene.story = scene.direct
    return story


@pytest.mark.parametrize("scan", [False, True])
def test_a_hold_applies_to_another_application_that_writes_the_same_entry(scan: bool) -> None:
    scene = Scene()
    other = shared(scene)
    scene.direct.others = []
    scene.by_hand("hold", "web")  # the command does not name the other Application
    scene.direct.others = [other.app]
    report = scene.scan("1.1.0") if scan else scene.event("web:1.1.0", "cron:1.1.0")
    held = {
        (one.subscription.application.name, one.subscription.entry.alias): one
        for one in report.decisions
    }
    verdict = [held[one].verdict for one in (("a", "web"), ("b", "web"), ("a", "cron"))]
    assert verdict == ["defer", "defer", "update"]
    assert held["b", "web"].because.endswith(
        "(hold on argocd/a); 1.1.0 is waiting: the first run after that hold will write it"
    )
    assert scene.base["web"] == FIRST
    scene.direct.others = []
    scene.by_hand("release", "web")
    assert scene.base["web"] == "1.1.0"


def test_a_hold_does_not_apply_to_another_entry() -> None:
    scene = Scene()
    shared(scene, "cron")
    scene.by_hand("hold", "web")
    assert verdicts(scene.event("cron:1.1.0")) == ["update", "update"]


def test_a_waiting_update_that_the_base_already_has_is_dropped() -> None:
    scene = Scene()
    scene.event("web:1.1.0", "cron:1.1.0")
    scene.write("web", "1.5.0")
    report = scene.event("cron:1.2.0")
    assert scene.waiting == {"cron": "1.2.0"}
    assert ("web", "1.1.0", "dropped") in [
        (a, b, "dropped" if c in ("superseded", "dropped") else c) for a, b, c in told(report)
    ]
    scene.write("cron", "1.2.0")
    report = scene.event("web:1.5.0")
    assert told(report) == [("cron", "1.2.0", "merged")]
    assert scene.branch.proposals == {}


def test_a_hold_made_directly_on_the_base_can_be_released_before_the_merge() -> None:
    scene = Scene()
    scene.story, indirect = scene.direct, scene.story
    scene.by_hand("hold", "web")
    scene.story = indirect
    assert verdicts(scene.event("web:1.1.0")) == ["defer"]
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.1.0"}
    assert verdicts(scene.event("web:1.2.0")) == ["update"]
    scene.branch.merge(HEAD)
    assert STATE not in scene.branch.files or "hold" not in scene.branch.files[STATE]


def promote(scene: Scene, *, downgrade: bool = False) -> Report:
    """Promote the version in the Application `s` to `a`, whose updates wait on the head branch."""
    source = application("s", URL, image_list=f"web={WEB}", update_strategy="semver")
    scene.story.others = [source]
    terms = Terms(now=NOW, allow_downgrade=downgrade)
    report = scene.story.run(
        Job("promote", (), SCOPE, terms, WORDING, promotion=Promotion(("s",), ("a",)))
    )
    scene.story.others = []
    return report


def test_a_promotion_waits_like_any_other_build() -> None:
    scene = Scene()
    scene.branch.commit({target("s"): KUSTOMIZATION.replace("1.0.0", "1.3.0")})
    assert verdicts(promote(scene)) == ["update"]
    scene.event("cron:1.1.0")
    assert scene.waiting == {"web": "1.3.0", "cron": "1.1.0"}
    assert told(scene.by_hand("hold", "web")) == [
        ("cron", "1.1.0", "waits"),
        ("web", "1.3.0", "deferred"),
    ]
    assert verdicts(promote(scene)) == ["defer"]
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.3.0", "cron": "1.1.0"}


def test_an_older_version_that_a_person_allowed_is_kept() -> None:
    """The rules refuse the version, but it waits because a person requested it."""
    scene = Scene()
    scene.branch.commit({target("s"): KUSTOMIZATION.replace("1.0.0", "0.9.0")})
    assert verdicts(promote(scene)) == ["refuse"]
    assert verdicts(promote(scene, downgrade=True)) == ["update"]
    assert told(scene.event("cron:1.1.0")) == [("web", "0.9.0", "waits")]
    assert scene.waiting == {"web": "0.9.0", "cron": "1.1.0"}
    scene.write("web", "1.0.1")
    assert told(scene.event("cron:1.2.0")) == [
        ("cron", "1.1.0", "superseded"),
        ("web", "0.9.0", "dropped"),
    ]


def test_a_freeze_defers_a_promotion_and_its_release() -> None:
    scene = Scene()
    scene.branch.commit({target("s"): KUSTOMIZATION.replace("1.0.0", "1.3.0")})
    scene.event("web:1.1.0")
    scene.freeze()
    assert verdicts(promote(scene)) == ["defer"]
    assert verdicts(scene.by_hand("release", "web")) == ["defer"]
    assert scene.waiting == {"web": "1.1.0"}
    scene.freeze(ends=True)
    assert told(scene.by_hand("release", "web")) == [("web", "1.1.0", "superseded")]
    assert scene.waiting == {"web": "1.3.0"}


def test_a_waiting_digest_stays_with_its_tag() -> None:
    scene = Scene(pin_digest="true")
    digests = {name: f"sha256:{letter * 64}" for name, letter in (("web", "a"), ("cron", "b"))}
    for name, digest in digests.items():
        assert verdicts(scene.event(f"{name}:1.1.0@{digest}")) == ["update"]
    text = scene.branch.heads[HEAD].files[target("a")]
    assert all(digest in text for digest in digests.values())
    assert verdicts(scene.event(f"web:1.1.0@{digests['web']}")) == ["unchanged"]


def test_the_atomic_option_changes_no_head_branch_if_one_application_fails() -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    broken = application("b", URL, image_list=f"web={WEB}", git_branch=f"main:{HEAD}")
    scene.story.others = [broken]  # the folder of this Application is missing
    before = scene.branch.heads[HEAD]
    assert sorted(verdicts(scene.event("web:1.2.0", "cron:1.2.0", atomic=True))) == ["error"] * 3
    assert scene.branch.heads[HEAD] == before
    scene.event("web:1.2.0", "cron:1.2.0")
    assert scene.waiting == {"web": "1.2.0", "cron": "1.2.0"}


def test_a_hold_takes_effect_even_if_another_run_was_faster() -> None:
    """The other run read the memory before the hold was set."""
    scene = Scene()
    scene.event("web:1.1.0")
    scene.branch.interrupt = "drop", lambda: scene.event("cron:1.1.0", story=scene.story)
    report = scene.by_hand("hold", "web")
    assert told(report) == [("cron", "1.1.0", "waits")]
    assert scene.waiting == {"cron": "1.1.0"}


def test_the_next_run_completes_a_run_that_was_killed_between_list_and_head_branch() -> None:
    """If two branches cannot be pushed together, the list is pushed first."""

    class KilledError(Exception):
        pass

    def dies() -> None:
        raise KilledError

    scene = Scene()
    scene.branch.atomic = False
    for version in ("1.1.0", "1.2.0"):
        before = scene.waiting
        scene.branch.interrupt = "land", dies
        with pytest.raises(KilledError):
            scene.event(f"web:{version}")
        assert scene.waiting == before
        assert not scene.branch.lists[HEAD].arrived
        report = scene.event("web:1.0.5")  # an old pipeline's run removes nothing
        assert ("web", version, "waits") in told(report)
        assert scene.waiting == {"web": version}


@pytest.mark.parametrize("style", ["merge", "squash"])
def test_a_merge_is_reported_even_after_a_revert(style: str) -> None:
    """The branch still exists, and the base now has another version."""
    scene = Scene()
    scene.event("web:1.3.0", "api:1.1.0")
    scene.branch.merge(HEAD, keep=True, style=style)
    if style == "merge":
        scene.write("web", "1.1.0")
    report = scene.event("cron:1.2.0")
    assert sorted(told(report)) == [("api", "1.1.0", "merged"), ("web", "1.3.0", "merged")]
    assert scene.waiting == {"cron": "1.2.0"}
    assert told(scene.event("cron:1.2.0")) == [("cron", "1.2.0", "waits")]


def test_a_recreated_head_branch_may_be_deleted_again() -> None:
    """The list is then the same as before, and records that the branch has arrived."""
    scene = Scene()
    for _ in range(2):
        scene.event("web:1.7.0", "api:1.7.0")
        assert scene.branch.lists[HEAD].arrived
        scene.branch.delete(HEAD)
    scene.event("web:1.1.0")
    assert scene.waiting == {"web": "1.1.0"}


def test_a_replay_names_the_branch_with_the_build_and_the_version_on_the_base() -> None:
    """A person has pushed to the branch, so its values apply."""
    scene = Scene()
    scene.event("web:1.2.0")
    scene.branch.commit_on(HEAD, {"notes.md": "mine\n"})
    (decision,) = scene.event("web:1.2.0").decisions
    assert (decision.verdict, decision.because) == ("unchanged", f"{HEAD} already has it")
    assert decision.current.version == FIRST


def test_a_replay_of_a_build_that_is_no_longer_proven_is_refused() -> None:
    scene = Scene()
    scene.branch.commit({".image-update/config": SIGNED, "cosign.pub": KEY})
    scene.story.answer = replace(scene.story.answer, digest="sha256:" + "d" * 64)
    good = Proof("signature", "cosign.pub")
    scene.story.prove = lambda asked: dict.fromkeys(asked, good)
    scene.event("web:1.1.0", "api:1.1.0")
    no = Verdict("refuse", "signature", "nobody has signed it")
    scene.story.prove = lambda asked: {
        one: no if one.image.name.endswith("web") else good for one in asked
    }
    report = scene.event("web:1.1.0")
    assert verdicts(report) == ["refuse"]
    assert sorted(told(report)) == [("api", "1.1.0", "waits"), ("web", "1.1.0", "dropped")]
    assert all("replaced by" not in row.because for row in report.waiting)
    assert [build.alias for build in scene.branch.lists[HEAD].builds] == ["api"]


def test_an_older_version_that_a_person_allowed_is_kept_even_if_it_waited_before() -> None:
    """The version left the list because the base has a newer one. The person's choice overrides
    that.
    """
    scene = Scene()
    scene.event("web:1.4.0")
    scene.write("web", "1.5.0")
    scene.event("web:1.4.0", downgrade=True)
    assert scene.waiting == {"web": "1.4.0"}
    scene.event("api:1.1.0")
    assert scene.waiting == {"web": "1.4.0", "api": "1.1.0"}


def test_a_waiting_update_changed_by_another_run_is_reported_as_not_reevaluated() -> None:
    """The rollback has landed on the base, so no requested decision remains open."""
    scene = Scene()
    scene.branch.commit({target("s"): KUSTOMIZATION.replace("1.0.0", "1.3.0")})
    scene.event("cron:1.1.0")
    promote(scene)
    assert scene.waiting == {"web": "1.3.0", "cron": "1.1.0"}
    source = application("s", URL, image_list=f"web={WEB}", update_strategy="semver")
    back = Story(source, scene.branch)
    back.others = [scene.story.app]
    scene.branch.interrupt = "remember", lambda: scene.event("cron:1.2.0")
    scene.branch.atomic = False
    report = back.run(
        Job(
            "rollback",
            (),
            replace(SCOPE, narrow=Narrow(("s",))),
            Terms(now=NOW),
            WORDING,
            intent=Intent("rollback", whole=False, to="1.0.0", unknown=True),
            aliases=("web",),
        )
    )
    assert verdicts(report) == ["update"]
    assert "newTag: 1.0.0" in scene.branch.files[target("s")]
    assert scene.waiting == {"web": "1.3.0", "cron": "1.2.0"}
    (problem,) = report.problems
    assert problem.message == (
        "the builds waiting on bump were not reevaluated: another run was faster"
    )


def test_a_promotion_withdrawn_by_its_source_needs_no_proof() -> None:
    """The run once reported that the promotion was still waiting and also that it was dropped."""
    scene = Scene()
    scene.branch.commit({".image-update/config": SIGNED, "cosign.pub": KEY})
    scene.story.answer = replace(scene.story.answer, digest="sha256:" + "d" * 64)
    scene.branch.commit({target("s"): KUSTOMIZATION.replace("1.0.0", "1.3.0")})
    scene.story.prove = lambda asked: dict.fromkeys(asked, Proof("signature", "cosign.pub"))
    promote(scene)
    scene.branch.commit({target("s"): KUSTOMIZATION.replace("1.0.0", "1.4.0")})
    silent = UnreachableError("the registry answers 503", hint="")
    scene.story.prove = lambda asked: dict.fromkeys(asked, silent)
    report = promote(scene)
    assert told(report) == [("web", "1.3.0", "dropped")]
    assert all("1.3.0" not in problem.message for problem in report.problems)


def team(scene: Scene) -> Story:
    """Return the story of another team's Application on the same head branch."""
    scene.branch.commit({target("b"): KUSTOMIZATION})
    app = application("b", URL, image_list=f"web={WEB}", git_branch=f"main:{HEAD}")
    return Story(app, scene.branch)


def test_a_waiting_build_is_kept_if_the_base_only_reformatted_the_file() -> None:
    scene = Scene()
    scene.event("web:1.1.0", story=team(scene))
    anew = f"# in another order\nimages:\n- {{newTag: '1.0.0', name: {WEB}}}\nresources: []\n"
    scene.branch.commit({target("b"): anew})
    report = scene.event("cron:1.2.0")
    assert [(row.application, row.tag, row.outcome) for row in report.waiting] == [
        ("argocd/b", "1.1.0", "waits")
    ]
    head = scene.branch.heads[HEAD].files[target("b")]
    assert head == anew.replace("1.0.0", "1.1.0")
    assert scene.branch.merge(HEAD)
    assert scene.branch.files[target("b")] == head


def test_a_waiting_build_is_left_undecided_if_the_base_has_another_version() -> None:
    """Only the Application's annotations determine which version is newer, so neither is lost or
    wins.
    """
    scene = Scene()
    story = team(scene)
    scene.event("web:1.1.0", story=story)
    scene.branch.commit({target("b"): KUSTOMIZATION.replace("1.0.0", "1.0.1")})
    report = scene.event("cron:1.2.0")
    (row,) = report.waiting
    assert (row.application, row.tag, row.outcome) == ("argocd/b", "1.1.0", "waits")
    assert row.because == "main now has 1.0.1, not 1.0.0; this run did not read its annotations"
    assert "newTag: 1.0.1" in scene.branch.heads[HEAD].files[target("b")]
    scene.event("web:1.0.9", story=story)
    assert "newTag: 1.1.0" in scene.branch.heads[HEAD].files[target("b")]


@pytest.mark.parametrize("there", ["resources: []\n", None])
def test_a_waiting_build_remains_listed_if_its_place_in_the_file_no_longer_exists(
    there: str | None,
) -> None:
    scene = Scene()
    scene.event("web:1.1.0", story=team(scene))
    files = {**scene.branch.files, target("b"): there}
    scene.branch.commits.append({path: text for path, text in files.items() if text is not None})
    report = scene.event("cron:1.2.0")
    (row,) = report.waiting
    assert (row.application, row.alias, row.tag, row.outcome) == (
        "argocd/b",
        "web",
        "1.1.0",
        "waits",
    )
    assert "apps/b" in row.because
    (problem,) = report.problems
    assert "cannot decide on 1.1.0, which is waiting on bump" in problem.message
    assert problem.application == "argocd/b"
    head = scene.branch.heads[HEAD].files
    assert "1.1.0" not in head.get(target("b"), "")
    assert [build.application for build in scene.branch.lists[HEAD].builds] == [
        "argocd/a",
        "argocd/b",
    ]
    scene.branch.commit({target("b"): KUSTOMIZATION})
    scene.event("cron:1.3.0")
    assert "newTag: 1.1.0" in scene.branch.heads[HEAD].files[target("b")]


def signed_but_150(scene: Scene) -> None:
    """Make every version except 1.5.0 signed."""
    good = Proof("signature", "cosign.pub")
    no = Verdict("refuse", "signature", "nobody has signed it")
    scene.story.prove = lambda asked: {
        one: no if one.image.tag == "1.5.0" else good for one in asked
    }


def signing(scene: Scene) -> None:
    """Require signatures, and make the registry return each digest."""
    scene.branch.commit({".image-update/config": SIGNED, "cosign.pub": KEY})
    scene.story.answer = replace(scene.story.answer, digest="sha256:" + "d" * 64)


def test_releasing_an_unproven_build_keeps_the_hold_and_reports_why() -> None:
    scene = Scene()
    signing(scene)
    scene.by_hand("hold", "web")
    assert verdicts(scene.event("web:1.5.0")) == ["defer"]
    signed_but_150(scene)
    report = scene.by_hand("release", "web")
    (decision,) = report.decisions
    assert (decision.verdict, decision.rule) == ("refuse", "signature")
    assert decision.because.startswith("not released: 1.5.0@sha256:")
    assert decision.because.endswith("; --discard ends the hold without writing it")
    assert verdicts(scene.event("web:1.4.0")) == ["refuse"]  # 1.5.0 is still held, and is newer
    signing(scene)
    scene.story.prove = lambda asked: dict.fromkeys(asked, Proof("signature", "cosign.pub"))
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.5.0"}


def test_an_unproven_deferred_build_does_not_block_other_builds() -> None:
    """A freeze deferred the build, so no release is needed."""
    scene = Scene()
    signing(scene)
    frozen = 'freezes: [{schedule: "* * * * *", duration: 1h, reason: sale}]\n'
    scene.branch.commit({".image-update/config": SIGNED + frozen})
    assert verdicts(scene.event("web:1.5.0")) == ["defer"]
    scene.branch.commit({".image-update/config": SIGNED})
    signed_but_150(scene)
    report = scene.event("web:1.4.0")
    (decision,) = report.decisions
    assert decision.verdict == "update"
    assert decision.because.startswith("semver admits it; refused: 1.5.0")
    assert scene.waiting == {"web": "1.4.0"}
    assert "deferred" not in str(scene.branch.memory)


def test_a_newer_deferred_build_is_not_attributed_to_the_promotion() -> None:
    scene = Scene()
    scene.branch.commit({target("s"): KUSTOMIZATION.replace("1.0.0", "1.3.0")})
    scene.freeze()
    scene.event("web:1.6.0")
    scene.freeze(ends=True)
    (decision,) = promote(scene).decisions
    assert (decision.verdict, decision.candidate.tag, decision.source) == ("update", "1.6.0", "")
    assert scene.branch.heads[HEAD].message.startswith("build: automatic update of a to 1.6.0")


def test_a_release_ends_a_hold_on_the_base_even_if_a_rollback_waits() -> None:
    """Once, the list lacked the release, and the next run restored the hold on the branch."""
    scene = Scene()
    scene.by_hand("rollback", "web", "0.9.0")
    scene.branch.merge(HEAD)
    scene.by_hand("rollback", "web", "0.8.0", held=False)
    scene.by_hand("release", "web")
    assert [one.image for one in scene.branch.lists[HEAD].releases] == ["web"]
    assert verdicts(scene.event("cron:1.2.0")) == ["update"]
    assert scene.waiting == {"web": "0.8.0", "cron": "1.2.0"}
    assert "hold:" not in scene.branch.heads[HEAD].files[STATE]
    scene.branch.merge(HEAD)
    assert verdicts(scene.event("web:1.2.0")) == ["update"]


DOWN = Answer(error=UnreachableError("the registry answers 503", hint=""))
ALWAYS = Terms(now=NOW, check="always")


def always_asked(scene: Scene, *images: str) -> Report:
    """Send an event in a run that must query the registry."""
    built = tuple(parse_image(f"ghcr.io/acme/{one}") for one in images)
    return scene.story.run(Job("run", built, SCOPE, ALWAYS, WORDING))


def deferred_by_freeze(scene: Scene, image: str) -> None:
    scene.freeze()
    assert verdicts(scene.event(image)) == ["defer"]
    scene.freeze(ends=True)


def test_a_release_during_a_registry_outage_keeps_the_hold_and_the_waiting_build() -> None:
    """The run reports that it must be repeated, and the next run must find both hold and build."""
    scene = Scene()
    scene.by_hand("hold", "web")
    scene.event("web:1.5.0")
    scene.story.answers = {"1.5.0": DOWN}
    intent = Intent("release", None, whole=False)
    job = Job("release", (), SCOPE, ALWAYS, WORDING, intent=intent, aliases=("web",))
    (decision,) = scene.story.run(job).decisions
    assert decision.verdict == "error"
    assert decision.because == "not released: 1.5.0 is waiting, and the registry answers 503"
    assert verdicts(scene.event("web:1.4.0")) == ["refuse"]  # 1.5.0 is still held, and is newer
    scene.story.answers = {}
    scene.by_hand("release", "web")
    assert scene.waiting == {"web": "1.5.0"}


def test_a_deferred_build_that_cannot_be_checked_stays_deferred_next_to_an_older_build() -> None:
    scene = Scene()
    deferred_by_freeze(scene, "web:1.5.0")
    scene.story.answers = {"1.5.0": DOWN}
    (decision,) = always_asked(scene, "web:1.4.0").decisions
    assert (decision.verdict, decision.candidate.tag) == ("update", "1.4.0")
    assert decision.because.endswith("; 1.5.0 is still waiting: the registry answers 503")
    scene.story.answers = {}
    scene.event("web:1.3.0")
    assert scene.waiting == {"web": "1.5.0"}


def test_an_event_that_cannot_be_checked_is_an_error_despite_a_writable_deferred_build() -> None:
    scene = Scene()
    deferred_by_freeze(scene, "web:1.5.0")
    scene.story.answers = {"1.6.0": DOWN}
    assert verdicts(always_asked(scene, "web:1.6.0")) == ["error"]
    scene.story.answers = {}
    assert verdicts(always_asked(scene, "web:1.6.0")) == ["update"]
    assert scene.waiting == {"web": "1.6.0"}


@pytest.mark.parametrize(
    ("before", "back", "replay"),
    [
        ("1.5.0", f"1.4.2@sha256:{'a' * 64}", f"1.5.0@sha256:{'b' * 64}"),
        (f"1.5.0@sha256:{'b' * 64}", "1.4.2", "1.5.0"),
    ],
)
def test_a_replay_with_or_without_a_digest_does_not_undo_a_rollback(
    before: str, back: str, replay: str
) -> None:
    scene = Scene(branch="main")
    tag, _, digest = before.partition("@")
    text = f"newTag: {tag}\n" + (f"  digest: {digest}\n" if digest else "")
    start = scene.branch.files[target("a")]
    scene.branch.commit({target("a"): start.replace(f"newTag: {FIRST}\n", text, 1)})
    assert verdicts(scene.by_hand("rollback", "web", back, held=False)) == ["update"]
    (decision,) = scene.event(f"web:{replay}").decisions
    assert decision.verdict == "refuse", decision.because
    assert "rerun does not" in decision.because
    assert verdicts(scene.event(f"web:1.6.0@sha256:{'c' * 64}")) == ["update"]
