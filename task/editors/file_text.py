"""What all editors share: which file they may edit, how an image is named in it, what they answer."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from task.editors.yaml.scalar import sound
from task.editors.yaml.splice import splice
from task.editors.yaml.tree import Document, Node, Tree, parse, resolved, users
from task.errors import AnnotationError, TargetError, TaskError
from task.image import live_image
from task.model import Edit, File, Files, Image, Target

MODES = {
    "120000": ("a symbolic link", "name the file that it leads to"),
    "160000": ("a submodule", "write to the submodule's own repository: git-repository"),
    "040000": ("a folder", "name a file in it"),
}
_LARGEST = 10 * 1024 * 1024
_LFS = "version https://git-lfs.github.com/spec/"


def chosen(files: Files, target: Target) -> str:
    """The path to write: the target's own, unless only another spelling of it exists."""
    if target.path in files:
        return target.path
    return next((path for path in target.fallbacks if path in files), target.path)


def text_of(files: Files, path: str) -> str | None:
    """The text of a file; None where there is none. TargetError for what must not be edited."""
    parent = path
    while parent := posixpath.dirname(parent):
        if parent in files and files[parent].mode in {"120000", "160000", "100644", "100755"}:
            what, hint = MODES.get(files[parent].mode, ("a file", "name a path below a folder"))
            raise TargetError(f"{parent} is {what}, not a folder", hint=hint, subject=path)
    if path not in files:
        return None
    file = files[path]
    if file.mode in MODES:
        what, hint = MODES[file.mode]
        raise TargetError(f"is {what}, not a file", hint=hint, subject=path)
    problem = file.problem or ("larger than 10 MB" if len(file.text) > _LARGEST else "")
    if problem and "LFS" not in problem:
        raise TargetError(f"cannot be edited: {problem}", hint="name a smaller YAML text in UTF-8", subject=path)
    if problem or file.text.startswith(_LFS):
        raise TargetError(
            "is kept in Git LFS: Git holds a pointer, not the text", hint=f"git lfs untrack {path}", subject=path
        )
    return file.text


def tree_of(files: Files, path: str) -> Tree:
    """The parsed file, an empty one where there is none. TargetError names the file."""
    text = text_of(files, path)
    try:
        return parse(text or "")
    except TargetError as error:
        raise error.about(path) from error


def single(tree: Tree, path: str) -> Document | None:
    """The only document, its root a mapping or null; None where there is none at all."""
    if not tree.documents:
        return None
    if len(tree.documents) > 1:
        raise TargetError(
            f"holds {len(tree.documents)} YAML documents", hint="keep one: the others are not read", subject=path
        )
    return rooted(tree.documents[0], path)


def rooted(document: Document, path: str) -> Document:
    """The document. TargetError: its root is neither a mapping nor null."""
    if document.root.kind != "mapping" and not document.root.null:
        what = {"sequence": "a list", "scalar": "a single value"}.get(document.root.kind, "an alias")
        raise TargetError(f"is {what} at its root, not a mapping", hint="begin it with keys", subject=path)
    return document


def alone(tree: Tree, document: Document, node: Node) -> Node:
    """The node. TargetError: an alias elsewhere shares its value, and would change with it."""
    for each in tree.ancestors(node):  # an alias itself may be replaced: nobody shares it
        if each.anchor and each.kind != "alias" and (others := users(document, each)):
            lines = ", ".join(str(tree.line(other)) for other in others)
            raise TargetError(
                f"line {tree.line(each)}: the value of the anchor &{each.anchor} is used by "
                f"*{each.anchor} in line {lines} too",
                hint="write the value out where it must differ, or move the anchor",
            )
    return node


def says(document: Document, node: Node, text: str) -> bool:
    """Whether a scalar (or the one that an alias stands for) is this text, and a string to every reader."""
    there = resolved(document, node)
    return there.kind == "scalar" and there.value == text and sound(there)


def with_texts(tree: Tree, document: Document, wanted: Iterable[tuple[Node, str]]) -> Tree:
    """The tree with other texts for some of its scalars. TargetError: an alias elsewhere shares one that differs."""
    changes = [(alone(tree, document, node), text) for node, text in wanted if not says(document, node, text)]
    return splice(tree, changes) if changes else tree


def result(files: Files, path: str, text: str, edits: tuple[Edit, ...]) -> tuple[Files, tuple[Edit, ...]]:
    """What an editor's `write` answers: the file with its new text and its mode, or nothing where nothing differs."""
    old = files[path].text if path in files else ""
    if text == old:
        return {}, ()
    mode = files[path].mode if path in files else "100644"
    return {path: File(text, mode)}, edits


def spelled(image: Image, target: Target, *texts: str) -> str:
    """The image's name as the first text that names it spells it, else as the annotation does."""
    for text in texts:
        found = live_image(text) if text else None
        if found and found.identity == image.identity:
            return found.name
    return target.image.name if target.image.identity == image.identity else image.name


def identity_of(name: str) -> str:
    """The normal form of an image's name; a text that names no image stays as it is."""
    image = live_image(name) if name else None
    return image.identity if image else name


def belongs(name: str, target: Target, key: Literal["kustomize_name", "manifests_name"]) -> bool:
    """Whether an entry of this name (in normal form) may be the target's. What one alias names belongs to it alone.

    Several aliases may track one image: those that annotate a name take nothing else, and one without takes the rest.
    """
    mine = identity_of(getattr(target.keys, key))
    if mine and name == mine:
        return True
    if any(name and identity_of(getattr(other, key)) == name for other in target.others):
        return False
    return not (mine and any(other.identity == target.image.identity for other in target.others))


def refuse_taken(target: Target) -> None:
    """AnnotationError: another alias owns the entry that the target would write, by its `kustomize.image-name`."""
    name = identity_of(target.keys.kustomize_name) or target.image.identity
    if target.others and not belongs(name, target, "kustomize_name"):
        owner = next(one.alias for one in target.others if identity_of(one.kustomize_name) == name)
        own = f"{target.alias or '<alias>'}.kustomize.image-name"
        raise AnnotationError(
            f"the entry {name} belongs to {owner or 'another entry of image-list'}, by its kustomize.image-name",
            hint=f"write {own}: the image as the base manifests name it",
        )


def tag_value(image: Image) -> str:
    """The text of a tag's key: never a bare digest, which is no tag. AIU writes `latest@sha256:…` too."""
    return f"{image.tag or 'latest'}@{image.digest}" if image.digest else image.tag


def split_tag(text: str) -> tuple[str, str]:
    """`tag@sha256:…` → tag and digest."""
    tag, _, digest = text.partition("@")
    return (tag, digest) if not tag.startswith("sha256:") else ("", tag)


@contextmanager
def about(path: str) -> Iterator[None]:
    """Name this file in errors that name none."""
    try:
        yield
    except TaskError as error:
        raise error if error.subject else error.about(path) from error
