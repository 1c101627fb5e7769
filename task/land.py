"""One branch of one repository: read, decide, edit, push; and all of it again when the branch moved meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from task.atomic import stopped
from task.decide import Ask, decide, hopeless, places, questions
from task.draft import Draft, drafts, with_heads
from task.errors import ContendedError, Outpaced, TaskError
from task.model import Commit, Decision, Place, Snapshot, Verdict
from task.weigh import Facts, Terms, failed
from task.words.diff import unified_diff
from task.world import Landed, Order, Outcome, Site

LONGEST_PAUSE = 20.0  # seconds


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
            return done.plus(failures(pending, error, order.terms))
        done = done.plus(finished)
        left = end - edges.now()
        if pending and left <= 0:
            return done.plus(failures(pending, _contended(site.branch, attempt, order), order.terms))
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
    done, outpaced = Outcome(settled, landed=as_it_is(snapshot, settled)), set[int]()
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
    """One changeset, landed or (in `plan`) predicted; with a pull request where one is wanted."""
    if change.warning:
        site.edges.log("warning", change.warning)
    if not site.order.dry and any(one.subscription.pull_request for one in change.decisions):
        from task.propose import proposed

        return proposed(site, change, lambda: _committed(site, snapshot, change, attempt))
    return _committed(site, snapshot, change, attempt)


def _committed(site: Site, snapshot: Snapshot, change: Draft, attempt: int) -> Outcome:
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
    landed = landed_of(change.decisions, commit.repo, landing.commit)
    if landing.pushed:
        return Outcome(change.decisions, (commit,), landed)
    verdict = Verdict("unchanged", "same", f"the branch {commit.head} already holds exactly this")
    updates = (one.verdict.verdict == "update" for one in change.decisions)
    told = zip(change.decisions, updates, strict=True)
    decisions = tuple(one._replace(verdict=verdict) if update else one for one, update in told)
    return Outcome(decisions, (), landed)


def landed_of(decisions: Iterable[Decision], repo: str, commit: str) -> tuple[Landed, ...]:
    """What Argo CD is to be told of: the Applications whose images were written by a commit."""
    apps: dict[str, list[Decision]] = {}
    for one in decisions:
        if one.verdict.verdict in ("update", "unchanged"):
            apps.setdefault(one.subscription.application.key, []).append(one)
    return tuple(Landed(of[0].subscription.application, repo, commit, tuple(of)) for of in apps.values())


def as_it_is(snapshot: Snapshot, settled: Sequence[Decision]) -> tuple[Landed, ...]:
    """Applications that say the event's image already: a run that waits, waits for what is there."""
    same = [one for one in settled if one.verdict.verdict == "unchanged" and one.head in ("", one.branch)]
    return landed_of(same, snapshot.repo, snapshot.tip)


def failures(asks: Iterable[Ask], error: TaskError, terms: Terms) -> Outcome:
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
