"""The content of `.image-update/config`, and what it means for one subscription. Pure values from `reading.py`."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from zoneinfo import ZoneInfo

from task.errors import NotPermittedError
from task.model import Hold, Subscription, Wishes
from task.repository_config.freezes import window
from task.repository_config.globs import NameGlob, PathGlob
from task.text import shortened
from task.timestamps import epoch_seconds

PATH = ".image-update/config"
MISTAKEN = tuple(f"{PATH}{ending}" for ending in (".yaml", ".yml", ".json"))  # names that people expect to be read


@dataclass(frozen=True)
class Match:
    """The subscriptions that a rule or a freeze is for. Every list that is given must have a fitting glob."""

    applications: tuple[NameGlob, ...] = ()
    projects: tuple[NameGlob, ...] = ()
    paths: tuple[PathGlob, ...] = ()
    images: tuple[NameGlob, ...] = ()

    def takes(self, sub: Subscription) -> bool:
        """Tell whether the rule or freeze is for this subscription."""
        app, image = sub.application, sub.entry.image
        path = posixpath.normpath(f"/{sub.path}")
        return (
            (not self.applications or any(one.fits(app.key if one.whole else app.name) for one in self.applications))
            and (not self.projects or any(one.fits(app.project) for one in self.projects))
            and (not self.paths or any(one.fits(path) for one in self.paths))
            and (not self.images or any(one.fits(image.name) or one.fits(image.identity) for one in self.images))
        )


EVERYTHING = Match()


@dataclass(frozen=True)
class Rule:
    """The wishes for some subscriptions."""

    match: Match
    wishes: Wishes
    line: int = 0  # of the file


@dataclass(frozen=True)
class Freeze:
    """Times in which nothing is deployed."""

    schedule: str  # cron, five fields
    seconds: int
    zone: ZoneInfo
    reason: str
    match: Match = EVERYTHING
    line: int = 0  # of the file


@dataclass(frozen=True)
class RepositoryConfig:
    """The whole file."""

    wishes: Wishes = Wishes()
    rules: tuple[Rule, ...] = ()
    freezes: tuple[Freeze, ...] = ()
    templates: tuple[tuple[str, int], ...] = ()  # of commit messages: each path, and the first line that names it


NO_CONFIG = RepositoryConfig()


def governed(subs: Iterable[Subscription], config: RepositoryConfig, now: str) -> list[Subscription]:
    """Return the subscriptions, each with what the config says about it now.

    A setting that requires a pull request or a digest wins over one that does not, wherever it is.
    """
    frozen = in_force(config.freezes, now)
    found: list[Subscription] = []
    for sub, wishes in _with_wishes(subs, config):
        holds = [hold for match, hold in frozen if match.takes(sub)]
        found.append(
            replace(
                sub,
                pull_request=sub.pull_request or bool(wishes.pull_request),
                policy=replace(
                    sub.policy,
                    pin_digest=sub.policy.pin_digest or bool(wishes.pin_digest),
                    minimum_age=max(sub.policy.minimum_age, wishes.minimum_age or 0),
                    tag_order=sub.policy.tag_order or wishes.tag_order or "",
                ),
                wishes=wishes,
                freeze=max(holds, key=lambda hold: epoch_seconds(hold.until), default=None),
                writes=(wishes.writes,) if wishes.writes else (),
                demands=tuple(one for one in (wishes.signatures, wishes.provenance) if one),
            )
        )
    return found


def keys_named(wishes: Iterable[Wishes]) -> tuple[str, ...]:
    """Return the paths of the public keys that these wishes name."""
    demands = (one for each in wishes for one in (each.signatures, each.provenance) if one)
    return tuple(dict.fromkeys(path for one in demands for path in one.keys))


def also_limited(subs: Iterable[Subscription], config: RepositoryConfig) -> list[Subscription]:
    """Return the subscriptions, each with what the config of another branch lets it write as well."""
    return [
        replace(sub, writes=(*sub.writes, wishes.writes)) if wishes.writes else sub
        for sub, wishes in _with_wishes(subs, config)
    ]


def refuse_stricter(sub: Subscription, paths: Iterable[str], config: RepositoryConfig) -> None:
    """Raise `NotPermittedError` if a file that changes is under a rule that asks for more than that of its target.

    A target may be a folder, and a rule may be for a part of it.
    """
    if not any(rule.match.paths for rule in config.rules):
        return
    asked = {replace(one, texts=()) for one in sub.demands}
    for path in paths:
        (there,) = governed([replace(sub, path=path)], replace(config, freezes=()), "")
        if there.pull_request != sub.pull_request or not asked.issuperset(there.demands):
            message = f"{PATH} asks for more in {shortened(path)!r} than in {shortened(sub.path) or '/'!r}"
            raise NotPermittedError(
                message, hint="name that file or folder in write-back-target, so that its rules count"
            )


def _with_wishes(subs: Iterable[Subscription], config: RepositoryConfig) -> Iterator[tuple[Subscription, Wishes]]:
    # by the rules that match, because thousands of subscriptions share a few sets
    known: dict[tuple[int, ...], Wishes] = {}
    for sub in subs:
        matching = tuple(number for number, rule in enumerate(config.rules) if rule.match.takes(sub))
        if matching not in known:
            known[matching] = decided([*(config.rules[number].wishes for number in matching), config.wishes])
        yield sub, known[matching]


def agreed(of: Sequence[Wishes], common: Wishes) -> Wishes:
    """Return the wishes for a commit or a pull request that several subscriptions share.

    If they differ, `common` counts. But labels and people are those of all, a request is a draft if one of them wants
    that, and it is merged automatically only if all want that.
    """
    each = {one.name: [getattr(wishes, one.name) for wishes in of] for one in fields(Wishes)}
    found = Wishes(
        **{
            name: values[0] if values and all(value == values[0] for value in values) else getattr(common, name)
            for name, values in each.items()
        }
    )

    def of_all(name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for texts in each[name] for text in texts or ()))

    return replace(
        found,
        labels=of_all("labels"),
        reviewers=of_all("reviewers"),
        assignees=of_all("assignees"),
        draft=any(each["draft"]),
        auto_merge=bool(of) and all(each["auto_merge"]),
    )


def decided(layers: Sequence[Wishes]) -> Wishes:
    """Combine the layers. Each wish is taken from the first layer that has it."""
    names = [one.name for one in fields(Wishes)]
    said = {name: [value for layer in layers if (value := getattr(layer, name)) is not None] for name in names}
    return Wishes(**{name: values[0] for name, values in said.items() if values})


def unmatched(config: RepositoryConfig, subs: Sequence[Subscription]) -> list[tuple[str, int]]:
    """Return each rule and freeze that is for none of the subscriptions: its place in the file, and its line."""
    parts = [(f"rules[{number}]", one.match, one.line) for number, one in enumerate(config.rules, 1)]
    parts += [(f"freezes[{number}]", one.match, one.line) for number, one in enumerate(config.freezes, 1)]
    return [(what, line) for what, match, line in parts if not any(map(match.takes, subs))]


def in_force(freezes: Iterable[Freeze], now: str) -> list[tuple[Match, Hold]]:
    """Return the freezes that are active now, each as what it is for, and a hold."""
    found = []
    for one in freezes:
        if times := window(one.schedule, one.seconds, one.zone, now):
            begins, ends = times
            found.append((one.match, Hold(one.reason, f"the freeze in {PATH}, line {one.line},", begins, ends)))
    return found
