"""Reads the `--images-from` files: builders' output or events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from task.ci.events.event import Events
from task.ci.events.forms import KNOWN as KNOWN_EVENTS
from task.ci.events.forms import LARGEST, events_in
from task.ci.images import KNOWN as KNOWN_BUILDERS
from task.ci.images import Built, images_of_builder
from task.errors import Malformed, UsageError
from task.files import read_file

BUILDER = "builder"  # a value of --images-format: files contain a builder's output, not events
STDIN = "-"


@dataclass(frozen=True)
class ImagesFrom:
    """The content of the `--images-from` files."""

    built: tuple[Built, ...] = ()
    events: Events | None = None  # None if no file contains events


def read_images_from(paths: Sequence[str], form: str = "auto", registry: str = "") -> ImagesFrom:
    """Read the files passed to `--images-from` (`-` is stdin), and return their images and events.

    A file contains either a builder's output, such as BuildKit's metadata, or events about pushed
    images, such as a registry's webhook. `form` is the value of `--images-format`: "auto" detects
    each file's format, "builder" means that no file contains events, and any other value is an
    event format. `registry` is the value of `--images-registry`. Raises `UsageError`, which names
    the file.
    """
    builder_files: list[Built] = []  # one for each file that contains a builder's output
    all_events: Events | None = None  # the events from all files
    for path in paths:
        text = _trimmed_text_of(path)
        try:
            # None: the file contains no events, so it must be a builder's output
            file_events = None if form == BUILDER else events_in(text, form, registry)
            if file_events is None:
                builder_files.append(images_of_builder(text))
            elif all_events is None:
                all_events = file_events
            else:
                all_events = all_events.plus(file_events)
        except Malformed as problem:
            hint = problem.hint
            # the hint lists only builders' formats, but the file did not match any event format,
            # either
            is_unrecognized = form == "auto" and hint == KNOWN_BUILDERS
            if is_unrecognized:
                hint = f"{hint}; {KNOWN_EVENTS}"
            raise UsageError(f"--images-from {path}: {problem.message}", hint=hint) from None
    return ImagesFrom(tuple(builder_files), all_events)


def _trimmed_text_of(path: str) -> str:
    """Return a file's text, trimmed and without a byte order mark. Raises `UsageError`."""
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
    except ValueError:  # the path contains a null byte
        hint = "use the file that the build wrote"
        raise UsageError(f"--images-from: {path!r} is not a path", hint=hint) from None
