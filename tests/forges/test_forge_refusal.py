"""What a run reports if a forge rejects a request."""

import json
from typing import Any

import pytest
from requests.structures import CaseInsensitiveDict

from task.errors import (
    CredentialsError,
    Exit,
    ForgeError,
    NoAnswerError,
    RepositoryError,
    TaskError,
    UnreachableError,
)
from task.forges.client import (
    ForgeAddress,
    ForgeToken,
    Reach,
    forge_message,
    no_response_error,
    rate_limit_wait,
)
from task.forges.places import FORGES
from task.http import Response
from task.secret import Secret


def answer(status: int, body: Any = None, **headers: str) -> Response:
    text = body if isinstance(body, str) else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(
        status, CaseInsensitiveDict(named), text.encode(), "https://git.example.com/api"
    )


def refused(status: int, body: Any = None, *, secret: str = "", forge: str = "gitlab") -> TaskError:
    place = ForgeAddress(forge, "git.example.com", "https://git.example.com/api", ("acme", "web"))
    client = FORGES[forge].client.connect(Reach(place, ForgeToken(Secret(secret))), "give scope x")
    return client.error_for(answer(status, body), "open it")


STATUSES = [
    (301, ForgeError, Exit.CONFIGURATION, "redirects"),
    (307, ForgeError, Exit.CONFIGURATION, "redirects"),
    (400, ForgeError, Exit.CONFIGURATION, "rejected the request"),
    (401, CredentialsError, Exit.ACCESS, "does not accept the API token"),
    (403, RepositoryError, Exit.ACCESS, "does not allow this API token to open it"),
    (404, RepositoryError, Exit.ACCESS, "does not exist, or this API token cannot see it"),
    (405, ForgeError, Exit.CONFIGURATION, "rejected the request"),
    (408, UnreachableError, Exit.TEMPORARY, "failed"),
    (409, ForgeError, Exit.CONFIGURATION, "rejected the request"),
    (410, ForgeError, Exit.CONFIGURATION, "rejected the request"),
    (422, ForgeError, Exit.CONFIGURATION, "rejected the request"),
    (429, UnreachableError, Exit.TEMPORARY, "rate limit exceeded"),
    (500, UnreachableError, Exit.TEMPORARY, "failed"),
    (503, UnreachableError, Exit.TEMPORARY, "failed"),
]


@pytest.mark.parametrize(("status", "kind", "code", "said"), STATUSES)
def test_each_error_status_is_mapped_to_an_error(
    status: int, kind: type[TaskError], code: Exit, said: str
) -> None:
    error = refused(status, {"message": "its words"})
    assert (type(error), error.exit) == (kind, code)
    assert said in error.message
    assert f"{status} (its words)" in error.message
    assert "git.example.com" in error.message
    assert error.hint
    if status in (401, 403, 404):
        assert "give scope x" in error.hint


@pytest.mark.parametrize(
    ("forge", "token", "fix"),
    [
        (
            "gitlab",
            "ghp_s3cret",
            "starts with ghp_, like tokens from GitHub, but git.example.com runs GitLab: use a token",
        ),
        (
            "gitea",
            "glpat-s3cret",
            "starts with glpat-, like tokens from GitLab, but git.example.com runs Gitea or Forge",
        ),
        (
            "github",
            "ghp_s3cret",
            "replace it if it has expired, or pass another token in IMAGE_UPDATE_FORGE_TOKEN or --forge-token-file: give scope x",
        ),
    ],
)
def test_a_rejected_token_for_another_forge_leads_to_a_hint(
    forge: str, token: str, fix: str
) -> None:
    for status in (401, 403, 500):
        said = refused(status, secret=token, forge=forge)
        assert (fix in said.hint) == (status == 401)
        assert "s3cret" not in f"{said}{said.hint}"


WORDS = [
    (
        {"message": "Validation Failed", "errors": [{"message": "A pull request exists."}]},
        "Validation Failed; A pull request exists.",
    ),
    (
        {
            "message": "Validation Failed",
            "errors": [{"resource": "PullRequest", "field": "head", "code": "invalid"}],
        },
        "Validation Failed; resource: PullRequest; field: head; code: invalid",
    ),
    (
        {"message": ["Another open merge request already exists: !1"]},
        "Another open merge request already exists: !1",
    ),
    ({"message": {"title": ["is too long", "is odd"]}}, "title: is too long; title: is odd"),
    (
        {"error": "invalid_token", "error_description": "Token was revoked."},
        "Token was revoked.; invalid_token",
    ),
    (
        {
            "type": "error",
            "error": {"message": "Bad", "detail": "More", "fields": {"title": ["x"]}},
        },
        "Bad; More; title: x",
    ),
    (
        {"errors": [{"context": None, "message": "No such branch", "exceptionName": "com.x"}]},
        "No such branch",
    ),
    (
        {"$id": "1", "message": "TF401179: active already", "typeKey": "X"},
        "TF401179: active already",
    ),
    ({"message": None}, ""),
    ([], ""),
    ({}, ""),
    ("plain text", "plain text"),
    ('{"message": "cut', '{"message": "cut'),
    ("a\u202eb\x1b[2J\nc", "a b [2J c"),
]


@pytest.mark.parametrize(("body", "said"), WORDS)
def test_error_messages_are_extracted_from_the_response(body: Any, said: str) -> None:
    assert forge_message(answer(422, body)) == said


def test_web_pages_and_long_messages_are_not_shown() -> None:
    assert (
        forge_message(
            answer(502, "<html><body>x</body></html>", Content_Type="text/html; charset=utf-8")
        )
        == ""
    )
    assert len(forge_message(answer(422, {"message": "x" * 5000}))) == 301
    nested: Any = "deep"
    for _ in range(50):
        nested = {"errors": [nested]}
    assert forge_message(answer(422, nested)) == ""


def test_a_secret_in_a_message_is_masked() -> None:
    said = forge_message(
        answer(401, {"message": "token abc-123 is unknown: abc-123"}), Secret("abc-123")
    )
    assert said == "token *** is unknown: ***"


LIMITED = [
    (answer(403, {"message": "no permission"}), None),
    (
        answer(403, {"message": "no"}, X_RateLimit_Remaining="7", X_RateLimit_Reset="9999999999"),
        None,
    ),
    (answer(401, {}, Retry_After="1"), None),
    (answer(429, {}, Retry_After="7"), 7.0),
    (answer(403, {}, Retry_After="7"), 7.0),
    (answer(403, {"message": "You have exceeded a secondary rate limit."}), 60.0),
    # the headers belong to the primary limit, which is reset in an hour
    (
        answer(
            403,
            {"message": "a secondary rate limit"},
            X_RateLimit_Remaining="4990",
            X_RateLimit_Reset="9999999999",
        ),
        60.0,
    ),
    (answer(429, {}, RateLimit_Remaining="12", RateLimit_Reset="9999999999"), 60.0),
    (answer(403, {}, Retry_After="Fri, 01 Jan 2016 00:00:00 GMT"), 0.0),
    (answer(429, {}), 60.0),
    (answer(429, {}, RateLimit_Reset="1"), 1.0),
    (answer(403, {}, X_RateLimit_Remaining="0", X_RateLimit_Reset="1"), 1.0),
]


@pytest.mark.parametrize(("said", "wait"), LIMITED)
def test_a_rate_limits_waiting_time_is_recognized(said: Response, wait: float | None) -> None:
    assert rate_limit_wait(said) == wait


def test_requests_without_a_response_are_mapped_to_errors() -> None:
    error = no_response_error(
        NoAnswerError("tls", "the TLS certificate of https://h was not accepted"), "open it"
    )
    assert isinstance(error, CredentialsError)
    assert "--ca-file" in error.hint
    for kind in ("unreachable", "slow", "large", "redirect"):
        error = no_response_error(NoAnswerError(kind, "https://h could not be reached"), "open it")
        assert type(error) is UnreachableError
        assert "could not open it" in error.message
