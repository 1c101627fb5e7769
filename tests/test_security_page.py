"""docs/security.md: each promise names the tests that verify it, and those tests exist. Promises
that no other test verifies are verified here.
"""

import ast
import dataclasses
import pickle
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from support import ROOT, image_update
from support.runs import WEB, application, manifest

from scripts.typer_options import all_options, name_of
from task.secret import Secret

PAGE = (ROOT / "docs" / "security.md").read_text()
FREE = {"What it does not protect against"}  # the title of a section without promises
NOTE = re.compile(r"^\[\^([\w-]+)\]: (.*)$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def promises() -> list[str]:
    """Return every table row, list item, and paragraph that makes a promise. Table headings,
    introductions, links, and quotes do not count.
    """
    found: list[str] = []
    heading = ""
    for block in re.split(r"\n{2,}", NOTE.sub("", PAGE)):
        if block.startswith("#"):
            heading = block.lstrip("# ")
        elif heading and heading not in FREE and block.strip():
            if block.startswith("|"):
                found += [
                    row for row in block.splitlines()[2:] if not row.rstrip(" |").endswith("–")
                ]
            elif block.startswith("- "):
                found += re.split(r"\n(?=- )", block)
            elif not block.endswith(":") and not block.startswith(("[", ">")):
                found.append(block)
    return found


@pytest.mark.parametrize(
    "text", promises(), ids=lambda text: " ".join(re.findall(r"\w+", text)[:6])
)
def test_each_promise_names_its_tests_in_a_footnote(text: str) -> None:
    assert re.search(r"\[\^[\w-]+\]", text), f"name the test that holds it in a footnote: {text}"


def test_every_footnote_belongs_to_a_promise() -> None:
    notes = [name for name, _ in NOTE.findall(PAGE)]
    assert len(set(notes)) == len(notes)
    assert set(notes) == set(re.findall(r"\[\^([\w-]+)\](?!:)", PAGE))


@pytest.mark.parametrize(("name", "text"), NOTE.findall(PAGE))
def test_every_test_named_in_a_footnote_exists(name: str, text: str) -> None:
    named = TEST.findall(text)
    assert named, name
    missing = [test for path, test in named if f"def {test}(" not in _text(ROOT / path)]
    assert missing == []
    assert TEST.sub("", text).replace(",", "").strip() == ""


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


# Options that take names, locations, and public keys, none of which are secret.
OPEN = {"signing-key", "ssh-host-key", "git-credentials-url", "registry-credentials-for"}


def test_no_option_accepts_a_secret_value() -> None:
    """A secret in an argument would be visible in the process list, and in the log of whatever
    started the step.
    """
    words = ("password", "token", "secret", "key", "credential")
    about = {name for name in map(name_of, all_options()) if any(word in name for word in words)}
    assert {name for name in about if not name.endswith(("-file", "-directory"))} <= OPEN
    assert about > OPEN


class Holder(NamedTuple):
    name: str
    password: Secret


@dataclasses.dataclass
class Other:
    password: Secret


def test_a_secret_is_printed_as_asterisks() -> None:
    secret = Secret("s3cret")
    shown = [
        str(secret),
        repr(secret),
        f"{secret} {secret!r} {secret!s}",
        "%s" % secret,  # noqa: UP031 - one way of many
        f"{[secret]} {{1: secret}}",
    ]
    shown += [repr(Holder("bob", secret)), str(Other(secret)), repr({"password": secret})]
    with pytest.raises(ValueError, match=r"\*\*\*") as caught:
        raise ValueError(secret)
    assert "s3cret" not in "".join(shown) + str(caught.value)
    assert "***" in shown[0]
    assert pickle.loads(pickle.dumps(Secret("x"))).reveal() == "x"  # noqa: S301 - our own


LOGIN = "https://bob:s3cr3t@git.invalid/x"
CALLS = [
    ("lint",),
    ("lint", "--output", "json"),
    ("lint", "--log-format", "github"),
    ("run", "--image", f"{WEB}:1.1.0", "--log-level", "debug"),
    ("run", "--image", f"{WEB}:1.1.0", "--log-level", "debug", "--output", "json"),
    ("plan", "--image", f"{WEB}:1.1.0", "--log-format", "github"),
    ("hold", "*", "--reason", "x", "--log-format", "json"),
]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("broken", [True, False])
def test_logins_in_urls_are_never_shown(
    tmp_path: Path, call: tuple[str, ...], broken: bool
) -> None:
    """Messages quote annotations, and the owner of an Application may have put a password into any
    of them.
    """
    annotations = {"git_repository": LOGIN, "write_back_source": LOGIN}
    if broken:
        annotations |= {
            "git_repositry": LOGIN,
            "image_list": f"web={WEB}, y={LOGIN}:1",
            "write_back_method": f"git:{LOGIN}",
            "git_branch": f"a:b:{LOGIN}",
            "write_back_target": f"helm:{LOGIN}",
            "web.pull_secret": LOGIN,
            "web.allow_tags": LOGIN,
            "web.ignore_tags": LOGIN,
            "web.platforms": LOGIN,
            "update_strategy": LOGIN,
            "force_update": LOGIN,
            "web.helm.image_name": LOGIN,
        }
    apps = manifest(tmp_path, application("a", LOGIN, **annotations))
    places = {name: str(tmp_path / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    more = (
        ()
        if "lint" in call
        else ("--results-dir", tmp_path, "--report", tmp_path / "report", "--deadline", "1")
    )
    result = image_update(*call, "--applications", apps, *more, env=places)
    apps.unlink()
    written = [path.read_text() for path in tmp_path.iterdir() if path.is_file()]
    assert "git.invalid" in f"{result.stdout}{result.stderr}{written}"
    assert "s3cr3t" not in f"{result.stdout}{result.stderr}{written}"


SHELLS = {"bash", "/bin/sh", "/bin/bash", "dash", "zsh"}


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "task").rglob("*.py")),
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_no_module_starts_a_shell(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("system", "popen", "getoutput", "getstatusoutput"), node.lineno
        if isinstance(node, ast.Call):
            assert not [one for one in node.keywords if one.arg == "shell"], node.lineno
        if isinstance(node, ast.Constant):
            assert node.value not in SHELLS, node.lineno


@pytest.mark.parametrize(
    "name", ["requirements.lock", "requirements-build.lock", "requirements-dev.lock"]
)
def test_dependencies_are_locked_with_hashes(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    wanted = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    assert wanted
    for line in wanted:
        assert re.match(r"[\w.-]+(\[[\w,]+\])?==[^ ]+ .*--hash=sha256:[0-9a-f]{64}", line), line[
            :80
        ]
    installs = re.findall(r"pip[^\n&]* install[^\n&]*", (ROOT / "Dockerfile").read_text())
    assert installs
    assert [
        line for line in installs if "--require-hashes" not in line and "--no-deps" not in line
    ] == []
