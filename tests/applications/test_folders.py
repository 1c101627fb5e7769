"""Folders of manifests. Chart templates and patches are skipped; unrendered files are reported."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from support import bare_repo, image_update
from support.reports import trouble_of

from task.applications.git import KeptRepository, git_manifests
from task.applications.manifest_files import Folder, local_manifests
from task.applications.rendering import Rendering
from task.errors import Malformed
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Found, Snapshot

APPLICATION = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: NAME}\nspec: {source: {path: x}}\n"
PATCH = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: NAME}\nspec: {project: prod}\n"


def manifest_text(name: str, text: str = APPLICATION) -> str:
    return text.replace("NAME", name)


TEMPLATE = manifest_text('"{{ .Values.name }}"')
LOOP = f"{{{{- range .Values.apps }}}}\n---\n{TEMPLATE}{{{{- end }}}}\n"
CHARTS = {
    "web.yaml": manifest_text("web"),
    "chart/Chart.yaml": "name: apps\n",
    "chart/templates/loop.yaml": LOOP,
    "chart/templates/deep/one.yaml": TEMPLATE,
    "chart/templates/plain.yaml": manifest_text("plain"),
    "rollouts/Chart.yaml": "name: rollouts\n",
    "rollouts/templates/x.yaml": LOOP.replace("Application", "Rollout"),
}
KUSTOMIZATIONS = {
    "fleet/zbase/web.yaml": manifest_text("web"),
    "fleet/zbase/kustomization.yaml": "resources: [web.yaml]\ncommonAnnotations: {a: b}\n",
    "fleet/overlays/prod/kustomization.yaml": (
        "resources: [../../zbase, shop.yaml]\nnamePrefix: prod-\n"
        "patches: [{path: patches/web.yaml}, {patch: 'kind: Application'}]\npatchesStrategicMerge: [shop-patch.yaml]\n"
    ),
    "fleet/overlays/prod/shop.yaml": manifest_text("shop"),
    "fleet/overlays/prod/patches/web.yaml": manifest_text("web", PATCH),
    "fleet/overlays/prod/shop-patch.yaml": manifest_text("shop", PATCH),
    "fleet/plain/kustomization.yaml": "namespace: argocd\nresources: [one.yaml]\n",
    "fleet/plain/one.yaml": manifest_text("one"),
    "workload/kustomization.yaml": "resources: [pod.yaml]\nimages: [{name: a, newTag: '1'}]\n",
    "workload/pod.yaml": "kind: Pod\nmetadata: {name: argoproj.io}\n",
}


def here(source: str) -> list[Found]:
    return list(local_manifests(source, Rendering()))


def in_git(repo: str, source: str) -> list[Found]:
    with closing(BareRepository(Git({}, protocols=frozenset({"file"})), repo)) as git:
        return list(git_manifests(KeptRepository(git), source, Rendering()))


def read(tmp_path: Path, files: Mapping[str, str], source: str) -> tuple[list[Found], list[Found]]:
    """Return the manifests in a folder, and the manifests in the same folder in Git."""
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return here(source or "."), in_git(str(bare_repo(tmp_path, dict(files))), source)


def inside(
    files: Mapping[str, str], *manifests: str, snapshot: Snapshot | None = None
) -> list[Found]:
    folder = Folder(
        "", list(files), manifests, lambda path: files[path].encode(), Rendering(), snapshot
    )
    return list(folder.found())


def told(found: list[Found]) -> list[tuple[str, bool]]:
    return [(trouble_of(one).message, one.advice) for one in found if one.trouble]


def names(found: list[Found]) -> list[str]:
    return [one.item["metadata"]["name"] for one in found if one.item]


def test_chart_templates_in_a_folder_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, text in CHARTS.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    for source, where in ((".", "chart"), ("./", "chart"), (str(tmp_path), f"{tmp_path}/chart")):
        found = here(source)
        assert names(found) == ["web", "plain"]
        message = f"{where}: this Helm chart generates Applications, but it is not rendered"
        assert told(found) == [(message, True)]
    assert [one.origin for one in here(".") if one.item] == [
        "web.yaml:1",
        "chart/templates/plain.yaml:1",
    ]
    inside = [trouble_of(one).message for one in here("chart") if one.trouble]
    assert inside == ["chart: this Helm chart generates Applications, but it is not rendered"]


def test_chart_templates_in_a_repository_are_not_read(tmp_path: Path) -> None:
    repo = str(bare_repo(tmp_path, CHARTS))
    for path, where in (("", f"{repo}//chart"), ("chart", f"{repo}//chart")):
        found = in_git(repo, path)
        assert set(names(found)) >= {"plain"}
        assert told(found)[0][0].startswith(f"{where}: this Helm chart")


@pytest.mark.parametrize("path", ["fleet//plain", "/fleet/plain//", "fleet//plain/one.yaml"])
def test_extra_slashes_in_a_path_in_a_repository_are_ignored(tmp_path: Path, path: str) -> None:
    assert names(in_git(str(bare_repo(tmp_path, KUSTOMIZATIONS)), path)) == ["one"]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("chart/templates/x.yaml", TEMPLATE, True),
        ("chart/templates/x.yaml", APPLICATION, False),
        ("chart/x.yaml", TEMPLATE, False),
        ("templates/x.yaml", TEMPLATE, False),
        ("chart/charts/sub/templates/x.yaml", TEMPLATE, True),
        ("chart/templates", TEMPLATE, False),
    ],
)
def test_chart_templates_are_recognized(path: str, text: str, *, expected: bool) -> None:
    charts = {"chart/Chart.yaml": "", "chart/charts/sub/Chart.yaml": "", "chart/values.yaml": ""}
    assert bool(names(inside({**charts, path: text}, path))) != expected


def test_a_chart_at_the_root_is_reported_with_the_root_path() -> None:
    files = {"Chart.yaml": "", "templates/x.yaml": TEMPLATE}
    assert [one.origin for one in inside(files, *files)] == ["."]
    snapshot = Snapshot("https://h/x.git", "main", "tip", {})
    assert [one.origin for one in inside(files, *files, snapshot=snapshot)] == ["https://h/x.git"]


@pytest.mark.parametrize("source", ["", "fleet"])
def test_patches_are_not_read_and_their_kustomization_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for found in read(tmp_path, KUSTOMIZATIONS, source):
        assert sorted(one.item["metadata"]["name"] for one in found if one.is_application) == [
            "one",
            "shop",
            "web",
        ]
        assert all("source" in one.item["spec"] for one in found if one.is_application)
        (advice,) = [one for one in found if one.trouble]
        assert advice.advice
        assert trouble_of(advice).message.endswith(
            "fleet/overlays/prod: this kustomization generates Applications, but it is not rendered"
        )
        assert "pass it as a separate source with --render kustomize" in trouble_of(advice).hint


def test_an_unrendered_kustomization_in_a_source_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {**KUSTOMIZATIONS, "fleet/kustomization.yaml": "resources: [overlays/prod, plain]\n"}
    for found in read(tmp_path, files, "fleet"):
        (advice,) = [one for one in found if one.trouble]
        assert trouble_of(advice).message.endswith(
            "fleet: this kustomization generates Applications, but it is not rendered"
        )
        assert trouble_of(advice).hint.startswith("render it with --render kustomize")


def test_a_patch_given_as_a_source_is_read(tmp_path: Path) -> None:
    path = tmp_path / "patch.yaml"
    path.write_text(manifest_text("web", PATCH))
    (tmp_path / "kustomization.yaml").write_text("patches: [{path: patch.yaml}]\n")
    assert [one.is_application for one in here(str(path))] == [True]
    assert [one for one in here(str(tmp_path)) if one.is_application] == []


@pytest.mark.slow
def test_a_kustomization_given_as_a_source_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    read(tmp_path, KUSTOMIZATIONS, "")
    result = image_update("lint", "fleet", "fleet/overlays/prod")
    assert result.stdout.count("this kustomization generates Applications") == 1


@pytest.mark.parametrize(
    "texts",
    [
        {
            "a/kustomization.yaml": "resources: [../b]\nnamePrefix: x\n",
            "b/kustomization.yaml": "resources: [../a, x]\n",
        },
        {
            "a/kustomization.yaml": "resources: [x]\nnamePrefix: x\n",
            "b/kustomization.yaml": "- not\n",
        },
        {
            "a/kustomization.yaml": "resources: [[x], 1, x, '', /]\npatches: [1, {path: [2]}]\nnamePrefix: x\n"
        },
        {"a/kustomization.yaml": "resources: [\n"},
    ],
)
def test_unusual_kustomizations_do_not_crash(texts: dict[str, str]) -> None:
    (found, *warnings) = inside({**texts, "a/x": manifest_text("web")}, "a/x")
    assert found.is_application
    assert {one.origin for one in warnings} <= {"a"}


def test_the_root_folder_is_not_confused_with_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-such-app.yaml").write_text(APPLICATION)
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []

    def read(path: str) -> bytes:
        seen.append(path)
        raise Malformed("gone", "")

    monkeypatch.setattr(
        "task.applications.manifest_files.os.walk",
        lambda root, onerror: iter([(root, [], ["no-such-app.yaml"])]),  # noqa: ARG005
    )
    monkeypatch.setattr("task.applications.manifest_files._content", read)
    list(local_manifests("/", Rendering()))
    assert set(seen) == {"/no-such-app.yaml"}
