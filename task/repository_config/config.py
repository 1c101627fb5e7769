"""The content of `.image-update/config`, and how it applies to a subscription.

Pure values from `reading.py`.

Freezes are periods without deployments. Freezes use the notation of Argo CD's sync windows.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from fnmatch import translate
from functools import lru_cache
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from task.errors import Malformed, NotPermittedError
from task.model import Hold, Subscription, Wishes, Writes
from task.proof import Demand
from task.text import shortened
from task.timestamps import epoch_seconds, of_unix

LONGEST_SCHEDULE = 100  # characters
LONGEST_WINDOW = 366 * 86_400  # seconds
_DURATION = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,3}")
_ANY = re.compile(r"\*(?:/0*1)?", re.ASCII)
_EXAMPLE = '"0 18 * * 5" is 18:00 every Friday: minute, hour, day, month, day of the week'


def schedule(text: str) -> str:
    """Return the schedule. Raises `Malformed` if it does not have five valid fields."""
    if len(text) > LONGEST_SCHEDULE or len(text.split()) != 5:
        raise Malformed(f"{shortened(text, 50)!r} is not a schedule with five fields", _EXAMPLE)
    try:
        CronSim(text, datetime(2026, 1, 1))  # noqa: DTZ001 - only the syntax is checked
    except CronSimError as error:
        raise Malformed(f"{text!r} is not a schedule: {error}", _EXAMPLE) from error
    return text


def seconds_of(text: str) -> int:
    """Return the seconds in a duration such as `62h`, `1h30m`, or `3d`. Raises `Malformed`."""
    match = _DURATION.fullmatch(text)
    seconds = 0
    if match:
        days, hours, minutes = (int(count or 0) for count in match.groups())
        seconds = days * 86_400 + hours * 3_600 + minutes * 60
    if seconds == 0 or seconds > LONGEST_WINDOW:
        raise Malformed(
            f"{shortened(text, 50)!r} is not a duration of at most 366 days",
            "use the form 62h, 1h30m, 45m, or 3d",
        )
    return seconds


@lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """Return the time zone with that name. Raises `Malformed`."""
    with suppress(ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder, like `Europe`
        if _ZONE.fullmatch(name):
            return ZoneInfo(name)
    raise Malformed(
        f"{shortened(name, 50)!r} is not a time zone",
        "use a name such as Europe/Berlin or UTC",
    )


def window(schedule: str, seconds: int, zone: ZoneInfo, now: str) -> tuple[str, str] | None:
    """Return the start and end of the current window, or None outside a window.

    Times are RFC 3339, in UTC.

    Schedules use the zone's local time. If clocks skip an hour, a window that would start during
    that hour starts after it. If an hour is repeated, a window starts only once in that hour. The
    duration is elapsed time, regardless of clock changes.
    """
    current_time = epoch_seconds(now)
    one_duration_earlier = current_time - seconds
    # Search forward, starting one duration earlier: a backward search that starts in the second
    # occurrence of a repeated hour would miss the first.
    first: float | None = None
    for start in _starts(schedule, zone, one_duration_earlier):
        if start > current_time:
            return None
        if start > one_duration_earlier:
            first = start
            break
    if first is None:
        return None
    # If windows overlap, the last one ends last.
    backward = _starts(schedule, zone, current_time + 1, reverse=True)
    latest = next((start for start in backward if start <= current_time), first)
    begins = int(max(first, latest))
    return of_unix(begins), of_unix(begins + seconds)


def next_start(schedule: str, zone: ZoneInfo, now: str) -> str:
    """Return the start of the next window.

    Returns "" if no window starts within fifty years. The time is RFC 3339, in UTC.
    """
    start = next(_starts(schedule, zone, epoch_seconds(now)), None)
    return "" if start is None else of_unix(int(start))


def _starts(schedule: str, zone: ZoneInfo, at: float, *, reverse: bool = False) -> Iterator[float]:
    """Yield the start times of windows after a time, or before it if `reverse`.

    Yields nothing if no window starts within fifty years.
    """
    starts = CronSim(schedule, datetime.fromtimestamp(at, zone), reverse=reverse)
    # A day must match both day fields if either one is `*`; otherwise, matching one of them is
    # enough. In Argo CD's cron (robfig/cron 3.0), `*/2` does not count as `*`. In Debian's cron,
    # which CronSim follows, it does.
    _, _, day, _, weekday = schedule.split()
    day_items = [*day.split(","), *weekday.split(",")]
    starts.day_and = any(map(_ANY.fullmatch, day_items))
    # within one zone, `datetime` would compare local times
    return (start.timestamp() for start in starts)


@dataclass(frozen=True)
class NameGlob:
    """A glob for names: `*` matches any characters, including `/`; `?` matches one character; and
    `[ab]` matches a or b.
    """

    text: str
    pattern: re.Pattern[str]

    @property
    def whole(self) -> bool:
        """Whether the glob is for full names such as `namespace/name`."""
        return "/" in self.text

    def fits(self, *names: str) -> bool:
        """Return whether the glob matches one of these names completely."""
        return any(self.pattern.match(name) for name in names)


@dataclass(frozen=True)
class PathGlob:
    """A glob for paths: `*` matches within a folder or file name,
    and `**` matches any number of folders.

    A glob that matches a folder matches everything in it.
    """

    parts: tuple[re.Pattern[str] | None, ...]  # None is `**`

    def fits(self, path: str) -> bool:
        """Return whether the glob matches a path (relative to the repository's root) or one of the
        path's parent folders.
        """
        end = len(self.parts)
        names = [name for name in path.split("/") if name not in ("", ".")]
        # the indices of the parts that may have to match the next name
        positions = self._with_next({0})
        for name in names:
            if end in positions:  # all parts have matched a parent folder
                return True
            next_positions = set()
            for position in positions:
                part = self.parts[position]
                if part is None:  # `**` may match further names
                    next_positions.add(position)
                elif part.match(name):
                    next_positions.add(position + 1)
            positions = self._with_next(next_positions)
        return end in positions

    def _with_next(self, positions: set[int]) -> set[int]:
        """Return these positions, and the one after each `**`, because `**` may match zero
        folders.
        """
        double_stars = {number for number, part in enumerate(self.parts) if part is None}
        return positions | {position + 1 for position in positions & double_stars}


def name_glob(text: str) -> NameGlob:
    """Compile a name glob."""
    return NameGlob(text, re.compile(translate(text)))


def path_glob(text: str) -> PathGlob:
    """Compile a path glob. Leading and trailing slashes have no effect."""
    parts: list[re.Pattern[str] | None] = []
    for part in text.split("/"):
        if part in ("", "."):
            continue
        if part != "**":
            parts.append(re.compile(translate(part)))
        elif not parts or parts[-1] is not None:  # `**/**` is the same as `**`
            parts.append(None)
    return PathGlob(tuple(parts))


PATH = ".image-update/config"
# file names that people may expect to be read
MISTAKEN = tuple(f"{PATH}{ending}" for ending in (".yaml", ".yml", ".json"))


@dataclass(frozen=True)
class Match:
    """The subscriptions that a rule or freeze applies to.

    In every list that is set, at least one glob must match.
    """

    applications: tuple[NameGlob, ...] = ()
    projects: tuple[NameGlob, ...] = ()
    paths: tuple[PathGlob, ...] = ()
    images: tuple[NameGlob, ...] = ()

    def takes(self, sub: Subscription) -> bool:
        """Return whether the rule or freeze applies to this subscription."""
        app = sub.application
        image = sub.entry.image
        path = posixpath.normpath(f"/{sub.path}")  # in the repository, without `..`
        return (
            _admit(self.applications, lambda glob: glob.fits(app.key if glob.whole else app.name))
            and _admit(self.projects, lambda glob: glob.fits(app.project))
            and _admit(self.paths, lambda glob: glob.fits(path))
            and _admit(self.images, lambda glob: glob.fits(image.name, image.identity))
        )


Glob = TypeVar("Glob", NameGlob, PathGlob)


def _admit(globs: Sequence[Glob], fits: Callable[[Glob], bool]) -> bool:
    """Return whether at least one of the globs fits, or there are none."""
    return not globs or any(map(fits, globs))


EVERYTHING = Match()


@dataclass(frozen=True)
class Rule:
    """The settings that a rule in the config requests for matching subscriptions."""

    match: Match
    wishes: Wishes
    line: int = 0  # in the config file


@dataclass(frozen=True)
class Freeze:
    """Periods without deployments."""

    schedule: str  # cron syntax, five fields
    seconds: int
    zone: ZoneInfo
    reason: str
    match: Match = EVERYTHING
    line: int = 0  # in the config file


@dataclass(frozen=True)
class RepositoryConfig:
    """The content of the whole config file."""

    wishes: Wishes = Wishes()
    rules: tuple[Rule, ...] = ()
    freezes: tuple[Freeze, ...] = ()
    templates: tuple[
        tuple[str, int], ...
    ] = ()  # commit message templates: each path, and the first config line that uses it
    memory_signers: Demand | None = None  # public keys that may sign the memory branch
    refused: tuple[str, ...] = ()  # the order rules for which `check` fails instead of warning


NO_CONFIG = RepositoryConfig()


Changed = Callable[[Subscription], Collection[str]]  # the files that an update would change


def no_files(sub: Subscription) -> tuple[str, ...]:  # noqa: ARG001 - as `Changed` is called
    """Return no files: only the target itself is considered."""
    return ()


def for_some_paths(config: RepositoryConfig) -> bool:
    """Return whether a rule or freeze applies only to some paths."""
    parts: tuple[Rule | Freeze, ...] = (*config.rules, *config.freezes)
    return any(part.match.paths for part in parts)


def governed(
    subs: Iterable[Subscription],
    config: RepositoryConfig,
    now: str,
    changed: Changed = no_files,
) -> list[Subscription]:
    """Return the subscriptions with the settings that the config currently applies to them.

    A setting that requires a pull request or a digest always wins over a setting that does not. A
    target may be a folder, so rules and freezes are checked for each changed file, and the
    strictest ones apply to the whole subscription.
    """
    active_freezes = in_force(config.freezes, now)
    known = _KnownWishes(config)
    governed_subs: list[Subscription] = []
    for sub in subs:
        per_file = _with_files(sub, config, changed)
        of_target = known.of(sub)
        of_files = [known.of(of_file) for of_file in per_file]  # including the target's
        wishes = of_target if len(set(of_files)) == 1 else agreed(of_files, of_target)
        holds = [hold for match, hold in active_freezes if any(map(match.takes, per_file))]
        ages = [item.minimum_age or 0 for item in of_files]
        policy = replace(
            sub.policy,
            pin_digest=sub.policy.pin_digest or any(item.pin_digest for item in of_files),
            minimum_age=max(sub.policy.minimum_age, *ages),
            tag_order=sub.policy.tag_order or of_target.tag_order or "",
        )
        governed_subs.append(
            replace(
                sub,
                pull_request=sub.pull_request or any(item.pull_request for item in of_files),
                policy=policy,
                wishes=wishes,
                freeze=max(holds, key=lambda hold: epoch_seconds(hold.until), default=None),
                writes=_writes_of_all(per_file, of_files),
                demands=_demands_of_all(of_files),
            )
        )
    return governed_subs


def _demands_of_all(all_wishes: Iterable[Wishes]) -> tuple[Demand, ...]:
    """Return all proofs that the config requires, without duplicates."""
    return tuple(dict.fromkeys(demand for wishes in all_wishes for demand in _demands_in(wishes)))


def _demands_in(wishes: Wishes) -> list[Demand]:
    return [demand for demand in (wishes.signatures, wishes.provenance) if demand]


def _with_files(
    sub: Subscription,
    config: RepositoryConfig,
    changed: Changed,
) -> tuple[Subscription, ...]:
    """Return the subscription unchanged, and a copy for each changed file with that file as its
    target.
    """
    if not for_some_paths(config):
        return (sub,)
    other_paths = (path for path in changed(sub) if path != sub.path)
    return (sub, *(replace(sub, path=path) for path in other_paths))


def _writes_of_all(
    per_file: Sequence[Subscription], of_files: Sequence[Wishes]
) -> tuple[Writes, ...]:
    """Return the write permissions from the target's rule, and from each file's own rule.

    `per_file` is the result of `_with_files`, and `of_files` has the wishes for each. The target is
    the first.
    """
    of_target = of_files[0].writes
    permissions = [of_target] if of_target else []
    for of_file, wishes in zip(per_file[1:], of_files[1:], strict=True):
        if wishes.writes and wishes.writes != of_target:
            permissions.append(replace(wishes.writes, only=of_file.path))
    return tuple(permissions)


def keys_named(wishes: Iterable[Wishes]) -> tuple[str, ...]:
    """Return the paths of the public keys in these wishes."""
    return tuple(dict.fromkeys(path for demand in _demands_of_all(wishes) for path in demand.keys))


def also_limited(
    subs: Iterable[Subscription],
    config: RepositoryConfig,
    changed: Changed = no_files,
) -> list[Subscription]:
    """Return the subscriptions, each with the additional write limits
    from another branch's config.
    """
    known = _KnownWishes(config)
    limited = []
    for sub in subs:
        per_file = _with_files(sub, config, changed)
        writes = _writes_of_all(per_file, [known.of(of_file) for of_file in per_file])
        limited.append(replace(sub, writes=(*sub.writes, *writes)) if writes else sub)
    return limited


def refuse_stricter(sub: Subscription, paths: Iterable[str], config: RepositoryConfig) -> None:
    """Raise `NotPermittedError` if a changed file has a rule that is stricter than the rules
    already applied.

    `governed` covers the files that an update is expected to change. This function covers any other
    file.
    """
    if not any(rule.match.paths for rule in config.rules):
        return
    applied_demands = {replace(demand, texts=()) for demand in sub.demands}
    without_freezes = replace(config, freezes=())
    for path in paths:
        (of_file,) = governed([replace(sub, path=path)], without_freezes, "")
        if (
            of_file.pull_request != sub.pull_request
            or of_file.policy.pin_digest != sub.policy.pin_digest
            or not applied_demands.issuperset(of_file.demands)
        ):
            message = (
                f"{PATH} has stricter rules for {shortened(path)!r} than for"
                f" {shortened(sub.path) or '/'!r}"
            )
            hint = "set write-back-target to that file or folder, so that its rules apply"
            raise NotPermittedError(message, hint=hint)


class _KnownWishes:
    """Cached wishes for subscriptions. Thousands of subscriptions share a few sets of rules."""

    def __init__(self, config: RepositoryConfig) -> None:
        self._config = config
        self._known: dict[tuple[int, ...], Wishes] = {}

    def of(self, sub: Subscription) -> Wishes:
        """Return the wishes for a subscription."""
        rules = self._config.rules
        matching = tuple(number for number, rule in enumerate(rules) if rule.match.takes(sub))
        if matching not in self._known:
            layers = [*(rules[number].wishes for number in matching), self._config.wishes]
            self._known[matching] = decided(layers)
        return self._known[matching]


def agreed(shared_by: Sequence[Wishes], common: Wishes) -> Wishes:
    """Return the wishes for a commit or pull request that several subscriptions share.

    If they differ in a wish, `common` decides it. However, labels and people are combined, a
    request is a draft if any subscription wants a draft, and it is merged automatically only if all
    of them want that.
    """
    unanimous: dict[str, Any] = {}
    for field in fields(Wishes):
        values = [getattr(wishes, field.name) for wishes in shared_by]
        if values and all(value == values[0] for value in values):
            unanimous[field.name] = values[0]

    def combined(lists: Iterable[tuple[str, ...] | None]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for texts in lists for text in texts or ()))

    return replace(
        replace(common, **unanimous),
        labels=combined(wishes.labels for wishes in shared_by),
        reviewers=combined(wishes.reviewers for wishes in shared_by),
        assignees=combined(wishes.assignees for wishes in shared_by),
        draft=any(wishes.draft for wishes in shared_by),
        auto_merge=bool(shared_by) and all(wishes.auto_merge for wishes in shared_by),
    )


def decided(layers: Sequence[Wishes]) -> Wishes:
    """Combine the layers. Each wish comes from the first layer that sets it."""
    values: dict[str, Any] = {}
    for layer in layers:
        for field in fields(Wishes):
            value = getattr(layer, field.name)
            if value is not None and field.name not in values:
                values[field.name] = value
    return Wishes(**values)


def unmatched(config: RepositoryConfig, subs: Sequence[Subscription]) -> list[tuple[str, int]]:
    """Return each rule and freeze that does not apply to any of the subscriptions, as its path in
    the config file and its line.
    """
    parts: dict[str, Rule | Freeze] = {}
    for number, rule in enumerate(config.rules, 1):
        parts[f"rules[{number}]"] = rule
    for number, freeze in enumerate(config.freezes, 1):
        parts[f"freezes[{number}]"] = freeze
    return [
        (name, part.line) for name, part in parts.items() if not any(map(part.match.takes, subs))
    ]


def in_force(freezes: Iterable[Freeze], now: str) -> list[tuple[Match, Hold]]:
    """Return the active freezes, each as a match and a hold."""
    holds = []
    for freeze in freezes:
        times = window(freeze.schedule, freeze.seconds, freeze.zone, now)
        if times is None:
            continue
        begins, ends = times
        source = f"the freeze in {PATH}, line {freeze.line}"
        holds.append((freeze.match, Hold(freeze.reason, "", begins, ends, source)))
    return holds
