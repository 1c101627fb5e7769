"""Pure code for the state files that a run changes, in its commits and on the memory branch.

A state file remembers holds, deferred builds, and written builds. If a commit belongs on a head
branch, the holds and deferred builds are stored on the memory branch instead, so that they apply
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

GONE = File("", "")  # stands for a file that the commit deletes


def changed_states(snapshot: Snapshot, done: Sequence[Move], *, aside: bool) -> dict[str, File]:
    """Return the state files that a commit changes because these moves have something to remember.

    A state file remembers an Application's holds, the builds that they kept back (deferred builds),
    and the builds that were written. A move is a decision, with what to remember about it.

    With `aside`, the commit belongs on a head branch (the branch of a pull request). In that case,
    the state files record each written build, but not the deferred builds, which are remembered on
    the memory branch.
    """
    by_path: dict[str, list[Move]] = {}
    for move in done:
        if move.remember or aside:
            by_path.setdefault(state_path(move.subscription), []).append(move)

    changed: dict[str, File] = {}
    for path, moves in by_path.items():
        states_before = own_states(snapshot.files, path)
        states = _states_after_moves(states_before, snapshot, moves, aside=aside)
        if states != states_before:
            old = snapshot.files.get(path)
            text = write_state(old.text if old else "", states)
            mode = old.mode if old else "100644"
            changed[path] = File(text, mode) if text else GONE
    return changed


def _states_after_moves(
    states_before: Mapping[str, State], snapshot: Snapshot, moves: Iterable[Move], *, aside: bool
) -> dict[str, State]:
    """Return the states in one state file (one state for each write-back file) after these moves,
    without empty states. With `aside`, the commit belongs on a head branch.
    """
    states = dict(states_before)
    # a new hold comes last, so that no other move ends it
    holds_last = sorted(moves, key=lambda move: bool(move.remember and move.remember.hold))
    for move in holds_last:
        file = file_of(snapshot, move.subscription, states)
        remember = move.remember or Remember()
        if aside:
            remember = _without_deferred(remember, snapshot, move.subscription, file)
        states[file] = _state_after(states.get(file, State()), move.subscription, remember)
    return {file: state for file, state in states.items() if state != State()}


def _without_deferred(
    remember: Remember, snapshot: Snapshot, sub: Subscription, file: str
) -> Remember:
    """Return what a head branch's commit remembers about an image: everything except the deferred
    build.

    `file` is the write-back file, which is the key to the image's memory in a state file. The
    image's hold is included only if the move changes the memory.
    """
    state = states_of(snapshot, sub).get(file, State())
    memory = remember.memory or state.images.get(key_of(sub), Memory())
    # a hold from `states_of` may be on the memory branch, where it remains
    hold = memory.hold if remember.memory else None
    return replace(remember, memory=replace(memory, hold=hold, deferred=None))


def _state_after(state: State, sub: Subscription, remember: Remember) -> State:
    """Return an Application's state (its hold, and what is remembered about its images), updated
    with what a move remembers (`remember`).
    """
    images = dict(state.images)
    if remember.memory is not None:
        images[key_of(sub)] = remember.memory
    not_empty = {key: memory for key, memory in images.items() if memory != Memory()}
    hold = remember.hold or state.hold
    if remember.lifted:
        hold = None
    return replace(state, hold=hold, images=not_empty)


def memory_files_after(snapshot: Snapshot, moves: Iterable[Move]) -> Files:
    """Return the memory branch's files after these moves (decisions, with what to remember about
    them). If there are no files, the branch is deleted.

    The memory branch stores the holds that must apply at once, even though their moves are only
    proposed on a head branch (the branch of a pull request).

    If a move's commit belongs on a head branch, the memory branch remembers only its hold (with the
    hold's rollback) and its deferred build. The rest is in that commit. Any other move matters only
    if the memory branch already has the Application's state file.
    """
    files = dict(snapshot.memory_files)
    for move in moves:
        sub = move.subscription
        path = state_path(sub)
        adds_memory = _goes_to_head_branch(move) and move.remember is not None
        if path not in files and not adds_memory:
            continue
        try:
            file = file_of(snapshot, sub, states_of(snapshot, sub))
            states = dict(own_states(files, path))
        except TaskError:  # the decision already has this error
            continue
        states[file] = _state_on_memory_branch(states.get(file, State()), snapshot, move, file)
        _store(files, path, states)
    return files


def _store(files: dict[str, File], path: str, states: Mapping[str, State]) -> None:
    """Update `files` in place: write the state file at `path`, or remove it if there is nothing to
    remember.
    """
    old_text = files[path].text if path in files else ""
    text = write_state(old_text, states)
    if text:
        files[path] = File(text)
    else:
        files.pop(path, None)


def deferred_until_landed(before: Files, after: Files) -> Files:
    """Return the memory branch's files after a run (`after`), with any missing deferred builds from
    before the run (`before`) added back. A deferred build is one that a hold or a freeze kept back.

    The run is writing these builds now. They are removed only after they have landed (been pushed),
    so that they are not lost if the push fails.
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


def _goes_to_head_branch(move: Move) -> bool:
    """Return whether a move's commit belongs on a head branch."""
    return move.decision.head not in ("", move.decision.branch)


def _state_on_memory_branch(so_far: State, snapshot: Snapshot, move: Move, file: str) -> State:
    """Return an Application's state on the memory branch after a move (a decision, with what to
    remember about it): the holds and the deferred builds that the base branch does not have.

    `so_far` is that state after the earlier moves, and `file` is the write-back file that the state
    belongs to.
    """
    key = key_of(move.subscription)
    path = state_path(move.subscription)
    remember = move.remember or Remember()

    # 1. Determine what must be remembered after the move, on both branches together.
    on_base = own_states(snapshot.files, path).get(file, State())
    on_both = merged(on_base, so_far)
    hold = remember.hold or on_both.hold
    if remember.lifted:
        hold = None
    memory = remember.memory or on_both.images.get(key, Memory())

    # 2. Determine how much of that will be on the base.
    if not _goes_to_head_branch(move):  # the commit adds this to the base
        memories_on_base = dict(on_base.images)
        if remember.memory:
            memories_on_base[key] = remember.memory
        on_base = State(remember.hold or on_base.hold, memories_on_base)

    # 3. The rest belongs on the memory branch. `apart` returns what the base does not have.
    hold_not_on_base = apart(Memory(hold=on_base.hold), Memory(hold=hold)).hold
    memory_not_on_base = apart(on_base.images.get(key, Memory()), memory)
    before_run = own_states(snapshot.memory_files, path).get(file, State())
    any_hold = memory_not_on_base.hold or hold_not_on_base
    rollback = _rollback_of(any_hold, before_run, move, memory.rollback)
    memory_not_on_base = replace(memory_not_on_base, rollback=rollback)
    return State(hold_not_on_base, {**so_far.images, key: memory_not_on_base})


def _rollback_of(
    hold: Hold | None,
    before_run: State,
    move: Move,
    rollback: Meant | None,
) -> Meant | None:
    """Return the rollback (a person's change back to an older version) that a hold on the memory
    branch belongs to. None means that there is no hold, or that a person has held the image for a
    different reason.

    `before_run` is the Application's state on the memory branch before the run, and `rollback` is
    the rollback that the move remembers.
    """
    if hold is None:
        return None
    memory = before_run.images.get(key_of(move.subscription), Memory())
    is_new_hold = hold != (memory.hold or before_run.hold)
    is_rollback_command = move.rolled_back and not move.kept
    # A person's rollback sets its own hold, or takes over the hold of an earlier rollback.
    if is_rollback_command and (is_new_hold or memory.rollback):
        return rollback
    # Any other new hold has a different reason. An old hold belongs to the same rollback as before.
    return None if is_new_hold else memory.rollback


def without_rollbacks(memory_files: Files, finished: Mapping[str, Collection[str]]) -> Files:
    """Return the memory branch's files without the holds of finished rollbacks, which a person has
    declined or merged.

    A rollback sets a hold (an order to keep the version), so that no new build undoes it.
    `finished` contains, by state file, the keys of the images that were rolled back.
    """
    files = dict(memory_files)
    for path, keys in finished.items():
        states = {}
        for file, state in own_states(memory_files, path).items():
            images = dict(state.images)
            hold_on_app = state.hold
            for key in keys:
                memory = images.get(key, Memory())
                if memory.rollback and not memory.hold:
                    # the rollback's hold is on the whole Application
                    hold_on_app = None
                images[key] = replace(memory, hold=None, rollback=None)
            states[file] = State(hold_on_app, images)
        _store(files, path, states)
    return files


def only_holds(memory_files: Files) -> Files:
    """Return the state files of a memory branch, reduced to their holds. This is used for a branch
    that is not signed with a known key.

    An unreadable state file is kept, because it may contain a hold.
    """
    files: dict[str, File] = {}
    for path in filter(is_state_path, memory_files):
        try:
            states = own_states(memory_files, path)
        except TaskError:
            files[path] = memory_files[path]
            continue
        states_with_holds = {}
        for file, state in states.items():
            images = {key: Memory(hold=memory.hold) for key, memory in state.images.items()}
            states_with_holds[file] = State(state.hold, images)
        _store(files, path, states_with_holds)
    return files


def new_holds(
    before: Files,
    after: Files,
    moves: Sequence[Move],
) -> list[tuple[tuple[str, str], str, str]]:
    """Return the holds (orders to keep a version) in the state files in `after` that are not in
    `before`, for the Applications of these moves.

    Each hold is a tuple: (the Application's namespace and name, the Application's name or the key
    of the held image, the reason in words).
    """
    apps = {}  # the Application of each changed state file
    for move in moves:
        path = state_path(move.subscription)
        if path in after:
            apps[path] = move.subscription.application

    holds: list[tuple[tuple[str, str], str, str]] = []
    for path, app in apps.items():
        app_key = (app.namespace, app.name)
        states_before = read_state(before.get(path, GONE).text)
        states_after = read_state(after[path].text)
        for file, state in sorted(states_after.items()):
            state_before = states_before.get(file, State())
            if state.hold and state.hold != state_before.hold:
                holds.append((app_key, app.name, hold_text(state.hold)))
            for key, memory in sorted(state.images.items()):
                memory_before = state_before.images.get(key, Memory())
                if memory.hold and memory.hold != memory_before.hold:
                    holds.append((app_key, key, hold_text(memory.hold)))
    return holds
