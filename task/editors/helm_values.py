"""A Helm values file: name, tag or whole reference at the key paths that the annotations name.

Only the first document counts, as for Helm. Only annotated keys are written; with none
annotated `image.tag`, and `image.name` where the file has it.
"""

from __future__ import annotations

from dataclasses import replace

from task.editors.texts import about, alone, chosen, result, rooted, split_tag, tag_value, text_of, tree_of
from task.editors.yaml.grow import add_keys, begin
from task.editors.yaml.layout import Data
from task.editors.yaml.path import find, locate, parse_path
from task.editors.yaml.scalar import sound
from task.editors.yaml.splice import splice
from task.editors.yaml.tree import Document, Node, Tree, parse, resolved
from task.errors import AnnotationError, TargetError
from task.image import live_image
from task.model import Edit, Files, Image, Keys, Place, Reading, Target

_HEAD = "# written by image-update\n\n"


def places(target: Target) -> tuple[Place, ...]:
    """The values file."""
    return (Place(target.path), *map(Place, target.fallbacks))


def read(files: Files, target: Target) -> Reading:
    """What Helm reads at the key paths, aliases and merge keys followed; a missing file or key says nothing."""
    keys = _keys(target.keys)
    path = chosen(files, target)
    tree = tree_of(files, path)
    with about(path):
        document = rooted(tree.documents[0], path) if tree.documents else None
        nodes = {key: _look(tree, document, key) for key in (keys.name, keys.tag, keys.spec) if key}
        same = all(_once(document, key) for key in nodes) if document else True
    texts = {key: node.value if node else "" for key, node in nodes.items()}
    good = same and all(node is None or (sound(node) and node.value == node.value.strip()) for node in nodes.values())
    if keys.spec:
        image = live_image(texts[keys.spec])
        return Reading(*(image.name, image.tag, image.digest) if image else ("", "", ""), sound=good, file=path)
    tag, digest = split_tag(texts[keys.tag].strip())
    return Reading(texts.get(keys.name, "").strip(), tag, digest, sound=good, file=path)


def _keys(keys: Keys) -> Keys:
    """The key paths in use: spec alone, or tag and name."""
    if keys.spec:
        return Keys(spec=keys.spec)
    if keys.name and not keys.tag:
        hint = "annotate <alias>.helm.image-tag, or use <alias>.helm.image-spec for both in one value"
        raise AnnotationError("only helm.image-name is annotated: the tag would go nowhere", hint=hint)
    if keys.name and keys.name == keys.tag:
        hint = f"write helm.image-spec: {keys.name}"
        raise AnnotationError(f"helm.image-name and helm.image-tag are both {keys.name!r}", hint=hint)
    return Keys(tag=keys.tag, name=keys.name) if keys.tag else Keys(tag="image.tag", name="image.name")


def _look(tree: Tree, document: Document | None, key: str) -> Node | None:
    """The scalar at a key path; None where there is none. TargetError where none could be written either."""
    if document is None or document.root.null:
        parse_path(key)
        return None
    path = parse_path(key)
    nodes = find(document, path, merges=True)
    if not nodes:
        locate(tree, document, path)
        return None
    node = resolved(document, nodes[-1])
    if node.kind != "scalar":
        what = "list" if node.kind == "sequence" else "mapping"
        raise TargetError(f"line {tree.line(node)}: {key} is a {what}, not a single value", hint="name a key inside it")
    return None if node.null else node


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """The values file with the image at its keys, tag before name; a missing file is created."""
    keys = _keys(target.keys)
    path = chosen(files, target)
    text = text_of(files, path) or ""
    tree = tree_of(files, path) if text.strip("\ufeff \t\r\n") else parse(_HEAD)
    edits = []
    with about(path):
        for key in (keys.spec, keys.tag, keys.name):
            old = _current(tree, key, path)
            if not key or (key == keys.name and not target.keys.name and not old):
                continue
            new = _value(keys, key, old, target, image)
            tree = _put(tree, key, new, path)
            edits.append(Edit(path, key, old, new))
    changed = tuple(edit for edit in edits if edit.old != edit.new)
    return result(files, path, tree.text, changed or tuple(edits[:1]))


def _once(document: Document, key: str) -> bool:
    """Whether a key that stands several times says the same each time."""
    return len({resolved(document, node).value for node in find(document, parse_path(key), merges=True)}) <= 1


def _current(tree: Tree, key: str, path: str) -> str:
    document = rooted(tree.documents[0], path) if tree.documents else None
    node = _look(tree, document, key) if key else None
    return node.value.strip() if node else ""


def _value(keys: Keys, key: str, old: str, target: Target, image: Image) -> str:
    if key == keys.tag:
        return tag_value(image)
    name = _name(old, target, image)
    return replace(image, name=name).reference if key == keys.spec else name


def _name(old: str, target: Target, image: Image) -> str:
    """The image's name, in the short form (without its registry) where the file has it so."""
    there = live_image(old)
    if there and there.identity == image.identity:
        return there.name
    full = target.image.name if target.image.identity == image.identity else image.name
    registry, slash, rest = full.partition("/")
    short = there and not _is_host(there.name.partition("/")[0])
    return rest if short and slash and _is_host(registry) else full


def _is_host(part: str) -> bool:
    return "." in part or ":" in part or part == "localhost"


def _put(tree: Tree, key: str, text: str, path: str) -> Tree:
    """The tree with `text` at a key path; what is missing on the way is made."""
    steps = parse_path(key)
    if not tree.documents:
        return begin(tree, _nested([step.name for step in steps if not _refuse_index(step.text, step.name)], text))
    document = rooted(tree.documents[0], path)
    spot = locate(tree, document, steps)
    if spot.parent is not None:
        parent = alone(tree, document, spot.parent)
        return add_keys(tree, parent, _nested(list(spot.missing), text))
    changes = [(alone(tree, document, node), text) for node in spot.nodes if not _says(document, node, text)]
    return splice(tree, [(node, new) for node, new in changes]) if changes else tree


def _refuse_index(text: str, name: str) -> bool:
    if text != name:
        raise TargetError(f"{text}: there is no list {name}", hint="create the list in the file first")
    return False


def _says(document: Document, node: Node, text: str) -> bool:
    there = resolved(document, node)
    return there.kind == "scalar" and there.value == text and sound(there)


def _nested(names: list[str], text: str) -> dict[str, Data]:
    data: Data = text
    for name in reversed(names[1:]):
        data = {name: data}
    return {names[0]: data}
