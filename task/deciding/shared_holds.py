"""Pure code for holds that another Application has: a hold covers a place, whichever Application writes there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from task.deciding.decide import state_of
from task.deciding.job import Terms
from task.deciding.target import resolve, target_of
from task.deciding.weigh import key_of
from task.editors import EDITORS
from task.errors import TaskError
from task.model import Hold, Memory, Snapshot, Subscription
from task.policy.remember import holding, stricter

Identity = tuple[str, str, str, str, str]  # of a subscription


def holds_of_others(snapshot: Snapshot, subs: Iterable[Subscription], terms: Terms) -> Mapping[Identity, Hold]:
    """Return the hold of another Application for each of these that writes the same key of the same file."""
    groups: dict[tuple[str, str], dict[Identity, Subscription]] = {}
    for sub in subs:
        groups.setdefault((sub.target, sub.path), {})[sub.identity] = sub
    found: dict[Identity, Hold] = {}
    for group in groups.values():
        if len({sub.application.key for sub in group.values()}) < 2:
            continue
        holds = [(sub, hold) for sub in group.values() if (hold := _hold(snapshot, sub, terms))]
        held = [(sub, hold, _places(snapshot, sub, terms)) for sub, hold in holds]
        for identity, sub in group.items() if held else ():
            app, own = sub.application.key, _places(snapshot, sub, terms)
            for other, hold, places in held:
                if other.application.key != app and own & places:
                    because = replace(hold, reason=f"{hold.reason} (a hold of {other.application.key})")
                    found[identity] = stricter(found.get(identity), because) or because
    return found


def _hold(snapshot: Snapshot, sub: Subscription, terms: Terms) -> Hold | None:
    try:
        state = state_of(snapshot, sub)
    except TaskError:  # it is told when the decision is made
        return None
    return holding(state, state.images.get(key_of(sub), Memory()), terms.now)


def _places(snapshot: Snapshot, sub: Subscription, terms: Terms) -> set[tuple[str, str]]:
    """Return the files and keys that an update writes."""
    try:
        kind = resolve(sub, snapshot)
        another = replace(sub.entry.image, tag="another", digest="")
        edits = EDITORS[kind].write(snapshot.files, target_of(sub, kind, carry=terms.carry), another)[1]
        return {(edit.path, edit.key) for edit in edits}
    except TaskError:
        return set()
