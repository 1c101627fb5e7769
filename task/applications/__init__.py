"""The sources of Applications. Each one has a method `all() -> Iterable[Found]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# The kinds of Argo CD and of AIU that are read where a program or a parent may also yield many others.
KINDS = frozenset(("Application", "ApplicationSet", "AppProject", "ImageUpdater"))


def is_set(item: Mapping[str, Any]) -> bool:
    """Tell whether a manifest is an Argo CD ApplicationSet."""
    return item.get("kind") == "ApplicationSet" and str(item.get("apiVersion", "")).startswith("argoproj.io/")


def is_project(item: Mapping[str, Any]) -> bool:
    """Tell whether a manifest is an AppProject with a name."""
    ours = item.get("kind") == "AppProject" and str(item.get("apiVersion", "")).startswith("argoproj.io/")
    metadata = item.get("metadata")
    return ours and isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


@dataclass(frozen=True)
class Found:
    """One manifest and its origin. With `problem`, it is something unreadable."""

    item: Mapping[str, Any]
    origin: str = ""  # "apps/web.yaml:12"
    problem: str = ""
    hint: str = ""
    place: tuple[str, str, str] | None = None  # (repository, branch, path in it) of a manifest from Git
    generated_by: str = ""  # "namespace/name" of the ApplicationSet that generates this Application
    owner: Mapping[str, Any] | None = None  # that ApplicationSet
    # the template of an ApplicationSet that could not be rendered; placeholders are unknown text
    template: bool = False
    severity: Literal["error", "warning"] = "warning"  # of the problem
    subject: str = ""  # "namespace/name" that the problem is about
    exit: int = 0  # the exit code of an error; 0 is that of a wrong annotation
    text: str = ""  # of the file from Git, in which `lint` looks for lines
    advice: bool = False  # the problem is not a mistake: it says what is not read, and how to read it

    @property
    def concerns_us(self) -> bool:
        """Whether it is a manifest of a kind that is read, or makes such manifests."""
        return self.is_application or self.item.get("kind") in ("ImageUpdater", "HelmRelease")

    @property
    def is_application(self) -> bool:
        """Whether this is an Application or an ApplicationSet."""
        return self.item.get("kind") in ("Application", "ApplicationSet")
