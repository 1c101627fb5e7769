"""The same edges, telling a person at a terminal what takes long. Pipelines never load this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from task.output.log import Log
from task.output.progress_edge import Progress
from task.output.terminal import columns_of
from task.pipeline.ports import Repository, World
from task.urls import without_login

STORE: Mapping[str, str] = {
    "default_branch": "asking {} for its branch",
    "snapshot": "fetching {}",
    "ahead": "fetching {}",
    "earlier": "reading the history of {}",
    "land": "pushing to {}",
    "predict": "comparing with {}",
}
EDGES: Mapping[str, str] = {
    "registry": "asking the registries",
    "ancestry": "comparing source commits",
    "follow": "telling Argo CD",
    "sleep": "waiting: others write to the branch as well",
}


def told(world: World, log: Log, *, waits: bool) -> World:
    """A world that shows what is under way; `waits`: what follows a push has a picture of its own."""
    if log.terminal is None:
        return world
    progress = Progress(log.stream, log.terminal, lambda: columns_of(log.stream))
    log.before = progress.clear
    open_store = world.repository

    def applications() -> list[Any]:
        with progress.phase("reading the Applications"):
            return list(world.applications())

    def repository(repo: str, subscription: Any) -> Repository:
        return cast("Repository", _Told(open_store(repo, subscription), without_login(repo), progress))

    changed = {
        name: _telling(getattr(world, name), words, progress)
        for name, words in EDGES.items()
        if not (waits and name == "follow")
    }
    return replace(world, applications=applications, repository=repository, **changed)


def _telling(work: Callable[..., Any], words: str, progress: Progress) -> Callable[..., Any]:
    def telling(*args: Any) -> Any:
        with progress.phase(words):
            return work(*args)

    return telling


class _Told:
    """A repository that says what it does."""

    def __init__(self, repository: Repository, repo: str, progress: Progress) -> None:
        self._store, self._repo, self._progress = repository, repo, progress

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._store, name)
        return _telling(work, STORE[name].format(self._repo), self._progress) if name in STORE else work
