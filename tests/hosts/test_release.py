"""A release requires only a tag: the release notes, the jobs, their permissions, and the wheel."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from hosts.checks import documents
from support import ROOT

from scripts import release_notes
from task import __version__

WORKFLOWS = ROOT / ".github/workflows"
(RELEASE,) = documents(WORKFLOWS / "release.yml")
TEXT = (WORKFLOWS / "release.yml").read_text(encoding="utf-8")
TAG = f"v{__version__}"


def steps(job: str, action: str) -> list[Any]:
    return [one for one in RELEASE["jobs"][job]["steps"] if action in one.get("uses", "")]


def test_the_notes_contain_the_changelog_entry_and_verification_commands() -> None:
    notes = release_notes.notes(TAG)
    assert notes.startswith("The first version. ")
    assert f"release.yml@refs/tags/{TAG}" in notes
    for line in (
        "cosign verify ",
        "cosign verify-blob tekton-task.yaml",
        "gh attestation verify oci",
    ):
        assert line in notes
    links = re.findall(r"\]\(([^)]+)\)", notes)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    with pytest.raises(ValueError, match=r"no entry for 9\.9\.9"):
        release_notes.notes("v9.9.9")


def test_the_notes_end_before_the_previous_version(tmp_path: Path) -> None:
    entries = (
        "# Changelog\n\n## 2.0.0 (2027-01-01)\n\n### Find\n\n- New.\n\n## 2.0.0-rc.1\n\n- Old.\n"
    )
    (tmp_path / "CHANGELOG.md").write_text(entries)
    notes = release_notes.notes("v2.0.0", tmp_path)
    assert notes.startswith("### Find\n\n- New.\n\n## Check")
    assert "Old." not in notes


def test_every_attached_manifest_is_signed() -> None:
    for name, path in release_notes.MANIFESTS.items():
        assert (ROOT / path).is_file()
        assert f'cp {path} "$RUNNER_TEMP/release/{name}"' in TEXT
    assert 'cosign sign-blob --yes --bundle "$file.sigstore.json" "$file"' in TEXT
    assert '"$RUNNER_TEMP"/release/*' in TEXT


def test_the_security_policy_refers_to_the_release_notes() -> None:
    promise = "The release notes explain how to verify both."
    assert promise in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("job", ["image", "publish"])
def test_jobs_that_create_attestations_have_the_required_permissions(job: str) -> None:
    assert steps(job, "actions/attest@")
    rights = RELEASE["jobs"][job]["permissions"]
    for right in ("id-token", "attestations", "artifact-metadata"):
        assert rights[right] == "write"
    assert "attest-build-provenance" not in TEXT
    assert "attest-sbom" not in TEXT


def test_the_publishing_job_runs_no_scripts() -> None:
    job = RELEASE["jobs"]["pypi"]
    assert job["permissions"] == {"id-token": "write"}
    assert job["environment"]["name"] == "pypi"
    assert [one for one in job["steps"] if "run" in one] == []
    assert "password" not in str(job)
    assert steps("pypi", "pypa/gh-action-pypi-publish@")


def test_a_release_is_announced_only_after_everything_is_published() -> None:
    assert set(RELEASE["jobs"]["publish"]["needs"]) == {"check", "image", "bundle", "pypi"}
    assert "publish" in RELEASE["jobs"]["site"]["needs"]


def test_vulnerabilities_and_real_servers_are_tested_every_night() -> None:
    (nightly,) = documents(WORKFLOWS / "nightly.yml")
    assert nightly[True]["schedule"]  # YAML 1.1 parses `on` as true
    runs = " ".join(one.get("run", "") for job in nightly["jobs"].values() for one in job["steps"])
    assert "make test-real" in runs
    assert "pip-audit" in runs
    assert "pip-audit" in (WORKFLOWS / "ci.yml").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_contains_every_file_that_a_run_reads(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    (source,) = tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        named = set(files.namelist())
        (metadata,) = (name for name in named if name.endswith(".dist-info/METADATA"))
        head = Parser().parsestr(files.read(metadata).decode())
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    here = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "task").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert here <= named
    assert not [name for name in named if name.startswith("tests")]
    assert (head["Name"], head["Version"]) == ("argocd-image-update", __version__)
    assert head.get_all("Provides-Extra") == ["sigstore"]
    page = head.get_payload()
    assert isinstance(page, str)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)
    assert pictures
    assert all(one.startswith("https://") for one in pictures)  # PyPI cannot resolve relative links
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "task", "demo"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 updated, 1 skipped" in shown.stdout
    with tarfile.open(source) as archive:
        assert any(name.endswith("/CHANGELOG.md") for name in archive.getnames())
