"""Writes to stdout, whose reader may have gone and whose disk may be full."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

from task.errors import UsageError
from task.text import harmless


def write_stdout(text: str, *, commands: bool = False) -> OSError | None:
    """Writes a text, and returns the error if it could not be written.

    `commands` are our own lines for a CI system; otherwise lines that one would obey are made harmless.
    """
    # An untrusted name may hold lone surrogates, which UTF-8 cannot encode: they are escaped as in JSON.
    data = (text if commands else harmless(text)).encode("utf-8", "backslashreplace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except OSError as error:
        abandon(sys.stdout)
        return error
    return None


def say(text: str, *, commands: bool = False) -> None:
    """Writes information to stdout. Raises `UsageError`, but not where the reader has seen enough (`| head`)."""
    error = write_stdout(text, commands=commands)
    if error and not isinstance(error, BrokenPipeError):
        raise unwritable(error)


def unwritable(error: OSError) -> UsageError:
    """The error for a stdout that cannot be written."""
    return UsageError(
        f"cannot write to stdout: {error.strerror}", hint="what was pushed stays; send stdout somewhere that has room"
    )


def abandon(stream: TextIO) -> None:
    """Sends the rest of a broken stream to nowhere. Python would flush it again at exit, fail, and exit with 120."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
