"""Waits until Argo CD has rolled out a revision: requests refreshes, polls, and reports changes.

The caller evaluates each poll with `task.argocd.rollout`; this file decides when to poll. An
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

AT_ONCE = 8  # requests
_GRACE_SECONDS = 5.0  # how long after the time limit a poll may still start
_LONGEST_REFRESH = 30.0  # seconds between two refreshes
_SLOW_FACTOR = 3  # how much longer to wait for slow transitions
Log = Callable[[str, str], object]


# (Application, time after which comparisons count, details) → state of the rollout
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
    # Whether the rollout's progress is known: Argo CD has checked since, or a pod is unhealthy. If
    # not, the time ran out because Argo CD was slow.
    known: bool = False

    @property
    def ended(self) -> bool:
        """Whether the wait for the rollout is over."""
        return self.state not in ("waiting", "progressing")


@dataclass(frozen=True)
class Sight:
    """A sight: the states of all Applications at one moment, and which of them have changed since
    the last sight.
    """

    rows: tuple[RolloutState, ...]
    changed: tuple[RolloutState, ...]
    seconds: float


class _Watch:
    """What the polls have found so far about one awaited Application."""

    def __init__(self, awaited: Awaited, *, refreshes: bool) -> None:
        self.awaited = awaited
        self.row = RolloutState(awaited.key, "waiting", "querying Argo CD")
        self.reported: tuple[str, str] = ("", "")  # the state and reason in the last sight
        # None until the first poll; "" if Argo CD compares with Git on its own schedule
        self.since: str | None = None if refreshes else ""
        self.refresh_at = 0.0  # when the next refresh may be requested
        self.refresh_interval = 0.0
        self.refreshes = refreshes  # also False if refreshes are not allowed
        self.stale = False  # whether a newer comparison is needed
        self.unconfirmed: Rollout | None = None  # a state that a later poll must confirm
        self.unconfirmed_since = 0.0  # when this state was first seen
        self.details: dict[Wants, Mapping[str, Any]] = {}
        self.explain_at = 0.0  # when the next details may be requested
        self.project = ""  # known after the first poll
        self.failed_polls = 0  # how often in a row the API returned a permanent error
        self.error: TaskError | None = None
        self.begun = False  # whether the wanted revision's sync has begun
        self.checked_since_sync = False  # whether Argo CD has checked the cluster since then
        self.pods = ""  # the pods' problems when they were last unhealthy


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
        """The errors of the Applications whose outcome the API could not report."""
        return {watch.awaited.key: watch.error for watch in self._watches if watch.error}

    def sights(self) -> Iterator[Sight]:
        """Poll in rounds until all rollouts have ended or the time is up, and yield a sight (the
        states of all Applications at one moment) after each round.

        The pause between rounds grows while nothing changes.
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
                # `_jitter` is between 0 and 1, so this is 75 to 125 percent of the pause
                jittered_pause = pause * (0.75 + self._jitter() / 2)
                self._sleep(min(jittered_pause, max(remaining_seconds, 0.05)))

    def _unfinished_watches(self) -> list[_Watch]:
        """Return the records of the Applications whose rollouts have not ended."""
        return [watch for watch in self._watches if not watch.row.ended]

    def _take_changed_rows(self) -> tuple[RolloutState, ...]:
        """Return the rows whose state or reason has changed since the last call, and remember them
        for the next call.
        """
        changed_rows = []
        for watch in self._watches:
            state_and_reason = (watch.row.state, watch.row.because)
            if state_and_reason != watch.reported:
                watch.reported = state_and_reason
                changed_rows.append(watch.row)
        return tuple(changed_rows)

    def _elapsed_seconds(self) -> float:
        """Return the seconds since the wait began."""
        return self._now() - self._began

    def _time_is_up(self) -> bool:
        """Return whether it is too late to send more requests."""
        return self._elapsed_seconds() > self._pace.limit + _GRACE_SECONDS

    def _poll(self, watch: _Watch) -> None:
        """Request an Application, and update its `watch` (what the polls have found so far).

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

        A refresh is needed at the first poll, and later if the state is stale and the next refresh
        is due. Once the time is up, no more requests are sent: a server that sends a byte now and
        then may take half a minute to respond, and a poll may need five responses.
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
        """Show a permanent error. If it is the second in a row, or if the Application was deleted
        during the wait, its rollout has failed.
        """
        was_deleted = bool(watch.project) and isinstance(error, AbsentError)
        if was_deleted:  # the project is known only if an earlier poll found the Application
            watch.error = None
            watch.begun = False  # a rollback could not undo a deletion
            self._set_row(
                watch,
                "failed",
                "it was deleted during the wait",
                "check whether it was deleted on purpose",
            )
            return
        watch.failed_polls += 1
        ends_wait = watch.failed_polls > 1  # the first error may still go away
        state = "failed" if ends_wait else watch.row.state
        self._set_row(watch, state, message_without_name(error, watch.awaited.key), error.hint)
        watch.error = error if ends_wait else None

    def _request_application(self, watch: _Watch) -> Mapping[str, Any]:
        """Return the awaited Application from the API, and store its project in `watch.project`.

        The request contains the project from the last poll ("" at the first poll), because Argo CD
        otherwise reports a missing Application as forbidden. Raises `AbsentError` if a project is
        known and the Application does not exist in any project, and `SourceError` for other errors.
        """
        namespace = watch.awaited.namespace
        name = watch.awaited.name
        try:
            application = self._api.get_application(namespace, name, watch.project)
        except AbsentError as absent_error:
            if not watch.project:
                raise
            # it may have moved to a different project, so request it without the project
            try:
                application = self._api.get_application(namespace, name)
            except SourceDownError:  # without a response, the Application may not be missing
                raise
            except SourceError:  # without a project, a missing Application is "forbidden"
                raise absent_error from None
        watch.project = text(application, "spec", "project") or "default"
        return application

    def _request_refresh(self, watch: _Watch) -> None:
        """Request a refresh (a new comparison with Git), and set when the next one may be
        requested. If the request is refused, rely on Argo CD's own schedule from now on.
        """
        if watch.refresh_interval:
            watch.refresh_interval = min(watch.refresh_interval * 2, _LONGEST_REFRESH)
        else:
            watch.refresh_interval = self._pace.refresh
        watch.refresh_at = self._now() + watch.refresh_interval
        try:
            self._api.refresh_application(watch.awaited.namespace, watch.awaited.name)
        except SourceDownError:
            return  # the next poll requests it again
        except SourceError as error:
            watch.refreshes = False
            watch.since = ""  # so that a comparison from before the wait counts
            why = (
                "cannot request a refresh; Argo CD will detect the commit later:"
                f" {message_without_name(error, watch.awaited.key)}"
            )
            self._log("warning", f"{watch.awaited.key}: {why}")

    def _judged_rollout(self, watch: _Watch, item: Mapping[str, Any]) -> Rollout:
        """Return the state of the rollout, from the Application `item`.

        If other data, such as the pods, would make the state more precise, judge again with that
        data. It is requested only now and then, and reused in between.
        """
        judge = watch.awaited.judge
        since = watch.since or ""
        rollout = judge(item, since, {})
        wants = rollout.wants
        if not wants:
            return rollout
        if self._now() >= watch.explain_at and not self._time_is_up():
            watch.explain_at = self._now() + self._pace.explain
            watch.details[wants] = {}  # if the request fails, older data must not be reused
            with suppress(SourceError):  # the data only makes the result more precise
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
        """Show a state if it is sure, or if it confirms the state of an earlier poll. Otherwise,
        show "progressing", and remember the state until a later poll confirms it.
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
            watch.refresh_interval = 0.0  # begin with short intervals again
        self._set_row(watch, "progressing", f"{rollout.because}; checking again", rollout.hint)

    def _is_confirmed(self, watch: _Watch, rollout: Rollout) -> bool:
        """Return whether a state confirms the unconfirmed state from an earlier poll.

        The two states must be the same, and Argo CD must have compared with Git again in between.
        The state must also have lasted for a while, unless it is "synced-and-healthy" and not slow.
        """
        earlier = watch.unconfirmed
        if earlier is None or earlier.state != rollout.state:
            return False
        if earlier.compared_at == rollout.compared_at:
            return False
        if rollout.state == "synced-and-healthy" and not rollout.slow:
            return True
        # any other state may be temporary, such as a pod that crashes once while it starts
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
        """Set the Application's state to show after this round of polling."""
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

        The result is the unconfirmed state if there is one and it is not a success. Otherwise, it
        is "timed-out".
        """
        for watch in self._unfinished_watches():
            unconfirmed = watch.unconfirmed
            if unconfirmed and unconfirmed.state != "synced-and-healthy":
                # a failure that could not be confirmed in time is more useful than "timed-out"
                self._set_row(watch, unconfirmed.state, unconfirmed.because, unconfirmed.hint)
                continue
            hint = (
                watch.row.hint
                or "check the Application in Argo CD, or pass a longer --wait-timeout"
            )
            because = watch.row.because
            # A container that keeps crashing runs in between, and nothing else shows the cause
            # then.
            if watch.pods and watch.pods not in because:
                because = f"{because}; earlier: {watch.pods}"
            self._set_row(watch, "timed-out", because, hint)


def message_without_name(error: TaskError, application: str) -> str:
    """Return the message without the Application's name, because it is shown after the name."""
    return error.message.removeprefix(f"{application}: ")


def refresh(api: ApplicationApi, keys: Sequence[tuple[str, str]], log: Log) -> None:
    """Request a refresh (a new comparison with Git) for each of the Applications with these `keys`:
    (namespace, name).

    A failure is logged as a warning.
    """

    def refresh_one(key: tuple[str, str]) -> None:
        """Request a refresh of one Application. If that fails, log why."""
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
