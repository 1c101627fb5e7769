"""Reads from one Application of Argo CD what is needed to decide whether a revision is rolled out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from task.argocd.rollout_causes import mapping, text
from task.plain_data import mappings


@dataclass(frozen=True)
class Wanted:
    """The wanted revision."""

    accepts: Callable[[str], bool]  # accepts the wanted revision, and any that contains it
    since: str = ""  # RFC 3339, by Argo CD's clock: only later comparisons count
    ours: Callable[[str], bool] = lambda _url: True  # whether a source with this repoURL must have the wanted revision
    spec: bool = False  # the comparison must be with the present spec, because a live Application was patched


@dataclass(frozen=True)
class View:
    """The parts of one Application that say something about its rollout."""

    item: Mapping[str, Any]
    status: Mapping[str, Any]
    sync: Mapping[str, Any]
    operation: Mapping[str, Any]  # status.operationState
    tree: Mapping[str, Any]
    compared: str
    at: bool  # compared with a wanted revision
    applied: bool  # the last operation was for a wanted revision
    fresh: bool  # compared later than `since`

    @property
    def phase(self) -> str:
        """The phase of the last operation: Running, Terminating, Succeeded, Failed, Error."""
        return text(self.operation, "phase")

    @property
    def current(self) -> bool:
        """Whether the last operation was for the revisions of the last comparison."""
        return revisions_of(_result(self.operation)) == revisions_of(self.sync)


def view_of(item: Mapping[str, Any], wanted: Wanted, tree: Mapping[str, Any]) -> View:
    """Return the view of an Application for the wanted revision."""
    status = mapping(item, "status")
    sync, operation = mapping(status, "sync"), mapping(status, "operationState")
    compared = text(status, "reconciledAt")
    result = _result(operation)
    dry_run = mapping(mapping(operation, "operation"), "sync").get("dryRun") is True
    return View(
        item,
        status,
        sync,
        operation,
        tree,
        compared,
        at=_accepted(_sources(item, mapping(sync, "comparedTo")), revisions_of(sync), wanted)
        and not (wanted.spec and _other_spec(item, mapping(sync, "comparedTo"))),
        applied=_accepted(_sources(item, result), revisions_of(result), wanted)
        and not (dry_run or (wanted.spec and _other_spec(item, result))),
        fresh=not wanted.since or later(compared, wanted.since),
    )


def _result(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of an operation that has its revision: the result, or the request if there is no result yet."""
    result = mapping(operation, "syncResult")
    return result if revisions_of(result) else mapping(mapping(operation, "operation"), "sync")


def revisions_of(where: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the revisions in a sync status or a sync result, one for each source."""
    several = where.get("revisions")
    if isinstance(several, list) and several:
        return tuple(one if isinstance(one, str) else "" for one in several)
    one = text(where, "revision")
    return (one,) if one else ()


def _sources(item: Mapping[str, Any], compared: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (repository, target revision) of each source, from the last comparison, or else from the spec."""
    spec = mapping(item, "spec")
    several = mappings(compared.get("sources")) or mappings(spec.get("sources"))
    if several:
        return [(text(one, "repoURL"), text(one, "targetRevision")) for one in several]
    one = mapping(compared, "source") or mapping(spec, "source")
    return [(text(one, "repoURL"), text(one, "targetRevision"))]


def _accepted(sources: list[tuple[str, str]], revisions: tuple[str, ...], wanted: Wanted) -> bool:
    """Tell whether every source on the written branch is at a wanted revision. Other sources do not matter."""
    pairs = [(target, one) for (url, target), one in zip(sources, revisions, strict=False) if wanted.ours(url)]
    targets = {target for target, one in pairs if one and wanted.accepts(one)}
    return bool(targets) and all(one and wanted.accepts(one) for target, one in pairs if target in targets)


def _other_spec(item: Mapping[str, Any], compared: Mapping[str, Any]) -> bool:
    spec = mapping(item, "spec")
    return any(_full(spec.get(key)) != _full(compared.get(key)) for key in ("source", "sources"))


def _full(value: object) -> object:
    """Drop empty values, because Argo CD drops them when it copies the spec."""
    if isinstance(value, dict):
        return {key: full for key, one in value.items() if (full := _full(one)) not in (None, "", False)} or None
    if isinstance(value, list):
        return [_full(one) for one in value] or None
    return value


def later(one: str, other: str) -> bool:
    """Tell whether `one` is later than `other` (RFC 3339). An unreadable time is never later."""
    return _moment(one) > _moment(other)


def _moment(moment: str) -> float:
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        return 0.0
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def parent_of(item: Mapping[str, Any], namespace: str) -> tuple[str, str] | None:
    """Return (namespace, name) of the Application that deployed this one (app of apps), or None if unknown.

    `namespace` is the control plane's. Elsewhere, an instance is called `<namespace>_<name>`.
    """
    metadata = mapping(item, "metadata")
    instance, _, rest = text(mapping(metadata, "annotations"), "argocd.argoproj.io/tracking-id").partition(":")
    if not rest.startswith("argoproj.io/Application:"):
        instance = text(mapping(metadata, "labels"), "app.kubernetes.io/instance")
    elsewhere, _, name = instance.rpartition("_")
    if not name or (elsewhere or namespace, name) == (text(metadata, "namespace"), text(metadata, "name")):
        return None
    return elsewhere or namespace, name
