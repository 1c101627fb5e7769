"""`promote`: how sources and targets are paired, the targets' rules, and repeated promotions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.fake_world import fake_world
from support.memory import NOW, SCOPE, URL, WORDING, Branch, Story
from support.runs import KUSTOMIZATION, WEB, application, target

from task.annotations.application import parse_application
from task.annotations.subscription import Defaults, subscribe
from task.commands.promotion import (
    SourceVersion,
    asks_to_promote,
    check_promotion,
    pairs_of,
    wanted,
    with_promoted,
)
from task.deciding.job import (
    DeployedSource,
    Failure,
    Followed,
    Intent,
    Job,
    LandedApplication,
    Promotion,
    Terms,
)
from task.errors import UsageError
from task.image import parse_image
from task.model import Build, Changeset, Hold, Judged, LandedCommit, Report

DB = "ghcr.io/acme/db"


def of_stage(key: str, **annotations: str) -> dict[str, Any]:
    """Return the Application `namespace/name`. Its folder contains both names."""
    namespace, _, name = key.partition("/")
    made = application(name, URL, **{"update_strategy": "newest-build", **annotations})
    made["metadata"] |= {"namespace": namespace, "labels": {"stage": namespace}}
    made["spec"] |= {"project": f"of-{name}"}
    made["spec"]["source"] |= {"path": f"apps/{namespace}-{name}"}
    return made


def path(key: str) -> str:
    return target(key.replace("/", "-"))


class Stages(Story):
    """Applications for several stages on one branch."""

    def __init__(self, *apps: dict[str, Any]) -> None:
        keys = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in apps]
        super().__init__(apps[0], Branch({path(key): KUSTOMIZATION for key in keys}))
        self.others = list(apps[1:])

    def says(self, key: str) -> str:
        text = self.branch.files[path(key)]
        return text.partition("newTag: ")[2].partition("\n")[0].strip("\"'")

    def build(self, key: str, tag: str, sequence: int | None = None) -> Judged:
        """Send an event for one Application."""
        terms = Terms(build=Build(sequence=sequence), now=NOW)
        return self._for(key, Job("run", (parse_image(f"{WEB}:{tag}"),), SCOPE, terms, WORDING))

    def by_hand(self, key: str, intent: Intent) -> Judged:
        return self._for(key, Job(intent.verb, (), SCOPE, Terms(now=NOW), WORDING, intent=intent))

    def _for(self, key: str, job: Job) -> Judged:
        narrowed = replace(SCOPE, narrow=replace(SCOPE.narrow, names=(key,)))
        (decision,) = self.run(replace(job, scope=narrowed)).decisions
        return decision

    def promote(
        self, sources: str, targets: str, terms: Terms = Terms(now=NOW), **more: Any
    ) -> Report:
        promotion = Promotion(tuple(sources.split()), tuple(targets.split()), **more)
        check_promotion(promotion)
        return self.run(Job("promote", (), SCOPE, terms, WORDING, promotion=promotion))


def rules(report: Report) -> dict[str, str]:
    return {one.subscription.application.key: one.rule for one in report.decisions}


def sources(report: Report) -> dict[str, str]:
    return {one.subscription.application.key: one.source for one in report.decisions}


def errors(report: Report) -> list[str]:
    return [one.message for one in report.problems if one.severity == "error"]


def test_a_promotion_writes_the_sources_version_to_the_target() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    scene.build("staging/web", "b7", 7)
    report = scene.promote("staging/web", "production/web")
    assert (report.exit, rules(report)) == (0, {"production/web": "admitted"})
    assert sources(report) == {"production/web": "staging/web"}
    assert [image.reference for image in report.images] == [f"{WEB}:b7"]
    assert scene.says("production/web") == "b7"
    # The build identity was promoted, too, so the target recognizes a late build as older.
    assert scene.build("production/web", "b6", 6).rule == "superseded"


def test_repeating_a_promotion_changes_nothing() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    scene.build("staging/web", "b7", 7)
    scene.promote("staging/web", "production/web")
    tip = scene.branch.tip
    assert rules(scene.promote("staging/web", "production/web")) == {"production/web": "same"}
    assert scene.branch.tip == tip


def four() -> Stages:
    """Return two Applications in two stages each."""
    return Stages(
        *(
            of_stage(f"{stage}/{name}")
            for stage in ("staging", "production")
            for name in ("web", "api")
        )
    )


@pytest.mark.parametrize(
    ("given_from", "given_to", "expected"),
    [
        (
            "staging/*",
            "production/{name}",
            {"production/web": "staging/web", "production/api": "staging/api"},
        ),
        (
            "staging/web",
            "production/*",
            {"production/web": "staging/web", "production/api": "staging/web"},
        ),
        (
            "staging/web",
            "web",
            {"production/web": "staging/web"},
        ),  # paired by name only, and never with itself
        (
            "staging/web staging/api",
            "*/{name}",
            {"production/web": "staging/web", "production/api": "staging/api"},
        ),
        (
            "staging/api",
            "production/web production/{name}",
            {"production/web": "staging/api", "production/api": "staging/api"},
        ),
        ("staging/web", "{namespace}/api", {"staging/api": "staging/web"}),
    ],
)
def test_name_patterns_select_sources_and_targets(
    given_from: str, given_to: str, expected: Mapping[str, str]
) -> None:
    scene = four()
    scene.build("staging/web", "b7")
    scene.build("staging/api", "b8")
    report = scene.promote(given_from, given_to)
    assert (report.exit, sources(report)) == (0, expected)
    for key, source in expected.items():
        assert scene.says(key) == {"staging/web": "b7", "staging/api": "b8"}[source]


def test_the_target_name_may_contain_the_sources_project() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/of-web"))
    scene.build("staging/web", "b7")
    assert sources(scene.promote("staging/web", "production/{project}")) == {
        "production/of-web": "staging/web"
    }


def test_label_selectors_select_sources_and_targets() -> None:
    scene = four()
    scene.build("staging/web", "b7")
    report = scene.promote(
        "*/web", "", source_selector="stage=staging", target_selector="stage in (production)"
    )
    assert sources(report) == {"production/web": "staging/web", "production/api": "staging/web"}


def test_wildcards_in_a_source_name_are_not_expanded() -> None:
    scene = Stages(of_stage("staging/w*"), of_stage("production/web"))
    scene.build("staging/w*", "b7")
    assert rules(scene.promote("staging/*", "production/{name}")) == {}


@pytest.mark.parametrize("given_to", ["production/web", "production/*"])
def test_two_versions_for_one_target_cause_a_usage_error(given_to: str) -> None:
    scene = four()
    scene.build("staging/web", "b7")
    scene.build("staging/api", "b8")
    tip = scene.branch.tip
    with pytest.raises(UsageError) as caught:
        scene.promote("staging/*", given_to)
    said = "would get two versions of ghcr.io/acme/web: b8 from staging/api and b7 from staging/web"
    assert said in caught.value.message
    assert scene.branch.tip == tip


def test_two_sources_with_the_same_version_count_as_one() -> None:
    scene = four()
    scene.build("staging/web", "b7")
    scene.build("staging/api", "b7", 7)  # the source with a known build provides more details
    assert sources(scene.promote("staging/*", "production/web")) == {
        "production/web": "staging/api"
    }


@pytest.mark.parametrize(
    ("given_from", "given_to", "message"),
    [
        ("staging/wep", "production/*", "there is no Application named 'staging/wep'"),
        ("nowhere/*", "production/*", "no Application matches 'nowhere/*'"),
        ("staging/web", "production/wep", "there is no Application named 'production/wep'"),
        ("staging/web", "nowhere/*", "no Application matches 'nowhere/*'"),
        (
            "staging/web",
            "{namespace}/{name}",
            "--to: '{namespace}/{name}' matches only the source itself, and an Application cannot be promoted to itself",
        ),
        ("staging/web", "{name}/nowhere", "--to: no Application matches '{name}/nowhere'"),
    ],
)
def test_a_missing_source_or_target_is_an_error(
    given_from: str, given_to: str, message: str
) -> None:
    report = four().promote(given_from, given_to)
    assert (report.exit, errors(report)) == (3, [message])


@pytest.mark.parametrize(
    ("given_to", "selector", "message"),
    [
        ("", "stage=productoin", "--to-selector: no Application matches 'stage=productoin'"),
        (
            "production/web",
            "stage=productoin",
            "--to-selector: no Application matches 'stage=productoin'",
        ),
        (
            "{name}/nowhere",
            "stage=production",
            "--to and --to-selector: no Application matches '{name}/nowhere stage=production'",
        ),
        (
            "",
            "stage=staging",
            "--to-selector: 'stage=staging' matches only the source itself, and an Application cannot be promoted to itself",
        ),
    ],
)
def test_the_error_names_the_option_that_excludes_every_target(
    given_to: str, selector: str, message: str
) -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    report = scene.promote("staging/web", given_to, target_selector=selector)
    assert (report.exit, errors(report)) == (3, [message])


def test_a_source_without_a_version_is_an_error() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    scene.branch.commit({path("staging/web"): "resources: []\n"})
    report = scene.promote("staging/web", "production/web")
    assert (report.exit, rules(report)) == (3, {"production/web": "source"})
    assert errors(report) == [f"staging/web: neither Git nor the cluster has a version of {WEB}"]
    assert scene.says("production/web") == "1.0.0"


def test_an_unreadable_source_file_is_an_error() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    scene.branch.commit({path("staging/web"): "images: {"})
    assert scene.promote("staging/web", "production/web").exit == 3
    assert scene.says("production/web") == "1.0.0"


@pytest.mark.parametrize(
    ("annotations", "rule"),
    [
        ({"image_list": f"web={WEB}:~1.0", "update_strategy": "semver"}, "constraint"),
        ({"web.allow_tags": "regexp:^v"}, "allow-tags"),
        ({"web.ignore_tags": "1.*"}, "ignore-tags"),
    ],
)
def test_the_targets_rules_decide(annotations: dict[str, str], rule: str) -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web", **annotations))
    scene.build("staging/web", "1.1.0")
    assert rules(scene.promote("staging/web", "production/web")) == {"production/web": rule}
    assert scene.says("production/web") == "1.0.0"


def test_a_hold_defers_a_promotion_and_its_release_applies_it() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    scene.by_hand("production/web", Intent("hold", Hold("freeze", "jane", NOW)))
    scene.build("staging/web", "b7", 7)
    report = scene.promote("staging/web", "production/web")
    assert (rules(report), scene.says("production/web")) == ({"production/web": "held"}, "1.0.0")
    scene.build("staging/web", "b6", 6)
    scene.by_hand("production/web", Intent("release"))
    assert scene.says("production/web") == "b7"
    assert scene.build("production/web", "b6", 6).rule == "superseded"  # promoted, too


def test_after_a_rollback_the_sources_version_in_git_is_promoted() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    for tag, number in (("b7", 7), ("b8", 8)):
        scene.build("staging/web", tag, number)
    scene.by_hand("staging/web", Intent("rollback", Hold("b8 fails", "jane", NOW), to="b7"))
    scene.promote("staging/web", "production/web")
    assert scene.says("production/web") == "b7"


@pytest.mark.parametrize(
    ("strategy", "rule"),
    [
        ("newest-build", "not-newer"),
        ("alphabetical", "not-newer"),
        ("semver", "not-newer"),
        ("digest", "not-newer"),
    ],
)
@pytest.mark.parametrize("numbered", [True, False])
def test_a_rolled_back_source_does_not_downgrade_the_target(
    strategy: str, rule: str, numbered: bool
) -> None:
    follows = {"image_list": f"web={WEB}:live"} if strategy == "digest" else {}
    both = {"update_strategy": strategy, **follows}
    scene = Stages(of_stage("staging/web", **both), of_stage("production/web", **both))
    tags = (
        [f"live@sha256:{one * 64}" for one in "57"] if strategy == "digest" else ["1.5.0", "1.7.0"]
    )
    for number, tag in zip((5, 7), tags, strict=True):
        scene.build("staging/web", tag, number if numbered else None)
    assert rules(scene.promote("staging/web", "production/web")) == {"production/web": "admitted"}
    before = scene.branch.files[path("production/web")]
    scene.by_hand("staging/web", Intent("rollback", None, to=tags[0]))
    report = scene.promote("staging/web", "production/web")
    assert rules(report) == {"production/web": rule}
    assert report.decisions[0].because.endswith("; to promote it anyway: --allow-downgrade")
    assert scene.branch.files[path("production/web")] == before
    down = scene.promote(
        "staging/web", "production/web", terms=Terms(now=NOW, allow_downgrade=True)
    )
    assert rules(down) == {"production/web": "admitted"}
    assert tags[0].rpartition(":")[2] in scene.branch.files[path("production/web")]


def test_a_build_that_arrives_after_a_rollback_is_promoted() -> None:
    """For builds without a number, the last to arrive is the newest."""
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    for tag in ("b5", "b7"):
        scene.build("staging/web", tag)
    scene.promote("staging/web", "production/web")
    scene.by_hand("staging/web", Intent("rollback", None, to="b5"))
    scene.build("staging/web", "b8")
    assert rules(scene.promote("staging/web", "production/web")) == {"production/web": "admitted"}


@pytest.mark.parametrize("strategy", ["newest-build", "digest"])
@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_latest_build_without_a_number_does_not_count_as_rolled_back(
    strategy: str, rolled_back: bool
) -> None:
    """As for an event, the later build is newer, even though an earlier build has a number."""
    follows = {"image_list": f"web={WEB}:live"} if strategy == "digest" else {}
    both = {"update_strategy": strategy, **follows}
    scene = Stages(of_stage("staging/web", **both), of_stage("production/web", **both))
    tags = {"b7": "b7", "b8": "b8", "b9": "b9"}
    if strategy == "digest":
        tags = {name: f"live@sha256:{name[1] * 64}" for name in tags}
    scene.build("staging/web", tags["b7"], 7)
    scene.promote("staging/web", "production/web")
    scene.build("staging/web", tags["b8"])
    if rolled_back:
        scene.by_hand("staging/web", Intent("rollback", None, to=tags["b7"]))
        scene.build("staging/web", tags["b9"])
    report = scene.promote("staging/web", "production/web")
    assert rules(report) == {"production/web": "admitted"}, report.decisions[0].because
    newest = tags["b9" if rolled_back else "b8"]
    assert newest.rpartition(":")[2] in scene.branch.files[path("production/web")]


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_version_older_than_the_newest_build_counts_as_rolled_back(by_hand: bool) -> None:
    """This also holds after the release that ends the rollback, and after manual file edits."""
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    for tag, number in (("b6", 6), ("b7", 7)):
        scene.build("staging/web", tag, number)
    scene.promote("staging/web", "production/web")
    if by_hand:
        now = scene.branch.files[path("staging/web")]
        scene.branch.commit({path("staging/web"): now.replace("b7", "b6")})
    else:
        scene.by_hand("staging/web", Intent("rollback", Hold("b7 fails", "jane", NOW), to="b6"))
        scene.by_hand("staging/web", Intent("release"))
    assert scene.says("staging/web") == "b6"
    assert rules(scene.promote("staging/web", "production/web")) == {"production/web": "not-newer"}


def test_a_build_deferred_in_the_target_does_not_count_as_promoted() -> None:
    """The source was rolled back, and a build is waiting at a target whose hold has ended."""
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    for tag in ("b5", "b7"):
        scene.build("staging/web", tag)
    scene.promote("staging/web", "production/web")
    until = Hold("freeze", "jane", NOW, until="2026-11-22T13:00:00Z")
    scene.by_hand("production/web", Intent("hold", until))
    scene.build("production/web", "b8")
    scene.by_hand("staging/web", Intent("rollback", None, to="b5"))
    later = Terms(now="2026-11-22T14:00:00Z")
    assert rules(scene.promote("staging/web", "production/web", terms=later)) == {
        "production/web": "admitted"
    }
    assert scene.says("production/web") == "b8"


def test_allow_downgrade_promotes_a_version_that_the_target_replaced() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    for key in ("staging/web", "production/web"):
        scene.build(key, "b7", 7)
    scene.by_hand("production/web", Intent("rollback", None, to="1.0.0"))
    assert rules(scene.promote("staging/web", "production/web")) == {"production/web": "superseded"}
    scene.promote("staging/web", "production/web", terms=Terms(now=NOW, allow_downgrade=True))
    assert scene.says("production/web") == "b7"


DIGEST = f"sha256:{'a' * 64}"


def test_a_digest_in_the_sources_file_is_always_promoted() -> None:
    scene = Stages(of_stage("staging/web", pin_digest="true"), of_stage("production/web"))
    scene.build("staging/web", f"b7@{DIGEST}", 7)
    for rule in ("admitted", "same"):
        assert rules(scene.promote("staging/web", "production/web")) == {"production/web": rule}
        assert f"digest: {DIGEST}" in scene.branch.files[path("production/web")]


@pytest.mark.parametrize("pinned", [True, False])
def test_the_digest_of_the_original_event_is_kept(pinned: bool) -> None:
    annotations = {"pin_digest": "true"} if pinned else {}
    targets = (
        of_stage("production/web", **annotations),
        of_stage("production/pinned", pin_digest="true"),
    )
    scene = Stages(of_stage("staging/web"), *targets)
    scene.build("staging/web", f"b7@{DIGEST}", 7)
    assert DIGEST not in scene.branch.files[path("staging/web")]
    assert rules(scene.promote("staging/web", "production/web")) == {"production/web": "admitted"}
    assert (f"digest: {DIGEST}" in scene.branch.files[path("production/web")]) == pinned
    if not pinned:  # the digest is remembered, so it can still be promoted to the next stage
        assert rules(scene.promote("production/web", "production/pinned")) == {
            "production/pinned": "admitted"
        }
        assert f"digest: {DIGEST}" in scene.branch.files[path("production/pinned")]


def test_the_hint_about_an_unknown_digest_names_only_promote_options() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web", pin_digest="true"))
    scene.build("staging/web", "b7", 7)
    (decision,) = scene.promote(
        "staging/web", "production/web", terms=Terms(now=NOW, check="never")
    ).decisions
    assert (decision.verdict, decision.rule) == ("error", "registry")
    assert "--image-digest" not in decision.hint


def test_a_digest_found_only_in_the_state_file_is_promoted() -> None:
    digest = f"sha256:{'a' * 64}"
    pinned = {"image_list": f"web={WEB}:live", "update_strategy": "digest"}
    scene = Stages(of_stage("staging/web", **pinned), of_stage("production/web", **pinned))
    scene.build("staging/web", f"live@{digest}", 7)
    scene.promote("staging/web", "production/web")
    assert f"digest: {digest}" in scene.branch.files[path("production/web")]


def test_a_different_image_with_the_same_alias_is_promoted_only_if_named() -> None:
    mirror = "registry.example.com/prod/web"
    scene = Stages(of_stage("staging/web"), of_stage("production/web", image_list=f"web={mirror}"))
    scene.branch.commit({path("production/web"): KUSTOMIZATION.replace(WEB, mirror)})
    scene.build("staging/web", "b7")
    nothing = scene.promote("staging/web", "production/web")
    assert (nothing.exit, rules(nothing)) == (0, {})
    assert [one.message for one in nothing.problems] == [
        "no target tracks an image that its source tracks"
    ]
    assert rules(scene.promote("staging/web", "production/web", images=("web",))) == {
        "production/web": "admitted"
    }
    assert (scene.says("production/web"), mirror in scene.branch.files[path("production/web")]) == (
        "b7",
        True,
    )


def test_a_single_one_of_several_images_can_be_promoted() -> None:
    both = {"image_list": f"web={WEB},db={DB}"}
    scene = Stages(of_stage("staging/web", **both), of_stage("production/web", **both))
    two = KUSTOMIZATION + f"- name: {DB}\n  newTag: 1.0.0\n"
    scene.branch.commit(
        {path("production/web"): two, path("staging/web"): two.replace("1.0.0", "b7")}
    )
    report = scene.promote("staging/web", "production/web", images=("db",))
    assert [one.candidate.name for one in report.decisions] == [DB]
    assert scene.says("production/web") == "1.0.0"
    unknown = scene.promote("staging/web", "production/web", images=("cache",))
    assert (unknown.exit, errors(unknown)) == (3, ["--alias cache: not found in any source"])


def test_a_broken_entry_in_a_target_is_an_error() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web", update_strategy="newest"))
    scene.build("staging/web", "b7")
    report = scene.promote("staging/web", "production/web")
    assert (report.exit, rules(report)) == (3, {"production/web": "annotation"})


def status(sync: str = "Synced", health: str = "Healthy", *tags: str) -> dict[str, Any]:
    images = [f"{WEB}:{tag}" for tag in tags]
    return {"sync": {"status": sync}, "health": {"status": health}, "summary": {"images": images}}


@pytest.mark.parametrize(
    ("said", "rule", "because"),
    [
        (status("Synced", "Healthy", "b7"), "admitted", "admits it"),
        (status("Synced", "Healthy", "b6", "b7"), "admitted", "admits it"),
        (
            status("OutOfSync", "Healthy", "b7"),
            "not-healthy",
            "staging/web is not synced: its sync status is OutOfSync",
        ),
        (
            status("Synced", "Suspended", "b7"),
            "not-healthy",
            "staging/web is not healthy: its health status is Suspended",
        ),
        (
            status("Synced", "Degraded", "b7"),
            "not-healthy",
            "staging/web is not healthy: its health status is Degraded",
        ),
        (
            status("Synced", "Healthy", "b6"),
            "not-healthy",
            "staging/web is not running b7: Argo CD shows b6",
        ),
        (
            status("Synced", "Healthy"),
            "not-healthy",
            "staging/web is not running b7: Argo CD shows no version of it",
        ),
        (None, "not-healthy", "staging/web has no Argo CD status"),
    ],
)
def test_the_healthy_option_promotes_only_healthy_versions(
    said: Mapping[str, Any] | None, rule: str, because: str
) -> None:
    scene = Stages(
        of_stage("staging/web") | ({"status": said} if said else {}), of_stage("production/web")
    )
    scene.build("staging/web", "b7")
    report = scene.promote("staging/web", "production/web", healthy=True)
    assert rules(report) == {"production/web": rule}
    assert because in report.decisions[0].because
    assert sources(report) == {"production/web": "staging/web"}
    assert scene.says("production/web") == ("b7" if rule == "admitted" else "1.0.0")


OURS = "https://git.example/acme/web"
OLD, NEW = "a" * 40, "b" * 40


def with_commits(repository: str) -> Stages:
    """Production has a build of an old commit, and staging of a new one. Neither has a number."""
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    for key, tag, commit in (("production/web", "b1", OLD), ("staging/web", "b7", NEW)):
        terms = Terms(build=Build(commit=commit, repository=repository), now=NOW)
        scene._for(key, Job("run", (parse_image(f"{WEB}:{tag}"),), SCOPE, terms, WORDING))
    return scene


@pytest.mark.parametrize(
    ("written", "named", "rule"),
    [
        (OURS, "ssh://git@git.example/acme/web.git", "superseded"),
        (OURS, "", "admitted"),  # only in the state file, so arrival order decides
        ("https://evil.example/steal", OURS, "admitted"),
    ],
)
def test_commits_are_compared_only_in_the_repository_that_the_user_names(
    written: str, named: str, rule: str
) -> None:
    scene = with_commits(written)
    asked: list[str] = []

    def older(repository: str, _new: str, _old: str) -> str:
        asked.append(repository)
        return "older"

    scene.ancestry = older
    assert rules(scene.promote("staging/web", "production/web", repository=named)) == {
        "production/web": rule
    }
    assert asked == ([named] if rule == "superseded" else [])


def test_the_commit_message_names_the_promoted_builds_source_commit() -> None:
    scene = with_commits(OURS)
    commit = NEW
    messages: list[str] = []
    land = scene.branch.land

    def told(change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        messages.append(change.message)
        return land(change, memory_change)

    scene.branch.land = told  # type: ignore[method-assign]
    scene.promote("staging/web", "production/web", repository=OURS)
    assert f"Argocd-reference-commit-repourl: {OURS}" in messages[0]
    assert f"Source-Commit: {commit}" in messages[0]
    assert f"Argocd-reference-commit-sha: {commit}" in messages[0]
    assert messages[0].startswith("build: promote web to b7\n")
    assert "tag 'b1' to 'b7', promoted from staging/web\n    for web\n" in messages[0]
    assert "\nPromoted-From: staging/web\n" in messages[0]


@pytest.mark.parametrize(
    ("promotion", "message"),
    [
        (
            Promotion(("a",), ("{cluster}/a",)),
            "--to: unknown placeholder {cluster} in '{cluster}/a'",
        ),
        (
            Promotion(("a",), ("b/{name",)),
            "--to: unbalanced braces in 'b/{name'",
        ),
        (
            Promotion(("a",), ("b/{{name}}",)),
            "--to: unbalanced braces in 'b/{{name}}'",
        ),
        (Promotion(source_selector="a in b"), "--from-selector: cannot parse 'a in b'"),
        (Promotion(target_selector="a in b"), "--to-selector: cannot parse 'a in b'"),
    ],
)
def test_invalid_promotion_arguments_cause_usage_errors(promotion: Promotion, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_promotion(promotion)
    assert caught.value.message == message


@pytest.mark.slow
@given(
    st.sampled_from(["newest-build", "alphabetical", "semver"]),
    st.lists(
        st.tuples(
            st.sampled_from(["staging", "production", "promote", "hold", "release"]),
            st.integers(1, 6),
            st.booleans(),
        ),
        max_size=8,
    ),
)
def test_a_promotion_leads_to_the_same_decision_as_an_event_for_the_build(
    strategy: str, steps: Sequence[tuple[str, int, bool]]
) -> None:
    """This holds after any history, and a second promotion changes nothing."""
    # If only some of a source's builds have numbers, a later build cannot be told from a rollback.
    assume(len({identified for what, _, identified in steps if what == "staging"}) < 2)

    def stages() -> Stages:
        return Stages(
            of_stage("staging/web", update_strategy=strategy),
            of_stage("production/web", update_strategy=strategy),
        )

    scene, twin = stages(), stages()
    built: dict[str, int | None] = {}
    for what, number, identified in steps:
        sequence = number if identified else None
        for one in (scene, twin):
            if what in ("staging", "production"):
                if (
                    one.build(f"{what}/web", f"1.{number}.0", sequence).verdict == "update"
                    and what == "staging"
                ):
                    built[one.says("staging/web")] = sequence
            elif what in ("hold", "release"):
                one.by_hand(
                    "production/web",
                    Intent(what, Hold("freeze", "jane", NOW) if what == "hold" else None),
                )
        if what != "promote":
            continue
        decided = scene.promote("staging/web", "production/web").decisions[0]
        tag = twin.says("staging/web")
        known = twin.build("production/web", tag, built.get(tag))
        assert (decided.verdict, scene.says("production/web")) == (
            known.verdict,
            twin.says("production/web"),
        )
        tip = scene.branch.tip
        again = scene.promote("staging/web", "production/web").decisions[0]
        assert again.verdict == ("unchanged" if decided.verdict == "update" else decided.verdict)
        assert scene.branch.tip == tip


def test_a_promotion_with_a_failed_rollout_is_rolled_back() -> None:
    scene = Stages(of_stage("staging/web"), of_stage("production/web"))
    scene.build("staging/web", "b7", 7)

    def follow(landed: Sequence[LandedApplication]) -> Followed:
        return Followed((), tuple(Failure((one,), "degraded") for one in landed))

    scene.follow = follow
    promotion = Promotion(("staging/web",), ("production/web",))
    report = scene.run(
        Job("promote", (), SCOPE, Terms(now=NOW), WORDING, promotion=promotion, undo=True)
    )
    assert ([one.rollback for one in report.commits], scene.says("production/web")) == (
        [False, True],
        "1.0.0",
    )
    scene.follow = lambda _landed: Followed()
    assert rules(scene.promote("staging/web", "production/web")) == {"production/web": "superseded"}


@pytest.mark.parametrize(
    ("repository", "commits", "shown", "warning"),
    [
        (OURS, (NEW, NEW), NEW, ""),
        ("https://git.example/acme/other", (NEW, NEW), "", "does not record which commit of"),
        (OURS, (NEW, OLD), "", f"were built from several commits of {OURS}"),
        (OURS, (NEW, ""), "", "does not record which commit of"),
    ],
)
def test_the_deployment_is_reported_on_the_builds_source_commit(
    repository: str, commits: tuple[str, str], shown: str, warning: str
) -> None:
    scene = four()
    apps = [subscribe(parse_application(one), Defaults()) for one in (scene.app, *scene.others)]
    promotion = Promotion(("staging/*",), ("production/{name}",), repository=repository)
    pairs, _ = pairs_of(apps, promotion)
    known = [
        SourceVersion(
            one,
            replace(one.entry.image, tag="b7"),
            Build(commit=commit, repository=OURS if commit else ""),
        )
        for one, commit in zip(wanted(pairs), commits, strict=True)
    ]
    told: list[str] = []
    world = fake_world(
        applications=list, locate=lambda _origin: None, repository=lambda _url, _sub: scene.branch, now=lambda: 0.0,
        sleep=lambda _seconds: None, jitter=lambda: 0.5, log=lambda _level, text: told.append(text),
    )  # fmt: skip
    job = Job(
        "promote", (), SCOPE, Terms(now=NOW), WORDING, deployed=DeployedSource(repository, "")
    )
    made = with_promoted(job, asks_to_promote(pairs, known, promotion), world)
    assert (made.deployed.commit if made.deployed else "") == shown
    assert [warning in one for one in told] == ([] if shown else [True])


@pytest.mark.parametrize(
    ("given_from", "given_to", "several"),
    [
        ("web", "production/api", "'web' matches Applications in several namespaces: prod"),
        (
            "staging/api",
            "web",
            "'web' matches Applications in several namespaces: production/web, qa/web",
        ),
        ("staging/api", "{name}", "'api' matches Applications in several namespaces: prod"),
    ],
)
def test_an_ambiguous_name_is_a_usage_error(given_from: str, given_to: str, several: str) -> None:
    scene = Stages(
        *(
            of_stage(f"{stage}/{name}")
            for stage in ("staging", "production", "qa")
            for name in ("web", "api")
        )
    )
    tip = scene.branch.tip
    with pytest.raises(UsageError, match=several) as caught:
        scene.promote(given_from, given_to)
    assert "'*/" in caught.value.hint
    assert scene.branch.tip == tip


def test_a_name_that_is_ambiguous_elsewhere_is_valid_with_a_glob_or_a_selector() -> None:
    scene = four()
    scene.build("staging/web", "b7")
    report = scene.promote("web", "production/*", source_selector="stage=staging")
    assert sources(report) == {"production/web": "staging/web", "production/api": "staging/web"}
    assert sources(scene.promote("staging/web", "*/api")) == {
        "staging/api": "staging/web",
        "production/api": "staging/web",
    }


@pytest.mark.parametrize("verb", ["hold", "release", "rollback"])
def test_hold_release_and_rollback_reject_ambiguous_names(verb: str) -> None:
    scene = four()
    tip = scene.branch.tip
    intent = Intent(verb, Hold("load test"), to="previous")
    narrow = replace(SCOPE.narrow, names=("web",), typed=True)
    job = Job(verb, (), replace(SCOPE, narrow=narrow), Terms(now=NOW), WORDING, intent=intent)
    with pytest.raises(
        UsageError, match="several namespaces: production/web, staging/web"
    ) as caught:
        scene.run(job)
    assert caught.value.hint == "use production/web, or '*/web' for all of them"
    assert scene.branch.tip == tip
    one_namespace = replace(narrow, namespaces=("staging",))
    for each in (one_namespace, replace(narrow, names=("*/web",))):
        report = scene.run(replace(job, scope=replace(SCOPE, narrow=each)))
        assert len(report.decisions) == (1 if each is one_namespace else 2)
