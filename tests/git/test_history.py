"""The earlier texts of a path, in real repositories with realistic team histories."""

import os
from pathlib import Path

import pytest
from support import bare_repo, commit, git
from support.git_histories import git_of_a_run, many
from support.git_servers import daemon, git_server

from task.errors import RepositoryError, SourceError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.git.repository.history import History
from task.git.repository.remote import Remote
from task.model import Changeset, File, Person, Place

PATH = "apps/web/values.yaml"


def texts(
    url: str | Path, path: str = PATH, branch: str = "main", limit: int = 100
) -> tuple[list[str | None], str]:
    """Return all texts, and the reason why the history ends."""
    with BareRepository(git_of_a_run(), str(url)) as store:
        history = store.earlier(branch, path, limit)
        found = list(history)
        assert len({oid for oid, _ in found}) == len(found)
        return [text for _, text in found], history.end


def deploys(folder: Path, *values: str | None, between: int = 0, name: str = "repo.git") -> Path:
    """Return a repository in which the path had these texts, with other commits in between."""
    repo = bare_repo(
        folder,
        {PATH: values[0], "other/file": "x\n"} if values[0] else {"other/file": "x\n"},
        name=name,
    )
    for number, value in enumerate(values[1:]):
        many(
            repo,
            [*(("other/file", f"{number} {other}") for other in range(between)), (PATH, value)],
        )
    return repo


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("1",), ["1"]),
        (("1", "2", "3"), ["3", "2", "1"]),
        (("1", "2", "1"), ["1", "2", "1"]),  # a revert
        (("1", "2", None), [None, "2", "1"]),
        (("1", None, "2"), ["2", None, "1"]),
        ((None, "1"), ["1", None]),
        ((None,), [None]),
    ],
)
def test_texts_are_returned_newest_first(
    tmp_path: Path, values: tuple[str, ...], expected: list[str | None]
) -> None:
    assert texts(deploys(tmp_path, *values, between=2)) == (expected, "root")


def test_each_text_names_the_newest_commit_that_contains_it(tmp_path: Path) -> None:
    repo = deploys(tmp_path, "1")
    newest = commit(repo, {"other/file": "y\n"})
    tip = commit(repo, {PATH: "2"})
    with BareRepository(git_of_a_run(), str(repo)) as store:
        assert list(store.earlier("main", PATH)) == [(tip, "2"), (newest, "1")]
        assert next(store.earlier("", PATH)) == (tip, "2")


@pytest.mark.parametrize("between", [0, 30])
def test_a_marked_commit_is_preferred_for_its_text(tmp_path: Path, between: int) -> None:
    """The marked commit may be any commit that contains the text, even beyond the first fetch."""
    repo = deploys(tmp_path, "1", "2", "3", "4", between=between)
    with BareRepository(git_of_a_run(), str(repo)) as store:
        newest = [oid for oid, _ in store.earlier("main", PATH)]
    commits = git(repo, "rev-list", "--first-parent", "main").split()
    marked = [commits[commits.index(one) + between] for one in newest[1:3]]
    with BareRepository(git_of_a_run(), str(repo)) as store:
        found = list(store.earlier("main", PATH, 100, marked))
    assert [text for _, text in found] == ["4", "3", "2", "1"]
    assert [oid for oid, _ in found] == [newest[0], *marked, newest[3]]


def test_a_history_ends_at_its_limit(tmp_path: Path) -> None:
    repo = deploys(tmp_path, "1", "2", "3")
    assert texts(repo, limit=2) == (["3", "2"], "limit")
    assert texts(repo, limit=3) == (["3", "2", "1"], "root")


def test_a_merge_counts_as_one_step(tmp_path: Path) -> None:
    repo = deploys(tmp_path, "1")
    git(repo, "branch", "work", "main")
    commit(repo, {PATH: "trial"}, "work")
    commit(repo, {PATH: "2"}, "work")
    commit(repo, {"other/file": "y\n"}, "main")
    tree = git(repo, "rev-parse", "work^{tree}")
    merge = git(repo, "commit-tree", tree, "-p", "main", "-p", "work", "-m", "Merge")
    git(repo, "update-ref", "refs/heads/main", merge)
    assert texts(repo) == (["2", "1"], "root")


def test_a_squashed_pull_request_counts_as_one_step(tmp_path: Path) -> None:
    repo = deploys(tmp_path, "1")
    git(repo, "branch", "work", "main")
    commit(repo, {PATH: "trial"}, "work")
    commit(repo, {PATH: "2"}, "work")
    commit(repo, {PATH: "2"}, "main", "Squashed")
    assert texts(repo) == (["2", "1"], "root")


def test_a_replaced_head_branch_has_its_new_history(tmp_path: Path) -> None:
    repo = deploys(tmp_path, "1", "2")
    git(repo, "branch", "work", "main")
    commit(repo, {PATH: "old attempt"}, "work")
    git(repo, "update-ref", "refs/heads/work", "main")
    commit(repo, {PATH: "3"}, "work")
    assert texts(repo, branch="work") == (["3", "2", "1"], "root")


LINES = "".join(f"line {number}\n" for number in range(9))


@pytest.mark.parametrize(
    ("before", "moved", "expected"),
    [
        ({"old/web/values.yaml": "1"}, "1", ["2", "1", "0"]),
        (
            {"old/web/values.yaml": f"{LINES}tag: 1"},
            f"{LINES}tag: 2",
            ["2", f"{LINES}tag: 2", f"{LINES}tag: 1", "0"],
        ),
        ({"old/web/values.yaml": "1", "old/web/chart.yaml": "1"}, "1", ["2", "1", "0"]),
        ({"values.yaml": "1"}, "1", ["2", "1", None]),
        ({"apps/web": "1"}, "1", ["2", "1", None]),  # a file in place of the folder
        ({"old/web/values.yaml": "quite\nsomething\nelse\n"}, "1", ["2", "1", None]),
    ],
)
def test_renames_are_followed(
    tmp_path: Path, before: dict[str, str], moved: str, expected: list[str | None]
) -> None:
    repo = bare_repo(tmp_path, {"old/web/values.yaml": "0", "keep/values.yaml": "1"})
    commit(repo, {"old/web/values.yaml": None, **before})
    commit(repo, {**dict.fromkeys(before), PATH: moved})
    commit(repo, {PATH: "2"})
    assert texts(repo) == (expected, "root")


def test_a_copy_is_not_treated_as_a_rename(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"old/values.yaml": "0"})
    commit(repo, {"old/values.yaml": "1"})
    commit(repo, {PATH: "1"})
    assert texts(repo) == (["1", None], "root")


def test_a_file_moved_twice_is_followed_to_its_first_path(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a/values.yaml": "1"})
    commit(repo, {"a/values.yaml": "2"})
    commit(repo, {"a/values.yaml": None, "b/values.yaml": "2"})
    commit(repo, {"b/values.yaml": "3"})
    commit(repo, {"b/values.yaml": None, PATH: "3"})
    with BareRepository(git_of_a_run(), str(repo)) as store:
        history = store.earlier("main", PATH)
        assert [text for _, text in history] == ["3", "2", "1"]
        assert history.path == "a/values.yaml"


def test_a_binary_file_has_no_text(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {PATH: b"\xff\xfe"})
    commit(repo, {PATH: "1"})
    assert texts(repo) == (["1", None], "root")


def long_history(folder: Path, commits: int, every: int) -> Path:
    """Return a repository with many commits. Every `every`-th commit changes the path."""
    repo = bare_repo(folder, {PATH: "0", **{f"apps/a{n}/values.yaml": f"{n}\n" for n in range(30)}})
    many(repo, ((PATH if n % every == 0 else "other/file", str(n)) for n in range(1, commits)))
    return repo


def test_a_history_is_fetched_only_as_far_back_as_it_is_read(tmp_path: Path) -> None:
    repo = long_history(tmp_path, 1500, 120)
    door_ = git_of_a_run()
    with BareRepository(door_, str(repo)) as store:
        store.snapshot("main", [Place(PATH)])
        before = len(door_.calls)
        history = store.earlier("main", PATH)
        assert [next(history)[1] for _ in range(2)] == ["1440", "1320"]
        few = len(door_.calls) - before
        assert [text for _, text in history] == [str(number) for number in range(1200, -1, -120)]
        assert history.end == "root"
    assert few <= 14
    assert len(door_.calls) - before <= 30


@pytest.mark.parametrize("depth_of_tree_filters", ["0", "100"])
def test_reading_a_history_fetches_no_other_files(
    tmp_path: Path, depth_of_tree_filters: str
) -> None:
    """This also holds for servers that reject tree filters, like GitHub."""
    repo = long_history(tmp_path, 400, 50)
    git(repo, "config", "uploadpackfilter.tree.maxDepth", depth_of_tree_filters)
    home = tmp_path / "tmp"
    home.mkdir()
    with (
        git_server(tmp_path) as server,
        BareRepository(Git({**os.environ, "TMPDIR": str(home)}), f"{server.url}repo.git") as store,
    ):
        assert len(list(store.earlier("main", PATH))) == 8
        (folder,) = (one for one in home.iterdir() if (one / "FETCH_HEAD").exists())
        kinds = git(
            folder, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"
        ).split()
    assert not list(home.iterdir())
    assert (kinds.count("blob"), kinds.count("commit")) == (8, 400)


def test_the_end_of_a_shallow_history_is_not_reported_as_the_root(tmp_path: Path) -> None:
    whole = deploys(tmp_path, "1", "2", "3", "4", between=3, name="whole.git")
    git(tmp_path, "clone", "--quiet", "--bare", "--depth=5", f"file://{whole}", "shallow.git")
    shallow = tmp_path / "shallow.git"
    git(shallow, "config", "uploadpack.allowFilter", "true")
    assert texts(f"file://{shallow}") == (["4", "3"], "server")
    assert texts(f"file://{shallow}", limit=1) == (["4"], "limit")
    with daemon(tmp_path) as url:
        assert texts(f"{url}/shallow.git") == (["4", "3"], "server")


@pytest.mark.parametrize("filters", ["true", "false"])
def test_a_history_is_read_over_the_git_protocol(tmp_path: Path, filters: str) -> None:
    repo = deploys(tmp_path, "1", "2", None, "3", between=30)
    git(repo, "config", "uploadpack.allowFilter", filters)
    with daemon(tmp_path) as url:
        assert texts(f"{url}/repo.git") == (["3", None, "2", "1"], "root")


def test_a_history_is_read_from_a_server_that_cannot_send_single_objects(tmp_path: Path) -> None:
    repo = deploys(tmp_path, "1", "2", "3", between=30)
    for name in (
        "allowAnySHA1InWant",
        "allowReachableSHA1InWant",
        "allowTipSHA1InWant",
        "allowFilter",
    ):
        git(repo, "config", f"uploadpack.{name}", "false")
    git(repo, "config", "protocol.version", "0")
    with git_server(tmp_path) as server:
        assert texts(f"{server.url}repo.git") == (["3", "2", "1"], "root")


def test_a_history_is_read_over_http(tmp_path: Path) -> None:
    repo = deploys(tmp_path, "1", "2", "3", between=30)
    git(repo, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server:
        assert texts(f"{server.url}repo.git") == (["3", "2", "1"], "root")


def test_the_history_of_a_sha256_repository_is_read(tmp_path: Path) -> None:
    git(
        tmp_path,
        "init",
        "--quiet",
        "--bare",
        "--object-format=sha256",
        "--initial-branch=main",
        "repo.git",
    )
    repo = tmp_path / "repo.git"
    commit(repo, {PATH: "1"})
    commit(repo, {PATH: "2"})
    assert texts(repo) == (["2", "1"], "root")


def test_a_history_is_not_affected_by_new_commits(tmp_path: Path) -> None:
    repo = long_history(tmp_path, 120, 40)
    with BareRepository(git_of_a_run(), str(repo)) as store:
        history = store.earlier("main", PATH)
        assert next(history)[1] == "80"
        for number in range(9):
            commit(repo, {PATH: f"new {number}"})
        assert [text for _, text in history] == ["40", "0"]


@pytest.mark.parametrize("server", ["file", "http", "no filter"])
def test_changes_still_land_after_a_history_has_been_read(tmp_path: Path, server: str) -> None:
    repo = deploys(tmp_path, "1", "2", between=40)
    git(repo, "config", "http.receivepack", "true")
    if server == "no filter":
        git(repo, "config", "uploadpack.allowFilter", "false")
    with git_server(tmp_path) as http:
        url = f"file://{repo}" if server == "file" else f"{http.url}repo.git"
        with BareRepository(git_of_a_run(), url) as store:
            for text in ("3", "4"):
                snapshot = store.snapshot("main", [Place(PATH)])
                list(store.earlier("main", PATH))
                change = Changeset(
                    url, "main", "main", snapshot.tip, {PATH: File(text)}, "x", Person("T", "t@e")
                )
                assert store.land(change).pushed
            assert [text for _, text in store.earlier("main", PATH)] == ["4", "3", "2", "1"]
    assert git(repo, "rev-list", "--count", "main") == "44"


def test_a_history_is_the_same_with_a_cache(tmp_path: Path) -> None:
    repo = deploys(tmp_path, "1", "2", "3", between=30)
    for _ in range(3):
        with BareRepository(git_of_a_run(), str(repo), cache_dir=str(tmp_path / "cache")) as store:
            store.snapshot("main", [Place(PATH)])
            assert [text for _, text in store.earlier("main", PATH)] == ["3", "2", "1"]
        commit(repo, {"other/file": os.urandom(4).hex()})


def test_the_history_of_a_missing_branch_or_repository_is_an_error(tmp_path: Path) -> None:
    repo = deploys(tmp_path, "1")
    with pytest.raises(SourceError, match="branch does not exist"):
        texts(repo, branch="nowhere")
    with pytest.raises(SourceError):
        texts(repo, branch="--upload-pack=evil")
    with pytest.raises(RepositoryError):
        texts(tmp_path / "nothing.git")


@pytest.mark.parametrize(("limits", "last"), [({"PATIENCE": 0.0}, "320"), ({"LARGEST": 7}, "200")])
def test_a_history_is_limited_in_time_and_size(
    tmp_path: Path, limits: dict[str, float], last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(f"task.git.repository.history.{name}", value)
    repo = long_history(tmp_path, 400, 40)
    history = History(Remote(git_of_a_run(), str(repo)), "main", PATH, 100)
    found = [text for _, text in history]
    history.close()
    assert (found[0], found[-1], history.end) == ("360", last, "limit")
