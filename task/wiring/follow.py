"""After the push: Events on the Applications, a refresh, and waiting for the merge and the rollout."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from task import stop
from task.errors import RolloutError, TaskError
from task.model import Problem
from task.settings import Settings
from task.wiring.argo import Argo
from task.wiring.forges import Requests
from task.world import Landed

MERGE_PAUSE = 5.0  # seconds between two looks at a request


class Follow:
    """What Argo CD is told and asked once everything has landed."""

    def __init__(
        self, settings: Settings, argo: Argo, requests: Requests, descends: Callable[[str, str, str], str]
    ) -> None:
        self._settings, self._argo, self._requests, self._descends = settings, argo, requests, descends
        self._environ, self._log = argo.environ, argo.log

    def __call__(self, landed: Sequence[Landed]) -> tuple[Problem, ...]:
        """Tell and wait; every failure is a problem of its own, since what has landed stays."""
        given = self._settings.argo
        if self._settings.dry or not landed or not (self._argo.kind or given.wait):
            return ()
        written = [one for one in landed if any(two.verdict.verdict == "update" for two in one.changes)]
        problems: list[Problem] = []
        if given.events and self._argo.kind == "cluster":
            problems += self._guarded(lambda: self._events(written), "warning")
        merged = list(landed) if given.wait else written
        if given.wait:
            try:
                merged = self._merged(landed)
            except TaskError as error:
                return (*problems, _problem(error))
        if given.refresh and self._argo.kind:
            problems += self._guarded(
                lambda: self._refresh([one for one in merged if one in written or given.wait]), "warning"
            )
        if given.wait:
            problems += self._guarded(lambda: self._wait(merged), "error")
        return tuple(problems)

    def _guarded(self, work: Callable[[], None], severity: str) -> list[Problem]:
        try:
            work()
        except TaskError as error:
            return [_problem(error)._replace(severity="error" if severity == "error" else "warning")]
        return []

    def _events(self, written: Sequence[Landed]) -> None:
        from task.draft import change_of
        from task.edges.kubernetes import APPLICATIONS
        from task.words.events import updated_event

        kubernetes = self._argo.kubernetes()
        for one in written:
            item = kubernetes.get(APPLICATIONS, one.application.namespace, one.application.name)
            if item is None:
                continue
            changes = [change_of(two) for two in one.changes if two.verdict.verdict == "update"]
            kubernetes.post(updated_event(item["metadata"], changes, time.time()))

    def _refresh(self, landed: Sequence[Landed]) -> None:
        from task.edges.rollouts import refresh

        keys = [(one.application.namespace, one.application.name) for one in landed if not one.request]
        if self._settings.argo.parents:
            keys += self._parents(landed)
        refresh(self._argo.api(), list(dict.fromkeys(keys)), self._log)

    def _parents(self, landed: Sequence[Landed]) -> list[tuple[str, str]]:
        """The Applications that manage those that were written (app of apps)."""
        from task.rules.rollout_view import parent_of

        api = self._argo.api()
        items = (api.get_application(one.application.namespace, one.application.name) for one in landed)
        parents = (parent_of(item, self._settings.argocd_namespace) for item in items)
        return [one for one in parents if one is not None]

    def _merged(self, landed: Sequence[Landed]) -> list[Landed]:
        """As they are once their pull requests are merged: the commit is the merge's then."""
        end = time.monotonic() + self._settings.argo.limit
        return [self._once_merged(one, end) if one.request else one for one in landed]

    def _once_merged(self, one: Landed, end: float) -> Landed:
        forge = self._requests.of(one.repo)
        while True:
            request = forge.state(one.request)
            if request.state == "merged":
                return one._replace(commit=request.merge_commit or one.commit, request="")
            if request.state == "closed":
                raise RolloutError(f"{request.url} was closed without being merged", hint="a newer build opens another")
            if time.monotonic() >= end:
                raise RolloutError(f"{request.url} is not merged yet", hint="merge it, or give a longer --wait-timeout")
            stop.sleep(MERGE_PAUSE)

    def _wait(self, landed: Sequence[Landed]) -> None:
        from task.edges.rollouts import Awaited
        from task.wiring.waiting import judge_of, rollout_error, watch

        awaited = [
            Awaited(
                one.application.namespace,
                one.application.name,
                judge_of(self._accepts(one), one.repo) if one.commit else judge_of(lambda _any: True, spec=True),
            )
            for one in landed
        ]
        rows, error = watch(self._argo.api(patient=True), awaited, self._settings.argo.limit, self._environ, self._log)
        if found := error or rollout_error(rows):
            raise found

    def _accepts(self, one: Landed) -> Callable[[str], bool]:
        """The commit itself, and those that came after it on the branch."""
        known: dict[str, bool] = {one.commit: True}

        def accepts(revision: str) -> bool:
            if revision not in known:
                known[revision] = bool(revision) and self._descends(one.repo, revision, one.commit) == "newer"
            return known[revision]

        return accepts


def _problem(error: TaskError) -> Problem:
    return Problem("", error.rule, str(error), error.hint, exit=int(error.exit))
