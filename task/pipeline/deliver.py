"""One branch of one repository: read, decide, edit, push; and all of it again when the branch moved meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from task.errors import ContendedError, Outpaced, TaskError
from task.model import Answer, Commit, Decision, Place, Question, Snapshot, Verdict
from task.output.diff import unified_diff
from task.pipeline.atomic import stopped
from task.pipeline.changeset import Draft, drafts, head_of_requests, with_heads
from task.pipeline.decide import Ask, decide, hopeless, places, questions
from task.pipeline.head_branch import again, carried
from task.pipeline.job import Job, Landed, Outcome
from task.pipeline.ports import Site, World
from task.pipeline.pull_request import Request, declined, is_over, proposed, requests_of
from task.pipeline.verify import Vouch, vouched
from task.pipeline.weigh import Facts, Terms, failed
from task.templates.commit_message import wants_labels

LONGEST_PAUSE = 20.0  # seconds


def land(site: Site, asks: Sequence[Ask]) -> Outcome:
    """Read, decide, edit, push; when the branch moved meanwhile, all of it again on the new tip."""
    job, world = site.job, site.world
    site = replace(site, exists=cache(partial(_exists, job, world)))
    end, attempt, done, pending = world.now() + job.deadline, 0, Outcome(), list(asks)
    quickest, request = job.deadline, _request_head(site, asks)
    while pending:
        attempt += 1
        began = world.now()
        try:
            finished, pending, waited = _attempt(site, pending, attempt, request)
        except TaskError as error:
            return done.plus(failures(pending, error, job.terms))
        done = done.plus(finished)
        end, began = end + waited, began + waited
        left = end - world.now()
        if pending and left <= 0:
            return done.plus(failures(pending, _contended(site.branch, attempt, job), job.terms))
        if pending:
            world.log("info", f"{site.branch} moved meanwhile; deciding again on its new tip (attempt {attempt + 1})")
            quickest = min(quickest, world.now() - began)  # others may have been held up, by whatever
            world.sleep(pause(attempt, quickest, left) * world.jitter())
    return done


def _exists(job: Job, world: World, question: Question) -> Answer | None:
    return None if job.terms.check == "never" else world.registry((question,)).get(question)


def pause(attempt: int, took: float, left: float) -> float:
    """How long to wait at most: the more often outpaced, the more writers there are, each as slow as we are.

    Never so long that no time is left for some more attempts.
    """
    return min(took * (1 << min(attempt, 8)), LONGEST_PAUSE, left / 4)


def _request_head(site: Site, asks: Sequence[Ask]) -> str:
    """The branch of the pull request: the same in every attempt, whoever is left to be written."""
    subs = [ask.subscription for ask in asks if ask.subscription.pull_request and not ask.subscription.head]
    return head_of_requests(subs[0].repo, site.branch, subs) if subs else ""


def _attempt(site: Site, asks: Sequence[Ask], number: int, request: str) -> tuple[Outcome, list[Ask], float]:
    """One try on one tip: what is finished, the asks that were outpaced, and how long others were waited for."""
    job = site.job
    snapshot = site.repository.snapshot(site.branch, (place for ask in asks for place in places(ask)))
    facts = _facts(site, snapshot, asks)
    decisions = with_heads(decide(snapshot, asks, job.terms, facts), request, everywhere=job.intent is not None)
    heads, decisions = _heads(site, snapshot, asks, decisions)
    decisions = _ahead(site, snapshot, heads, list(zip(asks, decisions, strict=True)), facts)
    began = site.world.now()
    decisions = vouched(decisions, vouch_of(job, site.world))
    waited = site.world.now() - began
    decisions = decisions if job.intent else _undeclined(site, heads, decisions)
    made, settled = drafts(snapshot, decisions, job.terms, job.wording, heads.pending)
    if job.atomic and any(one.verdict.verdict == "error" for one in settled):
        return Outcome(stopped((*settled, *(one for change in made for one in change.decisions)))), [], waited
    done, outpaced = Outcome(settled, landed=as_it_is(snapshot, settled)), set[int]()
    for change in made:
        try:
            done = done.plus(_landed(site, snapshot, change, number, heads))
        except Outpaced:
            outpaced |= {id(one.subscription) for one in change.decisions}
        except TaskError as error:
            done = done.plus(Outcome(tuple(failed(one, error) for one in change.decisions)))
    return done, [ask for ask in asks if id(ask.subscription) in outpaced], waited


def vouch_of(job: Job, world: World) -> Vouch:
    """Who is asked for signatures and labels."""
    labels = job.terms.check != "never" and wants_labels(job.wording.template)
    return Vouch(world.registry, world.signatures, labels)


@dataclass(frozen=True)
class _Heads:
    """The head branches that are to be written."""

    pending: Mapping[str, Snapshot] = field(
        default_factory=dict
    )  # those that exist; the base's files where their request is over
    requests: Mapping[str, Request] = field(default_factory=dict)


def _heads(site: Site, base: Snapshot, asks: Sequence[Ask], decisions: list[Decision]) -> tuple[_Heads, list[Decision]]:
    """The head branches that these decisions would write; and the decisions, errors where a request cannot be had."""
    requests: Mapping[str, Request] = {}
    if any(one.subscription.pull_request and one.head not in ("", one.branch) for one in decisions):
        requests, decisions = requests_of(site, decisions)
    wanted: dict[str, list[Place]] = {}
    for ask, one in zip(asks, decisions, strict=True):
        if one.head not in ("", one.branch) and one.verdict.verdict != "error":
            wanted.setdefault(one.head, []).extend(places(ask))
    found = ((head, site.repository.ahead(head, tuple(dict.fromkeys(of_head)))) for head, of_head in wanted.items())
    pending = {head: snapshot for head, snapshot in found if snapshot is not None}
    for head, there in pending.items():
        if _is_over(requests.get(head), there.tip):
            pending[head] = replace(base, branch=there.branch, tip=there.tip)
    return _Heads(pending, requests), decisions


def _is_over(request: Request | None, tip: str) -> bool:
    if request is None:
        return False
    return is_over(request, tip)


def _ahead(
    site: Site, base: Snapshot, heads: _Heads, asked: Sequence[tuple[Ask, Decision]], facts: Facts
) -> list[Decision]:
    """The decisions, made again where a head branch holds updates already; and what else waits there."""
    if not heads.pending and not heads.requests:
        return [one for _, one in asked]
    terms = site.job.terms
    for name, head in heads.pending.items():
        facts = _more(facts, _facts(site, head, [ask for ask, one in asked if one.head == name]))
    done = [(ask, _once_more(site, base, heads, (ask, one), facts)) for ask, one in asked]
    waiting = [
        one
        for name, head in heads.pending.items()
        for one in carried(base, head, [(ask, one) for ask, one in done if one.head == name], terms)
    ]
    return [*(one for _, one in done), *waiting]


def _once_more(site: Site, base: Snapshot, heads: _Heads, asked: tuple[Ask, Decision], facts: Facts) -> Decision:
    """One decision, now that its head branch and its request are known."""
    (ask, one), terms = asked, site.job.terms
    if one.verdict.verdict == "error":
        return one
    if head := heads.pending.get(one.head):
        one = replace(again(base, head, ask, terms, facts), head=one.head)
    if ask.intent or one.head not in heads.requests:
        return one
    return declined(site, heads.requests[one.head], one)


def _undeclined(site: Site, heads: _Heads, decisions: Sequence[Decision]) -> list[Decision]:
    """The same once more, now that the digests are known which signatures have told."""
    if not heads.requests:
        return list(decisions)
    return [declined(site, heads.requests[one.head], one) if one.head in heads.requests else one for one in decisions]


def _more(facts: Facts, others: Facts) -> Facts:
    return replace(facts, ancestry={**others.ancestry, **facts.ancestry}, answers={**others.answers, **facts.answers})


def _facts(site: Site, snapshot: Snapshot, asks: Sequence[Ask]) -> Facts:
    """What neither the event nor the snapshot tells, asked for only where a rule needs it."""
    asked = questions(snapshot, asks, site.job.terms)
    ancestry = {pair: site.world.ancestry(*pair) for pair in asked.ancestry}
    answers = site.world.registry(asked.registry) if asked.registry else {}

    def earlier(path: str, most: int) -> Iterable[str]:
        return (text for _commit, text in site.repository.earlier(snapshot.branch, path, most) if text is not None)

    known = {replace(about, facts=()): answer for about, answer in answers.items()}
    return Facts(ancestry, known, earlier, site.exists)


def _landed(site: Site, snapshot: Snapshot, change: Draft, attempt: int, heads: _Heads) -> Outcome:
    """One changeset, landed or (in `plan`) predicted; with a pull request where one is wanted."""
    if change.warning:
        site.world.log("warning", change.warning)
    head = change.changeset.destination.head
    if head in heads.requests:
        tip = heads.pending[head].tip if head in heads.pending else ""
        return proposed(site, change, heads.requests[head], tip, lambda: _committed(site, snapshot, change, attempt))
    return _committed(site, snapshot, change, attempt)


def _committed(site: Site, snapshot: Snapshot, change: Draft, attempt: int) -> Outcome:
    landing = (site.repository.predict if site.job.dry else site.repository.land)(change.changeset)
    commit = Commit(
        repo=change.changeset.destination.repo,
        branch=snapshot.branch,
        head=change.changeset.destination.head,
        commit=landing.commit or None,
        tree=landing.tree,
        files=tuple(sorted(change.changeset.files)),
        applications=tuple(sorted({one.subscription.application.key for one in change.decisions})),
        attempts=attempt,
        diff=_diff(snapshot, change) if site.job.dry else None,
    )
    landed = landed_of(change.decisions, commit.repo, landing.commit)
    if landing.pushed:
        return Outcome(change.decisions, (commit,), landed)
    verdict = Verdict("unchanged", "same", f"the branch {commit.head} already holds exactly this")
    updates = (one.verdict.verdict == "update" for one in change.decisions)
    told = zip(change.decisions, updates, strict=True)
    decisions = tuple(replace(one, verdict=verdict) if update else one for one, update in told)
    return Outcome(decisions, (), landed)


def _diff(snapshot: Snapshot, change: Draft) -> str:
    return unified_diff(snapshot.files, change.changeset.files)


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


def _contended(branch: str, attempts: int, job: Job) -> ContendedError:
    return ContendedError(
        f"others kept moving {branch}: {attempts} attempts in {job.deadline:g} seconds",
        hint="run it again, or give a longer --deadline",
    )
