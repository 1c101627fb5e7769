"""The images that were just built: from `--image`, `--image-digest`, and `--tag`, and from
builders' files.

A file's format is detected from its content alone. The supported formats are BuildKit and buildx
metadata (including `bake`), kaniko's digest and image-name files, ko's image refs, Jib's
jib-image.json, Skaffold's build output, GoReleaser's artifacts.json, and Tekton's `IMAGES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from task.errors import Malformed, UsageError
from task.image import parse_image, parse_images
from task.model import Image
from task.plain_data import parsed_json
from task.text import and_more

DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
LOGIN = re.compile(r"(//|\b(?:write|use) )[^/@\s]*@")  # a password must not be in messages or hints
VERSION = re.compile(r"v?[0-9]+(?:\.[0-9]+)+(?:[-+_.].*)?|latest|v[0-9]+")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")  # from the OCI distribution specification


def event_images(references: Sequence[str], digest: str = "", tag: str = "") -> tuple[Image, ...]:
    """Return the images that were just built, each with a tag or a digest.

    Raises a `UsageError` that names the option to correct.
    """
    try:
        images = parse_images(references)
    except Malformed as error:
        raise UsageError(
            f"--image: {without_login(error.message)}",
            hint=without_login(error.hint),
        ) from None
    if not images:
        hint = (
            "set the newly built image with --image REF or --images-from FILE; if it comes from"
            " a pipeline variable, check that the variable is set"
        )
        raise UsageError("no image is set: --image is missing or empty", hint=hint)
    if digest:
        _check_digest(digest, images)
        images = tuple(replace(image, digest=digest) for image in images)
    if tag:
        _check_tag(tag, images)
        images = tuple(replace(image, tag=tag) for image in images)
    return _one_for_each_tag(images)


def _check_digest(digest: str, images: Sequence[Image]) -> None:
    """Raise `UsageError` if the images cannot have this digest."""
    if not DIGEST.fullmatch(digest):
        hint = "use sha256: followed by 64 hex digits, or sha512: followed by 128"
        raise UsageError(f"--image-digest: {digest!r} is not a digest", hint=hint)
    if len({image.identity for image in images}) > 1:
        hint = "add the digests to the references: repo:tag@sha256:…"
        raise UsageError("--image-digest cannot be used with several images", hint=hint)
    others = [image.digest for image in images if image.digest not in ("", digest)]
    if others:
        raise UsageError(
            f"--image and --image-digest have different digests ({others[0][:19]}…,"
            f" {digest[:19]}…)",
            hint="use only one of them",
        )


def _check_tag(tag: str, images: Sequence[Image]) -> None:
    """Raise `UsageError` if the images cannot have this tag."""
    if not TAG.fullmatch(tag):
        hint = "use only letters, digits, '_', '.', and '-', up to 128 characters"
        raise UsageError(f"--tag: {tag!r} is not a tag", hint=hint)
    others = [image.tag for image in images if image.tag not in ("", tag)]
    if others:
        raise UsageError(
            f"--image and --tag have different tags ({others[0]}, {tag})",
            hint="use only one of them",
        )


def _one_for_each_tag(images: Sequence[Image]) -> tuple[Image, ...]:
    """Return one image for each repository and tag.

    A digest applies to all spellings of the repository, even if it is set for only one of them.
    Raises `UsageError`.
    """
    distinct: dict[tuple[str, str], Image] = {}
    for image in images:
        if not image.tag and not image.digest:
            raise _without_version(image)
        earlier = distinct.setdefault((image.identity, image.tag), image)
        if earlier.digest and image.digest and earlier.digest != image.digest:
            name = f"{image.name}:{image.tag}" if image.tag else image.name
            raise UsageError(
                f"--image: {name} has two different digests",
                hint="use only one of them",
            )
        if image.digest:
            distinct[image.identity, image.tag] = image
    return tuple(distinct.values())


def _without_version(image: Image) -> UsageError:
    """Return the error for an image with neither a tag nor a digest."""
    if VERSION.fullmatch(image.name):
        hint = f"use the full reference, such as ghcr.io/acme/web:{image.name}"
        return UsageError(f"--image: {image.name!r} is a tag without an image", hint=hint)
    hint = f"use {image.name}:<tag>, as the build pushed it"
    return UsageError(f"--image: {image.name!r} has neither a tag nor a digest", hint=hint)


def without_login(sentence: str) -> str:
    """Return a message about a reference, with any username and password removed."""
    return LOGIN.sub(r"\1", sentence)


KNOWN = (
    "the supported formats are BuildKit and buildx metadata, kaniko's digest and image-name"
    " files, ko --image-refs, jib-image.json, skaffold --file-output, GoReleaser's"
    " artifacts.json, and Tekton's IMAGES"
)
MOST = 1000  # images in one file; builds do not have more
# Errors quote only words that look like this, because users may pass a file of passwords by
# mistake.
_LIKE_A_REFERENCE = re.compile(r"[\w.-]+(?::\d+)?(?:/[\w.-]+)+(?::[\w.-]+)?(?:@[\w:]+)?")
_SHOWN = 6


@dataclass(frozen=True)
class Built:
    """The images in one file."""

    references: tuple[str, ...] = ()  # each with a tag or a digest
    # the digest of an image that the pipeline specifies, because kaniko's --digest-file contains
    # only a digest
    digest: str = ""


def built(text: str) -> Built:
    """Return the images in a builder's file.

    Raises `Malformed` with a summary of the content if its format is unknown or ambiguous.
    """
    text = text.removeprefix("\ufeff").strip()
    if not text:
        raise Malformed(
            "the file is empty", "check that the build wrote the file and pushed the image"
        )
    if text[0] in "{[":
        try:
            document = parsed_json(text)
        except ValueError as problem:
            raise Malformed(f"it looks like JSON but cannot be parsed: {problem}", KNOWN) from None
        images = _of_list(document) if isinstance(document, list) else _of_object(document)
    else:
        images = _of_words(text)
    if not images.references and not images.digest:
        raise Malformed("it does not contain an image", "check that the build pushed one")
    if len(images.references) > MOST:
        raise Malformed(
            f"it contains {len(images.references)} images; at most {MOST} are accepted",
            "split the file",
        )
    return images


def with_built(
    given: Sequence[str],
    digest: str,
    files: Iterable[Built],
) -> tuple[tuple[str, ...], str]:
    """Return the references and the digest for `event_images`, from the options and the files.

    If a builder's output has a digest without a tag, that digest is added to any tags of the same
    repository that lack one, because they come from the same build. Raises `UsageError` if an image
    has two digests.
    """
    files = tuple(files)
    digests = dict.fromkeys(filter(None, (digest, *(file.digest for file in files))))
    if len(digests) > 1:
        shown = ", ".join(f"{text[:19]}…" for text in digests)
        raise UsageError(
            f"--images-from: two different digests for one image ({shown})",
            hint="use only one of them",
        )
    the_digest = next(iter(digests), "")
    references = tuple(dict.fromkeys(text for file in files for text in file.references))
    images = [parse_image(text) for text in references]
    try:
        all_images = [*parse_images(given), *images]
    except Malformed:  # `event_images` reports the mistake in --image
        return (*given, *references), the_digest
    completed = _with_digests_of_builders(images, all_images)
    joined = dict.fromkeys(image.reference for image in completed)
    return (*given, *joined), the_digest


def _with_digests_of_builders(
    images: Sequence[Image], all_images: Sequence[Image]
) -> Iterator[Image]:
    """Yield the images in the files, then the tags that get their digest from a reference without a
    tag.

    `all_images` are the images from the files and the options.
    """
    digests = {image.identity: image.digest for image in images if not image.tag}
    incomplete = [
        image
        for image in all_images
        if image.tag and not image.digest and image.identity in digests
    ]
    completed = {image.identity for image in incomplete}
    for image in images:
        gets_digest = image in incomplete
        gives_digest = not image.tag and image.identity in completed
        if not gets_digest and not gives_digest:
            yield image
    for image in incomplete:
        yield replace(image, digest=digests[image.identity])


# JSON


def _of_object(document: Mapping[str, Any]) -> Built:
    """Return the images in a JSON object. Raises `Malformed` unless exactly one format matches."""
    formats = [form for form, (matches, _) in FORMATS.items() if matches(document)]
    if len(formats) > 1:
        raise Malformed(
            f"it could be {' or '.join(formats)}: {_keys_seen(document)}",
            "pass the file unchanged, as the builder wrote it",
        )
    if not formats:
        raise Malformed(f"not the output of a known builder: {_keys_seen(document)}", KNOWN)
    _, read = FORMATS[formats[0]]
    return read(document)


def _of_list(items: list[Any]) -> Built:
    """Return the images in a JSON list: of references, or of GoReleaser's artifacts. Raises
    `Malformed` for other lists.
    """
    if all(isinstance(item, str) for item in items):
        return Built(tuple(_reference(item.strip()) for item in items if item.strip()))
    if not all(isinstance(item, Mapping) for item in items):
        raise Malformed("not the output of a known builder: a JSON list of mixed types", KNOWN)
    odd = [item for item in items if "type" not in item or not ("name" in item or "path" in item)]
    if odd:
        raise Malformed(
            f"not the output of a known builder: a JSON list with {_keys_seen(odd[0])}", KNOWN
        )
    return _goreleaser(items)


def _keys_seen(document: Mapping[str, Any]) -> str:
    """Return an object's keys, for a message. Its values are not shown, because they may be
    secrets.
    """
    names = [repr(key[:40]) for key in document]
    return f"a JSON object with {and_more(names, _SHOWN)}" if names else "an empty JSON object"


def _has_metadata(document: Any) -> bool:
    return isinstance(document, Mapping) and bool(
        {"containerimage.digest", "image.name"} & set(document)
    )


def _buildkit(document: Mapping[str, Any]) -> Built:
    digest = _digest_member(document.get("containerimage.digest", ""), "containerimage.digest")
    image_name = _text_member(document.get("image.name", ""), "image.name")
    names = [name.strip() for name in image_name.split(",")]
    references = tuple(_with_digest(name, digest) for name in names if name)
    return Built(references) if references else Built(digest=digest)


def _bake(document: Mapping[str, Any]) -> Built:
    targets = [_buildkit(value) for value in document.values() if _has_metadata(value)]
    if any(target.digest for target in targets):
        raise Malformed(
            "a bake target has a digest but no image.name", ("set the target's output name")
        )
    return Built(tuple(text for target in targets for text in target.references))


def _jib(document: Mapping[str, Any]) -> Built:
    digest = _digest_member(document["imageDigest"], "imageDigest")
    if not digest:
        raise Malformed("its imageDigest is empty", "check that the build pushed the image")
    name = _text_member(document["image"], "image")
    image = parse_image(_with_digest(name, digest))
    listed = document.get("tags") or []
    if not isinstance(listed, list):
        raise Malformed("its tags are not a list", KNOWN)
    tags = dict.fromkeys((image.tag, *(_text_member(tag, "tags") for tag in listed)))
    references = tuple(_reference(f"{image.name}:{tag}@{digest}") for tag in tags if tag)
    return Built(references or (f"{image.name}@{digest}",))


def _skaffold(document: Mapping[str, Any]) -> Built:
    references = []
    for build in document["builds"]:
        if not isinstance(build, Mapping) or not build.get("tag"):
            raise Malformed("an entry in `builds` has no tag", KNOWN)
        references.append(_reference(_text_member(build["tag"], "tag")))
    return Built(tuple(references))


def _goreleaser(items: Sequence[Mapping[str, Any]]) -> Built:
    """Return the images in GoReleaser's artifacts.

    Images for single platforms are omitted if a manifest combines them.
    """
    types = [str(item["type"]) for item in items]
    images = [
        (_of_artifact(item), "Manifest" in kind)
        for item, kind in zip(items, types, strict=True)
        if re.search(r"\bDocker (Image|Manifest)\b", kind)
    ]
    if not images:
        shown = sorted(set(types))[:_SHOWN]
        kinds = ", ".join(repr(kind[:40]) for kind in shown)
        raise Malformed(
            f"it does not contain images, only artifacts of other types: {kinds or 'none'}", KNOWN
        )
    combined = {image.identity for image, is_manifest in images if is_manifest}
    kept = [image for image, is_manifest in images if is_manifest or image.identity not in combined]
    return Built(tuple(image.reference for image in _without_repeated_tags(kept)))


def _without_repeated_tags(images: Sequence[Image]) -> list[Image]:
    """Return the images, skipping tags that also appear with a digest."""
    with_digest = {(image.identity, image.tag) for image in images if image.digest}
    return [
        image for image in images if image.digest or (image.identity, image.tag) not in with_digest
    ]


def _of_artifact(item: Mapping[str, Any]) -> Image:
    extra = item.get("extra")
    value = extra.get("Digest", "") if isinstance(extra, Mapping) else ""
    digest = _digest_member(value, "Digest")
    name = _text_member(item.get("name") or item.get("path"), "name")
    return parse_image(_with_digest(name, digest))


FORMATS: Mapping[
    str, tuple[Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any]], Built]]
] = {
    # A buildx build that was not pushed has only a build record.
    "buildx metadata": (
        lambda document: _has_metadata(document) or set(document) == {"buildx.build.ref"},
        _buildkit,
    ),
    "buildx bake metadata": (lambda document: any(map(_has_metadata, document.values())), _bake),
    "jib-image.json": (lambda document: {"image", "imageDigest"} <= set(document), _jib),
    "Skaffold's build output": (
        lambda document: isinstance(document.get("builds"), list),
        _skaffold,
    ),
}


# Text: kaniko, ko, Tekton's IMAGES


def _of_words(text: str) -> Built:
    """Return the images in a text file: a single digest, or references. Raises `Malformed`."""
    words = [
        (number, word)
        for number, line in enumerate(text.splitlines(), 1)
        for word in re.split(r"[\s,]+", line)
        if word
    ]
    different = {word for _, word in words}
    digests = {word for word in different if DIGEST.fullmatch(word)}
    if digests and len(different) == 1:
        return Built(digest=next(iter(digests)))
    if digests:
        content = "digests and references" if len(digests) < len(different) else "several digests"
        hint = "use repository:tag@digest, one per line"
        raise Malformed(f"{content}, and it is not clear which belong together", hint)
    references = [_word_read(word, number) for number, word in words]
    return Built(tuple(dict.fromkeys(references)))


def _word_read(word: str, number: int) -> str:
    """Return a word on this line as a reference. Raises `Malformed`."""
    quotable = _LIKE_A_REFERENCE.fullmatch(word)
    if not quotable and "@" not in word:
        raise Malformed(
            f"not the output of a known builder: a text file in which line {number} is not an"
            " image reference",
            KNOWN,
        )
    try:
        return _reference(word)
    except Malformed as problem:
        why = problem.message if quotable else "it is not an image reference"
        raise Malformed(f"line {number}: {why}", problem.hint) from None


# Values


def _reference(text: str) -> str:
    """Return the reference unchanged.

    Raises `Malformed` unless the value is a reference with a tag or a digest.
    """
    try:
        image = parse_image(text)
    except Malformed as problem:
        raise Malformed(without_login(problem.message), without_login(problem.hint)) from None
    if not image.tag and not image.digest:
        raise Malformed(
            f"{image.name!r} has neither a tag nor a digest",
            "configure the builder to write the tag or digest that it pushed",
        )
    return text


def _with_digest(name: str, digest: str) -> str:
    """Return the name with the digest added, unless the name already has a digest.

    Raises `Malformed` if the digests differ.
    """
    own_digest = name.partition("@")[2]
    if own_digest and digest and own_digest != digest:
        raise Malformed(
            f"two different digests for one image ({own_digest[:19]}…, {digest[:19]}…)",
            "build it again",
        )
    adds_digest = digest and not own_digest
    return _reference(f"{name}@{digest}" if adds_digest else name)


def _digest_member(value: Any, key: str) -> str:
    """Return the digest at a key, or "" for "". Raises `Malformed` for any other value."""
    text = _text_member(value, key)
    if text and not DIGEST.fullmatch(text):
        raise Malformed(
            f"its {key} is not a digest",
            ("use sha256: followed by 64 hex digits, or sha512: followed by 128"),
        )
    return text


def _text_member(value: Any, key: str) -> str:
    """Return the string at a key, trimmed. Raises `Malformed` for any other value."""
    if not isinstance(value, str):
        raise Malformed(f"its {key} is not a string", KNOWN)
    return value.strip()
