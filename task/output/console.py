"""Creates consoles for interactive use, and writes to stdout in a way that handles closed pipes and
full disks.

Files, pipes, and CI logs receive plain text. Untrusted text goes through `task.text.printable`
first, because rich does not filter escape sequences, or characters that reverse text, such as
U+202E.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from typing import Any, TextIO

from rich.console import Console

from task.errors import UsageError
from task.text import harmless

NARROWEST = 20
WIDEST = 160  # columns; longer lines are hard to read


def stdout_console(environ: Mapping[str, str]) -> Console | None:
    """Return a console that renders results for stdout, or None if stdout should receive plain
    text.

    If stdout is not a terminal, a console is returned only if FORCE_COLOR or CLICOLOR_FORCE
    requests colors (for CI logs that support them) and NO_COLOR is not set. The console writes to
    memory (see `_memory_stream`).
    """
    wants_colors = _are_colors_forced(environ) and not environ.get("NO_COLOR")
    if not wants_colors and not is_terminal(sys.stdout, environ):
        return None
    return console_of(sys.stdout, environ, file=_memory_stream(sys.stdout.encoding))


def stderr_console(environ: Mapping[str, str]) -> Console | None:
    """Return the console for log lines and progress, or None if a program captures the output."""
    if not is_terminal(sys.stderr, environ):
        return None
    return console_of(sys.stderr, environ)


def plain_console() -> Console:
    """Return an ASCII-only console without colors, for tables in pipes and files."""
    return _console(
        file=_memory_stream("ascii"),
        width=120,
        color_system=None,
    )


def _memory_stream(encoding: str) -> TextIO:
    """Return an in-memory stream for a console whose output is only captured.

    With the real stdout, rich would write an empty string even while capturing, which fails on a
    full disk. It would also exit if a pipe's reader is gone.
    """
    return TextIOWrapper(BytesIO(), encoding)


def is_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether the stream is a terminal that supports more than plain text."""
    if environ.get("TERM", "") in ("", "dumb"):
        return False
    try:
        return stream.isatty()
    except ValueError:  # the stream is closed
        return False


def _are_colors_forced(environ: Mapping[str, str]) -> bool:
    """Return whether FORCE_COLOR or CLICOLOR_FORCE requests colors even without a terminal.

    The value "0" does not force colors.
    """
    for variable in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        if environ.get(variable, "0") not in ("", "0"):
            return True
    return False


def console_of(
    stream: TextIO,
    environ: Mapping[str, str],
    *,
    file: TextIO | None = None,
) -> Console:
    """Return a console as wide as the terminal `stream`, or 80 columns wide if its width is
    unknown.

    It uses the terminal's own color palette, which is readable on light and dark backgrounds. It
    writes to `file` if that is set, else to `stream`.
    """
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns = 0
        lines = 0
    width = _chosen_columns(environ) or columns or 80
    return _console(
        file=file or stream,
        width=min(max(width, NARROWEST), WIDEST),
        height=lines or 24,
        color_system="standard" if _has_colors(environ) else None,
        force_terminal=True,
    )


def _chosen_columns(environ: Mapping[str, str]) -> int:
    """Return the width given by the environment variable COLUMNS, or 0 if it is missing or
    implausible.

    Interactive shells do not export this variable, so if it is present, it was set on purpose.
    """
    columns = environ.get("COLUMNS", "")
    is_number = columns.isascii() and columns.isdigit()
    is_plausible = is_number and len(columns) <= 4  # digits
    if not is_plausible:
        return 0
    return int(columns)


def _has_colors(environ: Mapping[str, str]) -> bool:
    """Return whether a console uses colors. NO_COLOR overrides the variables that force colors."""
    if environ.get("NO_COLOR"):
        return False
    return _are_colors_forced(environ) or environ.get("CLICOLOR") != "0"


def _console(**options: Any) -> Console:
    """Return a console that prints text verbatim, without interpreting any markup in it."""
    return Console(
        **options,
        markup=False,
        emoji=False,
        highlight=False,
    )


def write_stdout(text: str, *, commands: bool = False) -> OSError | None:
    """Write text to stdout, and return the error if writing fails, or else None.

    Text that looks like a CI command is made harmless, unless `commands` indicates that the text
    contains our own commands. After an error, all further output to stdout is discarded.
    """
    if not commands:
        text = harmless(text)
    # Untrusted names may contain lone surrogates, which UTF-8 cannot encode. They are escaped as in
    # JSON.
    data = text.encode("utf-8", "backslashreplace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except OSError as error:
        abandon(sys.stdout)
        return error
    return None


def say(text: str, *, commands: bool = False) -> None:
    """Write informational text to stdout.

    Raises `UsageError` if writing fails, unless the reader has closed the pipe (`| head`).
    """
    error = write_stdout(text, commands=commands)
    if error and not isinstance(error, BrokenPipeError):
        raise unwritable(error)


def say_lines(parts: Iterable[str]) -> None:
    """Write text to stdout in parts, each of which consists of complete lines. Each part is written
    before the next one is created.

    Raises `UsageError` if writing fails, unless the reader has closed the pipe (`| head`).
    """
    for part in parts:
        error = write_stdout(part)
        if isinstance(error, BrokenPipeError):
            return
        if error:
            raise unwritable(error)


def unwritable(error: OSError) -> UsageError:
    """Return the error to raise if stdout is unwritable."""
    hint = "redirect stdout to a disk with free space; pushed changes are safe"
    return UsageError(f"cannot write to stdout: {error.strerror}", hint=hint)


def abandon(stream: TextIO) -> None:
    """Discard all further output to a broken stream.

    Otherwise, Python would flush the stream again at exit, fail, and exit with status 120.
    """
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
