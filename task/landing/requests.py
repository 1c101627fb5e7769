"""Finds the requests of head branches, and what people have declined by closing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from task.deciding.job import Job, Move
from task.errors import TaskError
from task.forges.marks import build_key, described
from task.forges.proposal import refuses
from task.landing.ports import Forge, World
from task.model import Proposed, Verdict, Written
from task.policy.builds import commits, version_of, why_older
from task.policy.strategies import rules_of


@dataclass(frozen=True)
class Request:
    """The state of a head branch's request before anything is done."""

    forge: Forge
    found: Proposed | None = None
    tip: str = ""  # of the head branch, "" if it does not exist
    error: TaskError | None = None  # set if the forge did not answer


def requests_of(moves: Sequence[Move], job: Job, world: World) -> tuple[dict[str, Request], list[Move]]:
    """Return the requests for these moves by head branch, and the moves; one that cannot have a request is an error.

    `plan` asks no forge. It only sees whether the repository is on a host at all.
    """
    found: dict[str, Request] = {}
    broken: dict[str, TaskError] = {}
    for one in (move.decision for move in moves):
        if not one.subscription.pull_request or one.head in ("", one.branch, *found, *broken):
            continue
        try:
            if job.dry:
                world.check_forge(one.subscription.repo)
                continue
            forge = world.forge(one.subscription.repo)
        except TaskError as error:
            broken[one.head] = error
            continue
        try:
            found[one.head] = Request(forge, forge.find(one.branch, one.head))
        except TaskError as error:
            # The forge is down. The branch is pushed nevertheless, so nothing is lost, and the next run opens the
            # request.
            found[one.head] = Request(forge, error=error)
    return found, [
        move.failed(broken[move.decision.head]) if move.changes and move.decision.head in broken else move
        for move in moves
    ]


def is_over(request: Request | None, tip: str) -> bool:
    """Tell whether a head branch is only a leftover of a merged or closed request.

    It is not if somebody pushed to it since, which the forge may not have noticed.
    """
    found = request.found if request else None
    return found is not None and found.state != "open" and described(found.body) in ("", tip)


def declined(move: Move, request: Request, world: World) -> Move:
    """Return the move, or a refusal if a person closed the request for this image or a newer one.

    The text of the request says what was closed, because its branch may be gone.
    """
    found, sub, candidate = request.found, move.subscription, move.decision.candidate
    if found is None or not move.updates or move.kept:
        return move
    key = build_key(sub.application.key, sub.entry.alias, sub.entry.image.identity)
    if (known := refuses(found).get(key)) is None:
        return move
    event = Written(candidate.tag, candidate.digest, move.build)
    if version_of(event) == version_of(known):
        return move.without_effect(closed_for_this(found))
    by_build = not rules_of(sub.policy).ordered or event.tag == known.tag
    pair = commits(event.build, known.build) if by_build else None
    why = why_older(event, known, sub.policy, {pair: world.ancestry(*pair)} if pair else {})
    if not why:
        return move
    because = f"{found.url}: {version_of(known)} was closed by a person: {why}"
    return move.without_effect(Verdict("refuse", "superseded", because))


def closed_for_this(found: Proposed) -> Verdict:
    """Return the refusal of a build whose request a person has closed."""
    because = f"{found.url}: exactly this was closed by a person: a newer build opens another request"
    return Verdict("refuse", "superseded", because)
