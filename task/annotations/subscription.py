"""Application → the Subscriptions that its annotations ask for, and everything that is wrong with them.

An entry with an error gets no Subscription: a broken rule never lets a tag through. AIU logs a warning and goes on
with another meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from task.annotations import keys
from task.annotations.entries import EntryReading, read_entry
from task.annotations.keys import Faulty, Index, Setting
from task.annotations.known_keys import doubts
from task.annotations.write_back import Where, problems, write_backs
from task.errors import Malformed, TaskError
from task.image import parse_image_list, split_image_list
from task.model import Application, Claim, Entry, Flaw, Strategy, Subscribed, Subscription


@dataclass(frozen=True)
class Defaults:
    """What the command line says for all Applications."""

    argocd_namespace: str = "argocd"
    strategy: Strategy = "semver"
    pin_digest: bool = False
    pull_request: bool = False


def subscribe(app: Application, defaults: Defaults = Defaults(), wanted: Collection[str] | None = None) -> Subscribed:
    """All Subscriptions of an Application (entry × write-back target), and every flaw of its annotations.

    `wanted`: identities of images; Subscriptions are made for these only.
    """
    listed = _image_list(tuple(app.annotations.items()), defaults)
    flaws = list(listed.flaws)
    said = app.annotations.get("pull-request", "")
    pull_request, wheres = defaults.pull_request, tuple[Where, ...]()
    try:
        if said:
            pull_request = keys.boolean(Setting("pull-request", said))
        wheres = write_backs(app, defaults.argocd_namespace)
    except (Faulty, TaskError) as first:
        found: list[Faulty | TaskError] = list(problems(app, defaults.argocd_namespace))
        if isinstance(first, Faulty) and first.key == "pull-request":
            found.insert(0, first)
        flaws += [flaw for error in found for flaw in _of_every_entry(app, listed.entries, error)]
    subscriptions = tuple(
        Subscription(
            application=app,
            entry=one.entry,
            policy=one.policy,
            keys=one.keys,
            source=where.source,
            target=where.target,
            path=where.path,
            repo=where.repo,
            base=where.base,
            head=where.head,
            method="argocd" if where.method == "argocd" else "git",
            credentials=where.credentials,
            fallbacks=where.fallbacks,
            managed=listed.managed,
            claims=listed.claims,
            pull_request=pull_request,
            home=where.home,
        )
        for identity, one in listed.sound
        if wanted is None or identity in wanted
        for where in wheres
    )
    return Subscribed(
        app, subscriptions, tuple(replace(flaw, strategy=listed.strategies.get(flaw.text)) for flaw in flaws)
    )


def _of_every_entry(app: Application, entries: Sequence[Entry], error: Faulty | TaskError) -> list[Flaw]:
    """One flaw for every entry; a broken annotation is one even where no entry can be read."""
    if isinstance(error, Faulty):
        flaw = Flaw("", None, error.key, error.value, str(error), error.hint)
        return [replace(flaw, text=entry.text, entry=entry) for entry in entries] or [flaw]
    target = app.annotations.get("write-back-target", "")
    key = "write-back-target" if target else ""
    return [Flaw(entry.text, entry, key, target, error.message, error.hint, error.rule) for entry in entries]


@dataclass(frozen=True)
class _ImageList:
    """What a set of annotations asks for, wherever it is written to."""

    entries: tuple[Entry, ...]
    sound: tuple[tuple[str, EntryReading], ...]  # by their images' identities
    managed: tuple[str, ...]
    claims: tuple[Claim, ...]
    flaws: tuple[Flaw, ...]
    strategies: Mapping[str, Strategy | None]  # by the entries' texts


@lru_cache(maxsize=4096)  # the Applications of one generator carry the same annotations
def _image_list(annotations: tuple[tuple[str, str], ...], defaults: Defaults) -> _ImageList:
    found = dict(annotations)
    text = found.get("image-list", "")
    listed = tuple(zip(split_image_list(text), parse_image_list(text), strict=True))
    entries = tuple(one for _, one in listed if isinstance(one, Entry))
    aliases = frozenset(name for one in entries if one.alias for name in keys.prefixes(one))
    index = keys.index(found)
    readings = tuple(
        read_entry(
            entry,
            keys.settings(index, keys.prefixes(entry, aliases)),
            defaults.strategy,
            pin_digest=defaults.pin_digest,
        )
        for entry in entries
    )
    managed = tuple(dict.fromkeys(name for one in readings for name in one.managed))
    claims = tuple(
        Claim(one.entry.alias, one.entry.image.identity, one.keys.kustomize_name, one.keys.manifests_name)
        for one in readings
        if len(readings) > 1
    )
    misspelt = _misspelt(found, entries, aliases, index)
    stopped = {flaw.text for flaw in misspelt}
    sound = tuple(
        (one.entry.image.identity, one) for one in readings if not one.broken and one.entry.text not in stopped
    )
    unreadable = (
        Flaw(text, None, "image-list", text, f"image-list: {error.message}", error.hint)
        for text, error in listed
        if isinstance(error, Malformed)
    )
    flaws = (*unreadable, *misspelt, *(flaw for one in readings for flaw in one.flaws))
    return _ImageList(entries, sound, managed, claims, flaws, {one.entry.text: one.strategy for one in readings})


def _misspelt(found: Mapping[str, str], entries: Sequence[Entry], aliases: frozenset[str], index: Index) -> list[Flaw]:
    """A misspelt rule or place stops every entry that it would govern: nobody knows which tag it should refuse."""
    flaws = []
    for key, one in doubts(found):
        if not one.governs or not found[key]:
            continue
        for entry in entries:
            names = keys.prefixes(entry, aliases)
            own = any(name in index.get(one.meant, ()) for name in names)  # hides the form for the whole Application
            if one.name in names or (not one.name and not own):
                flaws.append(Flaw(entry.text, entry, key, found[key], one.message, one.hint, misspelt=True))
    return flaws
