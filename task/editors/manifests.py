"""Plain manifests: the `image:` of containers, in any object that has them, and marked scalars.

What is no YAML (a chart's template) and what is no manifest is passed over.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, replace

from task.editors.markers import SIGN, marked_image, marked_text, markers
from task.editors.texts import MODES, about, alone, belongs, text_of
from task.editors.yaml.scalar import sound
from task.editors.yaml.splice import splice
from task.editors.yaml.tree import Document, Node, Tree, pairs, parse, resolved, users, value, walk
from task.errors import TargetError
from task.image import live_image
from task.model import Edit, File, Files, Image, Place, Reading, Target

SUFFIXES = (".yaml", ".yml", ".json")
_LISTS = frozenset(("containers", "initContainers", "ephemeralContainers"))


@dataclass(frozen=True)
class Hit:
    """A scalar that holds the image, or a part of it."""

    document: Document
    node: Node
    old: Image
    new: str  # "" when only reading


def places(target: Target) -> tuple[Place, ...]:
    """All manifests of the folder (with its sub-folders where the target says so), or the one file it names."""
    if target.path.endswith(SUFFIXES):
        return (Place(target.path),)
    return (Place(target.path, "tree" if target.recurse else "folder"),)


def read(files: Files, target: Target) -> Reading:
    """The first hit's name and version; not sound where others differ from it.

    TargetError: nothing in the folder has the image.
    """
    found = [(path, hit) for path, tree in _trees(files, target) for hit in _hits(tree, target, None)]
    if not found:
        raise _nothing(target)
    name = next((hit.old.name for _, hit in found if hit.old.name), "")
    tag = next((hit.old.tag for _, hit in found if hit.old.tag), "")
    digest = next((hit.old.digest for _, hit in found if hit.old.digest), "")
    alike = all((hit.old.tag or tag, hit.old.digest or digest) == (tag, digest) for _, hit in found if hit.old.version)
    firm = all(sound(resolved(hit.document, hit.node)) for _, hit in found)
    return Reading(name, tag, digest, sound=alike and firm, file=found[0][0])


def _nothing(target: Target) -> TargetError:
    name = target.keys.manifests_name or target.image.name
    hint = "name the folder (manifests:<path>), or the image as it stands there (<alias>.manifests.image-name)"
    return TargetError(f"no container in the manifests has the image {name}", hint=hint, subject=target.path or "/")


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Every manifest that changes. TargetError: nothing in the folder has the image."""
    changed: dict[str, File] = {}
    edits: list[Edit] = []
    seen = False
    for path, tree in _trees(files, target):
        with about(path):
            hits = list(_hits(tree, target, image))
            seen = seen or bool(hits)
            done = [hit for hit in hits if _differs(hit)]
            new = _rewrite(tree, done)
        if new.text != tree.text:
            changed[path] = File(new.text, files[path].mode)
            edits += [Edit(path, key_path(tree, hit.node), _text(hit), hit.new) for hit in done]
    if not seen:
        raise _nothing(target)
    return changed, tuple(edits)


def _text(hit: Hit) -> str:
    return resolved(hit.document, hit.node).value


def _differs(hit: Hit) -> bool:
    return _text(hit) != hit.new or not sound(resolved(hit.document, hit.node))


def _rewrite(tree: Tree, hits: list[Hit]) -> Tree:
    """All hits at once; an anchored scalar whose every use is a hit is written once, at its anchor."""
    wanted = {id(hit.node): hit.new for hit in hits}
    changes: list[tuple[Node, str]] = []
    for hit in hits:
        origin = resolved(hit.document, hit.node)
        others = users(hit.document, origin)
        together = bool(others) and all(wanted.get(id(each)) == hit.new for each in (origin, *others))
        if together and hit.node.kind == "alias":
            continue
        changes.append((hit.node if together else alone(tree, hit.document, hit.node), hit.new))
    return splice(tree, list({id(node): (node, text) for node, text in changes}.values())) if changes else tree


def _trees(files: Files, target: Target) -> Iterator[tuple[str, Tree]]:
    """The readable YAML files in which the image may stand, by path."""
    _refuse(files, target.path)
    names = [target.keys.manifests_name.rpartition("/")[2], target.image.repository.rpartition("/")[2]]
    for path in sorted(files):
        file = files[path]
        if not _inside(path, target) or file.mode in MODES or file.problem:
            continue
        if SIGN not in file.text and not any(name and name in file.text for name in names):
            continue
        try:
            yield path, parse(file.text)
        except TargetError:
            if path == target.path:
                raise


def _refuse(files: Files, path: str) -> None:
    if path in files and files[path].mode != "040000":
        text_of(files, path)
    elif path:
        text_of(files, posixpath.join(path, "_"))


def _inside(path: str, target: Target) -> bool:
    if path == target.path:
        return True
    folder = posixpath.dirname(path)
    below = not target.path or f"{folder}/".startswith(f"{target.path}/")
    return path.endswith(SUFFIXES) and (folder == target.path or (target.recurse and below))


def _hits(tree: Tree, target: Target, image: Image | None) -> Iterator[Hit]:
    """Marked scalars, then the images of containers."""
    marked = set()
    for marker in markers(tree, target):
        marked.add(id(marker.node))
        yield Hit(
            marker.document, marker.node, marked_image(marker), marked_text(marker, target, image) if image else ""
        )
    for other in target.others:  # their markers are theirs alone
        marked |= {id(marker.node) for marker in markers(tree, replace(target, alias=other.alias)) if other.alias}
    wanted = {target.image.identity}
    if (named := live_image(target.keys.manifests_name)) is not None:
        wanted.add(named.identity)
    for document, node in _container_images(tree):
        old = live_image(resolved(document, node).value)
        if not old or old.identity not in wanted or id(node) in marked:
            continue
        if belongs(old.identity, target, "manifests_name"):
            yield Hit(document, node, old, replace(image, name=old.name).reference if image else "")


def _container_images(tree: Tree) -> Iterator[tuple[Document, Node]]:
    for document in tree.documents:
        if not _is_manifest(document):
            continue
        for node in walk(document.root):
            for key, each in pairs(node) if node.kind == "mapping" else ():
                if key.value in _LISTS:
                    yield from ((document, image) for image in _images(document, each))


def _is_manifest(document: Document) -> bool:
    root = document.root
    return root.kind == "mapping" and all(value(root, key) is not None for key in ("apiVersion", "kind"))


def _images(document: Document, containers: Node) -> Iterator[Node]:
    """The `image:` of each container in a list; what an alias stands for is met where it is written."""
    for container in containers.children if containers.kind == "sequence" else ():
        image = value(container, "image") if container.kind == "mapping" else None
        if image is not None and resolved(document, image).kind == "scalar":
            yield image


def key_path(tree: Tree, node: Node) -> str:
    """`spec.containers[0].image`: where a node stands in its document."""
    steps: list[str] = []
    for each in tree.ancestors(node):
        parent = tree.parent(each)
        if parent is not None and parent.kind == "sequence":
            steps.append(f"[{next(number for number, item in enumerate(parent.children) if item is each)}]")
        elif parent is not None and (key := tree.key_of(each)) is not None:
            steps.append(f".{key.value}")
    return "".join(reversed(steps)).lstrip(".")
