"""Reads and writes the lists of names and values in an override file: `helm.parameters`, and `plugin.env`.

The latter has the variables of a config management plugin. AIU writes them since v1.3, for the same annotations.
Elements are found by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from task.editors import argocd_source
from task.editors.argocd_source import (
    FROM_COMMON,
    FROM_SPEC,
    Below,
    Section,
    Stray,
    below,
    elements,
    follow_origins,
    grow,
    load,
    origin_comment,
)
from task.editors.file_text import about, result, spelled, tag_value
from task.editors.helm_values import digest_value, known_digest, reading_of
from task.editors.yaml.edit import add, alone, splice
from task.editors.yaml.spelling import Data, Word, looks_typed, sound
from task.editors.yaml.tree import Node, Tree, pairs, resolved, value
from task.errors import AnnotationError
from task.model import Edit, Files, Image, Keys, Parameter, Place, Reading, Target

HELM, PLUGIN = Section("helm", "parameters"), Section("plugin", "env")


def places(target: Target) -> tuple[Place, ...]:
    """Return the override file in all its spellings, the common one, and the values files that Helm reads."""
    return (*argocd_source.places(target), *(map(Place, target.values) if _section(target) == HELM else ()))


def _section(target: Target) -> Section:
    return PLUGIN if target.kind == "plugin-override" else HELM


def _names(target: Target) -> Keys:
    """Return the names of the image's elements. Raises AnnotationError if there is none for the tag."""
    keys = target.keys
    if _section(target) == HELM:
        return names_of(keys)
    # Every plugin has its own variables, so no default could be right.
    if not (keys.spec or keys.tag):
        hint = "annotate <alias>.plugin.image-tag or <alias>.plugin.image-spec with the variable's name"
        raise AnnotationError("no annotation names the plugin's variable for the tag: it would go nowhere", hint=hint)
    return keys


def names_of(keys: Keys) -> Keys:
    """Return the Helm parameters to use: only the one for the whole reference, or those for name and tag."""
    if keys.spec:
        return Keys(spec=keys.spec)  # as in AIU, it wins over name and tag
    name, tag = keys.name or "image.name", keys.tag or "image.tag"  # AIU's defaults
    if name == tag:
        raise AnnotationError(
            f"helm.image-name and helm.image-tag are both {name!r}", hint=f"write helm.image-spec: {name}"
        )
    return Keys(name=name, tag=tag, digest=keys.digest)


def _spec(target: Target) -> Sequence[Parameter]:
    if _section(target) == HELM:
        return target.source.parameters
    return [Parameter(name, value) for name, value in target.source.env]


def _field(element: Node, name: str) -> Node | None:
    """Return the node of one field of an element, or None. Argo CD ignores the case of field names."""
    element = resolved(element)
    if element.kind != "mapping":
        return None
    return value(element, name) or next((node for key, node in pairs(element) if key.value.lower() == name), None)


def _text(element: Node, name: str) -> str:
    """Return the text of one field, or "" if it is missing."""
    node = _field(element, name)
    return resolved(node).value if node else ""


def _parameters(tree: Tree, section: Section) -> list[Parameter]:
    """Return the elements that have a name."""
    return [one for element in elements(tree, section) if (one := _parameter(element, section)).name]


def _parameter(element: Node, section: Section) -> Parameter:
    force = section == HELM and _text(element, "forcestring").lower() == "true"
    return Parameter(_text(element, "name"), _text(element, "value"), force)


def read(files: Files, target: Target) -> Reading:
    """Return the values of the image's elements.

    The reading is not sound if an element is there twice with different values, or if YAML or `helm --set` turns its
    value into a number or a boolean.
    """
    section, names = _section(target), _names(target)
    path, tree = load(files, target, section)
    found = _parameters(tree, section)
    unsound, values = set[str](), dict[str, str]()
    for element in elements(tree, section):
        name, text, node = _text(element, "name"), _text(element, "value"), _field(element, "value")
        if (node and not sound(resolved(node))) or (name and values.setdefault(name, text) != text):
            unsound.add(name)
    if section == HELM:
        known_digest(files, target, names, found or target.source.parameters)
        # Without forceString, Argo CD passes `--set`, and Helm turns such a value into a number or a boolean: 12345678
        # becomes an integer (Helm 3.19 and 4.1). With forceString, Argo CD passes `--set-string`.
        unsound |= {one.name for one in found if not one.force_string and looks_typed(one.value)}
    good = not {names.spec or names.name, names.spec or names.tag, names.digest} & unsound
    return reading_of({one.name: one.value for one in found}, names, path, sound=good)


def read_below(files: Files, target: Target) -> Reading:
    """Return what the elements say that Argo CD uses if the override file has none."""
    used = _spec(target)
    if target.kind.endswith("-override"):
        there = below(files, replace(target, carry=None), _section(target))
        used = [one for one, _ in _origins(there, target).values()] if there.used else []
    return reading_of({one.name: one.value for one in used}, _names(target), "", sound=True)


Origins = Mapping[str, tuple[Parameter, str]]  # by name: the element, and the comment that names its origin


def _origins(there: Below, target: Target) -> Origins:
    """Return the elements of the lists below the override file's list."""
    section, spec = _section(target), _spec(target)
    own = {one.name: (one, FROM_SPEC) for one in spec} if there.spec else {}
    shared = {}
    for number, element in enumerate(there.common):
        # Argo CD takes a missing field from the spec's element at the same index.
        under = spec[number] if number < len(spec) else Parameter("", "")
        given = _parameter(element, section)
        one = Parameter(
            given.name if _field(element, "name") else under.name,
            given.value if _field(element, "value") else under.value,
            given.force_string if _field(element, "forcestring") else under.force_string,
        )
        if one.name:
            shared[one.name] = (one, FROM_COMMON)
    return {**own, **shared}


def write(files: Files, target: Target, image: Image) -> tuple[Files, tuple[Edit, ...]]:
    """Return the file with the image's elements, and with copies of the spec's and the common file's others.

    An element with an origin comment follows its origin, and goes when its origin goes. All others stay as a person
    wrote them.
    """
    section, names, spec = _section(target), _names(target), _spec(target)
    path, tree = load(files, target, section)
    now = _parameters(tree, section)
    before = {one.name: one.value for one in now}
    digest = known_digest(files, target, names, now or target.source.parameters) if section == HELM else ""
    mine = _wanted(target, image, names, [*now, *spec], digest)
    there = below(files, target, section)
    carried = _origins(there, target) if there.carries else {}

    def wanted(tree: Tree, element: Node) -> Parameter | None:
        """Return the wanted content of an element, or None if it stays as it is."""
        name = _text(element, "name")
        if name in mine:
            return mine[name]
        return carried[name][0] if name in carried and origin_comment(tree, element) else None

    def key_of(element: Node) -> str | None:
        name = _text(element, "name")
        return None if name in mine else name

    with about(path):
        tree = _with_values(tree, section, wanted)
        # Argo CD takes a missing field from the spec's element at the same index, even if that has another name.
        while gap := _gap(tree, section, wanted):
            element, name, data = gap
            tree = add(tree, alone(tree, element), {name: data})
        whole = {**{name: one for name, (one, _) in carried.items()}, **mine}
        missing = [name for name in whole if name not in before]
        tree = grow(tree, section, [_data(whole[name], section) for name in missing])
        origins = {name: origin for name, (_, origin) in carried.items()}
        tree = follow_origins(tree, section, key_of, origins, missing, carries=there.carries)
    after = {one.name: one.value for one in _parameters(tree, section)}
    edits = [Edit(path, name, before.get(name, ""), after.get(name, "")) for name in {**after, **before}]
    return result(files, path, tree.text, edits)


def _wanted(
    target: Target, image: Image, keys: Keys, known: Sequence[Parameter], digest: str
) -> Mapping[str, Parameter]:
    """Return the image's elements, by name. `known` ones may have a spelling of it; `digest` is the present one."""
    full = spelled(image, target, *(one.value for one in known if one.name == (keys.spec or keys.name)))
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
    # An image without a digest empties the key for it.
    return {
        name: Parameter(name, text, force) for name, text in texts.items() if name and (text or name == keys.digest)
    }


def _data(parameter: Parameter, section: Section) -> dict[str, Word]:
    """Return the whole element, with its fields in AIU's order."""
    fields: dict[str, Word] = {"name": parameter.name, "value": parameter.value}
    # AIU writes and reads only `forcestring`. Argo CD ignores the case.
    return {**fields, "forcestring": parameter.force_string} if section == HELM else fields


def _with_values(tree: Tree, section: Section, wanted: Callable[[Tree, Node], Parameter | None]) -> Tree:
    """Return the file with the wanted content in fields that exist."""
    changes: list[tuple[Node, Word]] = []
    for element in elements(tree, section):
        want = wanted(tree, element)
        if node := _field(element, "value"):
            now = resolved(node)
            text = want.value if want else now.value
            # A value that is not a string (`1.10`, `true`) breaks the whole Application, even if a person wrote it:
            # Argo CD cannot generate its manifests.
            if now.kind == "scalar" and (text != now.value or not (sound(now) or (now.null and want is None))):
                changes.append((alone(tree, node), text))
        if want and section == HELM and (node := _field(element, "forcestring")):
            now = resolved(node)
            plain = now.kind == "scalar" and not now.style
            # Argo CD accepts only plain booleans: its JSON decoder fails for the string `"true"`.
            if (now.value if plain else "") != ("true" if want.force_string else "false"):
                changes.append((alone(tree, node), want.force_string))
    return splice(tree, changes)


def _gap(
    tree: Tree, section: Section, wanted: Callable[[Tree, Node], Parameter | None]
) -> tuple[Node, str, Data] | None:
    """Return the first element that lacks a field, that field and its content, or None."""
    for element in elements(tree, section):
        want = wanted(tree, element)
        for name, data in _data(want, section).items() if want else ():
            if _field(element, name) is None:
                return resolved(element), name, data
    return None


def strays(files: Files, target: Target) -> tuple[Stray, ...]:
    """Return each element to which a person gave another value than its origin has, and each that the list hides."""
    if target.carry is False:
        return ()
    section, keys = _section(target), _names(target)
    _, tree = load(files, target, section)
    there = below(files, target, section)
    origins, own = _origins(there, target), {keys.name, keys.tag, keys.spec, keys.digest}
    strays = {}
    for element in elements(tree, section):
        one = _parameter(element, section)
        if one.name not in origins or one.name in {*own, *target.managed}:
            continue
        theirs, origin = origins[one.name]
        if one != theirs and not origin_comment(tree, element):
            strays[one.name] = Stray(one.name, origin, hidden=False)
    names = {one.name for one in _parameters(tree, section)} | own
    hidden = () if there.carries else [name for name in origins if name not in names]
    return (*strays.values(), *(Stray(name, origins[name][1], hidden=True) for name in hidden))
