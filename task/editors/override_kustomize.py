"""Reads and writes `kustomize.images` in an override file: `[name=]image[:tag][@digest]`.

Argo CD passes the entries to `kustomize edit set image`. Here, entries are compared by the
repository's normal form. Argo CD's own `KustomizeImage.Match` compares everything before the first
`=`, `:`, or `@`, so an image from `registry:5000` overwrites other images from that registry (AIU
issue 516).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from task.editors import kustomization
from task.editors.file_text import (
    about,
    belongs,
    identity_of,
    name_as_spelled,
    refuse_taken_entry,
    result_of_write,
)
from task.editors.kustomization import Replacement, reading_of
from task.editors.overrides import (
    LowerLayer,
    Section,
    Stray,
    elements,
    is_copy,
    load,
    places,
    read_lower_layer,
    with_new_elements,
    with_updated_copies,
)
from task.editors.yaml.edit import require_unshared, splice
from task.editors.yaml.tree import Node, Tree, resolved
from task.errors import TargetError
from task.image import live_image
from task.model import Edit, Files, Image, Reading, Target

__all__ = ["places", "read", "strays", "write"]

SECTION = Section("kustomize", "images")


@dataclass(frozen=True)
class KustomizeImage:
    """An entry of the form `left=right`, where `left` is the name in the manifests, and `right` is
    the image.
    """

    left: str  # "" if there is no `=`
    right: str

    @property
    def identity(self) -> str:
        """The normalized repository of the new image, or "" if `right` is not an image."""
        image = live_image(self.right)
        return image.identity if image else ""

    @property
    def text(self) -> str:
        """The entry as a string."""
        return f"{self.left}={self.right}" if self.left else self.right

    @property
    def key(self) -> str:
        """The name that the entry replaces in the manifests, in its normal form."""
        return identity_of(self.left) if self.left else self.identity


def parse_entry(text: str) -> KustomizeImage:
    """Return the entry parsed from a string such as `name=ghcr.io/acme/api:1.2`."""
    left, equals, right = text.partition("=")
    return KustomizeImage(left, right) if equals else KustomizeImage("", text)


def read(files: Files, target: Target) -> Reading:
    """Return the image's version according to the image's entries in the override file. All parts
    are "" if the image has no entry, or if the right side of its first entry is not an image.

    The reading is not sound (the entries must be rewritten) if one of the entries resolves to a
    different image, or in the cases that `reading_of` lists.
    """
    refuse_taken_entry(target)
    path, tree = load(files, target, SECTION)
    entries = [entry for _, entry in _entries(elements(tree, SECTION))]
    own_entries = [entry for entry in entries if _is_of_image(entry, target)]
    if not own_entries:
        return Reading(file=path)
    has_image = live_image(own_entries[0].right) is not None
    if not has_image:
        return Reading(file=path)
    written_entries = _replacements(own_entries)
    applied_entries = edited(written_entries)  # as stored by `kustomize edit set image`
    reading = reading_of(applied_entries, written_entries, target, path)
    all_give_the_image = all(entry.identity == target.image.identity for entry in own_entries)
    return replace(reading, sound=reading.sound and all_give_the_image)


def read_below(files: Files, target: Target) -> Reading:
    """Return the image's version in the layers below the override file. Argo CD uses these layers
    if the override file contains no list.

    The layers are the entries of the kustomization file in the source's path, and those of the
    Application's spec or of `.argocd-source.yaml`.
    """
    if target.kind == "kustomize-override":
        lower_entries: list[KustomizeImage] = []
        # Reset `carry`, which could include the spec's entries even though Argo CD ignores them.
        lower_layer = _lower_layer(files, replace(target, carry=None))
        if lower_layer.used:
            lower_entries = [entry for entry, _ in lower_layer.origins.values()]
    else:
        lower_entries = [parse_entry(text) for text in target.source.images]
    lower_replacements = _replacements(
        entry for entry in lower_entries if _is_of_image(entry, target)
    )

    folder = target.source.path.strip("/")
    file_replacements: list[Replacement] = []
    with suppress(TargetError):  # the file may not exist, or may be in a different repository
        file_replacements = kustomization.replacements(files, replace(target, path=folder))

    replacements = file_replacements
    if lower_replacements:
        replacements = edited([*file_replacements, *lower_replacements])
    if not replacements:
        return Reading()
    return reading_of(replacements, replacements, target, "")


def given_replacements(images: Iterable[str]) -> list[Replacement]:
    """Return these `kustomize.images` entries in the form used in a kustomization file."""
    return _replacements(map(parse_entry, images))


def edited(entries: Iterable[Replacement]) -> list[Replacement]:
    """Return the entries as they are after `kustomize edit set image`: the last entry for each
    name, sorted by name.
    """
    by_name = {replacement.name: replacement for replacement in entries}
    return [by_name[name] for name in sorted(by_name)]


def _replacements(entries: Iterable[KustomizeImage]) -> list[Replacement]:
    """Return the entries in the form used in a kustomization file, omitting entries that are not
    images.
    """
    replacements = []
    for entry in entries:
        image = live_image(entry.right)
        if image is not None:
            name = entry.left or image.name
            new_name = image.name if entry.left else ""
            replacements.append(
                Replacement(name=name, new=new_name, tag=image.tag, digest=image.digest)
            )
    return replacements


def _entries(nodes: Iterable[Node]) -> list[tuple[Node, KustomizeImage]]:
    """Return the node and the parsed entry of each string element."""
    return [
        (node, parse_entry(resolved(node).value))
        for node in nodes
        if resolved(node).kind == "scalar"
    ]


def _is_of_image(entry: KustomizeImage, target: Target) -> bool:
    """Return whether an entry is for the target's image, and not for another alias of that image.

    Either the entry results in the image, or it replaces the name in `kustomize.image-name`.
    """
    annotated = target.keys.kustomize_name
    gives_the_image = entry.identity == target.image.identity
    has_annotated_name = annotated != "" and entry.key == identity_of(annotated)
    if not gives_the_image and not has_annotated_name:
        return False
    return belongs(entry.key, target, "kustomize_name")


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the override file with the new version in all entries for the image, and with copies
    of the other entries in the Application's spec or `.argocd-source.yaml`.

    A copy has a comment that names its origin, from which it was copied. The copy is updated when
    the origin changes, and removed when the origin is removed. All other entries are kept.
    """
    refuse_taken_entry(target)
    path, tree = load(files, target, SECTION)
    old_entries = _entries(elements(tree, SECTION))
    lower_layer = _lower_layer(files, target)
    wanted_entries = _wanted_entries(tree, lower_layer, target, image)
    appended = _entries_to_append(wanted_entries, lower_layer, target, image)
    changes = [
        (node, old, new)
        for (node, old), new in zip(old_entries, wanted_entries, strict=True)
        if new != old
    ]

    def key_of(node: Node) -> str | None:
        """Return an entry's key, or None for one of the image's own entries."""
        entry = parse_entry(resolved(node).value)
        return None if _is_of_image(entry, target) else entry.key

    with about(path):
        # Update the existing entries first, then append new entries, and finally update all origin
        # comments.
        tree = splice(tree, [(require_unshared(tree, node), new.text) for node, _, new in changes])
        tree = with_new_elements(tree, SECTION, [entry.text for entry in appended])
        copied_keys = {entry.key for entry in appended if not _is_of_image(entry, target)}
        tree = with_updated_copies(tree, SECTION, lower_layer, key_of, copied_keys)

    remaining = [entry for _, entry in _entries(elements(tree, SECTION))]
    # copies whose origin no longer exists
    removed = [entry for entry in wanted_entries if entry not in remaining]
    edits = [
        *(Edit(path, _key_in_edit(new), old.text, new.text) for _, old, new in changes),
        *(Edit(path, _key_in_edit(entry), "", entry.text) for entry in appended),
        *(Edit(path, _key_in_edit(entry), entry.text, "") for entry in removed),
    ]
    # `result_of_write` uses these edits if only quotes or a comment changed.
    unchanged = [
        Edit(path, _key_in_edit(entry), entry.text, entry.text)
        for entry in wanted_entries
        if _is_of_image(entry, target)
    ]
    return result_of_write(files, path, tree.text, [*edits, *unchanged])


def _wanted_entries(
    tree: Tree,
    lower_layer: LowerLayer[KustomizeImage],
    target: Target,
    image: Image,
) -> list[KustomizeImage]:
    """Return the wanted form of each entry in the file: the image's own entries have the new
    version, copies match the entries from which they were copied, and all other entries are
    unchanged.
    """
    origins = lower_layer.origins
    wanted_entries: list[KustomizeImage] = []  # one per entry in the file
    own_numbers: list[int] = []  # the positions of the image's own entries
    for number, (node, entry) in enumerate(_entries(elements(tree, SECTION))):
        if _is_of_image(entry, target):
            own_numbers.append(number)
            wanted_entries.append(_entry_at_version(entry, origins, target, image))
        elif lower_layer.copied and entry.key in origins and is_copy(tree, node):
            original, _ = origins[entry.key]
            # An entry with the same meaning keeps its spelling.
            wanted_entries.append(original if _have_different_meanings(entry, original) else entry)
        else:
            wanted_entries.append(entry)

    annotated = target.keys.kustomize_name
    if not annotated or not own_numbers:
        return wanted_entries
    keys = {entry.key for entry in wanted_entries}
    if identity_of(annotated) not in keys:
        # So far, the image's entries replace other names. Use the annotated name in the first one.
        first_number = own_numbers[0]
        first_entry = wanted_entries[first_number]
        wanted_entries[first_number] = KustomizeImage(annotated, first_entry.right)
    return wanted_entries


def strays(files: Files, target: Target) -> tuple[Stray, ...]:
    """Return the entries of the Application's spec or of `.argocd-source.yaml` that have no effect,
    and that an update of the override file would not restore.

    If an entry is *changed*, the override file contains it with a different meaning, and not as a
    copy, which the next update would correct. If an entry is *hidden*, the override file lacks it,
    and Argo CD uses only the list in that file.

    The result includes neither the image's own entries nor changed entries that another alias of
    the Application writes.
    """
    if target.carry is False:  # the user does not want copies, so nothing is missing
        return ()
    _, tree = load(files, target, SECTION)
    entries = _entries(elements(tree, SECTION))
    lower_layer = _lower_layer(files, target)
    origins = lower_layer.origins

    strays_by_name: dict[str, Stray] = {}
    for node, entry in entries:
        if entry.key not in origins or _is_of_image(entry, target):
            continue
        names = {entry.key, entry.identity, entry.left, entry.right}
        if not names.isdisjoint(target.managed):  # an alias of the Application writes this entry
            continue
        original, comment = origins[entry.key]
        if _have_different_meanings(entry, original) and not is_copy(tree, node):
            name = _key_in_edit(entry)
            strays_by_name[name] = Stray(name, comment, hidden=False)
    if lower_layer.copied:  # the next update adds any entries that the file lacks
        return tuple(strays_by_name.values())

    keys_in_file = {entry.key for _, entry in entries}
    for key, (entry, comment) in origins.items():
        if key not in keys_in_file and not _is_of_image(entry, target):
            name = _key_in_edit(entry)
            strays_by_name[name] = Stray(name, comment, hidden=True)
    return tuple(strays_by_name.values())


def _key_in_edit(entry: KustomizeImage) -> str:
    """Return the entry's key in an `Edit`: `kustomize.images[<name>]`."""
    image = live_image(entry.right)
    name = image.name if image else entry.right
    return f"kustomize.images[{entry.left or name}]"


# The entries of the spec or the common file, keyed by name. Each is paired with the comment for its
# copies.
Origins = Mapping[str, tuple[KustomizeImage, str]]


def _lower_layer(files: Files, target: Target) -> LowerLayer[KustomizeImage]:
    """Return the entries that Argo CD would use if the override file had no list: those of the
    Application's spec or of the common file, `.argocd-source.yaml`.
    """

    def read_common(nodes: Sequence[Node]) -> dict[str, KustomizeImage]:
        """Return the entries of the common file's list, keyed by name."""
        return {entry.key: entry for _, entry in _entries(nodes)}

    spec_entries = map(parse_entry, target.source.images)
    spec_by_key = {entry.key: entry for entry in spec_entries}
    return read_lower_layer(files, target, SECTION, spec_by_key, read_common)


def _entry_at_version(
    entry: KustomizeImage,
    origins: Origins,
    target: Target,
    image: Image,
) -> KustomizeImage:
    """Return an entry of the image with the new version, keeping the spelling of the image's name.

    An entry that consists of only the annotated name becomes `name=image`. `origins` may contain
    other spellings of the image's name.
    """
    originals = [original.right for original, _ in origins.values()]
    full_name = name_as_spelled(image, target, entry.right, *originals)
    left = entry.left
    if not left and entry.identity != image.identity:  # only the annotated name
        left = target.keys.kustomize_name
    return KustomizeImage(left, replace(image, name=full_name).reference)


def _have_different_meanings(entry: KustomizeImage, original: KustomizeImage) -> bool:
    """Return whether Kustomize treats two entries differently. Mere differences in spelling do not
    count.
    """
    return _as_kustomize_reads(entry) != _as_kustomize_reads(original)


def _as_kustomize_reads(entry: KustomizeImage) -> tuple[str, ...]:
    """Return the entry as Kustomize understands it, regardless of its spelling."""
    image = live_image(entry.right)
    if image is None:
        return entry.key, entry.right
    return entry.key, image.identity, image.tag, image.digest


def _entries_to_append(
    entries: Sequence[KustomizeImage],
    lower_layer: LowerLayer[KustomizeImage],
    target: Target,
    image: Image,
) -> list[KustomizeImage]:
    """Return the entries to append to the file's `entries`.

    These are the entries of the lower layer (the Application's spec or `.argocd-source.yaml`) that
    the file lacks. The image's own entries have the new version, and other entries are included
    only if they are to be copied. If there is still no entry for the image, a new one is added.
    """
    keys_in_file = {entry.key for entry in entries}
    missing = []
    for original, _ in lower_layer.origins.values():
        if original.key in keys_in_file:
            continue
        if _is_of_image(original, target):
            missing.append(_entry_at_version(original, lower_layer.origins, target, image))
        elif lower_layer.copied:
            missing.append(original)

    annotated = target.keys.kustomize_name
    all_entries = [*entries, *missing]
    if annotated:  # only an entry with this name affects the manifests
        annotated_key = identity_of(annotated)
        has_own_entry = any(entry.key == annotated_key for entry in all_entries)
    else:
        has_own_entry = any(_is_of_image(entry, target) for entry in all_entries)
    if has_own_entry:
        return missing
    originals = [original.right for original, _ in lower_layer.origins.values()]
    full_name = name_as_spelled(image, target, *originals)
    own_entry = KustomizeImage(annotated, replace(image, name=full_name).reference)
    return [*missing, own_entry]
