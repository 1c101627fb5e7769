"""Pure code: what an Application's own sources say of an image that its write-back target does not name yet.

Only for Applications without a status, from files or Git. Without this, the first update of one could go back to an
older version: nothing would say that the spec, the chart or the kustomization has a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from task.annotations.write_back import inside
from task.deciding.target import target_of
from task.editors import helm_values, kustomization, override_helm, override_kustomize, override_plugin
from task.errors import TaskError
from task.image import live_image
from task.model import File, Files, Place, Reading, Subscription, Target, TargetKind
from task.policy.order import version_of
from task.urls import normal_url

_VALUES = "values.yaml"
_MOST_FILES = 100  # of one Application, the strongest ones


def own_places(sub: Subscription, kind: TargetKind) -> tuple[Place, ...]:
    """Return what a snapshot must contain for `own_reading`."""
    if sub.application.live:
        return ()
    if kind in ("helm-override", "helmvalues"):
        return tuple(map(Place, _value_files(sub)))
    if kind in ("kustomize-override", "kustomization") and _here(sub):
        folder = sub.source.path.strip("/")
        return tuple(Place(f"{folder}/{name}".lstrip("/")) for name in kustomization.NAMES)
    return ()


def own_reading(files: Files, sub: Subscription, kind: TargetKind) -> Reading:
    """Return the image in the Application's own sources. All parts are "" if none of them has it."""
    if sub.application.live:
        return Reading()
    target = target_of(sub, kind)
    with suppress(TaskError):  # the target's own error is told where it is read
        if kind in ("helm-override", "helmvalues"):
            return _of_helm(files, sub, target)
        if kind in ("kustomize-override", "kustomization"):
            return override_kustomize.read_below(files, target)
        if kind == "plugin-override":
            return override_plugin.read_below(files, target)
    return Reading()


def _of_helm(files: Files, sub: Subscription, target: Target) -> Reading:
    """Return what Helm gets: each part from the first layer that has it."""
    layers = [override_helm.read_below(files, target), *_values(files, sub)]
    name = next((one.name for one in layers if one.name), "")
    image = live_image(name) if name else None
    # Charts may have the registry in a value of its own.
    if image and image.repository != sub.entry.image.repository:
        return Reading()
    now = next((one for one in layers if version_of(one)), Reading())
    return Reading(tag=now.tag, digest=now.digest)


def _values(files: Files, sub: Subscription) -> Iterator[Reading]:
    """Yield what each layer of values says, in Argo CD's order, the strongest one first."""
    keys = override_helm.names_of(sub.keys)
    texts = [("", File(sub.source.values))]
    texts += [(path, files[path]) for path in _value_files(sub) if path in files]
    for path, file in texts:
        target = Target("helmvalues", path or _VALUES, keys, sub.entry.image, sub.source)
        with suppress(TaskError):  # Helm reports a broken file
            yield helm_values.read({target.path: file}, target)


def _value_files(sub: Subscription) -> list[str]:
    """Return the paths of the values files that are in the written repository, the strongest one first."""
    paths: list[str] = []
    for name in reversed((_VALUES, *sub.source.value_files)):
        with suppress(TaskError):
            if name.startswith("$"):
                ref, _, rest = name[1:].partition("/")
                where = next((one for one in sub.application.sources if one.ref == ref), None)
                if where and normal_url(where.repo) == normal_url(sub.repo):
                    paths.append(inside("", rest))
            elif "://" not in name and _here(sub):
                paths.append(inside(sub.source.path, name))
    return paths[:_MOST_FILES]


def _here(sub: Subscription) -> bool:
    """Tell whether the source is in the repository that is written."""
    return not sub.source.chart and normal_url(sub.source.repo) == normal_url(sub.repo)
