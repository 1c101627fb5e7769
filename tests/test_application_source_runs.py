"""Whole runs with each source of Applications: JSON and lists on standard input, folders, and
manifests in Git.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from support import Content, bare_repo, command
from support.runs import WEB, application, manifest, repository, run


def test_a_lone_surrogate_in_json_fails_only_its_own_application(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b")
    broken = json.dumps(application("b", "file:///HALF", git_branch="HALF")).replace(
        "HALF", "\\ud800"
    )
    listed = f'{{"kind": "List", "apiVersion": "v1", "items": [{broken}, {json.dumps(application("a", repo))}]}}'
    result = run("--applications", "-", stdin=listed)
    assert [one["verdict"] for one in result.json["decisions"]] == ["update", "error"]


def test_reads_applications_from_a_json_array(tmp_path: Path) -> None:
    assert (
        run(
            "--applications",
            "-",
            stdin=json.dumps([application("a", repository(tmp_path, "a", "b"))]),
        ).json["counts"]["updated"]
        == 1
    )


def test_reads_an_application_list_whose_items_have_no_kind(tmp_path: Path) -> None:
    item = {
        key: value
        for key, value in application("a", repository(tmp_path, "a", "b")).items()
        if key in ("metadata", "spec")
    }
    listed = {"kind": "ApplicationList", "apiVersion": "argoproj.io/v1alpha1", "items": [item]}
    assert run("--applications", "-", stdin=json.dumps(listed)).json["counts"]["updated"] == 1


def test_empty_standard_input_is_reported_as_no_applications() -> None:
    result = run("--applications", "-")
    assert (result.code, result.json["status"]) == (0, "unchanged")
    assert "no Application" in result.stderr


def test_a_pipe_in_a_folder_is_skipped_with_a_warning(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    (tmp_path / "a.yaml").write_text(json.dumps(application("a", repository(tmp_path, "a", "b"))))
    result = run("--applications", tmp_path)
    assert result.json["counts"]["updated"] == 1
    assert [one["severity"] for one in result.json["errors"]] == [
        "warning",
        "warning",
    ]  # the link, and the pipe


@pytest.mark.parametrize(("closed", "end"), [("in/below", (0, 1)), ("in", (2, 0))])
def test_an_unreadable_folder_is_an_error_and_an_unreadable_subfolder_a_warning(
    closed: str, end: tuple[int, int]
) -> None:
    """An unreadable folder below the given one causes only a warning, and the other Applications
    are updated.
    """
    with (
        tempfile.TemporaryDirectory() as name
    ):  # not inside pytest's own folder, which other users cannot read
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "in" / "below").mkdir(parents=True)
        (folder / "in" / "a.yaml").write_text(
            json.dumps(application("a", repository(folder, "a", "b")))
        )
        (folder / closed).chmod(0)
        done = as_nobody(folder / "in")
        (folder / closed).chmod(0o755)
    report = json.loads(done.stdout)
    assert (done.returncode, report["counts"]["updated"]) == end
    assert str(folder / closed) in report["errors"][0]["message"]


def as_nobody(source: Path) -> subprocess.CompletedProcess[str]:
    """Run `plan` as a user other than root, who cannot read folders without permission."""
    change = (
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    )
    args = [
        "plan",
        "--image",
        f"{WEB}:1.1.0",
        "--allow-protocol",
        "file",
        "--output",
        "json",
        "--applications",
    ]
    trust = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    return subprocess.run(
        [*change, command(), *args, str(source)],
        env={**os.environ, **trust, "TMPDIR": "/tmp"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.measured
def test_an_unreadable_manifest_in_git_is_a_warning(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b")
    manifests: dict[str, Content] = {
        "argo/a.yaml": json.dumps(application("a", repo)),
        "argo/b.yaml": b"argoproj.io: \xff",
    }
    apps = bare_repo(tmp_path, manifests, name="apps.git")
    result = run("--applications", f"{apps}//argo")
    assert result.json["counts"]["updated"] == 1
    assert "b.yaml" in result.json["errors"][0]["message"]


@pytest.mark.parametrize("namespace", ["a/b", "a\nb"])
def test_an_invalid_namespace_is_a_warning(tmp_path: Path, namespace: str) -> None:
    repo = repository(tmp_path, "a", "b")
    other = application("b", repo)
    other["metadata"]["namespace"] = namespace
    result = run("--applications", manifest(tmp_path, application("a", repo), other))
    assert [one["application"] for one in result.json["decisions"]] == ["argocd/a"]
    assert "is not a valid namespace" in result.json["errors"][0]["message"]
