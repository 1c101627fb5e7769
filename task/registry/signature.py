"""Parses the signatures of images and the signed statements about them, and the public keys that check both.

cosign has two forms. cosign 1 and 2, and Tekton Chains, store a payload ("simple signing"), and its signature is an
annotation of the layer. cosign 3 stores a Sigstore bundle: an in-toto statement in a DSSE envelope. Attestations are
such bundles as well, or (cosign 1 and 2, Chains) bare envelopes. Sources: cosign's SIGNATURE_SPEC, ATTESTATION_SPEC and
BUNDLE_SPEC, the DSSE protocol, the in-toto statement.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal

from task.errors import Malformed
from task.plain_data import elements, mapping

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle"  # .v0.3+json, +json;version=0.2
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
ARTIFACTS = ("application/vnd.dev.cosign.artifact.sig.v1+json", BUNDLE)  # beginnings of signatures' artifact types
MOST = 32  # signatures of one image that are checked
LARGEST = 1024 * 1024  # bytes of one signature
_TYPE = "cosign container image signature"
_STATEMENT = "application/vnd.in-toto+json"
SIGNED = "https://sigstore.dev/cosign/sign/v1"  # other predicates are attestations (provenance, SBOM)
_STATEMENTS = ("https://in-toto.io/Statement/v0.1", "https://in-toto.io/Statement/v1")
_ANNOTATION = "dev.cosignproject.cosign/signature"
_CERTIFICATE = "dev.sigstore.cosign/certificate"
_LOGGED = "dev.sigstore.cosign/bundle"
_PREDICATE = "dev.sigstore.bundle.predicateType"  # annotation of what refers to an image
Form = Literal["payload", "bundle", "envelope"]
_FORMS: Mapping[str, Form] = {PAYLOAD: "payload", ENVELOPE: "envelope"}
_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=\s]+-----END PUBLIC KEY-----", re.ASCII)


@dataclass(frozen=True)
class Layer:
    """The layer of a manifest that has one signature."""

    digest: str
    form: Form
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class Signed:
    """One signature: the signed bytes, and the images that they name."""

    form: Form
    content: bytes  # the signed bytes
    signatures: tuple[bytes, ...]
    digests: tuple[str, ...]
    raw: bytes = b""  # a bundle or an envelope, as it is stored
    certificate: str = ""  # PEM, for a payload or an envelope that was signed without a key
    log_index: int = -1  # its place in the transparency log
    statement: Mapping[str, Any] | None = None  # of an attestation


def signature_tag(digest: str, ending: str = "sig") -> str:
    """Return the tag under which cosign stores the signatures of an image, or (`att`) its attestations."""
    return f"{digest.replace(':', '-')}.{ending}"


def layers(manifest: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Return the signature layers of a manifest."""
    signatures = []
    for raw in elements(manifest.get("layers"))[:MOST]:
        kind, digest, size = (mapping(raw).get(key) for key in ("mediaType", "digest", "size"))
        form = "bundle" if str(kind).startswith(BUNDLE) else _FORMS.get(str(kind))
        if form and isinstance(digest, str) and isinstance(size, int) and size <= LARGEST:
            notes = mapping(mapping(raw).get("annotations"))
            texts = {key: text for key, text in notes.items() if isinstance(text, str)}
            signatures.append(Layer(digest, form, texts))
    return tuple(signatures)


def predicate_of(annotations: Mapping[str, str]) -> str:
    """Return which statement a referrer or a layer says that it has, or "" if it does not say it."""
    return annotations.get(_PREDICATE) or annotations.get("predicateType", "")


def signed(layer: Layer, blob: bytes) -> Signed:
    """Parse the signature in a layer, without checking it. Raises `Malformed`."""
    if len(blob) > LARGEST:
        raise Malformed(f"it is larger than {LARGEST // 1024} KiB")
    if layer.form == "payload":
        return _payload(layer, blob)
    return _statement(layer, blob, mapping(_json(blob).get("dsseEnvelope")) if layer.form == "bundle" else _json(blob))


def _payload(layer: Layer, blob: bytes) -> Signed:
    critical = mapping(_json(blob).get("critical"))
    if critical.get("type") != _TYPE:
        raise Malformed("it is not a signature of an image")
    digest = mapping(critical.get("image")).get("docker-manifest-digest")
    signature = _decoded(layer.annotations.get(_ANNOTATION, ""))
    digests = (digest,) if isinstance(digest, str) else ()
    return Signed("payload", blob, (signature,), digests, b"", *_identified(layer))


def _identified(layer: Layer) -> tuple[str, int]:
    """Return the certificate in the annotations of a layer, and its place in the transparency log."""
    index = mapping(_json(layer.annotations.get(_LOGGED, "{}")).get("Payload")).get("logIndex")
    return layer.annotations.get(_CERTIFICATE, ""), index if isinstance(index, int) else -1


def _statement(layer: Layer, blob: bytes, envelope: Mapping[str, Any]) -> Signed:
    kind, content = envelope.get("payloadType"), _decoded(envelope.get("payload"))
    if kind != _STATEMENT:
        raise Malformed(f"it is a {layer.form} without a statement about an image")
    statement = _json(content)
    subjects = (mapping(mapping(subject).get("digest")).get("sha256") for subject in elements(statement.get("subject")))
    digests = tuple(f"sha256:{digits}" for digits in subjects if isinstance(digits, str))
    signatures = tuple(_decoded(mapping(entry).get("sig")) for entry in elements(envelope.get("signatures"))[:MOST])
    attests = layer.form == "envelope" or statement.get("predicateType") != SIGNED
    if attests and statement.get("_type") not in _STATEMENTS:
        raise Malformed("it has a statement of an unknown type")
    content = encoded(kind, content)
    found = Signed(layer.form, content, signatures, digests, blob, *_identified(layer))
    return replace(found, statement=statement) if attests else found


def encoded(kind: str, content: bytes) -> bytes:
    """Return the bytes that DSSE signs: its pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(content), content)


def public_keys(text: str) -> tuple[str, ...]:
    """Return the public keys in a PEM file, one or more, each as PEM. Raises `Malformed`."""
    if "PRIVATE KEY-----" in text:
        raise Malformed("it holds a private key", hint="give the public key, cosign.pub")
    keys = tuple(f"{pem}\n" for pem in _KEY.findall(text))
    if not keys:
        raise Malformed("it holds no public key", hint="give cosign.pub, or what `cosign public-key --key …` prints")
    return keys


def as_bundle(signature: Signed, entry: Mapping[str, Any]) -> str:
    """Combine a payload or envelope, its certificate and its entry in the transparency log (Rekor) into a bundle.

    Nothing here is trusted yet, because the check of the bundle covers everything. Raises `Malformed`.
    """
    try:
        certificate = "".join(signature.certificate.split("-----")[2].split())
        proof = entry["verification"]["inclusionProof"]
        body = _json(_decoded(entry["body"]))
        logged = {
            "logIndex": str(entry["logIndex"]),
            "logId": {"keyId": _from_hex(entry["logID"])},
            "kindVersion": {"kind": body["kind"], "version": body["apiVersion"]},
            "integratedTime": str(entry["integratedTime"]),
            "inclusionPromise": {"signedEntryTimestamp": entry["verification"]["signedEntryTimestamp"]},
            "inclusionProof": {
                "logIndex": str(proof["logIndex"]),
                "rootHash": _from_hex(proof["rootHash"]),
                "treeSize": str(proof["treeSize"]),
                "hashes": [_from_hex(digits) for digits in proof["hashes"]],
                "checkpoint": {"envelope": proof["checkpoint"]},
            },
            "canonicalizedBody": entry["body"],
        }
    except (LookupError, TypeError, ValueError):
        raise Malformed("its entry in the transparency log cannot be read") from None
    digest = b64encode(sha256(signature.content).digest()).decode()
    of_payload = {
        "messageSignature": {
            "messageDigest": {"algorithm": "SHA2_256", "digest": digest},
            "signature": b64encode(signature.signatures[0]).decode(),
        }
    }
    return json.dumps(
        {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"certificate": {"rawBytes": certificate}, "tlogEntries": [logged]},
            **(of_payload if signature.form == "payload" else {"dsseEnvelope": _json(signature.raw)}),
        }
    )


def _from_hex(text: str) -> str:
    return b64encode(bytes.fromhex(text)).decode()


def _json(raw: bytes | str) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(raw))
    except (ValueError, RecursionError):
        raise Malformed("it is not JSON") from None


def _decoded(text: Any) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, TypeError, ValueError):
        raise Malformed("its signature cannot be read") from None
