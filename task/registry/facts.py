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
    needs_manifest = bool(_IN_MANIFEST & set(facts))
    if not needs_manifest:
        return _without_manifest(repository, image, facts)
    digest = _digest_with_members(repository, image, sure="exists" in facts)
    if digest is None:
        return Answer(exists=False)

    memory = repository.memory
    configs = _configs(repository, digest, facts, platforms)
    wanted_configs = [
        config for member, config in configs if fits(platforms, member.platform or config.platform)
    ]
    newest = max(
        wanted_configs,
        key=lambda config: newness(config.created),
        default=Config(),
    )
    all_platforms = []
    for member in memory.members[digest]:
        config = memory.configs.get(member.digest, Config())
        all_platforms.append(member.platform or config.platform)
    known_platforms = filter(None, all_platforms)
    return Answer(
        digest=digest,
        created=newest.created,
        platforms=tuple(dict.fromkeys(known_platforms)),  # without duplicates
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
    needs_configs = bool(_IN_CONFIG & set(facts))
    wanted = [
        member
        for member in _images_of(repository, digest)
        # if the platform is not in the index, only the config has it
        if not member.platform or (needs_configs and fits(platforms, member.platform))
    ]
    with_configs = []
    for member in wanted:
        config = _image_config(repository, member)
        if config is not None:
            with_configs.append((member, config))
    if wanted and not with_configs:
        message = (
            f"{repository.name}: {wanted[0].digest} is missing, although the image's index lists it"
        )
        raise RegistryError(message, hint="push the complete image again")
    return with_configs


def _without_manifest(repository: ImageRepository, image: Image, facts: Collection[str]) -> Answer:
    """Return the answer about existence and digest, usually with one HEAD request or none."""
    if image.digest and "exists" not in facts:
        return Answer(digest=image.digest)
    reference = image.digest or image.tag
    digest = repository.head(reference)
    if digest is None:
        return Answer(exists=False)
    # a HEAD without Docker-Content-Digest: the body has to be hashed
    if not digest and "digest" in facts:
        return Answer(digest=_read_manifest(repository, reference) or "")
    if digest and not image.digest:
        repository.memory.store_tag(image.tag, digest)
    return Answer(digest=image.digest or digest)


def _digest_with_members(repository: ImageRepository, image: Image, *, sure: bool) -> str | None:
    """Return the image's digest, and make sure that its members are in `memory`.

    None if the image does not exist.

    With `sure`, query the registry even for a known digest, because the image may have been
    deleted.
    """
    memory = repository.memory
    reference = image.digest or image.tag
    last_digest = image.digest or memory.tags.get(image.tag, "")
    if last_digest in memory.members:
        if image.digest and not sure:
            return last_digest
        # one HEAD shows whether the image still exists, and the tag's current digest
        current_digest = repository.head(reference)
        if current_digest is None or current_digest in memory.members:
            return current_digest
    tag_to_store = "" if image.digest else image.tag
    return _read_manifest(repository, reference, tag_to_store)


def _read_manifest(repository: ImageRepository, reference: str, tag: str = "") -> str | None:
    """Read a manifest into the cache, and return its digest, or None if the registry does not have
    it.

    `tag` is the tag to store the digest for, if any.
    """
    memory = repository.memory
    manifest = repository.manifest(reference)
    if manifest is None:
        return None
    if manifest.is_old:
        memory.store_config(manifest.digest, history_config(manifest.data))
    memory.store_members(manifest.digest, members(manifest))
    memory.store_tag(tag, manifest.digest)
    return manifest.digest


def _images_of(repository: ImageRepository, digest: str) -> list[Member]:
    """Return the images of a manifest, in order.

    A member without a platform may itself be an index. If so, its images replace it.
    """
    memory = repository.memory
    too_large = RegistryError(
        f"{repository.name}: the index has more than {_MOST} images",
        hint="push a smaller index",
    )
    waiting = list(memory.members[digest])
    images = []
    opened = {digest}  # an index may contain itself
    while waiting:
        member = waiting.pop(0)
        is_image = member.platform or member.config or member.digest in memory.configs
        if is_image or member.digest in opened:
            images.append(member)
            continue
        opened.add(member.digest)
        if len(opened) + len(images) > _MOST:
            raise too_large
        waiting = [*_member_images(repository, member), *waiting]
    if len(images) > _MOST:
        raise too_large
    memory.members[digest] = tuple(images)
    return images


def _member_images(repository: ImageRepository, member: Member) -> tuple[Member, ...]:
    """Return the images under a member's digest, or () if a mirror omitted the member."""
    members_by_digest = repository.memory.members
    if member.digest not in members_by_digest:
        was_omitted = _read_manifest(repository, member.digest) is None
        if was_omitted:
            return ()
    return members_by_digest[member.digest]


def _image_config(repository: ImageRepository, member: Member) -> Config | None:
    """Return an image's config, or None if the registry does not have it."""
    configs = repository.memory.configs
    if member.digest not in configs and not member.config:
        # The digest of the config is in the image's own manifest.
        images = _member_images(repository, member)
        if not images:
            return None
        for image in images:
            if image.digest == member.digest:
                member = image
                break
    if member.digest not in configs:
        config = Config()
        if member.config:
            config = read_config(repository.json_blob(member.config))
        with_date = replace(config, created=config.created or member.created)
        repository.memory.store_config(member.digest, with_date)
    return configs[member.digest]
