"""`write-back-method: argocd`: the live Application's own source, by JSON patch.

The source is edited as the override file that would say the same. So the rules of the override editors hold here too:
images are compared by identity, not by the text up to a colon (Argo CD Image Updater issue 516). Only elements that
changed become operations of the patch, each behind a `test` of the old value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from task.editors import EDITORS
from task.editors.argocd_source import Section, elements, field
from task.editors.file_text import single, tree_of
from task.editors.yaml.scalar import double_quoted
from task.editors.yaml.tree import Document, Node, resolved
from task.errors import SourceError
from task.model import Edit, File, Files, Image, Kind, Reading, Source, Target, TargetKind

Operation = Mapping[str, Any]  # of a JSON patch, RFC 6902
_FILE = "override"  # the name of the file that the editors see


@dataclass(frozen=True)
class _List:
    """Which list of a source takes images, and how its elements are written."""

    editor: TargetKind
    section: Section
    force: bool = False  # elements have forceString


_LISTS: Mapping[Kind, _List] = {
    "Helm": _List("helm-override", Section("helm", "parameters"), force=True),
    "Kustomize": _List("kustomize-override", Section("kustomize", "images")),
    "Plugin": _List("plugin-override", Section("plugin", "env")),
}


def read(manifest: Mapping[str, Any], index: int, target: Target) -> Reading:
    """What the source says now about the target's image.

    `index` is the source's place in spec.sources; without effect where there is one source only.
    Raises `SourceError` for a source that takes no images, `AnnotationError` as the editors do.
    """
    there = _list_of(target.source)
    files, _ = _as_file(_raw(_source(manifest, index), there.section), there)
    return replace(EDITORS[there.editor].read(files, _plain(target)), file="")


def write(
    manifest: Mapping[str, Any], index: int, target: Target, image: Image
) -> tuple[tuple[Operation, ...], tuple[Edit, ...]]:
    """The operations that set the image, and what they change; none where nothing differs. Errors as in `read`."""
    there = _list_of(target.source)
    source = _source(manifest, index)
    files, places = _as_file(_raw(source, there.section), there)
    changed, edits = EDITORS[there.editor].write(files, _plain(target), image)
    if not changed:
        return (), ()
    path = f"{_path(manifest, index)}/{there.section.name}"
    document = single(tree_of(changed, _FILE), _FILE)
    wanted = [_element(document, node, there) for node in elements(document, there.section, _FILE) if document]
    operations = _operations(source, there, path, wanted, places)
    where = f"{path}/{there.section.list}".strip("/").replace("/", ".")
    return operations, tuple(replace(edit, path=where) for edit in edits)


def _list_of(source: Source) -> _List:
    found = _LISTS.get(source.kind or source.section)
    if found is None:
        raise SourceError(
            f"the source's type is {source.kind or 'not known yet'}: the live Application has no place for an image",
            hint="write write-back-method: git, with write-back-target: manifests for plain manifests",
        )
    return found


def _plain(target: Target) -> Target:
    """The target without what concerns Git. Nothing is carried along: a patch loses nothing."""
    source = replace(target.source, parameters=(), images=(), env=())
    return replace(target, path=_FILE, fallbacks=(), carry=False, source=source)


def _path(manifest: Mapping[str, Any], index: int) -> str:
    """Where the source stands, as a JSON pointer."""
    spec = _mapping(manifest.get("spec"))
    if _mapping(spec.get("sourceHydrator")):
        return "/spec/sourceHydrator/drySource"
    return f"/spec/sources/{index}" if spec.get("sources") else "/spec/source"


def _source(manifest: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    found: Any = manifest
    for part in _path(manifest, index).split("/")[1:]:
        if isinstance(found, list) and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        else:
            found = _mapping(found).get(part)
    if not isinstance(found, dict):
        raise SourceError("the source is not there any more", hint="the Application was changed: run it again")
    return found


def _raw(source: Mapping[str, Any], section: Section) -> Sequence[Any]:
    """The list's elements; none where there is no such list."""
    found = _mapping(source.get(section.name)).get(section.list)
    return found if isinstance(found, list) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_file(raw: Sequence[Any], there: _List) -> tuple[Files, tuple[int, ...]]:
    """The override file that says the same, and the places of its elements in `raw`."""
    texts = [(place, text) for place, one in enumerate(raw) if (text := _as_yaml(one, there))]
    if not texts:
        return {}, ()
    head = f"{there.section.name}:\n  {there.section.list}:\n"
    body = "".join(f"  - {text}\n" for _, text in texts)
    return {_FILE: File(head + body)}, tuple(place for place, _ in texts)


def _as_yaml(one: Any, there: _List) -> str:
    """An element of the list as YAML; "" for one of a wrong shape."""
    if there.editor == "kustomize-override":
        return double_quoted(one) if isinstance(one, str) else ""
    known = _mapping(one)
    if not isinstance(known.get("name"), str) or not known["name"]:
        return ""
    fields = [f"name: {double_quoted(known['name'])}"]
    if isinstance(known.get("value"), str):
        fields.append(f"value: {double_quoted(known['value'])}")
    if there.force:
        fields.append(f"forcestring: {'true' if known.get('forceString') is True else 'false'}")
    return "\n    ".join(fields)


def _element(document: Document, node: Node, there: _List) -> Any:
    """An element of the override file, as the Application has it."""
    if there.editor == "kustomize-override":
        return resolved(document, node).value
    texts = {name: found for name in ("name", "value", "forcestring") if (found := field(document, node, name))}
    element: dict[str, Any] = {name: resolved(document, found).value for name, found in texts.items()}
    if there.force:
        element["forceString"] = element.pop("forcestring", "") == "true"
    return element


def _operations(
    source: Mapping[str, Any], there: _List, path: str, wanted: Sequence[Any], places: Sequence[int]
) -> tuple[Operation, ...]:
    """Elements change where they stand; new ones come at the end of the list, which is made where it is missing."""
    added = list(wanted[len(places) :])
    section = source.get(there.section.name)
    if not isinstance(section, dict):
        return ({"op": "add", "path": path, "value": {there.section.list: added}},)
    path, raw = f"{path}/{there.section.list}", section.get(there.section.list)
    if not isinstance(raw, list):
        return ({"op": "add", "path": path, "value": added},)
    operations: list[Operation] = []
    for place, new in zip(places, wanted, strict=False):
        at, old = f"{path}/{place}", raw[place]
        if isinstance(new, str):
            changes: list[Operation] = [{"op": "replace", "path": at, "value": new}] if new != old else []
        else:  # field by field, so that fields that are unknown here stay
            fields = {name: one for name, one in new.items() if (old.get(name) or False) != (one or False)}
            changes = [{"op": "add", "path": f"{at}/{name}", "value": one} for name, one in fields.items()]
        if changes:
            operations += [{"op": "test", "path": at, "value": old}, *changes]
    return (*operations, *({"op": "add", "path": f"{path}/-", "value": element} for element in added))
