"""`lint SOURCE…`: where `lint` reads Applications, and its pre-commit hook."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from support import ROOT, bare_repo, image_update
from support.runs import PREFIX

WRONG = f"""\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: NAME
  namespace: argocd
  annotations:
    {PREFIX}image-list: web=ghcr.io/acme/web
    {PREFIX}web.update-stratgy: semver
spec: {{source: {{repoURL: "https://h/x.git", path: x}}}}
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.yaml").write_text(WRONG.replace("NAME", name))
    return tmp_path


@pytest.mark.parametrize(
    ("args", "variable", "expected"),
    [
        (["."], "", ["one/app.yaml", "two/app.yaml"]),
        (
            ["."],
            "cluster",
            ["one/app.yaml", "two/app.yaml"],
        ),  # arguments override the environment variable
        (["two"], "one", ["two/app.yaml"]),
        ([], "one", ["one/app.yaml"]),
        (["two", "one/app.yaml"], "", ["two/app.yaml", "one/app.yaml"]),
        pytest.param(
            ["two", "--applications", "one"],
            "",
            ["two/app.yaml", "one/app.yaml"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_sources_may_be_given_as_arguments(
    repository: Path, args: list[str], variable: str, expected: list[str]
) -> None:
    ended = image_update(
        "lint",
        *args,
        "--output",
        "json",
        env={"IMAGE_UPDATE_APPLICATIONS": variable},
        cwd=repository,
    )
    assert ended.code == 3, ended.stderr
    assert [(one["file"], one["line"]) for one in ended.json["findings"]] == [
        (path, 8) for path in expected
    ]


def test_a_finding_in_a_git_repository_has_a_line_number(tmp_path: Path) -> None:
    second = WRONG.replace("NAME", "two").replace("stratgy", "strategi")
    repo = bare_repo(
        tmp_path, {"apps/both.yaml": f"# two\n{WRONG.replace('NAME', 'one')}---\n{second}"}
    )
    ended = image_update(
        "lint", f"{repo}//apps?ref=main", "--allow-protocol", "file", "--output", "json"
    )
    assert ended.code == 3, ended.stderr
    assert [(one["application"], one["line"]) for one in ended.json["findings"]] == [
        ("argocd/one", 9),
        ("argocd/two", 19),
    ]
    assert ended.json["findings"][0]["file"].endswith("//apps/both.yaml")


@pytest.mark.parametrize("text", ["", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n"])
def test_a_folder_without_applications_is_a_warning(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    ended = image_update("lint", ".", cwd=tmp_path)
    first, *_, last = ended.stdout.splitlines()
    assert (ended.code, first) == (0, "warning: no Application was found in . (1 file)")
    assert last == "0 Applications read: 0 errors, 1 warning, 0 remarks"


@pytest.mark.parametrize(
    "given", [["/none"], ["--applications", "/none"], ["file:///none.git//apps"]]
)
def test_an_unreadable_source_is_a_finding_in_the_json_output(given: list[str]) -> None:
    ended = image_update("lint", *given, "--output", "json", "--allow-protocol", "file")
    (found,) = ended.json["findings"]
    assert (ended.code > 0, found["severity"]) == (True, "error")
    assert f"error: {found['message']}\n  fix: " in ended.stderr


def test_the_location_of_a_finding_is_printed_once(repository: Path) -> None:
    (repository / ".image-update").mkdir()
    (repository / ".image-update" / "config").write_text("version: 1\npinDigest: maybe\n")
    (repository / "bad.yaml").write_text(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\na: [\n"
    )
    lines = image_update("lint", ".", cwd=repository).stdout.splitlines()
    assert lines[0] == ".image-update/config:2: error: pinDigest is neither true nor false"
    (bad,) = [line for line in lines if "bad.yaml" in line]
    assert bad.startswith("bad.yaml:1: error: not YAML: ")
    assert lines[-1] == "2 Applications read: 4 errors, 0 warnings, 0 remarks"


def test_an_unrendered_chart_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("name: apps\n")
    (tmp_path / "templates" / "app.yaml").write_text(
        WRONG.replace("NAME", '{{ .Values.name | quote }}"')
    )
    ended = image_update("lint", ".", "--output", "json", cwd=tmp_path)
    assert (ended.code, [one["severity"] for one in ended.json["findings"]]) == (0, ["warning"])


def test_the_pre_commit_hook_lints_the_repository(repository: Path) -> None:
    """The keys are those of pre-commit 4.7, whose `try-repo` was run by hand."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert set(hook) == {
        "id",
        "name",
        "description",
        "entry",
        "args",
        "language",
        "files",
        "pass_filenames",
    }
    assert (hook["id"], hook["language"], hook["pass_filenames"]) == (
        "image-update-lint",
        "python",
        False,
    )
    assert [
        bool(re.search(hook["files"], name)) for name in ("a/b.yaml", "b.yml", "c.json", "d.py")
    ] == [1, 1, 1, 0]
    program, *words = [*shlex.split(hook["entry"]), *map(str, hook["args"])]
    assert program == "image-update"
    ended = image_update(*words, cwd=repository)
    assert (ended.code, ended.stdout.count("rename it to web.update-strategy")) == (3, 2)


@pytest.mark.parametrize(
    ("target", "first", "second", "severity", "words"),
    [
        ("helmvalues", "w=acme/web:^1", "w=acme/web:^1", "", ""),
        (
            "helmvalues",
            "w=acme/web:^1",
            "w=acme/web:~1.4",
            "warning",
            "argocd/a also writes image.tag in x/values.yaml",
        ),
        (
            "helmvalues",
            "w=acme/web",
            "c=acme/cart",
            "error",
            "'c=acme/cart' and 'w=acme/web' of argocd/a are both written to image.tag in x/values.yaml",
        ),
        ("helmvalues:$name.yaml", "w=acme/web", "c=acme/cart", "", ""),
        (
            "kustomization",
            "w=acme/web:^1",
            "w=acme/web:~1.4",
            "warning",
            "also writes the entry for acme/web in x",
        ),
        ("kustomization", "w=acme/web", "c=acme/cart", "", ""),
        (
            "manifests",
            "w=acme/web:^1",
            "w=acme/web:~1.4",
            "warning",
            "also writes the containers for acme/web in x",
        ),
        ("manifests", "w=acme/web", "c=acme/cart", "", ""),
        (
            "",
            "w=acme/web:^1",
            "w=acme/web:~1.4",
            "",
            "",
        ),  # an override file belongs to one Application
    ],
)
def test_two_applications_that_write_to_the_same_place_are_reported(
    tmp_path: Path, target: str, first: str, second: str, severity: str, words: str
) -> None:
    for name, listed in (("a", first), ("b", second), ("c", second)):
        app = WRONG.replace("NAME", name).replace("web=ghcr.io/acme/web", listed)
        app = app.replace(
            "web.update-stratgy: semver", f"write-back-target: {target.replace('$name', name)!r}"
        )
        (tmp_path / f"{name}.yaml").write_text(app)
    ended = image_update("lint", ".", "--output", "json", cwd=tmp_path)
    found = [(one["severity"], one["file"], one["line"]) for one in ended.json["findings"]]
    assert found == ([(severity, "b.yaml", 7)] if severity else [])  # once for each place
    assert all(words in one["message"] for one in ended.json["findings"])
