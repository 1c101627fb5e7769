"""What the contract says of `run` and `plan`, sentence by sentence, through the real command."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import Content, Link, Result, bare_repo, command, commit, git, image_update, show

P = "argocd-image-updater.argoproj.io/"
WEB = "ghcr.io/acme/web"
KUSTOMIZATION = "resources: []\nimages:\n- name: ghcr.io/acme/web\n  newTag: 1.0.0\n"
BASE: dict[str, Content] = {"apps/a/kustomization.yaml": KUSTOMIZATION, "apps/b/kustomization.yaml": KUSTOMIZATION}
DIGEST = "sha256:" + "a" * 64


def app(
    name: str, repo: object, namespace: str = "argocd", path: str | None = None, **annotations: str
) -> dict[str, Any]:
    given = {
        "image-list": f"web={WEB}",
        **{key.replace("__", ".").replace("_", "-"): v for key, v in annotations.items()},
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": name, "namespace": namespace, "annotations": {P + key: v for key, v in given.items()}},
        "spec": {
            "source": {
                "repoURL": str(repo),
                "path": f"apps/{name}" if path is None else path,
                "targetRevision": "main",
            }
        },
    }


def call(folder: Path, *apps: dict[str, Any], more: tuple[object, ...] = (), verb: str = "run") -> Result:
    manifest = folder / "applications.yaml"
    manifest.write_text(yaml.safe_dump_all(apps))
    return on(manifest, *more, verb=verb)


def on(source: object, *more: object, verb: str = "run", image: str = f"{WEB}:1.1.0", stdin: str = "") -> Result:
    args = (verb, "--image", image, "--applications", source, "--allow-protocol", "file", "--output", "json", *more)
    return image_update(*map(str, args), stdin=stdin)


def ends(result: Result) -> list[tuple[str, str]]:
    return [(one["verdict"], one["rule"]) for one in result.json["decisions"]]


def override(tag: str) -> str:
    return f"kustomize:\n  images:\n  - {WEB}:{tag}\n"


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_a_failure_prints_one_json_text(tmp_path: Path, verb: str) -> None:
    result = on(tmp_path / "nowhere", verb=verb)
    assert (result.code, json.loads(result.stdout)["status"]) == (2, "failed")


@pytest.mark.parametrize(
    ("namespace", "there", "expected"),
    [
        ("argocd", ".argocd-source-argocd_a.yaml", ".argocd-source-a.yaml"),
        ("team", ".argocd-source-a.yaml", ".argocd-source-team_a.yaml"),
    ],
)
@pytest.mark.parametrize("tag", ["1.0.0", "1.1.0"])
def test_the_other_spelling_of_the_override_file_is_used_with_a_warning(
    tmp_path: Path, namespace: str, there: str, expected: str, tag: str
) -> None:
    repo = bare_repo(tmp_path, {**BASE, f"apps/a/{there}": override(tag)})
    result = call(tmp_path, app("a", repo, namespace))
    (warning,) = result.json["errors"]
    assert result.code == 0
    assert result.json["decisions"][0]["file"] == f"apps/a/{there}"
    assert show(repo, "main", f"apps/a/{there}") == override("1.1.0")
    assert (warning["severity"], warning["application"]) == ("warning", f"{namespace}/a")
    assert there in warning["message"]
    assert expected in warning["message"]
    assert f"warning: {namespace}/a: {warning['message']}" in result.stderr


def test_the_right_spelling_gives_no_warning(tmp_path: Path) -> None:
    both = {"apps/a/.argocd-source-a.yaml": override("1.0.0"), "apps/a/.argocd-source-argocd_a.yaml": override("0.9.0")}
    result = call(tmp_path, app("a", bare_repo(tmp_path, {**BASE, **both})))
    assert (ends(result), result.json["errors"]) == ([("update", "admitted")], [])


@pytest.mark.parametrize("path", [".", "./", "", "/"])
def test_the_root_of_the_repository_as_path(tmp_path: Path, path: str) -> None:
    repo = bare_repo(tmp_path, {"kustomization.yaml": KUSTOMIZATION})
    result = call(tmp_path, app("a", repo, path=path))
    assert (ends(result), result.json["commits"][0]["files"]) == ([("update", "admitted")], [".argocd-source-a.yaml"])


@pytest.mark.parametrize("path", ["./apps/a", "apps/a/", "apps/./a", "/apps//a"])
def test_spellings_of_one_path(tmp_path: Path, path: str) -> None:
    result = call(tmp_path, app("a", bare_repo(tmp_path, BASE), path=path))
    assert result.json["commits"][0]["files"] == ["apps/a/.argocd-source-a.yaml"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"apps/x": "text"}, "apps/x is a file"),
        ({"apps/x": Link("a")}, "apps/x is a symbolic link"),
        ({"apps": Link("elsewhere")}, "apps is a symbolic link"),
        ({"other": "text"}, "'apps/x' does not exist"),
    ],
)
def test_a_path_that_is_no_folder_says_what_it_is(tmp_path: Path, content: dict[str, Content], words: str) -> None:
    result = call(tmp_path, app("x", bare_repo(tmp_path, content)))
    assert (result.code, ends(result)) == (3, [("error", "source")])
    assert words in result.json["errors"][0]["message"]


def test_an_error_of_a_file_names_it(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {**BASE, "apps/a/.argocd-source-a.yaml": "- a list\n"})
    result = call(tmp_path, app("a", repo))
    assert "apps/a/.argocd-source-a.yaml" in result.json["errors"][0]["message"]


def test_two_entries_of_one_image_are_two_updates_of_one_file(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, BASE)
    result = call(tmp_path, app("a", repo, image_list=f"one={WEB}:~1,two={WEB}:^1"))
    assert ends(result) == [("update", "admitted")] * 2
    assert call(tmp_path, app("a", repo, image_list=f"one={WEB}:~1,two={WEB}:^1")).json["counts"]["unchanged"] == 2


def test_two_applications_that_share_a_file_are_both_updated_by_one_commit(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {**BASE, "base/kustomization.yaml": KUSTOMIZATION})
    target = {"write_back_target": "kustomization:/base"}
    result = call(tmp_path, app("a", repo, **target), app("b", repo, **target))
    assert ends(result) == [("update", "admitted")] * 2
    assert result.json["commits"][0]["applications"] == ["argocd/a", "argocd/b"]


def test_one_target_named_twice_is_one_decision(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, BASE)
    result = call(tmp_path, app("a", repo, write_back_target="kustomization, kustomization:."))
    assert ends(result) == [("update", "admitted")]


@pytest.mark.parametrize(
    ("now", "event", "end"),
    [
        ("1.0.0", f"{WEB}:1.1.0", ("error", "registry")),
        ("1.0.0", f"{WEB}:1.1.0@{DIGEST}", ("update", "admitted")),
        (f"1.1.0@{DIGEST}", f"{WEB}:1.1.0", ("unchanged", "same")),
        ("1.2.0", f"{WEB}:1.1.0", ("refuse", "not-newer")),
    ],
)
def test_pin_digest_never_writes_without_a_digest(tmp_path: Path, now: str, event: str, end: tuple[str, str]) -> None:
    repo = bare_repo(tmp_path, {**BASE, "apps/a/.argocd-source-a.yaml": override(now)})
    manifest = tmp_path / "a.yaml"
    manifest.write_text(yaml.safe_dump(app("a", repo)))
    assert ends(on(manifest, "--pin-digest", image=event)) == [end]


@pytest.mark.measured
@pytest.mark.parametrize("option", ["--report", "--results-dir", "--dotenv"])
def test_a_place_that_cannot_be_written_is_said_before_anything_is_done(tmp_path: Path, option: str) -> None:
    repo = bare_repo(tmp_path, BASE)
    blocker = tmp_path / "file"
    blocker.write_text("")
    result = call(tmp_path, app("a", repo), more=(option, blocker / "below"))
    assert (result.code, git(repo, "rev-list", "--count", "main")) == (2, "1")
    assert option in result.stderr


def test_a_trailer_key_that_git_would_not_read_is_a_usage_error(tmp_path: Path) -> None:
    result = call(tmp_path, app("a", bare_repo(tmp_path, BASE)), more=("--trailer", "Foo: bar=baz"))
    assert (result.code, result.json["errors"][0]["rule"]) == (2, "usage")


def test_what_runs_already_and_stands_nowhere_in_git_is_unchanged(tmp_path: Path) -> None:
    running = {**app("a", bare_repo(tmp_path, BASE)), "status": {"summary": {"images": [f"{WEB}:1.1.0"]}}}
    (decision,) = call(tmp_path, running).json["decisions"]
    assert (decision["verdict"], decision["current"]) == ("unchanged", "1.1.0")
    assert "live" in decision["because"]


# Sources of Applications.


def test_half_a_character_in_json_stops_nobody(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, BASE)
    broken = json.dumps(app("b", "file:///HALF", git_branch="HALF")).replace("HALF", "\\ud800")
    listed = f'{{"kind": "List", "apiVersion": "v1", "items": [{broken}, {json.dumps(app("a", repo))}]}}'
    result = on("-", stdin=listed)
    assert [one["verdict"] for one in result.json["decisions"]] == ["update", "error"]


def test_a_json_array_of_applications(tmp_path: Path) -> None:
    assert on("-", stdin=json.dumps([app("a", bare_repo(tmp_path, BASE))])).json["counts"]["updated"] == 1


def test_an_application_list_whose_items_lack_their_kind(tmp_path: Path) -> None:
    item = {key: value for key, value in app("a", bare_repo(tmp_path, BASE)).items() if key in ("metadata", "spec")}
    listed = {"kind": "ApplicationList", "apiVersion": "argoproj.io/v1alpha1", "items": [item]}
    assert on("-", stdin=json.dumps(listed)).json["counts"]["updated"] == 1


def test_no_application_at_all_is_said() -> None:
    result = on("-")
    assert (result.code, result.json["status"]) == (0, "unchanged")
    assert "no Application" in result.stderr


def test_a_pipe_in_a_folder_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(app("a", bare_repo(tmp_path, BASE))))
    result = on(tmp_path)
    assert result.json["counts"]["updated"] == 1
    assert [one["severity"] for one in result.json["errors"]] == ["warning", "warning"]  # the link, and the pipe


@pytest.mark.parametrize(("closed", "end"), [("in/below", (0, 1)), ("in", (2, 0))])
def test_a_folder_that_cannot_be_read(closed: str, end: tuple[int, int]) -> None:
    """Below the one that is named it is a warning; the others count."""
    with tempfile.TemporaryDirectory() as name:  # not below pytest's own folder, which is closed to others
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "in" / "below").mkdir(parents=True)
        (folder / "in" / "a.yaml").write_text(yaml.safe_dump(app("a", bare_repo(folder, BASE))))
        (folder / closed).chmod(0)
        done = as_nobody(folder / "in")
        (folder / closed).chmod(0o755)
    report = json.loads(done.stdout)
    assert (done.returncode, report["counts"]["updated"]) == end
    assert str(folder / closed) in report["errors"][0]["message"]


def as_nobody(source: Path) -> subprocess.CompletedProcess[str]:
    """A plan by somebody for whom closed folders are closed: not root."""
    change = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    args = ["plan", "--image", f"{WEB}:1.1.0", "--allow-protocol", "file", "--output", "json", "--applications"]
    trust = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    return subprocess.run(
        [*change, command(), *args, str(source)],
        env={**os.environ, **trust, "TMPDIR": "/tmp"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.measured
def test_a_manifest_in_git_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, BASE)
    manifests: dict[str, Content] = {"argo/a.yaml": yaml.safe_dump(app("a", repo)), "argo/b.yaml": b"argoproj.io: \xff"}
    apps = bare_repo(tmp_path, manifests, name="apps.git")
    result = on(f"{apps}//argo")
    assert result.json["counts"]["updated"] == 1
    assert "b.yaml" in result.json["errors"][0]["message"]


@pytest.mark.parametrize("namespace", ["a/b", "a\nb"])
def test_a_namespace_that_is_none_is_a_warning(tmp_path: Path, namespace: str) -> None:
    repo = bare_repo(tmp_path, BASE)
    result = call(tmp_path, app("a", repo), app("b", repo, namespace))
    assert [one["application"] for one in result.json["decisions"]] == ["argocd/a"]
    assert "is not a valid namespace" in result.json["errors"][0]["message"]


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"image_list": f"one={WEB}:~1,two={WEB}:~2"},
        {"write_back_target": "kustomization,kustomization:../b"},
        {"write_back_target": "helmvalues:/nowhere/x.yaml"},
        {"git_branch": "main:update-{{.SHA256}}"},
        {"git_branch": "main:a..b"},
        {"web__ignore_tags": "*"},
        {"write_back_method": "argocd"},
    ],
)
def test_plan_decides_as_run_does(tmp_path: Path, annotations: dict[str, str]) -> None:
    repo = bare_repo(tmp_path, BASE)
    apps = (app("a", repo, **annotations), app("b", repo), app("gone", repo))
    planned = call(tmp_path, *apps, verb="plan")
    done = call(tmp_path, *apps)
    assert planned.json["decisions"] == done.json["decisions"]
    assert planned.json["counts"] == done.json["counts"]
    assert [one["tree"] for one in planned.json["commits"]] == [one["tree"] for one in done.json["commits"]]
    assert planned.code == done.code


def test_the_executable_bit_stays(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, BASE)
    work = tmp_path / "work"
    git(tmp_path, "clone", "--quiet", str(repo), str(work))
    git(work, "update-index", "--chmod=+x", "apps/a/kustomization.yaml")
    git(work, "-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "-m", "executable")
    git(work, "push", "--quiet", "origin", "HEAD:main")
    call(tmp_path, app("a", repo, write_back_target="kustomization"))
    assert git(repo, "ls-tree", "main", "apps/a/kustomization.yaml").startswith("100755")
    assert "newTag: 1.1.0" in show(repo, "main", "apps/a/kustomization.yaml")


def test_an_alias_bomb_is_a_target_error(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    repo = bare_repo(tmp_path, BASE)
    commit(repo, {"apps/a/.argocd-source-a.yaml": bomb})
    assert ends(call(tmp_path, app("a", repo))) == [("error", "target")]


def test_the_annotation_prefix_ends_with_a_slash_or_not(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, BASE)
    other = app("a", repo)
    other["metadata"]["annotations"] = {"deploy.example.com/image-list": WEB}
    for prefix in ("deploy.example.com", "deploy.example.com/"):
        result = call(tmp_path, other, more=("--annotation-prefix", prefix), verb="plan")
        assert ends(result) == [("update", "admitted")]


@pytest.mark.measured
def test_a_failure_does_not_say_that_nobody_takes_the_image() -> None:
    result = image_update("run", "--image", "web:1", "--applications", "/nowhere")
    assert (result.code, result.stdout) == (2, "failed: nothing was done\n")
