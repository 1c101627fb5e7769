"""Reads and writes override files, `.argocd-source-<app>.yaml`: Helm parameters
and plugin variables.

`override_kustomize` does the same for images. Since v1.3, AIU has written plugin variables for the
same annotations.

`annotations.write_back.override_names` returns the file's name.

Argo CD's repo-server applies the file to the source as a JSON merge patch. The file's lists replace
the spec's lists (argo-cd issue 6665), and an element inherits missing fields from the spec's
element at the same index. So the file must be self-contained: each element must be complete, and
each value must be a string.

An element that we copied from the spec or from the common file has a comment with its origin, and
follows the origin's changes. An element without the comment was written by a person, and is left
unchanged.

A list without any such comment was written by a person or another tool, such as AIU. It has always
hidden the spec's other elements from Argo CD, so nothing is copied into it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from task.editors.file_text import about, chosen, result, single, spelled, tag_value, tree_of
from task.editors.helm_values import digest_value, known_digest, reading_of
from task.editors.yaml.edit import (
    Splice,
    add,
    alone,
    checked,
    content_end,
    drop_items,
    line_end,
    only_blank,
    splice,
)
from task.editors.yaml.spelling import Data, Word, looks_typed, sound
from task.editors.yaml.tree import Node, Tree, pairs, resolved, resolved_value, value
from task.errors import AnnotationError, TargetError
from task.model import Edit, Files, Image, Keys, Parameter, Place, Reading, Target

COMMON = ".argocd-source.yaml"
FROM_SPEC = "# from the Application"
FROM_COMMON = f"# from {COMMON}"
_ORIGIN = re.compile(r"[ \t]+(# from (?:the Application|\.argocd-source\.yaml))[ \t]*")


class Section(NamedTuple):
    """The location of a source type's list in an override file."""

    name: str  # "helm"
    list: str  # "parameters"


T = TypeVar("T")  # a list element
# reads the elements in the common file's list, by key
Common = Callable[[Sequence[Node]], Mapping[str, T]]
KeyOf = Callable[[Node], str | None]  # an element's key, or None for one of the image's elements
HELM = Section("helm", "parameters")
PLUGIN = Section("plugin", "env")


@dataclass(frozen=True)
class Below(Generic[T]):
    """The elements of the spec or the common file, which the override file's list hides."""

    # by key: each element, and its origin comment
    origins: Mapping[str, tuple[T, str]]
    used: bool  # whether Argo CD uses these elements, because the override file has no list
    carries: bool  # whether the override file's list gets copies of the elements it lacks


class Stray(NamedTuple):
    """An element in the spec or the common file that the override file changes or hides."""

    name: str
    origin: str
    hidden: bool  # whether the override file lacks the element; otherwise, the value differs


def places(target: Target) -> tuple[Place, ...]:
    """Return the override file in all spellings of its name, the common file of the folder's
    Applications, and Helm's values files.
    """
    paths = dict.fromkeys((target.path, *target.fallbacks, common_path(target)))
    values = target.values if target.kind == "helm-override" else ()
    return tuple(map(Place, (*paths, *values)))


def common_path(target: Target) -> str:
    """Return the path of `.argocd-source.yaml` in the source's folder."""
    # A `write-back-target` may use any file as the override file, and only the usual name shows
    # which folder the file is for.
    override = posixpath.basename(target.path).startswith(".argocd-source-")
    folder = posixpath.dirname(target.path) if override else target.source.path.strip("/")
    return posixpath.normpath(posixpath.join(folder, COMMON))


def load(files: Files, target: Target, section: Section) -> tuple[str, Tree]:
    """Return the override file's path and tree.

    Raises TargetError if the value where the list belongs is not a list.
    """
    path = chosen(files, target)
    return path, _tree(files, path, section)


def _tree(files: Files, path: str, section: Section) -> Tree:
    tree = tree_of(files, path)
    with about(path):
        single(tree)
        _section_list(tree, section)
    return tree


def _section_list(tree: Tree, section: Section) -> Node | None:
    """Return the section's list. Return None if the list, the section, or the document is missing
    or null.
    """
    node: Node | None = tree.root
    for key in section:
        if node is None or node.null:
            return None
        if node.kind != "mapping":
            raise _shape(f"{section.name} is not a mapping")
        # Argo CD ignores case in keys, but its merge patch does not: the result would have both
        # `Helm:` and `helm:`.
        if other := next(
            (name.value for name, _ in pairs(node) if name.value.lower() == key != name.value),
            "",
        ):
            raise _shape(f"has {other} where Argo CD expects {key}")
        node = resolved_value(node, key)
    if node is None or node.null:
        return None
    if node.kind != "sequence":
        raise _shape(f"{section.name}.{section.list} is not a list")
    return node


def _shape(problem: str) -> TargetError:
    return TargetError(
        problem,
        hint="see Argo CD's documentation on override files, or remove the file",
    )


def elements(tree: Tree, section: Section) -> Sequence[Node]:
    """Return the elements of the section's list, or () if it does not exist."""
    return listed.children if (listed := _section_list(tree, section)) else ()


def below(
    files: Files,
    target: Target,
    section: Section,
    spec: Mapping[str, T],
    common: Common[T],
) -> Below[T]:
    """Return the elements that Argo CD would use if the override file had no list.

    `spec` has the spec's elements, and `common` reads those of the common file's list.
    """
    path, tree = load(files, target, section)
    has_list = _section_list(tree, section) is not None
    found = [origin_comment(tree, element) for element in elements(tree, section)]
    comments = {comment[1] for comment in found if comment}
    shared = common_path(target)
    common_list = _section_list(_tree(files, shared, section), section) if shared != path else None
    origins: dict[str, tuple[T, str]] = {}
    # The common file's list also replaces the spec's list.
    if target.carry or FROM_SPEC in comments or common_list is None:
        origins = {key: (element, FROM_SPEC) for key, element in spec.items()}
    if common_list:
        in_common = common(common_list.children)
        origins |= {key: (element, FROM_COMMON) for key, element in in_common.items()}
    carries = target.carry
    if carries is None:  # a list without origin comments is not ours
        carries = not has_list or bool(comments)
    return Below(origins, not has_list, carries)


def grow(tree: Tree, section: Section, items: Sequence[Data]) -> Tree:
    """Append elements to the section's list, and return the new tree. A missing list is added."""
    if not items:
        return tree
    mapping = value(tree.root, section.name)
    # Argo CD fails on an empty or comment-only file ("Invalid JSON Patch"), so such a file is
    # filled.
    if mapping is None:
        return add(tree, tree.root, {section.name: {section.list: items}})
    sequence = value(mapping, section.list)
    for node in filter(None, (mapping, sequence)):
        if node.kind == "alias":
            raise TargetError(
                f"line {tree.line(node)}: *{node.value} refers to a shared list",
                hint="write out the list",
            )
        alone(tree, node)
    return add(tree, sequence, items) if sequence else add(tree, mapping, {section.list: items})


def origin_comment(tree: Tree, element: Node) -> re.Match[str] | None:
    """Return the element's origin comment with the preceding spaces, or None if the element has no
    such comment or is in flow style.

    The comment may be on any of the element's lines.
    """
    for end in _comment_positions(tree, element):
        if comment := _ORIGIN.fullmatch(tree.text, end, line_end(tree.text, end)):
            return comment
    return None


def _comment_positions(tree: Tree, element: Node) -> Iterator[int]:
    """Yield the end of each of the element's values that a comment may follow."""
    parent = tree.parent(element)
    # After a flow-style element, the comment could belong to anything on the line.
    if (
        element.kind == "alias"
        or element.style == "{"
        or (parent is not None and parent.style == "{")
    ):
        return
    nodes = [element]
    if element.kind == "mapping":
        nodes = [child for _, child in pairs(element)]
    for node in nodes:
        # in a block scalar, the comment would be part of the value
        if node.kind == "scalar" and node.style not in {"|", ">"}:
            yield content_end(tree.text, node)


def follow(
    tree: Tree,
    section: Section,
    there: Below[T],
    key_of: KeyOf,
    added: Collection[str],
) -> Tree:
    """Remove the copies whose origin is gone, give each other copy its origin comment, and return
    the new tree.

    Copies are the elements with a comment, and the elements whose keys are in `added`. `key_of`
    returns an element's key, or None for the image's own elements, which do not get a comment. A
    copy that shares its line with anything else is kept.
    """
    gone = []
    for number, node in enumerate(elements(tree, section)):
        key = key_of(node)
        without_origin = key is not None and key not in there.origins
        if there.carries and without_origin and origin_comment(tree, node):
            gone.append(number)
    if gone and (listed := _section_list(tree, section)):
        tree = drop_items(tree, alone(tree, listed), gone)
    splices = [
        splice
        for node in elements(tree, section)
        for splice in _with_origin_comment(tree, node, key_of(node), there, added)
    ]
    return checked(tree, splices, {}) if splices else tree


def _with_origin_comment(
    tree: Tree,
    node: Node,
    key: str | None,
    there: Below[T],
    added: Collection[str],
) -> Iterator[Splice]:
    """Yield the change, if any is needed, after which an element has the right origin comment."""
    comment = origin_comment(tree, node)
    if key is None:
        wanted = ""
    elif there.carries and key in there.origins and (comment or key in added):
        _, wanted = there.origins[key]
    else:
        return
    if comment:
        if comment[1] != wanted:
            yield Splice(*comment.span(), f"  {wanted}" if wanted else "")
        return
    at = next(_comment_positions(tree, node), None)
    if at is None or not wanted:
        return
    end = line_end(tree.text, at)
    # A person's comment on the line takes precedence over ours.
    if only_blank(tree.text, at, end):
        yield Splice(at, end, f"  {wanted}")


def _section(target: Target) -> Section:
    return PLUGIN if target.kind == "plugin-override" else HELM


def _element_names(target: Target) -> Keys:
    """Return the names of the image's elements.

    Raises AnnotationError if no annotation says which element has the tag.
    """
    keys = target.keys
    if _section(target) == HELM:
        return names_of(keys)
    # Every plugin has its own variables, so there is no sensible default.
    if not (keys.spec or keys.tag):
        hint = "set <alias>.plugin.image-tag or <alias>.plugin.image-spec to the variable's name"
        raise AnnotationError("no annotation specifies the plugin variable for the tag", hint=hint)
    return keys


def names_of(keys: Keys) -> Keys:
    """Return the Helm parameters to use: either the parameter for the whole reference, or the
    parameters for the name and tag.
    """
    if keys.spec:
        return Keys(spec=keys.spec)  # as in AIU, the spec takes precedence over name and tag
    name = keys.name or "image.name"
    tag = keys.tag or "image.tag"  # AIU's defaults
    if name == tag:
        hint = f"use helm.image-spec: {name}"
        raise AnnotationError(f"helm.image-name and helm.image-tag are both {name!r}", hint=hint)
    return Keys(
        name=name,
        tag=tag,
        digest=keys.digest,
    )


def _spec(target: Target) -> Sequence[Parameter]:
    if _section(target) == HELM:
        return target.source.parameters
    return [Parameter(name, value) for name, value in target.source.env]


def _field(element: Node, name: str) -> Node | None:
    """Return the node of an element's field, or None.

    Argo CD ignores case in field names.
    """
    element = resolved(element)
    if element.kind != "mapping":
        return None
    return value(element, name) or next(
        (node for key, node in pairs(element) if key.value.lower() == name),
        None,
    )


def _text(element: Node, name: str) -> str:
    """Return the value of a field, or "" if the field is missing."""
    node = _field(element, name)
    return resolved(node).value if node else ""


def _parameters(tree: Tree, section: Section) -> list[Parameter]:
    """Return the elements that have a name."""
    return [
        found
        for element in elements(tree, section)
        if (found := _parameter_of_element(element, section)).name
    ]


def _parameter_of_element(element: Node, section: Section) -> Parameter:
    force = section == HELM and _text(element, "forcestring").lower() == "true"
    return Parameter(
        _text(element, "name"),
        _text(element, "value"),
        force,
    )


def read(files: Files, target: Target) -> Reading:
    """Return the values of the image's elements.

    The reading is not sound if an element appears twice with different values, or if YAML or `helm
    --set` converts its value to a number or a boolean.
    """
    section = _section(target)
    names = _element_names(target)
    path, tree = load(files, target, section)
    found = _parameters(tree, section)
    unsound = set[str]()
    values = dict[str, str]()
    for element in elements(tree, section):
        name = _text(element, "name")
        text = _text(element, "value")
        node = _field(element, "value")
        if node and not sound(resolved(node)):
            unsound.add(name)
        if name and values.setdefault(name, text) != text:
            unsound.add(name)
    if section == HELM:
        known_digest(files, target, names, found or target.source.parameters)
        # Without forceString, Argo CD uses `--set`, and Helm converts such a value to a number or a
        # boolean: 12345678 becomes an integer (Helm 3.19 and 4.1). With forceString, Argo CD uses
        # `--set-string`.
        unsound |= {
            parameter.name
            for parameter in found
            if not parameter.force_string and looks_typed(parameter.value)
        }
    own = {names.spec or names.name, names.spec or names.tag, names.digest}
    texts = {parameter.name: parameter.value for parameter in found}
    return reading_of(texts, names, path, sound=not own & unsound)


def read_below(files: Files, target: Target) -> Reading:
    """Return the image in the elements that Argo CD uses while the override file has no list."""
    used = _spec(target)
    if target.kind.endswith("-override"):
        there = _below(files, replace(target, carry=None))
        used = [element for element, _ in there.origins.values()] if there.used else []
    texts = {parameter.name: parameter.value for parameter in used}
    return reading_of(texts, _element_names(target), "", sound=True)


def _below(files: Files, target: Target) -> Below[Parameter]:
    section = _section(target)
    spec = _spec(target)

    def common(nodes: Sequence[Node]) -> dict[str, Parameter]:
        found = []
        for number, node in enumerate(nodes):
            # Argo CD takes a missing field from the spec's element at the same index.
            under = spec[number] if number < len(spec) else Parameter("", "")
            given = _parameter_of_element(node, section)
            name = given.name if _field(node, "name") else under.name
            value = given.value if _field(node, "value") else under.value
            force = given.force_string if _field(node, "forcestring") else under.force_string
            found.append(Parameter(name, value, force))
        return {parameter.name: parameter for parameter in found if parameter.name}

    return below(files, target, section, {parameter.name: parameter for parameter in spec}, common)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Write the image's elements, and copies of the other elements of the spec and the common file.

    An element with an origin comment follows its origin, and is removed if the origin is removed.
    All other elements are left unchanged.
    """
    section = _section(target)
    names = _element_names(target)
    spec = _spec(target)
    path, tree = load(files, target, section)
    now = _parameters(tree, section)
    before = {parameter.name: parameter.value for parameter in now}
    digest = (
        known_digest(files, target, names, now or target.source.parameters)
        if section == HELM
        else ""
    )
    mine = _wanted(target, image, names, [*now, *spec], digest)
    there = _below(files, target)
    carried: dict[str, Parameter] = {}
    if there.carries:
        carried = {name: element for name, (element, _) in there.origins.items()}

    def wanted(tree: Tree, element: Node) -> Parameter | None:
        """Return the wanted content for an element, or None to leave the element unchanged."""
        name = _text(element, "name")
        if name in mine:
            return mine[name]
        copied = carried.get(name)
        return copied if copied and origin_comment(tree, element) else None

    def key_of(element: Node) -> str | None:
        name = _text(element, "name")
        return None if name in mine else name

    with about(path):
        tree = _with_values(tree, section, wanted)
        # Argo CD takes a missing field from the spec's element at the same index, even if that
        # element has a different name.
        while gap := _incomplete_element(tree, section, wanted):
            element, name, data = gap
            tree = add(tree, alone(tree, element), {name: data})
        whole = {**carried, **mine}
        missing = [name for name in whole if name not in before]
        tree = grow(tree, section, [_element_data(whole[name], section) for name in missing])
        tree = follow(tree, section, there, key_of, missing)
    after = {parameter.name: parameter.value for parameter in _parameters(tree, section)}
    edits = [
        Edit(path, name, before.get(name, ""), after.get(name, "")) for name in {**after, **before}
    ]
    return result(files, path, tree.text, edits)


def _wanted(
    target: Target,
    image: Image,
    keys: Keys,
    known: Sequence[Parameter],
    digest: str,
) -> Mapping[str, Parameter]:
    """Return the image's elements, by name.

    The name is spelled as in the `known` elements, if one of them has it. `digest` is the current
    digest.
    """
    name_key = keys.spec or keys.name
    spellings = [parameter.value for parameter in known if parameter.name == name_key]
    full = spelled(image, target, *spellings)
    if keys.spec:
        texts = {keys.spec: replace(image, name=full).reference}
    elif keys.digest:
        texts = {
            keys.name: full,
            keys.tag: image.tag or "latest",
            keys.digest: digest_value(image, keys.digest, digest),
        }
    else:
        texts = {keys.name: full, keys.tag: tag_value(image)}
    force = _section(target) == HELM
    # An image without a digest clears the digest key.
    return {
        name: Parameter(name, text, force)
        for name, text in texts.items()
        if name and (text or name == keys.digest)
    }


def _element_data(parameter: Parameter, section: Section) -> dict[str, Word]:
    """Return the complete element, with its fields in AIU's order."""
    fields: dict[str, Word] = {"name": parameter.name, "value": parameter.value}
    # AIU writes and reads only the spelling `forcestring`. Argo CD ignores case.
    return {**fields, "forcestring": parameter.force_string} if section == HELM else fields


def _with_values(
    tree: Tree,
    section: Section,
    wanted: Callable[[Tree, Node], Parameter | None],
) -> Tree:
    """Write the wanted values to the fields that exist, and return the new tree."""
    changes: list[tuple[Node, Word]] = []
    for element in elements(tree, section):
        want = wanted(tree, element)
        value_node = _field(element, "value")
        if value_node and _must_be_rewritten(resolved(value_node), want):
            text = want.value if want else resolved(value_node).value
            changes.append((alone(tree, value_node), text))
        if want and section == HELM and (force_node := _field(element, "forcestring")):
            now = resolved(force_node)
            plain = now.kind == "scalar" and not now.style
            # Argo CD accepts only plain booleans: its JSON decoder fails on the string `"true"`.
            if not plain or now.value != str(want.force_string).lower():
                changes.append((alone(tree, force_node), want.force_string))
    return splice(tree, changes)


def _must_be_rewritten(now: Node, want: Parameter | None) -> bool:
    """Return whether a value differs from the wanted one, or is not a string.

    A value that is not a string (`1.10`, `true`) breaks the whole Application, even if it was
    written by a person: Argo CD cannot generate the manifests.
    """
    if now.kind != "scalar":
        return False
    if want is None:
        return not sound(now) and not now.null
    return now.value != want.value or not sound(now)


def _incomplete_element(
    tree: Tree,
    section: Section,
    wanted: Callable[[Tree, Node], Parameter | None],
) -> tuple[Node, str, Data] | None:
    """Return the first element that lacks a field, the missing field, and its value, or None."""
    for element in elements(tree, section):
        want = wanted(tree, element)
        if want:
            for name, data in _element_data(want, section).items():
                if _field(element, name) is None:
                    return resolved(element), name, data
    return None


def strays(files: Files, target: Target) -> tuple[Stray, ...]:
    """Return each element that was edited to differ from its origin, and each element that the list
    hides.
    """
    if target.carry is False:
        return ()
    section = _section(target)
    keys = _element_names(target)
    _, tree = load(files, target, section)
    there = _below(files, target)
    origins = there.origins
    own = {keys.name, keys.tag, keys.spec, keys.digest}
    differing = {}
    for element in elements(tree, section):
        found = _parameter_of_element(element, section)
        if found.name not in origins or found.name in {*own, *target.managed}:
            continue
        theirs, origin = origins[found.name]
        if found != theirs and not origin_comment(tree, element):
            differing[found.name] = Stray(found.name, origin, hidden=False)
    if there.carries:
        return tuple(differing.values())
    names = {parameter.name for parameter in _parameters(tree, section)} | own
    hidden = [
        Stray(name, origin, hidden=True)
        for name, (_, origin) in origins.items()
        if name not in names
    ]
    return (*differing.values(), *hidden)
