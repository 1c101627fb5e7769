"""Verifies keyless signatures, based on the identity in a certificate from Sigstore's CA.

The optional package `sigstore` checks the certificate, the transparency log, and the issuer, so
this module is imported only if identities are required. In cosign's older formats, a signature
contains only the log's promise to record it. But `sigstore` requires proof that the signature was
recorded, so this proof is fetched from the log.
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
from task.registry.signature import BuildOrigin, Signed, as_bundle, dsse_encoding, of_certificate
from task.text import fits_glob, one_line
from task.threads import once

LOG = "https://rekor.sigstore.dev"
_FULCIO = "1.3.6.1.4.1.57264.1."
# claims: build signer, runner, source repository, source ref, build config
_CLAIMS = ("9", "11", "12", "14", "18")
_ISSUER = "8"
_OLD_ISSUER = "1"
_USERNAME = f"{_FULCIO}7"  # a type of subject alternative name
_LONGEST_ERROR = 200


class Sigstore:
    """Sigstore's roots of trust (or those from a file) and transparency log.

    Thread-safe.
    """

    def __init__(self, log: Callable[[str], None], trust_root: str = "", url: str = "") -> None:
        """Use the trusted root in the file `trust_root`, and the transparency log at `url`, unless
        these are empty.

        Raises `UsageError` if the file is invalid.
        """
        roots: TrustedRoot | None = None
        if trust_root:
            roots, url = _roots_and_log(trust_root, url)
        # both are created on first use
        self.verifier = once(lambda: _verifier(roots))
        self._log = once(
            lambda: Http(
                url or LOG,
                limits=Limits(total=60.0, size=1024 * 1024),
                log=log,
            )
        )

    def entry(self, index: int) -> Mapping[str, Any]:
        """Return the entry with this index from the transparency log.

        Raises `RegistryDownError` if the log is down, and `Malformed` if the response is not an
        entry.
        """
        try:
            answer = self._log().ask("GET", f"/api/v1/log/entries?logIndex={index}")
        except NoAnswerError as error:
            raise _down_error(f"the transparency log: {error.message}") from None
        if answer.status >= 500 or answer.status == 429:
            raise _down_error(f"the transparency log returned {answer.status}")
        try:
            # the response maps ids to entries, and contains only one entry
            entries = answer.json().values()
            entry = next(iter(entries))
        except (ValueError, AttributeError, StopIteration):
            entry = None
        if answer.status != 200 or not isinstance(entry, dict):
            raise Malformed("a signature is not in the transparency log")
        return entry


class Keyless:
    """Accepts keyless signatures from any of the given identities. Thread-safe."""

    def __init__(
        self,
        sigstore: Sigstore,
        identities: Sequence[Identity],
        *,
        exact: bool = False,
    ) -> None:
        """With `exact`, a certificate's subject must equal an identity's subject. Otherwise, the
        identity's subject is a glob.
        """
        self._sigstore = sigstore
        self._identities = identities
        self._exact = exact

    def signer(self, signature: Signed) -> tuple[str, BuildOrigin]:
        """Return the signer and the place where the image was built, according to the signature's
        certificate.

        Raises `Malformed` if the signature is invalid, or not from one of the identities, and
        `RegistryDownError` if the transparency log is down.
        """
        is_bundle = signature.form == "bundle"
        # A keyless signature always has a certificate and a log entry.
        has_identity = bool(signature.certificate) and signature.log_index >= 0
        if not is_bundle and not has_identity:
            raise Malformed("a signature was made with a key, not by an identity")

        verifier = self._sigstore.verifier()
        bundle_json: bytes | str = signature.raw
        if not is_bundle:
            bundle_json = as_bundle(signature, self._sigstore.entry(signature.log_index))
        # verification sets the policy's `subject` and `origin`
        policy = _IdentityPolicy(self._identities, exact=self._exact)
        try:
            _verify(signature, Bundle.from_json(bundle_json), verifier, policy)
        except Malformed:
            raise
        except Exception as error:  # noqa: BLE001 - untrusted data: no error may let an image pass
            # the message names only the first three identities
            who = " or ".join(identity.subject for identity in self._identities[:3])
            why = one_line(str(error))[:_LONGEST_ERROR]
            raise Malformed(f"a signature is not by {who}: {why}") from None
        return policy.subject, policy.origin


class _IdentityPolicy:
    """The policy that `sigstore` applies to a certificate after checking its chain, log entry, and
    times.
    """

    def __init__(self, identities: Sequence[Identity], *, exact: bool) -> None:
        self._identities = identities
        self._exact = exact
        self.subject = ""
        self.origin = BuildOrigin("certificate")

    def verify(self, cert: Certificate) -> None:
        """Check that the certificate belongs to one of the identities, and store its subject and
        origin.

        Raises `VerificationError` if the certificate belongs to none of the identities.
        """
        subjects = _subjects_of(cert)
        # a claim is the value of one of Fulcio's numbered extensions
        all_claims = {number: _claim(cert, number) for number in (*_CLAIMS, _ISSUER)}
        claims = {number: value for number, value in all_claims.items() if value}
        # older certificates contain the issuer only in the old extension
        issuer = claims.get(_ISSUER) or _claim(cert, _OLD_ISSUER)
        for identity in self._identities:
            if issuer != identity.issuer:
                continue
            for subject in subjects:
                if self._exact:
                    is_wanted = subject == identity.subject
                else:
                    is_wanted = fits_glob(identity.subject, subject)
                if is_wanted:
                    self.subject = subject
                    self.origin = of_certificate(issuer, claims)
                    return
        raise VerificationError(
            f"it is by {', '.join(map(str, subjects[:3]))}, according to {issuer}"
        )


def _subjects_of(cert: Certificate) -> list[str]:
    """Return the identities that a certificate contains: URIs, email addresses, and usernames."""
    names = cert.extensions.get_extension_for_class(SubjectAlternativeName).value
    uris = names.get_values_for_type(Uri)
    addresses = names.get_values_for_type(RFC822Name)
    usernames = [
        asn1.decode_der(str, other_name.value)
        for other_name in names.get_values_for_type(OtherName)
        if other_name.type_id.dotted_string == _USERNAME
    ]
    return [*uris, *addresses, *usernames]


def _claim(cert: Certificate, number: str) -> str:
    """Return the value of a certificate's Fulcio extension with this number, or "" if there is
    none.
    """
    wanted = ObjectIdentifier(f"{_FULCIO}{number}")
    for extension in cert.extensions:
        if extension.oid == wanted and extension.value.value:
            raw = extension.value.value
            return raw.decode() if number == _OLD_ISSUER else asn1.decode_der(str, raw)
    return ""


def _roots_and_log(path: str, url: str) -> tuple[TrustedRoot, str]:
    """Return the roots of trust from a file, and the transparency log's address: `url` or, if that
    is "", the address from the file.

    Raises `UsageError` if the file is invalid.
    """
    try:
        data = parsed_json(read_file(path))
        url = url or data["tlogs"][0]["baseUrl"]
        roots = TrustedRoot.from_file(path)
        Verifier(trusted_root=roots)  # only to validate the file
    except (OSError, ValueError, LookupError, TypeError, Error) as error:
        why: str | None = one_line(str(error))[:_LONGEST_ERROR]
        if isinstance(error, OSError):
            why = error.strerror
        raise UsageError(
            f"--trust-root: {path!r} is not a trusted root: {why}",
            hint="use the output of `cosign trusted-root create` or `gh attestation trusted-root`",
        ) from None
    return roots, url


def _verify(signature: Signed, bundle: Bundle, verifier: Verifier, policy: _IdentityPolicy) -> None:
    """Verify a signature and the identity in its certificate. Raises errors of several types."""
    if signature.form == "payload":
        verifier.verify_artifact(signature.content, bundle, policy)
        return
    payload_type, payload = verifier.verify_dsse(bundle, policy)
    if dsse_encoding(payload_type, payload) != signature.content:
        # our parser and `sigstore` read different statements from the same bundle
        raise Malformed("a bundle has two statements")


def _verifier(roots: TrustedRoot | None) -> Verifier:
    try:
        return Verifier(trusted_root=roots) if roots else Verifier.production()
    except (Error, OSError) as error:
        raise _down_error(
            f"Sigstore's roots of trust could not be fetched ({type(error).__name__})"
        ) from None


def _down_error(message: str) -> RegistryDownError:
    return RegistryDownError(message, hint="run it again")
