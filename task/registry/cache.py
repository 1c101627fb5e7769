"""Caches what is known about images, in memory and in a folder that is kept between runs.

Manifests and configs never change under their digest, so these entries stay true. Tags move: the last known digest of a
tag is only a hint, and one HEAD request checks whether it is still right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from threading import Lock
from typing import Any

from task.registry.manifest import Config, Member, is_digest

_FORM = 1  # the version of the file format; files of another version are ignored


class AnswerCache:
    """The facts about one repository's images. Safe to use from several threads."""

    def __init__(self, folder: str = "", name: str = "") -> None:
        self.members: dict[str, tuple[Member, ...]] = {}  # by the digest of the manifest
        self.configs: dict[str, Config] = {}  # by the digest of the image's manifest
        self.tags: dict[str, str] = {}  # tag → digest, when last seen
        self._lock = Lock()
        self._path = os.path.join(folder, f"{sha256(name.encode()).hexdigest()[:32]}.json") if folder else ""
        self._changed = False
        if self._path:
            self._load()

    def saw(self, tag: str, digest: str) -> None:
        """Remember that a tag has this digest now."""
        if tag and self.tags.get(tag) != digest:
            self.tags[tag], self._changed = digest, True

    def consists(self, digest: str, members: tuple[Member, ...]) -> None:
        """Remember the images of a manifest."""
        self.members[digest], self._changed = members, True

    def says(self, digest: str, config: Config) -> None:
        """Remember the config of an image."""
        self.configs[digest], self._changed = config, True

    def save(self) -> None:
        """Write the file, in one piece. An error is ignored, because it only costs the next run some requests."""
        if not self._path or not self._changed:
            return
        data = {
            "form": _FORM,
            "tags": dict(self.tags),
            "members": {key: [list(member) for member in value] for key, value in dict(self.members).items()},
            "configs": {
                key: [config.created, config.platform, dict(config.labels)]
                for key, config in dict(self.configs).items()
            },
        }
        new = f"{self._path}.{os.getpid()}"
        with self._lock, suppress(OSError):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(data, file)
            os.replace(new, self._path)
            self._changed = False

    def _load(self) -> None:
        # A strange file is no error: other runs share the folder, and a volume may be full or shared with strangers.
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            with open(self._path, encoding="utf-8") as file:
                data: Mapping[str, Any] = json.load(file)
            if data["form"] == _FORM:
                tags = {str(tag): str(digest) for tag, digest in data["tags"].items() if is_digest(str(digest))}
                members = {
                    key: tuple(Member(*map(str, fields)) for fields in value) for key, value in data["members"].items()
                }
                configs = {
                    key: Config(str(created), str(platform), dict(labels))
                    for key, (created, platform, labels) in data["configs"].items()
                }
                self.tags, self.members, self.configs = tags, members, configs
