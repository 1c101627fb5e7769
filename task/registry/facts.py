"""One question about one image → its answer, with as few requests as it takes.

exists, digest: one HEAD, and none for the digest of an image that has it. platforms: the manifest, and of a single
image its config. created, labels: the manifest and the config; of an index those of every wanted member.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from task.errors import RegistryError
from task.model import Answer, Image
from task.registry.cache import AnswerCache
from task.registry.manifest import Config, Member, fits, history_config, members, newness, read_config
from task.registry.repository import ImageRepository

_PUSH = "push all of the image again"
_MOST = 64  # images of one index, and manifests on the way to them
_IN_CONFIG = frozenset(("created", "labels"))
_IN_MANIFEST = _IN_CONFIG | {"platforms"}


def find(
    repository: ImageRepository, image: Image, facts: Collection[str], platforms: tuple[str, ...], memory: AnswerCache
) -> Answer:
    """The facts asked for. Raises `RegistryError` and its kinds; what does not exist is an answer."""
    if not _IN_MANIFEST & set(facts):
        return _short(repository, image, facts, memory)
    digest = _settled(repository, image, memory, sure="exists" in facts)
    if digest is None:
        return Answer(exists=False)
    images = _flat(repository, digest, memory)
    wanted = [one for one in images if not one.platform]  # whose configs have to be known
    if _IN_CONFIG & set(facts):
        wanted = [one for one in images if not one.platform or fits(platforms, one.platform)]
    found = [(one, config) for one in wanted if (config := _config(repository, one, memory)) is not None]
    if wanted and not found:
        raise RegistryError(f"{repository.name}: {wanted[0].digest} is missing, which its own index names", hint=_PUSH)
    fitting = [config for one, config in found if fits(platforms, one.platform or config.platform)]
    newest = max(fitting, key=lambda config: newness(config.created), default=Config())
    every = [one.platform or memory.configs.get(one.digest, Config()).platform for one in memory.members[digest]]
    return Answer(
        digest=digest if "digest" in facts else "",
        created=newest.created if "created" in facts else "",
        platforms=tuple(dict.fromkeys(filter(None, every))) if "platforms" in facts else (),
        labels=newest.labels if "labels" in facts else {},
    )


def _short(repository: ImageRepository, image: Image, facts: Collection[str], memory: AnswerCache) -> Answer:
    """Existence and digest."""
    if image.digest and "exists" not in facts:
        return Answer(digest=image.digest)
    digest = repository.head(image.digest or image.tag)
    if digest is None:
        return Answer(exists=False)
    if not digest and "digest" in facts:
        return Answer(digest=_read(repository, image.digest or image.tag, memory) or "")
    if digest and not image.digest:
        memory.saw(image.tag, digest)
    return Answer(digest=(image.digest or digest) if "digest" in facts else "")


def _settled(repository: ImageRepository, image: Image, memory: AnswerCache, *, sure: bool) -> str | None:
    """The digest of what is asked about, its images known; None: it does not exist.

    `sure`: that it is still there counts, and not only what it is made of.
    """
    known = image.digest or memory.tags.get(image.tag, "")
    if known in memory.members:
        digest = known if image.digest and not sure else repository.head(image.digest or image.tag)
        if digest is None or digest in memory.members:
            return digest
    return _read(repository, image.digest or image.tag, memory, "" if image.digest else image.tag)


def _read(repository: ImageRepository, reference: str, memory: AnswerCache, tag: str = "") -> str | None:
    """Read a manifest into the cache: its digest; None if there is none."""
    manifest = repository.manifest(reference)
    if manifest is None:
        return None
    if manifest.is_old:
        memory.says(manifest.digest, history_config(manifest.data))
    memory.consists(manifest.digest, members(manifest))
    memory.saw(tag, manifest.digest)
    return manifest.digest


def _flat(repository: ImageRepository, digest: str, memory: AnswerCache) -> list[Member]:
    """The images of a manifest; those of an index within an index as well, where it does not say what they are for."""
    todo, flat, seen = list(memory.members[digest]), [], {digest}
    while todo:
        one = todo.pop(0)
        if one.platform or one.config or one.digest in memory.configs or one.digest in seen:
            flat.append(one)
            continue
        seen.add(one.digest)
        if len(seen) + len(flat) > _MOST:
            raise RegistryError(f"{repository.name}: an index of more than {_MOST} images", hint="check the image")
        todo = [*_parts(repository, one, memory), *todo]
    if len(flat) > _MOST:
        raise RegistryError(f"{repository.name}: an index of more than {_MOST} images", hint="check the image")
    memory.members[digest] = tuple(flat)
    return flat


def _parts(repository: ImageRepository, one: Member, memory: AnswerCache) -> tuple[Member, ...]:
    """What is under a member's digest; nothing where a mirror has left it out."""
    if one.digest not in memory.members and _read(repository, one.digest, memory) is None:
        return ()
    return memory.members[one.digest]


def _config(repository: ImageRepository, one: Member, memory: AnswerCache) -> Config | None:
    """The config of an image; None if the registry does not have it."""
    if not one.config and one.digest not in memory.configs:
        parts = _parts(repository, one, memory)
        if not parts:
            return None
        one = next((part for part in parts if part.digest == one.digest), one)
    if one.digest not in memory.configs:
        config = read_config(repository.json_blob(one.config)) if one.config else Config()
        memory.says(one.digest, replace(config, created=config.created or one.created))
    return memory.configs[one.digest]
