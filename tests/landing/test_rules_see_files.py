"""Path rules apply to each changed file, whatever the Application's folder (on an in-memory
branch).
"""

from collections.abc import Collection, Mapping, Sequence

import pytest
from support.memory import NOW, SCOPE, URL, WORDING, Branch, Story, shown
from support.runs import KUSTOMIZATION, WEB, application, target

from task.annotations.application import parse_application
from task.annotations.subscription import Defaults, subscribe
from task.cli.lint_repositories import target_findings
from task.deciding.decide import changed_files
from task.deciding.job import Ask, Job, Terms
from task.image import parse_image
from task.landing.before_deciding import as_wanted
from task.model import Answer, Judged, Question, Report, Snapshot, Subscription, Verdict
from task.proof import Proof
from task.repository_config.config import PATH
from task.repository_config.reading import config_in

POD = f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: {WEB}:1.0.0\n"
DIGEST = "sha256:" + "1" * 64
KEY = "keys/ci.pub"
PROD = "match: {paths: [clusters/prod/**]}"
FREEZE = f"freezes:\n- {{schedule: 0 0 * * *, duration: 24h, reason: audit, {PROD}}}"
OPEN = ("", "manifests:/clusters", "manifests:/")
NARROW = ("manifests:/clusters/dev", "manifests:/clusters/dev/pod.yaml")


def rule(wish: str) -> str:
    return f"rules:\n- {PROD}\n  {wish}"


def scene(config: str, where: str) -> Story:
    """Return the story of an Application with one manifest folder per cluster."""
    given = {"write_back_target": where or "manifests"}
    app = application("a", URL, update_strategy="newest-build", **given)
    source = {"repoURL": URL, "path": "clusters", "targetRevision": "main"}
    app["spec"]["source"] = {**source, "directory": {"recurse": True}}
    files = {f"clusters/{name}/pod.yaml": POD for name in ("dev", "prod")}
    return Story(app, Branch({**files, KEY: "x", PATH: f"version: 1\n{config}\n"}))


def event(one: Story, digest: str = "") -> Judged:
    image = parse_image(f"{WEB}:1.1.0@{digest}" if digest else f"{WEB}:1.1.0")
    (found,) = one.run(Job("run", (image,), SCOPE, Terms(now=NOW), WORDING)).decisions
    return found


def untouched(one: Story) -> bool:
    return all(one.branch.files[path] == POD for path in one.branch.files if "pod" in path)


@pytest.mark.parametrize("where", OPEN)
@pytest.mark.parametrize(
    ("config", "digest", "expected"),
    [
        (rule("writes: {paths: []}"), "", ("error", "not-permitted")),
        (rule('writes: {paths: ["clusters/dev/**"]}'), "", ("error", "not-permitted")),
        (rule('writes: {branches: ["other"]}'), "", ("error", "not-permitted")),
        (rule("pinDigest: true"), "", ("error", "registry")),
        (rule(f"signatures: {{keys: [{KEY}]}}"), DIGEST, ("refuse", "signature")),
        (rule(f"provenance: {{keys: [{KEY}], ref: x}}"), DIGEST, ("refuse", "signature")),
        (FREEZE, "", ("defer", "held")),
    ],
)
def test_a_rule_for_one_changed_file_applies_to_the_whole_entry(
    config: str, digest: str, where: str, expected: tuple[str, str]
) -> None:
    one = scene(config, where)
    no = Verdict("refuse", "signature", "no signature")

    def prove(questions: Collection[Question]) -> Mapping[Question, Proof | Verdict]:
        return dict.fromkeys(questions, no)

    one.prove = prove
    found = event(one, digest)
    assert (found.verdict, found.rule) == expected, found.because
    assert untouched(one)


@pytest.mark.parametrize("where", OPEN)
def test_a_pin_required_for_one_file_pins_the_whole_entry(where: str) -> None:
    one = scene(rule("pinDigest: true"), where)
    assert event(one, DIGEST).verdict == "update"
    for name in ("dev", "prod"):
        assert f"{WEB}:1.1.0@{DIGEST}" in one.branch.files[f"clusters/{name}/pod.yaml"]


@pytest.mark.parametrize("where", NARROW)
@pytest.mark.parametrize(
    "config",
    [
        rule("writes: {paths: []}"),
        rule("pinDigest: true"),
        rule(f"signatures: {{keys: [{KEY}]}}"),
        rule("pullRequests: {enabled: true}"),
        FREEZE,
    ],
)
def test_a_rule_for_unchanged_files_does_not_apply(config: str, where: str) -> None:
    one = scene(config, where)
    assert event(one).verdict == "update"
    assert one.branch.files["clusters/prod/pod.yaml"] == POD
    assert f"{WEB}:1.1.0\n" in one.branch.files["clusters/dev/pod.yaml"]


@pytest.mark.parametrize("where", OPEN)
def test_each_file_is_checked_against_its_own_rule(where: str) -> None:
    config = (
        f"rules:\n- {PROD}\n  writes: {{paths: [clusters/prod/pod.yaml]}}\n"
        "- match: {paths: [clusters/dev]}\n  writes: {paths: [clusters/dev/*]}"
    )
    one = scene(config, where)
    assert event(one).verdict == "update"
    assert not untouched(one)


def test_a_minimum_age_for_one_file_applies_to_the_entry() -> None:
    one = scene(rule("minimumAge: 3d"), "manifests:/")
    one.tags = ("1.1.0",)
    one.answer = Answer(created="2026-11-22T11:00:00Z")
    assert one.scan() == ("refuse", "too-young")
    assert untouched(one)


def wanted(config: str, where: str) -> Subscription:
    one = scene(config, where)
    (sub,) = subscribe(parse_application(one.app), Defaults()).subscriptions
    snapshot = Snapshot(URL, "main", "tip", shown(one.branch.files))
    asks: Sequence[Ask] = [Ask(sub, (parse_image(f"{WEB}:1.1.0"),))]
    (ask,) = as_wanted(asks, snapshot, config_in(snapshot.files), Terms(now=NOW))
    return ask.subscription


REVIEW = "pullRequests: {enabled: true, reviewers: [ann], autoMerge: false, draft: true}"


@pytest.mark.parametrize(("where", "asked"), [*((one, True) for one in OPEN), (NARROW[0], False)])
def test_a_review_required_for_one_file_applies_to_all_files(where: str, asked: bool) -> None:
    common = "pullRequests: {autoMerge: true, labels: [gitops]}"
    sub = wanted(f"{common}\n{rule(REVIEW)}", where)
    assert sub.pull_request is asked
    assert bool(sub.wishes.draft) is asked
    assert sub.wishes.auto_merge is not asked
    assert (sub.wishes.reviewers or ()) == (("ann",) if asked else ())


def test_the_freeze_that_ends_last_applies() -> None:
    longer = "{schedule: 0 0 * * *, duration: 48h, reason: longer, match: {paths: [clusters/dev]}}"
    sub = wanted(f"{FREEZE}\n- {longer}", "manifests:/")
    assert sub.freeze is not None
    assert sub.freeze.reason == "longer"


def test_a_rule_matches_the_file_in_a_kustomization_folder() -> None:
    config = (
        "version: 1\nrules:\n- match: {paths: ['**/kustomization.yaml']}\n  writes: {paths: []}\n"
    )
    files = {target("a"): KUSTOMIZATION, PATH: config}
    one = Story(application("a", URL, update_strategy="newest-build"), Branch(files))
    assert one.event("1.1.0") == ("error", "not-permitted")
    assert one.value == "1.0.0"


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("manifests:/", "the target / contains clusters/prod/pod.yaml, for which .image-update"),
        ("", "the target clusters contains clusters/prod/pod.yaml, for which .image-update"),
        ("manifests:/clusters/prod", ""),
        ("manifests:/clusters/dev", ""),
    ],
)
def test_lint_names_the_folder_that_contains_a_file_with_a_rule(where: str, told: str) -> None:
    one = scene(rule("minimumAge: 3d"), where)
    (sub,) = subscribe(parse_application(one.app), Defaults()).subscriptions
    snapshot = Snapshot(URL, "main", "tip", shown(one.branch.files))
    found = [finding.message for finding in target_findings(snapshot, (sub,))]
    assert [message.startswith(told) for message in found] == ([True] if told else [])


def test_changed_files_are_known_before_they_are_edited() -> None:
    one = scene("", "manifests:/")
    (sub,) = subscribe(parse_application(one.app), Defaults()).subscriptions
    snapshot = Snapshot(URL, "main", "tip", shown(one.branch.files))
    assert changed_files(snapshot, sub, Terms()) == (
        "clusters/dev/pod.yaml",
        "clusters/prod/pod.yaml",
    )


def test_rules_on_the_default_branch_match_changed_files_as_well() -> None:
    class Other(Branch):
        def snapshot(self, *given: object, **more: object) -> Snapshot:
            found = super().snapshot(*given, **more)  # type: ignore[arg-type]
            default = shown({PATH: f"version: 1\n{rule('writes: {paths: []}')}\n"})
            return Snapshot(URL, found.branch, found.tip, found.files, default=default)

    one = scene("", "manifests:/")
    one.branch = Other(one.branch.files)
    report: Report = one.run(
        Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(now=NOW), WORDING)
    )
    assert [found.rule for found in report.decisions] == ["not-permitted"]
    assert untouched(one)
