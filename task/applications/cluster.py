"""`--applications cluster`: the Applications of a cluster; only those that may take the images are read whole.

First their metadata is listed: it is an eighth of a full list, and with gzip a fiftieth. The annotations in it are
enough to tell which whole objects are needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from task import shutdown
from task.annotations.application import annotated
from task.annotations.narrow import Narrow, considered
from task.applications import Found
from task.errors import AbsentError
from task.kubernetes.client import APPLICATIONS, UPDATERS, Kubernetes
from task.kubernetes.errors import ForbiddenError
from task.model import Application
from task.policy.tag_filter import LONGEST, glob_match

ORIGIN = "cluster"
AT_ONCE = 8  # requests for single objects
# Asked for by itself, an object costs what about four cost in a full list (measured: 2 ms and 0.3 to 0.5 ms; a real API
# server takes up to 1 ms for one of a list). So from here on, and not for a handful, the list is cheaper.
_SHARE = 0.25
_HANDFUL = 50
_WILD = re.compile(r"[*?\[\]]")

Item = Mapping[str, Any]
Wanted = Callable[[Item], bool]


@dataclass(frozen=True)
class _ReferencePattern:
    """The Applications that one `applicationRef` of an ImageUpdater may take; its label selector is not looked at."""

    namespace: str
    pattern: str


class ClusterManifests:
    """The Applications that carry annotations with the prefix, or that an ImageUpdater references.

    `wanted` is asked about the metadata of Applications (`item["metadata"]["annotations"]`) and about whole
    ImageUpdater resources (`item["kind"]`): may it concern this run? Whole objects are read where it says so.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        *,
        prefix: str,
        narrow: Narrow = Narrow(),
        argocd_namespace: str = "argocd",
        wanted: Wanted = lambda _item: True,
        log: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._kubernetes, self._prefix, self._narrow = kubernetes, prefix, replace(narrow, projects=())
        self._narrowed = self._narrow != Narrow()
        self._home, self._wanted, self._log = argocd_namespace, wanted, log
        self.listed = 0  # Applications that were looked at
        self.passed_over: list[Application] = []  # those of them with annotations that were not read whole

    def all(self) -> Iterable[Found]:
        """The ImageUpdaters and the Applications, as manifests give them. Raises what `Kubernetes` raises."""
        scopes = self._scopes()
        updaters = [item for scope in scopes for item in self._updaters(scope)]
        yield from (
            Found(_typed(item, "argocd-image-updater.argoproj.io/v1alpha1", "ImageUpdater"), ORIGIN)
            for item in updaters
        )
        references = [
            reference
            for item in updaters
            if self._wanted({"kind": "ImageUpdater", **item})
            for reference in _references(item)
        ]
        for scope in scopes:
            try:
                found = self._chosen(scope, references)
            except ForbiddenError as error:
                # A Role of Argo CD's namespace alone: its Applications count, if they are among those that are wanted.
                home = Application(self._home, "", {}, ())
                if scope or not considered(home, replace(self._narrow, names=(), selector="")):
                    raise
                self._log("info", f"{error.message}; only those of namespace {self._home!r} count, or {error.hint}")
                scope = self._home  # noqa: PLW2901 - from here on
                found = self._chosen(scope, references)
            for item in self._whole(scope, found):
                yield Found(_typed(item, "argoproj.io/v1alpha1", "Application"), ORIGIN)

    def _scopes(self) -> list[str]:
        """The namespaces to list; "" is all. Those that the command line names exactly are all that is asked for."""
        named = self._narrow.namespaces or tuple(
            name.partition("/")[0] if "/" in name else "*" for name in self._narrow.names
        )
        if named and not any(_WILD.search(name) for name in named):
            return list(dict.fromkeys(named))
        return [""]

    def _updaters(self, scope: str) -> list[Item]:
        """All ImageUpdaters; none where the cluster does not know them, or does not show them."""
        try:
            return list(self._kubernetes.list(UPDATERS, scope, full=True))
        except ForbiddenError as error:
            if not scope:
                return self._updaters(self._home)
            self._log("info", f"ImageUpdater resources are passed over: {error.message}; {error.hint}")
        except AbsentError:
            self._log("debug", "the cluster knows no ImageUpdater resources")
        return []

    def _chosen(self, scope: str, references: Sequence[_ReferencePattern]) -> list[Item]:
        """What is needed of each Application that may concern us: its metadata, without what others manage in it."""
        found: list[Item] = []
        before = self.listed
        for item in self._kubernetes.list(APPLICATIONS, scope, selector=self._narrow.selector):
            self.listed += 1
            if self._ours(item, references):
                metadata = _metadata(item)
                names = {key: metadata.get(key) for key in ("namespace", "name")}
                found.append(item if "spec" in item else {"metadata": names})
        self._log("debug", f"{self.listed - before} Applications, {len(found)} of them may take the images")
        return found

    def _ours(self, item: Item, references: Sequence[_ReferencePattern]) -> bool:
        metadata = _metadata(item)
        referenced = references and any(
            reference.namespace == metadata.get("namespace")
            and glob_match(reference.pattern, str(metadata.get("name")))
            for reference in references
        )
        if not referenced:
            annotations = metadata.get("annotations") or {}
            if not any(key.startswith(self._prefix) for key in annotations):
                return False
            if not (self._wanted(item) and self._considered(metadata)):
                app = annotated(item, self._prefix, ORIGIN)
                self.passed_over += [app] if app else []
                return False
        return self._considered(metadata)

    def _considered(self, metadata: Mapping[str, Any]) -> bool:
        if not self._narrowed:
            return True
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
        labels = {key: value for key, value in (metadata.get("labels") or {}).items() if isinstance(value, str)}
        return considered(Application(namespace, name, {}, (), labels=labels), self._narrow)

    def _whole(self, scope: str, found: Sequence[Item]) -> Iterator[Item]:
        """The whole objects, by the cheaper way. One that was deleted meanwhile is passed over."""
        needed = [item for item in found if "spec" not in item]
        yield from (item for item in found if "spec" in item)  # a server that does not know metadata
        if len(needed) > max(_HANDFUL, self.listed * _SHARE):
            names = {_key(item) for item in needed}
            for item in self._kubernetes.list(APPLICATIONS, scope, selector=self._narrow.selector, full=True):
                if _key(item) in names:
                    yield item
            return
        if len(needed) < 2:  # no need for threads
            yield from filter(None, map(self._one, needed))
            return
        pool = ThreadPoolExecutor(min(len(needed), AT_ONCE))
        try:
            with shutdown.unheard():  # signals are for the main thread, which waits
                objects = pool.map(self._one, needed)
            yield from filter(None, objects)
        finally:
            pool.shutdown(cancel_futures=True)

    def _one(self, item: Item) -> Item | None:
        namespace, name = _key(item)
        return self._kubernetes.get(APPLICATIONS, namespace, name)


def _typed(item: Item, version: str, kind: str) -> Item:
    """With what a list may leave out of its items."""
    return {**item, "apiVersion": item.get("apiVersion") or version, "kind": item.get("kind") or kind}


def _references(updater: Item) -> Iterator[_ReferencePattern]:
    """What an ImageUpdater may reference. A resource of the wrong shape references nothing; `configure` reports it."""
    spec = updater.get("spec")
    refs = spec.get("applicationRefs") if isinstance(spec, dict) else None
    for ref in refs if isinstance(refs, list) else ():
        pattern = ref.get("namePattern") if isinstance(ref, dict) else None
        if isinstance(pattern, str) and 0 < len(pattern) <= LONGEST:
            yield _ReferencePattern(str(_metadata(updater).get("namespace", "")), pattern)


def _metadata(item: Item) -> Mapping[str, Any]:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _key(item: Item) -> tuple[str, str]:
    return str(_metadata(item).get("namespace", "")), str(_metadata(item).get("name", ""))
