"""Tells GitHub's runner what to hide in the log, before anything is written there.

The runner hides what a workflow takes from `secrets`; a token that another step made, or that lies in a variable of a
self-hosted runner, it does not know. Nothing of ours prints a secret; what git, ssh or a server says might.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TextIO
from urllib.parse import quote

SHORTEST = 4  # hiding shorter ones would only garble the log
_FRAMES = ("-----BEGIN ", "-----END ")


def mask(names: Iterable[str], environ: Mapping[str, str], stream: TextIO | None = None) -> None:
    """Mask the values of these variables, line by line, also as they stand in URLs and headers."""
    values = dict.fromkeys(form for name in names for line in _lines(environ.get(name, "")) for form in _forms(line))
    out = stream or sys.stderr
    with suppress(OSError):  # where no log is taken, nothing needs to be hidden
        out.write("".join(f"::add-mask::{_escaped(value)}\n" for value in values))
        out.flush()


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if len(line.strip()) >= SHORTEST and not line.startswith(_FRAMES):
            yield line.strip()


def _forms(line: str) -> Iterator[str]:
    yield line
    yield quote(line, safe="")
    yield b64encode(line.encode(errors="surrogateescape")).decode()


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
