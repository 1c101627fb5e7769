"""What a run passes to its CI host: readable results, written files, and masked secrets."""

import io
import json
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import image_update
from support.reports import WEB as IMAGE
from support.reports import commit, decision, report
from support.runner_rules import ATTACKS, dangers
from support.runs import WEB

from task.ci.publish import LIMIT, NAMES, dotenv, github_output, mask, repositories, results
from task.errors import Trouble
from task.model import Image, Problem, Report

PAGE = "https://git.example.com/acme/gitops/pulls/7"
LONG = "https://git.example.com/" + "x" * 20_000
NAME = st.sampled_from(
    [*ATTACKS, '"' * 300, "x" * 20_000, "é" * 140, "\ud800", PAGE, "a" * 64, "main"]
)


def problems(*told: Problem) -> Report:
    return replace(report(), problems=told)


def size(found: Any) -> int:
    return sum(len(name) + len(value.encode()) for name, value in found.items())


def checked(of: Report) -> Any:
    """Return the results after checking that every CI host can read them."""
    found = results(of)
    assert tuple(found) == NAMES
    assert size(found) < LIMIT
    assert all(isinstance(one, str) for one in json.loads(found["applications"]))
    inputs = json.loads(found["image_ARTIFACT_INPUTS"])
    assert {name: type(value) for name, value in inputs.items()} == {"uri": str, "digest": str}
    assert len(found["message"].encode()) <= 300
    assert dangers(found["message"]) == []
    for lines in (dotenv(found), github_output(found)):
        assert len(lines.splitlines()) == len(NAMES)
    return found


@pytest.mark.parametrize("letter", ["\u202e", "\u2066", "\x9b", "\x85", "\u200f", "\x7f"])
def test_a_branch_name_with_invisible_characters_is_left_out(letter: str) -> None:
    found = checked(report(decision(), commits=(commit(head=f"main{letter}nimda"),)))
    assert (found["branch"], found["commit"] != "") == ("", True)


@pytest.mark.parametrize("name", ["pull_request", "repo", "head", "commit"])
def test_server_values_that_are_too_long_are_left_out(name: str) -> None:
    found = checked(report(decision(), commits=(commit(**{"pull_request": PAGE, name: LONG}),)))
    empty = {key for key in ("pull-request", "repository", "branch", "commit") if not found[key]}
    assert empty == {
        {"pull_request": "pull-request", "repo": "repository", "head": "branch"}.get(name, name)
    }
    assert found["status"] == "updated"


def test_results_of_maximum_length_still_leave_room_for_applications() -> None:
    image = Image("r" * 270, "r", "r", "t" * 128, "sha512:" + "0" * 128)
    most = commit(
        commit="c" * 64,
        pull_request=PAGE.ljust(400, "x"),
        repo="https://g/" + "r" * 240,
        head="b" * 250,
    )
    names = [decision(name=f"application-{number}") for number in range(500)]
    found = checked(report(*names, commits=(most,), images=(image,)))
    assert all(found.values())
    assert len(json.loads(found["applications"])) >= 1
    assert found["applications-count"] == "500"


@given(st.tuples(NAME, NAME, NAME, NAME, NAME, NAME, NAME))
def test_every_host_can_read_results_with_arbitrary_names(texts: tuple[str, ...]) -> None:
    url, repo, head, oid, name, tag, digest = texts
    image = Image(name, "r", "r", tag, digest)
    written = commit(pull_request=url, repo=repo, head=head, commit=oid)
    checked(report(decision(), commits=(written,), images=(image,)))


def test_the_commit_of_an_update_takes_precedence_over_a_memory_commit() -> None:
    other = decision("defer", "held", "api")
    other = replace(other, subscription=replace(other.subscription, repo="https://a.example.com/x"))
    memory = commit(repo="https://a.example.com/x", applications=("argocd/api",), commit="c" * 40)
    found = checked(report(decision(), other, commits=(memory, commit())))
    assert (found["commit"], found["updated"]) == ("a" * 40, "true")
    alone = checked(report(other, commits=(memory,)))
    assert (alone["commit"], alone["updated"]) == ("c" * 40, "false")


@pytest.mark.parametrize(
    ("of", "updated"),
    [
        (report(decision(), commits=(commit(),)), "true"),
        (report(decision(kind="live")), "true"),
        (replace(report(decision(), commits=(commit(commit=None),)), dry=True), "false"),
        (replace(report(decision(kind="live")), dry=True), "false"),
        (report(decision("defer", "held"), commits=(commit(),)), "false"),
        (report(decision("unchanged", "same"), commits=(commit(already_there=True),)), "false"),
        (report(decision("error", "repository"), commits=(commit(),), code=75), "false"),
        (report(decision("unchanged", "same"), commits=(commit(),), command="hold"), "false"),
    ],
)
def test_the_updated_result_counts_only_images(of: Report, updated: str) -> None:
    assert checked(of)["updated"] == updated


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (report(decision(), commits=(commit(),)), "1 updated"),
        (report(decision("unchanged", "same")), "1 current"),
        (report(decision(), commits=(commit(rollback=True),)), "1 updated, rolled back"),
        (
            problems(
                Problem(Trouble.warning("x", "careful")),
                Problem(Trouble("x", "no"), application="a/b"),
            ),
            "a/b: no",
        ),
        (
            problems(Problem(Trouble("x", "one\ntwo\x1b[31m https://u:pw@h/x"))),
            "one two [31m https://h/x",
        ),
        (problems(Problem(Trouble("x", "é" * 200))), "é" * 148 + "…"),
        (problems(Problem(Trouble("x", "::set-output name=x::y"))), "\\::set-output name=x::y"),
    ],
)
def test_the_message_is_the_first_error_or_the_summary_of_the_run(of: Report, message: str) -> None:
    assert checked(of)["message"] == message


def test_gitlab_runners_do_not_expand_variables_in_results() -> None:
    found = checked(problems(Problem(Trouble("x", "no $CI_JOB_TOKEN"))))
    assert "IMAGE_UPDATE_RESULT_MESSAGE=no $$CI_JOB_TOKEN\n" in dotenv(found)


@pytest.mark.parametrize("text", ATTACKS)
def test_a_message_with_hostile_text_is_safe_for_every_host(text: str) -> None:
    checked(problems(Problem(Trouble("x", text * 300), application=text)))


@pytest.mark.parametrize("text", ATTACKS)
def test_the_list_of_repositories_is_exact_and_safe(text: str) -> None:
    printed = repositories(report(commits=(commit(repo=text),)))
    assert json.loads(printed) == [text]
    assert dangers(printed) == []


def test_results_about_the_image_are_empty_without_an_image() -> None:
    found = checked(report(images=()))
    assert (found["tag"], json.loads(found["image_ARTIFACT_INPUTS"])) == (
        "",
        {"uri": "", "digest": ""},
    )
    assert checked(report(images=(IMAGE,)))["tag"] == "1.1.0"


def test_a_rollback_is_reported_in_addition_to_the_update() -> None:
    both = report(
        decision(), commits=(commit(commit="a" * 40), commit(commit="b" * 40, rollback=True))
    )
    found = checked(both)
    assert (found["updated"], found["rolled-back"], found["commit"]) == ("true", "true", "a" * 40)
    assert found["message"] == "1 updated, rolled back"
    assert checked(report(decision(), commits=(commit(),)))["rolled-back"] == "false"


def test_the_report_is_written_to_report_json_in_the_results_folder(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    done = image_update("run", "--image", "web:1", "--applications", tmp_path, "--report", folder)
    assert done.code == 0, done.stderr
    assert json.loads((folder / "report.json").read_text())["command"] == "run"


def test_the_report_of_a_failed_run_is_also_written_to_the_folder(tmp_path: Path) -> None:
    done = image_update("run", "--image", "web", "--applications", tmp_path, "--report", tmp_path)
    assert done.code == 2
    assert json.loads((tmp_path / "report.json").read_text())["status"] == "failed"


@pytest.mark.parametrize("image", ["web:1", "web"], ids=["success", "failure"])
def test_the_results_folder_can_be_derived_from_the_path_to_a_result(
    tmp_path: Path, image: str
) -> None:
    results = tmp_path / "steps" / "results"
    results.mkdir(parents=True)
    given = {"IMAGE_UPDATE_RESULTS_DIR": f"{results}/status/.."}
    image_update("run", "--image", image, "--applications", tmp_path, env=given)
    assert (results / "status").is_file()
    assert (results / "updated").read_text() == "false"


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ("s3cret", ["s3cret", b64encode(b"s3cret").decode()]),
        ("a/b c", ["a/b c", "a%252Fb%2520c", b64encode(b"a/b c").decode()]),
        (KEY, ["c2VjcmV0", b64encode(b"c2VjcmV0").decode()]),
        ("100%", ["100%25", "100%2525", b64encode(b"100%").decode()]),
        ("", []),
        ("abc\n", []),
        ("caf\udce9", ["caf\udce9", "caf%25E9", b64encode(b"caf\xe9").decode()]),  # not UTF-8
    ],
)
def test_secrets_are_masked_line_by_line_in_every_encoding(value: str, masked: list[str]) -> None:
    out = io.StringIO()
    mask(["TOKEN"], {"TOKEN": value, "OTHER": "untouched"}, out)
    assert out.getvalue().splitlines() == [f"::add-mask::{one}" for one in masked]


def test_secrets_are_masked_before_any_other_output() -> None:
    env = {"GITHUB_ACTIONS": "true", "IMAGE_UPDATE_GIT_TOKEN": "s3cret"}
    done = image_update("run", "--image", WEB, "--applications", "x", env=env)
    assert done.stderr.splitlines()[0] == "::add-mask::s3cret"
    assert "s3cret" not in done.stdout


def test_no_mask_commands_are_printed_outside_of_github() -> None:
    done = image_update(
        "run", "--image", WEB, "--applications", "x", env={"IMAGE_UPDATE_GIT_TOKEN": "s3cret"}
    )
    assert "s3cret" not in done.stdout + done.stderr
