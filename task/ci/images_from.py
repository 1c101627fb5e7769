"""Reads the `--images-from` files: builders' output or events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from task.ci.events.event import Events
from task.ci.events.forms import KNOWN as KNOWN_EVENTS
from task.ci.events.forms import LARGEST, events_in
from task.ci.images import KNOWN as KNOWN_BUILDERS
from task.ci.images import Built, built
from task.errors import Malformed, UsageError
from task.files import read_file

BUILDER = "builder"  # a value for --images-format that means: not events
STDIN = "-"


@dataclass(frozen=True)
class ImagesFrom:
    """The content of the `--images-from` files."""

    built: tuple[Built, ...] = ()
    events: Events | None = None  # None if no file has events


def read_images_from(paths: Sequence[str], form: str = "auto", registry: str = "") -> ImagesFrom:
    """Return the content of the files (`-` is stdin), each with the output of a builder or with
    events.

    `form` and `registry` are the options `--images-format` and `--images-registry`. Raises
    `UsageError` with the file's name.
    """
    builder_files: list[Built] = []
    events: Events | None = None
    for path in paths:
        text = _text(path)
        try:
            # None if it is a builder's output
            events_of_file = None if form == BUILDER else events_in(text, form, registry)
            if events_of_file is None:
                builder_files.append(built(text))
            elif events is None:
                events = events_of_file
            else:
                events = events.plus(events_of_file)
        except Malformed as problem:
            hint = problem.hint
            # neither a builder's format nor an event's was recognized, so list both
            if form == "auto" and hint == KNOWN_BUILDERS:
                hint = f"{hint}; {KNOWN_EVENTS}"
            raise UsageError(f"--images-from {path}: {problem.message}", hint=hint) from None
    return ImagesFrom(tuple(builder_files), events)


def _text(path: str) -> str:
    """Return the text of a file, trimmed and without a byte order mark. Raises `UsageError`."""
    file = "/dev/stdin" if path == STDIN else path
    try:
        return read_file(file, LARGEST).decode().removeprefix("\ufeff").strip()
    except OSError as error:
        hint = (
            "use the file that the build wrote, and make sure that this step can see it (a"
            " workspace, an artifact)"
        )
        raise UsageError(
            f"--images-from: cannot read {path!r}: {error.strerror}",
            hint=hint,
        ) from None
    except UnicodeDecodeError:
        hint = "pass the output of the builder or registry as uncompressed UTF-8"
        raise UsageError(f"--images-from {path}: it is not a text file", hint=hint) from None
    except ValueError:  # a null byte
        hint = "use the file that the build wrote"
        raise UsageError(f"--images-from: {path!r} is not a path", hint=hint) from None
