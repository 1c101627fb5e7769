"""`kustomize.images` of an override file: `[name=]image[:tag][@digest]`, as `kustomize edit set image` takes them.

Entries are compared by the repository's normal form, never by text up to a colon: an image of
`registry:5000` must not overwrite another (Argo CD Image Updater issue 516).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from task.editors.argocd_source import (
    FROM_COMMON,
    FROM_SPEC,
    Section,
    common_document,
    elements,
    grow,
    load,
    origin_comment,
    places,
    set_origin_comments,
    without,
)
from task.editors.file_text import alone, belongs, identity_of, refuse_taken, result, single, spelled
from task.editors.yaml.splice import splice
from task.editors.yaml.tree import Document, Node, Tree, resolved
from task.image import live_image
from task.model import Edit, Files, Image, Reading, Target

__all__ = ["places", "read", "strays", "write"]

SECTION = Section("kustomize", "images")


@dataclass(frozen=True)
class KustomizeImage:
    """One entry: `left=right`, `left` being the name in the manifests."""

    left: str  # "" where there is no `=`
    right: str

    @property
    def identity(self) -> str:
        """The repository of the new image, in normal form; "" where it cannot be read."""
        image = live_image(self.right)
        return image.identity if image else ""

    @property
    def text(self) -> str:
        """The entry as it is written."""
        return f"{self.left}={self.right}" if self.left else self.right

    @property
    def key(self) -> str:
        """The name in the manifests that the entry is for, in normal form."""
        return identity_of(self.left) if self.left else self.identity


def entry(text: str) -> KustomizeImage:
    """The entry of a text."""
    left, equals, right = text.partition("=")
    return KustomizeImage(left, right) if equals else KustomizeImage("", text)


def read(files: Files, target: Target) -> Reading:
    """The image's entry; not sound where the name in the manifests does not lead to the image yet."""
    refuse_taken(target)
    path, _, document = load(files, target)
    wanted = identity_of(target.keys.kustomize_name)
    mine = [one for one in _entries(document, path) if _mine(one[1], target)]
    mine.sort(key=lambda one: one[1].key != wanted if wanted else False)
    if not mine or (image := live_image(mine[0][1].right)) is None:
        return Reading(file=path)
    ours = all(each.identity == target.image.identity for _, each in mine)
    leads = ours and mine[0][1].key == (wanted or mine[0][1].key)
    alike = all((other := live_image(each.right)) and other.version == image.version for _, each in mine)
    return Reading(image.name, image.tag, image.digest, sound=leads and alike, file=path)


def _entries(document: Document | None, path: str) -> list[tuple[Node, KustomizeImage]]:
    """The elements that are texts."""
    found = elements(document, SECTION, path)
    nodes = [(each, resolved(document, each)) for each in found] if document else []
    return [(each, entry(node.value)) for each, node in nodes if node.kind == "scalar"]


def _mine(each: KustomizeImage, target: Target) -> bool:
    """Whether an entry is about the image: it leads to it, or starts from its name in the manifests."""
    name = target.keys.kustomize_name
    about = each.identity == target.image.identity or bool(name and each.key == identity_of(name))
    return about and belongs(each.key, target, "kustomize_name")


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """The file with all entries of the image at its version, and with the spec's others carried along.

    An entry with an origin comment follows its origin, and goes when that is gone; every other one stays.
    """
    refuse_taken(target)
    path, tree, document = load(files, target)
    now, spec = _entries(document, path), _spec(files, target)
    renewed: list[KustomizeImage] = []
    for node, each in now:
        if _mine(each, target):
            renewed.append(_at(each, spec, target, image))
        elif target.carry and each.key in spec and origin_comment(tree, node) is not None:
            theirs, _ = spec[each.key]
            renewed.append(each if _says(theirs) == _says(each) else theirs)
        else:
            renewed.append(each)
    name = target.keys.kustomize_name
    first = next((place for place, (_, each) in enumerate(now) if _mine(each, target)), None)
    if name and first is not None and identity_of(name) not in {each.key for each in renewed}:
        renewed[first] = KustomizeImage(name, renewed[first].right)  # another name led to the image: ours replaces it
    changes = [(node, each, fresh) for (node, each), fresh in zip(now, renewed, strict=True) if fresh != each]
    if changes and document:
        tree = splice(tree, [(alone(tree, document, node), fresh.text) for node, _, fresh in changes])
    missing = _missing(renewed, spec, target, image)
    tree = grow(tree, SECTION, [each.text for each in missing], path)

    def gone(tree: Tree, node: Node) -> bool:
        each = entry(resolved(tree.documents[0], node).value)
        return not _mine(each, target) and each.key not in spec and origin_comment(tree, node) is not None

    def origin(tree: Tree, node: Node) -> str | None:
        each = entry(resolved(tree.documents[0], node).value)
        if _mine(each, target):
            return ""
        follows = each in missing or (origin_comment(tree, node) and target.carry)
        return spec[each.key][1] if follows and each.key in spec else None

    if target.carry:
        tree = without(tree, SECTION, path, gone)
    tree = set_origin_comments(tree, SECTION, path, origin)
    edits = [Edit(path, _key(fresh), each.text, fresh.text) for _, each, fresh in changes]
    edits += [Edit(path, _key(each), "", each.text) for each in missing]
    left = [each for _, each in _entries(single(tree, path), path)]
    edits += [Edit(path, _key(each), each.text, "") for each in renewed if each not in left]
    said = [Edit(path, _key(each), each.text, each.text) for each in renewed if _mine(each, target)]
    return result(files, path, tree.text, tuple(edits or said[:1]))


def strays(files: Files, target: Target) -> tuple[tuple[str, str], ...]:
    """(name, origin) of each entry that a person wrote, and whose origin has another image or version."""
    if not target.carry:
        return ()
    path, tree, document = load(files, target)
    spec, found = _spec(files, target), dict[str, str]()
    for node, each in _entries(document, path):
        theirs, origin = spec.get(each.key, (each, ""))
        managed = {each.key, each.identity, each.left, each.right} & set(target.managed)
        if not managed and not _mine(each, target) and _says(theirs) != _says(each) and not origin_comment(tree, node):
            found[_key(each)] = origin
    return tuple(found.items())


def _key(each: KustomizeImage) -> str:
    image = live_image(each.right)
    return f"kustomize.images[{each.left or (image.name if image else each.right)}]"


Carried = Mapping[str, tuple[KustomizeImage, str]]  # by key; with the comment that says where it is from


def _spec(files: Files, target: Target) -> Carried:
    """What the spec and the common file hold, the latter winning for one name in the manifests."""
    path, common = common_document(files, target) if target.carry else ("", None)
    entries = [(entry(text), FROM_SPEC) for text in target.source.images]
    entries += [(each, FROM_COMMON) for _, each in _entries(common, path)]
    return {each.key: (each, origin) for each, origin in entries}


def _at(each: KustomizeImage, spec: Carried, target: Target, image: Image) -> KustomizeImage:
    """An entry of the image at its new version, its name spelled as before."""
    full = spelled(image, target, each.right, *(other.right for other, _ in spec.values()))
    name = target.keys.kustomize_name
    left = each.left or (name if name and each.identity != image.identity else "")
    return KustomizeImage(left, replace(image, name=full).reference)


def _says(each: KustomizeImage) -> tuple[str, ...]:
    image = live_image(each.right)
    return (each.key, image.identity, image.tag, image.digest) if image else (each.key, each.right)


def _missing(now: list[KustomizeImage], spec: Carried, target: Target, image: Image) -> list[KustomizeImage]:
    """The entries to append: those of the spec that the file lacks, and the image's own if none is there."""
    keys = {each.key for each in now}
    lacking = [each for each, _ in spec.values() if each.key not in keys and (target.carry or _mine(each, target))]
    carried = [_at(each, spec, target, image) if _mine(each, target) else each for each in lacking]
    name = target.keys.kustomize_name
    if any(each.key == identity_of(name) if name else _mine(each, target) for each in (*now, *carried)):
        return carried
    full = spelled(image, target, *(other.right for other, _ in spec.values()))
    return [*carried, KustomizeImage(name, replace(image, name=full).reference)]
