"""The command line as a whole: help, errors, and the results for CI hosts if a run cannot start."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from support import ROOT, fork_server, image_update
from support import command as program

from scripts.typer_options import all_options, commands, options_of
from task import __version__
from task.cli.app import group, main
from task.cli.exit_codes import MEANINGS, TABLE
from task.cli.mistakes import explained


@pytest.mark.parametrize("columns", ["40", "80", "200"])
@pytest.mark.parametrize("command", commands())
def test_help_names_every_option_with_its_variable(
    command: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main([command, "--help-all"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: image-update {command} ")
    whole = (
        re.sub(r"\s", "", shown) if columns == "40" else shown
    )  # at this width, our longest option names wrap onto a second line
    for option in options_of(command):
        flag = option.opts[0] if option.opts[0].startswith("--") else option.metavar
        assert re.search(rf"^  (-\w, )?{re.escape(str(flag))}(\s|$)", shown, re.MULTILINE)
        assert f"{option.envvar}" in whole
        assert f"\n{option.rich_help_panel}:\n" in shown


def test_help_all_shows_groups_defaults_and_negated_switches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--image", "a:1", "--help-all"]) == 0  # whatever precedes `--help-all`
    shown = " ".join(capsys.readouterr().out.split())
    groups = [
        "Image:",
        "Applications:",
        "Rules:",
        "Commit:",
        "Pull requests:",
        "Results and logging:",
        "Git:",
    ]
    places = [shown.index(one) for one in groups]
    assert places == sorted(places)
    assert "--atomic / --no-atomic" in shown
    assert "[env var: IMAGE_UPDATE_DEADLINE; default: 120]" in shown
    assert "[env var: IMAGE_UPDATE_REFRESH; default: on]" in shown


# Options that each --help shows, and options that only --help-all or other commands show.
SHOWN = {
    "run": (
        "sequence on-failure argocd-server selector",
        "tag signing-format stall-timeout argocd-header auto-merge",
    ),
    "plan": ("comment image selector", "dry-run wait wait-timeout on-failure"),
    "scan": ("minimum-age registry-password-file on-failure", "image require-match"),
    "hold": ("reason until by alias", "image wait selector pin-digest"),
    "lint": ("holds from-image-updater selector", "pin-digest"),
    "wait": ("revision wait-timeout argocd-server", "git-username"),
}


@pytest.mark.parametrize(
    ("command", "names", "left_out"), [(name, *both) for name, both in SHOWN.items()]
)
def test_help_shows_the_options_of_its_command(
    command: str, names: str, left_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "-h"]) == 0
    shown = capsys.readouterr().out
    found = set(re.findall(r"^  (?:-\w, )?--([a-z-]+)", shown, re.MULTILINE)) - {
        "help",
        "help-all",
    }
    assert {*names.split()} <= found
    assert not found.intersection(left_out.split())
    assert "IMAGE_UPDATE_" not in re.sub(
        r"IMAGE_UPDATE_(GIT|FORGE|REGISTRY)_(TOKEN|PASSWORD)", "", shown
    )
    assert "--no-" not in shown  # all switches in this command are off by default
    assert "repositories" not in shown.partition("--output")[2].partition("--report")[0]
    hidden = len([one for one in options_of(command) if one.opts[0].startswith("--")]) - len(found)
    assert f"\n{hidden} more options: image-update {command} --help-all\n" in shown


@pytest.mark.parametrize("command", ["hold", "release", "rollback"])
def test_the_help_for_hold_and_rollback_lists_alias_instead_of_image(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: image-update {command} [OPTIONS] APP...\n")
    assert "  --alias ALIAS " in shown
    assert "--image" not in shown
    assert "just built" not in shown


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        ("lint", "[SOURCE...]"),
        ("status", "[APP...]"),
        ("wait", "APP..."),
        ("hold", "APP..."),
        ("report", "FILE"),
    ],
)
def test_help_describes_the_positional_argument(
    command: str, argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"\n  {argument} " in shown
    assert ("Holds:" in shown) == (command in ("hold", "lint"))


def test_the_help_for_promote_does_not_mention_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["promote", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--alias ALIAS Act only on the image with this alias" in shown
    assert "Holds:" not in shown


def test_help_never_shows_the_values_of_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in all_options():
        monkeypatch.setenv(str(option.envvar), "s3cret")
    for command in commands():
        assert main([command, "--help"]) == 0
        assert main([command, "--help-all"]) == 0
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err


def test_error_messages_never_show_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SIGNING_KEY", "ARGOCD_HEADER", "GIT_TOKEN", "GIT_TOKENN"):
        monkeypatch.setenv(f"IMAGE_UPDATE_{name}", "s3cret")
    assert main(["run", "--image", "a:1", "--deadline", "x"]) == 2
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err


def test_the_main_help_lists_every_command_with_its_description(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert [text for command, text in commands().items() if f" {command} {text}" not in shown] == []
    assert "IMAGE_UPDATE_GIT_USERNAME" in shown


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ([], ["--help"]),
        (["run"], ["run", "--help"]),
        (["lint", "--help-all"], ["lint", "--help-all"]),
    ],
)
def test_the_help_command_equals_the_help_option(
    words: list[str], same: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["help", *words]) == 0
    shown = capsys.readouterr().out
    assert main(same) == 0
    assert capsys.readouterr().out == shown


def test_without_a_command_help_is_printed_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Usage: image-update ")


def test_the_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"image-update {__version__}\n"


def test_exit_codes_have_a_separate_help_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "exit-codes"]) == 0
    shown = capsys.readouterr().out
    assert shown == f"{TABLE}\n"
    reference = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([0-9, ]+) \| (.*?) \|", reference, re.MULTILINE)
    assert [code for code, _ in rows] == list(MEANINGS)
    for command in ("", *group.commands):
        main(["help", *filter(None, [command])])
        assert re.search(r"^ *Exit codes:", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("short", "long"), [("-o", "--output"), ("-n", "--namespace"), ("-l", "--selector")]
)
def test_short_options_match_kubectl(short: str, long: str) -> None:
    found = {
        name: [one.opts for one in params.params if long in one.opts]
        for name, params in group.commands.items()
    }
    assert {tuple(opts) for each in found.values() for opts in each} == {(long, short)}
    assert found["status"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--nonsense"], "unknown option --nonsense; image-update --help shows all options"),
        (["--log-level", "debug", "run"], "--log-level comes before the command; put it after the command: image-update run"),
        (["help", "rum"], "unknown command 'rum'; did you mean run? "),
        (["rum"], "unknown command 'rum'; did you mean run? the commands are run, scan, "),
        (["run", "--app", "x"], "unknown option --app; did you mean --application? "),
        (["run", "--image"], "--image requires a value; image-update run --help-all shows its values"),
        (["run", "--no-image", "x"], "unknown option --no-image"),
        (["run", "x"], "run does not accept the argument 'x'; pass an Application as --application x, and the image as --image REF"),
        (["scan", "web"], "scan does not accept the argument 'web'; pass an Application as --application web"),
        (["run", "-i", "x"], "unknown option -i; did you mean --image? image-update run --help-all shows"),
        (["run", "-image", "x"], "unknown option -image; did you mean --image?"),
        (["run", "-image=x"], "unknown option -image; did you mean --image?"),
        (["run", "-f", "apps/"], "unknown option -f; did you mean --applications?"),
        (["run", "-v"], "unknown option -v; did you mean --log-level debug?"),
        (["run", "-a", "web"], "unknown option -a; did you mean --application?"),
        (["-V"], "unknown option -V; did you mean --version?"),
        (["run", "-z"], "unknown option -z; image-update run --help-all shows all options"),
        (["run", "--no-atomic=true"], "--no-atomic does not take a value; use --no-atomic without a value"),
        (["hold", "web", "--reason", " "], "--reason is empty; give a reason for the hold"),
        (["hold", ",", "--reason", "x"], "APP... is empty; list at least one Application"),
        (["wait", " ", "--revision", "abcdef1"], "APP... is empty; list at least one Application"),
        (["wait", "web"], "--revision is missing; set the commit that Argo CD must sync"),
        (["report"], "FILE is missing; pass a run's JSON report, or - for stdin"),
        (["wait", "web", "--html", "x"], "wait has no --html; it is an option of status and report; image-update wait --help-all"),
        (["status", "--dry-run"], "status has no --dry-run: it never writes to Git; remove it"),
        (["status", "--html", "--output", "json"], "--html and --output=json cannot be combined; remove one of them"),
        (["promote", "web"], "promote does not accept the argument 'web'; select Applications with --from and --to"),
        (["lint"], "cannot tell where to read Applications from; pass a folder or file, as in image-update lint"),
        (["scan", "--registry-check", "never"], (
            "--registry-check: scan cannot work without the registries"
        )),
    ],
)  # fmt: skip
def test_usage_errors_exit_with_code_2_and_suggest_a_fix(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert message in shown.err.replace("\n  fix: ", "; ")
    assert [line.partition(": ")[0] for line in shown.err.splitlines()] == ["error", "  fix"]


def test_an_invalid_boolean_variable_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IMAGE_UPDATE_ATOMIC", "maybe")
    assert main(["run"]) == 2
    assert "IMAGE_UPDATE_ATOMIC: 'maybe' is not true or false" in capsys.readouterr().err


def test_the_error_for_an_invalid_boolean_option_uses_our_wording() -> None:
    atomic = next(one for one in options_of("run") if one.name == "atomic")
    error = typer.BadParameter(
        "Input should be a valid boolean, unable to interpret input", param=atomic
    )  # as worded by Typer 0.29
    said = explained(error, "run", {}, {"IMAGE_UPDATE_ATOMIC": "maybe"})
    assert (said.message, said.hint) == (
        "--atomic: 'maybe' is not true or false",
        "use true or false",
    )


@pytest.mark.parametrize("command", ["run", "plan", "scan", "hold", "release", "rollback"])
@pytest.mark.parametrize("mistake", [["--nonsense"], ["--deadline", "x"], ["--source"]])
def test_results_are_written_for_the_ci_host_even_after_a_usage_error(
    command: str, mistake: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [
        "--results-dir",
        f"{tmp_path}/results",
        f"--report={tmp_path}/report.json",
        "--dotenv",
        f"{tmp_path}/env",
    ]
    for argv in ([command, *places, *mistake], [command, *mistake[:1], *mistake[1:], *places]):
        if mistake != ["--source"] or argv[-1] == "--source":
            assert main(argv) == 2
    assert (tmp_path / "results" / "status").read_text() == "failed"
    assert "IMAGE_UPDATE_RESULT_STATUS" in (tmp_path / "env").read_text()
    (error,) = json.loads((tmp_path / "report.json").read_text())["errors"]
    assert (error["rule"], error["severity"]) == ("usage", "error")
    assert error["message"] in capsys.readouterr().err


def test_a_usage_error_is_logged_in_the_requested_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--nonsense", "--log-format", "json", "--output=json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.err)["level"] == "error"
    assert json.loads(shown.out)["status"] == "failed"


def test_a_misspelled_variable_is_reported_before_the_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IMAGE_UPDATE_REASN", "x")
    assert main(["hold", "web"]) == 2
    *first, second, _ = capsys.readouterr().err.splitlines()
    assert first == [
        "warning: unknown variable IMAGE_UPDATE_REASN",
        "  fix: did you mean IMAGE_UPDATE_REASON?",
    ]
    assert second == "error: --reason is missing"


def test_no_state_is_kept_between_calls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IMAGE_UPDATE_DEADLINE", "x")
    assert main(["run"]) == 2
    assert "IMAGE_UPDATE_DEADLINE" in capsys.readouterr().err
    monkeypatch.setenv("IMAGE_UPDATE_DEADLINE", "1")
    assert main(["run"]) == 2
    assert "IMAGE_UPDATE_DEADLINE" not in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError("x"), OSError(5, "x"), BrokenPipeError(32, "x")])
def test_a_defect_exits_with_code_1_a_traceback_and_results(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object) -> int:
        raise error

    monkeypatch.setattr("task.cli.update.update", broken)
    stdout = sys.stdout
    assert main(["run", "--dotenv", f"{tmp_path}/env"]) == 1
    sys.stdout = stdout
    shown = capsys.readouterr().err
    assert shown.startswith("error: a defect in image-update: ")
    assert "Traceback" in shown
    assert "IMAGE_UPDATE_RESULT_STATUS=failed" in (tmp_path / "env").read_text()


def test_too_many_open_files_cause_a_temporary_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spent(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr("task.cli.update.update", spent)
    assert main(["run"]) == 75
    assert "too many open files" in capsys.readouterr().err


@pytest.mark.measured
@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["run", "--help-all"],
        ["--version"],
        ["--show-completion", "bash"],
    ],
)
def test_a_full_disk_causes_an_error_without_a_traceback(words: list[str]) -> None:
    environ = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    with open("/dev/full", "w") as full:
        files = (subprocess.PIPE, full.fileno(), subprocess.PIPE)
        running = fork_server.start([program(), *words], env=environ, files=files)
        _, said = running.communicate(timeout=60)
    assert (running.wait(), b"Traceback" in said) == (2, False)
    assert said.startswith(b"error: cannot write to stdout: No space left on device")


@pytest.mark.parametrize(
    ("name", "value"), [("TERM", "dumb"), ("COLUMNS", "1"), ("COLUMNS", "x"), ("FORCE_COLOR", "1")]
)
def test_help_works_in_every_terminal(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["run", "--help-all"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "--git-username" in shown.out
    assert "\x1b" not in shown.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_suggests_values(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "image-update run --strategy new"
    for name, value in {
        "_IMAGE_UPDATE_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": "3",
    }.items():
        monkeypatch.setenv(name, value)
    assert main([]) == 0
    assert "newest-build" in capsys.readouterr().out


@pytest.mark.measured
@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_help_works_without_utf_8(encoding: str) -> None:
    done = image_update("run", "--help", env={"PYTHONIOENCODING": encoding})
    assert (done.code, done.stderr) == (0, "")


def test_the_demo_prints_the_location_of_its_repository(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--keep"]) == 0
    shown = capfd.readouterr().out
    kept = re.search(r"^Kept: (\S+) \(repository gitops\.git", shown, re.MULTILINE)
    assert kept
    assert (Path(kept[1]) / "gitops.git").is_dir()
    shutil.rmtree(kept[1])
