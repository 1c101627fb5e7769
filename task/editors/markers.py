"""Flux's setter comments: `{"$imagepolicy": "<namespace>:<name>[:tag|:name|:digest]"}` marks a scalar to be set.

Flux v2 reads such a comment in any YAML file of a path. Here `<name>` is the entry's alias.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from task.editors.file_text import spelled, tag_value
from task.editors.yaml.layout import line_start
from task.editors.yaml.tree import Document, Node, Tree, resolved, walk
from task.errors import TargetError
from task.image import live_image
from task.model import Image, Target

SIGN = "$imagepolicy"
_MARKER = re.compile(r'#[^#\n\r]*?\{\s*"\$imagepolicy"\s*:\s*"([^":]+):([^":]+)(?::(tag|name|digest))?"\s*\}')


@dataclass(frozen=True)
class Marker:
    """A marked scalar and which part of the image it holds."""

    document: Document
    node: Node
    part: str  # "tag", "name", "digest"; "" for the whole reference


def markers(tree: Tree, target: Target) -> Iterator[Marker]:
    """The scalars marked for the target's alias, in the order of the text."""
    if SIGN not in tree.text:
        return
    namespace = target.application.partition("/")[0]
    alias = target.alias or target.image.repository.rpartition("/")[2]
    for match in _MARKER.finditer(tree.text):
        # AIU up to v0.18 looks an alias with a slash up as `a_b` in annotation names, so people write that here too.
        if match[1] != namespace or match[2] not in (alias, alias.replace("/", "_")):
            continue
        value = _value_before(tree, match.start())
        if value is not None:
            yield Marker(*value, match[3] or "")


def _value_before(tree: Tree, at: int) -> tuple[Document, Node] | None:
    """The value before a comment on its line; None behind a bare key, or where the `#` is part of a value."""
    start = line_start(tree.text, at)
    last = None
    for document in tree.documents:
        for node in walk(document.root):
            if node.kind not in {"scalar", "alias"}:
                continue
            if node.start <= at < node.end:
                return None
            if start <= node.start and node.end <= at:
                last = document, node
    return last if last and tree.key_of(last[1]) is not last[1] else None


def marked_text(marker: Marker, target: Target, image: Image) -> str:
    """The new text of a marked scalar. TargetError: it asks for a digest, and the image has none."""
    if marker.part == "tag":
        return image.tag or tag_value(image)
    if marker.part == "digest":
        if not image.digest:
            hint = "give the build's digest (--image-digest), or pin digests"
            raise TargetError("a marker asks for the digest, and the event has none", hint=hint)
        return image.digest
    old = resolved(marker.document, marker.node).value
    name = spelled(image, target, old)
    return name if marker.part == "name" else replace(image, name=name).reference


def marked_image(marker: Marker) -> Image:
    """What a marked scalar says about the image now."""
    text = resolved(marker.document, marker.node).value
    blank = Image("", "", "")
    if marker.part in {"tag", "digest"}:
        return replace(blank, **{marker.part: text})
    return live_image(text) or blank
