"""A key of a values file that is almost the one that is there: it is added, as AIU does, but not without a word."""

from pathlib import Path

import pytest
from runs import application, arguments, manifest
from support import Result, bare_repo, image_update


def warnings(result: Result) -> list[str]:
    told = [one["message"] for one in result.json["errors"] if one["severity"] == "warning"]
    return [message for message in told if "is a first tag" not in message]  # a plan says so as well


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
def test_a_misspelt_key_is_a_warning_once(tmp_path: Path, key: str, near: str) -> None:
    values = "image: {repository: x, tag: 1.0.0}\nweb:\n  image:\n    tag: 1.0.0\nside: {cars: {a: b}}\n"
    repo = bare_repo(tmp_path, {"apps/a/values.yaml": values, "apps/a/Chart.yaml": "name: a\n"})
    given = {"write_back_target": "helmvalues", "web.helm.image-tag": key}
    apps = manifest(tmp_path, application("a", repo, **given))
    for more in (["--dry-run"], []):
        result = image_update(*arguments(apps, *more))
        assert result.code == 0
        said = f"{key} is not in apps/a/values.yaml, and is added to it; the file has {near}"
        assert warnings(result) == ([said] if near else [])
    assert warnings(image_update(*arguments(apps))) == []  # the key is there now


@pytest.mark.parametrize(
    ("file", "value_files", "warned"),
    [
        ("values.yml", [], True),
        ("values.yaml", [], False),  # Helm reads it by itself
        ("prod.yaml", ["prod.yaml"], False),
        ("prod.yaml", ["/apps/a/prod.yaml"], False),
        ("prod.yaml", ["../prod.yaml"], True),
    ],
)
def test_a_values_file_that_nobody_reads_is_not_created_without_a_word(
    tmp_path: Path, file: str, value_files: list[str], warned: bool
) -> None:
    repo = bare_repo(tmp_path, {"apps/a/Chart.yaml": "name: a\n"})
    app = application("a", repo, write_back_target=f"helmvalues:{file}")
    app["spec"]["source"]["helm"] = {"valueFiles": value_files}
    apps = manifest(tmp_path, app)
    said = f"apps/a/{file} does not exist, and is created; no source of the Application names it in valueFiles"
    for more in (["--dry-run"], []):
        assert warnings(image_update(*arguments(apps, *more))) == ([said] if warned else [])
    assert warnings(image_update(*arguments(apps))) == []
