"""Which subscriptions a rule applies to, and which setting takes precedence, tested without Git."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.image import parse_image
from task.model import Application, Entry, Keys, Policy, Source, Subscription, Wishes
from task.repository_config.config import (
    Match,
    RepositoryConfig,
    Rule,
    agreed,
    governed,
    name_glob,
    path_glob,
    wishes_of_layers,
)
from task.repository_config.reading import read_config

NOW = "2026-11-22T12:00:00Z"


def subscription(
    name: str = "web",
    project: str = "shop",
    path: str = "clusters/production/web",
    image: str = "ghcr.io/acme/api",
) -> Subscription:
    app = Application("team-a", name, {}, (), project=project)
    entry = Entry("api", parse_image(image), "", image)
    return Subscription(app, entry, Policy(), Keys(), Source("r"), "kustomization", path, "r")


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("clusters/production/**", "clusters/production/web/kustomization.yaml", True),
        ("clusters/production/**", "clusters/production", True),
        ("clusters/production/**", "clusters/productions/web", False),
        ("clusters/production", "clusters/production/web/values.yaml", True),
        ("/clusters/production/", "clusters/production/web/values.yaml", True),
        ("clusters/*", "clusters/production/web", True),
        ("clusters/*/web", "clusters/production/web/values.yaml", True),
        ("clusters/*/web", "clusters/a/b/web", False),
        ("clusters/**/web", "clusters/web", True),
        ("clusters/**/web", "clusters/a/b/web/values.yaml", True),
        ("**/values.yaml", "values.yaml", True),
        ("**/values.yaml", "a/b/values.yaml", True),
        ("**/values.yaml", "a/b/values.yml", False),
        ("*.yaml", "a/values.yaml", False),
        ("values-*.yaml", "values-production.yaml", True),
        ("apps/[ab]/x", "apps/b/x", True),
        ("apps/[!ab]/x", "apps/b/x", False),
        ("Apps", "apps/x", False),
        ("**", "", True),
        ("a", "", False),
        (".", "a/b", True),
        ("a/**/**/b", "a/b", True),
    ],
)
def test_path_globs_match_paths(glob: str, path: str, fits: bool) -> None:
    assert path_glob(glob).fits(path) is fits


@pytest.mark.parametrize(
    ("match", "takes"),
    [
        (Match(), True),
        (Match(applications=(name_glob("web"),)), True),
        (Match(applications=(name_glob("w*"),)), True),
        (Match(applications=(name_glob("team-a/*"),)), True),
        (Match(applications=(name_glob("team-b/*"), name_glob("team-a/web"))), True),
        (Match(applications=(name_glob("team-a"),)), False),
        (Match(projects=(name_glob("shop"),)), True),
        (Match(projects=(name_glob("*op"),)), True),
        (Match(projects=(name_glob("Shop"),)), False),
        (Match(images=(name_glob("ghcr.io/acme/*"),)), True),
        (Match(images=(name_glob("acme/api"),)), False),
        (Match(paths=(path_glob("clusters/production"),)), True),
        (Match(projects=(name_glob("shop"),), paths=(path_glob("staging"),)), False),
    ],
)
def test_all_specified_lists_must_match(match: Match, takes: bool) -> None:
    assert match.takes(subscription()) is takes


@pytest.mark.parametrize("glob", ["nginx", "docker.io/library/*", "docker.io/library/nginx"])
def test_an_image_is_known_by_both_of_its_names(glob: str) -> None:
    assert Match(images=(name_glob(glob),)).takes(subscription(image="nginx"))


SEVERAL = """\
- {match: {projects: [shop]}, pinDigest: true}
- {match: {applications: [web]}, pullRequests: {enabled: true}}
- {match: {projects: [shop]}, pullRequests: {enabled: false}}
"""
PRECEDENCE = [
    # (annotation or option, config) → effective value
    (False, "", False),
    (False, "pullRequests: {enabled: false}", False),
    (False, "pullRequests: {enabled: true}", True),
    (True, "pullRequests: {enabled: false}", True),
    (True, "", True),
    (False, "rules: [{match: {projects: [shop]}, pullRequests: {enabled: true}}]", True),
    (False, "rules: [{match: {projects: [other]}, pullRequests: {enabled: true}}]", False),
    # The first rule that contains the key decides, whatever the top level specifies.
    (
        False,
        "pullRequests: {enabled: true}\nrules: [{match: {projects: [shop]}, pullRequests: {enabled: false}}]",
        False,
    ),
    (False, f"rules:\n{SEVERAL}", True),
]


@pytest.mark.parametrize(("asked", "text", "expected"), PRECEDENCE)
def test_pull_requests_are_enabled_by_annotation_or_config(
    asked: bool, text: str, expected: bool
) -> None:
    sub = replace(subscription(), pull_request=asked)
    (found,) = governed([sub], read_config(f"version: 1\n{text}\n"), NOW)
    assert found.pull_request is expected


@pytest.mark.parametrize(("asked", "text", "expected"), PRECEDENCE)
def test_digest_pinning_is_enabled_by_annotation_or_config(
    asked: bool, text: str, expected: bool
) -> None:
    text = text.replace("pinDigest: true", "commit: {signOff: true}")
    for value in ("true", "false"):
        text = text.replace(f"pullRequests: {{enabled: {value}}}", f"pinDigest: {value}")
    sub = replace(subscription(), policy=Policy(pin_digest=asked))
    (found,) = governed([sub], read_config(f"version: 1\n{text}\n"), NOW)
    assert found.policy.pin_digest is expected


def test_the_freeze_that_ends_last_is_reported() -> None:
    config = read_config(
        "version: 1\nfreezes:\n"
        "- {schedule: 0 0 * * 0, duration: 1d, reason: sunday}\n"
        "- {schedule: 0 0 21 11 *, duration: 5d, reason: november, match: {projects: [shop]}}\n"
        "- {schedule: 0 0 1 11 *, duration: 90d, reason: others, match: {projects: [other]}}\n"
    )
    shop, free, other = governed(
        [subscription(), subscription(project=""), subscription(project="other")], config, NOW
    )
    assert shop.freeze
    assert (shop.freeze.reason, shop.freeze.until) == ("november", "2026-11-26T00:00:00Z")
    assert shop.freeze.source == "the freeze in .image-update/config, line 4"
    assert free.freeze
    assert free.freeze.reason == "sunday"
    assert other.freeze
    assert other.freeze.reason == "others"


A = Wishes(
    author_name="a",
    template="t",
    trailers=(("K", "a"),),
    sign_off=True,
    labels=("x", "y"),
    auto_merge=True,
)
B = Wishes(
    author_name="b",
    template="t",
    trailers=(("K", "b"),),
    labels=("y", "z"),
    reviewers=("me",),
    draft=True,
)
TOP = Wishes(
    author_name="top", template="top", trailers=(("K", "top"),), sign_off=False, labels=("top",)
)


def test_settings_without_a_conflict_are_used() -> None:
    assert agreed([A], TOP) == replace(A, reviewers=(), assignees=(), draft=False)
    assert agreed([A, A], TOP) == agreed([A], TOP)


def test_auto_merge_is_off_without_any_settings() -> None:
    assert agreed([], replace(TOP, auto_merge=True)).auto_merge is False


def test_conflicting_settings_fall_back_to_the_top_level() -> None:
    found = agreed([A, B], TOP)
    assert (found.author_name, found.template, found.trailers, found.sign_off) == (
        "top",
        "t",
        (("K", "top"),),
        False,
    )
    assert (found.labels, found.reviewers, found.draft, found.auto_merge) == (
        ("x", "y", "z"),
        ("me",),
        True,
        False,
    )


wishes = st.builds(
    Wishes,
    author_name=st.none() | st.sampled_from("ab"),
    labels=st.none() | st.lists(st.sampled_from("xyz"), max_size=2, unique=True).map(tuple),
    sign_off=st.none() | st.booleans(),
    pull_request=st.none() | st.booleans(),
)


@given(st.lists(wishes, max_size=4))
def test_the_first_layer_with_a_value_takes_precedence(layers: list[Wishes]) -> None:
    found = wishes_of_layers(layers)
    for name in ("author_name", "labels", "sign_off", "pull_request"):
        said = [value for one in layers if (value := getattr(one, name)) is not None]
        assert getattr(found, name) == (said[0] if said else None)


def test_hostile_globs_are_matched_quickly() -> None:
    """A config contains a thousand of the slowest globs, matched against names and paths of maximum
    length.
    """
    slow = "*a" * 200 + "b"
    rules = tuple(
        Rule(
            Match(
                paths=(path_glob("/".join(["**", "*a*a*a*b"] * 40)),),
                applications=(name_glob(slow),) * 4,
            ),
            Wishes(draft=True),
        )
        for _ in range(200)
    )
    sub = subscription("a" * 250, path="/".join(["a" * 40] * 40))
    began = time.process_time()
    assert governed([sub] * 10, RepositoryConfig(rules=rules), NOW)[0].wishes == Wishes()
    assert time.process_time() - began < 10
