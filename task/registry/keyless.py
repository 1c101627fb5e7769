"""Checks signatures without keys, by an identity that Sigstore's authority has put into a certificate.

The optional package `sigstore` checks certificate, transparency log, identity and issuer. In cosign's older form, a
signature only has the log's promise to record it. `sigstore` requires the proof, so it is fetched from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from task.errors import Malformed, RegistryDownError, UsageError
from task.http import Http, Limits, NoAnswerError
from task.registry.signature import Signed, as_bundle
from task.text import one_line
from task.threads import once

LOG = "https://rekor.sigstore.dev"
_PACKAGE = "signatures without keys need the package sigstore"


class Keyless:
    """Checks that an image is signed by `identity`, as confirmed by `issuer`. Safe to use from several threads."""

    def __init__(self, identity: str, issuer: str, log: Callable[[str], None], url: str = LOG) -> None:
        """Raises `UsageError` if the package is missing."""
        try:
            from sigstore.verify import policy  # noqa: PLC0415 - 230 ms, and few need it
        except ImportError:
            hint = "install argocd-image-update[sigstore], or give a key: --verify"
            raise UsageError(_PACKAGE, hint=hint) from None
        self._who, self._policy = identity, policy.Identity(identity=identity, issuer=issuer)
        self._log = once(lambda: Http(url, limits=Limits(total=60.0, size=1024 * 1024), log=log))
        self._verifier = once(_verifier)

    def objection(self, signature: Signed) -> str:
        """Return why the signature is not good, or "" if it is good. Raises `RegistryDownError` if the log is down."""
        from sigstore.models import Bundle  # noqa: PLC0415 - 230 ms, and few need it

        # A signature without a key always has a certificate and an entry in the log.
        if signature.form == "payload" and (not signature.certificate or signature.log_index < 0):
            return "a signature is by a key, and not by an identity"
        verifier = self._verifier()
        try:
            raw = (
                as_bundle(signature, self._entry(signature.log_index)) if signature.form == "payload" else signature.raw
            )
        except Malformed as error:
            return error.message
        try:
            if signature.form == "payload":
                verifier.verify_artifact(signature.content, Bundle.from_json(raw), self._policy)
            else:
                verifier.verify_dsse(Bundle.from_json(raw), self._policy)
        except Exception as error:  # noqa: BLE001 - strangers' data, and no error may let an image pass
            return f"a signature is not by {self._who}: {one_line(str(error))[:200]}"
        return ""

    def _entry(self, index: int) -> Mapping[str, Any]:
        try:
            answer = self._log().ask("GET", f"/api/v1/log/entries?logIndex={index}")
        except NoAnswerError as error:
            raise _down(f"the transparency log: {error.message}") from None
        if answer.status >= 500 or answer.status == 429:
            raise _down(f"the transparency log answered {answer.status}")
        try:
            entry = next(iter(answer.json().values()))
        except (ValueError, AttributeError, StopIteration):
            entry = None
        if answer.status != 200 or not isinstance(entry, dict):
            raise Malformed("a signature is not in the transparency log")
        return entry


def _verifier() -> Any:
    from sigstore.errors import Error  # noqa: PLC0415 - 230 ms, and few need it
    from sigstore.verify import Verifier  # noqa: PLC0415 - 230 ms, and few need it

    try:
        return Verifier.production()
    except (Error, OSError) as error:
        raise _down(f"Sigstore's roots of trust could not be fetched ({type(error).__name__})") from None


def _down(message: str) -> RegistryDownError:
    return RegistryDownError(message, hint="run it again")
