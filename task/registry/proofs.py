"""Looks for proof of who built or signed an image.

The proof is searched for in all places where a registry may store signatures and attestations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, islice, repeat
from threading import Lock
from typing import Protocol

from task import shutdown
from task.errors import Exit, Malformed, RegistryDownError, RegistryError, TaskError
from task.model import Question, Verdict
from task.proof import Demand, Proof
from task.registry.client import Registry
from task.registry.signature import (
    ARTIFACTS,
    MOST,
    PREDICATES,
    SIGNED,
    BuildOrigin,
    Layer,
    Signed,
    layers,
    objection,
    origin_of,
    parse_signature,
    predicate_of,
    signature_tag,
)
from task.retry import until
from task.threads import in_threads

_AT_ONCE = 8
# seconds between two searches for a proof; the last pause is repeated
_PAUSES = (1.0, 2.0, 3.0, 5.0)
Answer = Proof | Verdict | TaskError


class Check(Protocol):
    """Verifies who made a signature."""

    def signer(self, signature: Signed) -> tuple[str, BuildOrigin | None]:
        """Return the signer, and where the image was built according to the certificate, if there
        is one.

        Raises `Malformed` if the signature is invalid.
        """


@dataclass(frozen=True)
class Asked:
    """A requirement for an image: at least one of the checks must accept a signature, and the proof
    must match the demand.
    """

    checks: Sequence[Check]
    demand: Demand = Demand("signature")
    # who requires the proof, as a suffix for messages: "; imagesVerification wants the key of …"
    by: str = ""

    def proof(self, signature: Signed) -> Proof:
        """Return the proof that a signature, or an attestation (a signed statement about the
        build), meets this requirement.

        Raises `Malformed` if the signature is invalid, or if the build does not match the demand.
        """
        # `origin` is where the image was built according to the certificate; a statement takes
        # precedence
        signer, origin = self._signer(signature)
        if signature.statement is not None:
            if not self.of_build:
                raise Malformed("it is an attestation, not a signature")
            origin = origin_of(signature.statement)
        if self.of_build:
            if origin is None:
                raise Malformed(f"a signature by {signer} does not say where the image was built")
            mismatch = objection(origin, self.demand)
            if mismatch:
                raise Malformed(mismatch)
        if origin is None:  # the signature was made with a key
            return Proof("signature", signer)
        builder = origin.builders[0] if origin.builders else ""
        return Proof(
            kind=origin.kind,
            signer=signer,
            source_repository=", ".join(origin.repositories),
            ref=origin.ref,
            workflow=origin.workflow,
            builder=builder,
        )

    def _signer(self, signature: Signed) -> tuple[str, BuildOrigin | None]:
        """Return the signer and the build's origin, as determined by the first check that accepts
        the signature.

        Raises `Malformed` with the first check's message if no check accepts the signature.
        """
        first_message = ""
        for check in self.checks:
            try:
                return check.signer(signature)
            except Malformed as error:
                if not first_message:
                    first_message = error.message
        raise Malformed(first_message)

    @property
    def of_build(self) -> bool:
        """Whether the demand is about where the image was built."""
        return self.demand.rule == "provenance"


class Evidence:
    """A registry's signatures of an image and statements about it. Each manifest and each blob is
    read only once.
    """

    def __init__(self, registry: Registry, question: Question) -> None:
        """Prepare the queries about the question's image. No query is sent yet.

        The functions created here cache their results, so each query is sent only once.
        """
        self._digest = question.image.digest
        repository = cache(
            lambda: registry.repository(question.image, question.secret, question.namespace)
        )
        # Do not filter by type: the API accepts only exact types, but a bundle's type includes its
        # version. Besides, registries may ignore the filter.
        self._referrers = cache(lambda: repository().referrers(self._digest))
        self._manifest = cache(lambda reference: repository().manifest(reference))
        self.blob = cache(lambda digest: repository().blob(digest))

    def layers(self, *, of_build: bool) -> Iterator[Layer]:
        """Yield the layers that contain the image's signatures and, with `of_build`, statements
        about its build, starting with the most likely place in the registry.
        """
        if not of_build:
            yield from self._layers_of_tag("sig")
            yield from self._layers_of_referrers((SIGNED,))
            return
        # cosign 1 and 2 and Tekton Chains store everything under tags; cosign 3 and GitHub store
        # everything as referrers.
        predicates = (*PREDICATES, SIGNED)
        uses_tags = self._manifest(signature_tag(self._digest))
        if uses_tags:
            yield from self._layers_of_tag("att")
            yield from self._layers_of_referrers(predicates)
        else:
            yield from self._layers_of_referrers(predicates)
            yield from self._layers_of_tag("att")
        yield from self._layers_of_tag("sig")

    def _layers_of_tag(self, ending: str) -> Iterator[Layer]:
        """Yield the layers that contain signatures (if `ending` is "sig") or attestations ("att")
        from the manifest under cosign's tag for the image, such as `sha256-<hex>.sig`.
        """
        manifest = self._manifest(signature_tag(self._digest, ending))
        if manifest is None:
            return
        for layer in layers(manifest.data):
            # an attestation's predicate (the type of its statement) is "" if unknown
            is_wanted = ending == "sig" or predicate_of(layer.annotations) in ("", *PREDICATES)
            if is_wanted:
                yield layer

    def _layers_of_referrers(self, predicates: Sequence[str]) -> Iterator[Layer]:
        """Yield the layers of the manifests that refer to the image and claim to contain one of
        these predicates (types of statements), in the order of `predicates`. Manifests that claim
        no predicate come last.
        """
        candidates = []  # (position of the predicate, digest of the manifest)
        for referrer in self._referrers():
            # a manifest without an artifact type may still be a signature
            if referrer.artifact_type and not referrer.artifact_type.startswith(ARTIFACTS):
                continue
            predicate = predicate_of(referrer.annotations)
            if not predicate:
                candidates.append((len(predicates), referrer.digest))
            elif predicate in predicates:
                candidates.append((predicates.index(predicate), referrer.digest))
        candidates.sort(key=lambda candidate: candidate[0])

        for _position, digest in candidates[:MOST]:
            manifest = self._manifest(digest)
            if manifest is not None:
                yield from layers(manifest.data)


class Prover:
    """Finds proofs, and waits for those that arrive late, because Tekton Chains signs images only
    after the push.

    Thread-safe.
    """

    def __init__(
        self,
        registry: Callable[[], Registry],
        asked: Callable[[Question], Sequence[Asked]],
        timeout: float = 0.0,
        log: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """`registry` returns the registries. `asked` returns the requirements for an image, and may
        raise `TaskError`. `timeout` is the number of seconds to wait for a missing proof.
        """
        self._registry = registry
        self._requirements = asked
        self._timeout = timeout
        self._log = log
        self._lock = Lock()
        self._locks: dict[Question, Lock] = {}
        self._answers: dict[Question, Answer] = {}

    def __call__(self, questions: Collection[Question]) -> Mapping[Question, Answer]:
        """Return the answer for each image: a `Proof`, a `Verdict` that refuses the image, or an
        error if neither can be determined. Each question includes the image's digest.
        """
        answers = in_threads(self._answer_once, list(questions), _AT_ONCE)
        shutdown.check()  # raises an error after a signal, because the answers are then just errors
        return dict(zip(questions, answers, strict=True))

    def _answer_once(self, question: Question) -> Answer:
        """Return the answer for an image, which is determined only once per run, even if several
        threads need it.
        """
        key = replace(question, platforms=())  # a proof applies to an image for all platforms
        with self._lock:
            lock = self._locks.setdefault(key, Lock())
        with lock:
            if key not in self._answers:
                self._answers[key] = self._wait_for_answer(key)
            return self._answers[key]

    def _wait_for_answer(self, question: Question) -> Answer:
        """Return the answer for an image. As long as a proof may still arrive, keep looking until
        the timeout.
        """
        end = time.monotonic() + self._timeout
        ask: Callable[[], Answer] = partial(self._answer, question)
        answer = ask()
        if _is_final(answer) or time.monotonic() >= end:
            return answer

        # log what the run is waiting for, and why
        wanted = "a signature"
        why: object = answer
        if isinstance(answer, Verdict):
            why = answer.because
            if answer.rule == "provenance":
                wanted = "provenance"
        self._log(f"waiting for {wanted} of {question.image.reference}: {why}")

        pauses = chain(_PAUSES, repeat(_PAUSES[-1]))
        answer = until(_is_final, answer, ask, pauses, end)
        if not _is_final(answer):  # the time is up, or a signal has interrupted the wait
            shutdown.check()
        return answer

    def _answer(self, question: Question) -> Answer:
        """If all of the image's requirements are met, return the proof for the last one. Otherwise,
        return the first refusal or error.
        """
        answer: Answer = Verdict("refuse", "signature", "no required signer is configured")
        try:
            evidence = Evidence(self._registry(), question)
            for requirement in self._requirements(question):
                answer = self._prove(question, evidence, requirement)
                if isinstance(answer, Verdict):
                    return answer
        except TaskError as error:
            return error
        return answer

    def _prove(self, question: Question, evidence: Evidence, requirement: Asked) -> Proof | Verdict:
        """Return the proof from the first signature that meets the requirement, or a `Verdict` with
        the reason why no signature does.

        Raises `RegistryError` if no signature meets the requirement, but a signature could not be
        read.
        """
        objections: list[str] = []  # why each signature does not meet the requirement
        unread_error: TaskError | None = None
        # read at most 64 signatures per image, as documented (docs/how-to/signing.md)
        layers_to_check = islice(evidence.layers(of_build=requirement.of_build), 2 * MOST)
        for layer in layers_to_check:
            try:
                return requirement.proof(self._read(question, evidence, layer))
            except Malformed as error:
                objections.append(error.message)
            except RegistryDownError:  # the remaining signatures could not be read, either
                raise
            except RegistryError as error:  # another signature may still be valid
                unread_error = error
        if unread_error:
            raise unread_error

        singular = "provenance" if requirement.of_build else "signature"
        plural = "statements" if requirement.of_build else "signatures"
        because = objections[0] if objections else f"the registry has no {singular}"
        if len(objections) > 1:
            because += f" (none of the {len(objections)} {plural} is valid)"
        return Verdict("refuse", requirement.demand.rule, f"{because}{requirement.by}")

    def _read(self, question: Question, evidence: Evidence, layer: Layer) -> Signed:
        """Return the signature from a layer. Raises `Malformed` if the signature cannot be read, or
        is for another image.
        """
        try:
            signature = parse_signature(layer, evidence.blob(layer.digest))
        except Malformed as error:
            raise Malformed(f"a signature cannot be read: {error.message}") from None
        if question.image.digest not in signature.digests:
            raise Malformed("a signature is for another image")
        return signature


def _is_final(answer: Answer) -> bool:
    """Return whether to stop waiting, because there is a proof or a permanent error."""
    if isinstance(answer, TaskError):
        return answer.exit != Exit.TEMPORARY
    return isinstance(answer, Proof)
