"""Answers a question about an image with as few requests as possible.

`exists` and `digest` require one HEAD request, but `digest` requires none if the image reference
contains a digest. `platforms` requires the manifest and, for a single image, the config. `created`
and `labels` require the manifest and the config or, for an index, those of every wanted member.
(Docker Hub counts a GET request for a manifest as a pull, but not a HEAD request.)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from task.errors import RegistryError
from task.model import Answer, Image
from task.registry.manifest import (
    Config,
    Member,
    creation_sort_key,
    history_config,
    is_wanted_platform,
    members,
    read_config,
)
from task.registry.repository import ImageRepository

_MOST = 64  # maximum number of images in an index, and of manifests read to find them
_IN_CONFIG = frozenset(("created", "labels"))
_IN_MANIFEST = _IN_CONFIG | {"platforms"}


def find(
    repository: ImageRepository,
    image: Image,
    facts: Collection[str],
    platforms: tuple[str, ...],
) -> Answer:
    """Return an answer that contains these facts about an image, such as "digest" or "created". Any
    other facts in the answer may be incomplete.

    An index contains images for several platforms; its `created` and `labels` are those of the
    newest image for one of the wanted `platforms`. The answer for a missing image is
    `Answer(exists=False)`. Raises `RegistryError` and its subclasses.
    """
    needs_manifest = bool(_IN_MANIFEST & set(facts))
    if not needs_manifest:
        return _without_manifest(repository, image, facts)
    digest = _digest_with_members(repository, image, check_existence="exists" in facts)
    if digest is None:
        return Answer(exists=False)

    cache = repository.memory  # the known facts about the repository's images
    configs = _configs(repository, digest, facts, platforms)
    wanted_configs = [
        config
        for member, config in configs
        if is_wanted_platform(platforms, member.platform or config.platform)
    ]
    newest = max(
        wanted_configs,
        key=lambda config: creation_sort_key(config.created),
        default=Config(),
    )
    all_platforms = []
    for member in cache.members[digest]:
        config = cache.configs.get(member.digest, Config())
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
    """Return those images in a manifest whose configs are needed for these facts, each with its
    config.

    A mirror may omit some members of an index. Raises `RegistryError` only if all wanted members
    are missing.
    """
    needs_configs = bool(_IN_CONFIG & set(facts))
    wanted_members = [
        member
        for member in _images_of(repository, digest)
        # a platform that is not in the index is in the image's config
        if not member.platform or (needs_configs and is_wanted_platform(platforms, member.platform))
    ]
    members_with_configs = []
    for member in wanted_members:
        config = _image_config(repository, member)
        if config is not None:
            members_with_configs.append((member, config))
    if wanted_members and not members_with_configs:
        first_digest = wanted_members[0].digest
        message = (
            f"{repository.name}: {first_digest} is missing, although the image's index lists it"
        )
        raise RegistryError(message, hint="push the complete image again")
    return members_with_configs


def _without_manifest(repository: ImageRepository, image: Image, facts: Collection[str]) -> Answer:
    """Return an answer that contains an image's existence and digest. Usually, this requires at
    most one HEAD request.
    """
    if image.digest and "exists" not in facts:
        return Answer(digest=image.digest)
    reference = image.digest or image.tag
    digest = repository.head(reference)  # "" if the registry sends no digest
    if digest is None:
        return Answer(exists=False)
    if not digest and "digest" in facts:  # so the manifest has to be read and hashed
        return Answer(digest=_read_manifest(repository, reference) or "")
    if digest and not image.digest:  # this is the tag's current digest
        repository.memory.store_tag(image.tag, digest)
    return Answer(digest=image.digest or digest)


def _digest_with_members(
    repository: ImageRepository,
    image: Image,
    *,
    check_existence: bool,
) -> str | None:
    """Return the image's digest, or None if the image does not exist. Also ensure that the cache
    contains the members of the image's manifest: the image itself, or the images in its index.

    With `check_existence`, query the registry even for a known digest, because the image may have
    been deleted.
    """
    cache = repository.memory  # the known facts about the repository's images
    reference = image.digest or image.tag
    last_digest = image.digest or cache.tags.get(image.tag, "")
    if last_digest in cache.members:
        if image.digest and not check_existence:
            return last_digest
        # one HEAD request reveals whether the image still exists, and the tag's current digest
        current_digest = repository.head(reference)
        if current_digest is None or current_digest in cache.members:
            return current_digest
        # the tag has moved to a manifest that was never read, or the registry did not send a digest
    tag_to_store = "" if image.digest else image.tag
    return _read_manifest(repository, reference, tag_to_store)


def _read_manifest(repository: ImageRepository, reference: str, tag: str = "") -> str | None:
    """Read the manifest for a tag or digest (`reference`) into the cache. Return the manifest's
    digest, or None if the manifest does not exist.

    `tag` is the tag for which to store the digest, or "".
    """
    cache = repository.memory  # the known facts about the repository's images
    manifest = repository.manifest(reference)
    if manifest is None:
        return None
    # a manifest in the old schema has no config, but its history contains the same facts
    if manifest.is_old:
        cache.store_config(manifest.digest, history_config(manifest.data))
    cache.store_members(manifest.digest, members(manifest))
    cache.store_tag(tag, manifest.digest)
    return manifest.digest


def _images_of(repository: ImageRepository, digest: str) -> list[Member]:
    """Return a manifest's images: the image itself, or the images in an index, in order. The cache
    must already contain the manifest's members, and is updated with the images.

    If members of an index are indexes themselves, they are replaced with their own members.
    """
    cache = repository.memory  # the known facts about the repository's images
    too_large = RegistryError(
        f"{repository.name}: the index has more than {_MOST} images",
        hint="push a smaller index",
    )
    unresolved = list(cache.members[digest])  # images or indexes
    images = []
    # digests of the manifests whose members have been read, because an index may contain itself
    expanded = {digest}
    while unresolved:
        member = unresolved.pop(0)
        # only images have a platform or a config
        is_image = member.platform or member.config or member.digest in cache.configs
        if is_image or member.digest in expanded:  # do not read a manifest twice
            images.append(member)
            continue
        expanded.add(member.digest)
        if len(expanded) + len(images) > _MOST:
            raise too_large
        # An index is replaced with its members; an image, with the same member including its
        # config.
        unresolved = [*_member_images(repository, member), *unresolved]
    if len(images) > _MOST:
        raise too_large
    cache.members[digest] = tuple(images)
    return images


def _member_images(repository: ImageRepository, member: Member) -> tuple[Member, ...]:
    """Return the images in a member's manifest (the member itself, or the members of an index), or
    () if a mirror omitted the manifest. If the manifest is not in the cache, read it.
    """
    members_by_digest = repository.memory.members
    if member.digest not in members_by_digest:
        was_omitted = _read_manifest(repository, member.digest) is None
        if was_omitted:
            return ()
    return members_by_digest[member.digest]


def _image_config(repository: ImageRepository, member: Member) -> Config | None:
    """Return an image's config, from the cache or the registry. Return None if the registry does
    not have the image.
    """
    configs = repository.memory.configs  # image's digest → config
    if member.digest in configs:
        return configs[member.digest]

    image = member  # replaced below if the config's digest is unknown
    if not member.config:
        # The config's digest is in the image's own manifest.
        images = _member_images(repository, member)
        if not images:
            return None
        same_digest = (item for item in images if item.digest == member.digest)
        image = next(same_digest, member)
    if member.digest not in configs:  # reading a manifest in the old schema also stores its config
        config = Config()  # an artifact may have no config
        if image.config:
            config = read_config(repository.json_blob(image.config))
        config_with_date = replace(config, created=config.created or image.created)
        repository.memory.store_config(member.digest, config_with_date)
    return configs[member.digest]
