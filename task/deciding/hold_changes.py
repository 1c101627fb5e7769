"""Pure code that compares state files before and after a commit, to find what it changes about holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from task.deciding.decide import is_state_path, state_path
from task.deciding.move import Move
from task.editors.state_file import read_state
from task.model import File, Files, Memory, State
from task.policy.remember import hold_text

NO_FILE = File("", "")


def new_holds(before: Files, after: Files, done: Sequence[Move]) -> list[tuple[tuple[str, str], str, str]]:
    """Return (Application, what is held, reason) for each hold that the base does not have."""
    apps = {state_path(one.subscription): one.subscription.application for one in done}
    found: list[tuple[tuple[str, str], str, str]] = []
    for path, app in apps.items():
        if path not in after:
            continue
        old, new = read_state(before.get(path, NO_FILE).text), read_state(after[path].text)
        for file, state in sorted(new.items()):
            known = old.get(file, State())
            holds = [(app.name, state.hold, known.hold)]
            holds += [
                (key, one.hold, known.images.get(key, Memory()).hold) for key, one in sorted(state.images.items())
            ]
            found += [
                ((app.namespace, app.name), what, hold_text(now)) for what, now, then in holds if now and now != then
            ]
    return found


def hold_changes(before: Files, after: Files) -> Iterator[str]:
    """Yield a line for each state file whose holds or deferred events change. Other changes are left out."""
    for path in sorted(after):
        if is_state_path(path):
            found = _lasting(after[path].text)
            if found != _lasting(before.get(path, NO_FILE).text):
                yield f"{path}: {found}"


def _lasting(text: str) -> str:
    """Return what a state file says about holds and deferred events. Pull requests carry its hash: keep the form."""
    found: list[tuple[object, ...]] = []
    for file, state in sorted(read_state(text).items()):
        images = {
            key: (one.hold, one.deferred and (one.deferred.tag, one.deferred.digest))
            for key, one in sorted(state.images.items())
            if one.hold or one.deferred
        }
        found += [(file, state.hold, images)] if state.hold or images else []
    return repr(found)
