"""The head branches that are about to be written: their present files, and the state of their pull requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from task.deciding.decide import places
from task.deciding.job import Job, Terms
from task.deciding.move import Move
from task.deciding.weigh import Facts
from task.landing.gathering import Gather
from task.landing.head_branch import Decided, decide_on_head, kept_updates
from task.landing.ports import Batch, World
from task.landing.pull_request import Request, declined, is_over, requests_of
from task.model import Place, Snapshot


@dataclass(frozen=True)
class ExistingHeads:
    """The head branches of one delivery, by name."""

    base: Snapshot
    # the base's files if the request is merged or closed
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    requests: Mapping[str, Request] = field(default_factory=dict)

    def more_facts(self, decided: Sequence[Decided], facts: Facts, gather: Gather) -> Facts:
        """Return the facts that were gathered for the base, and those that the head branches make necessary."""
        for name, head in self.snapshots.items():
            more = gather(head, [ask for ask, move in decided if move.decision.head == name])
            ancestry, answers = {**more.ancestry, **facts.ancestry}, {**more.answers, **facts.answers}
            facts = replace(facts, ancestry=ancestry, answers=answers)
        return facts

    def decide_again(self, decided: Sequence[Decided], facts: Facts, terms: Terms, world: World) -> list[Move]:
        """Decide with what waits on the head branches. Updates of other images that wait there are appended."""
        found = []
        for ask, move in decided:
            name, now = move.decision.head, move
            if name in self.snapshots and move.decision.verdict != "error":
                now = decide_on_head(self.base, self.snapshots[name], ask, terms, facts)
                now = replace(now, decision=replace(now.decision, head=name))
            if name in self.requests and not ask.intent:  # before the signatures: nobody verifies what is declined
                now = declined(now, self.requests[name], world)
            found.append((ask, now))
        kept = [
            move
            for name, head in self.snapshots.items()
            for move in kept_updates(self.base, head, [pair for pair in found if pair[1].decision.head == name], terms)
        ]
        return [*(move for _, move in found), *kept]

    def without_declined(self, moves: Sequence[Move], world: World) -> list[Move]:
        """Return the moves. A move becomes a refusal if a person has closed the request for it."""
        return [
            declined(move, self.requests[move.decision.head], world) if move.decision.head in self.requests else move
            for move in moves
        ]


def read_heads(
    batch: Batch, base: Snapshot, moves: Sequence[Move], job: Job, world: World
) -> tuple[ExistingHeads, list[Move]]:
    """Read the head branches that these moves would write, and find their requests.

    `moves` has one move for each of `batch.asks`, in their order. One that cannot have its request becomes an error.
    """
    requests, moves = requests_of(moves, job, world)
    wanted: dict[str, dict[Place, None]] = {}
    for ask, move in zip(batch.asks, moves, strict=True):
        if move.decision.head != base.branch and move.decision.verdict != "error":
            wanted.setdefault(move.decision.head, {}).update(dict.fromkeys(places(ask)))
    snapshots: dict[str, Snapshot] = {}
    for name, of_head in wanted.items():
        if head := batch.repository.head_snapshot(name, tuple(of_head)):
            over = is_over(requests.get(name), head.tip)
            snapshots[name] = replace(base, branch=head.branch, tip=head.tip) if over else head
    tips = {name: head.tip for name, head in snapshots.items()}
    requests = {name: replace(request, tip=tips.get(name, "")) for name, request in requests.items()}
    return ExistingHeads(base, snapshots, requests), moves
