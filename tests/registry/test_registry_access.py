"""Which servers receive credentials, how rejections are interpreted, and what a registry can
trigger.
"""

import base64
import json
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from email.utils import formatdate
from pathlib import Path

import pytest
from fakes.oci_images import image
from fakes.registry_api import RegistryApi, registry_api
from support import needs
from support.clock import Clock

from task.annotations.keys import parse_credential_source
from task.errors import RegistryAccessError, RegistryDownError, RegistryError
from task.http import Limits, Response
from task.image import parse_image
from task.model import Answer, Question
from task.registry.api import registry_error_for
from task.registry.bearer_tokens import challenges, may_be_asked, may_get_login
from task.registry.client import Registry
from task.registry.docker_config import RegistryLogin, parse_docker_config
from task.registry.endpoint import RegistryConf, place_of
from task.registry.logins import Logins
from task.secret import Secret

pytestmark = pytest.mark.measured

API = image()
PASSWORD = "s3cret-pass/w@rd"
LOGIN = RegistryLogin("ci", Secret(PASSWORD), origin="the tests")
QUICK = Limits(connect=2, silence=2, total=5, tries=1)


@pytest.fixture
def servers() -> Iterator[Callable[..., RegistryApi]]:
    with ExitStack() as running:

        def start(host: str = "127.0.0.1") -> RegistryApi:
            server = running.enter_context(registry_api(host))
            server.put("acme/api", "1.0", API)
            return server

        yield start


@pytest.fixture
def server(servers: Callable[..., RegistryApi]) -> RegistryApi:
    return servers()


def registry(
    login: RegistryLogin | None = LOGIN, lines: list[str] | None = None, **ways: object
) -> Registry:
    given = {"127.0.0.1:*": login, "localhost:*": login} if login else {}
    return Registry(
        Logins({}, given),
        (lines if lines is not None else []).append,
        **{"limits": QUICK, **ways},  # type: ignore[arg-type]
    )


def ask(
    server: RegistryApi, asking: Registry | None = None, reference: str = "acme/api:1.0"
) -> Answer:
    question = Question(parse_image(f"{server.name}/{reference}"), ("digest", "exists"))
    return (asking or registry()).answer([question])[question]


def logins(server: RegistryApi) -> list[str]:
    return [one.login for one in server.seen if one.login]


def test_an_open_registry_receives_no_credentials(server: RegistryApi) -> None:
    assert ask(server).digest == API.digest
    assert not logins(server)


@pytest.mark.parametrize(
    "challenge",
    [
        'Basic realm="registry"',
        'Basic realm="https://1.dkr.ecr.eu-west-1.amazonaws.com/",service="ecr.amazonaws.com"',
        "Basic",
        'Basic realm="Sonatype Nexus Repository Manager", Negotiate',
    ],
)
def test_basic_authentication_is_sent_only_after_a_challenge(
    server: RegistryApi, challenge: str
) -> None:
    server.challenge, server.users = challenge, {"ci": PASSWORD}
    asking = registry()
    assert ask(server, asking).digest == API.digest
    assert ask(server, asking, "acme/api:2.0") == Answer(exists=False)
    assert [bool(one.login) for one in server.seen] == [False, True, True]


def test_a_bearer_token_is_requested_once_per_repository(server: RegistryApi) -> None:
    server.ask_for_tokens(ci=PASSWORD)
    server.put("acme/web", "1.0", API)
    asking = registry()
    for reference in ("acme/api:1.0", "acme/api:2.0", "acme/web:1.0"):
        assert ask(server, asking, reference).error is None
    tokens = [one for one in server.seen if one.path.startswith("/token")]
    assert [one.path.partition("?")[2] for one in tokens] == [
        "service=registry.example&scope=repository%3Aacme%2Fapi%3Apull",
        "service=registry.example&scope=repository%3Aacme%2Fweb%3Apull",
    ]
    assert len(server.seen) == 6


def test_many_threads_share_one_token_request(server: RegistryApi) -> None:
    server.ask_for_tokens(ci=PASSWORD)
    server.delay = 0.01
    questions = [
        Question(parse_image(f"{server.name}/acme/api:{tag}"), ("exists",)) for tag in range(30)
    ]
    answers = registry().answer(questions)
    assert all(found == Answer(exists=False) for found in answers.values())
    assert sum(one.path.startswith("/token") for one in server.seen) == 1


def test_an_anonymous_token_is_used_without_credentials(server: RegistryApi) -> None:
    server.ask_for_tokens()
    server.anonymous = True
    assert ask(server, registry(None)).digest == API.digest
    assert not [one for one in server.seen if one.login.startswith("Basic")]


@pytest.mark.parametrize(
    "answer",
    [
        {"access_token": None},
        {"token": "a b\r\nX: y"},
        {"token": "ü"},
        {"token": ""},
        {"token": 5},
        [],
        "token",
        {"token": "x", "expires_in": "soon"},
    ],
)
def test_a_response_without_a_valid_token_causes_an_error(
    server: RegistryApi, answer: object
) -> None:
    server.ask_for_tokens(ci=PASSWORD)
    server.token_answer = lambda _: answer
    error = ask(server).error
    assert isinstance(error, RegistryError)
    assert "did not return a token" in error.message


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"token":' * 100_000, b'{"token": "x", "expires_in": NaN}']
)
def test_a_hostile_token_server_does_not_affect_other_registries(
    servers: Callable[..., RegistryApi], body: bytes
) -> None:
    """A token server's response once ended the whole run with a RecursionError."""
    hostile, good = servers("127.0.0.1"), servers("localhost")
    hostile.ask_for_tokens(ci=PASSWORD)
    hostile.faults["/token"] = lambda _: (200, {"Content-Type": "application/json"}, body)
    questions = [
        Question(parse_image(f"{server.name}/acme/api:1.0"), ("digest",))
        for server in (hostile, good)
    ]
    answers = registry().answer(questions)
    error = answers[questions[0]].error
    assert isinstance(error, RegistryError)
    assert "did not return a token" in error.message
    assert answers[questions[1]].digest == API.digest


@pytest.mark.parametrize(
    "life", [{}, {"expires_in": 1}, {"expires_in": 3600, "issued_at": "x"}, {"expires_in": None}]
)
def test_a_token_named_access_token_is_accepted(
    server: RegistryApi, life: dict[str, object]
) -> None:
    server.ask_for_tokens(ci=PASSWORD)
    server.token_answer = lambda token: {"access_token": token, **life}
    assert ask(server).digest == API.digest


def test_a_token_that_expired_early_is_renewed(server: RegistryApi) -> None:
    server.ask_for_tokens(ci=PASSWORD)
    asking = registry()
    assert ask(server, asking).error is None
    server.tokens.clear()
    assert ask(server, asking, "acme/api:2.0") == Answer(exists=False)


@pytest.mark.parametrize(
    "login",
    [
        RegistryLogin("00000000-0000-0000-0000-000000000000", Secret("refresh")),  # `az acr login`
        RegistryLogin("", identity=Secret("refresh")),
        RegistryLogin("<token>", Secret("refresh")),
    ],
)
def test_a_refresh_token_is_exchanged(server: RegistryApi, login: RegistryLogin) -> None:
    server.ask_for_tokens()
    server.refresh_tokens = {"refresh"}
    assert ask(server, registry(login)).digest == API.digest
    (sent,) = [one for one in server.seen if one.path == "/token"]
    assert sent.method == "POST"
    assert b"grant_type=refresh_token" in sent.body
    assert b"scope=repository%3Aacme%2Fapi%3Apull" in sent.body


def test_a_refresh_token_is_also_tried_as_a_password(server: RegistryApi) -> None:
    server.ask_for_tokens(**{"00000000-0000-0000-0000-000000000000": "refresh"})
    login = RegistryLogin("00000000-0000-0000-0000-000000000000", Secret("refresh"))
    assert ask(server, registry(login)).digest == API.digest


def test_a_ready_made_token_is_used_unchanged(server: RegistryApi) -> None:
    server.ask_for_tokens()
    server.tokens = {"mine.acme%2Fapi"}
    assert (
        ask(server, registry(RegistryLogin(token=Secret("mine.acme%2Fapi")))).digest == API.digest
    )
    assert "/token" not in "".join(server.asked)


@pytest.mark.parametrize(
    "challenge", ['Basic realm="x", Bearer realm="{}"', 'Bearer realm="{}", Basic realm="x"']
)
def test_basic_authentication_is_preferred_to_an_unknown_token_server(
    server: RegistryApi, challenge: str
) -> None:
    server.users = {"ci": PASSWORD}
    server.challenge = 'Basic realm="x"'
    server.lies["WWW-Authenticate"] = challenge.format("https://thief.example/token")
    assert ask(server).digest == API.digest


def test_the_token_server_may_use_another_port_of_the_same_host(
    servers: Callable[..., RegistryApi],
) -> None:
    one, other = servers(), servers()
    other.users = {"ci": PASSWORD}
    one.ask_for_tokens(other.url + "/token?account=x")
    one.tokens = other.tokens
    assert ask(one).digest == API.digest
    assert other.seen[0].path.startswith("/token?account=x&service=")


@pytest.mark.parametrize(
    "realm",
    [
        "http://localhost:{}/token",
        "https://thief.example/token",
        "file:///etc/passwd",
        "/token",
        "",
        "token",
    ],
)
def test_the_login_is_never_sent_to_an_unknown_token_server(
    servers: Callable[..., RegistryApi], realm: str
) -> None:
    one, thief = servers(), servers("localhost")
    one.challenge = f'Bearer realm="{realm.format(thief.server_address[1])}",service="x"'
    error = ask(one).error
    assert type(error) is RegistryAccessError
    assert "not sent to that server" in error.message
    assert not thief.seen
    assert not logins(one)


def test_an_unencrypted_token_server_on_another_host_is_never_contacted(
    servers: Callable[..., RegistryApi],
) -> None:
    one, other = servers(), servers("localhost")
    one.challenge = f'Bearer realm="{other.url}/token",service="x"'
    assert isinstance(ask(one, registry(None)).error, RegistryAccessError)
    assert not other.seen


def test_a_redirect_does_not_carry_the_login(servers: Callable[..., RegistryApi]) -> None:
    one, store = servers(), servers("localhost")
    one.challenge, one.users = 'Basic realm="x"', {"ci": PASSWORD}
    config = next(iter(API.blobs))
    signed = f"{store.url}/v2/acme/api/blobs/{config}?X-Amz-Signature=s1gn3d"
    one.faults[f"/blobs/{config}"] = lambda _: (307, {"Location": signed}, b"")
    lines: list[str] = []
    question = Question(parse_image(f"{one.name}/acme/api:1.0"), ("created",))
    assert registry(lines=lines).answer([question])[question].created
    assert len(store.seen) == 1
    assert not logins(store)
    assert "s1gn3d" not in "".join(lines)
    assert PASSWORD not in "".join(lines)


def test_a_manifest_request_may_be_redirected(servers: Callable[..., RegistryApi]) -> None:
    one, other = servers(), servers("localhost")
    one.faults["/manifests/1.0"] = lambda seen: (302, {"Location": other.url + seen.path}, b"")
    assert ask(one).digest == API.digest


@pytest.mark.parametrize(
    ("status", "code", "login", "kind", "words"),
    [
        (
            401,
            "UNAUTHORIZED",
            None,
            RegistryAccessError,
            "does not allow anonymous access to acme/api",
        ),
        (401, "UNAUTHORIZED", LOGIN, RegistryAccessError, "does not accept the credentials"),
        (403, "DENIED", None, RegistryAccessError, "no such repository"),
        (403, "DENIED", LOGIN, RegistryAccessError, "403 DENIED"),
        (400, "NAME_INVALID", None, RegistryError, "400 NAME_INVALID"),
        (418, "", None, RegistryError, "418"),
        (500, "", None, RegistryDownError, "500"),
        (503, "UNAVAILABLE", None, RegistryDownError, "503 UNAVAILABLE"),
        (429, "TOOMANYREQUESTS", None, RegistryDownError, "rate limit exceeded"),
        (403, "TOOMANYREQUESTS", None, RegistryDownError, "rate limit exceeded"),
        (204, "", None, RegistryError, "204"),
    ],
)
def test_each_rejection_is_mapped_to_an_error_without_the_password(
    server: RegistryApi,
    status: int,
    code: str,
    login: RegistryLogin | None,
    kind: type[RegistryError],
    words: str,
) -> None:
    body = (
        f'{{"errors": [{{"code": "{code}", "message": "{PASSWORD}"}}]}}'.encode()
        if code
        else b"oops"
    )
    server.faults["/manifests/1.0"] = lambda seen: (
        status,
        {},
        b"" if seen.method == "HEAD" else body,
    )
    question = Question(parse_image(f"{server.name}/acme/api:1.0"), ("created",))
    error = registry(login).answer([question])[question].error
    assert type(error) is kind
    assert words in error.message
    assert error.hint
    assert PASSWORD not in error.message + error.hint


@pytest.mark.parametrize("as_date", [False, True])
def test_the_error_for_a_busy_registry_states_the_waiting_time(
    server: RegistryApi, as_date: bool
) -> None:
    later = formatdate(time.time() + 3600, usegmt=True) if as_date else "3600"
    server.faults["/manifests/1.0"] = lambda _: (429, {"Retry-After": later}, b"")
    error = ask(server).error
    assert error is not None
    wait = re.search(r"retry after (\d+) s", error.message)
    assert wait is not None
    assert 3500 < int(wait[1]) <= 3600


def test_a_request_is_retried_after_a_short_wait(server: RegistryApi) -> None:
    told: list[int] = []

    def busy(_: object) -> tuple[int, dict[str, str], bytes] | None:
        told.append(1)
        return (429, {"Retry-After": "0"}, b"") if len(told) == 1 else None

    server.faults["/manifests/1.0"] = busy
    assert ask(server, registry(limits=Limits(tries=2))).digest == API.digest


def test_docker_hub_limits_are_explained() -> None:
    error = registry_error_for("docker.io", "library/nginx", Response(429, {}, b"", ""), None)
    assert "credentials" in error.hint
    assert error.exit == 75


def test_an_unreachable_registry_is_reported_for_all_its_images() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        questions = [
            Question(parse_image(f"127.0.0.1:{port}/a/b:{tag}"), ("digest",)) for tag in range(200)
        ]
        answers = registry(None, limits=Limits(connect=1, tries=2)).answer(questions)
    assert {type(found.error) for found in answers.values()} == {RegistryDownError}


def test_one_registry_that_is_down_does_not_stop_the_others(server: RegistryApi) -> None:
    down = Question(parse_image("127.0.0.1:9/a/b:1"), ("digest",))
    up = Question(parse_image(f"{server.name}/acme/api:1.0"), ("digest",))
    answers = registry(None).answer([down, up])
    assert (type(answers[down].error), answers[up].digest) == (RegistryDownError, API.digest)


def test_a_truncated_response_causes_a_temporary_error(server: RegistryApi) -> None:
    server.faults["/manifests/1.0"] = lambda _: (
        200,
        {"Content-Length": "1000", "Connection": "close"},
        b'{"schema',
    )
    question = Question(parse_image(f"{server.name}/acme/api:1.0"), ("created",))
    assert type(registry(None).answer([question])[question].error) is RegistryDownError


@pytest.mark.parametrize("how", ["silent", "closed"])
def test_a_silent_registry_causes_a_temporary_error(how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:

        def accept() -> None:
            with suppress(OSError):
                while how == "closed":
                    deaf.accept()[0].close()

        threading.Thread(target=accept, daemon=True).start()
        question = Question(parse_image(f"127.0.0.1:{deaf.getsockname()[1]}/a/b:1"), ("created",))
        limits = Limits(connect=0.3, silence=0.3, total=1, tries=1)
        error = registry(None, limits=limits).answer([question])[question].error
    assert type(error) is RegistryDownError


def test_an_https_registry_is_trusted_through_its_certificate_or_the_insecure_option(
    tmp_path: Path, servers: Callable[..., RegistryApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers("localhost")
    certificate = _certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    assert isinstance(ask(server, registry(None)).error, RegistryAccessError)
    assert ask(server, registry(None, ca=certificate.read_text())).digest == API.digest
    bad = ask(
        server, registry(None, ca="-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----")
    ).error
    assert isinstance(bad, RegistryAccessError)
    entry = RegistryConf(
        "x", f"https://{server.name}", server.name, ca_data=certificate.read_text()
    )
    assert ask(server, registry(None, entries=(entry,))).digest == API.digest
    entry = RegistryConf("x", f"https://{server.name}", server.name, insecure=True)
    assert ask(server, registry(None, entries=(entry,))).digest == API.digest
    (tmp_path / "other").mkdir()
    monkeypatch.setenv(
        "REQUESTS_CA_BUNDLE", str(certificate)
    )  # still trusted in addition to the option
    assert (
        ask(server, registry(None, ca=_certificate(tmp_path / "other").read_text())).digest
        == API.digest
    )


def _certificate(folder: Path) -> Path:
    path = folder / "cert.pem"
    subprocess.run(
        [*needs("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(folder / "key.pem"), "-out", str(path)],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


def test_http_is_used_only_for_local_or_configured_registries(server: RegistryApi) -> None:
    def urls(reference: str, *entries: RegistryConf) -> tuple[str, ...]:
        return place_of(parse_image(reference), entries, "")[0].urls

    assert urls("localhost:5000/a/b:1")[0] == "http://localhost:5000"
    assert urls("[::1]:5000/a/b:1")[0] == "http://[::1]:5000"
    assert urls("127.9.9.9:5000/a/b:1")[0] == "http://127.9.9.9:5000"
    assert urls("127.evil.example:5000/a/b:1") == ("https://127.evil.example:5000",)
    assert urls("localhost.evil.example/a/b:1") == ("https://localhost.evil.example",)
    assert urls("10.0.0.1:5000/a/b:1") == ("https://10.0.0.1:5000",)
    assert urls("nginx:1") == ("https://registry-1.docker.io",)
    entry = RegistryConf("x", server.url, "reg.example")
    assert urls("reg.example/a/b:1", entry) == (server.url,)


def test_a_mirror_does_not_receive_docker_hub_credentials(server: RegistryApi) -> None:
    server.challenge = 'Basic realm="x"'
    server.put("library/nginx", "1", API)
    files = {
        "DOCKER_AUTH_CONFIG": '{"auths": {"https://index.docker.io/v1/": {"username": "u", "password": "p"}}}'
    }
    entry = RegistryConf("mirror", server.url, "docker.io")
    question = Question(parse_image("nginx:1"), ("digest",))
    error = (
        Registry(Logins(files), entries=(entry,), limits=QUICK).answer([question])[question].error
    )
    assert isinstance(error, RegistryAccessError)
    assert not logins(server)


@pytest.mark.parametrize(
    ("reference", "entry", "path"),
    [
        ("nginx:1", {"prefix": ""}, "library/nginx"),
        ("nginx:1", {"prefix": "docker.io", "defaultns": "mirror"}, "mirror/nginx"),
        ("nginx:1", {"prefix": "reg.example", "default": True}, "nginx"),
        ("nginx:1", {"prefix": "reg.example", "default": True, "defaultns": "base"}, "base/nginx"),
        (
            "acme/nginx:1",
            {"prefix": "reg.example", "default": True, "defaultns": "base"},
            "acme/nginx",
        ),
        ("reg.example/nginx:1", {"prefix": "reg.example", "defaultns": "base"}, "base/nginx"),
        ("reg.example/nginx:1", {"prefix": "reg.example"}, "nginx"),
        ("reg.example/acme/api:1", {"prefix": "reg.example/acme"}, "acme/api"),
    ],
)
def test_the_repository_path_follows_registries_conf(
    server: RegistryApi, reference: str, entry: dict[str, object], path: str
) -> None:
    server.put(path, "1", API)
    question = Question(parse_image(reference), ("digest",))
    conf = RegistryConf("x", server.url, **entry)  # type: ignore[arg-type]
    assert registry(None, entries=(conf,)).answer([question])[question].digest == API.digest
    assert server.asked == [f"HEAD /v2/{path}/manifests/1"]


def test_a_registry_below_a_path_is_read(server: RegistryApi) -> None:
    server.put("acme/api", "2.0", API)
    server.page = 1
    server.link = "relative"
    entry = RegistryConf("jfrog", f"{server.url}/artifactory/api/docker/local", server.name)
    asking = registry(None, entries=(entry,))
    assert ask(server, asking).digest == API.digest
    assert asking.repository(parse_image(f"{server.name}/acme/api")).tags() == ("1.0", "2.0")
    assert server.asked[0] == "HEAD /artifactory/api/docker/local/v2/acme/api/manifests/1.0"
    assert all(
        line.startswith(("GET /artifactory/", "HEAD /artifactory/")) for line in server.asked
    )


def test_the_request_limit_in_registries_conf_is_applied(
    server: RegistryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = RegistryConf("x", server.url, server.name, limit=20)
    questions = [
        Question(parse_image(f"{server.name}/acme/api:{tag}"), ("exists",)) for tag in range(11)
    ]
    slept: list[float] = []
    monkeypatch.setattr("task.registry.api.time", Clock())  # the clock stands still
    monkeypatch.setattr("task.shutdown.sleep", slept.append)
    registry(None, entries=(entry,)).answer(questions)
    assert sorted(slept) == [pytest.approx(number / 20) for number in range(11)]


def test_credentials_named_in_registries_conf_are_used(server: RegistryApi) -> None:
    server.challenge, server.users = 'Basic realm="x"', {"ci": PASSWORD}
    entry = RegistryConf(
        "x", server.url, server.name, credentials=parse_credential_source("env:REG")
    )
    question = Question(parse_image(f"{server.name}/acme/api:1.0"), ("digest",))
    asking = Registry(Logins({"REG": f"ci:{PASSWORD}"}), entries=(entry,), limits=QUICK)
    assert asking.answer([question])[question].digest == API.digest


def test_a_pull_secret_is_used_only_for_its_namespace(server: RegistryApi) -> None:
    pair = base64.b64encode(f"ci:{PASSWORD}".encode()).decode()
    data = {".dockerconfigjson": f'{{"auths": {{"{server.name}": {{"auth": "{pair}"}}}}}}'.encode()}
    server.challenge, server.users = 'Basic realm="x"', {"ci": PASSWORD}
    image_ = parse_image(f"{server.name}/acme/api:1.0")
    mine = Question(image_, ("digest",), secret="pullsecret:web/regcred", namespace="web")
    theirs = Question(image_, ("digest",), secret="pullsecret:web/regcred", namespace="other")
    asking = Registry(Logins({}, secret=lambda _namespace, _name: data), limits=QUICK)
    answers = asking.answer([mine, theirs])
    assert answers[mine].digest == API.digest
    error = answers[theirs].error
    assert error is not None
    assert "namespace" in error.message


def test_no_error_contains_a_secret(servers: Callable[..., RegistryApi]) -> None:
    """Every kind of credentials with every rejection, by a registry that echoes request headers."""
    lines: list[str] = []
    said: list[object] = []
    for login in (
        LOGIN,
        RegistryLogin("u", identity=Secret(PASSWORD)),
        RegistryLogin(token=Secret(PASSWORD)),
    ):
        for status in (200, 302, 400, 401, 403, 404, 429, 500):
            server = servers()
            server.ask_for_tokens(ci=PASSWORD)
            body = f'{{"errors": [{{"code": "{PASSWORD}", "message": "{PASSWORD}"}}], "token": "{PASSWORD}\n"}}'.encode()
            headers = {
                "Location": f"/x?password={PASSWORD}",
                "WWW-Authenticate": f'Basic realm="{PASSWORD}"',
            }
            for end in ("/manifests/1.0", "/token"):
                server.faults[end] = lambda _, s=status, h=headers, b=body: (s, h, b)  # type: ignore[misc]
                asking = registry(login, lines)
                said += [ask(server, asking), asking, vars(asking), login]
                server.faults.clear()
    texts = "".join(lines) + repr(said)
    hidden = base64.b64encode(f"ci:{PASSWORD}".encode()).decode()
    assert not [one for one in (PASSWORD, PASSWORD.replace("/", "%2F"), hidden) if one in texts]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            'Bearer realm="https://a/t",service="s",scope="repository:a/b:pull"',
            [("bearer", "https://a/t")],
        ),
        ('Basic realm="x"', [("basic", "x")]),
        ("Basic", [("basic", None)]),
        ('bearer Realm = "x" , service=y', [("bearer", "x")]),
        (
            'Negotiate, Bearer realm="a,b", Basic realm="c"',
            [("negotiate", None), ("bearer", "a,b"), ("basic", "c")],
        ),
        (r'Bearer realm="a\"b"', [("bearer", 'a"b')]),
        ("Bearer realm=https://a/t", [("bearer", "https://a/t")]),
        ('Bearer realm="first",realm="second"', [("bearer", "first")]),
        ("", []),
        ('realm="x"', []),
        ("=" * 100_000, []),
        ('"' * 100_000, []),
    ],
)
def test_authentication_challenges_are_parsed(
    header: str, expected: list[tuple[str, str | None]]
) -> None:
    assert [
        (scheme, parameters.get("realm")) for scheme, parameters in challenges(header).items()
    ] == expected


@pytest.mark.parametrize(
    ("registry_host", "other", "expected"),
    [
        ("ghcr.io", "ghcr.io", True),
        ("registry-1.docker.io", "auth.docker.io", True),
        ("index.docker.io", "auth.docker.io", True),
        ("evildocker.io", "auth.docker.io", False),
        ("acme-docker.pkg.coding.net", "auth.pkg.coding.net", True),
        ("registry2.balena-cloud.com", "api.balena-cloud.com", True),
        ("registry.gitlab.com", "gitlab.com", True),
        ("registry.example.com", "gitlab.example.com", True),
        ("registry.gitlab.example.com", "gitlab.example.com", True),
        ("a.azurecr.io", "a.azurecr.io", True),
        ("rg.fr-par.scw.cloud", "api.scaleway.com", True),
        ("registry.connect.redhat.com", "sso.redhat.com", True),
        ("registry.digitalocean.com", "api.digitalocean.com", True),
        ("docker.elastic.co", "docker-auth.elastic.co", True),
        ("registry.cn-hangzhou.aliyuncs.com", "dockerauth.cn-hangzhou.aliyuncs.com", True),
        ("me.cn-hangzhou.personal.cr.aliyuncs.com", "dockerauth.cn-hangzhou.aliyuncs.com", True),
        ("registry.aliyuncs.com", "dockerauth.aliyuncs.com", True),
        ("registry.cn-hangzhou.aliyuncs.com", "dockerauth.oss-cn-hangzhou.aliyuncs.com", False),
        ("registry.example.com", "auth.example.com", False),
        ("registry.eu.example.com", "example.com", False),
        ("acme.jfrog.io", "evil.jfrog.io", False),
        ("me.vercel.app", "evil.vercel.app", False),
        ("gitlab.example.com", "registry.example.com", False),
        ("ghcr.io", "evil.io", False),
        ("ghcr.io", "ghcr.io.evil.example", False),
        ("ghcr.io", "evilghcr.io", False),
        ("registry.example.com", "com", False),
        ("registry.com", "gitlab.com", False),
        ("registry.com", "com", False),
        ("example.com", "evil.com", False),
        ("registry.co.uk", "evil.co.uk", False),
        ("shop.co.uk", "co.uk", False),
        ("me.github.io", "evil.github.io", False),
        ("a.run.app", "b.run.app", False),
        ("127.0.0.1", "127.0.0.2", False),
        ("10.0.0.1", "0.0.1", False),
        ("10.0.0.1", "9.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("registry.localhost", "evil.localhost", False),
        ("registry", "evil", False),
        ("registry.example.com", "", False),
        ("registry.example.com", ".example.com", False),
        ("registry.example.com\n", "example.com\n", False),
    ],
)
def test_only_related_hosts_may_receive_a_login(
    registry_host: str, other: str, expected: bool
) -> None:
    assert may_get_login(registry_host, other) is expected


def test_a_login_is_sent_to_a_token_server_with_the_same_configured_login(
    servers: Callable[..., RegistryApi],
) -> None:
    """Docker's config file or the option must name the token server, with the registry's
    credentials.
    """
    for theirs, told in ((PASSWORD, True), ("another", False)):
        one, other = servers(), servers("localhost")
        other.users = {"ci": PASSWORD}
        one.ask_for_tokens(other.url.replace("http:", "https:") + "/token")
        pairs = {one.name: PASSWORD, "localhost": theirs}
        auths = {name: {"username": "ci", "password": password} for name, password in pairs.items()}
        config = parse_docker_config(json.dumps({"auths": auths}))
        error = ask(one, registry(config.logins[one.name])).error
        assert error is not None
        assert ("not sent to that server" in error.message) is not told
        assert "--registry-credentials-for localhost" in error.hint or told


@pytest.mark.parametrize(
    ("registry_host", "other", "allowed"),
    [
        ("ghcr.io", "169.254.169.254", False),
        ("ghcr.io", "10.1.2.3", False),
        ("ghcr.io", "127.0.0.1", False),
        ("ghcr.io", "127.1", False),
        ("ghcr.io", "2130706433", False),
        ("ghcr.io", "0x7f.1", False),
        ("ghcr.io", "localhost", False),
        ("ghcr.io", "[::1]", False),
        ("ghcr.io", "[fe80::1]", False),
        ("ghcr.io", "[fd00::1]", False),
        ("ghcr.io", "[::ffff:10.0.0.1]", False),
        ("ghcr.io", "100.64.0.1", False),
        ("10.0.0.5", "169.254.169.254", False),
        ("10.0.0.5", "10.0.0.6", True),
        ("10.0.0.5", "127.0.0.1", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("169.254.1.1", "169.254.1.1", True),
        ("ghcr.io", "8.8.8.8", True),
        ("ghcr.io", "auth.example.com", True),
    ],
)
def test_token_servers_in_private_networks_are_not_contacted(
    registry_host: str, other: str, allowed: bool
) -> None:
    assert may_be_asked(registry_host, other) is allowed


def test_a_token_server_with_a_private_address_is_rejected(server: RegistryApi) -> None:
    server.ask_for_tokens("https://169.254.169.254/latest/meta-data")
    error = ask(server, registry(None)).error
    assert type(error) is RegistryAccessError
    assert "169.254.169.254" in error.message
    assert "private" in error.message


@pytest.mark.parametrize(
    ("headers", "body", "requests"),
    [
        ({"Docker-Distribution-Api-Version": "registry/2.0"}, b"no", 1),
        ({}, b'{"errors": []}', 1),
        (
            {},
            b"Client sent an HTTP request to an HTTPS server.",
            2,
        ),  # https is tried, then http again
    ],
)
def test_http_is_retried_as_https_unless_the_registry_itself_sent_status_400(
    server: RegistryApi, headers: dict[str, str], body: bytes, requests: int
) -> None:
    server.faults["/manifests/1.0"] = lambda _: (400, headers, body)
    question = Question(parse_image(f"{server.name}/acme/api:1.0"), ("created",))
    assert type(registry().answer([question])[question].error) is RegistryError
    assert len(server.seen) == requests
