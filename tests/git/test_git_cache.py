"""`--git-cache-dir`: later runs fetch less, runs can share a cache, and no run depends on it."""

import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
from support import commit, git, show, variants
from support.runs import KUSTOMIZATION, application, arguments, manifest, repository, start, target

from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.git.repository.bare_folder import Cache, CachedTip
from task.model import Changeset, File, LandedCommit, Person, Place

FILE = frozenset({"file"})
V0 = '\tuploadpack = "env -u GIT_PROTOCOL git-upload-pack"\n'


def land(repo: Path, cache: Path, text: str, name: str = "a") -> tuple[LandedCommit, list[str]]:
    """Perform one run, and return what landed and the git commands that were executed."""
    door = Git(os.environ, protocols=FILE)
    with BareRepository(door, str(repo), cache_dir=str(cache)) as store:
        snapshot = store.snapshot("main", [Place(target(name))])
        files = {target(name): File(text)}
        destination = (str(repo), "main", "main")
        landing = store.land(
            Changeset(*destination, snapshot.tip, files, text, Person("T", "t@example.com"))
        )
    return landing, door.calls


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path, "a", "b", "c", "d")


def test_the_second_run_fetches_only_the_tip(repo: Path, tmp_path: Path) -> None:
    _, first = land(repo, tmp_path / "cache", "1\n")
    landing, second = land(repo, tmp_path / "cache", "2\n")
    assert (first.count("fetch"), second.count("fetch")) == (2, 1)
    assert landing.commit == git(repo, "rev-parse", "main")
    assert show(repo, "main", target("a")) == "2\n"
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""


def test_only_changes_by_others_are_fetched(repo: Path, tmp_path: Path) -> None:
    land(repo, tmp_path / "cache", "1\n")
    commit(repo, {target("b"): "other\n"})
    _, calls = land(repo, tmp_path / "cache", "2\n")
    assert calls.count("fetch") == 1  # one fetch for the tip with its new trees
    assert show(repo, "main", target("b")) == "other\n"


def test_the_trees_of_a_large_repository_are_fetched_once(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a")
    commit(repo, {f"other/team{n % 40}/{n}/x.yaml": f"{n}\n" for n in range(4000)})
    cache = tmp_path / "cache"
    land(repo, cache, "1\n")
    before = size(cache)
    commit(repo, {"other/team1/1/x.yaml": "new\n"})
    land(repo, cache, "2\n")
    assert before > 100_000
    assert size(cache) - before < 20_000


def test_a_server_without_filters_sends_only_new_objects(repo: Path, tmp_path: Path) -> None:
    git(repo, "config", "uploadpack.allowFilter", "false")
    git(repo, "config", "uploadpackfilter.allow", "false")
    commit(repo, {"big.bin": os.urandom(1_000_000)})
    cache = tmp_path / "cache"
    land(repo, cache, "1\n")
    before = size(cache)
    commit(repo, {target("b"): "other\n"})
    land(repo, cache, "2\n")
    assert before > 1_000_000
    assert size(cache) - before < 10_000
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("whole", variants([False], at_night=[True]))
@pytest.mark.parametrize("how", ["cut", "garbage", "gone", "no index"])
def test_a_broken_cache_is_discarded(repo: Path, tmp_path: Path, how: str, whole: bool) -> None:
    if whole:
        git(repo, "config", "uploadpackfilter.allow", "false")
    cache = tmp_path / "cache"
    land(repo, cache, "1\n")
    for pack in cache.rglob("*.pack"):
        pack.chmod(0o644)
        if how == "cut":
            pack.write_bytes(pack.read_bytes()[:40])
        elif how == "garbage":
            pack.write_bytes(pack.read_bytes()[:12] + os.urandom(pack.stat().st_size - 12))
        elif how == "gone":
            pack.unlink()
        else:
            pack.with_suffix(".idx").unlink()
    for number in range(2, 4):
        landing, _ = land(repo, cache, f"{number}\n")
        assert landing.commit == git(repo, "rev-parse", "main")
    assert git(repo, "rev-list", "--count", "main") == "4"
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""


def test_a_rewritten_branch_is_updated_despite_the_cache(repo: Path, tmp_path: Path) -> None:
    land(repo, tmp_path / "cache", "1\n")
    git(repo, "update-ref", "-d", "refs/heads/main")
    commit(repo, {target("a"): KUSTOMIZATION})
    land(repo, tmp_path / "cache", "2\n")
    assert git(repo, "rev-list", "--count", "main") == "2"


@pytest.mark.parametrize("kind", ["a file", "not writable"])
def test_an_unusable_cache_folder_causes_a_warning(repo: Path, tmp_path: Path, kind: str) -> None:
    cache = tmp_path / "cache"
    if kind == "a file":
        cache.write_text("x")
    else:
        cache = Path("/proc/cache")
    running = start(arguments(manifest(tmp_path, application("a", repo)), "--git-cache-dir", cache))
    _, err = running.communicate()
    assert running.returncode == 0
    assert b"--git-cache-dir" in err


def test_two_repositories_are_cached_separately(repo: Path, tmp_path: Path) -> None:
    other = repository(tmp_path, "a", name="other.git")
    for one in (repo, other, repo, other):
        land(one, tmp_path / "cache", f"{one} {git(one, 'rev-parse', 'main')}\n")
    assert len(list((tmp_path / "cache").iterdir())) == 2


@pytest.mark.parametrize("whole", [False, True])
def test_four_concurrent_runs_share_a_cache(repo: Path, tmp_path: Path, whole: bool) -> None:
    if whole:
        git(repo, "config", "uploadpackfilter.allow", "false")
    cache = tmp_path / "cache"
    for tag in ("1.1.0", "1.2.0"):
        running = [
            start(
                arguments(
                    manifest(tmp_path, application(name, repo), name=f"{name}.json"),
                    "--git-cache-dir",
                    cache,
                    image=f"ghcr.io/acme/web:{tag}",
                )
            )
            for name in "abcd"
        ]
        ends = [one.communicate()[1] for one in running]
        assert [one.returncode for one in running] == [0] * 4, ends
    assert git(repo, "rev-list", "--count", "main") == "9"
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""
    assert not list(cache.rglob("*.tmp"))


def test_old_packs_are_removed_from_the_cache(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.git.repository.bare_folder._MOST_PACKS", 4)
    for number in range(5):
        land(repo, tmp_path / "cache", f"{number}\n")
    assert len(list((tmp_path / "cache").rglob("*.idx"))) <= 9
    assert git(repo, "rev-list", "--count", "main") == "6"


def test_a_change_lands_even_if_the_cache_folder_vanishes(repo: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    land(repo, cache, "1\n")
    with BareRepository(Git(os.environ, protocols=FILE), str(repo), cache_dir=str(cache)) as store:
        snapshot = store.snapshot("main", [Place(target("a"))])
        shutil.rmtree(cache)
        destination = (str(repo), "main", "main")
        wanted = Changeset(
            *destination,
            snapshot.tip,
            {target("a"): File("2\n")},
            "x",
            Person("T", "t@example.com"),
        )
        store.land(wanted)
    assert show(repo, "main", target("a")) == "2\n"


def test_a_pack_that_is_larger_than_memory_is_kept(tmp_path: Path) -> None:
    packs = tmp_path / "objects" / "pack"
    packs.mkdir(parents=True)
    for name in ("pack-1.pack", "pack-1.idx"):
        with (packs / name).open("wb") as file:
            file.truncate(50_000_000)
    cache = Cache(str(tmp_path / "cache"), "https://git.example/x.git")
    assert cache.open("sha1") == ""
    tracemalloc.start()
    try:
        cache.add_packs(str(tmp_path / "objects"), CachedTip())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (os.path.getsize(f"{cache.objects}/pack/pack-1.pack"), most < 10_000_000) == (
        50_000_000,
        True,
    )


@pytest.mark.parametrize("kept", ["nothing", "broken"])
def test_a_cache_works_with_a_server_that_cannot_send_single_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """With the old protocol, the server sends trees but no files, so the cache lacks the files."""
    monkeypatch.setattr("task.git.repository.bare_folder._LOCAL", V0)
    monkeypatch.setattr(
        "task.git.repository.remote._SMALL", "blob:none"
    )  # otherwise, a small repository is fetched in one step
    repo = repository(tmp_path, "a")
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(repo, "config", "uploadpack.allowAnySHA1InWant", "false")
    cache = tmp_path / "cache"
    if kept == "broken":
        land(repo, cache, "1\n")
        for pack in cache.rglob("*.pack"):
            pack.unlink()
    for text in ("2\n", "3\n"):
        landing, _ = land(repo, cache, text)
        assert landing.commit == git(repo, "rev-parse", "main")
        assert show(repo, "main", target("a")) == text
    with BareRepository(
        Git(os.environ, protocols=FILE), str(repo), cache_dir=str(tmp_path / "other")
    ) as store:
        assert [text for _, text in store.earlier("main", target("a"))][:2] == ["3\n", "2\n"]
    with BareRepository(
        Git(os.environ, protocols=FILE), str(repo), cache_dir=str(tmp_path / "third")
    ) as store:
        (found,) = store.written("main", [[target("a")]], 2)
        assert [one.text for one in found[target("a")]] == ["3\n", "2\n"]


NOTES = [
    b"\0" * 46,
    b"\xff\xfe whole",
    b"0123",
    b"main whole",
    b"0" * 40 + b" trees",
    b"a" * 64 + b" trees",
]


@pytest.mark.parametrize("tip", NOTES, ids=range(len(NOTES)))
def test_an_unreadable_tip_note_is_ignored(repo: Path, tmp_path: Path, tip: bytes) -> None:
    """If the machine crashes before the data reaches the disk, such a note may remain."""
    cache = tmp_path / "cache"
    land(repo, cache, "1\n")
    (note,) = cache.rglob("tip")
    note.write_bytes(tip)
    for text in ("2\n", "3\n"):
        landing, _ = land(repo, cache, text)
        assert landing.commit == git(repo, "rev-parse", "main")
