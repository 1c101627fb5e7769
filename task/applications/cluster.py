"""Reads Applications from a cluster (`--applications cluster`) and from Argo CD's API
(`--applications argocd`).

Only Applications that may use the images are read in full. First, only the metadata is listed. That
list is an eighth the size of a full one, or a fiftieth with gzip (measured with 2,000 Applications
and Kubernetes 1.36). The annotations in the metadata show which objects must be read in full.
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
AT_ONCE = 8  # concurrent requests for single objects
# Getting a single object costs about as much as four objects in a full list (measured: 2 ms,
# compared with 0.3 to 0.5 ms in a list, or up to 1 ms with a real API server). So above this share,
# the list is cheaper, unless only a handful of objects are needed.
_SHARE = 0.25
_HANDFUL = 50
_WILD = re.compile(r"[*?\[\]]")
Item = Mapping[str, Any]
Wanted = Callable[[Item], bool]
# A namespace, and a glob for the names of the Applications there that an ImageUpdater selects.
_NamePattern = tuple[str, str]


class ClusterManifests:
    """The cluster's ImageUpdaters, and its Applications that have annotations with the prefix or
    that an ImageUpdater selects.

    `wanted` decides whether an object may be relevant to this run. It receives an Application's
    metadata (`item["metadata"]["annotations"]`) or a whole ImageUpdater resource (`item["kind"]`).
    Of the Applications, only the relevant ones, and those whose name a relevant ImageUpdater
    selects, are read in full. ImageUpdaters are always read in full.
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
        self.listed = 0  # the number of Applications whose metadata was read
        self.passed_over: list[Application] = []  # annotated, but not read in full

    def manifests(self) -> Iterable[Found]:
        """Yield all ImageUpdaters, and then, in full, the Applications that may be relevant to this
        run.

        Raises the same errors as `Kubernetes`.
        """
        scopes = self._scopes()
        updaters = [item for scope in scopes for item in self._updaters(scope)]
        for item in updaters:
            manifest = _with_kind(item, "argocd-image-updater.argoproj.io/v1alpha1", "ImageUpdater")
            yield Found(manifest, ORIGIN)
        # An Application may receive all of its settings from an ImageUpdater, which selects it by
        # name.
        name_patterns: list[_NamePattern] = []
        for item in updaters:
            if self._wanted({"kind": "ImageUpdater", **item}):
                name_patterns += _patterns_of(item)

        for scope in scopes:
            # `listed_scope` is Argo CD's namespace if we are not allowed to list all namespaces
            listed_scope, items_to_read = self._list_if_allowed(scope, name_patterns)
            for item in self._read_in_full(listed_scope, items_to_read):
                yield Found(_with_kind(item, "argoproj.io/v1alpha1", "Application"), ORIGIN)

    def _scopes(self) -> list[str]:
        """Return the namespaces to list, or only "" (all namespaces).

        These are the namespaces set on the command line, or else those in the names set there, such
        as `argocd/web`. A name without a namespace may be in any namespace. All namespaces are
        listed if nothing is set, or if a namespace contains a wildcard.
        """
        patterns = list(self._narrow.namespaces)
        if not patterns:
            for name in self._narrow.names:
                namespace, slash, _ = name.partition("/")
                patterns.append(namespace if slash else "*")
        if not patterns or any(_WILD.search(pattern) for pattern in patterns):
            return [""]
        return list(dict.fromkeys(patterns))

    def _updaters(self, scope: str) -> list[Item]:
        """Return all ImageUpdaters in a namespace ("" means all namespaces), or [] if their CRD is
        not installed or we are not allowed to list them.
        """
        try:
            return list(self._kubernetes.list(UPDATERS, scope, full=True))
        except ForbiddenError as error:
            if not scope:  # we may only have a Role (permissions in one namespace) in Argo CD's
                return self._updaters(self._home)
            self._log("info", f"ImageUpdater resources are skipped: {error.message}; {error.hint}")
        except AbsentError:
            self._log("debug", "the cluster does not have the ImageUpdater CRD")
        return []

    def _list_if_allowed(
        self,
        scope: str,
        name_patterns: Sequence[_NamePattern],
    ) -> tuple[str, list[Item]]:
        """Return the scope (a namespace, or "" for all) that we are allowed to list, and the
        Applications there that may be relevant to this run and so must be read in full.

        If we are not allowed to list all namespaces, the scope is Argo CD's namespace. Raises
        `ForbiddenError` if the options exclude that namespace, or if `scope` is a namespace that we
        are not allowed to list.
        """
        try:
            return scope, self._list_items_to_read(scope, name_patterns)
        except ForbiddenError as error:
            any_app_in_home = Application(namespace=self._home, name="")
            only_namespaces = Narrow(namespaces=self._narrow.namespaces)
            may_use_home = considered(any_app_in_home, only_namespaces)
            if scope or not may_use_home:
                raise
            why = "the step is not allowed to list Applications in all namespaces"
            self._log("info", f"{why}: using only those in namespace {self._home!r}")
            self._log("debug", f"{error.message}; {error.hint}")
        return self._home, self._list_items_to_read(self._home, name_patterns)

    def _list_items_to_read(self, scope: str, name_patterns: Sequence[_NamePattern]) -> list[Item]:
        """Return the Applications that may be relevant to this run, reduced to their namespaces and
        names, because annotations and managedFields are large.

        An Application that the server has returned in full is not reduced. `listed` counts all
        listed Applications.
        """
        items_to_read: list[Item] = []
        listed_before = self.listed
        for item in self._kubernetes.list(APPLICATIONS, scope, selector=self._narrow.selector):
            self.listed += 1
            if not self._must_be_read(item, name_patterns):  # may also add it to `passed_over`
                continue
            if "spec" in item:
                items_to_read.append(item)
                continue
            metadata = mapping(item.get("metadata"))
            names = {key: metadata.get(key) for key in ("namespace", "name")}
            items_to_read.append({"metadata": names})
        self._log(
            "debug",
            f"{self.listed - listed_before} Applications, {len(items_to_read)} of them may track"
            " the images",
        )
        return items_to_read

    def _must_be_read(self, item: Item, name_patterns: Sequence[_NamePattern]) -> bool:
        """Return whether an Application must be read in full, judging by its metadata.

        It must match the command-line options. In addition, an ImageUpdater must select its name,
        or it must have our annotations, and they must be relevant to the run (`wanted`).

        If an Application with our annotations need not be read in full, it is added to
        `passed_over`, unless an ImageUpdater selects it.
        """
        namespace, name = _namespace_and_name(item)
        # An ImageUpdater may also select by labels. They are not checked here, so too many
        # Applications may be read, but never too few.
        is_selected = any(
            updater_namespace == namespace and glob_match(pattern, name)
            for updater_namespace, pattern in name_patterns
        )
        if is_selected:
            return _passes_narrowing(item, self._narrow)

        annotations = mapping(item.get("metadata")).get("annotations") or {}
        has_our_annotations = any(key.startswith(self._prefix) for key in annotations)
        if not has_our_annotations:
            return False
        if self._wanted(item) and _passes_narrowing(item, self._narrow):
            return True
        app = annotated(item, self._prefix, ORIGIN)  # None if the metadata is unusable
        if app:
            self.passed_over.append(app)
        return False

    def _read_in_full(self, scope: str, items_to_read: Sequence[Item]) -> Iterator[Item]:
        """Yield these Applications in full. They are read in whichever way is cheaper: by listing
        all objects in the scope, or with one request for each Application.

        Objects that have been deleted in the meantime are skipped.
        """
        # A server that cannot list metadata alone returns whole objects (the fallback in `Accept`).
        yield from (item for item in items_to_read if "spec" in item)
        reduced_items = [item for item in items_to_read if "spec" not in item]

        list_is_cheaper = len(reduced_items) > max(_HANDFUL, self.listed * _SHARE)
        if list_is_cheaper:
            wanted_names = {_namespace_and_name(item) for item in reduced_items}
            for item in self._kubernetes.list(
                APPLICATIONS,
                scope,
                selector=self._narrow.selector,
                full=True,
            ):
                if _namespace_and_name(item) in wanted_names:
                    yield item
            return

        # Only a handful at a time, because objects are large.
        for start in range(0, len(reduced_items), _HANDFUL):
            items_at_once = reduced_items[start : start + _HANDFUL]
            for whole_item in in_threads(self._get, items_at_once, AT_ONCE):
                if whole_item:
                    yield whole_item

    def _get(self, item: Item) -> Item | None:
        """Return the object in full, or None if it has been deleted."""
        namespace, name = _namespace_and_name(item)
        return self._kubernetes.get(APPLICATIONS, namespace, name)


class ArgoCDManifests:
    """The Applications that Argo CD's API lists.

    `wanted` decides, based on an Application's metadata, whether it is read in full.
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
        self._projects = narrow.projects
        if any(map(is_glob, narrow.projects)):
            self._projects = ()  # all projects
        self._namespaces = narrow.namespaces
        if not narrow.namespaces or any(map(is_glob, narrow.namespaces)):
            self._namespaces = ("",)  # all namespaces
        self._listed = 0
        self.passed_over: list[Application] = []  # annotated, but not read in full

    def manifests(self) -> Iterable[Found]:
        """Return the Applications that may be relevant to this run, in full.

        If Argo CD lists no Applications at all, returns a warning instead. An Application that
        cannot be read is reported as a warning, but a server that is down raises an error.
        """
        keys: dict[tuple[str, str], None] = {}  # (namespace, name) of each, without duplicates
        for namespace in self._namespaces:
            keys |= dict.fromkeys(self._keys_to_read(namespace))
        if self._listed:
            return in_threads(self._read_application, list(keys), AT_ONCE)

        # without permissions, Argo CD returns 200 and an empty list (`items` is null)
        all_namespaces = self._namespaces == ("",)
        is_narrowed = bool(self._projects or self._narrow.selector) or not all_namespaces
        options = " that match --project, --selector, and --namespace" if is_narrowed else ""
        why = (
            f"Argo CD lists no Applications{options}: there are none, or the token is not"
            " allowed to read them"
        )
        hint = "add to argocd-rbac-cm: p, <subject>, applications, get, */*, allow"
        return [source_warning("argocd", why, hint)]

    def _keys_to_read(self, namespace: str) -> list[tuple[str, str]]:
        """Return the (namespace, name) of each Application to read in full. Add the others to
        `passed_over` if they are annotated.
        """
        items = self._api.list_applications(
            projects=self._projects,
            selector=self._narrow.selector,
            namespace=namespace,
        )
        self._listed += len(items)
        # Two items may have the same key. So decide on all items first: a key to read must not also
        # be in `passed_over`.
        keys_to_read = set[tuple[str, str]]()
        for item in items:
            key = _namespace_and_name(item)
            _, name = key
            if name and self._wanted(item) and _passes_narrowing(item, self._narrow):
                keys_to_read.add(key)

        keys_in_order = []
        for item in items:
            key = _namespace_and_name(item)
            if key in keys_to_read:
                keys_in_order.append(key)
                continue
            app = annotated(item, self._prefix, "argocd")
            if app:
                self.passed_over.append(app)
        return keys_in_order

    def _read_application(self, key: tuple[str, str]) -> Found:
        """Return an Application in full, or a warning if it cannot be read."""
        try:
            return Found(self._api.get_application(*key), "argocd")
        except SourceDownError:
            raise
        # the Application may have been deleted: Argo CD then returns 403, as if access were
        # forbidden
        except SourceError as error:
            return source_warning("argocd", str(error), error.hint)


def _with_kind(item: Item, version: str, kind: str) -> Item:
    """Return the object with `apiVersion` and `kind`, which Kubernetes omits from list items."""
    return {
        **item,
        "apiVersion": item.get("apiVersion") or version,
        "kind": item.get("kind") or kind,
    }


def _patterns_of(updater: Item) -> Iterator[_NamePattern]:
    """Yield an ImageUpdater's namespace with each of its `namePattern`s, which are globs for the
    names of Applications in that namespace.

    An invalid pattern, which `configure` reports, is skipped.
    """
    namespace, _ = _namespace_and_name(updater)
    for ref in mappings(mapping(updater.get("spec")).get("applicationRefs")):
        pattern = ref.get("namePattern")
        if isinstance(pattern, str) and 0 < len(pattern) <= LONGEST:
            yield namespace, pattern


def _namespace_and_name(item: Item) -> tuple[str, str]:
    """Return an object's namespace and name.

    The namespace may be "": older Argo CD servers omit it if it is their own.
    """
    metadata = mapping(item.get("metadata"))
    return text(metadata.get("namespace")), text(metadata.get("name"))


def _passes_narrowing(item: Item, narrow: Narrow) -> bool:
    """Return whether an Application's metadata matches the options that narrow the run, such as
    `--selector`.

    `--project` is not checked, because the project is not part of the metadata.
    """
    without_projects = replace(narrow, projects=())
    if without_projects == Narrow():
        return True
    metadata = mapping(item.get("metadata"))
    all_labels = mapping(metadata.get("labels"))
    labels = {key: value for key, value in all_labels.items() if isinstance(value, str)}
    namespace, name = _namespace_and_name(item)
    app = Application(namespace=namespace, name=name, labels=labels)
    return considered(app, without_projects)
