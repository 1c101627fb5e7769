"""Pure code for holds on the base that a person has ended on a head branch.

A hold ends on the branch that contains it. So the release of a hold on the base is a change like
any other: it waits on the head branch, and the hold still applies until someone merges that branch.
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

NO_HOLD = Hold("")  # used for a release that only discards a deferred build


def places_of_releases(releases: Iterable[ListedRelease]) -> list[Place]:
    """Return the state files (as places to read) that contain the holds that these releases end."""
    return [Place(_state_file_of(release)) for release in releases]


def _state_file_of(release: ListedRelease) -> str:
    return state_path_in(release.folder, release.application)


def _base_state(base: Snapshot, release: ListedRelease) -> State:
    """Return an Application's state on the base branch: its holds and its remembered builds."""
    return own_states(base.files, _state_file_of(release)).get(release.file, State())


def has_effect(base: Snapshot, release: ListedRelease) -> bool:
    """Return whether a release still has an effect, because the base branch still contains the hold
    or the deferred build that it ends.

    When the head branch with the release is merged, a hold (an order to keep a version) ends on the
    base branch. A release may also just discard a deferred build: the image itself has no hold, but
    a freeze or a hold on the whole Application kept the build back. An unreadable state file counts
    as still having the hold.
    """
    try:
        state = _base_state(base, release)
    except TargetError:
        return True
    if not release.image:  # the hold on the whole Application
        return state.hold == release.hold
    memory = state.images.get(release.image, Memory())
    if memory.hold:
        return memory.hold == release.hold
    if release.hold != NO_HOLD:  # its hold has already ended
        return False
    return release.deferred != "" and release.deferred == _deferred_version(memory)


def _deferred_version(memory: Memory) -> str:
    """Return the version of the deferred build, or "" if there is none."""
    return memory.deferred.version if memory.deferred else ""


def files_without(base: Snapshot, releases: Iterable[ListedRelease]) -> dict[str, File]:
    """Return the base branch's state files that change when these releases take effect.

    A release ends a hold (an order to keep a version). It takes effect when the head branch that
    lists it is merged.
    """
    changed: dict[str, File] = {}
    for release in releases:
        with suppress(TargetError):  # an unreadable state file is left as it is
            base_so_far = with_files(base, changed)  # without the holds of earlier releases
            if not has_effect(base_so_far, release):
                continue
            path = _state_file_of(release)
            old = base_so_far.files[path]
            states = dict(own_states(base_so_far.files, path))
            states[release.file] = _state_without(base_so_far, release)
            text = write_state(old.text, states)
            changed[path] = File(text, old.mode) if text else GONE
    return changed


def _state_without(base: Snapshot, release: ListedRelease) -> State:
    """Return an Application's state on the base branch, without the hold that a release ends or the
    build that the hold deferred (kept back).
    """
    state = _base_state(base, release)
    if not release.image:  # the hold on the whole Application
        return replace(state, hold=None)
    memory = state.images[release.image]
    memory_after = released(memory)
    if _deferred_version(memory) != release.deferred:
        # this build was deferred after the release was listed, so it remains deferred
        memory_after = replace(memory_after, deferred=memory.deferred)
    images = {**state.images, release.image: memory_after}
    not_empty = {key: memory for key, memory in images.items() if memory != Memory()}
    return replace(state, images=not_empty)


def with_files(base: Snapshot, changed: dict[str, File]) -> Snapshot:
    """Return the base branch as it will be after a commit that changes these files."""
    files = {**base.files, **changed}
    return replace(base, files={path: file for path, file in files.items() if file != GONE})


def after_releases(base: Snapshot, releases: Sequence[ListedRelease]) -> Snapshot:
    """Return the base branch as it will be after the merge that these releases wait for: without
    the holds that they end.
    """
    if not releases:
        return base
    return with_files(base, files_without(base, releases))


def releases_of(base: Snapshot, moves: Iterable[Move]) -> dict[str, list[ListedRelease]]:
    """Return the holds on the base branch that these moves end, keyed by the head branch that has
    to be merged first.

    A move is a decision, with the change that a commit makes for it. Here, it is a person's command
    to end a hold, and its commit belongs on a head branch (the branch of a pull request).

    A hold on a whole Application ends on each branch that receives one of the Application's builds,
    or on one branch if there are no builds.
    """
    by_head: dict[str, list[ListedRelease]] = {}
    ended_keys: set[tuple[str, ...]] = set()  # holds on whole Applications that end on some branch
    # A move without a build ends the hold only if no other move does, so such moves come last.
    updates_first = sorted(moves, key=lambda move: not move.updates)
    for move in updates_first:
        head = move.decision.head
        if not move.released or head in ("", base.branch):
            continue
        releases_of_head = by_head.setdefault(head, [])
        release_of_image, release_of_app = _releases_by(move, base)
        if release_of_image:
            releases_of_head.append(release_of_image)
        if release_of_app:
            ends_here = move.updates or release_of_app.key not in ended_keys
            if ends_here and release_of_app not in releases_of_head:
                releases_of_head.append(release_of_app)
                ended_keys.add(release_of_app.key)
    return by_head


def _releases_by(move: Move, base: Snapshot) -> tuple[ListedRelease | None, ListedRelease | None]:
    """Return two releases for one move (a person's `release`): the first ends the image's hold on
    the base branch, and the second ends the hold on the whole Application. Each is None if it is
    not needed.

    A move that discards a deferred build needs the first release even if the image has no hold.
    """
    sub = move.subscription
    file = file_of(base, sub, states_of(base, sub))
    state = own_states(base.files, state_path(sub)).get(file, State())
    memory = state.images.get(key_of(sub), Memory())
    release_of_image = ListedRelease(
        application=sub.application.key,
        folder=sub.home,
        file=file,
        image=key_of(sub),
        hold=memory.hold or NO_HOLD,
        deferred=_deferred_version(memory),
    )
    release_of_app = None
    if state.hold and move.remember and move.remember.lifted:
        release_of_app = replace(release_of_image, image="", hold=state.hold, deferred="")
    discards_build = memory.deferred is not None and not move.updates
    affects_image = memory.hold is not None or discards_build
    return (release_of_image if affects_image else None), release_of_app


def held_again(release: ListedRelease, moves: Iterable[Move]) -> bool:
    """Return whether one of these moves (decisions, with what to remember about them) sets a new
    hold on the same image or Application as a release. A release ends a hold when its head branch
    is merged.
    """
    for move in moves:
        sub = move.subscription
        if (sub.application.key, sub.home) != (release.application, release.folder):
            continue
        remember = move.remember or Remember()
        memory = remember.memory or Memory()
        if release.image == key_of(sub) and memory.hold:
            return True
        if not release.image and remember.hold:  # the hold on the whole Application
            return True
    return False


def with_end_of_hold(move: Move, releases: Iterable[ListedRelease], base: str) -> Move:
    """Return the move (decision) for a person's `release`. If the image's hold is on the base
    branch, the move's reason also states that the hold ends only when the head branch is merged.

    `releases` are the releases on the move's head branch: each is for a hold on the base.
    """
    sub = move.subscription
    is_on_base = False
    for release in releases:
        same_app = (release.application, release.folder) == (sub.application.key, sub.home)
        if same_app and release.image in ("", key_of(sub)):
            is_on_base = True
    if not is_on_base:
        return move
    judged = move.decision.judged
    when = f"the hold on {base} ends when {move.decision.head} is merged"
    judged = replace(judged, because=f"{judged.because}; {when}")
    return replace(move, decision=replace(move.decision, judged=judged))


def release_reason(release: ListedRelease) -> tuple[tuple[str, str], str, str]:
    """Return (Application, what is released, reason) for commit messages. The Application is a pair
    of namespace and name.
    """
    if release.hold == NO_HOLD:
        reason = "released: the waiting build is discarded"
    else:
        reason = f"released: it was {hold_text(release.hold)}"
    return release.app, release.image or "all images", reason


def hold_of(release: ListedRelease) -> str:
    """Return the ended hold as a string: `argocd/web (api): held by jane: INC-42`."""
    images = release.image or "all images"
    has_hold = release.hold != NO_HOLD
    reason = hold_text(release.hold) if has_hold else f"deferred {release.deferred}"
    return f"{release.application} ({images}): {reason}"
