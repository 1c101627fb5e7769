"""Waits for Argo CD to roll out a revision: requests refreshes, polls, and reports changes.

This module decides when to poll; the caller evaluates each response with `task.argocd.rollout`. An
uncertain result must be confirmed by a later comparison, and a failure must also persist for a few
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

AT_ONCE = 8  # the maximum number of concurrent requests
_GRACE_SECONDS = 5.0  # how long after the time limit requests may still be sent
_LONGEST_REFRESH = 30.0  # maximum seconds between two refresh requests
_SLOW_FACTOR = 3  # how many times longer a slow state must last
Log = Callable[[str, str], object]


# (Application, time after which comparisons count, details) → the rollout's state
Judge = Callable[[Mapping[str, Any], str, Details], Rollout]


@dataclass(frozen=True)
class Awaited:
    """An Application whose rollout is awaited, and how to judge its state."""

    namespace: str
    name: str
    judge: Judge

    @property
    def key(self) -> str:
        """The Application's `namespace/name`, for messages."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Pace:
    """How long to wait, and how often to poll, in seconds."""

    limit: float = 600.0
    first: float = 1.0
    longest: float = 5.0
    patience: float = 20.0  # how long an uncertain failure must last to count
    refresh: float = 2.0  # the time until the next refresh request, which doubles each time
    explain: float = 10.0  # the time between two requests for details


@dataclass(frozen=True)
class RolloutState:
    """The state of an Application's rollout at a given moment."""

    application: str  # namespace/name
    state: str  # a state of `Rollout`, or "timed-out"
    because: str
    hint: str = ""
    seconds: float = 0.0  # seconds since the wait began
    warning: str = ""  # a warning about a rollout that has not failed
    begun: bool = False  # whether Argo CD has begun to sync the wanted revision
    # Whether the rollout's progress is known: it failed, Argo CD has checked the cluster since the
    # sync, or a pod is unhealthy. If not, a timeout means that Argo CD was slow.
    known: bool = False

    @property
    def ended(self) -> bool:
        """Whether the wait for the rollout is over."""
        return self.state not in ("waiting", "progressing")


@dataclass(frozen=True)
class Sight:
    """The states of all Applications at one moment, and those that have changed since the last
    sight.
    """

    rows: tuple[RolloutState, ...]
    changed: tuple[RolloutState, ...]
    seconds: float


class _Watch:
    """What the polls have revealed so far about one awaited Application."""

    def __init__(self, awaited: Awaited, *, refreshes: bool) -> None:
        self.awaited = awaited
        self.row = RolloutState(awaited.key, "waiting", "querying Argo CD")
        self.reported: tuple[str, str] = ("", "")  # the state and reason reported in the last sight
        # None until the first poll; "" if Argo CD compares with Git on its own schedule
        self.since: str | None = None if refreshes else ""
        self.refresh_at = 0.0  # when the next refresh may be requested
        self.refresh_interval = 0.0
        self.refreshes = refreshes  # False if disabled, or if Argo CD refuses refreshes
        self.stale = False  # whether a newer comparison is needed
        self.unconfirmed: Rollout | None = None  # a state that a later poll has to confirm
        self.unconfirmed_since = 0.0  # when that state was first seen
        self.details: dict[Wants, Mapping[str, Any]] = {}
        self.explain_at = 0.0  # when the next details may be requested
        self.project = ""  # "" until the first poll
        self.failed_polls = 0  # how many polls in a row returned a permanent error
        self.error: TaskError | None = None
        self.begun = False  # whether the wanted revision's sync has begun
        # whether Argo CD has checked the cluster since that sync ended or, if it is still running,
        # since it began
        self.checked_since_sync = False
        self.pods = ""  # the pods' problems, from when they were last unhealthy


class Rollouts:
    """Waits for rollouts.

    `sights` polls until all rollouts have ended or the time is up. After that, `rows` and `errors`
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
        """The last known state of each Application."""
        return tuple(watch.row for watch in self._watches)

    @property
    def errors(self) -> Mapping[str, TaskError]:
        """The errors for Applications whose outcome the API could not report."""
        return {watch.awaited.key: watch.error for watch in self._watches if watch.error}

    def sights(self) -> Iterator[Sight]:
        """Poll in rounds until all rollouts have ended or the time is up. After each round, yield a
        sight (the states of all Applications at that moment).

        The pause between rounds grows as long as nothing changes.
        """
        pause = self._pace.first
        unfinished = self._unfinished_watches()
        while unfinished:
            shutdown.check()
            in_threads(self._poll, unfinished, AT_ONCE)
            remaining_seconds = self._pace.limit - self._elapsed_seconds()
            if remaining_seconds <= 0:
                self._end_unfinished()  # which also ends this loop

            changed_rows = self._take_changed_rows()
            yield Sight(self.rows, changed_rows, self._elapsed_seconds())

            pause = self._pace.first if changed_rows else min(pause * 1.5, self._pace.longest)
            unfinished = self._unfinished_watches()
            if unfinished:
                # `_jitter` returns a number between 0 and 1, so this is 75 to 125 percent of the
                # pause
                jittered_pause = pause * (0.75 + self._jitter() / 2)
                self._sleep(min(jittered_pause, max(remaining_seconds, 0.05)))

    def _unfinished_watches(self) -> list[_Watch]:
        """Return the records of the Applications whose rollouts have not ended."""
        return [watch for watch in self._watches if not watch.row.ended]

    def _take_changed_rows(self) -> tuple[RolloutState, ...]:
        """Return the rows whose state or reason has changed since the last call, and record them as
        reported.
        """
        changed_rows = []
        for watch in self._watches:
            state_and_reason = (watch.row.state, watch.row.because)
            if state_and_reason != watch.reported:
                watch.reported = state_and_reason
                changed_rows.append(watch.row)
        return tuple(changed_rows)

    def _elapsed_seconds(self) -> float:
        """Return the number of seconds since the wait began."""
        return self._now() - self._began

    def _time_is_up(self) -> bool:
        """Return whether it is too late to send more requests."""
        return self._elapsed_seconds() > self._pace.limit + _GRACE_SECONDS

    def _poll(self, watch: _Watch) -> None:
        """Request an Application, and update its `watch` (what the polls have revealed so far).

        If the server does not respond, the state stays the same, and the next poll tries again.
        """
        if self._time_is_up():
            return
        try:
            application = self._request_refreshed_application(watch)
            self._accept_state(watch, self._judged_rollout(watch, application))
        except SourceDownError as error:
            watch.error = error
            self._set_row(
                watch,
                watch.row.state,
                f"no response at the moment: {message_without_name(error, watch.awaited.key)}",
            )
        except SourceError as error:
            self._accept_error(watch, error)
        else:
            watch.error = None
            watch.failed_polls = 0

    def _request_refreshed_application(self, watch: _Watch) -> Mapping[str, Any]:
        """Return the Application, after a refresh (a new comparison with Git) if one is needed.

        A refresh is needed on the first poll, and later whenever the state is stale and the next
        refresh is due. Once the time is up, no further requests are sent: a server that trickles
        its response may take half a minute, and a poll may need five responses.
        """
        application = self._request_application(watch)
        needs_refresh = watch.stale and watch.refreshes and self._now() >= watch.refresh_at
        is_first_poll = watch.since is None
        if is_first_poll:
            watch.since = text(application, "status", "reconciledAt")
            needs_refresh = True  # earlier comparisons do not count
        if not needs_refresh or self._time_is_up():
            return application
        self._request_refresh(watch)
        if self._time_is_up():
            return application
        return self._request_application(watch)

    def _accept_error(self, watch: _Watch, error: SourceError) -> None:
        """Show a permanent error. If this is the second one in a row, or if the Application was
        deleted during the wait, the rollout has failed.
        """
        was_deleted = bool(watch.project) and isinstance(error, AbsentError)
        if was_deleted:  # a known project means that an earlier poll found the Application
            watch.error = None
            watch.begun = False  # a rollback would not undo the deletion
            self._set_row(
                watch,
                "failed",
                "it was deleted during the wait",
                "check whether it was deleted on purpose",
            )
            return
        watch.failed_polls += 1
        ends_wait = watch.failed_polls > 1  # a single error may be temporary
        state = "failed" if ends_wait else watch.row.state
        self._set_row(watch, state, message_without_name(error, watch.awaited.key), error.hint)
        watch.error = error if ends_wait else None

    def _request_application(self, watch: _Watch) -> Mapping[str, Any]:
        """Return the awaited Application from the API, and store its project in `watch.project`.

        The request includes the project from the last poll ("" on the first poll), because Argo CD
        otherwise reports a missing Application as forbidden. Raises `AbsentError` if the project is
        known but the Application no longer exists in any project, and `SourceError` for other
        errors.
        """
        namespace = watch.awaited.namespace
        name = watch.awaited.name
        try:
            application = self._api.get_application(namespace, name, watch.project)
        except AbsentError as absent_error:
            if not watch.project:
                raise
            # the Application may have moved to a different project, so request it without one
            try:
                application = self._api.get_application(namespace, name)
            except SourceDownError:  # the Application may still exist
                raise
            except SourceError:  # without a project, "forbidden" means missing
                raise absent_error from None
        watch.project = text(application, "spec", "project") or "default"
        return application

    def _request_refresh(self, watch: _Watch) -> None:
        """Request a refresh (a new comparison with Git), and schedule the earliest time for the
        next request. If Argo CD refuses, rely on its own schedule from now on.
        """
        if watch.refresh_interval:
            watch.refresh_interval = min(watch.refresh_interval * 2, _LONGEST_REFRESH)
        else:
            watch.refresh_interval = self._pace.refresh
        watch.refresh_at = self._now() + watch.refresh_interval
        try:
            self._api.refresh_application(watch.awaited.namespace, watch.awaited.name)
        except SourceDownError:
            return  # a later poll requests it again
        except SourceError as error:
            watch.refreshes = False
            watch.since = ""  # so that comparisons from before the wait count, too
            why = (
                "cannot request a refresh; Argo CD will detect the commit later:"
                f" {message_without_name(error, watch.awaited.key)}"
            )
            self._log("warning", f"{watch.awaited.key}: {why}")

    def _judged_rollout(self, watch: _Watch, item: Mapping[str, Any]) -> Rollout:
        """Return the rollout's state, based on the Application `item`.

        If other data, such as the pods, would make the state more precise, judge again with that
        data. The data is requested only at intervals, and reused in between.
        """
        judge = watch.awaited.judge
        since = watch.since or ""
        rollout = judge(item, since, {})
        wants = rollout.wants
        if not wants:
            return rollout
        if self._now() >= watch.explain_at and not self._time_is_up():
            watch.explain_at = self._now() + self._pace.explain
            watch.details[wants] = {}  # so that older data is not reused if the request fails
            with suppress(SourceError):  # the state is then just less precise
                watch.details[wants] = self._request_detail(wants, watch.awaited, item)
        return judge(item, since, watch.details)

    def _request_detail(
        self, kind: Wants, awaited: Awaited, item: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Request an Application's ApplicationSet, resource tree, or sync windows."""
        if kind == "owner":
            return self._api.application_set(awaited.namespace, set_of(item))
        if kind == "tree":
            return self._api.resource_tree(awaited.namespace, awaited.name)
        return self._api.sync_windows(awaited.namespace, awaited.name)

    def _accept_state(self, watch: _Watch, rollout: Rollout) -> None:
        """Show a state if it is certain, or if it confirms the state from an earlier poll.
        Otherwise, show "progressing", and remember the state until a later poll confirms it.
        """
        watch.stale = rollout.stale or not rollout.sure
        watch.begun = rollout.begun
        watch.checked_since_sync = rollout.checked_since_sync
        watch.pods = rollout.pods or watch.pods
        if rollout.sure or self._is_confirmed(watch, rollout):
            watch.unconfirmed = None
            self._set_row(watch, rollout.state, rollout.because, rollout.hint, rollout.warning)
            return
        if watch.unconfirmed is None or watch.unconfirmed.state != rollout.state:
            watch.unconfirmed = rollout
            watch.unconfirmed_since = self._now()
            watch.refresh_interval = 0.0  # start again with short intervals
        self._set_row(watch, "progressing", f"{rollout.because}; checking again", rollout.hint)

    def _is_confirmed(self, watch: _Watch, rollout: Rollout) -> bool:
        """Return whether a state confirms the unconfirmed state from an earlier poll.

        The two states must be the same, and Argo CD must have compared with Git again in between.
        Unless the state is "synced-and-healthy" and not `slow`, it must also have lasted for a
        while.
        """
        earlier = watch.unconfirmed
        if earlier is None or earlier.state != rollout.state:
            return False
        if earlier.compared_at == rollout.compared_at:
            return False
        if rollout.state == "synced-and-healthy" and not rollout.slow:
            return True
        # any other state may be temporary; for example, a pod may crash once during startup
        patience = self._pace.patience * (_SLOW_FACTOR if rollout.slow else 1)
        return self._now() - watch.unconfirmed_since >= patience

    def _set_row(
        self,
        watch: _Watch,
        state: str,
        because: str,
        hint: str = "",
        warning: str = "",
    ) -> None:
        """Set the Application's state that is shown after this round of polling."""
        watch.row = RolloutState(
            application=watch.awaited.key,
            state=state,
            because=because,
            hint=hint,
            seconds=self._elapsed_seconds(),
            warning=warning,
            begun=watch.begun,
            known=state == "failed" or watch.checked_since_sync or bool(watch.pods),
        )

    def _end_unfinished(self) -> None:
        """End the wait for all unfinished Applications.

        An Application's final state is its unconfirmed state if there is one that is not a success,
        or else "timed-out".
        """
        for watch in self._unfinished_watches():
            unconfirmed = watch.unconfirmed
            if unconfirmed and unconfirmed.state != "synced-and-healthy":
                # a failure is more useful than "timed-out", even if it could not be confirmed in
                # time
                self._set_row(watch, unconfirmed.state, unconfirmed.because, unconfirmed.hint)
                continue
            hint = (
                watch.row.hint
                or "check the Application in Argo CD, or pass a longer --wait-timeout"
            )
            because = watch.row.because
            # A crash-looping container runs between crashes, and meanwhile only the earlier
            # problems reveal the cause.
            if watch.pods and watch.pods not in because:
                because = f"{because}; earlier: {watch.pods}"
            self._set_row(watch, "timed-out", because, hint)


def message_without_name(error: TaskError, application: str) -> str:
    """Return an error's message without the Application's name, because the message is shown after
    that name.
    """
    return error.message.removeprefix(f"{application}: ")


def refresh(api: ApplicationApi, keys: Sequence[tuple[str, str]], log: Log) -> None:
    """Request a refresh (a new comparison with Git) of each Application in `keys`: (namespace,
    name).

    Failures are logged as warnings.
    """

    def refresh_one(key: tuple[str, str]) -> None:
        """Request a refresh of one Application. If the request fails, log why."""
        namespace, name = key
        try:
            api.refresh_application(namespace, name)
        except TaskError as error:
            application = f"{namespace}/{name}"
            hint = f"; {error.hint}" if error.hint else ""
            why = (
                "cannot request a refresh; Argo CD will detect the commit later:"
                f" {message_without_name(error, application)}{hint}"
            )
            log("warning", f"{application}: {why}")

    distinct_keys = list(dict.fromkeys(keys))
    in_threads(refresh_one, distinct_keys, AT_ONCE)
