"""Waits until Argo CD has rolled out a revision: requests refreshes, polls, and reports changes.

The caller evaluates each poll with `task.argocd.rollout`; this file decides when to poll. An
uncertain result must be confirmed by a later comparison, and a failure must also last for a few
seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from task import shutdown
from task.argocd.application_store import ApplicationApi
from task.argocd.owners import set_of
from task.argocd.rollout import Details, Rollout, Wants
from task.errors import AbsentError, SourceDownError, SourceError, TaskError
from task.plain_data import text
from task.threads import in_threads

AT_ONCE = 8  # requests
_GRACE = 5.0  # seconds after the limit in which a poll may still begin
_LONGEST_REFRESH = 30.0  # seconds between two refreshes
_SLOWER = 3  # how much longer to wait for slow transitions
Log = Callable[[str, str], object]


# (Application, time after which comparisons count, its details) → state of the rollout
Judge = Callable[[Mapping[str, Any], str, Details], Rollout]


@dataclass(frozen=True)
class Awaited:
    """An Application, and the revision to wait for."""

    namespace: str
    name: str
    judge: Judge

    @property
    def key(self) -> str:
        """The `namespace/name` for messages."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Pace:
    """How long to wait, and how often to poll, in seconds."""

    limit: float = 600.0
    first: float = 1.0
    longest: float = 5.0
    patience: float = 20.0  # how long a temporary failure must last to count
    refresh: float = 2.0  # until the next refresh request; doubles each time
    explain: float = 10.0  # between two requests for details


@dataclass(frozen=True)
class RolloutState:
    """The state of an Application's rollout at one moment."""

    application: str  # namespace/name
    state: str  # a state of `Rollout`, or timed-out
    because: str
    hint: str = ""
    seconds: float = 0.0  # since the wait began
    warning: str = ""  # about a rollout that has not failed
    begun: bool = False  # whether Argo CD has begun to sync the wanted revision
    # Whether the rollout's progress is known: Argo CD has checked since, or a pod is unhealthy.
    # Otherwise, the time ran out because Argo CD was slow.
    known: bool = False

    @property
    def ended(self) -> bool:
        """Whether waiting for it is over."""
        return self.state not in ("waiting", "progressing")


@dataclass(frozen=True)
class Sight:
    """All Applications at one moment, and the Applications that changed since the last sight."""

    rows: tuple[RolloutState, ...]
    changed: tuple[RolloutState, ...]
    seconds: float


class _Watch:
    """What is known about an Application so far."""

    def __init__(self, awaited: Awaited, *, refreshes: bool) -> None:
        self.awaited = awaited
        self.row = RolloutState(awaited.key, "waiting", "querying Argo CD")
        self.reported: tuple[str, str] = ("", "")  # the state and reason in the last sight
        # None until the first poll; "" if Argo CD compares with Git on its own schedule
        self.since: str | None = None if refreshes else ""
        self.refresh_at = 0.0  # when the next refresh may be requested
        self.refresh_interval = 0.0
        self.refreshes = refreshes  # also False if it is not allowed
        self.stale = False  # whether a newer comparison is needed
        # a state that a later poll must confirm, and since when
        self.suspected: tuple[Rollout, float] | None = None
        self.details: dict[Wants, Mapping[str, Any]] = {}
        self.explain_at = 0.0  # when the next details may be requested
        self.project = ""  # known after the first poll
        self.failed_polls = 0  # how often in a row the API returned a permanent error
        self.error: TaskError | None = None
        self.begun = False  # whether the wanted revision's sync has begun
        self.looked = False  # whether Argo CD has checked since
        self.pods = ""  # the problems of its pods when they were last unhealthy


class Rollouts:
    """Waits for rollouts.

    `sights` continues until all rollouts have ended or the time is up; then `rows` and `errors`
    contain the result.
    """

    def __init__(
        self,
        api: ApplicationApi,
        awaited: Sequence[Awaited],
        pace: Pace = Pace(),
        *,
        log: Log = lambda _level, _sentence: None,
        refreshes: bool = True,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = shutdown.sleep,
        jitter: Callable[[], float] = lambda: int.from_bytes(os.urandom(2)) / 0xFFFF,
    ) -> None:
        self._api = api
        self._pace = pace
        self._log = log
        self._now = now
        self._sleep = sleep
        self._jitter = jitter
        self._watches = [_Watch(item, refreshes=refreshes) for item in awaited]
        self._began = now()

    @property
    def rows(self) -> tuple[RolloutState, ...]:
        """The last state of each Application."""
        return tuple(watch.row for watch in self._watches)

    @property
    def errors(self) -> Mapping[str, TaskError]:
        """The errors for Applications whose outcome the API could not report."""
        return {watch.awaited.key: watch.error for watch in self._watches if watch.error}

    def sights(self) -> Iterator[Sight]:
        """Yield a sight after each round of polling."""
        wait = self._pace.first
        while open_ones := [watch for watch in self._watches if not watch.row.ended]:
            shutdown.check()
            in_threads(self._poll, open_ones, AT_ONCE)
            remaining_seconds = self._pace.limit - self._elapsed()
            if remaining_seconds <= 0:
                self._give_up()
            changed = [
                watch
                for watch in self._watches
                if (watch.row.state, watch.row.because) != watch.reported
            ]
            for watch in changed:
                watch.reported = (watch.row.state, watch.row.because)
            yield Sight(
                self.rows,
                tuple(watch.row for watch in changed),
                self._elapsed(),
            )
            wait = self._pace.first if changed else min(wait * 1.5, self._pace.longest)
            if any(not watch.row.ended for watch in self._watches):
                pause = wait * (0.75 + self._jitter() / 2)
                self._sleep(min(pause, max(remaining_seconds, 0.05)))

    def _elapsed(self) -> float:
        return self._now() - self._began

    def _time_is_up(self) -> bool:
        return self._elapsed() > self._pace.limit + _GRACE

    def _poll(self, watch: _Watch) -> None:
        """Poll an Application. A temporary error does not end the wait for it; a second permanent
        error does.

        Once the time is up, do not send more requests. A server that sends a byte now and then may
        take half a minute to respond, and a poll may need five responses.
        """
        if self._time_is_up():
            return
        try:
            item = self._read(watch)
            needs_refresh = watch.stale and watch.refreshes and self._now() >= watch.refresh_at
            # always true at the first poll: earlier comparisons do not count
            if watch.since is None:
                watch.since = text(item, "status", "reconciledAt")
                needs_refresh = True
            if needs_refresh and not self._time_is_up():
                self._refresh(watch)
                if not self._time_is_up():
                    item = self._read(watch)
            self._accept(watch, self._rollout_of(watch, item))
            watch.error = None
            watch.failed_polls = 0
        except SourceDownError as error:
            watch.error = error
            self._show(
                watch,
                watch.row.state,
                f"no response at the moment: {bare(error, watch.awaited.key)}",
            )
        except SourceError as error:
            if watch.project and isinstance(error, AbsentError):
                watch.error = None
                watch.begun = False
                self._show(
                    watch,
                    "failed",
                    "it was deleted during the wait",
                    "check whether it was deleted on purpose",
                )
                return
            watch.failed_polls += 1
            ends_wait = watch.failed_polls > 1
            self._show(
                watch,
                "failed" if ends_wait else watch.row.state,
                bare(error, watch.awaited.key),
                error.hint,
            )
            watch.error = error if ends_wait else None

    def _read(self, watch: _Watch) -> Mapping[str, Any]:
        """Request the Application with its project, because Argo CD otherwise reports a missing
        Application as forbidden.
        """
        namespace = watch.awaited.namespace
        name = watch.awaited.name
        try:
            item = self._api.get_application(namespace, name, watch.project)
        except AbsentError as absent:
            if not watch.project:
                raise
            try:
                # it may have moved to a different project
                item = self._api.get_application(namespace, name)
            except SourceDownError:
                raise
            except SourceError:
                raise absent from None
        watch.project = text(item, "spec", "project") or "default"
        return item

    def _refresh(self, watch: _Watch) -> None:
        """Request a refresh. If that is not allowed, rely on Argo CD's own schedule."""
        doubled = min(watch.refresh_interval * 2, _LONGEST_REFRESH)
        watch.refresh_interval = doubled or self._pace.refresh  # 0 before the first refresh
        watch.refresh_at = self._now() + watch.refresh_interval
        try:
            self._api.refresh_application(watch.awaited.namespace, watch.awaited.name)
        except SourceDownError:
            return  # the next poll requests it again
        except SourceError as error:
            watch.refreshes = False
            watch.since = ""
            why = (
                "cannot request a refresh; Argo CD will detect the commit later:"
                f" {bare(error, watch.awaited.key)}"
            )
            self._log("warning", f"{watch.awaited.key}: {why}")

    def _rollout_of(self, watch: _Watch, item: Mapping[str, Any]) -> Rollout:
        """Return the state of the rollout. If details would help, request them now and then."""
        judge = watch.awaited.judge
        since = watch.since or ""
        rollout = judge(item, since, {})
        wants = rollout.wants
        if not wants:
            return rollout
        if self._now() >= watch.explain_at and not self._time_is_up():
            watch.explain_at = self._now() + self._pace.explain
            watch.details[wants] = {}
            with suppress(SourceError):  # it only makes the result more precise
                watch.details[wants] = self._detail(wants, watch.awaited, item)
        return judge(item, since, watch.details)

    def _detail(self, kind: Wants, awaited: Awaited, item: Mapping[str, Any]) -> Mapping[str, Any]:
        """Request the ApplicationSet, the resource tree, or the sync windows."""
        if kind == "owner":
            return self._api.application_set(awaited.namespace, set_of(item))
        if kind == "tree":
            return self._api.resource_tree(awaited.namespace, awaited.name)
        return self._api.sync_windows(awaited.namespace, awaited.name)

    def _accept(self, watch: _Watch, found: Rollout) -> None:
        """Show a state, or wait for a later poll to confirm it."""
        watch.stale = found.stale or not found.sure
        watch.begun = found.begun
        watch.looked = found.looked
        watch.pods = found.pods or watch.pods
        confirmed = False
        if watch.suspected:
            first, suspected_since = watch.suspected
            compared_again = first.state == found.state and first.compared != found.compared
            needs_no_time = found.state == "synced-and-healthy" and not found.slow
            patience = self._pace.patience * (_SLOWER if found.slow else 1)
            lasted = self._now() - suspected_since >= patience
            confirmed = compared_again and (needs_no_time or lasted)
        if found.sure or confirmed:
            watch.suspected = None
            self._show(watch, found.state, found.because, found.hint, found.warning)
            return
        if watch.suspected is None or watch.suspected[0].state != found.state:
            watch.suspected = (found, self._now())
            watch.refresh_interval = 0.0
        self._show(watch, "progressing", f"{found.because}; checking again", found.hint)

    def _show(
        self,
        watch: _Watch,
        state: str,
        because: str,
        hint: str = "",
        warning: str = "",
    ) -> None:
        known = state == "failed" or watch.looked or bool(watch.pods)
        watch.row = RolloutState(
            watch.awaited.key,
            state,
            because,
            hint,
            self._elapsed(),
            warning,
            watch.begun,
            known,
        )

    def _give_up(self) -> None:
        """End the wait. An unconfirmed state is the best available result."""
        for watch in self._watches:
            if watch.row.ended:
                continue
            first = watch.suspected[0] if watch.suspected else None
            if first and first.state != "synced-and-healthy":
                self._show(watch, first.state, first.because, first.hint)
            else:
                hint = (
                    watch.row.hint
                    or "check the Application in Argo CD, or pass a longer --wait-timeout"
                )
                # A container that keeps crashing runs in between, and then there is no other sign
                # of the cause.
                because = watch.row.because
                if watch.pods and watch.pods not in because:
                    because = f"{because}; earlier: {watch.pods}"
                self._show(watch, "timed-out", because, hint)


def bare(error: TaskError, application: str) -> str:
    """Return the message without the Application's name, because it is shown after the name."""
    return error.message.removeprefix(f"{application}: ")


def refresh(api: ApplicationApi, keys: Sequence[tuple[str, str]], log: Log) -> None:
    """Request a refresh for exactly these Applications. A failure is a warning."""

    def ask(key: tuple[str, str]) -> None:
        try:
            api.refresh_application(*key)
        except TaskError as error:
            name = "/".join(key)
            hint = f"; {error.hint}" if error.hint else ""
            why = (
                "cannot request a refresh; Argo CD will detect the commit later:"
                f" {bare(error, name)}{hint}"
            )
            log("warning", f"{name}: {why}")

    in_threads(ask, list(dict.fromkeys(keys)), AT_ONCE)
