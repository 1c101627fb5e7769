"""Writes to stdout. Its reader may be gone, and its disk may be full."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

from task.errors import UsageError
from task.text import harmless


def write_stdout(text: str, *, commands: bool = False) -> OSError | None:
    """Write a text, and return the error if it could not be written.

    `commands` means that the text has our own commands for a CI system. Otherwise, commands are made harmless.
    """
    # An untrusted name may have lone surrogates, which UTF-8 cannot encode. They are escaped as in JSON.
    data = (text if commands else harmless(text)).encode("utf-8", "backslashreplace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except OSError as error:
        abandon(sys.stdout)
        return error
    return None


def say(text: str, *, commands: bool = False) -> None:
    """Write information to stdout. Raises `UsageError`, except if the reader has read enough (`| head`)."""
    error = write_stdout(text, commands=commands)
    if error and not isinstance(error, BrokenPipeError):
        raise unwritable(error)


def unwritable(error: OSError) -> UsageError:
    """Return the error for an unwritable stdout."""
    return UsageError(
        f"cannot write to stdout: {error.strerror}", hint="send stdout somewhere that has room; what was pushed stays"
    )


def abandon(stream: TextIO) -> None:
    """Discard the rest of a broken stream. Otherwise Python would flush it again at exit, fail, and exit with 120."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
