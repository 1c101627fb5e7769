import pytest

from task.annotations.application import is_application, parse_application
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
def test_applications_are_distinguished_from_other_manifests(item: object, expected: bool) -> None:
    assert is_application(item) is expected


def test_only_annotations_with_our_prefix_are_read_and_their_values_trimmed() -> None:
    item = manifest()
    item["metadata"] = {
        "name": "web",
        "annotations": {P + "image-list": " a=b \n", "other": "x", P + "n": 1},
    }
    assert dict(parse_application(item).annotations) == {"image-list": "a=b"}


def test_a_missing_namespace_defaults_to_the_argo_cd_namespace() -> None:
    assert parse_application(manifest(), namespace="cd").key == "cd/web"


def test_helm_parameters_of_a_source_are_read() -> None:
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


def test_the_source_type_in_the_status_takes_precedence_over_the_spec() -> None:
    item = manifest(source={"repoURL": "r", "helm": {}})
    item["status"] = {"sourceType": "Kustomize", "summary": {"images": ["a:1", 2]}}
    app = parse_application(item)
    assert (app.sources[0].kind, app.sources[0].section, app.live) == (
        "Kustomize",
        "Helm",
        ("a:1",),
    )


def test_each_of_several_sources_is_paired_with_its_type() -> None:
    item = manifest(sources=[{"repoURL": "a", "path": "k"}, {"repoURL": "b", "path": "h"}])
    item["status"] = {"sourceTypes": ["Directory", "Kustomize"]}
    app = parse_application(item)
    assert [source.kind for source in app.sources] == ["Directory", "Kustomize"]
    assert app.multi


def test_the_dry_source_of_a_hydrated_application_is_read() -> None:
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
def test_invalid_applications_are_reported_as_malformed(item: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        parse_application(item)


@pytest.mark.slow
def test_recursive_or_oversized_helm_values_are_not_read() -> None:
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
