"""The ready-made files for manual pipelines: every command on every host, from form to branch."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from hosts import runners
from hosts.checks import documents, maps
from hosts.gitlab import gitlab as gitlab_job
from hosts.runners import ARGO, GITHUB, TEKTON, fill
from hosts.steps import Ran, Step, Volume, as_process
from support import ROOT, bare_repo, git, image_update, show, variants
from support.runs import KUSTOMIZATION, WEB, application, target

TOKEN = "a-token-of-the-job"
HOSTILE = "--to=9.9.9; $(touch x) `id`\n::set-output name=a::b\n{{=1+1}} 'a' \"b\""
Form = Mapping[str, str]
FORMS: Mapping[str, Form] = {
    "rollback": {"names": "argocd/web", "to": "previous", "reason": "errors"},
    "hold": {"names": "web", "reason": "load test", "until": "3d", "alias": "web"},
    "release": {"names": "web", "discard": "true"},
    "promote": {"from": "web", "to": "other", "registry-check": "auto"},  # no registry is available
}
GITHUB_FILE, GITLAB_FILE = (
    ROOT / "examples/github/by-hand.yml",
    ROOT / "examples/gitlab/by-hand.yml",
)
ARGO_FILE = ROOT / "argo-workflows/image-update/samples/by-hand.yaml"
TEKTON_FILE = ROOT / "tekton/task/image-update/samples/pipelinerun-by-hand.yaml"


def github(command: str, form: Form, url: str) -> Step:
    (workflow,) = documents(GITHUB_FILE)
    fields = workflow[True]["workflow_dispatch"]["inputs"]
    assert command in fields["command"]["options"]
    assert set(form) <= set(fields)
    (step,) = (one for one in maps(workflow) if one.get("id") == "update")
    given = {"discard": "false", "registry-check": "always", "command": command, **form}
    context = {f"inputs.{name}": given.get(name, "") for name in fields}
    context |= {"github.server_url": url.rpartition("/")[0], "github.repository": "gitops"}
    return runners.github(
        fill(step["with"], GITHUB, context.__getitem__), Volume(), {"GITHUB_ACTOR": "ann"}
    )


def gitlab(command: str, form: Form, url: str) -> Step:
    (pipeline,) = documents(GITLAB_FILE)
    (used,) = (one["inputs"] for one in pipeline["include"] if one["inputs"]["command"] == command)
    assert pipeline[used["job-name"]] == {"extends": ".by-hand"}
    assert pipeline[".by-hand"]["rules"] == [
        {"if": '$CI_PIPELINE_SOURCE == "web"', "when": "manual"}
    ]
    fields = {name: one["value"] for name, one in pipeline["variables"].items()}
    given = {
        "VERSION" if (name, command) == ("to", "rollback") else name.upper().replace("-", "_"): text
        for name, text in form.items()
    }
    assert set(given) <= set(fields)
    project = {**fields, **given, "CI_PROJECT_URL": url, "GITLAB_USER_LOGIN": "ann"}
    return gitlab_job(used, Volume(), project)


def argo(command: str, form: Form, url: str) -> Step:
    (template,) = documents(ARGO_FILE)
    spec = template["spec"]
    fields = {one["name"]: one for one in spec["arguments"]["parameters"]}
    assert command in fields["command"]["enum"]
    values = runners.values_of(
        list(fields.values()), {"command": command, "by": "ann" * ("reason" in form), **form}
    )
    (step,) = (one for one in maps(spec) if "templateRef" in one)
    given = {one["name"]: one["value"] for one in step["arguments"]["parameters"]}
    given = fill(given, ARGO, lambda name: values[name.removeprefix("workflow.parameters.")])
    return runners.argo(
        {**given, "applications": f"{url}.git//applications?ref=main"}, template="update"
    )


def tekton(command: str, form: Form, url: str) -> Step:
    (run,) = documents(TEKTON_FILE)
    fields = {one["name"]: "" for one in run["spec"]["params"]}
    spec = run["spec"]["pipelineSpec"]
    assert set(fields) == {one["name"] for one in spec["params"]}
    fields["registry-check"] = "always"
    values = {**fields, "command": command, "by": "ann" * ("reason" in form), **form}
    (task,) = spec["tasks"]
    given = {
        one["name"]: fill(one["value"], TEKTON, lambda name: values[name[7:]])
        for one in task["params"]
    }
    return runners.tekton({**given, "applications": f"{url}.git//applications?ref=main"})


HOSTS: dict[str, Callable[[str, Form, str], Step]] = {
    "github": github, "gitlab": gitlab, "argo": argo, "tekton": tekton,
}  # fmt: skip


class Scene:
    """A GitOps repository that contains its own Applications, with web at its second version."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder, self.host, self.count = folder, host, 0
        self.repo = folder / "gitops.git"
        url = f"file://{self.repo}"
        apps = {
            f"applications/{one}.yaml": yaml.safe_dump(application(one, url))
            for one in ("web", "other")
        }
        old = KUSTOMIZATION.replace("1.0.0", "0.9.0")
        bare_repo(
            folder, {**apps, target("web"): KUSTOMIZATION, target("other"): old}, name="gitops.git"
        )
        given = ("--applications", f"{url}//applications?ref=main", "--application", "web")
        assert image_update("run", "--image", f"{WEB}:1.1.0", *given).code == 0

    def click(self, command: str, **form: str) -> Ran:
        self.count += 1
        step = HOSTS[self.host](command, form, f"file://{self.folder}/gitops")
        return as_process(step, self.folder / f"root-{self.count}")

    def tag(self, name: str) -> str:
        return str(yaml.safe_load(show(self.repo, "main", target(name)))["images"][0]["newTag"])

    def message(self) -> str:
        return git(self.repo, "log", "-1", "--format=%B", "main")


@pytest.fixture
def scene(tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("IMAGE_UPDATE_ALLOW_PROTOCOL", "file")  # set for the whole pipeline
    return Scene(tmp_path, host)


@pytest.mark.parametrize("host", variants(["github", "tekton"], at_night=["gitlab", "argo"]))
def test_each_command_works_from_each_hosts_form(scene: Scene) -> None:
    done = {command: scene.click(command, **form) for command, form in FORMS.items()}
    assert {
        command: (ran.code, ran.results["status"]) for command, ran in done.items()
    } == dict.fromkeys(FORMS, (0, "updated")), [ran.stderr for ran in done.values()]
    assert (scene.tag("web"), scene.tag("other")) == ("1.0.0", "1.0.0")
    log = git(scene.repo, "log", "--format=%B", "main")
    assert log.count("by ann") == 3  # rollback, hold, and release name the person who started them
    assert len({ran.results["commit"] for ran in done.values()}) == len(FORMS)


@pytest.mark.parametrize("host", HOSTS)
def test_a_mistyped_tag_is_not_written_if_no_registry_responds(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    form = {"names": "web", "to": "1.42", "reason": "errors"}
    assert (scene.click("rollback", **form).code, scene.tag("web")) == (75, "1.1.0")
    ran = scene.click("rollback", **form, **{"registry-check": "auto"})
    assert (ran.code, scene.tag("web")) == (0, "1.42")


@pytest.mark.parametrize("host", HOSTS)
def test_typed_text_is_never_executed(scene: Scene) -> None:
    words = (
        HOSTILE.replace("{{=1+1}} ", "") if scene.host == "argo" else HOSTILE
    )  # Argo evaluates such text itself
    done = scene.click("hold", names="web", reason=words)
    if "{{" in words:
        assert (done.code, "the pipeline did not replace {{=1+1}}" in done.results["message"]) == (
            2,
            True,
        ), done.stderr
        done = scene.click("hold", names="web", reason=words.replace("{{=1+1}} ", ""))
    assert done.code == 0, done.stderr
    assert scene.tag("web") == "1.1.0"
    assert " ".join(words.replace("{{=1+1}} ", "").split()) in " ".join(scene.message().split())
    assert not list(scene.folder.rglob("x"))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    "names", variants(["--version", "web\nother"], at_night=["-", "../../etc", "$(id)"])
)
def test_typed_names_are_never_read_as_options(scene: Scene, names: str) -> None:
    ran = scene.click("hold", names=names, reason="x")
    assert ran.code in ((0,) if names == "web\nother" else (2, 3)), ran.stderr
    assert set(ran.results) >= {"status", "message"}


@pytest.mark.parametrize("host", HOSTS)
def test_a_field_for_another_command_is_rejected(scene: Scene) -> None:
    ran = (
        scene.click("hold", names="web", reason="x", discard="true")
        if scene.host != "gitlab"
        else None
    )
    if ran:  # GitLab jobs pass only their own parameters
        assert (ran.code, "discard: not a parameter of hold" in ran.results["message"]) == (
            2,
            True,
        ), ran.stderr


@pytest.mark.parametrize("field", ["reason", "by"])
def test_a_secret_in_a_reason_is_not_committed(field: str) -> None:
    """GitLab replaces `$NAME` in a person's input with the variable's value."""
    env = {
        "IMAGE_UPDATE_GIT_TOKEN": TOKEN,
        "IMAGE_UPDATE_GIT_CREDENTIALS_URL": "https://git.example.com/",
    }
    words = {"--reason": "load test", f"--{field}": f"see {TOKEN}"}
    result = image_update("hold", "web", *[word for one in words.items() for word in one], env=env)
    assert (result.code, "must not contain a secret" in result.stderr, TOKEN in result.stderr) == (
        2,
        True,
        False,
    )
