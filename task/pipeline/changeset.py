"""Pure: moves → what to commit, one changeset for each head branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from task.editors import EDITORS, strays
from task.editors.state_file import read_state, write_state
from task.errors import TaskError
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
from task.pipeline.move import Move, Remember, failed
from task.pipeline.target import target_of
from task.pipeline.weigh import Terms, key_of
from task.policy.remember import said
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
class Stray:
    """What somebody wrote in an override file, where the Application itself says otherwise."""

    subscription: Subscription
    file: str
    names: tuple[tuple[str, str], ...]  # (name, the mark that says which source it differs from)


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
    strays: tuple[Stray, ...] = ()


def drafts(
    snapshot: Snapshot, moves: Sequence[Move], terms: Terms, wording: Wording, ahead: Heads = NO_HEADS
) -> tuple[list[Draft], list[Decision]]:
    """A changeset for each head branch that gets something new, and the decisions that are settled without one.

    `ahead` are the head branches that exist. A move whose edit changes nothing is settled as `unchanged`, one whose
    edit fails as `error`.
    """
    heads: dict[str, list[Move]] = {}
    settled = [move.decision for move in moves if not move.changes and not move.waits]
    for move in moves:
        if move.changes:
            heads.setdefault(move.decision.head, []).append(move)
    made = []
    for head, members in heads.items():
        if all(move.waits for move in members):  # nothing is new: what waits there stays as it is
            continue
        files, done, rest, strays = _edit(snapshot.files, members, terms)
        files |= _remembered(snapshot, ahead.get(head), members, done)
        settled += rest
        if files:
            there = ahead[head].tip if head in ahead else "" if head != snapshot.branch else None
            made.append(replace(_draft(snapshot, (head, there), files, done, wording), strays=tuple(strays)))
        else:
            settled += [move.decision for move in done if not move.waits]
    return made, settled


def _edit(
    files: Files, members: Sequence[Move], terms: Terms
) -> tuple[dict[str, File], list[Move], list[Decision], list[Stray]]:
    """All edits, one after the other: (changed files, moves that are done, decisions settled otherwise, strays)."""
    seen: dict[str, File] = dict(files)
    changed: dict[str, File] = {}
    done: list[Move] = []
    rest: list[Decision] = []
    found: list[Stray] = []
    for move in members:
        one = move.decision
        if not move.updates or one.kind is None:
            done.append(move)
            continue
        editor, target = EDITORS[one.kind], target_of(one.subscription, one.kind, carry=terms.carry)
        try:
            new, edits = editor.write(seen, target, one.candidate)
        except TaskError as error:
            rest += [] if move.waits else [failed(one, error)]
            continue
        # Another move of this commit may have written the same, which Git itself does not say yet.
        if not edits and not new and not (changed and editor.write(files, target, one.candidate)[0]):
            verdict = Verdict("unchanged", "same", f"Git already says {one.candidate.version}")
            rest += [] if move.waits else [replace(one, verdict=verdict)]
            continue
        seen.update(new)
        changed.update(new)
        done.append(move)
        if names := strays(one.kind, seen, target):
            found.append(Stray(one.subscription, one.current.file, names))
    return changed, done, rest, found


def _remembered(
    base: Snapshot, head: Snapshot | None, members: Sequence[Move], done: Sequence[Move]
) -> dict[str, File]:
    """The state files of a commit, against the base; what the head branch remembers already stays remembered."""
    subs = [one.subscription for one in members]
    view = with_state(base, head, subs) if head else base
    found = _remember(view, done)
    for path in map(state_path, subs):
        if path not in found and view.files.get(path) != base.files.get(path):
            found[path] = view.files.get(path, GONE)
    return {path: file for path, file in found.items() if file != base.files.get(path, GONE)}


def _remember(snapshot: Snapshot, done: Sequence[Move]) -> dict[str, File]:
    """The state files that change: one for each Application of which there is something new to remember."""
    apps: dict[str, list[Move]] = {}
    for one in done:
        if one.remember:
            apps.setdefault(state_path(one.subscription), []).append(one)
    changed: dict[str, File] = {}
    for path, members in apps.items():
        states, old = states_of(snapshot, members[0].subscription), snapshot.files.get(path)
        new = dict(states)
        for one in members:
            file = file_of(snapshot, one.subscription, new)
            new[file] = _state(new.get(file, State()), one.subscription, one.remember or Remember())
        if (new := {file: state for file, state in new.items() if state != State()}) != states:
            text = write_state(old.text if old else "", new)
            changed[path] = File(text, old.mode if old else "100644") if text else GONE
    return changed


def _state(state: State, sub: Subscription, new: Remember) -> State:
    """What is remembered of one Application in one file after a move."""
    images = dict(state.images)
    if new.memory is not None:
        images[key_of(sub)] = new.memory
    hold = None if new.lifted else new.hold or state.hold
    return State(hold, {key: memory for key, memory in images.items() if memory != Memory()})


def _draft(
    snapshot: Snapshot, head: tuple[str, str | None], files: Files, done: Sequence[Move], wording: Wording
) -> Draft:
    """The changeset of one head branch; `head` is its name and the commit that it is at.

    The commit replaces the one that is on the head branch. If a rollback or a hold waits there, the new message says
    so again, first of all: it is what a reviewer has to know.
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
    news = tuple(one.decision for one in done if not one.waits)
    changed = tuple(one for one in named if one.changes)
    held = tuple(_held(snapshot.files, files))
    return Draft(changeset, news, message.warning, changed, held, tuple(back), command, told)


def _named_apps(done: Sequence[Move]) -> list[AppChanges]:
    """What changes for each Application; nothing of one whose memory alone changes."""
    apps: dict[tuple[str, str], list[Change]] = {}
    for one in done:
        app = one.subscription.application
        told = apps.setdefault((app.namespace, app.name), [])
        told += [one.change] if one.updates else []
    return [AppChanges(ns, name, tuple(changes)) for (ns, name), changes in apps.items()]


def _new_holds(before: Files, after: Files, done: Sequence[Move]) -> list[tuple[tuple[str, str], str, str]]:
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
    """What changes in state files about holds and deferred events. Which builds were written does not matter here."""
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


def _told(done: Sequence[Move], reasons: Sequence[tuple[object, str, str]]) -> Mapping[str, None]:
    """One sentence for each image: what became of it, and why; and each reason of a hold that none of them gives."""
    lines = dict.fromkeys(f"{key_of(one.subscription)}: {one.decision.verdict.because}" for one in done)
    missing = (f"{what}: {why}" for _app, what, why in reasons if not any(why in line for line in lines))
    return {**lines, **dict.fromkeys(missing)}
