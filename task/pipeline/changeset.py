"""Pure: decisions → what to commit, one changeset for each head branch. Joins rules, edits and words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from task.annotations.write_back import normal_url
from task.editors import EDITORS, strays
from task.editors.state_file import read_state, write_state
from task.errors import Exit, Malformed, TaskError
from task.forges.proposal import head_branch
from task.model import (
    Changeset,
    Decision,
    Destination,
    File,
    Files,
    Memory,
    Person,
    Snapshot,
    State,
    Subscription,
    Verdict,
)
from task.pipeline.decide import file_of, state_path, states_of
from task.pipeline.head_branch import Heads, with_state
from task.pipeline.target import target_of
from task.pipeline.weigh import Terms, failed, key_of
from task.policy.remember import said
from task.templates import branch_name
from task.templates.change import Change
from task.templates.commit_message import AppChanges, commit_message
from task.templates.hold_message import hold_message, subject

GONE = File("", "")  # a file that the commit deletes
NO_HEADS: Heads = {}


@dataclass(frozen=True)
class Wording:
    """What the command line says about commits."""

    author: Person
    template: str | None = None
    trailers: tuple[tuple[str, str], ...] = ()
    command: str = "run"  # what is done: "hold", "release" and "rollback" say so in the subject


@dataclass(frozen=True)
class Draft:
    """One changeset, with the decisions it carries out."""

    changeset: Changeset
    decisions: tuple[Decision, ...]
    warning: str = ""
    apps: tuple[AppChanges, ...] = ()  # all that the commit changes, what waited on the head branch included
    held: tuple[str, ...] = ()  # what it holds, releases or defers, as texts that tell it from anything else
    back: tuple[AppChanges, ...] = ()  # the changes that go back to an older version, as a person asked for
    command: str = "run"  # what is carried out: "rollback" and "hold" also where these waited on the head branch
    told: tuple[str, ...] = ()  # a sentence for each image, where a person's word is carried out; reasons among them


def drafts(
    snapshot: Snapshot, decisions: Sequence[Decision], terms: Terms, wording: Wording, ahead: Heads = NO_HEADS
) -> tuple[tuple[Draft, ...], tuple[Decision, ...]]:
    """The changesets for all decisions that change something, one per head branch; and those settled without one.

    A decision whose edit changes nothing comes back as `unchanged`, one whose edit fails as `error`.
    """
    heads: dict[str, list[Decision]] = {}
    settled: list[Decision] = []
    for decision in with_heads(decisions):
        if changes(decision):
            heads.setdefault(decision.head, []).append(decision)
        else:
            settled.append(decision)
    made = []
    for head, members in heads.items():
        if all(one.carried for one in members):  # nothing is new: what waits there stays as it is
            continue
        files, done, rest = _edit(snapshot.files, members, terms)
        files |= _remembered(snapshot, ahead.get(head), members, done)
        settled += rest
        if files:
            there = ahead[head].tip if head in ahead else "" if head != snapshot.branch else None
            made.append(_draft(snapshot, (head, there), files, done, wording))
        else:
            settled += done
    return tuple(made), tuple(one for one in settled if not one.carried)


def changes(decision: Decision) -> bool:
    """Whether a commit has to say something of it: the image, or what is remembered of it."""
    return decision.verdict.verdict == "update" or decision.memory is not None or bool(decision.hold)


def with_heads(decisions: Sequence[Decision], request: str = "", *, everywhere: bool = False) -> list[Decision]:
    """The head branch of each Application's updates, from its template; `everywhere`: of what changes nothing, too.

    `request` is the branch of pull requests whose Applications name none (`head_of_requests`).
    """
    told: dict[str, list[Change]] = {}
    for one in decisions:
        if changes(one):
            of_app = told.setdefault(one.subscription.application.key, [])
            of_app += [change] if (change := change_of(one)) not in of_app else []
    found = []
    for one in decisions:
        sub = one.subscription
        if one.head:
            found.append(one)
            continue
        if not (sub.head or sub.pull_request) or not (everywhere or changes(one) or one.verdict.verdict == "defer"):
            found.append(replace(one, head=one.branch))
            continue
        if not sub.head:
            head = request or head_of_requests(sub.repo, one.branch, [two.subscription for two in decisions])
            found.append(replace(one, head=head))
            continue
        app = branch_name.AppFacts(sub.application.name, sub.application.namespace, sub.repo, one.branch, sub.path)
        try:
            found.append(replace(one, head=_named(sub, told.get(sub.application.key, []), app)))
        except Malformed as error:
            verdict = Verdict("error", "annotation", f"git-branch: {error.message}")
            wrong = replace(one, verdict=verdict, hint=error.hint, exit=int(Exit.CONFIGURATION))
            found.append(replace(wrong, memory=None, hold=()))
    return found


def _named(sub: Subscription, changed: Sequence[Change], app: branch_name.AppFacts) -> str:
    """The branch that `git-branch` names. Raises `Malformed`."""
    head = branch_name.branch_name(sub.head, changed, app)
    if sub.pull_request and head == app.branch:
        raise Malformed(
            f"no pull request can merge {head} into itself", "name another branch behind the colon, or none"
        )
    return head


def head_of_requests(repo: str, base: str, subs: Iterable[Subscription]) -> str:
    """One branch for all Applications of the event that go into a request to this base: always the same."""
    together = [one for one in subs if one.pull_request and not one.head]
    return head_branch(
        normal_url(repo), base, [one.application.key for one in together], [one.path for one in together]
    )


def change_of(decision: Decision) -> Change:
    """What a decision changes, as templates and messages say it."""
    current, new = decision.current, decision.candidate
    return Change(
        image=decision.subscription.entry.image,
        alias=decision.subscription.entry.alias,
        old_tag=current.tag,
        new_tag=new.tag,
        old_digest=current.digest,
        new_digest=new.digest,
        labels=decision.labels,
        build=decision.build,
    )


def _edit(
    files: Files, members: Sequence[Decision], terms: Terms
) -> tuple[dict[str, File], list[Decision], list[Decision]]:
    """Apply all edits, one after the other: (changed files, done, settled otherwise)."""
    seen: dict[str, File] = dict(files)
    changed: dict[str, File] = {}
    done, rest = [], []
    for one in members:
        if one.verdict.verdict != "update":
            done.append(one)
            continue
        kind = one.kind or "helm-override"
        target = target_of(one.subscription, kind, carry=terms.carry)
        try:
            new, edits = EDITORS[kind].write(seen, target, one.candidate)
        except TaskError as error:
            rest.append(failed(one, error))
            continue
        if not edits and not new and not _already_done(files, changed, one, terms):
            verdict = Verdict("unchanged", "same", f"Git already says {one.candidate.version}")
            rest.append(replace(one, verdict=verdict, memory=None, hold=()))
            continue
        seen.update(new)
        changed.update(new)
        done.append(replace(one, strays=strays(kind, seen, target)))
    return changed, done, rest


def _already_done(files: Files, changed: Files, one: Decision, terms: Terms) -> bool:
    """Whether another decision of the same commit wrote the same, which Git itself does not say yet."""
    if not changed:
        return False
    kind = one.kind or "helm-override"
    target = target_of(one.subscription, kind, carry=terms.carry)
    return bool(EDITORS[kind].write(files, target, one.candidate)[0])


def _remembered(
    base: Snapshot, head: Snapshot | None, members: Sequence[Decision], done: Sequence[Decision]
) -> dict[str, File]:
    """The state files of a commit, against the base; what the head branch remembers already stays remembered."""
    subs = [one.subscription for one in members]
    view = base
    if head:
        view = with_state(base, head, subs)
    found = _remember(view, done)
    for path in map(state_path, subs):
        if path not in found and view.files.get(path) != base.files.get(path):
            found[path] = view.files.get(path, GONE)
    return {path: file for path, file in found.items() if file != base.files.get(path, GONE)}


def _remember(snapshot: Snapshot, done: Sequence[Decision]) -> dict[str, File]:
    """The state files that change: one for each Application of which there is something new to remember."""
    apps: dict[str, list[Decision]] = {}
    for one in done:
        if one.memory is not None or one.hold:
            apps.setdefault(state_path(one.subscription), []).append(one)
    changed: dict[str, File] = {}
    for path, members in apps.items():
        states, old = states_of(snapshot, members[0].subscription), snapshot.files.get(path)
        new = dict(states)
        for one in members:
            file = file_of(snapshot, one.subscription, new)
            new[file] = _state(new.get(file, State()), one)
        if (new := {file: state for file, state in new.items() if state != State()}) != states:
            text = write_state(old.text if old else "", new)
            changed[path] = File(text, old.mode if old else "100644") if text else GONE
    return changed


def _state(state: State, one: Decision) -> State:
    """What is remembered of one Application in one file after a decision."""
    images = dict(state.images)
    if one.memory is not None:
        images[key_of(one.subscription)] = one.memory
    hold = one.hold[0] if one.hold else state.hold
    return State(hold, {key: memory for key, memory in images.items() if memory != Memory()})


def _draft(
    snapshot: Snapshot, head: tuple[str, str | None], files: Files, done: Sequence[Decision], wording: Wording
) -> Draft:
    """`head` is the branch to write and the commit that it is at.

    A person's word that waits on the head branch already is told again: whoever writes the commit now, it is what
    a reader has to know of it first.
    """
    named, back = _named_apps(done), _named_apps([one for one in done if one.rolled_back])
    reasons = _new_holds(snapshot.files, files, done)
    command, plain = wording.command, wording.command in ("run", "scan")
    if back or (reasons and plain):
        command = "rollback" if back else "hold"
    told = tuple(_told(done, reasons))
    if command == wording.command and plain and all(one.changes for one in named):
        message, told = commit_message(wording.template, named, wording.trailers), ()
    else:
        meant = {(one.namespace, one.name) for one in back} | {app for app, _, _ in reasons}
        about = [one for one in named if (one.namespace, one.name) in meant] or named
        message = hold_message(subject(command, about), wording.template, named, told, wording.trailers)
    destination = Destination(snapshot.repo, snapshot.branch, head[0])
    changeset = Changeset(destination, snapshot.tip, files, message.text, wording.author, head[1])
    news = tuple(one for one in done if not one.carried)
    changed = tuple(one for one in named if one.changes)
    held = tuple(_held(snapshot.files, files))
    return Draft(changeset, news, message.warning, changed, held, tuple(back), command, told)


def _named_apps(done: Sequence[Decision]) -> list[AppChanges]:
    """What changes for each Application; nothing of one whose memory alone changes."""
    apps: dict[tuple[str, str], list[Change]] = {}
    for one in done:
        app = one.subscription.application
        told = apps.setdefault((app.namespace, app.name), [])
        told += [change_of(one)] if one.verdict.verdict == "update" else []
    return [AppChanges(ns, name, tuple(changes)) for (ns, name), changes in apps.items()]


def _new_holds(before: Files, after: Files, done: Sequence[Decision]) -> list[tuple[tuple[str, str], str, str]]:
    """(Application, what is held, the reason) of each hold that the base does not have."""
    apps = {state_path(one.subscription): one.subscription.application for one in done}
    found: list[tuple[tuple[str, str], str, str]] = []
    for path, app in apps.items():
        if path not in after:
            continue
        old, new = read_state(before.get(path, GONE).text), read_state(after[path].text)
        for file, state in sorted(new.items()):
            known = old.get(file, State())
            holds = [(app.name, state.hold, known.hold)]
            holds += [
                (key, one.hold, known.images.get(key, Memory()).hold) for key, one in sorted(state.images.items())
            ]
            found += [((app.namespace, app.name), what, said(now)) for what, now, then in holds if now and now != then]
    return found


def _held(before: Files, after: Files) -> Iterator[str]:
    """What state files say differently of holds and deferred events; which builds were written is no such thing."""
    for path in sorted(after):
        if path.startswith(".image-update/"):
            told = _lasting(after[path].text)
            if told != _lasting(before.get(path, GONE).text):
                yield f"{path}: {told}"


def _lasting(text: str) -> str:
    told: list[tuple[object, ...]] = []
    for file, state in sorted(read_state(text).items()):
        images = {
            key: (one.hold, one.deferred and (one.deferred.tag, one.deferred.digest))
            for key, one in sorted(state.images.items())
            if one.hold or one.deferred
        }
        told += [(file, state.hold, images)] if state.hold or images else []
    return repr(told)


def _told(done: Sequence[Decision], reasons: Sequence[tuple[object, str, str]]) -> Mapping[str, None]:
    """One sentence for each image: what became of it, and why; and each reason of a hold that none of them gives."""
    lines = dict.fromkeys(f"{key_of(one.subscription)}: {one.verdict.because}" for one in done)
    missing = (f"{what}: {why}" for _app, what, why in reasons if not any(why in line for line in lines))
    return {**lines, **dict.fromkeys(missing)}
