"""Everything that a decision needs: the repository's own config, and the facts for the rules.

An annotation overrides an option or a variable, an option overrides the config, and the config
overrides the default. The exceptions are a pull request, a digest, and a freeze: each applies if
any of these sources requests it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from task.deciding.decide import (
    changed_files,
    holds_of_others,
    missing_places,
    places,
    questions_to_ask,
)
from task.deciding.job import Ask, Job, Terms
from task.deciding.verify import LastChecks
from task.deciding.weigh import Facts
from task.errors import TargetError
from task.git.names import PREFIX
from task.landing.ports import Batch, HasMemoryBranches, ReadsMore, World
from task.landing.states import only_holds
from task.model import Answer, Files, Place, Question, Snapshot, Subscription
from task.repository_config.config import (
    MISTAKEN,
    NO_CONFIG,
    PATH,
    RepositoryConfig,
    also_limited,
    for_some_paths,
    governed,
)
from task.repository_config.reading import config_in, of_config, template_in, with_keys
from task.templates.commit_message import wants_labels
from task.text import blanked

S = TypeVar("S", bound=Snapshot)
CONFIG = (Place(PATH), *(Place(path, "exists") for path in MISTAKEN))


def as_wanted(
    asks: Sequence[Ask],
    snapshot: Snapshot,
    config: RepositoryConfig,
    terms: Terms,
    default: RepositoryConfig = NO_CONFIG,
) -> tuple[Ask, ...]:
    """Return these asks (images with new builds) with the repository's own config applied to their
    subscriptions and sibling subscriptions, including its rules for the files that they change.

    `default` is the default branch's config, which limits writes to all branches.
    """

    def changed(sub: Subscription) -> Collection[str]:
        """Return the paths of the files that an update changes."""
        return changed_files(snapshot, sub, terms)

    # Keyed by `id`: a subscription may also be a sibling of several others, but must be processed
    # only once.
    subs_by_id: dict[int, Subscription] = {}
    for ask in asks:
        for sub in (ask.subscription, *ask.siblings):
            subs_by_id[id(sub)] = sub
    configured_subs = governed(subs_by_id.values(), config, terms.now, changed)
    limited_subs = also_limited(configured_subs, default, changed)
    with_config = dict(zip(subs_by_id, limited_subs, strict=True))
    return tuple(
        replace(
            ask,
            subscription=with_config[id(ask.subscription)],
            siblings=tuple(with_config[id(sub)] for sub in ask.siblings),
        )
        for ask in asks
    )


MOST_LEFT_OUT = 5  # files listed in the warning


def with_own_memory_branch(snapshot: Snapshot, repository: HasMemoryBranches) -> Snapshot:
    """Return the snapshot with the files from the memory branch (which stores the holds and the
    lists of waiting builds) that the repository's config names. Untrusted files are left out.

    Raises `TargetError` if the config is invalid.
    """
    prefix = config_in(snapshot.files).wishes.branch_prefix or PREFIX
    if prefix != snapshot.prefix:
        snapshot = repository.with_memory_branch_under(snapshot, prefix)
    return _with_trusted_memory_files(snapshot, repository)


def _with_trusted_memory_files(snapshot: Snapshot, repository: HasMemoryBranches) -> Snapshot:
    """Return the snapshot with only the trusted files from its memory branch (which stores the
    holds and the lists of waiting builds).

    Runs that sign their commits also sign those on the memory branch. If that branch is not signed
    with a known key, only its holds count. Raises `TargetError` if the config is invalid.
    """
    tip = snapshot.memory_tip
    if not tip and snapshot.inherited:  # the files were read from a branch with an old name
        _old_name, tip = snapshot.inherited
    if not tip:  # there is no memory branch
        return snapshot

    signers = config_in(snapshot.files).memory_signers
    public_keys: list[str] = []
    if signers:
        snapshot = with_more(snapshot, map(Place, signers.keys), repository)
        with of_config():
            public_keys = [text for _path, text in with_keys(signers, snapshot.files).texts]
    if repository.signed(tip, public_keys):
        return snapshot

    all_files = snapshot.memory_files
    holds = only_holds(all_files)  # a forged hold can only stop updates
    ignored_paths = [path for path in sorted(all_files) if all_files[path] != holds.get(path)]
    warning = "no known key has signed it, so only its holds count"
    if ignored_paths:
        names = ", ".join(map(blanked, ignored_paths[:MOST_LEFT_OUT]))
        warning += f"; left out: {names}"
    if len(ignored_paths) > MOST_LEFT_OUT:
        warning += f" and {len(ignored_paths) - MOST_LEFT_OUT} more"
    return replace(snapshot, memory_files=holds, unsigned=warning)


def govern(batch: Batch, snapshot: Snapshot, job: Job) -> tuple[Batch, Snapshot, Job]:
    """Apply the repository's own config, as found in this snapshot, to the batch's asks and to the
    wording of its commits.

    Raises `TargetError` if the config is invalid.
    """
    asks, snapshot, job = govern_asks(batch.asks, snapshot, job, batch.repository)
    return replace(batch, asks=asks), snapshot, job


def govern_asks(
    asks: tuple[Ask, ...],
    snapshot: Snapshot,
    job: Job,
    repository: ReadsMore,
) -> tuple[tuple[Ask, ...], Snapshot, Job]:
    """Apply the repository's own config, as found in this snapshot, to these asks (images with new
    builds) and to the wording of their commits.

    Return the asks, the snapshot, and the job. If more files are needed, such as the message
    template, they are read at the snapshot's commit. Raises `TargetError` if the config is invalid.
    """
    config = config_in(snapshot.files)
    default_config = _config_of_default_branch(snapshot)
    has_config = config != NO_CONFIG or default_config != NO_CONFIG
    governed_asks = asks  # the asks with the config applied
    if has_config:
        governed_asks = as_wanted(asks, snapshot, config, job.terms, default_config)

    # 1. Read the files that the config names.
    template_paths: list[str] = []
    if job.wording.template is None:  # a template from the command line overrides the config
        paths = dict.fromkeys(ask.subscription.wishes.template for ask in governed_asks)
        template_paths = [path for path in paths if path]
    snapshot_before = snapshot
    more_places = _places_of_wishes(asks, governed_asks, template_paths)
    snapshot = with_more(snapshot, more_places, repository)
    subs = [ask.subscription for ask in governed_asks]
    snapshot = with_missing(snapshot, subs, job.terms, repository)
    has_read_more = snapshot is not snapshot_before
    if has_read_more and for_some_paths(config):
        # The new files may reveal more paths that the updates change, so more rules may apply.
        governed_asks = as_wanted(asks, snapshot, config, job.terms, default_config)

    # 2. Use the contents of the message templates and of the public keys.
    templates: dict[str, str] = {}
    asks_with_keys: list[Ask] = []
    lines_in_config = dict(config.templates)
    with of_config():
        for path in template_paths:
            templates[path] = template_in(snapshot.files, path, lines_in_config[path])
        for ask in governed_asks:
            sub = with_all_keys(ask.subscription, snapshot.files)
            asks_with_keys.append(replace(ask, subscription=sub))
    wording = replace(
        job.wording,
        common=config.wishes,
        templates=templates,
        config=config,
    )
    return tuple(asks_with_keys), snapshot, replace(job, wording=wording)


def _places_of_wishes(
    asks: Sequence[Ask], governed_asks: Sequence[Ask], templates: Sequence[str]
) -> list[Place]:
    """Return the places (files or folders) that must be read because of the repository's config:
    message templates (`templates` contains their paths), public keys, and files for pull requests.

    `governed_asks` are the asks with the config applied.
    """
    for_requests: list[Place] = []
    # If only the config requests a pull request, updates to the Application's other images may be
    # waiting on the request's branch.
    for ask, governed_ask in zip(asks, governed_asks, strict=True):
        requested_before = ask.subscription.pull_request
        requested_by_config = governed_ask.subscription.pull_request and not requested_before
        if requested_by_config:
            already_read = set(places(ask))
            for_requests += [place for place in places(governed_ask) if place not in already_read]
    key_paths: list[str] = []
    for ask in governed_asks:
        for demand in ask.subscription.demands:
            key_paths += demand.keys
    return for_requests + [Place(path) for path in (*templates, *key_paths)]


def with_more(snapshot: S, places: Iterable[Place], repository: ReadsMore) -> S:
    """Return the snapshot with the files of these places added, read at the same commit.

    If the store could only read them at a newer commit, the snapshot's tip becomes "", so that
    nothing can land on it.
    """
    wanted = tuple(dict.fromkeys(places))
    if not wanted:
        return snapshot
    added = repository.read_more(snapshot, wanted)
    tip = snapshot.tip if added.tip == snapshot.tip else ""
    return replace(snapshot, tip=tip, files={**snapshot.files, **added.files})


_MOST_ROUNDS = 20  # fetches, for kustomizations in separate folders that include each other


def with_missing(
    snapshot: S,
    subs: Sequence[Subscription],
    terms: Terms,
    repository: ReadsMore,
    *,
    whole: bool = False,
) -> S:
    """Return the snapshot with all files that are needed to decide these subscriptions (what to
    update, and where), read at the same commit.

    A file may refer to other files, so files are read in rounds until there are no new ones. With
    `whole`, all overlays of a kustomization are read, because one of them may hide the image.
    """
    already_read: set[Place] = set()
    for _ in range(_MOST_ROUNDS):
        missing: list[Place] = []
        for sub in subs:
            missing += missing_places(snapshot, sub, terms, whole=whole)
        new_places = [place for place in dict.fromkeys(missing) if place not in already_read]
        if not new_places:
            break
        already_read.update(new_places)
        snapshot = with_more(snapshot, new_places, repository)
    return snapshot


def with_all_keys(sub: Subscription, files: Files) -> Subscription:
    """Return a subscription with the contents of the public keys that the config requires for its
    images. `files` contains the key files. Raises `TargetError` if a key cannot be read.
    """
    if not sub.demands:
        return sub
    return replace(sub, demands=tuple(with_keys(demand, files) for demand in sub.demands))


def _config_of_default_branch(snapshot: Snapshot) -> RepositoryConfig:
    """Return the config on the repository's default branch. Raises `TargetError` if it is
    invalid.
    """
    try:
        return config_in(snapshot.default)
    except TargetError as error:
        raise TargetError(
            f"on the default branch: {error.message}",
            hint=error.hint,
            subject=error.subject,
        ) from error


# looks up the facts that neither the event nor a snapshot contains
Gather = Callable[[Snapshot, Sequence[Ask]], Facts]


def gatherer(batch: Batch, job: Job, world: World) -> Gather:
    """Return a function that looks up the facts that neither the event nor a snapshot contains,
    such as what the registries know about an image, or which of two source commits is newer.

    The function takes a snapshot and asks (images with new builds). It looks up the facts that the
    asks are known to need. For all other facts, it returns functions (`earlier`, `synced`,
    `exists`), which a rule calls only if it needs them.
    """

    @cache
    def exists(question: Question) -> Answer | None:
        """Query the registry about an image, at most once per question."""
        if job.terms.check == "never":  # registries must not be queried
            return None
        return world.registry((question,)).get(question)

    def gather(snapshot: Snapshot, asks: Sequence[Ask]) -> Facts:
        """Look up the facts that are needed to decide these asks on a snapshot."""
        commit_pairs, image_questions = questions_to_ask(snapshot, asks, job.terms)
        ancestry = {pair: world.ancestry(*pair) for pair in commit_pairs}

        def earlier(path: str, most: int, marked: Collection[str]) -> Iterable[tuple[str, str]]:
            """Read a file's history from Git as (commit, content) pairs, skipping deletions."""
            versions = batch.repository.earlier(snapshot.branch, path, most, marked)
            return ((commit, text) for commit, text in versions if text is not None)

        subs: list[Subscription] = []
        for ask in asks:
            subs += [ask.subscription, *ask.siblings]
        return Facts(
            ancestry=ancestry,
            answers=answers_to(image_questions, world),
            earlier=earlier,
            synced=world.synced,
            exists=exists,
            elsewhere=holds_of_others(snapshot, subs, job.terms),
        )

    return gather


def answers_to(questions: Sequence[Question], world: World) -> dict[Question, Answer]:
    """Query the registries about images, and return their answers, keyed by question.

    The questions used as keys have no `facts` (the requested details), so that a rule can look up
    an answer without knowing what else was requested.
    """
    answers = world.registry(questions) if questions else {}
    return {replace(question, facts=()): answer for question, answer in answers.items()}


def last_checks(job: Job, world: World) -> LastChecks:
    """Return the final checks before a build is written: the proofs, and the image labels that the
    commit message uses.
    """
    templates = (job.wording.template, *job.wording.templates.values())
    may_query_registry = job.terms.check != "never"
    labels = may_query_registry and any(map(wants_labels, templates))
    return LastChecks(
        registry=world.registry, prove=world.prove, always=world.always_prove, labels=labels
    )
