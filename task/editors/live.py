"""Edits a live Application's source with a JSON patch, for `write-back-method: argocd`.

The source is converted to an equivalent override file, and this file is edited. So the rules of the
override editors also apply here: for example, images are compared by identity, rather than by the
characters before a colon (AIU issue 516). Patch operations are generated only for changed elements,
each preceded by a `test` of the old value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from task.editors import EDITORS, override_kustomize, overrides
from task.editors.file_text import tree_of
from task.editors.overrides import Section, elements
from task.editors.yaml.spelling import double_quoted
from task.editors.yaml.tree import Node, resolved, resolved_value
from task.errors import SourceError
from task.model import Edit, File, Files, Image, Kind, Reading, Source, Target, TargetKind
from task.plain_data import mapping

Operation = Mapping[str, Any]  # an operation of a JSON patch (RFC 6902)
_FILE = "override"  # the path of the file that is passed to the override editors


# For each type of source, the editor and the list that contains the images.
_LISTS: Mapping[Kind, tuple[TargetKind, Section]] = {
    "Helm": ("helm-override", overrides.HELM),
    "Kustomize": ("kustomize-override", override_kustomize.SECTION),
    "Plugin": ("plugin-override", overrides.PLUGIN),
}


def read(manifest: Mapping[str, Any], index: int, target: Target) -> Reading:
    """Return the target's current image in one of the sources in an Application's manifest.

    `index` is the source's position in `spec.sources`, and is ignored if the Application uses
    `spec.source`. Raises `SourceError` if the source does not exist or cannot contain images, and
    the same AnnotationErrors as the editors.
    """
    kind, section = _list_of(target.source)
    source = _source_of(manifest, index)
    files, _ = _as_override_file(_list_in_source(source, section), section)
    reading = EDITORS[kind].read(files, _without_git(target, kind))
    return replace(reading, file="")


def write(
    manifest: Mapping[str, Any],
    index: int,
    target: Target,
    image: Image,
) -> tuple[tuple[Operation, ...], tuple[Edit, ...]]:
    """Return the JSON patch operations that set the image, and the edits.

    Both are empty if the update does not change anything. Raises the same errors as `read`.
    """
    kind, section = _list_of(target.source)
    source = _source_of(manifest, index)
    files, positions = _as_override_file(_list_in_source(source, section), section)
    changed, edits = EDITORS[kind].write(files, _without_git(target, kind), image)
    if not changed:
        return (), ()
    new_nodes = elements(tree_of(changed, _FILE), section)
    new_elements = [_element_for_spec(node, section) for node in new_nodes]
    section_path = f"{_path_of_source(manifest, index)}/{section.name}"
    operations = _operations(source, section, section_path, new_elements, positions)
    field = place(manifest, index, target)
    return operations, tuple(replace(edit, path=field) for edit in edits)


def place(manifest: Mapping[str, Any], index: int, target: Target) -> str:
    """Return the Application field that contains the images,
    such as "spec.source.helm.parameters".
    """
    _, section = _list_of(target.source)
    pointer = f"{_path_of_source(manifest, index)}/{section.name}/{section.list}"
    return pointer.removeprefix("/").replace("/", ".")


def _list_of(source: Source) -> tuple[TargetKind, Section]:
    """Return the kind of override file that corresponds to the source, such as "helm-override", and
    the section that lists the images.

    Raises SourceError if the source's type has no image field.
    """
    kind_and_section = _LISTS.get(source.kind or source.section)
    if kind_and_section is None:
        raise SourceError(
            f"the source's type is {source.kind or 'not known yet'}: the live Application has no"
            " image field",
            hint=(
                "set write-back-method: git; for plain manifests, also write-back-target: manifests"
            ),
        )
    return kind_and_section


def _without_git(target: Target, kind: TargetKind) -> Target:
    """Return the target for the equivalent override file, without any Git-specific parts.

    The source's elements are removed, because they need not be copied into the file: a patch does
    not affect other elements.
    """
    source = replace(
        target.source,
        parameters=(),
        images=(),
        env=(),
    )
    return replace(
        target,
        kind=kind,
        path=_FILE,
        fallbacks=(),
        carry=False,
        source=source,
    )


def _path_of_source(manifest: Mapping[str, Any], index: int) -> str:
    """Return the source's location as a JSON pointer, such as `/spec/sources/0`."""
    spec = mapping(manifest.get("spec"))
    if mapping(spec.get("sourceHydrator")):  # AIU has read drySource since v1.3
        return "/spec/sourceHydrator/drySource"
    return f"/spec/sources/{index}" if spec.get("sources") else "/spec/source"


def _source_of(manifest: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    """Return the source at this index of an Application's manifest. Raises SourceError if the
    source does not exist.
    """
    value: Any = manifest
    for part in _path_of_source(manifest, index).removeprefix("/").split("/"):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            value = mapping(value).get(part)
    if not isinstance(value, dict):
        raise SourceError(
            "the source no longer exists",
            hint="the Application has changed: run again",
        )
    return value


def _list_in_source(source: Mapping[str, Any], section: Section) -> Sequence[Any]:
    """Return the elements of the section's list, or () if the source has no such list."""
    raw = mapping(source.get(section.name)).get(section.list)
    return raw if isinstance(raw, list) else ()


def _as_override_file(raw: Sequence[Any], section: Section) -> tuple[Files, tuple[int, ...]]:
    """Return the equivalent override file, and for each of its elements the position in `raw`.

    Elements of the wrong type are omitted. If no elements remain, there is no file.
    """
    texts = {}  # keyed by position
    for position, element in enumerate(raw):
        text = _element_as_yaml(element, section)
        if text:
            texts[position] = text
    if not texts:
        return {}, ()
    head = f"{section.name}:\n  {section.list}:\n"
    body = "".join(f"  - {text}\n" for text in texts.values())
    return {_FILE: File(head + body)}, tuple(texts)


def _element_as_yaml(element: Any, section: Section) -> str:
    """Return a list element as YAML, or "" for an element of the wrong type."""
    if section == override_kustomize.SECTION:  # images are strings
        return double_quoted(element) if isinstance(element, str) else ""
    parameter = mapping(element)
    name = parameter.get("name")
    if not isinstance(name, str) or not name:
        return ""
    fields = [f"name: {double_quoted(name)}"]
    value = parameter.get("value")
    if isinstance(value, str):
        fields.append(f"value: {double_quoted(value)}")
    if section == overrides.HELM:
        force_string = "true" if parameter.get("forceString") is True else "false"
        fields.append(f"forcestring: {force_string}")
    return "\n    ".join(fields)


def _element_for_spec(node: Node, section: Section) -> Any:
    """Return an element of an override file in the form used in the Application's spec."""
    if section == override_kustomize.SECTION:
        return resolved(node).value
    element: dict[str, Any] = {}
    for name in ("name", "value"):
        field = resolved_value(node, name)
        if field is not None:
            element[name] = field.value
    if section == overrides.HELM:
        force = resolved_value(node, "forcestring")
        element["forceString"] = force is not None and force.value == "true"
    return element


def _operations(
    source: Mapping[str, Any],
    section: Section,
    section_path: str,
    new_elements: Sequence[Any],
    positions: Sequence[int],
) -> tuple[Operation, ...]:
    """Return the operations that change existing elements in place and append new ones.

    `new_elements` are the elements of the edited override file. For each element that was already
    in the file before the edit, `positions` contains the position in the source's list. A missing
    list is added.
    """
    # The elements of the override file keep their order, and new elements come last.
    replacing = new_elements[: len(positions)]
    appended = list(new_elements[len(positions) :])
    fields = source.get(section.name)
    # JSON patch does not create parents: if a section or list is missing, an `add` below it fails
    # ("doc is missing path").
    if not isinstance(fields, dict):
        return (_operation("add", section_path, {section.list: appended}),)
    list_path = f"{section_path}/{section.list}"
    old_elements = fields.get(section.list)
    if not isinstance(old_elements, list):
        return (_operation("add", list_path, appended),)

    operations: list[Operation] = []
    for position, new in zip(positions, replacing, strict=False):
        element_path = f"{list_path}/{position}"
        old = old_elements[position]
        changes = _changes_of_element(element_path, old, new)
        if changes:
            operations += [_operation("test", element_path, old), *changes]
    operations += [_operation("add", f"{list_path}/-", element) for element in appended]
    return tuple(operations)


def _changes_of_element(path: str, old: Any, new: Any) -> list[Operation]:
    """Return the operations that turn the element at this path into the new element, or [] if the
    two are the same. A string is replaced as a whole.
    """
    if isinstance(new, str):
        return [_operation("replace", path, new)] if new != old else []
    # Compare field by field, so that unknown fields are kept.
    operations = []
    for name, new_value in new.items():
        # An absent field means false or "", so there is no change if both values are empty.
        old_or_false = old.get(name) or False
        new_or_false = new_value or False
        if old_or_false != new_or_false:
            operations.append(_operation("add", f"{path}/{name}", new_value))
    return operations


def _operation(op: str, path: str, value: Any) -> Operation:
    """Return one operation of a JSON patch."""
    return {"op": op, "path": path, "value": value}
