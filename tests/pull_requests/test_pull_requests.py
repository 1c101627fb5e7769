"""Pull requests opened by the command: when, with which content, and what happens to waiting
updates.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.forge_server import Request
from fakes.github_api import GitHub
from support import commit, git, show
from support.request_scenes import API, Scene, url_of, verdict
from support.runs import PREFIX, WEB, application, manifest, target

STATE = ".image-update/apps/a/argocd_a.state"


@pytest.mark.parametrize(
    ("annotation", "flag", "wanted"),
    [
        ("", False, False),
        ("", True, True),
        ("true", False, True),
        ("true", True, True),
        ("false", True, False),
    ],
)
def test_the_annotation_and_the_option_decide_whether_to_open_a_pull_request(
    annotation: str, flag: bool, wanted: bool, server: GitHub, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"pull_request": annotation} if annotation else {}
    scene = Scene(tmp_path, server, **given)
    scene.flags = ("--pull-request",) if flag else ()
    report = scene.event(f"{WEB}:1.1.0")
    assert verdict(report) == ("update", "admitted")
    assert bool(url_of(report) != "None") is bool(server.open) is wanted
    assert ("newTag: 1.1.0" in scene.text("main")) is not wanted


def test_updates_proposed_by_another_argo_cd_are_kept(server: GitHub, tmp_path: Path) -> None:
    scene = Scene(tmp_path, server, names=("a", "b"))
    staging, production = (
        application(name, scene.url, image_list=f"web={WEB}") for name in ("a", "b")
    )
    production["metadata"]["name"] = "a"
    for app, tag in ((staging, "1.1.0"), (production, "1.2.0"), (staging, "1.3.0")):
        scene.apps = manifest(tmp_path, app)
        assert verdict(scene.event(f"{WEB}:{tag}")) == ("update", "admitted")
    (pull,) = server.open  # one pull request for the image
    assert "newTag: 1.3.0" in show(scene.repo, pull.head, target("a"))
    assert "newTag: 1.2.0" in show(scene.repo, pull.head, target("b"))


def test_updates_carried_over_are_listed_and_can_be_declined(
    server: GitHub, tmp_path: Path
) -> None:
    """Each run reads only one of two Applications that share a pull request."""
    scene = Scene(tmp_path, server, names=("a", "b"), group="repository")
    apps = {
        name: application(name, scene.url, image_list=f"{alias}={image}")
        for name, alias, image in (("a", "web", WEB), ("b", "api", API))
    }
    reports = []
    for name, image in (("a", WEB), ("b", API)):
        scene.apps = manifest(tmp_path, apps[name])
        reports.append(scene.event(f"{image}:1.1.0"))
    (row,) = reports[1]["waiting"]
    assert {key: row[key] for key in ("application", "alias", "tag", "outcome")} == {
        "application": "argocd/a", "alias": "web", "tag": "1.1.0", "outcome": "waits",
    }  # fmt: skip
    (pull,) = server.open
    assert row["pull_request"] == url_of(reports[1])
    assert all(
        f"| `argocd/{name}` | `{image}` |" in pull.body for name, image in (("a", WEB), ("b", API))
    )
    assert f"Image: {WEB}:1.1.0\n" in git(scene.repo, "log", "-1", "--format=%B", scene.head)
    assert verdict(scene.event(f"{API}:1.1.0")) == ("unchanged", "same")
    held = scene.call("hold", "b", "--image", "api", "--reason", "freeze")
    assert held.code == 0, held.stderr
    (pull,) = server.open
    assert (f"| `{API}` |" in pull.body, f"| `{WEB}` |" in pull.body) == (False, True)
    scene.decline()
    scene.apps = manifest(tmp_path, apps["a"])
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("refuse", "superseded")


def test_an_image_updater_resource_can_request_a_pull_request(
    server: GitHub, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, server)
    scene.flags = ()
    app = application("a", scene.url)
    app["metadata"]["annotations"] = {}
    resource = {
        "apiVersion": "argocd-image-updater.argoproj.io/v1alpha1",
        "kind": "ImageUpdater",
        "metadata": {"name": "images", "namespace": "argocd"},
        "spec": {
            "namespace": "argocd",
            "writeBackConfig": {
                "method": "git",
                "gitConfig": {
                    "branch": "main",
                    "writeBackTarget": "kustomization",
                    "pullRequest": {"github": {}},
                },
            },
            "applicationRefs": [
                {"namePattern": "a", "images": [{"alias": "web", "imageName": f"{WEB}:~1"}]}
            ],
        },
    }
    scene.apps = manifest(tmp_path, app, resource)
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("update", "admitted")
    assert [pull.base for pull in server.open] == ["main"]
    assert "newTag: 1.0.0" in scene.text("main")


def test_the_head_branch_can_be_named_by_an_annotation(server: GitHub, tmp_path: Path) -> None:
    scene = Scene(tmp_path, server, git_branch="main:updates/{{.AppName}}")
    scene.event(f"{WEB}:1.1.0")
    scene.event(f"{WEB}:1.2.0")
    assert [(pull.base, pull.head) for pull in server.pulls] == [("main", "updates/a")]
    assert "newTag: 1.2.0" in scene.text("updates/a")


def test_a_head_branch_name_of_64_hexadecimal_digits_works(server: GitHub, tmp_path: Path) -> None:
    """The template is Image Updater's own example. Each version has a separate request."""
    scene = Scene(tmp_path, server, git_branch="main:{{.SHA256}}")
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("update", "admitted")
    (pull,) = server.open
    assert len(pull.head) == 64
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("unchanged", "same")
    scene.event(f"{WEB}:1.2.0")
    assert [len(one.head) for one in server.open] == [64, 64]


def test_a_head_branch_with_the_same_name_as_its_base_is_an_error(
    server: GitHub, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, server, git_branch="main:main")
    report = scene.event(f"{WEB}:1.1.0", code=3)
    assert verdict(report) == ("error", "annotation")
    assert server.seen == []
    assert "newTag: 1.0.0" in scene.text("main")


def test_labels_reviewers_assignees_and_draft_are_set(scene: Scene, server: GitHub) -> None:
    more = (
        "--pull-request-label",
        "deploy",
        "--pull-request-reviewer",
        "ann",
        "--pull-request-assignee",
        "bob",
    )
    result = scene.call("run", "--image", f"{WEB}:1.1.0", *more, "--pull-request-draft")
    assert result.code == 0
    (pull,) = server.open
    assert (pull.labels, pull.reviewers, server.assigned[1], pull.draft) == (
        ["deploy"],
        ["ann"],
        ["bob"],
        True,
    )


def test_labels_from_an_image_updater_resource_and_the_command_line_are_combined(
    scene: Scene, server: GitHub
) -> None:
    """An ImageUpdater sets labels for its own Applications."""
    request = {"github": {}, "labels": ["team-a", "deploy"]}
    resource = {
        "apiVersion": "argocd-image-updater.argoproj.io/v1alpha1",
        "kind": "ImageUpdater",
        "metadata": {"name": "all", "namespace": "argocd"},
        "spec": {
            "writeBackConfig": {
                "gitConfig": {"writeBackTarget": "kustomization", "pullRequest": request}
            },
            "applicationRefs": [
                {"namePattern": "a", "images": [{"alias": "web", "imageName": WEB}]}
            ],
        },
    }
    scene.apps = manifest(scene.folder, application("a", scene.url), resource)
    scene.flags = ("--pull-request-label", "deploy", "--pull-request-label", "ci")
    scene.event(f"{WEB}:1.1.0")
    assert server.pulls[0].labels == ["deploy", "ci", "team-a"]


def test_labels_and_user_names_may_contain_spaces(scene: Scene, server: GitHub) -> None:
    """On the command line, each value is one name. In a variable, each line is one name."""
    server.people["Ann Smith"] = ""
    more = ("--pull-request-label", "needs review", "--pull-request-reviewer", "Ann Smith")
    scene.call(
        "run",
        "--image",
        f"{WEB}:1.1.0",
        *more,
        env={"IMAGE_UPDATE_PULL_REQUEST_ASSIGNEE": "ann\nAnn Smith"},
    )
    (pull,) = server.open
    assert (pull.labels, pull.reviewers, server.assigned[1]) == (
        ["needs review"],
        ["Ann Smith"],
        ["ann", "Ann Smith"],
    )


def test_the_pull_request_describes_the_change_and_its_source(scene: Scene, server: GitHub) -> None:
    commit_id = "c" * 40
    source = ("--source-commit", commit_id, "--source-repository", "https://github.com/acme/web")
    scene.event(f"{WEB}:1.1.0", *source, "--pipeline-run", "https://ci.example.com/runs/7")
    (pull,) = server.open
    assert pull.title == "a: ghcr.io/acme/web 1.0.0 → 1.1.0"
    assert "| `argocd/a` | `ghcr.io/acme/web` | `1.0.0` → `1.1.0` |" in pull.body
    assert f"https://github.com/acme/web/commit/{commit_id}" in pull.body
    assert "https://ci.example.com/runs/7" in pull.body
    assert f"{server.url}/acme/deploy/compare/main...{scene.head}" in pull.body


def test_a_custom_template_sets_the_title_and_the_body(
    scene: Scene, server: GitHub, tmp_path: Path
) -> None:
    template = tmp_path / "template"
    template.write_text(
        "Deploy {{.AppName}}: {{range .AppChanges}}{{.NewTag}}{{end}}\n\nAsk @ops before you merge.\n"
    )
    scene.event(f"{WEB}:1.1.0", "--commit-message-template", str(template))
    scene.event(f"{WEB}:1.2.0", "--commit-message-template", str(template))
    (pull,) = server.open
    assert pull.title == "Deploy a: 1.2.0"
    assert "before you merge" in pull.body


@pytest.mark.measured
def test_results_and_the_summary_name_the_pull_request(scene: Scene, tmp_path: Path) -> None:
    summary, results = tmp_path / "summary.md", tmp_path / "results"
    results.mkdir()
    given = ("run", "--image", f"{WEB}:1.1.0", "--results-dir", str(results))

    def said() -> tuple[str, ...]:
        names = ("status", "updated", "pull-request", "commit", "branch")
        return tuple((results / name).read_text() for name in names)

    url = "https://github.example.com/acme/deploy/pull/1"
    scene.call(*given, env={"GITHUB_STEP_SUMMARY": str(summary)})
    tip = git(scene.repo, "rev-parse", scene.head)
    assert said() == ("updated", "true", url, tip, scene.head)
    assert f"- request [`pull/1`]({url})\n" in summary.read_text()
    scene.call(*given)
    assert said() == ("unchanged", "false", url, tip, scene.head)


def test_an_update_for_another_image_is_added_to_the_same_pull_request(
    scene: Scene, server: GitHub
) -> None:
    scene.event(f"{WEB}:1.1.0")
    assert verdict(scene.event(f"{API}:2.0.0")) == ("update", "admitted")
    (pull,) = server.pulls
    assert all(words in pull.body for words in ("`1.1.0`", "`2.0.0`"))
    assert all(words in scene.text() for words in ("newTag: 1.1.0", "newTag: 2.0.0"))
    assert scene.on_top() == 1
    tips = scene.tips()
    for image in (f"{WEB}:1.1.0", f"{API}:2.0.0"):
        assert verdict(scene.event(image)) == ("unchanged", "same")
    assert scene.tips() == tips


def test_several_applications_share_one_pull_request(server: GitHub, tmp_path: Path) -> None:
    scene = Scene(tmp_path, server, names=("a", "b", "c"))
    report = scene.event(f"{WEB}:1.1.0")
    assert [one["verdict"] for one in report["decisions"]] == ["update"] * 3
    (pull,) = server.open
    assert all(f"`argocd/{name}`" in pull.body for name in "abc")
    assert scene.head.startswith("image-update/web-")


@pytest.mark.parametrize(
    "other", ["ssh://git@git.example.com:22/acme/deploy", "git@git.example.com:/acme/deploy.git"]
)
def test_two_spellings_of_a_repository_share_one_pull_request(
    server: GitHub, tmp_path: Path, other: str
) -> None:
    scene = Scene(tmp_path, server, names=("a", "b"))
    scene.apps = manifest(
        tmp_path, application("a", "git@git.example.com:acme/deploy.git"), application("b", other)
    )
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nfor last; do :; done\nexec ${{last%% *}} {scene.repo}\n")
    ssh.chmod(0o755)
    scene.env |= {"GIT_SSH_COMMAND": str(ssh), "GIT_SSH_VARIANT": "ssh"}
    report = scene.event(f"{WEB}:1.1.0")
    assert [one["verdict"] for one in report["decisions"]] == ["update"] * 2
    (pull,) = server.pulls
    assert pull.head.startswith("image-update/web-")


def test_updates_in_a_closed_pull_request_are_not_carried_over(
    scene: Scene, server: GitHub
) -> None:
    scene.event(f"{WEB}:1.1.0")
    scene.decline()
    assert verdict(scene.event(f"{API}:2.0.0")) == ("update", "admitted")
    (pull,) = server.open
    assert pull.number == 2
    assert "1.1.0" not in scene.text() + pull.body
    assert "newTag: 2.0.0" in scene.text()


def test_no_part_of_a_closed_pull_request_is_proposed_again(scene: Scene, server: GitHub) -> None:
    scene.event(f"{WEB}:1.1.0")
    scene.event(f"{API}:2.0.0")
    scene.decline()
    for image in (f"{WEB}:1.1.0", f"{API}:2.0.0"):
        assert verdict(scene.event(image)) == ("refuse", "superseded")
    assert server.open == []
    report = scene.event(f"{WEB}:1.1.0,{API}:2.1.0")
    assert sorted(one["verdict"] for one in report["decisions"]) == ["refuse", "update"]
    (pull,) = server.open
    assert "`2.1.0`" in pull.body
    assert "1.1.0" not in pull.body


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("strategy", ["semver", "newest-build"])
def test_a_build_older_than_a_closed_update_is_refused(
    server: GitHub, strategy: str, delete: bool, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, server, update_strategy=strategy)
    scene.event(f"{WEB}:1.2.0", "--sequence", "2")
    scene.decline()
    if delete:
        scene.delete()
    assert verdict(scene.event(f"{WEB}:1.1.0", "--sequence", "1")) == ("refuse", "superseded")
    assert server.open == []
    assert verdict(scene.event(f"{WEB}:1.3.0", "--sequence", "3")) == ("update", "admitted")
    assert len(server.open) == 1


def test_a_closed_update_stays_closed_next_to_other_pull_requests(
    scene: Scene, server: GitHub
) -> None:
    """The closed update is remembered, whatever the newest request proposes and however it ends."""
    scene.event(f"{WEB}:1.2.0")
    scene.decline()
    scene.delete()
    scene.event(f"{API}:2.0.0")
    for image in (f"{WEB}:1.2.0", f"{WEB}:1.1.0"):
        assert verdict(scene.event(image)) == ("refuse", "superseded")
    assert "1.2.0" not in server.open[0].body
    scene.merge(delete=True)
    assert verdict(scene.event(f"{WEB}:1.2.0")) == ("refuse", "superseded")
    assert server.open == []
    assert verdict(scene.event(f"{WEB}:1.3.0")) == ("update", "admitted")


def test_a_closed_update_stays_closed_after_its_branch_is_deleted(
    scene: Scene, server: GitHub
) -> None:
    scene.event(f"{WEB}:1.1.0")
    scene.decline()
    scene.delete()
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("refuse", "superseded")
    assert verdict(scene.event(f"{WEB}:1.2.0")) == ("update", "admitted")
    assert len(server.open) == 1


@pytest.mark.parametrize("delete", [False, True])
def test_the_next_pull_request_starts_from_the_new_base(
    scene: Scene, server: GitHub, delete: bool
) -> None:
    scene.event(f"{WEB}:1.1.0")
    scene.merge(delete=delete)
    scene.person()
    assert verdict(scene.event(f"{API}:2.0.0")) == ("update", "admitted")
    assert all(
        words in scene.text() for words in ("newTag: 1.1.0", "newTag: 2.0.0", "namePrefix: x-")
    )
    assert (len(server.open), scene.on_top()) == (1, 1)
    assert "1.1.0" not in server.open[0].body


def test_a_merge_just_before_the_push_leads_to_a_new_pull_request(
    scene: Scene, server: GitHub
) -> None:
    """To avoid a conflict with the merge, the rest is decided and proposed on the new tip."""
    scene.event(f"{WEB}:1.1.0")
    first = server.branches[scene.head]

    def merge(request: Request) -> None:
        if request.method == "PATCH" and server.pulls[0].state == "open":
            git(scene.repo, "update-ref", "refs/heads/main", first)
            server.merge("1")

    server.before = merge
    assert verdict(scene.event(f"{WEB}:1.2.0")) == ("update", "admitted")
    (pull,) = server.open
    assert pull.number == 2
    assert "| `1.1.0` → `1.2.0` |" in pull.body
    assert (scene.on_top(), git(scene.repo, "rev-parse", f"{scene.head}^")) == (1, first)


def test_a_repeated_event_resolves_a_merge_conflict(scene: Scene, server: GitHub) -> None:
    scene.event(f"{WEB}:1.1.0")
    commit(scene.repo, {target("a"): scene.text("main").replace("1.0.0", "1.0.5")})
    server.conflicts = True
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("update", "admitted")
    assert scene.on_top() == 1
    assert git(scene.repo, "merge-base", "main", scene.head) == git(scene.repo, "rev-parse", "main")
    assert len(server.pulls) == 1


def test_an_older_build_changes_nothing_even_if_the_base_has_moved(
    scene: Scene, server: GitHub
) -> None:
    scene.event(f"{WEB}:1.2.0")
    scene.person()
    tips, body = scene.tips(), server.pulls[0].body
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("refuse", "superseded")
    assert (scene.tips(), server.pulls[0].body) == (tips, body)


def test_commits_that_a_person_pushed_to_the_head_branch_are_kept(
    scene: Scene, server: GitHub
) -> None:
    scene.event(f"{WEB}:1.1.0")
    theirs = commit(scene.repo, {"README.md": "mine\n"}, scene.head)
    assert verdict(scene.event(f"{WEB}:1.1.0"))[0] == "unchanged"
    assert server.branches[scene.head] == theirs
    assert verdict(scene.event(f"{WEB}:1.2.0")) == ("update", "admitted")
    assert git(scene.repo, "rev-parse", f"{scene.head}^") == theirs
    assert "newTag: 1.2.0" in scene.text()
    assert server.branches[scene.head] in server.open[0].body


def test_a_pull_request_on_top_of_a_persons_commit_lists_all_changes(
    scene: Scene, server: GitHub
) -> None:
    scene.event(f"{WEB}:1.1.0")
    commit(scene.repo, {"README.md": "mine\n"}, scene.head)
    scene.event(f"{API}:2.0.0")
    (request,) = server.open
    assert request.title == "a: api 2.0.0, web 1.1.0"
    for row in (f"| `{WEB}` | `1.0.0` → `1.1.0` |", f"| `{API}` |"):
        assert request.body.count(row) == 1
    assert "rollback argocd/a --alias web --to 1.0.0\n" in request.body
    body = request.body
    (decision,) = scene.event(f"{WEB}:1.1.0")["decisions"]
    assert (decision["verdict"], decision["current"]) == ("unchanged", "1.0.0")
    assert (request.title, request.body) == ("a: api 2.0.0, web 1.1.0", body)


@pytest.mark.measured
@pytest.mark.parametrize("after_a_closed_one", [False, True])
def test_an_update_is_carried_over_after_the_forge_was_down(
    scene: Scene, server: GitHub, after_a_closed_one: bool
) -> None:
    """The forge went down after the push. The next event for another image includes the update."""
    if after_a_closed_one:
        scene.event(f"{WEB}:1.1.0")
        scene.decline()
    server.fail(server.refusal("down"), "POST", times=9)
    scene.event(f"{WEB}:1.2.0", code=75)
    server.faults.clear()
    scene.event(f"{API}:2.0.0")
    (pull,) = server.open
    assert all(words in pull.body for words in ("`1.2.0`", "`2.0.0`"))


def test_one_event_can_push_one_application_and_propose_another(
    server: GitHub, tmp_path: Path
) -> None:
    """One of two Applications needs a request. The commit pushed for the other does not affect
    that.
    """
    scene = Scene(tmp_path, server, names=("a", "b"))
    scene.flags = ()
    apps = json.loads(scene.apps.read_text())
    apps["items"][0]["metadata"]["annotations"][f"{PREFIX}pull-request"] = "true"
    scene.apps.write_text(json.dumps(apps))
    report = scene.event(f"{WEB}:1.1.0")
    assert [one["head"] for one in report["commits"]] == [scene.head, "main"]
    assert ("newTag: 1.0.0" in scene.text("main"), "newTag: 1.1.0" in scene.text("main", "b")) == (
        True,
        True,
    )
    assert [pull.head for pull in server.open] == [scene.head]
