"""Turns an Application into the Subscriptions that its annotations ask for, and finds flaws in these annotations.

An entry with an error gets no Subscription, so that a broken rule never lets a tag through. AIU logs a warning and
continues with another meaning: for example, it uses semver for an unknown strategy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from task.annotations import advice, keys
from task.annotations import keys as annotation
from task.annotations.application import Narrow
from task.annotations.keys import Faulty, Index, Setting, doubts
from task.annotations.write_back import Where, problems, readable, write_backs
from task.errors import Malformed, TaskError
from task.image import cut_ranges, parse_image_list, split_image_list
from task.model import Application, Claim, Entry, Flaw, Keys, Policy, Strategy, Subscribed, Subscription
from task.policy import tag_filter
from task.policy.strategies import STRATEGIES, UNFIT_HINT, unfit_order
from task.policy.tag_order import parse_tag_order
from task.policy.version_range import parse_range

T = TypeVar("T")
MOST_GLOBS = 10  # broken globs of one annotation that are told one by one
BLANK_INDEX = re.compile(r"\[[0-9]*\s[0-9\s]*\]")


@dataclass(frozen=True)
class EntryReading:
    """What one entry asks for, and the flaws in its settings."""

    entry: Entry
    policy: Policy
    keys: Keys
    plugin: Keys  # the same for an Application of a plugin
    flaws: tuple[Flaw, ...]
    broken: bool  # whether there is an error, not only a warning
    managed: tuple[str, ...]  # the names in an override file that belong to this entry
    strategy: Strategy | None = None  # None if the annotation names an unknown strategy


def read_entry(entry: Entry, settings: Mapping[str, Setting], strategy: Strategy, *, pin_digest: bool) -> EntryReading:
    """Return what an entry with these settings asks for. `strategy` and `pin_digest` are the defaults."""
    return _Reader(entry, settings).read(strategy, pin_digest)


class _Reader:
    """Reads the settings of one entry and collects their flaws."""

    def __init__(self, entry: Entry, settings: Mapping[str, Setting]) -> None:
        self.entry = entry
        self.settings = settings
        self.flaws: list[Flaw] = []

    def read(self, default: Strategy, pin_digest: bool) -> EntryReading:  # noqa: FBT001 - the default of a setting
        nothing: tuple[Strategy, str] = ("semver", "")
        strategy, extra = self._try(lambda: self._strategy(default), nothing)
        known = None if any(flaw.severity == "error" for flaw in self.flaws) else strategy
        pin = self._get("pin-digest")
        policy = Policy(
            strategy=strategy,
            constraints=self._try(lambda: self._constraints(strategy, extra), ()),
            allow=self._try(self._allow, None),
            ignore=self._ignore(),
            tag_order=self._try(lambda: self._tag_order(strategy), ""),
            platforms=annotation.platforms(self._get("platforms")),
            pin_digest=self._try(lambda: annotation.boolean(pin) if pin else pin_digest, otherwise=False),
            pull_secret=self._get("pull-secret").value,
        )
        # A strange value causes only a warning, because `force-update` has no effect here. In AIU v1, the whole
        # Application fails.
        try:
            annotation.boolean(self._get("force-update"))
        except Faulty as error:
            self._warn(error.key, error.value, f"{error.value!r} is neither true nor false", error.hint)
        for key in ("helm.image-name", "helm.image-tag", "helm.image-spec", "helm.image-digest"):
            setting = self._get(key)
            if BLANK_INDEX.search(setting.value):
                # AIU and Helm refuse an index with blanks. Here, it would become a key that no file has.
                fixed = BLANK_INDEX.sub(lambda match: "".join(match[0].split()), setting.value)
                message = f"{setting.value!r} has a blank inside an index"
                self.flaws.append(flaw_of(self.entry, Faulty(setting.key, setting.value, message, f"write {fixed}")))
        plugin = Keys(*(self._get(f"plugin.image-{part}").value for part in ("name", "tag", "spec")))
        names = Keys(
            name=self._get("helm.image-name").value,
            tag=self._get("helm.image-tag").value,
            spec=self._get("helm.image-spec").value,
            kustomize_name=self._get("kustomize.image-name").value,
            manifests_name=self._get("manifests.image-name").value,
            digest=self._get("helm.image-digest").value,
        )
        digest = self._get("helm.image-digest")
        if digest and self._get("helm.image-spec"):
            message = "helm.image-digest: the value of helm.image-spec has the digest itself"
            self._fault(digest, message, "remove it, or write helm.image-tag instead of helm.image-spec")
        elif digest and digest.value in (names.tag or "image.tag", names.name or "image.name"):
            self._fault(digest, f"helm.image-digest: {digest.value} has the tag or the name", "name a key of its own")
        # If no annotation names the parameters, AIU's override files have `image.name` and `image.tag`.
        helm: tuple[str, ...] = (names.spec,) if names.spec else (names.name or "image.name", names.tag or "image.tag")
        kustomize = (names.kustomize_name,) if names.kustomize_name else ()
        helm += (names.digest,) if names.digest else ()
        return EntryReading(
            entry=self.entry,
            policy=policy,
            keys=names,
            plugin=plugin,
            flaws=tuple(self.flaws),
            broken=any(flaw.severity == "error" for flaw in self.flaws),
            managed=(
                *helm,
                *filter(None, (plugin.name, plugin.tag, plugin.spec)),
                self.entry.image.identity,
                *kustomize,
            ),
            strategy=known,
        )

    def _get(self, key: str) -> Setting:
        return self.settings.get(key, NONE)

    def _try(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except Faulty as error:
            self.flaws.append(flaw_of(self.entry, error))
            return otherwise

    def _fault(self, setting: Setting, message: str, hint: str) -> None:
        self.flaws.append(Flaw(self.entry.text, self.entry, setting.key, setting.value, message, hint))

    def _warn(self, key: str, value: str, message: str, hint: str) -> None:
        self.flaws.append(Flaw(self.entry.text, self.entry, key, value, f"{key}: {message}", hint, severity="warning"))

    def _strategy(self, default: Strategy) -> tuple[Strategy, str]:
        try:
            return annotation.strategy(self._get("update-strategy"), default, self._warn)
        except Faulty as error:
            error.hint = advice.on_strategy(self.entry, error.key, error.value) or error.hint
            raise

    def _constraints(self, strategy: Strategy, extra: str) -> tuple[str, ...]:
        constraints = tuple(dict.fromkeys(filter(None, (self.entry.constraint, extra))))
        meaning = STRATEGIES[strategy].constraint
        if meaning == "tag" and not self.entry.constraint:
            fix = f"write {self.entry.alias or 'web'}={self.entry.image.name}:<tag>"
            raise Faulty("image-list", self.entry.text, f"the {strategy} strategy needs the tag to follow", fix)
        for text in constraints if meaning == "range" else ():
            if text == self.entry.constraint:
                _checked(Setting("image-list", text), parse_range, lambda: advice.on_constraint(self.entry))
            else:
                _checked(Setting(self._get("update-strategy").key, text), parse_range)
        return constraints

    def _allow(self) -> str | None:
        setting = self._get("allow-tags")
        # `tag-match` is the name before AIU v0.7, and v1 does not read it.
        if not setting and (setting := self._get("tag-match")):
            self._warn(setting.key, setting.value, "tag-match is now called allow-tags", "rename the annotation")
        if not setting:
            return None
        return _checked(
            setting,
            tag_filter.allow_pattern,
            lambda: advice.on_allow_tags(self.entry, setting.key, setting.value),
        )

    def _tag_order(self, strategy: Strategy) -> str:
        setting = self._get("tag-order")
        if not setting:
            return ""
        order = _checked(setting, parse_tag_order).text
        if why := unfit_order(Policy(strategy, tag_order=order)):
            raise Faulty(setting.key, setting.value, why, UNFIT_HINT)
        if not STRATEGIES[strategy].ordered:
            message = f"it has no effect with the strategy {strategy}, whose tags have no order"
            self._warn(setting.key, setting.value, message, "remove it, or write update-strategy: alphabetical")
        return order

    def _ignore(self) -> tuple[str, ...]:
        setting = self._get("ignore-tags")
        globs = tag_filter.split_globs(setting.value) if setting else ()
        broken: list[Faulty] = []
        for glob in dict.fromkeys(globs):
            if len(broken) == MOST_GLOBS:
                message = "there may be more wrong globs"
                broken.append(Faulty(setting.key, setting.value, message, "correct the first ones, and check again"))
                break
            try:
                tag_filter.check_glob(glob)
            except Malformed as error:
                broken.append(Faulty(setting.key, setting.value, error.message, error.hint))
                continue
            if sign := advice.blind_glob(glob):  # AIU accepts it, and so takes tags that somebody wanted to ignore
                message = f"{glob!r} ignores nothing: no tag has {sign!r}"
                broken.append(Faulty(setting.key, setting.value, message, advice.on_blind_glob(glob)))
        self.flaws += [flaw_of(self.entry, error) for error in broken]
        return () if broken else globs


NONE = Setting()


def flaw_of(entry: Entry, error: Faulty) -> Flaw:
    """Return the flaw that an unusable annotation causes in an entry."""
    return Flaw(entry.text, entry, error.key, error.value, str(error), error.hint)


def _checked(setting: Setting, read: Callable[[str], T], advise: Callable[[], str] = str) -> T:
    """Call `read` with the value, and return the result.

    An error becomes a `Faulty` with the key, and with advice if there is any.
    """
    try:
        return read(setting.value)
    except Malformed as error:
        raise Faulty(setting.key, setting.value, error.message, advise() or error.hint) from None


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
