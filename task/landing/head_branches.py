"""The head branches that a run is about to write: their names, current files, and requests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from task.deciding.decide import (
    Identity,
    changed_files,
    decide_one,
    own_states,
    places,
    reading,
    state_path,
)
from task.deciding.job import Ask, Intent, Job, Move, Terms
from task.deciding.weigh import Facts, key_of
from task.editors.state_file import write_state
from task.errors import Exit, Malformed, TargetError, TaskError, Trouble
from task.forges.host import Host
from task.git.names import PREFIX, has_our_prefix, memory_branch, short_hash
from task.landing.before_deciding import CONFIG, Gather, with_all_keys, with_more
from task.landing.ports import Batch, Repository, World
from task.landing.states import without_rollbacks
from task.landing.waiting_builds import (
    Decided,
    overtaken,
    places_of,
    settled_list,
    subscription_of,
    withdrawn,
)
from task.landing.waiting_list import (
    DeclinedBuild,
    HeadCommit,
    KnownRequest,
    ListedBuild,
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
    Hold,
    Meant,
    Memory,
    Place,
    Problem,
    Proposed,
    Snapshot,
    State,
    Subscription,
    Verdict,
    Wishes,
    Written,
)
from task.policy.builds import alike, commits, hold_text, merged, why_older
from task.policy.strategies import rules_of
from task.repository_config.config import PATH, agreed, also_limited, governed, keys_named
from task.repository_config.reading import config_in, of_config
from task.templates import branch_name
from task.templates.change import Change
from task.timestamps import epoch_seconds
from task.urls import normal_url

MOST_CLOSED = 5  # unrelated head branches that one run closes
MOST_PLACES = 100  # builds whose files are read only because of a list
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def name_heads(moves: Sequence[Move], *, by_hand: bool = False) -> list[Move]:
    """Add the head branch to each move: its own, or that of its group's request.

    The `git-branch` annotation may build the name from the Application's updates. In that case,
    only updates and a person's requests (`by_hand`) get a name.
    """
    changes: dict[str, list[Change]] = {}
    for move in moves:
        if move.changes:
            of_app = changes.setdefault(move.subscription.application.key, [])
            of_app += [change] if (change := move.change) not in of_app else []
    with_heads = []
    for move in moves:
        sub = move.subscription
        base = move.decision.branch
        of_app = changes.get(sub.application.key, [])
        anew = (
            by_hand or of_app or move.decision.verdict == "defer" or "{{" not in sub.head_template
        )
        if not (sub.head_template or sub.pull_request) or not anew or not base:
            with_heads.append(move)
            continue
        try:
            head = _named(sub, base, of_app) if sub.head_template else request_head(sub, base)
            with_heads.append(replace(move, decision=replace(move.decision, head=head)))
        except Malformed as error:
            wrong = Verdict(
                "error",
                "annotation",
                f"git-branch: {error.message}",
                error.hint,
                Exit.CONFIGURATION,
            )
            with_heads.append(move.without_effect(wrong))
    return with_heads


def _named(sub: Subscription, base: str, changes: Sequence[Change]) -> str:
    """Return the branch that `git-branch` specifies. Raises `Malformed`."""
    app = branch_name.AppFields(
        sub.application.name, sub.application.namespace, sub.repo, base, sub.path
    )
    head = branch_name.branch_name(sub.head_template, changes, app)
    if sub.pull_request and head == base:
        raise Malformed(
            f"a pull request cannot merge {head} into itself",
            "use another branch after the colon, or omit it",
        )
    return head


def request_head(sub: Subscription, base: str) -> str:
    """Return the request branch for the subscription's group, which is its image unless the config
    says otherwise.

    The name is flat, because Git rejects a branch `a/b` next to `a`.
    """
    repo = normal_url(sub.repo)
    app = sub.application
    group = sub.wishes.group or "image"
    # An Application has one request, no matter which of its images were built. Two Argo CD
    # instances may have Applications with the same name.
    names = {"repository": repo, "project": app.project, "application": f"{app.key} {sub.home}"}
    full = names.get(group, sub.entry.image.identity)
    short = app.name if group == "application" else full.rpartition("/")[2]
    name = NOT_IN_A_NAME.sub("-", short).strip("-")[:60].strip("-")
    prefix = sub.wishes.branch_prefix or PREFIX
    return f"{prefix}/{name or group}-{short_hash(repo, base, group, full)}"


@dataclass(frozen=True)
class Request:
    """The state of a head branch's request before the run changes anything."""

    forge: Host
    newest: Proposed | None = None
    error: TaskError | None = None  # set if the Git host did not respond


def requests_of(
    decided: Sequence[Decided], base: Snapshot, job: Job, world: World
) -> tuple[dict[str, Request], list[Move]]:
    """Return the requests for these moves, by head branch, and the moves. A move that cannot have a
    request becomes an error.

    `plan` does not query a forge. It only checks whether the repository's host is known.
    """
    requests: dict[str, Request] = {}
    broken: dict[str, TaskError] = {}
    moves = [move for _, move in decided]
    repo = moves[0].subscription.repo if moves else ""
    for head in _proposing_heads(decided, base, job.intent):
        try:
            if job.dry:
                world.check_forge(repo)
                continue
            forge = world.forge(repo)
        except TaskError as error:
            broken[head] = error
            continue
        try:
            requests[head] = Request(forge, _newest_request(forge, base, head))
        except TaskError as error:
            # The forge is down. The branch is still pushed, so no change is lost, and the next run
            # opens the request.
            requests[head] = Request(forge, error=error)
    return requests, [
        (
            move.failed(broken[move.decision.head])
            if move.changes and move.decision.head in broken
            else move
        )
        for move in moves
    ]


def _proposing_heads(
    decided: Sequence[Decided], base: Snapshot, intent: Intent | None
) -> dict[str, None]:
    """Return the names of the head branches that have or may get a request."""
    proposing = [move for _, move in decided if move.subscription.pull_request]
    heads = {
        move.decision.head: None
        for move in proposing
        if move.decision.head not in ("", base.branch)
    }
    touched = touched_heads(decided, base, intent)
    keys = {key_of_entry(move.subscription) for move in proposing}
    for known in lists_in(base.memory_files):
        if known.head in touched and (
            known.request or any(build.key in keys for build in known.builds)
        ):
            heads.setdefault(known.head)
    return heads


def _newest_request(forge: Host, base: Snapshot, head: str) -> Proposed | None:
    """Return the newest request of a head branch.

    When a base is renamed, Git hosts retarget open requests. Closed and merged requests keep the
    old name.
    """
    newest = forge.find(base.branch, head)
    if newest is None and base.renamed_from:
        newest = forge.find(base.renamed_from, head)
        return newest if newest and newest.state != "open" else None
    return newest


@dataclass(frozen=True)
class HeadBranch:
    """A head branch that the run affects, before the run changes anything."""

    known: WaitingList  # the list on the memory branch
    listed: WaitingList  # the part of the list that is still waiting
    branch: Head | None = None
    files: Files = field(default_factory=dict)  # the files of someone else's branch
    request: Request | None = None
    ours: bool = True  # whether the run may create or replace it
    unnamed: bool = False  # it matches the list, but no Application that was read uses its name
    merged: bool = False  # whether its builds are now on the base
    # the head branch that now has its builds, because the base or the group was renamed
    instead: str = ""

    @property
    def newest_request(self) -> Proposed | None:
        """Its newest request."""
        return self.request.newest if self.request else None

    @property
    def merged_builds(self) -> tuple[ListedBuild, ...]:
        """The builds that this run has found merged."""
        return self.known.builds if self.merged else ()

    @property
    def tip(self) -> str:
        """Its commit, or "" if the branch does not exist."""
        return self.branch.tip if self.branch else ""

    @property
    def as_listed(self) -> bool:
        """Whether the branch is at the commit in the list."""
        made = self.listed.commit
        at_tip = HeadCommit(self.branch.tree, self.branch.parent) if self.branch else None
        return made is not None and made == at_tip


def touched_heads(
    decided: Sequence[Decided], base: Snapshot, intent: Intent | None
) -> dict[str, None]:
    """Return the names of the head branches that these moves affect.

    A hold or a rollback affects all head branches that list the image. A rollback of a promotion's
    source affects those that list the promotion.
    """
    names = {
        move.decision.head: None
        for _, move in decided
        if move.decision.head not in ("", base.branch) and move.decision.verdict != "error"
    }
    by_hand = intent is not None and intent.verb != "release"
    keys = {key_of_entry(ask.subscription) for ask, _ in decided} if by_hand else set()
    for known in lists_in(base.memory_files):
        if any(build.key in keys or withdrawn(build, decided) for build in known.builds):
            names.setdefault(known.head)
    return names


def lists_in(memory_files: Files) -> list[WaitingList]:
    """Return the lists on the memory branch.

    Unreadable lists are left out. Code that needs an unreadable list reports the error.
    """
    lists = []
    for path, file in sorted(memory_files.items()):
        if is_list_path(path):
            with suppress(TaskError):
                listed = read_list(file.text)
                lists += [listed] if list_path(listed.head) == path else []
    return lists


def memory_branch_warnings(base: Snapshot) -> list[Problem]:
    """Return warnings: one for each memory branch of a deleted base that may be this base under its
    old name, and one if no known key has signed this base's memory branch.
    """
    hint = (
        "delete the memory branch; if its base was renamed, set the holds again first. The memory"
        " is kept only if the default branch is renamed"
    )
    signed_by = (
        "find out who can push to that branch; to accept keys other than the run's own, set"
        " memorySigners in"
        " the config"
    )
    problems: list[Problem] = []
    if base.unsigned:
        unsigned = f"{memory_branch(base.repo, base.branch, base.prefix)}: {base.unsigned}"
        problems.append(Problem(Trouble.warning("signature", unsigned, signed_by)))
    if base.inherited and not base.renamed_from:
        old = base.inherited[0]
        new = memory_branch(base.repo, base.branch, base.prefix)
        moves = f"the memory moves from {old} to {new} because of branchPrefix in the config"
        problems.append(Problem(Trouble.warning("target", moves)))
    return problems + [
        Problem(
            Trouble.warning(
                "target",
                f"{name} has holds or waiting builds for {gone}, which no longer exists: they do"
                f" not apply to {base.branch}",
                hint,
            )
        )
        for name, gone in base.orphaned
    ]


def read_heads(
    batch: Batch, base: Snapshot, moves: Sequence[Move], job: Job, world: World
) -> tuple[dict[str, HeadBranch], list[Move]]:
    """Read the head branches that these moves affect, with their lists and requests.

    `moves` contains one move for each of `batch.asks`, in the same order. A move becomes an error
    if no request can be opened for it, or if its list cannot be read.
    """
    requests, moves = requests_of(list(zip(batch.asks, moves, strict=True)), base, job, world)
    decided = list(zip(batch.asks, moves, strict=True))
    heads: dict[str, HeadBranch] = {}
    broken: dict[str, TaskError] = {}
    for name in touched_heads(decided, base, job.intent):
        try:
            known = list_of(base.memory_files, name)
        except TaskError as error:
            broken[name] = error
            continue
        head = _read_head(name, known, batch, base, requests.get(name))
        if not head.ours:
            head = _foreign_branch_with_files(head, batch, moves)
        heads[name] = head
    heads |= _still_open(heads, batch, base, job, world)
    heads |= _renamed(heads, batch, base, job, world)
    heads |= _overtaken(heads, batch, base, job, world)
    return heads, [
        move.failed(broken[move.decision.head]) if move.decision.head in broken else move
        for move in moves
    ]


def _read_head(
    name: str, known: WaitingList, batch: Batch, base: Snapshot, request: Request | None
) -> HeadBranch:
    """Return a head branch, with the builds that are still waiting there.

    It is ours if its commit has the tree and the parent in the list: signing a commit, or rewording
    its message, does not make it somebody else's.
    """
    branch = batch.repository.head(name)
    fresh = branch is not None and branch.tip == base.tip and has_our_prefix(name, base.prefix)
    made = branch is not None and known.has_made(branch.tree, branch.parent)
    named = not made or _may_be_ours(known, batch, base)
    ours = branch is None or fresh or (made and named)
    newest = request.newest if request else None
    is_merged = _is_merged(known, branch, newest, batch.repository, base)
    listed = settled_list(
        known,
        absent=branch is None,
        merged=is_merged,
        request=KnownRequest(newest.number, newest.url, newest.state) if newest else None,
    )
    if branch and listed.has_made(branch.tree, branch.parent) and not listed.arrived:
        at_tip = HeadCommit(branch.tree, branch.parent)
        if at_tip == listed.commit:
            listed = replace(listed, arrived=True, replaces=None)
    return HeadBranch(
        known, listed, branch, request=request, ours=ours, unnamed=not named, merged=is_merged
    )


def _may_be_ours(known: WaitingList, batch: Batch, base: Snapshot) -> bool:
    """Return whether a list's branch can be ours: it has our prefix, or an Application uses its name.

    Anyone who can push to the memory branch could write any branch's tree into a list, to have that
    branch replaced or deleted.
    """
    name = known.head
    if name == base.branch:
        return False
    if has_our_prefix(name, base.prefix):
        return True
    subs = [sub for ask in batch.asks for sub in (ask.subscription, *ask.siblings)]
    for app in {build.application for build in known.builds}:
        subs += batch.look(app, ask=False)
    return any(_may_be_named(name, sub.head_template) for sub in subs)


def _may_be_named(name: str, template: str) -> bool:
    """Return whether this template of `git-branch` can render this name."""
    first, *between = re.split(r"\{\{.*?\}\}", template)
    if not between:
        return bool(template) and name == template
    if not name.startswith(first):
        return False
    *middle, last = between
    at = len(first)
    for part in middle:  # not a regex: many actions in an annotation would make it very slow
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return name.endswith(last) and at + len(last) <= len(name)


def unnamed_heads(heads: Mapping[str, HeadBranch]) -> list[Problem]:
    """Return a warning for each list whose branch may be someone else's."""
    hint = "delete the branch if it is an old head branch; otherwise, find out who wrote the list"
    problems = []
    for name, head in heads.items():
        if head.unnamed:
            message = (
                f"{name} was not changed: no Application that this run read has it in git-branch"
            )
            problems.append(Problem(Trouble.warning("target", message, hint)))
    return problems


def _still_open(
    heads: Mapping[str, HeadBranch], batch: Batch, base: Snapshot, job: Job, world: World
) -> dict[str, HeadBranch]:
    """Return head branches with no waiting builds, but whose request is still open because an
    earlier run failed to close it or was killed.
    """
    unclosed: dict[str, HeadBranch] = {}
    for known in lists_in(base.memory_files):
        closes = known.closing and not known.proposes_anything and known.head not in heads
        if closes and _may_be_ours(known, batch, base) and len(unclosed) < MOST_CLOSED:
            with suppress(TaskError):  # without a token for the Git host, leave this to another run
                unclosed[known.head] = _head_with_request(known, batch, base, job, world)
    return unclosed


def _renamed(
    heads: Mapping[str, HeadBranch], batch: Batch, base: Snapshot, job: Job, world: World
) -> dict[str, HeadBranch]:
    """Return the head branches that inherit builds from renamed branches, together with the old
    branches.

    Names change if the base was renamed, or if the config groups images differently.
    """
    subs = {
        key_of_entry(sub): request_head(sub, base.branch)
        for ask in batch.asks
        for sub in (ask.subscription, *ask.siblings)
        if ask.subscription.pull_request and not sub.head_template
    }
    inheriting: dict[str, HeadBranch] = {}
    for known in lists_in(base.memory_files):
        new = {subs.get(build.key, "") for build in known.builds}
        name = new.pop() if len(new) == 1 else ""
        heir = inheriting.get(name) or heads.get(name)
        if heir is None or known.head in heads or not has_our_prefix(known.head, base.prefix):
            continue
        old = _head_with_request(known, batch, base, job, world)
        if not old.ours or not heir.ours:
            continue
        inheriting[name] = replace(heir, listed=_with_list_of(heir.listed, old.listed))
        inheriting[known.head] = replace(old, instead=name)
    return inheriting


def _with_list_of(heir: WaitingList, old: WaitingList) -> WaitingList:
    """Add the entries of an old list to a list. If both have a build, the list's own build wins."""
    own = {build.key for build in heir.builds}
    builds = (*heir.builds, *(build for build in old.builds if build.key not in own))
    releases = tuple(dict.fromkeys((*heir.releases, *old.releases)))
    return replace(heir, builds=builds, releases=releases)


def _overtaken(
    heads: Mapping[str, HeadBranch], batch: Batch, base: Snapshot, job: Job, world: World
) -> dict[str, HeadBranch]:
    """Return head branches without moves if the base has one of their builds, or a newer build."""
    asked = {
        key_of_entry(sub): sub for ask in batch.asks for sub in (ask.subscription, *ask.siblings)
    }

    def subscription(build: ListedBuild) -> Subscription | None:
        others = batch.look(build.application, ask=False)
        looked_up = {key_of_entry(sub): sub for sub in others}
        return asked.get(build.key) or looked_up.get(build.key)

    outdated: dict[str, HeadBranch] = {}
    for known in lists_in(base.memory_files):
        if known.head in heads or len(outdated) == MOST_CLOSED:
            continue
        subs = [subscription(build) for build in known.builds]
        if any(map(partial(overtaken, base), known.builds, subs)):
            proposed = known.request or has_our_prefix(known.head, base.prefix)
            proposed = proposed or any(sub and sub.pull_request for sub in subs)
            with suppress(TaskError):  # without a token for the Git host, leave this to another run
                outdated[known.head] = (
                    _head_with_request(known, batch, base, job, world)
                    if proposed
                    else _read_head(known.head, known, batch, base, None)
                )
    return outdated


def places_of_lists(memory_files: Files, repo: str, branch: str) -> list[Place]:
    """Return the places to read on the base to find out whether it has the waiting builds."""
    builds = [build for known in lists_in(memory_files) for build in known.builds]
    base = Snapshot(repo, branch, "", {})
    wanted: dict[Place, None] = {}
    for build in builds[:MOST_PLACES]:
        with suppress(TaskError):
            wanted |= dict.fromkeys(places_of(subscription_of(build, base)))
    return list(wanted)


def _head_with_request(
    known: WaitingList, batch: Batch, base: Snapshot, job: Job, world: World
) -> HeadBranch:
    """Return a head branch without moves, with its request."""
    request = None
    if not job.dry:
        forge = world.forge(batch.asks[0].subscription.repo)
        try:
            request = Request(forge, _newest_request(forge, base, known.head))
        except TaskError as error:
            request = Request(forge, error=error)
    return _read_head(known.head, known, batch, base, request)


def _is_merged(
    known: WaitingList,
    branch: Head | None,
    newest: Proposed | None,
    repository: Repository,
    base: Snapshot,
) -> bool:
    """Return whether the listed builds were merged, even if the base has changed since."""
    if not known.proposes_anything or (branch and branch.parent == base.tip):
        return False
    if (
        newest
        and newest.state == "merged"
        and (known.request is None or known.request.state == "open")
    ):
        # Commits pushed after the merge are not part of it.
        return branch is None or newest.head_commit in ("", branch.tip)
    if newest is not None or branch is None:
        return False
    return branch.tip == base.tip or repository.merged(base.branch, branch.tip)


def _foreign_branch_with_files(head: HeadBranch, batch: Batch, moves: Sequence[Move]) -> HeadBranch:
    """Return someone else's branch with its files, including the keys that its config uses."""
    if head.branch is None:
        return head
    name = head.branch.branch
    wanted = dict.fromkeys(CONFIG)
    for ask, move in zip(batch.asks, moves, strict=True):
        if move.decision.head == name:
            wanted |= dict.fromkeys(places(ask))
    repo, base = moves[0].subscription.repo, moves[0].decision.branch
    for build in head.listed.builds:
        with suppress(TaskError):
            wanted |= dict.fromkeys(places_of(subscription_of(build, Snapshot(repo, base, "", {}))))
    at = Snapshot(moves[0].subscription.repo, name, head.branch.tip, {})
    at = with_more(at, wanted, batch.repository)
    with suppress(TargetError):  # reported where the config is applied
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
    """Decide asks on someone else's branch: by the values there, and by the holds and configs of
    all branches.
    """
    view = _view_of_foreign_branch(head, base, [ask for ask, _ in decided])
    moves: dict[Identity, Move] = {}
    governed_asks: list[Decided] = []
    for ask, move in decided:
        if move.decision.verdict == "error":
            continue
        try:
            governed_asks.append((_also_governed(ask, head, base, view, terms), move))
        except TaskError as error:
            moves[ask.key] = _on_head(move.failed(error), move, base, view)
    facts = _with_facts_of(view, governed_asks, facts, gather)
    for ask, move in governed_asks:
        moves[ask.key] = _on_head(decide_one(view, ask, terms, facts), move, base, view)
    return moves


def _on_head(again: Move, before: Move, base: Snapshot, view: Snapshot) -> Move:
    """Return the move with its commit's branches, and with the base's current version."""
    current = before.decision.current
    judged = again.decision.judged
    if judged.verdict == "unchanged":
        judged = replace(judged, because=f"{view.branch} already has it")
    at = replace(
        again.decision, branch=base.branch, head=view.branch, current=current, judged=judged
    )
    return replace(again, decision=at)


def decided_after(
    base: Snapshot, decided: Sequence[Decided], terms: Terms, facts: Facts, gather: Gather
) -> dict[Identity, Move]:
    """Decide asks on the base as it will be after the releases on their head branch."""
    facts = _with_facts_of(base, decided, facts, gather)
    moves = {}
    for ask, move in decided:
        if move.decision.verdict != "error":
            again = decide_one(base, ask, terms, facts)
            at = replace(again.decision, head=move.decision.head)
            moves[ask.key] = replace(again, decision=at)
    return moves


def _with_facts_of(
    view: Snapshot, decided: Sequence[Decided], facts: Facts, gather: Gather
) -> Facts:
    more = gather(view, [ask for ask, _ in decided])
    return replace(
        facts,
        ancestry={**more.ancestry, **facts.ancestry},
        answers={**more.answers, **facts.answers},
    )


def settled_rollbacks(
    heads: Iterable[HeadBranch], base: Snapshot, decided: Sequence[Decided]
) -> tuple[Files, list[Problem]]:
    """Remove the holds of rollbacks that a person has declined or merged from the memory. Also
    return a warning for each declined rollback.

    After a merge, the hold is on the base, where people can end it.
    """
    settled: dict[str, set[str]] = {}
    problems: dict[Problem, None] = {}
    subs = {
        key_of_entry(sub): sub for ask, _ in decided for sub in (ask.subscription, *ask.siblings)
    }
    waited = {
        build.key: (head, build) for head in heads for build in head.known.builds if build.rollback
    }
    for entry, sub in subs.items():
        head, build = waited.get(entry, (None, None))
        path = state_path(sub)
        key = key_of(sub)
        for file, state in own_states(base.memory_files, path).items():
            memory = state.images.get(key, Memory())
            hold = memory.hold or state.hold
            if not (hold and memory.rollback):
                continue
            proposed = _proposes(build, memory.rollback)
            if head and build and proposed and _is_declined(head, build):
                settled.setdefault(path, set()).add(key)
                problems[_declined_rollback(head, sub, hold)] = None
            elif _is_on_base(base, sub, file, memory.rollback, head if proposed else None):
                settled.setdefault(path, set()).add(key)
    return without_rollbacks(base.memory_files, settled), list(problems)


def _proposes(build: ListedBuild | None, rollback: Meant) -> bool:
    """Return whether the waiting build is this rollback."""
    meant = build.rollback if build else None
    return meant is not None and alike(rollback, meant)


def _declined_rollback(head: HeadBranch, sub: Subscription, hold: Hold) -> Problem:
    url = head.newest_request.url if head.newest_request else ""
    why = f"{key_of(sub)}: its rollback was declined ({url}); no longer {hold_text(hold)}"
    return Problem(Trouble.warning("held", why), application=sub.application.key)


def _is_declined(head: HeadBranch, build: ListedBuild) -> bool:
    return build.declined_key in {declined.key for declined in head.listed.declined}


def _is_on_base(
    base: Snapshot, sub: Subscription, file: str, rollback: Meant, head: HeadBranch | None
) -> bool:
    """Return whether a rollback was merged: the head branch was merged, or the base has the version,
    and it either has a record of the rollback or the head branch is gone.
    """
    if head is not None and head.merged:
        return True
    with suppress(TaskError):
        if reading(base, sub, Terms()).version != rollback.version:
            return False
        state = own_states(base.files, state_path(sub)).get(file, State())
        remembered = state.images.get(key_of(sub), Memory()).rollback
        return remembered == rollback or (head is not None and head.branch is None)
    return False


def declined_in(memory_files: Files, heads: Mapping[str, HeadBranch]) -> list[DeclinedBuild]:
    """Return all builds that people have declined, including those on head branches with an old
    name: the base or the group may have been renamed.
    """
    lists = {known.head: known for known in lists_in(memory_files)}
    lists |= {name: head.listed for name, head in heads.items()}
    return [declined for known in lists.values() for declined in known.declined]


def unless_declined(move: Move, declined: Iterable[DeclinedBuild], world: World) -> Move:
    """Return a move to a head branch, or a refusal if a person has closed the request for this
    build or a newer build.
    """
    sub = move.subscription
    key = (sub.application.key, sub.entry.alias, sub.entry.image.identity)
    for build in declined:
        if build.key == key and move.updates:
            move = _unless_older(move, build, world)
    return move


def _unless_older(move: Move, declined: DeclinedBuild, world: World) -> Move:
    sub = move.subscription
    candidate = move.decision.candidate
    closed = declined.written
    event = Written(candidate.tag, candidate.digest, move.build)
    if event.version == closed.version:
        because = f"{declined.url}: a person closed the request for this build"
        because += "; a newer build will open another request"
        return move.without_effect(Verdict("refuse", "superseded", because))
    by_build = not rules_of(sub.policy).ordered or event.tag == closed.tag
    pair = commits(event.build, closed.build) if by_build else None
    why = why_older(event, closed, sub.policy, {pair: world.ancestry(*pair)} if pair else {})
    because = f"{declined.url}: a person closed the request for {closed.version}: {why}"
    return move.without_effect(Verdict("refuse", "superseded", because)) if why else move


def _also_governed(ask: Ask, head: HeadBranch, base: Snapshot, view: Snapshot, terms: Terms) -> Ask:
    """Apply the configs of both branches to an ask. For each file that changes on the head branch,
    the stricter setting wins.

    Raises `TargetError` if the head branch's config is invalid or requires a request.
    """
    before = ask.subscription
    name = head.known.head

    def changed(sub: Subscription) -> Collection[str]:
        return changed_files(view, sub, terms)

    (by_head,) = governed([before], config_in(head.files), terms.now, changed)
    if by_head.pull_request and not before.pull_request:
        message = f"the config on {name} requires a pull request"
        hint = f"use {name} before the colon in git-branch, as the pull request's base"
        raise TargetError(message, hint=hint, subject=PATH)
    # if the base requires more proofs for a file that only this branch has, the edit is refused
    governed_by_base = governed([before], config_in(base.files), terms.now, changed)
    (by_base,) = also_limited(governed_by_base, config_in(base.default), changed)
    three = (before, by_base, by_head)
    with of_config():
        demands = (*before.demands, *with_all_keys(by_head, head.files).demands)
    freezes = [sub.freeze for sub in three if sub.freeze]
    policy = replace(
        by_head.policy,
        pin_digest=any(sub.policy.pin_digest for sub in three),
        minimum_age=max(sub.policy.minimum_age for sub in three),
    )
    wishes = before.wishes
    if by_head.wishes != Wishes():
        wishes = agreed([wishes, by_head.wishes], wishes)
    sub = replace(
        before,
        wishes=wishes,
        policy=policy,
        freeze=max(freezes, key=lambda freeze: epoch_seconds(freeze.until), default=None),
        writes=tuple(dict.fromkeys(one for sub in three for one in sub.writes)),
        demands=tuple(dict.fromkeys(demands)),
    )
    return replace(ask, subscription=sub)


def _view_of_foreign_branch(head: HeadBranch, base: Snapshot, asks: Collection[Ask]) -> Snapshot:
    """Return the files of someone else's branch, with the states of the base and of its memory
    branch.
    """
    memory_files = dict(base.memory_files)
    for path in {state_path(ask.subscription) for ask in asks}:
        own = own_states(base.files, path)
        more = own_states(base.memory_files, path)
        both = {
            file: merged(own.get(file, State()), more.get(file, State())) for file in (*own, *more)
        }
        memory_files[path] = File(write_state("", both))
    name = head.known.head
    return replace(base, branch=name, tip=head.tip, files=head.files, memory_files=memory_files)
