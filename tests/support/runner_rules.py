"""Output lines that a CI runner treats as commands, according to its source code, and texts that
imitate such lines.
"""

import re

# GitHub's runner: ActionCommand.TryParseV2 and TryParse. .NET compares by culture, which ignores these characters.
_OVERLOOKED = re.compile("[\u00ad\u034f\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]")
ATTACKS = (
    "::add-mask::x",
    "  ::set-output name=x::y",
    "\u00a0\u2003::x::",
    "##[x]",
    "text ##[add-mask]x",
    "#\ufe0f#[x]",
    ":\ufe0f:x::",
    "##vso[task.setvariable variable=x]y",
    "a\n::error::b",
    "a\r::error::b",
    "\x1b[2J\x1b]0;title\x07",
    "\u202etxet",
    "a\u2028::b::\u2066c",
)
SPARES = frozenset(
    "\x1b\x07\x9b\r\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\u200b\ufeff"
)


def obeyed(line: str) -> bool:
    """Return whether GitHub's or Azure's runner treats the line as a command."""
    bare = _OVERLOOKED.sub("", line).lstrip()
    return bare.startswith("::") or bool(re.search(r"##(vso)?\[", bare))


def dangers(text: str) -> list[str]:
    """Return the lines that a runner would treat as commands, or that contain characters that
    affect a terminal. Lines end as in .NET.
    """
    return [line for line in re.split(r"\r\n|\n|\r", text) if obeyed(line) or set(line) & SPARES]
