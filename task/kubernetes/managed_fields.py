"""Removes `managedFields` from JSON of the Kubernetes API. They are most of the metadata, and are not used here.

Parsing them would cost five times as much as everything else. Finding them by their brackets costs next to nothing.
"""

from __future__ import annotations

_TRIES = 8  # brackets that may be inside strings
_KEY = b'"managedFields":['  # only a key; inside a string its quotes are escaped


def without_managed_fields(body: bytes) -> bytes:
    """Return the JSON with empty lists instead. A list stays as it is if its end is uncertain."""
    parts, done = [], 0
    while (start := body.find(_KEY, done)) >= 0:
        inner = start + len(_KEY)
        end = _end(body, inner)
        parts.append(body[done:inner])
        done = inner if end < 0 else end
    return b"".join((*parts, body[done:])) if parts else body


def _end(body: bytes, start: int) -> int:
    """Return the end of the list, or -1 if it is uncertain. It has objects and strings, but no other list."""
    end = start - 1
    for _ in range(_TRIES):
        end = body.find(b"]", end + 1)
        if end < 0:
            break
        inner = body[start:end]
        if b"[" in inner or b"\\\\" in inner:
            return -1
        if (inner.count(b'"') - inner.count(b'\\"')) % 2 == 0:  # not inside a string
            return end
    return -1
