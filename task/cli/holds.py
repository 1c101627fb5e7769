"""Reads repositories for `lint`: the holds in their state files, and what the written files say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from task.annotations.lint import Finding
from task.annotations.subscription import subscribe
from task.cli.target_findings import local_findings, target_findings
from task.cli.update import scope_of
from task.deciding.decide import NOTHING, file_of, state_path, states_of
from task.deciding.target import resolve, target_of, target_places
from task.editors import EDITORS
from task.errors import TargetError, TaskError
from task.landing.governed import CONFIG
from task.landing.ports import World
from task.model import Application, Place, Snapshot, Subscription
from task.policy.order import version_of
from task.policy.remember import active, hold_text
from task.repository_config.config import governed
from task.repository_config.reading import config_in
from task.settings import Settings

LOCAL = ("/", ".", "file://")  # these URLs need no login


def held(apps: Iterable[Application], settings: Settings, world: World, now: str) -> Iterator[Finding]:
    """Return an info for each hold, an error for each unreadable state file and unusable target, and `target_findings`.

    Repositories that need a login are read only with `--holds`. If one cannot be reached, the log has a warning. Files
    that lie here are read here.
    """
    places: dict[tuple[str, str], list[Subscription]] = {}
    here: list[Subscription] = []
    defaults = scope_of(settings).defaults
    for app in apps:
        for sub in subscribe(app, defaults).subscriptions:
            if settings.lint.holds or (sub.repo.startswith(LOCAL) and "file" in settings.transport.allow_protocol):
                places.setdefault((sub.repo, sub.base), []).append(sub)
            else:
                here.append(sub)
    yield from local_findings(here, world.locate)
    for (repo, base), subs in places.items():
        try:
            yield from _of_repository(repo, base, subs, world, now)
        except TaskError as error:
            world.log("warning", f"its holds are not known: {error}")


def _of_repository(repo: str, base: str, subs: Sequence[Subscription], world: World, now: str) -> Iterator[Finding]:
    repository = world.repository(repo, subs[0])
    try:
        states_and_targets = (place for sub in subs for place in (Place(state_path(sub)), *target_places(sub)))
        snapshot = repository.snapshot(base, (*CONFIG, *dict.fromkeys(states_and_targets)), default=CONFIG)
    finally:
        repository.close()
    yield from _frozen(snapshot, subs, now)
    yield from _unusable(snapshot, subs)
    yield from target_findings(snapshot, subs)
    seen: set[tuple[str, str]] = set()
    for sub in subs:
        key, origin, path = sub.application.key, sub.application.origin, state_path(sub)
        try:
            states = states_of(snapshot, sub)
        except TaskError as error:
            if (path, "") not in seen:
                yield Finding(key, "", "", "error", str(error), error.hint, origin)
            seen.add((path, ""))
            continue
        file = file_of(snapshot, sub, states)
        if (path, file) in seen:
            continue
        seen.add((path, file))
        state = states.get(file, NOTHING)
        within = f" in {file}" if len(states) > 1 else ""
        hint = f"image-update release {key}"
        if hold := active(state.hold, now):
            yield Finding(key, "", "", "info", f"all images{within} are {hold_text(hold)}", hint, origin)
        for name, memory in state.images.items():
            waits = f"{version_of(memory.deferred)} waits" if memory.deferred else ""
            if hold := active(memory.hold, now):
                told = f"{name}{within} is {hold_text(hold)}{f'; {waits}' if waits else ''}"
                yield Finding(key, "", "", "info", told, hint, origin)
            elif waits:
                yield Finding(key, "", "", "info", f"{name}{within}: {waits}", hint, origin)


def _unusable(snapshot: Snapshot, subs: Sequence[Subscription]) -> Iterator[Finding]:
    """Yield an error for each target that cannot be edited as it is now."""
    for sub in (one for one in subs if one.method == "git"):
        try:
            kind = resolve(sub, snapshot)
            EDITORS[kind].read(snapshot.files, target_of(sub, kind))
        except TargetError as error:
            yield Finding(sub.application.key, "", "", "error", str(error), error.hint, sub.application.origin)
        except TaskError:
            continue  # `run` says it, and so do the annotations' own findings


def _frozen(snapshot: Snapshot, subs: Sequence[Subscription], now: str) -> Iterator[Finding]:
    """Yield the freezes of the repository's config that hold now, or the mistake in it."""
    try:
        config = config_in(snapshot.files)
    except TaskError as error:
        yield Finding("", "", "", "error", f"{snapshot.repo}@{snapshot.branch}: {error}", error.hint, "")
        return
    hint = "wait for its end: the first run, release or scan after it writes what waits"
    frozen = {
        (one.application.key, one.application.origin, hold_text(one.freeze)): None
        for one in governed(subs, config, now)
        if one.freeze
    }
    for key, origin, told in frozen:
        yield Finding(key, "", "", "info", f"images are {told}", hint, origin)
