"""Turns an Application's annotations into Subscriptions, and finds flaws in them.

An entry with an error does not get a Subscription, so that a broken rule never lets a tag through.
AIU logs a warning and continues with a different rule: for example, it uses semver if the strategy
is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import TypeVar

from task.annotations import advice, keys
from task.annotations.application import Narrow
from task.annotations.keys import DEPRECATED, Faulty, Index, Setting, doubts, read_image_list
from task.annotations.write_back import TARGET, Where, write_backs
from task.errors import Malformed, TaskError, Trouble
from task.model import (
    Application,
    Claim,
    Entry,
    Flaw,
    Keys,
    Policy,
    Strategy,
    Subscribed,
    Subscription,
)
from task.policy import tag_filter
from task.policy.judge import is_platform, meant_platforms
from task.policy.strategies import STRATEGIES, UNFIT_HINT, parse_tag_order, unfit_order
from task.policy.version_range import parse_range

T = TypeVar("T")
PLATFORM_HINT = "use <os>/<architecture>[/<variant>], such as linux/arm64"
MOST_GLOBS = 10  # broken globs reported individually per annotation
BLANK_INDEX = re.compile(r"\[[0-9]*\s[0-9\s]*\]")


@dataclass(frozen=True)
class Defaults:
    """The command-line settings that apply to all Applications."""

    argocd_namespace: str = "argocd"
    strategy: Strategy = "semver"
    pin_digest: bool = False
    pull_request: bool = False


@dataclass(frozen=True)
class Scope:
    """The Applications to consider, and the defaults for their annotations."""

    prefix: str
    narrow: Narrow
    defaults: Defaults


def subscribe(
    app: Application,
    defaults: Defaults = Defaults(),
    wanted: Collection[str] | None = None,
) -> Subscribed:
    """Return all Subscriptions of an Application, and every flaw in its annotations.

    There is one Subscription for each entry and write-back target. With `wanted`, only images with
    these identities get Subscriptions.
    """
    annotated = _read_annotations(tuple(app.annotations.items()), defaults)
    targets, errors = write_backs(app, defaults.argocd_namespace)
    pull_request = defaults.pull_request
    annotation = app.annotations.get("pull-request", "")
    if annotation:
        try:
            pull_request = keys.boolean(Setting("pull-request", annotation))
        except Faulty as error:
            errors.insert(0, error)

    flaws = list(annotated.flaws)
    for fault in errors:
        flaws += _flaws_of_entries(app, annotated.readings, fault)

    subscriptions: tuple[Subscription, ...] = ()
    if not errors:
        readings = [reading for reading in annotated.usable if not reading.broken]
        if wanted is not None:
            readings = [reading for reading in readings if reading.entry.image.identity in wanted]
        subscriptions = _subscriptions_for(
            app, annotated, readings, targets, pull_request=pull_request
        )
    strategies = {reading.entry.text: reading.strategy for reading in annotated.readings}
    return Subscribed(
        app,
        subscriptions,
        tuple(replace(flaw, strategy=strategies.get(flaw.text)) for flaw in flaws),
    )


def attempted(
    app: Application,
    defaults: Defaults = Defaults(),
) -> tuple[tuple[EntryReading, ...], tuple[Subscription, ...]]:
    """Return the entries' settings, and the subscriptions that an Application would have if its
    annotations had no mistakes.

    Only `lint` needs this, so that one mistake does not hide another. Entries with a misspelled key
    are skipped, because they lack that setting.
    """
    annotated = _read_annotations(tuple(app.annotations.items()), defaults)
    targets, _ = write_backs(app, defaults.argocd_namespace)
    subscriptions = _subscriptions_for(
        app, annotated, annotated.usable, targets, pull_request=False
    )
    return annotated.usable, subscriptions


def _subscriptions_for(
    app: Application,
    annotated: _Annotated,
    readings: Iterable[EntryReading],
    targets: Sequence[Where],
    *,
    pull_request: bool,
) -> tuple[Subscription, ...]:
    """Return one Subscription for each of these entries and write-back targets."""
    subscriptions: list[Subscription] = []
    for reading in readings:
        signing_key = app.signing_keys.get(reading.entry.alias) or app.signing_keys.get("")
        policy = reading.policy
        if signing_key:  # a signature covers a digest, so the digest must be written
            policy = replace(policy, pin_digest=True)
        subscriptions += [
            Subscription(
                application=app,
                entry=reading.entry,
                policy=policy,
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
                managed=annotated.managed,
                claims=annotated.claims,
                pull_request=pull_request,
                home=where.home,
                beside=where.beside,
                signed_by=signing_key,
            )
            for where in targets
        ]
    return tuple(subscriptions)


def _flaws_of_entries(
    app: Application,
    readings: Sequence[EntryReading],
    error: Faulty | TaskError,
) -> list[Flaw]:
    """Return an error in the Application's annotations or source as one flaw for each entry.

    If no entry can be parsed, return a single flaw without an entry for a broken annotation, and
    none for a broken source.
    """
    if isinstance(error, Faulty):
        trouble = Trouble("annotation", str(error), error.hint)
        key = error.key
        value = error.value
    else:
        trouble = Trouble(error.rule, error.message, error.hint)
        value = app.annotations.get(TARGET, "")
        key = TARGET if value else ""
    if not readings and isinstance(error, Faulty):
        return [Flaw("", None, key, value, trouble)]
    return [Flaw(reading.entry.text, reading.entry, key, value, trouble) for reading in readings]


@dataclass(frozen=True)
class EntryReading:
    """An entry's settings, and their flaws."""

    entry: Entry
    policy: Policy
    keys: Keys
    plugin: Keys  # the same keys for an Application that uses a plugin
    flaws: tuple[Flaw, ...]
    broken: bool  # whether any flaw is an error rather than a warning
    managed: tuple[str, ...]  # the names in an override file that this entry manages
    strategy: Strategy | None = None  # None if the annotation sets an unknown strategy


@dataclass(frozen=True)
class _Annotated:
    """All settings in a set of annotations, except where to write."""

    readings: tuple[EntryReading, ...]
    usable: tuple[EntryReading, ...]  # excludes entries that have a misspelled key
    managed: tuple[str, ...]
    claims: tuple[Claim, ...]
    flaws: tuple[Flaw, ...]


@lru_cache(maxsize=4096)  # Applications from the same generator have the same annotations
def _read_annotations(annotations: tuple[tuple[str, str], ...], defaults: Defaults) -> _Annotated:
    """Read the annotations, given as (key, value), except where to write."""
    by_key = dict(annotations)
    image_list = read_image_list(by_key.get("image-list", ""))
    index = keys.index(by_key)
    flaws = []
    for text, error in image_list.unreadable:
        trouble = Trouble("annotation", f"image-list: {error.message}", error.hint)
        flaws.append(Flaw(text, None, "image-list", text, trouble))

    readings = []
    for entry in image_list.entries:
        settings = keys.settings(index, image_list.prefixes(entry))
        reading = EntryReader(entry, settings, defaults).read()
        cut_off = image_list.cut.get(entry.text)
        if cut_off:
            reading = replace(reading, broken=True)
            message = f"{cut_off[0]!r} follows a comma, but commas separate entries"
            hint = f"separate constraints with a space: {' '.join((entry.text, *cut_off))}"
            trouble = Trouble("annotation", message, hint)
            flaws.append(Flaw(entry.text, entry, "image-list", by_key["image-list"], trouble))
        readings.append(reading)

    misspelled = _misspelled_flaws(by_key, index)
    blocked_entries = {flaw.text for flaw in misspelled}
    usable = [reading for reading in readings if reading.entry.text not in blocked_entries]
    flaws += misspelled
    for reading in readings:
        flaws += reading.flaws
    managed = chain.from_iterable(reading.managed for reading in readings)
    return _Annotated(
        readings=tuple(readings),
        usable=tuple(usable),
        managed=tuple(dict.fromkeys(managed)),
        # claims matter only if several entries could own a place
        claims=tuple(map(_claim_of, readings)) if len(readings) > 1 else (),
        flaws=tuple(flaws),
    )


def _claim_of(reading: EntryReading) -> Claim:
    """Return the names under which an entry's image is written."""
    return Claim(
        alias=reading.entry.alias,
        identity=reading.entry.image.identity,
        tag=reading.keys.tag,
        kustomize_name=reading.keys.kustomize_name,
        manifests_name=reading.keys.manifests_name,
    )


def _misspelled_flaws(annotations: Mapping[str, str], index: Index) -> list[Flaw]:
    """Return the flaws for misspelled rules and places.

    Each misspelled key blocks every entry it would apply to.

    AIU ignores a misspelled `allow-tags` and lets every tag through.
    """
    image_list = read_image_list(annotations.get("image-list", ""))
    flaws = []
    for key, doubt in doubts(annotations):
        value = annotations[key]
        if not doubt.governs or not value:
            continue
        prefixes_with_setting = index.get(doubt.meant, {})
        for entry in image_list.entries:
            own_prefixes = image_list.prefixes(entry)
            if doubt.name:
                applies = doubt.name in own_prefixes
            else:  # an entry's own setting overrides the Application-wide form
                applies = prefixes_with_setting.keys().isdisjoint(own_prefixes)
            if applies:
                flaws.append(Flaw(entry.text, entry, key, value, doubt.trouble, misspelled=True))
    return flaws


class EntryReader:
    """Reads an entry's settings, and collects their flaws."""

    def __init__(self, entry: Entry, settings: Mapping[str, Setting], defaults: Defaults) -> None:
        self.entry = entry
        self.settings = settings
        self.defaults = defaults
        self.flaws: list[Flaw] = []

    def read(self) -> EntryReading:
        """Return the entry's settings. A setting with a flaw gets its default value."""
        default: tuple[Strategy, str] = ("semver", "")
        strategy, strategy_range = self._try(self._strategy, default)
        known_strategy = None if self._has_errors() else strategy
        policy = Policy(
            strategy=strategy,
            constraints=self._try(lambda: self._constraints(strategy, strategy_range), ()),
            allow=self._try(self._allow, None),
            ignore=self._ignore(),
            tag_order=self._try(lambda: self._tag_order(strategy), ""),
            platforms=self._platforms(),
            pin_digest=self._try(self._pin_digest, otherwise=False),
            pull_secret=self.settings["pull-secret"].value,
        )

        # An invalid value causes only a warning, because `force-update` has no effect here. In AIU
        # v1, the whole Application fails.
        try:
            keys.boolean(self.settings["force-update"])
        except Faulty as error:
            self._warn(error, f"{error.value!r} is neither true nor false", error.hint)

        values = {key: setting.value for key, setting in self.settings.items()}
        plugin = Keys(
            name=values["plugin.image-name"],
            tag=values["plugin.image-tag"],
            spec=values["plugin.image-spec"],
        )
        names = Keys(
            name=values["helm.image-name"],
            tag=values["helm.image-tag"],
            spec=values["helm.image-spec"],
            kustomize_name=values["kustomize.image-name"],
            manifests_name=values["manifests.image-name"],
            digest=values["helm.image-digest"],
        )
        self._check_helm_keys(names)
        return EntryReading(
            entry=self.entry,
            policy=policy,
            keys=names,
            plugin=plugin,
            flaws=tuple(self.flaws),
            broken=self._has_errors(),
            managed=self._managed_names(names, plugin),
            strategy=known_strategy,
        )

    def _has_errors(self) -> bool:
        """Return whether any flaw found so far is an error rather than a warning."""
        return any(flaw.severity == "error" for flaw in self.flaws)

    def _managed_names(self, names: Keys, plugin: Keys) -> tuple[str, ...]:
        """Return the names in an override file that belong to this entry."""
        # If no annotation sets the parameters, AIU writes `image.name` and `image.tag` to its
        # override files.
        if names.spec:
            helm_names = [names.spec]
        else:
            helm_names = [names.name or "image.name", names.tag or "image.tag"]
        managed = (
            *helm_names,
            names.digest,
            plugin.name,
            plugin.tag,
            plugin.spec,
            self.entry.image.identity,
            names.kustomize_name,
        )
        return tuple(name for name in managed if name)

    def _check_helm_keys(self, names: Keys) -> None:
        """Add a flaw for a space inside an index, and for a digest key that is used twice."""
        for key in ("helm.image-name", "helm.image-tag", "helm.image-spec", "helm.image-digest"):
            setting = self.settings[key]
            if BLANK_INDEX.search(setting.value):
                # AIU and Helm reject an index with spaces. Here, it would become a key that does
                # not exist in any file.
                fixed = BLANK_INDEX.sub(lambda match: "".join(match[0].split()), setting.value)
                message = f"{setting.key}: {setting.value!r} has a space inside an index"
                self._fault(setting, message, f"use {fixed}")

        digest = self.settings["helm.image-digest"]
        if not digest:
            return
        if names.spec:
            message = "helm.image-digest: the value of helm.image-spec already includes the digest"
            hint = "remove it, or use helm.image-tag instead of helm.image-spec"
            self._fault(digest, message, hint)
        elif digest.value in (names.tag or "image.tag", names.name or "image.name"):
            message = (
                f"helm.image-digest: {digest.value} is already the key for the tag or the name"
            )
            self._fault(digest, message, "use a separate key")

    def _try(self, read: Callable[[], T], otherwise: T) -> T:
        """Return the result of `read`. If it raises `Faulty`, add a flaw and return `otherwise`."""
        try:
            return read()
        except Faulty as error:
            self._fault(error, str(error), error.hint)
            return otherwise

    def _fault(self, setting: Setting | Faulty, message: str, hint: str) -> None:
        self._add(setting.key, setting.value, Trouble("annotation", message, hint))

    def _warn(self, setting: Setting | Faulty, message: str, hint: str) -> None:
        warning = Trouble.warning("annotation", f"{setting.key}: {message}", hint)
        self._add(setting.key, setting.value, warning)

    def _add(self, key: str, value: str, trouble: Trouble) -> None:
        self.flaws.append(Flaw(self.entry.text, self.entry, key, value, trouble))

    def _strategy(self) -> tuple[Strategy, str]:
        """Return the canonical strategy, and the constraint in `semver:<constraint>` or "".

        Raises `Faulty` for an unknown strategy. AIU logs a warning and uses semver.
        """
        setting = self.settings["update-strategy"]
        if not setting:
            return self.defaults.strategy, ""
        by_name: dict[str, Strategy] = {strategy: strategy for strategy in STRATEGIES}

        # guides show `semver:1.6.x`; AIU reads plain semver
        before_colon, _, constraint = setting.value.partition(":")
        strategy = by_name.get(before_colon.strip().lower())
        if strategy and STRATEGIES[strategy].constraint == "range":
            return strategy, constraint.strip()

        name = setting.value.lower()
        strategy = DEPRECATED.get(name) or by_name.get(name)
        if strategy is None:
            advised = advice.on_strategy(self.entry, setting.key, setting.value)
            hint = advised or f"use one of {', '.join(STRATEGIES)}"
            raise setting.wrong(f"unknown update strategy {setting.value!r}", hint)
        if name in DEPRECATED:
            message = f"the strategy {setting.value!r} is now called {strategy!r}"
            self._warn(setting, message, f"use {strategy}")
        return strategy, ""

    def _pin_digest(self) -> bool:
        """Return whether the digest is written too. Raises `Faulty`."""
        setting = self.settings["pin-digest"]
        return keys.boolean(setting) if setting else self.defaults.pin_digest

    def _constraints(self, strategy: Strategy, strategy_range: str) -> tuple[str, ...]:
        """Return the constraints in `image-list` and in `semver:<constraint>`. Raises `Faulty` if
        they do not fit the strategy.
        """
        entry_constraint = self.entry.constraint
        meaning = STRATEGIES[strategy].constraint
        if meaning == "tag" and not entry_constraint:
            fix = f"use {self.entry.alias or 'web'}={self.entry.image.name}:<tag>"
            message = f"the {strategy} strategy needs a tag to follow"
            raise Faulty("image-list", self.entry.text, message, fix)
        if meaning == "range":  # check that both are ranges
            if entry_constraint:
                setting = Setting("image-list", entry_constraint)
                _read_setting(setting, parse_range, lambda: advice.on_constraint(self.entry))
            if strategy_range not in ("", entry_constraint):
                setting = Setting(self.settings["update-strategy"].key, strategy_range)
                _read_setting(setting, parse_range)
        if entry_constraint and not meaning:
            self._warn_of_constraint(strategy)
        distinct = dict.fromkeys((entry_constraint, strategy_range))
        return tuple(constraint for constraint in distinct if constraint)

    def _warn_of_constraint(self, strategy: Strategy) -> None:
        """Add a warning that the constraint has no effect (AIU issues 580 and 1100)."""
        entry = self.entry
        message = f"{entry.text!r}: {strategy} accepts every tag and ignores {entry.constraint!r}"
        hint = advice.on_ignored_constraint(entry)
        self._add("image-list", entry.text, Trouble.warning("annotation", message, hint))

    def _platforms(self) -> tuple[str, ...]:
        """Return the wanted platforms. An impossible platform name does not let any tag through."""
        setting = self.settings["platforms"]
        if not setting:
            return ()
        names = keys.platforms(setting)
        value = setting.value
        if not names:
            self._platform_fault(f"{value!r} is not a platform, so no image can match it")
        elif value != value.lower():  # the comparison is case-sensitive, as in AIU
            message = f"platforms are lowercase, so no image can match {value!r}"
            self._platform_fault(message, f"use {value.lower()}")

        for name in names:
            if not is_platform(name):
                self._platform_fault(f"{name!r} is not a platform, so no image can match it")
                continue
            similar_platforms = meant_platforms(name) if name == name.lower() else ()
            if similar_platforms:
                message = f"{name!r} has an unknown architecture, so no image can match it"
                self._platform_fault(message, f"use {' or '.join(similar_platforms)}")
        return names

    def _platform_fault(self, message: str, hint: str = PLATFORM_HINT) -> None:
        setting = self.settings["platforms"]
        self._fault(setting, f"{setting.key}: {message}", hint)

    def _allow(self) -> str | None:
        """Return the pattern in `allow-tags`, or None if no annotation sets it. Raises `Faulty`."""
        setting = self.settings["allow-tags"]
        if not setting:
            # `tag-match` was the name before AIU v0.7; v1 does not read it.
            setting = self.settings["tag-match"]
            if not setting:
                return None
            self._warn(setting, "tag-match is now called allow-tags", "rename the annotation")
        advise = partial(advice.on_allow_tags, self.entry, setting.key, setting.value)
        return _read_setting(setting, tag_filter.allow_pattern, advise)

    def _tag_order(self, strategy: Strategy) -> str:
        """Return the value of `tag-order`, or "". Raises `Faulty` if it does not fit the
        strategy.
        """
        setting = self.settings["tag-order"]
        if not setting:
            return ""
        order = _read_setting(setting, parse_tag_order).text
        why_unfit = unfit_order(Policy(strategy, tag_order=order))
        if why_unfit:
            raise setting.wrong(why_unfit, UNFIT_HINT)
        if not STRATEGIES[strategy].ordered:
            message = f"it has no effect with the strategy {strategy}, whose tags have no order"
            self._warn(setting, message, "remove it, or use update-strategy: alphabetical")
        return order

    def _ignore(self) -> tuple[str, ...]:
        """Return the globs of tags to ignore. If a glob is broken, add a flaw for each broken one,
        and return ().
        """
        setting = self.settings["ignore-tags"]
        globs = tag_filter.split_globs(setting.value) if setting else ()
        errors: list[Faulty] = []
        for glob in dict.fromkeys(globs):
            if len(errors) == MOST_GLOBS:
                hint = "fix these globs first, then check again"
                errors.append(setting.wrong("there may be more invalid globs", hint))
                break
            try:
                _check_glob(glob)
            except Malformed as error:
                errors.append(setting.wrong(error.message, error.hint))
        for faulty in errors:
            self._fault(faulty, str(faulty), faulty.hint)
        return () if errors else globs


def _check_glob(glob: str) -> None:
    """Raise `Malformed` for a glob that is broken or never matches.

    AIU accepts a glob that never matches, and so accepts tags that were meant to be ignored.
    """
    tag_filter.check_glob(glob)
    impossible = advice.impossible_character(glob)
    if impossible:
        raise Malformed(
            f"{glob!r} does not match any tag: tags cannot contain {impossible!r}",
            advice.on_impossible_glob(glob),
        )


def _read_setting(setting: Setting, read: Callable[[str], T], advise: Callable[[], str] = str) -> T:
    """Call `read` with the value, and return the result.

    An error becomes a `Faulty` with the key and any advice.
    """
    try:
        return read(setting.value)
    except Malformed as error:
        raise setting.wrong(error.message, advise() or error.hint) from None
