"""Tells GitHub's runner which secrets to hide in the log, before anything is written there.

The runner hides values that a workflow takes from `secrets`. It does not know a token from another step, or one in a
variable of a self-hosted runner. We print no secret, but git, ssh or a server may do so in their messages.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TextIO
from urllib.parse import quote

SHORTEST = 4  # characters; to hide shorter values would garble the log
_FRAMES = ("-----BEGIN ", "-----END ")


def mask(names: Iterable[str], environ: Mapping[str, str], stream: TextIO | None = None) -> None:
    """Mask the values of these variables, line by line, also as encoded in URLs and Basic headers."""
    values: dict[str, None] = {}
    for line in (line for name in names for line in environ.get(name, "").splitlines()):
        text = line.strip()
        if len(text) >= SHORTEST and not line.startswith(_FRAMES):
            encoded = b64encode(text.encode(errors="surrogateescape")).decode()
            values |= dict.fromkeys((text, quote(text, safe=""), encoded))
    out = stream or sys.stderr
    with suppress(OSError):  # if the log cannot be written, it shows no secret either
        out.write("".join(f"::add-mask::{value.replace('%', '%25')}\n" for value in values))
        out.flush()
