"""A run that does nothing because of a mistake never appears successful: typos in annotations,
images, names, variables, and URLs.
"""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import Result, bare_repo, commit, git, image_update, show
from support.runs import (
    WEB,
    application,
    arguments,
    manifest,
    repository,
    run,
    target,
)

from task.schemas import load

P = "argocd-image-updater.argoproj.io/"


def annotated(name: str, repo: Path, **annotations: str) -> dict[str, Any]:
    """An Application with these annotation keys, in which `__` stands for a dot."""
    made = application(name, repo)
    made["metadata"]["annotations"] |= {
        P + key.replace("__", "."): value for key, value in annotations.items()
    }
    return made


def messages(result: Result, severity: str = "warning") -> list[str]:
    return [one["message"] for one in result.json["errors"] if one["severity"] == severity]


def test_a_misspelt_rule_admits_no_tag(tmp_path: Path) -> None:
    repo = repository(tmp_path, "strict", "loose")
    strict = annotated("strict", repo, **{"web.allow_tag": "regexp:^2[.]"})
    result = run("--applications", manifest(tmp_path, strict, application("loose", repo)))
    assert {
        one["application"]: (one["verdict"], one["rule"]) for one in result.json["decisions"]
    } == {
        "argocd/strict": ("error", "annotation"),
        "argocd/loose": ("update", "admitted"),
    }
    assert result.code == 3
    assert "rename it to web.allow-tags" in result.stderr
    assert "newTag: 1.0.0" in show(repo, "main", target("strict"))
    assert "newTag: 1.1.0" in show(repo, "main", target("loose"))
    assert len(result.json["errors"]) == 1  # the mistake is reported once


@pytest.mark.parametrize("command", ["run", "plan", "scan", "hold", "status", "lint"])
def test_a_constraint_split_by_a_comma_is_an_error_in_every_command(
    tmp_path: Path, command: str
) -> None:
    repo = repository(tmp_path, "web")
    apps = manifest(tmp_path, application("web", repo, image_list=f"web={WEB}:>=1.0,<2"))
    more = {"hold": ["web", "--reason", "x"], "scan": ["--registry-check", "auto"]}.get(command, [])
    more += ["--image", f"{WEB}:2.5.0"] if command in ("run", "plan") else []
    more += [] if command == "lint" else ["--allow-protocol", "file"]
    result = image_update(command, *more, "--applications", apps, "--output", "json")
    assert result.code == 3
    assert "'<2' follows a comma" in result.stdout
    assert git(repo, "rev-list", "--count", "main") == "1"


@pytest.mark.parametrize("command", ["run", "plan", "lint"])
def test_annotations_cannot_write_to_the_config_of_image_update(
    tmp_path: Path, command: str
) -> None:
    config = (
        "version: 1\nfreezes:\n- {schedule: 0 0 1 1 *, duration: 1h, match: {paths: ['apps/**']}}\n"
    )
    repo = bare_repo(tmp_path, {target("web"): "resources: []\n", ".image-update/config": config})
    where = {
        "write_back_target": "helmvalues:/.image-update/config",
        "web.helm.image_tag": "freezes[0].match.paths[0]",
    }
    args = arguments(manifest(tmp_path, application("web", repo, **where)))
    args = ["--applications", args[4], "--output", "json"] if command == "lint" else args[1:]
    result = image_update(command, *args)
    assert result.code == 3
    assert (
        "annotations cannot write Image Update's own files: '.image-update/config'" in result.stdout
    )
    if command != "lint":
        assert [one["rule"] for one in result.json["decisions"]] == ["not-permitted"]
    assert git(repo, "rev-list", "--count", "main") == "1"


@pytest.mark.parametrize("kind", ["Application", "List", "ApplicationSet"])
def test_rules_from_a_yaml_merge_key_apply(tmp_path: Path, kind: str) -> None:
    """kubectl and Argo CD resolve merge keys, so such a rule is in the cluster."""
    repo = repository(tmp_path, "web")
    made = application("web", repo)
    made["metadata"]["annotations"] = {"MERGED": "MERGED"}
    rules = f"rules: &rules\n  {P}image-list: web={WEB}\n  {P}allow-tags: regexp:^1\n  {P}platforms: linux/amd64\n"
    if kind == "List":
        made = {"kind": "List", "apiVersion": "v1", "items": [made]}
    if kind == "ApplicationSet":
        template = {"metadata": made["metadata"], "spec": made["spec"]}
        spec = {"generators": [{"list": {"elements": [{}]}}], "template": template}
        made = {
            **made,
            "kind": kind,
            "metadata": {"name": "set", "namespace": "argocd"},
            "spec": spec,
        }
    text = rules + "".join(f"{key}: {json.dumps(value)}\n" for key, value in made.items())
    apps = tmp_path / "apps.yaml"
    apps.write_text(
        text.replace('"MERGED": "MERGED"', f"<<: *rules, {P}write-back-target: kustomization")
    )
    result = run("--applications", apps, image=f"{WEB}:9.9.9")
    assert [(one["verdict"], one["rule"]) for one in result.json["decisions"]] == [
        ("refuse", "allow-tags")
    ]
    apps.write_text(apps.read_text().replace("linux/amd64", "LINUX/amd64"))
    listed = image_update("lint", str(apps), "--output", "json")
    assert [(one["key"], one["line"]) for one in listed.json["findings"]] == [
        ("platforms", 4),
        ("platforms", 4),
    ]


def test_annotations_without_effect_are_warnings(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web")
    takes = annotated(
        "web", repo, colour="blue", **{"git-credentials": "secret:a/b", "old.allow-tags": "any"}
    )
    listless = annotated("listless", repo, **{"image-list": "", "image-lst": f"web={WEB}"})
    others = [
        annotated(f"o{n}", repo, **{"image-list": "api=acme/api", "allow-tag": "any"})
        for n in range(7)
    ]
    apps = manifest(tmp_path, takes, listless, *others)
    for command in ("plan", "run"):
        args = arguments(apps)
        result = image_update(command, *args[1:])
        assert (result.code, result.json["status"]) == (0, "updated")
        found = messages(result)
        assert len(found) == 5
        assert "unknown annotation 'colour'" in found[0]
        assert found[3] == "unknown annotation 'image-lst'"
        assert found[4] == (
            "7 other Applications have annotations that have no effect: argocd/o0 (allow-tag), argocd/o1 (allow-tag), "
            "argocd/o2 (allow-tag), argocd/o3 (allow-tag), argocd/o4 (allow-tag) and 2 more"
        )
        assert all(message in result.stderr for message in found)


def test_an_untracked_image_is_reported_in_every_output_of_the_ci_host(tmp_path: Path) -> None:
    apps = manifest(tmp_path, application("web", repository(tmp_path, "web")))
    summary = tmp_path / "summary.md"
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    result = run("--applications", apps, image="ghcr.io/acme/wbe:1.1.0", env=env)
    assert (result.code, result.json["status"], result.json["decisions"]) == (0, "unchanged", [])
    what, fix = "no Application tracks ghcr.io/acme/wbe", "did you mean ghcr.io/acme/web?"
    assert f"::warning title=Image Update::{what}%0A  fix: {fix}" in result.stderr
    assert f"- warning: `{what}` fix: `{fix}`" in summary.read_text()
    assert messages(result) == ["no Application tracks ghcr.io/acme/wbe"]
    # a single untracked image out of two is enough for a warning
    both = run(
        "--applications", apps, image="ghcr.io/acme/web:1.1.0 ghcr.io/acme/nothing-like-it:2"
    )
    assert (both.code, both.json["status"]) == (0, "updated")
    assert messages(both) == ["no Application tracks ghcr.io/acme/nothing-like-it"]
    assert "one other image is tracked" in both.stderr


@pytest.mark.parametrize(
    ("command", "what", "names"),
    [
        (
            ["run", "--image", f"{WEB}:1.1.0", "--require-match"],
            "that track the image",
            ["api", "web"],
        ),
        (["plan", "--image", f"{WEB}:1.1.0,acme/typo:1"], "that track the images", ["api", "web"]),
        (["scan", "--dry-run", "--registry-check", "auto"], "in this run", ["api", "web"]),
        (["hold", "web", "--reason", "x"], "in this run", ["web"]),
        (["promote", "--from", "web", "--to", "api"], "that track the image", ["api"]),
        (["status"], "in this run", ["api", "web"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_only_repository_option_warns_if_it_excludes_every_application(
    tmp_path: Path, command: list[str], what: str, names: list[str]
) -> None:
    repos = {name: repository(tmp_path, name, name=f"{name}.git") for name in ("web", "api")}
    apps = manifest(tmp_path, *(application(name, repo) for name, repo in repos.items()))
    elsewhere = "https://git.example/other.git"
    given = [
        "--applications",
        str(apps),
        "--allow-protocol",
        "file",
        "--only-repository",
        elsewhere,
    ]
    result = image_update(*command, *given, "--output", "json")
    told = [one for one in result.json["errors"] if one["rule"] == "only-repository"]
    places = ", ".join(f"argocd/{name} ({repos[name]})" for name in names)
    message = f"--only-repository excludes all Applications {what}: {places}"
    assert [(one["message"], one["severity"]) for one in told] == [(message, "warning")]
    assert result.code == 0  # --require-match is satisfied by the excluded Applications
    text = image_update(*command, *given)
    assert message in text.stderr
    assert f"no Application tracks {WEB}" not in text.stdout + text.stderr
    if command[0] == "run":
        assert (
            f"{WEB}:1.1.0: no Application in these repositories tracks it (2 read)" in text.stdout
        )


def test_the_only_repository_option_does_not_warn_if_some_applications_remain(
    tmp_path: Path,
) -> None:
    repos = [repository(tmp_path, name, name=f"{name}.git") for name in ("web", "api")]
    apps = manifest(tmp_path, *(application(repo.stem, repo) for repo in repos))
    result = run("--applications", apps, "--only-repository", str(repos[0]))
    assert (result.json["status"], messages(result)) == ("updated", [])


@pytest.mark.parametrize(
    ("command", "image", "code"),
    [
        ("run", f"{WEB}:1.1.0", 0),
        ("run", f"{WEB}:1.1.0,acme/typo:1", 5),
        ("plan", f"{WEB}:1.1.0,acme/typo:1", 5),
        ("plan", "acme/typo:1", 5),
    ],
)
def test_the_require_match_option_fails_the_run_if_an_image_is_untracked(
    tmp_path: Path, command: str, image: str, code: int
) -> None:
    repo = repository(tmp_path, "web")
    args = arguments(manifest(tmp_path, application("web", repo)), image=image)
    result = image_update(command, *args[1:], env={"IMAGE_UPDATE_REQUIRE_MATCH": "true"})
    assert result.code == code
    landed = command == "run"  # the update of the tracked image lands anyway
    assert git(repo, "rev-list", "--count", "main") == ("2" if landed else "1")
    assert result.json["status"] == ("updated" if WEB in image else "unchanged")
    assert ("\nerror: no Application tracks acme/typo" in f"\n{result.stderr}") == (code == 5)


def test_scan_rejects_the_require_match_option(tmp_path: Path) -> None:
    apps = manifest(tmp_path, application("web", repository(tmp_path, "web")))
    result = image_update(
        "scan",
        "--applications",
        apps,
        "--require-match",
        env={"IMAGE_UPDATE_REGISTRY_CHECK": "auto"},
    )
    assert result.code == 2
    assert "--require-match" in result.stderr


def test_an_unknown_application_name_is_an_error(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web", "api")
    apps = manifest(tmp_path, application("web", repo), application("api", repo))
    result = run("--applications", apps, "--application", "wbe", "--application", "api")
    assert (result.code, result.json["status"]) == (3, "failed")
    assert "there is no Application named 'wbe'\n  fix: did you mean web?" in result.stderr
    assert [one["rule"] for one in result.json["errors"]] == ["source"]
    assert "newTag: 1.1.0" in show(repo, "main", target("api"))  # the other name is valid
    linted = image_update("lint", "--applications", apps, "--application", "wbe")
    assert linted.code == 3
    assert "there is no Application named 'wbe'" in linted.stdout
    glob = run("--applications", apps, "--application", "x-*")
    assert (glob.code, glob.json["status"]) == (0, "unchanged")
    assert messages(glob)[0] == "no Application matches 'x-*'"


def test_a_misspelt_variable_is_reported(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web")
    apps = manifest(tmp_path, application("web", repo))
    given = {
        "IMAGE_UPDATE_PULLREQUEST": "s3cret",
        "IMAGE_UPDATE_RESULT_TAG": "1",
        "IMAGE_UPDATE_SERVICE_HOST": "10.0.0.1",
    }
    result = run("--applications", apps, env=given)
    assert result.code == 0
    told = (
        "unknown variable IMAGE_UPDATE_PULLREQUEST\n  fix: did you mean IMAGE_UPDATE_PULL_REQUEST?"
    )
    assert result.stderr.count(told) == 1
    assert messages(result) == ["unknown variable IMAGE_UPDATE_PULLREQUEST"]
    assert "s3cret" not in result.stderr + result.stdout
    # the misspelt variable may be the cause of an error
    report = tmp_path / "report.json"
    early = image_update(
        "run",
        "--applications",
        apps,
        "--report",
        report,
        env={"IMAGE_UPDATE_IMGAE": f"{WEB}:1.1.0"},
    )
    assert early.code == 2
    assert "did you mean IMAGE_UPDATE_IMAGE?" in early.stderr
    severities = [one["severity"] for one in json.loads(report.read_text())["errors"]]
    assert severities == ["error", "warning"]


@pytest.mark.parametrize("query", ["branch=dev", "ref=main&path=x", "REF=main", "ref=main&ref=dev"])
def test_an_unknown_key_in_the_manifests_url_is_a_usage_error(tmp_path: Path, query: str) -> None:
    repo = bare_repo(tmp_path, {"apps/web.yaml": "kind: ConfigMap\n"})
    result = run("--applications", f"{repo}//apps?{query}")
    assert result.code == 2
    assert "use REPO//PATH?ref=REF" in result.stderr


def test_a_digest_entry_without_a_tag_reports_its_strategy(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web")
    result = run(
        "--applications", manifest(tmp_path, application("web", repo, update_strategy="digest"))
    )
    (decision,) = result.json["decisions"]
    assert (decision["rule"], decision["strategy"]) == ("annotation", "digest")


def unasked(result: Result) -> list[str]:
    return [one["message"] for one in result.json["errors"] if "pull requests" in one["message"]]


def test_pull_request_options_without_a_pull_request_are_a_warning(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web", "api")
    apps = manifest(tmp_path, application("web", repo), application("api", repo))
    given = ("--auto-merge", "--pull-request-label", "bot")
    for command in (
        "plan",
        "run",
        "run",
    ):  # the last run has nothing to do, but reports the same mistake
        result = image_update(command, *arguments(apps, *given)[1:])
        assert (result.code, unasked(result)) == (
            0,
            [
                (
                    "--pull-request-label, --auto-merge: no effect, because pull requests are not enabled for "
                    "argocd/api, argocd/web"
                )
            ],
        )
        assert "add --pull-request" in result.stderr


@pytest.mark.parametrize(
    ("given", "annotations", "env", "config"),
    [
        (["--no-auto-merge"], {}, {}, ""),
        ([], {}, {"IMAGE_UPDATE_AUTO_MERGE": "true", "IMAGE_UPDATE_PULL_REQUEST_LABEL": "bot"}, ""),
        (["--auto-merge"], {"pull_request": "true"}, {}, ""),
        (["--auto-merge", "--pull-request"], {}, {}, ""),
        (["--auto-merge"], {}, {"IMAGE_UPDATE_PULL_REQUEST": "true"}, ""),
        (["--auto-merge"], {}, {}, "version: 1\npullRequests: {enabled: true}\n"),
        (["--auto-merge", "--only-repository", "https://git.example/other.git"], {}, {}, ""),
    ],
    ids=["off", "variables", "annotation", "option", "its variable", "config", "nothing read"],
)
def test_pull_request_options_cause_no_warning_if_they_can_take_effect(
    tmp_path: Path, given: list[str], annotations: dict[str, str], env: dict[str, str], config: str
) -> None:
    repo = repository(tmp_path, "web")
    if config:
        commit(repo, {".image-update/config": config})
    apps = manifest(tmp_path, application("web", repo, **annotations))
    result = image_update("plan", *arguments(apps, *given)[1:], env=env)
    assert unasked(result) == []


@pytest.mark.parametrize("way", ["file", "folder", "stdin", "git"])
@pytest.mark.parametrize(
    "command", [["run", "--image", f"{WEB}:1.1.0"], ["plan", "--image", f"{WEB}:1.1.0"], ["lint"]]
)
def test_broken_yaml_is_reported_if_no_application_was_found(
    tmp_path: Path, command: list[str], way: str
) -> None:
    text = "a: 1\n---\nb: 2\nc: [\n"
    folder = tmp_path / "apps"
    folder.mkdir()
    (folder / "x.yaml").write_text(text)
    (folder / "other.yaml").write_text("a: b\n")
    source = {
        "file": f"{folder}/x.yaml",
        "folder": f"{folder}",
        "stdin": "-",
        "git": f"{bare_repo(tmp_path, {'apps/x.yaml': text, 'apps/other.yaml': 'a: b'})}//apps",
    }[way]
    given = ["--applications", source, "--allow-protocol", "file", "--output", "json"]
    result = image_update(*command, *given, stdin=text)
    alone = way in ("file", "stdin")
    severity = "error" if alone else "warning"
    (told,) = [
        f"{one.get('file') or ''}:{one.get('line') or ''} {one['message']}"
        for one in result.json["findings" if command == ["lint"] else "errors"]
        if "not YAML" in one["message"] and one["severity"] == severity
    ]
    place = "stdin:2" if way == "stdin" else "apps/x.yaml:2"
    assert place in told
    assert "not YAML: line 5: did not find expected node content" in told
    assert result.code == (3 if alone else 0)


@pytest.mark.parametrize(
    "text", ["a: [\n", "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: [\n"]
)
@pytest.mark.parametrize(
    "command", [["run", "--image", "x:1"], ["scan"], ["status"], ["lint"], ["release", "web"]]
)
def test_a_folder_with_only_a_broken_manifest_is_an_error(
    tmp_path: Path, command: list[str], text: str
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    env = {"IMAGE_UPDATE_REGISTRY_CHECK": "auto"}
    result = image_update(*command, "--applications", ".", cwd=tmp_path, env=env)
    assert (result.code, "not YAML" in result.stdout + result.stderr) == (3, True)


def test_a_broken_manifest_is_a_warning_if_another_source_has_applications(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: [\n")
    apps = manifest(tmp_path, application("web", repository(tmp_path, "web")))
    result = image_update(*arguments(apps, "--applications", tmp_path / "x.yaml"))
    assert (result.code, result.json["status"]) == (0, "updated")
    assert ["not YAML" in one for one in messages(result, "warning")] == [True]


def test_unrelated_broken_yaml_next_to_an_application_is_not_reported(tmp_path: Path) -> None:
    folder = tmp_path / "apps"
    folder.mkdir()
    manifest(folder, application("web", repository(tmp_path, "web")))
    (folder / "template.yaml").write_text("a: {{ b }}: [\n")
    (folder / "ours.yaml").write_text(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: [\n"
    )
    (told,) = messages(run("--applications", folder))
    assert "apps/ours.yaml:1: not YAML: line 4" in told


def test_at_most_five_broken_files_are_named(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.yaml").write_text("a: [\n")
    (tmp_path / "Chart.yaml").write_text("name: x\n")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/0.yaml").write_text("{{ if x }}\na: [\n")
    told = [
        one for one in messages(run("--applications", tmp_path, image="x:1")) if "not YAML" in one
    ]
    assert [one.partition(".yaml")[0][-1] for one in told] == list("01234")


@pytest.mark.parametrize("command", [["run"], ["plan"], ["run", "--dry-run"]], ids=" ".join)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "--wait: cannot tell which Argo CD to query"),
        (["--kubeconfig", "/nowhere"], "the kubeconfig '/nowhere' does not exist"),
    ],
)
def test_plan_also_fails_if_the_wait_option_is_set_without_an_argo_cd_server(
    tmp_path: Path, command: list[str], given: list[str], message: str
) -> None:
    apps = manifest(tmp_path, application("web", repository(tmp_path, "web")))
    result = image_update(*command, *arguments(apps, "--wait", *given)[1:])
    assert (result.code, messages(result, "error")) == (2, [message])


NOWHERE = "/no/such/file"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["--pull-request", "--forge", "gitea", "--forge-token-file", NOWHERE],
            "--forge-token-file: cannot read",
        ),
        (["--signing-key", NOWHERE], "--signing-key: cannot read"),
        (["--verify", NOWHERE], "--verify: cannot read"),
    ],
)
def test_an_option_that_names_a_missing_file_is_a_usage_error(
    tmp_path: Path, more: list[str], words: str
) -> None:
    repo = repository(tmp_path, "web")
    done = image_update(*arguments(manifest(tmp_path, application("web", f"file://{repo}")), *more))
    assert (done.code, done.json["status"], done.json["commits"]) == (2, "failed", []), done.stderr
    assert words in done.stderr
    jsonschema.validate(done.json, load("report.v1"))
    assert git(repo, "rev-list", "--count", "main") == "1"


def test_a_run_fails_if_git_is_not_installed(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web")
    apps = manifest(tmp_path, application("web", f"file://{repo}"))
    done = image_update(*arguments(apps), env={"PATH": str(tmp_path)})
    assert (done.code, done.json["status"]) == (2, "failed"), done.stderr
    assert [one["rule"] for one in done.json["decisions"]] == ["usage"]
    jsonschema.validate(done.json, load("report.v1"))
    assert "git is not installed\n  fix: install git" in done.stderr


def test_a_missing_ca_file_in_registries_conf_is_not_treated_as_a_registry_outage(
    tmp_path: Path,
) -> None:
    """If a registry does not respond, newest-build uses the order of arrival. Here, however, no
    registry was queried.
    """
    repo = repository(tmp_path, "web")
    apps = manifest(tmp_path, application("web", f"file://{repo}", update_strategy="newest-build"))
    conf = tmp_path / "registries.conf"
    conf.write_text(
        f"registries:\n- {{name: g, prefix: ghcr.io, api_url: 'https://ghcr.io', ca_file: {NOWHERE}}}\n"
    )
    done = image_update(*arguments(apps, "--registry-check", "auto", "--registries-conf", conf))
    assert (done.code, done.json["commits"]) == (2, []), done.stderr
    assert f"cannot read ca_file '{NOWHERE}'" in done.stderr


def test_github_shows_a_problem_at_the_manifest_in_the_workspace(tmp_path: Path) -> None:
    broken = application("web", repository(tmp_path, "web"), allow_tags="^v1")
    apps = manifest(tmp_path, broken)
    given = ("run", "--image", f"{WEB}:1.1.0", "--applications", apps, "--allow-protocol", "file")
    github = {"GITHUB_ACTIONS": "true"}
    here = image_update(*given, env=github, cwd=tmp_path)
    assert here.code == 3
    assert f"::error file={apps.name},line=1,title=argocd/web::argocd/web: " in here.stderr
    (tmp_path / "other").mkdir()
    elsewhere = image_update(*given, env=github, cwd=tmp_path / "other")
    assert "::error title=argocd/web::argocd/web: " in elsewhere.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["plan", "--image", "", "--applications", "."], "--image is missing or empty"),
        (["plan", "--image", "a/b:1", "--applications", ""], "--applications is missing or empty"),
        (["rollback", "web", "--to", "", "--applications", "."], "--to is missing or empty"),
        (["hold", "web", "--reason", "", "--applications", "."], "--reason is empty"),
    ],
)
def test_an_empty_value_from_an_unset_variable_is_a_usage_error(
    tmp_path: Path, given: list[str], message: str
) -> None:
    result = image_update(*given, cwd=tmp_path)
    assert (result.code, message in result.stderr) == (2, True)
    if "missing or" in message and "--to" not in message:
        assert re.search(
            "check that the variable is set|is your pipeline's variable set[?]", result.stderr
        )


@pytest.mark.parametrize("files", [0, 1, 3])
def test_a_folder_without_applications_is_reported_with_its_file_count(
    tmp_path: Path, files: int
) -> None:
    (tmp_path / "apps").mkdir()
    for number in range(files):
        (tmp_path / f"apps/{number}.yaml").write_text("kind: ConfigMap\n")
    result = run("--applications", "apps", cwd=tmp_path)
    many = {0: "0 files", 1: "1 file", 3: "3 files"}[files]
    told = [f"no Application was found in apps ({many})", f"no Application tracks {WEB}"]
    assert (result.code, messages(result)) == (0, told)
    assert "no Application with an image-list was found" in result.stderr


@pytest.mark.parametrize("content", ["", "[a, 3]", '{"image": "x"}', "kind: ConfigMap\n"])
def test_a_file_without_applications_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "apps.yaml").write_text(content)
    result = run("--applications", "apps.yaml", cwd=tmp_path)
    told = ["no Application was found in apps.yaml", f"no Application tracks {WEB}"]
    assert (result.code, messages(result)) == (0, told)


@pytest.mark.parametrize("name", ["argocd", "cluster"])
def test_a_folder_with_the_name_of_a_server_is_mentioned_if_there_is_no_server(
    tmp_path: Path, name: str
) -> None:
    assert "folder" not in run("--applications", name, cwd=tmp_path).stderr
    (tmp_path / name).mkdir()
    result = run("--applications", name, cwd=tmp_path)
    assert result.code == 2
    assert f"; to read the folder {name}, use ./{name}" in result.stderr


def test_a_broken_file_among_the_manifests_is_named(tmp_path: Path) -> None:
    pod = f"kind: Pod\nspec:\n  containers:\n  - image: {WEB}:1.0.0\n"
    repo = bare_repo(tmp_path, {"apps/web/pod.yaml": f"{pod}a: [\n", "apps/web/a.yaml": "a: b\n"})
    apps = manifest(tmp_path, application("web", repo, write_back_target="manifests"))
    result = run("--applications", apps)
    (message,) = messages(result, "error")
    assert result.code == 3
    assert f"no container in the manifests has the image {WEB}; apps/web/pod.yaml was" in message
    assert "not valid YAML: did not find expected node content, line 6" in message
