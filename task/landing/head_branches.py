"""The head branches that are about to be written: their names, their present files, and their requests."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from task.deciding.decide import (
    Identity,
    changed_files,
    decide_one,
    own_states,
    places,
    state_path,
)
from task.deciding.job import Ask, Job, Move, Terms
from task.deciding.weigh import Facts, key_of
from task.editors.state_file import write_state
from task.errors import Exit, Malformed, TargetError, TaskError
from task.forges.host import Host
from task.forges.proposal import build_key, described, proposes, refuses
from task.git.names import OURS, short_hash
from task.landing.before_deciding import CONFIG, Gather, with_all_keys, with_more
from task.landing.memory import without_rollbacks
from task.landing.ports import Batch, Repository, World
from task.landing.waiting import Decided, Waits, decide_again, listed, pairs_of, rest_of, waiting_on
from task.model import (
    File,
    Files,
    Head,
    Memory,
    Place,
    Problem,
    Proposed,
    Snapshot,
    State,
    Subscription,
    Verdict,
    Written,
)
from task.policy.builds import alike, commits, hold_text, merged, why_older
from task.policy.strategies import rules_of
from task.repository_config.config import PATH, governed, keys_named
from task.repository_config.reading import config_in, of_config
from task.templates import branch_name
from task.templates.change import Change
from task.urls import normal_url

NO_HEAD = Head("", "", "", {})
MOST_RENAMED = 5  # requests of older heads that the Git host is asked about
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def name_heads(moves: Sequence[Move], *, by_hand: bool = False) -> list[Move]:
    """Return the moves, each with the head branch that it touches: its own, or that of its group's request.

    The annotation `git-branch` may build a name from the Application's updates. Then only updates have a name, and what
    a person asks for (`by_hand`).
    """
    changes: dict[str, list[Change]] = {}
    for one in moves:
        if one.changes:
            of_app = changes.setdefault(one.subscription.application.key, [])
            of_app += [change] if (change := one.change) not in of_app else []
    found = []
    for one in moves:
        sub, base = one.subscription, one.decision.branch
        of_app = changes.get(sub.application.key, [])
        anew = by_hand or of_app or one.decision.verdict == "defer" or "{{" not in sub.head_template
        if not (sub.head_template or sub.pull_request) or not anew or not base:
            found.append(one)
            continue
        try:
            head = _named(sub, base, of_app) if sub.head_template else request_head(sub, base)
            found.append(replace(one, decision=replace(one.decision, head=head)))
        except Malformed as error:
            wrong = Verdict(
                "error",
                "annotation",
                f"git-branch: {error.message}",
                error.hint,
                int(Exit.CONFIGURATION),
            )
            found.append(one.without_effect(wrong))
    return found


def _named(sub: Subscription, base: str, changes: Sequence[Change]) -> str:
    """Return the branch that `git-branch` names. Raises `Malformed`."""
    app = branch_name.AppFields(
        sub.application.name, sub.application.namespace, sub.repo, base, sub.path
    )
    head = branch_name.branch_name(sub.head_template, changes, app)
    if sub.pull_request and head == base:
        raise Malformed(
            f"no pull request can merge {head} into itself",
            "name another branch after the colon, or none",
        )
    return head


def request_head(sub: Subscription, base: str) -> str:
    """Return the branch of the request for the subscription's group, which is its image unless the config says more.

    The name is flat, as Git refuses a branch `a/b` beside `a`.
    """
    repo, app = normal_url(sub.repo), sub.application
    group = sub.wishes.group or "image"
    # an Application has one request, whichever of its images were built; two Argo CDs may have one of its name
    names = {"repository": repo, "project": app.project, "application": f"{app.key} {sub.home}"}
    full = names.get(group, sub.entry.image.identity)
    short = app.name if group == "application" else full.rpartition("/")[2]
    name = NOT_IN_A_NAME.sub("-", short).strip("-")[:60].strip("-")
    return f"{OURS}{name or group}-{short_hash(repo, base, group, full)}"


@dataclass(frozen=True)
class Request:
    """The state of a head branch's request before anything is done."""

    forge: Host
    found: Proposed | None = None
    error: TaskError | None = None  # set if the forge did not answer


def requests_of(
    moves: Sequence[Move], job: Job, world: World
) -> tuple[dict[str, Request], list[Move]]:
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
        move.failed(broken[move.decision.head])
        if move.changes and move.decision.head in broken
        else move
        for move in moves
    ]


def is_over(request: Request | None, tip: str) -> bool:
    """Tell whether a head branch is only a leftover of a merged or closed request.

    It is not if somebody pushed to it since, which the forge may not have noticed.
    """
    found = request.found if request else None
    return found is not None and found.state != "open" and described(found.body) in ("", tip)


def closed_for_this(found: Proposed) -> Verdict:
    """Return the refusal of a build whose request a person has closed."""
    because = (
        f"{found.url}: exactly this was closed by a person: a newer build opens another request"
    )
    return Verdict("refuse", "superseded", because)


@dataclass(frozen=True)
class ExistingHeads:
    """The head branches of one delivery, by name."""

    base: Snapshot
    found: Mapping[str, Head] = field(default_factory=dict)
    requests: Mapping[str, Request] = field(default_factory=dict)
    # by head: the older ones for the same, from before its base was renamed, with their open requests
    renamed: Mapping[str, Sequence[tuple[Head, Request]]] = field(default_factory=dict)

    def ours(self, name: str) -> Head | None:
        """Return a head branch that may be replaced: it has a commit of ours, or nothing beyond the base."""
        head = self.found.get(name)
        return (
            head
            if head and (head.before or (head.tip == self.base.tip and name.startswith(OURS)))
            else None
        )

    def theirs(self, name: str) -> Head | None:
        """Return a head branch of somebody else, which is never replaced."""
        return None if self.ours(name) else self.found.get(name)

    def declined_rollbacks(self, decided: Sequence[Decided]) -> tuple[Files, list[Problem]]:
        """Return the memory without the holds of rollbacks that a person has declined, and warnings that say so."""
        closed: dict[str, set[str]] = {}
        problems: dict[Problem, None] = {}
        for ask, move in decided:
            request = self.requests.get(move.decision.head)
            found = request.found if request else None
            if found is None or found.state != "closed":
                continue
            listed = proposes(found.body)
            for sub in (ask.subscription, *ask.siblings):
                app, path, key = sub.application.key, state_path(sub), key_of(sub)
                known = listed.get(build_key(app, sub.entry.alias, sub.entry.image.identity))
                for state in own_states(self.base.memory, path).values():
                    memory = state.images.get(key, Memory())
                    hold = memory.hold or state.hold
                    if known and hold and memory.rollback and alike(memory.rollback, known):
                        closed.setdefault(path, set()).add(key)
                        why = f"{key}: its rollback was declined, {found.url}; no longer {hold_text(hold)}"
                        problems[
                            Problem(application=app, rule="held", message=why, severity="warning")
                        ] = None
        return without_rollbacks(self.base.memory, closed), list(problems)

    def decide_again(
        self, decided: Sequence[Decided], facts: Facts, gather: Gather, terms: Terms, world: World
    ) -> tuple[list[Move], dict[str, Waits]]:
        """Decide again, together with what waits on the head branches, and return what became of that, by head.

        The moves are those of the asks in their order, and then those that keep or defer what waits.
        """
        found = {ask.key: move for ask, move in decided}
        kept: list[Move] = []
        waits: dict[str, Waits] = {}
        for name in {**self.found, **self.renamed}:
            head = self.found.get(name, NO_HEAD)
            there = [(ask, found[ask.key]) for ask, move in decided if move.decision.head == name]
            if self.theirs(name):
                found |= self._on_theirs(head, there, terms, facts, gather)
                continue
            subs = [sub for ask, _ in there for sub in (ask.subscription, *ask.siblings)]
            waiting, unread = waiting_on(head, self.base, subs, terms)
            rest = rest_of(head, waiting, unread, subs)
            ours = {
                (sub.application.key, sub.entry.alias, sub.entry.image.identity) for sub in subs
            }
            for old, _ in (
                () if head.changed else self.renamed.get(name, ())
            ):  # what waits there moves here
                there_too = (*waiting_on(old, self.base, subs, terms)[0], *waiting)
                waiting = list({one.subscription.identity: one for one in there_too}.values())
            pairs = pairs_of(waiting, there)
            ancestry = {
                **facts.ancestry,
                **{pair: world.ancestry(*pair) for pair in dict.fromkeys(pairs)},
            }
            known = replace(facts, ancestry=ancestry)
            again, there_now = decide_again(self.base, name, waiting, unread, there, terms, known)
            found |= zip((ask.key for ask, _ in there), again, strict=False)
            kept += again[len(there) :]
            waits[name] = replace(there_now, rest=rest, others=tuple(listed(head.message, ours)))
        moves = [
            move
            if ask.intent
            else self.unless_declined(move, world)  # nobody verifies what is declined
            for (ask, _), move in zip(decided, found.values(), strict=True)
        ]
        return [*moves, *kept], waits

    def _on_theirs(
        self, head: Head, decided: Sequence[Decided], terms: Terms, facts: Facts, gather: Gather
    ) -> dict[Identity, Move]:
        """Decide about asks on a branch of somebody else: its values count, and holds of all branches."""
        view = _with_memory_of(head, self.base, [ask for ask, _ in decided])
        more = gather(view, [ask for ask, _ in decided])
        facts = replace(
            facts,
            ancestry={**more.ancestry, **facts.ancestry},
            answers={**more.answers, **facts.answers},
        )
        found = {}
        for ask, move in decided:
            if move.decision.verdict == "error":
                continue
            try:
                now = decide_one(view, _also_governed(ask, head, terms), terms, facts)
            except TaskError as error:
                now = move.failed(error)
            where = replace(now.decision, branch=self.base.branch, head=head.branch)
            found[ask.key] = replace(now, decision=where)
        return found

    def unless_declined(self, move: Move, world: World) -> Move:
        """Return the move, or a refusal if a person closed the request for this image or a newer one.

        The text of the request says what was closed, because its branch may be gone.
        """
        request, sub, candidate = (
            self.requests.get(move.decision.head),
            move.subscription,
            move.decision.candidate,
        )
        found = request.found if request else None
        if found is None or not move.updates or move.kept:
            return move
        key = build_key(sub.application.key, sub.entry.alias, sub.entry.image.identity)
        if (known := refuses(found).get(key)) is None:
            return move
        event = Written(candidate.tag, candidate.digest, move.build)
        if event.version == known.version:
            return move.without_effect(closed_for_this(found))
        by_build = not rules_of(sub.policy).ordered or event.tag == known.tag
        pair = commits(event.build, known.build) if by_build else None
        why = why_older(event, known, sub.policy, {pair: world.ancestry(*pair)} if pair else {})
        because = f"{found.url}: {known.version} was closed by a person: {why}"
        return move.without_effect(Verdict("refuse", "superseded", because)) if why else move


def _also_governed(ask: Ask, head: Head, terms: Terms) -> Ask:
    """Return the ask as the config on the head branch wants it as well. Raises `TargetError` if it cannot be read.

    Also if that config asks for a request.
    """
    before = ask.subscription
    config = config_in(head.files)
    (sub,) = governed([before], config, terms.now, lambda one: changed_files(head, one, terms))
    if sub.pull_request and not before.pull_request:
        message = f"the config on {head.branch} asks for a pull request for it"
        hint = f"name {head.branch} before the colon of git-branch, as the base of a request"
        raise TargetError(message, hint=hint, subject=PATH)
    with of_config():
        demands = tuple(dict.fromkeys((*before.demands, *with_all_keys(sub, head.files).demands)))
    writes = tuple(dict.fromkeys((*before.writes, *sub.writes)))
    return replace(ask, subscription=replace(sub, writes=writes, demands=demands))


def _with_keys(head: Head, repository: Repository) -> Head:
    """Return a branch of somebody else with the keys that its config names."""
    with suppress(TargetError):  # it is told where the config is followed
        config = config_in(head.files)
        keys = keys_named([config.wishes, *(rule.wishes for rule in config.rules)])
        return with_more(head, map(Place, keys), repository)
    return head


def _with_memory_of(head: Head, base: Snapshot, asks: Collection[Ask]) -> Snapshot:
    """Return the files of somebody's branch, and as their memory what the base and its memory branch remember."""
    memory = dict(base.memory)
    for path in {state_path(ask.subscription) for ask in asks}:
        own, more = own_states(base.files, path), own_states(base.memory, path)
        both = {
            file: merged(own.get(file, State()), more.get(file, State())) for file in (*own, *more)
        }
        memory[path] = File(write_state("", both))
    return replace(base, branch=head.branch, tip=head.tip, files=head.files, memory=memory)


def read_heads(
    batch: Batch, base: Snapshot, moves: Sequence[Move], job: Job, world: World
) -> tuple[ExistingHeads, list[Move]]:
    """Read the head branches that these moves touch, and find their requests.

    `moves` has one move for each of `batch.asks`, in their order. One that cannot have its request becomes an error.
    """
    requests, moves = requests_of(moves, job, world)
    wanted: dict[str, dict[Place, None]] = {}
    for ask, move in zip(batch.asks, moves, strict=True):
        if move.decision.head not in ("", base.branch) and move.decision.verdict != "error":
            wanted.setdefault(move.decision.head, dict.fromkeys(CONFIG)).update(
                dict.fromkeys(places(ask))
            )
    found: dict[str, Head] = {}
    for name, of_head in wanted.items():
        if head := batch.repository.head_snapshot(name, tuple(of_head)):
            if head.before is None:
                head = _with_keys(head, batch.repository)
            elif is_over(requests.get(name), head.tip):
                head = replace(head, before=base, changed=())
            found[name] = head
    # what others' builds on these branches change as well
    more = [
        Place(path) for head in found.values() for path in head.changed if path not in base.files
    ]
    base = with_more(base, more, batch.repository)
    decided = list(zip(batch.asks, moves, strict=True))
    renamed = {
        name: _renamed(
            name,
            [ask for ask, move in decided if move.decision.head == name],
            base,
            request,
            batch,
            job,
            world,
        )
        for name, request in requests.items()
        if name in wanted and (name not in found or found[name].before)
    }
    return ExistingHeads(base, found, requests, renamed), moves


def _renamed(
    name: str,
    asks: Sequence[Ask],
    base: Snapshot,
    request: Request,
    batch: Batch,
    job: Job,
    world: World,
) -> list[tuple[Head, Request]]:
    """Return older heads of ours for the same as `name`: their base was renamed, and their open requests followed it.

    The request of another base stays open, and so does that of another image with the same short name: all that waits
    on an older head has to belong to the subscriptions of this one.
    """
    every = [
        sub for ask in asks for sub in (ask.subscription, *ask.siblings) if not sub.head_template
    ]
    subs = [sub for sub in every if request_head(sub, base.branch) == name]
    if not subs or request.error or (request.found and request.found.state == "closed"):
        return []
    alike: list[Head] = []
    for other in batch.repository.named_alike(name):
        with suppress(TaskError):  # somebody's branch may have anything in it
            head = (
                batch.repository.head_snapshot(
                    other, [place for ask in asks for place in places(ask)]
                )
                or NO_HEAD
            )
            waiting, unread = waiting_on(head, base, subs, job.terms)
            if waiting and not unread and not rest_of(head, waiting, unread, subs):
                alike.append(head)
    if left := [one.branch for one in alike[MOST_RENAMED:]]:
        world.log(
            "warning",
            f"{name}: no request was looked for on {', '.join(left)}; close it if it is obsolete",
        )
    renamed: list[tuple[Head, Request]] = []
    for one in alike[:MOST_RENAMED]:
        with suppress(TaskError):  # the next run looks again
            if (found := request.forge.find(base.branch, one.branch)) and found.state == "open":
                renamed.append((one, Request(request.forge, found)))
    return renamed
