"""The contents of `.image-update/config`, and how they apply to subscriptions.

Pure code: `reading.py` reads the file.

Freezes are periods without deployments, written in the notation of Argo CD's sync windows.
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
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from task.errors import Malformed, NotPermittedError
from task.model import Hold, Subscription, Tracker, Wishes, Writes
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
    """Check the syntax of a window's schedule, such as `0 18 * * 5`, and return the schedule.

    Raises `Malformed` if it does not have five valid fields.
    """
    if len(text) > LONGEST_SCHEDULE or len(text.split()) != 5:
        raise Malformed(f"{shortened(text, 50)!r} is not a schedule with five fields", _EXAMPLE)
    try:
        CronSim(text, datetime(2026, 1, 1))  # noqa: DTZ001 - only the syntax is checked
    except CronSimError as error:
        raise Malformed(f"{text!r} is not a schedule: {error}", _EXAMPLE) from error
    return text


def seconds_of(text: str) -> int:
    """Return the seconds in a duration such as `62h`, `1h30m`, or `3d`.

    Raises `Malformed` for other text.
    """
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
    """Return the time zone with this name. Raises `Malformed` if there is none."""
    if _ZONE.fullmatch(name):
        # `ZoneInfo` raises `OSError` for the name of a folder of zones, such as `Europe`.
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(name)
    raise Malformed(
        f"{shortened(name, 50)!r} is not a time zone",
        "use a name such as Europe/Berlin or UTC",
    )


def window(schedule: str, seconds: int, zone: ZoneInfo, now: str) -> tuple[str, str] | None:
    """Return the start and end of the window that contains `now`, or None if there is no such
    window.

    A window starts at each time that matches `schedule`, and lasts for `seconds`. Times are RFC
    3339, in UTC.

    Schedules use the zone's local time. If clocks skip an hour, a window that would start during
    that hour starts after it. If an hour is repeated, a window starts only once in that hour. The
    duration is elapsed time, regardless of clock changes.
    """
    current_time = epoch_seconds(now)
    one_duration_earlier = current_time - seconds  # a window that started at this time ends now
    # Search forward for the first window that has not ended. A backward search that started in the
    # second occurrence of a repeated hour would miss a window in the first.
    first_start: float | None = None
    for start in _start_times(schedule, zone, one_duration_earlier):
        if start > one_duration_earlier:  # in a repeated hour, the search may begin earlier
            first_start = start
            break
    if first_start is None or first_start > current_time:
        return None

    # If windows overlap, choose the latest one, because it ends last. Search backward for it,
    # because many windows may have started since the first one.
    last_start = first_start
    just_after_now = current_time + 1  # so that a window that starts right now is found
    for start in _start_times(schedule, zone, just_after_now, reverse=True):
        if start <= current_time:
            last_start = max(first_start, start)
            break
    start_in_seconds = int(last_start)
    return of_unix(start_in_seconds), of_unix(start_in_seconds + seconds)


def next_start(schedule: str, zone: ZoneInfo, now: str) -> str:
    """Return the start of the next window.

    Return "" if no window starts within fifty years. The time is RFC 3339, in UTC.
    """
    current_time = epoch_seconds(now)
    starts = _start_times(schedule, zone, current_time)
    later_start = next((start for start in starts if start > current_time), None)
    return "" if later_start is None else of_unix(int(later_start))


def _start_times(
    schedule: str,
    zone: ZoneInfo,
    at: float,
    *,
    reverse: bool = False,
) -> Iterator[float]:
    """Return an iterator over the times (in Unix seconds) that match a schedule: the times after
    `at`, or, if `reverse`, the times before it, latest first.

    The iterator ends if no further time matches within fifty years. If `at` is in the second
    occurrence of a repeated hour, the first result may be in the first occurrence, which is before
    `at`.
    """
    starts = CronSim(schedule, datetime.fromtimestamp(at, zone), reverse=reverse)
    # If either day field (day of month, day of week) is `*`, a day must match both fields.
    # Otherwise, one match is enough. In Argo CD's cron (robfig/cron 3.0), `*/2` does not count as
    # `*`. In Debian's cron, which CronSim follows, it does.
    _minute, _hour, day, _month, weekday = schedule.split()
    day_items = [*day.split(","), *weekday.split(",")]
    has_star = any(_ANY.fullmatch(day_item) for day_item in day_items)
    starts.day_and = has_star
    # Return timestamps, because `datetime` objects in the same zone are compared by local time.
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
        """True if the glob is for full names such as `namespace/name`."""
        return "/" in self.text

    def fits(self, *names: str) -> bool:
        """Return whether the glob matches at least one of these names in full."""
        return any(self.pattern.match(name) for name in names)


@dataclass(frozen=True)
class PathGlob:
    """A glob for paths: `*` matches any part of a single folder or file name, and `**` matches any
    number of folders.

    A glob that matches a folder also matches everything in it.
    """

    parts: tuple[re.Pattern[str] | None, ...]  # None is `**`

    def fits(self, path: str) -> bool:
        """Return whether the glob matches a path (relative to the repository root) or one of the
        path's parent folders.

        For example, `apps/*` matches `apps/web/values.yaml`, because it matches the folder
        `apps/web`.
        """
        end = len(self.parts)
        names = [name for name in path.split("/") if name not in ("", ".")]
        # Each position is a number of glob parts that the path's names so far may have matched.
        # There can be several positions, because `**` matches any number of names.
        positions = self._with_next({0})
        for name in names:
            if end in positions:  # the whole glob has matched a parent folder
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
        """Return these positions in `parts`, plus the position after each `**` among them, because
        `**` may match zero folders.
        """
        positions_after_stars = set()
        for position, part in enumerate(self.parts):
            is_double_star = part is None
            if is_double_star and position in positions:
                positions_after_stars.add(position + 1)
        return positions | positions_after_stars


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
# file names that people may mistake for the config's
MISTAKEN = tuple(f"{PATH}{ending}" for ending in (".yaml", ".yml", ".json"))


@dataclass(frozen=True)
class Match:
    """Selects the subscriptions that a rule or freeze applies to.

    In each list of globs that is set, at least one glob must match.
    """

    applications: tuple[NameGlob, ...] = ()
    projects: tuple[NameGlob, ...] = ()
    paths: tuple[PathGlob, ...] = ()
    images: tuple[NameGlob, ...] = ()

    def takes(self, sub: Subscription) -> bool:
        """Return whether the rule or freeze applies to this subscription."""
        image = sub.entry.image
        path = posixpath.normpath(f"/{sub.path}")  # in the repository, without `..`
        return (
            _admit_application(self.applications, sub.application)
            and _admit(self.projects, sub.application.project)
            and _admit(self.paths, path)
            and _admit(self.images, image.name, image.identity)
        )


def _admit_application(globs: Sequence[NameGlob], app: Tracker) -> bool:
    """Return whether at least one of the globs matches the Application. Without globs, every
    Application matches.

    A glob with a slash is matched against `namespace/name`, and any other glob against the name
    alone.
    """
    if not globs:
        return True
    for glob in globs:
        name = app.key if glob.whole else app.name
        if glob.fits(name):
            return True
    return False


def _admit(globs: Sequence[NameGlob | PathGlob], *names: str) -> bool:
    """Return whether at least one of the globs matches one of the names, or there are no globs."""
    if not globs:
        return True
    return any(glob.fits(*names) for glob in globs)


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
    """The contents of the whole config file."""

    wishes: Wishes = Wishes()
    rules: tuple[Rule, ...] = ()
    freezes: tuple[Freeze, ...] = ()
    templates: tuple[
        tuple[str, int], ...
    ] = ()  # commit message templates: each path, with the first config line that refers to it
    memory_signers: Demand | None = None  # public keys that may sign the memory branch
    refused: tuple[str, ...] = ()  # the order rules that make `check` fail instead of warn


NO_CONFIG = RepositoryConfig()


Changed = Callable[[Subscription], Collection[str]]  # the files that an update would change


def no_files(sub: Subscription) -> tuple[str, ...]:  # noqa: ARG001 - as `Changed` is called
    """Return no files, so that only the target itself is considered."""
    return ()


def for_some_paths(config: RepositoryConfig) -> bool:
    """Return whether any rule or freeze applies only to certain paths."""
    parts: tuple[Rule | Freeze, ...] = (*config.rules, *config.freezes)
    return any(part.match.paths for part in parts)


def governed(
    subs: Iterable[Subscription],
    config: RepositoryConfig,
    now: str,
    changed: Changed = no_files,
) -> list[Subscription]:
    """Return the subscriptions with the settings that the config assigns to them at the time `now`.

    A subscription is one image of one Application. A setting that requires a pull request or a
    digest always overrides one that does not. An update may change several files, so rules and
    freezes are checked for each of them, and the strictest ones apply to the whole subscription.
    """
    active_freezes = in_force(config.freezes, now)
    known_wishes = _KnownWishes(config)
    governed_subs: list[Subscription] = []
    for sub in subs:
        sub_per_file = _with_files(sub, config, changed)
        governed_subs.append(_governed_one(sub_per_file, known_wishes, active_freezes))
    return governed_subs


def _governed_one(
    sub_per_file: Sequence[Subscription],
    known_wishes: _KnownWishes,
    active_freezes: Sequence[tuple[Match, Hold]],
) -> Subscription:
    """Return one subscription with the settings that the config assigns to it (see `governed`).

    `sub_per_file` contains the subscription itself, and then a copy for each other file that an
    update changes (see `_with_files`). Wishes are the config's settings for a subscription.
    """
    sub = sub_per_file[0]  # the one for the target
    wishes_per_file = [known_wishes.of(sub_of_file) for sub_of_file in sub_per_file]
    wishes_of_target = wishes_per_file[0]
    wishes = wishes_of_target
    if len(set(wishes_per_file)) > 1:
        wishes = agreed(wishes_per_file, wishes_of_target)

    freezes = [hold for match, hold in active_freezes if any(map(match.takes, sub_per_file))]
    ages = [of_file.minimum_age or 0 for of_file in wishes_per_file]
    config_pins_digest = any(of_file.pin_digest for of_file in wishes_per_file)
    config_requires_request = any(of_file.pull_request for of_file in wishes_per_file)
    policy = replace(
        sub.policy,
        pin_digest=sub.policy.pin_digest or config_pins_digest,
        minimum_age=max(sub.policy.minimum_age, *ages),
        tag_order=sub.policy.tag_order or wishes_of_target.tag_order or "",
    )
    return replace(
        sub,
        pull_request=sub.pull_request or config_requires_request,
        policy=policy,
        wishes=wishes,
        freeze=last_to_end(freezes),
        writes=_writes_of_all(sub_per_file, wishes_per_file),
        demands=_demands_of_all(wishes_per_file),
    )


def last_to_end(freezes: Iterable[Hold]) -> Hold | None:
    """Return the freeze that ends last, or None if there is none."""
    return max(freezes, key=lambda freeze: epoch_seconds(freeze.until), default=None)


def _demands_of_all(all_wishes: Iterable[Wishes]) -> tuple[Demand, ...]:
    """Return all proofs that these wishes require, without duplicates."""
    demands: list[Demand] = []
    for wishes in all_wishes:
        demands += [demand for demand in (wishes.signatures, wishes.provenance) if demand]
    return tuple(dict.fromkeys(demands))


def _with_files(
    sub: Subscription,
    config: RepositoryConfig,
    changed: Changed,
) -> tuple[Subscription, ...]:
    """Return the subscription itself, and a copy of it for each other file that an update changes,
    with that file as its path.

    Copies are made only if rules or freezes apply to certain paths.
    """
    if not for_some_paths(config):
        return (sub,)
    other_paths = [path for path in changed(sub) if path != sub.path]
    return (sub, *(replace(sub, path=path) for path in other_paths))


def _writes_of_all(
    sub_per_file: Sequence[Subscription],
    wishes_per_file: Sequence[Wishes],
) -> tuple[Writes, ...]:
    """Return the config's write permissions for an update: that for the target, and those for other
    changed files whose permissions differ.

    `sub_per_file` contains a subscription for the target, and then one for each other file (see
    `_with_files`). `wishes_per_file` contains the config's settings for each of them.
    """
    target_permission = wishes_per_file[0].writes
    permissions = [target_permission] if target_permission else []
    other_files = zip(sub_per_file[1:], wishes_per_file[1:], strict=True)  # without the target
    for sub_of_file, wishes in other_files:
        if wishes.writes and wishes.writes != target_permission:
            permissions.append(replace(wishes.writes, only=sub_of_file.path))
    return tuple(permissions)


def keys_named(wishes: Iterable[Wishes]) -> tuple[str, ...]:
    """Return the paths of the public keys that these wishes refer to."""
    paths: list[str] = []
    for demand in _demands_of_all(wishes):
        paths += demand.keys
    return tuple(dict.fromkeys(paths))


def also_limited(
    subs: Iterable[Subscription],
    config: RepositoryConfig,
    changed: Changed = no_files,
) -> list[Subscription]:
    """Return the subscriptions, each with additional limits on where it may be written.

    The limits come from `config`, the config of another branch.
    """
    known_wishes = _KnownWishes(config)
    limited_subs = []
    for sub in subs:
        sub_per_file = _with_files(sub, config, changed)
        wishes_per_file = [known_wishes.of(sub_of_file) for sub_of_file in sub_per_file]
        writes = _writes_of_all(sub_per_file, wishes_per_file)
        limited_subs.append(replace(sub, writes=(*sub.writes, *writes)) if writes else sub)
    return limited_subs


def refuse_stricter(sub: Subscription, paths: Iterable[str], config: RepositoryConfig) -> None:
    """Raise `NotPermittedError` if the config has stricter rules for one of these paths than those
    already applied to the subscription.

    `governed` covers the files that an update is expected to change. This function covers any other
    file.
    """
    if not any(rule.match.paths for rule in config.rules):
        return
    # The comparison ignores the contents of the public keys, because the config contains only the
    # keys' paths.
    applied_demands = {replace(demand, texts=()) for demand in sub.demands}
    config_without_freezes = replace(config, freezes=())
    for path in paths:
        # without freezes, the time does not matter, so it is ""
        (sub_of_file,) = governed([replace(sub, path=path)], config_without_freezes, "")
        # `governed` never removes a requirement, so any difference means stricter rules
        has_stricter_rules = (
            sub_of_file.pull_request != sub.pull_request
            or sub_of_file.policy.pin_digest != sub.policy.pin_digest
            or not applied_demands.issuperset(sub_of_file.demands)
        )
        if has_stricter_rules:
            message = (
                f"{PATH} has stricter rules for {shortened(path)!r} than for"
                f" {shortened(sub.path) or '/'!r}"
            )
            hint = "set write-back-target to that file or folder, so that its rules apply"
            raise NotPermittedError(message, hint=hint)


class _KnownWishes:
    """A cache of wishes for subscriptions: thousands of subscriptions share a few sets of rules."""

    def __init__(self, config: RepositoryConfig) -> None:
        self._config = config
        self._wishes_by_rules: dict[tuple[int, ...], Wishes] = {}

    def of(self, sub: Subscription) -> Wishes:
        """Return the wishes (the config's settings) for a subscription.

        Earlier rules override later ones, and rules override the file's top-level settings.
        """
        rules = self._config.rules
        numbers = tuple(number for number, rule in enumerate(rules) if rule.match.takes(sub))
        if numbers not in self._wishes_by_rules:
            layers = [rules[number].wishes for number in numbers]
            layers.append(self._config.wishes)
            self._wishes_by_rules[numbers] = wishes_of_layers(layers)
        return self._wishes_by_rules[numbers]


def agreed(shared_by: Sequence[Wishes], common: Wishes) -> Wishes:
    """Return the wishes (the config's settings) for a commit or pull request that several
    subscriptions share.

    `shared_by` contains the wishes for each subscription. Where these differ, `common` applies.
    However, labels and people are combined, a request is a draft if any subscription wants a draft,
    and it is merged automatically only if all subscriptions want that.
    """
    unanimous_wishes: dict[str, Any] = {}  # keyed by field name
    for field in fields(Wishes):
        values = [getattr(wishes, field.name) for wishes in shared_by]
        if values and all(value == values[0] for value in values):
            unanimous_wishes[field.name] = values[0]

    def combined(lists: Iterable[tuple[str, ...] | None]) -> tuple[str, ...]:
        """Return the strings in all of the lists, without duplicates."""
        all_texts: list[str] = []
        for texts in lists:
            all_texts += texts or ()
        return tuple(dict.fromkeys(all_texts))

    return replace(
        replace(common, **unanimous_wishes),
        labels=combined(wishes.labels for wishes in shared_by),
        reviewers=combined(wishes.reviewers for wishes in shared_by),
        assignees=combined(wishes.assignees for wishes in shared_by),
        draft=any(wishes.draft for wishes in shared_by),
        auto_merge=bool(shared_by) and all(wishes.auto_merge for wishes in shared_by),
    )


def wishes_of_layers(layers: Sequence[Wishes]) -> Wishes:
    """Return the wishes (the config's settings) that result from combining several layers.

    Each wish is taken from the first layer that sets it. None means that a layer does not set the
    wish.
    """
    first_values: dict[str, Any] = {}  # keyed by field name
    for layer in layers:
        for field in fields(Wishes):
            value = getattr(layer, field.name)
            if value is not None:
                first_values.setdefault(field.name, value)
    return Wishes(**first_values)


def unmatched(config: RepositoryConfig, subs: Sequence[Subscription]) -> list[tuple[str, int]]:
    """Return the rules and freezes that do not apply to any of the subscriptions. Each is given as
    its path in the config file, such as `rules[2]`, and its line.
    """
    parts: dict[str, Rule | Freeze] = {}
    for number, rule in enumerate(config.rules, start=1):
        parts[f"rules[{number}]"] = rule
    for number, freeze in enumerate(config.freezes, start=1):
        parts[f"freezes[{number}]"] = freeze

    return [
        (path, part.line) for path, part in parts.items() if not any(map(part.match.takes, subs))
    ]


def in_force(freezes: Iterable[Freeze], now: str) -> list[tuple[Match, Hold]]:
    """Return the freezes that are active at the time `now`.

    Each freeze is returned as a pair: the match, which selects the subscriptions it applies to, and
    a hold, which blocks their updates.
    """
    holds = []
    for freeze in freezes:
        current_window = window(freeze.schedule, freeze.seconds, freeze.zone, now)
        if current_window is None:
            continue
        start, end = current_window
        source = f"the freeze in {PATH}, line {freeze.line}"
        hold = Hold(reason=freeze.reason, at=start, until=end, source=source)
        holds.append((freeze.match, hold))
    return holds
