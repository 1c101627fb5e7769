"""ARGOCD_OPTS and related variables have the same meaning as in the argocd CLI."""

from dataclasses import fields

import pytest

from task.argocd.connection import Connection, connection, parse_headers, parse_options
from task.errors import Malformed
from task.secret import Secret


def vars_of(found: Connection) -> dict[str, object]:
    return {field.name: getattr(found, field.name) for field in fields(found)}


def shown(found: Connection) -> dict[str, object]:
    """Return a connection's non-default settings, with secrets revealed."""
    headers = tuple((name, value.reveal()) for name, value in found.headers)
    plain = {**vars_of(found), "token": found.token.reveal(), "headers": headers}
    default = {**vars_of(Connection()), "token": ""}
    return {name: value for name, value in plain.items() if value != default[name]}


OPTIONS = [
    ("", {}),
    ("--server cd.example.com --plaintext", {"server": "cd.example.com", "plaintext": True}),
    ("--server=cd.example.com:8443 --insecure", {"server": "cd.example.com:8443", "insecure": True}),
    ("--grpc-web --auth-token abc", {"token": "abc"}),
    ("--plaintext=false --insecure=true", {"insecure": True}),
    ("--plaintext true", {"plaintext": True}),
    ("--grpc-web-root-path /argo/cd", {"root_path": "/argo/cd"}),
    ("--server-crt ca.pem --client-crt c.pem --client-crt-key k.pem",
     {"ca_file": "ca.pem", "certificate": "c.pem", "key": "k.pem"}),
    ("--header 'CF-Access-Client-Id: me' -H 'X: y'", {"headers": (("CF-Access-Client-Id", "me"), ("X", "y"))}),
    ("--header 'A: 1,B: 2'", {"headers": (("A", "1"), ("B", "2"))}),
    ("-H=A:1 -HB:2", {"headers": (("A", "1"), ("B", "2"))}),
    ("--loglevel debug --http-retry-max 3", {}),
    ("--port-forward --port-forward-namespace argocd", {"unused": ("port-forward", "port-forward-namespace")}),
    ("--core=false", {}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), OPTIONS, ids=[words for words, _ in OPTIONS])
def test_options_in_argocd_opts_are_parsed(words: str, expected: dict[str, object]) -> None:
    assert shown(parse_options(words)) == expected


WRONG = [
    ("word --server x", "does not belong to an option"),
    ("--server x hunter2", "does not belong to an option"),
    ("--auth-token 'hunter2", "quote"),
    ("--auth-token", "--auth-token in ARGOCD_OPTS has no value"),
    ("--server --insecure", "--server in ARGOCD_OPTS has no value"),
    ("--header hunter2", "Name: value"),
    ("--header 'A b: hunter2'", "Name: value"),
    ("--header 'A: hunter2\x07'", "has an invalid value"),
    ("--header 'A: hunter2\nB: c'", "has a line break"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[words for words, _ in WRONG])
def test_invalid_options_are_reported_without_their_values(words: str, message: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_options(words)
    assert message in caught.value.message
    assert "hunter2" not in caught.value.message + caught.value.hint


MERGED = [
    (Connection(), {"ARGOCD_SERVER": "a.example"}, "https://a.example"),
    (
        Connection(),
        {"ARGOCD_SERVER": "a.example", "ARGOCD_OPTS": "--server b.example"},
        "https://b.example",
    ),
    (
        Connection("c.example"),
        {"ARGOCD_SERVER": "a", "ARGOCD_OPTS": "--server b.example"},
        "https://c.example",
    ),
    (Connection("c.example", plaintext=True), {}, "http://c.example"),
    (Connection("http://c.example", plaintext=True), {}, "http://c.example"),
    (Connection("https://c.example/argo/"), {}, "https://c.example/argo"),
    (Connection("c.example", root_path="argo/cd/"), {}, "https://c.example/argo/cd"),
    (Connection("[::1]:8080"), {}, "https://[::1]:8080"),
    (Connection(), {"ARGOCD_SERVER": " a.example\n"}, "https://a.example"),
]


@pytest.mark.parametrize(("given", "environ", "base"), MERGED, ids=[base for _, _, base in MERGED])
def test_the_api_address_comes_from_options_or_variables(
    given: Connection, environ: dict[str, str], base: str
) -> None:
    assert connection(given, environ).base == base


def test_the_token_from_the_most_specific_source_is_used() -> None:
    environ = {
        "ARGOCD_SERVER": "a",
        "ARGOCD_AUTH_TOKEN": "variable",
        "ARGOCD_OPTS": "--auth-token opts",
    }
    assert connection(Connection(token=Secret("given")), environ).token.reveal() == "given"
    assert connection(Connection(), environ).token.reveal() == "opts"
    assert connection(Connection(), {**environ, "ARGOCD_OPTS": ""}).token.reveal() == "variable"


NOWHERE = [
    (Connection(), {}, "no Argo CD server is set"),
    (Connection(), {"ARGOCD_OPTS": "--core"}, "--core in ARGOCD_OPTS"),
    (Connection("http://a.example"), {}, "unencrypted"),
    (Connection("ftp://a.example"), {}, "cannot be used to reach"),
    (Connection("me:hunter2@a.example"), {}, "is not a valid host"),
    (Connection("a.example", certificate="c.pem"), {}, "needs its key"),
]


@pytest.mark.parametrize(
    ("given", "environ", "message"), NOWHERE, ids=[message for _, _, message in NOWHERE]
)
def test_invalid_server_settings_are_reported(
    given: Connection, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(Malformed, match=message) as caught:
        connection(given, environ)
    assert "hunter2" not in str(caught.value)


def test_the_repr_of_a_connection_reveals_no_secret() -> None:
    found = parse_options("--auth-token hunter2 --header 'X: hunter2'")
    assert "hunter2" not in repr(found)
    assert parse_headers(["X: hunter2"])[0][1].reveal() == "hunter2"
