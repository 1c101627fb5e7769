"""Untrusted text that looks like CI commands: wherever a run prints it, no runner executes it."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import Result, commit, image_update
from support.runner_rules import ATTACKS, dangers, obeyed
from support.runs import PREFIX, WEB, application, arguments, hook, manifest, repository, target

from task.annotations.keys import APPLICATION_KEYS, IMAGE_KEYS

ACTIONS = {
    "GITHUB_ACTIONS": "true",
    "IMAGE_UPDATE_GIT_TOKEN": "s3cret",
    "IMAGE_UPDATE_GIT_CREDENTIALS_URL": "https://x/",
}
OURS = (
    "::error::",
    "::warning::",
    "::debug::",
    "::notice ",
    "::error ",
    "::warning ",
    "::add-mask::",
)
FORMS = [
    ("text", "text", {}),
    ("json", "json", {}),
    ("text", "github", ACTIONS),
    ("json", "auto", ACTIONS),
    ("text", "text", {"FORCE_COLOR": "1", "COLUMNS": "40"}),
]
LINES = [
    text for text in ATTACKS if not set(text) & set("\r\n\u2028\x1b\x07")
]  # texts that YAML accepts in block scalars
SECRETS = {"s3cret", "czNjcmV0"}


def hostile(folder: Path, turn: int) -> Path:
    """Write a manifest with one Application for each annotation and field that can contain one of
    the texts, and one Application whose file contains such lines. Return the manifest's path.
    """
    repo = repository(folder, "web")
    item = f"- note: |\n    {LINES[turn]}\n  name: {WEB}\n  newTag: 1.0.0\n##[x]\n# {LINES[turn - 1]}\n"
    commit(repo, {target("web"): f"resources: []\nimages:\n{item}"})
    apps = [application("web", f"file://{repo}")]
    texts = itertools.islice(
        itertools.cycle(ATTACKS), turn * 3, None
    )  # in each turn, every field gets a different text
    for key in [*APPLICATION_KEYS, *(f"web.{key}" for key in IMAGE_KEYS), "unknown", "web.unknown"]:
        one = application(f"a{len(apps)}", f"file://{repo}")
        one["metadata"]["annotations"][PREFIX + key] = (
            _url(next(texts)) if key == "git-repository" else next(texts)
        )
        apps.append(one)
    for number, text in enumerate(ATTACKS):
        for field in ("repoURL", "path", "targetRevision"):
            one = application(f"b{number}-{field.lower()}", f"file://{repo}")
            one["spec"]["source"][field] = _url(text) if field == "repoURL" else text
            apps.append(one)
        named, running = (
            application(text, f"file://{repo}"),
            application(f"c{number}", f"file://{repo}"),
        )
        apps += [named, {**running, "status": status(text)}]
    return manifest(folder, *apps)


def _url(text: str) -> str:
    """Return the text as a URL without a host, so that no host is contacted."""
    return text if text.startswith(("::", "#")) else f"file:///{text}"


def status(text: str) -> dict[str, Any]:
    return {"summary": {"images": [text, f"{WEB}:{text}"]}, "sourceType": text}


def unheard(result: Result, env: Mapping[str, str]) -> None:
    """Check that no runner executes an untrusted line, and that no untrusted control character
    reaches a terminal.
    """
    for line in (*result.stdout.split("\n"), *result.stderr.split("\n")):
        ours = line.startswith(OURS) if "GITHUB_ACTIONS" in env else False
        if ours:
            kind, _, rest = line.removeprefix("::").partition("::")
            assert kind != "add-mask" or rest in SECRETS
            assert dangers(rest) == []
        assert ours or not obeyed(line), line
        plain = line.replace("\x1b[", "") if "FORCE_COLOR" in env else line
        assert ours or dangers(plain) == [], line


@pytest.mark.parametrize("command", ["plan", "lint"])
@pytest.mark.parametrize("turn", range(len(FORMS)))
def test_text_from_a_hostile_application_is_not_executed_as_commands(
    tmp_path: Path, command: str, turn: int
) -> None:
    output, log, env = FORMS[turn]
    apps, summary = hostile(tmp_path, turn), tmp_path / "summary"
    given: list[str | Path] = [
        "--applications",
        apps,
        "--allow-protocol",
        "file",
        "--output",
        output,
        "--log-format",
        log,
    ]
    event: list[str | Path] = ["--image", f"{WEB}:1.1.0", "--report", tmp_path / "report.json"]
    environ = {"IMAGE_UPDATE_GIT_PASSWORD": "", **env, "GITHUB_STEP_SUMMARY": str(summary)}
    given += [*(event if command == "plan" else ()), "--log-level", "debug"]
    done = image_update(command, *given, env=environ, cwd=tmp_path)
    assert done.code in (3, 4), done.stderr
    unheard(done, env)
    if command == "plan":
        report = json.loads((tmp_path / "report.json").read_text())
        assert output != "json" or report["decisions"] == done.json["decisions"]
        (planned,) = [one for one in report["commits"] if "argocd/web" in one["applications"]]
        assert "+  newTag: 1.1.0" in planned["diff"]
        assert f"     {LINES[turn]}\n" in planned["diff"]  # JSON contains the exact text
        assert dangers(summary.read_text()) == []
        page = image_update("report", tmp_path / "report.json", "--html", env=env)
        unheard(page, {})
        unheard(image_update("report", tmp_path / "report.json", env=env), env)


@pytest.mark.parametrize(("output", "log", "env"), FORMS[2:4])
def test_messages_from_a_git_server_are_not_executed_as_commands(
    tmp_path: Path, output: str, log: str, env: Mapping[str, str]
) -> None:
    repo = repository(tmp_path, "web")
    said = r"::add-mask::x\n  ::set-output name=x::y\n##[x]\ntext ##[add-mask]x\n\033]0;x\007"
    hook(repo, "pre-receive", f"printf '{said}\\n' >&2; exit 1")
    apps = manifest(tmp_path, application("web", f"file://{repo}"))
    done = image_update(*arguments(apps, "--output", output, "--log-format", log), env=env)
    assert done.code == 4
    unheard(done, env)
    assert "add-mask" in done.stderr  # the message remains readable for people


@pytest.mark.parametrize("text", ["::add-mask::x", "\u00a0::x::", "a ##[x]", "a\n::error::b"])
def test_option_values_are_not_executed_as_commands(text: str) -> None:
    for given in (
        ["run", "--image", text, "--applications", "x"],
        ["plan", f"--{text}"],
        ["wait", text],
    ):
        done = image_update(*given, env=ACTIONS)
        assert done.code == 2, done.stderr
        unheard(done, ACTIONS)
