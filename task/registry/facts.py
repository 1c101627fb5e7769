"""Answers one question about one image with as few requests as possible, and remembers what never changes.

`exists` and `digest` take one HEAD, and `digest` nothing if the image is given by its digest. `platforms` takes the
manifest, and for a single image the config. `created` and `labels` take the manifest and the config, and for an index
those of every wanted member. (Docker Hub counts a GET of a manifest as a pull, but not a HEAD.)

Manifests and configs never change under their digest, so they are kept, in memory and in a folder between runs. Tags
move: the last known digest of a tag is only a hint, and one HEAD request checks whether it is still right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from threading import Lock
from typing import Any

from task.errors import RegistryError
from task.model import Answer, Image
from task.registry.manifest import Config, Member, fits, history_config, is_digest, members, newness, read_config
from task.registry.repository import ImageRepository

_FORM = 1  # the version of the file format; files of another version are ignored
_PUSH = "push all of the image again"
_MOST = 64  # images of one index, and manifests that are read to find them
_IN_CONFIG = frozenset(("created", "labels"))
_IN_MANIFEST = _IN_CONFIG | {"platforms"}


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


def find(
    repository: ImageRepository, image: Image, facts: Collection[str], platforms: tuple[str, ...], memory: AnswerCache
) -> Answer:
    """Return these facts. A missing image is `Answer(exists=False)`. Raises `RegistryError` and its subclasses."""
    if not _IN_MANIFEST & set(facts):
        return _short(repository, image, facts, memory)
    digest = _settled(repository, image, memory, sure="exists" in facts)
    if digest is None:
        return Answer(exists=False)
    images = _flat(repository, digest, memory)
    wanted = [member for member in images if not member.platform]  # their configs have to be read
    if _IN_CONFIG & set(facts):
        wanted = [member for member in images if not member.platform or fits(platforms, member.platform)]
    # A mirror may leave out some members of an index. It is an error only if none of the wanted ones is there.
    configs = [(member, config) for member in wanted if (config := _config(repository, member, memory)) is not None]
    if wanted and not configs:
        raise RegistryError(
            f"{repository.name}: {wanted[0].digest} is missing, although its own index lists it", hint=_PUSH
        )
    fitting = [config for member, config in configs if fits(platforms, member.platform or config.platform)]
    newest = max(fitting, key=lambda config: newness(config.created), default=Config())
    every = [
        member.platform or memory.configs.get(member.digest, Config()).platform for member in memory.members[digest]
    ]
    return Answer(
        digest=digest if "digest" in facts else "",
        created=newest.created if "created" in facts else "",
        platforms=tuple(dict.fromkeys(filter(None, every))) if "platforms" in facts else (),
        labels=newest.labels if "labels" in facts else {},
    )


def _short(repository: ImageRepository, image: Image, facts: Collection[str], memory: AnswerCache) -> Answer:
    """Return the answer about existence and digest."""
    if image.digest and "exists" not in facts:
        return Answer(digest=image.digest)
    digest = repository.head(image.digest or image.tag)
    if digest is None:
        return Answer(exists=False)
    if not digest and "digest" in facts:  # a HEAD without Docker-Content-Digest: the body has to be hashed
        return Answer(digest=_read(repository, image.digest or image.tag, memory) or "")
    if digest and not image.digest:
        memory.saw(image.tag, digest)
    return Answer(digest=(image.digest or digest) if "digest" in facts else "")


def _settled(repository: ImageRepository, image: Image, memory: AnswerCache, *, sure: bool) -> str | None:
    """Return the digest of the image, and make sure that its members are in `memory`. None if the image does not exist.

    With `sure`, the registry is asked even for a known digest, because the image may have been deleted.
    """
    known = image.digest or memory.tags.get(image.tag, "")
    if known in memory.members:
        digest = known if image.digest and not sure else repository.head(image.digest or image.tag)
        if digest is None or digest in memory.members:
            return digest
    return _read(repository, image.digest or image.tag, memory, "" if image.digest else image.tag)


def _read(repository: ImageRepository, reference: str, memory: AnswerCache, tag: str = "") -> str | None:
    """Read a manifest into the cache and return its digest, or None if the registry has no such manifest."""
    manifest = repository.manifest(reference)
    if manifest is None:
        return None
    if manifest.is_old:
        memory.says(manifest.digest, history_config(manifest.data))
    memory.consists(manifest.digest, members(manifest))
    memory.saw(tag, manifest.digest)
    return manifest.digest


def _flat(repository: ImageRepository, digest: str, memory: AnswerCache) -> list[Member]:
    """Return the images of a manifest.

    A member without a platform may be an index itself. Then its own images replace it.
    """
    todo, flat, seen = list(memory.members[digest]), [], {digest}
    while todo:
        member = todo.pop(0)
        if member.platform or member.config or member.digest in memory.configs or member.digest in seen:
            flat.append(member)
            continue
        seen.add(member.digest)  # an index may contain itself
        if len(seen) + len(flat) > _MOST:
            raise RegistryError(f"{repository.name}: an index of more than {_MOST} images", hint="push a smaller index")
        todo = [*_parts(repository, member, memory), *todo]
    if len(flat) > _MOST:
        raise RegistryError(f"{repository.name}: an index of more than {_MOST} images", hint="push a smaller index")
    memory.members[digest] = tuple(flat)
    return flat


def _parts(repository: ImageRepository, member: Member, memory: AnswerCache) -> tuple[Member, ...]:
    """Return the images under a member's digest, or () if a mirror left the member out."""
    if member.digest not in memory.members and _read(repository, member.digest, memory) is None:
        return ()
    return memory.members[member.digest]


def _config(repository: ImageRepository, member: Member, memory: AnswerCache) -> Config | None:
    """Return the config of an image, or None if the registry does not have it."""
    if not member.config and member.digest not in memory.configs:
        parts = _parts(repository, member, memory)
        if not parts:
            return None
        member = next((part for part in parts if part.digest == member.digest), member)
    if member.digest not in memory.configs:
        config = read_config(repository.json_blob(member.config)) if member.config else Config()
        memory.says(member.digest, replace(config, created=config.created or member.created))
    return memory.configs[member.digest]
