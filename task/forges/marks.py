"""The invisible marks in the text of a pull request: where our part is, and what runs have to know of it later.

People may write before and after our part, and change the title. Both stay. What is set on a request is marked, too:
what is missing then was taken off by a person, and anything else is still to be set. The builds that it proposes are
there in base64: if a person closes it and deletes its branch, only this text still has what was declined. A later run
finds out from it whether an event is for that build or an older one.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256

from task.model import Build, Proposal, Proposed, Written
from task.timestamps import utc

# What is hidden: an HTML comment; where HTML is shown as text, a link's definition that no link uses.
HIDDEN, HIDDEN_WITHOUT_HTML = "<!-- {}: {} -->", "[//]: # ({}: {})"
WITHOUT_HTML = ("bitbucket", "bitbucket-server")
BEGIN, END = "image-update-begin", "image-update-end"
MARK, DESCRIBED = "image-update", "image-update-commit"
TITLE, SETTLED = "image-update-title", "image-update-set"
ABOUT = {
    BEGIN: "Image Update replaces what is between its marks, and keeps what is before and after them",
    END: "what follows stays",
}
ANY = re.compile(r"^(?:<!--|\[//\]: # \()\s*image-update(?:-[a-z]+)?: .*$", re.MULTILINE)
KEY = 8  # hexadecimal digits of a build, and of what is set
LONGEST = 65_536  # characters that are read of builds; more is nothing of ours
Builds = Mapping[str, Written]  # by `build_key`


def value_of(text: str, name: str, pattern: str = "[0-9a-f]{40,64}") -> str:
    """Return the value of our mark, or "". It is the last one, because nobody else's text comes after it."""
    found = re.findall(rf"^(?:<!--|\[//\]: # \()\s*{name}: ({pattern})\s*(?:-->|\))\s*$", text, re.MULTILINE)
    return str(found[-1]) if found else ""


def described(text: str) -> str:
    """Return the head commit in a body, or "" if there is none."""
    return value_of(text, DESCRIBED)


def split(text: str) -> tuple[str, str, str]:
    """Return what people wrote before our part of a body, our part with its marks, and what they wrote after it."""
    lines = list(ANY.finditer(text))
    start, end = (lines[0].start(), lines[-1].end()) if lines else (len(text), len(text))
    return text[:start], text[start:end], text[end:]


def beside(text: str, ours: str) -> str:
    """Return a body with this part in the place of our earlier one, or at its end."""
    before, known, after = split(text)
    if not known and before.strip():
        before = f"{before.rstrip()}\n\n"
    return f"{before}{ours.strip()}{after if after.strip() else chr(10)}"


def with_mark(text: str, name: str, value: str) -> str:
    """Return a body in which our mark has this value. Without a value, it has no such mark."""
    before, ours, after = split(text)
    shape = HIDDEN_WITHOUT_HTML if ours.startswith("[//]") else HIDDEN
    lines = [line for line in ours.split("\n") if not re.match(rf"(?:<!--|\[//\]: # \()\s*{name}: ", line)]
    at = len(lines) - 1 if lines and f"{END}: " in lines[-1] else len(lines)
    return before + "\n".join([*lines[:at], *([shape.format(name, value)] if value else []), *lines[at:]]) + after


def renamed(found: Proposed) -> bool:
    """Tell whether the request's title is a person's."""
    return value_of(found.body, TITLE) != digest(found.title)


def digest(title: str) -> str:
    """Return what a body says of the title that it got."""
    return sha256(" ".join(title.split()).encode("utf-8", "replace")).hexdigest()


def wish(kind: str, name: str = "") -> str:
    """Return a key for what a request should have: a label, a reviewer, an assignee, or `auto-merge`."""
    return sha256(f"{kind} {name}".lower().encode("utf-8", "replace")).hexdigest()[:KEY]


def wishes(proposal: Proposal) -> frozenset[str]:
    """Return the keys of all that a request should have."""
    kinds = (("label", proposal.labels), ("reviewer", proposal.reviewers), ("assignee", proposal.assignees))
    keys = [wish(kind, name) for kind, names in kinds for name in names]
    return frozenset([*keys, wish("auto-merge")] if proposal.auto_merge else keys)


def settled(text: str) -> frozenset[str]:
    """Return the keys of what runs have set on the request with this body."""
    keys = value_of(text, SETTLED, "[0-9a-f]+")
    return frozenset(keys[at : at + KEY] for at in range(0, len(keys), KEY))


def with_settled(text: str, keys: frozenset[str]) -> str:
    """Return the body with a mark of what is set."""
    return with_mark(text, SETTLED, "".join(sorted(keys)))


def lacking(proposal: Proposal, text: str) -> Proposal:
    """Return the proposal with only what no run has set on the request with this body."""
    known = settled(text)

    def new(kind: str, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if wish(kind, name) not in known)

    return replace(
        proposal,
        labels=new("label", proposal.labels),
        reviewers=new("reviewer", proposal.reviewers),
        assignees=new("assignee", proposal.assignees),
        auto_merge=proposal.auto_merge and wish("auto-merge") not in known,
    )


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
