"""The editors, one for each kind of write-back target: text in, text out, no effects.

A new target is one module with `places`, `read` and `write`, and one line in `EDITORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from task.editors import flux, helm_values, kustomization, manifests, override_helm, override_kustomize, override_plugin
from task.model import Edit, Files, Image, Place, Reading, Target, TargetKind


class Editor(Protocol):
    """Reads and writes one kind of target. Laws: writing twice equals writing once; `read` gives what `write` wrote."""

    def places(self, target: Target) -> tuple[Place, ...]:
        """The paths whose text `read` and `write` need."""

    def read(self, files: Files, target: Target) -> Reading:
        """What the target says now about its image; an absent file says nothing.

        TargetError: the file cannot be edited safely. AnnotationError: the keys name no place for the tag.
        """

    def write(self, files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
        """The files that change, and the edits made in them; both empty if nothing differs. Errors as in `read`."""


class Override(Editor, Protocol):
    """An editor of override files, which people edit as well."""

    def strays(self, files: Files, target: Target) -> tuple[tuple[str, str], ...]:
        """(name, origin) of each element that a person wrote although its origin has another value."""


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
    """What `Override.strays` answers for an override file; () for other kinds of targets."""
    return cast("Override", EDITORS[kind]).strays(files, target) if kind.endswith("-override") else ()
