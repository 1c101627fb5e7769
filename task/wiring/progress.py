"""Shows a person at a terminal what takes long: one line for each activity at the bottom, until it is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from task import shutdown
from task.pipeline.ports import Repository, World
from task.text import printable
from task.urls import without_login

PATIENCE = 1.0  # seconds until something is shown
OF_REPOSITORIES: Mapping[str, str] = {
    "default_branch": "asking {} for its branch",
    "snapshot": "fetching {}",
    "read_more": "fetching {}",
    "head_snapshot": "fetching {}",
    "earlier": "reading the history of {}",
    "written": "reading the history of {}",
    "branches": "asking {} for its branches",
    "land": "pushing to {}",
    "predict": "comparing with {}",
}
OF_THE_WORLD: Mapping[str, str] = {
    "registry": "asking the registries",
    "ancestry": "comparing source commits",
    "follow": "asking Argo CD to refresh",
    "sleep": "waiting: others push to the same branch",
}


def with_progress(world: World, console: Console, *, waits: bool) -> World:
    """Return a world that shows its activities. If the run waits, the rollouts have a display of their own."""
    phases = Phases(console)
    read = phases.phase("reading the Applications")(lambda: list(world.applications()))
    others = {
        name: phases.phase(words)(getattr(world, name))
        for name, words in OF_THE_WORLD.items()
        if not (waits and name == "follow")
    }

    def repository(repo: str, subscription: Any) -> Repository:
        opened = world.repository(repo, subscription)
        return cast("Repository", RepositoryWithProgress(opened, without_login(repo), phases))

    return replace(world, applications=read, repository=repository, **others)


class Phases:
    """The present activities, one for each thread. Only those that take longer than a second are shown."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._progress: Progress | None = None  # None while nothing is shown
        self._shown: dict[object, TaskID] = {}

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        """Show an activity until the end of the block, or of the decorated function."""
        began = time.monotonic()
        timer = threading.Timer(PATIENCE, lambda: self._show(timer, words, began))
        timer.daemon = True
        try:
            with shutdown.unheard():
                timer.start()
            yield
        finally:
            timer.cancel()
            with shutdown.shield(), self._lock:  # restores the cursor
                task = self._shown.pop(timer, None)
                if self._progress and task is not None:
                    self._progress.remove_task(task)
                    if not self._shown:
                        self._progress.stop()
                        self._progress = None

    def _show(self, timer: threading.Timer, words: str, began: float) -> None:
        with self._lock:
            if timer.finished.is_set():  # it has just ended
                return
            if self._progress is None:
                self._progress = Progress(
                    SpinnerColumn("dots" if self._console.encoding.startswith("utf") else "line"),
                    TextColumn("{task.description}", markup=False),
                    TimeElapsedColumn(),
                    console=self._console,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._progress.start()
            self._shown[timer] = self._progress.add_task(printable(words), total=None)
            self._progress.tasks[-1].start_time = began


class RepositoryWithProgress:
    """A repository that shows its activities."""

    def __init__(self, repository: Repository, name: str, phases: Phases) -> None:
        self._repository, self._name, self._phases = repository, name, phases

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._repository, name)
        words = OF_REPOSITORIES.get(name, "").format(self._name)
        return self._phases.phase(words)(work) if words else work
