"""Signatures stored by cosign: found in both places, verified with real keys, bound to digests."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import cosign
from fakes.oci_images import Content, image
from fakes.registry_api import RegistryApi

from task.errors import RegistryAccessError, RegistryDownError, RegistryError, TaskError, UsageError
from task.http import Limits
from task.image import parse_image
from task.model import Question
from task.proof import Proof
from task.registry.client import Registry
from task.registry.logins import Logins
from task.registry.proofs import Asked, Check, Prover
from task.registry.public_keys import PublicKeys, keys_of_file

pytestmark = pytest.mark.measured

IMAGE = image()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> cosign.Keys:
    return cosign.keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> cosign.Keys:
    return cosign.keys(tmp_path_factory.mktemp("other"))


@pytest.fixture
def server(oci_registry: RegistryApi) -> RegistryApi:
    oci_registry.put("acme/api", "1.0", IMAGE)
    return oci_registry


def question(server: RegistryApi, digest: str = IMAGE.digest) -> Question:
    return Question(replace(parse_image(f"{server.name}/acme/api:1.0"), digest=digest), ())


def asked(server: RegistryApi, check: Check, timeout: float = 0.0) -> str | TaskError:
    about = question(server)
    registry = Registry(Logins({}), limits=Limits(silence=2.0, tries=1))
    answer = Prover(lambda: registry, lambda _: [Asked([check])], timeout)([about])[about]
    if isinstance(answer, Proof):
        return ""
    return answer if isinstance(answer, TaskError) else answer.because


def by(keys: cosign.Keys) -> PublicKeys:
    return keys_of_file(str(keys.public))


def put(server: RegistryApi, content: Content, tag: str = "") -> None:
    server.put("acme/api", tag or cosign.tag_of(IMAGE.digest), content)


@pytest.mark.parametrize("kind", cosign.KINDS)
def test_signatures_made_with_every_kind_of_key_are_accepted(
    server: RegistryApi, tmp_path: Path, kind: str
) -> None:
    pair = cosign.keys(tmp_path, kind)
    put(server, cosign.signed(pair, IMAGE.digest))
    assert asked(server, by(pair)) == ""


def test_a_p384_key_with_sha384_is_accepted(server: RegistryApi, tmp_path: Path) -> None:
    pair = cosign.keys(tmp_path, "p384")
    blob = cosign.payload(IMAGE.digest)
    put(server, cosign.signatures(cosign.layer(blob, pair.sign(blob, "sha384"))))
    assert asked(server, by(pair)) == ""


def referring(pair: cosign.Keys) -> Content:
    return cosign.signed(pair, IMAGE.digest, subject=IMAGE)


@pytest.mark.parametrize(
    "make", [referring, lambda pair: cosign.bundle(pair, IMAGE)], ids=["payload", "bundle"]
)
@pytest.mark.parametrize("api", [True, False])
def test_signatures_that_refer_to_the_image_are_accepted(
    server: RegistryApi, pair: cosign.Keys, api: bool, make: Callable[[cosign.Keys], Content]
) -> None:
    server.referrers_api = api
    content = make(pair)
    put(server, content, "somewhere") if api else put(
        server, cosign.fallback(content), IMAGE.digest.replace(":", "-")
    )
    assert asked(server, by(pair)) == ""


def tampered(pair: cosign.Keys) -> Content:
    blob = cosign.payload(IMAGE.digest)
    return cosign.signatures(cosign.layer(blob + b" ", pair.sign(blob)))


def of_another_image(pair: cosign.Keys) -> Content:
    return cosign.signed(pair, image(seed="other").digest)


def of_something_else(pair: cosign.Keys) -> Content:
    blob = cosign.payload(IMAGE.digest, "a contract of sale")
    return cosign.signatures(cosign.layer(blob, pair.sign(blob)))


def no_json(pair: cosign.Keys) -> Content:
    return cosign.signatures(cosign.layer(b"[", pair.sign(b"[")))


def no_signature(_pair: cosign.Keys) -> Content:
    blob = cosign.payload(IMAGE.digest)
    return cosign.signatures(cosign.layer(blob, b""), cosign.layer(blob, b"x" * 72))


def not_base64(_pair: cosign.Keys) -> Content:
    blob, described = cosign.layer(cosign.payload(IMAGE.digest), b"")
    described["annotations"] = {"dev.cosignproject.cosign/signature": "!!"}
    return cosign.signatures((blob, described))


def empty(_pair: cosign.Keys) -> Content:
    return cosign.signatures()


def an_attestation(pair: cosign.Keys) -> Content:
    return cosign.bundle(pair, IMAGE, predicate="https://slsa.dev/provenance/v1")


def a_bundle_of_another_image(pair: cosign.Keys) -> Content:
    return cosign.bundle(pair, IMAGE, digest=image(seed="other").digest)


def a_bundle_of_another_type(pair: cosign.Keys) -> Content:
    return cosign.bundle(pair, IMAGE, kind="text/plain")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (None, "the registry has no signature"),
        (empty, "the registry has no signature"),
        (tampered, "not made with the required key"),
        (of_another_image, "for another image"),
        (of_something_else, "not an image signature"),
        (no_json, "not JSON"),
        (no_signature, "not made with the required key"),
        (not_base64, "cannot be read"),
        (an_attestation, "attestation"),
        (a_bundle_of_another_image, "for another image"),
        (a_bundle_of_another_type, "without a statement"),
    ],
)
def test_invalid_signatures_are_rejected_with_a_reason(
    server: RegistryApi, pair: cosign.Keys, make: Callable[[cosign.Keys], Content] | None, why: str
) -> None:
    if make:
        put(server, make(pair))
    answer = asked(server, by(pair))
    assert isinstance(answer, str)
    assert why in answer


def test_a_signature_from_one_of_several_keys_is_sufficient(
    server: RegistryApi, pair: cosign.Keys, other: cosign.Keys, tmp_path: Path
) -> None:
    put(server, cosign.signed(other, IMAGE.digest))
    assert "not made with the required key" in str(asked(server, by(pair)))
    put(server, cosign.signed(pair, IMAGE.digest, subject=IMAGE), "referring")
    assert asked(server, by(pair)) == ""
    both = tmp_path / "both.pub"
    both.write_text(pair.public.read_text() + other.public.read_text())
    assert asked(server, keys_of_file(str(both))) == ""
    assert list(tmp_path.iterdir()) == [both]


def test_a_missing_signature_blob_is_ignored_if_another_signature_is_valid(
    server: RegistryApi, pair: cosign.Keys
) -> None:
    lost = cosign.signed(pair, IMAGE.digest)
    put(server, lost)
    for digest in lost.blobs:
        server.blobs.pop(digest)
    assert isinstance(asked(server, by(pair)), RegistryError)
    put(server, cosign.bundle(pair, IMAGE), "referring")
    assert asked(server, by(pair)) == ""


@pytest.mark.parametrize(
    ("status", "kind"),
    [(503, RegistryDownError), (429, RegistryDownError), (401, RegistryAccessError)],
)
def test_a_failed_signature_request_causes_an_error(
    server: RegistryApi, pair: cosign.Keys, status: int, kind: type[TaskError]
) -> None:
    server.faults[".sig"] = lambda _: (status, {}, b"")
    assert type(asked(server, by(pair))) is kind


def test_the_check_waits_for_a_signature(
    server: RegistryApi, pair: cosign.Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.registry.proofs._PAUSES", (0.05,))
    good = cosign.signed(pair, IMAGE.digest)
    timer = threading.Timer(0.4, lambda: put(server, good))
    timer.start()
    try:
        assert asked(server, by(pair), timeout=20) == ""
    finally:
        timer.join()


def test_the_check_waits_once_for_every_image(
    server: RegistryApi, pair: cosign.Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.registry.proofs._PAUSES", (0.05,))
    about, lines = question(server), list[str]()
    registry = Registry(Logins({}))
    asking = Prover(lambda: registry, lambda _: [Asked([by(pair)])], 0.2, lines.append)
    first = asking([about])
    many = len(server.seen)
    assert asking([about]) == first
    assert len(server.seen) == many
    assert lines == [
        f"waiting for a signature of {about.image.reference}: the registry has no signature"
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read"),
        (b"\xff\xfe", "not a text file"),
        (b"", "not contain a public key"),
        (b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n", "private key"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot be read"),
    ],
)
def test_invalid_key_files_cause_usage_errors(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "cosign.pub"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as refused:
        keys_of_file(str(path))
    assert refused.value.hint
    assert "AAAA" not in str(refused.value)
