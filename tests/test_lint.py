import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from support import image_update

from task.lint import Finding, findings
from task.model import Application, Source
from task.schemas import load

P = "argocd-image-updater.argoproj.io/"


def lint(annotations: dict[str, str], **source: Any) -> tuple[Finding, ...]:
    one = Source("https://git.example/x", "apps/web", "main")._replace(**source)
    return findings(Application("argocd", "web", annotations, (one,), origin="apps.yaml:3"))


@pytest.mark.parametrize(
    ("annotations", "severity", "key", "words"),
    [
        (
            {"image-list": "web=acme/web", "web.update-stratgy": "semver"},
            "error",
            "web.update-stratgy",
            "did you mean web.update-strategy?",
        ),
        (
            {"image-list": "web=acme/web", "write-back-metod": "git"},
            "error",
            "write-back-metod",
            "did you mean write-back-method?",
        ),
        ({"image-list": "web=acme/web", "colour": "blue"}, "warning", "colour", "unknown annotation"),
        (
            {"image-list": "web=acme/web", "wep.allow-tags": "any"},
            "error",
            "wep.allow-tags",
            "did you mean web.allow-tags?",
        ),
        ({"image-list": "web=acme/web", "other.allow-tags": "any"}, "error", "other.allow-tags", "write other=<image>"),
        ({"image-list": "acme/web", "web.allow-tags": "any"}, "info", "web.allow-tags", "write web=acme/web"),
        ({"image-list": "web=acme/web", "helm.image-tag": "t"}, "info", "helm.image-tag", "AIU ignores it"),
        ({"image-list": "web=acme/web", "platforms": "linux/arm64"}, "info", "platforms", "AIU ignores it"),
        ({"image-list": "web=acme/web", "web.pin-digest": "true"}, "info", "web.pin-digest", "AIU ignores it"),
        (
            {"image-list": "web=acme/web", "web.write-back-target": "helmvalues"},
            "error",
            "web.write-back-target",
            "no per-image form",
        ),
        ({"image-list": "web=acme/web", "web.allow-tags": "^v1"}, "error", "web.allow-tags", "regexp:^v1"),
        ({"image-list": "web=acme/web:>=1.0,<2.0"}, "error", "image-list", ">=1.2 <2"),
        ({"image-list": "acme/web:>=1.0"}, "error", "image-list", "=acme/web:>=1.0"),
        ({"image-list": "web=acme/web", "update-strategy": "latest"}, "warning", "update-strategy", "newest-build"),
        ({"write-back-method": "git"}, "warning", "image-list", "nothing is ever updated"),
        ({"image-list": " , "}, "warning", "image-list", "nothing is ever updated"),
        ({"image-list": "web=acme/web", "web.pull-secret": "secret:a/b"}, "error", "web.pull-secret", "#<field>"),
        ({"image-list": "web=acme/web", "pull-secret": "vault:a/b"}, "error", "pull-secret", "'vault'"),
        ({"image-list": "web=acme/web", "web.platforms": "linux/arm64, amd64"}, "error", "web.platforms", "'amd64'"),
        ({"image-list": "web=acme/web", "web.platforms": "Linux/ARM64"}, "error", "web.platforms", "write linux/arm64"),
        (
            {"image-list": "web=acme/web:^1", "web.update-strategy": "newest-build"},
            "warning",
            "image-list",
            "newest-build takes every tag, whatever '^1' says",
        ),
        (
            {"image-list": "web=acme/web", "web.helm.image-name": "image", "web.helm.image-tag": "image"},
            "error",
            "image-list",
            "write web.helm.image-spec: image",
        ),
        ({"image-list": "web=acme/web", "git-branch": "main:{{ lower .AppName }}"}, "error", "git-branch", "lower"),
        (
            {"image-list": "web=acme/web", "write-back-target": "helmvalues", "web.helm.image-name": "image.name"},
            "error",
            "write-back-target",
            "web.helm.image-tag",
        ),
    ],
)
def test_typical_mistakes_get_their_own_sentence(
    annotations: dict[str, str], severity: str, key: str, words: str
) -> None:
    found = [one for one in lint(annotations) if one.key == key and one.severity == severity]
    assert found, lint(annotations)
    assert any(words in f"{one.message} {one.hint}" for one in found)


def test_two_images_in_one_helm_value_are_an_error() -> None:
    found = lint({"image-list": "a=acme/a, b=acme/b", "b.helm.image-name": "b.name"}, kind="Helm")
    assert [one.message for one in found] == ["'a=acme/a' and 'b=acme/b' are both written to image.tag"]
    assert lint({"image-list": "a=acme/a, b=acme/b", "b.helm.image-tag": "b.tag"}, kind="Helm") == ()
    assert lint({"image-list": "a=acme/a, b=acme/b"}, kind="Kustomize") == ()


def test_a_comma_in_a_constraint_is_told_once() -> None:
    found = lint({"image-list": "web=acme/web:>=1.0, <2"})
    assert [one.message for one in found] == ["'<2' stands behind a comma: a comma ends an entry"]


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


def test_a_plain_directory_needs_the_manifests_target() -> None:
    found = lint({"image-list": "web=acme/web"}, kind="Directory", section="Directory")
    assert [one.hint for one in found] == ["write write-back-target: manifests"]


def test_every_problem_comes_at_once_errors_first() -> None:
    found = lint({"image-list": "web=acme/web:>", "web.allow-tags": "x", "force-update": "yes", "platforms": "a/b"})
    assert [one.severity for one in found] == ["error", "error", "warning", "info"]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    app = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "web", "annotations": {P + "image-list": "web=acme/web", P + "web.allow-tags": "^1"}},
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
    line = next(n for n, text in enumerate(manifest.read_text().splitlines(), 1) if "allow-tags" in text)
    assert (finding["file"], finding["line"], finding["key"]) == (str(manifest), line, "web.allow-tags")


def test_github_gets_annotations_on_the_line(manifest: Path) -> None:
    result = image_update("lint", "--applications", manifest, env={"GITHUB_ACTIONS": "true"})
    assert result.stdout.startswith(f"::error file={manifest},line=")
    assert "title=argocd/web::" in result.stdout


def test_warnings_alone_exit_0(tmp_path: Path) -> None:
    app = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "x", "annotations": {P + "write-back-method": "git"}},
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(app))
    result = image_update("lint", "--applications", path)
    assert result.code == 0
    assert "0 errors, 1 warnings" in result.stdout


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
RELEASE = """\
apiVersion: helm.fluxcd.io/v1
kind: HelmRelease
metadata:
  name: web
  namespace: team
  annotations: {fluxcd.io/automated: "true", fluxcd.io/tag.chart-image: "regex:["}
spec: {values: {image: acme/web, tag: "1.0"}}
"""


def test_what_an_image_updater_resource_says_is_linted_too(tmp_path: Path) -> None:
    path = tmp_path / "iu.yaml"
    path.write_text(UPDATER)
    result = image_update("lint", "--applications", path, "--output", "json")
    jsonschema.validate(result.json, load("lint.v1"))
    found = {(one["application"], one["key"], one["severity"]): one for one in result.json["findings"]}
    assert set(found) == {("argocd/web", "web.allow-tags", "error"), (None, None, "error")}
    assert "colour" in found[None, None, "error"]["message"]
    assert found[None, None, "error"]["file"] is None
    assert result.code == 3


@pytest.mark.measured
def test_annotations_of_a_flux_release_are_linted_wherever_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    path.write_text(RELEASE)
    errors = [
        one
        for one in image_update("lint", "--applications", path, "--output", "json").json["findings"]
        if one["severity"] == "error"
    ]
    assert [(one["application"], one["key"]) for one in errors] == [("team/web", "fluxcd.io/tag.chart-image")]
    path.write_text(RELEASE.replace("regex:[", "semver:^1"))
    assert image_update("lint", "--applications", path).code == 0


@pytest.mark.measured
def test_what_came_by_stdin_is_in_no_file() -> None:
    result = image_update("lint", "--applications", "-", "--output", "json", stdin=UPDATER)
    assert {(one["file"], one["line"]) for one in result.json["findings"]} == {(None, None)}
    printed = image_update("lint", "--applications", "-", "--log-format", "github", stdin=UPDATER).stdout
    assert "file=" not in printed
    assert "::error title=argocd/web::" in printed
