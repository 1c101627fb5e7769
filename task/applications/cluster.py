"""Reads Applications from a cluster, for `--applications cluster`, and from Argo CD's API,
for `argocd`.

Only Applications that may use the images are read in full. First, only their metadata is listed,
which is an eighth of the size of a full list, or a fiftieth with gzip (2,000 Applications,
Kubernetes 1.36). The annotations in the metadata show which objects must be read in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from task.annotations.application import Narrow, annotated, considered, is_glob
from task.applications.manifest_text import source_warning
from task.argocd.api import ArgoCDApi
from task.errors import AbsentError, SourceDownError, SourceError
from task.kubernetes.client import APPLICATIONS, UPDATERS, ForbiddenError, Kubernetes
from task.model import Application, Found
from task.plain_data import mapping, mappings, text
from task.policy.tag_filter import LONGEST, glob_match
from task.threads import in_threads

ORIGIN = "cluster"
AT_ONCE = 8  # requests for single objects
# Getting a single object costs about as much as four objects in a full list (measured: 2 ms,
# compared with 0.3 to 0.5 ms in a list, or up to 1 ms with a real API server). So the list is
# cheaper above this share, unless only a handful of objects is needed.
_SHARE = 0.25
_HANDFUL = 50
_WILD = re.compile(r"[*?\[\]]")
Item = Mapping[str, Any]
Wanted = Callable[[Item], bool]
# The namespace and name glob that an ImageUpdater's `applicationRef` selects. Labels are not
# checked here.
_Reference = tuple[str, str]


class ClusterManifests:
    """The cluster's Applications that have annotations with the prefix, or that an ImageUpdater
    references.

    `wanted` decides whether an object may concern this run; only those objects are read in full.
    `wanted` gets an Application's metadata (`item["metadata"]["annotations"]`) or a whole
    ImageUpdater resource (`item["kind"]`).
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
        self._kubernetes = kubernetes
        self._prefix = prefix
        self._narrow = narrow
        self._home = argocd_namespace
        self._wanted = wanted
        self._log = log
        self.listed = 0  # Applications whose metadata was read
        self.passed_over: list[Application] = []  # annotated, but not read in full

    def all(self) -> Iterable[Found]:
        """Yield the ImageUpdaters and the Applications as manifests.

        Raises the same errors as `Kubernetes`.
        """
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
            for reference in _patterns_of(item)
        ]
        for scope in scopes:
            try:
                chosen = self._chosen(scope, references)
            except ForbiddenError as error:
                # If we only have a Role in Argo CD's namespace, use the Applications in that
                # namespace, unless the options exclude them.
                home = Application(
                    self._home,
                    "",
                    {},
                    (),
                )
                if scope or not considered(home, Narrow(namespaces=self._narrow.namespaces)):
                    raise
                told = "the step is not allowed to list Applications in all namespaces"
                self._log("info", f"{told}: using only those in namespace {self._home!r}")
                self._log("debug", f"{error.message}; {error.hint}")
                scope = self._home  # noqa: PLW2901 - from here on
                chosen = self._chosen(scope, references)
            for item in self._whole(scope, chosen):
                yield Found(_typed(item, "argoproj.io/v1alpha1", "Application"), ORIGIN)

    def _scopes(self) -> list[str]:
        """Return the namespaces set on the command line, or "" (all namespaces) if one of them
        contains a wildcard.
        """
        named = self._narrow.namespaces or tuple(
            name.partition("/")[0] if "/" in name else "*" for name in self._narrow.names
        )
        if named and not any(_WILD.search(name) for name in named):
            return list(dict.fromkeys(named))
        return [""]

    def _updaters(self, scope: str) -> list[Item]:
        """Return all ImageUpdaters, or [] if their CRD is not installed
        or we are not allowed to list them.
        """
        try:
            return list(self._kubernetes.list(UPDATERS, scope, full=True))
        except ForbiddenError as error:
            if not scope:
                return self._updaters(self._home)
            self._log("info", f"ImageUpdater resources are skipped: {error.message}; {error.hint}")
        except AbsentError:
            self._log("debug", "the cluster does not have the ImageUpdater CRD")
        return []

    def _chosen(self, scope: str, references: Sequence[_Reference]) -> list[Item]:
        """Return the Applications that may concern this run, reduced to their names.

        Annotations and managedFields are large.
        """
        chosen: list[Item] = []
        before = self.listed
        for item in self._kubernetes.list(APPLICATIONS, scope, selector=self._narrow.selector):
            self.listed += 1
            if self._ours(item, references):
                metadata = mapping(item.get("metadata"))
                names = {key: metadata.get(key) for key in ("namespace", "name")}
                chosen.append(item if "spec" in item else {"metadata": names})
        self._log(
            "debug",
            f"{self.listed - before} Applications, {len(chosen)} of them may track the images",
        )
        return chosen

    def _ours(self, item: Item, references: Sequence[_Reference]) -> bool:
        metadata = mapping(item.get("metadata"))
        key = _key(item)
        if not any(
            namespace == key[0] and glob_match(pattern, key[1]) for namespace, pattern in references
        ):
            annotations = metadata.get("annotations") or {}
            if not any(key.startswith(self._prefix) for key in annotations):
                return False
            if not (self._wanted(item) and _passes_narrowing(item, self._narrow)):
                app = annotated(item, self._prefix, ORIGIN)
                if app:
                    self.passed_over.append(app)
                return False
        return _passes_narrowing(item, self._narrow)

    def _whole(self, scope: str, chosen: Sequence[Item]) -> Iterator[Item]:
        """Yield the objects in full, using the cheaper way to read them.

        Objects that have been deleted in the meantime are skipped.
        """
        needed = [item for item in chosen if "spec" not in item]
        # A server that cannot list only metadata returns whole objects (`Accept` falls back).
        yield from (item for item in chosen if "spec" in item)
        if len(needed) > max(_HANDFUL, self.listed * _SHARE):
            names = {_key(item) for item in needed}
            for item in self._kubernetes.list(
                APPLICATIONS,
                scope,
                selector=self._narrow.selector,
                full=True,
            ):
                if _key(item) in names:
                    yield item
            return
        for start in range(0, len(needed), _HANDFUL):  # in batches, because objects are large
            yield from filter(
                None,
                in_threads(self._get, needed[start : start + _HANDFUL], AT_ONCE),
            )

    def _get(self, item: Item) -> Item | None:
        namespace, name = _key(item)
        return self._kubernetes.get(APPLICATIONS, namespace, name)


class ArgoCDManifests:
    """The Applications that Argo CD's API lists.

    `wanted` decides from an Application's metadata whether it is read in full.
    """

    def __init__(
        self,
        api: ArgoCDApi,
        wanted: Wanted,
        *,
        prefix: str = "",
        narrow: Narrow = Narrow(),
    ) -> None:
        """Projects and namespaces in `narrow` may be globs.

        The server supports only plain names, so with globs it lists more than needed.
        """
        self._api = api
        self._wanted = wanted
        self._prefix = prefix
        self._narrow = narrow
        self._projects = narrow.projects if not any(map(is_glob, narrow.projects)) else ()
        plain = narrow.namespaces and not any(map(is_glob, narrow.namespaces))
        self._namespaces = narrow.namespaces if plain else ("",)
        self._listed = 0
        self.passed_over: list[Application] = []  # annotated, but not read in full

    def all(self) -> Iterable[Found]:
        """Return the relevant Applications in full.

        An unreadable Application is reported as a problem, but a server that is down raises an
        error.
        """
        keys = list(
            dict.fromkeys(key for namespace in self._namespaces for key in self._keys(namespace))
        )
        # without permissions, Argo CD returns 200 and an empty list (`items` is null)
        if not self._listed:
            narrowed = self._projects or self._narrow.selector or self._namespaces != ("",)
            options = " that match --project, --selector, and --namespace" if narrowed else ""
            why = (
                f"Argo CD lists no Applications{options}: there are none, or the token is not"
                " allowed to read them"
            )
            return [
                source_warning(
                    "argocd",
                    why,
                    "add to argocd-rbac-cm: p, <subject>, applications, get, */*, allow",
                )
            ]
        return in_threads(self._found, keys, AT_ONCE)

    def _keys(self, namespace: str) -> list[tuple[str, str]]:
        selector = self._narrow.selector
        listed = self._api.list_applications(
            projects=self._projects,
            selector=selector,
            namespace=namespace,
        )
        self._listed += len(listed)
        chosen = [
            item for item in listed if self._wanted(item) and _passes_narrowing(item, self._narrow)
        ]
        keys = {key for item in chosen if (key := _key(item))[1]}
        others = (item for item in listed if _key(item) not in keys)
        self.passed_over += filter(
            None,
            (annotated(item, self._prefix, "argocd") for item in others),
        )
        return [key for item in chosen if (key := _key(item)) in keys]

    def _found(self, key: tuple[str, str]) -> Found:
        try:
            return Found(self._api.get_application(*key), "argocd")
        except SourceDownError:
            raise
        # the Application may have been deleted: Argo CD returns 403, as if access were forbidden
        except SourceError as error:
            return source_warning("argocd", str(error), error.hint)


def _typed(item: Item, version: str, kind: str) -> Item:
    """Add the kind and version, which Kubernetes omits from list items."""
    return {
        **item,
        "apiVersion": item.get("apiVersion") or version,
        "kind": item.get("kind") or kind,
    }


def _patterns_of(updater: Item) -> Iterator[_Reference]:
    """Yield an ImageUpdater's patterns.

    Yields nothing for a malformed resource, which `configure` reports.
    """
    for ref in mappings(mapping(updater.get("spec")).get("applicationRefs")):
        pattern = ref.get("namePattern")
        if isinstance(pattern, str) and 0 < len(pattern) <= LONGEST:
            yield _key(updater)[0], pattern


def _key(item: Item) -> tuple[str, str]:
    """Return an Application's namespace and name.

    Older Argo CD servers omit the control plane's namespace.
    """
    metadata = mapping(item.get("metadata"))
    return text(metadata.get("namespace")), text(metadata.get("name"))


def _passes_narrowing(item: Item, narrow: Narrow) -> bool:
    """Return whether an Application's metadata matches the options that narrow the run.

    The project is not part of the metadata.
    """
    known = replace(narrow, projects=())
    if known == Narrow():
        return True
    given = mapping(mapping(item.get("metadata")).get("labels"))
    labels = {key: value for key, value in given.items() if isinstance(value, str)}
    return considered(
        Application(
            *_key(item),
            {},
            (),
            labels=labels,
        ),
        known,
    )
