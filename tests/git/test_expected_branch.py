"""A branch that is fetched before it is read: what arrives, what fails, and what nobody reads after all."""

import os
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from runs import application
from support import bare_repo, commit

from task.annotations.application import PREFIX, parse_application
from task.annotations.subscription import subscribe
from task.errors import SourceError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import File, Place, Subscription
from task.wiring.git import Ahead

FILES = {"values.yaml": "tag: v1\n"}
PLACES = [Place("values.yaml")]
NOW = {"values.yaml": File("tag: v1\n")}


def door() -> Git:
    return Git(os.environ, protocols=frozenset({"file"}))


@pytest.mark.parametrize("branch", ["main", "", "HEAD"])
def test_it_is_read_without_another_fetch(tmp_path: Path, branch: str) -> None:
    repo, git = bare_repo(tmp_path, FILES), door()
    with BareRepository(git, str(repo)) as store:
        store.expect(branch)
        snapshot = store.snapshot(branch or store.default_branch(), PLACES)
        assert (snapshot.branch, snapshot.files) == ("main", NOW)
        fetches = git.calls.count("fetch")
        commit(repo, {"values.yaml": "tag: v2\n"})
        assert store.snapshot("main", PLACES).files == {"values.yaml": File("tag: v2\n")}
    assert (fetches, git.calls.count("fetch")) == (1, 2)


def test_another_branch_can_be_read_first(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, FILES)
    commit(repo, {"values.yaml": "tag: other\n"}, "other")
    with BareRepository(door(), str(repo)) as store:
        store.expect("main")
        assert store.snapshot("other", PLACES).files == {"values.yaml": File("tag: other\n")}
        assert store.snapshot("main", PLACES).files == NOW


def test_its_error_is_raised_when_it_is_read(tmp_path: Path) -> None:
    git = door()
    with BareRepository(git, str(bare_repo(tmp_path, FILES))) as store:
        store.expect("gone")
        with pytest.raises(SourceError, match="gone"):
            store.snapshot("gone", PLACES)
    assert git.calls.count("fetch") == 1


@pytest.mark.parametrize("branch", ["main", "gone"])
def test_closing_waits_for_what_nobody_read(tmp_path: Path, branch: str) -> None:
    (tmp_path / "tmp").mkdir()
    git = Git({**os.environ, "TMPDIR": str(tmp_path / "tmp")}, protocols=frozenset({"file"}))
    store, threads = BareRepository(git, str(bare_repo(tmp_path, FILES))), threading.active_count()
    store.expect(branch)
    store.close()
    assert (list((tmp_path / "tmp").iterdir()), threading.active_count()) == ([], threads)


def test_it_is_only_for_the_subscription_whose_login_fetched_it(tmp_path: Path, subscription: Subscription) -> None:
    repo, opened = str(bare_repo(tmp_path, FILES)), []

    def open_(url: str, _sub: Subscription | None) -> BareRepository:
        opened.append(BareRepository(door(), url))
        return opened[-1]

    with ExitStack() as end:
        ahead = Ahead(open_, end)
        ahead.expect(repo, subscription, "main")
        assert ahead.open(repo, None) is not opened[0]
        ahead.expect(repo, subscription, "main")
        assert ahead.open(repo, subscription) is opened[2]
        assert ahead.open(repo, subscription) is not opened[2]  # it was given away


def test_a_repository_that_cannot_be_opened_fails_when_it_is_opened(subscription: Subscription) -> None:
    def open_(_url: str, _sub: Subscription | None) -> BareRepository:
        raise SourceError("no such protocol")

    with ExitStack() as end:
        ahead = Ahead(open_, end)
        ahead.expect("x://y", subscription, "main")
        with pytest.raises(SourceError, match="no such protocol"):
            ahead.open("x://y", subscription)


@pytest.fixture
def subscription() -> Subscription:
    return subscribe(parse_application(application("web", "https://git.example/x"), PREFIX)).subscriptions[0]
