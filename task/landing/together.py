"""Decides asks together with the builds waiting on the affected head branches.

Each side is first decided and verified on its own, and only builds that pass are compared. So a
build that fails does not remove a waiting build, and a waiting build that would not be written does
not win.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from task.deciding.decide import Identity, changed_files, holds_of_others
from task.deciding.job import Ask, Job, Move
from task.deciding.verify import LastChecks, verified
from task.deciding.weigh import Facts
from task.errors import Trouble
from task.landing.before_deciding import Gather, with_all_keys, with_more
from task.landing.head_branches import (
    HeadBranch,
    decided_after,
    declined_in,
    on_theirs,
    unless_declined,
)
from task.landing.ports import Batch, World
from task.landing.releases import (
    counts,
    held_again,
    places_of_releases,
    releases_of,
    with_end,
    without,
)
from task.landing.waiting_builds import (
    BuildFate,
    Decided,
    Undecided,
    WaitingBuild,
    WaitsOnHead,
    asks_of,
    decide_with_waiting,
    fate_alone,
    pairs_of,
    places_of,
    standing_on,
    subscription_of,
    taken_out,
    waiting_in,
    withdrawn,
)
from task.landing.waiting_list import BuildKey, ListedBuild, key_of_entry
from task.model import Place, Problem, Snapshot, Subscription
from task.repository_config.config import also_limited, governed
from task.repository_config.reading import config_in, of_config
from task.urls import normal_url

MOST_PROVED = 20  # head branches whose builds are proved in one run
NO_LONGER_PROVED = "no longer proved"


@dataclass(frozen=True)
class Together:
    """The decisions about the asks and the waiting builds."""

    base: Snapshot  # with all files that were needed
    moves: list[Move]  # of the asks, in order; then those that keep or defer waiting builds
    waits: dict[str, WaitsOnHead]  # by head branch


@dataclass(frozen=True)
class Scene:
    """Everything needed to decide waiting builds, for all head branches of a batch."""

    base: Snapshot
    from_annotations: Mapping[BuildKey, Subscription]  # of Applications that were read
    # built only from the list, for Applications that were not read: their tag rules are unknown
    from_list: Mapping[BuildKey, Subscription]
    facts: Facts
    job: Job
    world: World
    gather: Gather
    checks: LastChecks


def decide_together(  # noqa: PLR0913 - waiting builds are decided with everything the run knows
    batch: Batch,
    base: Snapshot,
    heads: Mapping[str, HeadBranch],
    moves: Sequence[Move],
    facts: Facts,
    gather: Gather,
    job: Job,
    world: World,
    checks: LastChecks,
) -> Together:
    """Verify the asks, then decide them together with the builds waiting on these head branches."""
    listed = [one for head in heads.values() for one in head.listed.releases]
    base = with_more(base, places_of_releases(listed), batch.repository)
    by_ask = {ask.key: move for ask, move in zip(batch.asks, moves, strict=True)}
    for name, head in heads.items():
        asks_at_head = _asks_at(name, batch.asks, by_ask)
        after = without(base, head.listed.releases)
        if not head.ours:
            by_ask |= on_theirs(head, after, asks_at_head, job.terms, facts, gather)
        elif head.listed.releases:
            by_ask |= decided_after(after, asks_at_head, job.terms, facts, gather)
    by_ask = dict(
        zip(
            by_ask,
            _proved_asks(
                list(by_ask.values()),
                base,
                heads,
                job,
                world,
                checks,
            ),
            strict=True,
        )
    )

    scene = _scene(batch, base, heads, facts, gather, job, world, checks)
    kept_moves: list[Move] = []
    waits: dict[str, WaitsOnHead] = {}
    heirs = {head.instead for head in heads.values()}
    for number, (name, head) in enumerate(heads.items()):
        asks_at_head = _asks_at(name, batch.asks, by_ask)
        if head.instead:
            waits[name] = WaitsOnHead()
            continue
        if not head.ours:
            waits[name] = standing_on(
                head.listed, head.files, scene.from_annotations, asks_at_head, scene.base
            )
            continue
        decided_again, waits[name] = _on_ours(
            head,
            asks_at_head,
            by_ask,
            batch,
            scene,
            proves=number < MOST_PROVED,
        )
        by_ask |= decided_again
        # a run was killed after it pushed the list, but before it pushed the head branch
        late = not (head.listed.arrived or head.as_listed)
        waits[name] = replace(waits[name], moved=late or name in heirs)
        kept_moves += _kept_moves(name, waits[name])
    waits = _with_releases(waits, heads, list(by_ask.values()), scene.base)
    if job.intent and job.intent.verb == "release":
        by_ask = {
            key: with_end(move, waits[move.decision.head].releases, base.branch)
            if move.decision.head in waits
            else move
            for key, move in by_ask.items()
        }
    return Together(scene.base, [*by_ask.values(), *kept_moves], waits)


def _with_releases(
    waits: Mapping[str, WaitsOnHead],
    heads: Mapping[str, HeadBranch],
    moves: Sequence[Move],
    base: Snapshot,
) -> dict[str, WaitsOnHead]:
    """Add the holds on the base that end with the waiting builds."""
    new = releases_of(base, moves)
    with_releases: dict[str, WaitsOnHead] = {}
    for name, waiting in waits.items():
        before = () if heads[name].instead else heads[name].listed.releases
        moves_at_head = [move for move in moves if move.decision.head == name]
        still_ending = [
            one for one in before if counts(base, one) and not held_again(one, moves_at_head)
        ]
        releases = tuple(dict.fromkeys((*still_ending, *new.get(name, ()))))
        ended = tuple(one for one in before if one not in releases)
        moved = waiting.moved or releases != before
        with_releases[name] = replace(waiting, releases=releases, ended=ended, moved=moved)
    return with_releases


def _kept_moves(head: str, waits: WaitsOnHead) -> list[Move]:
    """Return the moves that keep or defer a head branch's waiting builds."""
    moves = [fate.move for fate in waits.fates if fate.move]
    return [replace(move, decision=replace(move.decision, head=head), kept=True) for move in moves]


def _asks_at(name: str, asks: Iterable[Ask], moves: Mapping[Identity, Move]) -> list[Decided]:
    return [(ask, moves[ask.key]) for ask in asks if moves[ask.key].decision.head == name]


def _proved_asks(
    moves: Sequence[Move],
    base: Snapshot,
    heads: Mapping[str, HeadBranch],
    job: Job,
    world: World,
    checks: LastChecks,
) -> list[Move]:
    """Return the asks' moves with their proofs, or refusals if a person has declined them."""
    if job.intent:
        return verified(moves, checks)
    declined = declined_in(base.memory_files, heads)

    def wanted(move: Move) -> Move:
        return unless_declined(move, declined, world) if move.decision.head in heads else move

    # again, because verifying may have found the digest that a person declined
    return [wanted(move) for move in verified(list(map(wanted, moves)), checks)]


def _scene(
    batch: Batch,
    base: Snapshot,
    heads: Mapping[str, HeadBranch],
    facts: Facts,
    gather: Gather,
    job: Job,
    world: World,
    checks: LastChecks,
) -> Scene:
    """Find the subscriptions of all waiting builds. For builds of other Applications, also read the
    files that their decisions need.
    """
    every = [sub for ask in batch.asks for sub in (ask.subscription, *ask.siblings)]
    from_annotations = {key_of_entry(sub): sub for sub in every}
    listed = {
        build.key: build
        for head in heads.values()
        for build in head.listed.builds
        if build.key not in from_annotations and not head.instead
    }
    if not listed:
        return Scene(base, from_annotations, {}, facts, job, world, gather, checks)
    more = _read_besides(listed, batch, base, world)
    from_list = {key: subscription_of(one, base) for key, one in listed.items() if key not in more}
    base, subs = _governed(base, [*more.values(), *from_list.values()], batch, job)
    facts = replace(facts, elsewhere=holds_of_others(base, [*every, *subs], job.terms))
    for sub in subs:
        key = key_of_entry(sub)
        (from_annotations if key in more else from_list)[key] = sub
    return Scene(base, from_annotations, from_list, facts, job, world, gather, checks)


def _read_besides(
    listed: Mapping[BuildKey, ListedBuild], batch: Batch, base: Snapshot, world: World
) -> dict[BuildKey, Subscription]:
    """Return the subscriptions for builds of Applications outside the run, if they are written with
    the same credentials.
    """
    first = batch.asks[0].subscription
    repo = normal_url(first.repo)
    apps = dict.fromkeys(one.application for one in listed.values())
    return {
        key: sub
        for sub in chain.from_iterable(map(batch.look, apps))
        if (key := key_of_entry(sub)) in listed
        and normal_url(sub.repo) == repo
        and sub.base in ("", base.branch)
        and world.login(sub) == world.login(first)
    }


def _governed(
    base: Snapshot, subs: Sequence[Subscription], batch: Batch, job: Job
) -> tuple[Snapshot, list[Subscription]]:
    """Read the files on the base that are needed to decide these subscriptions, and apply its
    config to them.
    """
    config = job.wording.config
    default = config_in(base.default)
    base = with_more(base, chain.from_iterable(map(places_of, subs)), batch.repository)

    def changed(sub: Subscription) -> Collection[str]:
        return changed_files(base, sub, job.terms)

    governed_subs = also_limited(governed(subs, config, job.terms.now, changed), default, changed)
    keys = [path for sub in governed_subs for demand in sub.demands for path in demand.keys]
    base = with_more(base, map(Place, keys), batch.repository)
    with of_config():
        return base, [with_all_keys(sub, base.files) for sub in governed_subs]


def _on_ours(
    head: HeadBranch,
    asks_at_head: Sequence[Decided],
    moves: Mapping[Identity, Move],
    batch: Batch,
    scene: Scene,
    *,
    proves: bool,
) -> tuple[dict[Identity, Move], WaitsOnHead]:
    """Decide one of our head branches: first its waiting builds alone, then with the asks."""
    terms = scene.job.terms
    scene = replace(scene, base=without(scene.base, head.listed.releases))
    waiting, undecided = waiting_in(
        head.listed, scene.base, scene.from_annotations, scene.from_list, terms, scene.facts
    )
    facts = _facts_between(waiting, asks_at_head, scene)
    waiting = [replace(build, situation=replace(build.situation, facts=facts)) for build in waiting]
    waiting, gone = _without_withdrawn(waiting, batch, moves, asks_at_head)
    waiting, lost, problems = _tried(waiting, scene, head.known.head, proves=proves)

    asked = {ask.key for ask, _ in asks_at_head}
    elsewhere = (
        {}
        if scene.job.intent is None or scene.job.intent.verb == "release"
        else {ask.key: ask for ask in batch.asks if ask.key not in asked}
    )
    out = [build for build in waiting if build.subscription.identity in elsewhere]
    decided_again, fates = decide_with_waiting(
        scene.base, [build for build in waiting if build not in out], asks_at_head, terms
    )
    for build in out:
        ask = elsewhere[build.subscription.identity]
        fates.append(taken_out(scene.base, build, ask, moves[ask.key], terms))
    problems += [_undecided(entry, head.known.head) for entry in undecided]
    return decided_again, WaitsOnHead(
        (*fates, *gone, *lost), tuple(undecided), tuple(dict.fromkeys(problems))
    )


def _without_withdrawn(
    waiting: Sequence[WaitingBuild],
    batch: Batch,
    moves: Mapping[Identity, Move],
    asks_at_head: Sequence[Decided],
) -> tuple[list[WaitingBuild], list[BuildFate]]:
    """Separate the waiting builds from promotions whose source no longer has the version."""
    decided = [(ask, moves[ask.key]) for ask in batch.asks]
    written = {ask.key: move for ask, move in asks_at_head if move.updates}
    left: list[WaitingBuild] = []
    gone: list[BuildFate] = []
    for build in waiting:
        because = withdrawn(build.listed, decided)
        if not because:
            left.append(build)
        elif move := written.get(build.subscription.identity):
            because = f"replaced by {move.decision.candidate.version}"
            gone.append(BuildFate(build.listed, "superseded", because))
        else:
            gone.append(BuildFate(build.listed, "dropped", because))
    return left, gone


def _facts_between(
    waiting: Sequence[WaitingBuild], asks_at_head: Sequence[Decided], scene: Scene
) -> Facts:
    """Return the facts for choosing between waiting builds, asks, and the base's version."""
    more = scene.gather(scene.base, asks_of(waiting))
    pairs = dict.fromkeys(pairs_of(waiting, asks_at_head))
    ancestry = {pair: scene.world.ancestry(*pair) for pair in pairs}
    return replace(
        scene.facts,
        ancestry={**scene.facts.ancestry, **more.ancestry, **ancestry},
        answers={**more.answers, **scene.facts.answers},
    )


def _tried(
    waiting: Sequence[WaitingBuild], scene: Scene, head: str, *, proves: bool
) -> tuple[list[WaitingBuild], list[BuildFate], list[Problem]]:
    """Return the builds that may stay, those that may not, and warnings about unchecked builds."""
    decided = [(build, fate_alone(scene.base, build, head)) for build in waiting]
    lost = [fate for _, fate in decided if fate.rule]
    left = [(one, fate) for one, fate in decided if not fate.rule]
    written = [fate.move for _, fate in left if fate.move and fate.move.updates]
    proved = verified(written, replace(scene.checks, labels=False)) if proves else written
    results = iter(proved)
    passed: list[WaitingBuild] = []
    problems: list[Problem] = []
    if written and not proves:
        message = (
            f"the builds waiting on {head} were not verified again: this run affects too"
            " many branches"
        )
        problems.append(Problem(Trouble.warning("signature", message)))
    for build, fate in left:
        if not (fate.move and fate.move.updates):
            passed.append(build)
            continue
        move = next(results)
        verdict = move.decision.judged
        if verdict.verdict == "refuse":
            because = f"{NO_LONGER_PROVED}: {verdict.because}"
            lost.append(BuildFate(build.listed, "dropped", because))
            continue
        if verdict.verdict == "error":
            problems.append(_unchecked_build(build, verdict.because, verdict.hint, head))
        elif fate.doubt:
            problems.append(_unchecked_build(build, fate.because, "", head))
        passed.append(replace(build, proof=move.decision.proof))
    return passed, lost, problems


def _unchecked_build(waiting: WaitingBuild, because: str, hint: str, head: str) -> Problem:
    version = waiting.listed.version
    app = waiting.listed.application
    message = f"{version} is still waiting on {head}, but could not be checked: {because}"
    return Problem(Trouble.warning("registry", message, hint), application=app)


def _undecided(undecided: Undecided, head: str) -> Problem:
    message = (
        f"cannot decide on {undecided.listed.version}, which is waiting on {head}:"
        f" {undecided.error}"
    )
    return Problem(
        undecided.error.saying(message).as_warning(), application=undecided.listed.application
    )
