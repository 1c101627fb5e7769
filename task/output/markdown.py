"""Makes Markdown: the one shape of requests, comments and summaries.

Text that others chose stands in code, where no Git host reads Markdown, HTML, a mention, a reference to an issue, or a
command (GitLab obeys lines like `/merge`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from task.text import printable
from task.urls import without_login

LONGEST_CELL = 300
LONGEST_URL = 500
_NOT_IN_A_LINK = re.compile(r"[^A-Za-z0-9/?&=%._~:+,;-]")


class Row(NamedTuple):
    """One line of a table of builds. Every text may be anybody's."""

    decision: str  # a word: "updated"; "" where all lines are alike
    application: str
    image: str
    old: str
    new: str  # "" where nothing changes
    why: str = ""
    source: str = ""  # Markdown: where it was built
    file: str = ""  # that is written
    fix: str = ""


ALWAYS = ("Application", "Image", "Version")  # columns; any other is there only if a line has something for it


def builds(rows: Sequence[Row], room: int) -> str:
    """Return a table of builds with as many lines as fit into `room` characters, and how many more there are."""
    cells = [
        {
            "Decision": row.decision,
            "Application": code(row.application),
            "Image": code(row.image),
            "Version": " → ".join(code(text) for text in (row.old, row.new) if text),
            "Why": f"{code(row.why)} fix: {code(row.fix)}" if row.fix else code(row.why),
            "Built from": row.source,
            "File": code(row.file),
        }
        for row in rows
    ]
    head = [name for name in cells[0] if name in ALWAYS or any(one[name] for one in cells)]
    lines = [_line(head), _line(["---"] * len(head))]
    left = room - sum(map(len, lines)) - 60
    for one in cells:
        line = _line([one[name] for name in head])
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
    more = len(rows) + 2 - len(lines)
    return "\n".join(lines) + (f"\n\nand {more} more: see the report" if more else "")


def folded(title: str, text: str, *, html: bool = True) -> str:
    """Return a text that a reader opens by a click. Where HTML is shown as text, it stands below its title."""
    if not html:
        return f"**{title}**\n\n{text}"
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def code(text: str) -> str:
    """Return the text as code, with `?` for characters that are invisible or would end the code or the cell."""
    line = " ".join(printable(text).split())
    line = line if len(line) <= LONGEST_CELL else f"{line[: LONGEST_CELL - 1]}…"
    return f"`{''.join('?' if one in '`|' or not one.isprintable() else one for one in line)}`" if line else ""


def link(url: str, name: str = "") -> str:
    """Return a link to an http address.

    Anything else is returned as code, because it may start a program on the reader's computer.
    """
    if not url.startswith(("https://", "http://")):
        return code(url)
    address = without_login(url)
    safe = _NOT_IN_A_LINK.sub(
        lambda found: "".join(f"%{one:02X}" for one in found[0].encode(errors="replace")), address
    )
    if len(safe) > LONGEST_URL:
        return code(address)
    # The last two parts of a path tell a reader enough: `commit/0123456789ab`, `runs/42`.
    parts = safe.partition("://")[2].rstrip("/").split("/")[-2:]
    short = "/".join(part[:12] if len(part) in (40, 64) else part for part in parts)
    return f"[{code(name or short)}]({safe})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
