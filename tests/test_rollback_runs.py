"""Whole runs of `rollback --to`: what it finds in the history, and what it does with a tag that is
in neither Git nor the registry.
"""

from pathlib import Path
from typing import Any

import pytest
from fakes.oci_images import image
from fakes.registry_api import RegistryApi
from support import Result, bare_repo, commit, git, image_update, show
from support.runs import WEB, application, manifest, repository, target

DIGEST = "sha256:" + "a" * 64


def text(tag: str, prefix: str = "") -> str:
    return f"{prefix}resources: []\nimages:\n- name: ghcr.io/acme/web\n  newTag: {tag}\n"


def roll_back(apps: Path, to: str = "previous", code: int = 0) -> Any:
    given = ("--applications", str(apps), "--allow-protocol", "file", "--output", "json")
    result = image_update("rollback", "a", "--to", to, *given)
    assert result.code == code, result.stderr
    return result.json


def value(repo: Path, path: str = target("a")) -> str:
    return show(repo, "main", path).partition("newTag: ")[2].partition("\n")[0].strip("\"'")


def scene(folder: Path, *texts: str) -> tuple[Path, Path]:
    """A repository with one commit for each of these texts, in order, and its Application."""
    repo = repository(folder, "a")
    for one in texts:
        commit(repo, {target("a"): one})
    return repo, manifest(folder, application("a", repo))


def test_after_a_revert_the_previous_version_is_the_reverted_version(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"), text("1.2.0"), text("1.1.0"))
    roll_back(apps)
    assert value(repo) == "1.2.0"


def test_commits_that_do_not_change_the_version_are_skipped(tmp_path: Path) -> None:
    repo, apps = scene(
        tmp_path,
        text("1.1.0"),
        text("1.2.0"),
        text("1.2.0", "# a note\n"),
        text("1.2.0", "# two\n"),
    )
    commit(repo, {"README": "x"})
    roll_back(apps)
    assert value(repo) == "1.1.0"
    assert show(repo, "main", target("a")).startswith("# two\n")


def test_a_merge_counts_as_one_step(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"))
    git(repo, "branch", "side", "main")
    for tag in ("1.1.5", "1.2.0"):
        commit(repo, {target("a"): text(tag)}, branch="side")
    commit(repo, {"README": "x"})
    tree = git(repo, "merge-tree", "--write-tree", "main", "side").splitlines()[0]
    env = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    merge = git(repo, *env, "commit-tree", tree, "-p", "main", "-p", "side", "-m", "Merge")
    git(repo, "update-ref", "refs/heads/main", merge)
    assert value(repo) == "1.2.0"
    roll_back(apps)
    assert value(repo) == "1.1.0"


def test_a_squashed_pull_request_counts_as_one_step(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"), text("1.4.0"))
    roll_back(apps)
    assert value(repo) == "1.1.0"


def test_a_renamed_file_keeps_its_history(tmp_path: Path) -> None:
    repo = repository(tmp_path, "old")
    for tag in ("1.1.0", "1.2.0"):
        commit(repo, {target("old"): text(tag, "# of the web\nnamePrefix: x-\nnamespace: web\n")})
    commit(repo, {target("old"): None, target("a"): show(repo, "main", target("old"))})
    roll_back(manifest(tmp_path, application("a", repo)))
    assert value(repo) == "1.1.0"


def test_a_broken_file_in_the_history_is_skipped(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"), "images: [broken\n", text("1.2.0"))
    roll_back(apps)
    assert value(repo) == "1.1.0"


def test_a_force_pushed_head_branch_uses_the_history_of_the_base(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    apps = manifest(tmp_path, application("a", repo, git_branch="main:updates"))
    for tag in ("1.1.0", "1.2.0"):
        commit(repo, {target("a"): text(tag)})
    given = ("--applications", str(apps), "--allow-protocol", "file")
    for tag in ("1.3.0", "1.4.0"):  # on the head branch, the second commit replaces the first one
        assert image_update("run", "--image", f"{WEB}:{tag}", *given).code == 0
    roll_back(apps)
    assert "newTag: 1.1.0" in show(repo, "updates", target("a"))
    assert git(repo, "rev-list", "--count", "main..updates") == "1"


def test_a_shallow_history_limits_how_far_back_a_rollback_goes(tmp_path: Path) -> None:
    full, _ = scene(tmp_path, text("1.1.0"), text("1.2.0"), text("1.3.0"))
    shallow = tmp_path / "shallow.git"
    git(tmp_path, "clone", "--quiet", "--bare", "--depth", "2", f"file://{full}", str(shallow))
    git(shallow, "config", "uploadpack.allowFilter", "true")
    git(shallow, "config", "uploadpack.allowAnySHA1InWant", "true")
    apps = manifest(tmp_path, application("a", shallow))
    roll_back(apps)
    assert value(shallow) == "1.2.0"
    found = roll_back(apps, "5-back", code=3)["decisions"][0]
    assert found["rule"] == "target"


def test_digests_are_restored_together_with_their_tags(tmp_path: Path) -> None:
    old = f"images:\n- name: ghcr.io/acme/web\n  newTag: 1.1.0\n  digest: {DIGEST}\n"
    repo, apps = scene(tmp_path, old, old.replace("1.1.0", "1.2.0").replace("a" * 64, "b" * 64))
    roll_back(apps)
    assert show(repo, "main", target("a")) == old


@pytest.mark.parametrize("to", ["1.1.0", "9.9.9"])
def test_a_rollback_tag_need_not_be_in_the_history(tmp_path: Path, to: str) -> None:
    repo, apps = scene(tmp_path, text("1.1.0"), text("1.2.0"))
    roll_back(apps, to)
    assert value(repo) == to


class Scene:
    """Applications with an image in a registry, and the version history of each Application, oldest
    first.
    """

    def __init__(
        self, folder: Path, registry: str, *versions: str, apps: str = "a", **annotations: str
    ) -> None:
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
        given = (
            "--to",
            to,
            "--applications",
            self.apps,
            "--allow-protocol",
            "file",
            "--output",
            "json",
        )
        result = image_update(
            "rollback", "a", *given, *more, env={"IMAGE_UPDATE_REGISTRY_CHECK": check}
        )
        assert result.code == code, result.stderr + result.stdout
        return result

    @property
    def now(self) -> str:
        return show(self.repo, "main", target("a"))


def only(result: Result) -> Any:
    (found,) = result.json["decisions"]
    return found


def test_an_unknown_tag_is_neither_written_nor_held(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    scene = Scene(tmp_path, oci_registry.name, "1.4.2", "1.5.0")
    tip = git(scene.repo, "rev-parse", "main")
    result = scene.back("1.42", "--reason", "INC-42", code=2)
    found = only(result)
    assert (found["verdict"], found["rule"]) == ("error", "usage")
    assert "is neither in the registry nor in the last 50 versions of" in found["because"]
    assert f"{scene.named}:1.42" in found["because"]
    assert "did you mean 1.4.2?" in result.stderr
    assert "--unknown-tag" in result.stderr
    assert git(scene.repo, "rev-parse", "main") == tip
    assert len(oci_registry.seen) == 1, oci_registry.asked


def test_an_unknown_tag_is_written_if_the_unknown_tag_option_is_set(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    scene = Scene(tmp_path, oci_registry.name, "1.5.0")
    assert only(scene.back("1.42", "--unknown-tag"))["verdict"] == "update"
    assert "newTag: '1.42'" in scene.now or 'newTag: "1.42"' in scene.now
    assert oci_registry.seen == []


def test_a_tag_in_the_history_needs_no_registry_request(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    scene = Scene(tmp_path, oci_registry.name, "1.4.2", "1.5.0")
    assert only(scene.back("1.4.2"))["verdict"] == "update"
    assert "newTag: 1.4.2\n" in scene.now
    assert only(scene.back("1.4.2"))["verdict"] == "unchanged"
    assert oci_registry.seen == []


def test_a_tag_outside_the_history_needs_one_registry_request(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    oci_registry.put("acme/web", "1.3.0", image())
    scene = Scene(tmp_path, oci_registry.name, "1.5.0", apps="ab")
    result = scene.back("1.3.0", "b")
    assert [one["verdict"] for one in result.json["decisions"]] == ["update", "update"]
    assert result.json["errors"] == []
    assert len(oci_registry.seen) == 1, oci_registry.asked


@pytest.mark.parametrize(
    ("check", "words"), [("never", "--registry-check never"), ("auto", "127.0.0.1:9")]
)
def test_an_unreachable_registry_is_a_warning(tmp_path: Path, check: str, words: str) -> None:
    scene = Scene(tmp_path, "127.0.0.1:9", "1.3.1", "1.5.0")
    result = scene.back("1.3.0", check=check)
    assert only(result)["verdict"] == "update"
    said = "rolled back from 1.5.0; not checked: 1.3.0 might not exist; "
    assert said in only(result)["because"]
    assert said in git(scene.repo, "log", "-1", "--format=%B", "main")
    (warning,) = result.json["errors"]
    assert warning["severity"] == "warning"
    assert (
        f"{scene.named}:1.3.0: 1.3.0 might not exist: it is not in Git's history, and "
        in warning["message"]
    )
    assert warning["hint"] == "did you mean 1.3.1? this file's history has 1.3.1, 1.0.0"
    assert words in warning["message"]
    assert "newTag: 1.3.0\n" in scene.now


def test_an_unreachable_registry_is_an_error_if_the_check_is_required(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "127.0.0.1:9", "1.5.0")
    scene.back("1.3.0", check="always", code=75)
    assert "newTag: 1.5.0\n" in scene.now


def test_a_tag_in_the_history_is_restored_together_with_its_digest(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    scene = Scene(
        tmp_path, oci_registry.name, f"1.4.2@{DIGEST}", f"1.5.0@{DIGEST.replace('a', 'b')}"
    )
    scene.back("1.4.2")
    assert scene.now == scene.text(f"1.4.2@{DIGEST}")
    assert oci_registry.seen == []


def test_a_pinned_image_stays_pinned_after_a_rollback(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    digest = oci_registry.put("acme/web", "1.3.0", image())
    scene = Scene(tmp_path, oci_registry.name, f"1.5.0@{DIGEST}")
    scene.back("1.3.0")
    assert scene.now == scene.text(f"1.3.0@{digest}")
    assert len(oci_registry.seen) == 1, oci_registry.asked


def test_only_the_last_fifty_versions_are_searched(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    scene = Scene(
        tmp_path, oci_registry.name, "old-1", "old-2", *(f"1.{number}.0" for number in range(49))
    )
    assert only(scene.back("old-2"))["verdict"] == "update"
    git(scene.repo, "update-ref", "refs/heads/main", "main~1")
    assert only(scene.back("old-1", code=2))["rule"] == "usage"
    assert len(oci_registry.seen) == 1


def test_a_tag_that_exists_for_only_one_of_several_images_is_an_error_for_the_others(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    """Without --alias, the tag applies to every image of the Application."""
    oci_registry.put("acme/db", "9.0", image())
    both = f"web={oci_registry.name}/acme/web, db={oci_registry.name}/acme/db"
    scene = Scene(tmp_path, oci_registry.name, "1.4.2", "1.5.0", image_list=both)
    result = scene.back("1.4.2", code=2)
    assert {one["alias"]: one["rule"] for one in result.json["decisions"]} == {
        "web": "admitted",
        "db": "usage",
    }
    assert "--alias ALIAS" in result.stderr
    assert "acme/db" not in scene.now
