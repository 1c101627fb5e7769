"""Turns an Application into the Subscriptions that its annotations ask for, and finds flaws in these annotations.

An entry with an error gets no Subscription, so that a broken rule never lets a tag through. AIU logs a warning and
continues with another meaning: for example, it uses semver for an unknown strategy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from task.annotations import keys
from task.annotations.entries import EntryReading, read_entry
from task.annotations.keys import Faulty, Index, Setting
from task.annotations.known_keys import doubts
from task.annotations.narrow import Narrow
from task.annotations.write_back import Where, problems, readable, write_backs
from task.errors import Malformed, TaskError
from task.image import cut_ranges, parse_image_list, split_image_list
from task.model import Application, Claim, Entry, Flaw, Strategy, Subscribed, Subscription


@dataclass(frozen=True)
class Defaults:
    """The settings of the command line for all Applications."""

    argocd_namespace: str = "argocd"
    strategy: Strategy = "semver"
    pin_digest: bool = False
    pull_request: bool = False


@dataclass(frozen=True)
class Scope:
    """Which Applications to look for, and what their annotations leave open."""

    prefix: str
    narrow: Narrow
    defaults: Defaults


def subscribe(app: Application, defaults: Defaults = Defaults(), wanted: Collection[str] | None = None) -> Subscribed:
    """Return all Subscriptions of an Application, and every flaw in its annotations.

    There is one Subscription for each entry and write-back target. With `wanted`, there are Subscriptions only for
    images with these identities.
    """
    listed = _image_list(tuple(app.annotations.items()), defaults)
    flaws = list(listed.flaws)
    asked = app.annotations.get("pull-request", "")
    pull_request, wheres = defaults.pull_request, tuple[Where, ...]()
    try:
        if asked:
            pull_request = keys.boolean(Setting("pull-request", asked))
        wheres = write_backs(app, defaults.argocd_namespace)
    except (Faulty, TaskError) as first:
        errors: list[Faulty | TaskError] = list(problems(app, defaults.argocd_namespace))
        if isinstance(first, Faulty) and first.key == "pull-request":
            errors.insert(0, first)
        flaws += [flaw for error in errors for flaw in _of_every_entry(app, listed.entries, error)]
    chosen = [
        reading
        for identity, reading in listed.readable
        if not reading.broken and (wanted is None or identity in wanted)
    ]
    subscriptions = _subscriptions(app, listed, chosen, wheres, pull_request=pull_request)
    return Subscribed(
        app, subscriptions, tuple(replace(flaw, strategy=listed.strategies.get(flaw.text)) for flaw in flaws)
    )


def attempted(
    app: Application, defaults: Defaults = Defaults()
) -> tuple[tuple[EntryReading, ...], tuple[Subscription, ...]]:
    """Return what the entries of an Application ask for, and where, as if it had no mistakes.

    Only `lint` needs this, so that one mistake hides no other. Entries with a misspelt key are left out, because they
    lack the setting of that key.
    """
    listed = _image_list(tuple(app.annotations.items()), defaults)
    readings = tuple(one for _, one in listed.readable)
    wheres = readable(app, defaults.argocd_namespace)
    return readings, _subscriptions(app, listed, readings, wheres, pull_request=False)


def _subscriptions(
    app: Application,
    listed: _ImageList,
    readings: Iterable[EntryReading],
    wheres: Sequence[Where],
    *,
    pull_request: bool,
) -> tuple[Subscription, ...]:
    return tuple(
        Subscription(
            application=app,
            entry=reading.entry,
            # A signature belongs to a digest, so the digest has to be written.
            policy=replace(reading.policy, pin_digest=True) if key else reading.policy,
            keys=reading.plugin if where.of_plugin else reading.keys,
            source=where.source,
            target=where.target,
            path=where.path,
            repo=where.repo,
            base=where.base,
            head_template=where.head_template,
            method="argocd" if where.method == "argocd" else "git",
            credentials=where.credentials,
            fallbacks=where.fallbacks,
            managed=listed.managed,
            claims=listed.claims,
            pull_request=pull_request,
            home=where.home,
            signed_by=key,
        )
        for reading in readings
        for key in (app.signing_keys.get(reading.entry.alias) or app.signing_keys.get(""),)
        for where in wheres
    )


def _of_every_entry(app: Application, entries: Sequence[Entry], error: Faulty | TaskError) -> list[Flaw]:
    """Return one flaw for each entry.

    If no entry can be parsed, return one flaw without an entry for a broken annotation.
    """
    if isinstance(error, Faulty):
        flaw = Flaw("", None, error.key, error.value, str(error), error.hint)
        return [replace(flaw, text=entry.text, entry=entry) for entry in entries] or [flaw]
    target = app.annotations.get("write-back-target", "")
    key = "write-back-target" if target else ""
    return [Flaw(entry.text, entry, key, target, error.message, error.hint, error.rule) for entry in entries]


@dataclass(frozen=True)
class _ImageList:
    """What a set of annotations asks for, except where it is written."""

    entries: tuple[Entry, ...]
    # The identity and the entry of each image, without entries that have a misspelt key.
    readable: tuple[tuple[str, EntryReading], ...]
    managed: tuple[str, ...]
    claims: tuple[Claim, ...]
    flaws: tuple[Flaw, ...]
    strategies: Mapping[str, Strategy | None]  # by the entries' texts


@lru_cache(maxsize=4096)  # the Applications of one generator have the same annotations
def _image_list(annotations: tuple[tuple[str, str], ...], defaults: Defaults) -> _ImageList:
    by_key = dict(annotations)
    text = by_key.get("image-list", "")
    pieces, cut = split_image_list(text), cut_ranges(text)
    parsed = zip(pieces, parse_image_list(text), strict=True)
    listed = tuple(one for number, one in enumerate(parsed) if number not in cut)
    halves = {pieces[owner]: [pieces[rest] for rest in cut if cut[rest] == owner] for owner in cut.values()}
    entries = tuple(parsed for _, parsed in listed if isinstance(parsed, Entry))
    aliases = frozenset(name for entry in entries if entry.alias for name in keys.prefixes(entry))
    index = keys.index(by_key)
    readings = tuple(
        read_entry(
            entry,
            keys.settings(index, keys.prefixes(entry, aliases)),
            defaults.strategy,
            pin_digest=defaults.pin_digest,
        )
        for entry in entries
    )
    readings = tuple(replace(one, broken=one.broken or one.entry.text in halves) for one in readings)
    managed = tuple(dict.fromkeys(name for reading in readings for name in reading.managed))
    claims = tuple(
        Claim(reading.entry.alias, reading.entry.image.identity, one.tag, one.kustomize_name, one.manifests_name)
        for reading in readings
        for one in [reading.keys]
        if len(readings) > 1  # claims decide which of several entries owns a place
    )
    misspelt = _misspelt(by_key, entries, aliases, index)
    stopped = {flaw.text for flaw in misspelt}
    unstopped = tuple(
        (reading.entry.image.identity, reading) for reading in readings if reading.entry.text not in stopped
    )
    unreadable = (
        Flaw(text, None, "image-list", text, f"image-list: {error.message}", error.hint)
        for text, error in listed
        if isinstance(error, Malformed)
    )
    halved = (
        Flaw(
            entry.text,
            entry,
            "image-list",
            text,
            f"{halves[entry.text][0]!r} follows a comma: a comma ends an entry",
            f"join constraints with a blank: {' '.join((entry.text, *halves[entry.text]))}",
        )
        for entry in entries
        if entry.text in halves
    )
    flaws = (*unreadable, *halved, *misspelt, *(flaw for reading in readings for flaw in reading.flaws))
    strategies = {reading.entry.text: reading.strategy for reading in readings}
    return _ImageList(entries, unstopped, managed, claims, flaws, strategies)


def _misspelt(
    annotations: Mapping[str, str], entries: Sequence[Entry], aliases: frozenset[str], index: Index
) -> list[Flaw]:
    """Return the flaws for misspelt rules and places. Each one stops every entry that it would govern.

    AIU ignores a misspelt `allow-tags`, and lets every tag through.
    """
    flaws = []
    for key, doubt in doubts(annotations):
        value = annotations[key]
        if not doubt.governs or not value:
            continue
        for entry in entries:
            names = keys.prefixes(entry, aliases)
            own = any(name in index.get(doubt.meant, ()) for name in names)  # hides the Application-wide form
            if doubt.name in names or (not doubt.name and not own):
                flaws.append(Flaw(entry.text, entry, key, value, doubt.message, doubt.hint, misspelt=True))
    return flaws
