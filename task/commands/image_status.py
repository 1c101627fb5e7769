"""Pure code: what Git says about one image now, what is held there, and which builds were written before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from task.deciding.cautions import file_cautions
from task.deciding.decide import NOTHING, file_of, reading, state_path, states_of
from task.deciding.job import Terms, error_decision
from task.deciding.target import all_live, earlier_reading, resolve, target_of
from task.deciding.weigh import key_of
from task.editors.state_file import read_state
from task.errors import TaskError
from task.forges.marks import Builds, build_key
from task.forges.proposal import proposes
from task.git.names import OURS
from task.landing.ports import Batch, World
from task.model import (
    FileVersion,
    Hold,
    ImageStatus,
    Memory,
    OpenRequest,
    PastBuild,
    Problem,
    Proposed,
    Reading,
    Snapshot,
    Subscription,
)
from task.policy.builds import active, holding, version_of
from task.templates.commit_message import trailer_of
from task.urls import without_login

Versions = Sequence[FileVersion]


def without_git(sub: Subscription) -> ImageStatus:
    """Return what the Application itself says, without Git."""
    hold = Hold(sub.suspended) if sub.suspended else None
    return ImageStatus(sub, branch=sub.base, read=False, live=all_live(sub), hold=hold)


def image_status(snapshot: Snapshot, sub: Subscription, terms: Terms) -> tuple[ImageStatus, tuple[Problem, ...]]:
    """Return what the snapshot says about one image, and the problems with reading it."""
    one, problems = replace(without_git(sub), branch=snapshot.branch), list[Problem]()
    try:
        kind = resolve(sub, snapshot)
        one = replace(one, kind=kind, read=True, in_git=reading(snapshot, sub, terms))
        image = replace(sub.entry.image, tag=one.in_git.tag, digest=one.in_git.digest)
        problems += file_cautions(snapshot.files, sub, kind, image, terms)
    except TaskError as error:
        problems.append(unread(sub, error))
    try:
        states = states_of(snapshot, sub)
        state = states.get(file_of(snapshot, sub, states), NOTHING)
    except TaskError as error:
        return one, (*problems, unread(sub, error))
    memory = state.images.get(key_of(sub), Memory())
    if not one.hold and (hold := holding(state, memory, terms.now)):
        one = replace(one, hold=hold, scope="image" if active(memory.hold, terms.now) else "application")
    if not one.hold and sub.freeze:
        one = replace(one, hold=sub.freeze, scope="freeze")
    return replace(one, deferred=memory.deferred), tuple(problems)


def unread(sub: Subscription, error: TaskError) -> Problem:
    """Return the error about an image that could not be read."""
    verdict = error_decision(sub, sub.entry.image, error).judged
    return Problem(
        application=sub.application.key,
        rule=verdict.rule,
        message=verdict.because,
        hint=verdict.hint,
        exit=verdict.exit,
    )


def paths_of(one: ImageStatus) -> tuple[str, ...]:
    """Return the files whose history says something about an image."""
    state = (state_path(one.subscription),) if one.deferred else ()
    return ((one.in_git.file,) if one.in_git.file else ()) + state


def versions_to_read(builds: int) -> int:
    """Return how many versions of a file to read if so many builds are to be shown: people edit other lines, too."""
    return 3 * builds + 1


def with_history(
    one: ImageStatus, snapshot: Snapshot, versions: Mapping[str, Versions], most: int, terms: Terms
) -> ImageStatus:
    """Add the last builds to an image, at most `most`, and the time at which its event was deferred.

    `versions` are those of `paths_of`, newest first, at most `versions_to_read(most)` of each file.
    """
    builds: tuple[PastBuild, ...] = ()
    sub, path = one.subscription, one.in_git.file
    if path and one.kind:
        target = target_of(sub, one.kind, carry=terms.carry)
        of_file = versions.get(path, ())
        said = ((version, earlier_reading(snapshot.files, target, path, version.text or "")) for version in of_file)
        builds = past_builds(said, most, sub.entry.image.name, cut=len(of_file) == versions_to_read(most))
    since = _deferred_since(one, snapshot, versions.get(state_path(sub), ()))
    return replace(one, builds=builds, deferred_at=since)


def past_builds(
    said: Iterable[tuple[FileVersion, Reading | None]], most: int, image: str = "", *, cut: bool = False
) -> tuple[PastBuild, ...]:
    """Return the last builds, newest first: each different value, with the commit that wrote it.

    `said` has the values of a file's versions, newest first; None is a broken version. `cut`: there are older versions
    that were not read.
    """
    found: list[tuple[Reading, FileVersion]] = []  # a value, and the oldest version that has it
    for version, now in said:
        if now is None:
            continue
        if found and version_of(now) == version_of(found[-1][0]):
            found[-1] = (now, version)
        else:
            found.append((now, version))
            if len([one for one, _ in found if version_of(one)]) > most:
                break
    else:
        if cut:  # an older version, which was not read, may have written the last value
            found = found[:-1]
    return tuple(
        PastBuild(
            now.tag,
            now.digest,
            one.commit,
            one.at,
            one.by,
            without_login(trailer_of(one.message, "Pipeline-Run")),
            proof=without_login(trailer_of(one.message, "Proof", image)),
        )
        for now, one in found
        if version_of(now) and one.commit
    )[:most]


def _deferred_since(one: ImageStatus, snapshot: Snapshot, versions: Versions) -> str:
    """Return the time of the oldest version that has the deferred event, if all newer ones do; "" if unknown."""
    sub, deferred, since = one.subscription, one.deferred, ""
    if deferred is None:
        return ""
    for version in versions:
        try:
            states = read_state(version.text or "")
        except TaskError:
            continue
        memory = states.get(file_of(snapshot, sub, states), NOTHING).images.get(key_of(sub), Memory())
        if memory.deferred is None or version_of(memory.deferred) != version_of(deferred):
            break
        since = version.at
    return since


MOST = 50  # head branches of one repository that are looked up at the forge


def with_requests(rows: list[ImageStatus], batch: Batch, world: World) -> tuple[list[ImageStatus], tuple[Problem, ...]]:
    """Return the rows with the newest open request for their images, and why requests could not be read."""
    repo = batch.asks[0].subscription.repo
    if not rows:
        return rows, ()
    try:
        forge = world.forge(repo)
    except TaskError as error:  # there is no token for it, or no forge at all
        world.log("info", f"open pull requests of {without_login(repo)} are not shown: {error.message}")
        return rows, ()
    try:
        heads = batch.repository.branches(sorted(beginnings(one.subscription for one in rows)))
        asked = [(head, forge.find(batch.base, head)) for head in heads[:MOST]]
    except TaskError as error:
        message = f"open pull requests of {without_login(repo)} are not known: {error.message}"
        return rows, (Problem(rule=error.rule, message=message, hint=error.hint, severity="warning"),)
    if len(heads) > MOST:
        world.log("warning", f"{without_login(repo)}: only {MOST} of {len(heads)} head branches were looked at")
    opened = [(head, one, proposes(one.body)) for head, one in asked if one and one.state == "open"]
    opened.sort(key=lambda found: (len(found[1].number), found[1].number), reverse=True)  # the newest first
    return [_with_request(one, opened) for one in rows], ()


def beginnings(subs: Iterable[Subscription]) -> set[str]:
    """Return the prefixes of head branches that may have a request: ours, and those that `git-branch` names."""
    named = (sub.head_template.partition("{{")[0] for sub in subs if sub.pull_request and sub.head_template)
    return {OURS, *filter(None, named)}


def _with_request(one: ImageStatus, opened: Sequence[tuple[str, Proposed, Builds]]) -> ImageStatus:
    sub = one.subscription
    key = build_key(sub.application.key, sub.entry.alias, sub.entry.image.identity)
    for head, found, builds in opened:
        if proposed := builds.get(key):
            request = OpenRequest(found.url, found.number, head, proposed.tag or version_of(proposed))
            return replace(one, request=request)
    return one
