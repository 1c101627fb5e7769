"""Bodies unpacked no further than a limit: 64 KB of gzip may hold 64 MB, and encodings may be nested."""

from __future__ import annotations

import zlib
from collections.abc import Callable

BROKEN = (zlib.error,)  # what a broken stream raises

Unpack = Callable[[bytes, int], bytes]  # (packed, most bytes) → unpacked; the rest counts as too large


def unpacker(encoding: str) -> Unpack | None:
    """How to unpack a `Content-Encoding`; None for one that we never ask for."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return lambda packed, _most: packed
    return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress if encoding in ("gzip", "x-gzip") else None
