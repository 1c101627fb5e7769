"""`status`: the state of each image, from the command line to the table. `status` writes nothing,
as most of the tests verify.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import jsonschema
import pytest
import yaml
from fakes.argocd_api import argocd_server
from fakes.github_api import GitHub
from fakes.kubernetes_api import APPLICATIONS, running
from fakes.oci_images import image
from fakes.registry_api import RegistryApi, registry_api
from support import ROOT, Result, bare_repo, command, commit, git, image_update, scale
from support.clusters import full_application, kubeconfig, live_app
from support.request_scenes import API
from support.request_scenes import Scene as RequestScene
from support.runs import KUSTOMIZATION, WEB, application, manifest, repository, target
from support.serving import serving

from task import __version__
from task.schemas import load

SCHEMA = load("status.v1")
RUN = "https://ci.example.com/runs/7"
STATE = ".image-update/apps/b/argocd_b.state"


@contextmanager
def untouched(repo: Path) -> Iterator[None]:
    """Check that nothing in the block writes to the repository, not even a Git object."""
    before = git(repo, "for-each-ref"), git(repo, "count-objects", "-v")
    yield
    assert (git(repo, "for-each-ref"), git(repo, "count-objects", "-v")) == before


class Scene:
    """Applications in one repository, and commands for them."""

    def __init__(self, folder: Path, names: str = "abc", **broken: Mapping[str, str]) -> None:
        there = folder / "repo.git"
        self.repo = there if there.exists() else repository(folder, *names)
        apps = [application(name, self.repo, **broken.get(name, {})) for name in names]
        self.given = ("--applications", str(manifest(folder, *apps)), "--allow-protocol", "file")

    def call(self, command: str, *more: str, env: Mapping[str, str] | None = None) -> Result:
        return image_update(command, *more, *self.given, env=env)

    def do(self, command: str, *more: str) -> Any:
        result = self.call(command, *more, "--output", "json")
        assert result.code == 0, result.stderr
        return result.json

    def status(self, *more: str, code: int = 0) -> Any:
        with untouched(self.repo):
            result = self.call("status", *more, "--output", "json")
        assert result.code == code, result.stderr
        jsonschema.validate(result.json, SCHEMA)
        return result.json


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which `a` has been updated, `b` is held while a build waits, and `c` has
    never been updated.
    """
    made = Scene(tmp_path_factory.mktemp("history"))
    made.do("run", "--application", "a", "--image", f"{WEB}:1.1.0", "--pipeline-run", RUN)
    made.do("hold", "b", "--reason", "incident 42", "--by", "jane", "--until", "2099-01-01")
    made.do("run", "--application", "b", "--image", f"{WEB}:1.2.0")
    return made.repo


@pytest.fixture
def scene(history: Path, tmp_path: Path) -> Scene:
    """A copy of that repository, and its Applications."""
    copytree(history, tmp_path / history.name)
    return Scene(tmp_path)


def keys(found: Any) -> list[str]:
    return [one["application"] for one in found["images"]]


@pytest.mark.measured
def test_status_shows_the_version_in_git_its_hold_and_its_history(scene: Scene) -> None:
    found = scene.status()
    a, b, c = found["images"]
    assert found["errors"] == []
    assert (a["application"], a["alias"], a["image"], a["strategy"]) == (
        "argocd/a",
        "web",
        WEB,
        "semver",
    )
    assert (a["repository"], a["branch"], a["file"]) == (str(scene.repo), "main", target("a"))
    assert (a["current"], a["hold"], a["deferred"], a["would"]) == (
        {"tag": "1.1.0", "digest": None},
        None,
        None,
        None,
    )
    assert [(one["tag"], one["by"], one["pipeline_run"]) for one in a["builds"]] == [
        ("1.1.0", "image-update", RUN),
        ("1.0.0", "Tests", None),
    ]
    assert a["builds"][0]["commit"] == git(scene.repo, "rev-list", "-1", "main", "--", target("a"))
    held = b["hold"]
    assert (held["reason"], held["by"], held["until"]) == (
        "incident 42",
        "jane",
        "2099-01-01T00:00:00Z",
    )
    assert held["scope"] == "application"
    assert (b["current"]["tag"], b["deferred"]["tag"]) == ("1.0.0", "1.2.0")
    assert b["deferred"]["at"] == git(
        scene.repo, "log", "-1", "--format=%cd", "--date=format:%FT%TZ", "main"
    )
    assert (c["current"]["tag"], [one["tag"] for one in c["builds"]]) == ("1.0.0", ["1.0.0"])
    assert [one["builds"] for one in scene.status("--builds", "0")["images"]] == [[], [], []]
    scene.do("hold", "c", "--alias", "web", "--reason", "only this")
    assert [one["hold"]["scope"] for one in scene.status("c")["images"]] == ["image"]


def test_the_text_the_table_and_the_page_show_the_same_facts(scene: Scene) -> None:
    with untouched(scene.repo):
        brief = scene.call("status").stdout
        text = scene.call("status", "*").stdout
        wide = scene.call(
            "status", "*", env={"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm"}
        ).stdout
        page = scene.call("status", "--html").stdout
    for words in ("incident 42", "by jane since ", "1.2.0, since ", RUN, "1 held, 2 ok"):
        assert words in text
        assert words in page
    assert "held      argocd/b  web=ghcr.io/acme/web  1.0.0\n" in text
    assert [line.split()[:2] for line in brief.splitlines()[:-1]] == [
        ["held", "argocd/b"],
        ["ok", "argocd/a"],
        ["ok", "argocd/c"],
    ]
    lines = [line.replace("\x1b[0m", "") for line in wide.split("\n")]
    assert max(len(line) for line in lines if "\x1b" not in line) <= 80
    assert "incident 42" in wide


@pytest.mark.parametrize(
    "words", ["FOLDER/page.html", "FOLDER/page", "--html=page", "page.html", "./page"]
)
def test_the_html_page_is_written_to_the_given_file(
    scene: Scene, tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = (
        [words]
        if words.startswith("--html=")
        else ["--html", words.replace("FOLDER", str(tmp_path))]
    )
    assert scene.call("status", *given) == (0, "", "")
    (page,) = (*tmp_path.glob("page"), *tmp_path.glob("page.html"))
    assert page.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("words", "shown", "code"),
    [
        (["a", "--application", "[ab]"], ["argocd/a"], 0),
        (["a", "--application", "a", "--application", "b"], ["argocd/a"], 0),
        (["*", "--application", "argocd/b"], ["argocd/b"], 0),
        (["a", "--application", "b"], [], 3),
        (["a", "b", "--application", "b"], ["argocd/b"], 3),
    ],
)
def test_the_application_option_restricts_which_applications_are_found(
    scene: Scene, words: list[str], shown: list[str], code: int
) -> None:
    found = scene.status(*words, code=code)
    assert keys(found) == shown
    told = [(one["message"], one["hint"]) for one in found["errors"] if one["severity"] == "error"]
    hint = "check --application, --namespace, --project, or --selector: an Application with that name is excluded"
    assert told == ([("there is no Application named 'a'", hint)] if code else [])


def test_applications_are_selected_by_name_and_glob(scene: Scene) -> None:
    assert keys(scene.status("a")) == keys(scene.status("argocd/a")) == ["argocd/a"]
    assert keys(scene.status("[bc]")) == ["argocd/b", "argocd/c"]
    found = scene.status("a", "z", code=3)
    assert keys(found) == ["argocd/a"]
    assert [one["message"] for one in found["errors"]] == ["there is no Application named 'z'"]
    assert [one["severity"] for one in scene.status("z*")["errors"]] == ["warning"]


def test_an_invalid_annotation_is_an_error_and_the_other_images_are_shown(tmp_path: Path) -> None:
    scene = Scene(tmp_path, b={"update_strategy": "semver", "web.allow_tags": "regexp:("})
    found = scene.status(code=3)
    assert keys(found) == ["argocd/a", "argocd/c"]
    (error,) = found["errors"]
    assert (error["application"], error["rule"], error["severity"]) == (
        "argocd/b",
        "annotation",
        "error",
    )
    assert "error: argocd/b: " in scene.call("status").stderr
    assert scene.status("a")["errors"] == []


def test_an_unreadable_file_does_not_hide_other_applications(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    commit(scene.repo, {target("a"): "images: [", STATE: "files: ["})
    found = scene.status(code=3)
    assert keys(found) == ["argocd/a", "argocd/b", "argocd/c"]
    assert [(one["application"], one["rule"]) for one in found["errors"]] == [
        ("argocd/a", "target"),
        ("argocd/b", "target"),
    ]
    assert [one["current"]["tag"] for one in found["images"]] == [None, "1.0.0", "1.0.0"]


def test_a_freeze_is_shown_as_a_hold_with_its_own_scope(scene: Scene) -> None:
    freeze = "{schedule: '0 0 * * *', duration: 25h, reason: no deployments, match: {paths: ['apps/[ab]/**']}}"
    commit(scene.repo, {".image-update/config": f"version: 1\nfreezes: [{freeze}]\n"})
    a, b, c = (one["hold"] for one in scene.status("--image", f"{WEB}:1.3.0")["images"])
    assert (a["scope"], a["by"]) == ("freeze", "the freeze in .image-update/config, line 2")
    assert a["reason"] == "no deployments"
    assert (b["scope"], c) == ("application", None)  # a person's hold takes precedence
    commit(scene.repo, {".image-update/config": "version: 1\nfreezs: []\n"})
    found = scene.status("--image", f"{WEB}:1.3.0", code=3)
    assert [one["would"]["rule"] for one in found["images"]] == ["target", "target", "target"]
    assert [one["current"]["tag"] for one in found["images"]] == ["1.1.0", "1.0.0", "1.0.0"]


def test_a_missing_repository_is_an_error_for_its_application(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    nowhere = manifest(tmp_path, application("x", tmp_path / "none.git"), name="more.json")
    found = image_update("status", "--applications", nowhere, *scene.given, "--output", "json")
    assert found.code == 4
    assert keys(found.json) == ["argocd/a", "argocd/b", "argocd/c", "argocd/x"]
    assert [(one["application"], one["rule"]) for one in found.json["errors"]] == [
        ("argocd/x", "repository")
    ]
    text = image_update("status", "x", "--applications", nowhere, *scene.given).stdout
    assert f"unknown   argocd/x  web={WEB}  not read\n" in text


@pytest.mark.parametrize("tag", ["1.1.0", "1.3.0", "0.9.0", "latest"])
def test_the_predicted_decision_for_an_image_matches_plan(scene: Scene, tag: str) -> None:
    planned = scene.do("plan", "--image", f"{WEB}:{tag}")["decisions"]
    would = [one["would"] for one in scene.status("--image", f"{WEB}:{tag}")["images"]]
    assert would == [
        {name: one[name] for name in ("verdict", "rule", "because")} for one in planned
    ]
    assert {one["verdict"] for one in would} >= (
        {"defer"} if tag == "1.3.0" else {"refuse"} if tag != "1.1.0" else set()
    )


def test_an_untracked_image_gets_a_suggestion(scene: Scene) -> None:
    found = scene.status("--image", "ghcr.io/acme/wbe:1.0.0")
    assert found["images"] == []
    assert [one["hint"] for one in found["errors"]] == [f"did you mean {WEB}?"]
    assert scene.call("status", "--image", WEB).code == 2  # without a tag and a digest


def test_invalid_options_are_usage_errors(scene: Scene) -> None:
    for words in (["--builds", "51"], ["--builds", "-1"], ["--builds", "x"]):
        found = scene.call("status", *words)
        assert (found.code, "a whole number from 0 to 50" in found.stderr) == (2, True)
    found = scene.call("status", "--newest", "--registry-check", "never")
    assert (
        found.code,
        "--newest and --registry-check=never cannot be combined" in found.stderr,
    ) == (
        2,
        True,
    )


def test_the_sample_deployment_rewrites_the_page_periodically(tmp_path: Path) -> None:
    sample = ROOT / "examples/kubernetes/status-page.yaml"
    deployment, service = yaml.safe_load_all(sample.read_text(encoding="utf-8"))
    spec = deployment["spec"]["template"]["spec"]
    status, web = spec["containers"]
    assert status["image"].endswith(f":v{__version__}")
    assert service["spec"]["ports"][0]["targetPort"] == web["ports"][0]["name"]
    (script,) = status["args"]
    twice = script.replace("while true", "for _ in 1 2").replace("/page/", f"{tmp_path}/")
    named = {one["name"]: one.get("value", "") for one in status["env"]}
    wrong = application("web", repository(tmp_path, "web"), allow_tags="^v1")
    env = {
        **named,
        "HOME": str(tmp_path),
        "PATH": f"{Path(command()).parent}:{os.environ['PATH']}",
        "IMAGE_UPDATE_APPLICATIONS": str(manifest(tmp_path, wrong)),
        "IMAGE_UPDATE_ALLOW_PROTOCOL": "file",
    }
    shell = ["sh", "-c", twice.replace("sleep 600", "true")]
    subprocess.run(shell, env=env, check=True, capture_output=True)
    assert "argocd/web" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert not (tmp_path / ".new").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--older-than", "3d"), "--older-than requires --fail-on"),
        (("--fail-on", "held", "--older-than", "soon"), "--older-than: 'soon' is not a duration"),
        (("--fail-on", "old"), "--fail-on: 'old' is not a valid value"),
        (
            ("--fail-on", "behind", "--registry-check", "never"),
            "--fail-on behind and --registry-check=never cannot be combined",
        ),
    ],
)
def test_invalid_fail_on_options_are_usage_errors(
    given: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    found = image_update("status", "--applications", tmp_path, *given)
    assert (found.code, message in found.stderr) == (2, True), found.stderr


@pytest.mark.measured
def test_the_newest_tag_that_the_rules_admit_is_shown(tmp_path: Path) -> None:
    with registry_api() as server:
        built = image()
        for tag in ("1.0.0", "1.4.0", "2.0.0"):
            server.put("acme/web", tag, built)
        server.put("acme/web", "latest", built)
        named = f"{server.name}/acme/web"
        lists = {
            "a": f"web={named}:~1",
            "b": f"web={named}:latest",
            "c": f"web={named}:~3",
            "d": f"web={server.name}/no",
        }
        texts = {target(name): KUSTOMIZATION.replace(WEB, named) for name in lists}
        repo = bare_repo(tmp_path, texts)
        apps = [application(name, repo, image_list=text) for name, text in lists.items()]
        apps[1] = application("b", repo, image_list=lists["b"], update_strategy="digest")
        given = (
            "--applications",
            manifest(tmp_path, *apps),
            "--allow-protocol",
            "file",
            "--output",
            "json",
        )
        with untouched(repo):
            found = image_update("status", "--newest", "--registry-check", "auto", *given)
            quiet = image_update("status", *given)
        assert lists_of(server) == 2
        gate = ("status", "a", "--registry-check", "auto", *given, "--fail-on", "behind,held")
        late = image_update(*gate, "--older-than", "3d")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        server.put("acme/web", "1.9.0", image(created=now))
        young = image_update(*gate, "--older-than", "3d")
        assert (late.code, young.code) == (5, 0), late.stderr
        assert (
            "is behind: Git has 1.0.0, the registry 1.4.0, since 2026-01-02 03:04 UTC"
            in late.stderr
        )
        jsonschema.validate(late.json, SCHEMA)
        text = image_update(
            "status", "d", "--newest", "--registry-check", "auto", *given[:-2]
        ).stdout
        assert "      newest   unknown: the registry did not answer\n" in text
        assert "1 unknown, 1 error, as of " in text
    jsonschema.validate(found.json, SCHEMA)
    assert [one["newest"] for one in found.json["images"]] == [
        {"tag": "1.4.0", "digest": None},
        {"tag": "latest", "digest": built.digest},
        None,
        None,
    ]
    assert {one["newest"] for one in quiet.json["images"]} == {None}
    by_app = {one["application"]: one for one in found.json["errors"]}
    assert (by_app["argocd/c"]["rule"], by_app["argocd/c"]["severity"]) == ("constraint", "warning")
    assert "argocd/d" in by_app


def lists_of(server: RegistryApi) -> int:
    """Return the number of requests for tag lists."""
    return sum(1 for one in server.asked if one.endswith("/tags/list"))


def test_the_running_image_is_read_from_argo_cd(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web", "live")
    commit(repo, {target("web"): KUSTOMIZATION.replace("1.0.0", "1.1.0")})
    with argocd_server() as server:
        for one in (
            full_application("web", repo),
            live_app("live", repo, kustomize__image_name=WEB),
        ):
            server.add({**one, "metadata": {"resourceVersion": "7", **one["metadata"]}})
        env = {
            "ARGOCD_SERVER": server.address,
            "ARGOCD_AUTH_TOKEN": "good-token",
            "ARGOCD_OPTS": "--plaintext",
        }
        with untouched(repo):
            found = image_update(
                "status",
                "--image",
                f"{WEB}:1.2.0",
                "--allow-protocol",
                "file",
                "--output",
                "json",
                env=env,
            )
        assert {one.method for one in server.seen} == {"GET"}
        assert not [one for one in server.seen if "refresh" in one.query]
    assert found.code == 0, found.stderr
    jsonschema.validate(found.json, SCHEMA)
    live, web = found.json["images"]
    assert (web["current"]["tag"], web["live"]) == ("1.1.0", [{"tag": "1.0.0", "digest": None}])
    assert (live["repository"], live["live"]) == (None, [{"tag": "1.0.0", "digest": None}])
    assert [one["would"]["verdict"] for one in (live, web)] == ["update", "update"]


def test_the_running_image_is_read_from_the_cluster_with_read_requests_only(tmp_path: Path) -> None:
    repo = repository(tmp_path, "web", "other")
    with running() as api:
        api.add(
            APPLICATIONS,
            full_application("web", repo),
            full_application("other", repo),
            live_app("live", kustomize__image_name=WEB),
        )
        given = (
            "--applications",
            "cluster",
            "--kubeconfig",
            kubeconfig(tmp_path, api),
            "--allow-protocol",
            "file",
        )
        with untouched(repo):
            found = image_update("status", "web", "live", *given, "--output", "json")
        assert {one.verb for one in api.asked} <= {"get", "list"}
    assert found.code == 0, found.stderr
    jsonschema.validate(found.json, SCHEMA)
    assert keys(found.json) == ["argocd/live", "argocd/web"]
    assert [one["live"] for one in found.json["images"]] == [[{"tag": "1.0.0", "digest": None}]] * 2


def test_the_version_of_a_live_application_from_a_file_is_unknown(tmp_path: Path) -> None:
    given = ("--applications", manifest(tmp_path, live_app("live")), "--output", "json")
    found = image_update("status", *given)
    assert found.code == 0
    assert [one["current"] for one in found.json["images"]] == [{"tag": None, "digest": None}]
    assert [(one["rule"], one["severity"]) for one in found.json["errors"]] == [
        ("source", "warning")
    ]


@pytest.mark.servers
def test_an_update_in_an_open_pull_request_is_shown(tmp_path: Path) -> None:
    with serving(GitHub()) as server:
        scene = RequestScene(tmp_path, server)
        scene.event(f"{WEB}:1.1.0")
        (pull,) = server.open
        scene.flags = ()  # the option is not required, but a token is
        with untouched(scene.repo):
            found = scene.call("status")
            without = scene.call("status", env={"IMAGE_UPDATE_FORGE_TOKEN": ""})
        jsonschema.validate(found.json, SCHEMA)
        rows = {one["image"]: one["pull_request"] for one in found.json["images"]}
        assert rows[API] is None
        number = int(pull.number)
        assert rows[WEB] == {
            "url": rows[WEB]["url"],
            "number": number,
            "head": scene.head,
            "tag": "1.1.0",
        }
        assert rows[WEB]["url"].endswith(f"/{number}")
        waits = {one["image"]: one["pull_request"] for one in without.json["images"]}
        assert waits[API] is None  # only the Git host knows the waiting build's pull request
        assert (waits[WEB]["head"], waits[WEB]["tag"]) == (scene.head, "1.1.0")
        scene.merge()
        after = scene.call("status").json["images"]
    assert [
        (one["pull_request"], one["current"]["tag"]) for one in after if one["image"] == WEB
    ] == [(None, "1.1.0")]
    assert (
        next(one for one in after if one["image"] == WEB)["builds"][0]["by"] == "image-update"
    )  # rather than the person who merged


@pytest.mark.servers
@pytest.mark.parametrize("tag", ["1.0.5", "1.2.0"])
def test_the_predicted_decision_considers_an_update_on_the_head_branch(
    tmp_path: Path, tag: str
) -> None:
    with serving(GitHub()) as server:
        scene = RequestScene(tmp_path, server)
        scene.event(f"{WEB}:1.1.0")
        (planned,) = scene.call("plan", "--image", f"{WEB}:{tag}").json["decisions"]
        (one,) = scene.call("status", "--image", f"{WEB}:{tag}").json["images"]
    assert one["would"] == {name: planned[name] for name in ("verdict", "rule", "because")}


def test_an_update_on_a_branch_without_a_pull_request_is_shown(tmp_path: Path) -> None:
    scene = Scene(tmp_path, a={"git_branch": "main:bump"})
    scene.do("run", "--image", f"{WEB}:1.1.0")
    rows = {one["application"]: one["pull_request"] for one in scene.status()["images"]}
    waits = {"url": None, "number": None, "head": "bump", "tag": "1.1.0"}
    assert rows == {"argocd/a": waits, "argocd/b": None, "argocd/c": None}
    assert "1.1.0 on branch bump" in scene.call("status", "a").stdout


def test_a_hold_on_another_application_with_the_same_file_is_shown(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "ab", b={"write_back_target": "kustomization:/apps/a"})
    scene.do("hold", "a", "--reason", "incident 42")
    rows = {one["application"]: one["hold"] for one in scene.status()["images"]}
    assert rows["argocd/b"]["reason"] == "incident 42 (hold on argocd/a)"


@pytest.mark.slow
def test_many_applications_need_at_most_four_fetches(tmp_path: Path) -> None:
    names = [f"app-{number}" for number in range(scale(400, at_night=2000))]
    repo = repository(tmp_path, *names)
    for number in range(20):
        commit(repo, {target(names[number]): KUSTOMIZATION.replace("1.0.0", f"1.{number}.1")})
    apps = manifest(tmp_path, *(application(name, repo) for name in names))
    given = (
        "--applications",
        apps,
        "--allow-protocol",
        "file",
        "--output",
        "json",
        "--log-level",
        "debug",
    )
    with untouched(repo):
        found = image_update("status", *given)
    assert found.code == 0, found.stderr
    assert len(found.json["images"]) == len(names)
    assert [
        len(one["builds"]) for one in found.json["images"] if one["application"] == "argocd/app-7"
    ] == [2]
    transfers = [line for line in found.stderr.splitlines() if ": fetch " in line]
    assert len(transfers) <= 4, (
        transfers
    )  # the tip, its files, the commits, and earlier contents of the files
