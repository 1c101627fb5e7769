"""A fake Sigstore instance: a CA like Fulcio, a certificate transparency log, and a transparency
log like Rekor.

Its signatures pass all checks of the package sigstore 4.5.1: chain, certificate log, time,
inclusion, promise, and identity.
"""

import base64
import datetime as dt
import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FULCIO = "1.3.6.1.4.1.57264.1."
GITHUB = "https://token.actions.githubusercontent.com"
STATEMENT = "application/vnd.in-toto+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
Key = ec.EllipticCurvePrivateKey


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def der(key: Key) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def key_id(key: Key) -> bytes:
    return hashlib.sha256(der(key)).digest()


def signature(key: Key, content: bytes) -> bytes:
    return key.sign(content, ec.ECDSA(hashes.SHA256()))


def pae(kind: str, content: bytes) -> bytes:
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(content), content)


def utf8(text: str) -> bytes:
    """Return a DER-encoded UTF8String."""
    raw = text.encode()
    length = bytes([len(raw)]) if len(raw) < 128 else bytes([0x82]) + struct.pack("!H", len(raw))
    return b"\x0c" + length + raw


USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def usages(**given: bool) -> x509.KeyUsage:
    return x509.KeyUsage(**{**dict.fromkeys(USAGES, False), **given})


def workflow(
    repository: str = "https://github.com/acme/web",
    ref: str = "refs/heads/main",
    path: str = ".github/workflows/release.yml",
    issuer: str = GITHUB,
    runner: str = "github-hosted",
    signer: str = "",
) -> dict[str, str]:
    """Return the identity claims of a GitHub Actions job."""
    config = f"{repository}/{path}@{ref}"
    return {
        "subject": signer or config, "8": issuer, "9": signer or config, "11": runner, "12": repository, "14": ref,
        "18": config,
    }  # fmt: skip


class Sigstore:
    """A Sigstore instance and its keys."""

    def __init__(self) -> None:
        self.ca_key, self.ct_key, self.log_key = (
            ec.generate_private_key(ec.SECP256R1()) for _ in range(3)
        )
        self.index = 0
        self.entries: dict[int, dict[str, Any]] = {}  # as Rekor's API returns them
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, "tests"),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "x"),
            ]
        )
        usage = usages(key_cert_sign=True, crl_sign=True)
        self.ca = (
            x509.CertificateBuilder(
                name, name, self.ca_key.public_key(), 1, START - HOUR, START + 10000 * HOUR
            )
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.ca_key.public_key()), critical=False
            )
            .sign(self.ca_key, hashes.SHA256())
        )

    def root(self, folder: Path, url: str = "https://log.example") -> Path:
        """Write the trusted root to a file, and return its path."""
        period = {"start": "2026-01-01T00:00:00Z"}

        def log(key: Key) -> dict[str, Any]:
            public = {
                "rawBytes": b64(der(key)),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": period,
            }
            named = {
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "logId": {"keyId": b64(key_id(key))},
            }
            return {**named, "publicKey": public}

        chain = {
            "certificates": [{"rawBytes": b64(self.ca.public_bytes(serialization.Encoding.DER))}]
        }
        subject = {"organization": "x", "commonName": "tests"}
        authority = {"subject": subject, "uri": url, "certChain": chain, "validFor": period}
        path = folder / "trusted_root.json"
        path.write_text(
            json.dumps(
                {
                    "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                    "tlogs": [log(self.log_key)],
                    "certificateAuthorities": [authority],
                    "ctlogs": [log(self.ct_key)],
                    "timestampAuthorities": [],
                }
            )
        )
        return path

    def certificate(self, claims: Mapping[str, str]) -> tuple[Key, x509.Certificate]:
        """Issue a certificate with these claims: its `subject`, and extensions keyed by the last
        number of their OIDs.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject: x509.GeneralName = x509.UniformResourceIdentifier(claims["subject"])
        if "://" not in claims["subject"]:
            subject = x509.RFC822Name(claims["subject"])
        usage = usages(digital_signature=True)
        made = (
            x509.CertificateBuilder(
                self.ca.subject, x509.Name([]), key.public_key(), 2, START, START + HOUR
            )
            .add_extension(usage, critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.ca_key.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([subject]), critical=True)
        )
        for number, text in claims.items():
            if number != "subject":
                value = text.encode() if number == "1" else utf8(text)
                made = made.add_extension(
                    x509.UnrecognizedExtension(x509.ObjectIdentifier(f"{FULCIO}{number}"), value),
                    critical=False,
                )
        before = made.sign(self.ca_key, hashes.SHA256()).tbs_certificate_bytes
        stamp = int(START.timestamp() * 1000)
        length = struct.pack("!I", len(before))[1:]
        entry = (
            struct.pack("!BBQH", 0, 0, stamp, 1)
            + key_id(self.ca_key)
            + length
            + before
            + struct.pack("!H", 0)
        )
        signed = signature(self.ct_key, entry)
        sct = (
            b"\0"
            + key_id(self.ct_key)
            + struct.pack("!QH", stamp, 0)
            + b"\x04\x03"
            + struct.pack("!H", len(signed))
            + signed
        )
        listed = struct.pack("!H", len(sct)) + sct
        listed = struct.pack("!H", len(listed)) + listed
        octets = (
            b"\x04"
            + (bytes([len(listed)]) if len(listed) < 128 else b"\x81" + bytes([len(listed)]))
            + listed
        )
        oid = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
        return key, made.add_extension(
            x509.UnrecognizedExtension(oid, octets), critical=False
        ).sign(self.ca_key, hashes.SHA256())

    def bundle(
        self, content: bytes, claims: Mapping[str, str], kind: str = STATEMENT
    ) -> dict[str, Any]:
        """Return a bundle with a keyless signature of a statement."""
        key, cert = self.certificate(claims)
        signed = b64(signature(key, pae(kind, content)))
        envelope = {"payload": b64(content), "payloadType": kind, "signatures": [{"sig": signed}]}
        pem = b64(cert.public_bytes(serialization.Encoding.PEM))
        spec = {
            "envelopeHash": {
                "algorithm": "sha256",
                "value": hashlib.sha256(json.dumps(envelope).encode()).hexdigest(),
            },
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()},
            "signatures": [{"signature": signed, "verifier": pem}],
        }
        logged = self.logged({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        raw = {"rawBytes": b64(cert.public_bytes(serialization.Encoding.DER))}
        return {
            "mediaType": BUNDLE,
            "verificationMaterial": {"certificate": raw, "tlogEntries": [logged]},
            "dsseEnvelope": envelope,
        }

    def of_layer(self, content: bytes, claims: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
        """Sign a payload keylessly, as cosign 2 does. Return the signature and the annotations of
        its layer.
        """
        key, cert = self.certificate(claims)
        signed = signature(key, content)
        pem = cert.public_bytes(serialization.Encoding.PEM)
        spec = {
            "data": {"hash": {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()}},
            "signature": {"content": b64(signed), "publicKey": {"content": b64(pem)}},
        }
        self.logged({"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": spec})
        return signed, self.notes(pem)

    def notes(self, pem: bytes) -> dict[str, str]:
        """Return a layer's annotations for the latest entry in the log."""
        logged = json.dumps({"Payload": {"logIndex": self.index}})
        return {
            "dev.sigstore.cosign/certificate": pem.decode(),
            "dev.sigstore.cosign/bundle": logged,
        }

    def attested(self, content: bytes, claims: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
        """Sign a statement keylessly, as cosign 2 does. Return the bare envelope and the
        annotations of its layer.
        """
        made = self.bundle(content, claims)
        raw = base64.b64decode(made["verificationMaterial"]["certificate"]["rawBytes"])
        pem = x509.load_der_x509_certificate(raw).public_bytes(serialization.Encoding.PEM)
        return json.dumps(made["dsseEnvelope"]).encode(), self.notes(pem)

    def logged(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Add an entry to the log, whose tree has a single leaf, and return the entry."""
        self.index += 1
        raw = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
        root, at = hashlib.sha256(b"\0" + raw).digest(), int((START + HOUR / 2).timestamp())
        note = f"tests\n1\n{b64(root)}\n"
        log = key_id(self.log_key)
        envelope = f"{note}\n\u2014 tests {b64(log[:4] + signature(self.log_key, note.encode()))}\n"
        said = {"body": b64(raw), "integratedTime": at, "logID": log.hex(), "logIndex": self.index}
        promise = b64(
            signature(
                self.log_key, json.dumps(said, separators=(",", ":"), sort_keys=True).encode()
            )
        )
        proof = {"logIndex": "0", "rootHash": b64(root), "treeSize": "1", "hashes": []}
        of_api = {
            "logIndex": 0,
            "rootHash": root.hex(),
            "treeSize": 1,
            "hashes": [],
            "checkpoint": envelope,
        }
        self.entries[self.index] = {
            "uuid": {
                **said,
                "verification": {"inclusionProof": of_api, "signedEntryTimestamp": promise},
            }
        }
        return {
            "logIndex": str(self.index),
            "logId": {"keyId": b64(log)},
            "kindVersion": {"kind": body["kind"], "version": body["apiVersion"]},
            "integratedTime": str(at),
            "inclusionPromise": {"signedEntryTimestamp": promise},
            "inclusionProof": {**proof, "checkpoint": {"envelope": envelope}},
            "canonicalizedBody": b64(raw),
        }
