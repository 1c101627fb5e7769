"""Reads and writes a Helm values file: the image's name, tag, or complete reference at the key
paths set in annotations.

Only the first document is used, because Helm ignores the others. Only annotated keys are written,
whereas AIU v1.3 also writes an unrequested `image.name`. If no key is annotated, `image.tag` is
written, and also `image.name` if the file already sets it.

A chart with a digest next to its tag renders both, and container runtimes then ignore the tag. So a
new tag next to an old digest has no effect, although everything looks healthy. A digest is written
only to the annotated key, and a digest at any other key is rejected.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from task.editors.file_text import (
    about,
    chosen,
    identity_of,
    result_of_write,
    root_of_first_document,
    split_tag,
    tag_value,
    text_of,
    tree_of,
)
from task.editors.yaml.edit import add, has_text, splice
from task.editors.yaml.path import (
    Segment,
    entries,
    find,
    item_at_indices,
    locate,
    parse_path,
    path_text,
    paths_of_uses,
)
from task.editors.yaml.spelling import Data, reads_as_string
from task.editors.yaml.tree import Node, Tree, pairs, parse, resolved, walk
from task.errors import AnnotationError, TargetError
from task.image import live_image, split_registry
from task.model import Edit, Files, Image, Keys, Parameter, Place, Reading, Target

# the comment in a new file (AIU v0.17 and later also create missing files with a comment)
_HEAD = "# written by image-update\n\n"
LOCKS = {"Chart.yaml": "Chart.lock", "requirements.yaml": "requirements.lock"}
NAMES = ("repository", "name", "image")  # keys that may contain an image's name next to its tag
_HEX = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{64}")
_DIGEST_NAME = re.compile("(?:digest|sha|sha256)$")  # counts with any value
_DIGEST_WORDS = re.compile("digest|sha256|sha|hash", re.IGNORECASE)  # only if the value is a digest
# Matches YAML that may set a digest. Most files do not match and need not be parsed.
_SET = re.compile(
    r"(?:digest|sha|sha256)[\"']?\s*:\s*(?!\"\"|''|~|null\b)\S|[0-9a-f]{64}",
    re.IGNORECASE,
)
MOST_BESIDE = 200  # maximum number of keys per mapping to compare if an annotated key is missing


def places(target: Target) -> tuple[Place, ...]:
    """Return the places of the values file in all its spellings, of the other files that Helm
    reads, and of the chart's lock file.
    """
    paths = dict.fromkeys((target.path, *target.fallbacks, *target.values))
    lock = _lock_path(target.path)
    locks = [Place(lock, "exists")] if lock else []
    return (*map(Place, paths), *locks)


def _lock_path(path: str) -> str:
    """Return the path of the lock file for the dependencies in this file,
    or "" if there is none.
    """
    folder, name = posixpath.split(path)
    return posixpath.join(folder, LOCKS[name]) if name in LOCKS else ""


def read(files: Files, target: Target) -> Reading:
    """Return the image that Helm reads at the key paths, through YAML aliases and merge keys.

    Missing files and keys are read as "". The reading is not sound (the values must be rewritten)
    if one of the values is not a string or is surrounded by spaces, or in the cases that
    `reading_of` lists.
    """
    keys = _used_keys(target.keys)
    path = chosen(files, target)
    tree = tree_of(files, path)
    known_digest(files, target, keys, target.source.parameters)  # called only to raise errors
    nodes: dict[str, Node] = {}
    with about(path):
        for key in filter(None, (keys.name, keys.tag, keys.spec, keys.digest)):
            node = _scalar_at(tree, key)
            if node is not None:
                nodes[key] = node
    # In Helm, spaces around a quoted tag are part of the tag.
    is_sound = all(
        reads_as_string(node) and node.value == node.value.strip() for node in nodes.values()
    )
    texts = {key: node.value for key, node in nodes.items()}
    if not keys.spec:  # in a complete reference, `reading_of` ignores these spaces itself
        texts = {key: text.strip() for key, text in texts.items()}
    return reading_of(texts, keys, path, sound=is_sound)


def reading_of(texts: Mapping[str, str], keys: Keys, path: str, *, sound: bool) -> Reading:
    """Return the image specified by the values at these keys, which come from a values file or from
    parameters.

    `texts` maps keys to values. `sound` is false if one of the values must be rewritten. The
    reading is also not sound if the digest has a key of its own but is part of the tag, or if that
    key is missing.
    """
    if keys.spec:
        image = live_image(texts.get(keys.spec, ""))
        if image is None:
            return Reading(sound=sound, file=path)
        return Reading(image.name, image.tag, image.digest, sound=sound, file=path)
    name = texts.get(keys.name, "")
    tag, digest_in_tag = split_tag(texts.get(keys.tag, ""))
    if not keys.digest:
        return Reading(name, tag, digest_in_tag, sound=sound, file=path)
    if digest_in_tag:  # the digest belongs in its own key
        sound = False
    lacks_digest_key = tag != "" and keys.digest not in texts
    if lacks_digest_key:  # otherwise, the chart's own digest would remain in use
        sound = False
    digest = texts.get(keys.digest, "")
    if _HEX.fullmatch(digest):
        digest = f"sha256:{digest}"
    return Reading(name, tag, digest, sound=sound, file=path)


def _used_keys(keys: Keys) -> Keys:
    """Return the key paths to use: either the path of the complete reference, or the paths of the
    tag, the name, and the digest. Without annotations, these are `image.tag` and `image.name`.

    Raises AnnotationError if the annotations do not specify where the tag goes.
    """
    if keys.spec:
        return Keys(spec=keys.spec)
    if keys.name and not keys.tag:
        hint = (
            "set <alias>.helm.image-tag, or use <alias>.helm.image-spec to keep both in one value"
        )
        raise AnnotationError("helm.image-name is set, but there is no key for the tag", hint=hint)
    if keys.name and keys.name == keys.tag:
        hint = f"use helm.image-spec: {keys.name}"
        raise AnnotationError(
            f"helm.image-name and helm.image-tag are both {keys.name!r}",
            hint=hint,
        )
    if keys.tag:
        return Keys(tag=keys.tag, name=keys.name, digest=keys.digest)
    return Keys(tag="image.tag", name="image.name", digest=keys.digest)


def _scalar_at(tree: Tree, key: str) -> Node | None:
    """Return the scalar at a key path, or None if it is missing or null.

    Raises TargetError if the value is a list or a mapping, or if a missing key cannot be added.
    """
    root = root_of_first_document(tree)
    path = parse_path(key)
    if root.null:
        return None
    node = find(tree, root, path)
    if node is None:
        locate(tree, root, path)  # called only to raise errors
        return None
    if node.kind != "scalar":
        kind = "list" if node.kind == "sequence" else "mapping"
        raise TargetError(
            f"line {tree.line(node)}: {key} is a {kind}, not a single value",
            hint="use a key inside it",
        )
    return None if node.null else node


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the values file with the image written to its keys. A missing file is created.

    The tag is written before the name, as in AIU. The name is written only if its key is annotated
    or already has a value. Raises TargetError if an edit would change a locked chart dependency.
    """
    keys = _used_keys(target.keys)
    path = chosen(files, target)
    text = text_of(files, path) or ""
    is_blank = not text.strip("\ufeff \t\r\n")
    tree = parse(_HEAD) if is_blank else tree_of(files, path)
    edits = []
    with about(path):
        for key in filter(None, (keys.spec, keys.tag, keys.digest, keys.name)):
            node = _scalar_at(tree, key)
            old = node.value.strip() if node else ""
            is_default_name_key = key == keys.name and not target.keys.name
            has_old_value = old != ""
            if is_default_name_key and not has_old_value:
                # neither an annotation nor the file has a key for the name, so only the tag is
                # written
                continue
            new = _new_value(key, keys, old, target, image)
            tree = _with_value(tree, key, new, target)
            edits.append(Edit(path, key, old, new))
    _refuse_locked(files, path, edits)
    return result_of_write(files, path, tree.text, edits)


def _new_value(
    key: str,
    keys: Keys,
    old: str,
    target: Target,
    image: Image,
) -> str:
    """Return a key's new value: the tag, the digest, the complete reference, or the name, depending
    on which of the `keys` it is. `old` is the value before the update.
    """
    if key == keys.tag:
        # A digest with its own key is not part of the tag's value.
        return (image.tag or "latest") if keys.digest else tag_value(image)
    if key == keys.digest:
        return digest_value(image, key, old)
    name = _name_without_registry(old, target, image)
    if key == keys.spec:
        return replace(image, name=name).reference
    return name


def _refuse_locked(files: Files, path: str, edits: Iterable[Edit]) -> None:
    """Raise `TargetError` if an edit changes the version of a locked chart dependency."""
    lock = _lock_path(path)
    if lock not in files:
        return
    for edit in edits:
        changes_dependency = edit.old != edit.new and edit.key.startswith("dependencies[")
        if not changes_dependency:
            continue
        folder = posixpath.dirname(path) or "."
        message = (
            f"{edit.key} is locked by {lock}: with a different version, `helm dependency build`"
            " would fail"
        )
        hint = f"set {edit.new} by hand, run helm dependency update {folder}, and commit both files"
        raise TargetError(message, hint=hint, subject=path)


def shared(files: Files, target: Target) -> tuple[str, ...]:
    """Return the key paths that an update changes although they are not annotated, because they
    share the value of the tag, the reference, or the digest through a YAML alias.

    Raises the same errors as `write`.
    """
    path = chosen(files, target)
    keys = _used_keys(target.keys)
    tree = tree_of(files, path)
    shared_keys: list[str] = []
    with about(path):
        if root_of_first_document(tree).null:
            return ()
        for key in filter(None, (keys.spec or keys.tag, keys.digest)):
            shared_keys += _keys_that_change_too(tree, key, target)
    return tuple(shared_keys)


def beside(files: Files, target: Target) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return each annotated key that the file lacks, together with similar keys that the file
    contains, such as `("image.tag", ("image.version",))`.

    Raises the same errors as `read`.
    """
    path = chosen(files, target)
    keys = _used_keys(target.keys)
    tree = tree_of(files, path)
    with about(path):
        root = root_of_first_document(tree)
        if not tree.roots:  # the file does not exist, or contains only comments
            return ()
        missing_keys = []  # each paired with similar keys
        name_key = keys.name if target.keys.name else ""
        for key in filter(None, (keys.spec, keys.tag, name_key)):
            steps = parse_path(key)
            mapping, missing = locate(tree, root, steps)  # `missing` contains the path's last steps
            if missing and mapping.kind == "mapping":
                existing_steps = steps[: len(steps) - len(missing)]
                # The step between `existing_steps` and `later_steps` is the first step that the
                # file lacks. It may be misspelled.
                later_steps = steps[len(existing_steps) + 1 :]
                siblings = _siblings(tree, root, mapping, existing_steps, later_steps)
                missing_keys.append((key, siblings))
    return tuple(missing_keys)


def _siblings(
    tree: Tree,
    root: Node,
    mapping: Node,
    steps_before: Sequence[Segment],
    steps_after: Sequence[Segment],
) -> tuple[str, ...]:
    """Return the key paths that differ from a missing key's path in a single step and have a scalar
    value. For example, `image.version` may be found if `image.tag` is missing.

    Each key of `mapping` is tried as this step. `steps_before` lead to the mapping, and
    `steps_after` follow the key.
    """
    paths = []
    for name, _ in islice(pairs(mapping), MOST_BESIDE):
        steps = (*steps_before, Segment(name.value), *steps_after)
        path = ".".join(step.text.replace(".", "\\.") for step in steps)
        if _single_value_at(tree, root, path):
            paths.append(path)
    return tuple(paths)


def _single_value_at(tree: Tree, root: Node, key: str) -> bool:
    """Return whether there is a scalar at a key path, without following merge keys."""
    try:
        node = find(tree, root, parse_path(key), merges=False)
    except TargetError:  # the key is not annotated, so its errors are not worth reporting
        return False
    return node is not None and node.kind == "scalar"


def _name_without_registry(old: str, target: Target, image: Image) -> str:
    """Return the image's name as the new value of a key whose value was `old`.

    If the old value already names the image, its spelling is kept. If the old value is an image
    name without a registry, the new name also omits the registry (as in AIU since v0.18), because
    charts with a separate registry value (Bitnami's `image.registry`) would render the registry
    twice.
    """
    current = live_image(old)
    if current and current.identity == image.identity:
        return current.name
    full_name = image.name
    if target.image.identity == image.identity:
        full_name = target.image.name  # as spelled in the annotation
    if current is None:
        return full_name
    current_registry, _ = split_registry(current.name)
    _, short_name = split_registry(full_name)
    return full_name if current_registry else short_name


def _with_value(tree: Tree, key: str, text: str, target: Target) -> Tree:
    """Return the tree with the value at a key path set to `text`. Missing mappings on the path are
    added.

    Raises TargetError if the value is shared with a key that may belong to a different image.
    """
    node, missing = locate(tree, tree.root, parse_path(key))
    if not missing and has_text(node, text):
        return tree
    _keys_that_change_too(tree, key, target)  # raises an error if the key must not be changed
    if missing:
        return add(tree, node, _nested(missing, text))
    return splice(tree, [(node, text)])


def _keys_that_change_too(tree: Tree, key: str, target: Target) -> tuple[str, ...]:
    """Return the paths of the other keys that change together with this key, because they share its
    value through a YAML alias.

    Raises TargetError if one of these keys may belong to a different image.
    """
    steps = parse_path(key)
    node, missing = locate(tree, tree.root, steps)
    can_be_shared = any(ancestor.anchor for ancestor in tree.ancestors(node))
    if not can_be_shared:
        return ()
    own_path = key.replace("\\.", ".")
    other_paths = []
    for other_steps in paths_of_uses(tree, tree.root, node, missing):
        other_path = path_text(other_steps)
        if other_path == own_path:
            continue
        has_image_name = key in (target.keys.spec, target.keys.name)
        if has_image_name:  # the shared value itself shows which image it is for
            may_change = identity_of(node.value) == target.image.identity
        else:
            may_change = _may_change_too(tree, other_steps, steps[-1].name, target)
        if not may_change:
            message = (
                f"{own_path} and {other_path} share this value through an anchor, but {other_path}"
                " may belong to another image"
            )
            hint = (
                "write out the value in one of the two places, or put the image name next to"
                f" {other_path}"
            )
            raise TargetError(f"line {tree.line(node)}: {message}", hint=hint)
        other_paths.append(other_path)
    return tuple(other_paths)


def _may_change_too(
    tree: Tree,
    other_steps: Sequence[Segment],
    own_name: str,
    target: Target,
) -> bool:
    """Return whether the key at `other_steps` may change together with the key called `own_name`,
    which contains the image's version.

    Any key may change if its name does not look like that of a version. Otherwise, the key must
    belong to the same image: either another alias of the image writes it, or the image's name is
    next to it.
    """
    other_name = other_steps[-1].name.lower()
    is_version = other_name == own_name.lower() or other_name.endswith("tag")
    if not is_version:
        return True
    other_tags_of_image = [
        claim.tag.replace("\\.", ".")
        for claim in target.others
        if claim.identity == target.image.identity
    ]
    if path_text(other_steps) in other_tags_of_image:
        return True
    return _contains_image_name(tree, other_steps[:-1], target)


def _contains_image_name(tree: Tree, mapping: Sequence[Segment], target: Target) -> bool:
    """Return whether the mapping at these steps contains the name of the target's image, with or
    without its registry.
    """
    name, registry = _name_and_registry_in(tree, mapping, target)
    if not name:  # none of the keys sets a name
        return False
    full_name = f"{registry}/{name}" if registry else name
    if identity_of(full_name) == target.image.identity:
        return True
    # The registry may be set elsewhere, such as in `global.imageRegistry`.
    _, short_name = split_registry(target.image.name)
    return not registry and name == short_name


def _name_and_registry_in(
    tree: Tree, mapping: Sequence[Segment], target: Target
) -> tuple[str, str]:
    """Return the image's name and registry in the mapping at these steps, from keys such as
    `repository` and `registry`. A missing value is "".
    """

    def text(key: str) -> str:
        """Return the value of a key in the mapping, or "" if the key is missing."""
        node = find(tree, tree.root, (*mapping, Segment(key)))
        return node.value if node and node.kind == "scalar" and not node.null else ""

    name_keys = list(NAMES)
    if target.keys.name:
        annotated_key = parse_path(target.keys.name)[-1]
        name_keys.insert(0, annotated_key.name)
    for key in name_keys:
        name = text(key)
        if name:
            return name, text("registry")
    return "", text("registry")


def other_registry(files: Files, target: Target) -> tuple[str, str]:
    """Return the key path and the value of a separate registry key next to the image's name, such
    as `image.registry`, if the value differs from the image's own registry.

    Otherwise, return ("", ""). Raises the same errors as `read`.
    """
    path = chosen(files, target)
    keys = _used_keys(target.keys)
    tree = tree_of(files, path)
    with about(path):
        if keys.spec or root_of_first_document(tree).null:
            return "", ""
        mapping = parse_path(keys.tag)[:-1]
        name, registry = _name_and_registry_in(tree, mapping, target)
    _, repository = split_registry(name)
    _, own_repository = split_registry(target.image.name)
    is_own_image = repository == own_repository
    if not registry or not is_own_image:
        return "", ""
    is_own_registry = identity_of(f"{registry}/{repository}") == target.image.identity
    if is_own_registry:
        return "", ""
    return path_text((*mapping, Segment("registry"))), registry


def _nested(names: Sequence[str], text: str) -> dict[str, Data]:
    """Return nested mappings with `text` as the innermost value. For example, the names `image` and
    `tag` result in `{"image": {"tag": text}}`.
    """
    data: Data = text
    for name in reversed(names[1:]):
        data = {name: data}
    return {names[0]: data}


def digest_value(image: Image, key: str, old: str) -> str:
    """Return the new value of the digest key, or "" if the image has no digest.

    Some charts add `sha256:` themselves. So the new value omits this prefix if the old value is a
    digest without the prefix, or if the old value is empty and the key's name contains `sha`.
    """
    if old:
        without_prefix = _HEX.fullmatch(old) is not None
    else:
        without_prefix = "sha" in parse_path(key)[-1].name.lower()
    return image.digest.removeprefix("sha256:") if without_prefix else image.digest


def known_digest(files: Files, target: Target, keys: Keys, parameters: Iterable[Parameter]) -> str:
    """Return the value that Helm currently uses for the digest key, or "" if there is none.

    Raises `TargetError` if a key that is not annotated sets a digest next to the tag. The last
    value in Argo CD's order wins: the values files come first, then `helm.values`, and then the
    parameters. Unreadable files are skipped.
    """
    tag = keys.spec or keys.tag
    annotated = keys.digest.replace("\\.", ".")
    digests = _digests_next_to(tag, files, target, parameters)
    for name, digest in digests.items():
        if name == annotated or not digest.value:
            continue
        hint = f"set {name} to an empty string"
        if not keys.digest and not keys.spec:
            hint = (
                f"set {target.alias or '<alias>'}.helm.image-digest: {name}, so that each"
                " update sets it"
            )
        message = f"{name} is {digest.value[:80]!r}, so a chart that reads it ignores a new {tag}"
        raise TargetError(
            f"{digest.where}: {message}",
            hint=hint,
            subject=digest.path,
        )
    return digests[annotated].value if annotated in digests else ""


def _digests_next_to(
    tag: str,
    files: Files,
    target: Target,
    parameters: Iterable[Parameter],
) -> Mapping[str, _Digest]:
    """Return the digests that Helm uses for the tag at this key path, keyed by the digests' own key
    paths. If several layers set the same key, the last layer wins.
    """
    steps = parse_path(tag)
    digests: dict[str, _Digest] = {}
    layers = tuple(_layers(files, target, steps))
    # Parsing is slow, and most layers do not set a digest.
    if any(_SET.search(layer.text) for layer in layers):
        for layer in layers:
            digests |= _digests_in_layer(layer, steps)
    for parameter in parameters:
        digests |= _digest_in_parameter(parameter, steps)
    return digests


def _digest_in_parameter(parameter: Parameter, steps: Sequence[Segment]) -> Mapping[str, _Digest]:
    """Return the digest that a parameter sets for the tag at these steps, keyed by the parameter's
    full key. The result is empty if the parameter is not next to one of the steps or does not set a
    digest.
    """
    *parents, key = parse_path(parameter.name)
    level = len(parents)  # the number of mappings that enclose the parameter's key
    is_next_to_path = level < len(steps) and path_text(parents) == path_text(steps[:level])
    if not is_next_to_path:
        return {}
    # `--set` with null removes the key
    removes_key = parameter.value == "null" and not parameter.force_string
    value = "" if removes_key else parameter.value
    if not _is_digest_key(key.name, value, steps[level:], siblings=()):
        return {}
    return {path_text((*parents, key)): _Digest(value, "", "the Application's parameters")}


class _ValuesLayer(NamedTuple):
    """Helm values, which Helm merges with those of other layers."""

    path: str  # "" for `helm.values`
    text: str
    # The number of steps at the beginning of a key path that the text omits: 1 for the values file
    # of a chart in `charts/`, otherwise 0.
    missing_steps: int


class _Digest(NamedTuple):
    value: str
    path: str  # "" if the digest is not in a file
    where: str  # the location in the file or in the Application


def _layers(files: Files, target: Target, steps: Sequence[Segment]) -> Iterator[_ValuesLayer]:
    """Yield the values that Helm merges, in Helm's order: the values files, followed by the
    Application's `helm.values`. Unreadable files are skipped.

    `steps` are the key path of the tag. In the values file of a chart in `charts/`, the first step
    is missing, because it is the chart's name.
    """
    paths = list(target.values)
    own_paths = {target.path, *target.fallbacks}
    if target.kind == "helmvalues" and own_paths.isdisjoint(paths):
        paths.append(chosen(files, target))
    for path in paths:
        try:
            text = text_of(files, path) or ""
        except TargetError:
            continue
        is_of_subchart = f"/{path}".endswith(f"/charts/{steps[0].name}/values.yaml")
        yield _ValuesLayer(path, text, missing_steps=1 if is_of_subchart else 0)
    yield _ValuesLayer("", target.source.values, missing_steps=0)


@lru_cache(maxsize=1024)  # a run reads each target several times
def _digests_in_layer(layer: _ValuesLayer, steps: tuple[Segment, ...]) -> Mapping[str, _Digest]:
    """Return the digests for the tag at these steps in one layer of values, keyed by their full
    keys. The result is empty if the layer is not valid YAML.
    """
    try:
        tree = parse(layer.text)
    except TargetError:  # the layer is not YAML; for the file to write, `read` raises this error
        return {}
    digests: dict[str, _Digest] = {}
    # Look next to each step on the way to the tag.
    mapping: Node | None = tree.root  # contains the current step and the keys next to it
    for level in range(layer.missing_steps, len(steps)):
        if mapping is None or mapping.kind != "mapping":
            break
        siblings = entries(mapping)
        for name, child in siblings.items():
            value = _digest_in(child)
            if not _is_digest_key(name, value, steps[level:], siblings):
                continue
            where = f"line {tree.line(child)}" if layer.path else "the Application's helm.values"
            full_key = path_text((*steps[:level], Segment(name)))
            digests[full_key] = _Digest(value, layer.path, where)
        step = steps[level]
        next_node = item_at_indices(siblings.get(step.name), step.indices or ())
        mapping = resolved(next_node) if next_node else None
    return digests


def _digest_in(node: Node) -> str:
    """Return the value of a scalar, the first digest in a collection, or "" if there is none.

    Some charts store one digest per architecture in a collection.
    """
    for inner in walk(node):
        if inner.kind != "scalar" or inner.null:
            continue
        if inner is node or _DIGEST.fullmatch(inner.value):
            return inner.value
    return ""


def _is_digest_key(
    name: str,
    value: str,
    steps: Sequence[Segment],
    siblings: Iterable[str],
) -> bool:
    """Return whether a key next to the first of these steps contains the digest for the tag at the
    last step.

    Charts call such a key `digest` or `imageSha` next to `tag`, `webDigest` next to `webTag`, or
    `imageDigest` next to `image`. Directly next to the tag, any other key with a digest also
    counts, unless it has a tag of its own among its `siblings`. An empty string also counts,
    because it overrides a digest.
    """
    bare_name = _bare_name(name)
    stem = _DIGEST_WORDS.sub("", bare_name)  # "web" for `webDigest`
    has_digest_word = stem != bare_name
    if not has_digest_word:
        return False
    value_may_be_digest = value == "" or _DIGEST.fullmatch(value) is not None

    step_name = _bare_name(steps[0].name)
    is_beside_tag = len(steps) == 1
    stems_of_tag = {step_name}
    if is_beside_tag:  # `digest` or `imageDigest`, and also `webDigest` next to `webTag`
        stems_of_tag |= {"", "image", step_name.removesuffix("tag")}
    if stem in stems_of_tag:
        # Keys such as `digest` count with any value, but `hash` only if the value may be a digest.
        return value_may_be_digest or _DIGEST_NAME.search(bare_name) is not None
    if not is_beside_tag or not value_may_be_digest:
        return False

    # A key that has its own tag, such as `workerDigest` next to `workerTag`, does not count.
    other_tags = {stem, f"{stem}tag"} - {step_name}
    return other_tags.isdisjoint(_bare_name(sibling) for sibling in siblings)


def _bare_name(name: str) -> str:
    """Return the name in lowercase, without `_` and `-`."""
    return re.sub("[_-]", "", name).lower()
