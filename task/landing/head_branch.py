"""Pure code for head branches: their names, and the updates that wait on them.

A newer event replaces the update that waits there, an older one changes nothing, and nothing else is lost. A head
branch is always one commit on top of the base. Updates of images that are not in the event are decided and written
again, and the memory on the head branch counts as if it were merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from task.deciding.ask import Ask
from task.deciding.decide import decide_one, is_state_path, reading, state_of, state_path
from task.deciding.job import Terms
from task.deciding.move import Move
from task.deciding.weigh import Facts, key_of
from task.errors import Exit, Malformed, TaskError
from task.forges.proposal import head_branch
from task.model import Build, Grouping, Memory, Reading, Snapshot, Subscription, Verdict
from task.policy.order import version_of
from task.policy.remember import hold_text, holding
from task.policy.strategies import rules_of
from task.templates import branch_name
from task.templates.change import Change
from task.urls import normal_url

Group = tuple[Grouping, str]  # what shares a pull request: the kind of group, and which one it is
Decided = tuple[Ask, Move]  # an ask, and the move that was decided for it


def with_state(base: Snapshot, head: Snapshot, subs: Iterable[Subscription]) -> Snapshot:
    """Return the base's files, with what the head branch remembers of these Applications."""
    files = dict(base.files)
    for path in dict.fromkeys(map(state_path, subs)):
        files.pop(path, None)
        if path in head.files:
            files[path] = head.files[path]
    return replace(base, files=files)


def waiting(base: Snapshot, head: Snapshot, sub: Subscription, terms: Terms) -> Move | None:
    """Return the update of an image that waits on the head branch, or None if the base would take none from it."""
    try:
        ours, theirs = reading(base, sub, terms), reading(head, sub, terms)
    except TaskError:
        return None
    if not version_of(theirs) or version_of(ours) == version_of(theirs):
        return None
    image = replace(sub.entry.image, tag=theirs.tag, digest=theirs.digest)
    sub = replace(sub, freeze=None)  # what waits was proposed before the freeze
    # The order of builds was checked when the head branch was written, so the memory is left out here.
    files = {path: one for path, one in base.files.items() if not is_state_path(path)}
    ask, anew = Ask(sub, (image,)), replace(terms, build=Build(), require_live=False)
    found = decide_one(replace(base, files=files), ask, anew)
    why = _rolled_back(ours, theirs, head, sub, terms) if found.decision.verdict in ("refuse", "update") else ""
    if why:
        decision = replace(found.decision, candidate=image, judged=Verdict("update", "admitted", why))
        return replace(found, decision=decision, rolled_back=True)
    return found if found.updates else None


def _rolled_back(ours: Reading, theirs: Reading, head: Snapshot, sub: Subscription, terms: Terms) -> str:
    """Return the sentence of a rollback that waits on a head branch, with version and reason; "" if none waits.

    The base has the reading `ours`, and the head branch has `theirs`.
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


def decide_on_head(base: Snapshot, head: Snapshot, ask: Ask, terms: Terms, facts: Facts) -> Move:
    """Decide an ask once more, now that its head branch has been read."""
    sub = ask.subscription
    there = waiting(base, head, sub, terms)
    # A person means what the base says, not what waits. An undo, however, never replaces a newer build.
    by_hand = ask.intent is not None and not ask.intent.undone
    waits = there.decision.candidate if there and not by_hand else None
    on_head = Reading(tag=waits.tag, digest=waits.digest) if waits else None
    move = decide_one(with_state(base, head, [sub]), ask, terms, facts, on_head)
    if waits and move.updates and move.decision.candidate.tag != waits.tag:
        older = rules_of(sub.policy).older(move.decision.candidate.tag, waits.tag)
        if older:
            because = f"{waits.version} waits on {head.branch} already: {older}"
            return move.without_effect(Verdict("refuse", "superseded", because))
    return move


def kept_updates(base: Snapshot, head: Snapshot, decided: Sequence[Decided], terms: Terms) -> list[Move]:
    """Return the other updates that wait on the head branch. They are written again, and the report leaves them out."""
    written = {move.subscription.identity for _, move in decided if move.updates}
    siblings = {sub.identity: sub for ask, _ in decided for sub in ask.siblings}
    updates = (waiting(base, head, sub, terms) for key, sub in siblings.items() if key not in written)
    return [
        replace(one, decision=replace(one.decision, head=head.branch), kept=True, remember=None)
        for one in updates
        if one is not None
    ]


def name_heads(moves: Sequence[Move], requests: Mapping[Group, str], *, everywhere: bool = False) -> list[Move]:
    """Return the moves, each with the head branch that it goes to.

    The annotation `git-branch` names the head branch, from the Application's updates. Without it, the name is that of
    the group's pull request in `requests` (`heads_of_requests`). With `everywhere`, moves without a change get a head
    branch as well.
    """
    changes: dict[str, list[Change]] = {}
    for one in moves:
        if one.changes:
            of_app = changes.setdefault(one.subscription.application.key, [])
            of_app += [change] if (change := one.change) not in of_app else []
    found = []
    for one in moves:
        sub, base = one.subscription, one.decision.branch
        if not (sub.head_template or sub.pull_request) or not (
            everywhere or one.changes or one.decision.verdict == "defer"
        ):
            found.append(one)
            continue
        try:
            of_app = changes.get(sub.application.key, [])
            head = _named(sub, base, of_app) if sub.head_template else requests[group_of(sub)]
        except Malformed as error:
            because = f"git-branch: {error.message}"
            found.append(
                one.without_effect(Verdict("error", "annotation", because, error.hint, int(Exit.CONFIGURATION)))
            )
            continue
        found.append(replace(one, decision=replace(one.decision, head=head)))
    return found


def _named(sub: Subscription, base: str, changes: Sequence[Change]) -> str:
    """Return the branch that `git-branch` names. Raises `Malformed`."""
    app = branch_name.AppFields(sub.application.name, sub.application.namespace, sub.repo, base, sub.path)
    head = branch_name.branch_name(sub.head_template, changes, app)
    if sub.pull_request and head == base:
        raise Malformed(f"no pull request can merge {head} into itself", "name another branch after the colon, or none")
    return head


def group_of(sub: Subscription) -> Group:
    """Return the group of the subscription. The updates of one group share a pull request."""
    group = sub.wishes.group or "repository"
    if group == "project":
        return group, sub.application.project
    if group == "application":
        return group, f"{sub.application.key} {sub.home}"
    return group, sub.entry.image.identity if group == "image" else ""


def heads_of_requests(base: str, subs: Iterable[Subscription]) -> dict[Group, str]:
    """Return the branch of each group's pull request to this base. The same Applications always give the same name."""
    groups: dict[Group, list[Subscription]] = {}
    for sub in subs:
        if sub.pull_request and not sub.head_template:
            groups.setdefault(group_of(sub), []).append(sub)
    found = {}
    for (group, which), of in groups.items():
        # An Application has one request, whichever of its images were built.
        paths = [one.home if group == "application" else one.path for one in of]
        about = f"{group} {which}" if group in ("project", "image") else ""
        keys = [one.application.key for one in of]
        found[group, which] = head_branch(normal_url(of[0].repo), base, keys, paths, about)
    return found
