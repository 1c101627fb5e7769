"""Finds out what an AppProject forbids: syncing at a time, or deploying to a destination. Pure.

Anything that cannot be computed from the AppProject alone is unknown, and is not reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from task.argocd.rollout_causes import said
from task.errors import Malformed
from task.model import Destination
from task.plain_data import elements, mapping, mappings, text
from task.repository_config.config import next_start, schedule, seconds_of, window, zone_of
from task.timestamps import readable

HERE = "https://kubernetes.default.svc"
IN_CLUSTER = "in-cluster"  # Argo CD's name for the cluster that it runs in
_GLOBS = ("applications", "namespaces", "clusters")


def sync_windows(
    project: Mapping[str, Any],
    application: str,
    to: Destination,
    now: str,
) -> dict[str, Any]:
    """Return an Application's sync windows in the form of Argo CD's API.

    In addition, `because` is the reason if the windows block a sync now. Returns {} if unknown: the
    AppProject could not be read, or has a schedule that is not a five-field cron expression.
    """
    if not mapping(project, "spec"):
        return {}
    assigned = [
        item for item in mappings(project, "spec", "syncWindows") if _is_for(item, application, to)
    ]
    active: list[Mapping[str, Any]] = []
    deny_ends: list[str] = []
    allow_starts: list[str] = []
    try:
        for item in assigned:
            kind = text(item, "kind")
            start_and_end = _open_from_to(item, now)
            if start_and_end:
                active.append(item)
                if kind == "deny":
                    deny_ends.append(start_and_end[1])
            elif kind == "allow":
                allow_starts.append(_next_opening(item, now))
    except Malformed:
        return {}
    found = {"assignedWindows": assigned, "activeWindows": active}
    because = _because(project, found, max(deny_ends, default=""), allow_starts)
    return {**found, "because": because}


def live_destination(item: Mapping[str, Any]) -> Destination:
    """Return a live Application's destination."""
    spec = mapping(item, "spec", "destination")
    return Destination(
        text(spec, "server"),
        text(spec, "name"),
        text(spec, "namespace"),
    )


def blocks(windows: Mapping[str, Any]) -> bool:
    """Return whether sync windows forbid auto-sync now.

    As in Argo CD, deny windows win, and if there are allow windows, one must be open.
    """
    active = {text(item, "kind") for item in mappings(windows, "activeWindows")}
    assigned = {text(item, "kind") for item in mappings(windows, "assignedWindows")}
    return "deny" in active or ("allow" in assigned and "allow" not in active)


def _because(
    project: Mapping[str, Any],
    windows: Mapping[str, Any],
    until: str,
    openings: Iterable[str],
) -> str:
    """Return which window prevents Argo CD from syncing, and until when; "" if none does.

    `until` is the end of the last open deny window, or "". `openings` are the next starts of the
    allow windows.
    """
    if not blocks(windows):
        return ""
    name = said(text(project, "metadata", "name"))
    if until:
        denies = (item for item in windows["activeWindows"] if text(item, "kind") == "deny")
        return (
            f"{_words_of(next(denies), name)} prevents Argo CD from syncing until {readable(until)}"
        )
    opens = min(filter(None, openings), default="")
    when = f" before {readable(opens)}" if opens else ""
    allows = (item for item in windows["assignedWindows"] if text(item, "kind") == "allow")
    return (
        f"{_words_of(next(allows), name)} is not open{when}, and Argo CD does not sync outside it"
    )


def _words_of(sync_window: Mapping[str, Any], project: str) -> str:
    """Return a human-readable description of a window.

    Windows do not have names, but newer versions of Argo CD have descriptions.
    """
    words = (
        said(text(sync_window, "description"))
        or f"{said(text(sync_window, 'schedule'))}, {said(text(sync_window, 'duration'))}"
    )
    article = "an" if text(sync_window, "kind") == "allow" else "a"
    return f"{article} {text(sync_window, 'kind')} window of AppProject {project} ({words})"


def _open_from_to(sync_window: Mapping[str, Any], now: str) -> tuple[str, str] | None:
    """Return the start and end of a window that is open now, or None. Raises `Malformed`."""
    zone = zone_of(text(sync_window, "timeZone") or "UTC")
    return window(
        schedule(text(sync_window, "schedule")),
        seconds_of(text(sync_window, "duration")),
        zone,
        now,
    )


def _next_opening(sync_window: Mapping[str, Any], now: str) -> str:
    return next_start(
        text(sync_window, "schedule"),
        zone_of(text(sync_window, "timeZone") or "UTC"),
        now,
    )


def _is_for(sync_window: Mapping[str, Any], application: str, to: Destination) -> bool:
    """Return whether a window is for an Application.

    One of its globs must match, or, with `andOperator`, one from each list.
    """
    values = {
        "applications": (application,),
        "namespaces": (to.namespace,),
        "clusters": _clusters(to),
    }
    list_matches = [
        any(
            _fits_glob(pattern, value)
            for pattern in elements(sync_window, key)
            for value in values[key]
        )
        for key in _GLOBS
        if elements(sync_window, key)
    ]
    if not list_matches:
        return False
    return all(list_matches) if sync_window.get("andOperator") is True else any(list_matches)


def _clusters(to: Destination) -> tuple[str, ...]:
    """Return the known names and URLs of a cluster.

    For clusters other than Argo CD's own, only the name or the URL is known.
    """
    if to.server.rstrip("/") == HERE or to.name == IN_CLUSTER:
        return HERE, IN_CLUSTER
    return tuple(filter(None, (to.server, to.name)))


def _fits_glob(pattern: object, value: str) -> bool:
    return isinstance(pattern, str) and fnmatchcase(value, pattern)


def refuses_destination(project: Mapping[str, Any], to: Destination) -> bool:
    """Return whether an AppProject rejects a destination, or False if unknown.

    As in Argo CD, one entry must match, and no entry with `!` may exclude it.
    """
    if not mapping(project, "spec") or not (to.server or to.name):
        return False
    in_cluster = to.server.rstrip("/") == HERE or to.name == IN_CLUSTER
    server = HERE if in_cluster else to.server
    name = IN_CLUSTER if in_cluster else to.name
    permitted = False
    denied = False
    for item in mappings(project, "spec", "destinations"):
        patterns = {key: text(item, key) for key in ("server", "name", "namespace")}
        permits = {
            "server": _of_cluster(patterns["server"], server),
            "name": _of_cluster(patterns["name"], name),
            "namespace": _permits(patterns["namespace"], to.namespace),
        }
        if None in permits.values():
            return False  # unknown
        excluded = any(
            patterns[key].startswith("!") and not value_is_permitted
            for key, value_is_permitted in permits.items()
        )
        if (permits["server"] or permits["name"]) and permits["namespace"]:
            permitted = True
        elif excluded:
            denied = True
    return denied or not permitted


def _of_cluster(pattern: str, known: str) -> bool | None:
    """Return whether a cluster's URL or name is permitted.

    Return None if it is not `known`: Argo CD looks it up.
    """
    if pattern == "*":
        return True
    if pattern and not known:
        return None
    return _permits(pattern, known)


def _permits(pattern: str, value: str) -> bool:
    """Return whether a glob permits the value. A glob with `!` permits all values but its own."""
    if pattern.startswith("!"):
        return not fnmatchcase(value, pattern[1:])
    return fnmatchcase(value, pattern)


def hindrance_of(
    project: Mapping[str, Any],
    application: str,
    to: Destination,
    now: str,
) -> tuple[str, str]:
    """Return what prevents Argo CD from deploying a commit now, and what to do about it.

    Return "" and "" if no obstacle is known.
    """
    name = said(text(project, "metadata", "name"))
    if refuses_destination(project, to):
        where = f"{said(to.server or to.name)}, namespace {said(to.namespace) or '(none)'}"
        return (
            f"AppProject {name} does not permit the destination {where}: Argo CD will not sync it",
            "add it to the AppProject's destinations, or correct the Application's destination",
        )
    because = text(sync_windows(project, application, to, now), "because")
    if because:
        return (
            because,
            "it will be deployed once the window allows it, or with argocd app sync if permitted",
        )
    return "", ""
