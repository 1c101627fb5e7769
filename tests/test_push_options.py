"""`--push-option`: the server's hook receives the options, but only when changes are pushed."""

from pathlib import Path

import pytest
from support import bare_repo, commit, git, image_update
from support.runs import KUSTOMIZATION, WEB, application, manifest, target


def scene(folder: Path, *, takes: bool = True) -> tuple[Path, Path]:
    """Return a repository whose hook records push options, and the repository's Applications."""
    repo = bare_repo(folder, {target("a"): KUSTOMIZATION})
    git(repo, "config", "receive.advertisePushOptions", str(takes).lower())
    hook = repo / "hooks" / "pre-receive"
    hook.write_text(
        "#!/bin/sh\necho push >>options\nenv | sed -n 's/^GIT_PUSH_OPTION_[0-9]*=//p' | sort >>options\n"
    )
    hook.chmod(0o755)
    return repo, manifest(folder, application("a", repo))


def run_or_hold(
    apps: Path, *more: str, image: str = f"{WEB}:1.1.0", verb: str = "run"
) -> tuple[int, str]:
    given = ["--image", image] if verb == "run" else ["a", "--reason", "quiet"]
    result = image_update(
        verb, *given, "--applications", str(apps), "--allow-protocol", "file", *more
    )
    return result.code, result.stderr


def told(repo: Path) -> list[str]:
    return (repo / "options").read_text().splitlines()


def test_push_options_are_sent_with_changes_but_not_with_the_memory_branch(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path)
    options = ("--push-option", "ci.skip", "--push-option", "topic=image updates")
    assert run_or_hold(apps, *options)[0] == 0
    assert told(repo) == ["push", "ci.skip", "topic=image updates"]
    assert run_or_hold(apps, *options, verb="hold")[0] == 0
    assert told(repo)[3:] == ["push"]


def test_push_options_on_the_command_line_win_over_the_config(tmp_path: Path) -> None:
    repo, apps = scene(tmp_path)
    commit(repo, {".image-update/config": "version: 1\npushOptions: [ci.skip]\n"})
    assert run_or_hold(apps)[0] == 0
    assert run_or_hold(apps, "--push-option", "mine", image=f"{WEB}:1.2.0")[0] == 0
    assert told(repo) == ["push", "ci.skip", "push", "mine"]


def test_a_server_without_push_options_still_receives_the_push_with_one_warning(
    tmp_path: Path,
) -> None:
    repo, apps = scene(tmp_path, takes=False)
    code, log = run_or_hold(apps, "--push-option", "ci.skip")
    assert code == 0
    assert told(repo) == ["push"]
    assert log.count("does not support push options") == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--push-option", "a\nb"), "control character"),
        (
            ("--push-option", "ci.skip", "--commit-through", "github"),
            "--push-option and --commit-through github",
        ),
    ],
)
def test_invalid_push_options_are_usage_errors(
    tmp_path: Path, more: tuple[str, ...], words: str
) -> None:
    _, apps = scene(tmp_path)
    code, log = run_or_hold(apps, *more)
    assert code == 2
    assert words in log
