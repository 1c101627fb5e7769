"""Finds the image in places that nothing writes: scalars of a target's files that are the image at another version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from task.editors.file_text import belongs, tree_of
from task.editors.manifests import key_path
from task.editors.yaml.tree import Node, Tree, value, walk
from task.errors import TargetError
from task.image import live_image
from task.model import Files, Image, Target


def elsewhere(files: Files, paths: Iterable[str], target: Target, image: Image) -> Iterator[tuple[str, int]]:
    """Yield path and line of each such scalar. What belongs to another alias, or cannot be read, is left out."""
    last = re.escape(image.repository.rpartition("/")[2])
    # Parsing takes long, and most files have no other version.
    other = re.compile(rf"{last}[:@](?!{re.escape(image.version)}(?![\w.-]))\w")
    for path in paths:
        if not other.search(files[path].text):
            continue
        with suppress(TargetError):
            yield from ((path, line) for line in _lines(tree_of(files, path), target, image))


def _lines(tree: Tree, target: Target, image: Image) -> Iterator[int]:
    at, line = 0, 1
    for document in tree.documents:
        for node in walk(document.root):
            if node.kind != "scalar" or not _differs(node.value, image):
                continue
            if tree.key_of(node) is node or _of_another(tree, node, target):
                continue
            line += tree.text.count("\n", at, node.start)
            at = node.start
            yield line


def _differs(text: str, image: Image) -> bool:
    """Tell whether a text is this image and nothing else, at another version."""
    there = live_image(text) if image.repository.rpartition("/")[2] in text else None
    if there is None or there.identity != image.identity or not there.version:
        return False
    if there.tag and image.tag:
        return there.tag != image.tag
    return there.digest != image.digest


def _of_another(tree: Tree, node: Node, target: Target) -> bool:
    """Tell whether another alias writes the scalar, or it is an annotation that says what to track."""
    key, parent = tree.key_of(node), tree.parent(node)
    if key is not None and key.value.endswith("image-list"):
        return True
    named = value(parent, "name") if key is not None and key.value == "value" and parent is not None else None
    if {key_path(tree, node), named.value if named else ""} & set(target.managed):
        return True
    if target.kind == "manifests":
        return not belongs(target.image.identity, target, "manifests_name")
    return target.kind == "kustomize-override" and not belongs(target.image.identity, target, "kustomize_name")
