"""Pure code that finds what overrides a written values file or kustomization.

Helm merges the chart's own values, the values files in order, the Application's values, its
parameters, and its file parameters. The last one wins. Argo CD applies `kustomize.images` after
the kustomization's own entries.

This matters because Image Updater's default method leaves parameters in the live Application. They
override the values file, so a commit to that file succeeds, but the old image keeps running.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from task.annotations.write_back import inside
from task.deciding.overlays import lists_after
from task.editors import override_kustomize
from task.editors.file_text import identity_of
from task.editors.kustomization import Replacement, every_entry, made_of
from task.editors.overrides import COMMON
from task.editors.yaml.path import Segment, parse_path, path_text
from task.errors import Malformed, TargetError, TaskError
from task.image import split_registry
from task.model import File, Files, Parameter, Place, Source, Subscription, Target, TargetKind
from task.plain_data import elements, mapping, mappings, text
from task.urls import normal_url
from task.yaml_documents import plain

_VALUES = "values.yaml"
_CHART = "Chart.yaml"
_MOST_FILES = 100  # values files of one source
_UNKNOWN = re.compile(r"[*?\[]|\$")  # globs and variables, which only Argo CD can expand


@dataclass(frozen=True)
class _Layer:
    """One layer of values or parameters that Helm merges."""

    where: str  # the layer's name in a message
    way_out: str
    values: Any = None
    parameters: tuple[Parameter, ...] = ()
    path: str = ""  # the path, if it is a values file


@dataclass(frozen=True)
class _Way:
    """One way in which a source reads the written file: the layers that Helm then merges."""

    files: tuple[_Layer, ...]  # the values files, in order
    charts: tuple[_Layer, ...]  # the chart's own values, below everything else
    values: tuple[_Layer, ...]  # the Application's values, above the files
    parameters: tuple[_Layer, ...]  # above everything else
    # the keys of the subchart in all these values, if the written file is a subchart's
    below: tuple[str, ...] = ()

    def later(self, path: str) -> tuple[_Layer, ...]:
        """Return the layers after the written file."""
        parents = self.charts if self.below else ()
        later_files: list[_Layer] = []
        for layer in reversed(self.files):
            if layer.path == path:
                break
            later_files.insert(0, layer)
        return (*parents, *later_files, *self.values, *self.parameters)


def hiding_places(sub: Subscription, kind: TargetKind) -> tuple[Place, ...]:
    """Return the places that a snapshot must contain for `refuse_hidden`, in addition to the
    target's own.
    """
    if sub.method != "git" or kind not in ("helmvalues", "kustomization", "helm-override"):
        return ()
    paths: list[str] = []
    for source in sub.application.sources:
        if not in_repository(source, sub):
            continue
        paths += _override_files(sub, source)
        if kind == "helmvalues":
            paths += [posixpath.join(source.path, _CHART), *_values_files_of(sub, source)]
    return tuple(map(Place, dict.fromkeys(paths)))


def refuse_hidden(files: Files, sub: Subscription, kind: TargetKind, target: Target) -> None:
    """Raise `TargetError` if Argo CD never uses the written version. The error names what overrides
    it.
    """
    if sub.method != "git":
        return
    if kind == "helmvalues":
        _refuse_hidden_values(files, sub, target)
    if kind == "helm-override":
        _refuse_file_parameters(files, sub, target)
    if kind == "kustomization":
        _refuse_hidden_images(files, sub, target)


def read_by_nobody(files: Files, sub: Subscription, kind: TargetKind) -> bool:
    """Return whether none of the Application's sources read the written values file.

    If `git-repository` is set, something else may deploy the file.
    """
    if kind != "helmvalues" or sub.method != "git":
        return False
    if sub.application.annotations.get("git-repository"):
        return False  # such as the parent chart's values, or the Application's own manifest
    sources = sub.application.sources
    helm_sources = [source for source in sources if _is_helm(files, source)]
    if not helm_sources:
        return False
    if any(_may_read(files, sub, source) for source in sources):
        return False
    return not any(_ways(files, sub, source) for source in helm_sources)


def _refuse_hidden_values(files: Files, sub: Subscription, target: Target) -> None:
    """Raise `TargetError` if every Helm source ignores the written value, or none reads the file.

    It is enough that one source uses the value.
    """
    if read_by_nobody(files, sub, "helmvalues"):
        if sub.neighbour:  # a warning is enough
            return
        relative_path = posixpath.relpath(sub.path, sub.source.path or ".")
        refs = [source.ref for source in sub.application.sources if source.ref] or ["<ref>"]
        in_source = sub.source.path and in_repository(sub.source, sub) and not sub.source.chart
        entry = relative_path if in_source else f"${refs[0]}/{sub.path}"
        raise TargetError(
            "no source of the Application reads this values file, so an update has no effect",
            hint=(
                f"add {entry} to the Helm source's valueFiles, or use a file that the source reads"
            ),
            subject=sub.path,
        )
    hidden: list[TargetError] = []
    for source in sub.application.sources:
        if not _is_helm(files, source):
            continue
        for way in _ways(files, sub, source):
            error = _hidden_by(files, way, target, sub.beside)
            if error is None:
                return
            hidden.append(error)
    if hidden:
        raise hidden[0]


def _hidden_by(
    files: Files,
    way: _Way,
    target: Target,
    beside: Sequence[str],
) -> TargetError | None:
    """Return the error about the topmost layer that hides one of the target's keys.

    Files that the same update writes (`beside`) get the version as well.
    """
    own = _plain_of(files, target.path)
    for key in _keys_of(target, own):
        steps = _as_written(own, parse_path(key))
        if _visible(way, target.path, steps):
            continue
        full_steps = (*map(Segment, way.below), *steps)
        layer = _topmost_that_sets(way.later(target.path), full_steps)
        is_also_written = layer.path and layer.path in beside
        if is_also_written:
            continue
        is_name = key == target.keys.name
        if is_name and _both_name_the_image(own, steps, layer, full_steps, target):
            continue
        return _no_effect(steps, layer, full_steps, target)
    return None


def _topmost_that_sets(layers: Sequence[_Layer], steps: Sequence[Segment]) -> _Layer:
    """Return the last layer that sets the value at these steps, or a placeholder for messages."""
    for layer in reversed(layers):
        if _sets(layer, steps):
            return layer
    return _Layer("another value", "run helm template to see the chart's values")


_PROBE = "\0"  # a value that no file has


def _visible(way: _Way, path: str, steps: Sequence[Segment]) -> bool:
    """Return whether Helm uses the written file's value at `steps`.

    The layers are merged like in Helm, with a probe as the written value.
    """
    full_steps = (*map(Segment, way.below), *steps)
    names = _names_to(full_steps)
    is_values_file = path in {layer.path for layer in way.files}
    for layer in way.parameters:
        for parameter in layer.parameters:
            if _parameter_covers(parameter, full_steps, in_list=is_values_file):
                return False
    merged: Any = {}
    for layer in (*way.files, *way.values):
        values = _probe_at(names) if layer.path == path else _narrow(layer.values, names)
        merged = _over(merged, values)
    for chart in way.charts:
        is_written = chart.path == path and not way.below
        defaults = _probe_at(names) if is_written else _narrow(chart.values, names)
        merged = _over_defaults(merged, defaults)
    if not way.below:
        return bool(_value_below(merged, names) == _PROBE)
    # The written file has the subchart's defaults, which come last.
    names_in_subchart = names[len(way.below) :]
    subchart = _value_below(merged, way.below)
    if subchart is None:
        subchart = {}
    subchart = _over_defaults(subchart, _probe_at(names_in_subchart))
    return bool(_value_below(subchart, names_in_subchart) == _PROBE)


def _value_below(values: Any, keys: Iterable[str]) -> Any:
    """Return the value at these keys, or None."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _names_to(steps: Sequence[Segment]) -> list[str]:
    """Return the keys on the way to the value, but only down to the first list, because Helm never
    merges lists.
    """
    names = []
    for step in steps:
        names.append(step.name)
        if step.brackets:
            break
    return names


def _probe_at(names: Sequence[str]) -> Any:
    """Return values with only the probe, at these nested keys."""
    value: Any = _PROBE
    for name in reversed(names):
        value = {name: value}
    return value


def _narrow(value: Any, names: Sequence[str]) -> Any:
    """Return the values without any keys except for these nested ones."""
    if not names or not isinstance(value, dict):
        return value
    merged = _with_merge_keys(value)
    first, *rest = names
    return {first: _narrow(merged[first], rest)} if first in merged else {}


def _over(below: Any, above: Any) -> Any:
    """Merge a later file's values (`above`) over earlier ones. Null also replaces a mapping."""
    if not isinstance(above, dict):
        return below
    if not isinstance(below, dict):
        return above
    merged = dict(below)
    for key, value in above.items():
        both_are_mappings = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if both_are_mappings else value
    return merged


def _over_defaults(given: Any, defaults: Any) -> Any:
    """Merge values over a chart's defaults. Null removes the chart's value."""
    if not isinstance(given, dict) or not isinstance(defaults, dict):
        return given
    merged = dict(given)
    for key, value in defaults.items():
        if key not in merged:
            merged[key] = value
        elif merged[key] is None:
            del merged[key]
        else:
            merged[key] = _over_defaults(merged[key], value)
    return merged


def _no_effect(
    steps: Sequence[Segment],
    layer: _Layer,
    full_steps: Sequence[Segment],
    target: Target,
) -> TargetError:
    """Return the error that a layer hides the value at `steps` in the written file.

    In the layer, the value is at `full_steps`.
    """
    message = f"{layer.where} sets {path_text(full_steps)}, and Helm uses that value"
    return TargetError(
        f"{path_text(steps)} has no effect: {message}",
        hint=layer.way_out,
        subject=target.path,
    )


def _keys_of(target: Target, own: Any) -> list[str]:
    """Return the keys that an update writes. `own` are the values in the written file."""
    keys = target.keys
    if keys.spec:
        return [keys.spec]
    names = [keys.tag or "image.tag", keys.digest]
    if keys.name and _text_at(own, parse_path(keys.name)):
        names.append(keys.name)
    return [key for key in names if key]


def _both_name_the_image(
    own: Any,
    steps: Sequence[Segment],
    layer: _Layer,
    full_steps: Sequence[Segment],
    target: Target,
) -> bool:
    """Return whether the file and the layer both name the target's image, so either may win."""
    key_in_layer = path_text(full_steps)
    name_in_file = _text_at(own, steps)
    name_in_layer = _text_at(layer.values, full_steps)
    for parameter in layer.parameters:
        if path_text(parse_path(parameter.name)) == key_in_layer:
            name_in_layer = parameter.value
    return _is_name_of_target(name_in_file, target) and _is_name_of_target(name_in_layer, target)


def _is_name_of_target(name: str, target: Target) -> bool:
    """Return whether a name is that of the target's image, with or without its registry."""
    _, without_registry = split_registry(target.image.name)
    if not name:
        return False
    return name == without_registry or identity_of(name) == target.image.identity


def _ways(files: Files, sub: Subscription, source: Source) -> list[_Way]:
    """Return each way that Helm reads the written file for this source."""
    helm = _helm_section(files, sub, source)
    paths = [_path_of(sub, source, value_file) for value_file in helm.value_files]
    listed = "" if helm.files_from is None else f" (listed in {helm.files_from})"
    layers = tuple(_file_layer(files, path, listed) for path in paths if path is not None)
    own = _own_values(sub, source)
    charts = () if own is None else (_file_layer(files, own, ""),)
    way = _Way(layers, charts, helm.values, helm.parameters)
    if sub.path in (*paths, own):
        return [way]
    if own is None:
        return []
    return [replace(way, below=below) for below in _chart_keys(files, sub, source)]


def _file_layer(files: Files, path: str, listed: str) -> _Layer:
    """Return a values file as a layer. `listed` says in messages where the file is listed."""
    way_out = f"remove the key from that file, or set write-back-target: helmvalues:/{path}"
    where = f"the values file {path}{listed}"
    return _Layer(where, way_out, _plain_of(files, path), path=path)


def _chart_keys(files: Files, sub: Subscription, source: Source) -> Iterator[tuple[str, ...]]:
    """Yield the keys under which a parent chart's values configure the written file's chart.

    The file's chart is in a `charts` folder of the parent, perhaps several levels deep, or is a
    dependency with a `file://` URL.
    """
    folder, name = posixpath.split(sub.path)
    if name != _VALUES:
        return
    nested = re.fullmatch(re.escape(source.path) + r"/?((?:charts/[^/]+/?)+)", folder)
    # `charts/a/charts/b` is the chart b in the chart a
    subcharts = nested[1].strip("/").split("/")[1::2] if nested else []
    first_subchart = subcharts[:1]
    deeper_subcharts = subcharts[1:]
    parent_chart = _plain_of(files, posixpath.join(source.path, _CHART))
    aliases = []
    for dependency in mappings(parent_chart, "dependencies"):
        dependency_name = text(dependency, "name")
        repository = text(dependency, "repository")
        path = posixpath.join(source.path, repository.removeprefix("file://"))
        is_this_folder = repository.startswith("file://") and posixpath.normpath(path) == folder
        if is_this_folder or [dependency_name] == first_subchart:
            aliases.append(text(dependency, "alias") or dependency_name)
    # a chart in the `charts` folder does not have to be listed as a dependency
    for key in aliases or first_subchart:
        yield (key, *deeper_subcharts)


@dataclass(frozen=True)
class _Helm:
    """A source's Helm section after its override files: the parts that may hide values."""

    value_files: tuple[str, ...]
    files_from: str | None  # the override file that lists them, or None
    values: tuple[_Layer, ...]
    parameters: tuple[_Layer, ...]


def _helm_section(files: Files, sub: Subscription, source: Source) -> _Helm:
    """Return the Helm section that Argo CD uses after applying override files as merge patches."""
    value_files = source.value_files
    files_from = None
    field = source.values_field or "values"
    values = [_spec_layer(f"helm.{field}", values=_values_in(source.values))]
    parameters = _spec_layer("helm.parameters", parameters=source.parameters)
    files_of_spec = tuple(Parameter(name, "") for name in source.file_parameters)
    of_files = _spec_layer("helm.fileParameters", parameters=files_of_spec)
    overrides = _override_files(sub, source) if in_repository(source, sub) else []
    for path in overrides:
        helm = mapping(_plain_of(files, path), "helm")
        values_object = helm.get("valuesObject")
        way_out = f"remove it from {path}"
        if isinstance(helm.get("valueFiles"), list):
            value_files = tuple(map(str, elements(helm, "valueFiles")))
            files_from = path
        if isinstance(values_object, dict):
            layer = _Layer(f"helm.valuesObject in {path}", way_out, values_object)
            # A merge patch merges two objects. Argo CD ignores `values` next to an object.
            values = [*values, layer] if field == "valuesObject" else [layer]
            field = "valuesObject"
        elif field == "values" and isinstance(helm.get("values"), str):
            values = [_Layer(f"helm.values in {path}", way_out, _values_in(helm["values"]))]
        if isinstance(helm.get("parameters"), list):
            parameters = _parameter_layer(helm, "parameters", path)
        if isinstance(helm.get("fileParameters"), list):
            of_files = _parameter_layer(helm, "fileParameters", path)
    return _Helm(value_files, files_from, tuple(values), (parameters, of_files))


def _parameter_layer(helm: Mapping[str, Any], name: str, path: str) -> _Layer:
    """Return the layer of an override file's parameters, in this field of its Helm section."""
    parameters = tuple(
        Parameter(text(item, "name"), text(item, "value")) for item in mappings(helm, name)
    )
    return _Layer(f"helm.{name} in {path}", f"remove it from {path}", parameters=parameters)


def _spec_layer(
    field: str,
    *,
    values: Any = None,
    parameters: tuple[Parameter, ...] = (),
) -> _Layer:
    """Return the layer of one field in the Application's spec."""
    where = f"spec.source.{field} in the Application"
    hint = f"remove it from spec.source.{field}, in Git and in the live Application"
    return _Layer(where, hint, values, parameters)


def _sets(layer: _Layer, steps: Sequence[Segment]) -> bool:
    """Return whether a layer sets the value at these steps, or replaces a parent of it."""
    for parameter in layer.parameters:
        if _parameter_covers(parameter, steps, in_list=False):
            return True
    return isinstance(layer.values, dict) and _in_values(layer.values, steps)


def _parameter_covers(parameter: Parameter, steps: Sequence[Segment], *, in_list: bool) -> bool:
    """Return whether a parameter sets the value at these steps, or a parent of it.

    A parameter for a list item changes only that item in the list of a values file (`in_list`), but
    replaces a chart's list.
    """
    parameter_steps = parse_path(parameter.name)
    for own, step in zip(parameter_steps, steps, strict=False):
        if own.name != step.name:
            return False
        if own.brackets and not in_list:
            return True  # it replaces the list
        if own.brackets != step.brackets:
            return not own.brackets  # it sets the whole list, or else another item
    return len(parameter_steps) <= len(steps)


def _in_values(value: Any, steps: Sequence[Segment]) -> bool:
    """Return whether values set the value at these steps, or replace a parent of it."""
    for step in steps:
        if not isinstance(value, dict):
            return True  # a scalar, list, or null replaces the whole mapping
        merged = _with_merge_keys(value)
        if step.name not in merged:
            return False
        value = merged[step.name]
        if step.brackets:
            return True  # Helm never merges lists
    return True


def _with_merge_keys(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a mapping with its merge key expanded."""
    merge = value.get("<<")
    if merge is None:
        return value
    sources = merge if isinstance(merge, list) else [merge]
    merged: dict[str, Any] = {}
    for item in reversed(sources):
        merged |= _with_merge_keys(item) if isinstance(item, dict) else {}
    return {**merged, **value}


def _as_written(own: Any, steps: Sequence[Segment]) -> tuple[Segment, ...]:
    """Join steps that are a single key with dots in the written file."""
    if not steps or not isinstance(own, dict):
        return tuple(steps)
    merged = _with_merge_keys(own)
    first = steps[0]
    if first.name in merged:
        return (first, *_as_written(merged[first.name], steps[1:]))
    for joined in range(2, len(steps) + 1):
        name = ".".join(step.text for step in steps[:joined])
        if name in merged:
            return (Segment(name), *_as_written(merged[name], steps[joined:]))
    return tuple(steps)


def _text_at(value: Any, steps: Sequence[Segment]) -> str:
    """Return the string at these steps, or "" if there is none."""
    for step in steps:
        value = _with_merge_keys(value).get(step.name) if isinstance(value, dict) else None
        for index in step.indices or ():
            value = value[index] if isinstance(value, list) and index < len(value) else None
    return value if isinstance(value, str) else ""


def _refuse_file_parameters(files: Files, sub: Subscription, target: Target) -> None:
    """Raise `TargetError` if a file parameter, which Helm reads later, sets the same value."""
    *_, of_files = _helm_section(files, sub, sub.source).parameters
    keys = target.keys
    names = [keys.spec] if keys.spec else [keys.tag or "image.tag", keys.digest]
    for name in filter(None, names):
        steps = parse_path(name)
        if _sets(of_files, steps):
            raise _no_effect(steps, of_files, steps, target)


def _refuse_hidden_images(files: Files, sub: Subscription, target: Target) -> None:
    """Raise `TargetError` if the image in the kustomization does not reach Argo CD.

    Argo CD runs `kustomize edit set image` in the source's folder, which replaces entries with the
    same names. Overlays and components may have their own entries for the resulting name.
    """
    source = sub.source
    if not in_repository(source, sub):
        return
    given = _images(files, sub)
    entries = every_entry(files, target, sub.path)
    names = [entry.name for entry in entries if is_for_image(entry, target)]
    if not names:  # the update will add an entry
        names = [target.keys.kustomize_name or target.image.name]
    is_source = sub.path == source.path
    later_folders = [] if is_source else lists_after(files, source.path, sub.path)
    if later_folders is None:
        return
    written = [*entries, *(Replacement(name, "", "", "") for name in names)]
    folders = [(folder, every_entry(files, target, folder)) for folder in later_folders]
    errors: list[TargetError] = []
    for name in names:
        probed = _probed(written, name)
        if is_source:
            error = _hidden_by_given(name, probed, given, sub)
        else:
            error = _hidden_by_folders(name, probed, folders, given, sub)
        if error is None:  # it is enough that one entry has an effect
            return
        errors.append(error)
    raise errors[0]


def _hidden_by_given(
    name: str,
    probed: Sequence[Replacement],
    given: _Given,
    sub: Subscription,
) -> TargetError | None:
    """Return the error if `kustomize.images` hides an entry in the source's own folder."""
    merged = override_kustomize.edited([*probed, *given.replacements])
    if made_of(Replacement(name, "", "", ""), [merged]).tag == _PROBE:
        return None
    return _image_error(given.where, given.way_out, name, sub)


def _hidden_by_folders(
    name: str,
    probed: Sequence[Replacement],
    folders: Sequence[tuple[str, Sequence[Replacement]]],
    given: _Given,
    sub: Subscription,
) -> TargetError | None:
    """Return an error for the last overlay or component that overrides an entry's image.

    `folders` lists the folders that are applied later, with their entries.
    """
    error = None
    image = made_of(Replacement(name, "", _PROBE, ""), [probed])
    for folder, own in folders:
        at_root = folder == sub.source.path
        if at_root and given.replacements:
            entries = override_kustomize.edited([*own, *given.replacements])
        elif folder in sub.beside:  # the same update also writes it
            entries = _probed(own, name, image.new)
        else:
            entries = list(own)
        image_before = image
        image = made_of(image_before, [entries])
        if image.tag == _PROBE:
            continue
        if at_root and made_of(image_before, [given.replacements]).tag != _PROBE:
            error = _image_error(given.where, given.way_out, name, sub)
        else:
            way = f"set write-back-target: kustomization:/{folder}"
            error = _image_error(f"the kustomization in {folder or '/'}", way, name, sub)
    return error


def _probed(entries: Sequence[Replacement], *names: str) -> list[Replacement]:
    """Return the entries after an update: entries with one of these names have the new tag."""
    return [
        replace(entry, tag=_PROBE, digest="") if entry.name in names else entry for entry in entries
    ]


def is_for_image(entry: Replacement, target: Target) -> bool:
    """Return whether an entry is for the target's image, by its name or its new name."""
    name = identity_of(target.keys.kustomize_name)
    if name and identity_of(entry.name) == name:
        return True
    return identity_of(entry.new or entry.name) == target.image.identity


def _image_error(where: str, way_out: str, name: str, sub: Subscription) -> TargetError:
    message = f"the entry {name} has no effect: {where} sets the image later"
    return TargetError(message, hint=way_out, subject=sub.path or "/")


class _Given(NamedTuple):
    """`kustomize.images` as Argo CD uses it."""

    replacements: Sequence[Replacement]
    where: str
    way_out: str


def _images(files: Files, sub: Subscription) -> _Given:
    """Return the source's `kustomize.images`, from the spec or the last override file with them."""
    field = "spec.source.kustomize.images"
    images = sub.source.images
    where = f"{field} in the Application"
    way_out = f"remove the image from {field}, in Git and in the live Application"
    for path in _override_files(sub, sub.source):
        listed = mapping(_plain_of(files, path), "kustomize").get("images")
        if isinstance(listed, list):
            images = tuple(item for item in listed if isinstance(item, str))
            where = f"kustomize.images in {path}"
            way_out = f"remove the image from {path}"
    return _Given(override_kustomize.given_replacements(images), where, way_out)


def _override_files(sub: Subscription, source: Source) -> list[str]:
    """Return the override files that Argo CD applies to a source, in order.

    The common file comes first, then the files with the Application's name, without and with its
    namespace.
    """
    app = sub.application
    names = (
        COMMON,
        f".argocd-source-{app.name}.yaml",
        f".argocd-source-{app.namespace}_{app.name}.yaml",
    )
    return [posixpath.join(source.path, file_name) for file_name in names]


def in_repository(source: Source, sub: Subscription) -> bool:
    """Return whether the source is in the written repository."""
    return not source.chart and normal_url(source.repo) == normal_url(sub.repo)


def _is_helm(files: Files, source: Source) -> bool:
    kind = source.kind or source.section
    if kind:
        return kind == "Helm"
    return bool(source.chart) or posixpath.join(source.path, _CHART) in files


def _may_read(files: Files, sub: Subscription, source: Source) -> bool:
    """Return whether a source may read the written file, although only Argo CD knows for sure."""
    if _is_helm(files, source):
        chart = posixpath.join(source.path, _CHART)
        if chart not in files and posixpath.basename(sub.path) == _VALUES:
            return True  # the file may belong to a chart that it depends on
        unknown = [name for name in source.value_files if _UNKNOWN.search(name.lstrip("$"))]
        return any(_may_stand_for(sub, source, name) for name in unknown)
    is_in_source = not source.path or sub.path.startswith(f"{source.path}/")
    return not source.ref and in_repository(source, sub) and is_in_source


def _may_stand_for(sub: Subscription, source: Source, name: str) -> bool:
    """Return whether a name with variables or globs may match the written file."""
    if name.startswith("$"):  # $ref/path, or a variable
        ref, _, path_in_ref = name[1:].partition("/")
        if any(other.ref == ref for other in sub.application.sources):
            name = f"/{path_in_ref}"
    folder = "" if name.startswith("/") else source.path
    joined = posixpath.join("/", folder, name.lstrip("/"))
    path = posixpath.normpath(joined).lstrip("/")
    literal_parts = re.split(r"\$\{[^}]*\}|\$\w+|\*\*/?|[*?]|\[[^\]]*\]", path)
    pattern = ".*".join(map(re.escape, literal_parts))
    return re.fullmatch(pattern, sub.path) is not None


def _own_values(sub: Subscription, source: Source) -> str | None:
    """Return the path of the chart's own values, or None if the chart is in a different
    repository.
    """
    if not in_repository(source, sub) or (source.ref and not source.path):
        return None
    return posixpath.join(source.path, _VALUES)


def _values_files_of(sub: Subscription, source: Source) -> list[str]:
    """Return the paths of the source's values files in the written repository."""
    paths = [_own_values(sub, source)]
    paths += [_path_of(sub, source, name) for name in source.value_files[-_MOST_FILES:]]
    return [path for path in paths if path is not None]


def _path_of(sub: Subscription, source: Source, name: str) -> str | None:
    """Return the path of a values file in the written repository, or None if it is elsewhere."""
    try:
        if name.startswith("$"):  # $ref/path
            ref, _, path_in_repo = name[1:].partition("/")
            of_ref = [other for other in sub.application.sources if other.ref == ref]
            if not of_ref or normal_url(of_ref[0].repo) != normal_url(sub.repo):
                return None
            return inside("", path_in_repo)
        if "://" in name or not in_repository(source, sub):
            return None
        return inside(source.path, name.replace("$ARGOCD_APP_NAME", sub.application.name))
    except TaskError:  # it leads out of the repository, which Argo CD reports
        return None


def _plain_of(files: Files, path: str) -> Any:
    """Return the data in a YAML file, or None if the file is missing, empty, or broken."""
    return _values_in(files.get(path, File("")).text)


@lru_cache(maxsize=256)  # several images of an Application have the same layers
def _values_in(values: str) -> Any:
    try:
        return plain(values) if values.strip() else None
    except Malformed:  # Argo CD reports it
        return None
