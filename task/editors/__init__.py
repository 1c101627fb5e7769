"""The editors, one for each kind of write-back target: text in, text out, no effects.

A new target is one module with `places`, `read` and `write`, and one line in `EDITORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from task.editors import flux, helm_values, kustomization, manifests, override_helm, override_kustomize, override_plugin
from task.editors.argocd_source import Stray
from task.editors.elsewhere import elsewhere
from task.editors.file_text import chosen
from task.model import Edit, Files, Image, Place, Reading, Target, TargetKind


class Editor(Protocol):
    """Reads and writes one kind of target. It must obey two laws.

    To write twice is the same as to write once, and `read` returns what `write` wrote.
    """

    def places(self, target: Target) -> tuple[Place, ...]:
        """Return the paths whose text `read` and `write` need."""

    def read(self, files: Files, target: Target) -> Reading:
        """Return the image that is in the target now. All parts are "" if the file is absent.

        Raises TargetError if the file cannot be edited safely, and AnnotationError if the keys name no place for the
        tag.
        """

    def write(self, files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
        """Return the changed files, and the edits in them.

        Both are empty if nothing changes. Raises the errors of `read`.
        """


class Override(Editor, Protocol):
    """An editor of override files. People edit these files as well."""

    def strays(self, files: Files, target: Target) -> tuple[Stray, ...]:
        """Return each element that a person wrote otherwise than its origin, and each that somebody's list hides."""


EDITORS: Mapping[TargetKind, Editor] = {
    "helm-override": override_helm,
    "kustomize-override": override_kustomize,
    "plugin-override": override_plugin,
    "kustomization": kustomization,
    "helmvalues": helm_values,
    "manifests": manifests,
    "flux": flux,
}


def strays(kind: TargetKind, files: Files, target: Target) -> tuple[Stray, ...]:
    """Return the result of `Override.strays` for an override file, or () for other kinds of targets."""
    return cast("Override", EDITORS[kind]).strays(files, target) if kind.endswith("-override") else ()


def also_at(kind: TargetKind, files: Files, target: Target, image: Image) -> tuple[tuple[str, int], ...]:
    """Return path and line of each scalar in the target's files that is the image at another version.

    `files` are those after an update, so nothing wrote these scalars.
    """
    if kind == "manifests":
        paths = manifests.manifests_in(files, target)
    else:
        other_spellings = {target.path, *target.fallbacks} - {chosen(files, target)}  # Argo CD reads none of these
        texts = (one.path for one in EDITORS[kind].places(target) if one.want == "text" and one.path in files)
        paths = (path for path in texts if path not in other_spellings)
    return tuple(elsewhere(files, paths, target, image))
