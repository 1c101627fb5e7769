"""Image changes in Applications: the data for branch names and commit messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from task.image import split_registry
from task.model import Build, Image

DOCKER_HUB = ("docker.io", "index.docker.io")


@dataclass(frozen=True)
class Change:
    """The change of an image from an old version to a new one. Unknown parts are ""."""

    image: Image  # the alias of the image-list entry, as spelled in the annotation
    alias: str
    old_tag: str
    new_tag: str
    old_digest: str = ""
    new_digest: str = ""
    # the labels of the new image, if a template prints them
    labels: Mapping[str, str] = field(default_factory=dict)
    build: Build = Build()  # the new image's build
    promoted_from: str = ""  # for a promotion: namespace/name of the source Application
    # The following fields are only for messages. Changes that differ only in these are considered
    # equal.
    proof: str = field(default="", compare=False)  # what was proved about the new version
    why: str = field(default="", compare=False)
    event: str = field(default="", compare=False)  # where the new version came from
    file: str = field(default="", compare=False)

    @property
    def old(self) -> str:
        """The old digest, or else the old tag: OldTag in AIU's templates."""
        return self.old_digest or self.old_tag

    @property
    def new(self) -> str:
        """The new digest, or else the new tag: NewTag in AIU's templates."""
        return self.new_digest or self.new_tag

    @property
    def name(self) -> str:
        """The repository without its registry and tag, as in AIU: `acme/api`,
        or `nginx` for docker.io/library/nginx.
        """
        registry, rest = split_registry(self.image.name)
        return rest.removeprefix("library/") if registry in DOCKER_HUB else rest


@dataclass(frozen=True)
class AppChanges:
    """An Application's changes."""

    namespace: str
    name: str
    changes: tuple[Change, ...]


def merged_changes(*several: Iterable[AppChanges]) -> list[AppChanges]:
    """Merge these collections, and return one `AppChanges` for each Application, with its changes
    from all of the collections.

    The Applications are in the order of their first appearance.
    """
    apps: dict[tuple[str, str], tuple[Change, ...]] = {}
    for app_changes in several:
        for app in app_changes:
            key = (app.namespace, app.name)
            apps[key] = (*apps.get(key, ()), *app.changes)
    return [
        AppChanges(namespace, app_name, changes) for (namespace, app_name), changes in apps.items()
    ]
