"""`rollback --to` a tag that nobody knows: a typo is not written and held; what cannot be found out is a warning."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.oci_images import image
from fakes.registry_api import RegistryApi, registry_api
from runs import application, manifest, target
from support import Result, bare_repo, commit, git, image_update, show

DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def server() -> Iterator[RegistryApi]:
    with registry_api() as running:
        yield running


class Scene:
    """Applications with an image of a registry, and the versions that each of them had, oldest first."""

    def __init__(self, folder: Path, registry: str, *versions: str, apps: str = "a", **annotations: str) -> None:
        self.named = f"{registry}/acme/web"
        self.repo = bare_repo(folder, {target(app): self.text("1.0.0") for app in apps})
        for version in versions:
            commit(self.repo, {target(app): self.text(version) for app in apps})
        listed = {"image_list": f"web={self.named}", **annotations}
        self.apps = manifest(folder, *(application(app, self.repo, **listed) for app in apps))

    def text(self, version: str) -> str:
        tag, at, digest = version.partition("@")
        pin = f"  digest: {digest}\n" if at else ""
        return f"resources: []\nimages:\n- name: {self.named}\n  newTag: {tag}\n{pin}"

    def back(self, to: str, *more: str | Path, check: str = "auto", code: int = 0) -> Result:
        given = ("--to", to, "--applications", self.apps, "--allow-protocol", "file", "--output", "json")
        result = image_update("rollback", "a", *given, *more, env={"IMAGE_UPDATE_REGISTRY_CHECK": check})
        assert result.code == code, result.stderr + result.stdout
        return result

    @property
    def now(self) -> str:
        return show(self.repo, "main", target("a"))


def only(result: Result) -> Any:
    (found,) = result.json["decisions"]
    return found


def test_a_typo_is_neither_written_nor_held(tmp_path: Path, server: RegistryApi) -> None:
    scene = Scene(tmp_path, server.name, "1.4.2", "1.5.0")
    tip = git(scene.repo, "rev-parse", "main")
    result = scene.back("1.42", "--reason", "INC-42", code=2)
    found = only(result)
    assert (found["verdict"], found["rule"]) == ("error", "usage")
    assert "the registry has no" in found["because"]
    assert f"{scene.named}:1.42" in found["because"]
    assert "did you mean 1.4.2?" in result.stderr
    assert "--unknown-tag" in result.stderr
    assert git(scene.repo, "rev-parse", "main") == tip
    assert len(server.seen) == 1, server.asked


def test_it_is_written_where_somebody_insists(tmp_path: Path, server: RegistryApi) -> None:
    scene = Scene(tmp_path, server.name, "1.5.0")
    assert only(scene.back("1.42", "--unknown-tag"))["verdict"] == "update"
    assert "newTag: '1.42'" in scene.now or 'newTag: "1.42"' in scene.now
    assert server.seen == []


def test_a_tag_of_the_history_is_not_asked_for(tmp_path: Path, server: RegistryApi) -> None:
    scene = Scene(tmp_path, server.name, "1.4.2", "1.5.0")
    assert only(scene.back("1.4.2"))["verdict"] == "update"
    assert "newTag: 1.4.2\n" in scene.now
    assert only(scene.back("1.4.2"))["verdict"] == "unchanged"
    assert server.seen == []


def test_a_tag_of_the_registry_is_asked_for_once(tmp_path: Path, server: RegistryApi) -> None:
    server.put("acme/web", "1.3.0", image())
    scene = Scene(tmp_path, server.name, "1.5.0", apps="ab")
    result = scene.back("1.3.0", "b")
    assert [one["verdict"] for one in result.json["decisions"]] == ["update", "update"]
    assert result.json["errors"] == []
    assert len(server.seen) == 1, server.asked


@pytest.mark.parametrize(("check", "words"), [("never", "--registry-check never"), ("auto", "127.0.0.1:9")])
def test_no_answer_is_a_warning(tmp_path: Path, check: str, words: str) -> None:
    scene = Scene(tmp_path, "127.0.0.1:9", "1.5.0")
    result = scene.back("1.3.0", check=check)
    assert only(result)["verdict"] == "update"
    (warning,) = result.json["errors"]
    assert warning["severity"] == "warning"
    assert f"{scene.named}:1.3.0: Git's history does not have it, and " in warning["message"]
    assert warning["hint"] == "check that the image exists: nothing else has checked it"
    assert words in warning["message"]
    assert "newTag: 1.3.0\n" in scene.now


def test_no_answer_is_an_error_where_the_registry_must_be_asked(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "127.0.0.1:9", "1.5.0")
    scene.back("1.3.0", check="always", code=75)
    assert "newTag: 1.5.0\n" in scene.now


def test_a_tag_comes_back_with_the_digest_that_it_had(tmp_path: Path, server: RegistryApi) -> None:
    scene = Scene(tmp_path, server.name, f"1.4.2@{DIGEST}", f"1.5.0@{DIGEST.replace('a', 'b')}")
    scene.back("1.4.2")
    assert scene.now == scene.text(f"1.4.2@{DIGEST}")
    assert server.seen == []


def test_a_pinned_target_stays_pinned(tmp_path: Path, server: RegistryApi) -> None:
    digest = server.put("acme/web", "1.3.0", image())
    scene = Scene(tmp_path, server.name, f"1.5.0@{DIGEST}")
    scene.back("1.3.0")
    assert scene.now == scene.text(f"1.3.0@{digest}")
    assert len(server.seen) == 1, server.asked


def test_fifty_versions_are_looked_at(tmp_path: Path, server: RegistryApi) -> None:
    scene = Scene(tmp_path, server.name, "old-1", "old-2", *(f"1.{number}.0" for number in range(49)))
    assert only(scene.back("old-2"))["verdict"] == "update"
    git(scene.repo, "update-ref", "refs/heads/main", "main~1")
    assert only(scene.back("old-1", code=2))["rule"] == "usage"
    assert len(server.seen) == 1


def test_of_several_images_the_other_ones_typo_is_told(tmp_path: Path, server: RegistryApi) -> None:
    """Without --image the tag is meant for every image of the Application."""
    server.put("acme/db", "9.0", image())
    both = f"web={server.name}/acme/web, db={server.name}/acme/db"
    scene = Scene(tmp_path, server.name, "1.4.2", "1.5.0", image_list=both)
    result = scene.back("1.4.2", code=2)
    assert {one["alias"]: one["rule"] for one in result.json["decisions"]} == {"web": "admitted", "db": "usage"}
    assert "--image ALIAS" in result.stderr
    assert "acme/db" not in scene.now
