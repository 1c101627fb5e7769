"""The client for HTTP services: its limits, which servers receive a login, and what is logged."""

import email.utils
import gzip
import socket
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.clock import Clock
from support.serving import Answers as Server

from task.errors import CredentialsError, NoAnswerError
from task.http import Http, Limits, Response

QUICK = Limits(connect=2, silence=2, total=5, size=100_000, tries=1)
SECRET = "t0ken-s3cret"


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    with ExitStack() as running:

        def one(host: str = "127.0.0.1") -> Server:
            server = running.enter_context(Server(host))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            running.callback(thread.join)
            running.callback(server.shutdown)
            return server

        yield one


@pytest.fixture
def server(start: Callable[..., Server]) -> Server:
    return start()


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("task.shutdown.sleep", slept.append)
    return slept


def http(server: Server | str, **how: Any) -> Http:
    base = server if isinstance(server, str) else server.url
    return Http(
        base, **{"limits": QUICK, "login": lambda: {"Authorization": f"Bearer {SECRET}"}, **how}
    )


def raw(start_with: bytes, drip: bytes = b"", pause: float = 0.05) -> tuple[socket.socket, str]:
    """A server that sends these bytes to the first client, and then keeps sending `drip` at
    intervals, forever.
    """
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            there, _ = listening.accept()
            with there:
                there.recv(65536)
                there.sendall(start_with)
                while drip:
                    there.sendall(drip)
                    time.sleep(pause)
        except OSError:
            return

    threading.Thread(target=serve, daemon=True).start()
    return listening, f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("status", [200, 201, 301, 400, 401, 404, 418, 500])
def test_every_status_code_is_returned_to_the_caller(server: Server, status: int) -> None:
    server.reply = lambda _: (status, {"X-A": "b"}, b'{"a": 1}')
    answer = http(server).ask("GET", "/x")
    assert (answer.status, answer.json(), answer.headers["x-a"]) == (status, {"a": 1}, "b")


def test_a_request_has_the_given_path_body_and_headers(server: Server) -> None:
    asked = http(f"{server.url}/base/")
    asked.ask("POST", "/a", json={"b": 1}, params={"q": "x y"}, headers={"X-Mine": "1"})
    method, path, headers, body = server.seen[0]
    assert (method, path, body) == ("POST", "/base/a?q=x+y", b'{"b": 1}')
    assert (headers["X-Mine"], headers["User-Agent"], headers["Accept-Encoding"]) == (
        "1",
        "image-update",
        "gzip",
    )


@pytest.mark.parametrize(
    ("method", "again", "requests"),
    [
        ("GET", None, 3),
        ("HEAD", None, 3),
        ("PUT", None, 3),
        ("POST", None, 1),
        ("POST", True, 3),
        ("GET", False, 1),
    ],
)
def test_a_request_to_a_busy_server_is_repeated_if_that_is_safe(
    server: Server, naps: list[float], method: str, again: bool | None, requests: int
) -> None:
    server.reply = lambda _: (503, {}, b"")
    assert http(server, limits=replace(QUICK, tries=3)).ask(method, "/", again=again).status == 503
    assert len(server.seen) == requests
    assert naps == [0.5, 2.0][: requests - 1]


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ("0", [0.0]),
        ("7", [7.0]),
        (" 7 ", [7.0]),
        ("1.5", [1.5]),
        ("31", []),  # longer than the client waits, so the response is returned
        ("9" * 400, []),
        ("soon", [0.5]),
        ("-5", [0.5]),
        ("²", [0.5]),
        ("nan", [0.5]),
        ("Fri, 01 Jan 2016 00:00:00 GMT", [0.0]),
        ("Fri, 99 Jan 2016 00:00:00 GMT", [0.5]),
        ("Fri, 01 Jan 2100 00:00:00 GMT", []),
    ],
)
def test_a_retry_after_in_seconds_or_as_a_past_date_is_respected(
    server: Server, naps: list[float], said: str, waits: list[float]
) -> None:
    answers = [(429, {"Retry-After": said}, b""), (200, {}, b"")]
    server.reply = lambda _: answers.pop(0)
    status = http(server, limits=replace(QUICK, tries=3)).ask("GET", "/").status
    assert (naps, status) == (waits, 200 if waits else 429)


def test_a_retry_after_as_a_future_date_is_respected(server: Server, naps: list[float]) -> None:
    later = email.utils.formatdate(time.time() + 9, usegmt=True)
    answers = [(503, {"Retry-After": later}, b""), (200, {}, b"")]
    server.reply = lambda _: answers.pop(0)
    http(server, limits=replace(QUICK, tries=2)).ask("GET", "/")
    assert 7 <= naps[0] <= 9


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_server_carries_no_secrets(
    start: Callable[..., Server], status: int
) -> None:
    one, other = start(), start("localhost")
    one.reply = lambda _: (status, {"Location": f"{other.url}/there?sig=1"}, b"")
    private = {
        "Authorization": "Basic x",
        "PRIVATE-TOKEN": SECRET,
        "Cookie": SECRET,
        "X-Registry-Auth": SECRET,
    }
    answer = http(one).ask(
        "GET", "/", headers={**private, "Accept": "a/b"}, params={"token": SECRET}
    )
    assert answer.url == f"{other.url}/there?sig=1"
    assert SECRET not in other.told + str(other.seen)
    assert "Authorization" not in other.told
    assert other.seen[0][2]["Accept"] == "a/b"


def test_a_redirect_to_another_port_is_treated_as_another_server(
    start: Callable[..., Server],
) -> None:
    one, other = start(), start()
    one.reply = lambda _: (302, {"Location": other.url}, b"")
    http(one).ask("GET", "/")
    assert SECRET not in other.told


def test_a_redirect_within_the_server_keeps_the_login(server: Server) -> None:
    server.reply = lambda path: (
        (302, {"Location": "b?x=1"}, b"") if path == "/a" else (200, {}, b"")
    )
    assert http(server).ask("HEAD", "/a").status == 200
    assert [(path, SECRET in str(headers)) for _, path, headers, _ in server.seen] == [
        ("/a", True),
        ("/b?x=1", True),
    ]


def test_a_url_of_another_server_is_requested_without_the_login(
    start: Callable[..., Server],
) -> None:
    one, other = start(), start("localhost")
    http(one).ask("GET", f"{other.url}/x")
    assert SECRET not in other.told


@pytest.mark.parametrize("path", ["/a?next=https://other.example/", "/a/http://other.example"])
def test_a_path_that_contains_a_url_stays_a_path(server: Server, path: str) -> None:
    http(server).ask("GET", path)
    assert server.seen[0][1].startswith("/a")


def test_a_request_that_changes_something_does_not_follow_redirects(server: Server) -> None:
    server.reply = lambda _: (307, {"Location": "/b"}, b"")
    assert http(server).ask("POST", "/a", json={}).status == 307
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "target", ["ftp://127.0.0.1/x", "file:///etc/passwd", "javascript:x", "gopher://x"]
)
def test_redirects_to_other_schemes_are_rejected(server: Server, target: str) -> None:
    server.reply = lambda _: (302, {"Location": target}, b"")
    with pytest.raises(NoAnswerError) as refused:
        http(server).ask("GET", "/")
    assert refused.value.kind == "redirect"


@pytest.mark.parametrize("text", ["\n", "\r\nX: y", "\0", "€"])
def test_credentials_that_do_not_fit_in_a_header_are_an_error_without_secrets(
    server: Server, text: str
) -> None:
    with pytest.raises(CredentialsError, match="characters that cannot be sent") as caught:
        http(server, login=lambda: {"Authorization": f"Bearer {SECRET}{text}"}).ask("GET", "/x")
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert server.seen == []


def test_a_redirect_loop_is_an_error(server: Server) -> None:
    server.reply = lambda _: (302, {"Location": "/"}, b"")
    with pytest.raises(NoAnswerError, match="loop"):
        http(server).ask("GET", "/")
    assert len(server.seen) == 5


def test_urls_in_the_log_contain_no_secrets(server: Server) -> None:
    lines: list[str] = []
    server.reply = lambda path: (
        (302, {"Location": f"/b?X-Amz-Signature={SECRET}"}, b"") if path == "/a" else (200, {}, b"")
    )
    http(server, log=lines.append).ask("GET", "/a")
    assert len(lines) == 2
    assert SECRET not in "".join(lines)


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(b"0" * 50_000_000),
        gzip.compress(b"0" * 100_001),
        b"0" * 100_001,
    ],
    ids=["bomb", "just too large", "plain"],
)
def test_a_body_above_the_limit_is_an_error(server: Server, packed: bytes) -> None:
    encoding = {"Content-Encoding": "gzip"} if packed[:2] == b"\x1f\x8b" else {}
    server.reply = lambda _: (200, encoding, packed)
    with pytest.raises(NoAnswerError) as refused:
        http(server).ask("GET", "/")
    assert refused.value.kind == "large"


def test_a_body_at_the_limit_is_read(server: Server) -> None:
    server.reply = lambda _: (200, {"Content-Encoding": "gzip"}, gzip.compress(b"0" * 100_000))
    assert http(server).ask("GET", "/").body == b"0" * 100_000


@pytest.mark.parametrize("encoding", ["gzip, gzip", "deflate", "br", "zstd", "x"])
def test_an_unrequested_content_encoding_is_an_error(server: Server, encoding: str) -> None:
    server.reply = lambda _: (200, {"Content-Encoding": encoding}, zlib.compress(b"x"))
    with pytest.raises(NoAnswerError, match="encoding"):
        http(server).ask("GET", "/")


def test_a_corrupt_gzip_body_is_an_error(server: Server) -> None:
    server.reply = lambda _: (200, {"Content-Encoding": "gzip"}, b"no gzip")
    with pytest.raises(NoAnswerError) as refused:
        http(server).ask("GET", "/")
    assert refused.value.kind == "unreachable"


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"not http\r\n\r\n",
        b"",
    ],
)
def test_a_truncated_or_invalid_response_is_an_error(sent: bytes) -> None:
    listening, url = raw(sent)
    with listening, pytest.raises(NoAnswerError) as refused:
        http(url).ask("GET", "/")
    assert refused.value.kind == "unreachable"


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX-Slow: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["status", "header", "body", "body without a length"],
)
def test_a_response_that_arrives_in_drips_is_stopped_at_the_time_limit(begin: bytes) -> None:
    listening, url = raw(begin, b"x")
    with listening, pytest.raises(NoAnswerError) as refused:
        http(url, limits=Limits(silence=5, total=0.5, tries=1)).ask("GET", "/")
    assert refused.value.kind == "slow"


def test_a_silent_server_is_stopped_at_the_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = http(
            f"http://127.0.0.1:{silent.getsockname()[1]}", limits=Limits(silence=0.2, tries=1)
        )
        with pytest.raises(NoAnswerError) as refused:
            asked.ask("GET", "/")
    assert refused.value.kind == "slow"


def test_a_closed_port_is_an_error_without_secrets() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NoAnswerError) as refused:
            http(url).ask("GET", f"/?token={SECRET}")
    assert refused.value.kind == "unreachable"
    assert SECRET not in refused.value.message
    assert refused.value.__cause__ is None


def test_the_netrc_file_is_not_read(server: Server, home: Path) -> None:
    (home / ".netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    (home / ".netrc").chmod(0o600)
    http(server, login=None).ask("GET", "/")
    assert "Authorization" not in server.told


def test_cookies_are_not_sent_back(server: Server) -> None:
    server.reply = lambda _: (200, {"Set-Cookie": f"session={SECRET}; Path=/"}, b"")
    asked = http(server)
    asked.ask("GET", "/")
    asked.ask("GET", "/")
    assert "Cookie" not in server.told


@pytest.mark.parametrize("proxy", [None, "given"])
def test_requests_go_through_the_proxy(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, proxy: str | None
) -> None:
    between = start()
    if proxy is None:
        monkeypatch.setenv("HTTP_PROXY", between.url)
        monkeypatch.setenv("http_proxy", between.url)
    http("http://registry.example", proxy=proxy and between.url).ask("GET", "/v2/")
    assert between.seen[0][1] == "http://registry.example/v2/"


@pytest.mark.parametrize("how", ["no_proxy", "none"])
def test_requests_bypass_the_proxy_if_it_is_disabled(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    between, server = start(), start()
    monkeypatch.setenv("http_proxy", between.url)
    if how == "no_proxy":
        monkeypatch.setenv("no_proxy", "127.0.0.1")
    http(server, proxy="" if how == "none" else None).ask("GET", "/")
    assert (len(between.seen), len(server.seen)) == (0, 1)


def test_the_error_for_an_unreachable_proxy_hides_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:{SECRET}@127.0.0.1:9")
    with pytest.raises(NoAnswerError, match="proxy") as refused:
        http("http://registry.example").ask("GET", "/")
    assert SECRET not in refused.value.message


@pytest.mark.parametrize("given", ["ftp://127.0.0.1:9", "http://127.0.0.1:port", "socks9://a:1"])
def test_an_invalid_proxy_url_is_an_error(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", given)
    with pytest.raises(NoAnswerError, match=r"the proxy to .* is not configured correctly"):
        http("http://registry.example").ask("GET", "/")


def test_the_error_for_a_silent_proxy_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{there.getsockname()[1]}")
        with pytest.raises(NoAnswerError, match=r"in time through the proxy .see HTTPS_PROXY"):
            http("http://registry.example", limits=replace(QUICK, silence=0.2)).ask("GET", "/")


@pytest.mark.parametrize("file", ["/nonexistent/ca.pem", "/dev/null"])
def test_an_unreadable_ca_file_is_an_error(file: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there, pytest.raises(NoAnswerError) as refused:
        http(f"https://127.0.0.1:{there.getsockname()[1]}", ca_file=file).ask("GET", "/")
    assert refused.value.kind in ("tls", "slow", "unreachable")


def test_a_server_without_tls_is_an_error(server: Server) -> None:
    with pytest.raises(NoAnswerError) as refused:
        http(server.url.replace("http:", "https:"), limits=replace(QUICK, silence=1)).ask(
            "GET", "/"
        )
    assert refused.value.kind in ("unreachable", "slow")


@pytest.mark.parametrize(
    "url", ["http://", "http://a..b/", "http://[::1/", "http://host:port/", "http://\udcff/"]
)
def test_invalid_urls_are_errors(url: str) -> None:
    with pytest.raises(NoAnswerError):
        http(url).ask("GET", "/")


def test_the_text_of_an_error_body_is_printable_and_short() -> None:
    answer = Response(500, {}, b"<b>\x1b[31mred\x00\r\n::error::\xff" + b"x" * 10_000, "")
    assert answer.text(40).isprintable()
    assert len(answer.text()) == 300


def test_a_consistently_slow_server_is_no_longer_contacted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("task.http.time", clock)

    def reply(_path: str) -> tuple[int, dict[str, str], bytes]:
        clock.time += 20
        return 200, {}, b"{}"

    server.reply = reply
    limits = replace(QUICK, total=30)
    http = Http(server.url, limits=replace(limits, slow=50))
    with pytest.raises(
        NoAnswerError, match="has been slow for 60 seconds, and is no longer contacted"
    ) as caught:
        [http.ask("GET", "/") for _ in range(10)]
    assert caught.value.kind == "slow"
    assert len(server.seen) == 3
    patient = Http(server.url, limits=limits)
    assert [patient.ask("GET", "/").status for _ in range(4)] == [200] * 4
