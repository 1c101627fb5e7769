"""What is held, for `lint` to show: asked of the repositories' state files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from task.decide import state_of, state_path
from task.errors import TaskError
from task.lint import Finding
from task.model import Application, Place, Subscription
from task.orders import scope_of
from task.parse.subscription import subscribe
from task.rules.order import version_of
from task.rules.remember import active, said
from task.settings import Settings
from task.world import Edges

LOCAL = ("/", ".", "file://")  # reached without a login


def held(apps: Iterable[Application], settings: Settings, edges: Edges, now: str) -> Iterator[Finding]:
    """An info for everything that is held, and an error for a state file that nobody can read.

    Local repositories are asked; others with `--holds`. One that cannot be reached is said in the log.
    """
    places: dict[tuple[str, str], dict[str, Subscription]] = {}
    defaults = scope_of(settings).defaults
    for app in apps:
        for sub in subscribe(app, defaults).subscriptions:
            if settings.holds or (sub.repo.startswith(LOCAL) and "file" in settings.git.protocols):
                places.setdefault((sub.repo, sub.base), {}).setdefault(app.key, sub)
    for (repo, base), subs in places.items():
        try:
            yield from _of_repository(repo, base, subs, edges, now)
        except TaskError as error:
            edges.log("warning", f"what is held in it is not known: {error}")


def _of_repository(repo: str, base: str, subs: Mapping[str, Subscription], edges: Edges, now: str) -> Iterator[Finding]:
    store = edges.store(repo, next(iter(subs.values())))
    try:
        snapshot = store.snapshot(base, tuple(Place(state_path(sub)) for sub in subs.values()))
    finally:
        store.close()
    for key, sub in subs.items():
        origin = sub.application.origin
        try:
            state = state_of(snapshot, sub)
        except TaskError as error:
            yield Finding(key, "", "", "error", str(error), error.hint, origin)
            continue
        hint = f"image-update release {key}"
        if hold := active(state.hold, now):
            yield Finding(key, "", "", "info", f"all images are {said(hold)}", hint, origin)
        for name, memory in state.images.items():
            waits = f"{version_of(memory.deferred)} waits" if memory.deferred else ""
            if hold := active(memory.hold, now):
                yield Finding(
                    key, "", "", "info", f"{name} is {said(hold)}{f'; {waits}' if waits else ''}", hint, origin
                )
            elif waits:
                yield Finding(key, "", "", "info", f"{name}: {waits}", hint, origin)
