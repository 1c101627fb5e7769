"""`check` in real checkouts: what it compares, how it merges, and that it writes nothing."""

import json
import resource
import subprocess
from pathlib import Path

import pytest
from support import Result, bare_repo, commit, git, image_update, scale
from support.runs import KUSTOMIZATION, application, manifest, target

BUMPED = KUSTOMIZATION.replace("1.0.0", "1.1.0")
STATE = ".image-update/apps/a/argocd_a.state"
HELD = 'files:\n  apps/a/kustomization.yaml:\n    hold: {reason: "INC-1", by: jane, at: "2026-11-22T11:00:00Z"}\n'


class Scene:
    """A repository on a server, its checkout, and the Application `a`."""

    def __init__(self, folder: Path, files: dict[str, str] | None = None, depth: int = 0) -> None:
        self.folder = folder
        self.repo = bare_repo(folder, {target("a"): KUSTOMIZATION, **(files or {})})
        self.apps = manifest(folder, application("a", self.repo))
        self.here = folder / "checkout"
        self.clone(depth)

    def clone(self, depth: int = 0, branch: str = "main") -> None:
        """Clone the repository, in full or shallowly, and check out a branch."""
        if self.here.exists():
            subprocess.run(["rm", "-rf", self.here], check=True)
        shallow = [f"--depth={depth}"] if depth else []
        git(
            self.folder,
            "clone",
            "--quiet",
            *shallow,
            "--branch",
            branch,
            f"file://{self.repo}",
            str(self.here),
        )
        git(self.here, "config", "remote.origin.url", str(self.repo))

    def check(self, *more: str, base: str = "main", head: str = "HEAD", apps: str = "") -> Result:
        """Run `check` in the checkout."""
        given = (
            "--applications",
            apps or str(self.apps),
            "--allow-protocol",
            "file",
            "--output",
            "json",
        )
        return image_update("check", "--base", base, "--head", head, *given, *more, cwd=self.here)

    def change(self, files: dict[str, str | None], branch: str = "change") -> str:
        """Push a branch with a change."""
        git(self.repo, "branch", "--force", branch, "main")
        return commit(self.repo, files, branch)


def told(result: Result) -> list[tuple[str, str, str]]:
    return [(one["alias"], one["verdict"], one["rule"]) for one in result.json["decisions"]]


@pytest.mark.measured
def test_a_newer_version_passes_and_is_reported_on_its_line(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    head = scene.change({target("a"): BUMPED})
    scene.clone(branch="change")
    result = scene.check()
    assert (result.code, told(result)) == (0, [("web", "update", "admitted")]), result.stderr
    (one,) = result.json["decisions"]
    assert (one["file"], one["line"], one["current"], one["candidate"]) == (
        target("a"), 4, "1.0.0", "1.1.0",
    )  # fmt: skip
    assert (result.json["base"], result.json["head"]) == (
        git(scene.repo, "rev-parse", "main"),
        head,
    )


def test_a_hold_on_the_base_blocks_the_change(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {STATE: HELD})
    scene.change({target("a"): BUMPED})
    scene.clone(branch="change")
    result = scene.check()
    assert (result.code, told(result)) == (5, [("web", "defer", "held")]), result.stderr
    assert "INC-1" in result.stderr


def refs_and_files(*repos: Path) -> list[object]:
    """Return everything that a command could change: refs, objects, and the work tree."""
    found: list[object] = []
    for repo in repos:
        git_dir = repo / ".git" if (repo / ".git").exists() else repo
        found.append(git(repo, "for-each-ref"))
        found.append(sorted(str(one) for one in git_dir.rglob("*") if "fsmonitor" not in one.name))
        found.append(git(repo, "status", "--porcelain") if git_dir != repo else "")
    return found


def test_the_check_writes_to_neither_the_checkout_nor_the_server(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {STATE: HELD})
    scene.change({target("a"): BUMPED})
    commit(scene.repo, {"other.yaml": "a: b\n"})  # makes a real merge necessary
    git(scene.here, "fetch", "--quiet", f"file://{scene.repo}", "change:change")
    git(scene.here, "checkout", "--quiet", "change")
    before = refs_and_files(scene.here, scene.repo)
    assert scene.check().code == 5
    assert refs_and_files(scene.here, scene.repo) == before


@pytest.mark.measured
def test_the_merge_with_the_current_base_tip_is_checked(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"values.yaml": "a: 1\n"})
    scene.change({"values.yaml": "a: 2\n"})
    scene.clone(branch="change")
    # a hold and another version are added to the base after the checkout
    tip = commit(scene.repo, {STATE: HELD, target("a"): BUMPED})
    result = scene.check()
    assert (result.code, told(result), result.json["base"]) == (0, [], tip)
    scene.change(
        {"values.yaml": "a: 3\n", target("a"): KUSTOMIZATION.replace("1.0.0", "1.2.0")}, "next"
    )
    assert scene.check(head="refs/heads/next").code == 5


def test_a_merge_conflict_is_reported_with_its_files(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.change({target("a"): BUMPED})
    commit(scene.repo, {target("a"): KUSTOMIZATION.replace("1.0.0", "1.0.5")})
    scene.clone(branch="change")
    result = scene.check()
    assert result.code == 3
    assert f"conflicts with main in {target('a')}" in result.stderr


@pytest.mark.parametrize("way", ["merged", "shallow", "url", "url-ref", "commit"])
def test_every_way_to_specify_base_and_head_leads_to_the_same_result(
    tmp_path: Path, way: str
) -> None:
    scene = Scene(tmp_path, {STATE: HELD})
    for number in range(3):
        commit(scene.repo, {f"old-{number}.yaml": "a: b\n"})
    head = scene.change({target("a"): BUMPED})
    old = git(scene.repo, "rev-parse", "main")
    tip = commit(scene.repo, {"other.yaml": "a: b\n"})
    if way == "merged":  # as GitHub checks out a pull request: the merge commit of base and head
        tree = git(scene.repo, "merge-tree", "--write-tree", tip, head)
        who = ("-c", "user.name=Jane", "-c", "user.email=jane@example.com")
        made = git(scene.repo, *who, "commit-tree", tree, "-p", tip, "-p", head, "-m", "Merge")
        git(scene.repo, "update-ref", "refs/heads/merge", made)
        scene.clone(depth=1, branch="merge")
        result = scene.check()
    elif way == "shallow":
        scene.clone(depth=1, branch="change")
        result = scene.check()
    elif way == "commit":
        scene.clone(branch="change")
        result = scene.check(base=old, head=head)
        assert result.json["base"] == old
    else:
        name = "refs/heads/change" if way == "url-ref" else "change"
        result = scene.check("--repository", str(scene.repo), head=name)
    assert (result.code, told(result)) == (5, [("web", "defer", "held")]), result.stderr


def test_a_memory_branch_that_exists_only_on_the_server_is_used(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.apps = manifest(tmp_path, application("a", scene.repo, git_branch="main:bump"))
    given = ("--applications", scene.apps, "--allow-protocol", "file", "--reason", "INC-2")
    held = image_update("hold", "a", *given)
    assert held.code == 0, held.stderr
    assert "image-update-memory/" in git(scene.repo, "for-each-ref")
    scene.change({target("a"): BUMPED})
    scene.clone(branch="change")
    result = scene.check()
    assert (result.code, told(result)) == (5, [("web", "defer", "held")]), result.stderr


def test_applications_in_the_checkout_are_read_at_base_and_head(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = {"clusters/a.json": (tmp_path / "applications.json").read_text()}
    commit(scene.repo, folder)
    strict = folder["clusters/a.json"].replace("web=ghcr.io/acme/web", "web=ghcr.io/acme/web:~1.0")
    scene.change({target("a"): BUMPED, "clusters/a.json": strict})
    scene.clone(branch="change")
    (scene.here / "clusters/a.json").write_text("{}")  # changes in the work tree do not matter
    result = scene.check(apps="clusters")
    assert (result.code, told(result)) == (5, [("web", "refuse", "constraint")]), result.stderr
    outside = scene.check(apps=f"{scene.repo}//clusters")
    assert (outside.code, told(outside)) == (5, told(result)), outside.stderr


def test_an_application_set_in_the_change_is_rendered_with_the_changed_files(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    metadata = {
        "name": "{{path.basename}}",
        "annotations": {
            "argocd-image-updater.argoproj.io/image-list": "web=ghcr.io/acme/web:~1.0",
            "argocd-image-updater.argoproj.io/write-back-target": "kustomization",
        },
    }
    source = {"repoURL": str(scene.repo), "path": "{{path}}", "targetRevision": "main"}
    generator = {
        "repoURL": str(scene.repo),
        "revision": "main",
        "directories": [{"path": "apps/*"}],
    }
    made = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": "all", "namespace": "argocd"},
        "spec": {
            "generators": [{"git": generator}],
            "template": {"metadata": metadata, "spec": {"source": source}},
        },
    }
    commit(scene.repo, {"clusters/all.json": json.dumps(made)})
    scene.change({target("b"): KUSTOMIZATION.replace("1.0.0", "2.0.0")})
    scene.clone(branch="change")
    result = scene.check(apps="clusters")
    assert (result.code, told(result)) == (5, [("web", "refuse", "constraint")]), result.stderr
    assert result.json["decisions"][0]["application"] == "argocd/b"


def test_an_unreachable_base_never_passes(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.change({target("a"): BUMPED})
    scene.clone(branch="change")
    git(scene.here, "config", "remote.origin.url", str(tmp_path / "gone.git"))
    assert scene.check().code in (4, 75)


@pytest.mark.parametrize(
    ("more", "ends"),
    [
        ({"base": "nobody"}, (3, "nobody: the branch does not exist")),
        ({"head": "nobody"}, (2, "--head: 'nobody' is not a commit")),
        ({"head": "refs/pull/7/head"}, (2, "--head: 'refs/pull/7/head' is not a commit")),
    ],
)
def test_a_missing_branch_or_commit_is_named(
    tmp_path: Path, more: dict[str, str], ends: tuple[int, str]
) -> None:
    scene = Scene(tmp_path)
    result = scene.check(**more)
    code, words = ends
    assert (result.code, words in result.stderr) == (code, True), result.stderr


@pytest.mark.parametrize("in_checkout", [True, False])
@pytest.mark.parametrize("base", ["v1", "refs/tags/v1", "refs/pull/7/merge"])
def test_the_base_may_be_a_tag_or_ref_that_only_the_server_has(
    tmp_path: Path, base: str, in_checkout: bool
) -> None:
    scene = Scene(tmp_path)
    git(scene.repo, "tag", "v1", "main")
    git(scene.repo, "update-ref", "refs/pull/7/merge", "main")
    scene.change({target("a"): BUMPED})
    where = () if in_checkout else ("--repository", str(scene.repo))
    result = scene.check(*where, base=base, head="change")
    assert (result.code, told(result)) == (0, [("web", "update", "admitted")]), result.stderr


def test_without_a_default_branch_a_base_must_be_a_branch(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    git(scene.repo, "update-ref", "--no-deref", "HEAD", "main")
    result = scene.check(base="main~0")
    assert (result.code, "HEAD does not point to a branch" in result.stderr) == (3, True)


def test_outside_of_a_checkout_the_error_suggests_the_repository_option(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.here = tmp_path
    result = scene.check()
    assert (result.code, "--repository" in result.stderr) == (2, True)


def test_unrelated_histories_never_pass(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    who = ("-c", "user.name=Jane", "-c", "user.email=jane@example.com")
    tree = git(scene.repo, "rev-parse", "main^{tree}")
    alone = git(scene.repo, *who, "commit-tree", tree, "-m", "Alone")
    git(scene.repo, "update-ref", "refs/heads/alone", alone)
    result = scene.check(head="refs/heads/alone")
    assert (result.code, "no common commit" in result.stderr) == (3, True), result.stderr


@pytest.mark.parametrize("head", ["main", "HEAD~1"])
def test_a_change_that_is_already_in_the_base_passes(tmp_path: Path, head: str) -> None:
    scene = Scene(tmp_path)
    commit(scene.repo, {target("a"): BUMPED})
    scene.clone()
    result = scene.check(head=head)
    assert (result.code, told(result)) == (0, []), result.stderr


def test_a_target_replaced_with_a_symbolic_link_to_another_version_is_checked(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, {STATE: HELD, target("b"): BUMPED})
    git(scene.here, "checkout", "--quiet", "-b", "change")
    (scene.here / target("a")).unlink()
    (scene.here / target("a")).symlink_to("../b/kustomization.yaml")
    git(scene.here, "add", ".")
    who = ("-c", "user.name=Jane", "-c", "user.email=jane@example.com")
    git(scene.here, *who, "commit", "--quiet", "-m", "A link")
    result = scene.check()
    assert result.code in (3, 5), result.stderr
    assert result.json["decisions"], result.stderr


def _many_files(repo: Path, number: int) -> None:
    """Add files to the `main` branch in one commit, without using a work tree."""
    lines = [
        "commit refs/heads/main",
        "committer Jane <jane@example.com> 1700000000 +0000",
        "data 4",
        "many",
        "from refs/heads/main^0",
    ]
    for at in range(number):
        text = f"kind: ConfigMap\nnumber: {at}\n"
        lines += [f"M 100644 inline many/{at % 400}/{at}.yaml", f"data {len(text)}", text]
    told = ("git", "-C", str(repo), "fast-import", "--quiet")
    subprocess.run(told, input="\n".join(lines) + "\n", text=True, check=True)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("path", ["docs/words.md", "many/7/7.yaml"])
def test_a_change_without_tracked_versions_among_thousands_of_files_passes_in_two_seconds(
    tmp_path: Path, path: str
) -> None:
    scene = Scene(tmp_path)
    scene.apps = manifest(
        tmp_path, application("a", scene.repo, image_list="web=127.0.0.1:1/acme/web")
    )
    commit(scene.repo, {target("a"): KUSTOMIZATION.replace("ghcr.io", "127.0.0.1:1")})
    _many_files(scene.repo, scale(4_000, at_night=20_000))
    scene.change({path: "words: 1\n"})
    scene.clone(branch="change")
    began = _children_seconds()
    # any version lookup would need the registry, which does not respond
    result = scene.check("--output", "text", "--registry-check", "always")
    used = _children_seconds() - began
    assert (result.code, result.stdout.count("\n") + result.stderr.count("\n")) == (0, 1)
    assert used < 2


def test_files_in_a_submodule_are_not_checked_and_the_submodule_is_named(tmp_path: Path) -> None:
    """The submodule's files are not visible. Elsewhere, its commit may change without a warning."""
    scene = Scene(tmp_path)
    scene.apps = manifest(tmp_path, application("sub", scene.repo, path="lib/web"))
    for number, place in enumerate(("lib", "lib", "other")):
        git(scene.here, "checkout", "--quiet", "-B", f"at-{number}")
        git(scene.here, "rm", "-r", "--quiet", "--cached", "--ignore-unmatch", place)
        entry = f"160000,{str(number + 1) * 40},{place}"
        git(scene.here, "update-index", "--add", "--cacheinfo", entry)
        git(scene.here, "commit", "--quiet", "--message=Move the submodule")
    git(scene.here, "push", "--quiet", "--force", str(scene.repo), "at-0:main")
    moved = scene.check(head="at-1")
    (problem,) = moved.json["errors"]
    assert (moved.code, problem["application"]) == (0, "argocd/sub")
    assert "lib is a submodule" in problem["message"]
    git(scene.here, "push", "--quiet", str(scene.repo), "at-1:main")
    elsewhere = scene.check(head="at-2")
    assert (elsewhere.code, elsewhere.json["errors"]) == (0, [])
