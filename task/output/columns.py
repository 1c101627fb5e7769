"""Text in the columns of a terminal: how wide it is, and how it is broken into lines."""

from __future__ import annotations

from unicodedata import category, east_asian_width


def columns(text: str) -> int:
    """How wide a terminal shows it: letters of East Asia take two columns, accents of their own none."""
    if text.isascii():
        return len(text)
    return sum(0 if category(char) in ("Mn", "Me") else 1 + (east_asian_width(char) in "WF") for char in text)


def pad(text: str, width: int) -> str:
    """The text, filled up with blanks to so many columns."""
    return text + " " * (width - columns(text))


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most so many columns, broken at blanks; a word that is too long is broken where it must.

    Nothing is lost but blanks at breaks. There is always one line. A width below 2 counts as 2.
    """
    width = max(width, 2)
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if columns(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        *full, line = _pieces(word, width)
        lines += full
    return [*lines, line] if line or not lines else lines


def _pieces(word: str, width: int) -> list[str]:
    """A word in pieces of at most so many columns; images and paths break behind their separators, if they can."""
    pieces, rest = [], word
    while columns(rest) > width:
        size = _fitting(rest, width)
        nice = max((at + 1 for at in range(size // 3, size) if rest[at] in "/@:,;?&="), default=size)
        pieces.append(rest[:nice])
        rest = rest[nice:]
    return [*pieces, rest]


def _fitting(text: str, width: int) -> int:
    """How many characters fit; at least one."""
    used = 0
    for number, char in enumerate(text):
        used += columns(char)
        if used > width:
            return max(number, 1)
    return len(text)
