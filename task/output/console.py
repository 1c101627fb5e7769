"""The rich consoles, and who gets one: a person at a terminal. Files, pipes and CI logs get plain text.

Whatever others named goes through `task.text.printable` first: rich sends escape sequences and letters that turn the
direction of text as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from io import BytesIO, TextIOWrapper
from typing import TextIO

from rich.console import Console

NARROWEST, WIDEST = 20, 160  # columns; longer lines are hard to read


def stdout_console(environ: Mapping[str, str]) -> Console | None:
    """What renders results for stdout; None where they are plain text.

    FORCE_COLOR and CLICOLOR_FORCE ask for colours in a CI log that shows them; "0" is no, and NO_COLOR wins.
    """
    wanted = is_terminal(sys.stdout, environ) or (_forced(environ) and not environ.get("NO_COLOR"))
    return console_of(sys.stdout, environ, file=_memory(sys.stdout.encoding)) if wanted else None


def stderr_console(environ: Mapping[str, str]) -> Console | None:
    """The console for the log and for progress; None where lines are collected."""
    return console_of(sys.stderr, environ) if is_terminal(sys.stderr, environ) else None


def plain_console() -> Console:
    """For a table in a pipe or a file: ASCII and no colours."""
    return Console(file=_memory("ascii"), width=120, color_system=None, markup=False, emoji=False, highlight=False)


def _memory(encoding: str) -> TextIO:
    """`task.output.stdout` writes what such a console has captured.

    rich writes while it captures, too: an empty text, which a full disk refuses. Where the reader of a pipe has gone,
    rich ends the program.
    """
    return TextIOWrapper(BytesIO(), encoding)


def is_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a person looks at it, on a terminal that knows more than letters."""
    try:
        return environ.get("TERM", "") not in ("", "dumb") and stream.isatty()
    except ValueError:  # it is closed
        return False


def _forced(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))


def console_of(stream: TextIO, environ: Mapping[str, str], *, file: TextIO | None = None) -> Console:
    """A console as wide as `stream`. Its colours are of the terminal's own palette: readable on light and dark ones."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns, lines = 0, 0
    given = environ.get("COLUMNS", "")
    width = int(given) if given.isascii() and given.isdigit() and len(given) < len("10000") else 0
    coloured = not environ.get("NO_COLOR") and (_forced(environ) or environ.get("CLICOLOR") != "0")
    return Console(
        file=file or stream,
        width=min(max(width or columns or 80, NARROWEST), WIDEST),
        height=lines or 24,
        color_system="standard" if coloured else None,
        force_terminal=True,
        markup=False,
        emoji=False,
        highlight=False,
    )
