"""Reads and writes plain manifests: the `image:` of anything that runs an image, and marked
scalars.

Containers are found in objects of any kind. Keys that only Argo Workflows and Tekton use are
recognized only in their own objects and in objects that embed those.

Scalars are marked by Flux's setter comments: `{"$imagepolicy":
"<namespace>:<name>[:tag|:name|:digest]"}`. Flux v2 reads these comments in all YAML files in a
path. Here, `<name>` is the entry's alias.

Files that are not YAML, such as chart templates, are skipped. So is YAML that is not a manifest.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from task.editors.file_text import MODES, about, belongs, name_as_spelled, tag_value, text_of
from task.editors.yaml.edit import has_text, line_start, require_unshared, splice
from task.editors.yaml.path import key_path
from task.editors.yaml.spelling import reads_as_string
from task.editors.yaml.tree import Node, Tree, pairs, parse, resolved, value, walk
from task.errors import TargetError, TaskError
from task.image import live_image
from task.model import Edit, File, Files, Image, Place, Reading, Target

SIGN = "$imagepolicy"
_MARKER = re.compile(
    r'#[^#\n\r]*?\{\s*"\$imagepolicy"\s*:\s*"([^":]+):([^":]+)(?::(tag|name|digest))?"\s*\}'
)


SUFFIXES = (".yaml", ".yml", ".json")
# The container lists in a pod spec. Custom resources (Argo Rollouts, Knative, Tekton pod templates)
# use the same names.
_LISTS = frozenset(("containers", "initContainers", "ephemeralContainers"))


class _WorkflowEngine(NamedTuple):
    """The keys under which a workflow engine runs images, in objects of these kinds in its API
    group.
    """

    group: str
    kinds: frozenset[str]  # empty means all kinds
    names: frozenset[str]  # keys of a single container or of a list of containers


_ENGINES = (
    _WorkflowEngine(
        "argoproj.io",
        frozenset(("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")),
        frozenset(("container", "script", "sidecars")),
    ),
    _WorkflowEngine(
        "tekton.dev",
        frozenset(),
        frozenset(("steps", "sidecars", "stepTemplate")),
    ),
    _WorkflowEngine(
        "tekton.dev",
        frozenset(("StepAction",)),
        frozenset(("spec",)),
    ),
)


@dataclass(frozen=True)
class Hit:
    """A scalar that contains the image or a part of it."""

    node: Node
    old: Image
    new: str  # "" when only reading

    def edit(self, path: str, tree: Tree) -> Edit:
        """Return this hit as an edit."""
        return Edit(path, key_path(tree, self.node), resolved(self.node).value, self.new)


def first_parts(images: Sequence[Image]) -> tuple[str, str, str]:
    """Return the first name, the first tag, and the first digest that occur in the images."""
    name = next((image.name for image in images if image.name), "")
    tag = next((image.tag for image in images if image.tag), "")
    digest = next((image.digest for image in images if image.digest), "")
    return name, tag, digest


def places(target: Target) -> tuple[Place, ...]:
    """Return the place of the target's file, or the places of all manifests in its folder.

    Subfolders are included if the target is recursive.
    """
    if target.path.endswith(SUFFIXES):
        return (Place(target.path),)
    return (Place(target.path, "tree" if target.recurse else "folder"),)


def read(files: Files, target: Target) -> Reading:
    """Return the first name, the first tag, and the first digest of the image in the manifests.

    The reading is not sound (the manifests must be rewritten) if the scalars differ in their tags
    or digests, or if one of them is not a string.

    Raises TargetError if no manifest contains the image.
    """
    broken: list[TaskError] = []  # `_trees` appends the errors of the files that it skips
    hits: list[Hit] = []
    first_path = ""
    for path, tree in _trees(files, target, broken):
        hits_in_file = list(_hits(tree, target, None))
        if hits_in_file and not hits:
            first_path = path
        hits += hits_in_file
    if not hits:
        raise _no_such_image(target, broken)

    images = [hit.old for hit in hits]
    name, tag, digest = first_parts(images)
    # A scalar may contain only a part of the image, such as a marked tag.
    same_tags = all(image.tag in ("", tag) for image in images)
    same_digests = all(image.digest in ("", digest) for image in images)
    are_strings = all(reads_as_string(resolved(hit.node)) for hit in hits)
    return Reading(
        name,
        tag,
        digest,
        sound=same_tags and same_digests and are_strings,
        file=first_path,
    )


def _no_such_image(target: Target, broken: Sequence[TaskError]) -> TargetError:
    """Return the error for an image that no manifest contains. The error mentions the first of the
    `broken` files, because that file may contain the image.
    """
    name = target.keys.manifests_name or target.image.name
    unread = f"; {broken[0].subject} was skipped: {broken[0].message}" if broken else ""
    hint = (
        "set the folder (manifests:<path>), or the image name in the manifests"
        " (<alias>.manifests.image-name)"
    )
    return TargetError(
        f"no container in the manifests has the image {name}{unread}",
        hint=hint,
        subject=target.path or "/",
    )


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return all changed manifests, and the edits.

    Raises TargetError if no manifest contains the image.
    """
    changed: dict[str, File] = {}
    edits: list[Edit] = []
    has_image = False
    broken: list[TaskError] = []  # `_trees` appends the errors of the files that it skips
    for path, tree in _trees(files, target, broken):
        with about(path):
            hits = list(_hits(tree, target, image))
            if hits:
                has_image = True
            outdated = [hit for hit in hits if not has_text(hit.node, hit.new)]
            new_tree = _with_new_texts(tree, outdated)
        if new_tree.text != tree.text:
            changed[path] = File(new_tree.text, files[path].mode)
            edits += [hit.edit(path, tree) for hit in outdated]
    if not has_image:
        raise _no_such_image(target, broken)
    return changed, tuple(edits)


def _with_new_texts(tree: Tree, hits: list[Hit]) -> Tree:
    """Return the tree with the new text of each hit. The node of a hit is a scalar, or a YAML alias
    (`*name`) of an anchored scalar (`&name`).

    If an anchored scalar and all of its aliases receive the same new text, only the scalar is
    changed, and its aliases remain. Otherwise, raises TargetError, because a scalar that has
    aliases cannot be changed on its own.
    """
    new_texts = {id(hit.node): hit.new for hit in hits}
    changes: dict[int, tuple[Node, str]] = {}  # keyed by the node's id
    for hit in hits:
        scalar = resolved(hit.node)
        aliases = tree.aliases(scalar)
        # None stands for a use that is not a hit, so its text does not change.
        texts_of_uses = {new_texts.get(id(node)) for node in (scalar, *aliases)}
        all_uses_get_this_text = bool(aliases) and texts_of_uses == {hit.new}
        if all_uses_get_this_text and hit.node.kind == "alias":
            continue  # the alias takes its text from the scalar
        if not all_uses_get_this_text:
            require_unshared(tree, hit.node)  # raises TargetError
        changes[id(hit.node)] = (hit.node, hit.new)
    return splice(tree, list(changes.values()))


def manifests_in(files: Files, target: Target) -> Iterator[str]:
    """Yield the paths of the target's files that can be read as text, in sorted order."""
    for path in sorted(files):
        if not _is_in_target(path, target):
            continue
        if files[path].mode not in MODES and not files[path].problem:
            yield path


def _is_in_target(path: str, target: Target) -> bool:
    """Return whether a path is the target's file, or a YAML or JSON file in the target's folder, or
    in a subfolder if the target is recursive.
    """
    if path == target.path:
        return True
    if not path.endswith(SUFFIXES):
        return False
    folder = posixpath.dirname(path)
    if folder == target.path:
        return True
    is_below_target = target.path == "" or folder.startswith(f"{target.path}/")
    return target.recurse and is_below_target


def _trees(
    files: Files,
    target: Target,
    broken: list[TaskError],
) -> Iterator[tuple[str, Tree]]:
    """Yield the path and the tree of each file that may contain the image.

    The errors of files that are not YAML are appended to `broken`. If the target is a single file,
    its error is raised instead.
    """
    # Called only to raise errors: the path or a parent folder may be a link, a submodule, or a
    # file.
    is_folder = target.path not in files or files[target.path].mode == "040000"
    if not is_folder:
        text_of(files, target.path)
    elif target.path:
        text_of(files, posixpath.join(target.path, "_"))  # stands for any file in the folder

    for path in manifests_in(files, target):
        text = files[path].text
        # Parsing takes most of the time here.
        if not _may_contain_image(text, target):
            continue
        try:
            yield path, parse(text)
        except TargetError as error:
            # the target is this file; other files in a folder may be chart templates
            if path == target.path:
                raise
            broken.append(error.about(path))


def _may_contain_image(text: str, target: Target) -> bool:
    """Return whether a text contains a setter comment or the last part of the image's name."""
    if SIGN in text:
        return True
    for name in (target.keys.manifests_name, target.image.repository):
        last_part = name.rpartition("/")[2]
        if last_part and last_part in text:
            return True
    return False


def _hits(tree: Tree, target: Target, image: Image | None) -> Iterator[Hit]:
    """Yield the scalars that contain the target's image: first those marked by a setter comment,
    then the images of containers.

    `image` is the new image, or None when only reading.
    """
    own_hits = list(marked_scalars(tree, target, image))
    yield from own_hits
    all_hits = list(own_hits)
    for other in target.others:  # a scalar marked for another alias belongs to that alias
        if other.alias:
            all_hits += marked_scalars(tree, replace(target, alias=other.alias), None)
    marked_nodes = {id(hit.node) for hit in all_hits}

    identities = {target.image.identity}
    annotated = live_image(target.keys.manifests_name)
    if annotated is not None:
        identities.add(annotated.identity)
    for node in _container_images(tree):
        if id(node) in marked_nodes:
            continue
        old = live_image(resolved(node).value)
        if old is None or old.identity not in identities:
            continue
        if belongs(old.identity, target, "manifests_name"):
            new = replace(image, name=old.name).reference if image else ""
            yield Hit(node, old, new)


def marked_scalars(tree: Tree, target: Target, image: Image | None) -> Iterator[Hit]:
    """Yield the scalars marked by a setter comment for the target's alias, in document order, such
    as `tag: "1.0" # {"$imagepolicy": "argocd:web:tag"}`.

    `image` is the new image, or None when only reading. Raises TargetError if a scalar needs a
    digest, but the new image has none.
    """
    if SIGN not in tree.text:
        return
    namespace = target.application.partition("/")[0]
    alias = target.alias or target.image.repository.rpartition("/")[2]
    # In annotation names, AIU up to v0.18 spells the alias `a/b` as `a_b`, so people also use that
    # spelling here.
    aliases = (alias, alias.replace("/", "_"))
    for marker in _MARKER.finditer(tree.text):
        marker_namespace, marker_alias, part = marker.groups(default="")
        if marker_namespace != namespace or marker_alias not in aliases:
            continue
        node = _value_before(tree, marker.start())
        if node is None:
            continue
        text = resolved(node).value
        new_text = _marked_text(part, text, target, image) if image else ""
        yield Hit(node, _marked_image(part, text), new_text)


def _marked_image(part: str, text: str) -> Image:
    """Return the image that the text of a marked scalar stands for. Unknown parts are "".

    `part` is the end of the setter comment: "tag", "digest", "name", or "" for the whole image.
    """
    unknown = Image("", "", "")
    if part == "tag":
        return replace(unknown, tag=text)
    if part == "digest":
        return replace(unknown, digest=text)
    return live_image(text) or unknown


def _value_before(tree: Tree, comment_start: int) -> Node | None:
    """Return the last value before a comment on the same line.

    Return None if nothing or only a key precedes the comment, or if the `#` is part of a value.
    """
    start_of_line = line_start(tree.text, comment_start)
    last_before = None
    for node in walk(*tree.roots):
        if node.kind not in {"scalar", "alias"}:
            continue
        if node.start <= comment_start < node.end:
            return None
        if start_of_line <= node.start and node.end <= comment_start:
            last_before = node
    if last_before is None:
        return None
    is_key = tree.key_of(last_before) is last_before
    return None if is_key else last_before


def _marked_text(part: str, old: str, target: Target, image: Image) -> str:
    """Return the new value of a marked scalar. The image's name is spelled as in the old value.

    `part` is the end of the setter comment: "tag", "digest", "name", or "" for the whole image.
    Raises TargetError if the part is "digest", but the image has no digest.
    """
    if part == "tag":
        return image.tag or tag_value(image)
    if part == "digest":
        if not image.digest:
            hint = "pass the build's digest (--image-digest), or pin digests"
            raise TargetError(
                "a marker requires a digest, but the build did not provide one",
                hint=hint,
            )
        return image.digest
    name = name_as_spelled(image, target, old)
    return name if part == "name" else replace(image, name=name).reference


def _container_images(tree: Tree) -> Iterator[Node]:
    """Yield the `image:` of each container in each manifest, which is a document with `apiVersion`
    and `kind`.

    If YAML aliases repeat a list, its images are yielded only once.
    """
    for root in tree.roots:
        is_manifest = value(root, "apiVersion") is not None and value(root, "kind") is not None
        if not is_manifest:
            continue
        names = set(_LISTS)
        for engine in _engines_in(root):
            names |= engine.names
        for container in _containers_below(root, names):
            image = value(container, "image")
            if image and resolved(image).kind == "scalar":
                yield image


def _containers_below(root: Node, names: Collection[str]) -> Iterator[Node]:
    """Yield the containers below keys with these names, such as `containers` or `script`. The value
    of a key in `_LISTS` is a list of containers. The value of any other key is such a list or a
    single container.
    """
    for node in walk(root):
        if node.kind != "mapping":
            continue
        for key, child in pairs(node):
            if key.value not in names:
                continue
            if child.kind == "sequence":
                yield from child.children
            elif key.value not in _LISTS:  # a workflow engine's key with a single container
                yield child


def _engines_in(root: Node) -> Iterator[_WorkflowEngine]:
    """Yield the workflow engine of each object in a document. Objects may be embedded in other
    objects.
    """
    for node in walk(root):
        if node.kind != "mapping":
            continue
        version = value(node, "apiVersion")
        kind = value(node, "kind")
        if version is None or kind is None:
            continue
        group, _, _ = version.value.partition("/")
        for engine in _ENGINES:
            has_kind = not engine.kinds or kind.value in engine.kinds
            if engine.group == group and has_kind:
                yield engine
