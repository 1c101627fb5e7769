"""Waits until pull requests are merged. Argo CD then sees the merge commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from task import shutdown
from task.deciding.job import Landed
from task.errors import RolloutError, TaskError, UnreachableError
from task.landing.ports import Forge
from task.model import Proposed
from task.output.log import Log

FIRST_PAUSE, MERGE_PAUSE = 0.5, 10.0  # seconds between two looks at a request


class Merges:
    """The requests of one run. Each is watched until it is merged or closed, or time is over."""

    def __init__(self, forge: Callable[[str], Forge], end: float, log: Log) -> None:
        self._forge, self._end, self._log = forge, end, log

    def __call__(self, landed: Sequence[Landed]) -> tuple[list[Landed], list[TaskError]]:
        """Return what landed once the requests are merged, and the reasons why others were not merged."""
        ends: dict[tuple[str, str], Proposed | TaskError] = {}
        found: list[Landed] = []
        for one in landed:
            key = one.repo, one.request
            if key not in ends:
                try:
                    ends[key] = self._merged(self._forge(one.repo), one.request)
                except TaskError as error:
                    ends[key] = error
            request = ends[key]
            if not isinstance(request, TaskError):
                found.append(replace(one, commit=request.merge_commit or one.commit, request=""))
        return found, [one for one in ends.values() if isinstance(one, TaskError)]

    def _merged(self, forge: Forge, number: str) -> Proposed:
        """Return the merged request. Raises `RolloutError` if it is closed, or not merged in time."""
        pause, told = FIRST_PAUSE, False
        while True:
            try:
                request = forge.state(number)
            except UnreachableError:
                if time.monotonic() >= self._end:
                    raise
            else:
                if request.state == "merged":
                    return request
                if request.state == "closed":
                    raise RolloutError(
                        f"{request.url} was closed without being merged",
                        hint="reopen it, or let a newer build open another",
                    )
                if time.monotonic() >= self._end:
                    raise RolloutError(
                        f"{request.url} is not merged yet", hint="merge it, or give a longer --wait-timeout"
                    )
                if not told:
                    self._log("info", f"waiting until {request.url} is merged")
                    told = True
            shutdown.check()
            shutdown.sleep(min(pause, max(self._end - time.monotonic(), 0.1)))
            pause = min(2 * pause, MERGE_PAUSE)
