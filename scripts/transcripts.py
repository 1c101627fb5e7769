"""Run the shell blocks on some pages, so that the pages contain real output.

`python -m scripts.transcripts` runs the README and the tutorial in a temporary folder, and writes
the output into the `text` block after each `sh` block. tests/test_tutorial.py compares the output.
Blocks below a comment `not run: why` are skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "how-to" / "freeze.md",
    ROOT / "docs" / "how-to" / "check.md",
    ROOT / "docs" / "how-to" / "one-login-for-many-teams.md",
    ROOT / "docs" / "how-to" / "one-trigger.md",
)
FOLDER = "/tmp"  # noqa: S108 - shown to readers instead of the real folder
DEMO = "/tmp/image-update-demo"  # noqa: S108 - shown as well
_FENCE = re.compile(
    r"^(?P<above>[^\n]*\n)?```(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MARK = "=== the end of a block:"
# `make demo`, but without creating .venv first
_PRELUDE = 'make() { [ "$*" = demo ] && image-update demo; }\n'


class Block(NamedTuple):
    """A fenced block on a page."""

    language: str
    code: str
    span: tuple[int, int]  # where the code is on the page
    why_not: str  # the reason why the block is not run, or "" if it is run


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks on a page, in order."""
    found, at = [], 0
    while match := _FENCE.search(text, at):
        above = re.fullmatch(r"<!-- not run: (.+) -->", (match["above"] or "").strip())
        found.append(
            Block(match["language"], match["code"], match.span("code"), above[1] if above else "")
        )
        at = match.end()
    return found


def runnable(text: str) -> list[tuple[Block, Block | None]]:
    """Return the shell blocks to run, each with its output block, or None if it has no output
    block.

    The output block is the next block, unless there is a heading in between.
    """
    found = blocks(text)
    followers: list[Block | None] = [*found[1:], None]
    pairs = zip(found, followers, strict=True)
    return [
        (one, after if after and _behind(text, one, after) else None)
        for one, after in pairs
        if one.language == "sh" and not one.why_not
    ]


def _behind(text: str, one: Block, after: Block) -> bool:
    return after.language == "text" and "\n#" not in text[one.span[1] : after.span[0]]


def printed(codes: Sequence[str], folder: Path) -> Iterator[tuple[int, str]]:
    """Run shell blocks in one shell. Yield the exit code and the output of each block."""
    script = _PRELUDE + "".join(f"{{\n{code}\n}} 2>&1\necho '{_MARK}' $?\n" for code in codes)
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("IMAGE_UPDATE_", "GIT_"))
    }
    environ |= {
        "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])),
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    parts = re.split(rf"^{_MARK} (\d+)\n", done.stdout, flags=re.MULTILINE)
    for output, code in zip(parts[::2], parts[1::2], strict=False):
        yield (
            int(code),
            re.sub(r"\S*/image-update-demo-\w+", DEMO, output.replace(str(folder), FOLDER)),
        )


def alike(text: str) -> str:
    """Return the text with placeholders for IDs and times, which differ between runs.

    An ID may consist of letters only.
    """
    text = re.sub(r"\b[0-9a-f]{7,64}\b", "ID", text)
    return re.sub(r"\d{4}-\d\d-\d\d(T[\d:.]+Z| \d\d:\d\d UTC)", "TIME", text)


def rewritten(text: str, folder: Path) -> str:
    """Return the page with the current output in its blocks. If a block ends with `…`, its length
    is kept.
    """
    pairs = runnable(text)
    outputs = list(printed([one.code for one, _ in pairs], folder))
    for (_, after), (_, output) in reversed(list(zip(pairs, outputs, strict=True))):
        if after and alike(shown := beginning(output, after.code)) != alike(after.code):
            text = text[: after.span[0]] + shown + text[after.span[1] :]
    return text


def beginning(output: str, shown: str) -> str:
    """Return the output. If the shown block ends with a line `…`, the output is cut to that block's
    length.
    """
    lines = shown.splitlines()
    if lines[-1:] != ["…"]:
        return output
    return "".join(f"{line}\n" for line in (*output.splitlines()[: len(lines) - 1], "…"))


def main() -> None:
    """Update all pages."""
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(rewritten(page.read_text(), Path(folder)))


if __name__ == "__main__":
    main()
