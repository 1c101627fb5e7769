"""The builds that a request proposes, hidden in its text as base64.

If a person closes a request and deletes its branch, only this text still has what was declined. Every forge keeps
it. A later run finds out from it whether an event is for that build or an older one.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256

from task.model import Build, Written
from task.timestamps import utc

KEY = 8  # hexadecimal digits
LONGEST = 65_536  # characters that are read; more is nothing of ours
Builds = Mapping[str, Written]  # by `build_key`


def build_key(application: str, alias: str, image: str) -> str:
    """Return a key for an image of an Application (`namespace/name`). `image` is the image's identity."""
    return sha256(f"{application}\n{alias}\n{image}".encode("utf-8", "replace")).hexdigest()[:KEY]


def packed(builds: Builds, room: int) -> str:
    """Return the builds in base64, in at most `room` characters, or "" if there are none.

    The last ones are left out if they do not fit.
    """
    rows = list(builds.items())
    while rows:
        groups: dict[Written, str] = {}
        for key, written in rows:
            groups[written] = groups.get(written, "") + key
        data = [[[one.tag, one.digest, *asdict(one.build).values()], keys] for one, keys in groups.items()]
        text = b64encode(json.dumps(data, separators=(",", ":")).encode()).decode()
        if len(text) <= room:
            return text
        rows = rows[: min(len(rows) - 1, len(rows) * room // len(text))]
    return ""


def unpacked(text: str) -> dict[str, Written]:
    """Return the builds from what `packed` made.

    They are empty for any other text, because anybody may write into a request.
    """
    found: dict[str, Written] = {}
    try:
        for values, keys in json.loads(b64decode(text[:LONGEST], validate=True)):
            tag, digest, sequence, counter, commit, repository, created = values
            words = (tag, digest, counter, commit, repository, created, keys)
            if not all(isinstance(word, str) for word in words) or not isinstance(sequence, int | None):
                return {}
            build = Build(sequence, counter, commit, repository, utc(created) if created else "")
            found |= {keys[at : at + KEY]: Written(tag, digest, build) for at in range(0, len(keys), KEY)}
    except (ValueError, TypeError, RecursionError):
        return {}
    return found
