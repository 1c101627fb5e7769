"""Determines what an AppProject forbids: syncing at a given time, or deploying to a destination.
Pure functions.

Anything that cannot be determined from the AppProject alone counts as unknown, and is not reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from task.argocd.rollout_causes import JsonObject, short_line
from task.errors import Malformed
from task.model import Destination
from task.plain_data import elements, mapping, mappings, text
from task.repository_config.config import next_start, schedule, seconds_of, window, zone_of
from task.timestamps import readable

HERE = "https://kubernetes.default.svc"
IN_CLUSTER = "in-cluster"  # Argo CD's name for the cluster in which it runs


def sync_windows(
    project: JsonObject,
    application: str,
    to: Destination,
    now: str,
) -> dict[str, Any]:
    """Return an Application's sync windows in the format of Argo CD's API.

    `project` is its AppProject, which declares windows in which syncs are allowed ("allow") or
    forbidden ("deny"). `application` is the Application's name, and `to` is its destination. In
    addition to the API's keys, the result contains `because`: why the windows prevent a sync now,
    or "".

    Return {} if the windows are unknown because the AppProject could not be read, or because one of
    its schedules is not a five-field cron expression.
    """
    if not mapping(project, "spec"):
        return {}
    assigned_windows = [
        sync_window
        for sync_window in mappings(project, "spec", "syncWindows")
        if _is_window_for(sync_window, application, to)
    ]
    active_windows: list[JsonObject] = []
    last_deny_end = ""  # when the last active deny window ends
    allow_starts: list[str] = []  # when the inactive allow windows start
    try:
        for sync_window in assigned_windows:
            kind = text(sync_window, "kind")
            current_period = _current_period(sync_window, now)
            if current_period:
                active_windows.append(sync_window)
                _start, end = current_period
                if kind == "deny":
                    last_deny_end = max(last_deny_end, end)
            elif kind == "allow":
                allow_starts.append(_next_opening(sync_window, now))
    except Malformed:
        return {}
    windows = {"assignedWindows": assigned_windows, "activeWindows": active_windows}
    because = _why_blocked(project, windows, last_deny_end, allow_starts)
    return {**windows, "because": because}


def live_destination(item: JsonObject) -> Destination:
    """Return the cluster and namespace to which a live Application is deployed."""
    destination = mapping(item, "spec", "destination")
    return Destination(
        text(destination, "server"),
        text(destination, "name"),
        text(destination, "namespace"),
    )


def blocks(windows: JsonObject) -> bool:
    """Return whether sync windows (in the format of Argo CD's API) forbid auto-sync now.

    As in Argo CD, auto-sync is forbidden while a "deny" window is open. If there are "allow"
    windows, it is also forbidden while none of them is open.
    """
    active_kinds = {text(item, "kind") for item in mappings(windows, "activeWindows")}
    assigned_kinds = {text(item, "kind") for item in mappings(windows, "assignedWindows")}
    if "deny" in active_kinds:
        return True
    return "allow" in assigned_kinds and "allow" not in active_kinds


def _why_blocked(
    project: JsonObject,
    windows: JsonObject,
    last_deny_end: str,
    allow_starts: Iterable[str],
) -> str:
    """Return a description of the window that prevents Argo CD from syncing, and of when it stops
    doing so. Return "" if no window does.

    `last_deny_end` is when the last active deny window ends, or "" if none is active.
    `allow_starts` are the times when the inactive allow windows next open ("" for never).
    """
    if not blocks(windows):
        return ""
    project_name = short_line(text(project, "metadata", "name"))
    if last_deny_end:
        deny_window = _first_of_kind("deny", windows["activeWindows"])
        description = _description_of(deny_window, project_name)
        return f"{description} prevents Argo CD from syncing until {readable(last_deny_end)}"

    allow_window = _first_of_kind("allow", windows["assignedWindows"])
    description = _description_of(allow_window, project_name)
    next_allow_start = min(filter(None, allow_starts), default="")
    when = f" before {readable(next_allow_start)}" if next_allow_start else ""
    return f"{description} is not open{when}, and Argo CD does not sync outside it"


def _first_of_kind(kind: str, sync_windows: Iterable[JsonObject]) -> JsonObject:
    """Return the first window of this kind ("deny" or "allow"). At least one must exist."""
    return next(item for item in sync_windows if text(item, "kind") == kind)


def _description_of(sync_window: JsonObject, project: str) -> str:
    """Return a human-readable description of a window in this AppProject.

    Windows do not have names, but in newer versions of Argo CD they can have descriptions.
    """
    details = short_line(text(sync_window, "description"))
    if not details:
        schedule_words = short_line(text(sync_window, "schedule"))
        details = f"{schedule_words}, {short_line(text(sync_window, 'duration'))}"
    kind = text(sync_window, "kind")
    article = "an" if kind == "allow" else "a"
    return f"{article} {kind} window of AppProject {project} ({details})"


def _current_period(sync_window: JsonObject, now: str) -> tuple[str, str] | None:
    """Return the start and end of a window that is open now, or None if it is closed.

    Raises `Malformed`.
    """
    zone = zone_of(text(sync_window, "timeZone") or "UTC")
    return window(
        schedule(text(sync_window, "schedule")),
        seconds_of(text(sync_window, "duration")),
        zone,
        now,
    )


def _next_opening(sync_window: JsonObject, now: str) -> str:
    """Return when a closed window next opens, or "" for never. Raises `Malformed`."""
    return next_start(
        text(sync_window, "schedule"),
        zone_of(text(sync_window, "timeZone") or "UTC"),
        now,
    )


def _is_window_for(sync_window: JsonObject, application: str, to: Destination) -> bool:
    """Return whether a sync window applies to an Application with this name and destination.

    A window has up to three lists of globs: for the Application's name, the destination's
    namespace, and the destination's cluster. A match in any list is enough or, with `andOperator`,
    every list must have a match.
    """
    values_by_list = {
        "applications": (application,),
        "namespaces": (to.namespace,),
        "clusters": _names_of_cluster(to),
    }
    list_matches = []  # for each of the window's lists: whether it matches
    for key, values in values_by_list.items():
        globs = elements(sync_window, key)
        if globs:
            list_matches.append(any(_glob_matches(glob, values) for glob in globs))
    if not list_matches:
        return False
    if sync_window.get("andOperator") is True:
        return all(list_matches)
    return any(list_matches)


def _names_of_cluster(to: Destination) -> tuple[str, ...]:
    """Return the known names and URLs of a destination's cluster.

    For a cluster other than Argo CD's own, only the name or only the URL is known.
    """
    if _is_own_cluster(to):
        return HERE, IN_CLUSTER
    return tuple(filter(None, (to.server, to.name)))


def _is_own_cluster(to: Destination) -> bool:
    """Return whether a destination is the cluster in which Argo CD runs."""
    return to.server.rstrip("/") == HERE or to.name == IN_CLUSTER


def _glob_matches(glob: object, values: Iterable[str]) -> bool:
    """Return whether a glob matches any of the values. A non-string glob never matches."""
    if not isinstance(glob, str):
        return False
    return any(fnmatchcase(value, glob) for value in values)


def refuses_destination(project: JsonObject, to: Destination) -> bool:
    """Return whether an AppProject rejects a destination (`to`), or False if unknown.

    The AppProject lists permitted destinations, each with globs for the server, the name, and the
    namespace. As in Argo CD, at least one entry must match, and no entry with `!` may exclude the
    destination.
    """
    if not mapping(project, "spec"):
        return False  # unknown: the AppProject could not be read
    if not to.server and not to.name:
        return False  # unknown: the Application does not specify a cluster
    server = to.server
    name = to.name
    if _is_own_cluster(to):  # the only cluster whose URL and name are both known
        server = HERE
        name = IN_CLUSTER
    is_permitted = False
    is_excluded = False
    for entry in mappings(project, "spec", "destinations"):
        server_glob = text(entry, "server")
        name_glob = text(entry, "name")
        namespace_glob = text(entry, "namespace")
        permits_server = _glob_permits_cluster(server_glob, server)
        permits_name = _glob_permits_cluster(name_glob, name)
        permits_namespace = _glob_permits(namespace_glob, to.namespace)
        if permits_server is None or permits_name is None:
            return False  # unknown: only Argo CD can look up the cluster
        # As in Argo CD, an entry identifies the cluster by its URL or by its name.
        if permits_namespace and (permits_server or permits_name):
            is_permitted = True
        elif (
            _glob_excludes(server_glob, server)
            or _glob_excludes(name_glob, name)
            or _glob_excludes(namespace_glob, to.namespace)
        ):
            is_excluded = True
    return is_excluded or not is_permitted


def _glob_permits_cluster(glob: str, url_or_name: str) -> bool | None:
    """Return whether a glob permits a cluster. `url_or_name` is the cluster's URL or its name,
    whichever the glob is matched against.

    Return None if the result depends on an unknown ("") URL or name, because only Argo CD can look
    it up.
    """
    if glob == "*":
        return True
    if glob and not url_or_name:
        return None
    return _glob_permits(glob, url_or_name)


def _glob_excludes(glob: str, value: str) -> bool:
    """Return whether a glob begins with `!`, and its remainder matches the value."""
    return glob.startswith("!") and not _glob_permits(glob, value)


def _glob_permits(glob: str, value: str) -> bool:
    """Return whether a glob permits a value. A glob that begins with `!` permits the values that
    its remainder does not match.
    """
    if glob.startswith("!"):
        return not fnmatchcase(value, glob.removeprefix("!"))
    return fnmatchcase(value, glob)


def hindrance_of(
    project: JsonObject,
    application: str,
    to: Destination,
    now: str,
) -> tuple[str, str]:
    """Return the reason why Argo CD cannot deploy to an Application's destination (`to`) now, and a
    hint about what to do.

    Either the AppProject does not permit the destination, or a sync window blocks the sync. Return
    ("", "") if nothing in the AppProject is known to prevent the deployment.
    """
    if refuses_destination(project, to):
        name = short_line(text(project, "metadata", "name"))
        cluster = short_line(to.server or to.name)
        where = f"{cluster}, namespace {short_line(to.namespace) or '(none)'}"
        return (
            f"AppProject {name} does not permit the destination {where}: Argo CD will not sync it",
            "add it to the AppProject's destinations, or correct the Application's destination",
        )
    because = text(sync_windows(project, application, to, now), "because")
    if because:
        hint = "it will be deployed once the window allows it, or with argocd app sync if permitted"
        return because, hint
    return "", ""
