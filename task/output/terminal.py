"""What the place can do where a text is shown: a terminal has colours and a width, everything else gets plain text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from task.output.colour import USUAL, Look, coloured, forced, width_of


def look_of(stream: Any, environ: Mapping[str, str]) -> Look | None:
    """How to write to this stream; None: plainly, as to a file or a pipe.

    A terminal that is dumb is none. Colours that are asked for (FORCE_COLOR) make a terminal of anything.
    """
    terminal = is_terminal(stream, environ)
    if not terminal and (not forced(environ) or environ.get("NO_COLOR")):
        return None
    width = width_of(environ, columns_of(stream) if terminal else 0)
    symbols = "utf" in (getattr(stream, "encoding", "") or "").lower()
    return Look(width, coloured(environ, terminal=terminal), symbols)


def is_terminal(stream: Any, environ: Mapping[str, str]) -> bool:
    """Whether a person looks at it, on a terminal that knows more than letters."""
    try:
        return environ.get("TERM", "") not in ("", "dumb") and bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def columns_of(stream: Any) -> int:
    """How wide the terminal is; 80 where it does not say."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL
    except (OSError, ValueError, AttributeError):
        return USUAL
