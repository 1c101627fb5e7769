"""The same repository store over SSH, as called by git. A script replaces the `ssh` program."""

import os
from pathlib import Path

import pytest
from support import bare_repo, commit, git

from task.errors import CredentialsError, Outpaced, RepositoryError, TaskError, UnreachableError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Changeset, File, LandedCommit, Person, Place


def door(folder: Path, script: str) -> Git:
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    environ = {**os.environ, "GIT_SSH_COMMAND": str(program), "GIT_SSH_VARIANT": "ssh"}
    return Git(environ)


@pytest.mark.parametrize("url", ["git@example.com:{}", "ssh://git@example.com:2222{}"])
def test_a_change_is_read_and_pushed_over_ssh(tmp_path: Path, url: str) -> None:
    repo = bare_repo(tmp_path, {"apps/web/values.yaml": "tag: v1\n"})
    git_door = door(tmp_path, 'for last; do :; done; exec sh -c "$last"')
    with BareRepository(git_door, url.format(repo)) as store:
        snapshot = store.snapshot("main", [Place("apps/web/values.yaml")])
        files = {"apps/web/values.yaml": File("tag: v2\n")}
        destination = (snapshot.repo, "main", "main")
        landing = store.land(
            Changeset(*destination, snapshot.tip, files, "x", Person("T", "t@example.com"))
        )
    assert landing.commit == git(repo, "rev-parse", "main")
    assert git_door.calls == ["fetch", "cat-file", "fast-import", "push"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("git@example.com: Permission denied (publickey).", CredentialsError),
        ("Host key verification failed.", CredentialsError),
        ("ERROR: Repository not found.", RepositoryError),
        ("ssh: connect to host example.com port 22: Connection refused", UnreachableError),
    ],
)
def test_ssh_failures_are_mapped_to_error_types(
    tmp_path: Path, words: str, error: type[TaskError]
) -> None:
    git_door = door(tmp_path, f"echo '{words}' >&2; exit 255")
    with BareRepository(git_door, "git@example.com:x.git") as store, pytest.raises(error) as caught:
        store.snapshot("main", [])
    assert words in caught.value.message
    assert caught.value.subject == "git@example.com:x.git@main"


def test_a_head_branch_is_not_created_if_the_server_goes_down(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "1\n"})
    dead = f"test -e {tmp_path}/down && {{ echo 'Connection refused' >&2; exit 255; }}"
    script = dead + '\nfor last; do :; done; exec sh -c "$last"'
    with BareRepository(door(tmp_path, script), f"git@example.com:{repo}") as store:
        snapshot = store.snapshot("main", [Place("a")])
        (tmp_path / "down").touch()
        destination = (snapshot.repo, "main", "bot")
        wanted = Changeset(
            *destination, snapshot.tip, {"a": File("2\n")}, "x", Person("T", "t@example.com")
        )
        with pytest.raises(UnreachableError):
            store.land(wanted)
    assert git(repo, "for-each-ref", "refs/heads/bot") == ""


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("protocol", [2, 0])
def test_a_new_head_branch_lands_even_if_its_base_moved(tmp_path: Path, protocol: int) -> None:
    """The old protocol hides common commits, so the change is decided again for the new tip."""
    repo = bare_repo(tmp_path, {"apps/web/a": "1\n", "apps/db/b": "other\n"})
    for allowed in ("allowFilter", "allowAnySHA1InWant"):
        git(repo, "config", f"uploadpack.{allowed}", "true")
    old = "" if protocol else "unset GIT_PROTOCOL; "
    git_door = door(tmp_path, f'{old}for last; do :; done; exec sh -c "$last"')
    with BareRepository(git_door, f"git@example.com:{repo}") as store:

        def land() -> LandedCommit:
            snapshot = store.snapshot("main", [Place("apps/web/a")])
            if "moved" not in git(repo, "log", "--format=%s", "main"):
                commit(repo, {"apps/db/b": "2\n"}, message="moved")
            destination = (snapshot.repo, "main", "bot")
            wanted = Changeset(
                *destination,
                snapshot.tip,
                {"apps/web/a": File("2\n")},
                "x",
                Person("T", "t@example.com"),
            )
            return store.land(wanted)

        if not protocol:
            with pytest.raises(Outpaced):
                land()
        assert land().commit == git(repo, "rev-parse", "bot")
