"""Application → the Subscriptions its annotations ask for, all problems of one Application together.

An entry with a problem gets no Subscription: a broken rule never lets a tag through
(AIU logs a warning and goes on with another meaning).
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from task.errors import Malformed, TaskError
from task.model import Application, Entry, Flaw, Keys, Policy, Strategy, Subscribed, Subscription
from task.parse import annotations as keys
from task.parse.annotations import Faulty, Setting, Settings
from task.parse.image import parse_image_list, split_image_list
from task.parse.write_back import Where, write_backs
from task.rules.tag_filter import allow_pattern, ignore_globs
from task.rules.version_range import parse_range

T = TypeVar("T")


class Defaults(NamedTuple):
    """What the command line says for all Applications."""

    argocd_namespace: str = "argocd"
    strategy: Strategy = "semver"
    pin_digest: bool = False


def subscribe(app: Application, defaults: Defaults = Defaults()) -> Subscribed:
    """All Subscriptions of an Application (entry × write-back target), and every flaw of its annotations."""
    text = app.annotations.get("image-list", "")
    listed = list(zip(split_image_list(text), parse_image_list(text), strict=True))
    entries = [one for _, one in listed if isinstance(one, Entry)]
    aliases = frozenset(name for one in entries if one.alias for name in keys.prefixes(one))
    readers = [_EntryReader(app, entry, aliases, defaults) for entry in entries]
    for reader in readers:
        reader.read()
    flaws = [
        Flaw(text, None, "image-list", text, f"image-list: {error.message}", error.hint)
        for text, error in listed
        if isinstance(error, Malformed)
    ]
    flaws += [flaw for reader in readers for flaw in reader.flaws]
    managed = tuple(dict.fromkeys(name for reader in readers for name in reader.managed()))
    wheres, general = _wheres(app, entries, defaults)
    flaws += general
    subscriptions = tuple(
        reader.subscription(where, managed) for reader in readers if not reader.broken for where in wheres
    )
    return Subscribed(app, subscriptions, tuple(flaws))


def _wheres(app: Application, entries: list[Entry], defaults: Defaults) -> tuple[tuple[Where, ...], list[Flaw]]:
    """The write-back targets; a flaw of them concerns every entry."""
    try:
        return write_backs(app, defaults.argocd_namespace), []
    except Faulty as error:
        return (), [_flaw(entry, error) for entry in entries]
    except TaskError as error:
        target = app.annotations.get("write-back-target", "")
        return (), [
            Flaw(
                entry.text, entry, "write-back-target" if target else "", target, error.message, error.hint, error.rule
            )
            for entry in entries
        ]


def _flaw(entry: Entry, error: Faulty) -> Flaw:
    return Flaw(entry.text, entry, error.key, error.value, str(error), error.hint)


class _EntryReader:
    """Reads the settings of one entry, remembering what is wrong with them."""

    def __init__(self, app: Application, entry: Entry, aliases: frozenset[str], defaults: Defaults) -> None:
        self.app, self.entry, self.defaults = app, entry, defaults
        self.settings = Settings(app.annotations, keys.prefixes(entry, aliases))
        self.flaws: list[Flaw] = []
        self.policy, self.keys = Policy(), Keys()

    @property
    def broken(self) -> bool:
        """Whether an error (not only a warning) was found."""
        return any(flaw.severity == "error" for flaw in self.flaws)

    def read(self) -> None:
        """Fill `policy` and `keys`."""
        self.keys = self._keys()
        nothing: tuple[Strategy, str] = ("semver", "")
        strategy, extra = self._try(self._strategy, nothing)
        self.policy = Policy(
            strategy=strategy,
            constraints=self._try(lambda: self._constraints(strategy, extra), ()),
            allow=self._try(self._allow, None),
            ignore=self._try(self._ignore, ()),
            platforms=keys.platforms(self.settings.get("platforms")),
            pin_digest=self._try(self._pin, otherwise=False),
        )
        self._force_update()

    def subscription(self, where: Where, managed: tuple[str, ...]) -> Subscription:
        """This entry at one write-back target."""
        return Subscription(
            application=self.app,
            entry=self.entry,
            policy=self.policy,
            keys=self.keys,
            source=where.source,
            target=where.target,
            path=where.path,
            repo=where.repo,
            base=where.base,
            head=where.head,
            method="argocd" if where.method == "argocd" else "git",
            credentials=where.credentials,
            fallbacks=where.fallbacks,
            managed=managed,
            pull_request=self.app.annotations.get("pull-request", "").lower() in ("true", "1", "t"),
        )

    def managed(self) -> tuple[str, ...]:
        """The names in an override file that belong to this entry."""
        helm = (self.keys.spec,) if self.keys.spec else (self.keys.name or "image.name", self.keys.tag or "image.tag")
        return (*helm, self.entry.image.identity, *filter(None, (self.keys.kustomize_name,)))

    def _try(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except Faulty as error:
            self.flaws.append(_flaw(self.entry, error))
            return otherwise

    def _warn(self, key: str, value: str, message: str, hint: str) -> None:
        self.flaws.append(Flaw(self.entry.text, self.entry, key, value, f"{key}: {message}", hint, severity="warning"))

    def _keys(self) -> Keys:
        def get(*names: str) -> str:
            return next((s.value for s in map(self.settings.get, names) if s), "")

        return Keys(
            name=get("helm.image-name", "plugin.image-name"),
            tag=get("helm.image-tag", "plugin.image-tag"),
            spec=get("helm.image-spec", "plugin.image-spec"),
            kustomize_name=get("kustomize.image-name"),
            manifests_name=get("manifests.image-name"),
        )

    def _strategy(self) -> tuple[Strategy, str]:
        return keys.strategy(self.settings.get("update-strategy"), self.defaults.strategy, self._warn)

    def _constraints(self, strategy: Strategy, extra: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(filter(None, (self.entry.constraint, extra))))
        if strategy == "digest" and not self.entry.constraint:
            name = self.entry.alias or "web"
            raise Faulty(
                "image-list",
                self.entry.text,
                "the digest strategy needs the tag to follow",
                f"write {name}={self.entry.image.name}:<tag>",
            )
        for text in found if strategy == "semver" else ():
            key = "image-list" if text == self.entry.constraint else self.settings.get("update-strategy").key
            _checked(Setting(key, text), parse_range)
        return found

    def _allow(self) -> str | None:
        setting = self.settings.get("allow-tags")
        if not setting and (setting := self.settings.get("tag-match")):
            self._warn(setting.key, setting.value, "tag-match is now called allow-tags", "rename the annotation")
        return _checked(setting, allow_pattern) if setting else None

    def _ignore(self) -> tuple[str, ...]:
        for full in self.settings.names:
            if f"{full}.ignore-tags" in self.app.annotations:
                setting = Setting(f"{full}.ignore-tags", self.app.annotations[f"{full}.ignore-tags"])
                return _checked(setting, ignore_globs)
        return _checked(self.settings.get("ignore-tags"), ignore_globs)

    def _pin(self) -> bool:
        setting = self.settings.get("pin-digest")
        return keys.boolean(setting) if setting else self.defaults.pin_digest

    def _force_update(self) -> None:
        setting = self.settings.get("force-update")
        try:
            keys.boolean(setting)
        except Faulty as error:
            self._warn(error.key, error.value, f"{error.value!r} is neither true nor false", error.hint)


def _checked(setting: Setting, read: Callable[[str], T]) -> T:
    """`read` the value; what is wrong with it becomes a `Faulty` that knows its key."""
    try:
        return read(setting.value)
    except Malformed as error:
        raise Faulty(setting.key, setting.value, error.message, error.hint) from None
