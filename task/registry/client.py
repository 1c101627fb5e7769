"""Answers queries about images from all registries of a run.

A query that succeeded is not sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from threading import Lock

from task import shutdown
from task.errors import TaskError
from task.http import Limits
from task.model import Answer, Image, Question
from task.registry.api import AT_ONCE, LIMITS, RegistryApi
from task.registry.docker_config import RegistryLogin
from task.registry.endpoint import Endpoint, RegistryConf, authorities_of, place_of
from task.registry.facts import find
from task.registry.logins import Logins
from task.registry.repository import AnswerCache, ImageRepository
from task.threads import in_threads
from task.urls import split

_MOST_THREADS = 32
_FACTS = {"digest", "created", "platforms", "labels", "tags"}
_UNKNOWN = Answer()


class Registry:
    """The registries of a run. Thread-safe."""

    def __init__(
        self,
        logins: Logins,
        log: Callable[[str], None] = lambda _line: None,
        *,
        entries: Sequence[RegistryConf] = (),  # entries of registries.conf
        ca: str = "",  # PEM text: authorities to trust in addition to the machine's
        cache_dir: str = "",  # the folder of `AnswerCache`
        limits: Limits = LIMITS,  # limits for one response
    ) -> None:
        self._logins = logins
        self._log = log
        self._entries = entries
        self._ca = ca
        self._cache_dir = cache_dir
        self._limits = limits
        self._authorities = cache(authorities_of)  # a file is read once, not for each query
        self._lock = Lock()
        self._apis: dict[Endpoint, RegistryApi] = {}
        self._repositories: dict[tuple[str, RegistryLogin | None], ImageRepository] = {}
        # by `_subject`: which facts are known about an image, and an answer with them
        self._answers: dict[tuple[object, ...], tuple[frozenset[str], Answer]] = {}

    def answer(self, questions: Collection[Question]) -> Mapping[Question, Answer]:
        """Return an answer for each question about an image, in order.

        Questions about the same image are combined. Questions about different images are answered
        in parallel. A missing image is `Answer(exists=False)`. If the facts are unknown, the answer
        has an `error`, a `RegistryError` or a subclass. `platforms` are all of an image's
        platforms. `created` and `labels` are from its newest member for a wanted platform.
        """
        by_subject: dict[tuple[object, ...], list[Question]] = {}
        for question in questions:
            by_subject.setdefault(self._subject(question), []).append(question)
        groups = list(by_subject.values())  # each has the questions about one image

        # Each registry has its own limit on simultaneous requests, so more registries get more
        # threads.
        hosts = {group[0].image.registry for group in groups}
        thread_count = min(_MOST_THREADS, AT_ONCE * len(hosts))
        answers: dict[Question, Answer] = {}  # `_answer_group` fills it
        in_threads(lambda group: self._answer_group(group, answers), groups, thread_count)
        shutdown.check()  # after a signal, the answers are errors
        self._save()
        return {question: answers[question] for question in questions}

    def repository(self, image: Image, secret: str = "", namespace: str = "") -> ImageRepository:
        """Return the image's repository, with its credentials. It is created on first use.

        `secret` is the image's `pull-secret` annotation, or "". `namespace` is the Application's.
        """
        # `conf` is the image's entry in registries.conf, or None
        endpoint, name, conf = place_of(image, self._entries, self._ca, self._authorities)
        url = endpoint.urls[-1]  # only a registry on this machine has two: http, then https
        # The contacted host determines the credentials: a Docker Hub mirror must not get Docker
        # Hub's.
        host = split(url).authority
        if secret:
            login = self._logins.of_annotation(secret, namespace, host, name)
        elif conf and conf.credentials:
            login = self._logins.of_conf(conf.credentials, conf.credsexpire, host, name)
        else:
            login = self._logins.of_host(host, name)

        repository_url = f"{url}/{name}"
        key = (repository_url, login)
        with self._lock:
            if endpoint not in self._apis:
                self._apis[endpoint] = RegistryApi(endpoint, self._log, self._limits)
            if key not in self._repositories:
                self._repositories[key] = ImageRepository(
                    api=self._apis[endpoint],
                    name=name,
                    login=login,
                    memory=AnswerCache(self._cache_dir, repository_url),
                )
            return self._repositories[key]

    def close(self) -> None:
        """Close all connections, and save the caches."""
        self._save()
        for api in self._apis.values():
            api.close()

    def _subject(self, question: Question) -> tuple[object, ...]:
        """Return a key that is equal for questions about the same image, credentials, and
        platforms. The wanted facts may differ.
        """
        image = question.image
        login = (question.secret, question.namespace) if question.secret else ()
        # `nginx` and `docker.io/nginx` may be different images with registries.conf, because it may
        # have an entry for images without a registry (`default`).
        name = image.name if self._entries else image.identity
        return (name, image.tag, image.digest, login, question.platforms)

    def _answer_group(self, questions: list[Question], answers: dict[Question, Answer]) -> None:
        """Add the answers to these questions, which are all about one image, to `answers`.

        Known facts are kept for the whole run, so that decisions are consistent. Only the other
        facts are queried.
        """
        subject = self._subject(questions[0])
        facts = frozenset(fact for question in questions for fact in question.facts)
        known_facts, answer = self._answers.get(subject, (frozenset(), Answer()))
        missing = facts - known_facts
        if answer.exists and missing:  # a missing image is not queried again
            new_answer = self._query(questions[0], tuple(sorted(missing)))
            answer = _with_facts_from(new_answer, answer, missing)
            if answer.error is None:  # an error may be transient, so the next query retries
                self._answers[subject] = (known_facts | facts, answer)
        for question in questions:
            answers[question] = _part_of_answer(answer, question)

    def _query(self, question: Question, facts: tuple[str, ...]) -> Answer:
        """Query the registry for these facts about the question's image. Errors become the answer's
        `error`.
        """
        image = question.image
        if image.digest and facts == ("digest",):  # the reference has it, so no request is needed
            return Answer(digest=image.digest)
        try:
            repository = self.repository(image, question.secret, question.namespace)
            if "tags" in facts:  # a question about the repository, which never includes other facts
                return Answer(tags=repository.tags())
            return find(repository, image, facts, question.platforms)
        except TaskError as error:
            return Answer(error=error)

    def _save(self) -> None:
        for repository in tuple(self._repositories.values()):
            repository.memory.save()


def _with_facts_from(new_answer: Answer, answer: Answer, facts: Collection[str]) -> Answer:
    """Return the earlier answer, with these facts taken from the new answer.

    If the new answer is an error, or the image does not exist, return the new answer instead.
    """
    if new_answer.error or not new_answer.exists:
        return new_answer
    # the image exists in both answers, so "exists" has the same value in both
    new_facts = {fact: getattr(new_answer, fact) for fact in facts if fact != "exists"}
    return replace(answer, **new_facts)


def _part_of_answer(answer: Answer, question: Question) -> Answer:
    """Return the answer with only the facts that the question asks for."""
    other_facts = _FACTS - set(question.facts)
    return replace(answer, **{fact: getattr(_UNKNOWN, fact) for fact in other_facts})
