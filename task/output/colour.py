"""How text looks on a terminal: whether it has colours at all, and which. What is piped stays plain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from task.text import printable

# Colours of the terminal's own palette: whoever chose a light or a dark one can read them.
CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
NARROWEST, WIDEST, USUAL = 20, 160, 80  # columns; longer lines are hard to read


@dataclass(frozen=True)
class Look:
    """What the place where a text is shown can do."""

    width: int = USUAL
    colour: bool = False
    symbols: bool = True  # letters beyond ASCII: arrows and check marks


def forced(environ: Mapping[str, str]) -> bool:
    """Whether somebody asks for colours where no terminal is: FORCE_COLOR, CLICOLOR_FORCE; "0" is no."""
    return any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))


def coloured(environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Whether to use colours. NO_COLOR wins, then who forces them; else a terminal that is not dumb has them."""
    if environ.get("NO_COLOR"):
        return False
    if forced(environ):
        return True
    return terminal and environ.get("TERM", "") not in ("", "dumb") and environ.get("CLICOLOR") != "0"


def width_of(environ: Mapping[str, str], measured: int) -> int:
    """How many columns to use: COLUMNS wins, as everywhere, then what the terminal says (0: it does not)."""
    given = environ.get("COLUMNS", "")
    width = int(given) if given.isascii() and given.isdigit() and len(given) < len("10000") else 0
    return min(max(width or measured or USUAL, NARROWEST), WIDEST)


def paint(text: str, style: str, look: Look) -> str:
    """The text in a style, "bold green"; as it is where there are no colours."""
    if not (look.colour and text and style):
        return text
    return f"\x1b[{';'.join(CODES[name] for name in style.split())}m{text}\x1b[0m"


def painted_diff(diff: str, look: Look) -> list[str]:
    """The lines of a unified diff as a person reads them; what a terminal or a runner would obey is shown, not sent."""
    lines, header = [], True
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith("diff --git "):
            header = True
        elif line.startswith("@@"):
            header = False
        lines.append(paint(printable(line), _style(line, header=header), look))
    return lines


def _style(line: str, *, header: bool) -> str:
    if header:
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}.get(line[:1], "")
