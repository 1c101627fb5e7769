"""The artifacts that cosign stores in a registry: real signatures, made with keys from openssl.

They were compared with signatures made by cosign 3.1.3 on 2026-11-22. `make test-real` runs cosign
itself (tests/real/test_distribution.py).
"""

import base64
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fakes.oci_images import CONFIGS, OCI, TYPES, Content, digest_of, whole
from support import needs

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
STATEMENT = "application/vnd.in-toto+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
ARTIFACT = "application/vnd.dev.cosign.artifact.sig.v1+json"
SIGN = "https://sigstore.dev/cosign/sign/v1"
KINDS = {
    "p256": ("EC", "ec_paramgen_curve:P-256"),
    "p384": ("EC", "ec_paramgen_curve:P-384"),
    "rsa": ("RSA", "rsa_keygen_bits:2048"),
    "ed25519": ("ED25519", ""),
}


class Keys(NamedTuple):
    """A key pair."""

    private: Path
    public: Path
    kind: str

    def sign(self, content: bytes, hashed: str = "sha256") -> bytes:
        """Return the signature of these bytes."""
        text, into = self.private.with_suffix(".text"), self.private.with_suffix(".sig")
        text.write_bytes(content)
        argv = (
            ["pkeyutl", "-sign", "-inkey", self.private, "-rawin", "-in", text, "-out", into]
            if self.kind == "ed25519"
            else ["dgst", f"-{hashed}", "-sign", self.private, "-out", into, text]
        )
        _openssl(*argv)
        return into.read_bytes()


def keys(folder: Path, kind: str = "p256", name: str = "cosign") -> Keys:
    """Create a key pair."""
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    algorithm, option = KINDS[kind]
    _openssl(
        "genpkey",
        "-algorithm",
        algorithm,
        *(["-pkeyopt", option] if option else []),
        "-out",
        private,
    )
    _openssl("pkey", "-in", private, "-pubout", "-out", public)
    return Keys(private, public, kind)


def tag_of(digest: str, ending: str = "sig") -> str:
    """Return the tag under which cosign stores an image's signatures or attestations."""
    return f"{digest.replace(':', '-')}.{ending}"


def payload(digest: str, kind: str = "cosign container image signature") -> bytes:
    """Return the bytes that cosign signs for an image."""
    critical = {
        "identity": {"docker-reference": ""},
        "image": {"docker-manifest-digest": digest},
        "type": kind,
    }
    return json.dumps({"critical": critical, "optional": None}).encode()


def layer(blob: bytes, signature: bytes, **notes: str) -> tuple[bytes, dict[str, Any]]:
    """Return a manifest layer with a payload and its signature."""
    said = {"dev.cosignproject.cosign/signature": base64.b64encode(signature).decode(), **notes}
    return blob, {
        "mediaType": PAYLOAD,
        "digest": digest_of(blob),
        "size": len(blob),
        "annotations": said,
    }


def signatures(*parts: tuple[bytes, dict[str, Any]], subject: Content | None = None) -> Content:
    """Return a manifest with these signatures. If there is a subject, the manifest refers to that
    image.
    """
    return _manifest(parts, ARTIFACT, subject)


def signed(by: Keys, digest: str, **how: Any) -> Content:
    """Return a manifest with one valid signature."""
    blob = payload(digest)
    return signatures(layer(blob, by.sign(blob)), **how)


def bundle(
    by: Keys, subject: Content, digest: str = "", predicate: str = SIGN, kind: str = ""
) -> Content:
    """Return a signed Sigstore bundle that refers to an image."""
    about = {"digest": {"sha256": (digest or subject.digest).partition(":")[2]}, "annotations": {}}
    statement = json.dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [about],
            "predicateType": predicate,
            "predicate": {},
        }
    ).encode()
    named = kind or "application/vnd.in-toto+json"
    pae = f"DSSEv1 {len(named)} {named} {len(statement)} ".encode() + statement
    envelope = {
        "payload": base64.b64encode(statement).decode(),
        "payloadType": named,
        "signatures": [{"sig": base64.b64encode(by.sign(pae)).decode()}],
    }
    body = {
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": "x"}},
        "dsseEnvelope": envelope,
    }
    blob = json.dumps(body).encode()
    return _manifest(
        [(blob, {"mediaType": BUNDLE, "digest": digest_of(blob), "size": len(blob)})],
        BUNDLE,
        subject,
    )


def referrer(blob: bytes, subject: Content, predicate: str = "") -> Content:
    """Return the manifest of a bundle that refers to an image. The manifest's annotation contains
    the bundle's predicate type.
    """
    described = {"mediaType": BUNDLE, "digest": digest_of(blob), "size": len(blob)}
    said = {
        "dev.sigstore.bundle.content": "dsse-envelope",
        "dev.sigstore.bundle.predicateType": predicate,
    }
    return _manifest([(blob, described)], BUNDLE, subject, said if predicate else {})


def attestations(*parts: tuple[bytes, dict[str, str]]) -> Content:
    """Return a manifest with these envelopes, as stored by cosign 2 and Tekton Chains. Each
    envelope is given together with the annotations of its layer.
    """
    named = [
        (
            blob,
            {
                "mediaType": ENVELOPE,
                "digest": digest_of(blob),
                "size": len(blob),
                "annotations": notes,
            },
        )
        for blob, notes in parts
    ]
    return _manifest(named, ARTIFACT, None)


def envelope(by: Keys, statement: bytes, kind: str = STATEMENT) -> bytes:
    """Return a signed statement as a bare envelope."""
    signed = by.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(statement), statement))
    entry = {"keyid": "", "sig": base64.b64encode(signed).decode()}
    body = {
        "payloadType": kind,
        "payload": base64.b64encode(statement).decode(),
        "signatures": [entry],
    }
    return json.dumps(body).encode()


def fallback(*referring: Content) -> Content:
    """Return an index of the manifests that refer to an image, for a registry without a referrers
    API.
    """
    entries = [
        {"mediaType": TYPES[OCI][0], "digest": one.digest, "size": one.size, "artifactType": BUNDLE}
        for one in referring
    ]
    manifests = {digest: kept for one in referring for digest, kept in one.manifests.items()}
    blobs = {digest: blob for one in referring for digest, blob in one.blobs.items()}
    return whole(
        {"schemaVersion": 2, "mediaType": TYPES[OCI][1], "manifests": entries},
        TYPES[OCI][1],
        blobs,
        manifests,
    )


def _manifest(
    parts: Any, artifact: str, subject: Content | None, notes: Mapping[str, str] = {}
) -> Content:
    config = b"{}"
    body: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": TYPES[OCI][0],
        "config": {"mediaType": CONFIGS[OCI], "digest": digest_of(config), "size": len(config)},
        "layers": [described for _, described in parts],
    }
    if subject:
        about = {"mediaType": TYPES[OCI][0], "digest": subject.digest, "size": subject.size}
        body |= {"artifactType": artifact, "subject": about, "annotations": dict(notes)}
    return whole(
        body,
        TYPES[OCI][0],
        {digest_of(config): config} | {digest_of(blob): blob for blob, _ in parts},
    )


def _openssl(*argv: object) -> None:
    subprocess.run([*needs("openssl"), *map(str, argv)], check=True, capture_output=True)
