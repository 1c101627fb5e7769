"""The images that were just built, from `--image`, `--image-digest`, and `--tag`, and from
builders' files.

A builder's file format is detected from the file's content alone. The supported formats are
BuildKit and buildx metadata (including `bake`), kaniko's digest and image-name files, ko's image
refs, Jib's jib-image.json, Skaffold's build output, GoReleaser's artifacts.json, and Tekton's
`IMAGES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from task.errors import Malformed, UsageError
from task.image import parse_image, parse_images
from task.model import Image
from task.plain_data import parsed_json
from task.text import and_more

DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
# Passwords must not appear in messages. In quotes, a slash must follow, because `web:1@sha256:…`
# does not contain a login.
LOGIN = re.compile(r"(//|\b(?:write|use) )[^/\s]*@|(')[^/\s']*@(?=[^\s']*/)")
VERSION = re.compile(r"v?[0-9]+(?:\.[0-9]+)+(?:[-+_.].*)?|latest|v[0-9]+")
Document = Mapping[str, Any]  # a JSON object
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")  # from the OCI distribution specification


def event_images(references: Sequence[str], digest: str = "", tag: str = "") -> tuple[Image, ...]:
    """Parse references such as "ghcr.io/acme/web:1.2", and return the images that were just built,
    one for each repository and tag.

    `digest` and `tag` are the values of `--image-digest` and `--tag`, which are added to each
    image. Raises a `UsageError` that names the option to correct.
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
    """Raise `UsageError` if the digest from `--image-digest` is invalid or cannot belong to these
    images.
    """
    if not DIGEST.fullmatch(digest):
        hint = "use sha256: followed by 64 hex digits, or sha512: followed by 128"
        raise UsageError(f"--image-digest: {digest!r} is not a digest", hint=hint)
    if len({image.identity for image in images}) > 1:
        hint = "add the digests to the references: repo:tag@sha256:…"
        raise UsageError("--image-digest cannot be used with several images", hint=hint)
    for image in images:
        if image.digest not in ("", digest):
            raise UsageError(
                f"--image and --image-digest have different digests ({image.digest[:19]}…,"
                f" {digest[:19]}…)",
                hint="use only one of them",
            )


def _check_tag(tag: str, images: Sequence[Image]) -> None:
    """Raise `UsageError` if the tag from `--tag` is invalid or cannot belong to these images."""
    if not TAG.fullmatch(tag):
        hint = "use only letters, digits, '_', '.', and '-', up to 128 characters"
        raise UsageError(f"--tag: {tag!r} is not a tag", hint=hint)
    for image in images:
        if image.tag not in ("", tag):
            raise UsageError(
                f"--image and --tag have different tags ({image.tag}, {tag})",
                hint="use only one of them",
            )


def _one_for_each_tag(images: Sequence[Image]) -> tuple[Image, ...]:
    """Return one image for each repository and tag.

    A digest that is set for one spelling of a repository applies to all of its spellings. Raises
    `UsageError` for an image with two different digests, or with neither a tag nor a digest.
    """
    distinct: dict[tuple[str, str], Image] = {}  # keyed by normalized repository and tag
    for image in images:
        has_version = bool(image.tag or image.digest)
        if not has_version:
            raise _missing_version_error(image, alone=len(images) == 1)
        key = (image.identity, image.tag)
        earlier = distinct.setdefault(key, image)  # `image` itself if it is the first with this key
        if earlier.digest and image.digest and earlier.digest != image.digest:
            name = f"{image.name}:{image.tag}" if image.tag else image.name
            raise UsageError(
                f"--image: {name} has two different digests",
                hint="use only one of them",
            )
        if image.digest:
            distinct[key] = image
    return tuple(distinct.values())


def _missing_version_error(image: Image, *, alone: bool) -> UsageError:
    """Return the error for an image with neither a tag nor a digest.

    `alone` is whether it is the only image. Otherwise, it may be a part of one with a space in it.
    """
    about_spaces = "" if alone else "; a space separates two images"
    if VERSION.fullmatch(image.name):
        hint = f"use the full reference, such as ghcr.io/acme/web:{image.name}{about_spaces}"
        return UsageError(f"--image: {image.name!r} is a tag without an image", hint=hint)
    hint = f"use {image.name}:<tag>, as the build pushed it{about_spaces}"
    return UsageError(f"--image: {image.name!r} has neither a tag nor a digest", hint=hint)


def without_login(sentence: str) -> str:
    """Return a message about a reference, with any username and password removed."""
    return LOGIN.sub(r"\1\2", sentence)


KNOWN = (
    "the supported formats are BuildKit and buildx metadata, kaniko's digest and image-name"
    " files, ko --image-refs, jib-image.json, skaffold --file-output, GoReleaser's"
    " artifacts.json, and Tekton's IMAGES"
)
MOST = 1000  # maximum number of images in one file; no real build has more
# Error messages quote only words that match this pattern, because users may pass a file of
# passwords by mistake.
_LIKE_A_REFERENCE = re.compile(r"[\w.-]+(?::\d+)?(?:/[\w.-]+)+(?::[\w.-]+)?(?:@[\w:]+)?")
_MOST_SHOWN = 6


@dataclass(frozen=True)
class Built:
    """The images in one file."""

    references: tuple[str, ...] = ()  # each with a tag or a digest
    # kaniko's --digest-file contains only a digest; the pipeline itself specifies the image
    digest: str = ""


def images_of_builder(text: str) -> Built:
    """Parse the content of a file that a builder wrote, such as BuildKit's metadata, and return its
    images.

    The format is detected from the content. Raises `Malformed` if the format is unknown or
    ambiguous, or if the file contains no images or too many. The error message summarizes the
    content.
    """
    text = text.removeprefix("\ufeff").strip()
    if not text:
        raise Malformed(
            "the file is empty", "check that the build wrote the file and pushed the image"
        )
    is_json = text.startswith(("{", "["))
    images = _images_in_json(text) if is_json else _images_in_text(text)
    has_image = bool(images.references or images.digest)
    if not has_image:
        raise Malformed("it does not contain an image", "check that the build pushed one")
    if len(images.references) > MOST:
        raise Malformed(
            f"it contains {len(images.references)} images; at most {MOST} are accepted",
            "split the file",
        )
    return images


def with_built(
    option_references: Sequence[str],
    option_digest: str,
    files: Iterable[Built],
) -> tuple[tuple[str, ...], str]:
    """Combine the options `--image` and `--image-digest` with the images from the builders' files.
    Return all references, and the digest that an option or a file specifies without naming an
    image.

    If a builder's output contains a digest without a tag, that digest is added to all of the
    repository's tags that lack a digest, because they come from the same build. Raises `UsageError`
    if there are two different digests without an image.
    """
    files = tuple(files)
    digest = _only_digest([option_digest, *(file.digest for file in files)])
    file_references: dict[str, None] = {}  # without duplicates, in order
    for file in files:
        file_references |= dict.fromkeys(file.references)
    file_images = [parse_image(reference) for reference in file_references]
    try:
        option_images = parse_images(option_references)
    except Malformed:  # `event_images` will report the mistake in --image
        return (*option_references, *file_references), digest
    completed_images = _with_builder_digests(file_images, option_images)
    completed_references = dict.fromkeys(image.reference for image in completed_images)
    return (*option_references, *completed_references), digest


def _only_digest(digests: Iterable[str]) -> str:
    """Return the only digest among the values, or "" if all are "". Raises `UsageError` if there
    are several different digests.
    """
    distinct = list(dict.fromkeys(filter(None, digests)))
    if len(distinct) > 1:
        shown_digests = ", ".join(f"{digest[:19]}…" for digest in distinct)
        raise UsageError(
            f"--images-from: two different digests for one image ({shown_digests})",
            hint="use only one of them",
        )
    return distinct[0] if distinct else ""


def _with_builder_digests(
    file_images: Sequence[Image], option_images: Sequence[Image]
) -> list[Image]:
    """Return the images from the files, with each untagged digest added to the same repository's
    tags that lack a digest. The tags that received a digest come last.

    For example, "acme/web:1" and "acme/web@sha256:…" become "acme/web:1@sha256:…". `option_images`
    are the images from the options. Each of them is returned only if a digest was added to it.
    """
    # repository → its digest without a tag
    digests = {image.identity: image.digest for image in file_images if not image.tag}
    # images with a tag that receive a digest
    incomplete = [
        image
        for image in (*option_images, *file_images)
        if image.tag and not image.digest and image.identity in digests
    ]
    completed = [replace(image, digest=digests[image.identity]) for image in incomplete]
    completed_identities = {image.identity for image in completed}
    unchanged = []
    for image in file_images:
        digest_was_added_to_tags = not image.tag and image.identity in completed_identities
        if image not in incomplete and not digest_was_added_to_tags:
            unchanged.append(image)
    return unchanged + completed


# Files in JSON


def _images_in_json(text: str) -> Built:
    """Return the images from a JSON file. Raises `Malformed`."""
    try:
        document = parsed_json(text)
    except ValueError as problem:
        raise Malformed(f"it looks like JSON but cannot be parsed: {problem}", KNOWN) from None
    return _images_in_list(document) if isinstance(document, list) else _images_in_object(document)


def _images_in_object(document: Document) -> Built:
    """Return the images from a JSON object. Raises `Malformed` unless the object matches exactly
    one format.
    """
    matching_formats = [name for name, form in FORMATS.items() if form.matches(document)]
    if len(matching_formats) > 1:
        raise Malformed(
            f"it could be {' or '.join(matching_formats)}: {_described_keys(document)}",
            "pass the file unchanged, as the builder wrote it",
        )
    if not matching_formats:
        raise Malformed(f"not the output of a known builder: {_described_keys(document)}", KNOWN)
    return FORMATS[matching_formats[0]].read(document)


def _images_in_list(items: list[Any]) -> Built:
    """Return the images from a JSON list of references or of GoReleaser's artifacts. Raises
    `Malformed` for any other list.
    """
    if all(isinstance(item, str) for item in items):
        references = [item.strip() for item in items]
        return Built(tuple(_checked_reference(reference) for reference in references if reference))
    if not all(isinstance(item, Mapping) for item in items):
        raise Malformed("not the output of a known builder: a JSON list of mixed types", KNOWN)
    for item in items:
        is_artifact = "type" in item and ("name" in item or "path" in item)
        if not is_artifact:
            raise Malformed(
                f"not the output of a known builder: a JSON list with {_described_keys(item)}",
                KNOWN,
            )
    return _images_of_goreleaser(items)


def _described_keys(document: Document) -> str:
    """Describe a JSON object for a message by its keys. Its values are not shown, because they may
    be secrets.
    """
    names = [repr(key[:40]) for key in document]
    return f"a JSON object with {and_more(names, _MOST_SHOWN)}" if names else "an empty JSON object"


def _has_metadata(document: Any) -> bool:
    """Return whether a JSON value is BuildKit metadata about an image."""
    if not isinstance(document, Mapping):
        return False
    return "containerimage.digest" in document or "image.name" in document


def _images_of_buildkit(document: Document) -> Built:
    """Return the images from BuildKit metadata: each name in `image.name` with the digest added, or
    just the digest if there are no names.
    """
    digest = _checked_digest(document.get("containerimage.digest", ""), "containerimage.digest")
    image_names = _checked_string(document.get("image.name", ""), "image.name")
    names = [name.strip() for name in image_names.split(",")]
    references = tuple(_with_digest(name, digest) for name in names if name)
    return Built(references) if references else Built(digest=digest)


def _images_of_bake(document: Document) -> Built:
    """Return the images from `buildx bake` metadata, which contains BuildKit metadata for each
    target. Raises `Malformed` for a target that has a digest but no name.
    """
    references: list[str] = []
    targets = [_images_of_buildkit(value) for value in document.values() if _has_metadata(value)]
    for target in targets:
        if target.digest:
            raise Malformed(
                "a bake target has a digest but no image.name", "set the target's output name"
            )
        references += target.references
    return Built(tuple(references))


def _images_of_jib(document: Document) -> Built:
    """Return the image from jib-image.json once for each of its tags, or with just the digest if it
    has no tags.
    """
    digest = _checked_digest(document["imageDigest"], "imageDigest")
    if not digest:
        raise Malformed("its imageDigest is empty", "check that the build pushed the image")
    name = _checked_string(document["image"], "image")
    image = parse_image(_with_digest(name, digest))
    more_tags = document.get("tags") or []
    if not isinstance(more_tags, list):
        raise Malformed("its tags are not a list", KNOWN)
    tags = [image.tag, *(_checked_string(tag, "tags") for tag in more_tags)]
    distinct_tags = dict.fromkeys(filter(None, tags))
    if not distinct_tags:
        return Built((f"{image.name}@{digest}",))
    return Built(tuple(_checked_reference(f"{image.name}:{tag}@{digest}") for tag in distinct_tags))


def _images_of_skaffold(document: Document) -> Built:
    """Return the images from Skaffold's build output. Each `tag` is a complete reference."""
    references = []
    for build in document["builds"]:
        if not isinstance(build, Mapping) or not build.get("tag"):
            raise Malformed("an entry in `builds` has no tag", KNOWN)
        references.append(_checked_reference(_checked_string(build["tag"], "tag")))
    return Built(tuple(references))


def _images_of_goreleaser(artifacts: Sequence[Document]) -> Built:
    """Return the images from GoReleaser's artifacts: multi-platform images ("Manifest"), and
    single-platform images in repositories that have no manifest. Raises `Malformed` if there are
    none.
    """
    images: list[tuple[Image, bool]] = []  # (image, whether it is a manifest)
    for artifact in artifacts:
        kind = str(artifact["type"])
        if re.search(r"\bDocker (Image|Manifest)\b", kind):
            images.append((_image_of_artifact(artifact), "Manifest" in kind))
    if not images:
        kinds = sorted({str(artifact["type"]) for artifact in artifacts})
        shown_kinds = ", ".join(repr(kind[:40]) for kind in kinds[:_MOST_SHOWN])
        raise Malformed(
            f"it does not contain images, only artifacts of other types: {shown_kinds or 'none'}",
            KNOWN,
        )
    with_manifest = {image.identity for image, is_manifest in images if is_manifest}
    selected = [
        image for image, is_manifest in images if is_manifest or image.identity not in with_manifest
    ]
    return Built(tuple(image.reference for image in _without_repeated_tags(selected)))


def _without_repeated_tags(images: Sequence[Image]) -> list[Image]:
    """Return the images, omitting any without a digest that also appear with the same tag and a
    digest.
    """
    with_digest = {(image.identity, image.tag) for image in images if image.digest}
    return [
        image for image in images if image.digest or (image.identity, image.tag) not in with_digest
    ]


def _image_of_artifact(artifact: Document) -> Image:
    """Return the image from one of GoReleaser's artifacts."""
    extra = artifact.get("extra")
    value = extra.get("Digest", "") if isinstance(extra, Mapping) else ""
    digest = _checked_digest(value, "Digest")
    name = _checked_string(artifact.get("name") or artifact.get("path"), "name")
    return parse_image(_with_digest(name, digest))


class BuilderFormat(NamedTuple):
    """A JSON format that a builder writes."""

    matches: Callable[[Document], bool]
    read: Callable[[Document], Built]


FORMATS: Mapping[str, BuilderFormat] = {
    # If the image was not pushed, buildx writes only a build record.
    "buildx metadata": BuilderFormat(
        lambda document: _has_metadata(document) or set(document) == {"buildx.build.ref"},
        _images_of_buildkit,
    ),
    "buildx bake metadata": BuilderFormat(
        lambda document: any(map(_has_metadata, document.values())), _images_of_bake
    ),
    "jib-image.json": BuilderFormat(
        lambda document: {"image", "imageDigest"} <= set(document), _images_of_jib
    ),
    "Skaffold's build output": BuilderFormat(
        lambda document: isinstance(document.get("builds"), list), _images_of_skaffold
    ),
}


# Text files: kaniko, ko, Tekton's IMAGES


def _images_in_text(text: str) -> Built:
    """Return the images from a text file that contains either references or a single digest. Raises
    `Malformed` for anything else.
    """
    line_numbers: dict[str, int] = {}  # word → the line on which it first appears
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.split(r"[\s,]+", line):
            if word:
                line_numbers.setdefault(word, number)
    digests = [word for word in line_numbers if DIGEST.fullmatch(word)]
    if not digests:
        return Built(tuple(_checked_word(word, number) for word, number in line_numbers.items()))
    if len(line_numbers) == 1:
        return Built(digest=digests[0])
    only_digests = len(digests) == len(line_numbers)
    content = "several digests" if only_digests else "digests and references"
    hint = "use repository:tag@digest, one per line"
    raise Malformed(f"{content}, and it is not clear which belong together", hint)


def _checked_word(word: str, line_number: int) -> str:
    """Return a word from a text file unchanged. Raises `Malformed` unless the word is an image
    reference with a tag or a digest.

    The error message quotes the word only if it looks like a reference, because it may be a
    password.
    """
    looks_like_a_reference = _LIKE_A_REFERENCE.fullmatch(word)
    # a word with `@` may be a reference with a malformed digest
    if not looks_like_a_reference and "@" not in word:
        raise Malformed(
            f"not the output of a known builder: a text file in which line {line_number} is not an"
            " image reference",
            KNOWN,
        )
    try:
        return _checked_reference(word)
    except Malformed as problem:
        why = problem.message if looks_like_a_reference else "it is not an image reference"
        raise Malformed(f"line {line_number}: {why}", problem.hint) from None


# Helpers for values


def _checked_reference(text: str) -> str:
    """Check an image reference, such as "ghcr.io/acme/web:1.2", and return it unchanged.

    Raises `Malformed` if `text` is not a reference, or has neither a tag nor a digest.
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
    """Return the reference `name` with the digest added, unless `digest` is "" or the reference
    already contains a digest.

    Raises `Malformed` if the digests differ.
    """
    _, _, own_digest = name.partition("@")
    if own_digest and digest and own_digest != digest:
        raise Malformed(
            f"two different digests for one image ({own_digest[:19]}…, {digest[:19]}…)",
            "build it again",
        )
    if digest and not own_digest:
        name = f"{name}@{digest}"
    return _checked_reference(name)


def _checked_digest(value: Any, key: str) -> str:
    """Return the trimmed value of a key. Raises `Malformed` unless the value is a digest or ""."""
    text = _checked_string(value, key)
    if text and not DIGEST.fullmatch(text):
        raise Malformed(
            f"its {key} is not a digest",
            "use sha256: followed by 64 hex digits, or sha512: followed by 128",
        )
    return text


def _checked_string(value: Any, key: str) -> str:
    """Return the trimmed value of a key. Raises `Malformed` unless the value is a string."""
    if not isinstance(value, str):
        raise Malformed(f"its {key} is not a string", KNOWN)
    return value.strip()
