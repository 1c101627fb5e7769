"""Flux v1 HelmReleases. Images, filters, and policies are recognized as in Flux v1.21."""

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support import DATA

from task.annotations.flux import (
    filter_policy,
    glob_pattern,
    is_helm_release,
    subscribe_helm_release,
)
from task.editors import EDITORS
from task.errors import Malformed
from task.image import parse_image
from task.model import File, Flaw, Keys, Policy, Source, Subscribed, Target
from task.policy.judge import objection
from task.policy.tag_filter import allowed
from task.yaml_documents import documents

REPO, PATH = "https://git.example/fleet.git", "releases/web.yaml"
ON = {"fluxcd.io/automated": "true"}
IMAGE = {"image": {"repository": "ghcr.io/acme/web", "tag": "1.0"}}


def release(
    values: Any, annotations: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "helm.fluxcd.io/v1",
        "kind": "HelmRelease",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "annotations": annotations or {},
            **metadata,
        },
        "spec": {"values": values},
    }


def subscribed(
    values: Any, annotations: dict[str, Any] | None = None, repo: str = REPO
) -> Subscribed:
    item = release(values, ON if annotations is None else annotations)
    return subscribe_helm_release(item, "web.yaml:1", repo, "main", PATH)


def errors(found: Subscribed) -> list[Flaw]:
    return [flaw for flaw in found.flaws if flaw.severity == "error"]


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("HelmRelease", "helm.fluxcd.io/v1", True),
        ("HelmRelease", "flux.weave.works/v1beta1", True),
        ("HelmRelease", "helm.toolkit.fluxcd.io/v2", False),
        ("Kustomization", "helm.fluxcd.io/v1", False),
        ("HelmRelease", None, False),
    ],
)
def test_helm_releases_are_recognized(kind: str, version: str | None, expected: bool) -> None:
    assert is_helm_release({"kind": kind, "apiVersion": version}) is expected


def test_a_subscription_names_its_repository_file_and_image() -> None:
    item = release(IMAGE, ON, labels={"team": "a"})
    (sub,) = subscribe_helm_release(item, "web.yaml:1", REPO, "main", PATH).subscriptions
    assert (sub.target, sub.path, sub.repo, sub.base, sub.head_template, sub.method) == (
        "flux",
        PATH,
        REPO,
        "main",
        "",
        "git",
    )
    assert (sub.application.key, sub.application.origin, sub.application.labels) == (
        "shop/web",
        "web.yaml:1",
        {"team": "a"},
    )
    assert sub.application.live == ("ghcr.io/acme/web:1.0",)
    assert (sub.entry.alias, sub.entry.image.reference) == ("chart-image", "ghcr.io/acme/web")


SHAPES: list[tuple[str, dict[str, str], dict[str, str]]] = [
    # values, {container: image}, {path of the written value: value}
    (
        "image: ghcr.io/acme/web:1",
        {"chart-image": "ghcr.io/acme/web"},
        {"image": "ghcr.io/acme/web:2"},
    ),
    ("image: ghcr.io/acme/web\ntag: '1'", {"chart-image": "ghcr.io/acme/web"}, {"tag": "2"}),
    (
        "image: {repository: acme/web, tag: '1'}",
        {"chart-image": "docker.io/acme/web"},
        {"image.tag": "2"},
    ),
    ("image: {repository: acme/web}", {"chart-image": "docker.io/acme/web"}, {"image.tag": "2"}),
    (
        "image: {repository: acme/web, tag: }",
        {"chart-image": "docker.io/acme/web"},
        {"image.tag": "2"},
    ),
    (
        "image: {repository: 'acme/web:1'}",
        {"chart-image": "docker.io/acme/web"},
        {"image.repository": "acme/web:2"},
    ),
    (
        "image: {registry: ghcr.io, repository: acme/web, tag: '1'}",
        {"chart-image": "ghcr.io/acme/web"},
        {"image.tag": "2", "image.repository": "acme/web"},
    ),
    (
        "image: {registry: 'host:5000/', repository: 'quay.io/acme/web:1'}",
        {"chart-image": "host:5000/acme/web"},
        {"image.repository": "quay.io/acme/web:2"},
    ),
    (
        "image: {registry: docker.io, repository: nginx, tag: '1'}",
        {"chart-image": "docker.io/library/nginx"},
        {},
    ),
    (
        "image: {registry: '', repository: ghcr.io/acme/web}",
        {"chart-image": "ghcr.io/acme/web"},
        {},
    ),
    (
        "registry: ghcr.io\nimage: acme/web\ntag: '1'",
        {"chart-image": "ghcr.io/acme/web"},
        {"tag": "2"},
    ),
    ("web: {image: 'acme/web:1'}", {"web": "docker.io/acme/web"}, {"web.image": "acme/web:2"}),
    ("web: {image: acme/web, tag: '1'}", {"web": "docker.io/acme/web"}, {"web.tag": "2"}),
    (
        "a.b: {image: {repository: acme/web, tag: '1'}}\nimage: nginx:1",
        {"chart-image": "docker.io/library/nginx", "a.b": "docker.io/acme/web"},
        {"image": "nginx:2", "a\\.b.image.tag": "2"},
    ),
    (
        "web: {image: {repository: 'acme/web:1'}}",
        {"web": "docker.io/acme/web"},
        {"web.image.repository": "acme/web:2"},
    ),
    (
        "image: acme/web@sha256:" + 64 * "a",
        {"chart-image": "docker.io/acme/web"},
        {"image": "acme/web:2"},
    ),
    ("web: {main: {image: 'acme/web:1'}}", {}, {}),  # Flux searches one level down
    ("web: [{image: 'acme/web:1'}]", {}, {}),
    ("image: {name: acme/web, tag: '1'}", {}, {}),
    ("image: '{{ .Values.x }}'", {}, {}),
    ("image: {repository: '', tag: '1'}", {}, {}),
    ("replicas: 2", {}, {}),
]


@pytest.mark.parametrize(("values", "images", "written"), SHAPES)
def test_every_image_that_flux_finds_is_updated(
    values: str, images: dict[str, str], written: dict[str, str]
) -> None:
    text = manifest(values)
    found = of_text(text)
    assert {sub.entry.alias: sub.entry.image.identity for sub in found.subscriptions} == images
    assert found.flaws == ()
    after = updated(text, found)
    assert {path: at(after, path) for path in written} == written


def manifest(values: str, annotations: str = "fluxcd.io/automated: 'true'") -> str:
    indented = "".join(f"    {line}\n" for line in values.splitlines())
    return (
        "apiVersion: helm.fluxcd.io/v1\nkind: HelmRelease\nmetadata:\n  name: web\n"
        f"  annotations:\n    {annotations}\nspec:\n  values:\n{indented}"
    )


def of_text(text: str) -> Subscribed:
    (document,) = documents(text)
    return subscribe_helm_release(document.data, "", REPO, "main", PATH)


def updated(text: str, found: Subscribed) -> Any:
    """Return the values after updating every image to tag 2."""
    files = {PATH: File(text)}
    for sub in found.subscriptions:
        target = Target(
            "flux",
            PATH,
            sub.keys,
            sub.entry.image,
            sub.source,
            sub.application.key,
            sub.entry.alias,
        )
        new, _ = EDITORS["flux"].write(files, target, replace(sub.entry.image, tag="2"))
        files.update(new)
    return yaml.safe_load(files[PATH].text)["spec"]["values"]


def at(values: Any, path: str) -> Any:
    for step in re.split(r"(?<!\\)\.", path):
        values = values[step.replace("\\.", ".")]
    return values


@pytest.mark.parametrize(
    ("annotations", "values", "written"),
    [
        (
            {"repository": "a.b.repository", "tag": "a.b.tag"},
            "a: {b: {repository: acme/web, tag: '1'}}",
            "a.b.tag",
        ),
        (
            {"repository": "a.b.image", "tag": "a.b.tag"},
            "a: {b: {image: acme/web, tag: '1'}}",
            "a.b.tag",
        ),
        ({"repository": "repository", "tag": "tag"}, "repository: acme/web\ntag: '1'", "tag"),
        (
            {"registry": "x.host", "repository": "a.repository", "tag": "a.tag"},
            "x: {host: docker.io}\na: {repository: acme/web, tag: '1'}",
            "a.tag",
        ),
    ],
)
def test_keys_mapped_by_annotations_are_updated(
    annotations: dict[str, str], values: str, written: str
) -> None:
    lines = [f"{kind}.fluxcd.io/web: {path}" for kind, path in annotations.items()]
    text = manifest(values, "\n    ".join(["fluxcd.io/automated: 'true'", *lines]))
    found = of_text(text)
    assert found.flaws == ()
    assert [(sub.entry.alias, sub.entry.image.identity) for sub in found.subscriptions] == [
        ("web", "docker.io/acme/web")
    ]
    assert at(updated(text, found), written) == "2"


def test_a_mapped_image_reference_is_replaced_as_a_whole() -> None:
    text = manifest(
        "a: {main: 'acme/web:1'}",
        "fluxcd.io/automated: 'true'\n    repository.fluxcd.io/web: a.main",
    )
    assert at(updated(text, of_text(text)), "a.main") == "acme/web:2"


@pytest.mark.parametrize(
    ("repository", "tag", "values"),
    [
        ("a.name", "a.tag", {"a": {"name": "acme/web", "tag": "1"}}),
        ("a.repository", "b.tag", {"a": {"repository": "acme/web"}, "b": {"tag": "1"}}),
        (
            "a.repository",
            "a.tag",
            {"a": {"repository": "acme/web", "tag": "1", "image": "other:1"}},
        ),
    ],
)
def test_a_mapping_that_cannot_be_written_is_an_error(
    repository: str, tag: str, values: Any
) -> None:
    mapping = {"repository.fluxcd.io/web": repository, "tag.fluxcd.io/web": tag}
    found = subscribed(values, {**ON, **mapping})
    assert [sub for sub in found.subscriptions if sub.entry.alias == "web"] == []
    assert [(flaw.key, flaw.entry and flaw.entry.alias) for flaw in errors(found)] == [
        ("repository.fluxcd.io/web", "web")
    ]


def test_a_mapping_to_a_missing_key_causes_a_warning() -> None:
    found = subscribed(IMAGE, {**ON, "repository.fluxcd.io/web": "nowhere.image"})
    assert [(flaw.key, flaw.severity) for flaw in found.flaws] == [
        ("repository.fluxcd.io/web", "warning")
    ]
    assert len(found.subscriptions) == 1


@pytest.mark.parametrize(
    ("annotations", "count", "held"),
    [
        ({}, 0, ""),
        ({"fluxcd.io/automated": "true"}, 1, ""),
        ({"flux.weave.works/automated": "true"}, 1, ""),
        ({"fluxcd.io/automated": True}, 1, ""),
        ({"fluxcd.io/automated": "false"}, 0, ""),
        ({"fluxcd.io/automated": "false", "flux.weave.works/automated": "true"}, 0, ""),
        ({**ON, "fluxcd.io/locked": "false"}, 1, ""),
        ({**ON, "fluxcd.io/locked": "true"}, 1, "fluxcd.io/locked: true"),
        ({**ON, "flux.weave.works/locked": "true"}, 1, "flux.weave.works/locked: true"),
        ({"fluxcd.io/locked": "true"}, 0, ""),
        (
            {
                **ON,
                "fluxcd.io/locked": "true",
                "fluxcd.io/locked_msg": "freeze",
                "fluxcd.io/locked_user": "Jo",
            },
            1,
            "fluxcd.io/locked: true (freeze by Jo)",
        ),
        ({**ON, "fluxcd.io/ignore": "true"}, 0, ""),
        ({**ON, "fluxcd.io/ignore": "false"}, 1, ""),
        ({**ON, "fluxcd.io/ignore": "sync_only"}, 1, ""),
        ({"filter.fluxcd.io/automated": "true"}, 0, ""),
    ],
)
def test_the_automated_locked_and_ignore_annotations_are_honored(
    annotations: dict[str, Any], count: int, held: str
) -> None:
    found = subscribed(IMAGE, annotations)
    assert [sub.locked for sub in found.subscriptions] == [held] * count


@pytest.mark.parametrize("name", ["automated", "locked"])
def test_an_invalid_value_for_a_boolean_annotation_is_reported(name: str) -> None:
    (flaw,) = subscribed(IMAGE, {f"fluxcd.io/{name}": "yes"}).flaws
    assert (flaw.key, flaw.value, flaw.severity) == (f"fluxcd.io/{name}", "yes", "warning")


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("semver:~1.2", Policy("semver", ("~1.2",))),
        ("semver: >=1 <2 ", Policy("semver", (">=1 <2",))),
        ("semver:*", Policy("semver", ("*",))),
        ("glob:*", Policy("newest-build")),
        ("glob:main-*", Policy("newest-build", allow=r"(?s)\Amain\-.*\z")),
        ("main-*", Policy("newest-build", allow=r"(?s)\Amain\-.*\z")),
        ("regexp:^v1", Policy("newest-build", allow="^v1")),
        ("regex:^v1", Policy("newest-build", allow="^v1")),
        ("regexp:", Policy("newest-build")),
        ("." * 4096, Policy("newest-build", allow=r"(?s)\A" + r"\." * 4096 + r"\z")),
    ],
    ids=lambda value: str(value)[:20],
)
def test_tag_filters_are_converted_to_policies(text: str, policy: Policy) -> None:
    assert filter_policy(text) == policy


@pytest.mark.parametrize(
    "text",
    [
        "semver:>",
        "semver:^x.y",
        "regexp:[",
        "regex:(?=a)",
        "",
        "glob:",
        f"glob:{'a' * 4097}",
        "a." * 2049,
    ],
    ids=lambda text: text[:20],
)
def test_an_invalid_filter_causes_an_error_only_for_its_image(text: str) -> None:
    with pytest.raises(Malformed):
        filter_policy(text)
    values = {**IMAGE, "side": {"image": "nginx:1"}}
    found = subscribed(values, {**ON, "fluxcd.io/tag.chart-image": text})
    assert [sub.entry.alias for sub in found.subscriptions] == ["side"]
    (flaw,) = found.flaws
    assert (flaw.key, flaw.value, flaw.severity) == ("fluxcd.io/tag.chart-image", text, "error")
    assert flaw.entry is not None
    assert flaw.entry.alias == "chart-image"


def test_an_invalid_filter_in_a_locked_release_only_causes_a_warning() -> None:
    found = subscribed(
        IMAGE, {**ON, "fluxcd.io/locked": "true", "fluxcd.io/tag.chart-image": "regexp:["}
    )
    assert [sub.locked for sub in found.subscriptions] == ["fluxcd.io/locked: true"]
    assert [flaw.severity for flaw in found.flaws] == ["warning"]


@pytest.mark.parametrize(
    ("annotations", "constraint"),
    [
        ({"fluxcd.io/tag.chart-image": "semver:1"}, "1"),
        ({"flux.weave.works/tag.chart-image": "semver:2"}, "2"),
        ({"filter.fluxcd.io/chart-image": "semver:3"}, "3"),
        (
            {
                "flux.weave.works/tag.chart-image": "semver:2",
                "fluxcd.io/tag.chart-image": "semver:1",
            },
            "1",
        ),
    ],
)
def test_filters_are_read_with_any_supported_annotation_prefix(
    annotations: dict[str, str], constraint: str
) -> None:
    (sub,) = subscribed(IMAGE, {**ON, **annotations}).subscriptions
    assert sub.policy == Policy("semver", (constraint,))


def test_each_image_has_its_own_filter() -> None:
    values = {"web": {"image": "acme/web:1"}, "db": {"image": "acme/db:1"}}
    found = subscribed(values, {**ON, "fluxcd.io/tag.web": "semver:~1"})
    assert {sub.entry.alias: sub.policy.strategy for sub in found.subscriptions} == {
        "web": "semver",
        "db": "newest-build",
    }


def test_a_filter_that_matches_no_image_is_reported() -> None:
    (flaw,) = subscribed(IMAGE, {**ON, "fluxcd.io/tag.web": "semver:~1"}).flaws
    assert (flaw.key, flaw.severity, flaw.hint) == (
        "fluxcd.io/tag.web",
        "warning",
        "available images: chart-image",
    )


def test_without_a_repository_every_image_is_an_error() -> None:
    found = subscribed(IMAGE, repo="")
    assert found.subscriptions == ()
    assert [(flaw.rule, flaw.entry and flaw.entry.alias) for flaw in errors(found)] == [
        ("source", "chart-image")
    ]


def test_images_merged_in_through_yaml_merge_keys_are_found() -> None:
    text = manifest("base: &base {image: 'acme/web:1'}\nweb: {<<: *base, replicas: 2}")
    assert [sub.entry.alias for sub in of_text(text).subscriptions] == ["base", "web"]


def test_the_example_release_yields_a_subscription_with_its_filter() -> None:
    (document,) = documents((DATA / "examples" / "flux-helmrelease.yaml").read_text())
    (sub,) = subscribe_helm_release(document.data, "", REPO, "", PATH).subscriptions
    assert sub.entry.image.identity == "registry.gitlab.com/wenger23/microservices-demo/frontend"
    built = [parse_image(f"{sub.entry.image.name}:{tag}") for tag in ("v0.0.41", "v0.1.0")]
    assert [objection(image.tag, sub.policy) is None for image in built] == [True, False]


def as_flux(glob: str, tag: str) -> bool:
    """Match a tag without using our code: a star matches any sequence of characters."""
    if not glob:
        return not tag
    if glob[0] == "*":
        return any(as_flux(glob[1:], tag[start:]) for start in range(len(tag) + 1))
    return tag[:1] == glob[0] and as_flux(glob[1:], tag[1:])


@given(st.text("ab*.?[-\\\n ", max_size=6), st.text("ab.?[-\\\n ", max_size=6))
def test_globs_match_as_in_flux(glob: str, tag: str) -> None:
    assert allowed(glob_pattern(glob), tag) is as_flux(glob, tag)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["image", "repository", "tag", "registry", "<<", "web"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(ANYTHING, ANYTHING)
def test_a_release_of_any_shape_is_read_without_an_exception(values: Any, annotations: Any) -> None:
    item = release(values, {**ON, "repository.fluxcd.io/web": "image.repository"})
    assert subscribe_helm_release(item, "", REPO, "", PATH).application.sources == (
        Source(REPO, "releases", "", kind="Helm"),
    )
    subscribe_helm_release(
        {**item, "metadata": {"annotations": annotations}, "spec": annotations}, "", "", "", ""
    )


def test_recursive_values_are_read_once() -> None:
    values: dict[str, Any] = {"image": "acme/web:1"}
    values["<<"] = [values]
    values["web"] = values
    assert [sub.keys for sub in subscribed(values).subscriptions] == [
        Keys(tag="chart-image"),
        Keys(tag="web"),
    ]
