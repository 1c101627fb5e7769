"""What `lint` finds in annotations and resources, and what it prints."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from support import DATA, image_update

from task.annotations.application import parse_application
from task.annotations.lint import Finding, findings
from task.ci.publish import NAMES
from task.model import Application, Parameter, Source
from task.schemas import load

P = "argocd-image-updater.argoproj.io/"


def lint(annotations: dict[str, str], **source: Any) -> tuple[Finding, ...]:
    one = replace(Source("https://git.example/x", "apps/web", "main"), **source)
    return findings(Application("argocd", "web", annotations, (one,), origin="apps.yaml:3"))


@pytest.mark.parametrize(
    ("annotations", "severity", "key", "words"),
    [
        (
            {"image-list": "web=acme/web", "web.update-stratgy": "semver"},
            "error",
            "web.update-stratgy",
            "rename it to web.update-strategy",
        ),
        (
            {"image-list": "web=acme/web", "write-back-metod": "git"},
            "error",
            "write-back-metod",
            "rename it to write-back-method",
        ),
        (
            {"image-list": "web=acme/web", "colour": "blue"},
            "warning",
            "colour",
            "unknown annotation",
        ),
        (
            {"image-list": "web=acme/web", "wep.allow-tags": "any"},
            "error",
            "wep.allow-tags",
            "did you mean web.allow-tags?",
        ),
        (
            {"image-list": "web=acme/web", "other.allow-tags": "any"},
            "warning",
            "other.allow-tags",
            "add other=<image>",
        ),
        (
            {"image-list": "acme/web", "web.allow-tags": "any"},
            "info",
            "web.allow-tags",
            "use web=acme/web",
        ),
        (
            {"image-list": "web=acme/web", "helm.image-tag": "t"},
            "info",
            "helm.image-tag",
            "AIU ignores it",
        ),
        (
            {"image-list": "web=acme/web", "platforms": "linux/arm64"},
            "info",
            "platforms",
            "AIU ignores it",
        ),
        (
            {"image-list": "web=acme/web", "web.pin-digest": "true"},
            "info",
            "web.pin-digest",
            "AIU ignores it",
        ),
        (
            {
                "image-list": "web=acme/web",
                "web.update-strategy": "alphabetical",
                "web.tag-order": "numeric",
            },
            "info",
            "web.tag-order",
            "AIU ignores it",
        ),
        (
            {
                "image-list": "web=acme/web",
                "web.update-strategy": "newest-build",
                "web.tag-order": "numeric",
            },
            "warning",
            "web.tag-order",
            "no effect with the strategy newest-build",
        ),
        (
            {"image-list": "web=acme/web", "web.tag-order": "numeric"},
            "error",
            "web.tag-order",
            "no group for the version",
        ),
        (
            {
                "image-list": "web=acme/web",
                "web.update-strategy": "alphabetical",
                "web.tag-order": "regexp:(?P<n>[0-9]+)[.](?P<n>[0-9]+)",
            },
            "error",
            "web.tag-order",
            "the pattern has two groups named 'n'",
        ),
        (
            {"image-list": "web=acme/web", "tag-order": "regexp:v([0-9]+)"},
            "error",
            "tag-order",
            "no named group",
        ),
        (
            {"image-list": "web=acme/web", "web.tag-odrer": "numeric"},
            "error",
            "web.tag-odrer",
            "web.tag-order",
        ),
        (
            {"image-list": "web=acme/web", "web.helm.image-digest": "d"},
            "info",
            "web.helm.image-digest",
            "AIU ignores",
        ),
        (
            {"image-list": "web=acme/web", "web.write-back-target": "helmvalues"},
            "error",
            "web.write-back-target",
            "no per-image form",
        ),
        (
            {"image-list": "web=acme/web", "web.allow-tags": "^v1"},
            "error",
            "web.allow-tags",
            "regexp:^v1",
        ),
        (
            {"image-list": "web=acme/web:>=1.0,<2.0"},
            "error",
            "image-list",
            "web=acme/web:>=1.0 <2.0",
        ),
        ({"image-list": "acme/web:>=1.0"}, "error", "image-list", "=acme/web:>=1.0"),
        (
            {"image-list": "web=acme/web", "update-strategy": "latest"},
            "warning",
            "update-strategy",
            "newest-build",
        ),
        ({"write-back-method": "git"}, "warning", "image-list", "nothing is ever updated"),
        ({"image-list": " , "}, "warning", "image-list", "nothing is ever updated"),
        (
            {"image-list": "web=acme/web", "web.pull-secret": "secret:a/b"},
            "error",
            "web.pull-secret",
            "#<field>",
        ),
        (
            {"image-list": "web=acme/web", "pull-secret": "vault:a/b"},
            "error",
            "pull-secret",
            "'vault'",
        ),
        (
            {"image-list": "web=acme/web", "web.platforms": "linux/arm64, amd64"},
            "error",
            "web.platforms",
            "'amd64'",
        ),
        (
            {"image-list": "web=acme/web", "web.platforms": "linux/am64"},
            "error",
            "web.platforms",
            "linux/amd64",
        ),
        (
            {"image-list": "web=acme/web", "web.platforms": "linux/x86_64"},
            "error",
            "web.platforms",
            "linux/amd64",
        ),
        (
            {"image-list": "web=acme/web", "web.platforms": "Linux/ARM64"},
            "error",
            "web.platforms",
            "use linux/arm64",
        ),
        (
            {"image-list": "web=acme/web:^1", "web.update-strategy": "newest-build"},
            "warning",
            "image-list",
            "newest-build accepts every tag and ignores '^1'",
        ),
        (
            {
                "image-list": "web=acme/web",
                "web.helm.image-name": "image",
                "web.helm.image-tag": "image",
            },
            "error",
            "image-list",
            "use web.helm.image-spec: image",
        ),
        (
            {"image-list": "web=acme/web", "git-branch": "main:{{ lower .AppName }}"},
            "error",
            "git-branch",
            "lower",
        ),
        (
            {
                "image-list": "web=acme/web",
                "write-back-target": "helmvalues",
                "web.helm.image-name": "image.name",
            },
            "error",
            "write-back-target",
            "web.helm.image-tag",
        ),
    ],
)
def test_typical_mistakes_get_a_specific_message(
    annotations: dict[str, str], severity: str, key: str, words: str
) -> None:
    found = [one for one in lint(annotations) if one.key == key and one.severity == severity]
    assert found, lint(annotations)
    assert any(words in f"{one.message} {one.hint}" for one in found)


WEB = {"image-list": "web=acme/web"}
RANGE_HINT = "use web=acme/web:~1.0 in image-list"


# Common mistakes from AIU's issue tracker. The numbers are its issue numbers.
@pytest.mark.parametrize(
    ("annotations", "severity", "key", "words"),
    [
        # a message may mention a comma only if there is one
        (
            {"image-list": "<account-id>.dkr.ecr.eu.example/web:~1"},
            "error",
            "image-list",
            "placeholder '<account-id>'",
        ),
        (
            {"image-list": "a=acme/a, b=<id>.ecr.example/b"},
            "error",
            "image-list",
            "placeholder '<id>'",
        ),
        (
            {"image-list": "web={dockerhub-username}/web"},
            "error",
            "image-list",
            "placeholder '{dockerhub-username}'",
        ),  # 660
        (
            {"image-list": "web=acme/web:{{.branch}}"},
            "error",
            "image-list",
            "placeholder '{{.branch}}'",
        ),  # 877
        ({"image-list": "^ghcr.io/acme/.*$"}, "error", "image-list", "is a pattern"),
        ({"image-list": "regexp:^acme"}, "error", "image-list", "is a pattern"),
        ({"image-list": "web=ghcr.io/acme/*"}, "error", "image-list", "is a pattern"),
        ({"image-list": "~1.0"}, "error", "image-list", "use <alias>=<image>:~1.0"),
        ({"image-list": "web=acme/web:1.x, 2.x"}, "error", "image-list", "'2.x' follows a comma"),
        (
            {"image-list": "web=acme/web:regexp:^[0-9]{1,3}$"},
            "error",
            "image-list",
            "was split at a comma",
        ),
        ({"image-list": "- web=acme/web"}, "warning", "image-list", "the alias '- web'"),
        (
            {"image-list": "web=ghcr.io/Acme/Web:~1"},
            "error",
            "image-list",
            "use web=ghcr.io/acme/web:~1",
        ),
        # a range belongs in image-list
        ({**WEB, "web.allow-tags": "~1.0"}, "error", "web.allow-tags", RANGE_HINT),
        ({**WEB, "web.allow-tags": "semver:~1.0"}, "error", "web.allow-tags", RANGE_HINT),
        ({**WEB, "allow-tags": "~1.0"}, "error", "allow-tags", RANGE_HINT),
        (
            {"image-list": "acme/web", "allow-tags": ">=1, <2"},
            "error",
            "allow-tags",
            "use web=acme/web:>=1 <2 in image-",
        ),
        (
            {"image-list": "web=acme/web:^1", "web.allow-tags": "~1.0"},
            "error",
            "web.allow-tags",
            "to change it, use '~1.0'",
        ),
        (
            {**WEB, "web.allow-tags": "^1.2"},
            "error",
            "web.allow-tags",
            "for the range ^1.2, use web=acme/web:^1.2",
        ),
        ({**WEB, "web.update-strategy": "semver:~1.0"}, "info", "web.update-strategy", RANGE_HINT),
        (
            {**WEB, "web.update-strategy": "~1.0"},
            "error",
            "web.update-strategy",
            "web=acme/web:~1.0 in image-list",
        ),
        (
            {**WEB, "web.update-strategy": "digest:main"},
            "error",
            "web.update-strategy",
            "web=acme/web:main in image-list",
        ),
        (
            {"image-list": "web=acme/web:semver:~1.0"},
            "error",
            "image-list",
            "use web=acme/web:~1.0",
        ),
        (
            {"image-list": "web=acme/web:regexp:^v1"},
            "error",
            "image-list",
            "web.allow-tags: regexp:^v1",
        ),
        (
            {"image-list": "web=acme/web:main"},
            "error",
            "image-list",
            "set web.update-strategy: digest",
        ),
        (
            {"image-list": "web=acme/web:dev-*", "update-strategy": "newest-build"},  # 1100
            "warning",
            "image-list",
            "web.allow-tags: regexp:^dev-.*$",
        ),
        (
            {"image-list": "web=acme/web:latest", "update-strategy": "newest-build"},  # 580
            "warning",
            "image-list",
            "to follow the tag 'latest', set web.update-strategy: digest",
        ),
        # filters
        ({**WEB, "web.allow-tags": "latest"}, "error", "web.allow-tags", "use regexp:^latest$"),
        (
            {**WEB, "web.allow-tags": "master-*"},
            "error",
            "web.allow-tags",
            "use regexp:^master-.*$",
        ),
        ({**WEB, "web.allow-tags": "*"}, "error", "web.allow-tags", "use any"),
        (
            {**WEB, "web.allow-tags": "regexp: ^v1"},
            "error",
            "web.allow-tags",
            "use regexp:^v1",
        ),  # 1018
        ({**WEB, "web.allow-tags": "regexp:/^v1/"}, "error", "web.allow-tags", "use regexp:^v1"),
        (
            {**WEB, "web.ignore-tags": "regexp:^sha256"},
            "error",
            "web.ignore-tags",
            "use sha256*",
        ),  # 1108
        (
            {**WEB, "web.ignore-tags": "regexp:(a|b)"},
            "error",
            "web.ignore-tags",
            "for regular expressions, use allow-tags",
        ),
        ({**WEB, "web.ignore-tags": "^dev-.*$"}, "error", "web.ignore-tags", "use dev-*"),
        ({**WEB, "ignore-tags": "latest master"}, "error", "ignore-tags", "latest, master"),
        # Helm keys are parameter names
        (
            {**WEB, "web.helm.image-name": "acme/web"},
            "error",
            "web.helm.image-name",
            "for example, image.repository",
        ),
        (
            {**WEB, "web.helm.image-name": "ghcr.io/x/y"},
            "warning",
            "web.helm.image-name",
            "looks like an image",
        ),
        (
            {**WEB, "web.helm.image-spec": "acme/web:1.0"},
            "error",
            "web.helm.image-spec",
            "for example, image,",
        ),
        (
            {**WEB, "web.helm.image-digest": ".Values.image.digest"},
            "error",
            "web.helm.image-digest",
            "image.digest",
        ),
        (
            {**WEB, "web.helm.image-tag": "develop-v0.20.0-33"},
            "error",
            "web.helm.image-tag",
            "for example, image.tag",
        ),
        ({**WEB, "web.helm.image-tag": "latest"}, "error", "web.helm.image-tag", "is a tag"),
        ({**WEB, "web.helm.image-tag": "v1.2.3"}, "error", "web.helm.image-tag", "is a tag"),
        ({**WEB, "web.helm.image-tag": "0f3c2ab"}, "error", "web.helm.image-tag", "is a tag"),
        (
            {**WEB, "web.helm.image-tag": ".Values.image.tag"},
            "error",
            "web.helm.image-tag",
            "use image.tag",
        ),
        (
            {**WEB, "web.helm.image-tag": "{{ .Values.tag }}"},
            "error",
            "web.helm.image-tag",
            "but it is never rendered",
        ),
        (
            {**WEB, "web.helm.image-tag": "pods.0.tag"},
            "warning",
            "web.helm.image-tag",
            "use pods[0].tag",
        ),
        (
            {**WEB, "web.helm.image-spec": "image.tag"},
            "warning",
            "web.helm.image-spec",
            "web.helm.image-tag: image.tag",
        ),
        (
            {**WEB, "web.helm.image-tag": "image.repository"},
            "warning",
            "web.helm.image-tag",
            "use the key for the tag",
        ),
        (
            {**WEB, "web.helm.image-tag": "image.repository", "web.helm.image-name": "image.tag"},
            "error",
            "web.helm.image-tag",
            "use web.helm.image-tag: image.tag and web.helm.image-name: image.repository",
        ),
        (
            {**WEB, "web.kustomize.image-name": "acme/web:1"},
            "error",
            "web.kustomize.image-name",
            "use acme/web",
        ),
        (
            {**WEB, "web.helm.image-tag": "image.tag", "web.kustomize.image-name": "acme/web"},
            "warning",
            "web.helm.image-tag",
            "keep only the keys for the Application's type",
        ),
        # where to write
        (
            {**WEB, "write-back-target": "helm"},
            "error",
            "write-back-target",
            "use helmvalues",
        ),  # 934
        (
            {**WEB, "write-back-target": "helm:/a/b.yaml"},
            "error",
            "write-back-target",
            "use helmvalues:/a/b.yaml",
        ),
        (
            {**WEB, "write-back-target": "kustomizatio"},
            "error",
            "write-back-target",
            "use kustomization",
        ),  # 867
        (
            {**WEB, "write-back-target": "kustomize:../x"},
            "error",
            "write-back-target",
            "use kustomization:../x",
        ),
        (
            {**WEB, "write-back-target": "kustomization:a/kustomization.yaml"},
            "error",
            "write-back-target",
            "use kustomization:a",
        ),
        (
            {**WEB, "write-back-method": "argocd", "write-back-target": "helmvalues"},
            "warning",
            "write-back-target",
            "with write-back-method: argocd",
        ),
        (
            {**WEB, "pull-secret": "secret:a/b#.dockerconfigjson"},
            "error",
            "pull-secret",
            "use pullsecret:a/b",
        ),
        # keys from older versions, keys from forks, and made-up keys
        (
            {**WEB, "git-credentials": "a/b"},
            "warning",
            "git-credentials",
            "write-back-method: git:secret:",
        ),
        (
            {**WEB, "git-commit-message": "x"},
            "warning",
            "git-commit-message",
            "--commit-message-template",
        ),
        ({**WEB, "web.credentials": "a/b"}, "warning", "web.credentials", "use web.pull-secret"),
        ({**WEB, "chart-version": "1"}, "warning", "chart-version", "targetRevision"),
        (
            {**WEB, "web.filter-tag": "^v1"},
            "warning",
            "web.filter-tag",
            "use web.allow-tags",
        ),  # 1018
        (
            {**WEB, "web.image-tag": "image.tag"},
            "warning",
            "web.image-tag",
            "use web.helm.image-tag",
        ),
    ],
)
def test_typical_mistakes_get_a_hint_with_the_correction(
    annotations: dict[str, str], severity: str, key: str, words: str
) -> None:
    found = [one for one in lint(annotations) if one.key == key and one.severity == severity]
    assert any(words in f"{one.message}; {one.hint}" for one in found), lint(annotations)


@pytest.mark.parametrize(
    "value", ["<account-id>.ecr.example/web", "^acme/.*", "~1.0", "web={x}/web", "acme/Web"]
)
def test_no_message_blames_a_comma_if_there_is_none(value: str) -> None:
    found = lint({"image-list": value})
    assert len(found) == 1
    assert "comma" not in found[0].message


def test_the_hint_names_the_keys_of_an_alias_to_keep() -> None:
    both = {**WEB, "web.helm.image-tag": "image.tag", "web.kustomize.image-name": "acme/web"}
    assert [(one.key, one.hint) for one in lint(both, kind="Helm")] == [
        ("web.kustomize.image-name", "keep the helm.… keys")
    ]
    assert [(one.key, one.hint) for one in lint(both, kind="Kustomize")] == [
        ("web.helm.image-tag", "keep the kustomize.… keys")
    ]
    assert lint({**both, "write-back-target": "helmvalues, kustomization"}) == ()


def test_the_path_of_a_values_file_is_resolved_relative_to_the_source() -> None:
    """In AIU issue 1518, the path was meant to be relative to the repository root."""
    files = ("../environments/dev/values.yaml", "$ref/x.yaml", "../../../x")
    target = {**WEB, "write-back-target": "helmvalues:environments/dev/values.yaml"}
    found = lint(target, kind="Helm", path="chart", value_files=files)
    assert [one.hint for one in found] == ["use helmvalues:/environments/dev/values.yaml"]
    for good in (
        "helmvalues:/environments/dev/values.yaml",
        "helmvalues:../environments/dev/values.yaml",
        "helmvalues",
    ):
        assert (
            lint({**WEB, "write-back-target": good}, kind="Helm", path="chart", value_files=files)
            == ()
        )


@pytest.mark.parametrize(
    "annotations",
    [
        {"image-list": "localhost:5000/a, 2048"},
        {"image-list": "web=acme/web:>=1.0 <2 || ^3, GHCR.io/acme/x:1.x, y=acme/y:*"},
        {
            "image-list": "a/web=acme/web:~1-0",
            "a_web.allow-tags": "regexp:^[^/]+$",
            "a_web.helm.image-tag": "tag",
        },
        {**WEB, "web.ignore-tags": r"[!a]*, v\\.1, latest, ?.?, *-rc[0-9]"},
        {
            **WEB,
            "web.helm.image-name": r"images.acme\.example/web",
            "web.helm.image-tag": "images[0].tag",
        },
        {**WEB, "web.helm.image-name": "global.registry", "web.helm.image-tag": "web.image.shasum"},
        {**WEB, "web.helm.image-spec": "image"},
        {**WEB, "web.helm.image-tag": "v2.image.tag", "web.helm.image-name": "v2.image.name"},
        {**WEB, "web.kustomize.image-name": "registry:5000/acme/web"},
        {**WEB, "write-back-target": "values-dev.yaml"},
        {**WEB, "write-back-target": "apps/overrides"},
        {**WEB, "web.pull-secret": "secret:argocd/x#login", "git-branch": "main:x-{{ .SHA256 }}"},
    ],
)
def test_valid_annotations_cause_no_warnings(annotations: dict[str, str]) -> None:
    assert [one for one in lint(annotations, kind="Kustomize") if one.severity != "info"] == []


CASES = [
    pytest.param(case, id=f"{path.stem}-{case['id']}")
    for path in sorted((DATA / "cases").glob("*.json"))
    for case in json.loads(path.read_text())["cases"]
    if isinstance(case["input"].get("annotations"), dict)
]
ALARMS = {
    "tags-allow-invalid": ["w.allow-tags"],  # except for the broken pattern that this case is about
    "opt-no-alias-image-keys": ["acme_web.helm.image-tag", "image-list", "web.update-strategy"],
    "opt-force-prefer": ["dummy.force-update", "image-list"],
    "pullsecret-pullsecret": ["dummy.pull-secret", "image-list"],
    "pullsecret-ext": ["dummy.pull-secret", "image-list"],
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_annotations_that_image_updater_accepts_cause_no_warnings(case: dict[str, Any]) -> None:
    annotations = {key: value.strip() for key, value in case["input"]["annotations"].items()}
    kind = case["input"].get("source_type", "")
    expected = ALARMS.get(
        case["id"], [] if annotations.get("image-list") or not annotations else ["image-list"]
    )
    found = lint(annotations, kind=kind if kind in ("Helm", "Kustomize") else "")
    assert sorted(one.key for one in found if one.severity != "info") == expected


@pytest.mark.parametrize(
    "path", sorted((DATA / "examples").glob("*.yaml")), ids=lambda path: path.stem
)
def test_published_examples_cause_no_warnings(path: Path) -> None:
    app = parse_application(yaml.safe_load(path.read_text()))
    found = [one for one in findings(app) if one.severity != "info"]
    assert [one for one in found if "is now called 'newest-build'" not in one.message] == []


@pytest.mark.parametrize(
    ("image_list", "key", "severity", "words"),
    [
        (
            "te/am=acme/web",
            "te_am.allow-tags",
            "info",
            "use te-am=<image>, and te-am.<key>",
        ),
        ("te/am=acme/web", "te/am.allow-tags", "error", "use te_am.allow-tags"),
        ("-web=acme/web", "-web.allow-tags", "warning", "begin with a letter or digit"),
        (
            "we b=acme/web",
            "we b.allow-tags",
            "warning",
            "use only letters, digits, '-', '_', and '.'",
        ),
        (
            "we b=acme/web",
            "we b.allow-tags",
            "error",
            "Kubernetes rejects the annotation 'we b.allow-tags'",
        ),
        (f"{'w' * 60}=acme/web", f"{'w' * 60}.allow-tags", "error", "use a shorter alias"),
    ],
)
def test_an_alias_that_is_invalid_in_kubernetes_is_reported(
    image_list: str, key: str, severity: str, words: str
) -> None:
    found = lint({"image-list": image_list, key: "any"})
    assert any(words in f"{one.message} {one.hint}" for one in found if one.severity == severity), (
        found
    )


@pytest.mark.parametrize("alias", ["web", "web.v2", "Web_2", "0"])
def test_an_alias_that_is_valid_in_kubernetes_is_not_reported(alias: str) -> None:
    assert lint({"image-list": f"{alias}=acme/web", f"{alias}.allow-tags": "any"}) == ()


def test_two_images_written_to_one_helm_value_are_an_error() -> None:
    found = lint({"image-list": "a=acme/a, b=acme/b", "b.helm.image-name": "b.name"}, kind="Helm")
    assert [one.message for one in found] == [
        "'a=acme/a' and 'b=acme/b' are both written to image.tag"
    ]
    assert (
        lint({"image-list": "a=acme/a, b=acme/b", "b.helm.image-tag": "b.tag"}, kind="Helm") == ()
    )
    assert lint({"image-list": "a=acme/a, b=acme/b"}, kind="Kustomize") == ()


def test_a_misspelt_image_list_is_reported_once() -> None:
    (one,) = lint({"imagelist": "web=acme/web"})
    assert (one.key, one.severity) == ("imagelist", "error")


def test_a_comma_in_a_constraint_is_reported_once() -> None:
    found = lint({"image-list": "web=acme/web:>=1.0, <2"})
    assert [one.message for one in found] == ["'<2' follows a comma, but commas separate entries"]


@pytest.mark.parametrize("key", ["git-commit-template", "git-commit-message", "web.colour"])
def test_an_unsupported_template_is_reported_as_one_warning(key: str) -> None:
    (one,) = (one for one in lint({**WEB, key: "{{ .AppName }}"}) if one.key == key)
    assert one.severity == "warning"


def test_good_annotations_have_no_findings() -> None:
    annotations = {
        "image-list": "web=acme/web:^1",
        "web.allow-tags": "regexp:^1",
        "web.ignore-tags": "",
        "web.pull-secret": "pullsecret:argocd/ghcr",
        "web.platforms": "linux/amd64,linux/arm64/v8",
        "write-back-method": "git:secret:argocd/git",
        "git-branch": "main:update-{{ .SHA256 }}",
    }
    assert lint(annotations) == ()


def test_a_plugin_without_a_variable_is_an_error_despite_helm_keys() -> None:
    annotations = {"image-list": "web=acme/web", "web.helm.image-tag": "image.tag"}
    (found,) = lint(annotations, kind="Plugin", section="Plugin")
    assert (found.severity, found.hint.partition(" or ")[0]) == (
        "error",
        "set web.plugin.image-tag",
    )
    assert (
        lint({**annotations, "web.plugin.image-tag": "TAG"}, kind="Plugin", section="Plugin")[
            0
        ].severity
        == "warning"
    )


def test_a_plain_directory_needs_the_manifests_target() -> None:
    found = lint({"image-list": "web=acme/web"}, kind="Directory", section="Directory")
    assert [one.hint for one in found] == ["use write-back-target: manifests"]


def test_each_mistake_is_reported_even_if_there_are_others() -> None:
    annotations = {
        "image-list": "web=acme/web:^1, db=acme/db:^2",
        "web.update-strategy": "newest-build",
        "web.allow-tags": "^v1",
        "web.helm.image-name": "image",
        "web.helm.image-tag": "image",
        "db.update-strategy": "newst",
        "db.pin-digest": "maybe",
        "platforms": "amd64, arm64",
        "git-branch": "main:{{ lower .AppName }}",
        "write-back-method": "gti",
        "write-back-target": "helm:values.yaml",
        "write-back-source": "nine",
    }
    told = [one.message for one in lint(annotations) if one.severity != "info"]
    for words in (
        "newest-build accepts every tag and ignores '^1'",
        "'^v1' is neither 'any' nor 'regexp:…'",
        "for 'web=acme/web:^1', helm.image-name and helm.image-tag are both 'image'",
        "unknown update strategy 'newst'",
        "db.pin-digest: 'maybe' is neither true nor false",
        "'amd64' is not a platform",
        "'arm64' is not a platform",
        "lower",
        "unknown write-back method 'gti'",
        "unknown target 'helm:values.yaml'",
        "no source 'nine'",
    ):
        assert sum(words in message for message in told) == 1, (words, told)


def test_errors_that_follow_from_a_misspelt_key_are_not_reported() -> None:
    annotations = {
        "image-list": "web=acme/web",
        "write-back-target": "helmvalues",
        "web.helm.image-name": "image.name",
    }
    (one,) = (
        one
        for one in lint({**annotations, "web.helm.image-tga": "image.tag"})
        if one.severity == "error"
    )
    assert one.key == "web.helm.image-tga"


def test_a_broken_entry_does_not_hide_a_wrong_target() -> None:
    annotations = {"image-list": "web=acme/web", "web.allow-tags": "^v1"}
    found = {one.key for one in lint(annotations, kind="Directory", section="Directory")}
    assert found == {"web.allow-tags", "write-back-target"}


def test_all_problems_are_reported_at_once_with_errors_first() -> None:
    found = lint(
        {
            "image-list": "web=acme/web:>",
            "web.allow-tags": "x",
            "force-update": "yes",
            "platforms": "a/b",
        }
    )
    assert [one.severity for one in found] == ["error", "error", "warning", "info"]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    app = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": "web",
            "annotations": {P + "image-list": "web=acme/web", P + "web.allow-tags": "^1"},
        },
        "spec": {"source": {"repoURL": "https://git.example/x", "path": "p"}},
    }
    path = tmp_path / "apps.yaml"
    path.write_text("# first line\n---\n" + yaml.safe_dump(app))
    return path


def test_the_command_exits_3_and_prints_the_fix(manifest: Path) -> None:
    result = image_update("lint", "--applications", manifest)
    assert result.code == 3
    assert "regexp:^1" in result.stdout


def test_json_findings_have_file_and_line(manifest: Path) -> None:
    result = image_update("lint", "--applications", manifest, "--output", "json")
    jsonschema.validate(result.json, load("lint.v1"))
    finding = result.json["findings"][0]
    line = next(
        n for n, text in enumerate(manifest.read_text().splitlines(), 1) if "allow-tags" in text
    )
    assert (finding["file"], finding["line"], finding["key"]) == (
        str(manifest),
        line,
        "web.allow-tags",
    )


def test_github_gets_annotations_on_the_line(manifest: Path) -> None:
    result = image_update("lint", "--applications", manifest, env={"GITHUB_ACTIONS": "true"})
    assert result.stdout.startswith(f"::error file={manifest},line=")
    assert "title=argocd/web::" in result.stdout


def test_a_run_with_only_warnings_exits_0(tmp_path: Path) -> None:
    app = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "x", "annotations": {P + "write-back-method": "git"}},
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(app))
    result = image_update("lint", "--applications", path)
    assert result.code == 0
    assert result.stdout.endswith("1 Application read: 0 errors, 1 warning, 0 remarks\n")


UPDATER = """\
apiVersion: argocd-image-updater.argoproj.io/v1alpha1
kind: ImageUpdater
metadata: {name: iu, namespace: argocd}
spec:
  applicationRefs:
  - namePattern: web
    images:
    - {alias: web, imageName: "acme/web:^1", commonUpdateSettings: {allowTags: ^v1, colour: blue}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: web, namespace: argocd}
spec: {source: {repoURL: https://git.example/x, path: p}}
"""
OWN_FIELD = """\
apiVersion: argocd-image-updater.argoproj.io/v1alpha1
kind: ImageUpdater
metadata: {name: iu, namespace: argocd}
spec:
  writeBackConfig: {method: git, gitConfig: {branch: main, pullRequest: {github: {}}}}
  applicationRefs:
  - {namePattern: "*", images: [{alias: web, imageName: "acme/web:^1"}]}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: web, namespace: argocd}
spec: {source: {repoURL: https://git.example/x, path: p}}
"""
RELEASE = """\
apiVersion: helm.fluxcd.io/v1
kind: HelmRelease
metadata:
  name: web
  namespace: team
  annotations: {fluxcd.io/automated: "true", fluxcd.io/tag.chart-image: "regex:["}
spec: {values: {image: acme/web, tag: "1.0"}}
"""


def test_a_field_of_the_image_updater_resource_is_not_reported(tmp_path: Path) -> None:
    path = tmp_path / "iu.yaml"
    path.write_text(OWN_FIELD)
    result = image_update("lint", "--applications", path, "--output", "json")
    assert (result.code, result.json["findings"]) == (0, [])


def test_settings_in_an_image_updater_resource_are_linted_as_well(tmp_path: Path) -> None:
    path = tmp_path / "iu.yaml"
    path.write_text(UPDATER)
    result = image_update("lint", "--applications", path, "--output", "json")
    jsonschema.validate(result.json, load("lint.v1"))
    found = {
        (one["application"], one["key"], one["severity"]): one for one in result.json["findings"]
    }
    silent = found.pop(("argocd/web", "write-back-method", "info"))
    assert (
        "Image Updater patches the live Application, but Image Update commits to Git"
        in silent["message"]
    )
    assert set(found) == {("argocd/web", "web.allow-tags", "error"), (None, None, "error")}
    assert "colour" in found[None, None, "error"]["message"]
    assert {(one["file"], one["line"]) for one in found.values()} == {(str(path), 8)}
    assert result.code == 3


RESOURCE = """\
apiVersion: argocd-image-updater.argoproj.io/v1alpha1
kind: ImageUpdater
metadata: {name: iu, namespace: argocd}
spec:
  writeBackConfig: {method: git, gitConfg: {}}
  applicationRefs:
  - namePattern: web*
    namePatern: other
    updateStrategy: semver
    images:
    - alias: web
      imageName: acme/web:^1
      commonUpdateSettings:
        allowTags: ^v1
    - alias: db
      imageName: acme/db:^2
      manifestTargets: {helm: {tga: image.tag}}
      commonUpdateSettings:
        allowTags: ^v2
  - namePattern: none
    images:
    - alias: none
      imageName: acme/none
      commonUpdateSettings: {updateStratgy: digest}
"""


def test_a_mistake_in_an_image_updater_resource_is_reported_once_at_its_own_line(
    tmp_path: Path,
) -> None:
    """The mistake is not reported at an Application's line, and it is reported only once, however
    many Applications the resource references.
    """
    (tmp_path / "updater.yaml").write_text(f"# another document\n---\n{RESOURCE}")
    for name in ("web", "web-2", "web-3"):
        app = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": name},
        }
        source = {"repoURL": "https://git.example/x", "path": "p"}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**app, "spec": {"source": source}}))
    result = image_update("lint", tmp_path, "--output", "json")
    jsonschema.validate(result.json, load("lint.v1"))
    assert {Path(one["file"]).name for one in result.json["findings"]} == {"updater.yaml"}
    at, left_out = "ImageUpdater argocd/iu", ": the images it applies to are skipped"
    assert [(one["line"], one["message"], one["hint"]) for one in result.json["findings"]][:5] == [
        (
            7,
            f"{at}: spec.writeBackConfig has an unknown field 'gitConfg'",
            "did you mean gitConfig?",
        ),
        (
            10,
            f"{at}: spec.applicationRefs[0] has an unknown field 'namePatern'",
            "did you mean namePattern?",
        ),
        (
            11,
            f"{at}: spec.applicationRefs[0] has an unknown field 'updateStrategy'",
            "did you mean commonUpdateSettings.updateStrategy?",
        ),
        (
            19,
            f"{at}: spec.applicationRefs[0].images[1].manifestTargets.helm has an unknown field 'tga'{left_out}",
            "did you mean tag?",
        ),
        (
            26,
            f"{at}: spec.applicationRefs[1].images[0].commonUpdateSettings has an unknown field 'updateStratgy'",
            "did you mean updateStrategy?",
        ),
    ]
    idle, rule = result.json["findings"][5:]
    assert (idle["severity"], idle["line"]) == ("error", 22)
    assert (
        idle["message"] == f"{at}, applicationRefs[1]: no Application in namespace 'argocd' matches"
    )
    assert (rule["application"], rule["key"], rule["line"]) == (None, "web.allow-tags", 16)
    assert rule["message"].startswith(f"{at}: web.allow-tags: '^v1' is neither")
    assert rule["message"].endswith("(argocd/web-2 and 2 more Applications)")


def test_each_reference_that_makes_a_resource_unusable_is_reported_at_its_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "updater.yaml"
    path.write_text(
        RESOURCE.replace("namePattern: none", "namePattern: []").replace(
            "namePattern: web*", "images: []"
        )
    )
    result = image_update("lint", path, "--output", "json")
    skipped = [
        (one["line"], one["message"])
        for one in result.json["findings"]
        if "is skipped" in one["message"]
    ]
    assert skipped == [
        (7, "ImageUpdater argocd/iu is skipped: applicationRefs[0] has no namePattern"),
        (
            20,
            "ImageUpdater argocd/iu is skipped: applicationRefs[1].namePattern: namePattern is not a string",
        ),
    ]


def test_a_mistake_in_a_list_item_is_reported_at_the_start_of_the_list(tmp_path: Path) -> None:
    """A List is a single document that may contain thousands of items, so the line of the document
    is reported.
    """
    resource = yaml.safe_load(RESOURCE)
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [resource]}, indent=1))
    result = image_update("lint", path, "--output", "json")
    assert {(one["file"], one["line"]) for one in result.json["findings"]} == {(str(path), 1)}


def test_a_resource_with_countless_unknown_fields_causes_a_limited_number_of_findings(
    tmp_path: Path,
) -> None:
    fields = ", ".join(f"f{n}: 1" for n in range(100_000))
    (tmp_path / "updater.yaml").write_text(
        RESOURCE.replace("writeBackConfig: {", f"writeBackConfig: {{{fields}, ")
    )
    result = image_update("lint", tmp_path, "--output", "json")
    assert sum("unknown field 'f" in one["message"] for one in result.json["findings"]) == 50


@pytest.mark.measured
def test_annotations_of_a_flux_release_are_linted(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    path.write_text(RELEASE)
    errors = [
        one
        for one in image_update("lint", "--applications", path, "--output", "json").json["findings"]
        if one["severity"] == "error"
    ]
    assert [(one["application"], one["key"]) for one in errors] == [
        ("team/web", "fluxcd.io/tag.chart-image")
    ]
    path.write_text(RELEASE.replace("regex:[", "semver:^1"))
    assert image_update("lint", "--applications", path).code == 0


@pytest.mark.measured
def test_findings_from_stdin_have_no_file() -> None:
    result = image_update("lint", "--applications", "-", "--output", "json", stdin=UPDATER)
    assert {(one["file"], one["line"]) for one in result.json["findings"]} == {(None, None)}
    printed = image_update(
        "lint", "--applications", "-", "--log-format", "github", stdin=UPDATER
    ).stdout
    assert "file=" not in printed
    assert "::error title=argocd/web::" in printed


@pytest.mark.parametrize(
    ("source", "live", "told"),
    [
        ({"images": ("acme/web:main-1",)}, (), True),
        ({"parameters": (Parameter("image.tag", "main-1"),)}, (), True),
        ({}, ("docker.io/acme/web:main-1",), True),
        ({"images": ("acme/web:v1",)}, ("acme/web:v2",), False),
        ({"images": ("acme/other:main-1",)}, (), False),
    ],
)
def test_a_tag_order_that_does_not_match_the_current_tag_is_reported(
    source: dict[str, Any], live: tuple[str, ...], told: bool
) -> None:
    order = {"web.update-strategy": "alphabetical", "web.tag-order": "regexp:^v(?P<n>[0-9]+)$"}
    one = replace(Source("https://git.example/x", "apps/web", "main"), **source)
    app = Application(
        "argocd",
        "web",
        {"image-list": "web=acme/web", **order},
        (one,),
        live=live,
        origin="apps.yaml:3",
    )
    found = [
        one for one in findings(app) if one.key == "web.tag-order" and one.severity == "warning"
    ]
    assert [("main-1" in one.message, "current tag" in one.message) for one in found] == [
        (True, True)
    ] * told


@pytest.mark.parametrize(
    ("allow", "code", "status", "message"),
    [
        ("regexp:^1", 0, "unchanged", "no errors in 1 Application"),
        ("^1", 3, "failed", "argocd/web: "),
    ],
)
def test_lint_writes_its_results_for_the_ci_host(
    manifest: Path, allow: str, code: int, status: str, message: str
) -> None:
    """A step must not succeed if its results indicate a failure, and no result may be missing."""
    manifest.write_text(manifest.read_text().replace("^1", allow))
    results = manifest.parent / "results"
    result = image_update("lint", manifest, "--results-dir", results)
    assert result.code == code, result.stdout
    assert (results / "status").read_text() == status
    assert (results / "message").read_text().startswith(message)
    assert {one.name for one in results.iterdir()} == set(NAMES)


def test_lint_writes_its_results_even_if_it_cannot_start(tmp_path: Path) -> None:
    results = tmp_path / "results"
    result = image_update("lint", tmp_path / "gone", "--results-dir", results)
    assert result.code == 2
    assert (results / "status").read_text() == "failed"


@pytest.mark.parametrize(
    ("order", "tag", "commit"),
    [
        ("numeric", "main-99fffff-99", "99fffff"),
        ("numeric desc", "1.2.0-gdeadbee4", "gdeadbee4"),
        ("regexp:^main-(?P<rest>.*)$", "main-99fffff-99", "99fffff"),
        ("regexp:-(?P<build>[0-9]+)$", "main-99fffff-99", ""),
        ("alphabetical", "main-99fffff-99", ""),
        ("numeric", "main-20261122-7", ""),
        ("numeric", "main-defaced-7", ""),  # a word, not a number
        ("numeric", "1.2.0-beta1", ""),
    ],
)
def test_a_commit_id_in_a_numeric_tag_order_is_reported(order: str, tag: str, commit: str) -> None:
    """`main-99fffff-1` would always be ordered after `main-1fffff-2`."""
    given = {"web.update-strategy": "alphabetical", "web.tag-order": order}
    source = Source("https://git.example/x", "apps/web", "main")
    live = (f"acme/web:{tag}",)
    app = Application(
        "argocd", "web", {"image-list": "web=acme/web", **given}, (source,), live=live
    )
    found = [one.message for one in findings(app) if one.severity == "warning"]
    assert [f"contains the commit ID {commit}," in message for message in found] == [True] * bool(
        commit
    )


@pytest.mark.parametrize(
    ("first", "second", "more", "told"),
    [
        ("old=acme/web:~1.0", "new=acme/web", {}, True),
        ("old=acme/web:~1.0", "new=acme/web:~1.0", {}, False),
        ("old=acme/web:~1.0", "new=acme/api", {}, False),
        ("old=acme/web", "new=acme/web", {"new.allow-tags": "regexp:^v"}, True),
        ("old=acme/web", "new=acme/web", {"new.tag-order": "numeric"}, True),
        ("old=acme/web:~1.0", "new=acme/web", {"new.{kind}.image-name": "base/web"}, False),
    ],
)
@pytest.mark.parametrize(
    ("target", "kind", "section"),
    [
        ("kustomization", "kustomize", "Kustomize"),
        ("", "kustomize", "Kustomize"),
        ("manifests", "manifests", "Directory"),
    ],
)
def test_two_aliases_that_update_the_same_entry_by_different_rules_are_reported(
    first: str, second: str, more: dict[str, str], told: bool, target: str, kind: str, section: str
) -> None:
    given = {"image-list": f"{first}, {second}", "update-strategy": "alphabetical"}
    given |= {key.replace("{kind}", kind): value for key, value in more.items()}
    given |= {"write-back-target": target} if target else {}
    if "~1.0" in first:
        given["update-strategy"] = "semver"
    found = [one.message for one in lint(given, kind=section, section=section)]
    words = [message for message in found if "both write" in message]
    assert [
        message.startswith(f"{first!r} and {second!r} both write the") for message in words
    ] == ([True] if told else [])
