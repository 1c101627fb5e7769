"""The options that pipelines rely on: their commands, flags, variables, and defaults."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import ROOT
from typer.core import TyperArgument

from scripts.typer_options import (
    TyperParam,
    all_options,
    both_helps,
    choices_of,
    commands,
    name_of,
    options_of,
    takes_many,
)
from task.cli.app import COMMANDS, About, group
from task.cli.command import SHORT, settings_of
from task.errors import UsageError
from task.option import variable_of
from task.secret import Secret
from task.settings import Settings, every_option

GOLDEN = Path(__file__).parent.parent / "data/help"


@pytest.fixture(autouse=True)
def _nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IMAGE_UPDATE_REGISTRY_CHECK", raising=False)


def given_to(command: str, *words: str) -> Mapping[str, Any]:
    """Return the parameters as Typer parses them."""
    return group.commands[command].make_context(command, list(words)).params


def read(name: str, *words: str) -> Settings:
    return settings_of(name, given_to(name, *words))


@pytest.mark.parametrize("command", ["", *commands()])
def test_the_help_of_each_command_matches_the_saved_text(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`COLUMNS=120 python -m scripts.options` writes the files with options, defaults, and help."""
    monkeypatch.setenv("COLUMNS", "120")
    assert both_helps(command) == (GOLDEN / f"{command or 'image-update'}.txt").read_text()


@pytest.mark.parametrize(("command", "about"), COMMANDS.items())
def test_examples_in_the_help_are_valid_and_their_page_exists(command: str, about: About) -> None:
    assert len(about.examples) in (2, 3)
    for example in about.examples:
        assert given_to(command, *shlex.split(example))
    path, _, anchor = about.page.partition("#")
    headings = re.findall(r"^#+ (.*)", (ROOT / "docs" / path).read_text(), re.MULTILINE)
    assert not anchor or anchor in [
        re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings
    ]


def test_every_command_named_by_an_option_accepts_the_option() -> None:
    """`--help` shows a rare option only for the commands that it names, so these must accept it."""
    common = {
        variable_of(field.name): one.common
        for field, _, one in every_option()
        if isinstance(one.common, tuple)
    }
    for variable, names in common.items():
        assert [
            name for name in names if variable not in {one.envvar for one in options_of(name)}
        ] == []


@pytest.mark.parametrize("command", commands())
def test_each_option_has_the_same_name_as_its_variable(command: str) -> None:
    for one in options_of(command):
        name = name_of(one)
        assert one.envvar == "IMAGE_UPDATE_" + name.upper().replace("-", "_")
        if isinstance(one, TyperArgument):
            assert name in ("app", "report-file", "source")
        else:
            flag = f"--{name.removeprefix('promote-')}"
            assert one.opts == [flag, *filter(None, [SHORT.get(flag, "")])]
            assert one.secondary_opts == ([f"--no-{name}"] if isinstance(one.default, bool) else [])


def test_every_declared_option_belongs_to_a_command() -> None:
    declared = {variable_of(field.name) for field, _, _ in every_option()}
    assert declared == {one.envvar for one in all_options()}
    assert len(declared) > 100


def test_settings_and_options_have_the_same_defaults() -> None:
    """If a command lacks the option, its setting has the value of an option that is not given."""
    for command in ("run", "plan", "scan", "lint"):
        assert read(command) == Settings(command)


def with_value(one: TyperParam) -> tuple[str, Any]:
    """Return a non-default text for the option, and the value that the text is parsed to."""
    name = name_of(one)
    if isinstance(one.default, bool):
        return str(not one.default).lower(), not one.default
    if choices := choices_of(one):
        return choices[-1], choices[-1]
    if isinstance(one.default, int):
        return "7", 7.0
    if name in ("trailer", "rewrite-url"):
        return "k=v", (("k", "v"),)
    if name == "allow-protocol":
        return "file,ssh", ("file", "ssh")
    if name in ("render", "fail-on"):
        last = str(one.metavar).rpartition(",")[2]
        return last, (last,)
    texts = {"source-commit": "abcdef1234", "git-author-email": "a@text", "html": "a-text.html"}
    if name in ("signing-key", "annotation-prefix"):
        return "a-text", {"signing-key": Secret("a-text"), "annotation-prefix": "a-text/"}[name]
    text = texts.get(name, "a-text")
    return text, (text,) if takes_many(one) else text


NEEDED = {
    "app": ["x"],
    "report-file": ["x"],
    "reason": ["--reason", "x"],
    "to": ["--to", "x"],
    "revision": ["--revision", "x"],
}


@pytest.mark.slow
@pytest.mark.parametrize("one", all_options(), ids=name_of)
def test_every_option_can_be_set_by_flag_or_variable(one: TyperParam) -> None:
    name = name_of(one)
    command = next(
        command for command in commands() if any(one is other for other in options_of(command))
    )
    needed = [
        word
        for other in options_of(command)
        if other.required and name_of(other) != name
        for word in NEEDED[name_of(other)]
    ]
    text, expected = with_value(one)
    ways: list[list[str]] = [[one.opts[0], text], [f"{one.opts[0]}={text}"]]
    if isinstance(one, TyperArgument):
        ways = [[text]]
    elif isinstance(one.default, bool):
        ways = [[one.opts[0] if expected else one.secondary_opts[0]]]
    for way in ways:
        assert given_to(command, *needed, *way)[str(one.name)] == expected
    for value in (text, f" {text}\n"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(str(one.envvar), value)
            assert given_to(command, *needed)[str(one.name)] == expected


@pytest.mark.parametrize("blank", ["", " ", " \n"])
def test_blank_values_are_treated_as_not_given(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of("run")
    with_texts = [one for one in options if not isinstance(one.default, bool)]
    assert read("run", *(word for one in with_texts for word in (one.opts[0], blank))) == Settings(
        "run"
    )
    for one in options:
        monkeypatch.setenv(str(one.envvar), blank)
    assert read("run") == Settings("run")


@pytest.mark.slow
@pytest.mark.parametrize("one", options_of("run"), ids=name_of)
def test_a_flag_takes_precedence_over_its_variable(
    one: TyperParam, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected = with_value(one)
    monkeypatch.setenv(
        str(one.envvar),
        {"true": "false", "false": "true"}.get(text, "7" if text == "7" else text * 2),
    )
    words = [one.opts[0], text]
    if isinstance(one.default, bool):
        words = [f"--{'' if expected else 'no-'}{name_of(one)}"]
    assert given_to("run", *words)[str(one.name)] == expected


def test_variables_are_split_into_lists_and_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TAG": "2",
        "IMAGE": " a:1 b:2\n",
        "APPLICATION": "x,y z\nw",
        "APPLICATIONS": "one folder\ntwo\n\n",
        "TRAILER": "A=b c\nD=e",
        "PROJECT": " \n",
        "ATOMIC": "TRUE",
        "REFRESH": "off",
    }.items():
        monkeypatch.setenv(f"IMAGE_UPDATE_{name}", value)
    found = read("run", "--tag", "1", "--source-commit", " ABCDEF1 ")
    assert (found.event.tag, found.event.source_commit) == ("1", "abcdef1")
    assert found.event.image == ("a:1 b:2",)
    assert found.application == ("x", "y", "z", "w")
    assert found.sources.applications == ("one folder", "two")
    assert found.commit.trailer == (("A", "b c"), ("D", "e"))
    assert found.scope.project == ()
    assert (found.commit.atomic, found.rollout.refresh) == (True, False)


def test_a_command_line_value_is_not_split_at_spaces() -> None:
    found = read(
        "run",
        "--images-from",
        "a b",
        "--images-from",
        "c\nd",
        "--application",
        "x,y",
        "--application",
        "z",
    )
    assert found.event.images_from == ("a b", "c\nd")
    assert found.application == ("x", "y", "z")


def test_the_last_value_of_a_repeated_option_wins() -> None:
    assert read("run", "--tag", "1", "--tag=2", "--atomic", "--no-atomic").event.tag == "2"


@pytest.mark.slow
@given(
    st.lists(st.sampled_from([one for one in options_of("run") if not takes_many(one)]), max_size=6)
)
def test_the_order_of_options_does_not_matter(chosen: list[TyperParam]) -> None:
    words = [
        [one.opts[0]] if isinstance(one.default, bool) else [one.opts[0], with_value(one)[0]]
        for one in chosen
        if name_of(one)
        not in (
            "verify",
            "verify-identity",
            "verify-issuer",
            "signing-key",
            "commit-through",
            "on-failure",
        )
    ]
    forward = read("run", *[word for pair in words for word in pair])
    assert forward == read("run", *[word for pair in reversed(words) for word in pair])


API = ("--commit-through", "github")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--deadline", "x"], "--deadline: 'x' is not a number of seconds"),
        (["--deadline", "-1"], "--deadline: '-1' is not a number of seconds"),
        (["--deadline", "nan"], "--deadline: 'nan' is not a number of seconds"),
        (["--deadline", "inf"], "--deadline: 'inf' is not below 1,000,000 seconds"),
        (["--deadline", "1000000"], "--deadline: '1000000' is not below 1,000,000 seconds"),
        (["--render", "helm,jsonnet"], "--render: 'jsonnet' is not a valid value"),
        (["--allow-protocol", "fil"], "--allow-protocol: 'fil' is not a valid value"),
        (["--allow-protocol", "file,ext"], "--allow-protocol: 'ext' is not a valid value"),
        (["--follow-apps", "-1"], "--follow-apps: '-1' is not a whole number from 0 to 50"),
        (["--follow-apps", "1.5"], "--follow-apps: '1.5' is not a whole number from 0 to 50"),
        (["--strategy", "newest"], "--strategy: 'newest' is not a valid value"),
        (["--source-commit", "main"], "--source-commit: 'main' is not a commit ID"),
        (["--source-commit", "abc123"], "--source-commit: 'abc123' is not a commit ID"),
        (["--trailer", "x"], "--trailer: 'x' is not in the form KEY=VALUE"),
        (["--rewrite-url", "=x"], "--rewrite-url: '=x' is not in the form PREFIX=REPLACEMENT"),
        (["--git-author-name", "a<b"], "--git-author-name: 'a<b' is not a name that Git accepts"),
        (
            ["--git-author-name", "a\nb"],
            r"--git-author-name: 'a\nb' is not a name that Git accepts",
        ),
        (
            ["--git-author-email", "a\x07@b"],
            r"--git-author-email: 'a\x07@b' is not an email address",
        ),
        (
            ["--git-author-email", "a@b\nc"],
            r"--git-author-email: 'a@b\nc' is not an email address",
        ),
        (["--git-author-email", "jane"], "--git-author-email: 'jane' is not an email address"),
        (
            ["--git-author-email", "@example.com"],
            "--git-author-email: '@example.com' is not an email address",
        ),
        (
            ["--git-author-email", "Jane <a@b>"],
            "--git-author-email: 'Jane <a@b>' is not an email address",
        ),
        (["--verify-identity", "me"], "--verify-identity requires --verify-issuer"),
        (
            ["--verify", "k", "--verify-identity", "me", "--verify-issuer", "https://i"],
            "--verify and --verify-identity cannot be combined",
        ),
        (["--on-failure", "rollback"], "--on-failure=rollback requires --wait"),
        (
            ["--on-failure", "rollback", "--wait", "--pull-request"],
            "--on-failure=rollback does not work with a pull request that a person merges",
        ),
        (["--commit-through", "gitlab"], "--commit-through: 'gitlab' is not a valid value"),
        (
            [*API, "--signing-key", "k"],
            "--signing-key and --commit-through github cannot be combined",
        ),
        (
            [*API, "--signing-format", "ssh"],
            "--signing-format and --commit-through github cannot be combined",
        ),
        ([*API, "--sign-off"], "--sign-off and --commit-through github cannot be combined"),
        (
            [*API, "--git-author-name", "x"],
            "--git-author-name and --commit-through github cannot be combined",
        ),
        (
            [*API, "--git-author-email", "x@y"],
            "--git-author-email and --commit-through github cannot be combined",
        ),
        (
            [*API, "--git-author-email", "x@y", "--sign-off", "--signing-key", "k"],
            "--signing-key, --sign-off, --git-author-email and --commit-through github cannot be combined",
        ),
    ],
)
def test_invalid_values_cause_usage_errors(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        read("run", *words)
    assert caught.value.hint


def test_the_signing_key_is_kept_as_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGE_UPDATE_SIGNING_KEY", "-----BEGIN\nkey\n-----END\n")
    found = read("run").commit.signing_key
    assert found.reveal() == "-----BEGIN\nkey\n-----END"
    assert "key" not in str(found)


def test_several_aliases_may_be_given_in_one_value() -> None:
    found = read("hold", "web", "--reason", "x", "--alias", "a,b", "--alias", "c d")
    assert found.aliases == ("a", "b", "c", "d")


@pytest.mark.parametrize("command", ["hold", "release", "rollback", "promote"])
def test_the_old_name_of_the_alias_option_has_no_variable(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IMAGE_UPDATE_IMAGE may be set for a whole pipeline."""
    monkeypatch.setenv("IMAGE_UPDATE_IMAGE", "ghcr.io/acme/web:1.5.0")
    words = {"hold": ["web", "--reason=x"], "release": ["web"], "rollback": ["web", "--to=1"]}
    needed = words.get(command, ["--from=web", "--to=api"])
    assert read(command, *needed).aliases == ()
    assert read(command, *needed, "--image", "web").aliases == ("web",)
    with pytest.raises(UsageError, match="--alias and --image cannot be combined"):
        read(command, *needed, "--image", "web", "--alias", "web")


def test_requiring_a_signature_also_pins_the_digest() -> None:
    assert read("run", "--verify", "cosign.pub").pin_digest


def test_a_slash_is_added_to_the_annotation_prefix() -> None:
    assert (
        read("lint", "--annotation-prefix", "example.com").scope.annotation_prefix == "example.com/"
    )
