"""Waiting builds while other builds fail, and attacks by people who may push only side branches."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from support.history_scenes import FIRST, HEAD, Scene, told, verdicts
from support.memory import URL, Commit, Story
from support.runs import KUSTOMIZATION, WEB, application, target

from task.errors import RepositoryError, TaskError, UnreachableError
from task.landing.head_branches import _may_be_named
from task.landing.waiting_list import (
    HeadCommit,
    ListedRelease,
    WaitingList,
    list_path,
    write_list,
)
from task.model import Changeset, Hold, Question, Verdict
from task.proof import Proof

SIGNED = "version: 1\nsignatures: {keys: [cosign.pub]}\n"
KEY = "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"
NO = Verdict("refuse", "signature", "nobody has signed it")
MEMORY = "image-update-memory/"


class Signatures:
    """Fake signature checks: a result per tag, or an error if the registry does not respond."""

    def __init__(self, scene: Scene) -> None:
        self.said: dict[str, Verdict | TaskError] = {}
        scene.story.prove = scene.direct.prove = self.answers
        scene.story.answer = replace(scene.story.answer, digest="sha256:" + "d" * 64)
        scene.branch.commit({".image-update/config": SIGNED, "cosign.pub": KEY})

    def answers(
        self, questions: Collection[Question]
    ) -> Mapping[Question, Proof | Verdict | TaskError]:
        good = Proof("signature", "cosign.pub")
        return {one: self.said.get(one.image.tag, good) for one in questions}


def version(scene: Scene) -> str:
    return scene.waiting.get("web", "").partition("@")[0]


@pytest.mark.parametrize("why", [NO, UnreachableError("the registry answers 503", hint="")])
def test_an_unproven_build_does_not_remove_the_waiting_build(why: Verdict | TaskError) -> None:
    scene = Scene()
    signatures = Signatures(scene)
    scene.event("web:1.1.0")
    assert version(scene) == "1.1.0"
    signatures.said["1.6.6"] = why
    before = scene.branch.heads[HEAD]
    report = scene.event("web:1.6.6")
    assert verdicts(report) == ["refuse" if isinstance(why, Verdict) else "error"]
    assert told(report) == [("web", "1.1.0", "waits")]
    assert scene.branch.heads[HEAD] == before


def test_a_waiting_build_that_is_no_longer_proven_is_dropped_but_not_declined() -> None:
    scene = Scene()
    signatures = Signatures(scene)
    scene.event("web:1.1.0", "cron:1.1.0")
    signatures.said["1.1.0"] = NO
    report = scene.event("api:1.3.0")
    assert sorted(told(report)) == [("cron", "1.1.0", "dropped"), ("web", "1.1.0", "dropped")]
    assert all("no longer proved" in one.because for one in report.waiting)
    assert set(scene.waiting) == {"api"}
    signatures.said.clear()
    assert verdicts(scene.event("web:1.1.0")) == ["update"]


def test_a_waiting_build_that_cannot_be_checked_is_kept_with_a_warning() -> None:
    scene = Scene()
    signatures = Signatures(scene)
    scene.event("web:1.1.0")
    signatures.said["1.1.0"] = UnreachableError("the registry answers 503", hint="")
    report = scene.event("cron:1.2.0")
    assert verdicts(report) == ["update"]
    assert told(report) == [("web", "1.1.0", "waits")]
    assert any("could not be checked" in one.message for one in report.problems)
    assert set(scene.waiting) == {"web", "cron"}


def test_files_from_an_amended_head_branch_are_not_carried_over() -> None:
    """The branch's tree differs from the list's, so a person made it. It is not carried over."""
    scene = Scene()
    scene.event("web:1.1.0")
    ours = scene.branch.heads[HEAD]
    files = {**ours.files, ".github/workflows/ci.yaml": "evil\n"}
    scene.branch.heads[HEAD] = replace(ours, files=files)
    scene.event("web:1.2.0")
    assert (
        scene.branch.heads[HEAD].before is None
    )  # a commit on top of the branch, not of the base's tip
    assert scene.branch.files.get(".github/workflows/ci.yaml") is None


def forged(scene: Scene, **changes: object) -> None:
    """Write a different list, like an attacker who may push to the memory branch."""
    known = scene.branch.lists[HEAD]
    builds = tuple(replace(one, **changes) for one in known.builds)  # type: ignore[arg-type]
    text = write_list(replace(known, builds=builds))
    for name, one in scene.branch.heads.items():
        if name.startswith(MEMORY):
            files = {**one.files, list_path(HEAD): text}
            scene.branch.heads[name] = Commit("a" * 40, files, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"path": ".github/workflows"},
        {"path": ".image-update"},
        {"path": "apps/other"},
        {"application": "argocd/nobody", "path": "apps/b"},
        {"image": "ghcr.io/evil/web"},
        {"target": "file", "path": ".image-update/config"},
        {"target": "nonsense"},
        {"folder": ".github"},
        {"tag": "6.6.6", "digest": ""},
    ],
    ids=str,
)
def test_a_forged_list_cannot_write_anything_that_the_config_forbids(
    changes: dict[str, object],
) -> None:
    scene = Scene()
    signatures = Signatures(scene)
    signatures.said["6.6.6"] = NO
    scene.event("web:1.1.0")
    only = f"{SIGNED}writes: {{paths: [apps/a/**]}}\n"
    scene.branch.commit({".image-update/config": only, target("b"): KUSTOMIZATION})
    forged(scene, **changes)
    scene.event("cron:1.2.0")
    head = scene.branch.heads[HEAD]
    differs = {path for path in head.files if head.files[path] != scene.branch.files.get(path)}
    assert differs <= {target("a"), ".image-update/apps/a/argocd_a.state"}
    assert "6.6.6" not in head.files[target("a")]
    assert "evil" not in head.files[target("a")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 2\n",
        "[]",
        "a: &x [*x]\n",
        "version: '1'\nhead: bump\nbuilds: 7\n",
        "version: '1'\nhead: another\n",
        "version: '1'\nhead: bump\nmore: x\n",
        "x" * 1_000_001,
    ],
    ids=lambda text: text[:30],
)
def test_an_unreadable_list_causes_an_error_only_for_its_head_branch(text: str) -> None:
    scene = Scene()
    scene.event("web:1.1.0")
    for name, one in scene.branch.heads.items():
        if name.startswith(MEMORY):
            scene.branch.heads[name] = replace(one, files={list_path(HEAD): text})
    report = scene.event("web:1.2.0")
    assert verdicts(report) == ["error"]
    assert "cannot read the list of builds waiting on bump" in report.decisions[0].because
    assert verdicts(scene.event("web:1.2.0", story=scene.direct)) == ["update"]


def test_a_hold_applies_to_a_build_of_an_application_that_was_not_read() -> None:
    scene = Scene()
    scene.branch.commit({target("b"): KUSTOMIZATION})
    app = application("b", URL, image_list=f"web={WEB}", git_branch=f"main:{HEAD}")
    other = Story(app, scene.branch)
    scene.event("web:1.1.0", story=other)
    state = f"files:\n  {target('b')}:\n    images:\n      web:\n        hold: {{reason: broken}}\n"
    scene.branch.commit({".image-update/apps/b/argocd_b.state": state})
    report = scene.event("cron:1.2.0")
    (row,) = [one for one in report.waiting if one.application == "argocd/b"]
    assert (row.tag, row.outcome) == ("1.1.0", "deferred")
    assert "1.1.0" not in scene.branch.heads[HEAD].files[target("b")]
    assert scene.base["web"] == FIRST


def test_the_memory_branch_cannot_end_a_hold_on_the_base_or_write_to_it() -> None:
    scene = Scene()
    path = ".image-update/apps/a/argocd_a.state"
    start = f"files:\n  {target('a')}:\n    images:\n      web:\n        "
    scene.branch.commit({path: f"{start}hold: {{reason: broken, at: 2026-01-01T00:00:00Z}}\n"})
    scene.event("api:1.1.0")
    for name, one in scene.branch.heads.items():
        if name.startswith(MEMORY):
            evil = f"{start}released: 2030-01-01T00:00:00Z\n        deferred: {{tag: 9.9.9}}\n"
            evil += "      cron:\n        deferred: {tag: 9.9.9}\n"
            scene.branch.heads[name] = replace(one, files={**one.files, path: evil})
    scene.story = scene.direct
    assert sorted(verdicts(scene.event("web:1.2.0", "cron:1.2.0"))) == ["defer", "update"]
    assert scene.base == {"web": FIRST, "api": FIRST, "cron": "1.2.0"}


def test_a_forged_release_does_not_end_a_hold_on_the_base_and_is_reported() -> None:
    scene = Scene()
    path = ".image-update/apps/a/argocd_a.state"
    hold = Hold("broken", at="2026-01-01T00:00:00Z")
    text = "hold: {reason: broken, at: 2026-01-01T00:00:00Z}"
    held = f"files:\n  {target('a')}:\n    images:\n      web:\n        {text}\n"
    scene.branch.commit({path: held})
    scene.event("api:1.1.0")
    mine = ListedRelease("argocd/a", "apps/a", target("a"), "web", hold)
    for release in (
        replace(mine, image=""),  # only images were held, not the whole Application
        replace(mine, image="cron"),
        replace(mine, application="argocd/b"),
        replace(mine, hold=Hold("another")),
    ):
        with_release(scene, release)
        assert "update" not in verdicts(scene.event("web:1.2.0"))
    with_release(scene, mine)
    assert verdicts(scene.event("web:1.2.0", story=scene.direct)) == ["defer"]
    assert scene.base["web"] == FIRST
    scene.event("cron:1.2.0")
    assert scene.branch.heads[HEAD].message.startswith("release a")
    assert "a (web): released: it was held" in scene.branch.heads[HEAD].message
    assert "broken" in scene.branch.files[path]


def with_release(scene: Scene, release: ListedRelease) -> None:
    """Write a release to the list, like an attacker who may push to the memory branch."""
    known = replace(scene.branch.lists.get(HEAD, WaitingList(HEAD)), releases=(release,))
    (name,) = [name for name in scene.branch.heads if name.startswith(MEMORY)]
    files = {**scene.branch.heads[name].files, list_path(HEAD): write_list(known)}
    scene.branch.heads[name] = Commit("a" * 40, files, None)


def test_in_a_memory_branch_without_a_known_signature_only_holds_count() -> None:
    scene = Scene()
    scene.event("web:1.1.0", "cron:1.1.0")
    scene.by_hand("hold", "web")
    scene.branch.trusted = False
    report = scene.event("web:1.3.0", "api:1.2.0")
    assert sorted(verdicts(report)) == ["defer", "update"]
    (problem,) = report.problems
    assert "no known key has signed it, so only its holds count; left out: " in problem.message
    assert list_path(HEAD) in problem.message
    scene.branch.trusted = True
    report = scene.event("web:1.4.0")
    assert (verdicts(report), report.problems) == (["defer"], ())
    assert [build.alias for build in scene.branch.lists[HEAD].builds] == ["api"]


def test_a_forged_state_in_an_unsigned_memory_branch_defers_nothing() -> None:
    scene = Scene()
    scene.by_hand("hold", "web")
    path = ".image-update/apps/a/argocd_a.state"
    start = f"files:\n  {target('a')}:\n    images:\n      web:\n        "
    for name, one in scene.branch.heads.items():
        if name.startswith(MEMORY):
            evil = f"{start}hold: {{reason: broken}}\n        deferred: {{tag: 9.9.9}}\n"
            scene.branch.heads[name] = replace(one, files={path: evil})
    scene.branch.trusted = False
    assert verdicts(scene.event("cron:1.2.0")) == ["update"]
    assert "9.9.9" not in scene.branch.memory[path]
    assert "broken" in scene.branch.memory[path]
    scene.branch.trusted = True
    scene.by_hand("release", "web")
    assert set(scene.waiting) == {"cron"}


def test_a_server_that_rejects_the_memory_branch_fails_only_the_updates_that_need_it() -> None:
    scene = Scene()
    scene.branch.commit({target("b"): KUSTOMIZATION})
    scene.story.others = [application("b", URL, image_list=f"web={WEB}", update_strategy="semver")]

    def refuses(_change: Changeset) -> None:
        raise RepositoryError("a hook refuses it", hint="", subject="image-update-memory/1")

    scene.branch._check_memory = refuses  # type: ignore[method-assign, assignment]
    report = scene.event("web:1.1.0")
    said = {one.subscription.application.key: one.verdict for one in report.decisions}
    assert said == {"argocd/a": "error", "argocd/b": "update"}
    assert "newTag: 1.1.0" in scene.branch.files[target("b")]
    report = scene.by_hand("hold", "web")
    said = {one.subscription.application.key: one.verdict for one in report.decisions}
    assert said == {"argocd/a": "error", "argocd/b": "defer"}
    assert HEAD not in scene.branch.heads


@pytest.mark.parametrize(("said", "waits"), [(None, True), (NO, False)])
def test_a_build_for_an_uninvolved_application_needs_its_proof_as_well(
    said: Verdict | None, waits: bool
) -> None:
    scene = Scene()
    signatures = Signatures(scene)
    scene.branch.commit({target("b"): KUSTOMIZATION})
    app = application("b", URL, image_list=f"web={WEB}", git_branch=f"main:{HEAD}")
    other = Story(app, scene.branch)
    other.prove, other.answer = scene.story.prove, scene.story.answer
    scene.event("web:1.1.0", story=other)
    signatures.said["1.1.0"] = said or Proof("signature", "cosign.pub")  # type: ignore[assignment]
    report = scene.event("cron:1.2.0")
    (row,) = [one for one in report.waiting if one.application == "argocd/b"]
    assert row.outcome == ("waits" if waits else "dropped")
    assert ("1.1.0" in scene.branch.heads[HEAD].files[target("b")]) == waits


def test_rules_apply_to_another_application_that_the_run_has_read() -> None:
    """The event does not concern the other Application, but its annotations were read."""
    scene = Scene()
    scene.branch.commit({target("b"): KUSTOMIZATION})
    app = application(
        "b", URL, image_list=f"web={WEB}", git_branch=f"main:{HEAD}", update_strategy="semver"
    )
    other = Story(app, scene.branch)
    scene.event("web:1.1.0", story=other)
    scene.story.others = [app]
    scene.branch.commit({target("b"): KUSTOMIZATION.replace("1.0.0", "1.0.5")})
    report = scene.by_hand("hold", "cron")  # this run reads every Application
    (row,) = [one for one in report.waiting if one.application == "argocd/b"]
    assert (row.tag, row.outcome, row.because[:6]) == ("1.1.0", "waits", "semver")


def listed_as(scene: Scene, head: str, **fields: object) -> None:
    """Write a list for any branch, like an attacker who may push to the memory branch."""
    text = write_list(WaitingList(head, **fields))  # type: ignore[arg-type]
    (name,) = [name for name in scene.branch.heads if name.startswith(MEMORY)]
    files = {**scene.branch.heads[name].files, list_path(head): text}
    scene.branch.heads[name] = Commit("a" * 40, files, None)


@pytest.mark.parametrize("head", ["production", "main", "feature/x"])
@pytest.mark.parametrize("closing", ["", "nothing waits"])
def test_a_forged_list_cannot_delete_or_replace_other_branches(head: str, closing: str) -> None:
    """The list names the tree and parent of the branch's tip, so the branch would seem ours."""
    scene = Scene()
    scene.event("web:1.1.0")
    if head != "main":
        scene.branch.commit_on(head, {"theirs.md": "mine\n"})
    there = scene.branch.opened().head(head)
    made = HeadCommit(there.tree, there.parent) if there else HeadCommit("b" * 40, "c" * 40)
    builds = scene.branch.lists[HEAD].builds if not closing else ()
    before = dict(scene.branch.heads)
    listed_as(scene, head, builds=builds, commit=made, closing=closing)
    scene.event("cron:1.2.0")
    scene.by_hand("hold", "web")
    assert scene.branch.heads.get(head) == before.get(head)
    assert scene.branch.files[target("a")].count(FIRST) == 3


@pytest.mark.parametrize(
    ("template", "name", "may"),
    [
        ("bump", "bump", True),
        ("", "", False),
        ("bump-{{.SHA256}}", "bump-1a2b", True),
        ("bump-{{.SHA256}}", "production", False),
        ("a{{x}}b{{y}}c", "a1b2c", True),
        ("a{{x}}bc{{y}}cd", "abcd", False),
        ("{{x}}a" * 60, "a" * 250 + "b", False),
    ],
)
def test_a_head_branch_must_match_the_template_in_the_git_branch_annotation(
    template: str, name: str, may: bool
) -> None:
    assert _may_be_named(name, template) is may
