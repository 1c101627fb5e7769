"""Verifies signatures with public keys, like `cosign verify --key`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from task.errors import Malformed, UsageError
from task.registry.docker_config import text_of
from task.registry.signature import Signed, public_keys

PublicKey = EllipticCurvePublicKey | Ed25519PublicKey | RSAPublicKey


def keys_of_file(path: str) -> PublicKeys:
    """Read the public keys from a file. Raises `UsageError` if the file does not contain any."""
    hint = (
        "specify a readable file; for a key stored elsewhere, use the output of `cosign public-key"
        " --key …`"
    )
    text = text_of(path, "--verify: cannot read", hint)
    try:
        return PublicKeys(keys_in(text), path)
    except Malformed as error:
        raise UsageError(
            f"--verify: {path}: {error.message}",
            hint=error.hint or "use cosign.pub",
        ) from None


def keys_in(text: str) -> list[PublicKey]:
    """Parse the public keys in a PEM string. Raises `Malformed` if there are none, or if a key
    cannot be read.
    """
    keys: list[PublicKey] = []
    for pem in public_keys(text):
        try:
            key = load_pem_public_key(pem.encode())
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, EllipticCurvePublicKey | Ed25519PublicKey | RSAPublicKey):
            raise Malformed("it contains a public key that cannot be read")
        keys.append(key)
    return keys


class PublicKeys:
    """Accepts signatures that were made with any of the given keys."""

    def __init__(self, keys: Sequence[PublicKey], name: str) -> None:
        self._keys = keys
        self._name = name

    def signer(self, signature: Signed) -> tuple[str, None]:
        """Return the key file's name, and None, because a key makes no claims about a build.

        Raises `Malformed` if the signature was not made with any of the keys.
        """
        for raw in signature.signatures:
            for key in self._keys:
                if _verifies(key, signature.content, raw):
                    return self._name, None
        raise Malformed("a signature was not made with the required key")


def _verifies(key: PublicKey, content: bytes, signature: bytes) -> bool:
    """Return whether this is a signature of the content that was made with the key."""
    if isinstance(key, Ed25519PublicKey):
        with suppress(InvalidSignature):
            key.verify(signature, content)
            return True  # no exception, so the signature is valid
        return False
    for algorithm in _hash_algorithms(key):
        with suppress(InvalidSignature):
            if isinstance(key, RSAPublicKey):
                # cosign's default padding (not PSS)
                key.verify(signature, content, padding.PKCS1v15(), algorithm)
            else:
                key.verify(signature, content, ECDSA(algorithm))
            return True
    return False


def _hash_algorithms(key: EllipticCurvePublicKey | RSAPublicKey) -> list[hashes.HashAlgorithm]:
    """Return the hash algorithms that a signature with this key may use.

    cosign uses SHA-256 for every curve, but other tools use the hash that matches the curve's size.
    """
    algorithms: list[hashes.HashAlgorithm] = [hashes.SHA256()]
    if isinstance(key, EllipticCurvePublicKey):
        if key.curve.name == "secp384r1":
            algorithms.append(hashes.SHA384())
        if key.curve.name == "secp521r1":
            algorithms.append(hashes.SHA512())
    return algorithms
