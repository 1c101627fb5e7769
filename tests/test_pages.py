"""The README and docs: YAML and shell blocks are valid, variables exist, links work, and the site
is complete.
"""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from markdown import Markdown
from support import ROOT, image_update
from support.host_schemas import problems, schema_of

from scripts.transcripts import blocks
from scripts.typer_options import all_options, commands, options_of
from task import __version__
from task.ci.publish import NAMES, dotenv

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in sorted((ROOT / "docs").rglob("*.md"))
}
EVERYWHERE = {"README.md": (ROOT / "README.md").read_text(), **PAGES}
HOSTS_AND_MACHINES = re.compile(
    r"pypi\.org|files\.pythonhosted|registry\.npmjs|/root/|/home/(?!nonroot)\w+/|/work/"
)


def _fenced(language: str) -> list[tuple[str, str]]:
    """Return the page and text of each code block in this language in the README and docs."""
    return [
        (name, one.code)
        for name, text in EVERYWHERE.items()
        for one in blocks(text)
        if one.language == language
    ]


@pytest.mark.parametrize(("page", "text"), _fenced("yaml"))
def test_yaml_blocks_are_valid_yaml(page: str, text: str) -> None:
    assert all(isinstance(one, (dict, list)) for one in yaml.safe_load_all(text)), page


@pytest.mark.parametrize(("page", "text"), _fenced("yaml"))
def test_complete_manifests_match_their_schemas(page: str, text: str) -> None:
    for one in yaml.safe_load_all(text):
        if isinstance(one, dict) and (schema := schema_of(one)):
            assert (page, problems(schema, one)) == (page, [])


def test_lint_finds_no_errors_in_the_examples(tmp_path: Path) -> None:
    for number, (_, text) in enumerate(_fenced("yaml")):
        if "\nkind:" in text:
            (tmp_path / f"{number}.yaml").write_text(text)
    ended = image_update("lint", "--applications", tmp_path, "--output", "json")
    errors = [one for one in ended.json["findings"] if one["severity"] == "error"]
    assert [
        one for one in errors if not one["message"].endswith("matches")
    ] == []  # not every page contains the Applications that a resource selects


@pytest.mark.parametrize(("page", "text"), [one for one in _fenced("yaml") if "\non:" in one[1]])
def test_workflow_examples_match_the_github_schema(page: str, text: str) -> None:
    workflow = yaml.safe_load(text.replace("\non:", '\n"on":'))
    assert (page, problems("github-workflow", workflow)) == (page, [])


def _commands() -> list[tuple[str, str]]:
    """Return the page and line of each of our commands in the README and docs."""
    texts = [(page, text.replace("\\\n", " ")) for page, text in (*_fenced("sh"), *_fenced(""))]
    found = (
        (page, line)
        for page, text in texts
        for line in re.findall(r"(?:^|\s)(image-update [^|;&#\n]+)", text, re.MULTILINE)
    )
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("page", "line"), _commands())
def test_every_command_and_option_in_an_example_exists(page: str, line: str) -> None:
    command, *words = shlex.split(line)[1:]
    if command == "--version":
        return
    assert command in commands(), page
    known = {
        flag for option in options_of(command) for flag in (*option.opts, *option.secondary_opts)
    }
    known |= {"--keep", "--help", "--help-all"}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given - known == set(), page


@pytest.mark.parametrize("page", EVERYWHERE)
def test_every_variable_in_the_documentation_is_read_by_the_code(page: str) -> None:
    """Each variable belongs to an option, to a secret without an option, or to the output of
    `--dotenv`.
    """
    source = "\n".join(path.read_text() for path in (ROOT / "task").rglob("*.py"))
    results = {line.partition("=")[0] for line in dotenv(dict.fromkeys(NAMES, "")).splitlines()}
    known = (
        {str(option.envvar) for option in all_options()}
        | results
        | set(re.findall(r"IMAGE_UPDATE_[A-Z_]*[A-Z]", source))
    )
    assert set(re.findall(r"IMAGE_UPDATE_[A-Z_]*[A-Z]", EVERYWHERE[page])) <= known


@pytest.mark.parametrize("page", EVERYWHERE)
def test_no_page_names_an_internal_machine_or_package_registry(page: str) -> None:
    assert HOSTS_AND_MACHINES.findall(EVERYWHERE[page]) == []


def test_the_menu_and_the_pages_match() -> None:
    menu = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(menu) == sorted(name.removeprefix("docs/") for name in PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_each_page_begins_by_stating_its_audience_and_outcome(page: str) -> None:
    if page != "docs/figures.md":
        box = r"# .+\n\n> \*\*For\*\* [^#]+\.\s(> )?\*\*You will learn( how to)?\*\* "
        assert re.match(box, PAGES[page])


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_relative_links_of_the_root_pages_lead_to_files(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_names_in_inline_code_do_not_break_across_lines() -> None:
    page = "`--git-token` and `image-update run`\n\n    a-b\n"
    shown = Markdown(extensions=["scripts.unbroken"]).convert(page)
    assert re.findall(r'<span class="word">([^<]+)</span>', shown) == [
        "--git-token",
        "image-update",
        "run",
    ]
    assert re.sub(r"</?span[^>]*>", "", shown) == Markdown().convert(page)


def test_the_changelog_has_a_short_entry_for_each_version_and_names_every_command() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert (versions[0], len(versions)) == (__version__, len(set(versions)))
    assert all(len(entry.split()) < 650 for entry in text.split("\n## "))
    assert [one for one in commands() if not re.search(rf"`[^`]*\b{one}\b[^`]*`", text)] == []
    assert not re.search(r"no longer|version 0\.1 |before,|\bnow\b", text)
