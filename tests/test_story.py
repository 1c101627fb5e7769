"""Single events from the command line to the remote branch: what lands, what is reported, and what
prevents an update.
"""

import json
import os
import re
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import (
    Content,
    Link,
    Result,
    bare_repo,
    changed_paths,
    command,
    commit,
    git,
    image_update,
    runs,
    show,
)
from support.runs import run, wait_until

P = "argocd-image-updater.argoproj.io/"
application = partial(runs.application, write_back_target="")  # updates the override file
KUSTOMIZATION = "resources: []\nimages:\n- name: ghcr.io/acme/web\n  newTag: 1.0.0\n"
WEB = "ghcr.io/acme/web"
# An update hook that lands somebody else's commit while ours is being received.
MOVES_THE_BRANCH = """#!/bin/sh
new=$(git -c user.name=x -c user.email=x commit-tree -p main -m other 'main^{tree}')
env -u GIT_QUARANTINE_PATH git update-ref refs/heads/main $new
"""


def files(*names: str) -> dict[str, Content]:
    return {f"apps/{name}/kustomization.yaml": KUSTOMIZATION for name in names}


def write(folder: Path, *apps: dict[str, Any]) -> Path:
    manifest = folder / "applications.yaml"
    manifest.write_text(yaml.safe_dump_all(apps))
    return manifest


def rules(result: Result) -> dict[str, str]:
    return {one["application"]: one["rule"] for one in result.json["decisions"]}


def test_all_applications_of_a_branch_are_updated_in_one_commit(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a", "b", "c"))
    manifest = write(tmp_path, *(application(name, repo) for name in "abc"))
    result = run("--applications", manifest)
    assert (result.code, result.json["status"]) == (0, "updated")
    assert git(repo, "rev-list", "--count", "main") == "2"
    assert changed_paths(repo) == [f"apps/{name}/.argocd-source-{name}.yaml" for name in "abc"]
    assert result.json["commits"][0]["commit"] == git(repo, "rev-parse", "main")
    assert result.json["commits"][0]["tree"] == git(repo, "rev-parse", "main^{tree}")


def test_a_second_run_makes_no_changes(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    manifest = write(tmp_path, application("a", repo))
    run("--applications", manifest)
    result = run("--applications", manifest)
    assert (result.code, result.json["status"], rules(result)) == (
        0,
        "unchanged",
        {"argocd/a": "same"},
    )
    assert git(repo, "rev-list", "--count", "main") == "2"


@pytest.mark.parametrize("revision", ["HEAD", ""])
def test_an_empty_revision_means_the_default_branch(tmp_path: Path, revision: str) -> None:
    repo = bare_repo(tmp_path, files("a"), branch="trunk")
    result = run("--applications", write(tmp_path, application("a", repo, revision=revision)))
    assert result.json["commits"][0]["branch"] == "trunk"
    assert changed_paths(repo, "trunk") == ["apps/a/.argocd-source-a.yaml"]


def test_applications_that_name_the_default_branch_or_head_share_one_commit(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a", "b"))
    result = run(
        "--applications",
        write(tmp_path, application("a", repo), application("b", repo, revision="HEAD")),
    )
    assert len(result.json["commits"]) == 1


def test_a_failing_repository_does_not_affect_the_others(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    result = run(
        "--applications",
        write(tmp_path, application("a", repo), application("b", tmp_path / "nowhere.git")),
    )
    assert result.code == 4
    assert rules(result) == {"argocd/a": "admitted", "argocd/b": "repository"}
    assert git(repo, "rev-list", "--count", "main") == "2"


def test_a_failing_application_does_not_affect_the_others(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    result = run(
        "--applications", write(tmp_path, application("a", repo), application("gone", repo))
    )
    assert (result.code, rules(result)) == (3, {"argocd/a": "admitted", "argocd/gone": "source"})
    assert changed_paths(repo) == ["apps/a/.argocd-source-a.yaml"]


def test_the_atomic_option_cancels_the_whole_commit_if_one_application_fails(
    tmp_path: Path,
) -> None:
    repo = bare_repo(tmp_path, files("a"))
    result = run(
        "--applications",
        write(tmp_path, application("a", repo), application("gone", repo)),
        "--atomic",
    )
    assert (result.code, rules(result)) == (3, {"argocd/a": "source", "argocd/gone": "source"})
    assert git(repo, "rev-list", "--count", "main") == "1"


@pytest.mark.measured
def test_the_atomic_option_also_cancels_the_commit_for_a_broken_annotation(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a", "b"))
    other = bare_repo(tmp_path, files("c"), name="other.git")
    broken = application("b", repo, write_back_method="svn")
    result = run(
        "--applications",
        write(tmp_path, application("a", repo), broken, application("c", other)),
        "--atomic",
    )
    expected = {"argocd/a": "annotation", "argocd/b": "annotation", "argocd/c": "admitted"}
    assert (result.code, rules(result)) == (3, expected)


def test_plan_detects_a_head_branch_that_already_has_the_change(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    manifest = write(tmp_path, application("a", repo, git_branch="main:upd"))
    run("--applications", manifest)
    args = (
        "--image",
        f"{WEB}:1.1.0",
        "--applications",
        manifest,
        "--allow-protocol",
        "file",
        "--output",
        "json",
    )
    planned, dry = image_update("plan", *args), image_update("run", "--dry-run", *args)
    assert {**dry.json, "timings": None} == {**planned.json, "timings": None}
    again = image_update("run", *args)
    assert planned.json["decisions"] == again.json["decisions"]
    assert planned.json["status"] == "unchanged"


def test_a_url_with_a_login_is_still_rewritten(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    manifest = write(tmp_path, application("a", "https://me:s3cret@git.example/team/repo.git"))
    result = run(
        "--applications", manifest, "--rewrite-url", f"https://git.example/team/={tmp_path}/"
    )
    assert (result.code, rules(result)) == (0, {"argocd/a": "admitted"})
    assert "s3cret" not in result.stdout + result.stderr + git(repo, "log", "--format=%B", "main")


def test_a_typo_in_another_application_does_not_fail_the_run(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    other = application("b", repo, image_list="x=acme/other:>", x__allow_tags="regexp:[")
    result = run("--applications", write(tmp_path, application("a", repo), other))
    assert (result.code, rules(result)) == (0, {"argocd/a": "admitted"})
    assert {one["severity"] for one in result.json["errors"]} == {"warning"}


def test_an_unreadable_entry_that_may_name_the_image_is_an_error(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    result = run(
        "--applications", write(tmp_path, application("a", repo, image_list=f"{WEB}:>=1.0"))
    )
    assert (result.code, result.json["decisions"]) == (3, [])
    assert [one["rule"] for one in result.json["errors"]] == ["annotation"]


@pytest.mark.parametrize(
    "annotations",
    [
        {"web__allow_tags": "regexp:["},
        {"web__ignore_tags": "["},
        {"image_list": f"web={WEB}:>"},
        {"web__update_strategy": "newest"},
        {"write_back_method": "svn"},
        {"git_branch": "a:b:c"},
        {"git_branch": "main:upd-{{ .Nope }}"},
        {"git_branch": "main:-f"},
        {"pull_request": "perhaps"},
    ],
)
def test_a_broken_annotation_admits_no_tag(tmp_path: Path, annotations: dict[str, str]) -> None:
    repo = bare_repo(tmp_path, files("a"))
    result = run("--applications", write(tmp_path, application("a", repo, **annotations)))
    assert (result.code, rules(result)) == (3, {"argocd/a": "annotation"})
    assert git(repo, "rev-list", "--count", "main") == "1"


def test_an_untracked_image_changes_nothing(tmp_path: Path) -> None:
    result = run(
        "--applications",
        write(tmp_path, application("a", "https://git.example/none")),
        image="acme/other:1",
    )
    assert (result.code, result.json["status"], result.json["decisions"]) == (0, "unchanged", [])


def test_a_rerun_reports_the_existing_commit(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a", "b"))
    manifest = write(tmp_path, application("a", repo), application("b", repo))

    def results(*more: str) -> tuple[str, ...]:
        run("--applications", manifest, "--results-dir", str(tmp_path / "results"), *more)
        return tuple(
            (tmp_path / "results" / name).read_text()
            for name in ("commit", "updated", "branch", "message")
        )

    first = results()
    assert first == (git(repo, "rev-parse", "main"), "true", "main", "2 updated")
    assert results() == (first[0], "false", "main", "2 current")
    assert results("--application", "b")[:2] == (first[0], "false")
    commit(repo, {"other": "1\n"})  # afterwards, the last commit is somebody else's
    assert results()[:2] == ("", "false")


def test_require_update_exits_5_if_nothing_was_updated(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    manifest = write(tmp_path, application("a", repo))
    assert run("--applications", manifest, "--require-update").code == 0
    again = run("--applications", manifest, "--require-update", env={"GITHUB_ACTIONS": "true"})
    assert (again.code, again.json["status"]) == (5, "unchanged")
    assert (
        "\n::error title=Image Update::--require-update: nothing was updated%0A  fix: "
        in f"\n{again.stderr}"
    )


def test_require_live_refuses_images_that_are_not_running(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a", "b"))
    live = application("b", repo)
    live["status"] = {"summary": {"images": ["ghcr.io/acme/web:1.0.0"]}}
    result = run("--applications", write(tmp_path, application("a", repo), live), "--require-live")
    assert rules(result) == {"argocd/a": "not-live", "argocd/b": "admitted"}


def test_a_refusal_does_not_access_the_repository(tmp_path: Path) -> None:
    result = run(
        "--applications",
        write(tmp_path, application("a", tmp_path / "nowhere.git", web__ignore_tags="1.*")),
    )
    assert (result.code, rules(result)) == (0, {"argocd/a": "ignore-tags"})


def test_the_newest_admitted_tag_of_a_build_is_chosen(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    result = run(
        "--applications",
        write(tmp_path, application("a", repo)),
        image=f"{WEB}:latest {WEB}:1.2 {WEB}:1.2.3 {WEB}:1",
    )
    assert [one["candidate"] for one in result.json["decisions"]] == ["1.2.3"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("apps/a/kustomization.yaml", f"resources: []\nimages:\n- name: {WEB}\n  digest: {{0}}\n"),
        ("apps/a/.argocd-source-a.yaml", f"kustomize:\n  images:\n  - {WEB}@{{0}}\n"),
    ],
)
def test_a_digest_without_a_tag_is_not_rewritten_if_it_is_the_same(
    tmp_path: Path, path: str, text: str
) -> None:
    digest = "sha256:" + "c" * 64
    repo = bare_repo(tmp_path, {**files("a"), path: text.format(digest)})
    target = "kustomization" if path.endswith("kustomization.yaml") else ""
    apps, tip = (
        write(tmp_path, application("a", repo, write_back_target=target)),
        git(repo, "rev-parse", "main"),
    )
    assert rules(run("--applications", apps, image=f"{WEB}:1.1.0@{digest}")) == {"argocd/a": "same"}
    assert git(repo, "rev-parse", "main") == tip
    assert rules(run("--applications", apps, image=f"{WEB}:1.1.0@sha256:{'d' * 64}")) == {
        "argocd/a": "admitted"
    }


def test_pin_digest_writes_tag_and_digest(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    digest = "sha256:" + "c" * 64
    run(
        "--applications",
        write(tmp_path, application("a", repo)),
        "--pin-digest",
        "--image-digest",
        digest,
    )
    assert f"{WEB}:1.1.0@{digest}" in show(repo, "main", "apps/a/.argocd-source-a.yaml")


def test_a_head_branch_is_created_on_top_of_the_base(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    manifest = write(tmp_path, application("a", repo, git_branch="main:upd-{{ .AppName }}"))
    assert run("--applications", manifest).json["commits"][0]["head"] == "upd-a"
    assert git(repo, "rev-parse", "upd-a^") == git(repo, "rev-parse", "main")
    assert run("--applications", manifest).json["status"] == "unchanged"
    run("--applications", manifest, image=f"{WEB}:1.2.0")
    assert git(repo, "rev-list", "--count", "main..upd-a") == "1"


def test_a_head_branch_name_of_64_hexadecimal_digits_works(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    manifest = write(tmp_path, application("a", repo, git_branch="main:{{.SHA256}}"))
    first = run("--applications", manifest)
    assert (first.code, rules(first)) == (0, {"argocd/a": "admitted"})
    head = first.json["commits"][0]["head"]
    assert re.fullmatch("[0-9a-f]{64}", head)
    assert "1.1.0" in show(repo, f"refs/heads/{head}", "apps/a/.argocd-source-a.yaml")
    assert run("--applications", manifest).json["status"] == "unchanged"
    assert git(repo, "rev-list", "--count", f"main..refs/heads/{head}") == "1"


def test_a_commit_id_as_the_base_branch_is_an_error(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    tip = git(repo, "rev-parse", "main")
    result = run(
        "--applications", write(tmp_path, application("a", repo, git_branch=f"{tip}:updates"))
    )
    assert (result.code, rules(result)) == (3, {"argocd/a": "source"})


def test_results_are_written_for_every_ci_host(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    output, summary = tmp_path / "output", tmp_path / "summary"
    env = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
    where = (
        "--results-dir",
        str(tmp_path / "results"),
        "--dotenv",
        str(tmp_path / "out.env"),
        "--report",
        str(tmp_path / "r.json"),
    )
    result = run("--applications", write(tmp_path, application("a", repo)), *where, env=env)
    written = {path.name: path.read_text() for path in (tmp_path / "results").iterdir()}
    assert written["status"] == "updated"
    assert written["updated"] == "true"
    assert written["commit"] == git(repo, "rev-parse", "main")
    assert json.loads(written["applications"]) == ["argocd/a"]
    assert json.loads(written["image_ARTIFACT_INPUTS"]) == {"uri": f"{WEB}:1.1.0", "digest": ""}
    assert not any(text.endswith("\n") for text in written.values())
    assert sum(len(name) + len(text) for name, text in written.items()) < 2048
    assert "commit=" + written["commit"] in output.read_text()
    assert "IMAGE_UPDATE_RESULT_COMMIT=" + written["commit"] in (tmp_path / "out.env").read_text()
    assert "argocd/a" in summary.read_text()
    assert json.loads((tmp_path / "r.json").read_text()) == result.json


@pytest.mark.parametrize(
    "args", [["run"], ["run", "--image", "a b c"], ["run", "--image", "a:1", "--deadline", "soon"]]
)
def test_results_are_written_when_the_run_fails(tmp_path: Path, args: list[str]) -> None:
    result = image_update(*args, "--results-dir", tmp_path / "results")
    assert result.code == 2
    assert (tmp_path / "results" / "status").read_text() == "failed"
    assert (tmp_path / "results" / "updated").read_text() == "false"


def test_applications_are_read_from_stdin(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    stdin = json.dumps({"kind": "List", "apiVersion": "v1", "items": [application("a", repo)]})
    result = image_update(
        "run",
        "--image",
        f"{WEB}:1.1.0",
        "--applications",
        "-",
        "--allow-protocol",
        "file",
        stdin=stdin,
    )
    assert result.code == 0
    assert ": 1 updated" in result.stdout


def test_applications_are_read_from_git(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    manifests = {
        "argo/apps/a.yaml": yaml.safe_dump(application("a", repo)),
        "argo/b.txt": "not this",
    }
    source = bare_repo(tmp_path, manifests, branch="live", name="apps.git")
    for path in ("argo", "argo/apps/a.yaml"):
        result = run("--applications", f"{source}//{path}?ref=live")
        assert result.code == 0, result.stderr
    assert git(repo, "rev-list", "--count", "main") == "2"


def test_options_narrow_the_selection_of_applications(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a", "b"))
    manifest = write(tmp_path, application("a", repo), application("b", repo))
    assert set(rules(run("--applications", manifest, "--application", "a*"))) == {"argocd/a"}
    assert set(rules(run("--applications", manifest, "--application", "argocd/b"))) == {"argocd/b"}
    assert (
        run("--applications", manifest, "--namespace", "other").json["counts"]["applications"] == 0
    )
    assert (
        run("--applications", manifest, "--only-repository", "https://elsewhere/x").json["commits"]
        == []
    )


def test_a_broken_manifest_is_a_warning_and_the_others_are_used(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    folder = tmp_path / "apps"
    folder.mkdir()
    (folder / "a.yaml").write_text(yaml.safe_dump(application("a", repo)))
    (folder / "broken.yaml").write_text("apiVersion: argoproj.io/v1alpha1\nkind: [\n")
    (folder / "latin.yaml").write_bytes(b"argoproj.io: \xff\n")
    (folder / "nameless.yaml").write_text("apiVersion: argoproj.io/v1alpha1\nkind: Application\n")
    result = run("--applications", folder)
    assert (result.code, rules(result)) == (0, {"argocd/a": "admitted"})
    assert len(result.json["errors"]) == 3
    assert all(name in result.stderr for name in ("broken.yaml", "latin.yaml", "nameless.yaml"))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--image", "a:1"], "--applications"),
        (["--applications", "x.yaml"], "--image"),
        (["--image", "a", "--applications", "x.yaml"], "neither a tag nor a digest"),
        (["--image", "a:1", "--applications", "/does/not/exist"], "does not exist"),
        (["--image", "http://a:1", "--applications", "x"], "--image"),
        (["--image", "a:$(id)", "--applications", "x"], "--image"),
        (["--image", "a:1", "--image-digest", "sha256:1", "--applications", "x"], "--image-digest"),
        (["--image", "a:1", "--strategy", "newest", "--applications", "x"], "--strategy"),
        (["--image", "a:1", "--selector", "a==b==c", "--applications", "-"], "--selector"),
        (
            ["--image", "a:1", "--commit-message-template", "/none", "--applications", "-"],
            "--commit-message-template",
        ),
        (["--imag", "a:1"], "--image"),
    ],
)
def test_usage_errors_exit_2_and_name_the_option(args: list[str], words: str) -> None:
    stdin = json.dumps(application("a", "x"))
    result = image_update("run", *args, stdin=stdin)
    assert result.code == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("repo", "words"),
    [
        ("--upload-pack=touch /tmp/pwned", "is not a repository URL"),
        ("ext::sh -c touch% /tmp/pwned", "ext"),
        ("-oProxyCommand=x", "is not a repository URL"),
        ("file:///etc", "--allow-protocol file"),
        ("/etc", "--allow-protocol file"),
        ("ssh://-oProxyCommand=x/y", "host"),
        ("https://git.example/a\nb", "is not a repository URL"),
    ],
)
def test_hostile_repository_urls_are_rejected(tmp_path: Path, repo: str, words: str) -> None:
    manifest = write(tmp_path, application("a", repo))
    result = image_update(
        "run", "--image", f"{WEB}:1.1.0", "--applications", manifest, "--output", "json"
    )
    assert (result.code, rules(result)) == (3, {"argocd/a": "source"})
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ({"apps/a/.argocd-source-a.yaml": Link("/etc/passwd")}, "target"),
        ({"apps/a/.argocd-source-a.yaml": "helm: [\n"}, "target"),
        ({"apps/a/.argocd-source-a.yaml/x": "y"}, "target"),
        ({"apps/a/.argocd-source-a.yaml": b"\xff\xfe"}, "target"),
        ({"apps/a/.argocd-source-a.yaml": "a: &a [x]\nb: *a\n---\nc: d\n"}, "target"),
    ],
)
def test_an_uneditable_file_is_left_unchanged(
    tmp_path: Path, content: dict[str, Content], rule: str
) -> None:
    repo = bare_repo(tmp_path, {**files("a", "b"), **content})
    result = run("--applications", write(tmp_path, application("a", repo), application("b", repo)))
    assert (result.code, rules(result)) == (3, {"argocd/a": rule, "argocd/b": "admitted"})
    assert changed_paths(repo) == ["apps/b/.argocd-source-b.yaml"]


@pytest.mark.parametrize(
    ("path", "revision", "rule"),
    [
        ("../..", "main", "source"),
        ("apps/none", "main", "source"),
        ("apps/a", "nowhere", "source"),
        ("apps/a", "--force", "source"),
    ],
)
def test_a_missing_path_or_branch_is_an_error(
    tmp_path: Path, path: str, revision: str, rule: str
) -> None:
    repo = bare_repo(tmp_path, files("a"))
    result = run(
        "--applications", write(tmp_path, application("a", repo, path=path, revision=revision))
    )
    assert (result.code, rules(result)) == (3, {"argocd/a": rule})


@pytest.mark.parametrize(
    "tag", ["1.10", "12345678", "1e3", "0123", "yes", "2024-01-02", "null", "1_000", "0x1f", "true"]
)
def test_a_tag_stays_a_string(tmp_path: Path, tag: str) -> None:
    repo = bare_repo(tmp_path, {**files("a"), "apps/h/Chart.yaml": "name: h\n"})
    apps = (application("a", repo, write_back_target="kustomization"), application("h", repo))
    for app in apps:
        app["metadata"]["annotations"][P + "update-strategy"] = "newest-build"
    assert run("--applications", write(tmp_path, *apps), image=f"{WEB}:{tag}").code == 0
    assert (
        yaml.safe_load(show(repo, "main", "apps/a/kustomization.yaml"))["images"][0]["newTag"]
        == tag
    )
    parameters = yaml.safe_load(show(repo, "main", "apps/h/.argocd-source-h.yaml"))["helm"][
        "parameters"
    ]
    assert {"name": "image.tag", "value": tag, "forcestring": True} in parameters


@pytest.mark.measured
@pytest.mark.slow
def test_sigterm_leaves_no_temporary_files(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    hook = repo / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nsleep 100\n")
    hook.chmod(0o755)
    manifest, scratch = write(tmp_path, application("a", repo)), tmp_path / "scratch"
    scratch.mkdir()
    args = [
        command(),
        "run",
        "--image",
        f"{WEB}:1.1.0",
        "--applications",
        str(manifest),
        "--allow-protocol",
        "file",
    ]
    args += ["--results-dir", str(tmp_path / "results")]
    process = subprocess.Popen(
        args,
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    wait_until(lambda: list(scratch.iterdir()))
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert list(scratch.iterdir()) == []
    assert (tmp_path / "results" / "status").read_text() == "failed"


def test_an_update_is_decided_again_if_the_branch_moves_during_the_push(tmp_path: Path) -> None:
    """A hook moves the branch during our first push. The second attempt decides again, based on the
    new tip.
    """
    repo = bare_repo(tmp_path, files("a"))
    hook = repo / "hooks" / "update"
    once = f"[ -e {tmp_path}/moved ] && exit 0\ntouch {tmp_path}/moved\n"
    hook.write_text(MOVES_THE_BRANCH.replace("\n", f"\n{once}", 1))
    hook.chmod(0o755)
    result = run("--applications", write(tmp_path, application("a", repo)))
    assert result.code == 0, result.stderr
    assert result.json["commits"][0]["attempts"] == 2
    assert git(repo, "log", "-2", "--format=%s", "main").splitlines()[1] == "other"


def test_a_refused_push_reports_the_message_of_the_server(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    hook = repo / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'changes need a ticket number' >&2\nexit 1\n")
    hook.chmod(0o755)
    result = run("--applications", write(tmp_path, application("a", repo)))
    assert (result.code, rules(result)) == (4, {"argocd/a": "repository"})
    assert "changes need a ticket number" in result.json["decisions"][0]["because"]


@pytest.mark.slow
def test_a_run_gives_up_on_a_contended_branch_at_the_deadline(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    hook = repo / "hooks" / "update"
    hook.write_text(MOVES_THE_BRANCH)
    hook.chmod(0o755)
    result = run("--applications", write(tmp_path, application("a", repo)), "--deadline", "0.5")
    assert (result.code, rules(result)) == (75, {"argocd/a": "contended"})


def test_only_the_tag_in_the_file_of_the_application_changes(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, files("a"))
    manifest = write(tmp_path, application("a", repo, write_back_target="kustomization"))
    text = "# mine\r\nresources: []\r\nimages:\r\n- name: ghcr.io/acme/web # why\r\n  newTag: '1.0.0'\r\n"
    commit(repo, {"apps/a/kustomization.yaml": text})
    run("--applications", manifest)
    assert show(repo, "main", "apps/a/kustomization.yaml") == text.replace("1.0.0", "1.1.0")


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_failed_run_prints_a_single_json_document(tmp_path: Path, command: str) -> None:
    result = image_update(
        command,
        "--image",
        f"{WEB}:1.1.0",
        "--applications",
        tmp_path / "nowhere",
        "--output",
        "json",
    )
    assert (result.code, json.loads(result.stdout)["status"]) == (2, "failed")


@pytest.mark.measured
def test_a_failed_run_does_not_claim_that_the_image_is_untracked() -> None:
    result = image_update("run", "--image", "web:1", "--applications", "/nowhere")
    assert (result.code, result.stdout) == (
        2,
        "image-update run: 1 error; exit code 2 (for the pipeline's author)\n",
    )


def test_an_image_that_runs_but_is_not_in_git_is_unchanged(tmp_path: Path) -> None:
    live = {"status": {"summary": {"images": [f"{WEB}:1.1.0"]}}}
    apps = write(tmp_path, {**application("a", bare_repo(tmp_path, files("a"))), **live})
    (decision,) = run("--applications", apps).json["decisions"]
    assert (decision["verdict"], decision["current"]) == ("unchanged", "1.1.0")
    assert "live" in decision["because"]


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
def test_plan_makes_the_same_decisions_as_run(tmp_path: Path, annotations: dict[str, str]) -> None:
    repo = bare_repo(tmp_path, files("a", "b"))
    apps = write(
        tmp_path,
        application("a", repo, **annotations),
        application("b", repo),
        application("gone", repo),
    )
    given = (
        "--image",
        f"{WEB}:1.1.0",
        "--applications",
        apps,
        "--allow-protocol",
        "file",
        "--output",
        "json",
    )
    planned = image_update("plan", *given)
    done = run("--applications", apps)
    assert planned.json["decisions"] == done.json["decisions"]
    assert planned.json["counts"] == done.json["counts"]
    assert [one["tree"] for one in planned.json["commits"]] == [
        one["tree"] for one in done.json["commits"]
    ]
    assert planned.code == done.code


@pytest.mark.parametrize("prefix", ["deploy.example.com", "deploy.example.com/"])
def test_the_annotation_prefix_may_end_with_a_slash(tmp_path: Path, prefix: str) -> None:
    app = application("a", bare_repo(tmp_path, files("a")))
    app["metadata"]["annotations"] = {"deploy.example.com/image-list": WEB}
    assert rules(run("--applications", write(tmp_path, app), "--annotation-prefix", prefix)) == {
        "argocd/a": "admitted"
    }
