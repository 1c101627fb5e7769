"""Decides whether images are signed as required. It reads both places in a registry where cosign stores signatures."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import chain, repeat
from threading import Lock
from typing import Any, Protocol

from task import shutdown
from task.errors import Exit, Malformed, RegistryDownError, RegistryError, TaskError
from task.model import Question
from task.registry.client import Registry
from task.registry.signature import ARTIFACTS, MOST, Layer, Signed, layers, signature_tag, signed
from task.retry import until
from task.threads import in_threads

_AT_ONCE = 8
_PAUSES = (1.0, 2.0, 3.0, 5.0)  # seconds before a signature is looked up again; the last one repeats
_NONE = "the registry has no signature"


class Check(Protocol):
    """Checks who made a signature."""

    def objection(self, signature: Signed) -> str:
        """Return why a signature is not good, or "" if it is good."""


class Signatures:
    """Finds signatures, and waits for late ones, because Tekton Chains signs after the push.

    Safe to use from threads.
    """

    def __init__(
        self, registry: Registry, check: Check, timeout: float = 0.0, log: Callable[[str], None] = lambda _line: None
    ) -> None:
        self._registry, self._check, self._timeout, self._log = registry, check, timeout, log
        self._lock = Lock()
        self._turns: dict[tuple[str, ...], Any] = {}
        self._known: dict[tuple[str, ...], str | TaskError] = {}

    def __call__(self, questions: Collection[Question]) -> Mapping[Question, str | TaskError]:
        """Return for each image (with its digest) "" if it is signed, why it is not, or an error if that is unknown."""
        answers = in_threads(self._settled, list(questions), _AT_ONCE)
        shutdown.check()  # after a signal, answers are errors
        return dict(zip(questions, answers, strict=True))

    def _settled(self, question: Question) -> str | TaskError:
        """Return the answer for one image. It is waited for only once in a run."""
        key = (question.image.name, question.image.digest, question.secret, question.namespace)
        with self._lock:
            turn = self._turns.setdefault(key, Lock())
        with turn:
            if key not in self._known:
                self._known[key] = self._awaited(question)
            return self._known[key]

    def _awaited(self, question: Question) -> str | TaskError:
        end = time.monotonic() + self._timeout
        ask: Callable[[], str | TaskError] = partial(self._answer, question)
        answer = ask()
        if _final(answer) or time.monotonic() >= end:
            return answer
        self._log(f"waiting for a signature of {question.image.reference}: {answer}")
        pauses = chain(_PAUSES, repeat(_PAUSES[-1]))
        answer = until(_final, answer, ask, pauses, end)
        if not _final(answer):
            shutdown.check()
        return answer

    def _answer(self, question: Question) -> str | TaskError:
        try:
            return self._objection(question)
        except TaskError as error:
            return error

    def _objection(self, question: Question) -> str:
        """Return what is wrong with all signatures, or "" if one is good.

        A signature that cannot be read does not matter if another one is good.
        """
        objections: list[str] = []
        unread: TaskError | None = None
        for layer in self._layers(question):
            try:
                why = self._judged(question, layer)
            except RegistryDownError:
                raise
            except RegistryError as error:  # another signature may still be good
                unread = error
                continue
            if not why:
                return ""
            objections.append(why)
        if unread:
            raise unread
        if not objections:
            return _NONE
        more = f" (of {len(objections)} signatures none is good)" if len(objections) > 1 else ""
        return f"{objections[0]}{more}"

    def _layers(self, question: Question) -> Iterator[Layer]:
        image, who = question.image, (question.secret, question.namespace)
        # cosign 1 and 2 and Tekton Chains store signatures under a tag, and cosign 3 stores them as referrers.
        if listed := self._registry.manifest(image, signature_tag(image.digest), *who):
            yield from layers(listed.data)
        referring = self._registry.referrers(image, image.digest, "", *who)
        # Filter here: the API's filter takes one exact type, but that of a bundle contains its version, and a registry
        # may ignore the filter.
        ours = [
            referrer
            for referrer in referring
            if not referrer.artifact_type or referrer.artifact_type.startswith(ARTIFACTS)
        ]
        for referrer in ours[:MOST]:
            if manifest := self._registry.manifest(image, referrer.digest, *who):
                yield from layers(manifest.data)

    def _judged(self, question: Question, layer: Layer) -> str:
        """Return why one signature is not good (above all, because it is for another image), or "" if it is good."""
        blob = self._registry.blob(question.image, layer.digest, question.secret, question.namespace)
        try:
            signature = signed(layer, blob)
        except Malformed as error:
            return f"a signature cannot be read: {error.message}"
        if question.image.digest not in signature.digests:
            return "a signature is for another image"
        return self._check.objection(signature)


def _final(answer: str | TaskError) -> bool:
    """Tell whether waiting is useless: the image is signed, or the error is not temporary."""
    return answer == "" or (isinstance(answer, TaskError) and answer.exit != Exit.TEMPORARY)
