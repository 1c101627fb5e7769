"""Landing a change: what reaches the remote branch, tested with real bare repositories."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support import Link, bare_repo, changed_paths, commit, git, show

from task.errors import (
    Exit,
    NotAtomicError,
    Outpaced,
    RepositoryError,
    TargetError,
    UnreachableError,
)
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.git.repository.remote import Pushed, StartAgain
from task.model import Changeset, File, LandedCommit, Person, Place, Snapshot

AUTHOR = Person("Image Update", "image-update@example.com")
VALUES = "apps/web/values.yaml"
START = {
    VALUES: "tag: v1\n",
    "apps/web/other.yaml": "o\n",
    "apps/db/values.yaml": "tag: v1\n",
    "README.md": "r\n",
}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return bare_repo(tmp_path, START)


def open_store(repo: Path, **environ: str) -> BareRepository:
    return BareRepository(Git({**os.environ, **environ}, protocols=frozenset({"file"})), str(repo))


def change(
    snapshot: Snapshot,
    files: Mapping[str, str] | None = None,
    head: str = "",
    message: str = "Change",
) -> Changeset:
    new = {path: File(text) for path, text in (files or {VALUES: "tag: v2\n"}).items()}
    destination = (snapshot.repo, snapshot.branch, head or snapshot.branch)
    return Changeset(*destination, snapshot.tip, new, message, AUTHOR)


def read(store: BareRepository) -> Snapshot:
    return store.snapshot("main", [Place(VALUES)])


def hook(repo: Path, name: str, script: str) -> None:
    path = repo / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def tip(repo: Path, branch: str = "main") -> str:
    return git(repo, "rev-parse", branch)


def test_a_change_lands_as_one_commit_on_the_tip(repo: Path) -> None:
    with open_store(repo) as store:
        snapshot = read(store)
        landing = store.land(change(snapshot))
    assert landing == LandedCommit(tip(repo), git(repo, "rev-parse", "main^{tree}"))
    assert git(repo, "rev-list", "main").splitlines()[1:] == [snapshot.tip]
    assert changed_paths(repo) == [VALUES]
    assert show(repo, "main", VALUES) == "tag: v2\n"
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""


def test_landing_leaves_all_other_files_unchanged(repo: Path) -> None:
    before = git(repo, "ls-tree", "-r", "main")
    with open_store(repo) as store:
        store.land(change(read(store)))
    changed = [
        line
        for line in git(repo, "ls-tree", "-r", "main").splitlines()
        if line not in before.splitlines()
    ]
    assert [line.split("\t")[1] for line in changed] == [VALUES]


def test_predict_returns_the_tree_that_land_creates_but_pushes_nothing(repo: Path) -> None:
    with open_store(repo) as store:
        wanted = change(read(store))
        before = tip(repo)
        predicted = store.predict(wanted)
        assert tip(repo) == before
        assert predicted == LandedCommit("", store.land(wanted).tree)


def test_the_configured_person_is_both_author_and_committer(repo: Path) -> None:
    with open_store(repo, GIT_AUTHOR_NAME="Host", GIT_COMMITTER_EMAIL="host@example.com") as store:
        store.land(change(read(store)))
    assert git(repo, "log", "-1", "--format=%an <%ae> %cn <%ce>") == " ".join(
        ["Image Update <image-update@example.com>"] * 2
    )


@pytest.mark.parametrize(
    ("person", "shown"),
    [
        (Person("Ä <b> Ö", "a b@c"), "Ä b Ö <a b@c>"),
        (Person("", "bot@example.com"), "bot@example.com <bot@example.com>"),
        (Person("a\ncommitter x <y> 1 +0000", "z\n@>"), "a committer x y 1 +0000 <z @>"),
    ],
)
def test_hostile_author_names_are_cleaned(repo: Path, person: Person, shown: str) -> None:
    with open_store(repo) as store:
        store.land(replace(change(read(store)), author=person))
    assert git(repo, "log", "-1", "--format=%an <%ae>") == shown


@pytest.mark.parametrize(
    "message",
    [
        "Subject\n\nBody: a\n",
        "no line end",
        "# not a comment\n\n\n  spaces  \n\n",
        "$(touch /tmp/x) `id` %s %n\n\nfrom refs/heads/main\nM 100644 inline x\ndata 1\nx\n\ndone\n",
        "Umlaut ä \U0001f680\r\n\r\nCRLF\r\n",
    ],
)
def test_commit_messages_are_kept_byte_for_byte(repo: Path, message: str) -> None:
    with open_store(repo) as store:
        store.land(change(read(store), message=message))
    raw = subprocess.run(
        ["git", "cat-file", "commit", "main"], cwd=repo, capture_output=True, check=True
    ).stdout
    assert raw.partition(b"\n\n")[2] == message.encode()
    assert changed_paths(repo) == [VALUES]


@pytest.mark.parametrize(
    "text", ["\ufeffa: 1\r\nb: 2\r\n", "", "no line end", "a: '\u2028'\n", "x" * 200_000 + "\n"]
)
def test_file_contents_are_written_byte_for_byte(repo: Path, text: str) -> None:
    with open_store(repo) as store:
        store.land(change(read(store), {VALUES: text}))
        assert read(store).files[VALUES].text == text
    assert git(repo, "cat-file", "-s", f"main:{VALUES}") == str(len(text.encode()))


@pytest.mark.parametrize(
    "path",
    [
        "new.yaml",
        "apps/new/deep/er/x.yaml",
        ".image-update/argocd_web.state",
        'a "b"\\c/ä b.yaml',
        " lead/trail ",
    ],
)
def test_new_files_are_created(repo: Path, path: str) -> None:
    with open_store(repo) as store:
        store.land(change(read(store), {path: "new: 1\n"}))
        assert store.snapshot("main", [Place(path)]).files == {path: File("new: 1\n")}
    assert (
        git(repo, "diff-tree", "--no-commit-id", "--name-only", "-z", "-r", "main").rstrip("\0")
        == path
    )


def test_the_executable_mode_is_written(repo: Path) -> None:
    with open_store(repo) as store:
        snapshot = read(store)
        files = {VALUES: File("tag: v2\n", "100755")}
        store.land(replace(change(snapshot), files=files))
        assert read(store).files[VALUES] == File("tag: v2\n", "100755")


def test_500_files_land_in_one_commit(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {f"apps/app{n}/values.yaml": f"tag: v1 # {n}\n" for n in range(500)})
    git_door = Git(os.environ, protocols=frozenset({"file"}))
    with BareRepository(git_door, str(repo)) as store:
        paths = [f"apps/app{n}/values.yaml" for n in range(500)]
        snapshot = store.snapshot("main", [Place(path) for path in paths])
        store.land(
            change(
                snapshot, {path: snapshot.files[path].text.replace("v1", "v2") for path in paths}
            )
        )
    assert git_door.calls == ["fetch", "cat-file", "fast-import", "push"]
    assert len(changed_paths(repo)) == 500
    assert git(repo, "rev-list", "--count", "main") == "2"


def test_a_change_without_a_difference_creates_no_commit(repo: Path) -> None:
    before = tip(repo)
    with open_store(repo) as store:
        landing = store.land(change(read(store), {VALUES: START[VALUES]}))
    assert landing == LandedCommit(before, git(repo, "rev-parse", "main^{tree}"), pushed=False)
    assert tip(repo) == before


def test_one_store_lands_several_changes_in_a_row(repo: Path) -> None:
    with open_store(repo) as store:
        for n in range(3):
            store.land(change(read(store), {VALUES: f"tag: v{n + 2}\n"}))
    assert git(repo, "rev-list", "--count", "main") == "4"
    assert show(repo, "main", VALUES) == "tag: v4\n"


def test_a_change_that_lost_the_race_lands_on_a_second_attempt(repo: Path) -> None:
    with open_store(repo) as store:
        snapshot = read(store)
        other = commit(repo, {"README.md": "changed\n"})
        with pytest.raises(Outpaced):
            store.land(change(snapshot))
        assert tip(repo) == other
        store.land(change(read(store)))
    assert git(repo, "rev-list", "main").splitlines()[1:] == [other, snapshot.tip]
    assert show(repo, "main", "README.md") == "changed\n"


def test_a_change_based_on_an_older_known_tip_is_a_lost_race(repo: Path) -> None:
    with open_store(repo) as store:
        old = read(store)
        commit(repo, {"apps/db/values.yaml": "tag: v9\n"})
        read(store)
        with pytest.raises(Outpaced):
            store.land(change(old))


def test_a_change_to_a_rewritten_branch_is_a_lost_race(repo: Path) -> None:
    with open_store(repo) as store:
        snapshot = read(store)
        git(repo, "update-ref", "-d", "refs/heads/main")
        commit(repo, {"else": "x"})
        with pytest.raises(Outpaced):
            store.land(change(snapshot))
    assert git(repo, "rev-list", "--count", "main") == "1"


def test_a_branch_that_moves_during_the_push_is_a_lost_race(repo: Path) -> None:
    other = commit(repo, {"README.md": "changed\n"}, "other", "Other")
    git(repo, "update-ref", "refs/heads/other", commit_on_main(repo))
    hook(
        repo,
        "update",
        f'test "$1" = refs/heads/main && rm "$0" && git update-ref "$1" {tip(repo, "other")}; exit 0',
    )
    with open_store(repo) as store:
        snapshot = read(store)
        with pytest.raises(Outpaced):
            store.land(change(snapshot))
        store.land(change(read(store)))
    assert git(repo, "rev-list", "--count", "main") == "3"
    assert other


def commit_on_main(repo: Path) -> str:
    """Return a commit on top of main's tip that is not on main."""
    git(repo, "update-ref", "refs/heads/aside", tip(repo))
    return commit(repo, {"README.md": "aside\n"}, "aside")


def test_a_concurrently_deleted_branch_is_not_recreated(repo: Path) -> None:
    with open_store(repo) as store:
        snapshot = read(store)
        git(repo, "update-ref", "-d", "refs/heads/main")
        with pytest.raises(Outpaced):
            store.land(change(snapshot))
    assert git(repo, "for-each-ref") == ""


@pytest.mark.parametrize("shallow", [True, False])
def test_a_branch_that_was_reset_concurrently_is_not_changed(repo: Path, shallow: bool) -> None:
    """A removed commit must not return below our commit. Some servers send the whole history."""
    before = tip(repo)
    commit(repo, {"README.md": "taken out again\n"})
    with open_store(repo) as store:
        if not shallow:
            store._remote._shallow, store._remote._filter = False, ""
        snapshot = read(store)
        git(repo, "update-ref", "refs/heads/main", before)
        with pytest.raises(Outpaced):
            store.land(change(snapshot))
    assert tip(repo) == before


def test_the_message_of_a_rejecting_hook_is_shown(repo: Path) -> None:
    hook(repo, "pre-receive", "echo 'rejected by policy: no tags on Fridays' >&2; exit 1")
    before = tip(repo)
    with open_store(repo) as store, pytest.raises(RepositoryError) as caught:
        store.land(change(read(store)))
    assert "remote: rejected by policy: no tags on Fridays" in caught.value.message
    assert "pre-receive hook declined" in caught.value.message
    assert caught.value.subject == f"{repo}@main"
    assert tip(repo) == before


def test_an_unsigned_commit_rejected_by_gitea_leads_to_a_signing_hint(repo: Path) -> None:
    """Gitea 1.26 wrongly reports an internal error, but a retry would never help."""
    words = "error:        \\nerror: Internal Server Error (no message for end users)        \\nerror:        "
    hook(repo, "pre-receive", f"printf '\\n{words}\\n' >&2; exit 1")
    with open_store(repo) as store, pytest.raises(RepositoryError) as caught:
        store.land(change(read(store)))
    assert caught.value.exit == Exit.ACCESS
    assert "--signing-key" in caught.value.hint


def killing(folder: Path, command: str, *, landed: bool) -> dict[str, str]:
    """Return an environment in which the kernel seems to kill a command's first git process."""
    (folder / "bin").mkdir()
    program, before = (
        folder / "bin" / "git",
        f'{shutil.which("git")} "$@" >/dev/null 2>&1;' if landed else "",
    )
    program.write_text(
        f"""#!/bin/sh
case " $* " in
*" {command} "*) if mkdir {folder}/killed 2>/dev/null; then {before} kill -9 $$; fi ;;
esac
exec {shutil.which("git")} "$@"
"""
    )
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("landed", [False, True])
def test_a_push_whose_git_process_is_killed_lands_exactly_once(
    repo: Path, tmp_path: Path, landed: bool
) -> None:
    """This happens when the step runs out of memory and the kernel kills the process."""
    with open_store(repo, **killing(tmp_path, "push", landed=landed)) as store:
        landing = store.land(change(read(store)))
    assert landing.commit == tip(repo)
    assert git(repo, "rev-list", "--count", "main") == "2"


@pytest.mark.parametrize("command", ["fetch", "fast-import", "cat-file"])
def test_a_git_process_killed_before_the_push_leaves_the_branch_unchanged(
    repo: Path, tmp_path: Path, command: str
) -> None:
    with (
        open_store(repo, **killing(tmp_path, command, landed=False)) as store,
        pytest.raises(UnreachableError),
    ):
        store.land(change(read(store)))
    assert git(repo, "rev-list", "--count", "main") == "1"


def test_hooks_on_this_machine_are_not_run(repo: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    hook(tmp_path, "pre-push", f"touch {marker}; exit 1")
    (tmp_path / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {tmp_path}/hooks\n[commit]\n\tgpgSign = true\n"
    )
    with open_store(repo, HOME=str(tmp_path), XDG_CONFIG_HOME="") as store:
        assert store.land(change(read(store))).pushed
    assert not marker.exists()


@pytest.mark.parametrize(
    "path",
    [".git/config", "a/.GIT/hooks/x", "../x", "a/../x", "a//b", "/x", "", "a/./b", "git~1/x", "a\0b",
     "apps/link/values.yaml", "apps/link", "README.md/x", "apps/web", "apps"],
)  # fmt: skip
def test_unsafe_or_blocked_paths_are_refused(tmp_path: Path, path: str) -> None:
    repo = bare_repo(tmp_path, {**START, "apps/link": Link("web")})
    before = tip(repo)
    with open_store(repo) as store, pytest.raises(TargetError) as caught:
        store.land(change(read(store), {path: "x\n"}))
    assert caught.value.message.isprintable()
    assert tip(repo) == before


def test_missing_write_permission_on_the_server_is_reported(repo: Path) -> None:
    """The message is Git's own, but printed by a hook, because root can write to any folder."""
    words = "error: insufficient permission for adding an object to repository database ./objects"
    hook = repo / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    hook.chmod(0o755)
    with open_store(repo) as store, pytest.raises(RepositoryError, match="insufficient permission"):
        store.land(change(read(store)))


def test_a_head_branch_is_created_on_the_base(repo: Path) -> None:
    with open_store(repo) as store:
        snapshot = read(store)
        landing = store.land(change(snapshot, head="bot/web"))
    assert landing.commit == tip(repo, "bot/web")
    assert git(repo, "rev-list", "bot/web").splitlines() == [landing.commit, snapshot.tip]
    assert tip(repo) == snapshot.tip


def test_a_head_branch_is_replaced_by_one_commit_on_the_base(repo: Path) -> None:
    with open_store(repo) as store:
        store.land(change(read(store), head="bot"))
        base = commit(repo, {"README.md": "changed\n"})
        landing = store.land(change(read(store), {VALUES: "tag: v3\n"}, head="bot"))
    assert git(repo, "rev-list", "bot").splitlines()[:2] == [landing.commit, base]
    assert show(repo, "bot", VALUES) == "tag: v3\n"


def test_a_head_branch_that_already_has_the_intended_tree_is_not_pushed(repo: Path) -> None:
    with open_store(repo) as store:
        first = store.land(change(read(store), head="bot"))
    with open_store(repo) as store:
        assert store.land(change(read(store), head="bot")) == replace(first, pushed=False)
    assert tip(repo, "bot") == first.commit


def test_a_head_branch_that_moved_concurrently_is_not_overwritten(repo: Path) -> None:
    with open_store(repo) as store:
        store.land(change(read(store), head="bot"))
        base = tip(repo)
        script = f'test "$1" = refs/heads/bot && rm "$0" && git update-ref "$1" {base}; exit 0'
        hook(repo, "update", script)
        with pytest.raises(Outpaced):
            store.land(change(read(store), {VALUES: "tag: v3\n"}, head="bot"))
    assert tip(repo, "bot") == base


def test_a_head_branch_created_by_another_run_is_not_overwritten(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(repo) as store:
        wanted = change(read(store), head="bot")
        git(repo, "update-ref", "refs/heads/bot", tip(repo))
        monkeypatch.setattr(
            store._remote, "fetch_head", lambda _branch: ""
        )  # its state a moment earlier
        with pytest.raises(Outpaced):
            store.land(wanted)
    assert tip(repo, "bot") == tip(repo)


def test_a_new_head_branch_is_created_even_if_its_base_moved(repo: Path) -> None:
    """No server commit is known locally, so git would send history that was never fetched."""
    with open_store(repo) as store:
        snapshot = read(store)
        moved = commit(repo, {"apps/db/values.yaml": "tag: v9\n"})
        landing = store.land(change(snapshot, head="bot"))
    assert (tip(repo, "bot"), tip(repo)) == (landing.commit, moved)
    assert tip(repo, "bot^") == snapshot.tip


def test_a_head_branch_name_that_conflicts_with_other_branches_is_rejected(repo: Path) -> None:
    git(repo, "update-ref", "refs/heads/bot/x", tip(repo))
    with open_store(repo) as store, pytest.raises(RepositoryError) as caught:
        store.land(change(read(store), head="bot"))
    assert "another head branch" in caught.value.hint


def test_a_server_that_denies_force_pushes_is_reported(repo: Path) -> None:
    with open_store(repo) as store:
        store.land(change(read(store), head="bot"))
        git(repo, "config", "receive.denyNonFastForwards", "true")
        with pytest.raises(RepositoryError) as caught:
            store.land(change(read(store), {VALUES: "tag: v3\n"}, head="bot"))
    assert "force-push" in caught.value.hint


def test_a_change_without_a_difference_creates_no_head_branch(repo: Path) -> None:
    with open_store(repo) as store:
        assert not store.land(change(read(store), {VALUES: START[VALUES]}, head="bot")).pushed
    assert git(repo, "for-each-ref", "refs/heads/bot") == ""


def test_a_change_prepared_by_another_store_lands(repo: Path) -> None:
    with open_store(repo) as store:
        wanted = change(read(store))
    with open_store(repo) as store:
        assert store.land(wanted).commit == tip(repo)


def test_a_change_prepared_by_another_store_on_an_old_tip_is_a_lost_race(repo: Path) -> None:
    with open_store(repo) as store:
        wanted = change(read(store))
    commit(repo, {"README.md": "changed\n"})
    with open_store(repo) as store, pytest.raises(Outpaced):
        store.land(wanted)


def test_symbolic_links_are_kept(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {**START, "apps/web/link.yaml": Link("values.yaml")})
    with open_store(repo) as store:
        store.land(change(read(store)))
    assert git(repo, "ls-tree", "main", "apps/web/link.yaml").startswith("120000")


def test_a_push_that_landed_before_the_connection_died_is_recognized(repo: Path) -> None:
    with open_store(repo) as store:
        wanted = change(read(store))
        hook(repo, "post-receive", "kill -9 $PPID")
        landing = store.land(wanted)
    assert landing.pushed
    assert landing.commit == tip(repo)


def test_a_push_that_did_not_land_is_retried(repo: Path) -> None:
    with open_store(repo) as store:
        wanted = change(read(store))
        hook(repo, "pre-receive", 'rm "$0"; kill -9 $PPID')
        landing = store.land(wanted)
    assert landing.commit == tip(repo)
    assert git(repo, "rev-list", "--count", "main") == "2"


def test_an_identical_commit_from_another_run_is_a_lost_race(repo: Path) -> None:
    with open_store(repo) as store, open_store(repo) as other:
        mine, others = change(read(store)), change(read(other))
        made = [one._make(wanted).commit for one, wanted in ((store, mine), (other, others))]
        assert other.land(others).pushed
        same = tip(repo) if made[0] == made[1] else made[0]
        with pytest.raises(Outpaced):
            store._push(Pushed("main", same, mine.tip, replaces=False))
    assert git(repo, "rev-list", "--count", "main") == "2"


def test_our_push_is_recognized_below_a_newer_commit_by_others(repo: Path) -> None:
    with open_store(repo) as store:
        wanted = change(read(store))
        more = (
            "read old new ref; c=$(echo more | git commit-tree -p $new $new^{tree});"
            "git update-ref $ref $c; rm $0; kill -9 $PPID"
        )
        hook(
            repo, "post-receive", f"export GIT_AUTHOR_NAME=a EMAIL=a@b GIT_COMMITTER_NAME=a; {more}"
        )
        landing = store.land(wanted)
    assert git(repo, "rev-list", "main").splitlines()[1] == landing.commit


def test_a_push_that_never_lands_causes_a_temporary_error(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.retry._PAUSES", (0.01, 0.01))
    before = tip(repo)
    with open_store(repo) as store:
        wanted = change(read(store))
        hook(repo, "pre-receive", "kill -9 $PPID")
        with pytest.raises(UnreachableError) as caught:
            store.land(wanted)
    assert tip(repo) == before
    assert caught.value.exit is Exit.TEMPORARY


@pytest.mark.parametrize("known", [True, False])
def test_a_cache_that_breaks_while_the_head_branch_is_read_is_fetched_again(
    repo: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """All fetched objects are then lost, and must be fetched again."""
    was = commit(repo, {VALUES: "tag: v9\n"}, "bot")
    with open_store(repo) as store:
        wanted = change(read(store), head="bot")
        store.head("bot")
        root = store._root

        def breaks(commit: str) -> str:
            if commit != was:
                return root(commit)
            monkeypatch.setattr(store, "_root", root)
            store._remote.close()
            raise StartAgain

        monkeypatch.setattr(store, "_root", breaks)
        landing = store.land(replace(wanted, head_commit=was) if known else wanted)
    assert tip(repo, "bot") == landing.commit
    assert tip(repo, "bot^") == tip(repo)


def test_a_head_branch_that_moved_since_it_was_read_is_not_overwritten(repo: Path) -> None:
    was = commit(repo, {VALUES: "tag: v9\n"}, "bot")
    with open_store(repo) as store:
        wanted = replace(change(read(store), head="bot"), head_commit=was)
        theirs = commit(repo, {VALUES: "tag: v10\n"}, "bot")
        with pytest.raises(Outpaced):
            store.land(wanted)
    assert tip(repo, "bot") == theirs


def remembered(text: str, was: str = "") -> Changeset:
    files = {"list": File(text)}
    who = Person("a", "a@example.com")
    return Changeset("", "main", "image-update-memory/1", "", files, "Remember", who, was)


def test_a_head_branch_and_the_memory_land_together_or_not_at_all(repo: Path) -> None:
    with open_store(repo) as store:
        wanted = change(read(store), head="bot")
        made = store.land(wanted, remembered("first\n"))
        assert (tip(repo, "bot"), tip(repo, "image-update-memory/1")) == (
            made.commit,
            made.memory_commit,
        )
        newer = replace(wanted, files={VALUES: File("tag: v11\n")}, head_commit=made.commit)
        with pytest.raises(Outpaced):
            store.land(newer, remembered("second\n", "1" * 40))
    assert (tip(repo, "bot"), tip(repo, "image-update-memory/1")) == (
        made.commit,
        made.memory_commit,
    )


def test_a_server_without_atomic_pushes_gets_neither_branch(repo: Path) -> None:
    git(repo, "config", "receive.advertiseAtomic", "false")
    with open_store(repo) as store:
        with pytest.raises(NotAtomicError):
            store.land(change(read(store), head="bot"), remembered("first\n"))
        assert not store.atomic
    assert git(repo, "for-each-ref", "--format=%(refname:short)", "refs/heads").split() == ["main"]


def test_a_hook_that_rejects_the_memory_branch_is_reported_for_that_branch(repo: Path) -> None:
    hook(repo, "update", 'case "$1" in *memory*) echo "no such names here" >&2; exit 1;; esac')
    with open_store(repo) as store, pytest.raises(RepositoryError) as caught:
        store.land(change(read(store), head="bot"), remembered("first\n"))
    assert caught.value.subject.endswith("@image-update-memory/1")
    assert "allow this user to create, force-push, and delete the branch" in caught.value.hint
