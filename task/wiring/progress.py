"""Shows slow activities on a terminal, each on a line at the bottom until it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from task import shutdown
from task.landing.ports import Repository
from task.model import Changeset, Files, FileVersion, Head, LandedCommit, Place, Snapshot
from task.text import printable

PATIENCE = 1.0  # seconds until an activity is shown
Phase = Callable[[str], AbstractContextManager[object]]


class Phases:
    """The current activities, one for each thread.

    Only activities that take longer than a second are shown.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._progress: Progress | None = None  # None while no activity is shown
        self._shown: dict[threading.Timer, TaskID] = {}  # keyed by each activity's timer

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        """Show an activity, described by `words`, until the end of the block or of the decorated
        function. It appears only after `PATIENCE` seconds.
        """
        began = time.monotonic()
        timer = threading.Timer(PATIENCE, lambda: self._show(timer, words, began))
        timer.daemon = True
        try:
            with shutdown.unheard():  # so that signals still wake the main thread
                timer.start()
            yield
        finally:
            timer.cancel()
            with shutdown.shield(), self._lock:  # shielded, so that the cursor is restored
                task = self._shown.pop(timer, None)
                if self._progress and task is not None:
                    self._progress.remove_task(task)
                    if not self._shown:
                        self._progress.stop()
                        self._progress = None

    def _show(self, timer: threading.Timer, words: str, began: float) -> None:
        """Show an activity that has lasted `PATIENCE` seconds, with the time since it began."""
        with self._lock:
            if timer.finished.is_set():  # the activity has just ended
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
    """A repository that shows its current activity."""

    def __init__(self, repository: Repository, name: str, phase: Phase) -> None:
        self._repository = repository
        self._name = name
        self._phase = phase
        self.close = repository.close

    def default_branch(self, *, tip: bool = True) -> str:
        """Return the branch that HEAD refers to."""
        with self._phase(f"looking up the default branch of {self._name}"):
            return self._repository.default_branch(tip=tip)

    def snapshot(
        self,
        branch: str,
        places: Iterable[Place],
        heads: Collection[str] = (),
        default: Collection[Place] = (),
        besides: Callable[[Files], Iterable[Place]] | None = None,
    ) -> Snapshot:
        """Return the files at the tip of the branch."""
        with self._phase(f"fetching {self._name}"):
            return self._repository.snapshot(branch, places, heads, default, besides)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        """Return the files at more locations, at a snapshot's commit."""
        with self._phase(f"fetching {self._name}"):
            return self._repository.read_more(snapshot, places)

    def with_memory_branch_under(self, snapshot: Snapshot, prefix: str) -> Snapshot:
        """See `Repository.with_memory_branch_under`."""
        with self._phase(f"fetching {self._name}"):
            return self._repository.with_memory_branch_under(snapshot, prefix)

    @property
    def atomic(self) -> bool:
        """See `Repository.atomic`."""
        return self._repository.atomic

    def head(self, head: str) -> Head | None:
        """Return the tip of a head branch."""
        with self._phase(f"fetching {self._name}"):
            return self._repository.head(head)

    def signed(self, commit: str, keys: Sequence[str]) -> bool:
        """See `Repository.signed`."""
        return self._repository.signed(commit, keys)

    def merged(self, branch: str, commit: str) -> bool:
        """Return whether a commit is in a branch's recent history."""
        with self._phase(f"reading the history of {self._name}"):
            return self._repository.merged(branch, commit)

    def land(self, change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        """Commit and push."""
        with self._phase(f"pushing to {self._name}"):
            return self._repository.land(change, memory_change)

    def remember(self, change: Changeset) -> LandedCommit:
        """Replace the memory branch."""
        with self._phase(f"pushing to {self._name}"):
            return self._repository.remember(change)

    def drop(self, head: str, was: str) -> None:
        """Delete a head branch."""
        with self._phase(f"pushing to {self._name}"):
            self._repository.drop(head, was)

    def predict(self, change: Changeset) -> LandedCommit:
        """Return what `land` would return."""
        with self._phase(f"comparing with {self._name}"):
            return self._repository.predict(change)

    def earlier(
        self,
        branch: str,
        path: str,
        limit: int,
        marked: Collection[str] = (),
    ) -> Iterable[tuple[str, str | None]]:
        """Yield the versions of a file, newest first."""
        with self._phase(f"reading the history of {self._name}"):
            return self._repository.earlier(branch, path, limit, marked)

    def written(
        self,
        branch: str,
        pages: Sequence[Collection[str]],
        most: int,
    ) -> Iterator[Mapping[str, Sequence[FileVersion]]]:
        """Yield the last versions of the files on each page."""
        with self._phase(f"reading the history of {self._name}"):
            yield from self._repository.written(branch, pages, most)
