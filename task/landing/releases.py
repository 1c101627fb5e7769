"""Pure code for holds on the base that a person has ended on a head branch.

A hold ends on the branch that contains it. So the release of a hold on the base is a change like
any other: it waits on the head branch, and the hold applies until someone merges that branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from task.deciding.decide import file_of, own_states, state_path, state_path_in, states_of
from task.deciding.job import Move, Remember
from task.deciding.weigh import key_of
from task.editors.state_file import write_state
from task.errors import TargetError
from task.landing.states import GONE
from task.landing.waiting_list import ListedRelease
from task.model import File, Hold, Memory, Place, Snapshot, State
from task.policy.builds import hold_text, released

NOTHING = Hold("")


def places_of_releases(releases: Iterable[ListedRelease]) -> list[Place]:
    """Return the state files with the holds."""
    return [Place(_path(release)) for release in releases]


def _path(release: ListedRelease) -> str:
    return state_path_in(release.folder, release.application)


def _base_state(base: Snapshot, release: ListedRelease) -> State:
    return own_states(base.files, _path(release)).get(release.file, State())


def counts(base: Snapshot, release: ListedRelease) -> bool:
    """Return whether the base still has the hold that the release ends, and not a different one.

    An unreadable state file counts as still having it.
    """
    try:
        state = _base_state(base, release)
    except TargetError:
        return True
    if not release.image:
        return state.hold is not None and state.hold == release.hold
    memory = state.images.get(release.image, Memory())
    remembered = memory.hold is not None or _deferred_version(memory) == release.deferred != ""
    return remembered and (memory.hold or NOTHING) == release.hold


def _deferred_version(memory: Memory) -> str:
    return memory.deferred.version if memory.deferred else ""


def files_without(base: Snapshot, releases: Iterable[ListedRelease]) -> dict[str, File]:
    """Return the base's state files that change if these holds end."""
    changed: dict[str, File] = {}
    for release in releases:
        with suppress(TargetError):
            so_far = with_files(base, changed)
            if not counts(so_far, release):
                continue
            path = _path(release)
            old = so_far.files[path]
            states = {
                **own_states(so_far.files, path),
                release.file: _state_without(so_far, release),
            }
            text = write_state(old.text, states)
            changed[path] = File(text, old.mode) if text else GONE
    return changed


def _state_without(base: Snapshot, release: ListedRelease) -> State:
    state = _base_state(base, release)
    if not release.image:
        return replace(state, hold=None)
    memory = state.images[release.image]
    after = released(memory)
    if _deferred_version(memory) != release.deferred:  # the build was deferred later
        after = replace(after, deferred=memory.deferred)
    images = {**state.images, release.image: after}
    remembered = {key: one for key, one in images.items() if one != Memory()}
    return replace(state, images=remembered)


def with_files(base: Snapshot, changed: dict[str, File]) -> Snapshot:
    """Return the base after a commit with these files."""
    files = {**base.files, **changed}
    return replace(base, files={path: file for path, file in files.items() if file != GONE})


def without(base: Snapshot, releases: Sequence[ListedRelease]) -> Snapshot:
    """Return the base after a merge of these releases."""
    return with_files(base, files_without(base, releases)) if releases else base


def releases_of(base: Snapshot, moves: Iterable[Move]) -> dict[str, list[ListedRelease]]:
    """Return the holds on the base that these moves end, by head branch.

    The hold of a whole Application ends with each of its builds, or on one branch if there are no
    builds.
    """
    by_head: dict[str, list[ListedRelease]] = {}
    ended: set[tuple[str, ...]] = set()
    for move in sorted(moves, key=lambda move: not move.updates):
        head = move.decision.head
        if not move.released or head in ("", base.branch):
            continue
        sub = move.subscription
        file = file_of(base, sub, states_of(base, sub))
        state = own_states(base.files, state_path(sub)).get(file, State())
        memory = state.images.get(key_of(sub), Memory())
        of_head = by_head.setdefault(head, [])
        of_image = ListedRelease(
            application=sub.application.key,
            folder=sub.home,
            file=file,
            image=key_of(sub),
            hold=memory.hold or NOTHING,
            deferred=_deferred_version(memory),
        )
        if memory.hold or (memory.deferred and not move.updates):
            of_head.append(of_image)
        if state.hold and move.remember and move.remember.lifted:
            of_all = replace(of_image, image="", hold=state.hold, deferred="")
            if of_all not in of_head and (move.updates or of_all.key not in ended):
                of_head.append(of_all)
                ended.add(of_all.key)
    return by_head


def held_again(release: ListedRelease, moves: Iterable[Move]) -> bool:
    """Return whether one of these moves sets the hold again that the release ends."""
    for move in moves:
        sub = move.subscription
        if (sub.application.key, sub.home) != (release.application, release.folder):
            continue
        remember = move.remember or Remember()
        memory = remember.memory or Memory()
        hold = memory.hold if release.image == key_of(sub) else None
        if hold or (remember.hold and not release.image):
            return True
    return False


def with_end(move: Move, releases: Iterable[ListedRelease], base: str) -> Move:
    """Add to the reason of a release when the hold on the base ends."""
    sub = move.subscription
    for release in releases:
        of_app = (release.application, release.folder) == (sub.application.key, sub.home)
        if of_app and release.image in ("", key_of(sub)):
            judged = move.decision.judged
            until = f"the hold on {base} ends when {move.decision.head} is merged"
            judged = replace(judged, because=f"{judged.because}; {until}")
            return replace(move, decision=replace(move.decision, judged=judged))
    return move


def release_reason(release: ListedRelease) -> tuple[tuple[str, str], str, str]:
    """Return (Application, what is released, reason) for messages."""
    was = f"released: it was {hold_text(release.hold)}"
    dropped = "released: the waiting build is discarded"
    what = release.image or "all images"
    return release.app, what, dropped if release.hold == NOTHING else was


def hold_of(release: ListedRelease) -> str:
    """Return the ended hold as a string: `argocd/web (api): held by jane: INC-42`."""
    what = release.image or "all images"
    why = f"deferred {release.deferred}" if release.hold == NOTHING else hold_text(release.hold)
    return f"{release.application} ({what}): {why}"
