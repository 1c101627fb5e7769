"""Creates unified diffs of changesets for `plan`, identical to those of `git diff`, and classifies
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
    """Return the unified diff from `before` to `after` for all files in `after`, ordered by path.

    A file in `after` that has no mode is shown as deleted.
    """
    parts: list[str] = []
    for path in sorted(after):
        old = before.get(path)
        new = after[path]
        is_deleted = not new.mode
        old_name = _path_quoted(f"a/{path}")
        new_name = _path_quoted(f"b/{path}")
        parts.append(f"diff --git {old_name} {new_name}\n")
        if old is None:
            parts.append(f"new file mode {new.mode}\n")
        elif is_deleted:
            parts.append(f"deleted file mode {old.mode}\n")

        # As in Git, a tab marks the end of a file name that contains spaces.
        end_of_name = "\t" if " " in path else ""
        lines = diff(
            _lines(old.text if old else ""),
            _lines(new.text),
            fromfile="/dev/null" if old is None else old_name + end_of_name,
            tofile="/dev/null" if is_deleted else new_name + end_of_name,
            n=CONTEXT,
        )
        for line in lines:
            parts.append(line)
            if not line.endswith("\n"):
                parts.append("\n\\ No newline at end of file\n")
    return "".join(parts)


def diff_lines(diff: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a unified diff as its kind and its text.

    The kind is "file" (part of a file's header), "hunk" (a hunk's first line), "add", "del", or ""
    (context).
    """
    kind_by_start = {"+": "add", "-": "del", "@": "hunk"}
    # Within a hunk, a removed line may start with `--- `, just like a file header.
    in_header = True
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith("diff --git "):
            in_header = True
        elif line.startswith("@@"):
            in_header = False
        kind = "file" if in_header else kind_by_start.get(line[:1], "")
        yield kind, line


def _path_quoted(name: str) -> str:
    """Return a path as git writes it in a diff: quoted as in C if it contains quotes, backslashes,
    or control characters.
    """

    def escape(match: re.Match[str]) -> str:
        """Return the matched character as a C escape sequence, such as an octal code."""
        character = match[0]
        octal_code = f"{ord(character):03o}"
        return f"\\{_ESCAPES.get(character, octal_code)}"

    escaped = _ODD.sub(escape, name)
    has_escapes = escaped != name
    return f'"{escaped}"' if has_escapes else name


def _lines(text: str) -> list[str]:
    """Return the lines of a file's text, each including its line feed. The last line may not have
    one.

    As in Git, only a line feed ends a line, whereas `str.splitlines` also splits at other
    characters.
    """
    *complete_lines, last_line = text.split("\n")
    lines = [line + "\n" for line in complete_lines]
    if last_line:
        lines.append(last_line)
    return lines
