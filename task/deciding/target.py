"""Pure code that determines the kind of a subscription's target, and the current image if the
target does not contain one.

In that case, the running image is used. If the Application has no status, because it was read from
files or Git, its own sources are used. Otherwise, the first update could go back to an older
version than the one in the spec, chart, or kustomization.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from task.annotations.write_back import inside
from task.deciding.hiding import hiding_places, in_repository
from task.deciding.overlays import folders_of_tree, in_manifests, places_of_tree
from task.editors import EDITORS, helm_values, kustomization, override_kustomize, overrides
from task.errors import SourceError, TargetError, TaskError
from task.image import live_image
from task.model import (
    File,
    Files,
    Image,
    Kind,
    Place,
    Reading,
    Snapshot,
    Subscription,
    Target,
    TargetKind,
)
from task.urls import normal_url

# the kinds that have the same name as their target
OWN_KINDS: tuple[TargetKind, ...] = (
    "kustomization",
    "helmvalues",
    "manifests",
    "flux",
)
OVERRIDES: Mapping[Kind, TargetKind] = {
    "Helm": "helm-override", "Kustomize": "kustomize-override", "Plugin": "plugin-override",
}  # fmt: skip
# The files in a source's path that determine the source's type. Argo CD checks for the same files
# (util/app/discovery).
SIGNS: Mapping[str, Kind] = {
    "Chart.yaml": "Helm",
    "kustomization.yaml": "Kustomize",
    "kustomization.yml": "Kustomize",
    "Kustomization": "Kustomize",
}


def target_places(sub: Subscription) -> tuple[Place, ...]:
    """Return the places (paths in Git) that must be read before the target can be read or written
    to.
    """
    places: list[Place] = []
    if _in_own_path(sub):
        places.append(Place(sub.source.path, "exists"))

    depends_on_files = sub.source.kind == "" and sub.target in ("override", "file")
    if depends_on_files:  # such as `Chart.yaml`, which makes the source a Helm source
        places += [Place(f"{sub.source.path}/{sign}".lstrip("/"), "exists") for sign in SIGNS]
        # These include the places that the other kinds of override files need.
        places += EDITORS["helm-override"].places(target_of(sub, "helm-override"))
        if sub.target == "file":  # in a Helm source, it is a values file
            places += hiding_places(sub, "helmvalues")
        return tuple(places)

    kind = _kind(sub, {})  # no files, because this kind does not depend on them
    if kind is None:  # the source cannot be written to
        return tuple(places)
    places_of_target = (*EDITORS[kind].places(target_of(sub, kind)), *hiding_places(sub, kind))
    return (*places, *dict.fromkeys(places_of_target))


def resolve(sub: Subscription, snapshot: Snapshot) -> TargetKind:
    """Return the kind of the subscription's target, such as "helmvalues", based on the files in
    Git.

    Raises `SourceError` if there is no target to write to.
    """
    if _in_own_path(sub):
        _refuse_no_folder(sub.source.path, snapshot)
    kind = _kind(sub, snapshot.files)
    if kind is None:
        hint = "set write-back-target: manifests to change the image directly in the manifests"
        raise SourceError("the source is a plain directory, which has no override file", hint=hint)
    return kind


def _refuse_no_folder(path: str, snapshot: Snapshot) -> None:
    """Raise `SourceError` unless `path`, the source's path, is a folder in the snapshot.

    Symbolic links and submodules do not count as folders.
    """
    folder = ""
    for name in path.split("/"):
        folder = posixpath.join(folder, name)
        entry = snapshot.files.get(folder)
        file_type = NO_FOLDERS.get(entry.mode) if entry else None
        if file_type:
            message = f"the path {path!r}: {folder} is {file_type}, not a folder"
            raise SourceError(message, hint="set spec.source.path to the actual folder")
    if path not in snapshot.files:
        message = f"the path {path!r} does not exist on {snapshot.branch}"
        raise SourceError(message, hint="check spec.source.path and the branch")


# Git's modes for everything that is not a folder
NO_FOLDERS = {
    "120000": "a symbolic link",
    "160000": "a submodule",
    "100644": "a file",
    "100755": "a file",
}


def _kind(sub: Subscription, files: Files) -> TargetKind | None:
    """Return the target's kind, such as "helmvalues", or None for plain manifests, which have no
    override file.
    """
    for kind in OWN_KINDS:
        if kind == sub.target:
            return kind
    source_kind = sub.source.kind or _kind_by_signs(sub.source.path, files)
    # If `write-back-target` is only a path ("file"), the file's name decides for a Helm chart.
    is_override = posixpath.basename(sub.path).startswith(".argocd-source-")
    if sub.target == "file" and source_kind == "Helm" and not is_override:
        return "helmvalues"
    return OVERRIDES.get(source_kind)


def _kind_by_signs(folder: str, files: Files) -> Kind:
    """Return the type of the source in a folder, or "" for plain manifests."""
    for sign, kind in SIGNS.items():
        if f"{folder}/{sign}".lstrip("/") in files:
            return kind
    return ""


def target_of(sub: Subscription, kind: TargetKind, *, carry: bool | None = None) -> Target:
    """Return a subscription's target, which is the place where an editor reads and writes the
    image.

    `carry` determines whether to copy the Application's own parameters into the override file.
    """
    # A claim is one entry of the Application's `image-list`.
    own_claim = (sub.entry.alias, sub.entry.image.identity)
    other_claims = [claim for claim in sub.claims if (claim.alias, claim.identity) != own_claim]
    # `directory.recurse` applies to the source's own folder. In all other folders, subfolders are
    # always included.
    recurse = sub.source.recurse or sub.path != sub.source.path
    return Target(
        kind=kind,
        path=sub.path,
        keys=sub.keys,
        image=sub.entry.image,
        source=sub.source,
        application=sub.application.key,
        alias=sub.entry.alias,
        values=_values_files(sub),
        recurse=recurse,
        fallbacks=sub.fallbacks,
        carry=carry,
        managed=sub.managed,
        others=tuple(other_claims),
    )


def _values_files(sub: Subscription) -> tuple[str, ...]:
    """Return the paths of the values files that Helm reads from the written repository, in order.

    For example, `$config/web/values-prod.yaml` becomes `web/values-prod.yaml` if the source with
    the ref `config` uses the written repository.
    """
    source = sub.source
    repo_by_ref = {item.ref: item.repo for item in sub.application.sources if item.ref}
    names = source.value_files
    is_chart_in_repo = sub.repo == source.repo and not source.chart
    if is_chart_in_repo:
        # The key may be for a subchart in an umbrella chart: `db.image.tag` is `image.tag` in
        # `charts/db/values.yaml`.
        subchart, _, _ = sub.keys.tag.partition(".")
        names = (f"charts/{subchart}/values.yaml", "values.yaml", *names)

    paths = []
    for name in names:
        if name.startswith("$"):  # $ref/path
            ref, _, path_in_repo = name[1:].partition("/")
            if repo_by_ref.get(ref) == sub.repo:
                paths.append(path_in_repo)
        elif is_chart_in_repo and "://" not in name:
            paths.append(posixpath.join("/", source.path, name))
    normal_paths = [posixpath.normpath(f"/{path}").lstrip("/") for path in paths]
    return tuple(dict.fromkeys(normal_paths))


def earlier_reading(files: Files, target: Target, path: str, text: str) -> Reading | None:
    """Return the image in an earlier version of the target's file, or None if that version is
    invalid.

    `text` is the earlier version of the file at `path`.
    """
    try:
        return EDITORS[target.kind].read({**files, path: File(text)}, target)
    except TaskError:
        return None


def _in_own_path(sub: Subscription) -> bool:
    """Return whether the source's path is a folder in the written repository, but not its root.

    A path with `..` does not count, because it may lead out of the repository.
    """
    path = sub.source.path
    return path != "" and sub.repo == sub.source.repo and ".." not in path.split("/")


def all_live(sub: Subscription) -> tuple[Image, ...]:
    """Return all of the Application's running images with the entry's `kustomize.image-name` or, if
    there are none, with the entry's own name.
    """
    live_images = [image for image in map(live_image, sub.application.live) if image is not None]
    kustomize_name = sub.keys.kustomize_name
    kustomize_image = live_image(kustomize_name) if kustomize_name else None
    if kustomize_image:
        matching = _with_identity(live_images, kustomize_image.identity)
        if matching:
            return matching
    return _with_identity(live_images, sub.entry.image.identity)


def _with_identity(images: Iterable[Image], identity: str) -> tuple[Image, ...]:
    """Return the images whose normalized repository is `identity`."""
    return tuple(image for image in images if image.identity == identity)


def live_reading(sub: Subscription) -> Reading:
    """Return the subscription's running image according to the Application's status.

    All fields are "" if the image is not in the status.
    """
    images = all_live(sub)
    if not images:
        return Reading()
    return Reading(images[0].name, images[0].tag, images[0].digest)


_VALUES = "values.yaml"
_MOST_FILES = 100  # per Application, highest precedence first


def own_places(sub: Subscription, kind: TargetKind) -> tuple[Place, ...]:
    """Return the places (paths in Git) that must be read before `own_reading` can find the image in
    the Application's own sources.
    """
    if sub.application.live:
        return ()
    if kind in ("helm-override", "helmvalues"):
        return tuple(map(Place, _values_files_by_precedence(sub)))
    if kind in ("kustomize-override", "kustomization") and in_repository(sub.source, sub):
        folder = sub.source.path
        paths = [f"{folder}/{file_name}".lstrip("/") for file_name in kustomization.NAMES]
        return tuple(map(Place, paths))
    return ()


def overlay_places(files: Files, sub: Subscription, kind: TargetKind) -> tuple[Place, ...]:
    """Return the places of all kustomizations and manifests that the source's kustomization
    includes, as far as this can be determined from the given files.
    """
    if kind not in ("kustomize-override", "kustomization") or not in_repository(sub.source, sub):
        return ()
    root = tuple(
        Place(posixpath.join(sub.source.path, file_name)) for file_name in kustomization.NAMES
    )
    return (*root, *places_of_tree(files, sub.source.path))


def own_reading(files: Files, sub: Subscription, kind: TargetKind) -> Reading:
    """Return the image in the Application's own sources.

    All fields are "" if no source contains the image.
    """
    if sub.application.live:
        return Reading()
    target = target_of(sub, kind)
    with suppress(TaskError):  # the target's own error is reported when the target is read
        if kind in ("helm-override", "helmvalues"):
            return _helm_reading(files, sub, target)
        if kind in ("kustomize-override", "kustomization"):
            return _kustomize_reading(files, sub, target)
        if kind == "plugin-override":
            return overrides.read_below(files, target)
    return Reading()


def _kustomize_reading(files: Files, sub: Subscription, target: Target) -> Reading:
    """Return the image that Kustomize renders.

    The image is taken from the override file, or else from the outermost kustomization with an
    entry for it, or else from the manifests.
    """
    in_override = override_kustomize.read_below(files, target)
    if in_override.version or not in_repository(sub.source, sub):
        return in_override
    for folder in folders_of_tree(files, sub.source.path):
        with suppress(TargetError):  # Kustomize reports invalid files
            in_kustomization = kustomization.read(files, replace(target, path=folder))
            if in_kustomization.version:
                return replace(in_kustomization, file="")
    return in_manifests(files, sub.source.path, sub.entry.image)


def _helm_reading(files: Files, sub: Subscription, target: Target) -> Reading:
    """Return the tag and digest that Helm uses, or an empty reading if the values name a different
    image.

    The name and the version may come from different layers of values. Each is taken from the first
    layer that sets it.
    """
    # one reading per layer, highest precedence first
    layers = [overrides.read_below(files, target), *_readings_of_values(files, sub)]
    names = [reading.name for reading in layers if reading.name]
    image = live_image(names[0]) if names else None
    # Only the repository is compared, because charts may set the registry in a separate value.
    if image and image.repository != sub.entry.image.repository:
        return Reading()
    for reading in layers:
        if reading.version:
            return Reading(tag=reading.tag, digest=reading.digest)
    return Reading()


def _readings_of_values(files: Files, sub: Subscription) -> Iterator[Reading]:
    """Yield the image in each layer of values, highest precedence first.

    The layers are the Application's own values, followed by the values files. Invalid layers are
    skipped.
    """
    keys = overrides.names_of(sub.keys)
    paths = _values_files_by_precedence(sub)
    layers = [(_VALUES, File(sub.source.values))]  # read like a file with this name
    layers += [(path, files[path]) for path in paths if path in files]
    for path, file in layers:
        target = Target("helmvalues", path, keys, sub.entry.image, sub.source)
        with suppress(TaskError):  # Helm reports invalid files
            yield helm_values.read({path: file}, target)


def _values_files_by_precedence(sub: Subscription) -> list[str]:
    """Return the paths of the values files in the written repository, in order of precedence,
    highest first.
    """
    paths: list[str] = []
    for name in reversed((_VALUES, *sub.source.value_files)):
        with suppress(TaskError):  # the path leads out of the repository, which Argo CD reports
            path = _path_in_written_repository(name, sub)
            if path is not None:
                paths.append(path)
    return paths[:_MOST_FILES]


def _path_in_written_repository(name: str, sub: Subscription) -> str | None:
    """Return the path of a values file, or None if the file is not in the repository that is
    written to.

    `name` is the file's name in the Application: `$ref/path` in the source with that `ref`, a URL,
    or a path in the source's folder. Raises `TaskError` if the path leads out of the repository.
    """
    if name.startswith("$"):
        ref, _, path_in_repo = name[1:].partition("/")
        repos = [source.repo for source in sub.application.sources if source.ref == ref]
        is_written = bool(repos) and normal_url(repos[0]) == normal_url(sub.repo)
        return inside("", path_in_repo) if is_written else None
    is_url = "://" in name
    if is_url or not in_repository(sub.source, sub):
        return None
    return inside(sub.source.path, name)
