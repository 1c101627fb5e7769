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
    asked_subscriptions,
    decided_after,
    decided_on_foreign_branch,
    declined_in,
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
    NO_FATES,
    BuildFate,
    Decided,
    FatesOnHead,
    Undecided,
    WaitingBuild,
    asks_of,
    decide_with_waiting,
    fate_alone,
    fates_on_foreign_branch,
    pairs_of,
    places_of,
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
    head_fates: dict[str, FatesOnHead]  # by head branch


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
    releases = [release for head in heads.values() for release in head.waiting_list.releases]
    base = with_more(base, places_of_releases(releases), batch.repository)
    by_ask = _decided_on_heads(batch, base, heads, moves, facts, gather, job)
    proved = _proved_asks(list(by_ask.values()), base, heads, job, world, checks)
    by_ask = dict(zip(by_ask, proved, strict=True))

    scene = _scene(batch, base, heads, facts, gather, job, world, checks)
    kept_moves: list[Move] = []
    head_fates: dict[str, FatesOnHead] = {}
    heirs = {head.instead for head in heads.values()}  # branches that get others' builds
    for index, (name, head) in enumerate(heads.items()):
        asks_at_head = _asks_at(name, batch.asks, by_ask)
        if head.instead:
            head_fates[name] = FatesOnHead()
            continue
        if not head.ours:
            head_fates[name] = fates_on_foreign_branch(
                head.waiting_list, head.files, scene.from_annotations, asks_at_head, scene.base
            )
            continue
        asks_moves, of_head = _decided_on_our_branch(
            head,
            asks_at_head,
            by_ask,
            batch,
            scene,
            proves=index < MOST_PROVED,
        )
        by_ask |= asks_moves
        # a run was killed after it pushed the list, but before it pushed the head branch
        never_arrived = not head.waiting_list.arrived and not head.as_listed
        head_fates[name] = replace(of_head, rewrite=never_arrived or name in heirs)
        kept_moves += _kept_moves(name, of_head)
    head_fates = _with_releases(head_fates, heads, list(by_ask.values()), scene.base)
    if job.intent and job.intent.verb == "release":
        for key, move in by_ask.items():
            of_head = head_fates.get(move.decision.head, NO_FATES)
            by_ask[key] = with_end(move, of_head.releases, base.branch)
    return Together(scene.base, [*by_ask.values(), *kept_moves], head_fates)


def _decided_on_heads(
    batch: Batch,
    base: Snapshot,
    heads: Mapping[str, HeadBranch],
    moves: Sequence[Move],
    facts: Facts,
    gather: Gather,
    job: Job,
) -> dict[Identity, Move]:
    """Return the asks' moves, by ask.

    `moves` were decided on the base. They are replaced for a head branch that belongs to someone
    else, or that ends holds on the base.
    """
    by_ask = {ask.key: move for ask, move in zip(batch.asks, moves, strict=True)}
    for name, head in heads.items():
        asks_at_head = _asks_at(name, batch.asks, by_ask)
        released_base = without(base, head.waiting_list.releases)
        if not head.ours:
            by_ask |= decided_on_foreign_branch(
                head, released_base, asks_at_head, job.terms, facts, gather
            )
        elif head.waiting_list.releases:
            by_ask |= decided_after(released_base, asks_at_head, job.terms, facts, gather)
    return by_ask


def _with_releases(
    head_fates: Mapping[str, FatesOnHead],
    heads: Mapping[str, HeadBranch],
    moves: Sequence[Move],
    base: Snapshot,
) -> dict[str, FatesOnHead]:
    """Add the holds on the base that end with the waiting builds."""
    new_releases = releases_of(base, moves)
    with_releases: dict[str, FatesOnHead] = {}
    for name, of_head in head_fates.items():
        before = () if heads[name].instead else heads[name].waiting_list.releases
        moves_at_head = [move for move in moves if move.decision.head == name]
        still_ending = [
            release
            for release in before
            if counts(base, release) and not held_again(release, moves_at_head)
        ]
        releases = tuple(dict.fromkeys((*still_ending, *new_releases.get(name, ()))))
        with_releases[name] = replace(
            of_head,
            releases=releases,
            obsolete=tuple(release for release in before if release not in releases),
            rewrite=of_head.rewrite or releases != before,
        )
    return with_releases


def _kept_moves(head: str, of_head: FatesOnHead) -> list[Move]:
    """Return the moves that keep or defer a head branch's waiting builds."""
    moves = [fate.move for fate in of_head.fates if fate.move]
    return [replace(move, decision=replace(move.decision, head=head), kept=True) for move in moves]


def _asks_at(name: str, asks: Iterable[Ask], moves: Mapping[Identity, Move]) -> list[Decided]:
    """Return the asks for a head branch, with their moves."""
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

    def refused_if_declined(move: Move) -> Move:
        return unless_declined(move, declined, world) if move.decision.head in heads else move

    not_declined = [refused_if_declined(move) for move in moves]
    # again, because verifying may have found the digest that a person declined
    return [refused_if_declined(move) for move in verified(not_declined, checks)]


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
    """Find the subscriptions of all waiting builds, and read the files that are needed to decide
    builds of other Applications.
    """
    asked = asked_subscriptions(batch)
    from_annotations = {key_of_entry(sub): sub for sub in asked}
    of_others = {
        build.key: build
        for head in heads.values()
        for build in head.waiting_list.builds
        if build.key not in from_annotations and not head.instead
    }
    if not of_others:
        return Scene(base, from_annotations, {}, facts, job, world, gather, checks)
    looked_up = _looked_up(of_others, batch, base, world)
    created = {
        key: subscription_of(build, base)
        for key, build in of_others.items()
        if key not in looked_up
    }
    base, subs = _governed(base, [*looked_up.values(), *created.values()], batch, job)
    facts = replace(facts, elsewhere=holds_of_others(base, [*asked, *subs], job.terms))
    governed_subs = {key_of_entry(sub): sub for sub in subs}
    from_annotations |= {key: governed_subs[key] for key in looked_up}
    from_list = {key: governed_subs[key] for key in created}
    return Scene(base, from_annotations, from_list, facts, job, world, gather, checks)


def _looked_up(
    listed: Mapping[BuildKey, ListedBuild], batch: Batch, base: Snapshot, world: World
) -> dict[BuildKey, Subscription]:
    """Return the subscriptions for builds of Applications outside the run, if they are written with
    the same credentials.
    """
    of_batch = batch.asks[0].subscription
    repo = normal_url(of_batch.repo)
    looked_up: dict[BuildKey, Subscription] = {}
    for app in dict.fromkeys(build.application for build in listed.values()):
        for sub in batch.look(app):
            key = key_of_entry(sub)
            same_base = normal_url(sub.repo) == repo and sub.base in ("", base.branch)
            if key in listed and same_base and world.login(sub) == world.login(of_batch):
                looked_up[key] = sub
    return looked_up


def _governed(
    base: Snapshot, subs: Sequence[Subscription], batch: Batch, job: Job
) -> tuple[Snapshot, list[Subscription]]:
    """Return these subscriptions with the base's config applied, and the base with the files that
    are needed to decide them.
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


def _decided_on_our_branch(
    head: HeadBranch,
    asks_at_head: Sequence[Decided],
    moves: Mapping[Identity, Move],
    batch: Batch,
    scene: Scene,
    *,
    proves: bool,
) -> tuple[dict[Identity, Move], FatesOnHead]:
    """Decide one of our head branches: first its waiting builds alone, then with the asks.

    `moves` are those of all asks. Return the moves of the asks at this head branch, and what became
    of its builds.
    """
    terms = scene.job.terms
    scene = replace(scene, base=without(scene.base, head.waiting_list.releases))
    waiting, undecided = waiting_in(
        head.waiting_list, scene.base, scene.from_annotations, scene.from_list, terms, scene.facts
    )
    facts = _facts_between(waiting, asks_at_head, scene)
    waiting = [replace(build, situation=replace(build.situation, facts=facts)) for build in waiting]
    still_promoted, withdrawn_fates = _without_withdrawn(waiting, batch, moves, asks_at_head)
    passed, failed_fates, problems = _tried_alone(still_promoted, scene, head.name, proves=proves)

    elsewhere = _commands_elsewhere(batch, scene.job, asks_at_head)
    staying = [build for build in passed if build.subscription.identity not in elsewhere]
    asks_moves, fates = decide_with_waiting(scene.base, staying, asks_at_head, terms)
    for build in passed:
        ask = elsewhere.get(build.subscription.identity)
        if ask:
            fates.append(taken_out(scene.base, build, ask, moves[ask.key], terms))
    problems += [_undecided_warning(entry, head.name) for entry in undecided]
    return asks_moves, FatesOnHead(
        (*fates, *withdrawn_fates, *failed_fates),
        tuple(undecided),
        tuple(dict.fromkeys(problems)),
    )


def _commands_elsewhere(
    batch: Batch, job: Job, asks_at_head: Sequence[Decided]
) -> dict[Identity, Ask]:
    """Return the asks of a person's command that are not for this head branch.

    A hold or a rollback also applies to the builds waiting here. A release does not.
    """
    if job.intent is None or job.intent.verb == "release":
        return {}
    here = {ask.key for ask, _ in asks_at_head}
    return {ask.key: ask for ask in batch.asks if ask.key not in here}


def _without_withdrawn(
    waiting: Sequence[WaitingBuild],
    batch: Batch,
    moves: Mapping[Identity, Move],
    asks_at_head: Sequence[Decided],
) -> tuple[list[WaitingBuild], list[BuildFate]]:
    """Separate the waiting builds from promotions whose source no longer has the version."""
    decided = [(ask, moves[ask.key]) for ask in batch.asks]
    written = {ask.key: move for ask, move in asks_at_head if move.updates}
    still_promoted: list[WaitingBuild] = []
    fates: list[BuildFate] = []
    for build in waiting:
        why_withdrawn = withdrawn(build.listed, decided)
        if not why_withdrawn:
            still_promoted.append(build)
            continue
        move = written.get(build.subscription.identity)
        if move:
            because = f"replaced by {move.decision.candidate.version}"
            fates.append(BuildFate(build.listed, "superseded", because))
        else:
            fates.append(BuildFate(build.listed, "dropped", why_withdrawn))
    return still_promoted, fates


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


def _tried_alone(
    waiting: Sequence[WaitingBuild], scene: Scene, head: str, *, proves: bool
) -> tuple[list[WaitingBuild], list[BuildFate], list[Problem]]:
    """Decide and verify waiting builds without the asks.

    Return the builds that may stay, the fates of the others, and warnings about unchecked builds.
    """
    alone = [(build, fate_alone(scene.base, build, head)) for build in waiting]
    failed_fates = [fate for _, fate in alone if fate.rule]
    permitted = [(build, fate) for build, fate in alone if not fate.rule]
    to_write = [fate.move for _, fate in permitted if fate.move and fate.move.updates]
    passed: list[WaitingBuild] = []
    problems: list[Problem] = []
    if to_write and not proves:
        message = (
            f"the builds waiting on {head} were not verified again: this run affects too"
            " many branches"
        )
        problems.append(Problem(Trouble.warning("signature", message)))
    checks = replace(scene.checks, labels=False)
    # in the order of `to_write`, so one for each build below that is written
    verified_moves = iter(verified(to_write, checks) if proves else to_write)
    for build, fate in permitted:
        is_written = fate.move is not None and fate.move.updates
        if not is_written:
            passed.append(build)
            continue
        move = next(verified_moves)
        verdict = move.decision.judged
        if verdict.verdict == "refuse":
            because = f"{NO_LONGER_PROVED}: {verdict.because}"
            failed_fates.append(BuildFate(build.listed, "dropped", because))
            continue
        if verdict.verdict == "error":
            problems.append(_unchecked_build(build, verdict.because, verdict.hint, head))
        elif fate.doubt:
            problems.append(_unchecked_build(build, fate.because, "", head))
        passed.append(replace(build, proof=move.decision.proof))
    return passed, failed_fates, problems


def _unchecked_build(waiting: WaitingBuild, because: str, hint: str, head: str) -> Problem:
    version = waiting.listed.version
    app = waiting.listed.application
    message = f"{version} is still waiting on {head}, but could not be checked: {because}"
    return Problem(Trouble.warning("registry", message, hint), application=app)


def _undecided_warning(undecided: Undecided, head: str) -> Problem:
    message = (
        f"cannot decide on {undecided.listed.version}, which is waiting on {head}:"
        f" {undecided.error}"
    )
    return Problem(
        undecided.error.saying(message).as_warning(), application=undecided.listed.application
    )
