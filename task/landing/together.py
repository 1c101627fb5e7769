"""Deciding asks together with the builds waiting on the affected head branches.

Each side is first decided and verified on its own, and only builds that pass are compared. So a
build that fails does not displace a waiting build, and a waiting build that would not be written
does not win.
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
    decided_after_merge,
    decided_on_foreign_branch,
    declined_in,
    unless_declined,
)
from task.landing.ports import Batch, World
from task.landing.releases import (
    after_releases,
    has_effect,
    held_again,
    places_of_releases,
    releases_of,
    with_end_of_hold,
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
from task.landing.waiting_list import BuildKey, ListedBuild, ListedRelease, key_of_entry
from task.model import Place, Problem, Snapshot, Subscription
from task.repository_config.config import also_limited, governed
from task.repository_config.reading import config_in, of_config
from task.urls import normal_url

MOST_PROVED = 20  # head branches whose builds are verified in one run
NO_LONGER_PROVED = "no longer proved"


@dataclass(frozen=True)
class Together:
    """The decisions about the asks (images with new builds) and the waiting builds."""

    base: Snapshot  # with all files that were needed
    moves: list[Move]  # for the asks, in order; then those that keep or defer waiting builds
    head_fates: dict[str, FatesOnHead]  # keyed by head branch


@dataclass(frozen=True)
class Scene:
    """Everything needed to decide the waiting builds on all head branches of a batch."""

    base: Snapshot
    from_annotations: Mapping[BuildKey, Subscription]  # for Applications that were read
    # built from the list alone, for Applications that were not read: their tag rules are unknown
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
    """Verify the decisions about the new builds, then decide again about the builds that are
    already waiting on the head branches of pull requests.

    `moves` contains one decision for each of `batch.asks`, in the same order. An ask is one image
    of an Application, with the builds that this run offers for it. Return the decisions about the
    new builds, and what became of the waiting builds (their fates).
    """
    # 1. Decide the new builds as if nothing were waiting. For those that go to a head branch,
    #    ignore the holds that its merge ends (its releases).
    releases: list[ListedRelease] = []
    for head in heads.values():
        releases += head.waiting_list.releases
    base = with_more(base, places_of_releases(releases), batch.repository)
    by_ask = _decided_on_heads(batch, base, heads, moves, facts, gather, job)
    verified_moves = _proved_asks(list(by_ask.values()), base, heads, job, world, checks)
    by_ask = dict(zip(by_ask, verified_moves, strict=True))

    # 2. Decide the waiting builds of each head branch, together with the new builds for it.
    scene = _scene(batch, base, heads, facts, gather, job, world, checks)
    kept_moves: list[Move] = []  # for the waiting builds
    head_fates: dict[str, FatesOnHead] = {}
    # branches that have taken over the builds of a branch with an old name
    heirs = {head.instead for head in heads.values()}
    for index, (name, head) in enumerate(heads.items()):
        asks_at_head = _asks_at(name, batch.asks, by_ask)
        if head.instead:  # its builds are decided on the branch that took them over
            head_fates[name] = FatesOnHead()
        elif not head.ours:  # someone else has pushed to it
            head_fates[name] = fates_on_foreign_branch(
                head.waiting_list,
                head.files,
                scene.from_annotations,
                asks_at_head,
                scene.base,
            )
        else:
            proves = index < MOST_PROVED
            new_moves, fates_on_head = _decided_on_our_branch(
                head, asks_at_head, by_ask, batch, scene, proves=proves
            )
            by_ask |= new_moves
            kept_moves += _kept_moves(name, fates_on_head)
            # Even if no build has changed, the branch must be written if a run was killed between
            # pushing the list and pushing the branch, or if builds have moved here.
            never_arrived = not head.waiting_list.arrived and not head.as_listed
            gets_builds = name in heirs
            head_fates[name] = replace(fates_on_head, rewrite=never_arrived or gets_builds)

    # 3. Add the holds on the base that end when a head branch is merged.
    head_fates = _with_releases(head_fates, heads, list(by_ask.values()), scene.base)
    if job.intent and job.intent.verb == "release":
        for key, move in by_ask.items():
            fates_on_head = head_fates.get(move.decision.head, NO_FATES)
            by_ask[key] = with_end_of_hold(move, fates_on_head.releases, base.branch)
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
    """Return the decision about each ask (an image with new builds), made on the branch that its
    commit belongs on, keyed by ask.

    `moves` are the decisions on the base, in the order of `batch.asks`. They are also correct for
    most head branches, because a run creates those from the base. An ask is decided again if
    someone else has pushed to its head branch. It is also decided again if that branch has
    releases, which means that merging it ends holds that are still on the base.
    """
    by_ask = {ask.key: move for ask, move in zip(batch.asks, moves, strict=True)}
    for name, head in heads.items():
        asks_at_head = _asks_at(name, batch.asks, by_ask)
        released_base = after_releases(base, head.waiting_list.releases)
        if not head.ours:
            by_ask |= decided_on_foreign_branch(
                head,
                released_base,
                asks_at_head,
                job.terms,
                facts,
                gather,
            )
        elif head.waiting_list.releases:
            by_ask |= decided_after_merge(released_base, asks_at_head, job.terms, facts, gather)
    return by_ask


def _with_releases(
    head_fates: Mapping[str, FatesOnHead],
    heads: Mapping[str, HeadBranch],
    moves: Sequence[Move],
    base: Snapshot,
) -> dict[str, FatesOnHead]:
    """Add to each head branch its releases: the holds on the base that end when the head branch is
    merged.

    These are the listed releases that still have an effect, followed by the new releases in
    `moves`. If they have changed, the head branch must be written.
    """
    new_releases = releases_of(base, moves)
    with_releases: dict[str, FatesOnHead] = {}
    for name, fates_on_head in head_fates.items():
        listed_before: tuple[ListedRelease, ...] = ()
        if not heads[name].instead:  # otherwise, they have moved to another branch
            listed_before = heads[name].waiting_list.releases
        moves_at_head = [move for move in moves if move.decision.head == name]

        releases = [
            release
            for release in listed_before
            if has_effect(base, release) and not held_again(release, moves_at_head)
        ]
        releases += new_releases.get(name, ())
        releases_after = tuple(dict.fromkeys(releases))

        obsolete = tuple(release for release in listed_before if release not in releases_after)
        has_changed = releases_after != listed_before
        with_releases[name] = replace(
            fates_on_head,
            releases=releases_after,
            obsolete=obsolete,
            rewrite=fates_on_head.rewrite or has_changed,
        )
    return with_releases


def _kept_moves(head: str, fates_on_head: FatesOnHead) -> list[Move]:
    """Return the moves that keep a head branch's waiting builds, or defer them because of a
    hold.
    """
    moves = [fate.move for fate in fates_on_head.fates if fate.move]
    return [replace(move, decision=replace(move.decision, head=head), kept=True) for move in moves]


def _asks_at(name: str, asks: Iterable[Ask], moves: Mapping[Identity, Move]) -> list[Decided]:
    """Return the asks (images with new builds) whose commit belongs on this head branch, with their
    moves (the decisions).
    """
    return [(ask, moves[ask.key]) for ask in asks if moves[ask.key].decision.head == name]


def _proved_asks(
    moves: Sequence[Move],
    base: Snapshot,
    heads: Mapping[str, HeadBranch],
    job: Job,
    world: World,
    checks: LastChecks,
) -> list[Move]:
    """Verify the signatures and other proofs of the new builds.

    Return the moves (decisions) in the same order. A move becomes a refusal if its build lacks a
    required proof, or if a person has declined this build or a newer one by closing a pull request.
    A person's command is never refused because of a closed pull request.
    """
    if job.intent:
        return verified(moves, checks)
    declined = declined_in(base.memory_files, heads)

    def refused_if_declined(move: Move) -> Move:
        """Return the move, or a refusal if a person has declined its build."""
        return unless_declined(move, declined, world) if move.decision.head in heads else move

    not_declined = [refused_if_declined(move) for move in moves]
    # check again, because verification may have found the digest that a person declined
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
    """Find the subscription (what to update, and where) of each waiting build, and read the files
    needed to decide the builds of Applications that are not part of this run.

    The subscriptions of those Applications come from their annotations, if these can be looked up.
    Otherwise, they are created from the entries in the list of waiting builds.
    """
    listed: dict[BuildKey, ListedBuild] = {}
    for head in heads.values():
        if not head.instead:  # otherwise, the other head branch has its builds
            listed |= {build.key: build for build in head.waiting_list.builds}
    subs_of_run = asked_subscriptions(batch)
    # An image without a new build also needs the keys, because its waiting build is verified again.
    waiting_subs = [sub for sub in subs_of_run if key_of_entry(sub) in listed]
    base, waiting_subs = _with_keys_read(base, waiting_subs, batch)
    from_annotations = {key_of_entry(sub): sub for sub in (*subs_of_run, *waiting_subs)}
    # waiting builds of Applications that are not part of this run
    builds_of_others = {key: build for key, build in listed.items() if key not in from_annotations}
    scene = Scene(
        base=base,
        from_annotations=from_annotations,
        from_list={},
        facts=facts,
        job=job,
        world=world,
        gather=gather,
        checks=checks,
    )
    if not builds_of_others:
        return scene

    looked_up = _subscriptions_of_others(builds_of_others, batch, base, world)
    created = {
        key: subscription_of(build, base)
        for key, build in builds_of_others.items()
        if key not in looked_up
    }
    subs_without_config = [*looked_up.values(), *created.values()]
    base, subs_of_others = _with_config_applied(base, subs_without_config, batch, job)
    all_subs = [*subs_of_run, *subs_of_others]
    by_key = {key_of_entry(sub): sub for sub in subs_of_others}  # with the config applied
    looked_up_with_config = {key: by_key[key] for key in looked_up}
    return replace(
        scene,
        base=base,  # with the files of the other Applications
        from_annotations={**from_annotations, **looked_up_with_config},
        from_list={key: by_key[key] for key in created},
        facts=replace(facts, elsewhere=holds_of_others(base, all_subs, job.terms)),
    )


def _subscriptions_of_others(
    listed: Mapping[BuildKey, ListedBuild], batch: Batch, base: Snapshot, world: World
) -> dict[BuildKey, Subscription]:
    """Return the subscriptions (what to update, and where) for these waiting builds, as far as
    their Applications can be looked up.

    The batch writes with one set of credentials, so subscriptions that need different credentials
    are left out. So are those for another repository or branch.
    """
    first_sub = batch.asks[0].subscription  # all asks have the same repository and credentials
    repo = normal_url(first_sub.repo)
    looked_up: dict[BuildKey, Subscription] = {}
    for app in dict.fromkeys(build.application for build in listed.values()):
        for sub in batch.look(app):
            key = key_of_entry(sub)
            if key not in listed:
                continue
            is_same_branch = normal_url(sub.repo) == repo and sub.base in ("", base.branch)
            if is_same_branch and world.login(sub) == world.login(first_sub):
                looked_up[key] = sub
    return looked_up


def _with_config_applied(
    base: Snapshot, subs: Sequence[Subscription], batch: Batch, job: Job
) -> tuple[Snapshot, list[Subscription]]:
    """Apply the repository's own config (rules for its files) to these subscriptions (what to
    update, and where).

    Return the base with the files needed to decide the subscriptions, and the subscriptions with
    the config's settings.
    """
    config = job.wording.config
    config_of_default_branch = config_in(base.default)
    places_of_subs = chain.from_iterable(map(places_of, subs))
    base = with_more(base, places_of_subs, batch.repository)

    def changed(sub: Subscription) -> Collection[str]:
        """Return the paths of the files that an update changes."""
        return changed_files(base, sub, job.terms)

    configured_subs = governed(subs, config, job.terms.now, changed)
    limited_subs = also_limited(configured_subs, config_of_default_branch, changed)
    return _with_keys_read(base, limited_subs, batch)


def _with_keys_read(
    base: Snapshot, subs: Sequence[Subscription], batch: Batch
) -> tuple[Snapshot, list[Subscription]]:
    """Read the public keys that the repository's config requires for these subscriptions.

    Return the base with the files of the keys, and the subscriptions with the keys' contents.
    """
    key_paths: list[str] = []
    for sub in subs:
        for demand in sub.demands:
            key_paths += demand.keys
    base = with_more(base, map(Place, key_paths), batch.repository)
    with of_config():
        return base, [with_all_keys(sub, base.files) for sub in subs]


def _decided_on_our_branch(
    head: HeadBranch,
    asks_at_head: Sequence[Decided],
    moves: Mapping[Identity, Move],
    batch: Batch,
    scene: Scene,
    *,
    proves: bool,
) -> tuple[dict[Identity, Move], FatesOnHead]:
    """Decide about the builds waiting on one of our head branches (branches of pull requests),
    together with this run's new builds for it (`asks_at_head`).

    `moves` are the decisions about all new builds of the run. With `proves`, the signatures of the
    waiting builds are verified again. Return the decisions about the new builds for this branch,
    and what became of the waiting builds (their fates).
    """
    terms = scene.job.terms
    # the base as it will be after the merge: without the holds that the merge ends
    scene = replace(scene, base=after_releases(scene.base, head.waiting_list.releases))
    waiting, undecided = waiting_in(
        head.waiting_list,
        scene.base,
        scene.from_annotations,
        scene.from_list,
        terms,
        scene.facts,
    )
    facts = _facts_between(waiting, asks_at_head, scene)
    waiting = [replace(build, situation=replace(build.situation, facts=facts)) for build in waiting]

    # 1. Drop the builds that fail even on their own.
    still_promoted, withdrawn_fates = _without_withdrawn(waiting, batch, moves, asks_at_head)
    passed, failed_fates, problems = _checked_alone(still_promoted, scene, head.name, proves=proves)

    # 2. Compare the remaining builds with the new builds for this branch, except for builds that a
    #    person's command on another branch affects.
    commands_elsewhere = _commands_elsewhere(batch, scene.job, asks_at_head)
    without_command = [
        build for build in passed if build.subscription.identity not in commands_elsewhere
    ]
    new_moves, fates = decide_with_waiting(scene.base, without_command, asks_at_head, terms)

    # 3. Apply a person's command whose commit belongs on another branch.
    for build in passed:
        ask = commands_elsewhere.get(build.subscription.identity)
        if ask:
            fates.append(taken_out(scene.base, build, ask, moves[ask.key], terms))

    problems += [_undecided_warning(entry, head.name) for entry in undecided]
    return new_moves, FatesOnHead(
        fates=(*fates, *withdrawn_fates, *failed_fates),
        undecided=tuple(undecided),
        problems=tuple(dict.fromkeys(problems)),
    )


def _commands_elsewhere(
    batch: Batch, job: Job, asks_at_head: Sequence[Decided]
) -> dict[Identity, Ask]:
    """Return the asks of a person's command whose commit belongs on a branch other than this head
    branch, by key. `asks_at_head` are the asks whose commit belongs on this branch.

    A hold or a rollback also applies to the builds that are waiting on this branch. A release does
    not.
    """
    if job.intent is None or job.intent.verb == "release":
        return {}
    keys_at_head = {ask.key for ask, _ in asks_at_head}
    return {ask.key: ask for ask in batch.asks if ask.key not in keys_at_head}


def _without_withdrawn(
    waiting: Sequence[WaitingBuild],
    batch: Batch,
    moves: Mapping[Identity, Move],
    asks_at_head: Sequence[Decided],
) -> tuple[list[WaitingBuild], list[BuildFate]]:
    """Leave out promoted builds whose source environment no longer has the version, for example
    because it was rolled back there.

    Return the remaining waiting builds, and what became of those that were left out: replaced by a
    new build in `asks_at_head`, or dropped.
    """
    decided = [(ask, moves[ask.key]) for ask in batch.asks]
    new_builds = {ask.key: move for ask, move in asks_at_head if move.updates}
    still_promoted: list[WaitingBuild] = []
    fates: list[BuildFate] = []
    for build in waiting:
        why_withdrawn = withdrawn(build.listed, decided)
        if not why_withdrawn:
            still_promoted.append(build)
            continue
        new_build = new_builds.get(build.subscription.identity)
        if new_build:
            because = f"replaced by {new_build.decision.candidate.version}"
            fates.append(BuildFate(build.listed, "superseded", because))
        else:
            fates.append(BuildFate(build.listed, "dropped", why_withdrawn))
    return still_promoted, fates


def _facts_between(
    waiting: Sequence[WaitingBuild], asks_at_head: Sequence[Decided], scene: Scene
) -> Facts:
    """Return the facts that are needed to choose between waiting builds, new builds, and the base's
    version: registry responses, and which of two source commits is newer.

    They are added to the facts in `scene`.
    """
    more = scene.gather(scene.base, asks_of(waiting))
    commit_pairs = dict.fromkeys(pairs_of(waiting, asks_at_head))
    ancestry = {pair: scene.world.ancestry(*pair) for pair in commit_pairs}
    return replace(
        scene.facts,
        ancestry={**scene.facts.ancestry, **more.ancestry, **ancestry},
        answers={**more.answers, **scene.facts.answers},
    )


def _checked_alone(
    waiting: Sequence[WaitingBuild], scene: Scene, head: str, *, proves: bool
) -> tuple[list[WaitingBuild], list[BuildFate], list[Problem]]:
    """Check the builds that are waiting on a head branch, as if this run had no new builds.

    The rules are applied again. With `proves`, the signatures of the builds that pass are also
    verified again. Return the builds that may remain, what became of the others (their fates), and
    warnings about builds that remain without having been checked.
    """
    fates = [fate_alone(scene.base, build, head) for build in waiting]
    verified_moves, problems = _with_proofs_checked(fates, scene, head, proves=proves)
    passed: list[WaitingBuild] = []
    refused_by_rule = [fate for fate in fates if fate.rule]
    not_proved: list[BuildFate] = []
    for build, fate in zip(waiting, fates, strict=True):
        if fate.rule:  # it is in `refused_by_rule`
            continue
        move = verified_moves.get(build.listed.key)
        if move is None:  # it is not written again, so there is nothing to verify
            passed.append(build)
            continue
        verdict = move.decision.judged
        if verdict.verdict == "refuse":
            because = f"{NO_LONGER_PROVED}: {verdict.because}"
            not_proved.append(BuildFate(build.listed, "dropped", because))
            continue
        if verdict.verdict == "error":
            problems.append(_unchecked_warning(build, verdict.because, verdict.hint, head))
        elif fate.doubt:  # a server did not respond
            problems.append(_unchecked_warning(build, fate.because, "", head))
        passed.append(replace(build, proof=move.decision.proof))
    return passed, refused_by_rule + not_proved, problems


def _with_proofs_checked(
    fates: Sequence[BuildFate], scene: Scene, head: str, *, proves: bool
) -> tuple[dict[BuildKey, Move], list[Problem]]:
    """Verify the signatures and other proofs of the waiting builds that would be written again.

    `fates` contains the fate of each build on the branch `head`. Return the moves that write the
    builds, keyed by build, with the result of the verification as their verdict. Without `proves`,
    the moves are returned unchanged, with a warning.
    """
    moves_that_write: dict[BuildKey, Move] = {}
    for fate in fates:
        if fate.move and fate.move.updates:
            moves_that_write[fate.listed.key] = fate.move

    if proves:
        checks = replace(scene.checks, labels=False)  # only proofs, not the images' labels
        verified_moves = verified(list(moves_that_write.values()), checks)
        return dict(zip(moves_that_write, verified_moves, strict=True)), []
    if not moves_that_write:
        return {}, []
    message = (
        f"the builds waiting on {head} were not verified again: this run affects too many branches"
    )
    return moves_that_write, [Problem(Trouble.warning("signature", message))]


def _unchecked_warning(waiting: WaitingBuild, because: str, hint: str, head: str) -> Problem:
    """Return the warning that a waiting build remains, although it could not be checked. `because`
    is the reason, and `head` is the branch where the build is waiting.
    """
    version = waiting.listed.version
    app = waiting.listed.application
    message = f"{version} is still waiting on {head}, but could not be checked: {because}"
    return Problem(Trouble.warning("registry", message, hint), application=app)


def _undecided_warning(undecided: Undecided, head: str) -> Problem:
    """Return the warning that a waiting build could not be decided."""
    listed = undecided.listed
    error = undecided.error
    message = f"cannot decide on {listed.version}, which is waiting on {head}: {error}"
    return Problem(error.saying(message).as_warning(), application=listed.application)
