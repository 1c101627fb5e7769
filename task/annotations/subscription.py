"""Turns an Application's annotations into Subscriptions, and finds flaws in them.

No Subscription is created for an entry with an error, so that a broken rule never lets a tag
through. AIU logs a warning and continues with a different rule: for example, it uses semver if the
strategy is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import TypeVar

from task.annotations import advice, keys
from task.annotations.application import Narrow
from task.annotations.keys import (
    DEPRECATED,
    Faulty,
    ImageList,
    Index,
    Setting,
    doubts,
    read_image_list,
)
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
MOST_GLOBS = 10  # the number of broken globs that are reported individually, per annotation
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
) -> Subscribed:
    """Return all Subscriptions of an Application, and every flaw (mistake) in its annotations.

    There is one Subscription for each write-back target of each `image-list` entry without an
    error.
    """
    annotated = _read_annotations(tuple(app.annotations.items()), defaults)
    # Each error in `errors` concerns the whole Application, and prevents all of its updates.
    targets, errors = write_backs(app, defaults.argocd_namespace)
    pull_request = defaults.pull_request
    pull_request_text = app.annotations.get("pull-request", "")
    if pull_request_text:
        try:
            pull_request = keys.boolean(Setting("pull-request", pull_request_text))
        except Faulty as error:
            errors.insert(0, error)

    flaws = list(annotated.flaws)
    for error_of_app in errors:
        flaws += _flaws_of_entries(app, annotated.readings, error_of_app)

    subscriptions: tuple[Subscription, ...] = ()
    if not errors:
        readings = [reading for reading in annotated.well_spelled if not reading.broken]
        subscriptions = _subscriptions_for(
            app, annotated, readings, targets, pull_request=pull_request
        )
    # A report shows the strategy next to the flaw. An entry that cannot be parsed has no strategy.
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
    """Return the settings of an Application's entries, and the Subscriptions that the entries would
    have if there were no mistakes in their settings.

    Only `lint` needs this, so that one mistake does not hide another. Entries with a misspelled key
    are skipped, because the intended setting is missing. There is no Subscription for a write-back
    target that cannot be parsed.
    """
    annotated = _read_annotations(tuple(app.annotations.items()), defaults)
    targets, _ = write_backs(app, defaults.argocd_namespace)
    subscriptions = _subscriptions_for(
        app, annotated, annotated.well_spelled, targets, pull_request=False
    )
    return annotated.well_spelled, subscriptions


def _subscriptions_for(
    app: Application,
    annotated: _Annotated,
    readings: Iterable[EntryReading],
    targets: Sequence[Where],
    *,
    pull_request: bool,
) -> tuple[Subscription, ...]:
    """Return one Subscription for each write-back target of each of these entries.

    `readings` are the entries with their settings. `annotated` contains what all entries share.
    """
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
    """Return an error in an Application's annotations (`Faulty`), or in the source or target that
    they select (`TaskError`), as a flaw of each entry.

    If there are no entries, returns a single flaw for an error in the annotations. A `TaskError` is
    not a flaw in that case, because nothing would be written.
    """
    if isinstance(error, Faulty):
        trouble = Trouble("annotation", str(error), error.hint)
        key = error.key
        value = error.value
    else:
        trouble = Trouble(error.rule, error.message, error.hint)
        value = app.annotations.get(TARGET, "")
        key = TARGET if value else ""  # if no target is set, no annotation is to blame
    if not readings and isinstance(error, Faulty):
        return [Flaw(text="", entry=None, key=key, value=value, trouble=trouble)]
    return [
        Flaw(text=reading.entry.text, entry=reading.entry, key=key, value=value, trouble=trouble)
        for reading in readings
    ]


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
    """All settings in an Application's annotations, except for where to write."""

    readings: tuple[EntryReading, ...]  # all entries that can be parsed
    # the entries without a misspelled key; they may have other mistakes
    well_spelled: tuple[EntryReading, ...]
    managed: tuple[str, ...]  # the names in an override file that any entry manages
    claims: tuple[Claim, ...]  # the names of each entry's image in a target
    flaws: tuple[Flaw, ...]


@lru_cache(maxsize=4096)  # Applications from the same generator have the same annotations
def _read_annotations(annotations: tuple[tuple[str, str], ...], defaults: Defaults) -> _Annotated:
    """Return the settings of all `image-list` entries, and the flaws (mistakes) in the annotations.

    `annotations` are (key, value) pairs, such as ("web.allow-tags", "regexp:^v"). The annotations
    that say where to write are not read here.
    """
    value_by_key = dict(annotations)
    image_list_text = value_by_key.get("image-list", "")
    image_list = read_image_list(image_list_text)
    index = keys.index(value_by_key)
    readings = []
    for entry in image_list.entries:
        settings = keys.settings(index, image_list.prefixes(entry))
        reading = EntryReader(entry, settings, defaults).read()
        if entry.text in image_list.cut_parts:  # part of the entry's version range is missing
            reading = replace(reading, broken=True)
        readings.append(reading)

    # If a setting is missing because its key is misspelled, an entry could accept any tag.
    misspelled_flaws = _misspelled_flaws(value_by_key, index)
    misspelled_texts = {flaw.text for flaw in misspelled_flaws}
    well_spelled = [reading for reading in readings if reading.entry.text not in misspelled_texts]

    flaws = [*_image_list_flaws(image_list, image_list_text), *misspelled_flaws]
    for reading in readings:
        flaws += reading.flaws
    managed_names = chain.from_iterable(reading.managed for reading in readings)
    return _Annotated(
        readings=tuple(readings),
        well_spelled=tuple(well_spelled),
        managed=tuple(dict.fromkeys(managed_names)),
        # claims matter only if a place could belong to several entries
        claims=tuple(map(_claim_of, readings)) if len(readings) > 1 else (),
        flaws=tuple(flaws),
    )


def _claim_of(reading: EntryReading) -> Claim:
    """Return an entry's claim: the names of its image in the files that are written."""
    return Claim(
        alias=reading.entry.alias,
        identity=reading.entry.image.identity,
        tag=reading.keys.tag,
        kustomize_name=reading.keys.kustomize_name,
        manifests_name=reading.keys.manifests_name,
    )


def _image_list_flaws(image_list: ImageList, text: str) -> Iterator[Flaw]:
    """Yield a flaw for each `image-list` entry that cannot be parsed, and for each entry with a
    comma in its version range. `text` is the whole `image-list`.
    """
    for entry_text, error in image_list.unreadable:
        trouble = Trouble("annotation", f"image-list: {error.message}", error.hint)
        yield Flaw(text=entry_text, entry=None, key="image-list", value=entry_text, trouble=trouble)
    for entry in image_list.entries:
        cut_parts = image_list.cut_parts.get(entry.text)
        if cut_parts:
            message = f"{cut_parts[0]!r} follows a comma, but commas separate entries"
            hint = f"separate constraints with a space: {' '.join((entry.text, *cut_parts))}"
            trouble = Trouble("annotation", message, hint)
            yield Flaw(text=entry.text, entry=entry, key="image-list", value=text, trouble=trouble)


def _misspelled_flaws(annotations: Mapping[str, str], index: Index) -> list[Flaw]:
    """Return a flaw for each misspelled key, such as `web.alow-tags`, and each entry that the key
    would apply to.

    AIU ignores a misspelled `allow-tags` and lets every tag through.
    """
    image_list = read_image_list(annotations.get("image-list", ""))
    flaws = []
    for key, doubt in doubts(annotations):
        value = annotations[key]
        if not doubt.governs or not value:  # an empty value would have no effect
            continue
        # the values of the intended key, by prefix
        values_of_correct_key = index.get(doubt.meant, {})
        for entry in image_list.entries:
            own_prefixes = image_list.prefixes(entry)
            if doubt.name:
                applies = doubt.name in own_prefixes
            else:  # an entry's own setting overrides the Application-wide form
                has_own_setting = any(prefix in values_of_correct_key for prefix in own_prefixes)
                applies = not has_own_setting
            if applies:
                flaw = Flaw(
                    text=entry.text,
                    entry=entry,
                    key=key,
                    value=value,
                    trouble=doubt.trouble,
                    misspelled=True,
                )
                flaws.append(flaw)
    return flaws


class EntryReader:
    """Reads an entry's settings, and collects their flaws."""

    def __init__(self, entry: Entry, settings: Mapping[str, Setting], defaults: Defaults) -> None:
        self.entry = entry
        self.settings = settings
        self.defaults = defaults
        self.flaws: list[Flaw] = []

    def read(self) -> EntryReading:
        """Return the entry's settings, with the flaws found in them.

        Invalid settings are replaced with default values.
        """
        default: tuple[Strategy, str] = ("semver", "")  # semver without a range
        strategy, strategy_range = self._try(self._strategy, default)
        # Only the strategy has been read so far, so any error is about it.
        known_strategy = None if self._has_errors() else strategy
        # These calls also add any flaws that they find to `self.flaws`.
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
        """Return the names in an override file that belong to this entry, such as `image.tag`."""
        # If no annotation sets the parameters, AIU writes `image.name` and `image.tag` to its
        # override files.
        if names.spec:
            helm_names = [names.spec]
        else:
            helm_names = [names.name or "image.name", names.tag or "image.tag"]
        possible_names = (
            *helm_names,
            names.digest,
            plugin.name,
            plugin.tag,
            plugin.spec,
            self.entry.image.identity,
            names.kustomize_name,
        )
        return tuple(name for name in possible_names if name)

    def _check_helm_keys(self, names: Keys) -> None:
        """Add a flaw for each Helm key with a space inside an index, as in `images[ 0 ].tag`, and
        for a `helm.image-digest` with the same key as another setting.
        """
        for key in ("helm.image-name", "helm.image-tag", "helm.image-spec", "helm.image-digest"):
            setting = self.settings[key]
            if BLANK_INDEX.search(setting.value):
                # AIU and Helm reject an index with spaces. Here, it would become a key that does
                # not exist in any file.
                without_spaces = BLANK_INDEX.sub(
                    lambda match: "".join(match[0].split()), setting.value
                )
                message = f"{setting.key}: {setting.value!r} has a space inside an index"
                self._fault(setting, message, f"use {without_spaces}")

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
        """Add a flaw with the severity "error"."""
        self._add(setting.key, setting.value, Trouble("annotation", message, hint))

    def _warn(self, setting: Setting | Faulty, message: str, hint: str) -> None:
        """Add a flaw with the severity "warning"."""
        warning = Trouble.warning("annotation", f"{setting.key}: {message}", hint)
        self._add(setting.key, setting.value, warning)

    def _add(self, key: str, value: str, trouble: Trouble) -> None:
        self.flaws.append(
            Flaw(text=self.entry.text, entry=self.entry, key=key, value=value, trouble=trouble)
        )

    def _strategy(self) -> tuple[Strategy, str]:
        """Return the strategy under its current name, and the constraint in `semver:<constraint>`,
        or "".

        An old name results in a warning. Raises `Faulty` for an unknown strategy; AIU logs a
        warning and uses semver.
        """
        setting = self.settings["update-strategy"]
        if not setting:
            return self.defaults.strategy, ""
        strategy_by_name: dict[str, Strategy] = {strategy: strategy for strategy in STRATEGIES}

        # Guides show `semver:1.6.x`, but AIU ignores the range.
        before_colon, _, constraint = setting.value.partition(":")
        strategy = strategy_by_name.get(before_colon.strip().lower())
        if strategy and STRATEGIES[strategy].constraint == "range":
            return strategy, constraint.strip()

        name = setting.value.lower()
        strategy = DEPRECATED.get(name) or strategy_by_name.get(name)
        if strategy is None:
            specific_advice = advice.on_strategy(self.entry, setting.key, setting.value)
            hint = specific_advice or f"use one of {', '.join(STRATEGIES)}"
            raise setting.wrong(f"unknown update strategy {setting.value!r}", hint)
        if name in DEPRECATED:
            message = f"the strategy {setting.value!r} is now called {strategy!r}"
            self._warn(setting, message, f"use {strategy}")
        return strategy, ""

    def _pin_digest(self) -> bool:
        """Return whether the digest is written as well. Raises `Faulty`."""
        setting = self.settings["pin-digest"]
        return keys.boolean(setting) if setting else self.defaults.pin_digest

    def _constraints(self, strategy: Strategy, strategy_range: str) -> tuple[str, ...]:
        """Return the distinct constraints in `image-list` and in `semver:<constraint>`.

        The latter is `strategy_range`, which may be "". Raises `Faulty` if the constraints do not
        fit the strategy, which may need a tag to follow or a version range. A constraint that the
        strategy ignores results in a warning.
        """
        entry_constraint = self.entry.constraint
        # "range", "tag", or "" if the strategy ignores constraints
        meaning = STRATEGIES[strategy].constraint
        if meaning == "tag" and not entry_constraint:
            fix = f"use {self.entry.alias or 'web'}={self.entry.image.name}:<tag>"
            message = f"the {strategy} strategy needs a tag to follow"
            raise Faulty("image-list", self.entry.text, message, fix)
        if meaning == "range":  # check that both are ranges: `_read_setting` raises an error if not
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
        """Return the names in the `platforms` annotation, such as `linux/arm64`, or () if it is not
        set.

        Add a flaw for each name that no image can match. These names are returned, too.
        """
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
            is_lowercase = name == name.lower()  # otherwise, already reported above
            similar_platforms = meant_platforms(name) if is_lowercase else ()
            if similar_platforms:
                message = f"{name!r} has an unknown architecture, so no image can match it"
                self._platform_fault(message, f"use {' or '.join(similar_platforms)}")
        return names

    def _platform_fault(self, message: str, hint: str = PLATFORM_HINT) -> None:
        setting = self.settings["platforms"]
        self._fault(setting, f"{setting.key}: {message}", hint)

    def _allow(self) -> str | None:
        """Return the pattern in `allow-tags` (or in `tag-match`, its old name), or None if no
        annotation sets it. Raises `Faulty`.
        """
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
        """Return the value of `tag-order`, or "" if no annotation sets it.

        Raises `Faulty` if it is invalid or does not fit the strategy. If the strategy has no order,
        add a warning that it has no effect.
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
        """Return the globs in `ignore-tags`, such as `*-rc*`.

        If any glob is broken, add a flaw for each broken one (at most `MOST_GLOBS`), and return ().
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

    AIU accepts a glob that never matches, and so does not ignore the tags that it was meant to
    exclude.
    """
    tag_filter.check_glob(glob)
    impossible = advice.impossible_character(glob)
    if impossible:
        raise Malformed(
            f"{glob!r} does not match any tag: tags cannot contain {impossible!r}",
            advice.on_impossible_glob(glob),
        )


def _read_setting(setting: Setting, read: Callable[[str], T], advise: Callable[[], str] = str) -> T:
    """Return the result of `read`, which parses the setting's value.

    If `read` raises `Malformed`, this raises `Faulty` with the setting's key instead. The hint is
    the result of `advise`. If that is "", as with the default (`str`), the original hint is kept.
    """
    try:
        return read(setting.value)
    except Malformed as error:
        raise setting.wrong(error.message, advise() or error.hint) from None
