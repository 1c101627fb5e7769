"""What the editors of the override file `.argocd-source-<app>.yaml` share.

`annotations.write_back.override_names` makes the file's name.

Argo CD's repo-server applies the file to the source as a JSON merge patch. The file's lists replace those of the spec
(argo-cd issue 6665), and an element inherits missing fields from the spec's element at the same index. So the file must
have everything that is needed: each element must be complete, and each value a string.

An element that we copied from the spec, or from the common file, has a comment that names its origin, and follows it.
An element without the comment was written by a person, and stays as it is.

A list without any such comment was written by somebody else, such as AIU. It has hidden the spec's other elements from
Argo CD since it was made, so nothing is copied into it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from task.editors.file_text import about, chosen, single, tree_of
from task.editors.yaml.edit import Splice, add, alone, checked, content_end, drop_items, line_end, only_blank
from task.editors.yaml.spelling import Data
from task.editors.yaml.tree import Node, Tree, pairs, resolved_value, value
from task.errors import TargetError
from task.model import Files, Place, Target

COMMON = ".argocd-source.yaml"
FROM_SPEC, FROM_COMMON = "# from the Application", f"# from {COMMON}"
_ORIGIN = re.compile(r"[ \t]+(# from (?:the Application|\.argocd-source\.yaml))[ \t]*")


class Section(NamedTuple):
    """The place of a source type's list in an override file."""

    name: str  # "helm"
    list: str  # "parameters"


@dataclass(frozen=True)
class Below:
    """The lists that an override file's list hides, and whether it copies their elements."""

    spec: bool  # whether the spec's list counts; the common file's would replace it
    common: Sequence[Node]  # the elements of the common override file's list
    used: bool  # whether Argo CD uses these lists, because the override file has none
    carries: bool  # whether the override file's list gets copies of the elements that it lacks


class Stray(NamedTuple):
    """An element of the spec or the common file that Argo CD does not use as it is, because of the override file."""

    name: str
    origin: str
    hidden: bool  # whether the override file has no such element; otherwise it has another value


def places(target: Target) -> tuple[Place, ...]:
    """Return the override file in all its spellings, and the file that all Applications of the folder share."""
    paths = (target.path, *target.fallbacks, common_path(target))
    return tuple(Place(path) for path in dict.fromkeys(paths))


def common_path(target: Target) -> str:
    """Return the path of `.argocd-source.yaml` in the source's folder."""
    # A `write-back-target` may name any file as the override file, and only the usual name says which folder it is for.
    override = posixpath.basename(target.path).startswith(".argocd-source-")
    folder = posixpath.dirname(target.path) if override else target.source.path.strip("/")
    return posixpath.normpath(posixpath.join(folder, COMMON))


def load(files: Files, target: Target, section: Section) -> tuple[str, Tree]:
    """Return the override file's path and its tree. Raises TargetError if something else is in the list's place."""
    path = chosen(files, target)
    return path, _tree(files, path, section)


def _tree(files: Files, path: str, section: Section) -> Tree:
    tree = tree_of(files, path)
    with about(path):
        single(tree)
        _list(tree, section)
    return tree


def _list(tree: Tree, section: Section) -> Node | None:
    """Return the section's list, or None if the list, the section or the document is missing or null."""
    node: Node | None = tree.root
    for key in section:
        if node is None or node.null:
            return None
        if node.kind != "mapping":
            raise _shape(f"{section.name} is not a mapping")
        # Argo CD ignores the case of keys, but its merge patch does not: it would have both `Helm:` and `helm:`.
        if other := next((name.value for name, _ in pairs(node) if name.value.lower() == key != name.value), ""):
            raise _shape(f"has {other} where Argo CD expects {key}")
        node = resolved_value(node, key)
    if node is None or node.null:
        return None
    if node.kind != "sequence":
        raise _shape(f"{section.name}.{section.list} is not a list")
    return node


def _shape(problem: str) -> TargetError:
    return TargetError(problem, hint="see Argo CD's documentation of override files, or remove the file")


def elements(tree: Tree, section: Section) -> Sequence[Node]:
    """Return the elements of the section's list, or () if there is none."""
    return listed.children if (listed := _list(tree, section)) else ()


def below(files: Files, target: Target, section: Section) -> Below:
    """Return the lists that Argo CD would use if the override file had none."""
    path, tree = load(files, target, section)
    own = _list(tree, section)
    marks = {mark[1] for element in elements(tree, section) if (mark := origin_comment(tree, element))}
    shared = common_path(target)
    common = _list(_tree(files, shared, section), section) if shared != path else None
    # The common file's list replaces that of the spec, too.
    spec = bool(target.carry) or FROM_SPEC in marks or common is None
    carries = (own is None or bool(marks)) if target.carry is None else target.carry
    return Below(spec, common.children if common else (), own is None, carries)


def grow(tree: Tree, section: Section, items: Sequence[Data]) -> Tree:
    """Return the file with more elements at the end of the section's list. A missing list is added."""
    if not items:
        return tree
    mapping = value(tree.root, section.name)
    # Argo CD fails for an empty or comment-only file ("Invalid JSON Patch"), so such a file is filled.
    if mapping is None:
        return add(tree, tree.root, {section.name: {section.list: items}})
    sequence = value(mapping, section.list)
    for node in filter(None, (mapping, sequence)):
        if node.kind == "alias":
            raise TargetError(f"line {tree.line(node)}: *{node.value} refers to a shared list", hint="write it out")
        alone(tree, node)
    return add(tree, sequence, items) if sequence else add(tree, mapping, {section.list: items})


def origin_comment(tree: Tree, element: Node) -> re.Match[str] | None:
    """Return the element's origin comment with the blanks before it, or None if it has none, or is in flow style.

    It may be on any of the element's lines.
    """
    ends = ((end, line_end(tree.text, end)) for end in _line_ends(tree, element))
    return next(filter(None, (_ORIGIN.fullmatch(tree.text, *place) for place in ends)), None)


def _line_ends(tree: Tree, element: Node) -> Iterator[int]:
    """Yield the ends of those values of the element that a comment may follow."""
    parent = tree.parent(element)
    # After flow style, the comment could belong to any element of the line.
    if element.kind == "alias" or element.style == "{" or (parent is not None and parent.style == "{"):
        return
    for node in (child for _, child in pairs(element)) if element.kind == "mapping" else (element,):
        if node.kind == "scalar" and node.style not in {"|", ">"}:  # in a block scalar, the comment would be text
            yield content_end(tree.text, node)


def follow_origins(
    tree: Tree,
    section: Section,
    key_of: Callable[[Node], str | None],
    origins: Mapping[str, str],
    added: Collection[str],
    *,
    carries: bool,
) -> Tree:
    """Return the file without the copies whose origin is gone, and with a comment at each copy that names its origin.

    Copies are the elements with a comment, and those with the keys in `added`. `key_of` returns the key of an element
    in `origins`, or None for an element of the image, which gets no comment. A copy that shares its line with something
    else stays.
    """
    nodes = elements(tree, section)
    copies = [(number, key_of(node)) for number, node in enumerate(nodes) if carries and origin_comment(tree, node)]
    gone = [number for number, key in copies if key is not None and key not in origins]
    if gone and (listed := _list(tree, section)):
        tree = drop_items(tree, alone(tree, listed), gone)
    splices = []
    for node in elements(tree, section):
        key, now = key_of(node), origin_comment(tree, node)
        if key is None:
            want = ""
        elif key in origins and (now or key in added):
            want = origins[key]
        else:
            continue
        if now and now[1] != want:
            splices.append(Splice(*now.span(), f"  {want}" if want else ""))
        elif want and not now and (at := next(_line_ends(tree, node), None)) is not None:
            tail = line_end(tree.text, at)
            # A person's comment on that line is more important than ours.
            splices += [Splice(at, tail, f"  {want}")] if only_blank(tree.text, at, tail) else []
    return checked(tree, splices, {}) if splices else tree
