"""The ready-made files for a required check: each event on each host, from request to exit code.

The checkouts are like those on the hosts: a single commit, without a branch or the base.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts import runners
from hosts.checks import documents, maps
from hosts.gitlab import gitlab as gitlab_job
from hosts.runners import GITHUB, fill
from hosts.steps import Ran, Volume, as_process, lay
from support import ROOT, commit, git, variants
from support.check_scenes import AGREED, EXCLUDED, HELD, STATE, Scene
from support.git_servers import git_server
from support.runs import application, target
from support.serving import certificate

GITHUB_FILE = ROOT / "examples/github/check.yml"
GITEA_FILE = ROOT / "examples/gitea/check.yml"
GITLAB_FILE = ROOT / "examples/gitlab/check.yml"


def github(scene: Scene, event: Mapping[str, Any], sha: str, name: str) -> Ran:
    """Run the workflow's step for an event."""
    (workflow,) = documents(GITHUB_FILE)
    assert name in workflow[True]
    (step,) = (one for one in maps(workflow) if "argocd-image-update/" in one.get("uses", ""))
    context = {"github.event_name == 'pull_request'": "false"}  # no API is available here
    root = scene.checkout("/github/workspace", sha)
    environ = {
        "GITHUB_EVENT_PATH": "/github/workflow/event.json",
        "GITHUB_EVENT_NAME": name,
        "GITHUB_REPOSITORY": "acme/gitops",
        "GITHUB_SHA": sha,
        **scene.own,
    }
    inputs = fill(step["with"], GITHUB, context.__getitem__)
    given = runners.github(inputs, Volume(), environ, token="a-token")
    lay(given, root)
    (root / "github/workflow/event.json").write_text(json.dumps(event))
    return as_process(given, root)


def pull_request(scene: Scene, head: str, base: str = "main") -> Ran:
    event = {"pull_request": {"base": {"ref": base}, "head": {"sha": head}}}
    return github(scene, event, scene.merge(head, base), "pull_request")


def merge_group(scene: Scene, head: str, base: str = "main") -> Ran:
    """Run on a merge queue commit, which is on top of earlier changes and on no visible branch."""
    group = {
        "base_sha": git(scene.repo, "rev-parse", base),
        "base_ref": "refs/heads/main",
        "head_sha": head,
    }
    return github(scene, {"merge_group": group}, head, "merge_group")


def gitlab(scene: Scene, head: str, **variables: str) -> Ran:
    (pipeline,) = documents(GITLAB_FILE)
    (used,) = (one["inputs"] for one in pipeline["include"])
    own = pipeline[used["job-name"]]
    assert own["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "merge_request_event"'}]
    sha = variables.get("CI_COMMIT_SHA", head)
    root = scene.checkout("/builds/acme/web", sha)
    project = {
        "CI_COMMIT_SHA": head,
        "CI_JOB_TOKEN": "a-token",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        **scene.own,
        **variables,
        **own["variables"],
    }
    step = gitlab_job(used, Volume(), project, script=own["script"])
    ran = as_process(step, root)
    report = json.loads((root / "builds/acme/web/code-quality.json").read_text())
    said = "".join(f"{one['severity']} {one['location']['path']}" for one in report)
    return ran._replace(stdout=f"{ran.stdout}{said}")


def detached(scene: Scene, head: str) -> Ran:
    return gitlab(scene, head, CI_MERGE_REQUEST_EVENT_TYPE="detached")


def merged_result(scene: Scene, head: str) -> Ran:
    return gitlab(
        scene,
        head,
        CI_MERGE_REQUEST_EVENT_TYPE="merged_result",
        CI_MERGE_REQUEST_SOURCE_BRANCH_SHA=head,
        CI_COMMIT_SHA=scene.merge(head),
    )


def merge_train(scene: Scene, head: str, base: str = "main") -> Ran:
    return gitlab(
        scene,
        head,
        CI_MERGE_REQUEST_EVENT_TYPE="merge_train",
        CI_MERGE_REQUEST_TARGET_BRANCH_SHA=git(scene.repo, "rev-parse", base),
        CI_COMMIT_SHA=scene.merge(head, base),
    )


def gitea(scene: Scene, head: str) -> Ran:
    """Run like Gitea's runner, with GitHub's variables, and the head commit as the SHA."""
    (workflow,) = documents(GITEA_FILE)
    (step,) = (one for one in maps(workflow) if "docker://" in one.get("uses", ""))
    root = scene.checkout("/github/workspace", head)
    event = {"pull_request": {"base": {"ref": "main"}, "head": {"sha": head}}}
    environ = {
        **{name: text for name, text in step["env"].items() if "${{" not in text},
        "IMAGE_UPDATE_COMMENT": "false",  # no API is available here
        "GITHUB_EVENT_PATH": "/github/workflow/event.json",
        "GITHUB_REPOSITORY": "acme/gitops",
        "GITHUB_SHA": head,
        **scene.own,
    }
    words = {"command": step["with"]["args"]}
    given = runners.github(words, Volume(), environ, token="a-token")
    lay(given, root)
    (root / "github/workflow/event.json").write_text(json.dumps(event))
    return as_process(given, root)


HOSTS: dict[str, Callable[[Scene, str], Ran]] = {
    "github": pull_request, "merge queue": merge_group, "gitlab": detached, "merged result": merged_result,
    "merge train": merge_train, "gitea": gitea,
}  # fmt: skip
FEW = ("github", "gitlab")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("IMAGE_UPDATE_ALLOW_PROTOCOL", "file")  # set for the whole pipeline
    monkeypatch.setenv("IMAGE_UPDATE_REGISTRY_CHECK", "never")
    return Scene(tmp_path)


def ended(ran: Ran) -> tuple[int, str, str]:
    return ran.code, ran.results["status"], ran.results["updated"]


@pytest.mark.parametrize(
    "host", variants(FEW, at_night=[host for host in HOSTS if host not in FEW])
)
def test_an_admitted_version_passes_the_check(scene: Scene, host: str) -> None:
    ran = HOSTS[host](scene, scene.change(AGREED))
    assert ended(ran) == (0, "updated", "false"), ran.stderr
    assert target("web") in ran.stdout


@pytest.mark.parametrize(
    "host", variants(FEW, at_night=[host for host in HOSTS if host not in FEW])
)
def test_an_excluded_version_fails_the_check_on_its_line(scene: Scene, host: str) -> None:
    ran = HOSTS[host](scene, scene.change(EXCLUDED))
    assert ended(ran) == (5, "refused", "false"), ran.stderr
    said = "2.0.0 does not satisfy ^1"
    assert said in ran.results["message"]
    if "git" in host and host != "gitlab":
        assert re.search(
            rf"^::error file={target('web')},line=\d+,title=argocd/web::.*{re.escape(said)}",
            ran.stderr,
            re.MULTILINE,
        )
    if host == "gitlab":
        assert f"major {target('web')}" in ran.stdout


@pytest.mark.parametrize(
    "host", variants(FEW, at_night=[host for host in HOSTS if host not in FEW])
)
def test_a_hold_added_to_the_base_later_fails_the_check(scene: Scene, host: str) -> None:
    head = scene.change(AGREED)
    commit(scene.repo, {STATE: HELD}, "main")
    if host == "merge queue":
        head = scene.change(AGREED)
    ran = HOSTS[host](scene, head)
    assert ended(ran) == (5, "refused", "false"), ran.stderr
    assert "INC-1" in ran.results["message"]


@pytest.mark.parametrize(("host", "queue"), [("queue", merge_group), ("train", merge_train)])
def test_a_hold_in_an_earlier_queued_change_fails_the_check(
    scene: Scene, host: str, queue: Callable[[Scene, str, str], Ran]
) -> None:
    """An earlier request in the queue holds the image, but is not merged yet."""
    git(scene.repo, "branch", "queued", "main")
    commit(scene.repo, {STATE: HELD}, "queued")
    head = scene.change(AGREED, start="queued")
    ran = queue(scene, head, "queued")
    assert ended(ran) == (5, "refused", "false"), (host, ran.stderr)
    assert (merge_train if host == "train" else merge_group)(
        scene, scene.change(AGREED), "main"
    ).code == 0


def test_a_merge_queue_for_another_branch_is_checked_against_that_branch(scene: Scene) -> None:
    git(scene.repo, "branch", "release", "main")
    app = application("web", scene.url, image_list="web=ghcr.io/acme/web:^1")
    app["spec"]["source"]["targetRevision"] = "release"
    commit(scene.repo, {"applications/web.yaml": yaml.safe_dump(app)}, "release")
    head = scene.change(EXCLUDED, start="release")
    group = {
        "base_sha": git(scene.repo, "rev-parse", "release"),
        "base_ref": "refs/heads/release",
        "head_sha": head,
    }
    ran = github(scene, {"merge_group": group}, head, "merge_group")
    assert ended(ran) == (5, "refused", "false"), ran.stderr


@pytest.mark.parametrize(
    ("host", "version"),
    variants(
        [("github", AGREED), ("gitlab", EXCLUDED), ("merge train", EXCLUDED)],
        at_night=[(host, version) for host in HOSTS for version in (AGREED, EXCLUDED)],
    ),
)
def test_the_check_writes_nothing_to_the_repository(scene: Scene, host: str, version: str) -> None:
    head = scene.change(version)
    HOSTS[host](scene, head)  # here, the host creates its own merge commit
    before = [git(scene.repo, "for-each-ref"), git(scene.repo, "count-objects", "-v")]
    HOSTS[host](scene, head)
    after = [git(scene.repo, "for-each-ref"), git(scene.repo, "count-objects", "-v")]
    assert before == after


@pytest.mark.parametrize(
    "host", variants(FEW, at_night=[host for host in HOSTS if host not in FEW])
)
def test_a_change_without_tracked_versions_passes_the_check(scene: Scene, host: str) -> None:
    git(scene.repo, "branch", "change", "main")
    ran = HOSTS[host](scene, commit(scene.repo, {"docs/x.md": "x"}, "change"))
    assert ended(ran) == (0, "unchanged", "false"), ran.stderr


def tekton(scene: Scene, head: str) -> Ran:
    """Run on a host without its own variables: base and head are parameters, and there is no
    checkout.
    """
    given = {
        "command": "check",
        "base": "main",
        "head": head,
        "options": [f"--repository={scene.url}"],
        "applications": f"{scene.url}//applications?ref=main",
    }
    step = runners.tekton(given)
    return as_process(step, scene.folder / f"tekton-{head[:7]}")


def argo(scene: Scene, head: str) -> Ran:
    given = {
        "command": "check",
        "base": "main",
        "head": head,
        "options": f"--repository={scene.url}",
        "applications": f"{scene.url}//applications?ref=main",
    }
    return as_process(runners.argo(given, template="update"), scene.folder / f"argo-{head[:7]}")


@pytest.mark.parametrize("host", [tekton, argo])
def test_tekton_and_argo_pipelines_name_both_commits_explicitly(
    scene: Scene, host: Callable[[Scene, str], Ran]
) -> None:
    assert ended(host(scene, scene.change(AGREED))) == (0, "updated", "false")
    ran = host(scene, scene.change(EXCLUDED))
    assert ended(ran) == (5, "refused", "false"), ran.stderr
    assert host(scene, "").code == 2


@pytest.mark.parametrize("host", ["github", "gitlab", "gitea"])
def test_the_job_token_fetches_commits_missing_from_the_checkout(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repository is private, and the checkout did not keep its credentials."""
    served = certificate(tmp_path)
    monkeypatch.setenv("IMAGE_UPDATE_CA_FILE", str(served[0]))
    with git_server(tmp_path, served) as server:
        scene = Scene(tmp_path, f"{server.url}gitops.git")
        users = {"github": "x-access-token", "gitlab": "gitlab-ci-token", "gitea": "x-access-token"}
        server.logins = {users[host]: "a-token"}
        scene.own = {"GITHUB_SERVER_URL": server.url, "CI_SERVER_URL": server.url}
        ran = HOSTS[host](scene, scene.change(EXCLUDED))
        assert ended(ran) == (5, "refused", "false"), ran.stderr
        assert {user for _, user in server.seen if user} == {users[host]}
        assert "a-token" not in re.sub("::add-mask::.*", "", ran.stdout + ran.stderr)


def test_a_push_job_fails_without_a_base(scene: Scene) -> None:
    head = scene.change(EXCLUDED)
    ran = github(scene, {"ref": "refs/heads/change"}, head, "pull_request")
    assert (ran.code, ran.results["status"]) == (2, "failed")
    assert "--base" in ran.stderr or "base" in ran.results["message"]


def test_a_pull_request_from_a_fork_fails_if_a_secret_is_missing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry needs credentials that a fork's request does not receive, or is unreachable from
    it.
    """
    monkeypatch.setenv("IMAGE_UPDATE_REGISTRY_CHECK", "always")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    ran = pull_request(scene, scene.change(AGREED))
    assert (ran.code in (4, 75), ran.results["status"]) == (True, "failed"), ran.stderr
