"""One version everywhere: a version bump in a copy of the tree is complete and repeatable."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from support import ROOT

from scripts import bump
from task import __version__

COPIED = ("task/__init__.py", "Dockerfile", "action.yml", "README.md", "CHANGELOG.md")
FOLDERS = ("docs", "tekton", "argo-workflows", "templates", "examples", ".github")
NOTES = "\n## 9.8.7 (2026-12-01)\n\n- Fixed: a `thing` of\n  two.\n- Some [new](x.md) thing.\n\n## 0.1.0\n\n- Not it.\n"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name in COPIED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, root / name)
    return root


def texts(root: Path) -> dict[str, str]:
    """Return the text of every file except the pictures."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".png")
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def test_all_files_have_the_same_version() -> None:
    assert {name for names in bump.versions().values() for name in names} == {__version__}
    assert bump.main(["--check", f"v{__version__}"]) == 0


def test_a_tag_for_another_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert bump.main(["--check", "v9.8.7"]) == 1
    assert f"{bump.SOURCE}: {__version__}, not 9.8.7" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["9.8.7", "1.0.0-rc.1"])
def test_the_version_in_every_file_is_bumped(copy: Path, version: str) -> None:
    places = bump.versions(copy)
    changed = bump.bump(version, copy)
    assert bump.versions(copy) == {path: {version} for path in places}
    assert set(changed) | {"tekton/stepaction/image-update/image-update.yaml"} >= set(places)
    assert bump.current(copy) == version


def test_bumping_leaves_no_old_version_behind(copy: Path) -> None:
    bump.bump("9.8.7", copy)
    ours = re.compile(
        rf"(?:image-update\S*|argocd-image-update==|ARG VERSION=|app\.kubernetes\.io/version:) ?\S*{__version__}"
    )
    left = {
        path: ours.findall(text) for path, text in texts(copy).items() if path != "CHANGELOG.md"
    }
    assert {path: found for path, found in left.items() if found} == {}


def test_bumping_twice_changes_nothing(copy: Path) -> None:
    bump.bump("9.8.7", copy)
    before = texts(copy)
    assert bump.bump("9.8.7", copy) == []
    assert texts(copy) == before


def test_bumping_back_to_the_old_version_restores_the_tree(copy: Path) -> None:
    before = texts(copy)
    bump.bump("9.8.7-rc.1", copy)
    bump.bump(__version__, copy)
    dates = re.compile(r"(?m)^createdAt: .*$")
    notes = re.compile(r"(?m)^ *(?:artifacthub\.io/)?changes:(?: \|)?\n(?: +- .*\n| {4,}\S.*\n)+")
    plain = [
        {path: notes.sub("", dates.sub("", text)) for path, text in one.items()}
        for one in (before, texts(copy))
    ]
    assert plain[0] == plain[1]


def test_the_artifact_hub_changes_come_from_the_changelog(copy: Path) -> None:
    (copy / "CHANGELOG.md").write_text("# Changelog\n" + NOTES)
    bump.bump("9.8.7", copy)
    expected = [
        {"kind": "fixed", "description": "Fixed: a thing of two."},
        {"kind": "added", "description": "Some new thing."},
    ]
    package = yaml.safe_load((copy / "argo-workflows/image-update/artifacthub-pkg.yml").read_text())
    assert package["changes"] == expected
    for kind in ("task", "stepaction"):
        manifest = yaml.safe_load(
            (copy / f"tekton/{kind}/image-update/image-update.yaml").read_text()
        )
        assert (
            yaml.safe_load(manifest["metadata"]["annotations"]["artifacthub.io/changes"])
            == expected
        )


@pytest.mark.parametrize("argv", [[], ["1.2"], ["next"], ["v1.2.3.4"], ["1.2.3", "x"], ["01.2.3"]])
def test_invalid_versions_are_rejected(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert bump.main(argv) == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("image: ghcr.io/argocd-image-update/image-update:v1.2.3", "1.2.3"),
        ("image: docker://ghcr.io/argocd-image-update/image-update:v1.2.3-action", "1.2.3"),
        (
            "image: docker://ghcr.io/argocd-image-update/image-update:v1.2.3-rc.1-action",
            "1.2.3-rc.1",
        ),
        ("image: registry.internal/mirror/image-update:v1.2.3-rc.1", "1.2.3-rc.1"),
        ("ghcr.io/argocd-image-update/image-update/bundle:v1.2.3@sha256:0", "1.2.3"),
        ("uses: argocd-image-update/image-update@v1.2.3", "1.2.3"),
        ("uses: argocd-image-update/image-update@v1", ""),
        ("component: $CI_SERVER_FQDN/argocd-image-update/image-update/image-update@1.2.3", "1.2.3"),
        (
            "https://raw.githubusercontent.com/argocd-image-update/image-update/v1.2.3/action.yml",
            "1.2.3",
        ),
        ("pip install argocd-image-update==1.2.3", "1.2.3"),
        ("image: docker.io/library/busybox:1.37", ""),
        ("image: ghcr.io/acme/web:1.2.3", ""),
    ],
)
def test_each_pattern_finds_the_version_in_a_line(line: str, found: str) -> None:
    named = [
        match[1] for pattern in bump.NAMED for match in re.finditer(pattern, line, re.MULTILINE)
    ]
    assert named == ([found] if found else [])
