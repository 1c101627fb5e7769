"""Reads and writes override files, `.argocd-source-<app>.yaml`: Helm parameters and plugin
variables.

`override_kustomize` does the same for Kustomize images. Since v1.3, AIU has also written plugin
variables for these annotations.

`annotations.write_back.override_names` returns the file's name.

Argo CD's repo-server applies the file to the source as a JSON merge patch. The file's lists replace
the spec's lists (argo-cd issue 6665), and an element inherits missing fields from the spec's
element at the same index. So the file must be self-contained: each element must be complete, and
each value must be a string.

An element that we copied from the spec or from the common file (`.argocd-source.yaml`) has a
comment that names its origin, such as `# from the Application`, and is updated when the origin
changes. An element without such a comment was written by a person, and is left unchanged.

A list without any such comment was written by a person or another tool, such as AIU. It has always
hidden the spec's other elements from Argo CD, so nothing is copied into it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from task.editors.file_text import (
    about,
    chosen,
    name_as_spelled,
    result_of_write,
    root_of_only_document,
    tag_value,
    tree_of,
)
from task.editors.helm_values import digest_value, known_digest, reading_of
from task.editors.yaml.edit import (
    Splice,
    add,
    checked,
    content_end,
    drop_items,
    line_end,
    only_blank,
    reads_as,
    require_unshared,
    splice,
)
from task.editors.yaml.spelling import Data, Word, looks_typed, reads_as_string
from task.editors.yaml.tree import Node, Tree, pairs, resolved, resolved_value, value
from task.errors import AnnotationError, TargetError
from task.model import Edit, Files, Image, Keys, Parameter, Place, Reading, Target

COMMON = ".argocd-source.yaml"
FROM_SPEC = "# from the Application"
FROM_COMMON = f"# from {COMMON}"
_ORIGIN = re.compile(r"[ \t]+(# from (?:the Application|\.argocd-source\.yaml))[ \t]*")


class Section(NamedTuple):
    """Where an override file contains the list for a type of source."""

    name: str  # such as "helm"
    list: str  # such as "parameters"


T = TypeVar("T")  # a list element
# reads the elements of the common file's list, keyed by name
Common = Callable[[Sequence[Node]], Mapping[str, T]]
KeyOf = Callable[[Node], str | None]  # an element's key, or None for the image's own elements
# returns the wanted content of an element, or None to leave the element unchanged
WantedOf = Callable[[Tree, Node], Parameter | None]
HELM = Section("helm", "parameters")
PLUGIN = Section("plugin", "env")


@dataclass(frozen=True)
class LowerLayer(Generic[T]):
    """The elements of the Application's spec or of the common file (`.argocd-source.yaml`), which
    the override file's list hides.
    """

    # Maps keys to the elements, each paired with the comment for its copies. An element is the
    # origin of its copies.
    origins: Mapping[str, tuple[T, str]]
    used: bool  # whether Argo CD uses these elements, because the override file contains no list
    copied: bool  # whether elements that the override file's list lacks are copied into it


class Stray(NamedTuple):
    """An element in the spec or the common file that has no effect, because the override file
    contains it with different fields (changed), or contains a list without it (hidden).
    """

    name: str
    origin: str  # the comment that a copy would have: "# from the Application"
    hidden: bool  # whether the override file lacks the element; otherwise, the fields differ


def places(target: Target) -> tuple[Place, ...]:
    """Return the places of the override file under all spellings of its name, of the common file
    (`.argocd-source.yaml`) in the same folder, and for Helm, of the values files.
    """
    paths = dict.fromkeys((target.path, *target.fallbacks, common_path(target)))
    values = target.values if target.kind == "helm-override" else ()
    return tuple(map(Place, (*paths, *values)))


def common_path(target: Target) -> str:
    """Return the path of `.argocd-source.yaml` in the source's folder."""
    # A `write-back-target` may name any file as the override file. Only the usual name reveals
    # which folder the file is for.
    has_usual_name = posixpath.basename(target.path).startswith(".argocd-source-")
    folder = posixpath.dirname(target.path) if has_usual_name else target.source.path.strip("/")
    return posixpath.normpath(posixpath.join(folder, COMMON))


def load(files: Files, target: Target, section: Section) -> tuple[str, Tree]:
    """Return the path and tree of the override file.

    Raises TargetError if something other than a list is in the list's place.
    """
    path = chosen(files, target)
    return path, _tree(files, path, section)


def _tree(files: Files, path: str, section: Section) -> Tree:
    """Return a file's tree. Raises the same errors as `load`."""
    tree = tree_of(files, path)
    with about(path):
        root_of_only_document(tree)
        _section_list(tree, section)
    return tree


def _section_list(tree: Tree, section: Section) -> Node | None:
    """Return the section's list, such as `helm.parameters`. Return None if the list, the section,
    or the document is missing or null.

    Raises TargetError if one of them has the wrong type, or if a key is written with different
    capitalization, such as `Helm`.
    """
    node: Node | None = tree.root
    for key in section:  # first the section's name, then the list's
        if node is None or node.null:
            return None
        if node.kind != "mapping":
            raise _wrong_structure(f"{section.name} is not a mapping")
        # Argo CD ignores case in keys, but its merge patch does not: the result would have both
        # `Helm:` and `helm:`.
        for key_node, _ in pairs(node):
            has_other_case = key_node.value != key and key_node.value.lower() == key
            if has_other_case:
                raise _wrong_structure(f"has {key_node.value} where Argo CD expects {key}")
        node = resolved_value(node, key)
    if node is None or node.null:
        return None
    if node.kind != "sequence":
        raise _wrong_structure(f"{section.name}.{section.list} is not a list")
    return node


def _wrong_structure(problem: str) -> TargetError:
    """Return the error for a file that is not structured like an override file."""
    return TargetError(
        problem,
        hint="see Argo CD's documentation on override files, or remove the file",
    )


def elements(tree: Tree, section: Section) -> Sequence[Node]:
    """Return the elements of the section's list, or () if there is no list."""
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

    `spec` contains the elements of the Application's spec, keyed by name. `common` reads the
    elements of the list in the common file (`.argocd-source.yaml`).
    """
    path, tree = load(files, target, section)
    has_list = _section_list(tree, section) is not None
    origin_comments = set()  # the comments on copies in the override file
    for element in elements(tree, section):
        match = origin_comment(tree, element)
        if match:
            origin_comments.add(match[1])

    common_list = None
    if common_path(target) != path:  # `write-back-target` may be the common file itself
        common_tree = _tree(files, common_path(target), section)
        common_list = _section_list(common_tree, section)

    origins: dict[str, tuple[T, str]] = {}  # maps keys to (element, comment for its copies)
    # The common file's list also replaces the spec's list. In that case, the spec's elements are
    # used only if the user wants them to be copied, or if the override file already contains copies
    # of some.
    is_spec_used = common_list is None
    if is_spec_used or target.carry or FROM_SPEC in origin_comments:
        origins = {key: (element, FROM_SPEC) for key, element in spec.items()}
    if common_list:
        common_elements = common(common_list.children)
        origins |= {key: (element, FROM_COMMON) for key, element in common_elements.items()}

    copied = target.carry  # the user's choice, or None
    if copied is None:
        is_own_list = bool(origin_comments)  # we did not write a list without origin comments
        copied = not has_list or is_own_list
    return LowerLayer(origins, used=not has_list, copied=copied)


def with_new_elements(tree: Tree, section: Section, items: Sequence[Data]) -> Tree:
    """Return the tree with these elements appended to the section's list.
    A missing list is added.
    """
    if not items:
        return tree
    mapping = value(tree.root, section.name)
    # Argo CD fails on a file that is empty or contains only comments ("Invalid JSON Patch"), so
    # fill it.
    if mapping is None:
        return add(tree, tree.root, {section.name: {section.list: items}})
    _require_own(tree, mapping)
    sequence = value(mapping, section.list)
    if sequence is None:
        return add(tree, mapping, {section.list: items})
    _require_own(tree, sequence)
    return add(tree, sequence, items)


def _require_own(tree: Tree, node: Node) -> None:
    """Raise TargetError if the node is a YAML alias or shares its value with one, because changing
    it would also affect another place in the file.
    """
    if node.kind == "alias":
        raise TargetError(
            f"line {tree.line(node)}: *{node.value} refers to a shared list",
            hint="write out the list",
        )
    require_unshared(tree, node)


def origin_comment(tree: Tree, element: Node) -> re.Match[str] | None:
    """Return the match for an element's origin comment (`# from the Application`) and the spaces
    before it. Group 1 is the comment alone.

    The comment may be on any of the element's lines. Return None if there is no such comment, or if
    the element is in flow style.
    """
    for end_of_value in _comment_positions(tree, element):
        comment = _ORIGIN.fullmatch(tree.text, end_of_value, line_end(tree.text, end_of_value))
        if comment:
            return comment
    return None


def is_copy(tree: Tree, element: Node) -> bool:
    """Return whether an element is a copy, which means that it has an origin comment."""
    return origin_comment(tree, element) is not None


def _comment_positions(tree: Tree, element: Node) -> Iterator[int]:
    """Yield each position in an element after which a comment may begin: the end of the element, or
    the end of each value in it. Yield nothing for an alias or for an element in flow style.
    """
    if element.kind == "alias":
        return
    parent = tree.parent(element)
    is_in_flow_style = parent is not None and parent.style == "{"
    # A comment after a flow-style element could refer to anything on the line.
    if is_in_flow_style or element.style == "{":
        return
    value_nodes = [element]
    if element.kind == "mapping":
        value_nodes = [child for _, child in pairs(element)]
    for node in value_nodes:
        # in a block scalar, the comment would become part of the value
        if node.kind == "scalar" and node.style not in {"|", ">"}:
            yield content_end(tree.text, node)


def with_updated_copies(
    tree: Tree,
    section: Section,
    lower_layer: LowerLayer[T],
    key_of: KeyOf,
    added: Collection[str],
) -> Tree:
    """Return the tree with outdated copies removed, and with the correct origin comment on each
    remaining copy.

    A copy is an element with an origin comment (`# from the Application`). Its origin is the
    element with the same key in the lower layer, which is the spec or the common file. A copy is
    outdated if it no longer has an origin. The elements whose keys are in `added` are new copies,
    which do not have a comment yet. `key_of` returns an element's key, or None for the image's own
    elements, whose comments are removed.
    """
    if lower_layer.copied:
        tree = _without_outdated_copies(tree, section, lower_layer, key_of)
    splices: list[Splice] = []
    for element in elements(tree, section):
        key = key_of(element)
        old_comment = origin_comment(tree, element)
        if key is None:
            new_comment = ""
        elif old_comment is None and key not in added:
            continue  # written by a person
        elif lower_layer.copied and key in lower_layer.origins:
            _, new_comment = lower_layer.origins[key]
        else:
            continue  # nothing is copied to the list, or this copy could not be removed
        splices += _comment_change(tree, element, old_comment, new_comment)
    return checked(tree, splices, {}) if splices else tree


def _without_outdated_copies(
    tree: Tree,
    section: Section,
    lower_layer: LowerLayer[T],
    key_of: KeyOf,
) -> Tree:
    """Return the tree without the copies whose key no longer exists in the lower layer, which is
    the spec or the common file.
    """
    numbers_to_drop = []
    for number, element in enumerate(elements(tree, section)):
        key = key_of(element)
        is_of_image = key is None
        is_outdated = not is_of_image and key not in lower_layer.origins
        if is_outdated and is_copy(tree, element):
            numbers_to_drop.append(number)
    section_list = _section_list(tree, section)
    if section_list is None or not numbers_to_drop:
        return tree
    require_unshared(tree, section_list)
    return drop_items(tree, section_list, numbers_to_drop)


def _comment_change(
    tree: Tree,
    element: Node,
    old_comment: re.Match[str] | None,
    new_comment: str,
) -> list[Splice]:
    """Return the splice that replaces an element's old origin comment with the new one, or [] if
    nothing changes.

    `old_comment` is None if there is no old comment, and `new_comment` is "" to remove it. No
    comment is added if the element's line already contains a person's comment.
    """
    if old_comment is not None:
        if old_comment[1] == new_comment:
            return []
        return [Splice(*old_comment.span(), f"  {new_comment}" if new_comment else "")]
    if not new_comment:
        return []
    start = next(_comment_positions(tree, element), None)
    if start is None:
        return []
    # A person's comment on the line takes precedence over ours.
    end = line_end(tree.text, start)
    has_other_comment = not only_blank(tree.text, start, end)
    if has_other_comment:
        return []
    return [Splice(start, end, f"  {new_comment}")]


def _section(target: Target) -> Section:
    """Return the section of the target's override file: the one for a plugin, or else the one for
    Helm.
    """
    return PLUGIN if target.kind == "plugin-override" else HELM


def _element_names(target: Target) -> Keys:
    """Return the names of the image's elements, which are parameters or plugin variables.

    Raises AnnotationError if the annotations do not specify which element contains the tag.
    """
    keys = target.keys
    if _section(target) == HELM:
        return names_of(keys)
    # Every plugin defines its own variables, so there is no sensible default.
    if not keys.spec and not keys.tag:
        hint = "set <alias>.plugin.image-tag or <alias>.plugin.image-spec to the variable's name"
        raise AnnotationError("no annotation specifies the plugin variable for the tag", hint=hint)
    return keys


def names_of(keys: Keys) -> Keys:
    """Return the names of the Helm parameters to write: either the name of the parameter for the
    complete reference, or the names of those for the image's name, tag, and digest ("" if there is
    none).

    Raises AnnotationError if the same parameter is set for the name and the tag.
    """
    if keys.spec:
        return Keys(spec=keys.spec)  # as in AIU, the spec takes precedence over name and tag
    name = keys.name or "image.name"
    tag = keys.tag or "image.tag"  # the same defaults as in AIU
    if name == tag:
        hint = f"use helm.image-spec: {name}"
        raise AnnotationError(f"helm.image-name and helm.image-tag are both {name!r}", hint=hint)
    return Keys(
        name=name,
        tag=tag,
        digest=keys.digest,
    )


def _spec_elements(target: Target) -> Sequence[Parameter]:
    """Return the elements of the Application's spec: its Helm parameters, or the plugin's variables
    in the form of parameters.
    """
    if _section(target) == HELM:
        return target.source.parameters
    return [Parameter(name, value) for name, value in target.source.env]


def _field(element: Node, name: str) -> Node | None:
    """Return the node of an element's field, or None if it is missing.

    A field with exactly this name is preferred. Argo CD ignores case in field names, so if there is
    no such field, the first field that differs only in case is returned.
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
    """Return the elements that have a name, as parameters."""
    parameters = [_parameter_of_element(element, section) for element in elements(tree, section)]
    return [parameter for parameter in parameters if parameter.name]


def _values_by_name(parameters: Iterable[Parameter]) -> dict[str, str]:
    """Return the parameters' values, keyed by name. If a name appears twice,
    the last value wins.
    """
    return {parameter.name: parameter.value for parameter in parameters}


def _parameter_of_element(element: Node, section: Section) -> Parameter:
    """Return an element's fields as a parameter. A missing field is "" or false."""
    force = section == HELM and _text(element, "forcestring").lower() == "true"
    return Parameter(
        _text(element, "name"),
        _text(element, "value"),
        force,
    )


def read(files: Files, target: Target) -> Reading:
    """Return the image according to the image's elements in the override file.

    The reading is not sound (the elements must be rewritten) if one of the image's elements appears
    twice with different values, or if YAML or `helm --set` turns its value into a number or a
    boolean.
    """
    section = _section(target)
    names = _element_names(target)
    path, tree = load(files, target, section)
    parameters = _parameters(tree, section)
    unsound_names = _unsound_names(tree, section, parameters)
    if section == HELM:
        # called only to raise errors
        known_digest(files, target, names, parameters or target.source.parameters)
    # With `spec`, a single element contains both the name and the tag.
    own_names = {names.spec or names.name, names.spec or names.tag, names.digest}
    texts = _values_by_name(parameters)
    is_sound = own_names.isdisjoint(unsound_names)
    return reading_of(texts, names, path, sound=is_sound)


def _unsound_names(tree: Tree, section: Section, parameters: Sequence[Parameter]) -> set[str]:
    """Return the names of the elements that appear twice with different values, or whose value YAML
    or `helm --set` turns into a number or a boolean.
    """
    unsound_names = set[str]()
    for element in elements(tree, section):
        value_node = _field(element, "value")
        if value_node and not reads_as_string(resolved(value_node)):
            unsound_names.add(_text(element, "name"))
    first_values = dict[str, str]()
    for parameter in parameters:
        first_value = first_values.setdefault(parameter.name, parameter.value)
        if parameter.value != first_value:
            unsound_names.add(parameter.name)
        # Without forceString, Argo CD uses `--set`, and Helm turns such a value into a number or a
        # boolean: 12345678 becomes an integer (Helm 3.19 and 4.1). With forceString, Argo CD uses
        # `--set-string`.
        uses_set = section == HELM and not parameter.force_string
        if uses_set and looks_typed(parameter.value):
            unsound_names.add(parameter.name)
    return unsound_names


def read_below(files: Files, target: Target) -> Reading:
    """Return the image in the layers below the target: in the elements of the Application's spec
    or, for an override file without a list, of the spec or the common file.

    If the override file contains a list, Argo CD ignores these elements, and all parts are "".
    """
    parameters = _spec_elements(target)
    if target.kind.endswith("-override"):
        parameters = []
        # Reset `carry`, which could include the spec's elements even though Argo CD ignores them.
        lower_layer = _lower_layer(files, replace(target, carry=None))
        if lower_layer.used:
            parameters = [parameter for parameter, _ in lower_layer.origins.values()]
    texts = _values_by_name(parameters)
    return reading_of(texts, _element_names(target), "", sound=True)


def _lower_layer(files: Files, target: Target) -> LowerLayer[Parameter]:
    """Return the elements that Argo CD would use if the override file had no list: those of the
    Application's spec or of the common file, `.argocd-source.yaml`.
    """
    section = _section(target)
    spec = _spec_elements(target)

    def read_common(nodes: Sequence[Node]) -> dict[str, Parameter]:
        """Return the elements of the common file's list, keyed by name."""
        parameters: dict[str, Parameter] = {}
        for number, node in enumerate(nodes):
            # Argo CD takes a missing field from the spec's element at the same index.
            parameter = spec[number] if number < len(spec) else Parameter("", "")
            own_fields = _parameter_of_element(node, section)
            if _field(node, "name"):
                parameter = replace(parameter, name=own_fields.name)
            if _field(node, "value"):
                parameter = replace(parameter, value=own_fields.value)
            if _field(node, "forcestring"):
                parameter = replace(parameter, force_string=own_fields.force_string)
            if parameter.name:
                parameters[parameter.name] = parameter
        return parameters

    spec_by_name = {parameter.name: parameter for parameter in spec}
    return read_lower_layer(files, target, section, spec_by_name, read_common)


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the override file with the image's elements, and with copies of the other elements of
    the Application's spec and of the common file (`.argocd-source.yaml`).

    Each copy has a comment that names its origin. A copy is updated when its origin changes, and
    removed when its origin is removed. All other elements are left unchanged.
    """
    section = _section(target)
    names = _element_names(target)
    path, tree = load(files, target, section)
    old_parameters = _parameters(tree, section)
    # The wanted elements, keyed by name: first the image's own elements, then copies of the lower
    # layer's elements.
    own_elements = _own_elements(files, target, image, names, old_parameters)
    lower_layer = _lower_layer(files, target)
    wanted_copies: dict[str, Parameter] = {}
    if lower_layer.copied:
        wanted_copies = {name: element for name, (element, _) in lower_layer.origins.items()}

    def wanted_content(tree: Tree, element: Node) -> Parameter | None:
        """Return the wanted content for an element, or None to leave the element unchanged."""
        name = _text(element, "name")
        if name in own_elements:
            return own_elements[name]
        # A person's element is left unchanged, even if the lower layer contains an element with
        # this name.
        return wanted_copies.get(name) if is_copy(tree, element) else None

    def key_of(element: Node) -> str | None:
        """Return an element's name, or None for one of the image's own elements."""
        name = _text(element, "name")
        return None if name in own_elements else name

    old_values = _values_by_name(old_parameters)
    wanted_elements = {**wanted_copies, **own_elements}
    missing = [element for name, element in wanted_elements.items() if name not in old_values]
    with about(path):
        # Update the existing elements first, then add missing elements, and finally update all
        # origin comments.
        tree = _with_values(tree, section, wanted_content)
        tree = _with_all_fields(tree, section, wanted_content)
        tree = with_new_elements(
            tree, section, [_element_data(element, section) for element in missing]
        )
        added_names = [element.name for element in missing]
        tree = with_updated_copies(tree, section, lower_layer, key_of, added_names)
    new_values = _values_by_name(_parameters(tree, section))
    edits = [
        Edit(path, name, old_values.get(name, ""), new_values.get(name, ""))
        for name in {**new_values, **old_values}
    ]
    return result_of_write(files, path, tree.text, edits)


def _own_elements(
    files: Files,
    target: Target,
    image: Image,
    keys: Keys,
    old_parameters: Sequence[Parameter],
) -> Mapping[str, Parameter]:
    """Return the wanted elements for the image, keyed by name, such as `image.tag`.

    The image's name is spelled as in the file or the spec, if either contains it. Raises
    `TargetError` if a key that is not annotated sets a digest.
    """
    is_helm = _section(target) == HELM
    old_digest = ""
    if is_helm:
        old_digest = known_digest(files, target, keys, old_parameters or target.source.parameters)
    name_key = keys.spec or keys.name  # the element that contains the image's name
    spellings = [
        parameter.value
        for parameter in (*old_parameters, *_spec_elements(target))
        if parameter.name == name_key
    ]
    image_name = name_as_spelled(image, target, *spellings)
    if keys.spec:
        texts = {keys.spec: replace(image, name=image_name).reference}
    elif keys.digest:
        texts = {
            keys.name: image_name,
            keys.tag: image.tag or "latest",  # as in `tag_value`, a digest needs a tag
            keys.digest: digest_value(image, keys.digest, old_digest),
        }
    else:
        texts = {keys.name: image_name, keys.tag: tag_value(image)}
    elements_by_name = {}
    for name, text in texts.items():
        clears_digest = name == keys.digest and not text  # the image has no digest
        is_written = text != "" or clears_digest
        if name and is_written:  # a plugin may have no variable for the name
            elements_by_name[name] = Parameter(name, text, force_string=is_helm)
    return elements_by_name


def _element_data(parameter: Parameter, section: Section) -> dict[str, Word]:
    """Return the complete element, with its fields in the order that AIU uses."""
    fields: dict[str, Word] = {"name": parameter.name, "value": parameter.value}
    if section == HELM:
        # AIU writes and reads only this spelling. Argo CD ignores case.
        fields["forcestring"] = parameter.force_string
    return fields


def _with_values(tree: Tree, section: Section, wanted_content: WantedOf) -> Tree:
    """Return the tree with the wanted values in existing fields, which are `value` and
    `forcestring`.

    A value that is not a string is converted to a string, even if the element is otherwise left
    unchanged.
    """
    changes: list[tuple[Node, Word]] = []
    for element in elements(tree, section):
        parameter = wanted_content(tree, element)
        value_node = _field(element, "value")
        if value_node and _must_be_rewritten(resolved(value_node), parameter):
            text = parameter.value if parameter else resolved(value_node).value
            changes.append((require_unshared(tree, value_node), text))
        force_node = _field(element, "forcestring") if section == HELM else None
        if parameter is None or force_node is None:
            continue
        # Argo CD accepts only plain booleans: its JSON decoder fails on the string `"true"`.
        if not reads_as(resolved(force_node), parameter.force_string):
            changes.append((require_unshared(tree, force_node), parameter.force_string))
    return splice(tree, changes)


def _with_all_fields(tree: Tree, section: Section, wanted_content: WantedOf) -> Tree:
    """Return the tree with missing fields added to each element that has wanted content.

    Argo CD takes a missing field from the spec's element at the same index, even if that element
    has a different name.
    """
    # Each added line moves the nodes after it, so search the new tree again.
    while missing_field := _first_missing_field(tree, section, wanted_content):
        element, field, data = missing_field
        tree = add(tree, require_unshared(tree, element), {field: data})
    return tree


def _must_be_rewritten(current: Node, wanted: Parameter | None) -> bool:
    """Return whether a value differs from the wanted value or is not a string. If `wanted` is None,
    return whether the value is neither a string nor null.

    A value that is not a string (`1.10`, `true`) breaks the whole Application, even if a person
    wrote it, because Argo CD cannot generate the manifests.
    """
    if current.kind != "scalar":
        return False
    if wanted is None:
        return not reads_as_string(current) and not current.null
    return current.value != wanted.value or not reads_as_string(current)


def _first_missing_field(
    tree: Tree,
    section: Section,
    wanted_content: WantedOf,
) -> tuple[Node, str, Data] | None:
    """Return an element that lacks a field, the field's name, and the field's wanted value. Return
    None if no element with wanted content lacks a field.
    """
    for element in elements(tree, section):
        parameter = wanted_content(tree, element)
        if parameter is None:
            continue
        for field, data in _element_data(parameter, section).items():
            if _field(element, field) is None:
                return resolved(element), field, data
    return None


def strays(files: Files, target: Target) -> tuple[Stray, ...]:
    """Return the elements of the Application's spec or of `.argocd-source.yaml` that have no
    effect, and that an update of the override file would not restore. These are the changed and the
    hidden elements.

    The image's own elements are not included.
    """
    if target.carry is False:  # the user does not want copies, so nothing is missing
        return ()
    section = _section(target)
    keys = _element_names(target)
    own_names = {keys.name, keys.tag, keys.spec, keys.digest}
    _, tree = load(files, target, section)
    lower_layer = _lower_layer(files, target)
    origins = lower_layer.origins

    # Changed: the file contains the element with different fields, and not as a copy, which the
    # next update would correct. `managed` lists the names that any alias of the Application writes.
    written_names = own_names.union(target.managed)
    changed: dict[str, Stray] = {}  # keyed by name, which may appear twice in the file
    for element in elements(tree, section):
        parameter = _parameter_of_element(element, section)
        name = parameter.name
        if name not in origins or name in written_names:
            continue
        original, comment = origins[name]
        if parameter != original and not is_copy(tree, element):
            changed[name] = Stray(name, comment, hidden=False)
    if lower_layer.copied:  # the next update adds any elements that the file lacks
        return tuple(changed.values())

    # Hidden: the file lacks the element, and Argo CD uses only the file's list.
    names_in_file = {parameter.name for parameter in _parameters(tree, section)}
    hidden = [
        Stray(name, comment, hidden=True)
        for name, (_, comment) in origins.items()
        if name not in names_in_file and name not in own_names
    ]
    return (*changed.values(), *hidden)
