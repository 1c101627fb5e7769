"""The story: find the Applications → match the image → decide → land → report.

Reads like the README. The world is touched only through the Protocols below, which the
edges fit; every decision is made by pure code, on values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from task import stop
from task.atomic import stopped, without_the_broken
from task.decide import Ask, decide, hopeless, places, questions
from task.draft import Draft, Wording, drafts, with_heads
from task.errors import ContendedError, Outpaced, TaskError
from task.find import Locate, Manifest, Scope, not_found, subscribed
from task.find import find as find_all
from task.match import Matched, match, meant
from task.model import (
    Answer,
    Changeset,
    Commit,
    Decision,
    Image,
    Landing,
    Place,
    Problem,
    Question,
    Report,
    Snapshot,
    Subscribed,
    Verdict,
)
from task.parse.write_back import normal_url
from task.record import NamedTuple
from task.weigh import Facts, Intent, Terms, failed
from task.words.caution import cautions
from task.words.diff import unified_diff
from task.words.outcome import exit_code

LONGEST_PAUSE = 20.0  # seconds
AT_ONCE = 8  # repositories; more would only wait for each other


class Store(Protocol):
    """One repository, as compare-and-swap: `land` succeeds only from the tip that was read."""

    def default_branch(self) -> str:
        """The branch that HEAD names."""

    def snapshot(self, branch: str, places: Collection[Place]) -> Snapshot:
        """The places asked for, at the branch's present tip."""

    def ahead(self, head: str, places: Collection[Place]) -> Snapshot | None:
        """The places at the tip of a head branch; None where there is no such branch."""

    def land(self, change: Changeset) -> Landing:
        """Commit and push; raises `Outpaced` when the branch moved meanwhile."""

    def earlier(self, branch: str, path: str) -> Iterable[tuple[str, str | None]]:
        """(commit, text) of a file as it was before, newest first; None where there was none."""

    def predict(self, change: Changeset) -> Landing:
        """What `land` would answer, without a commit."""

    def close(self) -> None:
        """Nothing is left behind."""


class Edges(NamedTuple):
    """The world, as the pipeline needs it."""

    applications: Callable[[], Iterable[Manifest]]
    locate: Locate
    store: Callable[[str], Store]
    now: Callable[[], float]  # seconds, monotonic
    sleep: Callable[[float], None]
    jitter: Callable[[], float]  # 0 to 1, at random: keeps many writers from trying in step
    log: Callable[[str, str], None]  # level, sentence
    # (repository, new commit, old commit) → "newer", "older", or anything else where that is not known
    ancestry: Callable[[str, str, str], str] = lambda _repository, _new, _old: ""
    registry: Callable[[Collection[Question]], Mapping[Question, Answer]] = lambda _questions: {}
    close: Callable[[], None] = lambda: None  # leaves nothing behind that was opened for the run


class Order(NamedTuple):
    """What one run is asked to do."""

    command: str  # "run", "plan", "hold", "release", "rollback"
    images: tuple[Image, ...]
    scope: Scope
    terms: Terms
    wording: Wording
    deadline: float = 120.0  # seconds
    atomic: bool = False
    require_update: bool = False
    only: tuple[str, ...] = ()
    dry: bool = False  # predict in place of pushing
    intent: Intent | None = None  # of `hold`, `release` and `rollback`
    meant: tuple[str, ...] = ()  # their images: aliases or names; () is all


class Outcome(NamedTuple):
    """What became of the asks of one repository."""

    decisions: tuple[Decision, ...] = ()
    commits: tuple[Commit, ...] = ()

    def plus(self, other: Outcome) -> Outcome:
        """Both together."""
        return Outcome(self.decisions + other.decisions, self.commits + other.commits)


class Site(NamedTuple):
    """One base branch of one repository: one fetch, and one commit and push per head branch."""

    store: Store
    branch: str
    order: Order
    edges: Edges


def run(order: Order, edges: Edges) -> Report:
    """The main job. `plan` is the same with predictions in place of pushes."""
    asking, problems = find(order, edges)
    matched = meant(asking, order.intent, order.meant) if order.intent else match(asking, order.images)
    done = Outcome(matched.decisions)
    if order.atomic:
        matched, given_up = without_the_broken(matched)
        done = done.plus(Outcome(given_up))
    with stop.shield():  # a signal ends every wait in there; what landed until then is told
        for outcome in deliveries(by_repository(matched, order), order, edges):
            done = done.plus(outcome)
        return report(order, asking, done, problems + matched.problems)


def find(order: Order, edges: Edges) -> tuple[tuple[Subscribed, ...], tuple[Problem, ...]]:
    """The Applications in question, each with what its annotations ask for."""
    found = find_all(edges.applications(), order.scope, edges.locate)
    if found.sets:
        edges.log("info", f"{found.sets} ApplicationSets are passed over: the Applications they generate count")
    if not found.applications and not found.releases:
        edges.log("warning", "no Application with Image Updater's annotations was found (--applications, narrowing)")
    unknown = not_found(order.scope.narrow.names, found) if order.intent else ()
    return subscribed(found, order.scope, order.images), found.problems + unknown


def by_repository(matched: Matched, order: Order) -> dict[str, tuple[Ask, ...]]:
    """The asks that Git has to answer, per repository whatever the spelling of its URL."""
    only = {normal_url(url) for url in order.only}
    groups: dict[str, list[Ask]] = {}
    for ask in matched.asks:
        url = normal_url(ask.subscription.repo)
        if not only or url in only:
            groups.setdefault(url, []).append(ask)
    return {asks[0].subscription.repo: tuple(asks) for asks in groups.values()}


def deliveries(asks: Mapping[str, Sequence[Ask]], order: Order, edges: Edges) -> list[Outcome]:
    """Each repository's outcome, in order; several repositories at the same time."""
    if len(asks) < 2:  # noqa: PLR2004 - one needs no threads, which take time to load
        return [deliver(repo, members, order, edges) for repo, members in asks.items()]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(len(asks), AT_ONCE)) as pool:
        with stop.unheard():  # signals are for the main thread, which waits
            outcomes = pool.map(lambda repo: deliver(repo, asks[repo], order, edges), asks)
        return list(outcomes)


def deliver(repo: str, asks: Sequence[Ask], order: Order, edges: Edges) -> Outcome:
    """Decide and land everything of one repository. Whatever fails here fails alone."""
    refused = [decision for ask in asks if (decision := hopeless(ask, order.terms))]
    if len(refused) == len(asks):  # no state of Git can change that: it is not asked
        return Outcome(tuple(refused))
    try:
        store = edges.store(repo)
    except TaskError as error:
        return _failed(asks, error, order.terms)
    try:
        return _deliver(store, asks, order, edges)
    finally:
        store.close()


def _deliver(store: Store, asks: Sequence[Ask], order: Order, edges: Edges) -> Outcome:
    try:
        default = store.default_branch() if any(not ask.subscription.base for ask in asks) else ""
    except TaskError as error:
        return _failed(asks, error, order.terms)
    branches: dict[str, list[Ask]] = {}
    for ask in asks:
        branches.setdefault(ask.subscription.base or default, []).append(ask)
    done = Outcome()
    for branch, members in branches.items():
        done = done.plus(land(Site(store, branch, order, edges), members))
    return done


def land(site: Site, asks: Sequence[Ask]) -> Outcome:
    """Read, decide, edit, push; when the branch moved meanwhile, all of it again on the new tip."""
    order, edges = site.order, site.edges
    end, attempt, done, pending = edges.now() + order.deadline, 0, Outcome(), list(asks)
    quickest = order.deadline
    while pending:
        attempt += 1
        began = edges.now()
        try:
            finished, pending = _attempt(site, pending, attempt)
        except TaskError as error:
            return done.plus(_failed(pending, error, order.terms))
        done = done.plus(finished)
        left = end - edges.now()
        if pending and left <= 0:
            return done.plus(_failed(pending, _contended(site.branch, attempt, order), order.terms))
        if pending:
            edges.log("info", f"{site.branch} moved meanwhile; deciding again on its new tip (attempt {attempt + 1})")
            quickest = min(quickest, edges.now() - began)  # others may have been held up, by whatever
            edges.sleep(pause(attempt, quickest, left) * edges.jitter())
    return done


def pause(attempt: int, took: float, left: float) -> float:
    """How long to wait at most: the more often outpaced, the more writers there are, each as slow as we are.

    Never so long that no time is left for some more attempts.
    """
    return min(took * (1 << min(attempt, 8)), LONGEST_PAUSE, left / 4)


def _attempt(site: Site, asks: Sequence[Ask], number: int) -> tuple[Outcome, list[Ask]]:
    """One try on one tip: what is finished, and the asks that were outpaced."""
    order = site.order
    snapshot = site.store.snapshot(site.branch, tuple(dict.fromkeys(place for ask in asks for place in places(ask))))
    facts = _facts(site, snapshot, asks)
    decisions = with_heads(decide(snapshot, asks, order.terms, facts), everywhere=order.intent is not None)
    heads = _heads(site, asks, decisions)
    decisions = _ahead(site, snapshot, heads, list(zip(asks, decisions, strict=True)), facts)
    made, settled = drafts(snapshot, decisions, order.terms, order.wording, heads)
    if order.atomic and any(one.verdict.verdict == "error" for one in settled):
        return Outcome(stopped((*settled, *(one for change in made for one in change.decisions)))), []
    done, outpaced = Outcome(settled), set[int]()
    for change in made:
        try:
            done = done.plus(_landed(site, snapshot, change, number))
        except Outpaced:
            outpaced |= {id(one.subscription) for one in change.decisions}
        except TaskError as error:
            done = done.plus(Outcome(tuple(failed(one, error) for one in change.decisions)))
    return done, [ask for ask in asks if id(ask.subscription) in outpaced]


def _heads(site: Site, asks: Sequence[Ask], decisions: Sequence[Decision]) -> dict[str, Snapshot]:
    """The head branches that these decisions would write, where they exist already."""
    wanted: dict[str, list[Place]] = {}
    for ask, one in zip(asks, decisions, strict=True):
        if one.head not in ("", one.branch):
            wanted.setdefault(one.head, []).extend(places(ask))
    found = ((head, site.store.ahead(head, tuple(dict.fromkeys(of_head)))) for head, of_head in wanted.items())
    return {head: snapshot for head, snapshot in found if snapshot is not None}


def _ahead(
    site: Site, base: Snapshot, heads: Mapping[str, Snapshot], asked: Sequence[tuple[Ask, Decision]], facts: Facts
) -> list[Decision]:
    """The decisions, made again where a head branch holds updates already; and what else waits there."""
    if not heads:
        return [one for _, one in asked]
    from task.pending import again, carried

    terms = site.order.terms
    done: list[tuple[Ask, Decision]] = []
    for ask, one in asked:
        head = heads.get(one.head)
        done.append((ask, again(base, head, ask, terms, facts)._replace(head=one.head) if head else one))
    waiting = [
        one
        for name, head in heads.items()
        for one in carried(base, head, [(ask, one) for ask, one in done if one.head == name], terms)
    ]
    return [*(one for _, one in done), *waiting]


def _facts(site: Site, snapshot: Snapshot, asks: Sequence[Ask]) -> Facts:
    """What neither the event nor the snapshot tells, asked for only where a rule needs it."""
    asked = questions(snapshot, asks, site.order.terms)
    ancestry = {pair: site.edges.ancestry(*pair) for pair in asked.ancestry}
    answers = site.edges.registry(asked.registry) if asked.registry else {}

    def earlier(path: str) -> Iterable[str]:
        return (text for _commit, text in site.store.earlier(snapshot.branch, path) if text is not None)

    return Facts(ancestry, {about._replace(facts=()): answer for about, answer in answers.items()}, earlier)


def _landed(site: Site, snapshot: Snapshot, change: Draft, attempt: int) -> Outcome:
    """One changeset, landed or (in `plan`) predicted."""
    if change.warning:
        site.edges.log("warning", change.warning)
    landing = (site.store.predict if site.order.dry else site.store.land)(change.changeset)
    commit = Commit(
        repo=change.changeset.destination.repo,
        branch=snapshot.branch,
        head=change.changeset.destination.head,
        commit=landing.commit or None,
        tree=landing.tree,
        files=tuple(sorted(change.changeset.files)),
        applications=tuple(sorted({one.subscription.application.key for one in change.decisions})),
        attempts=attempt,
        diff=unified_diff(snapshot.files, change.changeset.files) if site.order.dry else None,
    )
    if landing.pushed:
        return Outcome(change.decisions, (commit,))
    verdict = Verdict("unchanged", "same", f"the branch {commit.head} already holds exactly this")
    updates = (one.verdict.verdict == "update" for one in change.decisions)
    told = zip(change.decisions, updates, strict=True)
    return Outcome(tuple(one._replace(verdict=verdict) if update else one for one, update in told))


def _failed(asks: Iterable[Ask], error: TaskError, terms: Terms) -> Outcome:
    """The error for every ask that it stopped; a refusal stays one, whatever became of the repository."""
    nothing = Verdict("error", error.rule, error.message)
    return Outcome(
        tuple(hopeless(ask, terms) or failed(Decision(ask.subscription, ask.offered, nothing), error) for ask in asks)
    )


def _contended(branch: str, attempts: int, order: Order) -> ContendedError:
    return ContendedError(
        f"others kept moving {branch}: {attempts} attempts in {order.deadline:g} seconds",
        hint="run it again, or give a longer --deadline",
    )


def written_images(decisions: Iterable[Decision]) -> tuple[Image, ...]:
    """What a command without an event wrote."""
    return tuple(dict.fromkeys(one.candidate for one in decisions if one.verdict.verdict == "update"))


def report(order: Order, asking: Sequence[Subscribed], done: Outcome, problems: tuple[Problem, ...]) -> Report:
    """Everything in one value, in a fixed order: by Application, then alias."""
    decisions = tuple(
        sorted(
            done.decisions,
            key=lambda one: (one.subscription.application.key, one.subscription.entry.alias, one.subscription.path),
        )
    )
    errors = tuple(
        Problem(one.subscription.application.key, one.verdict.rule, one.verdict.because, one.hint)
        for one in decisions
        if one.verdict.verdict == "error"
    )
    return Report(
        command=order.command,
        images=order.images or written_images(decisions),
        considered=len(asking),
        decisions=decisions,
        commits=tuple(sorted(done.commits, key=lambda one: (one.repo, one.branch, one.head))),
        problems=tuple(dict.fromkeys(errors + problems + cautions(decisions))),
        exit=stop.code() or int(exit_code(decisions, problems, require_update=order.require_update)),
    )
