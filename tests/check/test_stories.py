"""Changes by people, bots, and our own commands, and the result of `check` for each.

The possible states of base, change, hold, state file, and memory, and the results:

- A tracked entry is in the base, in the change, or in both. Its version or name is the same or
  differs. Only differences are judged, by the change's annotations if it still has the entry, else by
  the base's. An entry that is only spelled differently or moved has not changed.
- The base's state file or memory branch holds an entry, or a freeze in the base's config does. The
  change ends a hold, adds one, or leaves it. A hold that the change ends does not apply, and is
  reported. A hold that it adds does not apply to the change itself. A freeze only ends on its own.
- If the state file describes a rollback with these values, the change is a rollback. Holds and the
  order do not block it. A freeze blocks it only if it does not set a hold.
- The base's config applies. The change's config does not apply yet, and the difference is reported.
- A registry or a proof answers yes, no, or not at all. A missing answer never passes.
- An entry that is removed or can no longer be read is not judged, and is reported.
"""

from typing import Any

import pytest
from support.judging import Judge, manifest_file, manifest_of, tagged, told, tree, warnings
from support.memory import URL
from support.runs import KUSTOMIZATION, PREFIX, target

from task.errors import CredentialsError, RegistryError, UnreachableError
from task.model import Answer, Report, Verdict

STATE = ".image-update/apps/a/argocd_a.state"
CONFIG = ".image-update/config"
DIGEST, OTHER = (f"sha256:{letter * 64}" for letter in "ab")
PASSES, HELD = [("web", "update", "admitted")], [("web", "defer", "held")]
HOLD = '{reason: INC-1, by: jane, at: "2026-11-22T11:00:00Z"}'
FREEZE = {CONFIG: 'version: 1\nfreezes: [{schedule: "* * * * *", duration: 1h, reason: sale}]\n'}
START = tree(manifest_file(), tagged("1.0.0"))
CALM = {"README.md": "x\n"}


def state(
    hold: str = "", *, of_image: str = "", memory: str = "", name: str = "a"
) -> dict[str, str]:
    """Return a state file in the format that our commands write."""
    lines = ["files:", f"  apps/{name}/kustomization.yaml:"]
    lines += [f"    hold: {hold}"] if hold else []
    lines += ["    images:", "      web:"] if of_image or memory else []
    lines += [f"        hold: {of_image}"] if of_image else []
    lines += [f"        {line}" for line in memory.splitlines()]
    return {f".image-update/apps/{name}/argocd_{name}.state": "\n".join(lines) + "\n"}


def said(
    *change: dict[str, Any], base: dict[str, str] = START, judge: Judge | None = None
) -> Report:
    return (judge or Judge()).report(base, tree(base, *change))


def config(text: str) -> dict[str, str]:
    return {CONFIG: f"version: 1\n{text}\n"}


# --- which changes affect a version ---


@pytest.mark.parametrize(
    "change",
    [
        {"README.md": "words\n"},
        {target("a"): f"# a comment\n{KUSTOMIZATION}"},
        {target("a"): KUSTOMIZATION.replace("1.0.0", "'1.0.0'")},
        {target("a"): KUSTOMIZATION.replace("resources: []\n", "resources: [x.yaml]\n")},
        {target("a"): "images: [{name: ghcr.io/acme/web, newTag: 1.0.0}]\nresources: []\n"},
        {"apps/b/kustomization.yaml": KUSTOMIZATION},
        {target("a"): None, "apps/a/kustomization.yml": KUSTOMIZATION},
        {target("a"): KUSTOMIZATION.replace("\n", "\r\n")},
    ],
)  # fmt: skip
def test_a_change_that_keeps_all_versions_passes_without_requests(change: dict[str, Any]) -> None:
    judge = Judge()
    report = said(change, judge=judge)
    assert (report.exit, told(report), judge.asked, judge.proved) == (0, [], [], [])


def test_a_change_to_unrelated_files_passes_without_reading_any() -> None:
    def unread(_files: object) -> list[Any]:
        raise AssertionError

    judge = Judge()
    report = judge.report(CALM, tree(CALM, {"README.md": "y\n", "src/main.go": "z\n"}), unread)
    assert (report.exit, report.decisions) == (0, ())
    assert judge.log == [("debug", "no tracked version has changed (2 changed files)")]


def test_moving_a_file_together_with_its_application_is_not_a_change() -> None:
    def moved(item: dict[str, Any]) -> None:
        item["spec"]["source"]["path"] = "new/a"

    report = said(
        manifest_of("a", moved), {target("a"): None, "new/a/kustomization.yaml": KUSTOMIZATION}
    )
    assert (report.exit, told(report)) == (0, [])


def test_a_moved_file_with_a_new_version_is_blocked_by_the_hold_of_its_old_path() -> None:
    def moved(item: dict[str, Any]) -> None:
        item["spec"]["source"]["path"] = "new/a"

    base = tree(START, state(HOLD))
    there = KUSTOMIZATION.replace("1.0.0", "1.1.0")
    report = said(
        manifest_of("a", moved), {target("a"): None, "new/a/kustomization.yaml": there}, base=base
    )
    assert (report.exit, told(report)) == (5, HELD)


def test_a_newer_version_passes() -> None:
    report = said(tagged("1.1.0"))
    assert (report.exit, told(report), warnings(report)) == (0, PASSES, "")
    (one,) = report.decisions
    assert (one.current.tag, one.candidate.tag, one.current.file, one.line) == (
        "1.0.0", "1.1.0", target("a"), 4,
    )  # fmt: skip


def test_a_version_out_of_range_is_refused() -> None:
    base = tree(manifest_file(image_list="web=ghcr.io/acme/web:~1.0"), tagged("1.0.0"))
    report = said(tagged("2.0.0"), base=base)
    assert (report.exit, told(report)) == (5, [("web", "refuse", "constraint")])


def test_a_new_image_name_that_is_not_tracked_is_refused() -> None:
    text = KUSTOMIZATION.replace("  newTag", "  newName: ghcr.io/evil/web\n  newTag")
    report = said({target("a"): text})
    assert (report.exit, told(report)) == (5, [("web", "refuse", "annotation")])


def test_removing_a_digest_is_a_change() -> None:
    base = tree(manifest_file(), tagged(f"1.0.0@{DIGEST}"), state(HOLD))
    report = said(tagged("1.0.0"), base=base)
    assert (report.exit, told(report)) == (5, HELD)


def test_a_hold_on_one_application_does_not_block_another_application() -> None:
    base = tree(
        manifest_file("a"), manifest_file("b"), tagged("1.0.0"), tagged("1.0.0", "b"), state(HOLD)
    )
    report = said(tagged("1.1.0", "b"), base=base)
    assert (report.exit, told(report)) == (0, PASSES)
    assert report.decisions[0].subscription.application.name == "b"


# --- what people may do ---


def test_an_older_version_causes_a_warning() -> None:
    report = said(tagged("0.9.0"))
    assert (report.exit, told(report)) == (0, PASSES)
    assert "0.9.0" in warnings(report)


@pytest.mark.parametrize(
    ("rule", "code", "verdict"), [("not-newer", 5, "refuse"), ("superseded", 0, "update")]
)
def test_the_config_can_refuse_an_older_version(rule: str, code: int, verdict: str) -> None:
    report = said(tagged("0.9.0"), base=tree(START, config(f"check: {{refuse: [{rule}]}}")))
    assert (report.exit, [one.verdict for one in report.decisions]) == (code, [verdict])


def test_a_rolled_back_version_causes_a_warning_unless_the_config_refuses_it() -> None:
    gone = state(memory='replaced: ["1.1.0"]')
    report = said(tagged("1.1.0"), base=tree(START, gone))
    assert (report.exit, told(report)) == (0, PASSES)
    assert "has since been replaced" in warnings(report)
    strict = tree(START, gone, config("check: {refuse: [superseded]}"))
    assert told(said(tagged("1.1.0"), base=strict)) == [("web", "refuse", "superseded")]


# --- holds ---


@pytest.mark.parametrize("held", [state(HOLD), state(of_image=HOLD)])
def test_a_hold_blocks_a_new_version(held: dict[str, str]) -> None:
    report = said(tagged("1.1.0"), base=tree(START, held))
    assert (report.exit, told(report)) == (5, HELD)
    assert "INC-1" in report.decisions[0].because


def test_an_expired_hold_blocks_nothing() -> None:
    over = '{reason: INC-1, until: "2026-11-22T11:30:00Z"}'
    assert told(said(tagged("1.1.0"), base=tree(START, state(over)))) == PASSES


def test_a_hold_on_the_memory_branch_blocks_a_new_version() -> None:
    report = said(tagged("1.1.0"), judge=Judge(memory=state(HOLD)))
    assert (report.exit, told(report)) == (5, HELD)


@pytest.mark.parametrize("held", [state(HOLD), state(of_image=HOLD)])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_hold_that_the_change_ends_is_reported(held: dict[str, str], deleted: bool) -> None:
    ended: dict[str, Any] = {STATE: None if deleted else "files: {}\n"}
    report = said(tagged("1.1.0"), ended, base=tree(START, held))
    assert (report.exit, told(report)) == (0, PASSES)
    assert "ends the hold INC-1 on" in warnings(report)
    assert "argocd/a" in warnings(report)


def test_the_change_cannot_end_a_hold_on_the_memory_branch() -> None:
    report = said(
        tagged("1.1.0"),
        {STATE: None},
        base=tree(START, state(HOLD)),
        judge=Judge(memory=state(HOLD)),
    )
    assert (report.exit, told(report)) == (5, HELD)


def test_a_hold_that_the_change_shortens_is_reported_and_still_blocks() -> None:
    shorter = '{reason: INC-1, by: jane, at: "2026-11-22T11:00:00Z", until: "2026-11-22T12:30:00Z"}'
    report = said(tagged("1.1.0"), state(shorter), base=tree(START, state(HOLD)))
    assert (report.exit, told(report)) == (5, HELD)
    assert "changes the hold INC-1" in warnings(report)


def test_a_hold_without_a_new_version_is_only_reported() -> None:
    report = said(state(HOLD))
    assert (report.exit, told(report)) == (0, [])
    assert warnings(report) == "the change holds argocd/a: INC-1"


def test_a_hold_added_together_with_a_version_does_not_block_it() -> None:
    report = said(state(HOLD), tagged("1.1.0"))
    assert (report.exit, told(report)) == (0, PASSES)
    assert "holds argocd/a: INC-1" in warnings(report)


def test_an_unreadable_state_file_is_an_error() -> None:
    report = said({STATE: "files: [\n"})
    assert report.exit == 3


def test_a_broken_state_file_in_the_base_can_be_repaired() -> None:
    base = tree(START, {STATE: "files: [\n"})
    assert said(tagged("1.1.0"), base=base).exit == 3
    assert said(state(HOLD), base=base).exit == 0


# --- rollbacks ---

BACK = 'replaced: ["1.1.0"]\nrollback: {tag: "1.0.0", was: "1.1.0"}'


def test_our_own_rollback_passes_despite_a_hold_and_the_older_version() -> None:
    base = tree(
        manifest_file(), tagged("1.1.0"), state(HOLD), config("check: {refuse: [not-newer]}")
    )
    report = said(tagged("1.0.0"), state(HOLD, memory=BACK), base=base, judge=Judge(past=(START,)))
    assert (report.exit, told(report)) == (0, PASSES)
    assert "rolls web in argocd/a back from 1.1.0 to 1.0.0" in warnings(report)


def test_a_rollback_during_a_freeze_needs_a_hold() -> None:
    base = tree(manifest_file(), tagged("1.1.0"), FREEZE)
    judge = Judge(past=(START,))
    assert told(said(tagged("1.0.0"), state(memory=BACK), base=base, judge=judge)) == HELD
    assert told(said(tagged("1.0.0"), state(HOLD, memory=BACK), base=base, judge=judge)) == PASSES


def test_a_rollback_to_a_tag_unknown_to_git_and_the_registry_is_refused() -> None:
    base = tree(manifest_file(), tagged("1.1.0"))
    judge = Judge(answer=Answer(exists=False))
    report = said(tagged("1.0.0"), state(HOLD, memory=BACK), base=base, judge=judge)
    assert (report.exit, told(report)) == (5, [("web", "refuse", "not-in-registry")])


def test_a_state_file_for_another_version_does_not_justify_a_rollback() -> None:
    base = tree(manifest_file(), tagged("1.1.0"), state(HOLD))
    lie = state(HOLD, memory='rollback: {tag: "0.8.0", was: "1.1.0"}')
    assert told(said(tagged("1.0.0"), lie, base=base)) == HELD
    older = state(HOLD, memory='rollback: {tag: "1.0.0", was: "0.8.0"}')
    assert told(said(tagged("1.0.0"), older, base=base)) == HELD


def test_a_repeated_rollback_is_reported() -> None:
    base = tree(manifest_file(), tagged("1.1.0"), state(HOLD, memory=BACK))
    report = said(tagged("1.0.0"), base=base, judge=Judge(past=(START,)))
    assert (report.exit, told(report)) == (0, PASSES)
    assert "rolls web in argocd/a back from 1.1.0 to 1.0.0" in warnings(report)
    assert told(said(tagged("1.2.0"), base=base)) == HELD


# --- freezes and the config ---


def test_a_freeze_blocks_a_new_version() -> None:
    report = said(tagged("1.1.0"), base=tree(START, FREEZE))
    assert (report.exit, told(report)) == (5, HELD)
    assert "sale" in report.decisions[0].because


def test_a_freeze_that_the_change_removes_still_blocks_and_is_reported() -> None:
    report = said(tagged("1.1.0"), {CONFIG: "version: 1\n"}, base=tree(START, FREEZE))
    assert (report.exit, told(report)) == (5, HELD)
    assert f"alters {CONFIG}" in warnings(report)


def test_a_freeze_for_another_application_does_not_block() -> None:
    text = FREEZE[CONFIG].replace("reason: sale", "reason: sale, match: {applications: [b]}")
    assert told(said(tagged("1.1.0"), base=tree(START, {CONFIG: text}))) == PASSES


def test_a_renamed_application_can_be_frozen_by_either_name() -> None:
    text = FREEZE[CONFIG].replace("reason: sale", "reason: sale, match: {applications: [a]}")

    def renamed(item: dict[str, Any]) -> None:
        item["metadata"]["name"] = "b"

    report = said(manifest_of("a", renamed), tagged("1.1.0"), base=tree(START, {CONFIG: text}))
    assert report.exit == 5
    assert ("web", "defer", "held") in told(report)


def test_an_unreadable_config_is_an_error_and_can_be_repaired() -> None:
    assert said({CONFIG: "version: 7\n"}).exit == 3
    base = tree(START, {CONFIG: "version: 7\n"})
    assert said(tagged("1.1.0"), base=base).exit == 3
    report = said(tagged("1.1.0"), {CONFIG: "version: 1\n"}, base=base)
    assert (report.exit, told(report)) == (0, PASSES)


def test_a_file_that_the_application_may_not_write_is_an_error() -> None:
    report = said(tagged("1.1.0"), base=tree(START, config("writes: {paths: [teams/**]}")))
    assert (report.exit, told(report)) == (3, [("web", "error", "not-permitted")])


# --- digests and registries ---


def test_a_tag_without_the_digest_that_the_config_requires_is_refused() -> None:
    base = tree(START, config("pinDigest: true"))
    assert told(said(tagged("1.1.0"), base=base)) == [("web", "refuse", "pin-digest")]
    assert told(said(tagged(f"1.1.0@{DIGEST}"), base=base)) == PASSES


def test_a_nonexistent_digest_is_refused() -> None:
    judge = Judge(answers={OTHER: Answer(exists=False)})
    report = said(tagged(f"1.1.0@{OTHER}"), judge=judge)
    assert (report.exit, told(report)) == (5, [("web", "refuse", "not-in-registry")])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnreachableError("the registry is down"), 75),
        (CredentialsError("no login"), 4),
        (RegistryError("odd answer"), 3),
    ],
)
def test_a_digest_that_could_not_be_looked_up_never_passes(error: Any, code: int) -> None:
    report = said(tagged(f"1.1.0@{OTHER}"), judge=Judge(answers={OTHER: Answer(error=error)}))
    assert (report.exit, [one.verdict for one in report.decisions]) == (code, ["error"])


def test_the_registry_is_not_queried_if_the_check_is_off() -> None:
    judge = Judge(check="never")
    assert told(said(tagged(f"1.1.0@{OTHER}"), judge=judge)) == PASSES
    assert judge.asked == []


def test_a_nonexistent_tag_is_refused_if_the_registry_is_always_checked() -> None:
    judge = Judge(check="always", answer=Answer(exists=False))
    assert told(said(tagged("1.1.0"), judge=judge)) == [("web", "refuse", "not-in-registry")]


def test_an_image_for_other_platforms_is_refused() -> None:
    base = tree(manifest_file(**{"web.platforms": "linux/arm64"}), tagged("1.0.0"))
    judge = Judge(answer=Answer(platforms=("linux/amd64",)))
    assert told(said(tagged("1.1.0"), base=base, judge=judge)) == [("web", "refuse", "platforms")]


@pytest.mark.parametrize(
    ("created", "verdict"),
    [("2026-11-22T11:00:00Z", "refuse"), ("2026-11-01T00:00:00Z", "update"), ("", "refuse")],
)
def test_a_version_must_have_the_minimum_age_set_in_the_config(created: str, verdict: str) -> None:
    base = tree(START, config("minimumAge: 3d"))
    report = said(tagged("1.1.0"), base=base, judge=Judge(answer=Answer(created=created)))
    assert [one.verdict for one in report.decisions] == [verdict]


def test_a_version_of_unknown_age_never_passes() -> None:
    judge = Judge(answer=Answer(error=UnreachableError("the registry is down")))
    assert said(tagged("1.1.0"), base=tree(START, config("minimumAge: 3d")), judge=judge).exit == 75


# --- proofs ---

SIGNED = {**config("signatures: {keys: [ci.pub]}"), "ci.pub": "-----BEGIN PUBLIC KEY-----\n"}


def test_a_proof_is_verified_with_the_keys_of_the_base() -> None:
    judge = Judge()
    report = said(
        tagged(f"1.1.0@{DIGEST}"), {"ci.pub": "evil\n"}, base=tree(START, SIGNED), judge=judge
    )
    assert (report.exit, told(report)) == (0, PASSES)
    assert judge.proved[0].demands[0].texts == (("ci.pub", SIGNED["ci.pub"]),)
    assert judge.proved[0].image.digest == DIGEST


def test_an_unproved_image_is_refused_and_a_failed_lookup_is_an_error() -> None:
    base = tree(START, SIGNED)
    no = Verdict("refuse", "signature", "there is no signature")
    judge = Judge(prove=lambda ones: dict.fromkeys(ones, no))
    report = said(tagged(f"1.1.0@{DIGEST}"), base=base, judge=judge)
    assert (report.exit, told(report)) == (5, [("web", "refuse", "signature")])
    down = Judge(prove=lambda ones: dict.fromkeys(ones, UnreachableError("down")))
    assert said(tagged(f"1.1.0@{DIGEST}"), base=base, judge=down).exit == 75


def test_a_tag_without_a_digest_cannot_be_proven() -> None:
    assert told(said(tagged("1.1.0"), base=tree(START, SIGNED))) == [
        ("web", "refuse", "pin-digest")
    ]


def test_a_rollback_without_a_proof_causes_a_warning() -> None:
    no = Verdict("refuse", "signature", "there is no signature")
    judge = Judge(prove=lambda ones: dict.fromkeys(ones, no), past=(START,))
    base = tree(manifest_file(), tagged("1.1.0"), SIGNED)
    report = said(tagged("1.0.0"), state(HOLD, memory=BACK), base=base, judge=judge)
    assert (report.exit, told(report)) == (0, PASSES)
    assert "not proved" in warnings(report)


# --- promotions ---

PROMOTED = ("Promote web\n\nPromoted-From: argocd/b\n",)


def test_the_source_named_by_a_promotion_must_contain_the_version() -> None:
    base = tree(manifest_file(), manifest_file("b"), tagged("1.0.0"), tagged("1.1.0", "b"))
    report = said(tagged("1.1.0"), base=base, judge=Judge(messages=PROMOTED))
    assert (report.exit, told(report), report.decisions[0].source) == (0, PASSES, "argocd/b")
    lie = said(tagged("1.2.0"), base=base, judge=Judge(messages=PROMOTED))
    assert (lie.exit, told(lie)) == (5, [("web", "refuse", "source")])
    assert "from argocd/b, but argocd/b has 1.1.0, not 1.2.0" in lie.decisions[0].because


def test_a_promotion_does_not_bypass_holds_or_constraints() -> None:
    base = tree(
        manifest_file(image_list="web=ghcr.io/acme/web:~1.0"), manifest_file("b"), tagged("1.0.0")
    )
    base = tree(base, tagged("1.1.0", "b"))
    judge = Judge(messages=PROMOTED)
    assert told(said(tagged("1.1.0"), base=base, judge=judge)) == [("web", "refuse", "constraint")]
    held = tree(START, manifest_file("b"), tagged("1.1.0", "b"), state(HOLD))
    assert told(said(tagged("1.1.0"), base=held, judge=Judge(messages=PROMOTED))) == HELD


def test_the_age_of_a_promoted_version_is_its_age_at_the_source() -> None:
    base = tree(
        manifest_file(),
        manifest_file("b"),
        tagged("1.0.0"),
        tagged("1.1.0", "b"),
        config("minimumAge: 3d"),
    )
    judge = Judge(messages=PROMOTED, answer=Answer(created="2020-01-01T00:00:00Z"))
    report = said(tagged("1.1.0"), base=base, judge=judge)  # the in-memory branch is new
    assert told(report) == [("web", "refuse", "too-young")]
    assert judge.asked == []


def test_a_promotion_source_that_was_not_read_is_named_in_a_warning() -> None:
    judge = Judge(messages=("Promote\n\nPromoted-From: argocd/staging\n",))
    report = said(tagged("1.1.0"), judge=judge)
    assert (report.exit, told(report)) == (0, PASSES)
    assert "argocd/staging, but --applications does not" in warnings(report)


# --- Applications altered by the change ---


def test_a_new_application_is_checked_against_its_own_annotations() -> None:
    new = manifest_file("b", image_list="web=ghcr.io/acme/web:~2")
    assert told(said(new, tagged("1.0.0", "b"))) == [("web", "refuse", "constraint")]
    assert told(said(new, tagged("2.0.0", "b"))) == PASSES


def test_loosening_a_constraint_is_reported() -> None:
    base = tree(manifest_file(image_list="web=ghcr.io/acme/web:~1.0"), tagged("1.0.0"))
    report = said(manifest_file(image_list="web=ghcr.io/acme/web:~2"), tagged("2.0.0"), base=base)
    assert (report.exit, told(report)) == (0, PASSES)
    assert "loosens a rule (image-list)" in warnings(report)


def test_a_constraint_tightened_by_the_change_applies() -> None:
    report = said(manifest_file(image_list="web=ghcr.io/acme/web:~1.0"), tagged("2.0.0"))
    assert told(report) == [("web", "refuse", "constraint")]


def test_removed_platforms_are_reported() -> None:
    base = tree(manifest_file(**{"web.platforms": "linux/arm64"}), tagged("1.0.0"))
    report = said(manifest_file(), tagged("1.1.0"), base=base)
    assert "linux/arm64" in warnings(report)
    assert "loosens a rule (web.platforms)" in warnings(report)


@pytest.mark.parametrize("broken", [False, True])
def test_an_entry_removed_or_broken_by_the_change_is_checked_against_the_base(broken: bool) -> None:
    annotations = (
        {"image_list": "web=ghcr.io/acme/web:~x~"}
        if broken
        else {"image_list": "other=ghcr.io/acme/other"}
    )
    base = tree(manifest_file(image_list="web=ghcr.io/acme/web:~1.0"), tagged("1.0.0"), state(HOLD))
    report = said(manifest_file(**annotations), tagged("1.0.1"), base=base)
    assert (report.exit, told(report)) == (5, HELD)
    assert "web is checked against the base's annotations: the change" in warnings(report)
    assert "web is not checked" not in warnings(report)
    refused = said(manifest_file(**annotations), tagged("2.0.0"), base=tree(base, {STATE: None}))
    assert told(refused) == [("web", "refuse", "constraint")]


def test_a_removed_application_is_reported_as_not_checked() -> None:
    report = said({"clusters/a.json": None, target("a"): None})
    assert (report.exit, told(report)) == (0, [])
    assert "web is not checked: the change removes the Application" in warnings(report)


def test_a_renamed_application_is_still_held() -> None:
    def renamed(item: dict[str, Any]) -> None:
        item["metadata"]["name"] = "b"

    base = tree(START, state(HOLD))
    assert said(manifest_of("a", renamed), base=base).exit == 0
    assert ("web", "defer", "held") in told(
        said(manifest_of("a", renamed), tagged("1.1.0"), base=base)
    )


def test_a_version_removed_from_git_is_reported_as_not_checked() -> None:
    report = said({target("a"): "resources: []\n"})
    assert (report.exit, told(report)) == (0, [])
    assert "web is not checked" in warnings(report)


def test_a_target_made_unreadable_by_the_change_is_an_error() -> None:
    report = said({target("a"): "images: [\n"})
    assert (report.exit, told(report)) == (3, [("web", "error", "target")])


def test_an_unreadable_target_can_be_repaired() -> None:
    base = tree(START, {target("a"): "images: [\n"})
    assert said({"apps/x.yaml": "a: b\n"}, base=base).exit == 0
    assert told(said(tagged("1.1.0"), base=base)) == PASSES


def test_an_application_with_an_invalid_annotation_is_reported_as_not_checked() -> None:
    report = said(manifest_file("b", image_list="web=ghcr.io/acme/web:~x~"), tagged("1.0.0", "b"))
    assert (report.exit, told(report)) == (0, [])
    assert "is not checked" in warnings(report)


def test_a_manifest_broken_by_the_change_is_reported_and_checked_against_the_base() -> None:
    base = tree(START, state(HOLD))
    report = said({"clusters/a.json": "{"}, tagged("1.1.0"), base=base)
    assert (report.exit, told(report)) == (5, HELD)
    assert "did not find expected node content" in "\n".join(one.message for one in report.problems)


@pytest.mark.slow
def test_five_hundred_applications_are_checked_in_one_change() -> None:
    names = [f"app-{number}" for number in range(500)]
    base = tree(
        *(manifest_file(name) for name in names), *(tagged("1.0.0", name) for name in names)
    )
    held = tree(base, state(HOLD, name="app-7"))
    report = said(*(tagged("1.1.0", name) for name in names), base=held)
    verdicts = [one.verdict for one in report.decisions]
    assert (report.exit, verdicts.count("update"), verdicts.count("defer")) == (5, 499, 1)


# --- other targets ---


def helm(name: str = "a", **annotations: str) -> dict[str, str]:
    def change(item: dict[str, Any]) -> None:
        item["spec"]["source"]["helm"] = {"valueFiles": ["values.yaml"]}

    given = {
        "write_back_target": "helmvalues:values.yaml",
        "web.helm.image-tag": "image.tag",
        **annotations,
    }
    return manifest_of(name, change, **given)


CHART = {"apps/a/Chart.yaml": "name: a\nversion: 1.0.0\n"}


def values(text: str) -> dict[str, str]:
    return {"apps/a/values.yaml": text}


def test_a_version_in_chart_values_is_checked() -> None:
    base = tree(helm(), CHART, values("image:\n  tag: 1.0.0\n"))
    report = said(values("image:\n  tag: 1.1.0\n"), base=base)
    assert told(report) == PASSES
    assert report.decisions[0].line == 2


def test_a_value_shared_through_an_anchor_is_checked() -> None:
    base = tree(helm(), CHART, values("common: &v 1.0.0\nimage:\n  tag: *v\n"))
    report = said(values("common: &v 2.0.0-rc1\nimage:\n  tag: *v\n"), base=base)
    assert [one.rule for one in report.decisions] == ["constraint"]


def test_a_value_hidden_by_the_change_is_an_error() -> None:
    def hides(item: dict[str, Any]) -> None:
        item["spec"]["source"]["helm"] = {
            "valueFiles": ["values.yaml"],
            "parameters": [{"name": "image.tag", "value": "9.9.9"}],
        }

    base = tree(helm(), CHART, values("image:\n  tag: 1.0.0\n"))
    annotations = {"write_back_target": "helmvalues:values.yaml", "web.helm.image-tag": "image.tag"}
    report = said(manifest_of("a", hides, **annotations), base=base)
    assert (report.exit, told(report)) == (3, [("web", "error", "target")])


def test_replacing_kustomize_with_helm_is_compared_as_the_same_entry() -> None:
    base = tree(START, state(HOLD))
    same = said(helm(), CHART, values("image:\n  tag: 1.0.0\n"), {target("a"): None}, base=base)
    assert (same.exit, told(same)) == (0, [])
    other = said(helm(), CHART, values("image:\n  tag: 1.1.0\n"), {target("a"): None}, base=base)
    assert (other.exit, told(other)) == (5, HELD)


def test_a_tag_in_an_applications_sources_is_checked_before_the_first_write() -> None:
    def overriding(item: dict[str, Any]) -> None:
        del item["metadata"]["annotations"][f"{PREFIX}write-back-target"]

    base = tree(manifest_of("a", overriding), tagged("1.0.0"))
    report = said(tagged("2.0.0-rc1"), base=base)
    assert [one.rule for one in report.decisions] == ["constraint"]


def test_a_value_file_from_another_source_is_checked() -> None:
    def several(item: dict[str, Any]) -> None:
        item["spec"] = {
            "sources": [
                {"repoURL": "https://charts.example", "chart": "web", "targetRevision": "1.0.0",
                 "helm": {"valueFiles": ["$values/apps/a/values.yaml"]}},
                {"repoURL": URL, "targetRevision": "main", "ref": "values"},
            ]
        }  # fmt: skip

    annotations = {
        "write_back_target": "helmvalues:$values/apps/a/values.yaml",
        "web.helm.image-tag": "image.tag",
    }
    base = tree(manifest_of("a", several, **annotations), values("image:\n  tag: 1.0.0\n"))
    report = said(values("image:\n  tag: 1.1.0\n"), base=base)
    assert told(report) == PASSES


def deployment(*tags: str) -> dict[str, str]:
    containers = "".join(
        f"      - {{name: c{number}, image: 'ghcr.io/acme/web:{tag}'}}\n"
        for number, tag in enumerate(tags)
    )
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  template:\n    spec:\n"
    return {"apps/a/deployment.yaml": f"{text}      containers:\n{containers}"}


def test_each_container_in_a_manifest_is_checked() -> None:
    annotations = {"write_back_target": "manifests", "image_list": "web=ghcr.io/acme/web:~1"}
    base = tree(manifest_file(**annotations), deployment("1.0.0", "1.0.0"))
    assert told(said(deployment("1.0.0", "1.1.0"), base=base)) == PASSES
    refused = said(deployment("1.0.0", "2.0.0"), base=base)
    assert (refused.exit, told(refused)) == (5, [("web", "refuse", "constraint")])
    held = tree(base, {STATE: "files:\n  apps/a:\n    hold: {reason: INC-1}\n"})
    assert told(said(deployment("1.0.0", "1.1.0"), base=held)) == HELD


def test_applications_in_other_repositories_or_branches_are_not_checked() -> None:
    def elsewhere(item: dict[str, Any]) -> None:
        item["spec"]["source"]["repoURL"] = "https://git.example/other.git"

    def staging(item: dict[str, Any]) -> None:
        item["spec"]["source"]["targetRevision"] = "staging"

    for change in (elsewhere, staging):
        base = tree(manifest_of("a", change), tagged("1.0.0"))
        report = said(tagged("9.9.9-x"), base=base)
        assert (told(report), report.exit) == ([], 0)
        (problem,) = report.problems
        assert "none of the Applications write to" in problem.message


def test_a_change_passes_with_a_warning_if_no_applications_were_read() -> None:
    report = said(tagged("9.9.9-x"), base=tagged("1.0.0"))
    (problem,) = report.problems
    assert (report.exit, report.decisions, problem.severity) == (0, (), "warning")
    assert "no Application with an image-list was found" in problem.message


def test_a_change_to_a_shared_entry_passes_if_one_of_two_applications_admits_it() -> None:
    shared = manifest_of(
        "b",
        lambda item: item["spec"]["source"].update(path="apps/a"),
        image_list="web=ghcr.io/acme/web:~1.0",
    )
    report = said(tagged("1.1.0"), base=tree(START, shared))
    assert report.exit == 0
    assert sorted(one.overridden_by for one in report.decisions) == ["", "argocd/a (web)"]


# --- old locations of moved entries ---

STRICT = {"image_list": "web=ghcr.io/acme/web:~1.0"}
ELSEWHERE = "apps/other/kustomization.yaml"


def _moves_source(item: dict[str, Any]) -> None:
    item["spec"]["source"]["path"] = "apps/other"


@pytest.mark.parametrize(
    "moved",
    [
        manifest_file(**STRICT, write_back_target="kustomization:/apps/other"),
        manifest_file(
            image_list="web=ghcr.io/acme/web", write_back_target="kustomization:/apps/other"
        ),
        manifest_of("a", _moves_source, **STRICT),
    ],
    ids=["target", "target and constraint", "source"],
)
def test_the_old_path_of_a_moved_target_is_checked_against_the_base(
    moved: dict[str, str],
) -> None:
    base = tree(manifest_file(**STRICT), tagged("1.0.0"))
    copied = {ELSEWHERE: KUSTOMIZATION}
    report = said(moved, copied, tagged("9.0.0"), base=base)
    assert (report.exit, told(report)) == (5, [("web", "refuse", "constraint")])
    assert report.decisions[0].current.file == target("a")
    assert said(moved, copied, base=base).exit == 0
    assert said(moved, copied, {target("a"): None}, base=base).exit == 0


def test_a_freeze_blocks_the_old_path_of_a_moved_target() -> None:
    moved = manifest_file(write_back_target="kustomization:/apps/other")
    copied = {ELSEWHERE: KUSTOMIZATION}
    report = said(moved, copied, tagged("1.0.1"), base=tree(START, FREEZE))
    assert (report.exit, told(report)) == (5, HELD)


def test_renaming_the_image_in_the_annotation_does_not_release_the_old_image() -> None:
    base = tree(manifest_file(**STRICT), tagged("1.0.0"))
    renamed = manifest_file(image_list="web=ghcr.io/acme/other:~1.0")
    both = KUSTOMIZATION.replace("1.0.0", "9.0.0") + "- name: ghcr.io/acme/other\n  newTag: 1.0.0\n"
    report = said(renamed, {target("a"): both}, base=base)
    assert (report.exit, told(report)) == (5, [*PASSES, ("web", "refuse", "constraint")])


def test_a_moved_target_with_the_same_version_at_both_paths_is_checked_once() -> None:
    moved = manifest_file(
        image_list="web=ghcr.io/acme/web:~1.1", write_back_target="kustomization:/apps/other"
    )
    bumped = KUSTOMIZATION.replace("1.0.0", "1.1.0")
    base = tree(manifest_file(**STRICT), tagged("1.0.0"))
    report = said(moved, {target("a"): bumped, ELSEWHERE: bumped}, base=base)
    assert (report.exit, told(report)) == (0, PASSES)
    assert "loosens a rule" in warnings(report)


@pytest.mark.parametrize("ending", [".yaml", ".yml", ".json"])
def test_a_config_with_the_wrong_name_is_an_error_and_can_be_removed(ending: str) -> None:
    wrong = {f"{CONFIG}{ending}": "version: 1\n"}
    report = said(wrong)
    assert report.exit == 3
    assert [one.rule for one in report.problems] == ["target"]
    repaired = said({f"{CONFIG}{ending}": None}, tagged("1.1.0"), base=tree(START, wrong))
    assert (repaired.exit, told(repaired)) == (0, PASSES)
