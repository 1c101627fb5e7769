"""Image Update's own event format: JSON lines that contain an image and its build's identity.

The lines are written by the pipeline that built the image.

They are trusted as much as command-line options, so a webhook that anyone can call must not accept
them (see --images-format).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from task.ci.events.event import Document, EventOrSkipped, is_digest
from task.ci.variables import COMMIT, created_of, sequence_of
from task.errors import Malformed, UsageError
from task.image import parse_image
from task.model import Build, Event
from task.text import and_more, shortened
from task.urls import without_login

KEYS = (
    "image",
    "digest",
    "sequence",
    "sourceCommit",
    "sourceRepository",
    "created",
    "pipelineRun",
)


def known(document: Document) -> bool:
    """Return whether this is one of Image Update's JSON lines. The key `image` is not enough,
    because Jib's file contains it, too.
    """
    return "image" in document and "imageDigest" not in document


def read(document: Document, _registry: str) -> Iterator[EventOrSkipped]:
    """Yield the event from one of Image Update's JSON lines: an image and its build's identity.

    The event is not marked as `claimed`, so it is trusted without checking with the registry.
    Raises `Malformed`, which names the key to correct.
    """
    unknown_keys = [repr(shortened(key, 40)) for key in document if key not in KEYS]
    if unknown_keys:
        hint = f"the keys are {', '.join(KEYS)}"
        raise Malformed(f"it has the unknown key {and_more(unknown_keys)}", hint)
    image = parse_image(_text_of_line(document, "image"))
    digest = _text_of_line(document, "digest")
    if digest and not is_digest(digest):
        raise Malformed(
            "its digest is not valid",
            "use sha256: followed by 64 hex digits, or sha512: followed by 128",
        )
    if digest and image.digest not in ("", digest):
        raise Malformed(
            "its image and digest fields have different digests", "use only one of them"
        )
    image = replace(image, digest=digest or image.digest)
    if not image.tag and not image.digest:
        raise Malformed("its image has neither a tag nor a digest", "use name:tag")
    run = without_login(_text_of_line(document, "pipelineRun"))
    yield Event(
        image,
        build=_build_of_line(document),
        run=run,
        claimed=False,
    )


def _build_of_line(document: Document) -> Build:
    """Return the identity of the build that a line describes. Raises `Malformed`."""
    commit = _text_of_line(document, "sourceCommit").lower()
    if commit and not COMMIT.fullmatch(commit):
        raise Malformed("its sourceCommit is not a commit ID", "use 7 to 64 hex digits")
    try:
        number = sequence_of(_number_text(document, "sequence"))
        created = created_of(_number_text(document, "created"))
    except UsageError as error:  # name the key in the error, instead of the equivalent option
        raise Malformed(error.message.replace("--", "its ", 1), error.hint) from None
    repository = without_login(_text_of_line(document, "sourceRepository"))
    return Build(
        sequence=number,
        counter="",
        commit=commit,
        repository=repository,
        created=created,
    )


def _number_text(document: Document, key: str) -> str:
    """Return the value of a key, a number or a string, as a string. Raises `Malformed` for other
    values.
    """
    value = document.get(key)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else _text_of_line(document, key)


def _text_of_line(document: Document, key: str) -> str:
    """Return the string value of a key, or "" if it is missing. Raises `Malformed` for other
    values.
    """
    value = document.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"its {key} is not a string", f"put {key} in quotes")
    return value.strip()
