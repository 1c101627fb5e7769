"""Answers questions about images, from all of a run's registries.

Queries that have succeeded are not repeated.
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
    """All of a run's registries. Thread-safe."""

    def __init__(
        self,
        logins: Logins,
        log: Callable[[str], None] = lambda _line: None,
        *,
        entries: Sequence[RegistryConf] = (),  # entries of registries.conf
        ca: str = "",  # PEM: CA certificates to trust in addition to the machine's
        cache_dir: str = "",  # the folder of `AnswerCache`
        limits: Limits = LIMITS,  # limits for one response
    ) -> None:
        self._logins = logins
        self._log = log
        self._entries = entries
        self._ca = ca
        self._cache_dir = cache_dir
        self._limits = limits
        self._authorities = cache(authorities_of)  # read each file only once, not for each query
        self._lock = Lock()
        self._apis: dict[Endpoint, RegistryApi] = {}
        self._repositories: dict[tuple[str, RegistryLogin | None], ImageRepository] = {}
        # result of `_subject` → (the known facts about an image, an answer that contains them)
        self._answers: dict[tuple[object, ...], tuple[frozenset[str], Answer]] = {}

    def answer(self, questions: Collection[Question]) -> Mapping[Question, Answer]:
        """Return an answer for each question about an image, in order.

        Questions about the same image are combined; questions about different images are answered
        in parallel. The answer for a missing image is `Answer(exists=False)`. If the facts cannot
        be determined, the answer contains an `error`, which is usually a `RegistryError` or a
        subclass. `platforms` lists all of an image's platforms. `created` and `labels` are taken
        from the image's newest member for a wanted platform.
        """
        by_subject: dict[tuple[object, ...], list[Question]] = {}
        for question in questions:
            by_subject.setdefault(self._subject(question), []).append(question)
        groups = list(by_subject.values())  # each group contains the questions about one image

        # Use more threads for more registries, because each registry has its own limit on
        # concurrent requests.
        hosts = {group[0].image.registry for group in groups}
        thread_count = min(_MOST_THREADS, AT_ONCE * len(hosts))
        answers: dict[Question, Answer] = {}  # filled by `_answer_group`
        in_threads(lambda group: self._answer_group(group, answers), groups, thread_count)
        shutdown.check()  # raises an error after a signal, because the answers are then just errors
        self._save()
        return {question: answers[question] for question in questions}

    def repository(self, image: Image, secret: str = "", namespace: str = "") -> ImageRepository:
        """Return the image's repository, with the credentials for it. The repository is created on
        first use.

        `secret` is the value of the image's `pull-secret` annotation, or "". `namespace` is the
        Application's.
        """
        # `conf` is the image's entry in registries.conf, or None
        endpoint, name, conf = place_of(image, self._entries, self._ca, self._authorities)
        url = endpoint.urls[-1]  # only a registry on this machine has two URLs: http, then https
        # The host that is contacted determines the credentials, because a Docker Hub mirror must
        # not receive Docker Hub's credentials.
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
        """Return a key that is the same for questions about the same image, with the same
        credentials and platforms. The wanted facts may differ.
        """
        image = question.image
        login = (question.secret, question.namespace) if question.secret else ()
        # With registries.conf, `nginx` and `docker.io/nginx` may be different images, because an
        # entry may be the default for image names without a registry.
        name = image.name if self._entries else image.identity
        return (name, image.tag, image.digest, login, question.platforms)

    def _answer_group(self, questions: list[Question], answers: dict[Question, Answer]) -> None:
        """Answer these questions, which are all about the same image, and add the results to
        `answers`.

        Known facts are kept for the whole run, so that decisions are consistent. Only missing facts
        are queried.
        """
        subject = self._subject(questions[0])
        facts = frozenset(fact for question in questions for fact in question.facts)
        known_facts, answer = self._answers.get(subject, (frozenset(), Answer()))
        missing = facts - known_facts
        if answer.exists and missing:  # a missing image is not queried again
            new_answer = self._query(questions[0], tuple(sorted(missing)))
            answer = _with_facts_from(new_answer, answer, missing)
            if answer.error is None:  # errors are not stored, because they may be transient
                self._answers[subject] = (known_facts | facts, answer)
        for question in questions:
            answers[question] = _part_of_answer(answer, question)

    def _query(self, question: Question, facts: tuple[str, ...]) -> Answer:
        """Query the registry for these facts about the question's image. An error is returned as
        the answer's `error`.
        """
        image = question.image
        if image.digest and facts == ("digest",):  # already known, so no request is needed
            return Answer(digest=image.digest)
        try:
            repository = self.repository(image, question.secret, question.namespace)
            if "tags" in facts:  # a question about tags never asks for other facts
                return Answer(tags=repository.tags())
            return find(repository, image, facts, question.platforms)
        except TaskError as error:
            return Answer(error=error)

    def _save(self) -> None:
        for repository in tuple(self._repositories.values()):
            repository.memory.save()


def _with_facts_from(new_answer: Answer, answer: Answer, facts: Collection[str]) -> Answer:
    """Return the earlier answer (`answer`), with these facts taken from the new answer.

    If the new answer is an error, or states that the image does not exist, return that instead.
    """
    if new_answer.error or not new_answer.exists:
        return new_answer
    # "exists" is true in both answers
    new_facts = {fact: getattr(new_answer, fact) for fact in facts if fact != "exists"}
    return replace(answer, **new_facts)


def _part_of_answer(answer: Answer, question: Question) -> Answer:
    """Return the answer, reduced to the facts that the question asks for."""
    other_facts = _FACTS - set(question.facts)
    return replace(answer, **{fact: getattr(_UNKNOWN, fact) for fact in other_facts})
