"""Generate two pictures that follow the reader's light or dark mode: `python -m scripts.picture`.

docs/demo.svg displays a terminal with the output of a real `image-update demo`.
docs/diagrams/figures.svg displays the times in docs/figures.md as a bar chart.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.cells import cell_len

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "demo.svg"
FIGURES = ROOT / "docs" / "figures.md"
BARS = ROOT / "docs" / "diagrams" / "figures.svg"
COLUMNS = 54  # narrow enough that letters are still 10 pixels high on a 360-pixel phone
END = re.compile(r"\n(?:\x1b\[[0-9;]*m)*diff --git a/apps/worker")
CELL, LINE, MARGIN, BAR = (
    8.4,
    19,
    14,
    36,
)  # in pixels: width of a column, height of a line, padding, and height of the title bar
STYLES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "34": "u", "35": "m", "36": "c"}
LOOK = """\
.back{fill:#ffffff}.edge{fill:none;stroke:#d0d7de}.bar{fill:#f6f8fa}.dot{fill:#c8cfd6}
text{fill:#1f2328;font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}
.b{font-weight:700}.d{fill:#6e7781}.r{fill:#cf222e}.g{fill:#116329}.y{fill:#8a5300}.u{fill:#0550ae}.m{fill:#8250df}
.c{fill:#0a6c74}
@media (prefers-color-scheme:dark){.back{fill:#0d1117}.edge{stroke:#30363d}.bar{fill:#161b22}.dot{fill:#3d444d}
text{fill:#e6edf3}.d{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#56d364}.y{fill:#e3b341}.u{fill:#79c0ff}.m{fill:#d2a8ff}
.c{fill:#76e3ea}}
"""


def main() -> None:
    """Write the pictures."""
    PICTURE.write_text(svg(demo()), encoding="utf-8")
    BARS.write_text(bars(FIGURES.read_text(encoding="utf-8")), encoding="utf-8")


def demo() -> str:
    """Return the terminal output of `image-update demo`, up to the second diff.

    The name of the repository is replaced with a fixed one.
    """
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "COLUMNS": str(COLUMNS),
        "FORCE_COLOR": "1",
    }
    argv = [sys.executable, "-m", "task", "demo"]
    done = subprocess.run(
        argv, cwd=ROOT, env=environ, capture_output=True, check=True, encoding="utf-8"
    )
    shown = END.split(done.stdout)[0].rstrip("\n")
    return re.sub(r"\S*/image-update-demo-\w+/\n?gitops\.git", "/tmp/demo/gitops.git", shown)  # noqa: S108 - not a file


def text_of(shown: str) -> str:
    """Return only the text. Commit IDs, which depend on the time, are replaced with a constant."""
    return re.sub(r"(commit) [0-9a-f]{12}", r"\1 " + "0" * 12, re.sub(r"\x1b\[[0-9;]*m", "", shown))


def svg(shown: str) -> str:
    """Return an SVG picture of a text with terminal colors."""
    lines = [part for line in ("$ image-update demo", *shown.split("\n")) for part in wrapped(line)]
    width = round(COLUMNS * CELL + 2 * MARGIN)
    height = BAR + LINE * len(lines) + 2 * MARGIN
    texts = "\n".join(
        f'<text x="{MARGIN}" y="{BAR + MARGIN + LINE * number + 14}" xml:space="preserve">{_spans(line)}</text>'
        for number, line in enumerate(lines)
        if line
    )
    dots = "".join(
        f'<circle class="dot" cx="{MARGIN + 18 * number}" cy="18" r="6"/>' for number in range(3)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' role="img" aria-label="image-update demo: decisions, commit and diff in a terminal">\n'
        f"<style>\n{LOOK}</style>\n"
        f'<rect class="back" width="{width}" height="{height}" rx="8"/>\n'
        f'<path class="bar" d="M0 8a8 8 0 0 1 8-8H{width - 8}a8 8 0 0 1 8 8V{BAR}H0z"/>{dots}\n'
        f'<rect class="edge" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
        f"{texts}\n</svg>\n"
    )


def wrapped(line: str) -> list[str]:
    """Wrap a line as a terminal does, but at a space if possible. The color continues on the next
    line.
    """
    rows, row, width, colour = [], "", 0, ""
    for codes, word in re.findall(r"(\x1b\[[0-9;]*m)|(\s*[^\s\x1b]*)", line):
        if codes:
            row, colour = row + codes, codes
        elif width and width + cell_len(word) > COLUMNS:
            rows.append(row)
            row, width = colour + word.lstrip(), cell_len(word.lstrip())
        else:
            row, width = row + word, width + cell_len(word)
    return [*rows, row]


def _spans(line: str) -> str:
    """Return a line of the SVG. Each piece is positioned separately, so that a different font
    cannot shift the next piece.
    """
    pieces, at = [], 0
    for codes, text in re.findall(r"(?:\x1b\[([0-9;]*)m)?([^\x1b]*)", line):
        if not text:
            continue
        names = " ".join(STYLES[code] for code in codes.split(";") if code in STYLES)
        kind = f' class="{names}"' if names else ""
        size = f' textLength="{cell_len(text) * CELL:g}"' if text.strip() else ""
        pieces.append(f'<tspan x="{MARGIN + at * CELL:g}"{size}{kind}>{_escaped(text)}</tspan>')
        at += cell_len(text)
    return "".join(pieces)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


BAR_LOOK = """\
.back{fill:#fff;stroke:#d0d7de}.ours{fill:#4051b5}.theirs{fill:#b8bfca}
text{fill:#1f2328;font:12px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}.b{font-weight:700}
@media (prefers-color-scheme:dark){.back{fill:#0d1117;stroke:#30363d}.ours{fill:#7f8fe0}.theirs{fill:#5b636e}
text{fill:#c9d1d9}}
"""
ROW = re.compile(
    r"^\| (?:a server|same server)(?:.*(HTTP|SSH))?.*?([\d,]+ files) \| ([\d.]+) s.*? \| .*?([\d.]+) s\b",
    re.MULTILINE,
)


def bars(page: str) -> str:
    """Return a bar chart of the times in the page's table, which compares a run with clone, edit,
    commit, and push.
    """
    lines, y, kind = [], 26, ""
    for protocol, files, ours, theirs in ROW.findall(page):
        if protocol not in ("", kind):
            kind = protocol
            lines.append(f'<text class="b" x="14" y="{y + 6}">{kind}, a server 30 ms away</text>')
            y += 22
        lines.append(f'<text x="22" y="{y + 17}">{files}</text>')
        for top, look, seconds in ((y, "ours", ours), (y + 13, "theirs", theirs)):
            width = round(float(seconds) * 38)
            lines.append(
                f'<rect class="{look}" x="112" y="{top}" width="{width}" height="11" rx="2"/>'
            )
            lines.append(f'<text x="{118 + width}" y="{top + 10}">{seconds} s</text>')
        y += 38
    for x, look, who in (
        (22, "ours", "Image Update"),
        (132, "theirs", "clone --depth 1, sed, commit, push"),
    ):
        lines.append(f'<rect class="{look}" x="{x}" y="{y}" width="11" height="11" rx="2"/>')
        lines.append(f'<text x="{x + 16}" y="{y + 10}">{who}</text>')
    height = y + 26
    label = "one update in repositories of four sizes, compared with a clone, an edit, a commit and a push"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 {height}" width="400" height="{height}"'
        f' role="img" aria-label="{label}">\n<style>\n{BAR_LOOK}</style>\n'
        f'<rect class="back" x=".5" y=".5" width="399" height="{height - 1}" rx="8"/>\n'
    ) + "\n".join((*lines, "</svg>\n"))


if __name__ == "__main__":
    main()
