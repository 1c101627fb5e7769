"""Reads and writes `kustomize.images` in an override file: `[name=]image[:tag][@digest]`.

Argo CD passes the entries to `kustomize edit set image`. Here, entries are compared by the
repository's normal form. Argo CD's own `KustomizeImage.Match` compares everything before the first
`=`, `:`, or `@`, so an image from `registry:5000` overwrites a different image (AIU issue 516).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from task.editors import kustomization
from task.editors.file_text import about, belongs, identity_of, refuse_taken, result, spelled
from task.editors.kustomization import Replacement, reading_of
from task.editors.overrides import (
    Below,
    Section,
    Stray,
    below,
    elements,
    follow,
    grow,
    load,
    origin_comment,
    places,
)
from task.editors.yaml.edit import alone, splice
from task.editors.yaml.tree import Node, Tree, resolved
from task.errors import TargetError
from task.image import live_image
from task.model import Edit, Files, Image, Reading, Target

__all__ = ["places", "read", "strays", "write"]

SECTION = Section("kustomize", "images")


@dataclass(frozen=True)
class KustomizeImage:
    """An entry, `left=right`: `left` is the name in the manifests, and `right` is the image."""

    left: str  # "" if there is no `=`
    right: str

    @property
    def identity(self) -> str:
        """The new image's repository in normal form, or "" if `right` is not an image."""
        image = live_image(self.right)
        return image.identity if image else ""

    @property
    def text(self) -> str:
        """The entry as a string."""
        return f"{self.left}={self.right}" if self.left else self.right

    @property
    def key(self) -> str:
        """The name that the entry replaces in the manifests, in normal form."""
        return identity_of(self.left) if self.left else self.identity


def parse_entry(text: str) -> KustomizeImage:
    """Parse an entry."""
    left, equals, right = text.partition("=")
    return KustomizeImage(left, right) if equals else KustomizeImage("", text)


def read(files: Files, target: Target) -> Reading:
    """Return the image's version according to its entries.

    The reading is not sound if the entries do not yet replace the name in the manifests with the
    image.
    """
    refuse_taken(target)
    path, tree = load(files, target, SECTION)
    mine = [entry for _, entry in _entries(elements(tree, SECTION)) if _is_of_image(entry, target)]
    if not mine or live_image(mine[0].right) is None:
        return Reading(file=path)
    every = _replacements(mine)
    found = reading_of(edited(every), every, target, path)
    return replace(
        found,
        sound=found.sound and all(entry.identity == target.image.identity for entry in mine),
    )


def read_below(files: Files, target: Target) -> Reading:
    """Return the version in the entries that Argo CD uses if the override file does not have any.

    The kustomization file is the one in the source's path.
    """
    spec = [parse_entry(text) for text in target.source.images]
    if target.kind == "kustomize-override":
        there = _below(files, replace(target, carry=None))
        spec = [entry for entry, _ in there.origins.values()] if there.used else []
    folder = target.source.path.strip("/")
    in_file = []
    with suppress(TargetError):  # the file may not exist, or may be in a different repository
        in_file = kustomization.replacements(files, replace(target, path=folder))
    in_spec = _replacements(entry for entry in spec if _is_of_image(entry, target))
    every = edited([*in_file, *in_spec]) if in_spec else in_file
    return reading_of(every, every, target, "") if every else Reading()


def given_replacements(images: Iterable[str]) -> list[Replacement]:
    """Return the `kustomize.images` entries in the form used in a kustomization file."""
    return _replacements(map(parse_entry, images))


def edited(entries: Iterable[Replacement]) -> list[Replacement]:
    """Return the entries after `kustomize edit set image`: the last entry for each name,
    sorted by name.
    """
    by_name = {replacement.name: replacement for replacement in entries}
    return [by_name[name] for name in sorted(by_name)]


def _replacements(entries: Iterable[KustomizeImage]) -> list[Replacement]:
    """Return the entries in the form used in a kustomization file."""
    images = [(entry.left, live_image(entry.right)) for entry in entries]
    return [
        Replacement(
            left or image.name,
            image.name if left else "",
            image.tag,
            image.digest,
        )
        for left, image in images
        if image
    ]


def _entries(nodes: Iterable[Node]) -> list[tuple[Node, KustomizeImage]]:
    """Return the node and entry of each string element."""
    return [
        (node, parse_entry(resolved(node).value))
        for node in nodes
        if resolved(node).kind == "scalar"
    ]


def _is_of_image(entry: KustomizeImage, target: Target) -> bool:
    """Return whether an entry is for the target's image: either the result is the image,
    or the entry has the annotated name.
    """
    name = target.keys.kustomize_name
    about = entry.identity == target.image.identity or bool(name and entry.key == identity_of(name))
    return about and belongs(entry.key, target, "kustomize_name")


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the file with the new version in all entries for the image, and copies of the spec's
    other entries.

    An entry with an origin comment follows its origin, and is removed if the origin is removed. All
    other entries are kept.
    """
    refuse_taken(target)
    path, tree = load(files, target, SECTION)
    now = _entries(elements(tree, SECTION))
    there = _below(files, target)
    renewed = _wanted_entries(tree, there, target, image)
    changes = [
        (node, entry, fresh)
        for (node, entry), fresh in zip(now, renewed, strict=True)
        if fresh != entry
    ]
    missing = _entries_to_append(renewed, there.origins, target, image, carries=there.carries)

    def key_of(node: Node) -> str | None:
        entry = parse_entry(resolved(node).value)
        return None if _is_of_image(entry, target) else entry.key

    with about(path):
        tree = splice(tree, [(alone(tree, node), fresh.text) for node, _, fresh in changes])
        tree = grow(tree, SECTION, [entry.text for entry in missing])
        added = {entry.key for entry in missing if not _is_of_image(entry, target)}
        tree = follow(tree, SECTION, there, key_of, added)
    left = [entry for _, entry in _entries(elements(tree, SECTION))]
    edits = [
        *(Edit(path, _key(fresh), entry.text, fresh.text) for _, entry, fresh in changes),
        *(Edit(path, _key(entry), "", entry.text) for entry in missing),
        *(Edit(path, _key(entry), entry.text, "") for entry in renewed if entry not in left),
    ]
    same = [
        Edit(path, _key(entry), entry.text, entry.text)
        for entry in renewed
        if _is_of_image(entry, target)
    ]
    return result(files, path, tree.text, [*edits, *same])


def _wanted_entries(
    tree: Tree,
    there: Below[KustomizeImage],
    target: Target,
    image: Image,
) -> list[KustomizeImage]:
    """Return the wanted text of each entry in the file: the image's own entries have the new
    version, and copies follow their origin.
    """
    spec = there.origins
    renewed: list[KustomizeImage] = []
    own: list[int] = []
    for place, (node, entry) in enumerate(_entries(elements(tree, SECTION))):
        if _is_of_image(entry, target):
            own.append(place)
            renewed.append(_at_version(entry, spec, target, image))
        elif there.carries and entry.key in spec and origin_comment(tree, node) is not None:
            theirs, _ = spec[entry.key]
            renewed.append(
                entry if _as_kustomize_reads(theirs) == _as_kustomize_reads(entry) else theirs
            )
        else:
            renewed.append(entry)
    name = target.keys.kustomize_name
    if name and own and identity_of(name) not in {entry.key for entry in renewed}:
        # replaces a different name that resulted in the image
        first = own[0]
        renewed[first] = KustomizeImage(name, renewed[first].right)
    return renewed


def strays(files: Files, target: Target) -> tuple[Stray, ...]:
    """Return each entry that was edited to differ from its origin, and each entry that a
    hand-written list hides.
    """
    if target.carry is False:
        return ()
    _, tree = load(files, target, SECTION)
    there = _below(files, target)
    spec = there.origins
    strays = dict[str, Stray]()
    names = set[str]()
    for node, entry in _entries(elements(tree, SECTION)):
        names.add(entry.key)
        theirs, origin = spec.get(entry.key, (entry, ""))
        managed = {entry.key, entry.identity, entry.left, entry.right} & set(target.managed)
        if managed or _is_of_image(entry, target):
            continue
        if _as_kustomize_reads(theirs) != _as_kustomize_reads(entry) and not origin_comment(
            tree,
            node,
        ):
            strays[_key(entry)] = Stray(_key(entry), origin, hidden=False)
    if not there.carries:
        for key, (entry, origin) in spec.items():
            if key not in names and not _is_of_image(entry, target):
                strays[_key(entry)] = Stray(_key(entry), origin, hidden=True)
    return tuple(strays.values())


def _key(entry: KustomizeImage) -> str:
    image = live_image(entry.right)
    return f"kustomize.images[{entry.left or (image.name if image else entry.right)}]"


# by key: the entry, and its origin comment
Carried = Mapping[str, tuple[KustomizeImage, str]]


def _below(files: Files, target: Target) -> Below[KustomizeImage]:
    spec = {entry.key: entry for entry in map(parse_entry, target.source.images)}
    return below(
        files,
        target,
        SECTION,
        spec,
        lambda nodes: {entry.key: entry for _, entry in _entries(nodes)},
    )


def _at_version(
    entry: KustomizeImage,
    spec: Carried,
    target: Target,
    image: Image,
) -> KustomizeImage:
    """Return the image's entry with the new version, keeping the spelling of the image's name."""
    others = (other.right for other, _ in spec.values())
    full = spelled(image, target, entry.right, *others)
    name = target.keys.kustomize_name
    left = entry.left or (name if name and entry.identity != image.identity else "")
    return KustomizeImage(left, replace(image, name=full).reference)


def _as_kustomize_reads(entry: KustomizeImage) -> tuple[str, ...]:
    """Return the entry in the form that Kustomize reads, which is the same for all spellings."""
    image = live_image(entry.right)
    if image is None:
        return entry.key, entry.right
    return entry.key, image.identity, image.tag, image.digest


def _entries_to_append(
    now: list[KustomizeImage],
    spec: Carried,
    target: Target,
    image: Image,
    *,
    carries: bool,
) -> list[KustomizeImage]:
    """Return the entries to append: the spec's entries that the file lacks,
    and the image's own entry if there is none.
    """
    keys = {entry.key for entry in now}
    lacking = [
        entry
        for entry, _ in spec.values()
        if entry.key not in keys and (carries or _is_of_image(entry, target))
    ]
    carried = [
        _at_version(entry, spec, target, image) if _is_of_image(entry, target) else entry
        for entry in lacking
    ]
    name = target.keys.kustomize_name
    if any(
        entry.key == identity_of(name) if name else _is_of_image(entry, target)
        for entry in (*now, *carried)
    ):
        return carried
    full = spelled(image, target, *(other.right for other, _ in spec.values()))
    return [*carried, KustomizeImage(name, replace(image, name=full).reference)]
