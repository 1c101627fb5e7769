"""The head branches that are about to be written: their names, their present files,
and their requests.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from task.deciding.job import Ask, Intent, Job, Move, Terms
from task.deciding.weigh import Facts, key_of
from task.editors.state_file import write_state
from task.errors import Exit, Malformed, TargetError, TaskError
from task.forges.host import Host
from task.git.names import OURS, short_hash
from task.image import parse_image
from task.landing.before_deciding import CONFIG, Gather, with_all_keys, with_more
from task.landing.memory import without_rollbacks
from task.landing.ports import Batch, Repository, World
from task.landing.waiting import Decided, settled_list
from task.landing.waiting_list import (
    HeadCommit,
    KnownRequest,
    WaitingList,
    is_list_path,
    key_of_entry,
    list_of,
    list_path,
    read_list,
)
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

MOST_CLOSED = 5  # head branches of others that one run closes
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def name_heads(moves: Sequence[Move], *, by_hand: bool = False) -> list[Move]:
    """Return the moves, each with the head branch that it touches: its own,
    or that of its group's request.

    The annotation `git-branch` may build a name from the Application's updates. Then only updates
    have a name, and what a person asks for (`by_hand`).
    """
    changes: dict[str, list[Change]] = {}
    for move in moves:
        if move.changes:
            of_app = changes.setdefault(move.subscription.application.key, [])
            of_app += [change] if (change := move.change) not in of_app else []
    found = []
    for item in moves:
        sub = item.subscription
        base = item.decision.branch
        of_app = changes.get(sub.application.key, [])
        anew = (
            by_hand or of_app or item.decision.verdict == "defer" or "{{" not in sub.head_template
        )
        if not (sub.head_template or sub.pull_request) or not anew or not base:
            found.append(item)
            continue
        try:
            head = _named(sub, base, of_app) if sub.head_template else request_head(sub, base)
            found.append(replace(item, decision=replace(item.decision, head=head)))
        except Malformed as error:
            wrong = Verdict(
                "error",
                "annotation",
                f"git-branch: {error.message}",
                error.hint,
                int(Exit.CONFIGURATION),
            )
            found.append(item.without_effect(wrong))
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
    """Return the branch of the request for the subscription's group,
    which is its image unless the config says more.

    The name is flat, as Git refuses a branch `a/b` beside `a`.
    """
    repo = normal_url(sub.repo)
    app = sub.application
    group = sub.wishes.group or "image"
    # an Application has one request, whichever of its images were built; two Argo CDs may have one
    # of its name
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
    moves: Sequence[Move], base: Snapshot, job: Job, world: World
) -> tuple[dict[str, Request], list[Move]]:
    """Return the requests for these moves by head branch, and the moves;
    one that cannot have a request is an error.

    `plan` asks no forge. It only sees whether the repository is on a host at all.
    """
    found: dict[str, Request] = {}
    broken: dict[str, TaskError] = {}
    wanted = {
        move.decision.head: None
        for move in moves
        if move.subscription.pull_request and move.decision.head not in ("", base.branch)
    }
    if job.intent and moves:
        known = {
            waiting_list.head for waiting_list in lists_in(base.memory) if waiting_list.request
        }
        wanted |= dict.fromkeys(
            touched_head
            for touched_head in touched_heads(moves, base, job.intent)
            if touched_head in known
        )
    repo = moves[0].subscription.repo if moves else ""
    for head in wanted:
        try:
            if job.dry:
                world.check_forge(repo)
                continue
            forge = world.forge(repo)
        except TaskError as error:
            broken[head] = error
            continue
        try:
            found[head] = Request(forge, forge.find(base.branch, head))
        except TaskError as error:
            # The forge is down. The branch is pushed nevertheless, so nothing is lost, and the next
            # run opens the request.
            found[head] = Request(forge, error=error)
    return found, [
        (
            move.failed(broken[move.decision.head])
            if move.changes and move.decision.head in broken
            else move
        )
        for move in moves
    ]


@dataclass(frozen=True)
class HeadBranch:
    """One head branch that a run touches, before anything is done."""

    known: WaitingList  # as the memory branch has it
    listed: WaitingList  # what of it still waits
    branch: Head | None = None
    files: Files = field(default_factory=dict)  # of a branch of somebody else
    request: Request | None = None
    ours: bool = True  # whether it may be replaced, or made
    # the head branch that has its builds now, as the base or the group was renamed
    instead: str = ""

    @property
    def found(self) -> Proposed | None:
        """Its newest request."""
        return self.request.found if self.request else None

    @property
    def tip(self) -> str:
        """Its commit, "" if there is no such branch."""
        return self.branch.tip if self.branch else ""

    @property
    def as_listed(self) -> bool:
        """Whether the branch is at the commit that the list names."""
        made = self.listed.commit
        there = HeadCommit(self.branch.tree, self.branch.parent) if self.branch else None
        return made is not None and made == there


def touched_heads(moves: Sequence[Move], base: Snapshot, intent: Intent | None) -> dict[str, None]:
    """Return the names of the head branches that these moves are about.

    A hold and a rollback are about every head branch on whose list the image is.
    """
    names = {
        move.decision.head: None
        for move in moves
        if move.decision.head not in ("", base.branch) and move.decision.verdict != "error"
    }
    if intent is None or intent.verb == "release":
        return names
    keys = {key_of_entry(move.subscription) for move in moves}
    for waiting_list in lists_in(base.memory):
        if keys & {build.key for build in waiting_list.builds}:
            names.setdefault(waiting_list.head)
    return names


def lists_in(memory: Files) -> list[WaitingList]:
    """Return the lists on the memory branch.

    One that cannot be read is left out: who needs it says so.
    """
    found = []
    for path, file in sorted(memory.items()):
        if is_list_path(path):
            with suppress(TaskError):
                one = read_list(file.text)
                found += [one] if list_path(one.head) == path else []
    return found


def read_heads(
    batch: Batch, base: Snapshot, moves: Sequence[Move], job: Job, world: World
) -> tuple[dict[str, HeadBranch], list[Move]]:
    """Read the head branches that these moves touch, their lists and their requests.

    `moves` has one move for each of `batch.asks`, in their order. One that cannot have its request,
    or whose list cannot be read, becomes an error.
    """
    requests, moves = requests_of(moves, base, job, world)
    found: dict[str, HeadBranch] = {}
    broken: dict[str, TaskError] = {}
    for name in touched_heads(moves, base, job.intent):
        try:
            known = list_of(base.memory, name)
        except TaskError as error:
            broken[name] = error
            continue
        head = _read_head(name, known, batch.repository, base, requests.get(name))
        if not head.ours:
            head = _with_files(head, batch, moves)
        found[name] = head
    found |= _renamed(found, batch, base, job, world)
    return found, [
        move.failed(broken[move.decision.head]) if move.decision.head in broken else move
        for move in moves
    ]


def _read_head(
    name: str, known: WaitingList, repository: Repository, base: Snapshot, request: Request | None
) -> HeadBranch:
    """Return a head branch, with what still waits there."""
    branch = repository.head(name)
    fresh = branch is not None and branch.tip == base.tip and name.startswith(OURS)
    ours = branch is None or fresh or known.has_made(branch.tree, branch.parent)
    found = request.found if request else None
    listed = settled_list(
        known,
        absent=branch is None,
        merged=_is_merged(known, branch, found, repository, base),
        request=KnownRequest(found.number, found.url, found.state) if found else None,
    )
    if branch and listed.has_made(branch.tree, branch.parent) and not listed.arrived:
        there = HeadCommit(branch.tree, branch.parent)
        if there == listed.commit:
            listed = replace(listed, arrived=True, replaces=None)
    return HeadBranch(known, listed, branch, request=request, ours=ours)


def _renamed(
    heads: Mapping[str, HeadBranch], batch: Batch, base: Snapshot, job: Job, world: World
) -> dict[str, HeadBranch]:
    """Return these head branches with what waits on others of ours whose name would be theirs now,
    and those others.

    The base was renamed, or the config groups images in another way.
    """
    subs = {
        key_of_entry(sub): request_head(sub, base.branch)
        for ask in batch.asks
        for sub in (ask.subscription, *ask.siblings)
        if ask.subscription.pull_request and not sub.head_template
    }
    found: dict[str, HeadBranch] = {}
    for known in lists_in(base.memory):
        if known.closing and not known.builds and known.head not in heads:
            if len(found) < MOST_CLOSED:  # an earlier run could not close its request
                found[known.head] = _head_with_request(known, batch, base, job, world)
            continue
        new = {subs.get(listed_build.key, "") for listed_build in known.builds}
        name = new.pop() if len(new) == 1 else ""
        there = found.get(name) or heads.get(name)
        if there is None or known.head in heads or not known.head.startswith(OURS):
            continue
        old = _head_with_request(known, batch, base, job, world)
        if not old.ours or not there.ours:
            continue
        own = {listed_build.key for listed_build in there.listed.builds}
        builds = (
            *there.listed.builds,
            *(listed_build for listed_build in old.listed.builds if listed_build.key not in own),
        )
        found[name] = replace(there, listed=replace(there.listed, builds=builds))
        found[known.head] = replace(old, instead=name)
    return found


def _head_with_request(
    known: WaitingList, batch: Batch, base: Snapshot, job: Job, world: World
) -> HeadBranch:
    """Return a head branch that no move is about, with its request."""
    request = None
    if not job.dry:
        forge = world.forge(batch.asks[0].subscription.repo)
        try:
            request = Request(forge, forge.find(base.branch, known.head))
        except TaskError as error:
            request = Request(forge, error=error)
    return _read_head(known.head, known, batch.repository, base, request)


def _is_merged(
    known: WaitingList,
    branch: Head | None,
    found: Proposed | None,
    repository: Repository,
    base: Snapshot,
) -> bool:
    """Tell whether what the list has was merged, whatever the base says by now."""
    if not known.builds or (branch and branch.parent == base.tip):
        return False
    if (
        found
        and found.state == "merged"
        and (known.request is None or known.request.state == "open")
    ):
        # What was pushed there after the merge is not in it.
        return branch is None or found.head_commit in ("", branch.tip)
    if found is not None or branch is None:
        return False
    return branch.tip == base.tip or repository.merged(base.branch, branch.tip)


def _with_files(head: HeadBranch, batch: Batch, moves: Sequence[Move]) -> HeadBranch:
    """Return a branch of somebody else with its files, and the keys that its config names."""
    if head.branch is None:
        return head
    name = head.branch.branch
    wanted = dict.fromkeys(CONFIG)
    for ask, move in zip(batch.asks, moves, strict=True):
        if move.decision.head == name:
            wanted |= dict.fromkeys(places(ask))
    at = Snapshot(moves[0].subscription.repo, name, head.branch.tip, {})
    at = with_more(at, wanted, batch.repository)
    with suppress(TargetError):  # it is told where the config is followed
        config = config_in(at.files)
        keys = keys_named([config.wishes, *(rule.wishes for rule in config.rules)])
        at = with_more(at, map(Place, keys), batch.repository)
    return replace(head, files=at.files)


def on_theirs(
    head: HeadBranch,
    base: Snapshot,
    decided: Sequence[Decided],
    terms: Terms,
    facts: Facts,
    gather: Gather,
) -> dict[Identity, Move]:
    """Decide about asks on a branch of somebody else: its values count,
    and holds of all branches.
    """
    view = _with_memory_of(head, base, [ask for ask, _ in decided])
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
            now = decide_one(view, _also_governed(ask, head, view, terms), terms, facts)
        except TaskError as error:
            now = move.failed(error)
        where = replace(
            now.decision, branch=base.branch, head=view.branch, current=move.decision.current
        )
        found[ask.key] = replace(now, decision=where)
    return found


def declined_rollbacks(
    heads: Iterable[HeadBranch], base: Snapshot, decided: Sequence[Decided]
) -> tuple[Files, list[Problem]]:
    """Return the memory without the holds of rollbacks that a person has declined,
    and warnings that say so.
    """
    closed: dict[str, set[str]] = {}
    problems: dict[Problem, None] = {}
    subs = {
        key_of_entry(sub): sub for ask, _ in decided for sub in (ask.subscription, *ask.siblings)
    }
    for head in heads:
        keys = {declined_build.key for declined_build in head.listed.declined}
        for listed_build in head.known.builds:
            sub = subs.get(listed_build.key)
            declined = (
                listed_build.application,
                listed_build.alias,
                parse_image(listed_build.image).identity,
            ) in keys
            if sub is None or not (listed_build.rollback and declined):
                continue
            app = sub.application.key
            path = state_path(sub)
            key = key_of(sub)
            for state in own_states(base.memory, path).values():
                memory = state.images.get(key, Memory())
                hold = memory.hold or state.hold
                if hold and memory.rollback and alike(memory.rollback, listed_build.rollback):
                    closed.setdefault(path, set()).add(key)
                    url = head.found.url if head.found else ""
                    why = f"{key}: its rollback was declined, {url}; no longer {hold_text(hold)}"
                    problem = Problem(application=app, rule="held", message=why, severity="warning")
                    problems[problem] = None
    return without_rollbacks(base.memory, closed), list(problems)


def unless_declined(move: Move, head: HeadBranch | None, world: World) -> Move:
    """Return the move, or a refusal if a person closed the request
    for this image or a newer one.
    """
    if head is None or not move.updates or move.kept:
        return move
    sub = move.subscription
    candidate = move.decision.candidate
    key = (sub.application.key, sub.entry.alias, sub.entry.image.identity)
    declined = next(
        (declined_build for declined_build in head.listed.declined if declined_build.key == key),
        None,
    )
    if declined is None:
        return move
    known = declined.written
    event = Written(candidate.tag, candidate.digest, move.build)
    if event.version == known.version:
        because = f"{declined.url}: exactly this was closed by a person"
        because += ": a newer build opens another request"
        return move.without_effect(Verdict("refuse", "superseded", because))
    by_build = not rules_of(sub.policy).ordered or event.tag == known.tag
    pair = commits(event.build, known.build) if by_build else None
    why = why_older(event, known, sub.policy, {pair: world.ancestry(*pair)} if pair else {})
    because = f"{declined.url}: {known.version} was closed by a person: {why}"
    return move.without_effect(Verdict("refuse", "superseded", because)) if why else move


def _also_governed(ask: Ask, head: HeadBranch, view: Snapshot, terms: Terms) -> Ask:
    """Return the ask as the config on the head branch wants it as well.

    Raises `TargetError` if it cannot be read.

    Also if that config asks for a request.
    """
    before = ask.subscription
    name = head.known.head
    config = config_in(head.files)
    (sub,) = governed([before], config, terms.now, lambda one: changed_files(view, one, terms))
    if sub.pull_request and not before.pull_request:
        message = f"the config on {name} asks for a pull request for it"
        hint = f"name {name} before the colon of git-branch, as the base of a request"
        raise TargetError(message, hint=hint, subject=PATH)
    with of_config():
        demands = tuple(dict.fromkeys((*before.demands, *with_all_keys(sub, head.files).demands)))
    writes = tuple(dict.fromkeys((*before.writes, *sub.writes)))
    return replace(ask, subscription=replace(sub, writes=writes, demands=demands))


def _with_memory_of(head: HeadBranch, base: Snapshot, asks: Collection[Ask]) -> Snapshot:
    """Return the files of somebody's branch,
    and as their memory what the base and its memory branch remember.
    """
    memory = dict(base.memory)
    for path in {state_path(ask.subscription) for ask in asks}:
        own = own_states(base.files, path)
        more = own_states(base.memory, path)
        both = {
            file: merged(own.get(file, State()), more.get(file, State())) for file in (*own, *more)
        }
        memory[path] = File(write_state("", both))
    name = head.known.head
    return replace(base, branch=name, tip=head.tip, files=head.files, memory=memory)
