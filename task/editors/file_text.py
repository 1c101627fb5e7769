"""Helpers for all editors: which files may be edited, how images are spelled in the files, and the
result of `write`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from task.editors.yaml.tree import Node, Tree, parse
from task.errors import AnnotationError, TargetError, TaskError
from task.image import live_image
from task.model import Edit, File, Files, Image, Target

MODES = {
    "120000": ("a symbolic link", "use the file that it points to"),
    "160000": ("a submodule", "set git-repository to the submodule's own repository"),
    "040000": ("a folder", "use a file in it"),
}
_FILES = ("100644", "100755")  # Git's modes for files without and with the executable bit
_LINKS = ("120000", "160000")  # Git's modes for a symbolic link and a submodule
# Nobody writes values files this large by hand, and the parsed tree takes many times as much memory
# as the text.
_LARGEST = 10 * 1024 * 1024
_LFS = "version https://git-lfs.github.com/spec/"


def chosen(files: Files, target: Target) -> str:
    """Return the path to write to: the target's own path or one of its alternative spellings,
    whichever exists first, or else its own path.

    AIU may have written the file under the other spelling, with or without the namespace (AIU
    issues 963 and 1343).
    """
    for path in (target.path, *target.fallbacks):
        if path in files:
            return path
    return target.path


def text_of(files: Files, path: str) -> str | None:
    """Return the text of a file, or None if the file does not exist.

    Raises TargetError if the file must not be edited, because it is not a regular file, is not
    text, is too large, or is stored in Git LFS.
    """
    _refuse_file_as_folder(files, path)
    if path not in files:
        return None
    file = files[path]
    if file.mode in MODES:
        kind, hint = MODES[file.mode]
        raise TargetError(f"is {kind}, not a file", hint=hint, subject=path)
    problem = file.problem  # such as "not UTF-8 text"; "" if there is none
    if not problem and len(file.text) > _LARGEST:
        problem = "larger than 10 MB"
    is_lfs_problem = "LFS" in problem
    if problem and not is_lfs_problem:
        hint = "use a UTF-8 YAML file of at most 10 MB"
        raise TargetError(f"cannot be edited: {problem}", hint=hint, subject=path)
    if is_lfs_problem or file.text.startswith(_LFS):
        message = "is stored in Git LFS: Git has only a pointer, not the text"
        raise TargetError(message, hint=f"git lfs untrack {path}", subject=path)
    return file.text


def _refuse_file_as_folder(files: Files, path: str) -> None:
    """Raise TargetError if a parent folder of the path is a file or a link.

    In Git, a link or a file cannot contain other files. Writing to a path below one would replace
    it with a folder.
    """
    parent = posixpath.dirname(path)
    while parent:
        is_file_or_link = parent in files and files[parent].mode in {*_FILES, *_LINKS}
        if is_file_or_link:
            kind, hint = MODES.get(files[parent].mode, ("a file", "use a path inside a folder"))
            raise TargetError(
                f"{parent} is {kind}, not a folder",
                hint=hint,
                subject=path,
            )
        parent = posixpath.dirname(parent)


def refuse_executable(files: Files) -> None:
    """Raise `TargetError` if a file has the executable bit, because a commit through GitHub's API
    would remove the bit.
    """
    for path, file in files.items():
        if file.mode == "100755":
            hint = f"git update-index --chmod=-x {path}, or commit with git: --commit-through git"
            raise TargetError(
                "has the executable bit, which GitHub's API would remove",
                hint=hint,
                subject=path,
            )


def tree_of(files: Files, path: str) -> Tree:
    """Return the parsed file, or an empty tree if the file does not exist.

    Raises TargetError, including the file's name, if the file cannot be edited or parsed.
    """
    text = text_of(files, path)
    try:
        return parse(text or "")
    except TargetError as error:
        raise error.about(path) from error


def root_of_only_document(tree: Tree) -> Node:
    """Return the root of the tree's only document.

    Raises TargetError if there are several documents, or if the root is neither a mapping nor null.
    """
    if len(tree.roots) > 1:
        raise TargetError(
            f"has {len(tree.roots)} YAML documents",
            hint="keep only one document; the others are not read",
        )
    return root_of_first_document(tree)


def root_of_first_document(tree: Tree) -> Node:
    """Return the root of the tree's first document.

    Raises TargetError if the root is neither a mapping nor null.
    """
    root = tree.root
    if root.null or root.kind == "mapping":
        return root
    kind = {"sequence": "a list", "scalar": "a single value"}.get(root.kind, "an alias")
    raise TargetError(f"is {kind} at its root, not a mapping", hint="use `key: value` lines")


def result_of_write(
    files: Files,
    path: str,
    text: str,
    edits: Sequence[Edit],
) -> tuple[Files, tuple[Edit, ...]]:
    """Return the result of an editor's `write`: the file at `path` with its new text and old mode,
    and the edits that changed a value.

    Both are empty if the text is unchanged. If only quotes or a comment changed, the first of
    `edits` is returned to show the location.
    """
    old_file = files.get(path, File(""))
    if text == old_file.text:
        return {}, ()
    new_file = File(text, old_file.mode)
    changing_edits = [edit for edit in edits if edit.old != edit.new]
    first_edit = edits[:1]  # empty if there are no edits
    return {path: new_file}, tuple(changing_edits or first_edit)


def name_as_spelled(image: Image, target: Target, *texts: str) -> str:
    """Return the image's name, spelled as in the first of these texts that refers to the image. If
    none does, use the spelling of the target's annotation, or else that of `image`.
    """
    # AIU normalizes the name: `docker.io/library/nginx` becomes `docker.io/nginx`, which Kustomize
    # treats as a different image.
    for text in texts:
        image_in_text = live_image(text) if text else None
        if image_in_text and image_in_text.identity == image.identity:
            return image_in_text.name
    annotated_image = target.image
    if annotated_image.identity == image.identity:
        return annotated_image.name
    return image.name


def identity_of(name: str) -> str:
    """Return an image name in its normal form.

    A value that is not an image name is returned unchanged.
    """
    image = live_image(name) if name else None
    return image.identity if image else name


def belongs(name: str, target: Target, key: Literal["kustomize_name", "manifests_name"]) -> bool:
    """Return whether an entry or a container with this image name (in normal form) may belong to
    the target's alias rather than to another alias of the Application.

    Several aliases may track the same image, such as an app and its migration. `key` is the
    annotation that gives an alias a name of its own. If several aliases track the image, an alias
    with this annotation gets only the entry with that name. An alias without the annotation gets
    all entries whose names are not annotated for another alias.
    """
    annotated = identity_of(getattr(target.keys, key))
    if annotated and annotated == name:
        return True
    names_of_others = [identity_of(getattr(other, key)) for other in target.others]
    if name and name in names_of_others:
        return False
    if not annotated:
        return True
    # The entry does not have the annotated name, so it belongs to another alias of the image, if
    # there is one.
    identities_of_others = [other.identity for other in target.others]
    return target.image.identity not in identities_of_others


def refuse_taken_entry(target: Target) -> None:
    """Raise AnnotationError if the target's entry is already taken, which means that another alias
    of the Application claims its name with `kustomize.image-name`.
    """
    name = identity_of(target.keys.kustomize_name) or target.image.identity
    if not target.others or belongs(name, target, "kustomize_name"):
        return
    owners = [other.alias for other in target.others if identity_of(other.kustomize_name) == name]
    owner = owners[0]  # there must be an owner, or else the entry would belong to the target
    own_key = f"{target.alias or '<alias>'}.kustomize.image-name"
    raise AnnotationError(
        f"the entry {name} belongs to {owner or 'another image-list entry'}, because of its"
        " kustomize.image-name",
        hint=f"set {own_key} to the image's name in the base manifests",
    )


def tag_value(image: Image) -> str:
    """Return the value for the tag's key: `1.2`, or with a digest `1.2@sha256:…`.

    A digest without a tag becomes `latest@sha256:…`, as in AIU. Charts put a colon before the
    value, and `name:sha256:…` is not a valid reference.
    """
    if not image.digest:
        return image.tag
    return f"{image.tag or 'latest'}@{image.digest}"


def split_tag(text: str) -> tuple[str, str]:
    """Return the tag and digest in `tag@sha256:…`. For a bare digest, the tag is ""."""
    before, _, after = text.partition("@")
    is_bare_digest = before.startswith("sha256:")
    return ("", before) if is_bare_digest else (before, after)


@contextmanager
def about(path: str) -> Iterator[None]:
    """Add this file's name to errors raised inside the block, unless they already have one."""
    try:
        yield
    except TaskError as error:
        if error.subject:
            raise
        raise error.about(path) from error
