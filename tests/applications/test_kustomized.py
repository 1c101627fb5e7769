"""Kustomizations among manifests: patches are no manifests, and Applications that are changed are told about."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support import bare_repo, image_update

from task.applications.git import GitManifests
from task.applications.kustomized import Kustomized
from task.applications.manifest_files import Manifests
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Found

APPLICATION = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: NAME}\nspec: {source: {path: x}}\n"
PATCH = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: NAME}\nspec: {project: prod}\n"


def app(name: str, text: str = APPLICATION) -> str:
    return text.replace("NAME", name)


FILES = {
    "fleet/zbase/web.yaml": app("web"),
    "fleet/zbase/kustomization.yaml": "resources: [web.yaml]\ncommonAnnotations: {a: b}\n",
    "fleet/overlays/prod/kustomization.yaml": (
        "resources: [../../zbase, shop.yaml]\nnamePrefix: prod-\n"
        "patches: [{path: patches/web.yaml}, {patch: 'kind: Application'}]\npatchesStrategicMerge: [shop-patch.yaml]\n"
    ),
    "fleet/overlays/prod/shop.yaml": app("shop"),
    "fleet/overlays/prod/patches/web.yaml": app("web", PATCH),
    "fleet/overlays/prod/shop-patch.yaml": app("shop", PATCH),
    "fleet/plain/kustomization.yaml": "namespace: argocd\nresources: [one.yaml]\n",
    "fleet/plain/one.yaml": app("one"),
    "workload/kustomization.yaml": "resources: [pod.yaml]\nimages: [{name: a, newTag: '1'}]\n",
    "workload/pod.yaml": "kind: Pod\nmetadata: {name: argoproj.io}\n",
}


def read(tmp_path: Path, files: Mapping[str, str], source: str) -> tuple[list[Found], list[Found]]:
    """The manifests of a folder, and those of the same folder in Git."""
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    git = BareRepository(Git({}, protocols=frozenset({"file"})), str(bare_repo(tmp_path, dict(files))))
    return list(Manifests(source or ".").all()), list(GitManifests(git, source).all())


@pytest.mark.parametrize("source", ["", "fleet"])
def test_patches_are_no_manifests_and_what_is_changed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for found in read(tmp_path, FILES, source):
        assert sorted(one.item["metadata"]["name"] for one in found if one.is_application) == ["one", "shop", "web"]
        assert all("source" in one.item["spec"] for one in found if one.is_application)
        (advice,) = [one for one in found if one.problem]
        assert advice.advice
        assert advice.problem.endswith(
            "fleet/overlays/prod: this kustomization makes Applications, and it is not rendered"
        )
        assert "name it as a source of its own, with --render kustomize" in advice.hint


def test_a_source_whose_own_kustomization_uses_a_changed_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {**FILES, "fleet/kustomization.yaml": "resources: [overlays/prod, plain]\n"}
    for found in read(tmp_path, files, "fleet"):
        (advice,) = [one for one in found if one.problem]
        assert advice.problem.endswith("fleet: this kustomization makes Applications, and it is not rendered")
        assert advice.hint.startswith("render it with --render kustomize")


def test_a_patch_that_is_named_is_read(tmp_path: Path) -> None:
    path = tmp_path / "patch.yaml"
    path.write_text(app("web", PATCH))
    (tmp_path / "kustomization.yaml").write_text("patches: [{path: patch.yaml}]\n")
    assert [one.is_application for one in Manifests(str(path)).all()] == [True]
    assert [one for one in Manifests(str(tmp_path)).all() if one.is_application] == []


@pytest.mark.slow
def test_a_kustomization_that_is_a_source_of_its_own_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    read(tmp_path, FILES, "")
    result = image_update("lint", "fleet", "fleet/overlays/prod")
    assert result.stdout.count("this kustomization makes Applications") == 1


@pytest.mark.parametrize(
    "texts",
    [
        {
            "a/kustomization.yaml": "resources: [../b]\nnamePrefix: x\n",
            "b/kustomization.yaml": "resources: [../a, x]\n",
        },
        {"a/kustomization.yaml": "resources: [x]\nnamePrefix: x\n", "b/kustomization.yaml": "- not\n"},
        {"a/kustomization.yaml": "resources: [[x], 1, x, '', /]\npatches: [1, {path: [2]}]\nnamePrefix: x\n"},
        {"a/kustomization.yaml": "resources: [\n"},
    ],
)
def test_strange_kustomizations_are_no_defect(texts: dict[str, str]) -> None:
    kustomized = Kustomized(lambda path: texts[path], texts)
    assert not kustomized.patches("a/x")
    kustomized.found("a/x")
    assert set(kustomized.of_applications()) <= {"a"}
