"""Pure code that finds the kind of a subscription's target from the files in Git, and its live image."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from task.editors import EDITORS
from task.errors import SourceError, TaskError
from task.model import File, Files, Kind, Place, Reading, Snapshot, Subscription, Target, TargetKind

OVERRIDES: Mapping[Kind, TargetKind] = {
    "Helm": "helm-override",
    "Kustomize": "kustomize-override",
    "Plugin": "plugin-override",
}
# A file in the source's path that tells its type. Argo CD looks for the same ones (util/app/discovery).
SIGNS: Mapping[str, Kind] = {
    "Chart.yaml": "Helm",
    "kustomization.yaml": "Kustomize",
    "kustomization.yml": "Kustomize",
    "Kustomization": "Kustomize",
}


def target_places(sub: Subscription) -> tuple[Place, ...]:
    """Return what a snapshot must contain to read and write the target."""
    found: list[Place] = [Place(sub.source.path, "exists")] if _in_own_path(sub) else []
    if sub.source.kind == "" and sub.target in ("override", "file"):
        found += [Place(f"{sub.source.path}/{sign}".lstrip("/"), "exists") for sign in SIGNS]
        return (*found, *EDITORS["helm-override"].places(target_of(sub, "helm-override")))
    kind = _kind(sub, {})
    return (*found, *EDITORS[kind].places(target_of(sub, kind))) if kind else tuple(found)


def resolve(sub: Subscription, snapshot: Snapshot) -> TargetKind:
    """Return the kind of the target, from the files in Git. Raises `SourceError` if there is nothing to write."""
    path = sub.source.path.strip("/")
    if _in_own_path(sub):
        _refuse_no_folder(path, snapshot)
    kind = _kind(sub, snapshot.files)
    if kind is None:
        raise SourceError(
            "the source is a plain directory, which has no override file",
            hint="write write-back-target: manifests to set the image in the manifests themselves",
        )
    return kind


def _refuse_no_folder(path: str, snapshot: Snapshot) -> None:
    """Raise `SourceError` unless the source's path is a folder, without links and submodules on the way."""
    parts = path.split("/")
    for folder in ("/".join(parts[: end + 1]) for end in range(len(parts))):
        if (file := snapshot.files.get(folder)) and (what := NO_FOLDERS.get(file.mode)):
            raise SourceError(
                f"the path {path!r}: {folder} is {what}, not a folder",
                hint="name the folder itself in spec.source.path",
            )
    if path not in snapshot.files:
        raise SourceError(
            f"the path {path!r} does not exist on {snapshot.branch}", hint="check spec.source.path and the branch"
        )


NO_FOLDERS = {"120000": "a symbolic link", "160000": "a submodule", "100644": "a file", "100755": "a file"}


def _kind(sub: Subscription, files: Files) -> TargetKind | None:
    source_kind = sub.source.kind or next(
        (kind for sign, kind in SIGNS.items() if f"{sub.source.path.strip('/')}/{sign}".lstrip("/") in files), ""
    )
    if sub.target == "file":
        named = sub.path.rpartition("/")[2].startswith(".argocd-source-")
        return "helmvalues" if source_kind == "Helm" and not named else OVERRIDES.get(source_kind)
    if sub.target == "override":
        return OVERRIDES.get(source_kind)
    return TARGETS.get(sub.target)


TARGETS: Mapping[str, TargetKind] = {
    "kustomization": "kustomization",
    "helmvalues": "helmvalues",
    "manifests": "manifests",
    "flux": "flux",
}


def target_of(sub: Subscription, kind: TargetKind, *, carry: bool | None = None) -> Target:
    """Return what an editor needs to know about the target."""
    return Target(
        kind=kind,
        path=sub.path,
        keys=sub.keys,
        image=sub.entry.image,
        source=sub.source,
        application=sub.application.key,
        alias=sub.entry.alias,
        values=_values_files(sub),
        recurse=sub.source.recurse or sub.path != sub.source.path.strip("/"),
        fallbacks=sub.fallbacks,
        carry=carry,
        managed=sub.managed,
        others=tuple(
            one for one in sub.claims if (one.alias, one.identity) != (sub.entry.alias, sub.entry.image.identity)
        ),
    )


def _values_files(sub: Subscription) -> tuple[str, ...]:
    """Return the values files that Helm reads from the repository that is written, in its order."""
    source, refs = sub.source, {one.ref: one.repo for one in sub.application.sources if one.ref}
    names = source.value_files
    if chart := "/" if sub.repo == source.repo and not source.chart else "":
        chart = f"/{source.path}/"
        below = sub.keys.tag.partition(".")[0]  # an umbrella chart may have the chart that it is for
        names = (f"charts/{below}/values.yaml", "values.yaml", *names)
    paths = []
    for name in names:
        ref, _, rest = name.partition("/")
        if name.startswith("$"):
            paths += [rest] if refs.get(ref[1:]) == sub.repo else []
        elif chart and "://" not in name:
            paths.append(posixpath.join(chart, name))
    return tuple(dict.fromkeys(posixpath.normpath(f"/{path}").lstrip("/") for path in paths))


def earlier_reading(files: Files, target: Target, path: str, text: str) -> Reading | None:
    """Return what the target said when its file had this text, or None if the text was broken."""
    try:
        return EDITORS[target.kind].read({**files, path: File(text)}, target)
    except TaskError:
        return None


def _in_own_path(sub: Subscription) -> bool:
    path = sub.source.path.strip("/")
    return bool(path) and path != "." and sub.repo == sub.source.repo and ".." not in path.split("/")
