"""Where whole runs write: the effects of the path, the target, the key, and the alias, and of two
entries that share a location.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import Content, Link, Result, bare_repo, commit, git, image_update, show
from support.runs import KUSTOMIZATION, WEB, application, arguments, manifest, target

BASE: dict[str, Content] = {target("a"): KUSTOMIZATION, target("b"): KUSTOMIZATION}


# An Application that is updated in its override file.
overridden = partial(application, write_back_target="")


def call(folder: Path, *apps: dict[str, Any]) -> Result:
    return image_update(*arguments(manifest(folder, *apps)))


def ends(result: Result) -> list[tuple[str, str]]:
    return [(one["verdict"], one["rule"]) for one in result.json["decisions"]]


def override(tag: str) -> str:
    return f"kustomize:\n  images:\n  - {WEB}:{tag}\n"


@pytest.mark.parametrize(
    ("namespace", "there", "expected"),
    [
        ("argocd", ".argocd-source-argocd_a.yaml", ".argocd-source-a.yaml"),
        ("team", ".argocd-source-a.yaml", ".argocd-source-team_a.yaml"),
    ],
)
@pytest.mark.parametrize("tag", ["1.0.0", "1.1.0"])
def test_the_alternative_name_of_the_override_file_is_used_with_a_warning(
    tmp_path: Path, namespace: str, there: str, expected: str, tag: str
) -> None:
    repo = bare_repo(tmp_path, {**BASE, f"apps/a/{there}": override(tag)})
    result = call(tmp_path, overridden("a", repo, namespace=namespace))
    (warning,) = result.json["errors"]
    assert result.code == 0
    assert result.json["decisions"][0]["file"] == f"apps/a/{there}"
    assert show(repo, "main", f"apps/a/{there}") == override("1.1.0")
    assert (warning["severity"], warning["application"]) == ("warning", f"{namespace}/a")
    assert there in warning["message"]
    assert expected in warning["message"]
    assert f"warning: {namespace}/a: {warning['message']}" in result.stderr


def test_the_expected_name_of_the_override_file_causes_no_warning(tmp_path: Path) -> None:
    both = {
        "apps/a/.argocd-source-a.yaml": override("1.0.0"),
        "apps/a/.argocd-source-argocd_a.yaml": override("0.9.0"),
    }
    result = call(tmp_path, overridden("a", bare_repo(tmp_path, {**BASE, **both})))
    assert (ends(result), result.json["errors"]) == ([("update", "admitted")], [])


@pytest.mark.parametrize("path", [".", "./", "", "/"])
def test_the_path_may_be_the_root_of_the_repository(tmp_path: Path, path: str) -> None:
    repo = bare_repo(tmp_path, {"kustomization.yaml": KUSTOMIZATION})
    result = call(tmp_path, overridden("a", repo, path=path))
    assert (ends(result), result.json["commits"][0]["files"]) == (
        [("update", "admitted")],
        [".argocd-source-a.yaml"],
    )


@pytest.mark.parametrize("path", ["./apps/a", "apps/a/", "apps/./a", "/apps//a"])
def test_different_spellings_of_a_path_lead_to_the_same_file(tmp_path: Path, path: str) -> None:
    result = call(tmp_path, overridden("a", bare_repo(tmp_path, BASE), path=path))
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
def test_an_error_about_a_path_explains_why_it_is_not_a_folder(
    tmp_path: Path, content: dict[str, Content], words: str
) -> None:
    result = call(tmp_path, overridden("x", bare_repo(tmp_path, content)))
    assert (result.code, ends(result)) == (3, [("error", "source")])
    assert words in result.json["errors"][0]["message"]


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {**BASE, "apps/a/.argocd-source-a.yaml": "- a list\n"})
    result = call(tmp_path, overridden("a", repo))
    assert "apps/a/.argocd-source-a.yaml" in result.json["errors"][0]["message"]


def test_two_entries_for_one_image_update_the_same_file(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, BASE)
    result = call(tmp_path, overridden("a", repo, image_list=f"one={WEB}:~1,two={WEB}:^1"))
    assert ends(result) == [("update", "admitted")] * 2
    assert (
        call(tmp_path, overridden("a", repo, image_list=f"one={WEB}:~1,two={WEB}:^1")).json[
            "counts"
        ]["unchanged"]
        == 2
    )


def test_two_applications_that_share_a_file_are_updated_in_one_commit(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {**BASE, "base/kustomization.yaml": KUSTOMIZATION})
    target = {"write_back_target": "kustomization:/base"}
    result = call(tmp_path, overridden("a", repo, **target), overridden("b", repo, **target))
    assert ends(result) == [("update", "admitted")] * 2
    assert result.json["commits"][0]["applications"] == ["argocd/a", "argocd/b"]


def test_a_target_named_twice_leads_to_one_decision(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, BASE)
    result = call(
        tmp_path, overridden("a", repo, write_back_target="kustomization, kustomization:.")
    )
    assert ends(result) == [("update", "admitted")]


def test_the_executable_bit_is_kept(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, BASE)
    work = tmp_path / "work"
    git(tmp_path, "clone", "--quiet", str(repo), str(work))
    git(work, "update-index", "--chmod=+x", "apps/a/kustomization.yaml")
    git(work, "-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "-m", "executable")
    git(work, "push", "--quiet", "origin", "HEAD:main")
    call(tmp_path, overridden("a", repo, write_back_target="kustomization"))
    assert git(repo, "ls-tree", "main", "apps/a/kustomization.yaml").startswith("100755")
    assert "newTag: 1.1.0" in show(repo, "main", "apps/a/kustomization.yaml")


def test_a_yaml_alias_bomb_is_a_target_error(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    repo = bare_repo(tmp_path, BASE)
    commit(repo, {"apps/a/.argocd-source-a.yaml": bomb})
    assert ends(call(tmp_path, overridden("a", repo))) == [("error", "target")]


def warnings(result: Result) -> list[str]:
    told = [one["message"] for one in result.json["errors"] if one["severity"] == "warning"]
    return [
        message for message in told if "was not compared with anything" not in message
    ]  # `plan` also issues this warning


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("image.tga", "image.tag"),
        ("imgae.tag", "image.tag"),
        ("web.iamge.tag", "web.image.tag"),
        ("image.tag", ""),
        ("image.version", ""),
        ("other.tag", ""),
        ("image.tax", "image.tag"),
        ("side.car", ""),
    ],
)
def test_a_misspelt_helm_key_is_warned_about_once(tmp_path: Path, key: str, near: str) -> None:
    values = (
        "image: {repository: x, tag: 1.0.0}\nweb:\n  image:\n    tag: 1.0.0\nside: {cars: {a: b}}\n"
    )
    repo = bare_repo(tmp_path, {"apps/a/values.yaml": values, "apps/a/Chart.yaml": "name: a\n"})
    given = {"write_back_target": "helmvalues", "web.helm.image-tag": key}
    apps = manifest(tmp_path, application("a", repo, **given))
    for more in (["--dry-run"], []):
        result = image_update(*arguments(apps, *more))
        assert result.code == 0
        said = f"{key} is not in apps/a/values.yaml, so it is added; the file has {near}"
        assert warnings(result) == ([said] if near else [])
    assert warnings(image_update(*arguments(apps))) == []  # by now, the key exists


@pytest.mark.parametrize(
    ("file", "value_files", "refused"),
    [
        ("values.yml", [], True),
        ("values.yaml", [], False),  # Helm reads this file by default
        ("prod.yaml", ["prod.yaml"], False),
        ("prod.yaml", ["/apps/a/prod.yaml"], False),
        ("prod.yaml", ["../prod.yaml"], True),
    ],
)
def test_a_values_file_that_no_source_reads_is_not_created(
    tmp_path: Path, file: str, value_files: list[str], refused: bool
) -> None:
    repo = bare_repo(tmp_path, {"apps/a/Chart.yaml": "name: a\n"})
    app = application("a", repo, write_back_target=f"helmvalues:{file}")
    app["spec"]["source"]["helm"] = {"valueFiles": value_files}
    apps = manifest(tmp_path, app)
    for more in (["--dry-run"], [], []):
        result = image_update(*arguments(apps, *more))
        assert (result.code, "no source of the Application reads" in result.stdout) == (
            (3, True) if refused else (0, False)
        )
        assert warnings(result) == []


CART = "ghcr.io/acme/cart"
VALUES = "apps/a/values.yaml"
KEY = {
    "write_back_target": "helmvalues",
    "web.helm.image_tag": "image.tag",
    "cart.helm.image_tag": "image.tag",
}
BOTH = f"{WEB}:1.1.0 {CART}:2.0.0"


def applications(repo: Path, case: str) -> list[dict[str, Any]]:
    if case == "one Application":
        return [application("a", repo, image_list=f"web={WEB}, cart={CART}", **KEY)]
    two = [
        application(name, repo, image_list=f"{alias}={alias_image}", **KEY)
        for name, alias, alias_image in (("a", "web", WEB), ("b", "cart", CART))
    ]
    two[1]["spec"]["source"]["path"] = "apps/a"
    return two


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("case", ["one Application", "two Applications"])
def test_a_second_image_for_the_same_value_is_an_error_and_is_not_written(
    tmp_path: Path, case: str, command: str
) -> None:
    repo = bare_repo(tmp_path, {"apps/a/Chart.yaml": "name: a\n", VALUES: "image:\n  tag: 1.0.0\n"})
    apps = manifest(tmp_path, *applications(repo, case))
    done = image_update(command, *arguments(apps, image=BOTH)[1:])
    assert done.code == 3
    # Within one Application, the entry `cart` comes before `web`.
    first, second = done.json["decisions"]
    written, refused = (first, second) if first["verdict"] == "update" else (second, first)
    assert (refused["verdict"], refused["rule"]) == ("error", "target")
    assert refused["because"].startswith(
        f"{VALUES}: the same commit sets image.tag to {written['candidate']} for "
    )
    assert written["image"] in refused["because"]
    if command == "run":
        assert show(repo, "main", VALUES) == f"image:\n  tag: {written['candidate']}\n"


def test_two_applications_may_write_the_same_version_to_one_place(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"apps/a/Chart.yaml": "name: a\n", VALUES: "image:\n  tag: 1.0.0\n"})
    apps = applications(repo, "two Applications")
    apps[1]["metadata"]["annotations"] = apps[0]["metadata"]["annotations"]
    done = image_update(*arguments(manifest(tmp_path, *apps)))
    assert (done.code, done.json["counts"]["updated"]) == (0, 2)
    assert show(repo, "main", VALUES) == "image:\n  tag: 1.1.0\n"


TARGETS = {
    "kustomization": (
        "apps/a/kustomization.yaml",
        "images:\n- name: web\n  newName: {0}\n  newTag: {1}\n- name: web-db\n  newName: {0}\n  newTag: {2}\n",
    ),
    "": (
        "apps/a/.argocd-source-a.yaml",
        "kustomize:\n  images:\n  - web={0}:{1}\n  - web-db={0}:{2}\n",
    ),
    "manifests": (
        "apps/a/pods.yaml",
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: web-db:{2}\n  - image: web:{1}\n",
    ),
}


@pytest.mark.parametrize("target", TARGETS)
def test_each_alias_has_its_own_tag(tmp_path: Path, target: str) -> None:
    path, text = TARGETS[target]
    beside = {"apps/a/kustomization.yaml": "resources: []\n"}
    repo = bare_repo(tmp_path, {**beside, path: text.format(WEB, "1.0.0", "1.0.0")})
    given = {"image_list": f"app={WEB}:~1.0, db={WEB}:^1", "write_back_target": target}
    key = "manifests" if target == "manifests" else "kustomize"
    names = {f"app.{key}.image_name": "web", f"db.{key}.image_name": "web-db"}
    apps = manifest(tmp_path, application("a", repo, **given, **names))
    for tag, ours, theirs in [
        ("1.1.0", "1.0.0", "1.1.0"),
        ("1.0.1", "1.0.1", "1.1.0"),
        ("1.2.0", "1.0.1", "1.2.0"),
    ]:
        first = image_update(*arguments(apps, image=f"{WEB}:{tag}"))
        assert first.code == 0, first.stderr
        assert show(repo, "main", path) == text.format(WEB, ours, theirs)
        again = image_update(*arguments(apps, image=f"{WEB}:{tag}")).json
        assert (again["status"], again["commits"]) == ("unchanged", [])


@pytest.mark.parametrize(
    ("annotations", "file", "text"),
    [
        (
            {"write_back_target": "manifests"},
            "pod.json",
            '{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": "%s:1.0.0"}]}}\n',
        ),
        (
            {"write_back_target": "helmvalues:values.json", "web.helm.image-tag": "image.tag"},
            "values.json",
            '{\n  "image": {"repository": "%s", "tag": "1.0.0"}\n}\n',
        ),
    ],
)
def test_json_is_edited_in_place(
    tmp_path: Path, annotations: dict[str, str], file: str, text: str
) -> None:
    repo = bare_repo(tmp_path, {f"apps/a/{file}": text % WEB})
    assert call(tmp_path, overridden("a", repo, **annotations)).code == 0
    assert show(repo, "main", f"apps/a/{file}") == (text % WEB).replace("1.0.0", "1.1.0")
