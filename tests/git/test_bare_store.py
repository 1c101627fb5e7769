"""Reading without a work tree: the contents of snapshots of real bare repositories."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support import Content, Link, bare_repo, commit, git

from task.errors import RepositoryError, SourceError, UsageError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import File, Place

FILES: Mapping[str, Content] = {
    "apps/web/values.yaml": "image:\n  tag: v1\n",
    "apps/web/kustomization.yml": "images: []\n",
    "apps/web/config.json": "{}\n",
    "apps/web/README.md": "read me\n",
    "apps/web/sub/deep.yaml": "deep: 1\n",
    "apps/web/sub/deeper/deepest.yaml": "deepest: 1\n",
    "apps/web/link.yaml": Link("values.yaml"),
    "apps/link": Link("web"),
    "crlf.yaml": "\ufeffa: 1\r\nb: 2\r\n",
    "latin1.yaml": b"a: \xe9\n",
    "utf16.yaml": b"a\0:\0 \x001\0",
    "lfs.yaml": "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n",
    "empty.yaml": "",
    'odd "name"\\ ä.yaml': "odd: 1\n",
    "top.yaml": "top: 1\n",
}


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = bare_repo(
        tmp_path_factory.mktemp("git"), {**FILES, "large.yaml": b"# " + b"x" * 10_000_000}
    )
    tip = git(folder, "rev-parse", "main")
    lines = [
        "commit refs/heads/main",
        "committer T <t@example.com> 1700000000 +0000",
        "data 1\nx",
        f"from {tip}",
        "M 100755 inline apps/run.yaml\ndata 7\nrun: 1\n",
        f"M 160000 {tip} apps/module",
    ]
    git(folder, "fast-import", "--quiet", stdin="\n".join([*lines, ""]).encode())
    git(folder, "tag", "v1.0", "main")
    git(folder, "branch", "topic/x", "main~1")
    return folder


@pytest.fixture
def store(repo: Path) -> Iterator[BareRepository]:
    with BareRepository(door(), str(repo)) as opened:
        yield opened


def door(**environ: str) -> Git:
    return Git({**os.environ, **environ}, protocols=frozenset({"file"}))


def text_of(path: str) -> str:
    content = FILES[path]
    assert isinstance(content, str)
    return content


def test_a_snapshot_names_its_repository_branch_and_tip(repo: Path, store: BareRepository) -> None:
    snapshot = store.snapshot("main", [])
    assert (snapshot.repo, snapshot.branch, snapshot.tip) == (
        str(repo),
        "main",
        git(repo, "rev-parse", "main"),
    )
    assert snapshot.files == {}


@pytest.mark.parametrize(
    "path", ["apps/web/values.yaml", "crlf.yaml", "empty.yaml", 'odd "name"\\ ä.yaml', "top.yaml"]
)
def test_files_are_read_byte_for_byte(store: BareRepository, path: str) -> None:
    assert store.snapshot("main", [Place(path)]).files == {path: File(text_of(path))}


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("latin1.yaml", "not UTF-8 text"),
        ("utf16.yaml", "not UTF-8 text"),
        ("large.yaml", "larger than 10 MB"),
        ("lfs.yaml", "stored in Git LFS"),
    ],
)
def test_an_unreadable_file_contains_the_reason(
    store: BareRepository, path: str, problem: str
) -> None:
    assert store.snapshot("main", [Place(path)]).files == {path: File("", problem=problem)}


def test_files_after_a_large_file_are_read_correctly(store: BareRepository) -> None:
    files = store.snapshot(
        "main", [Place("large.yaml"), Place("top.yaml"), Place("crlf.yaml")]
    ).files
    assert files["top.yaml"] == File("top: 1\n")
    assert files["crlf.yaml"].text == FILES["crlf.yaml"]


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("apps/web/values.yaml", "100644"),
        ("apps/run.yaml", "100755"),
        ("apps/link", "120000"),
        ("apps/module", "160000"),
        ("apps/web", "040000"),
    ],
)
@pytest.mark.parametrize("want", ["exists", "text"])
def test_a_snapshot_contains_the_mode_of_each_file(
    store: BareRepository, path: str, mode: str, want: str
) -> None:
    file = store.snapshot("main", [Place(path, want)]).files[path]  # type: ignore[arg-type]
    assert file.mode == mode
    assert bool(file.text) is (want == "text" and mode.startswith("100"))


@pytest.mark.parametrize(
    ("path", "parent", "mode"),
    [
        ("apps/link/values.yaml", "apps/link", "120000"),
        ("apps/module/values.yaml", "apps/module", "160000"),
        ("top.yaml/a/b.yaml", "top.yaml", "100644"),
    ],
)
@pytest.mark.parametrize("want", ["text", "exists", "folder", "tree"])
def test_the_error_names_a_parent_that_is_not_a_folder(
    store: BareRepository, path: str, parent: str, mode: str, want: str
) -> None:
    assert store.snapshot("main", [Place(path, want)]).files == {parent: File("", mode)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["none.yaml", "none/none.yaml", "apps/none/none.yaml", "apps/web/none.yaml"]
)
@pytest.mark.parametrize("want", ["text", "exists", "folder", "tree"])
def test_a_missing_path_is_absent_from_the_snapshot(
    store: BareRepository, path: str, want: str
) -> None:
    assert store.snapshot("main", [Place(path, want)]).files == {}  # type: ignore[arg-type]


def test_a_snapshot_of_a_folder_contains_its_manifests(store: BareRepository) -> None:
    files = store.snapshot("main", [Place("apps/web", "folder")]).files
    paths = ["apps/web/config.json", "apps/web/kustomization.yml", "apps/web/values.yaml"]
    assert files == {path: File(text_of(path)) for path in paths}


def test_a_snapshot_of_a_tree_includes_manifests_in_subfolders(store: BareRepository) -> None:
    files = store.snapshot("main", [Place("apps", "tree")]).files
    assert sorted(files) == [
        "apps/run.yaml",
        "apps/web/config.json",
        "apps/web/kustomization.yml",
        "apps/web/sub/deep.yaml",
        "apps/web/sub/deeper/deepest.yaml",
        "apps/web/values.yaml",
    ]
    assert files["apps/web/sub/deep.yaml"] == File("deep: 1\n")


@pytest.mark.parametrize("path", ["apps/web/values.yaml", "apps/run.yaml"])
@pytest.mark.parametrize("want", ["folder", "tree"])
def test_a_file_at_the_path_of_a_requested_folder_is_read(
    store: BareRepository, path: str, want: str
) -> None:
    files = store.snapshot("main", [Place(path, want)]).files  # type: ignore[arg-type]
    assert list(files) == [path]
    assert files[path].text


def test_the_repository_root_can_be_read_as_a_folder(store: BareRepository) -> None:
    files = store.snapshot("main", [Place("", "folder")]).files
    assert "top.yaml" in files
    assert not any("/" in path for path in files)


def test_one_snapshot_combines_several_places(store: BareRepository) -> None:
    places = [
        Place("apps/web", "exists"),
        Place("apps/web/values.yaml"),
        Place("apps/web", "folder"),
        Place("none"),
    ]
    files = store.snapshot("main", places).files
    assert files["apps/web"] == File("", "040000")
    assert files["apps/web/values.yaml"].text == FILES["apps/web/values.yaml"]
    assert len(files) == 4


def test_a_request_for_text_takes_precedence_over_a_request_for_existence(
    store: BareRepository,
) -> None:
    for places in (
        [Place("top.yaml"), Place("top.yaml", "exists")],
        [Place("top.yaml", "exists"), Place("top.yaml")],
    ):
        assert store.snapshot("main", places).files == {"top.yaml": File("top: 1\n")}


@pytest.mark.usefixtures("large")
def test_2000_files_in_a_folder_are_read_with_two_fetches(tmp_path: Path) -> None:
    contents: dict[str, Content] = {f"all/{n}.yaml": f"n: {n}\n" for n in range(2000)}
    repo = bare_repo(tmp_path, contents)
    git_door = door()
    with BareRepository(git_door, str(repo)) as store:
        files = store.snapshot("main", [Place("all", "folder")]).files
    assert {path: file.text for path, file in files.items()} == contents
    assert git_door.calls.count("fetch") == 2


def test_a_snapshot_reads_the_requested_branch(repo: Path, store: BareRepository) -> None:
    snapshot = store.snapshot("topic/x", [Place("apps/run.yaml", "exists")])
    assert (snapshot.branch, snapshot.tip) == ("topic/x", git(repo, "rev-parse", "topic/x"))
    assert snapshot.files == {}


@pytest.mark.parametrize("name", ["HEAD", "", "refs/heads/main"])
def test_a_snapshot_contains_the_short_name_of_its_branch(store: BareRepository, name: str) -> None:
    assert store.snapshot(name, []).branch == "main"


def test_the_default_branch_can_have_any_name(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "b"}, branch="release/prod")
    with BareRepository(door(), str(repo)) as store:
        assert store.default_branch() == "release/prod"


def test_a_new_snapshot_fetches_only_the_changes(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a/b/c.yaml": "1\n", "a/d.yaml": "1\n"})
    places = [Place("a/b/c.yaml"), Place("a/d.yaml")]
    git_door = door()
    with BareRepository(git_door, str(repo)) as store:
        first = store.snapshot("main", places)
        commit(repo, {"a/d.yaml": "2\n"})
        git_door.calls.clear()
        second = store.snapshot("main", places)
    assert {path: file.text for path, file in second.files.items()} == {
        "a/b/c.yaml": "1\n",
        "a/d.yaml": "2\n",
    }
    assert second.tip != first.tip
    # Only the tip and the changed trees and texts: known objects are not refetched.
    assert git_door.calls == ["fetch"]


@pytest.mark.usefixtures("large")
def test_places_are_determined_while_the_first_fetch_is_running(repo: Path) -> None:
    """The editors determine the places, but take longer to load than a server takes to respond."""
    git_door, asked = door(), []

    def places() -> Iterator[Place]:
        asked.append(git_door.calls[-1])
        yield Place("top.yaml")

    with BareRepository(git_door, str(repo)) as store:
        assert store.snapshot("main", places()).files == {"top.yaml": File(text_of("top.yaml"))}
    assert asked == ["fetch"]
    assert git_door.calls.count("fetch") > 1  # the remaining places were requested later


def test_a_branch_can_be_read_again_after_a_force_push(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a.yaml": "1\n"})
    with BareRepository(door(), str(repo)) as store:
        store.snapshot("main", [Place("a.yaml")])
        git(repo, "update-ref", "-d", "refs/heads/main")
        commit(repo, {"a.yaml": "other\n"})
        assert store.snapshot("main", [Place("a.yaml")]).files["a.yaml"].text == "other\n"


V0 = '\tuploadpack = "env -u GIT_PROTOCOL git-upload-pack"\n'


@pytest.mark.parametrize(
    ("served", "settings", "size", "fetches"),
    [
        ("", {"uploadpack.allowFilter": "true"}, "small", 1),
        ("", {"uploadpack.allowFilter": "true"}, "large", 2),  # trees, then files
        ("", {"uploadpack.allowFilter": "false"}, "small", 1),  # everything in one fetch
        ("", {"uploadpack.allowFilter": "false"}, "large", 1),
        ("", {"uploadpackfilter.tree.allow": "false"}, "large", 2),
        ("", {"uploadpackfilter.tree.maxDepth": "0"}, "large", 2),  # as on GitHub
        (
            "",
            {"uploadpackfilter.allow": "false"},
            "small",
            3,
        ),  # both filters are rejected, then everything is fetched
        ("", {"uploadpackfilter.allow": "false"}, "large", 2),  # rejected, then everything
        (
            "",
            {"uploadpackfilter.blob:limit.allow": "false"},
            "small",
            3,
        ),  # rejected, then fetched like a large repository
        (V0, {"uploadpack.allowAnySHA1InWant": "true"}, "large", 2),
        (V0, {"uploadpack.allowAnySHA1InWant": "false"}, "small", 1),
        (
            V0,
            {"uploadpack.allowAnySHA1InWant": "false"},
            "large",
            3,
        ),  # first the tip, then rejected, then everything is fetched
    ],
)
def test_servers_with_fewer_capabilities_require_more_fetches(
    tmp_path: Path,
    served: str,
    settings: Mapping[str, str],
    size: str,
    fetches: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if size == "large":
        request.getfixturevalue("large")
    monkeypatch.setattr(
        "task.git.repository.bare_folder._LOCAL", served
    )  # by default, a local repository is served with filters
    repo = bare_repo(tmp_path, {"a/b/c/d.yaml": "1\n", "a/b/e.yaml": "2\n", "f.yaml": "3\n"})
    for key, value in settings.items():
        git(repo, "config", key, value)
    git_door, places = door(), [Place("a/b/c/d.yaml"), Place("a", "tree")]
    said: list[str] = []
    git_door.log = said.append
    with BareRepository(git_door, str(repo)) as store:
        files = store.snapshot("main", places).files
        assert {path: file.text for path, file in files.items()} == {
            "a/b/c/d.yaml": "1\n",
            "a/b/e.yaml": "2\n",
        }
        assert git_door.calls.count("fetch") == fetches
        assert [line for line in said if "warning" in line] == []  # nothing for users to fix
        commit(repo, {"a/b/e.yaml": "new\n"})
        assert store.snapshot("main", places).files["a/b/e.yaml"].text == "new\n"


def test_a_missing_branch_causes_a_source_error(store: BareRepository, repo: Path) -> None:
    with pytest.raises(SourceError) as caught:
        store.snapshot("none", [])
    assert caught.value.subject == f"{repo}@none"
    assert "check the branch name" in caught.value.hint


def test_a_tag_is_not_a_branch(store: BareRepository) -> None:
    with pytest.raises(SourceError, match="is a tag"):
        store.snapshot("v1.0", [])


@pytest.mark.parametrize("revision", ["a" * 40, "refs/tags/v1.0", "-x", "v1.*"])
def test_an_invalid_branch_name_runs_no_git_command(repo: Path, revision: str) -> None:
    git_door = door()
    with BareRepository(git_door, str(repo)) as store, pytest.raises(SourceError):
        store.snapshot(revision, [])
    assert git_door.calls == []


def test_an_empty_repository_causes_a_source_error(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "empty.git")
    with BareRepository(door(), str(tmp_path / "empty.git")) as store:
        with pytest.raises(SourceError, match="empty"):
            store.default_branch()
        with pytest.raises(SourceError) as caught:
            store.snapshot("main", [])
    assert "empty" in caught.value.hint


def test_a_head_that_names_a_missing_branch_causes_a_source_error(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "b"}, branch="develop")
    git(repo, "symbolic-ref", "HEAD", "refs/heads/none")
    with BareRepository(door(), str(repo)) as store:
        with pytest.raises(SourceError, match="default branch"):
            store.default_branch()
        assert store.snapshot("develop", [Place("a")]).files == {"a": File("b")}


def test_a_detached_head_causes_a_source_error(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "b"})
    (repo / "HEAD").write_text(git(repo, "rev-parse", "main") + "\n")
    with (
        BareRepository(door(), str(repo)) as store,
        pytest.raises(SourceError, match="does not point to a branch"),
    ):
        store.default_branch()


@pytest.mark.parametrize("url", ["{}/none.git", "file://{}/none.git"])
def test_a_missing_repository_is_a_repository_error(tmp_path: Path, url: str) -> None:
    with (
        BareRepository(door(), url.format(tmp_path)) as store,
        pytest.raises(RepositoryError, match="not found, or access to it was denied"),
    ):
        store.snapshot("main", [])


def test_a_sha256_repository_can_be_read(tmp_path: Path) -> None:
    git(
        tmp_path,
        "init",
        "--quiet",
        "--bare",
        "--object-format=sha256",
        "--initial-branch=main",
        "new.git",
    )
    commit(tmp_path / "new.git", {"a/b.yaml": "1\n"})
    with BareRepository(door(), str(tmp_path / "new.git")) as store:
        snapshot = store.snapshot("main", [Place("a/b.yaml")])
    assert len(snapshot.tip) == 64
    assert snapshot.files == {"a/b.yaml": File("1\n")}


@pytest.mark.parametrize(
    "environ", [{"HOME": "/nonexistent"}, {"HOME": ""}, {"XDG_CONFIG_HOME": "/nonexistent"}]
)
def test_a_repository_can_be_read_with_an_unusable_home_folder(
    repo: Path, environ: Mapping[str, str]
) -> None:
    with BareRepository(door(**environ), str(repo)) as store:
        assert store.snapshot("main", [Place("top.yaml")]).files == {"top.yaml": File("top: 1\n")}


def test_a_repository_can_be_read_without_a_home_folder(repo: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "HOME"}
    with BareRepository(Git(environ, protocols=frozenset({"file"})), str(repo)) as store:
        assert store.snapshot("main", [Place("top.yaml")]).files == {"top.yaml": File("top: 1\n")}


def test_a_users_git_configuration_changes_nothing(repo: Path, tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text(
        '[remote "origin"]\n\turl = /nonexistent\n[remote "image-update"]\n\tfetch = +refs/*:refs/*\n'
        "[core]\n\thooksPath = /nonexistent\n\tautocrlf = true\n[fetch]\n\tprune = true\n[color]\n\tui = always\n"
        "[safe]\n\tbareRepository = explicit\n[transfer]\n\tfsckObjects = true\n[protocol]\n\tallow = never\n"
    )
    with BareRepository(door(HOME=str(tmp_path), XDG_CONFIG_HOME=""), str(repo)) as store:
        assert store.snapshot("main", [Place("crlf.yaml")]).files == {
            "crlf.yaml": File(text_of("crlf.yaml"))
        }


def test_the_private_temporary_folder_is_removed(repo: Path, tmp_path: Path) -> None:
    with BareRepository(door(TMPDIR=str(tmp_path)), str(repo)) as store:
        store.snapshot("main", [Place("top.yaml")])
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_a_missing_temporary_folder_causes_a_usage_error(repo: Path, tmp_path: Path) -> None:
    store = BareRepository(door(TMPDIR=str(tmp_path / "none")), str(repo))
    with store, pytest.raises(UsageError, match=r"TMPDIR: .* is not a folder") as caught:
        store.snapshot("main", [])
    assert "TMPDIR" in caught.value.hint


def test_a_closed_store_can_be_used_again(repo: Path) -> None:
    store = BareRepository(door(), str(repo))
    for _ in range(2):
        assert store.snapshot("main", [Place("top.yaml")]).files == {"top.yaml": File("top: 1\n")}
        store.close()


def test_a_folder_with_too_many_entries_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's listing is not read, so its files would seem to be missing."""
    monkeypatch.setattr("task.git.repository.objects.LARGEST", 400)
    repo = bare_repo(
        tmp_path, {"a/b": "1", **{f"a/file{number}": "x" for number in range(40)}, "c/d": "2"}
    )
    with BareRepository(door(), str(repo)) as store:
        assert store.snapshot("main", [Place("c/d")]).files == {"c/d": File("2")}
        with pytest.raises(SourceError, match="a folder's listing is larger than 10 MB"):
            store.snapshot("main", [Place("a/b")])
