"""Makes the trailers of a commit message, in the form that `git interpret-trailers` reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from json import dumps

from task.errors import Malformed
from task.text import shortened

KEY = re.compile(r"[A-Za-z0-9-]+")
# Control characters and line endings would end the line. U+202A–202E and U+2066–2069 reverse text on a screen.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]+")
LONGEST_VALUE = 1000
REFERENCE = "Argocd-reference-commit-"  # Argo CD's repo-server reads these trailers from the synced revision

Trailer = tuple[str, str]


def one_line(text: str, longest: int = LONGEST_VALUE) -> str:
    """Return the text on one line, without control characters, cut to `longest` characters."""
    line = (text if text.isprintable() else UNSAFE.sub(" ", text)).strip()
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def trailer_lines(trailers: Iterable[Trailer]) -> str:
    """Return the trailers as `Key: value` lines, in order, each once. Raises Malformed for an invalid key."""
    lines: dict[str, None] = {}
    for key, value in trailers:
        if not KEY.fullmatch(key):
            raise Malformed(f"{key!r} is not a trailer key", "write letters, digits and dashes: --trailer Ticket=ABC-1")
        if line := one_line(value):
            lines[f"{key}: {line}\n"] = None
    return "".join(lines)


def commit_references(
    sha: str, repository: str = "", author: str = "", date: str = "", message: str = ""
) -> list[Trailer]:
    """Return Argo CD's commit references to the image's source code, or [] without a commit.

    Argo CD shows them next to the synced revision. `author` is `Name <address>`, and `date` is RFC 3339. The body
    becomes a JSON string, because Argo CD expects one.
    """
    if not sha:
        return []
    subject, _, body = message.strip().partition("\n")
    body = body.strip()
    values = {"author": author, "date": date, "subject": subject, "sha": sha.lower(), "repourl": repository}
    if body:
        # Cut the body before it becomes a JSON string, because nobody could read a cut JSON string. An escape needs up
        # to six characters.
        values["body"] = dumps(shortened(body, LONGEST_VALUE // 6 - 2))
    return [(REFERENCE + name, value) for name, value in values.items() if value.strip()]


def trailer_of(message: str, key: str, about: str = "") -> str:
    """Return the value of the first trailer with this key at the end of a commit message, or "".

    With `about`, of those whose value begins with that word, and without it.
    """
    last = message.replace("\r\n", "\n").rstrip("\n").rpartition("\n\n")[2]
    values = (line.partition(":")[2] for line in last.split("\n") if line.lower().startswith(f"{key.lower()}:"))
    words = (one.strip() for one in values)
    return one_line(
        next((one.removeprefix(about).strip() for one in words if one.startswith(f"{about} ".lstrip())), "")
    )


def build_trailers(
    source_commit: str = "", pipeline_run: str = "", more: Sequence[Trailer] = (), references: Sequence[Trailer] = ()
) -> tuple[Trailer, ...]:
    """Return the trailers of the build, then the user's own, then Argo CD's references, without empty ones."""
    known = (("Source-Commit", source_commit), ("Pipeline-Run", pipeline_run))
    return (*((key, value) for key, value in known if value), *more, *references)
