"""Answers questions about images from all registries of one run. The same question is asked only once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from task import shutdown
from task.errors import TaskError
from task.http import Limits
from task.model import Answer, Image, Question
from task.registry.api import AT_ONCE, LIMITS, RegistryApi
from task.registry.docker_config import RegistryLogin
from task.registry.endpoint import Endpoint, RegistryConf, place_of
from task.registry.facts import AnswerCache, find
from task.registry.logins import Logins
from task.registry.manifest import Manifest
from task.registry.repository import ImageRepository, Referrer, RegistryListLimits
from task.threads import in_threads
from task.urls import split

_MOST_THREADS = 32


@dataclass(frozen=True)
class Ways:
    """How to reach registries."""

    entries: Sequence[RegistryConf] = ()  # of registries.conf
    insecure: Collection[str] = ()  # hosts that may have any certificate, or none
    ca: str = ""  # PEM text: authorities trusted besides the machine's
    cache_dir: str = ""  # the folder of AnswerCache
    limits: Limits = LIMITS  # for one answer
    lists: RegistryListLimits = RegistryListLimits()  # for all pages of a list


class _Known:
    """One repository as one login sees it, and what is known about it."""

    def __init__(self, repository: ImageRepository, memory: AnswerCache) -> None:
        self.repository, self.memory = repository, memory
        self.tags: tuple[str, ...] | None = None
        self.lock = Lock()


class Registry:
    """The registries of one run. Safe to use from several threads."""

    def __init__(self, logins: Logins, ways: Ways = Ways(), log: Callable[[str], None] = lambda _line: None) -> None:
        self._logins, self._ways, self._log = logins, ways, log
        self._lock = Lock()
        self._apis: dict[Endpoint, RegistryApi] = {}
        self._known: dict[tuple[str, RegistryLogin | None], _Known] = {}
        self._answers: dict[tuple[object, ...], tuple[frozenset[str], Answer]] = {}
        self._requests = 0

    @property
    def requests(self) -> int:
        """The number of answers from registries and their token servers, including those to repeated requests."""
        return self._requests

    def answer(self, questions: Collection[Question]) -> Mapping[Question, Answer]:
        """Return an answer for every question, in the order of the questions.

        Questions about the same image are asked together, and those about different images in parallel. A missing image
        is `Answer(exists=False)`. If the facts are unknown, the answer has an `error`, a `RegistryError` or a subclass.
        `platforms` are all that an image has. `created` and `labels` are those of its newest wanted member.
        """
        groups: dict[tuple[object, ...], list[Question]] = {}
        for question in questions:
            groups.setdefault(self._subject(question), []).append(question)
        answers: dict[Question, Answer] = {}

        # Each registry has its own limit on simultaneous requests, so each one gets some threads.
        hosts = {group[0].image.registry for group in groups.values()}
        most = min(_MOST_THREADS, AT_ONCE * len(hosts))
        in_threads(lambda group: self._settle(group, answers), list(groups.values()), most)
        shutdown.check()  # after a signal, answers are errors
        self._save()
        return {question: answers[question] for question in questions}

    def tags(self, image: Image, secret: str = "", namespace: str = "") -> tuple[str, ...]:
        """Return all tags of an image's repository, listed once in a run. Raises `RegistryError` and its subclasses."""
        return _tags(self._at(image, secret, namespace))

    def referrers(
        self, image: Image, digest: str, artifact_type: str = "", secret: str = "", namespace: str = ""
    ) -> tuple[Referrer, ...]:
        """Return the manifests that refer to an image's digest: signatures, attestations.

        Each call asks the registry.
        """
        return self._at(image, secret, namespace).repository.referrers(digest, artifact_type)

    def manifest(self, image: Image, reference: str, secret: str = "", namespace: str = "") -> Manifest | None:
        """Return the manifest of a tag or digest, or None if it is missing. Each call asks the registry."""
        return self._at(image, secret, namespace).repository.manifest(reference)

    def blob(self, image: Image, digest: str, secret: str = "", namespace: str = "") -> bytes:
        """Return a blob of an image's repository, checked against its digest."""
        return self._at(image, secret, namespace).repository.blob(digest)

    def close(self) -> None:
        """Close all connections, and save the caches."""
        self._save()
        for api in self._apis.values():
            api.close()

    def _subject(self, question: Question) -> tuple[object, ...]:
        """Return a key that is equal for questions with the same answer: the subject, and the login's secret."""
        image = question.image
        who = (question.secret, question.namespace) if question.secret else ()
        # The spelling matters if registries.conf has an entry for images without a registry (`default`).
        name = image.name if self._ways.entries else image.identity
        return (name, image.tag, image.digest, who, question.platforms)

    def _settle(self, questions: list[Question], answers: dict[Question, Answer]) -> None:
        """Answer questions about one image. An answer is kept for the whole run, so that decisions are consistent."""
        subject = self._subject(questions[0])
        facts = frozenset(fact for question in questions for fact in question.facts)
        had, known = self._answers.get(subject, (frozenset(), Answer()))
        if known.exists and (missing := facts - had):
            more = self._asked(questions[0], tuple(sorted(missing)))
            if more.exists and not more.error:
                more = replace(known, **{fact: getattr(more, fact) for fact in missing if fact != "exists"})
            known = more
            if known.error is None:  # an error may be temporary, so the next question asks again
                self._answers[subject] = (had | facts, known)
        answers.update({question: _part(known, question) for question in questions})

    def _asked(self, question: Question, facts: tuple[str, ...]) -> Answer:
        image = question.image
        if image.digest and set(facts) <= {"digest"}:
            return Answer(digest=image.digest)
        try:
            at = self._at(image, question.secret, question.namespace)
            if "tags" in facts:
                return Answer(tags=_tags(at))
            return find(at.repository, image, facts, question.platforms, at.memory)
        except TaskError as error:
            return Answer(error=error)

    def _at(self, image: Image, secret: str, namespace: str) -> _Known:
        """Return the image's repository, with the login for it."""
        place = place_of(image, self._ways.entries, self._ways.insecure, self._ways.ca)
        # The contacted host decides: a mirror of Docker Hub must not get Docker Hub's login.
        host = split(place.endpoint.urls[-1]).authority
        if secret:
            login = self._logins.of_annotation(secret, namespace, host, place.repository)
        elif place.conf and place.conf.credentials:
            login = self._logins.of_conf(place.conf.credentials, place.conf.credsexpire, host, place.repository)
        else:
            login = self._logins.of_host(host, place.repository)
        name = f"{place.endpoint.urls[-1]}/{place.repository}"
        with self._lock:
            api = self._apis.get(place.endpoint)
            if api is None:
                api = self._apis[place.endpoint] = RegistryApi(place.endpoint, self._count, self._ways.limits)
            key = (name, login)
            if key not in self._known:
                memory = AnswerCache(self._ways.cache_dir, name)
                self._known[key] = _Known(ImageRepository(api, place.repository, login, self._ways.lists), memory)
            return self._known[key]

    def _count(self, line: str) -> None:
        with self._lock:
            self._requests += 1
        self._log(line)

    def _save(self) -> None:
        for known in tuple(self._known.values()):
            known.memory.save()


def _tags(known: _Known) -> tuple[str, ...]:
    with known.lock:
        if known.tags is None:
            known.tags = known.repository.tags()
        return known.tags


def _part(answer: Answer, question: Question) -> Answer:
    """Return the facts for one question, from an answer to several questions."""
    facts = question.facts
    return Answer(
        exists=answer.exists,
        digest=answer.digest if "digest" in facts else "",
        created=answer.created if "created" in facts else "",
        platforms=answer.platforms if "platforms" in facts else (),
        labels=answer.labels if "labels" in facts else {},
        tags=answer.tags if "tags" in facts else (),
        error=answer.error,
    )
