"""Pure code for the memory branch: holds, and what they defer, where changes do not go to the base itself.

They count at once, before anybody merges anything. The branch has state files only. What is written travels with the
change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from task.deciding.decide import file_of, own_states, state_path, states_of
from task.deciding.job import Move, Remember
from task.deciding.weigh import key_of
from task.editors.state_file import write_state
from task.errors import TaskError
from task.model import File, Files, Memory, Snapshot, State
from task.policy.builds import apart, merged


def memory_after(snapshot: Snapshot, moves: Iterable[Move], now: str) -> Files:
    """Return all files of the memory branch after these moves. It goes if there are none."""
    files = dict(snapshot.memory)
    for move in moves:
        sub = move.subscription
        path = state_path(sub)
        if not (path in files or (_aside(move) and move.remember)):
            continue
        try:
            file, states = file_of(snapshot, sub, states_of(snapshot, sub)), dict(own_states(files, path))
        except TaskError:  # it is the decision's error by now
            continue
        states[file] = _with(states.get(file, State()), snapshot, move, move.remember or Remember(), file, now)
        text = write_state(files[path].text if path in files else "", _without_empty(states))
        if text:
            files[path] = File(text)
        else:
            files.pop(path, None)
    return files


def until_landed(before: Files, after: Files) -> Files:
    """Return the memory after a run, with the builds that it no longer defers: they go once they have landed."""
    files = dict(after)
    for path in before:
        states = dict(own_states(after, path))
        for file, state in own_states(before, path).items():
            now = states.get(file, State())
            lost = {
                key: replace(now.images.get(key, Memory()), deferred=one.deferred)
                for key, one in state.images.items()
                if one.deferred and not now.images.get(key, Memory()).deferred
            }
            if lost:
                states[file] = replace(now, images={**now.images, **lost})
                files[path] = File(write_state(after[path].text if path in after else "", states))
    return files


def _aside(move: Move) -> bool:
    return move.decision.head not in ("", move.decision.branch)


def _with(known: State, snapshot: Snapshot, move: Move, new: Remember, file: str, now: str) -> State:
    sub = move.subscription
    key = key_of(sub)
    base = own_states(snapshot.files, state_path(sub)).get(file, State())
    if not _aside(move):  # the base itself remembers it from now on
        base = State(new.hold or base.hold, {**base.images, key: new.memory or Memory()})
    wanted = merged(own_states(snapshot.files, state_path(sub)).get(file, State()), known)  # with the moves before
    hold = None if new.lifted else new.hold or wanted.hold
    whole = apart(Memory(hold=base.hold), Memory(released=known.released), Memory(hold=hold), now)
    memory = new.memory if new.memory is not None else wanted.images.get(key, Memory())
    before = known.images.get(key, Memory())
    one = apart(base.images.get(key, Memory()), before, memory, now)
    # The memory names the rollback that its hold is for, until a person holds the image for another reason.
    held, back = one.hold or whole.hold, memory.rollback
    if not move.rolled_back or move.kept:
        back = before.rollback if held == (before.hold or known.hold) else None
    one = replace(one, rollback=back if held else None)
    return State(whole.hold, {**known.images, key: one}, whole.released)


def without_rollbacks(memory: Files, closed: Mapping[str, Collection[str]]) -> Files:
    """Return the memory without the holds of rollbacks that a person has declined: the images of each state file."""
    files = dict(memory)
    for path, keys in closed.items():
        states = {}
        for file, state in own_states(memory, path).items():
            images = dict(state.images)
            for key in keys:
                images[key] = replace(images.get(key, Memory()), hold=None, rollback=None)
            whole = any(key in keys and one.rollback and not one.hold for key, one in state.images.items())
            states[file] = replace(state, hold=None if whole else state.hold, images=images)
        if text := write_state(memory[path].text, _without_empty(states)):
            files[path] = File(text)
        else:
            del files[path]
    return files


def _without_empty(states: dict[str, State]) -> dict[str, State]:
    found = {
        file: replace(state, images={key: one for key, one in state.images.items() if one != Memory()})
        for file, state in states.items()
    }
    return {file: state for file, state in found.items() if state != State()}
