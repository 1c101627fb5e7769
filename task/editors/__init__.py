"""Pure editors, one for each kind of write-back target: text in, text out.

A new target is one module with `places`, `read` and `write`, and one line in `EDITORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from task.editors import flux, helm_values, kustomization, manifests, override_helm, override_kustomize, override_plugin
from task.model import Edit, Files, Image, Place, Reading, Target, TargetKind


class Editor(Protocol):
    """How one kind of target is read and written. Laws: write twice = write once; read(write(x)) = x."""

    def places(self, target: Target) -> tuple[Place, ...]:
        """The paths whose text the other two must be given."""

    def read(self, files: Files, target: Target) -> Reading:
        """What the target says now about its image; an absent file says nothing.

        TargetError: the file cannot be edited safely. AnnotationError: the keys name no place for the tag.
        """

    def write(self, files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
        """Only the files that change, and what changed in them; nothing where nothing differs. Errors as in `read`."""


class Override(Editor, Protocol):
    """An editor of override files, in which people write, too."""

    def strays(self, files: Files, target: Target) -> tuple[tuple[str, str], ...]:
        """What people wrote in the file and its origin says otherwise: (name, origin)."""


EDITORS: Mapping[TargetKind, Editor] = {
    "helm-override": override_helm,
    "kustomize-override": override_kustomize,
    "plugin-override": override_plugin,
    "kustomization": kustomization,
    "helmvalues": helm_values,
    "manifests": manifests,
    "flux": flux,
}


def strays(kind: TargetKind, files: Files, target: Target) -> tuple[tuple[str, str], ...]:
    """What `Override.strays` says; nothing for targets of another kind."""
    return cast("Override", EDITORS[kind]).strays(files, target) if kind.endswith("-override") else ()
