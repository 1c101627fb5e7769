"""The only code that runs git: what its processes can access, and how they end."""

import os
import signal
import threading
from pathlib import Path

import pytest
from support import bare_repo, git

from task.errors import SourceError, UnreachableError, UsageError
from task.git.command import Git
from task.git.environment import clean_environment
from task.git.errors import GitEnded, GitFailed
from task.processes import Clock

FILE = frozenset({"file"})
HOSTS = {
    "GIT_DIR": "/elsewhere",
    "GIT_WORK_TREE": "/elsewhere",
    "GIT_INDEX_FILE": "/elsewhere",
    "GIT_AUTHOR_NAME": "Somebody",
    "GIT_TRACE": "1",
    "GIT_CONFIG_PARAMETERS": "'core.bare=false'",
    "GIT_ALLOW_PROTOCOL": "ext",
    "GIT_SSL_CAINFO": "",
    "SSH_ASKPASS": "/bin/true",
    "LANGUAGE": "de",
    "LC_ALL": "de_DE.UTF-8",
}


def door(**environ: str) -> Git:
    return Git({**os.environ, **environ}, protocols=FILE)


@pytest.mark.parametrize("name", sorted(HOSTS))
def test_unsafe_host_variables_do_not_reach_git(name: str) -> None:
    clean = clean_environment(HOSTS, frozenset({"https"}))
    assert clean.get(name) in {None, "C", "https"}


@pytest.mark.parametrize(
    "name", ["GIT_SSL_CAINFO", "GIT_SSH_COMMAND", "GIT_ASKPASS", "HOME", "https_proxy", "PATH"]
)
def test_host_connection_variables_are_passed_to_git(name: str) -> None:
    assert clean_environment({name: "value"}, frozenset())[name] == "value"


def test_only_credential_and_transport_settings_are_kept_from_variables() -> None:
    given = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": "A: b",
        "GIT_CONFIG_KEY_1": "core.hooksPath",
        "GIT_CONFIG_VALUE_1": "/evil",
        "GIT_CONFIG_KEY_2": "url.https://inner/.insteadOf",
        "GIT_CONFIG_VALUE_2": "https://outer/",
    }
    files = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"}
    clean = clean_environment(given, frozenset())
    assert {name for name in clean if name.startswith("GIT_CONFIG_")} == files
    kept = {
        name: value
        for name, value in Git(given).login("https://x/y").items()
        if name.startswith("GIT_CONFIG_")
    }
    assert kept == {
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": "A: b",
        "GIT_CONFIG_KEY_1": "url.https://inner/.insteadOf",
        "GIT_CONFIG_VALUE_1": "https://outer/",
        "GIT_CONFIG_KEY_2": "http.followRedirects",
        "GIT_CONFIG_VALUE_2": "false",
    }


def test_large_input_and_output_pass_through_git_unchanged(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a": "x"})
    body = os.urandom(3_000_000)
    oid = (
        door()
        .run("hash-object", "-w", "--stdin", git_dir=str(repo), stdin=body)
        .out.decode()
        .strip()
    )
    assert door().run("cat-file", "blob", oid, git_dir=str(repo)).out == body


def test_a_failure_reports_the_command_exit_code_and_message() -> None:
    with pytest.raises(GitFailed) as caught:
        door().run("cat-file", "blob", "HEAD", git_dir="/nonexistent")
    assert caught.value.command == "cat-file"
    assert caught.value.code == 128
    assert "not a git repository" in caught.value.err


def test_arguments_are_not_shell_words(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(GitFailed):
        door().run("rev-parse", "--verify", f"$(touch {marker}); *")
    assert not marker.exists()


def test_a_command_that_takes_too_long_is_killed() -> None:
    with pytest.raises(GitEnded) as caught:
        door().run("-c", "alias.nap=!sleep 600", "nap", timeout=0.3)
    assert "timed out" in caught.value.err


def test_an_interrupted_wait_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, stop)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        door().run("-c", "alias.nap=!echo $$ > pid; sleep 600; touch late", "nap")
    signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_git_cannot_prompt_on_a_terminal() -> None:
    with pytest.raises(GitFailed) as caught:
        door().run("-c", "alias.ask=!test -t 0 || test -e /dev/tty && : < /dev/tty", "ask")
    assert caught.value.code


def test_calls_are_counted_per_git_command() -> None:
    git_door = door()
    git_door.run("-c", "a.b=c", "version")
    git_door.run("--git-dir", "/x", "version")
    assert git_door.calls == ["version", "version"]


def test_several_threads_can_share_one_git_object() -> None:
    git_door, found = door(), list[bytes]()
    threads = [
        threading.Thread(target=lambda: found.append(git_door.run("version").out)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_missing_git_program_causes_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="git is not installed"):
        door(PATH=str(tmp_path)).run("version")


def test_a_process_killed_before_it_becomes_git_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "setsid", lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(UnreachableError, match="git version was killed by signal 9"):
        door().run("version")


def test_a_killed_git_command_is_reported_with_its_signal() -> None:
    with pytest.raises(UnreachableError, match="git die was killed by signal 15") as caught:
        door().run(
            "-c", "alias.die=!kill -15 $PPID; sleep 5", "die", clock=Clock(60, "https://host/x")
        )
    assert (caught.value.subject, "memory" in caught.value.hint) == ("https://host/x", True)


def test_debug_logs_show_no_git_arguments(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    door().run("-c", "http.extraHeader=secret", "version")
    assert "secret" not in caplog.text


@pytest.mark.parametrize("repo", ["file:///srv/x", "/srv/x", "srv/x"])
def test_local_repositories_must_be_allowed(repo: str) -> None:
    with pytest.raises(SourceError) as caught:
        Git(os.environ).url(repo)
    assert "--allow-protocol file" in caught.value.hint


@pytest.mark.parametrize("repo", ["git://host/x", "s3://bucket/x", "ext::sh -c x"])
def test_other_transports_are_rejected(repo: str) -> None:
    with pytest.raises(SourceError):
        door().url(repo)


@pytest.mark.parametrize("repo", ["https://host/x", "ssh://git@host/x", "git@host:x"])
def test_common_urls_are_used_unchanged(repo: str) -> None:
    assert Git(os.environ).url(repo) == repo


def test_plain_http_causes_one_warning() -> None:
    said: list[str] = []
    git_door = Git(os.environ, log=said.append)
    assert [git_door.url("http://u:p@host/x") for _ in range(2)] == ["http://host/x"] * 2
    assert len(said) == 1
    assert "u:p" not in said[0]


def test_the_rewritten_url_is_checked_instead_of_the_original() -> None:
    assert (
        Git(os.environ, protocols=FILE, rewrites=[("https://host/", "/srv/")]).url("https://host/x")
        == "/srv/x"
    )


def test_credentials_in_the_url_are_sent_only_to_its_server(tmp_path: Path) -> None:
    git_door = Git({**os.environ, "HOME": str(tmp_path)})
    extra = git_door.login("https://bot:s%20x@host:8443/x")
    said = git_door.run(
        "credential", "fill", stdin="protocol=https\nhost=host:8443\n\n", env=extra
    ).out
    assert said.endswith(b"username=bot\npassword=s x\n")
    with pytest.raises(GitFailed, match="credential"):
        git_door.run("credential", "fill", stdin="protocol=https\nhost=other\n\n", env=extra)


def test_a_user_name_in_the_url_is_combined_with_the_helpers_password(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text(
        '[credential]\n\thelper = "!printf \\"password=from-helper\\\\n\\" #"\n'
    )
    git_door = Git({**os.environ, "HOME": str(tmp_path)})
    said = git_door.run(
        "credential",
        "fill",
        stdin="protocol=https\nhost=h\n\n",
        env=git_door.login("https://bot@h/x"),
    ).out
    assert b"username=bot\n" in said
    assert b"password=from-helper\n" in said


def ssh_command(git_door: Git) -> str:
    found = git_door.ssh_environment("git@host:x")["GIT_SSH_COMMAND"]
    git_door.close()
    return found


def test_ssh_runs_in_batch_mode() -> None:
    assert "BatchMode=yes" in ssh_command(Git(os.environ))


def test_the_users_own_ssh_command_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[core]\n\tsshCommand = ssh -F mine\n")
    assert Git({**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}).ssh_environment(
        "git@host:x"
    ) == {"GIT_SSH_COMMAND": "ssh -F mine"}
    assert Git({**os.environ, "GIT_SSH_COMMAND": "ssh -F env"}).ssh_environment("git@host:x") == {}
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    git(workspace, "init", "--quiet")
    git(workspace, "config", "core.sshCommand", "ssh -i key-of-another-repository")
    monkeypatch.chdir(workspace)
    assert "BatchMode" in ssh_command(Git(os.environ))
