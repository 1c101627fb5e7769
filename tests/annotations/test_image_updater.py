"""Conversion of ImageUpdater resources to annotations, per AIU's v1.3 documentation and schema."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import DATA
from support.reports import parsed_application

from task.annotations.image_updater import configure, is_image_updater
from task.annotations.image_updater_settings import SPEC, Fields
from task.annotations.subscription import subscribe
from task.model import KeySecret, Problem
from task.policy.tag_filter import glob_match

WEB = {"alias": "web", "imageName": "ghcr.io/acme/web"}


def updater(
    *refs: Any, name: str = "one", namespace: str | None = "argocd", **spec: Any
) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "argocd-image-updater.argoproj.io/v1alpha1",
        "kind": "ImageUpdater",
        "metadata": metadata,
        "spec": {"applicationRefs": list(refs), **spec},
    }


def ref(pattern: str = "web", *images: Any, **more: Any) -> dict[str, Any]:
    return {"namePattern": pattern, "images": list(images or [WEB]), **more}


def annotated(*updaters: Any, **more: Any) -> tuple[dict[str, str], tuple[Problem, ...]]:
    (done,), problems = configure([parsed_application(**more)], updaters, complete=False)
    return dict(done.annotations), problems


def said(*updaters: Any, **more: Any) -> dict[str, str]:
    found, problems = annotated(*updaters, **more)
    assert problems == ()
    return found


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("ImageUpdater", "argocd-image-updater.argoproj.io/v1alpha1", True),
        ("ImageUpdater", "argoproj.io/v1alpha1", False),
        ("Application", "argocd-image-updater.argoproj.io/v1alpha1", False),
    ],
)
def test_image_updater_resources_are_recognized(kind: str, version: str, expected: bool) -> None:
    assert is_image_updater({"kind": kind, "apiVersion": version}) is expected


def test_every_setting_of_a_resource_becomes_an_annotation() -> None:
    image = {
        "alias": "web",
        "imageName": "ghcr.io/acme/web:~1.2",
        "commonUpdateSettings": {
            "updateStrategy": "semver",
            "allowTags": "regexp:^1",
            "ignoreTags": ["latest", "dev-*"],
            "pullSecret": "pullsecret:argocd/registry",
            "forceUpdate": True,
            "platforms": ["linux/amd64", "linux/arm64"],
        },
        "manifestTargets": {"helm": {"name": "image.repository", "tag": "image.tag"}},
    }
    git = {
        "repository": "https://git.example/y.git",
        "branch": "main:up",
        "writeBackTarget": "helmvalues:v.yaml",
    }
    config = {
        "method": "git:secret:argocd/creds",
        "gitConfig": {**git, "pullRequest": {"github": {}}},
    }
    assert said(updater(ref("web", image, writeBackConfig=config))) == {
        "image-list": "web=ghcr.io/acme/web:~1.2",
        "write-back-method": "git:secret:argocd/creds",
        "git-repository": "https://git.example/y.git",
        "git-branch": "main:up",
        "write-back-target": "helmvalues:v.yaml",
        "pull-request": "true",
        "web.update-strategy": "semver",
        "web.allow-tags": "regexp:^1",
        "web.ignore-tags": "latest,dev-*",
        "web.pull-secret": "pullsecret:argocd/registry",
        "web.force-update": "true",
        "web.platforms": "linux/amd64,linux/arm64",
        "web.helm.image-name": "image.repository",
        "web.helm.image-tag": "image.tag",
    }


def test_the_known_fields_match_the_schema() -> None:
    """A field in the schema must not be reported as unknown."""
    schemas = json.loads((DATA / "schemas.json").read_text())
    schema = schemas["schemas"]["argocd-image-updater-imageupdater-v1alpha1"]

    def fields(node: Any) -> Any:
        while "$ref" in node or node.get("type") == "array":
            if "$ref" in node:
                node = schemas["definitions"][node["$ref"].removeprefix("#/definitions/")]
            else:
                node = node["items"]
        return {name: fields(one) for name, one in node.get("properties", {}).items()}

    def plain(known: Fields) -> Any:
        return {name: plain(below) for name, below in known.items()}

    older: Fields = {"namespace": {}}  # present in AIU up to v1.1
    assert {**fields(schema["properties"]["spec"]), **older} == plain(SPEC)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ({"helm": {"tag": "t"}}, {"web.helm.image-tag": "t"}),
        ({"helm": {"spec": "s", "name": "n", "tag": "t"}}, {"web.helm.image-spec": "s"}),
        ({"helm": {"spec": "", "tag": "t"}}, {"web.helm.image-tag": "t"}),
        ({"helm": {"tag": "t"}, "kustomize": None}, {"web.helm.image-tag": "t"}),
        ({"kustomize": {"name": "web"}}, {"web.kustomize.image-name": "web"}),
        (
            {"plugin": {"name": "N", "tag": "T"}},
            {"web.plugin.image-name": "N", "web.plugin.image-tag": "T"},
        ),
        ({"plugin": {"spec": "S"}}, {"web.plugin.image-spec": "S"}),
    ],
)
def test_manifest_targets_become_annotations(
    targets: dict[str, Any], expected: dict[str, str]
) -> None:
    found = said(updater(ref("web", {**WEB, "manifestTargets": targets})))
    assert found == {"image-list": "web=ghcr.io/acme/web", **expected}


@pytest.mark.parametrize(
    ("world", "reference", "image", "expected"),
    [
        ("a", None, None, "a"),
        ("a", "b", None, "b"),
        ("a", "b", "c", "c"),
        (None, None, "c", "c"),
        ("a", None, "", ""),
    ],
)
def test_image_settings_override_reference_and_global_settings(
    world: Any, reference: Any, image: Any, expected: str
) -> None:
    one = {**WEB, "commonUpdateSettings": {"allowTags": image, "updateStrategy": "digest"}}
    whole = ref(
        "web", one, commonUpdateSettings={"allowTags": reference, "updateStrategy": "latest"}
    )
    found = said(
        updater(whole, commonUpdateSettings={"allowTags": world, "updateStrategy": "name"})
    )
    assert found.get("web.allow-tags", "") == expected
    assert found["web.update-strategy"] == "digest"


def test_an_empty_list_and_false_also_override_outer_settings() -> None:
    one = {**WEB, "commonUpdateSettings": {"ignoreTags": [], "forceUpdate": False}}
    found = said(
        updater(ref("web", one), commonUpdateSettings={"ignoreTags": ["x"], "forceUpdate": True})
    )
    assert found == {"image-list": "web=ghcr.io/acme/web"}


def test_write_back_settings_are_merged_individually() -> None:
    world = {"method": "git", "gitConfig": {"branch": "main", "writeBackTarget": "kustomization"}}
    own = {"gitConfig": {"branch": "dev", "repository": None}}
    found = said(updater(ref("web", writeBackConfig=own), writeBackConfig=world))
    assert found == {
        "image-list": "web=ghcr.io/acme/web",
        "write-back-method": "git",
        "git-branch": "dev",
        "write-back-target": "kustomization",
    }


def test_the_argocd_write_back_method_ignores_git_settings() -> None:
    config = {"method": "argocd", "gitConfig": {"branch": "a:b:c", "pullRequest": {"github": {}}}}
    found = said(updater(ref("web", writeBackConfig=config)))
    assert found == {"image-list": "web=ghcr.io/acme/web", "write-back-method": "argocd"}


@pytest.mark.parametrize(
    ("patterns", "winner"),
    [
        (["*", "w*", "web"], 2),
        (["w*", "*"], 0),
        (["we?", "w*"], 0),
        (["*", "*"], 0),  # of two identical patterns, the first wins
        (["w[aeiou]b", "w*b"], 0),  # a character set is not literal: both score 2
        (["w*b", "w[aeiou]b"], 0),
        (["api", "w*"], 1),
        ([r"we\b", "web*"], 0),  # AIU considers it exact because it contains no wildcard
    ],
)
def test_the_most_specific_reference_wins(patterns: list[str], winner: int) -> None:
    refs = [
        ref(pattern, {"alias": f"a{at}", "imageName": "nginx"})
        for at, pattern in enumerate(patterns)
    ]
    assert said(updater(*refs)) == {"image-list": f"a{winner}=nginx"}


@pytest.mark.parametrize(
    ("refs", "winner"),
    [
        ([("web-frontend-*", None), ("*", {"matchLabels": {"tier": "web"}})], 1),
        ([("web-frontend-1", None), ("*", {"matchLabels": {"tier": "web"}})], 0),
        ([("*", {}), ("web-*", None)], 0),
        (
            [
                ("*", {"matchLabels": {"tier": "web"}}),
                ("*", {"matchLabels": {"tier": "web", "env": "prod"}}),
            ],
            1,
        ),
    ],
)
def test_a_label_selector_is_more_specific_than_any_glob(
    refs: list[tuple[str, Any]], winner: int
) -> None:
    made = [
        ref(pattern, {"alias": f"a{at}", "imageName": "nginx"}, labelSelectors=labels)
        for at, (pattern, labels) in enumerate(refs)
    ]
    found = said(updater(*made), name="web-frontend-1", labels={"tier": "web", "env": "prod"})
    assert found == {"image-list": f"a{winner}=nginx"}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"matchLabels": {"tier": "web"}}, True),
        ({"matchLabels": {"tier": "web", "env": "prod"}}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["db", "web"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}, True),
        ({"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist", "values": []}]}, False),
        (
            {
                "matchLabels": {"tier": "web"},
                "matchExpressions": [{"key": "env", "operator": "Exists"}],
            },
            False,
        ),
    ],
)
def test_label_selectors_select_applications(selector: dict[str, Any], selected: bool) -> None:
    found = said(updater(ref("*", labelSelectors=selector)), labels={"tier": "web"})
    assert bool(found) is selected


@pytest.mark.parametrize(
    ("of_app", "of_updater", "referenced"),
    [
        ("argocd", "argocd", True),
        ("team", "argocd", False),
        ("argocd", None, True),
        ("team", None, False),
    ],
)
def test_a_resource_references_only_applications_in_its_namespace(
    of_app: str, of_updater: str | None, referenced: bool
) -> None:
    assert bool(said(updater(ref("*"), namespace=of_updater), namespace=of_app)) is referenced


@pytest.mark.parametrize(("named", "told"), [("argocd", 0), ("team", 1)])
def test_another_namespace_in_the_spec_is_reported(named: str, told: int) -> None:
    old = updater(ref("*"))
    old["spec"]["namespace"] = named
    found, problems = annotated(old)
    assert found
    assert ["spec.namespace" in problem.message for problem in problems] == [True] * told


def test_only_our_own_annotations_on_the_application_are_kept() -> None:
    ours = {
        "web.pin-digest": "true",
        "web.helm.image-digest": "image.digest",
        "tag-order": "numeric",
    }
    own = {"image-list": "x=nginx", "x.allow-tags": "any", "git-branch": "dev", **ours}
    found = said(updater(ref("web")), annotations=own)
    assert found == {"image-list": "web=ghcr.io/acme/web", **ours}


def test_use_annotations_leaves_the_application_unchanged() -> None:
    own = {"image-list": "x=nginx", "x.allow-tags": "any"}
    whole = ref("web", useAnnotations=True, commonUpdateSettings={"allowTags": ["broken"]})
    assert (
        said(updater(whole, commonUpdateSettings={"allowTags": "regexp:^x"}), annotations=own)
        == own
    )


BY_ANNOTATIONS = ref("web", useAnnotations=True)
OTHERS = ref("w*", {"alias": "b", "imageName": "b"})


@pytest.mark.parametrize(
    ("updaters", "own", "expected"),
    [
        ([updater(BY_ANNOTATIONS, OTHERS)], {"image-list": "x=nginx"}, "x=nginx"),
        ([updater(BY_ANNOTATIONS, OTHERS)], {}, "b=b"),
        ([updater(BY_ANNOTATIONS, OTHERS)], {"x.allow-tags": "any", "image-list": ""}, "b=b"),
        ([updater(BY_ANNOTATIONS, name="a"), updater(OTHERS, name="b")], {}, "b=b"),
        ([updater(BY_ANNOTATIONS, ref("w*", useAnnotations=True))], {"git-branch": "dev"}, None),
        (
            [updater(OTHERS, ref("*", useAnnotations=True))],
            {},
            "b=b",
        ),  # the more specific reference is tried first
    ],
)
def test_the_next_reference_is_used_if_there_are_no_annotations(
    updaters: list[Any], own: dict[str, str], expected: str | None
) -> None:
    assert said(*updaters, annotations=own).get("image-list") == expected


def test_our_misspelled_annotations_are_kept() -> None:
    own = {"pullrequest": "true", "web.pin-digets": "true", "web.allow-tag": "any"}
    found = said(updater(ref("web")), annotations=own)
    assert found == {
        "image-list": "web=ghcr.io/acme/web",
        "pullrequest": "true",
        "web.pin-digets": "true",
    }


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        (ref("api"), "fix namePattern 'api', or move"),
        (ref("api-*"), "fix namePattern 'api-*', or move"),
        (
            ref("*", labelSelectors={"matchLabels": {"tier": "db"}}),
            "fix namePattern '*' or labelSelectors",
        ),
    ],
)
def test_a_reference_that_selects_nothing_is_reported(reference: dict[str, Any], hint: str) -> None:
    given = updater(ref("w*"), reference)
    _, (told,) = configure(
        [parsed_application(), parsed_application(name="api", namespace="team")],
        [given],
        origins=["updater.yaml:1"],
    )
    message = "updater.yaml:1: ImageUpdater argocd/one, applicationRefs[1]: no Application in namespace 'argocd' matches"
    assert (told.message, told.severity, told.field) == (
        message,
        "warning",
        ("spec", "applicationRefs", 1),
    )
    assert told.hint.startswith(hint)
    assert (
        configure([parsed_application()], [given], complete=False)[1] == ()
    )  # from a filtered list: the reference may select an Application that was filtered out


def test_a_reference_overridden_by_a_more_specific_one_is_not_reported() -> None:
    assert configure([parsed_application()], [updater(ref("*"), ref("web"))])[1] == ()


@pytest.mark.parametrize(
    ("spec", "reference", "image", "told"),
    [
        ({"updateStrategy": "digest"}, {"allowTags": "any"}, None, "in the reference"),
        ({"updateStrategy": "digest"}, None, {}, "in the image"),
        (
            {"updateStrategy": "digest"},
            {"updateStrategy": "latest"},
            {},
            "in the image has no updateStrategy: Image Update applies the outer latest",
        ),
        ({"updateStrategy": "digest"}, None, None, ""),
        ({"updateStrategy": "semver"}, {}, {}, ""),
        ({}, {}, {"updateStrategy": "digest"}, ""),
    ],
)
def test_a_block_without_a_strategy_is_reported_as_defaulting_to_semver(
    spec: Any, reference: Any, image: Any, told: str
) -> None:
    given = [
        {"commonUpdateSettings": level} if level is not None else {}
        for level in (spec, reference, image)
    ]
    found, problems = annotated(updater(ref("web", {**WEB, **given[2]}, **given[1]), **given[0]))
    assert [(told in one.message, one.advice) for one in problems] == [(True, True)] * bool(told)
    assert found.get("web.update-strategy") in {"digest", "latest", "semver"}


def test_an_application_that_no_resource_references_keeps_its_annotations() -> None:
    own = {"image-list": "x=nginx"}
    assert said(updater(ref("api")), annotations=own) == own
    assert said(annotations=own) == own


def test_the_first_of_several_resources_for_an_application_wins() -> None:
    first, second = (
        updater(ref("*"), name="a"),
        updater(ref("web", {"alias": "b", "imageName": "b"}), name="b"),
    )
    found, (problem,) = annotated(second, first)
    assert found == {"image-list": "web=ghcr.io/acme/web"}
    assert (problem.application, problem.severity) == ("argocd/web", "warning")
    assert "argocd/a applies, not argocd/b" in problem.message


def test_a_resource_read_twice_counts_once() -> None:
    assert said(updater(ref("web")), updater(ref("web", {"alias": "b", "imageName": "b"}))) == {
        "image-list": "web=ghcr.io/acme/web"
    }


@pytest.mark.parametrize(
    ("images", "expected", "warned"),
    [
        ([{"imageName": "ghcr.io/acme/api:1.x"}], "api=ghcr.io/acme/api:1.x", "no alias"),
        ([{"alias": "a/b", "imageName": "acme/api"}], "api=acme/api", "'a/b'"),
        ([WEB, {**WEB, "imageName": "nginx"}], "web=ghcr.io/acme/web, web-2=nginx", "twice"),
        ([WEB, WEB], "web=ghcr.io/acme/web", ""),
        ([WEB, {"alias": "n", "imageName": " "}], "web=ghcr.io/acme/web", "images[1]"),
        ([WEB, {"alias": "n"}], "web=ghcr.io/acme/web", "images[1]"),
    ],
)
def test_missing_invalid_and_duplicate_aliases_are_handled(
    images: list[Any], expected: str, warned: str
) -> None:
    found, problems = annotated(updater(ref("web", *images)))
    assert found["image-list"] == expected
    assert [warned] * bool(warned) == [warned for problem in problems if warned in problem.message]


def test_images_that_share_an_alias_keep_their_own_settings() -> None:
    other = {
        "alias": "web",
        "imageName": "nginx",
        "commonUpdateSettings": {"allowTags": "regexp:^x"},
    }
    (done,), _ = configure([parsed_application()], [updater(ref("web", WEB, other))])
    allow = {sub.entry.image.name: sub.policy.allow for sub in subscribe(done).subscriptions}
    assert allow == {"ghcr.io/acme/web": None, "nginx": "^x"}


def test_a_comma_in_a_constraint_is_preserved() -> None:
    (done,), _ = configure(
        [parsed_application()],
        [updater(ref("web", {"alias": "web", "imageName": "acme/web:>=1.2, <2"}))],
    )
    (sub,) = subscribe(done).subscriptions
    assert sub.policy.constraints == (">=1.2 <2",)


TAGS = st.text("abz019.-_", max_size=4)


@given(st.lists(st.text("ab.-,*?[]^", max_size=5), max_size=3), TAGS)
def test_globs_with_commas_ignore_the_same_tags(globs: list[str], tag: str) -> None:
    one = {**WEB, "commonUpdateSettings": {"ignoreTags": globs}}
    (done,), _ = configure([parsed_application()], [updater(ref("web", one))])
    listed = done.annotations.get("web.ignore-tags", "").split(",")
    assert any(glob_match(glob, tag) for glob in listed if glob) is any(
        glob_match(glob, tag) for glob in globs if glob
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "applicationRefs is empty"),
        ("text", "spec is not a mapping"),
        ({"applicationRefs": "web"}, "applicationRefs is not a list"),
        ({"applicationRefs": ["web"]}, "applicationRefs is not a list"),
        ({"applicationRefs": [{"images": [WEB]}]}, "no namePattern"),
        ({"applicationRefs": [{"namePattern": "[", "images": [WEB]}]}, "is not a glob"),
        ({"applicationRefs": [ref("web"), {"namePattern": "a["}]}, "is not a glob"),
    ],
)
def test_a_malformed_resource_is_skipped_with_a_warning(spec: Any, words: str) -> None:
    found, (problem,) = annotated(
        {**updater(), "spec": spec}, annotations={"image-list": "x=nginx"}
    )
    assert found == {"image-list": "x=nginx"}
    assert words in problem.message
    assert problem.severity == "warning"


@pytest.mark.parametrize(
    "selector",
    [
        "tier=web",
        {"matchLabels": ["tier"]},
        {"matchLabels": {"tier": True}},
        {"matchExpressions": [{"key": "tier", "operator": "in", "values": ["web"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "In"}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists", "values": ["web"]}]},
        {"matchExpressions": [{"operator": "Exists"}]},
    ],
)
def test_an_invalid_selector_selects_nothing(selector: Any) -> None:
    other = ref("*", {"alias": "b", "imageName": "b"})
    found, (problem,) = annotated(
        updater(ref("web", labelSelectors=selector), other), labels={"tier": "web"}
    )
    assert found == {"image-list": "b=b"}
    assert "applicationRefs[0]" in problem.message


@pytest.mark.parametrize(
    "broken",
    [
        {"commonUpdateSettings": {"allowTags": ["^1"]}},
        {"commonUpdateSettings": {"ignoreTags": "latest"}},
        {"commonUpdateSettings": {"forceUpdate": []}},
        {"commonUpdateSettings": ["x"]},
        {"manifestTargets": {"helm": {"tag": "t"}, "kustomize": {"name": "n"}}},
        {"manifestTargets": {"helm": {"image-tag": "t"}}},
        {"manifestTargets": {"jsonnet": {"tag": "t"}}},
        {"imageName": 7},
    ],
)
def test_an_unreadable_image_is_skipped(broken: dict[str, Any]) -> None:
    found, (problem,) = annotated(
        updater(ref("web", {"alias": "ok", "imageName": "nginx"}, {**WEB, **broken}))
    )
    assert found == {"image-list": "ok=nginx"}
    assert "images[1]" in problem.message
    assert problem.message.endswith("skipped") or "images[1] is skipped" in problem.message


@pytest.mark.parametrize(
    "broken",
    [
        {"useAnnotations": "maybe"},
        {"images": "web"},
        {"images": []},
        {"commonUpdateSettings": "x"},
        {"commonUpdateSettings": {"allowTags": 1}},
        {"writeBackConfig": "git"},
        {"writeBackConfig": {"method": True}},
        {"writeBackConfig": {"gitConfig": {"branch": []}}},
        {"writeBackConfig": {"gitConfig": {"pullRequest": {"github": {}, "labels": "deploy"}}}},
    ],
)
def test_invalid_settings_prevent_all_updates(broken: dict[str, Any]) -> None:
    found, problems = annotated(
        updater({**ref("web"), **broken}), annotations={"image-list": "x=nginx"}
    )
    assert found == {}
    assert "nothing is updated" in problems[-1].message
    assert {problem.severity for problem in problems} == {"warning"}


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        ({"imagesVerification": {"enabled": False}}, ""),
        (
            {
                "writeBackConfig": {
                    "gitConfig": {"pullRequest": {"gitlab": {}, "labels": ["x", ""]}}
                }
            },
            "labels",
        ),
        (
            {
                "writeBackConfig": {
                    "gitConfig": {"pullRequest": {"gitlab": {}, "labels": ["x", "x\x1b"]}}
                }
            },
            "labels",
        ),
        (
            {"writeBackConfig": {"gitConfig": {"pullRequest": {"gitlab": {}, "label": ["x"]}}}},
            "'label'",
        ),
        ({"commonUpdateSettings": {"allowTag": "regexp:^1"}}, "allowTag"),
        ({"writeBackConfig": {"gitConfig": {"target": "x"}}}, "'target'"),
    ],
)
def test_settings_without_an_effect_are_reported_once(spec: dict[str, Any], warned: str) -> None:
    images = (WEB, {"alias": "b", "imageName": "b"})
    _, problems = configure(
        [parsed_application(name="web-1"), parsed_application(name="web-2")],
        [updater(ref("web-*", *images), **spec)],
    )
    assert [warned] * bool(warned) == [warned for problem in problems if warned in problem.message]


def verification(name: str = "keys", **more: Any) -> dict[str, Any]:
    return {"imagesVerification": {"cosignKey": {"secretName": name, "key": "cosign.pub"}, **more}}


OFF: dict[str, Any] = {"imagesVerification": {"enabled": False}}
NO_KEY: dict[str, Any] = {"imagesVerification": {"enabled": "true"}}


@pytest.mark.parametrize(
    ("spec", "reference", "image", "secret"),
    [
        ({}, {}, {}, ""),
        (verification("s"), {}, {}, "s"),
        (verification("s"), verification("r"), {}, "r"),
        (verification("s"), verification("r"), verification("i"), "i"),
        (verification("s", enabled=True), {}, {}, "s"),
        (verification("s", enabled=False), {}, {}, ""),
        (verification("s"), OFF, {}, ""),
        (OFF, {}, verification("i"), "i"),
        (NO_KEY, verification("r"), {}, "r"),
        (verification("s"), {}, NO_KEY, "s"),  # each field is merged separately
        (verification("s", enabled=False), {}, NO_KEY, "s"),
        (verification("s", enabled=False), verification("r", enabled=None), {}, "r"),
        ({"imagesVerification": None}, {}, {}, ""),
    ],
)
def test_verification_settings_are_merged_field_by_field(
    spec: dict[str, Any], reference: dict[str, Any], image: dict[str, Any], secret: str
) -> None:
    given = updater(ref("web", {**WEB, **image}, **reference), namespace="team", **spec)
    (done,), problems = configure([parsed_application(namespace="team")], [given])
    (one,) = subscribe(done).subscriptions
    assert problems == ()
    assert one.signed_by == (KeySecret("team", secret, "cosign.pub") if secret else None)
    assert one.policy.pin_digest is bool(secret)  # a signature applies to a digest


def test_each_image_can_have_a_separate_verification_key() -> None:
    api = {"alias": "api", "imageName": "ghcr.io/acme/api"}
    given = updater(
        ref("web", {**WEB, **verification("one")}, {**api, **OFF}), **verification("all")
    )
    (done,), _ = configure([parsed_application()], [given])
    found = {
        one.entry.alias: one.signed_by and one.signed_by.name
        for one in subscribe(done).subscriptions
    }
    assert found == {"web": "one", "api": None}


@pytest.mark.parametrize(
    "broken",
    [
        NO_KEY,
        {"imagesVerification": {}},
        {"imagesVerification": "yes"},
        {"imagesVerification": {"enabled": "perhaps"}},
        {"imagesVerification": {"cosignKey": {"secretName": "s"}}},
        {"imagesVerification": {"cosignKey": {"secretName": " ", "key": "k"}}},
        {"imagesVerification": {"cosignKey": ["s", "k"]}},
        verification(keyless={"identity": "me"}),
        {
            "imagesVerification": {
                "cosignKey": {"secretName": "s", "key": "k", "namespace": "other"}
            }
        },
    ],
)
@pytest.mark.parametrize("level", ["spec", "reference", "image", "annotations"])
def test_invalid_verification_settings_prevent_all_updates(
    broken: dict[str, Any], level: str
) -> None:
    spec, reference = (broken if level == one else {} for one in ("spec", "reference"))
    image = {**WEB, **(broken if level == "image" else {})}
    if level == "annotations":
        spec, reference = broken, {"useAnnotations": True}
    (done,), problems = configure(
        [parsed_application(annotations={"image-list": "web=nginx"})],
        [updater(ref("web", image, **reference), **spec)],
    )
    assert subscribe(done).subscriptions == ()
    assert any("imagesVerification" in problem.message for problem in problems)


def test_annotations_cannot_bypass_the_verification_of_a_resource() -> None:
    given = updater(ref("web", useAnnotations=True), **verification())
    annotations = {"image-list": "web=nginx, redis", "pin-digest": "false"}
    (done,), problems = configure([parsed_application(annotations=annotations)], [given])
    assert problems == ()
    assert done.annotations == annotations
    for one in subscribe(done).subscriptions:
        assert one.signed_by == KeySecret("argocd", "keys", "cosign.pub")
        assert one.policy.pin_digest


def requests_with(labels: Any) -> dict[str, Any]:
    return {"writeBackConfig": {"gitConfig": {"pullRequest": {"github": {}, "labels": labels}}}}


@pytest.mark.parametrize(
    ("spec", "reference", "labels"),
    [
        (requests_with(["deploy", " needs review "]), {}, ("deploy", "needs review")),
        (requests_with(["deploy"]), requests_with(["team"]), ("team",)),
        (requests_with(["deploy", "deploy ", "team"]), {}, ("deploy", "team")),
        (requests_with(None), {}, ()),
    ],
)
def test_pull_request_labels_are_read_and_deduplicated(
    spec: dict[str, Any], reference: dict[str, Any], labels: tuple[str, ...]
) -> None:
    (done,), problems = configure(
        [parsed_application()], [updater(ref("web", **reference), **spec)]
    )
    assert (done.request_labels, problems) == (labels, ())
    assert done.annotations["pull-request"] == "true"


def test_the_number_and_length_of_pull_request_labels_are_limited() -> None:
    given = updater(
        ref("web"), **requests_with([f"{number:03}" for number in range(200)] + ["x" * 256])
    )
    (done,), problems = configure([parsed_application()], [given])
    assert (len(done.request_labels), len(problems)) == (100, 1)


@pytest.mark.slow
def test_ten_thousand_applications_with_separate_resources_are_configured() -> None:
    apps = [parsed_application(name=f"web-{number}") for number in range(10_000)]
    updaters = [updater(ref(f"web-{number}"), name=f"u{number}") for number in range(10_000)]
    done, problems = configure(apps, updaters)
    assert problems == ()
    assert all(one.annotations["image-list"] == "web=ghcr.io/acme/web" for one in done)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(
        st.sampled_from(["applicationRefs", "namePattern", "labelSelectors", "images", "commonUpdateSettings", "alias",
                         "imageName", "ignoreTags", "writeBackConfig", "gitConfig", "manifestTargets", "helm"]),
        inner,
        max_size=3,
    ),
    max_leaves=12,
)  # fmt: skip


@given(ANYTHING, ANYTHING)
def test_a_resource_of_any_shape_is_read_without_an_exception(spec: Any, reference: Any) -> None:
    whole = {**ref("*"), **(reference if isinstance(reference, dict) else {}), "namePattern": "*"}
    done, _ = configure(
        [parsed_application()],
        [{"spec": spec}, {**updater(whole), "metadata": reference}, updater(whole, name="z")],
    )
    assert len(done) == 1


def test_a_resource_whose_name_is_not_a_string_is_skipped() -> None:
    odd: Any = {"{'app': None}": None}
    _, problems = annotated(updater(ref(), name=odd))
    assert [one.message for one in problems] == [
        "an ImageUpdater is skipped: metadata.name is not a string"
    ]
