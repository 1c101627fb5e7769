"""Answers a query about an image with as few requests as possible.

`exists` and `digest` take one HEAD, and `digest` needs no request if the image reference has a
digest. `platforms` takes the manifest and, for a single image, the config. `created` and `labels`
take the manifest and the config, and for an index those of every wanted member. (Docker Hub counts
a GET of a manifest as a pull, but not a HEAD.)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from task.errors import RegistryError
from task.model import Answer, Image
from task.registry.manifest import (
    Config,
    Member,
    fits,
    history_config,
    members,
    newness,
    read_config,
)
from task.registry.repository import ImageRepository

_MOST = 64  # images of an index, and manifests read to find them
_IN_CONFIG = frozenset(("created", "labels"))
_IN_MANIFEST = _IN_CONFIG | {"platforms"}


def find(
    repository: ImageRepository,
    image: Image,
    facts: Collection[str],
    platforms: tuple[str, ...],
) -> Answer:
    """Return an answer with these facts. The answer may include other facts, which may be
    incomplete.

    A missing image is `Answer(exists=False)`. Raises `RegistryError` and its subclasses.
    """
    if not _IN_MANIFEST & set(facts):
        return _short(repository, image, facts)
    digest = _settled_digest(repository, image, sure="exists" in facts)
    if digest is None:
        return Answer(exists=False)
    memory = repository.memory
    configs = _configs(repository, digest, facts, platforms)
    fitting = [
        config for member, config in configs if fits(platforms, member.platform or config.platform)
    ]
    newest = max(
        fitting,
        key=lambda config: newness(config.created),
        default=Config(),
    )
    every = [
        member.platform or memory.configs.get(member.digest, Config()).platform
        for member in memory.members[digest]
    ]
    return Answer(
        digest=digest,
        created=newest.created,
        platforms=tuple(dict.fromkeys(filter(None, every))),
        labels=newest.labels,
    )


def _configs(
    repository: ImageRepository,
    digest: str,
    facts: Collection[str],
    platforms: tuple[str, ...],
) -> list[tuple[Member, Config]]:
    """Return the images of a manifest whose configs are needed for these facts.

    A mirror may omit some members of an index. Raises `RegistryError` only if all wanted members
    are missing.
    """
    in_config = bool(_IN_CONFIG & set(facts))
    wanted = [
        member
        for member in _flat(repository, digest)
        # if the platform is not in the index, only the config has it
        if not member.platform or (in_config and fits(platforms, member.platform))
    ]
    found = []
    for member in wanted:
        config = _image_config(repository, member)
        if config is not None:
            found.append((member, config))
    if wanted and not found:
        message = (
            f"{repository.name}: {wanted[0].digest} is missing, although the image's index lists it"
        )
        raise RegistryError(message, hint="push the complete image again")
    return found


def _short(repository: ImageRepository, image: Image, facts: Collection[str]) -> Answer:
    """Return the answer about existence and digest."""
    if image.digest and "exists" not in facts:
        return Answer(digest=image.digest)
    digest = repository.head(image.digest or image.tag)
    if digest is None:
        return Answer(exists=False)
    # a HEAD without Docker-Content-Digest: the body has to be hashed
    if not digest and "digest" in facts:
        return Answer(digest=_read(repository, image.digest or image.tag) or "")
    if digest and not image.digest:
        repository.memory.saw(image.tag, digest)
    return Answer(digest=image.digest or digest)


def _settled_digest(repository: ImageRepository, image: Image, *, sure: bool) -> str | None:
    """Return the image's digest, and make sure that its members are in `memory`.

    None if the image does not exist.

    With `sure`, query the registry even for a known digest, because the image may have been
    deleted.
    """
    memory = repository.memory
    known = image.digest or memory.tags.get(image.tag, "")
    if known in memory.members:
        digest = known if image.digest and not sure else repository.head(image.digest or image.tag)
        if digest is None or digest in memory.members:
            return digest
    return _read(
        repository,
        image.digest or image.tag,
        "" if image.digest else image.tag,
    )


def _read(repository: ImageRepository, reference: str, tag: str = "") -> str | None:
    """Read a manifest into the cache, and return its digest, or None if the registry does not have
    it.
    """
    memory = repository.memory
    manifest = repository.manifest(reference)
    if manifest is None:
        return None
    if manifest.is_old:
        memory.says(manifest.digest, history_config(manifest.data))
    memory.consists(manifest.digest, members(manifest))
    memory.saw(tag, manifest.digest)
    return manifest.digest


def _flat(repository: ImageRepository, digest: str) -> list[Member]:
    """Return the images of a manifest.

    A member without a platform may itself be an index. If so, its images replace it.
    """
    memory = repository.memory
    todo = list(memory.members[digest])
    flat = []
    seen = {digest}
    while todo:
        member = todo.pop(0)
        if (
            member.platform
            or member.config
            or member.digest in memory.configs
            or member.digest in seen
        ):
            flat.append(member)
            continue
        seen.add(member.digest)  # an index may contain itself
        if len(seen) + len(flat) > _MOST:
            raise RegistryError(
                f"{repository.name}: the index has more than {_MOST} images",
                hint="push a smaller index",
            )
        todo = [*_member_images(repository, member), *todo]
    if len(flat) > _MOST:
        raise RegistryError(
            f"{repository.name}: the index has more than {_MOST} images",
            hint="push a smaller index",
        )
    memory.members[digest] = tuple(flat)
    return flat


def _member_images(repository: ImageRepository, member: Member) -> tuple[Member, ...]:
    """Return the images under a member's digest, or () if a mirror omitted the member."""
    known = repository.memory.members
    return (
        ()
        if member.digest not in known and _read(repository, member.digest) is None
        else known[member.digest]
    )


def _image_config(repository: ImageRepository, member: Member) -> Config | None:
    """Return an image's config, or None if the registry does not have it."""
    memory = repository.memory
    if not member.config and member.digest not in memory.configs:
        parts = _member_images(repository, member)
        if not parts:
            return None
        member = next((part for part in parts if part.digest == member.digest), member)
    if member.digest not in memory.configs:
        config = read_config(repository.json_blob(member.config)) if member.config else Config()
        memory.says(member.digest, replace(config, created=config.created or member.created))
    return memory.configs[member.digest]
