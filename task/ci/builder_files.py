"""Reads the files in `--images-from`. `task.ci.builders` parses them."""

from __future__ import annotations

from collections.abc import Sequence

from task.ci.builders import Built, built
from task.errors import Malformed, UsageError
from task.files import read_file

LARGEST = 10_000_000  # bytes; buildx metadata with full provenance has a few hundred thousand


def read_built(paths: Sequence[str]) -> tuple[Built, ...]:
    """Return the content of each file, in order. Raises `UsageError`, which names the file."""
    files = []
    for path in paths:
        try:
            data = read_file(path, LARGEST)
        except OSError as error:
            raise UsageError(
                f"--images-from: cannot read {path!r}: {error.strerror}",
                hint="name the file that the build wrote; this step must see it (a workspace, an artifact)",
            ) from None
        except ValueError:  # a null byte
            raise UsageError(
                f"--images-from: {path!r} is not a path", hint="name the file that the build wrote"
            ) from None
        try:
            files.append(built(data.decode()))
        except UnicodeDecodeError:
            hint = "give the file that the builder wrote about the image, not the image"
            raise UsageError(f"--images-from {path}: it is not text", hint=hint) from None
        except Malformed as problem:
            raise UsageError(f"--images-from {path}: {problem.message}", hint=problem.hint) from None
    return tuple(files)
