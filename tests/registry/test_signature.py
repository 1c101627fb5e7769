"""Stored signatures. Other content in the same location is skipped or rejected."""

import base64
import json
from typing import Any

import pytest

from task.errors import Malformed
from task.registry.signature import (
    BUNDLE,
    LARGEST,
    MOST,
    PAYLOAD,
    Layer,
    dsse_encoding,
    layers,
    parse_signature,
    public_keys,
    signature_tag,
)

DIGEST = f"sha256:{'a' * 64}"


def layer(**changed: Any) -> dict[str, Any]:
    return {"mediaType": PAYLOAD, "digest": DIGEST, "size": 10, **changed}


@pytest.mark.parametrize(
    ("manifest", "found"),
    [
        ({"layers": [layer()]}, 1),
        (
            {
                "layers": [
                    layer(mediaType=f"{BUNDLE}.v0.3+json"),
                    layer(mediaType=f"{BUNDLE}+json;version=0.2"),
                ]
            },
            2,
        ),
        ({"layers": [layer(mediaType="application/vnd.oci.image.layer.v1.tar")]}, 0),
        ({"layers": [layer(size=LARGEST + 1)]}, 0),
        ({"layers": [layer(size="10")]}, 0),
        ({"layers": [layer(digest=None)]}, 0),
        ({"layers": [layer(annotations=[]), layer(annotations={"a": 1})]}, 2),
        ({"layers": [layer()] * 100}, MOST),
        ({"layers": [None, [], "x", 1]}, 0),
        ({"layers": {}}, 0),
        ({}, 0),
    ],
)
def test_only_valid_signature_layers_are_read(manifest: dict[str, Any], found: int) -> None:
    assert len(layers(manifest)) == found


def test_the_signature_tag_is_derived_from_the_digest() -> None:
    assert signature_tag(DIGEST) == f"sha256-{'a' * 64}.sig"


def payload(**critical: Any) -> bytes:
    given = {
        "type": "cosign container image signature",
        "image": {"docker-manifest-digest": DIGEST},
        **critical,
    }
    return json.dumps({"critical": given}).encode()


def of_payload(blob: bytes, **notes: str) -> Any:
    return parse_signature(
        Layer(DIGEST, "payload", {"dev.cosignproject.cosign/signature": "c2ln", **notes}), blob
    )


def test_a_signature_payload_is_parsed() -> None:
    bundle = json.dumps({"Payload": {"logIndex": 7}})
    found = of_payload(
        payload(),
        **{"dev.sigstore.cosign/bundle": bundle, "dev.sigstore.cosign/certificate": "PEM"},
    )
    assert (found.digests, found.signatures, found.content) == ((DIGEST,), (b"sig",), payload())
    assert (found.log_index, found.certificate) == (7, "PEM")
    assert of_payload(payload()).log_index == -1


@pytest.mark.parametrize(
    "blob",
    [
        payload(type="x"),
        payload(type=None),
        b"",
        b"{",
        b"[]",
        b'{"critical": []}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_invalid_payloads_are_rejected(blob: bytes) -> None:
    with pytest.raises(Malformed):
        of_payload(blob)


@pytest.mark.parametrize(
    "image", [None, [], {}, {"docker-manifest-digest": 1}, {"Docker-Manifest-Digest": DIGEST}]
)
def test_a_payload_without_an_image_has_no_digests(image: Any) -> None:
    assert of_payload(payload(image=image)).digests == ()


def bundle(statement: Any, **envelope: Any) -> bytes:
    text = base64.b64encode(json.dumps(statement).encode()).decode()
    given = {
        "payloadType": "application/vnd.in-toto+json",
        "payload": text,
        "signatures": [{"sig": "c2ln"}],
    }
    return json.dumps({"dsseEnvelope": {**given, **envelope}}).encode()


STATEMENT = {
    "predicateType": "https://sigstore.dev/cosign/sign/v1",
    "subject": [{"digest": {"sha256": "a" * 64}}],
}


def of_bundle(blob: bytes) -> Any:
    return parse_signature(Layer(DIGEST, "bundle", {}), blob)


def test_a_bundle_is_parsed() -> None:
    found = of_bundle(bundle(STATEMENT))
    assert (found.digests, found.signatures) == ((DIGEST,), (b"sig",))
    assert found.content == dsse_encoding(
        "application/vnd.in-toto+json", json.dumps(STATEMENT).encode()
    )
    assert dsse_encoding("a", b"bc") == b"DSSEv1 1 a 2 bc"  # spelled as in the protocol


@pytest.mark.parametrize(
    "blob",
    [
        b"{}",
        b"[]",
        bundle({**STATEMENT, "predicateType": "https://slsa.dev/provenance/v1"}),
        bundle(
            {
                **STATEMENT,
                "predicateType": "https://slsa.dev/provenance/v1",
                "_type": "https://in-toto.io/Link/v1",
            }
        ),
        bundle(STATEMENT, payloadType="text/plain"),
        bundle(STATEMENT, payload="!"),
        bundle(STATEMENT, payload=None),
        bundle(STATEMENT, signatures=[{"sig": 1}]),
        bundle(STATEMENT, signatures=[None]),
        bundle([]),
    ],
)
def test_invalid_bundles_are_rejected(blob: bytes) -> None:
    with pytest.raises(Malformed):
        of_bundle(blob)


@pytest.mark.parametrize(
    "subject", [None, {}, [None], [{"digest": []}], [{"digest": {"sha512": "a"}}]]
)
def test_a_bundle_without_an_image_has_no_digests(subject: Any) -> None:
    assert of_bundle(bundle({**STATEMENT, "subject": subject})).digests == ()


def test_a_bundle_without_signatures_has_an_empty_list() -> None:
    assert of_bundle(bundle(STATEMENT, signatures=None)).signatures == ()


KEY = "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----"


def test_public_keys_are_extracted_from_text() -> None:
    text = f"comment\n{KEY.format('AAAA')}\r\n\n{KEY.format('BBBB')}"
    assert public_keys(text) == (f"{KEY.format('AAAA')}\n", f"{KEY.format('BBBB')}\n")


@pytest.mark.parametrize(
    "text",
    ["", "ssh-ed25519 AAAA", "-----BEGIN EC PRIVATE KEY-----\n", "-----BEGIN CERTIFICATE-----"],
)
def test_text_without_a_public_key_is_rejected(text: str) -> None:
    with pytest.raises(Malformed):
        public_keys(text)
