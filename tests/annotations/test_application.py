from typing import Any

import pytest

from task.annotations.application import PREFIX, is_application, parse_application
from task.errors import Malformed
from task.model import Parameter

P = "argocd-image-updater.argoproj.io/"


def manifest(**spec: object) -> dict[str, object]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "web"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (manifest(), True),
        ({"kind": "Application", "apiVersion": "app.k8s.io/v1beta1"}, False),
        ({"kind": "ApplicationSet", "apiVersion": "argoproj.io/v1alpha1"}, False),
        ({"kind": "Deployment"}, False),
        ([], False),
        (None, False),
    ],
)
def test_tells_applications_from_other_manifests(item: object, expected: bool) -> None:
    assert is_application(item) is expected


def test_reads_only_annotations_with_the_prefix_and_trims_them() -> None:
    item = manifest()
    item["metadata"] = {
        "name": "web",
        "annotations": {P + "image-list": " a=b \n", "other": "x", P + "n": 1},
    }
    assert dict(parse_application(item).annotations) == {"image-list": "a=b"}


def test_the_namespace_is_the_control_planes_where_none_is_written() -> None:
    assert parse_application(manifest(), namespace="cd").key == "cd/web"


def test_reads_what_an_override_must_carry_along() -> None:
    source = parse_application(
        manifest(
            source={
                "repoURL": "https://git.example/x.git",
                "path": "apps/web",
                "helm": {
                    "parameters": [
                        {"name": "a", "value": "1", "forceString": True},
                        {"name": "b"},
                        "junk",
                    ]
                },
            }
        )
    ).sources[0]
    assert source.parameters == (Parameter("a", "1", True), Parameter("b", ""))
    assert (source.kind, source.section) == ("Helm", "Helm")


def test_the_status_tells_the_type_before_the_spec_does() -> None:
    item = manifest(source={"repoURL": "r", "helm": {}})
    item["status"] = {"sourceType": "Kustomize", "summary": {"images": ["a:1", 2]}}
    app = parse_application(item)
    assert (app.sources[0].kind, app.sources[0].section, app.live) == (
        "Kustomize",
        "Helm",
        ("a:1",),
    )


def test_several_sources_are_aligned_with_their_types() -> None:
    item = manifest(sources=[{"repoURL": "a", "path": "k"}, {"repoURL": "b", "path": "h"}])
    item["status"] = {"sourceTypes": ["Directory", "Kustomize"]}
    app = parse_application(item)
    assert [source.kind for source in app.sources] == ["Directory", "Kustomize"]
    assert app.multi


def test_the_dry_source_is_what_people_edit() -> None:
    app = parse_application(
        manifest(
            sourceHydrator={
                "drySource": {"repoURL": "dry", "path": "p", "targetRevision": "main"},
                "syncSource": {},
            }
        )
    )
    assert app.sources[0].repo == "dry"


@pytest.mark.parametrize(
    "item",
    [
        {"metadata": {}},
        {"metadata": {"name": ""}},
        {"metadata": {"name": "../../etc"}},
        {"metadata": {"name": "a\nb"}},
        {"metadata": {"name": "web"}, "spec": []},
        {"metadata": {"name": "web"}, "spec": {"source": "x"}},
        {"metadata": {"name": "web"}, "spec": {"sources": ["x"]}},
        {"metadata": {"name": "web"}, "spec": {"source": {"helm": "x"}}},
        {"metadata": "x"},
    ],
)
def test_what_is_not_an_application_is_malformed(item: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        parse_application(item)


@pytest.mark.slow
def test_values_that_contain_themselves_or_are_endless_when_written_out_are_not_read() -> None:
    itself: dict[str, object] = {}
    itself["x"] = itself
    bomb: object = "x" * 10
    for _ in range(60):
        bomb = [bomb, bomb]
    for values in (itself, {"x": bomb}):
        app = parse_application(
            manifest(source={"repoURL": "r", "helm": {"valuesObject": values, "values": "a: 1"}})
        )
        assert app.sources[0].values == ""


def test_the_values_are_kept_only_where_no_status_says_what_runs_or_where_they_may_hide_a_file() -> (
    None
):
    item: dict[str, Any] = manifest(
        source={"repoURL": "r", "helm": {"values": "image: {tag: 1.0.0}"}}
    )
    item["metadata"]["annotations"] = {f"{PREFIX}image-list": "a"}
    assert parse_application(item).sources[0].values == "image: {tag: 1.0.0}"
    item["status"] = {"summary": {"images": ["a:1"]}}
    assert parse_application(item).sources[0].values == ""
    item["metadata"]["annotations"][f"{PREFIX}write-back-target"] = "helmvalues"
    assert parse_application(item).sources[0].values == "image: {tag: 1.0.0}"
