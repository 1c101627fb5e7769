"""Everything that the command supports is documented, and everything that is documented exists."""

import ast
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from support import ROOT
from support.host_schemas import fields

from scripts.options import table
from scripts.typer_options import all_options, commands
from task.annotations.keys import APPLICATION_KEYS, DEPRECATED, IMAGE_KEYS
from task.ci.publish import NAMES
from task.cli.app import GROUPS
from task.errors import Exit
from task.git.errors import FAILURES, Meaning
from task.model import Strategy
from task.schemas import load

REFERENCE = (ROOT / "docs" / "reference.md").read_text()
ANNOTATIONS = (ROOT / "docs" / "annotations.md").read_text()
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in sorted((ROOT / "docs").rglob("*.md"))
}


def test_the_table_of_options_matches_the_code() -> None:
    assert table() in REFERENCE, "python -m scripts.options writes it"


def test_every_documented_option_exists() -> None:
    named = set(re.findall(r"`--(?:no-)?([a-z-]+)", REFERENCE + ANNOTATIONS)) - {
        "version",
        "keep",
        "wait",
        "help",
        "help-all",
        "name",  # matches an option as written in the docs
    }
    assert named <= {flag.removeprefix("--") for one in all_options() for flag in one.opts}


@pytest.mark.parametrize("key", [*APPLICATION_KEYS, *IMAGE_KEYS])
def test_every_annotation_is_documented(key: str) -> None:
    assert re.search(rf"^\|.*`{re.escape(key)}`", ANNOTATIONS, re.MULTILINE)


@pytest.mark.parametrize("name", [*get_args(Strategy), *DEPRECATED])
def test_every_strategy_is_documented(name: str) -> None:
    assert f"`{name}`" in ANNOTATIONS


@pytest.mark.parametrize("name", NAMES)
def test_every_result_is_documented(name: str) -> None:
    assert re.search(rf"^\|.*`{name}`", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("code", Exit, ids=lambda code: code.name)
def test_every_exit_code_is_documented(code: Exit) -> None:
    assert re.search(rf"^\|[^|]*\b{int(code)}\b[^|]*\|", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("command", commands())
def test_every_command_is_documented(command: str) -> None:
    assert f"`image-update {command}" in REFERENCE


def test_every_rule_is_documented() -> None:
    rules = load("report.v1")["properties"]["decisions"]["items"]["properties"]["rule"]["enum"]
    assert [rule for rule in rules if f"`{rule}`" not in REFERENCE] == []


def _fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, one in schema.get("properties", {}).items():
        yield f"{path}{name}"
        yield from _fields(one, f"{path}{name}.")
        yield from _fields(one.get("items", {}), f"{path}{name}[].")


@pytest.mark.parametrize("field", [one for one in _fields(load("report.v1")) if "." in one])
def test_every_field_of_the_report_is_documented(field: str) -> None:
    parent, _, name = field.rpartition(".")
    rows = [
        line
        for line in PAGES["docs/report.md"].splitlines()
        if line.startswith("|") and f"`{parent}" in line
    ]
    assert any(re.search(rf"`(?:{re.escape(parent)})?\.?{re.escape(name)}`", row) for row in rows)


@pytest.mark.parametrize("field", load("lint.v1")["properties"]["findings"]["items"]["properties"])
def test_every_field_of_a_finding_is_documented(field: str) -> None:
    assert f"`{field}`" in PAGES["docs/report.md"].partition("## Findings of lint")[2]


@pytest.mark.parametrize("field", list(_fields(load("status.v1"))))
def test_every_field_of_the_status_is_documented(field: str) -> None:
    table = PAGES["docs/status.md"].partition("## Every field of the JSON")[2]
    parent, _, name = field.rpartition(".")
    rows = [
        line
        for line in table.splitlines()
        if line.startswith(f"| `{parent.removesuffix('[]')}" if name else field)
    ]
    assert any(re.search(rf"`(?:{re.escape(field)}(?:\[\].*)?|{name})`", row) for row in rows)


STATE = load("state.v1")["definitions"]


@pytest.mark.parametrize(
    "key", sorted({key for one in STATE.values() for key in one["properties"]})
)
def test_every_key_of_the_state_file_is_documented(key: str) -> None:
    assert re.search(rf"[`.]{key}`", PAGES["docs/ordering.md"].partition("state file")[2])


@pytest.mark.parametrize(
    "rule", load("report.v1")["properties"]["decisions"]["items"]["properties"]["rule"]["enum"]
)
def test_every_rule_that_refuses_an_image_is_explained(rule: str) -> None:
    if rule in {"admitted", "same"}:
        return
    pages = PAGES["docs/troubleshooting.md"] + REFERENCE
    assert f"`{rule}`" in pages


@pytest.mark.parametrize("key", [*APPLICATION_KEYS, *IMAGE_KEYS])
def test_every_annotation_is_in_the_guide_for_image_updater_users(key: str) -> None:
    assert f"`{key}`" in PAGES["docs/from-image-updater.md"]


def test_every_field_of_the_image_updater_resource_is_in_the_guide() -> None:
    known = fields("argocd-image-updater-imageupdater-v1alpha1", "spec")
    guide = PAGES["docs/from-image-updater.md"].partition("## Every field of")[2]
    missing = [
        field
        for field in known
        if not re.search(rf"\b{re.escape(field.rpartition('.')[2])}\b", guide)
    ]
    assert len(known) > 20
    assert missing == []


def _said() -> list[str]:
    """Return every string in the code, with `…` in place of variable parts."""
    nodes = (
        node
        for path in (ROOT / "task").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
    )
    found = []
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            found.append(
                "…".join(str(one.value) for one in node.values if isinstance(one, ast.Constant))
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def test_every_message_in_troubleshooting_exists_in_the_code() -> None:
    said = "\n".join(_said())
    page = PAGES["docs/troubleshooting.md"]
    quoted = [
        words
        for cell in re.findall(r"^(?:\| )?(`.*?)(?: \| |$)", page, re.MULTILINE)
        # these two are worded by Argo CD
        for words in re.findall(r"(?<!often: )(?<!with )`(?!image-update )([^`]+)`", cell)
    ]
    assert len(quoted) > 150
    pieces = {piece.strip(" ,()") for words in quoted for piece in words.split("…")}
    assert [piece for piece in pieces if len(piece) > 3 and piece not in said] == []


@pytest.mark.parametrize("meaning", FAILURES, ids=lambda meaning: meaning.message)
def test_every_git_failure_is_explained(meaning: Meaning) -> None:
    assert f"`{meaning.message}`" in PAGES["docs/troubleshooting.md"]


def test_every_code_layer_is_in_the_architecture_picture() -> None:
    layers = (
        (ROOT / ".importlinter")
        .read_text()
        .partition("layers =\n")[2]
        .partition("\n#")[0]
        .partition("exhaustive")[0]
    )
    picture = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("## The house")[2].partition("\n## ")[0]
    )
    assert [
        name for name in re.findall(r"\w+", layers) if not re.search(rf"\b{name}\b", picture)
    ] == []


def test_every_file_named_in_contributing_exists() -> None:
    named = re.findall(
        r"`((?:bench|docs|scripts|task|tests)/[\w./-]+)`", (ROOT / "CONTRIBUTING.md").read_text()
    )
    assert len(named) > 50
    assert [one for one in named if not (ROOT / one).exists()] == []


SENTENCE = (
    "rites the version of a newly built image to Git, for every Argo CD Application that tracks it"
)
DESCRIBED = (
    "task/__init__.py", "task/cli/app.py", "pyproject.toml", "mkdocs.yml", "Dockerfile", "action.yml", "README.md",
    "docs/index.md", "tekton/task/image-update/image-update.yaml", "tekton/stepaction/image-update/image-update.yaml",
    "argo-workflows/image-update/manifests.yaml", "argo-workflows/image-update/artifacthub-pkg.yml",
    "argo-workflows/image-update-cluster/manifests.yaml", "argo-workflows/image-update-cluster/artifacthub-pkg.yml",
)  # fmt: skip


@pytest.mark.parametrize("path", DESCRIBED)
def test_every_description_of_the_project_uses_the_same_sentence(path: str) -> None:
    text = (ROOT / path).read_text()
    assert SENTENCE in " ".join(text.split())


@pytest.mark.parametrize(
    "page", sorted({about.page for group in GROUPS.values() for about in group.values()})
)
def test_every_page_linked_from_the_help_exists(page: str) -> None:
    name, _, anchor = page.partition("#")
    headings = re.findall(r"^#+ (.+)$", PAGES[f"docs/{name}"], re.MULTILINE)
    assert anchor in {
        "",
        *(re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings),
    }
