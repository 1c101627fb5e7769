"""Complete runs with the shipped manifests on each host: parameters arrive, results are written."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.argocd_api import argocd_server
from fakes.argocd_states import NEW, OLD, at, operated
from fakes.argocd_states import live_application as live
from fakes.oci_images import image
from fakes.registry_api import registry_api
from hosts import runners
from hosts.gitlab import PROJECT, documents
from hosts.gitlab import gitlab as gitlab_job
from hosts.runners import ACTION, STEP_ACTION, TASK, TEMPLATE, Refused, manifest
from hosts.steps import Ran, Step, Volume, as_process
from support import bare_repo, commit, git, show, variants
from support.runs import KUSTOMIZATION, WEB, application, repository, target

from scripts import hosts as table
from scripts.typer_options import all_options, name_of
from task.ci.publish import NAMES

APPLICATIONS = "applications.json"
Start = Callable[[Mapping[str, str], str], Step]  # (parameters, the Applications) → the step


def tekton(given: Mapping[str, str], apps: str, path: Path = TASK) -> Step:
    bound = {"source": source(apps)}
    filled = in_the_form("tekton", {"applications": APPLICATIONS, **given})
    return runners.tekton(filled, bound, secrets(given), path=path)


def step_action(given: Mapping[str, str], apps: str) -> Step:
    step = tekton({"applications": f"/workspace/{APPLICATIONS}", **given}, apps, STEP_ACTION)
    return replace(step, volumes={**step.volumes, "/workspace": source(apps)})


def argo(given: Mapping[str, str], apps: str) -> Step:
    ((name, path),) = {one["name"]: one["path"] for one in leaf()["inputs"]["artifacts"]}.items()
    parameters = in_the_form("argo", {"applications": f"{path}/{APPLICATIONS}", **given})
    return runners.argo(parameters, {name: source(apps)}, secrets(given), template=leaf()["name"])


def github(given: Mapping[str, str], apps: str) -> Step:
    filled = in_the_form("github", {"applications": APPLICATIONS, **given})
    return runners.github(filled, source(apps))


def gitlab(given: Mapping[str, str], apps: str) -> Step:
    return gitlab_job(in_the_form("gitlab", {"applications": APPLICATIONS, **given}), source(apps))


HOSTS: dict[str, Start] = {
    "tekton": tekton,
    "stepaction": step_action,
    "argo": argo,
    "github": github,
    "gitlab": gitlab,
}
# Parameters for the host itself, which place the job in a pipeline.
ASIDE = {"gitlab": {"job-name", "stage"}}
ALL = pytest.mark.parametrize("host", HOSTS)
FEW = pytest.mark.parametrize(
    "host", variants(["tekton", "github"], at_night=["stepaction", "argo", "gitlab"])
)
BEFORE = at(
    live(),
    "Synced",
    "Healthy",
    revision=OLD,
    compared=3,
    operation=operated(revision=OLD, started=1, finished=2),
)
GOOD = at(live(), "Synced", "Healthy", compared=13, operation=operated())
BAD = at(live(), "OutOfSync", "Healthy", operation=operated("Failed", message="no rights"))


def secrets(given: Mapping[str, str]) -> runners.Secrets:
    """Return a namespace with every Secret that parameters name, and all requested keys."""
    asked = "".join(path.read_text() for path in (TASK, TEMPLATE))
    keys = dict.fromkeys(re.findall(r"\bkey: ([\w.-]+)", asked), "text")
    return {
        value: {**keys, "file": "text"}
        for name, value in given.items()
        if value and "secret" in name
    }


def source(apps: str) -> Volume:
    return Volume({APPLICATIONS: apps})


def leaf() -> Any:
    (template,) = (one for one in manifest(TEMPLATE)["spec"]["templates"] if "container" in one)
    return template


def declared(host: str) -> dict[str, Any]:
    """Return the parameters and their defaults."""
    if host == "argo":
        return {one["name"]: one.get("value") for one in leaf()["inputs"]["parameters"]}
    if host == "gitlab":
        return {name: one.get("default") for name, one in documents()[0]["spec"]["inputs"].items()}
    if host == "github":
        return {name: one.get("default") for name, one in manifest(ACTION)["inputs"].items()}
    return {one["name"]: one.get("default") for one in manifest(path_of(host))["spec"]["params"]}


def results(host: str) -> set[str]:
    """Return the names of the results declared by the manifest."""
    if host == "argo":
        return {one["name"] for one in leaf()["outputs"]["parameters"]}
    if host == "gitlab":
        return set(NAMES)
    if host == "github":
        return set(manifest(ACTION)["outputs"])
    return {one["name"] for one in manifest(path_of(host))["spec"]["results"]}


def path_of(host: str) -> Path:
    return STEP_ACTION if host == "stepaction" else TASK


def in_the_form(host: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the form's fields. Options without a parameter are collected in `options`."""
    known = declared(host)
    moved = {name_of(one) for one in all_options()} - {*table.FORM, *known}
    flags = {name_of(one) for one in all_options() if getattr(one, "is_flag", False)}
    entries = [
        f"--{name}" if name in flags and value == "true" else f"--{name}={value}"
        for name, value in given.items()
        if name in moved
    ]
    filled: dict[str, Any] = {name: value for name, value in given.items() if name not in moved}
    if entries:
        is_array = isinstance(known["options"], list)
        filled["options"] = entries if is_array else "\n".join(entries)
    return filled


class Scene:
    """A repository with one Application, and a host that runs an update of that Application."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder, self.host, self.count = folder, host, 0
        self.repo = repository(folder, "web")

    def run(self, *, repo: str = "", **given: str) -> Ran:
        self.count += 1
        url = repo or f"file://{self.repo}"
        named = {name.replace("_", "-"): value for name, value in given.items()}
        step = HOSTS[self.host](
            {"allow-protocol": "file", **named},
            json.dumps({"kind": "List", "apiVersion": "v1", "items": [application("web", url)]}),
        )
        root = self.folder / f"root-{self.count}"
        root.mkdir()
        return as_process(step, root)

    def tag(self) -> str:
        return str(yaml.safe_load(show(self.repo, "main", target("web")))["images"][0]["newTag"])

    def landed(self) -> bool:
        return self.tag() == "1.1.0"


@pytest.fixture
def scene(tmp_path: Path, host: str) -> Scene:
    return Scene(tmp_path, host)


def complete(scene: Scene, ran: Ran) -> Mapping[str, str]:
    """Return the results after checking everything that must hold for any exit code."""
    assert set(ran.results) == results(scene.host), ran.stderr
    assert sum(len(name) + len(value.encode()) for name, value in ran.results.items()) < 2048
    assert isinstance(json.loads(ran.results["applications"]), list)
    assert set(json.loads(ran.results["image_ARTIFACT_INPUTS"])) == {"uri", "digest"}
    assert not [value for value in ran.results.values() if value != value.strip()]
    return ran.results


@ALL
def test_the_second_run_of_the_same_update_changes_nothing(scene: Scene) -> None:
    first = scene.run(image=f"{WEB}:1.1.0")
    assert first.code == 0, first.stderr
    told = complete(scene, first)
    assert (told["status"], told["updated"], told["applications"]) == (
        "updated",
        "true",
        '["argocd/web"]',
    )
    assert (told["tag"], told["branch"], len(told["commit"])) == ("1.1.0", "main", 40)
    assert scene.landed()
    commit, again = told["commit"], scene.run(image=f"{WEB}:1.1.0")
    told = complete(scene, again)
    assert (again.code, told["status"], told["updated"], told["commit"]) == (
        0,
        "unchanged",
        "false",
        commit,
    )
    assert told["applications-count"] == "0"


@ALL
@pytest.mark.parametrize(
    ("given", "code", "status"),
    [
        ({"image": f"{WEB}:latest"}, 0, "refused"),
        ({"image": f"{WEB}:1.1.0", "strategy": "newest"}, 2, "failed"),
        pytest.param({"image": ""}, 2, "failed", marks=pytest.mark.slow),
        ({"image": f"{WEB}:1.1.0", "repo": "file:///nowhere.git"}, 4, "failed"),
        pytest.param(
            {"image": f"{WEB}:1.1.0", "application": "other-*", "require-update": "true"},
            5,
            "unchanged",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["refused", "usage", "no image", "no repository", "nothing updated"],
)
def test_every_result_is_written_for_every_outcome(
    scene: Scene, given: dict[str, str], code: int, status: str
) -> None:
    ran = scene.run(**given)
    told = complete(scene, ran)
    assert (ran.code, told["updated"], told["commit"]) == (code, "false", "")
    assert told["status"] == status, ran.stderr
    assert not scene.landed()


@ALL
def test_every_parameter_reaches_the_step(host: str) -> None:
    image = {"image": "x:1"}
    plain = started(host, image)
    changed = {name: started(host, {**image, name: another(host, name)}) for name in declared(host)}
    assert {name for name, step in changed.items() if step == plain} == ASIDE.get(host, set())


def another(host: str, name: str) -> Any:
    """Return a valid value that is not the default."""
    choices = documents()[0]["spec"]["inputs"][name].get("options") if host == "gitlab" else None
    if isinstance(declared(host)[name], list):
        return [f"--mark-of={name}"]
    if declared(host)[name] == "false":
        return "true"
    return choices[-1] if choices else f"mark-of-{name}"


def started(host: str, given: Mapping[str, str]) -> Step:
    """Return the step that the host starts, without the results function, which never compares
    equal.
    """
    return replace(HOSTS[host](given, ""), results=nothing)


def nothing(_root: Path) -> Mapping[str, str]:
    return {}


@ALL
def test_an_empty_parameter_counts_as_not_given(scene: Scene) -> None:
    needed = {"image", "applications", "allow-protocol"}
    options = {name_of(one) for one in all_options()} & set(declared(scene.host)) - needed
    empty = {name.replace("-", "_"): "" for name in options}
    ran = scene.run(image=f"{WEB}:1.1.0", **empty)
    assert (ran.code, complete(scene, ran)["status"]) == (0, "updated"), ran.stderr


@ALL
def test_a_plan_writes_nothing_to_the_repository(scene: Scene) -> None:
    ran = scene.run(image=f"{WEB}:1.1.0", command="plan")
    assert ran.code == 0, ran.stderr
    assert complete(scene, ran)["commit"] == ""
    assert "newTag: 1.1.0" in ran.stdout
    assert not scene.landed()


@FEW
def test_rollback_hold_and_release_each_make_one_commit_with_literal_text(scene: Scene) -> None:
    """The texts stay literal, whatever a shell or a command line would make of them."""
    words = "--no-hold; $(touch x) `id` 'a' \"b\""
    for tag in ("1.1.0", "1.2.0"):
        assert scene.run(image=f"{WEB}:{tag}").results["status"] == "updated"
    back = scene.run(
        command="rollback", names="argocd/web", alias="web", to="previous", reason=words, by="-ann"
    )
    told = complete(scene, back)
    assert (back.code, told["updated"], told["applications"]) == (0, "true", '["argocd/web"]'), (
        back.stderr
    )
    assert scene.tag() == "1.1.0"
    assert words in git(scene.repo, "log", "-1", "--format=%B", "main").replace("\n", " ")
    assert told["commit"] == git(scene.repo, "rev-parse", "main")
    assert complete(scene, scene.run(image=f"{WEB}:1.3.0"))["status"] == "refused"
    shown = scene.run(command="status", names="web")
    told = complete(scene, shown)
    assert (shown.code, told["status"], told["updated"], told["commit"]) == (
        0,
        "unchanged",
        "false",
        "",
    )
    assert (told["message"], words in shown.stdout) == ("images shown: 1", True)
    freed = scene.run(command="release", names="web")
    assert (freed.code, complete(scene, freed)["updated"], scene.tag()) == (0, "true", "1.3.0"), (
        freed.stderr
    )
    held = scene.run(command="hold", names="web", reason="load test", until="3d")
    told = complete(scene, held)
    assert (held.code, told["status"], told["updated"], len(told["commit"])) == (
        0,
        "updated",
        "false",
        40,
    )
    dropped = scene.run(command="release", names="web", discard="true")
    assert (dropped.code, scene.tag()) == (0, "1.3.0"), dropped.stderr


@ALL
def test_a_promotion_updates_the_target_application(tmp_path: Path, host: str) -> None:
    repo = repository(tmp_path, "staging", "production")
    commit(repo, {target("staging"): KUSTOMIZATION.replace("1.0.0", "1.4.0")})
    apps = json.dumps(
        {"kind": "List", "items": [application(one, repo) for one in ("staging", "production")]}
    )
    given = {
        "command": "promote",
        "from": "stag*",
        "to": "production",
        "alias": "web",
        "allow-protocol": "file",
    }
    ran = as_process(HOSTS[host](given, apps), tmp_path)
    assert (ran.code, ran.results["updated"], ran.results["applications"]) == (
        0,
        "true",
        '["argocd/production"]',
    )
    assert "newTag: 1.4.0" in show(repo, "main", target("production"))


@ALL
def test_a_scan_updates_the_application(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IMAGE_UPDATE_REGISTRY_CHECK")  # set in all tests to disable the registry
    with registry_api() as registry:
        registry.put("acme/web", "1.7.0", image())
        named = f"{registry.name}/acme/web"
        repo = bare_repo(
            tmp_path, {target("web"): KUSTOMIZATION.replace("ghcr.io/acme/web", named)}
        )
        apps = json.dumps(
            {"kind": "List", "items": [application("web", repo, image_list=f"web={named}")]}
        )
        ran = as_process(
            HOSTS[host]({"command": "scan", "allow-protocol": "file"}, apps), tmp_path / "root"
        )
    assert (ran.code, ran.results["updated"]) == (0, "true"), ran.stderr
    assert "newTag: 1.7.0" in show(repo, "main", target("web"))


@ALL
@pytest.mark.parametrize(
    ("state", "code", "message"), [(GOOD, 0, "rolled out: web"), (BAD, 6, "the sync failed")]
)
def test_a_wait_reports_the_rollouts_outcome(
    tmp_path: Path, host: str, state: Any, code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGOCD_AUTH_TOKEN", "good-token")
    with argocd_server() as server:
        server.add(BEFORE, state)
        given = {
            "command": "wait",
            "names": "web",
            "revision": NEW,
            "applications": "argocd",
            "wait-timeout": "20",
        }
        given |= {"argocd-server": server.address, "argocd-plaintext": "true"}
        ran = as_process(HOSTS[host](given, ""), tmp_path)
    assert (ran.code, ran.results["status"], ran.results["commit"]) == (
        code, "failed" if code else "unchanged", "" if code else NEW,
    ), ran.stderr  # fmt: skip
    assert message in ran.results["message"]
    assert set(ran.results) == results(host)


@ALL
def test_lint_reports_its_results(scene: Scene) -> None:
    told = complete(scene, scene.run(command="lint"))
    assert (told["status"], told["message"]) == ("unchanged", "no errors in 1 Application")


@FEW
def test_a_smoke_test_rolls_back_only_its_own_build(scene: Scene) -> None:
    for tag in ("1.1.0", "1.2.0"):
        assert complete(scene, scene.run(image=f"{WEB}:{tag}"))["updated"] == "true"
    back = {"command": "rollback", "names": "web"}
    late = complete(scene, scene.run(**back, failed=f"{WEB}:1.1.0"))
    assert (late["status"], late["updated"]) == ("unchanged", "false")
    said = git(scene.repo, "log", "-1", "--format=%s", "main").strip()
    assert said == "remember a failed version of web"  # nothing was rolled back
    told = complete(scene, scene.run(**back, failed=f"{WEB}:1.2.0"))
    assert (told["status"], told["tag"]) == ("updated", "1.0.0")  # 1.1.0 had also failed


@ALL
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"command": "rollback", "names": "web", "to": "previous", "image": f"{WEB}:1.1.0"},
            "image: not a parameter of rollback",
        ),
        (
            {"command": "run", "image": f"{WEB}:1.1.0", "discard": "true"},
            "discard: not a parameter of run",
        ),
        ({"command": "hold", "names": "web"}, "reason is missing"),
        ({"command": "status", "dry-run": "true"}, "dry-run: not a parameter of status"),
        ({"command": "lint", "image": f"{WEB}:1.1.0"}, "image: not a parameter of lint"),
    ],
    ids=["image", "discard", "reason", "dry-run", "lint"],
)
def test_parameters_for_other_commands_are_rejected(
    scene: Scene, given: dict[str, str], message: str
) -> None:
    ran = scene.run(**given)
    told = complete(scene, ran)
    assert (ran.code, told["status"], message in told["message"]) == (2, "failed", True), ran.stderr
    assert git(scene.repo, "rev-list", "--count", "main") == "1"


@ALL
def test_pipeline_variables_are_never_rejected(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "IMAGE",
        "TO",
        "REASON",
        "REQUIRE_MATCH",
        "PROMOTE_FROM",
        "REVISION",
        "METRICS_FILE",
    ):
        monkeypatch.setenv(f"IMAGE_UPDATE_{name}", "true")
    ran = scene.run(command="release", names="web")
    assert (ran.code, complete(scene, ran)["status"]) == (0, "unchanged"), ran.stderr


@ALL
@pytest.mark.parametrize("value", ["$(touch x)", "`id`", "a'b\"c", "; exit 1", "%s", "a\nb"])
def test_no_shell_interprets_the_values(host: str, value: str) -> None:
    """A variable contains the value exactly as given, and the command line does not change."""
    plain, step = (started(host, {"image": "x:1", "reason": text}) for text in ("", value))
    assert list(step.command) == list(plain.command)
    assert value in step.env.values()


@ALL
def test_an_option_without_a_parameter_is_passed_as_a_single_argument(scene: Scene) -> None:
    value = "Ticket=$(touch x) `id` 'a' \"b\"; --no-refresh"
    ran = scene.run(image=f"{WEB}:1.1.0", trailer=value, atomic="true")
    assert (ran.code, complete(scene, ran)["status"]) == (0, "updated"), ran.stderr
    told = git(scene.repo, "log", "-1", "--format=%B", "main")
    assert value.replace("=", ": ", 1) in told


@ALL
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("--deadlin=5", "options: unknown option --deadlin"),
        ("--image=x:2", "options: image has its own parameter"),
        ("--results-dir=/tmp/x", "options: the manifest already sets --results-dir"),
    ],
)
def test_unknown_or_duplicate_options_are_rejected(scene: Scene, entry: str, message: str) -> None:
    """The results are still written where the host reads them."""
    is_array = isinstance(declared(scene.host)["options"], list)
    options: Any = ["--allow-protocol=file", entry] if is_array else entry
    ran = as_process(HOSTS[scene.host]({"image": "x:1", "options": options}, "{}"), scene.folder)
    told = complete(scene, ran)
    assert (ran.code, told["status"], message in told["message"]) == (2, "failed", True), ran.stderr


@ALL
def test_the_simulated_hosts_reject_invalid_parameters(host: str) -> None:
    with pytest.raises(Refused):
        HOSTS[host]({"image": "x:1", "no-such-parameter": "x"}, "")
    for name, default in declared(host).items():
        if default is None and host != "github":  # GitHub passes an empty value
            with pytest.raises(Refused, match=name):
                HOSTS[host]({}, "")


def test_the_argo_template_can_be_submitted_directly(tmp_path: Path) -> None:
    ((name, path),) = {one["name"]: one["path"] for one in leaf()["inputs"]["artifacts"]}.items()
    apps = source(
        json.dumps({"kind": "List", "items": [application("web", repository(tmp_path, "web"))]})
    )
    whole = {"image": f"{WEB}:1.1.0", "applications": f"{path}/{APPLICATIONS}"}
    back = {
        "command": "hold",
        "names": "web",
        "reason": "x",
        "applications": f"{path}/{APPLICATIONS}",
    }
    for number, (given, status) in enumerate(
        [(whole, "updated"), (back, "updated"), ({**back, "to": "1"}, "failed")]
    ):
        step = runners.argo(given, {name: apps})
        step = replace(step, env={**step.env, "IMAGE_UPDATE_ALLOW_PROTOCOL": "file"})
        ran = as_process(step, tmp_path / str(number))
        assert (ran.code, ran.results["status"]) == (2 if status == "failed" else 0, status), (
            ran.stderr
        )


def test_the_gitlab_component_may_be_used_twice_in_one_pipeline(tmp_path: Path) -> None:
    """The variables in a dotenv report would override the inputs of every later job."""
    web, api = repository(tmp_path, "web"), repository(tmp_path, "api", name="api.git")
    apps = [
        application("web", f"file://{web}"),
        application("api", f"file://{api}", image_list="api=ghcr.io/acme/api"),
    ]
    project = Volume(
        {APPLICATIONS: json.dumps({"kind": "List", "apiVersion": "v1", "items": apps})}
    )
    given = {"applications": APPLICATIONS, "allow-protocol": "file"}
    given = in_the_form("gitlab", given)
    first = as_process(gitlab_job({**given, "image": f"{WEB}:1.1.0"}, project), tmp_path / "first")
    assert (first.code, first.results["updated"]) == (0, "true"), first.stderr
    lines = Path(f"{tmp_path}/first{PROJECT}/image-update.env").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines)
    second = {**given, "image": "ghcr.io/acme/api:2.0.0"}
    second["options"] += "\n--strategy=newest-build"
    ran = as_process(gitlab_job(second, project, variables), tmp_path / "second")
    assert (ran.code, ran.results["tag"], ran.results["applications"]) == (
        0,
        "2.0.0",
        '["argocd/api"]',
    ), ran.stderr
    # A local folder has no pull requests, but with pull-request, nothing is pushed to the base
    # either.
    third = {**given, "image": f"{WEB}:1.2.0", "pull-request": "true"}
    refused = as_process(gitlab_job(third, project, variables), tmp_path / "third")
    assert (refused.code, git(web, "rev-list", "--count", "main")) == (3, "2"), refused.stderr
    assert not variables.keys() & {one.envvar for one in all_options()}


def test_missing_argo_results_default_to_a_failure() -> None:
    """If the container did not even start, the reported results must not look like a success."""
    defaults = {one["name"]: one["valueFrom"]["default"] for one in leaf()["outputs"]["parameters"]}
    assert (defaults["status"], defaults["updated"]) == ("failed", "false")


def test_github_receives_a_summary_table_and_annotations(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web")
    apps = json.dumps({"kind": "List", "items": [application("web", f"file://{repo}")]})
    root = tmp_path / "root"
    ran = as_process(github({"image": f"{WEB}:1.1.0", "allow-protocol": "file"}, apps), root)
    table = (root / "github/file_commands/step_summary_1").read_text()
    assert "| `argocd/web` |" in table
    assert ran.results["commit"] in table
    failed = as_process(github({"image": f"{WEB}:1.1.0"}, apps), tmp_path / "other")
    assert failed.code == 3
    assert "::error" in failed.stdout + failed.stderr
    given = {"image": "ghcr.io/acme/wbe:1.2.0", "allow-protocol": "file", "dry-run": "true"}
    strange = as_process(github(given, apps), tmp_path / "third")
    assert (
        "\n::warning title=Image Update::no Application tracks ghcr.io/acme/wbe%0A  fix: did you mean ghcr.io/acme/web?\n"
        in f"\n{strange.stderr}"
    )
    told = (tmp_path / "third/github/file_commands/step_summary_1").read_text()
    assert told.startswith("### Image Update: no Application tracks it (1 read)\n")
    assert (
        "- warning: `no Application tracks ghcr.io/acme/wbe` fix: `did you mean ghcr.io/acme/web?`"
        in told
    )
