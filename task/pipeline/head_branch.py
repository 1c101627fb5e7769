"""Pure: the names of head branches, and what waits on them.

A newer event updates what waits there, an older one changes nothing, and nothing else is lost. A head branch is always
one commit on the base's tip: what it holds for images that this event is not about is decided and written again, and
what is remembered there counts as if it were merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from task.errors import Exit, Malformed, TaskError
from task.forges.proposal import head_branch
from task.model import Build, Memory, Reading, Snapshot, Subscription, Verdict
from task.pipeline.decide import Ask, decide_one, is_state_path, reading, state_of, state_path
from task.pipeline.move import Move
from task.pipeline.weigh import Facts, Terms, key_of
from task.policy.order import version_of
from task.policy.remember import hold_text, holding
from task.policy.strategies import STRATEGIES
from task.templates import branch_name
from task.templates.change import Change
from task.urls import normal_url


def with_state(base: Snapshot, head: Snapshot, subs: Iterable[Subscription]) -> Snapshot:
    """The base, with what the head branch remembers of these Applications."""
    files = dict(base.files)
    for path in dict.fromkeys(map(state_path, subs)):
        files.pop(path, None)
        if path in head.files:
            files[path] = head.files[path]
    return replace(base, files=files)


def waiting(base: Snapshot, head: Snapshot, sub: Subscription, terms: Terms) -> Move | None:
    """The update that the head branch holds for an image; None where it has none that the base would still take."""
    try:
        ours, theirs = reading(base, sub, terms), reading(head, sub, terms)
    except TaskError:
        return None
    if not version_of(theirs) or version_of(ours) == version_of(theirs):
        return None
    image = replace(sub.entry.image, tag=theirs.tag, digest=theirs.digest)
    # The order of builds was asked when the head branch was written: it is decided without what is remembered.
    files = {path: one for path, one in base.files.items() if not is_state_path(path)}
    ask, anew = Ask(sub, (image,)), replace(terms, build=Build(), require_live=False)
    found = decide_one(replace(base, files=files), ask, anew)
    why = _rolled_back(ours, theirs, head, sub, terms) if found.decision.verdict.verdict in ("refuse", "update") else ""
    if why:
        decision = replace(found.decision, candidate=image, verdict=Verdict("update", "admitted", why))
        return replace(found, decision=decision, rolled_back=True)
    return found if found.updates else None


def _rolled_back(ours: Reading, theirs: Reading, head: Snapshot, sub: Subscription, terms: Terms) -> str:
    """What a rollback that waits on a head branch said: from which version, and why it is held; "" where none waits.

    The base says `ours`, the head branch `theirs`.
    """
    try:
        state = state_of(head, sub)
    except TaskError:
        return ""
    memory = state.images.get(key_of(sub), Memory())
    by_an_event = memory.written is not None and version_of(memory.written) == version_of(theirs)
    if by_an_event or version_of(ours) not in memory.replaced:
        return ""
    hold = holding(state, memory, terms.now)
    return f"rolled back from {version_of(ours)}{f'; {hold_text(hold)}' if hold else ''}"


def again(base: Snapshot, head: Snapshot, ask: Ask, terms: Terms, facts: Facts) -> Move:
    """What becomes of an ask, now that its head branch has been seen."""
    sub = ask.subscription
    there = waiting(base, head, sub, terms)
    # A person's word is about what the base says, not about what waits. An undo never replaces a newer build.
    by_hand = ask.intent is not None and not ask.intent.undone
    waits = there.decision.candidate if there and not by_hand else None
    said = Reading(tag=waits.tag, digest=waits.digest) if waits else None
    move = decide_one(with_state(base, head, [sub]), ask, terms, facts, said)
    if waits and move.updates and move.decision.candidate.tag != waits.tag:
        older = STRATEGIES[sub.policy.strategy].older(move.decision.candidate.tag, waits.tag)
        if older:
            because = f"{waits.version} waits on {head.branch} already: {older}"
            return move.without_effect(Verdict("refuse", "superseded", because))
    return move


def carried(base: Snapshot, head: Snapshot, asked: Sequence[tuple[Ask, Move]], terms: Terms) -> list[Move]:
    """What else the head branch holds for these Applications: it is written again, and is no news."""
    written = {_key(move.subscription) for _, move in asked if move.updates}
    siblings = {_key(sub): sub for ask, _ in asked for sub in ask.siblings}
    updates = (waiting(base, head, sub, terms) for key, sub in siblings.items() if key not in written)
    return [
        replace(one, decision=replace(one.decision, head=head.branch), carried=True, remember=None)
        for one in updates
        if one is not None
    ]


def _key(sub: Subscription) -> tuple[str, str, str, str]:
    return sub.application.key, sub.entry.text, sub.target, sub.path


def name_heads(moves: Sequence[Move], request: str = "", *, everywhere: bool = False) -> list[Move]:
    """The moves, each with the head branch that it is written to.

    A head branch has the name that the annotation `git-branch` gives it, from the Application's updates; without one
    `request`, the branch of pull requests (`head_of_requests`). `everywhere`: also for what changes nothing.
    """
    changes: dict[str, list[Change]] = {}
    for one in moves:
        if one.changes:
            of_app = changes.setdefault(one.subscription.application.key, [])
            of_app += [change] if (change := one.change) not in of_app else []
    found = []
    for one in moves:
        sub, base = one.subscription, one.decision.branch
        if not (sub.head or sub.pull_request) or not (
            everywhere or one.changes or one.decision.verdict.verdict == "defer"
        ):
            found.append(one)
            continue
        try:
            if sub.head:
                head = _named(sub, base, changes.get(sub.application.key, []))
            else:
                head = request or head_of_requests(sub.repo, base, [two.subscription for two in moves])
        except Malformed as error:
            because = f"git-branch: {error.message}"
            found.append(
                one.without_effect(Verdict("error", "annotation", because, error.hint, int(Exit.CONFIGURATION)))
            )
            continue
        found.append(replace(one, decision=replace(one.decision, head=head)))
    return found


def _named(sub: Subscription, base: str, changes: Sequence[Change]) -> str:
    """The branch that `git-branch` names. Raises `Malformed`."""
    app = branch_name.AppFacts(sub.application.name, sub.application.namespace, sub.repo, base, sub.path)
    head = branch_name.branch_name(sub.head, changes, app)
    if sub.pull_request and head == base:
        raise Malformed(f"no pull request can merge {head} into itself", "name another branch after the colon, or none")
    return head


def head_of_requests(repo: str, base: str, subs: Iterable[Subscription]) -> str:
    """One branch for all Applications of the event that go into a request to this base: always the same."""
    together = [one for one in subs if one.pull_request and not one.head]
    return head_branch(
        normal_url(repo), base, [one.application.key for one in together], [one.path for one in together]
    )
