"""Options as pipelines rely on them: which command takes what, and how flags, variables and defaults are read."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.core import TyperArgument

from scripts.typer_options import (
    TyperParam,
    all_options,
    choices_of,
    commands,
    default_of,
    name_of,
    options_of,
    takes_many,
)
from task import settings as records
from task.cli import options
from task.cli.app import group
from task.cli.records import settings_of
from task.errors import UsageError
from task.settings import Settings

SEARCH = "applications clusters render follow-apps argocd-namespace log-level log-format"
ACCESS = """
    allow-protocol rewrite-url git-username git-password-file git-credentials-url basic-auth-directory github-app-id
    github-app-installation-id github-app-key-file ssh-key-file ssh-directory ssh-known-hosts-file ssh-host-key ca-file
    git-config kubeconfig kube-context argocd-server argocd-auth-token-file argocd-plaintext argocd-insecure
    argocd-ca-file argocd-root-path argocd-header
"""
RULES = "selector project namespace annotation-prefix strategy pin-digest output"
WRITING = f"""
    {SEARCH} {ACCESS} {RULES} carry-parameters atomic git-author-name git-author-email commit-message-template trailer
    sign-off signing-key signing-format commit-through pipeline-run deadline stall-timeout git-cache-dir refresh
    refresh-parents wait wait-timeout expect-image kubernetes-events registry-check registries-conf
    registry-username registry-password-file registry-credentials-for registry-cache-dir allow-env allow-exec verify
    verify-identity verify-issuer verify-timeout
    pull-request pull-request-label pull-request-reviewer pull-request-assignee pull-request-draft auto-merge forge
    forge-token-file forge-username only-repository repository-config report results-dir dotenv
"""
EVENT = "image image-digest tag images-from sequence created source-commit source-repository"
TAKING = "application allow-downgrade require-live require-update require-match"
TELLING = "metrics-file cloudevent-url"
TAKEN = {
    "run": f"{EVENT} comment deployments dry-run on-failure {TAKING} {TELLING} {WRITING}",
    "plan": f"{EVENT} comment deployments on-failure {TAKING} {WRITING}",
    "scan": f"dry-run on-failure {TAKING} {TELLING} {WRITING}",
    "status": f"""
        app {EVENT} newest builds html application allow-downgrade require-live carry-parameters {SEARCH} {ACCESS}
        {RULES} pull-request forge forge-token-file forge-username deadline stall-timeout git-cache-dir
        only-repository repository-config registry-check registries-conf registry-username registry-password-file
        registry-credentials-for registry-cache-dir allow-env allow-exec verify verify-identity verify-issuer
        verify-timeout
    """,
    "promote": f"""
        promote-from promote-to from-selector to-selector healthy image source-repository deployments dry-run on-failure
        {TAKING} {TELLING} {WRITING}
    """,
    "hold": f"app image reason until by dry-run {TELLING} {WRITING}",
    "release": f"app image discard dry-run {TELLING} {WRITING}",
    "rollback": f"app image to unknown-tag reason until by hold dry-run {TELLING} {WRITING}",
    "wait": f"app revision repository wait-timeout {SEARCH} {ACCESS}",
    "report": "report-file html",
    "lint": f"source holds from-image-updater application {SEARCH} {ACCESS} {RULES}",
    "demo": "",
}
DEFAULTS = {
    "argocd-namespace": "argocd",
    "annotation-prefix": "argocd-image-updater.argoproj.io/",
    "follow-apps": "0",
    "strategy": "semver",
    "carry-parameters": "true",
    "git-author-name": "image-update",
    "git-author-email": "image-update@noreply.invalid",
    "deadline": "120",
    "stall-timeout": "60",
    "git-config": "true",
    "commit-through": "git",
    "refresh": "true",
    "wait-timeout": "600",
    "expect-image": "true",
    "on-failure": "none",
    "registry-check": "auto",
    "verify-timeout": "0",
    "output": "text",
    "builds": "5",
    "log-level": "info",
    "log-format": "auto",
    "repository-config": "true",
    "hold": "true",
}
CHOICES = {
    "strategy": ["semver", "newest-build", "alphabetical", "digest"],
    "signing-format": ["openpgp", "ssh"],
    "commit-through": ["git", "github"],
    "registry-check": ["auto", "always", "never"],
    "on-failure": ["none", "rollback"],
    "output": ["text", "json", "repositories"],
    "log-level": ["error", "warning", "info", "debug"],
    "log-format": ["auto", "text", "json", "github"],
}
WORDS = {
    "promote-from",
    "promote-to",
    "app",
    "application",
    "render",
    "project",
    "namespace",
    "allow-protocol",
    "registry-credentials-for",
    "allow-env",
}
LINES = {
    "image", "images-from", "applications", "source", "trailer", "rewrite-url", "git-credentials-url", "ssh-host-key",
    "argocd-header", "pull-request-label", "pull-request-reviewer", "pull-request-assignee", "only-repository",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IMAGE_UPDATE_REGISTRY_CHECK", raising=False)


def given_to(command: str, *words: str) -> Mapping[str, Any]:
    """What Typer reads."""
    return group.commands[command].make_context(command, list(words)).params


def read(command: str, *words: str) -> Settings:
    return settings_of(command, given_to(command, *words))


@pytest.mark.parametrize("command", commands())
def test_each_command_takes_the_options_of_the_contract(command: str) -> None:
    assert sorted(map(name_of, options_of(command))) == sorted(TAKEN[command].split())


def test_each_command_is_in_the_contract() -> None:
    assert list(commands()) == list(TAKEN)


@pytest.mark.parametrize("command", commands())
def test_an_option_is_the_same_in_every_command(command: str) -> None:
    for one in options_of(command):
        name = name_of(one)
        assert one.envvar == "IMAGE_UPDATE_" + name.upper().replace("-", "_")
        assert default_of(one) == DEFAULTS.get(name, "false" if isinstance(one.default, bool) else "")
        two = name == "output" and command in ("lint", "status")
        assert choices_of(one) == (["text", "json"] if two else CHOICES.get(name, []))
        assert takes_many(one) == (name in WORDS | LINES)
        if isinstance(one, TyperArgument):
            assert name in ("app", "report-file", "source")
        else:
            assert one.opts == [f"--{name.removeprefix('promote-')}"]
            assert one.secondary_opts == ([f"--no-{name}"] if isinstance(one.default, bool) else [])


def test_every_alias_is_taken_by_a_command() -> None:
    aliases = [one for one in vars(options).values() if get_origin(one) is not None and len(get_args(one)) > 1]
    variables = {get_args(one)[1].envvar for one in aliases if hasattr(get_args(one)[1], "envvar")}
    assert variables == {one.envvar for one in all_options()} == options.variables()
    assert len(variables) > 100


def test_the_records_have_the_defaults_of_the_options() -> None:
    """What a command has no option for is as if nothing were given for it."""
    for command in ("run", "plan", "scan"):
        assert read(command) == Settings(command, dry=command == "plan")
    assert read("lint") == Settings("lint")


def with_value(one: TyperParam) -> tuple[str, Any]:
    """A text that is not the default, and what is read of it."""
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
    if name == "render":
        return "kustomize", ("kustomize",)
    texts = {"source-commit": "abcdef1234", "git-author-email": "a@text", "html": "a-text.html"}
    text = texts.get(name, "a-text")
    return text, (text,) if name in WORDS | LINES else text


NEEDED = {
    "app": ["x"],
    "report-file": ["x"],
    "reason": ["--reason", "x"],
    "to": ["--to", "x"],
    "revision": ["--revision", "x"],
}


@pytest.mark.parametrize("one", all_options(), ids=name_of)
def test_every_option_is_read_from_flag_and_variable(one: TyperParam) -> None:
    name = name_of(one)
    command = next(command for command in TAKEN if name in TAKEN[command].split())
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


@pytest.mark.parametrize("one", options_of("run"), ids=name_of)
def test_a_blank_counts_as_not_given(one: TyperParam, monkeypatch: pytest.MonkeyPatch) -> None:
    for blank in ("", " ", " \n"):
        monkeypatch.setenv(str(one.envvar), blank)
        assert read("run") == Settings("run")
        if not isinstance(one.default, bool):
            assert read("run", one.opts[0], blank) == Settings("run")


@pytest.mark.parametrize("one", options_of("run"), ids=name_of)
def test_a_flag_wins_over_its_variable(one: TyperParam, monkeypatch: pytest.MonkeyPatch) -> None:
    text, expected = with_value(one)
    monkeypatch.setenv(str(one.envvar), {"true": "false", "false": "true"}.get(text, "7" if text == "7" else text * 2))
    words = [one.opts[0], text]
    if isinstance(one.default, bool):
        words = [f"--{'' if expected else 'no-'}{name_of(one)}"]
    assert given_to("run", *words)[str(one.name)] == expected


def test_the_variables_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
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
    found = read("run", "--tag", "1")
    assert found.tag == "1"
    assert found.images == ("a:1 b:2",)
    assert found.application == ("x", "y", "z", "w")
    assert found.applications == ("one folder", "two")
    assert found.git.trailers == (("A", "b c"), ("D", "e"))
    assert found.project == ()
    assert (found.atomic, found.argo.refresh) == (True, False)


def test_on_the_command_line_one_value_is_one_value() -> None:
    found = read("run", "--images-from", "a b", "--images-from", "c\nd", "--application", "x,y", "--application", "z")
    assert found.images_from == ("a b", "c\nd")
    assert found.application == ("x", "y", "z")


def test_the_last_value_counts() -> None:
    assert read("run", "--tag", "1", "--tag=2", "--atomic", "--no-atomic").tag == "2"


@given(st.lists(st.sampled_from([one for one in options_of("run") if not takes_many(one)]), max_size=6))
def test_the_order_of_options_changes_nothing(chosen: list[TyperParam]) -> None:
    words = [
        [one.opts[0]] if isinstance(one.default, bool) else [one.opts[0], with_value(one)[0]]
        for one in chosen
        if name_of(one)
        not in ("verify", "verify-identity", "verify-issuer", "signing-key", "commit-through", "on-failure")
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
        (["--deadline", "inf"], "--deadline: 'inf' is not a number of seconds"),
        (["--deadline", "1000000"], "--deadline: '1000000' is not a number of seconds"),
        (["--render", "helm,jsonnet"], "--render: 'jsonnet' is not one of its values"),
        (["--allow-protocol", "fil"], "--allow-protocol: 'fil' is not one of its values"),
        (["--allow-protocol", "file,ext"], "--allow-protocol: 'ext' is not one of its values"),
        (["--follow-apps", "-1"], "--follow-apps: '-1' is not a whole number from 0 to 50"),
        (["--follow-apps", "1.5"], "--follow-apps: '1.5' is not a whole number from 0 to 50"),
        (["--strategy", "newest"], "--strategy: 'newest' is not one of its values"),
        (["--source-commit", "main"], "--source-commit: 'main' is not the id of a commit"),
        (["--source-commit", "abc123"], "--source-commit: 'abc123' is not the id of a commit"),
        (["--trailer", "x"], "--trailer: 'x' is not of the form KEY=VALUE"),
        (["--rewrite-url", "=x"], "--rewrite-url: '=x' is not of the form PREFIX=REPLACEMENT"),
        (["--git-author-name", "a<b"], "--git-author-name: 'a<b' is not a name that Git takes"),
        (["--git-author-name", "a\nb"], r"--git-author-name: 'a\nb' is not a name that Git takes"),
        (["--git-author-email", "a\x07@b"], r"--git-author-email: 'a\x07@b' is not an e-mail address"),
        (["--git-author-email", "a@b\nc"], r"--git-author-email: 'a@b\nc' is not an e-mail address"),
        (["--git-author-email", "jane"], "--git-author-email: 'jane' is not an e-mail address"),
        (["--git-author-email", "@example.com"], "--git-author-email: '@example.com' is not an e-mail address"),
        (["--git-author-email", "Jane <a@b>"], "--git-author-email: 'Jane <a@b>' is not an e-mail address"),
        (["--verify-identity", "me"], "--verify-identity is given alone"),
        (
            ["--verify", "k", "--verify-identity", "me", "--verify-issuer", "https://i"],
            "--verify and --verify-identity are both given",
        ),
        (["--on-failure", "rollback"], "--on-failure=rollback is given without --wait"),
        (
            ["--on-failure", "rollback", "--wait", "--pull-request"],
            "--on-failure=rollback does not go with a pull request that a person merges",
        ),
        (["--commit-through", "gitlab"], "--commit-through: 'gitlab' is not one of its values"),
        ([*API, "--signing-key", "k"], "--signing-key and --commit-through github are both given"),
        ([*API, "--signing-format", "ssh"], "--signing-format and --commit-through github are both given"),
        ([*API, "--sign-off"], "--sign-off and --commit-through github are both given"),
        ([*API, "--git-author-name", "x"], "--git-author-name and --commit-through github are both given"),
        ([*API, "--git-author-email", "x@y"], "--git-author-email and --commit-through github are both given"),
        (
            [*API, "--git-author-email", "x@y", "--sign-off", "--signing-key", "k"],
            "--signing-key, --sign-off, --git-author-email and --commit-through github are all given",
        ),
    ],
)
def test_a_value_that_makes_no_sense(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        read("run", *words)
    assert caught.value.hint


def test_a_signing_key_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGE_UPDATE_SIGNING_KEY", "-----BEGIN\nkey\n-----END\n")
    found = read("run").git.signing_key
    assert found.reveal() == "-----BEGIN\nkey\n-----END"
    assert "key" not in str(found)


def test_aliases_of_hold_may_stand_in_one_value() -> None:
    assert read("hold", "web", "--reason", "x", "--image", "a,b", "--image", "c d").held.images == ("a", "b", "c", "d")


def test_what_needs_a_signature_is_pinned() -> None:
    assert read("run", "--verify", "cosign.pub").pin_digest


def test_a_prefix_of_annotations_ends_with_a_slash() -> None:
    assert read("lint", "--annotation-prefix", "example.com").annotation_prefix == "example.com/"


def test_no_two_records_have_a_field_that_no_option_fills() -> None:
    """Every field differs from its default when every option has a value."""
    parts = [one for one in vars(records).values() if isinstance(one, type) and one.__module__ == records.__name__]
    assert Counter(type(getattr(Settings(""), one.name)) for one in fields(Settings))[str] > 0
    words: dict[str, list[str]] = {"run": [], "rollback": ["x"], "release": ["x"], "lint": [], "wait": ["x"]}
    words |= {"report": ["x"], "status": [], "promote": []}
    changed: set[tuple[str, str]] = set()
    for command, start in words.items():
        given_words = [*start]
        for one in options_of(command):
            if isinstance(one, TyperArgument) or name_of(one) in ("verify", "registry-check", "commit-through"):
                continue
            text, expected = with_value(one)
            flag = one.opts[0] if expected is not False else one.secondary_opts[0]
            given_words += [flag] if isinstance(one.default, bool) else [flag, text]
        found = read(command, *given_words)
        for part in (found, found.git, *(getattr(found, one.name) for one in fields(found)), found.git.access):
            if type(part) in parts:
                plain = type(part)() if type(part) is not Settings else Settings("")
                changed |= {
                    (type(part).__name__, one.name)
                    for one in fields(part)
                    if getattr(part, one.name) != getattr(plain, one.name)
                }
    wanted = {(one.__name__, field.name) for one in parts for field in fields(one)}
    assert wanted - changed == {("VerifySettings", "keys"), ("Settings", "check"), ("GitSettings", "through")}
