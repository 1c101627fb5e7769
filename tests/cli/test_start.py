"""The modules that a command imports at startup, because every pod pays for that time."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from support.runs import application, arguments, manifest, repository

from task.cli.app import COMMANDS
from task.settings import WRITERS

NETWORK = {"requests", "urllib3", "http.client", "task.connections"}
CLIENTS = {"task.wiring.world", "task.kubernetes.client", "task.registry.client", "sh", "yaml"}


def imported(*args: str | Path) -> set[str]:
    """Return the modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "task", *map(str, args)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


@pytest.mark.parametrize("option", ["--version", "--help", "-h"])
def test_version_and_help_import_no_client(option: str) -> None:
    assert imported(option) & (NETWORK | CLIENTS) == set()


@pytest.mark.parametrize("command", ["run", "plan", "status", "lint"])
def test_a_commands_help_imports_no_http_client(command: str) -> None:
    assert imported(command, "--help") & NETWORK == set()


def test_a_run_without_servers_imports_no_http_client(tmp_path: Path) -> None:
    given = manifest(tmp_path, application("web", repository(tmp_path, "web")))
    assert imported(*arguments(given)) & NETWORK == set()


UNUSED = {
    "task.after.follow",
    "task.applicationsets.fill",
    "task.argocd.api",
    "task.ci.events.forms",
    "task.commands.promotion",
    "task.commands.scan",
    "task.forges.github_commits",
    "task.kubernetes.client",
    "task.registry.client",
    "task.registry.proofs",
    "task.templates.go_template.parse",
}


def test_a_run_imports_only_the_clients_that_it_uses(tmp_path: Path) -> None:
    given = manifest(tmp_path, application("web", repository(tmp_path, "web")))
    assert imported(*arguments(given)) & UNUSED == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_main_help_matches_the_docstring_of_each_command(command: str) -> None:
    module = "update" if command in (*WRITERS, "plan") else command
    function = getattr(import_module(f"task.cli.{module}"), command)
    assert COMMANDS[command].sentence == " ".join(function.__doc__.split())
