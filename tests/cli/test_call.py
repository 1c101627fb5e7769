"""Variables passed to a command: CI host parameters, and names that resemble our variables."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import image_update

from scripts.typer_options import options_of
from task.cli.app import group
from task.cli.call import CI_COMMANDS, adopt, defaults, parameter_of, strange_variables
from task.settings import SECRETS


def adopted(
    command: str, environ: Mapping[str, str] = {}, **params: str
) -> tuple[dict[str, str], str]:
    """Return the resulting option variables, and the error message."""
    env = {
        **environ,
        **{f"IMAGE_UPDATE_PARAMETER_{name.upper()}": text for name, text in params.items()},
    }
    mistake = adopt(env, command, group.commands).mistake
    assert not [name for name in env if name.startswith("IMAGE_UPDATE_PARAMETER_")]
    return env, f"{mistake.message}; {mistake.hint}" if mistake else ""


@pytest.mark.parametrize(
    ("command", "params", "expected"),
    [
        ("run", {"image": "web:1"}, {"IMAGE_UPDATE_IMAGE": "web:1"}),
        (
            "status",
            {"image": "web:1", "names": "web"},
            {"IMAGE_UPDATE_IMAGE": "web:1", "IMAGE_UPDATE_APP": "web"},
        ),
        (
            "rollback",
            {"to": "previous", "alias": "a"},
            {"IMAGE_UPDATE_TO": "previous", "IMAGE_UPDATE_ALIAS": "a"},
        ),
        (
            "promote",
            {"to": "b", "from": "a"},
            {"IMAGE_UPDATE_PROMOTE_TO": "b", "IMAGE_UPDATE_PROMOTE_FROM": "a"},
        ),
        ("rollback", {"hold": "false"}, {"IMAGE_UPDATE_HOLD": "false"}),
        (
            "run",
            {"carry_parameters": "false"},
            {"IMAGE_UPDATE_CARRY_PARAMETERS": "false"},
        ),  # the config may set the option to true
        ("run", {"deadline": "120", "wait": "false", "image": " \n"}, {}),
    ],
)
def test_each_command_parameter_sets_its_variable(
    command: str, params: dict[str, str], expected: dict[str, str]
) -> None:
    assert adopted(command, {}, **params) == (expected, "")


@pytest.mark.parametrize(
    ("command", "params", "message"),
    [
        (
            "run",
            {"to": "previous"},
            "to: not a parameter of run; remove it; it is for promote or rollback",
        ),
        (
            "hold",
            {"image": "web:1"},
            "image: not a parameter of hold; remove it; it is for run, plan or status",
        ),
        ("plan", {"dry_run": "true"}, "dry-run: not a parameter of plan"),
        (
            "wait",
            {"registry_check": "never", "reason": "x"},
            "reason, registry-check: not a parameter of wait",
        ),
        ("lint", {"image": "web:1"}, "image: not a parameter of lint; remove it"),
        ("run", {"imgae": "web:1"}, "imgae: not a parameter of run; remove it"),
        ("", {"names": "web"}, "the parameter `command` is missing; the commands are run, plan,"),
    ],
)
def test_a_parameter_for_another_command_is_rejected_by_name(
    command: str, params: dict[str, str], message: str
) -> None:
    assert message in adopted(command, {}, **params)[1]


def test_another_command_in_the_same_job_uses_only_the_parameters_it_knows() -> None:
    assert adopted("report", {}, html="page.html", image="web:1") == (
        {"IMAGE_UPDATE_HTML": "page.html"},
        "",
    )


@pytest.mark.parametrize("command", CI_COMMANDS)
def test_a_pipeline_variable_is_never_rejected(command: str) -> None:
    taken = {one.envvar for one in options_of(command)}
    others = {
        str(one.envvar): "x"
        for other in CI_COMMANDS
        for one in options_of(other)
        if one.envvar not in taken
    }
    assert others
    assert adopted(command, others, log_level="debug") == (
        {**others, "IMAGE_UPDATE_LOG_LEVEL": "debug"},
        "",
    )


def test_a_non_default_parameter_takes_precedence_over_the_pipeline_variable() -> None:
    pipeline = {"IMAGE_UPDATE_DEADLINE": "300"}
    assert adopted("run", pipeline, deadline="60")[0] == {"IMAGE_UPDATE_DEADLINE": "60"}
    assert adopted("run", pipeline, deadline="120")[0] == pipeline


@pytest.mark.parametrize("command", CI_COMMANDS)
def test_no_command_rejects_default_values(command: str) -> None:
    every = {name.replace("-", "_"): text for name, text in defaults().items()}
    assert adopted(command, {}, **every) == ({}, "")


@given(
    st.sampled_from(CI_COMMANDS),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
)
def test_parameter_values_are_passed_through_unchanged(command: str, value: str) -> None:
    env, mistake = adopted(command, rewrite_url=value)
    assert (env.get("IMAGE_UPDATE_REWRITE_URL", ""), mistake) == (
        value if value.strip() else "",
        "",
    )


def test_every_option_of_a_command_has_a_unique_parameter_name() -> None:
    for command in CI_COMMANDS:
        names = [parameter_of(one) for one in options_of(command)]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("command", "params", "message"),
    [
        (
            "rollback",
            {"TO": "previous", "NAMES": ""},
            "names is missing",
        ),
        ("hold", {"NAMES": "web", "REASON": ""}, "reason is missing"),
        (
            "run",
            {"IMAGE": "web:1", "DEADLINE": "soon"},
            "deadline: 'soon' is not a number of seconds",
        ),
        ("run", {"IMAGE": "web:1", "WAIT": "perhaps"}, "wait: 'perhaps' is not true or false"),
        ("promote", {"FROM": "--help", "TO": ""}, "to is missing"),
        (
            "status",
            {"NAMES": "web", "APPLICATIONS": "/nowhere"},
            "applications: '/nowhere' does not exist",
        ),
    ],
)
def test_errors_use_the_hosts_parameter_names(
    command: str, params: dict[str, str], message: str
) -> None:
    env = {f"IMAGE_UPDATE_PARAMETER_{name}": text for name, text in params.items()}
    result = image_update(command, env=env)
    assert (result.code, message in result.stderr) == (2, True), result.stderr
    assert "or the variable" not in result.stderr  # a host with a form has no variables


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--deadline 60", ["--deadline=60"]),
        (
            "--deadline=60\n\n  --atomic  \n--no-refresh",
            ["--deadline=60", "--atomic", "--no-refresh"],
        ),
        ("--trailer A=b c\n--trailer=B = d", ["--trailer=A=b c", "--trailer=B = d"]),
        ("--commit-through = github", ["--commit-through=github"]),
        ("--argocd-server $(touch x); `y` 'z'", ["--argocd-server=$(touch x); `y` 'z'"]),
        (" \n", []),
        ("--sequence=\n--deadline = ", []),  # a blank value counts as not given
    ],
)
def test_options_are_added_to_the_command_line_without_a_shell(
    options: str, words: list[str]
) -> None:
    env = {"IMAGE_UPDATE_PARAMETER_OPTIONS": options}
    assert adopt(env, "run", group.commands).words == words
    entries = options.splitlines()
    array = adopt({"IMAGE_UPDATE_PARAMETER_IMAGE": ""}, "run", group.commands, entries)
    assert array.words == words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--deadlin 60", "options: unknown option --deadlin; did you mean --deadline?"),
        ("--to previous", "options: run has no --to; it is an option of promote and rollback"),
        (
            "--git-token abc",
            "options: --git-token does not exist: others could read",
        ),
        (
            "deadline 60",
            "options: 'deadline 60' is not a valid option; use one option per line",
        ),
        ("-n team", "options: '-n team' is not a valid option"),
        ("$(params.more)", "options: '$(params.more)' is not a valid option"),
        ("--deadline\n--atomic", "options: --deadline requires a value; use --deadline value"),
        (
            "--atomic true",
            "options: --atomic does not take a value; use --atomic or --no-atomic without a value",
        ),
        (
            "--no-atomic=1",
            "options: --no-atomic does not take a value; use --atomic or --no-atomic without a value",
        ),
        (
            "--image web:1",
            "options: --image has its own parameter; set the parameter image instead",
        ),
        ("--no-wait", "options: --no-wait has its own parameter; set the parameter wait instead"),
        ("--options x", "options: unknown option --options"),
        ("--help", "options: unknown option --help"),
        ("--results-dir /tmp", "options: the manifest already sets --results-dir; remove it"),
        ("--dotenv=x", "options: the manifest already sets --dotenv; remove it"),
        ("--basic-auth-directory /x", "options: the manifest already sets --basic-auth-directory"),
        ("--report x", "options: the manifest already sets --report"),
        (
            "--ssh-key-file x",
            "options: --ssh-key-file duplicates a credential in the manifest's secret",
        ),
    ],
)
def test_unknown_or_duplicate_options_are_rejected(options: str, message: str) -> None:
    environ = {
        "IMAGE_UPDATE_BASIC_AUTH_DIRECTORY": "",
        "IMAGE_UPDATE_REPORT": "report.json",
        "IMAGE_UPDATE_SSH_KEY": "key",
    }
    assert message in adopted("run", environ, image="web:1", wait="", options=options)[1]


def test_the_options_parameter_accepts_options_that_name_files() -> None:
    env = {"IMAGE_UPDATE_PARAMETER_OPTIONS": "--ssh-key-file x\n--ca-file y"}
    assert adopt(env, "run", group.commands).words == ["--ssh-key-file=x", "--ca-file=y"]


def test_step_options_take_precedence_over_pipeline_variables() -> None:
    env = {
        "IMAGE_UPDATE_PARAMETER_IMAGE": "web:1",
        "IMAGE_UPDATE_PARAMETER_APPLICATIONS": "/nowhere",
        "IMAGE_UPDATE_DEADLINE": "soon",
    }
    result = image_update("run", "--options", "--deadline 60", env=env)
    assert (result.code, "applications: '/nowhere' does not exist" in result.stderr) == (2, True)
    refused = image_update("run", "--options", "--deadlin 60", "--deadline 5", env=env)
    assert (refused.code, "options: unknown option --deadlin" in refused.stderr) == (2, True)


def test_the_options_marker_is_not_a_command_line_option() -> None:
    result = image_update("run", "--options", "--deadline=60")
    assert (result.code, "unknown option --options" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("IMAGE_UPDATE_PULLREQUEST", "IMAGE_UPDATE_PULL_REQUEST"),
        ("IMAGE_UPDATE_REQUEST_PULL", "IMAGE_UPDATE_PULL_REQUEST"),
        ("IMAGE_UPDATE_GIT_TOKN", "IMAGE_UPDATE_GIT_TOKEN"),
        ("IMAGE_UPDATE_Wait", "IMAGE_UPDATE_WAIT"),
        ("IMAGE_UPDATE_COLOUR_OF_THE_SKY", ""),
        ("IMAGE_UPDATE_", ""),
    ],
)
def test_an_unknown_variable_causes_a_warning_with_a_suggestion(name: str, near: str) -> None:
    (problem,) = strange_variables({name: "s3cret", "PATH": "/bin"})
    assert problem.message == f"unknown variable {name}"
    assert (problem.severity, f"did you mean {near}?" == problem.hint) == ("warning", bool(near))
    assert "s3cret" not in str(problem)


@pytest.mark.parametrize(
    "name",
    [
        "IMAGE_UPDATE_IMAGE", "IMAGE_UPDATE_HTML", "IMAGE_UPDATE_REQUIRE_MATCH", *SECRETS,
        "IMAGE_UPDATE_RESULT_STATUS", "IMAGE_UPDATE_RESULT_", "IMAGE_UPDATE_SERVICE_HOST", "IMAGE_UPDATE_SERVICE_PORT",
        "IMAGE_UPDATE_SERVICE_PORT_HTTP_WEB", "IMAGE_UPDATE_PORT", "IMAGE_UPDATE_PORT_80_TCP",
        "IMAGE_UPDATE_PORT_53_UDP_ADDR", "IMAGE_UPDATE_PORT_9_SCTP_PORT", "IMAGE_UPDATE_DOCS_SERVICE_HOST",
        "IMAGE_UPDATER_X",
    ],
)  # fmt: skip
def test_known_variables_and_kubernetes_service_variables_cause_no_warning(name: str) -> None:
    assert strange_variables({name: "x"}) == ()


def test_an_empty_variable_is_treated_as_unset() -> None:
    assert strange_variables({"IMAGE_UPDATE_NONSENSE": " "}) == ()
