"""Pure code for the state files that a run changes: in its commits, and on the memory branch.

A state file remembers holds, deferred builds, and written builds. If a commit goes to a head
branch, the holds and deferred builds are on the memory branch instead, so that they apply
immediately, before a merge. The record of a written build is always part of the commit that writes
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from task.deciding.decide import file_of, is_state_path, own_states, state_path, states_of
from task.deciding.job import Move, Remember
from task.deciding.weigh import key_of
from task.editors.state_file import read_state, write_state
from task.errors import TaskError
from task.model import File, Files, Hold, Meant, Memory, Snapshot, State, Subscription
from task.policy.builds import apart, hold_text, merged

GONE = File("", "")  # deleted by the commit


def changed_states(snapshot: Snapshot, done: Sequence[Move], *, aside: bool) -> dict[str, File]:
    """Return the changed state files, one for each Application with something new to remember.

    On a head branch (`aside`), they contain the written builds. Deferred builds are remembered on
    the memory branch.
    """
    by_path: dict[str, list[Move]] = {}
    for move in done:
        if move.remember or aside:
            by_path.setdefault(state_path(move.subscription), []).append(move)
    changed: dict[str, File] = {}
    for path, moves in by_path.items():
        before = own_states(snapshot.files, path)
        after = dict(before)
        # a new hold comes last, so that no other move ends it
        for move in sorted(moves, key=lambda move: bool(move.remember and move.remember.hold)):
            file = file_of(snapshot, move.subscription, after)
            remember = move.remember or Remember()
            if aside:
                remember = _without_deferred(remember, snapshot, move.subscription, file)
            after[file] = _state_after(after.get(file, State()), move.subscription, remember)
        after = {file: state for file, state in after.items() if state != State()}
        if after != before:
            old = snapshot.files.get(path)
            text = write_state(old.text if old else "", after)
            changed[path] = File(text, old.mode if old else "100644") if text else GONE
    return changed


def _without_deferred(
    remember: Remember, snapshot: Snapshot, sub: Subscription, file: str
) -> Remember:
    """Return what a head branch's commit remembers: everything except deferred builds."""
    both = states_of(snapshot, sub).get(file, State())
    memory = remember.memory or both.images.get(key_of(sub), Memory())
    hold = memory.hold if remember.memory else None
    return replace(remember, memory=replace(memory, hold=hold, deferred=None))


def _state_after(state: State, sub: Subscription, new: Remember) -> State:
    """Return an Application's state after a move."""
    images = dict(state.images)
    if new.memory is not None:
        images[key_of(sub)] = new.memory
    hold = None if new.lifted else new.hold or state.hold
    return replace(
        state,
        hold=hold,
        images={key: memory for key, memory in images.items() if memory != Memory()},
    )


def memory_files_after(snapshot: Snapshot, moves: Iterable[Move]) -> Files:
    """Return all files on the memory branch after these moves. Without files, the branch is
    deleted.
    """
    files = dict(snapshot.memory_files)
    for move in moves:
        sub = move.subscription
        path = state_path(sub)
        is_new = _aside(move) and move.remember is not None
        if path not in files and not is_new:
            continue
        try:
            file = file_of(snapshot, sub, states_of(snapshot, sub))
            states = dict(own_states(files, path))
        except TaskError:  # the decision already has this error
            continue
        states[file] = _state_beside_base(states.get(file, State()), snapshot, move, file)
        _store(files, path, states)
    return files


def _store(files: dict[str, File], path: str, states: Mapping[str, State]) -> None:
    """Write a state file, or remove it if there is nothing to remember."""
    old_text = files[path].text if path in files else ""
    text = write_state(old_text, states)
    if text:
        files[path] = File(text)
    else:
        files.pop(path, None)


def deferred_until_landed(before: Files, after: Files) -> Files:
    """Return the memory branch's files after a run, but still with the builds that the run no
    longer defers.

    They are removed once they have landed.
    """
    files = dict(after)
    for path in filter(is_state_path, before):
        states = dict(own_states(after, path))
        for file, state_before in own_states(before, path).items():
            state = states.get(file, State())
            still_deferred = {}
            for key, memory_before in state_before.images.items():
                memory = state.images.get(key, Memory())
                if memory_before.deferred and not memory.deferred:
                    still_deferred[key] = replace(memory, deferred=memory_before.deferred)
            if still_deferred:
                states[file] = replace(state, images={**state.images, **still_deferred})
                _store(files, path, states)
    return files


def _aside(move: Move) -> bool:
    """Return whether a move's commit goes to a head branch."""
    return move.decision.head not in ("", move.decision.branch)


def _state_beside_base(beside_before: State, snapshot: Snapshot, move: Move, file: str) -> State:
    """Return an Application's state on the memory branch after a move: everything to remember that
    the base does not have.

    `beside_before` is that state after the earlier moves.
    """
    key = key_of(move.subscription)
    path = state_path(move.subscription)
    new = move.remember or Remember()
    on_base = own_states(snapshot.files, path).get(file, State())
    both = merged(on_base, beside_before)
    hold = None if new.lifted else new.hold or both.hold
    memory = new.memory if new.memory is not None else both.images.get(key, Memory())
    if not _aside(move):  # the commit adds this to the base
        memories = {**on_base.images, key: new.memory} if new.memory else on_base.images
        on_base = State(new.hold or on_base.hold, memories)
    hold_beside = apart(Memory(hold=on_base.hold), Memory(hold=hold)).hold
    memory_beside = apart(on_base.images.get(key, Memory()), memory)
    before_run = own_states(snapshot.memory_files, path).get(file, State())
    rollback = _rollback_of(memory_beside.hold or hold_beside, before_run, move, memory.rollback)
    memory_beside = replace(memory_beside, rollback=rollback)
    return State(hold_beside, {**beside_before.images, key: memory_beside})


def _rollback_of(
    hold: Hold | None,
    before_run: State,
    move: Move,
    rollback: Meant | None,
) -> Meant | None:
    """Return the rollback that a hold on the memory branch belongs to, or None if a person has held
    the image for a different reason.

    `rollback` is the one that the move remembers.
    """
    if hold is None:
        return None
    memory = before_run.images.get(key_of(move.subscription), Memory())
    is_new_hold = hold != (memory.hold or before_run.hold)
    by_rollback = move.rolled_back and not move.kept  # the move is a person's rollback
    if by_rollback and (is_new_hold or memory.rollback):
        return rollback
    return None if is_new_hold else memory.rollback


def without_rollbacks(memory_files: Files, finished: Mapping[str, Collection[str]]) -> Files:
    """Remove from the memory branch the holds of rollbacks that a person has declined or merged.

    `finished` has the image keys of these rollbacks, by state file.
    """
    files = dict(memory_files)
    for path, keys in finished.items():
        states = {}
        for file, state in own_states(memory_files, path).items():
            images = dict(state.images)
            for key in keys:
                memory = images.get(key, Memory())
                images[key] = replace(memory, hold=None, rollback=None)
            # without a hold of its own, a rollback was held by the hold of the whole Application
            ends_hold_of_app = any(
                key in keys and memory.rollback and not memory.hold
                for key, memory in state.images.items()
            )
            states[file] = State(None if ends_hold_of_app else state.hold, images)
        _store(files, path, states)
    return files


def only_holds(memory_files: Files) -> Files:
    """Return the trusted part of a memory branch that no known key has signed.

    An unreadable state file is kept, because it may contain a hold.
    """
    files: dict[str, File] = {}
    for path in filter(is_state_path, memory_files):
        try:
            states = own_states(memory_files, path)
        except TaskError:
            files[path] = memory_files[path]
            continue
        held = {}
        for file, state in states.items():
            images = {key: Memory(hold=memory.hold) for key, memory in state.images.items()}
            held[file] = State(state.hold, images)
        _store(files, path, held)
    return files


def new_holds(
    before: Files,
    after: Files,
    done: Sequence[Move],
) -> list[tuple[tuple[str, str], str, str]]:
    """Return (Application, what is held, reason) for each hold that `before` does not contain."""
    all_apps = {state_path(move.subscription): move.subscription.application for move in done}
    apps = {path: app for path, app in all_apps.items() if path in after}
    new: list[tuple[tuple[str, str], str, str]] = []
    for path, app in apps.items():
        old_states = read_state(before.get(path, GONE).text)
        new_states = read_state(after[path].text)
        for file, state in sorted(new_states.items()):
            old_state = old_states.get(file, State())
            holds = [(app.name, state.hold, old_state.hold)]
            holds += [
                (key, memory.hold, old_state.images.get(key, Memory()).hold)
                for key, memory in sorted(state.images.items())
            ]
            new += [
                ((app.namespace, app.name), what, hold_text(hold))
                for what, hold, old_hold in holds
                if hold and hold != old_hold
            ]
    return new
