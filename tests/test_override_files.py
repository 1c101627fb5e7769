"""Whole runs with override files that people also edit: people's values are kept, and values
carried over from a source follow that source.
"""

from pathlib import Path
from typing import Any

import pytest
from support import Result, bare_repo, commit, git, image_update, show
from support.runs import WEB, application, arguments, manifest

FILE = "apps/a/.argocd-source-a.yaml"
HELM = {"apps/a/Chart.yaml": "apiVersion: v2\nname: a\nversion: 0.1.0\n"}
KUSTOMIZE = {"apps/a/kustomization.yaml": "resources: []\n"}


class Scene:
    """One Application, whose spec has parameters, images, or variables, in one repository."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.folder = folder
        self.repo = bare_repo(folder, files)

    def run(self, tag: str, section: dict[str, Any], *more: str, **annotations: str) -> Result:
        one = application("a", self.repo, **{"write_back_target": "", **annotations})
        one["spec"]["source"] |= section
        result = image_update(*arguments(manifest(self.folder, one), *more, image=f"{WEB}:{tag}"))
        assert result.code == 0, result.stderr
        return result

    @property
    def text(self) -> str:
        return show(self.repo, "main", FILE)


def helm(**parameters: str) -> dict[str, Any]:
    return {
        "helm": {
            "parameters": [{"name": name, "value": value} for name, value in parameters.items()]
        }
    }


def warnings(result: Result) -> list[str]:
    return [one["message"] for one in result.json["errors"] if one["severity"] == "warning"]


def test_parameters_carried_over_from_the_spec_follow_the_spec(tmp_path: Path) -> None:
    scene = Scene(tmp_path, HELM)
    scene.run("1.1.0", helm(replicas="2", log="info"))
    assert '  - name: replicas  # from the Application\n    value: "2"\n' in scene.text
    done = scene.run("1.2.0", helm(replicas="3"))
    assert '  - name: replicas  # from the Application\n    value: "3"\n' in scene.text
    assert ("log" in scene.text, "1.2.0" in scene.text) == (False, True)
    assert warnings(done) == []


def test_values_written_by_a_person_are_kept_and_reported(tmp_path: Path) -> None:
    scene = Scene(tmp_path, HELM)
    scene.run("1.1.0", helm(replicas="2", log="info"))
    mine = scene.text.replace(
        'replicas  # from the Application\n    value: "2"',
        'replicas  # twice the load\n    value: "4"',
    )
    commit(scene.repo, {FILE: mine})
    done = scene.run("1.2.0", helm(replicas="3", log="debug"))
    assert scene.text == mine.replace("1.1.0", "1.2.0").replace("info", "debug")
    (told,) = warnings(done)
    assert told == f"{FILE} differs from the Application in replicas; Argo CD uses the file"
    assert "# from the Application" in done.json["errors"][0]["hint"]
    assert warnings(scene.run("1.3.0", helm(replicas="4", log="debug"))) == []


def test_files_written_by_older_versions_or_image_updater_do_not_follow_the_spec(
    tmp_path: Path,
) -> None:
    old = "helm:\n  parameters:\n" + "".join(
        f"  - name: {name}\n    value: {value}\n    forcestring: {force}\n"
        for name, value, force in [
            ("image.name", WEB, "true"),
            ("image.tag", "1.0.0", "true"),
            ("log", "info", "false"),
        ]
    )
    scene = Scene(tmp_path, {**HELM, FILE: old})
    done = scene.run("1.1.0", helm(log="debug", replicas="2"))
    kept = old.replace("1.0.0", "1.1.0")
    assert scene.text == kept  # Argo CD has ignored `replicas` since this list was added
    assert warnings(done) == [
        f"{FILE} differs from the Application in log; Argo CD uses the file",
        f"{FILE} hides replicas in the Application: the file has its own list, and Argo CD uses only that list",
    ]
    assert "--carry-parameters" in done.json["errors"][1]["hint"]
    done = scene.run("1.2.0", helm(log="debug", replicas="2"), "--no-carry-parameters")
    assert (scene.text, warnings(done)) == (kept.replace("1.1.0", "1.2.0"), [])
    kept = kept.replace("1.1.0", "1.3.0")
    for asked in (("--carry-parameters",), ()):  # the second run relies on the marker in the file
        done = scene.run("1.3.0", helm(log="debug", replicas="2"), *asked)
        assert (
            scene.text
            == f'{kept}  - name: replicas  # from the Application\n    value: "2"\n    forcestring: false\n'
        )
        assert ["in log;" in told for told in warnings(done)] == [True]


def test_plan_reports_differences_with_at_most_five_names(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(8)]
    text = "helm:\n  parameters:\n" + "".join(
        f"  - {{name: {name}, value: own}}\n" for name in (*names, "image.tag")
    )
    scene = Scene(tmp_path, {**HELM, FILE: text})
    one = application("a", scene.repo, write_back_target="")
    one["spec"]["source"] |= helm(**dict.fromkeys(names, "spec"))
    given = ["plan", *arguments(manifest(tmp_path, one))[1:]]
    (told,) = warnings(image_update(*given))
    assert "differs from the Application in p0, p1, p2, p3, p4 and 3 more;" in told
    assert warnings(image_update(*given, "--no-carry-parameters")) == []


def test_kustomize_images_follow_the_spec_unless_a_person_changed_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {**KUSTOMIZE, FILE: "kustomize:\n  images:\n  - acme/own:1\n"})
    done = scene.run("1.0.0", {"kustomize": {"images": ["acme/own:2", "acme/db:1"]}})
    assert [told for told in warnings(done) if "hides kustomize.images[acme/db] in" in told]
    scene.run("1.1.0", {"kustomize": {"images": ["acme/own:2", "acme/db:1"]}}, "--carry-parameters")
    text = f"kustomize:\n  images:\n  - acme/own:1\n  - {WEB}:{{1}}\n  - acme/db:{{0}}  # from the Application\n"
    assert scene.text == text.format("1", "1.1.0")
    done = scene.run("1.2.0", {"kustomize": {"images": ["acme/own:2", "acme/db:7"]}})
    assert scene.text == text.format("7", "1.2.0")
    assert warnings(done) == [
        f"{FILE} differs from the Application in kustomize.images[acme/own]; Argo CD uses the file"
    ]


def test_plugin_variables_follow_the_spec_and_the_common_file(tmp_path: Path) -> None:
    common = "plugin:\n  env:\n  - {name: MODE, value: fast}\n"
    scene = Scene(tmp_path, {"apps/a/README": "", "apps/a/.argocd-source.yaml": common})
    env = {"plugin": {"env": [{"name": "LOG", "value": "info"}, {"name": "MODE", "value": "slow"}]}}
    keys = {"web.plugin.image-tag": "TAG"}
    scene.run("1.1.0", env, **keys)
    assert "LOG" not in scene.text  # the common file overrides it
    assert "  - name: MODE  # from .argocd-source.yaml\n    value: fast\n" in scene.text
    commit(scene.repo, {"apps/a/.argocd-source.yaml": common.replace("fast", "faster")})
    scene.run("1.2.0", env, **keys)
    assert "  - name: MODE  # from .argocd-source.yaml\n    value: faster\n" in scene.text
    commit(scene.repo, {"apps/a/.argocd-source.yaml": None})
    scene.run("1.3.0", env, **keys)
    assert "  - name: MODE  # from the Application\n    value: slow\n" in scene.text
    assert "  - name: LOG  # from the Application\n    value: info\n" in scene.text


@pytest.mark.parametrize("alias", ["web", "db"])
def test_the_parameter_of_an_image_is_not_reset_after_it_has_been_written(
    tmp_path: Path, alias: str
) -> None:
    scene = Scene(tmp_path, HELM)
    tags = {"web.helm.image-tag": "web.tag", "db.helm.image-tag": "db.tag"}
    both = {"image_list": f"web={WEB}, db=acme/db", **tags}
    spec = helm(**{"web.tag": "1.0.0", "db.tag": "1.0.0"})
    image = {"web": WEB, "db": "acme/db"}
    scene.run("1.1.0", spec, **both)
    assert "  - name: db.tag  # from the Application\n    value: 1.0.0\n" in scene.text
    one = application("a", scene.repo, write_back_target="", **both)
    one["spec"]["source"] |= spec
    for name, tag in (("db", "7.0.0"), (alias, "8.0.0")):
        image_update(*arguments(manifest(tmp_path, one), image=f"{image[name]}:{tag}"))
    assert (
        "  - name: db.tag\n    value: {}\n".format("8.0.0" if alias == "db" else "7.0.0")
        in scene.text
    )
    assert "1.0.0" not in scene.text
    assert git(scene.repo, "rev-list", "--count", "main") == "4"


def test_the_first_run_reads_the_values_of_the_chart_to_refuse_older_builds(
    tmp_path: Path,
) -> None:
    files = {
        **HELM,
        "apps/a/values.yaml": "image: {tag: 1.0.0}\n",
        "apps/common/prod.yaml": "image: {tag: 2.0.0}\n",
    }
    scene = Scene(tmp_path, files)
    section = {"helm": {"valueFiles": ["../common/prod.yaml"]}}
    (one,) = scene.run("1.5.0", section).json["decisions"]
    assert (one["verdict"], one["rule"], one["current"]) == ("refuse", "not-newer", "2.0.0")
    (one,) = scene.run("2.1.0", section).json["decisions"]
    assert (one["verdict"], one["current"], "2.1.0" in scene.text) == ("update", "2.0.0", True)


AIU = f"""helm:
  parameters:
  - name: image.tag
    value: 1.0.0
    forcestring: true
  - name: image
    value: {WEB}:0.9.0
    forcestring: true
"""


@pytest.mark.parametrize("command", ["run", "plan", "status", "lint", "lint here"])
def test_each_command_reports_hidden_parameters_and_unchanged_copies_of_the_image(
    command: str, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, {**HELM, FILE: AIU})
    one = application("a", scene.repo, write_back_target="")
    one["spec"]["source"] |= helm(replicas="7")
    if command == "lint here":  # from a clone, without access to the repository
        git(tmp_path, "clone", "--quiet", str(scene.repo), str(tmp_path / "clone"))
        apps = manifest(tmp_path / "clone", one)
        found = image_update("lint", apps, "--output", "json").json["findings"]
    else:
        apps = manifest(tmp_path, one)
        given = arguments(apps)[1:]
        result = image_update(command, *(given if command in ("run", "plan") else given[2:]))
        found = result.json["findings" if command == "lint" else "errors"]
        assert result.code == 0, result.stderr
    told = [one["message"] for one in found if one["severity"] == "warning"]
    assert (
        f"{FILE} hides replicas in the Application: the file has its own list, and Argo CD uses only that list"
        in told
    )
    assert f"{WEB} is also at {FILE}:7, which is not changed" in told


def test_unchanged_copies_of_the_image_in_a_folder_of_manifests_are_reported(
    tmp_path: Path,
) -> None:
    pod = (
        f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - {{name: a, image: '{WEB}:1.0.0'}}\n"
    )
    recipe = (
        f"apiVersion: x.dev/v1\nkind: Recipe\nspec:\n  runs: {WEB}:1.0.0\n  text: use {WEB}:1.0.0\n"
    )
    repo = bare_repo(tmp_path, {"apps/a/pod.yaml": pod, "apps/a/recipe.yaml": recipe})
    apps = manifest(tmp_path, application("a", repo, write_back_target="manifests"))
    for _ in range(2):  # even if there is nothing to do
        result = image_update(*arguments(apps))
        assert warnings(result) == [f"{WEB} is also at apps/a/recipe.yaml:4, which is not changed"]
    assert (show(repo, "main", "apps/a/recipe.yaml"), git(repo, "rev-list", "--count", "main")) == (
        recipe,
        "2",
    )
