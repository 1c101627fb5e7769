"""Verifies keyless signatures, by the identity in a certificate from Sigstore's authority.

The optional package `sigstore` checks the certificate, transparency log, and issuer, so this file
is imported only if identities are required. In cosign's older formats, a signature only has the
log's promise to record it. `sigstore` requires the proof, so it is fetched from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cryptography.hazmat import asn1
from cryptography.x509 import (
    Certificate,
    ObjectIdentifier,
    OtherName,
    RFC822Name,
    SubjectAlternativeName,
)
from cryptography.x509 import UniformResourceIdentifier as Uri
from sigstore.errors import Error, VerificationError
from sigstore.models import Bundle, TrustedRoot
from sigstore.verify import Verifier

from task.errors import Malformed, NoAnswerError, RegistryDownError, UsageError
from task.files import read_file
from task.http import Http, Limits
from task.plain_data import parsed_json
from task.proof import Identity
from task.registry.signature import BuildOrigin, Signed, as_bundle, encoded, of_certificate
from task.text import fits_glob, one_line
from task.threads import once

LOG = "https://rekor.sigstore.dev"
_FULCIO = "1.3.6.1.4.1.57264.1."
# build signer, runner, source repository, its ref, build config
_CLAIMS = (
    "9",
    "11",
    "12",
    "14",
    "18",
)
_ISSUER = "8"
_OLD_ISSUER = "1"
_LONGEST_ERROR = 200


class Sigstore:
    """Sigstore's roots of trust, or the roots in a file, and its transparency log.

    Thread-safe.
    """

    def __init__(self, log: Callable[[str], None], trust_root: str = "", url: str = "") -> None:
        """`trust_root`: the path of a trusted root. Raises `UsageError` if the file is not
        valid.
        """
        roots: TrustedRoot | None = None
        if trust_root:
            try:
                said = parsed_json(read_file(trust_root))
                url = url or said["tlogs"][0]["baseUrl"]
                roots = TrustedRoot.from_file(trust_root)
                Verifier(trusted_root=roots)
            except (OSError, ValueError, LookupError, TypeError, Error) as error:
                why = (
                    error.strerror
                    if isinstance(error, OSError)
                    else one_line(str(error))[:_LONGEST_ERROR]
                )
                hint = (
                    "use the output of `cosign trusted-root create` or `gh attestation"
                    " trusted-root`"
                )
                raise UsageError(
                    f"--trust-root: {trust_root!r} is not a trusted root: {why}",
                    hint=hint,
                ) from None
        self.verifier = once(lambda: _verifier(roots))
        self._log = once(
            lambda: Http(
                url or LOG,
                limits=Limits(total=60.0, size=1024 * 1024),
                log=log,
            )
        )

    def entry(self, index: int) -> Mapping[str, Any]:
        """Return a transparency log entry.

        Raises `RegistryDownError` if the log is down, and `Malformed` if the response is not an
        entry.
        """
        try:
            answer = self._log().ask("GET", f"/api/v1/log/entries?logIndex={index}")
        except NoAnswerError as error:
            raise _down(f"the transparency log: {error.message}") from None
        if answer.status >= 500 or answer.status == 429:
            raise _down(f"the transparency log returned {answer.status}")
        try:
            entry = next(iter(answer.json().values()))
        except (ValueError, AttributeError, StopIteration):
            entry = None
        if answer.status != 200 or not isinstance(entry, dict):
            raise Malformed("a signature is not in the transparency log")
        return entry


class Keyless:
    """Accepts a signature by any of these identities. Thread-safe."""

    def __init__(
        self,
        sigstore: Sigstore,
        identities: Sequence[Identity],
        *,
        exact: bool = False,
    ) -> None:
        """`exact`: subjects are not globs."""
        self._sigstore = sigstore
        self._identities = identities
        self._exact = exact

    def signer(self, signature: Signed) -> tuple[str, BuildOrigin]:
        """Return the signer, and the certificate's claims.

        Raises `Malformed`, and `RegistryDownError`.
        """
        # A keyless signature always has a certificate and a log entry.
        if signature.form != "bundle" and (not signature.certificate or signature.log_index < 0):
            raise Malformed("a signature was made with a key, not by an identity")
        verifier = self._sigstore.verifier()
        raw: bytes | str = signature.raw
        if signature.form != "bundle":
            raw = as_bundle(signature, self._sigstore.entry(signature.log_index))
        accepts = _Accepts(self._identities, exact=self._exact)
        try:
            if signature.form == "payload":
                verifier.verify_artifact(signature.content, Bundle.from_json(raw), accepts)
            elif (
                encoded(*verifier.verify_dsse(Bundle.from_json(raw), accepts)) != signature.content
            ):
                raise Malformed("a bundle has two statements")  # noqa: TRY301 - a reader may use the other one
        except Malformed:
            raise
        except Exception as error:  # noqa: BLE001 - untrusted data: no error may let an image pass
            who = " or ".join(identity.subject for identity in self._identities[:3])
            why = one_line(str(error))[:_LONGEST_ERROR]
            raise Malformed(f"a signature is not by {who}: {why}") from None
        return accepts.subject, accepts.origin


class _Accepts:
    """The policy that `sigstore` applies to a certificate after it has checked the chain, log
    entry, and times.
    """

    def __init__(self, identities: Sequence[Identity], *, exact: bool) -> None:
        self._identities = identities
        self._exact = exact
        self.subject = ""
        self.origin = BuildOrigin("certificate")

    def verify(self, cert: Certificate) -> None:
        """Raise `VerificationError` if the certificate does not have any of the identities."""
        names = cert.extensions.get_extension_for_class(SubjectAlternativeName).value
        subjects = [*names.get_values_for_type(Uri), *names.get_values_for_type(RFC822Name)]
        users = (
            other_name
            for other_name in names.get_values_for_type(OtherName)
            if other_name.type_id.dotted_string == f"{_FULCIO}7"
        )
        subjects += [asn1.decode_der(str, user.value) for user in users]
        claims = {key: value for key in (*_CLAIMS, _ISSUER) if (value := _claim(cert, key))}
        issuer = claims.get(_ISSUER) or _claim(cert, _OLD_ISSUER)
        for identity in self._identities:
            for subject in subjects:
                if issuer == identity.issuer and (
                    subject == identity.subject
                    if self._exact
                    else fits_glob(identity.subject, subject)
                ):
                    self.subject = subject
                    self.origin = of_certificate(issuer, claims)
                    return
        raise VerificationError(
            f"it is by {', '.join(map(str, subjects[:3]))}, according to {issuer}"
        )


def _claim(cert: Certificate, number: str) -> str:
    """Return the value of a Fulcio extension, or ""."""
    wanted = ObjectIdentifier(f"{_FULCIO}{number}")
    found = next(
        (extension.value.value for extension in cert.extensions if extension.oid == wanted),
        b"",
    )
    if not found:
        return ""
    return found.decode() if number == _OLD_ISSUER else asn1.decode_der(str, found)


def _verifier(roots: TrustedRoot | None) -> Verifier:
    try:
        return Verifier(trusted_root=roots) if roots else Verifier.production()
    except (Error, OSError) as error:
        raise _down(
            f"Sigstore's roots of trust could not be fetched ({type(error).__name__})"
        ) from None


def _down(message: str) -> RegistryDownError:
    return RegistryDownError(message, hint="run it again")
