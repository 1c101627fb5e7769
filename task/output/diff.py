"""Creates the exact unified diff of a changeset for `plan`, as `git diff` would, and classifies
diff lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import unified_diff as diff

from task.model import Files

CONTEXT = 3
_ODD = re.compile(r'[\x00-\x1f\x7f"\\]')
_ESCAPES = {
    "\t": "t",
    "\n": "n",
    "\r": "r",
    '"': '"',
    "\\": "\\",
}


def unified_diff(before: Files, after: Files) -> str:
    """Return the diff from `before` to `after` for all files in `after`, ordered by path."""
    parts: list[str] = []
    for path in sorted(after):
        old = before.get(path)
        new = after[path]
        old_name = _path_quoted(f"a/{path}")
        new_name = _path_quoted(f"b/{path}")
        parts.append(f"diff --git {old_name} {new_name}\n")
        if old is None:
            parts.append(f"new file mode {new.mode}\n")
        elif not new.mode:
            parts.append(f"deleted file mode {old.mode}\n")
        end = "\t" if " " in path else ""  # a tab marks the end of a name that contains spaces
        source = "/dev/null" if old is None else old_name + end
        target = new_name + end if new.mode else "/dev/null"
        lines = diff(
            _lines(old.text if old else ""),
            _lines(new.text),
            source,
            target,
            n=CONTEXT,
        )
        parts += (
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )
    return "".join(parts)


def diff_lines(diff: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a unified diff with its kind: "file", "hunk", "add", "del",
    or "" for context.
    """
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    # In a hunk, a removed line may start with `--- `, like a header.
    in_header = True
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith("diff --git "):
            in_header = True
        elif line.startswith("@@"):
            in_header = False
        yield "file" if in_header else kinds.get(line[:1], ""), line


def _path_quoted(name: str) -> str:
    """Return a path as git writes it in a diff: quoted as in C if it contains quotes, backslashes,
    or control characters.
    """

    def escape(odd: re.Match[str]) -> str:
        return f"\\{_ESCAPES.get(odd[0]) or f'{ord(odd[0]):03o}'}"  # by name, or in octal

    escaped = _ODD.sub(escape, name)
    return name if escaped == name else f'"{escaped}"'


def _lines(text: str) -> list[str]:
    """Return the lines in a file's text.

    As in Git, only a line feed ends a line. `str.splitlines` also splits at other characters.
    """
    *whole, rest = text.split("\n")
    lines = [line + "\n" for line in whole]
    if rest:
        lines.append(rest)
    return lines
