"""The meaning of annotations. The cases in `cases/annotations.json` were recorded from AIU."""

import json
from typing import Any

import pytest
from support import DATA
from support.reports import parsed_application

from task.annotations.application import parse_application
from task.annotations.subscription import Defaults, subscribe
from task.model import Keys, Source, Subscribed

CASES = json.loads((DATA / "cases" / "annotations.json").read_text())["cases"]
OURS = {
    "opt-no-alias-image-keys": "per-image keys are found without an alias too",
}


def only(annotations: dict[str, str]) -> Subscribed:
    return subscribe(parsed_application({"image-list": "web=ghcr.io/acme/web", **annotations}))


def errors(subscribed: Subscribed) -> list[str]:
    return [flaw.key for flaw in subscribed.flaws if flaw.severity == "error"]


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c["input"]["op"] == "options" and c["id"] not in OURS],
    ids=lambda c: c["id"],
)
def test_options_are_read_as_in_image_updater(case: dict[str, Any]) -> None:
    expected = case.get("expect_v1", case["expect"])
    subscribed = subscribe(
        parsed_application({"image-list": case["input"]["image"], **case["input"]["annotations"]})
    )
    sub = subscribed.subscriptions[0]
    assert sub.policy.strategy == expected["strategy"]
    assert sub.policy.allow == (expected["pattern"] if expected["allow"] == "regexp" else None)
    assert list(sub.policy.ignore) == expected["ignore"]
    assert sub.keys.kustomize_name == expected["kustomize_name"]
    if expected["helm_spec"]:
        assert sub.keys.spec == expected["helm_spec"]
    else:
        assert (sub.keys.name or "image.name", sub.keys.tag or "image.tag") == (
            expected["helm_name"],
            expected["helm_tag"],
        )


@pytest.mark.parametrize(
    ("annotations", "strategy", "constraints"),
    [
        ({}, "semver", ()),
        ({"web.update-strategy": "latest"}, "newest-build", ()),
        ({"web.update-strategy": "Name"}, "alphabetical", ()),
        ({"update-strategy": "newest-build"}, "newest-build", ()),
        (
            {"update-strategy": "newest-build", "web.update-strategy": "alphabetical"},
            "alphabetical",
            (),
        ),
        ({"update-strategy": "newest-build", "web.update-strategy": ""}, "newest-build", ()),
        ({"web.update-strategy": "semver:1.6.x"}, "semver", ("1.6.x",)),
        (
            {"web.update-strategy": "semver:1.6.x", "image-list": "web=ghcr.io/acme/web:~1"},
            "semver",
            ("~1", "1.6.x"),
        ),
        (
            {"web.update-strategy": "digest", "image-list": "web=ghcr.io/acme/web:main"},
            "digest",
            ("main",),
        ),
    ],
)
def test_strategy_and_constraints_come_from_the_annotations(
    annotations: dict[str, str], strategy: str, constraints: tuple[str, ...]
) -> None:
    policy = only(annotations).subscriptions[0].policy
    assert (policy.strategy, policy.constraints) == (strategy, constraints)


@pytest.mark.parametrize(
    ("annotations", "key"),
    [
        ({"web.update-strategy": "lexical"}, "web.update-strategy"),
        ({"web.update-strategy": "digest"}, "image-list"),
        ({"web.allow-tags": "^v1"}, "web.allow-tags"),
        ({"web.allow-tags": "regexp:["}, "web.allow-tags"),
        ({"allow-tags": "glob:x"}, "allow-tags"),
        ({"ignore-tags": "a,["}, "ignore-tags"),
        ({"image-list": "web=ghcr.io/acme/web:>"}, "image-list"),
        ({"image-list": "web=ghcr.io/acme/web:>=1.0,<2"}, "image-list"),
        ({"image-list": "web=ghcr.io/acme/web:>=1.0, <2, !=1.5"}, "image-list"),
        ({"image-list": "web=ghcr.io/acme/web:>=1.0,=1.5"}, "image-list"),
        ({"image-list": "web=ghcr.io/acme/web:1.x,2.x"}, "image-list"),
        ({"image-list": "web=ghcr.io/acme/web:1,*"}, "image-list"),
        ({"image-list": "web=ghcr.io/acme/web,<2"}, "image-list"),
        (
            {"image-list": "web=ghcr.io/acme/web:main,2", "web.update-strategy": "digest"},
            "image-list",
        ),
        ({"web.update-strategy": "semver:nonsense"}, "web.update-strategy"),
        ({"web.pin-digest": "perhaps"}, "web.pin-digest"),
        ({"write-back-method": "Git"}, "write-back-method"),
        ({"write-back-method": "git:nonsense"}, "write-back-method"),
        ({"write-back-method": "git:"}, "write-back-method"),
        ({"write-back-method": "git : "}, "write-back-method"),
        ({"write-back-method": "argocd:"}, "write-back-method"),
        ({"web.helm.image-tag": "images[ 0 ].tag"}, "web.helm.image-tag"),
        ({"helm.image-tag": "images[0][1 ].tag"}, "helm.image-tag"),
        ({"web.helm.image-spec": "images[0 1]"}, "web.helm.image-spec"),
        (
            {"web.helm.image-spec": "image", "web.helm.image-digest": "digest"},
            "web.helm.image-digest",
        ),
        ({"web.helm.image-tag": "t", "web.helm.image-digest": "t"}, "web.helm.image-digest"),
        ({"web.helm.image-name": "images[ ].name"}, "web.helm.image-name"),
        ({"web.allow-tag": "regexp:^1"}, "web.allow-tag"),
        ({"ignore_tags": "latest"}, "ignore_tags"),
        ({"write-back-metod": "argocd"}, "write-back-metod"),
        ({"gitbranch": "dev"}, "gitbranch"),
        ({"write-back-method": "git:error:argocd/creds"}, "write-back-method"),
        ({"write-back-method": "git:secret:"}, "write-back-method"),
        ({"write-back-method": "git:secret:/creds"}, "write-back-method"),
        ({"write-back-method": "git:secret:argocd/"}, "write-back-method"),
        ({"write-back-method": "git:secret:a/b/c"}, "write-back-method"),
        ({"pull-request": "yes"}, "pull-request"),
        ({"write-back-method": "argocd:secret:a/b"}, "write-back-method"),
        ({"git-branch": "a:b:c"}, "git-branch"),
        ({"web.ignore-tags": "regexp:^dev-"}, "web.ignore-tags"),
        ({"ignore-tags": "latest, a b"}, "ignore-tags"),
        ({"write-back-target": "helm"}, "write-back-target"),
        ({"write-back-target": "kustomizationX"}, "write-back-target"),
        ({"write-back-target": "helmvaluesX:/a"}, "write-back-target"),
        ({"write-back-target": "kustomization:../../.."}, "write-back-target"),
        ({"write-back-target": "helmvalues:$nowhere/values.yaml"}, "write-back-target"),
        ({"write-back-source": "7"}, "write-back-source"),
    ],
)
def test_an_invalid_annotation_is_an_error_and_prevents_the_subscription(
    annotations: dict[str, str], key: str
) -> None:
    subscribed = only(annotations)
    assert subscribed.subscriptions == ()
    assert errors(subscribed) == [key]
    assert all(flaw.hint for flaw in subscribed.flaws)


@pytest.mark.parametrize(
    ("annotations", "left"),
    [
        ({}, ["web", "api", ""]),
        ({"web.allow-tag": "any"}, ["api", ""]),
        ({"allow-tag": "any"}, []),
        (
            {"allow-tag": "any", "web.allow-tags": "any"},
            ["web"],
        ),  # the image's own rule overrides the application-wide rule
        ({"allow-tags": "any", "web.allow-tag": "any"}, ["api", ""]),
        (
            {"cron.plattforms": "linux/amd64"},
            ["web", "api"],
        ),  # without an alias, an entry is identified by the last part of its image name
        ({"write-back-traget": "kustomization"}, []),
        ({"pull-requests": "true"}, []),
        # none of these mistakes seems to disable a rule
        ({"image-lists": "x=acme/x"}, ["web", "api", ""]),
        ({"web.allow-tag": ""}, ["web", "api", ""]),
        ({"old.allow-tag": "any"}, ["web", "api", ""]),
        ({"web.credentials": "x"}, ["web", "api", ""]),
        ({"web.colour": "blue"}, ["web", "api", ""]),
    ],
)
def test_a_misspelled_rule_stops_updates_of_the_images_it_was_meant_for(
    annotations: dict[str, str], left: list[str]
) -> None:
    listed = "web=acme/web, api=acme/api, acme/cron"
    subscribed = subscribe(parsed_application({"image-list": listed, **annotations}))
    assert [one.entry.alias for one in subscribed.subscriptions] == left
    stopped = {flaw.entry.alias for flaw in subscribed.flaws if flaw.misspelled and flaw.entry}
    assert stopped == {"web", "api", ""} - set(left)


def test_a_flaw_names_the_strategy_if_it_is_valid() -> None:
    assert [one.strategy for one in only({"web.update-strategy": "digest"}).flaws] == ["digest"]
    assert [one.strategy for one in only({"update-strategy": "latest", "write-back-method": "x"}).flaws] == [
        "newest-build", "newest-build"
    ]  # fmt: skip
    assert [one.strategy for one in only({"web.update-strategy": "newest"}).flaws] == [None]


def test_each_invalid_glob_is_reported() -> None:
    subscribed = only({"web.ignore-tags": "[, ok-*, regexp:^dev-, [, \\"})
    assert [one.message for one in subscribed.flaws] == [
        "web.ignore-tags: '[' is not a glob: a [class] is not closed",
        "web.ignore-tags: 'regexp:^dev-' does not match any tag: tags cannot contain ':'",
        r"web.ignore-tags: '\\' is not a glob: it ends with a backslash",
    ]
    assert subscribed.subscriptions == ()
    many = only({"web.ignore-tags": ",".join(f"{number}[" for number in range(10_000))})
    assert len(many.flaws) == 11
    assert many.flaws[-1].message == "web.ignore-tags: there may be more invalid globs"


def test_all_problems_of_an_image_are_reported_together() -> None:
    subscribed = only(
        {"web.allow-tags": "regexp:[", "web.ignore-tags": "[", "web.update-strategy": "x"}
    )
    assert errors(subscribed) == ["web.update-strategy", "web.allow-tags", "web.ignore-tags"]


def test_all_write_back_problems_are_reported_together() -> None:
    broken = {
        "pull-request": "x",
        "write-back-method": "Git",
        "git-branch": "a:b:c",
        "write-back-target": "foo:x, /../y",
    }
    keys = [
        "pull-request",
        "write-back-method",
        "git-branch",
        "write-back-target",
        "write-back-target",
    ]
    assert errors(only(broken)) == keys


def test_an_invalid_write_back_is_reported_even_without_a_valid_image() -> None:
    subscribed = subscribe(
        parsed_application({"image-list": "nginx:>=1.0", "write-back-method": "Git"})
    )
    assert errors(subscribed) == ["image-list", "write-back-method"]


def test_a_comma_continues_an_entry_only_within_a_version_range() -> None:
    text = "a=acme/a:>=1.0,<2,b=acme/b:1.x, 3scale/apicast, acme/c, 1password/op"
    one = subscribe(parsed_application({"image-list": text}))
    assert [sub.entry.image.repository for sub in one.subscriptions] == [
        "acme/b",
        "3scale/apicast",
        "acme/c",
        "1password/op",
    ]
    (flaw,) = one.flaws
    assert (flaw.text, flaw.hint) == (
        "a=acme/a:>=1.0",
        "separate constraints with a space: a=acme/a:>=1.0 <2",
    )


def test_one_invalid_entry_does_not_affect_the_others() -> None:
    subscribed = subscribe(
        parsed_application({"image-list": "a=acme/a, b=acme/b:>", "a.update-strategy": "latest"})
    )
    assert [sub.entry.alias for sub in subscribed.subscriptions] == ["a"]


@pytest.mark.parametrize(
    ("annotations", "level"),
    [
        ({"web.update-strategy": "latest"}, "web.update-strategy"),
        ({"tag-match": "regexp:x"}, "tag-match"),
        ({"web.force-update": "yes"}, "web.force-update"),
    ],
)
def test_deprecated_and_unusual_values_work_with_a_warning(
    annotations: dict[str, str], level: str
) -> None:
    subscribed = only(annotations)
    assert len(subscribed.subscriptions) == 1
    assert [(flaw.key, flaw.severity) for flaw in subscribed.flaws] == [(level, "warning")]


@pytest.mark.parametrize(
    ("annotations", "severities"),
    [
        # For each of these, AIU v1 skips the whole Application.
        ({"image-list": "web="}, ["error"]),
        ({"image-list": " , "}, []),  # there is no image to update, which only lint reports
        (
            {"image-list": "web=acme/web", "web.force-update": "yes"},
            ["warning"],
        ),  # this update does not depend on the setting
        (
            {"image-list": "web=acme/web", "web.force-update": ""},
            [],
        ),  # an empty value counts as missing
        (
            {
                "image-list": "web=acme/web",
                "web.helm.image-tag": "t",
                "web.kustomize.image-name": "k",
            },
            [],
        ),  # as in AIU v0
        ({"image-list": "web=acme/web", "write-back-method": "unknown"}, ["error"]),
    ],
)
def test_mistakes_that_image_updater_v1_rejects_are_reported_individually(
    annotations: dict[str, str], severities: list[str]
) -> None:
    assert [
        flaw.severity for flaw in subscribe(parsed_application(annotations)).flaws
    ] == severities


def test_an_empty_ignore_list_overrides_the_application_wide_list() -> None:
    assert only({"ignore-tags": "a*", "web.ignore-tags": ""}).subscriptions[0].policy.ignore == ()
    assert only({"ignore-tags": "a*"}).subscriptions[0].policy.ignore == ("a*",)


@pytest.mark.parametrize(
    ("image_list", "key"),
    [
        ("org/app=ghcr.io/acme/web", "org_app"),
        ("org/app=ghcr.io/acme/web", "org/app"),
        ("ghcr.io/acme/web", "web"),
        ("ghcr.io/acme/web", "acme_web"),
        ("ghcr.io/acme/web", "ghcr.io_acme_web"),
        ("localhost:5000/web", "web"),
    ],
)
def test_per_image_keys_are_found_by_alias_or_image_name(image_list: str, key: str) -> None:
    subscribed = subscribe(
        parsed_application({"image-list": image_list, f"{key}.update-strategy": "alphabetical"})
    )
    assert subscribed.subscriptions[0].policy.strategy == "alphabetical"


def test_keys_for_an_alias_do_not_apply_to_an_image_with_that_name() -> None:
    subscribed = subscribe(
        parsed_application(
            {"image-list": "web=acme/other, acme/web", "web.update-strategy": "alphabetical"}
        )
    )
    assert [sub.policy.strategy for sub in subscribed.subscriptions] == ["alphabetical", "semver"]


def test_every_per_image_key_can_also_be_set_application_wide() -> None:
    annotations = {
        "helm.image-tag": "t",
        "kustomize.image-name": "k",
        "pin-digest": "true",
        "platforms": "linux/arm64, linux/amd64",
    }
    sub = only(annotations).subscriptions[0]
    assert sub.keys == Keys(tag="t", kustomize_name="k")
    assert (sub.policy.pin_digest, sub.policy.platforms) == (True, ("linux/arm64", "linux/amd64"))


def test_each_write_back_target_has_a_separate_subscription() -> None:
    subs = only({"write-back-target": "helmvalues:/a.yaml, kustomization:/k"}).subscriptions
    assert [(sub.target, sub.path) for sub in subs] == [
        ("helmvalues", "a.yaml"),
        ("kustomization", "k"),
    ]


def test_the_strategy_from_the_command_line_is_the_default() -> None:
    defaults = Defaults(strategy="alphabetical", pin_digest=True)
    sub = subscribe(parsed_application({"image-list": "a=b"}), defaults).subscriptions[0]
    assert (sub.policy.strategy, sub.policy.pin_digest) == ("alphabetical", True)


def test_each_subscription_lists_the_managed_names_of_all_entries() -> None:
    subs = subscribe(
        parsed_application({"image-list": "a=acme/a, b=acme/b", "a.helm.image-tag": "a.tag"})
    ).subscriptions
    assert subs[0].managed == subs[1].managed
    assert set(subs[0].managed) == {
        "image.name",
        "a.tag",
        "image.tag",
        "docker.io/acme/a",
        "docker.io/acme/b",
    }


@pytest.mark.parametrize(
    ("kind", "target", "keys"),
    [
        ("Plugin", "", Keys(tag="TAG")),
        ("Plugin", ".argocd-source-web.yaml", Keys(tag="TAG")),
        ("Plugin", "helmvalues:/values.yaml", Keys(name="image.name", tag="image.tag")),
        ("Helm", "", Keys(name="image.name", tag="image.tag")),
        ("", "", Keys(name="image.name", tag="image.tag")),
    ],
)
def test_plugin_and_helm_keys_apply_only_to_their_source_type(
    kind: Any, target: str, keys: Keys
) -> None:
    source = Source("https://git.example/x.git", "apps/web", "main", kind=kind)
    names = {
        "helm.image-name": "image.name",
        "helm.image-tag": "image.tag",
        "plugin.image-tag": "TAG",
    }
    asked = parsed_application(
        {"image-list": "a=acme/a", "write-back-target": target, **names}, sources=(source,)
    )
    assert [sub.keys for sub in subscribe(asked).subscriptions] == [keys]
    assert "TAG" in subscribe(asked).subscriptions[0].managed


def test_an_application_without_annotations_has_no_subscriptions() -> None:
    assert subscribe(parse_application({"metadata": {"name": "x"}})) == Subscribed(
        parse_application({"metadata": {"name": "x"}}), (), ()
    )
