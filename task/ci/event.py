"""Turns `--image`, `--image-digest` and `--tag` into the images of the event."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from task.errors import Malformed, UsageError
from task.image import parse_images
from task.model import Image

DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
LOGIN = re.compile(r"(//|\bwrite )[^/@\s]*@")  # a password must not be shown, and not be in advice
VERSION = re.compile(r"v?[0-9]+(?:\.[0-9]+)+(?:[-+_.].*)?|latest|v[0-9]+")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")  # from the OCI distribution specification


def event_images(references: Sequence[str], digest: str = "", tag: str = "") -> tuple[Image, ...]:
    """Return the images that were just built, each with a tag or a digest.

    Raises `UsageError`, which names the option to correct.
    """
    try:
        images = parse_images(references)
    except Malformed as error:
        raise UsageError(f"--image: {without_login(error.message)}", hint=without_login(error.hint)) from None
    if not images:
        raise UsageError(
            "no image is given", hint="name the image that was just built with --image REF, or give --images-from FILE"
        )
    if digest:
        if not DIGEST.fullmatch(digest):
            raise UsageError(
                f"--image-digest: {digest!r} is not a digest", hint="write sha256: and 64 hexadecimal digits"
            )
        if len({image.identity for image in images}) > 1:
            raise UsageError(
                "--image-digest: several images are given, and it is for one",
                hint="write the digests into the references: repo:tag@sha256:…",
            )
        if other := next((image.digest for image in images if image.digest not in ("", digest)), ""):
            raise UsageError(
                f"--image and --image-digest differ in the digest ({other[:19]}…, {digest[:19]}…)",
                hint="give one of them",
            )
        images = tuple(replace(image, digest=digest) for image in images)
    if tag:
        if not TAG.fullmatch(tag):
            raise UsageError(
                f"--tag: {tag!r} is not a tag", hint="write letters, digits, '_', '.' and '-' only, 128 at most"
            )
        if other := next((image.tag for image in images if image.tag not in ("", tag)), ""):
            raise UsageError(f"--image and --tag differ in the tag ({other}, {tag})", hint="give one of them")
        images = tuple(replace(image, tag=tag) for image in images)
    # One image for each repository and tag. A digest that is given once counts for all spellings of the repository.
    distinct: dict[tuple[str, str], Image] = {}
    for image in images:
        if not image.tag and not image.digest:
            if VERSION.fullmatch(image.name):
                raise UsageError(
                    f"--image: {image.name!r} is a tag without an image",
                    hint=f"write the whole reference, such as ghcr.io/acme/web:{image.name}",
                )
            raise UsageError(
                f"--image: {image.name!r} has neither a tag nor a digest",
                hint=f"write {image.name}:<tag>, as the build pushed it",
            )
        before = distinct.setdefault((image.identity, image.tag), image)
        if before.digest and image.digest and before.digest != image.digest:
            name = f"{image.name}:{image.tag}" if image.tag else image.name
            raise UsageError(f"--image: {name} is given with two different digests", hint="give one of them")
        if image.digest:
            distinct[image.identity, image.tag] = image
    return tuple(distinct.values())


def without_login(sentence: str) -> str:
    """Return a message about a reference, without a user name and password in it."""
    return LOGIN.sub(r"\1", sentence)
