"""`writes` in a repository's own config: forbidden files are never written."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support import bare_repo, commit, git, image_update, show
from support.memory import NOW, SCOPE, URL, WORDING, Branch, Story, shown
from support.runs import KUSTOMIZATION, WEB, application, manifest, repository, target

from task.annotations.application import parse_application
from task.annotations.subscription import Defaults, subscribe
from task.annotations.write_back import refuse_files
from task.deciding.decide import is_state_path
from task.deciding.job import Job, Terms
from task.errors import NotPermittedError
from task.image import parse_image
from task.model import File, Files, Place, Report, Snapshot, Writes
from task.repository_config.config import PATH

TEAM_A = 'version: 1\nrules:\n- match: {applications: ["a*"]}\n  writes: {paths: ["apps/a/**"]}\n- writes: {paths: []}\n'
VALUES = "image:\n  tag: 1.0.0\n"


class Branches(Branch):
    """A repository with a second branch besides the default branch, and with symbolic links."""

    def __init__(
        self, files: Mapping[str, str], default: Mapping[str, str] = {}, links: Iterable[str] = ()
    ) -> None:
        super().__init__(files)
        self.default, self.links = default, tuple(links)

    def snapshot(
        self,
        branch: str,
        places: Iterable[Place],
        heads: Collection[str] = (),
        default: Collection[Place] = (),
        besides: Callable[[Files], Iterable[Place]] | None = None,
    ) -> Snapshot:
        found = super().snapshot(branch, places, heads, default, besides)
        links = {path: File("", "120000") for path in self.links}
        return replace(found, files={**found.files, **links}, default=shown(self.default))


def helm(name: str, where: str, **annotations: str) -> Mapping[str, object]:
    given = {
        "update_strategy": "newest-build",
        "web.helm.image_tag": "image.tag",
        "write_back_target": where,
    }
    app = application(name, URL, **{**given, **annotations})
    app["spec"]["source"]["helm"] = {}
    return app


def report_of(one: Story, tag: str = "1.1.0") -> Report:
    return one.run(Job("run", (parse_image(f"{WEB}:{tag}"),), SCOPE, Terms(now=NOW), WORDING))


def changed(one: Story) -> set[str]:
    """Return the files that differ from the first commit, on the branch and its head branches."""
    first = one.branch.commits[0]
    every = [one.branch.files, *(head.files for head in one.branch.proposals.values())]
    return {path for files in every for path, text in files.items() if first.get(path) != text}


CI = (
    ".github/workflows/x.yml",
    ".GitHub",
    ".gitlab-ci.yml",
    ".gitlab/x.yaml",
    ".circleci/config.yml",
    "sub/Azure-Pipelines.yaml",
    "bitbucket-pipelines.yml",
    "Jenkinsfile",
    "docs/codeowners",
)
FILES = {
    PATH: TEAM_A,
    "apps/a/values.yaml": VALUES,
    "apps/b/values.yaml": VALUES,
    "Apps/a/values.yaml": VALUES,
}


@pytest.mark.parametrize(
    ("where", "allowed"),
    [
        ("helmvalues:/apps/a/values.yaml", True),
        ("helmvalues:values.yaml", True),
        ("helmvalues:deep/er/values.yaml", True),
        ("helmvalues:/apps/b/../a/values.yaml", True),
        ("helmvalues:/apps/b/values.yaml", False),
        ("helmvalues:/apps/a/../b/values.yaml", False),
        ("helmvalues:../b/values.yaml", False),
        ("helmvalues:/Apps/a/values.yaml", False),
        ("helmvalues:/apps/abc/values.yaml", False),
        ("helmvalues:/apps/a", False),
        ("helmvalues:/values.yaml", False),
        ("kustomization:/apps/b", False),
        ("/apps/b/values.yaml", False),
        ("", True),
    ],
)
def test_the_config_limits_which_files_an_application_may_write(where: str, allowed: bool) -> None:
    files = FILES | {"apps/b/kustomization.yaml": KUSTOMIZATION}
    one = Story(helm("a", where), Branch(files))
    if allowed:
        assert one.event("1.1.0") == ("update", "admitted")
        assert all(path.startswith(("apps/a/", ".image-update/apps/a/")) for path in changed(one))
    else:
        assert one.event("1.1.0")[0] == "error"
        assert (changed(one), one.branch.heads) == (set(), {})


def test_a_symbolic_link_is_always_refused() -> None:
    branch = Branches(FILES, links=["apps/a/link", "apps/a/values.yaml"])
    assert Story(helm("a", "helmvalues:/apps/a/link/values.yaml"), branch).event("1.1.0") == (
        "error",
        "target",
    )
    assert Story(helm("a", "helmvalues:/apps/a/values.yaml"), branch).event("1.1.0") == (
        "error",
        "target",
    )


def test_the_error_names_the_rule_and_who_can_change_it() -> None:
    one = Story(helm("a", "helmvalues:/apps/b/values.yaml"), Branch(FILES))
    (found,) = report_of(one).decisions
    assert (found.rule, report_of(one).exit) == ("not-permitted", 3)
    assert (
        found.because
        == ".image-update/config, line 4, does not allow argocd/a to write 'apps/b/values.yaml'"
    )
    assert found.hint == "ask the repository's owner to add it to `writes` in .image-update/config"


def test_the_last_rule_applies_to_all_other_applications() -> None:
    one = Story(helm("b", "helmvalues:/apps/a/values.yaml"), Branch(FILES))
    assert one.event("1.1.0") == ("error", "not-permitted")
    assert changed(one) == set()


def test_an_application_without_a_matching_rule_may_write_anywhere() -> None:
    config = "version: 1\nrules:\n- match: {applications: [other]}\n  writes: {paths: []}\n"
    one = Story(helm("a", "helmvalues:/apps/b/values.yaml"), Branch(FILES | {PATH: config}))
    assert one.event("1.1.0") == ("update", "admitted")


def test_the_first_matching_rule_with_the_writes_key_decides() -> None:
    config = (
        "version: 1\nrules:\n- match: {applications: [a]}\n  pinDigest: false\n"
        "- match: {applications: [a]}\n  writes: {paths: [apps/b/*]}\n"
        "- match: {applications: [a]}\n  writes: {paths: []}\n"
    )
    one = Story(helm("a", "helmvalues:/apps/b/values.yaml"), Branch(FILES | {PATH: config}))
    assert one.event("1.1.0") == ("update", "admitted")


def test_a_second_application_without_permission_for_the_file_writes_nothing() -> None:
    """It does not even record that it wrote the file, which the first Application may write."""
    one = Story(helm("a", "helmvalues:/apps/a/values.yaml"), Branch(FILES))
    one.others = [helm("b", "helmvalues:/apps/a/values.yaml")]
    verdicts = {
        found.subscription.application.name: found.judged.rule for found in report_of(one).decisions
    }
    assert verdicts == {"a": "admitted", "b": "not-permitted"}
    assert changed(one) == {"apps/a/values.yaml"}


@pytest.mark.parametrize("order", [("web", "api"), ("api", "web")])
def test_an_application_with_one_forbidden_target_writes_no_target(order: tuple[str, str]) -> None:
    api = "ghcr.io/acme/api"
    app = helm("a", "helmvalues:/apps/a/values.yaml,helmvalues:/apps/b/values.yaml")
    one = Story(app, Branch(FILES))
    report = report_of(one)
    assert {(found.verdict, found.rule) for found in report.decisions} == {
        ("error", "not-permitted")
    }
    assert changed(one) == set()
    images_by_name = {"web": WEB, "api": api}
    entries = ",".join(f"{name}={images_by_name[name]}" for name in order)
    both = helm(
        "a",
        "helmvalues:/apps/a/values.yaml",
        image_list=entries,
        **{"api.helm.image_tag": "api.tag"},
    )
    second = Story(both, Branch(FILES | {"apps/a/values.yaml": f"{VALUES}api:\n  tag: 1.0.0\n"}))
    images = (parse_image(f"{WEB}:1.1.0"), parse_image(f"{api}:1.1.0"))
    second.run(Job("run", images, SCOPE, Terms(now=NOW), WORDING))
    assert "1.0.0" not in second.branch.files["apps/a/values.yaml"]


@pytest.mark.parametrize(
    ("annotation", "branches", "allowed"),
    [
        ("main", ["main"], True),
        ("main", ["Main"], False),
        ("main", ["release"], False),
        ("main:new", ["main"], False),
        ("main:new", ["new"], True),
        ("main:team/{{range .Images}}{{.NewTag}}{{end}}", ["team/*"], True),
        ("main:team/{{range .Images}}{{.NewTag}}{{end}}", ["team"], False),
        ("main:{{.AppName}}/x/y", ["a/*"], False),
        ("main:{{.AppName}}/x/y", ["a/**"], True),
    ],
)
def test_the_config_limits_which_branches_an_application_may_write(
    annotation: str, branches: list[str], allowed: bool
) -> None:
    config = f"version: 1\nwrites: {{branches: {json.dumps(branches)}}}\n"
    one = Story(
        helm("a", "helmvalues:/apps/a/values.yaml", git_branch=annotation),
        Branch(FILES | {PATH: config}),
    )
    assert one.event("1.1.0") == (("update", "admitted") if allowed else ("error", "not-permitted"))
    assert bool(changed(one)) is allowed


@pytest.mark.parametrize(("branches", "allowed"), [("main", False), ("image-update/**", True)])
def test_the_head_branch_of_a_pull_request_must_be_allowed(branches: str, allowed: bool) -> None:
    config = f"version: 1\nwrites: {{branches: [{branches}]}}\n"
    app = helm("a", "helmvalues:/apps/a/values.yaml", git_branch="main:image-update/web")
    one = Story(app, Branch(FILES | {PATH: config}))
    assert (one.event("1.1.0")[0] == "update") is allowed
    assert bool(one.branch.proposals) is allowed


@pytest.mark.parametrize(
    ("of_default", "of_branch", "allowed"),
    [
        ("", "", True),
        ("writes: {paths: [apps/a/*]}", "", True),
        ("writes: {paths: []}", "", False),
        ("writes: {paths: []}", "writes: {paths: [apps/a/*]}", False),
        ("writes: {paths: [apps/a/*]}", "writes: {paths: []}", False),
        ("writes: {branches: [main]}", "writes: {paths: [apps/a/*]}", False),
        ("writes: {branches: [main, team]}", "writes: {paths: [apps/a/*]}", True),
        ("pinDigest: true", "", True),
    ],
)
def test_the_default_branch_and_the_target_branch_must_both_allow_the_write(
    of_default: str, of_branch: str, allowed: bool
) -> None:
    def file(text: str) -> Mapping[str, str]:
        return {PATH: f"version: 1\n{text}\n"} if text else {}

    written = {"apps/a/values.yaml": VALUES, **file(of_branch)}
    one = Story(
        helm("a", "helmvalues:/apps/a/values.yaml", git_branch="team"),
        Branches(written, file(of_default)),
    )
    assert one.event("1.1.0") == (("update", "admitted") if allowed else ("error", "not-permitted"))


def test_a_broken_config_on_the_default_branch_blocks_every_branch() -> None:
    written = {"apps/a/values.yaml": VALUES}
    app = helm("a", "helmvalues:/apps/a/values.yaml", git_branch="team")
    one = Story(app, Branches(written, {PATH: "version: 1\nwrite: {}\n"}))
    (found,) = report_of(one).decisions
    assert (found.verdict, found.rule) == ("error", "target")
    assert "on the default branch: line 2" in found.because


def test_state_files_and_the_memory_branch_may_always_be_written() -> None:
    one = Story(helm("a", "helmvalues:/apps/b/values.yaml"), Branch(FILES))
    one.hold("load test")
    assert {path for path in changed(one) if not is_state_path(path)} == set()
    assert changed(one) != set()
    assert one.event("1.1.0") == ("defer", "held")
    assert one.release().rule == "not-permitted"
    assert "1.0.0" in one.branch.files["apps/b/values.yaml"]


def test_a_state_file_is_never_a_valid_target() -> None:
    config = 'version: 1\nwrites: {paths: ["**", ".image-update/**"]}\n'
    one = Story(
        helm("a", "helmvalues:/.image-update/apps/b/argocd_b.state"), Branch(FILES | {PATH: config})
    )
    with pytest.raises(StopIteration):  # the annotation is invalid, so there is no decision
        one.hold("load test")
    assert report_of(one).decisions[0].rule == "not-permitted"
    assert changed(one) == set()


@pytest.mark.parametrize("act", ["rollback", "scan", "release"])
def test_rollback_scan_and_release_are_checked_as_well(act: str) -> None:
    permitted = {PATH: "version: 1\n"}
    one = Story(
        helm("a", "helmvalues:/apps/b/values.yaml", update_strategy="semver"),
        Branch(FILES | permitted),
    )
    assert one.event("1.1.0") == ("update", "admitted")
    if act == "release":
        one.hold("load test")
        one.event("1.2.0")
    one.branch.commit({PATH: TEAM_A})
    before = one.branch.files["apps/b/values.yaml"]
    one.tags = ("1.1.0", "1.2.0")
    if act == "scan":
        assert one.scan() == ("error", "not-permitted")
    else:
        assert (
            one.rollback("previous") if act == "rollback" else one.release()
        ).rule == "not-permitted"
    assert one.branch.files["apps/b/values.yaml"] == before


def test_a_waiting_update_is_dropped_once_it_is_no_longer_permitted() -> None:
    api = "ghcr.io/acme/api"
    app = helm(
        "a",
        "helmvalues:/apps/a/values.yaml",
        git_branch="main:image-update/a",
        image_list=f"web={WEB},api={api}",
        **{"api.helm.image_tag": "api.tag", "api.update_strategy": "newest-build"},
    )
    one = Story(
        app, Branch({PATH: "version: 1\n", "apps/a/values.yaml": f"{VALUES}api:\n  tag: 1.0.0\n"})
    )
    assert one.event("1.1.0") == ("update", "admitted")
    assert one.branch.proposals
    one.branch.commit({PATH: "version: 1\nwrites: {paths: []}\n"})
    report = one.run(Job("run", (parse_image(f"{api}:1.1.0"),), SCOPE, Terms(now=NOW), WORDING))
    assert {found.rule for found in report.decisions} == {"not-permitted"}
    assert [(waits.outcome, "does not allow" in waits.because) for waits in report.waiting] == [
        ("dropped", True)
    ]
    assert not one.branch.proposals


@pytest.mark.parametrize(
    ("writes", "path", "allowed"),
    [
        *(((), path, False) for path in CI),
        (("**",), ".github/workflows/x.yml", False),
        ((".*/**",), ".github/workflows/x.yml", False),
        ((".github/**",), ".github/workflows/x.yml", True),
        ((".github/**",), ".GitHub/workflows/x.yml", False),
        ((".github/**",), ".github/CODEOWNERS", False),
        ((".github/CODEOWNERS",), ".github/CODEOWNERS", True),
        (("**/.gitlab-ci.yml",), "apps/.gitlab-ci.yml", True),
        (("**/.gitlab-ci.yml",), ".gitlab-ci.yml", False),
        ((".image-update/**",), ".image-update/config", False),
        ((".git/**",), ".git/config", False),
        ((".gitattributes",), ".gitattributes", False),
    ],
)
def test_ci_definitions_are_written_only_if_they_are_named_explicitly(
    writes: tuple[str, ...], path: str, allowed: bool
) -> None:
    (sub,) = subscribe(parse_application(application("a", URL)), Defaults()).subscriptions
    sub = replace(sub, writes=(Writes(writes),) if writes else ())
    if allowed:
        refuse_files(sub, [path], "main")
    else:
        with pytest.raises(NotPermittedError):
            refuse_files(sub, [path], "main")


def test_unusual_bytes_in_paths_never_match_by_accident() -> None:
    (sub,) = subscribe(parse_application(application("a", URL)), Defaults()).subscriptions
    for path in ("apps/a/\udc80", "apps/a\n/x", "apps/a/../b"):
        with pytest.raises(NotPermittedError):
            refuse_files(replace(sub, writes=(Writes(("apps/a/x*",)),)), [path], "main")
    refuse_files(replace(sub, writes=(Writes(("apps/a/**",)),)), ["apps/a/ü/x\ny"], "main")
    refuse_files(replace(sub, writes=(Writes((), ()),)), [], "main")


def test_a_run_on_another_branch_follows_the_rules_of_the_default_branch(
    tmp_path: Path,
) -> None:
    repo = repository(tmp_path, "a", "b")
    git(repo, "branch", "team", "main")
    allowed = f"writes: {{branches: [team], paths: [{target('a')}]}}"
    config = f"version: 1\nrules:\n- match: {{applications: [a]}}\n  {allowed}\n- writes: {{paths: []}}\n"
    commit(repo, {PATH: config})
    apps = manifest(tmp_path, *(application(name, repo, git_branch="team") for name in "ab"))
    given = (
        "--applications",
        apps,
        "--allow-protocol",
        "file",
        "--image",
        f"{WEB}:1.1.0",
        "--output",
        "json",
    )
    planned = image_update("plan", *given)
    result = image_update("run", *given, "--log-level", "debug")
    rules = {one["application"]: (one["verdict"], one["rule"]) for one in result.json["decisions"]}
    assert rules == {"argocd/a": ("update", "admitted"), "argocd/b": ("error", "not-permitted")}
    assert [(one["verdict"], one["rule"]) for one in planned.json["decisions"]] == list(
        rules.values()
    )
    assert (planned.code, result.code) == (3, 3)
    assert "newTag: 1.1.0" in show(repo, "team", target("a"))
    assert "newTag: 1.0.0" in show(repo, "team", target("b"))
    assert result.stderr.count(": fetch ") == 1, result.stderr
    listed = image_update("lint", "--applications", apps, "--allow-protocol", "file")
    assert "does not allow argocd/b to write" in listed.stdout
    asked = (
        "status",
        "--image",
        f"{WEB}:1.2.0",
        "--applications",
        apps,
        "--allow-protocol",
        "file",
        "--output",
        "json",
    )
    would = {
        one["application"]: one["would"]["rule"] for one in image_update(*asked).json["images"]
    }
    assert would == {"argocd/a": "admitted", "argocd/b": "not-permitted"}
    ignored = image_update("run", *given, "--no-repository-config")
    assert ignored.code == 2  # only the owner can lift the owner's rules
    assert "newTag: 1.0.0" in show(repo, "team", target("b"))


def test_a_repository_without_a_default_branch_is_updated_without_its_config(
    tmp_path: Path,
) -> None:
    repo = bare_repo(tmp_path, {target("a"): KUSTOMIZATION})
    git(repo, "symbolic-ref", "HEAD", "refs/heads/none")
    apps = manifest(tmp_path, application("a", repo, git_branch="main"))
    given = (
        "--applications",
        apps,
        "--allow-protocol",
        "file",
        "--image",
        f"{WEB}:1.1.0",
        "--output",
        "json",
    )
    result = image_update("run", *given)
    assert result.code == 0, result.stderr


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("allowed", ["main", "team"])
def test_an_application_on_two_branches_is_not_written_if_either_branch_forbids_it(
    tmp_path: Path, allowed: str, command: str
) -> None:
    """Otherwise, the first branch would receive half of the update before the second is checked."""
    values = {f"apps/{name}/values.yaml": VALUES for name in "ab"}
    repo = bare_repo(tmp_path, {**values, "apps/b/Chart.yaml": "name: b\n"})
    config = (
        f"version: 1\nrules:\n- match: {{applications: [a]}}\n  writes: {{branches: [{allowed}]}}\n"
    )
    commit(repo, {PATH: config})
    git(repo, "branch", "team", "main")
    targets = "helmvalues:/apps/a/values.yaml,helmvalues:$team/apps/a/values.yaml"
    app = dict(helm("a", targets))
    sources: list[dict[str, object]] = [
        {"repoURL": str(repo), "path": "apps/a", "targetRevision": "main", "helm": {}},
        {"repoURL": str(repo), "targetRevision": "team", "ref": "team"},
    ]
    app["spec"] = {"sources": sources}
    alone = dict(helm("b", "helmvalues:/apps/b/values.yaml"))
    alone["spec"] = {"source": {**sources[0], "path": "apps/b"}}
    apps = manifest(tmp_path, app, alone)
    given = ("--applications", apps, "--allow-protocol", "file", "--output", "json")
    result = image_update(command, "--image", f"{WEB}:1.1.0", *given)
    decisions = result.json["decisions"]
    of_a = [one for one in decisions if one["application"] == "argocd/a"]
    assert [(one["verdict"], one["rule"]) for one in of_a] == [("error", "not-permitted")] * 2
    refused = "team" if allowed == "main" else "main"
    assert all(f"to write to the branch '{refused}'" in one["because"] for one in of_a)
    assert [one["verdict"] for one in decisions if one["application"] == "argocd/b"] == ["update"]
    assert result.code == 3
    for branch in ("main", "team"):
        assert "1.0.0" in show(repo, branch, "apps/a/values.yaml")
    assert ("1.1.0" in show(repo, "main", "apps/b/values.yaml")) is (command == "run")
