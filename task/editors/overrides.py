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
    checked,
    content_end,
    drop_items,
    line_end,
    only_blank,
    require_unshared,
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
class LowerLayer(Generic[T]):
    """The elements of the spec or the common file, which the override file's list hides."""

    # by key: each element, and its origin comment
    origins: Mapping[str, tuple[T, str]]
    used: bool  # whether Argo CD uses these elements, because the override file has no list
    copied: bool  # whether the override file's list gets copies of the elements it lacks


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
    has_usual_name = posixpath.basename(target.path).startswith(".argocd-source-")
    folder = posixpath.dirname(target.path) if has_usual_name else target.source.path.strip("/")
    return posixpath.normpath(posixpath.join(folder, COMMON))


def load(files: Files, target: Target, section: Section) -> tuple[str, Tree]:
    """Return the override file's path and tree.

    Raises TargetError if the value where the list belongs is not a list.
    """
    path = chosen(files, target)
    return path, _tree(files, path, section)


def _tree(files: Files, path: str, section: Section) -> Tree:
    """Return a file's tree. Raises the same errors as `load`."""
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
        for name, _ in pairs(node):
            if name.value != key and name.value.lower() == key:
                raise _shape(f"has {name.value} where Argo CD expects {key}")
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
    section_list = _section_list(tree, section)
    return section_list.children if section_list else ()


def read_lower_layer(
    files: Files,
    target: Target,
    section: Section,
    spec: Mapping[str, T],
    common: Common[T],
) -> LowerLayer[T]:
    """Return the elements that Argo CD would use if the override file had no list.

    `spec` has the spec's elements, and `common` reads those of the common file's list.
    """
    path, tree = load(files, target, section)
    has_list = _section_list(tree, section) is not None
    matches = [origin_comment(tree, element) for element in elements(tree, section)]
    comments = {match[1] for match in matches if match}
    common_list = None
    if common_path(target) != path:
        common_tree = _tree(files, common_path(target), section)
        common_list = _section_list(common_tree, section)
    origins: dict[str, tuple[T, str]] = {}
    # The common file's list also replaces the spec's list.
    is_spec_used = common_list is None
    if is_spec_used or target.carry or FROM_SPEC in comments:
        origins = {key: (element, FROM_SPEC) for key, element in spec.items()}
    if common_list:
        in_common = common(common_list.children)
        origins |= {key: (element, FROM_COMMON) for key, element in in_common.items()}
    copied = target.carry
    if copied is None:  # a list without origin comments is not ours
        copied = not has_list or bool(comments)
    return LowerLayer(origins, used=not has_list, copied=copied)


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
        require_unshared(tree, node)
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


def is_copy(tree: Tree, element: Node) -> bool:
    """Return whether an element is a copy, which means that it has an origin comment."""
    return origin_comment(tree, element) is not None


def _comment_positions(tree: Tree, element: Node) -> Iterator[int]:
    """Yield the end of each of the element's values that a comment may follow."""
    parent = tree.parent(element)
    in_flow_style = element.style == "{" or (parent is not None and parent.style == "{")
    # After a flow-style element, the comment could belong to anything on the line.
    if element.kind == "alias" or in_flow_style:
        return
    is_mapping = element.kind == "mapping"
    value_nodes = [child for _, child in pairs(element)] if is_mapping else [element]
    for node in value_nodes:
        # in a block scalar, the comment would be part of the value
        if node.kind == "scalar" and node.style not in {"|", ">"}:
            yield content_end(tree.text, node)


def follow(
    tree: Tree,
    section: Section,
    lower_layer: LowerLayer[T],
    key_of: KeyOf,
    added: Collection[str],
) -> Tree:
    """Remove the copies whose origin is gone, give each other copy its origin comment, and return
    the new tree.

    Copies are the elements with a comment, and the elements whose keys are in `added`. `key_of`
    returns an element's key, or None for the image's own elements, which do not get a comment. A
    copy that shares its line with anything else is kept.
    """
    if lower_layer.copied:
        kept_keys = {None, *lower_layer.origins}
        numbers_to_drop = [
            number
            for number, element in enumerate(elements(tree, section))
            if key_of(element) not in kept_keys and is_copy(tree, element)
        ]
        section_list = _section_list(tree, section)
        if section_list and numbers_to_drop:
            require_unshared(tree, section_list)
            tree = drop_items(tree, section_list, numbers_to_drop)
    splices: list[Splice] = []
    for element in elements(tree, section):
        splices += _origin_comment_change(tree, element, key_of(element), lower_layer, added)
    return checked(tree, splices, {}) if splices else tree


def _origin_comment_change(
    tree: Tree,
    element: Node,
    key: str | None,
    lower_layer: LowerLayer[T],
    added: Collection[str],
) -> Iterator[Splice]:
    """Yield the change, if any is needed, after which an element has the right origin comment."""
    comment = origin_comment(tree, element)
    is_ours = comment is not None or key in added
    if key is None:  # one of the image's own elements
        wanted = ""
    elif is_ours and lower_layer.copied and key in lower_layer.origins:
        _, wanted = lower_layer.origins[key]
    else:
        return
    if comment is not None:
        if comment[1] != wanted:
            yield Splice(*comment.span(), f"  {wanted}" if wanted else "")
        return
    start = next(_comment_positions(tree, element), None)
    if start is None or not wanted:
        return
    end = line_end(tree.text, start)
    # A person's comment on the line takes precedence over ours.
    if only_blank(tree.text, start, end):
        yield Splice(start, end, f"  {wanted}")


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
    exact = value(element, name)
    if exact is not None:
        return exact
    for key, node in pairs(element):
        if key.value.lower() == name:
            return node
    return None


def _text(element: Node, name: str) -> str:
    """Return the value of a field, or "" if the field is missing."""
    node = _field(element, name)
    return resolved(node).value if node else ""


def _parameters(tree: Tree, section: Section) -> list[Parameter]:
    """Return the elements that have a name."""
    parameters = [_parameter_of_element(element, section) for element in elements(tree, section)]
    return [parameter for parameter in parameters if parameter.name]


def _parameter_of_element(element: Node, section: Section) -> Parameter:
    """Return the element's fields. A missing field is "" or false."""
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
    parameters = _parameters(tree, section)
    unsound_names = set[str]()
    for element in elements(tree, section):
        value_node = _field(element, "value")
        if value_node and not sound(resolved(value_node)):
            unsound_names.add(_text(element, "name"))
    first_values = dict[str, str]()
    for parameter in parameters:
        first_value = first_values.setdefault(parameter.name, parameter.value)
        if parameter.value != first_value:
            unsound_names.add(parameter.name)
    if section == HELM:
        # called only for its errors
        known_digest(files, target, names, parameters or target.source.parameters)
        # Without forceString, Argo CD uses `--set`, and Helm converts such a value to a number or a
        # boolean: 12345678 becomes an integer (Helm 3.19 and 4.1). With forceString, Argo CD uses
        # `--set-string`.
        unsound_names |= {
            parameter.name
            for parameter in parameters
            if not parameter.force_string and looks_typed(parameter.value)
        }
    own_names = {names.spec or names.name, names.spec or names.tag, names.digest}
    texts = {parameter.name: parameter.value for parameter in parameters}
    return reading_of(texts, names, path, sound=own_names.isdisjoint(unsound_names))


def read_below(files: Files, target: Target) -> Reading:
    """Return the image in the elements that Argo CD uses while the override file has no list."""
    used = _spec(target)
    if target.kind.endswith("-override"):
        lower_layer = _lower_layer(files, replace(target, carry=None))
        used = [element for element, _ in lower_layer.origins.values()] if lower_layer.used else []
    texts = {parameter.name: parameter.value for parameter in used}
    return reading_of(texts, _element_names(target), "", sound=True)


def _lower_layer(files: Files, target: Target) -> LowerLayer[Parameter]:
    section = _section(target)
    spec = _spec(target)

    def common(nodes: Sequence[Node]) -> dict[str, Parameter]:
        parameters = []
        for number, node in enumerate(nodes):
            # Argo CD takes a missing field from the spec's element at the same index.
            inherited = spec[number] if number < len(spec) else Parameter("", "")
            given = _parameter_of_element(node, section)
            name = given if _field(node, "name") else inherited
            value = given if _field(node, "value") else inherited
            force = given if _field(node, "forcestring") else inherited
            parameters.append(Parameter(name.name, value.value, force.force_string))
        return {parameter.name: parameter for parameter in parameters if parameter.name}

    of_spec = {parameter.name: parameter for parameter in spec}
    return read_lower_layer(files, target, section, of_spec, common)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Write the image's elements, and copies of the other elements of the spec and the common file.

    An element with an origin comment follows its origin, and is removed if the origin is removed.
    All other elements are left unchanged.
    """
    section = _section(target)
    names = _element_names(target)
    spec = _spec(target)
    path, tree = load(files, target, section)
    old_parameters = _parameters(tree, section)
    old_values = {parameter.name: parameter.value for parameter in old_parameters}
    digest = ""
    if section == HELM:
        digest = known_digest(files, target, names, old_parameters or target.source.parameters)
    own_elements = _wanted(target, image, names, [*old_parameters, *spec], digest)
    lower_layer = _lower_layer(files, target)
    copies: dict[str, Parameter] = {}
    if lower_layer.copied:
        copies = {name: element for name, (element, _) in lower_layer.origins.items()}

    def wanted(tree: Tree, element: Node) -> Parameter | None:
        """Return the wanted content for an element, or None to leave the element unchanged."""
        name = _text(element, "name")
        if name in own_elements:
            return own_elements[name]
        return copies.get(name) if is_copy(tree, element) else None

    def key_of(element: Node) -> str | None:
        name = _text(element, "name")
        return None if name in own_elements else name

    with about(path):
        tree = _with_values(tree, section, wanted)
        # Argo CD takes a missing field from the spec's element at the same index, even if that
        # element has a different name.
        while gap := _incomplete_element(tree, section, wanted):
            element, name, data = gap
            tree = add(tree, require_unshared(tree, element), {name: data})
        all_wanted = {**copies, **own_elements}
        missing = [name for name in all_wanted if name not in old_values]
        tree = grow(tree, section, [_element_data(all_wanted[name], section) for name in missing])
        tree = follow(tree, section, lower_layer, key_of, missing)
    new_values = {parameter.name: parameter.value for parameter in _parameters(tree, section)}
    edits = [
        Edit(path, name, old_values.get(name, ""), new_values.get(name, ""))
        for name in {**new_values, **old_values}
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
    """Write the wanted values to the fields that exist, and return the new tree.

    A value that is not a string becomes one, even if the element is otherwise left unchanged.
    """
    changes: list[tuple[Node, Word]] = []
    for element in elements(tree, section):
        parameter = wanted(tree, element)
        value_node = _field(element, "value")
        if value_node and _must_be_rewritten(resolved(value_node), parameter):
            text = parameter.value if parameter else resolved(value_node).value
            changes.append((require_unshared(tree, value_node), text))
        force_node = _field(element, "forcestring")
        if section == HELM and parameter and force_node:
            current = resolved(force_node)
            is_plain = current.kind == "scalar" and not current.style
            # Argo CD accepts only plain booleans: its JSON decoder fails on the string `"true"`.
            if not is_plain or current.value != str(parameter.force_string).lower():
                changes.append((require_unshared(tree, force_node), parameter.force_string))
    return splice(tree, changes)


def _must_be_rewritten(current: Node, wanted: Parameter | None) -> bool:
    """Return whether a value differs from the wanted one, or is not a string.

    A value that is not a string (`1.10`, `true`) breaks the whole Application, even if it was
    written by a person: Argo CD cannot generate the manifests.
    """
    if current.kind != "scalar":
        return False
    if wanted is None:
        return not sound(current) and not current.null
    return current.value != wanted.value or not sound(current)


def _incomplete_element(
    tree: Tree,
    section: Section,
    wanted: Callable[[Tree, Node], Parameter | None],
) -> tuple[Node, str, Data] | None:
    """Return the first element that lacks a field, the missing field, and its value, or None."""
    for element in elements(tree, section):
        parameter = wanted(tree, element)
        if parameter:
            for name, data in _element_data(parameter, section).items():
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
    lower_layer = _lower_layer(files, target)
    origins = lower_layer.origins
    own_names = {keys.name, keys.tag, keys.spec, keys.digest}
    differing = {}
    for element in elements(tree, section):
        parameter = _parameter_of_element(element, section)
        name = parameter.name
        if name not in origins or name in own_names or name in target.managed:
            continue
        original, comment = origins[name]
        if parameter != original and not is_copy(tree, element):
            differing[name] = Stray(name, comment, hidden=False)
    if lower_layer.copied:
        return tuple(differing.values())
    names_in_file = {parameter.name for parameter in _parameters(tree, section)}
    hidden = [
        Stray(name, comment, hidden=True)
        for name, (_, comment) in origins.items()
        if name not in names_in_file and name not in own_names
    ]
    return (*differing.values(), *hidden)
