"""Turns the settings of one entry into its Policy and Keys, and collects their flaws."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from task.annotations import advice
from task.annotations import keys as annotation
from task.annotations.keys import Faulty, Setting
from task.errors import Malformed
from task.model import Entry, Flaw, Keys, Policy, Strategy
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
