"""Flux's setter comments: `{"$imagepolicy": "<namespace>:<name>[:tag|:name|:digest]"}` marks a scalar to update.

Flux v2 reads such comments in all YAML files of a path. Here, `<name>` is the entry's alias.
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
    """A marked scalar, and which part of the image it has."""

    document: Document
    node: Node
    part: str  # "tag", "name", "digest"; "" for the whole reference


def markers(tree: Tree, target: Target) -> Iterator[Marker]:
    """Yield the scalars that are marked for the target's alias, in the order of the text."""
    if SIGN not in tree.text:
        return
    namespace = target.application.partition("/")[0]
    alias = target.alias or target.image.repository.rpartition("/")[2]
    for match in _MARKER.finditer(tree.text):
        # In annotation names, AIU up to v0.18 writes an alias `a/b` as `a_b`, so people write that here, too.
        if match[1] != namespace or match[2] not in (alias, alias.replace("/", "_")):
            continue
        value = _value_before(tree, match.start())
        if value is not None:
            yield Marker(*value, match[3] or "")


def _value_before(tree: Tree, at: int) -> tuple[Document, Node] | None:
    """Return the value before a comment on its line.

    None if there is only a key, or if the `#` is part of a value.
    """
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
    """Return the new text of a marked scalar. Raises TargetError if it needs a digest and the image has none."""
    if marker.part == "tag":
        return image.tag or tag_value(image)
    if marker.part == "digest":
        if not image.digest:
            hint = "give the build's digest (--image-digest), or pin digests"
            raise TargetError("a marker asks for the digest, and the build gives none", hint=hint)
        return image.digest
    old = resolved(marker.document, marker.node).value
    name = spelled(image, target, old)
    return name if marker.part == "name" else replace(image, name=name).reference


def marked_image(marker: Marker) -> Image:
    """Return the parts of the image that are in a marked scalar now."""
    text = resolved(marker.document, marker.node).value
    blank = Image("", "", "")
    if marker.part in {"tag", "digest"}:
        return replace(blank, **{marker.part: text})
    return live_image(text) or blank
