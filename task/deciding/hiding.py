"""Pure code that finds out what overrides the values file or kustomization that an update writes.

Helm merges the chart's own values, the values files in order, the Application's values, its
parameters, and its file parameters. The last value wins. Argo CD applies `kustomize.images` after
the kustomization's own entries.

This matters because Image Updater's default method leaves parameters in the live Application. These
override the values file, so a commit to that file succeeds, but the old image keeps running.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from task.annotations.application import with_variables
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
_MOST_FILES = 100  # the values files of one source
_UNKNOWN = re.compile(r"[*?\[]|\$")  # globs and variables that only Argo CD can expand


@dataclass(frozen=True)
class _Layer:
    """One layer of values or parameters that Helm merges."""

    name: str  # how messages refer to the layer
    hint: str
    values: Any = None
    parameters: tuple[Parameter, ...] = ()
    path: str = ""  # the path, if the layer is a values file


@dataclass(frozen=True)
class _Merge:
    """The layers that Helm merges when a source reads the values file that an update writes.

    A source may read the file in several ways, for example as the values of two subcharts.
    """

    files: tuple[_Layer, ...]  # the values files, in order
    charts: tuple[_Layer, ...]  # the chart's own values, below everything else
    values: tuple[_Layer, ...]  # the Application's values, above the files
    parameters: tuple[_Layer, ...]  # the parameters, above everything else
    # If the written file belongs to a subchart, the keys that configure that subchart in all of
    # these layers.
    subchart_keys: tuple[str, ...] = ()

    def layers_after(self, path: str) -> tuple[_Layer, ...]:
        """Return the layers of values that override the file at `path`, in order.

        All values files override the chart's own file. The parent chart's values also override a
        subchart's file.
        """
        parent_charts = self.charts if self.subchart_keys else ()
        later_files: list[_Layer] = []
        for layer in self.files:
            if layer.path == path:
                later_files = []  # only files after this one count
            else:
                later_files.append(layer)
        return (*parent_charts, *later_files, *self.values, *self.parameters)


def hiding_places(sub: Subscription, kind: TargetKind) -> tuple[Place, ...]:
    """Return the places (paths in Git) that may override the target. `refuse_hidden` needs these
    places in addition to the target's own.
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
    """Raise `TargetError` if Argo CD never uses the version written to the target, because
    something else overrides it. The error names what overrides it.
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

    If the annotation `git-repository` is set, the result is false, because something else may
    deploy the file.
    """
    if kind != "helmvalues" or sub.method != "git":
        return False
    if sub.application.annotations.get("git-repository"):
        return False  # the file may be a parent chart's values or the Application's own manifest
    sources = sub.application.sources
    helm_sources = [source for source in sources if _is_helm(files, source)]
    if not helm_sources:
        return False
    if any(_may_read(files, sub, source) for source in sources):
        return False
    is_read_by_source = any(_merges_of_file(files, sub, source) for source in helm_sources)
    return not is_read_by_source


def _refuse_hidden_values(files: Files, sub: Subscription, target: Target) -> None:
    """Raise `TargetError` if every Helm source that reads the written values file overrides its
    values, or if no source reads the file.

    There is no error if at least one source uses the values.
    """
    if read_by_nobody(files, sub, "helmvalues"):
        if sub.neighbour:  # another Application may read the file, so `file_cautions` only warns
            return
        raise _unread_file_error(sub)

    errors: list[TargetError] = []  # one for each way in which a source reads the file
    for source in sub.application.sources:
        if not _is_helm(files, source):
            continue
        for merge in _merges_of_file(files, sub, source):
            error = _hidden_by_layer(files, merge, target, sub.beside)
            if error is None:
                return
            errors.append(error)
    if errors:
        raise errors[0]


def _unread_file_error(sub: Subscription) -> TargetError:
    """Return the error for a written values file that no source reads.

    The hint suggests the entry to add to `valueFiles`: a relative path if the file is in the
    source's own repository, or else a path that starts with another source's `$ref`.
    """
    has_folder = sub.source.path != "" and not sub.source.chart
    is_in_source = has_folder and in_repository(sub.source, sub)
    if is_in_source:
        entry = posixpath.relpath(sub.path, sub.source.path)
    else:
        refs = [source.ref for source in sub.application.sources if source.ref]
        ref = refs[0] if refs else "<ref>"
        entry = f"${ref}/{sub.path}"
    return TargetError(
        "no source of the Application reads this values file, so an update has no effect",
        hint=f"add {entry} to the Helm source's valueFiles, or use a file that the source reads",
        subject=sub.path,
    )


def _hidden_by_layer(
    files: Files,
    merge: _Merge,
    target: Target,
    beside: Sequence[str],
) -> TargetError | None:
    """Return an error if a layer of values hides one of the keys that an update writes, such as
    `image.tag`. Return None if all keys have an effect.

    `beside` are the other files that the same update writes. The version is also written to these
    files, so they do not hide it.
    """
    written_values = _plain_of(files, target.path)
    for key in _keys_of(target, written_values):
        steps = _as_written(written_values, parse_path(key))
        if _is_visible(merge, target.path, steps):
            continue
        # Find the layer that hides the value, so that the message can name it.
        full_steps = (*map(Segment, merge.subchart_keys), *steps)  # steps in the parent's values
        layer = _topmost_that_sets(merge.layers_after(target.path), full_steps)
        is_also_written = layer.path != "" and layer.path in beside
        if is_also_written:
            continue
        is_name = key == target.keys.name
        if is_name and _both_name_the_image(written_values, steps, layer, full_steps, target):
            continue
        return _no_effect(steps, layer, full_steps, target)
    return None


def _topmost_that_sets(layers: Sequence[_Layer], steps: Sequence[Segment]) -> _Layer:
    """Return the last layer that sets the value at these steps (nested keys).

    If no layer sets the value, the chart itself hides it, and only `helm template` can show this.
    In that case, return a placeholder for the message.
    """
    for layer in reversed(layers):
        if _sets(layer, steps):
            return layer
    return _Layer("another value", "run helm template to see the chart's values")


_PROBE = "\0"  # a value that appears in no file


def _is_visible(merge: _Merge, path: str, steps: Sequence[Segment]) -> bool:
    """Return whether Helm uses the value at `steps` in the written file, whose path is `path`.

    To find out, merge the layers of values as Helm does, with a probe (a string that appears in no
    file) as the written value, and check whether the result contains the probe. `steps` are nested
    keys, such as `image` and `tag`.
    """
    full_steps = (*map(Segment, merge.subchart_keys), *steps)  # steps in the parent chart's values
    is_values_file = path in {layer.path for layer in merge.files}
    # Parameters override all values.
    for layer in merge.parameters:
        for parameter in layer.parameters:
            if _parameter_covers(parameter, full_steps, in_list=is_values_file):
                return False

    full_keys = _keys_to_first_list(full_steps)
    merged = _merged_with_probe(merge, path, full_keys)
    if not merge.subchart_keys:
        return bool(_nested_value(merged, full_keys) == _PROBE)

    # The written file contains the subchart's defaults. Helm uses a default only if the parent
    # chart does not pass a value to the subchart.
    values_of_subchart = _nested_value(merged, merge.subchart_keys)
    if values_of_subchart is None:
        values_of_subchart = {}
    keys_in_subchart = full_keys[len(merge.subchart_keys) :]
    merged_in_subchart = _with_defaults(values_of_subchart, _probe_at(keys_in_subchart))
    return bool(_nested_value(merged_in_subchart, keys_in_subchart) == _PROBE)


def _merged_with_probe(merge: _Merge, path: str, keys: Sequence[str]) -> Any:
    """Return the values files, the Application's values, and the chart's values, merged as Helm
    does.

    Only the value at these nested keys is merged. In the file at `path`, this value is replaced
    with the probe (a string that appears in no file). If that file belongs to a subchart, it is not
    one of the merged files, and the result does not contain the probe.
    """

    def values_of(layer: _Layer) -> Any:
        """Return the layer's value at these keys, or the probe for the file at `path`."""
        return _probe_at(keys) if layer.path == path else _only_at(layer.values, keys)

    merged: Any = {}
    for layer in (*merge.files, *merge.values):  # the last layer that sets a value wins
        merged = _merged_over(merged, values_of(layer))
    for chart in merge.charts:  # a chart's values are used only where nothing else sets a value
        merged = _with_defaults(merged, values_of(chart))
    return merged


def _nested_value(values: Any, keys: Iterable[str]) -> Any:
    """Return the value at these nested keys, or None if there is none."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _keys_to_first_list(steps: Sequence[Segment]) -> list[str]:
    """Return the keys that lead to a value, such as `image` and `tag`, up to the first list,
    because Helm never merges lists.
    """
    keys = []
    for step in steps:
        keys.append(step.name)
        if step.brackets:
            break
    return keys


def _probe_at(keys: Sequence[str]) -> Any:
    """Return values that contain only the probe, at these nested keys."""
    value: Any = _PROBE
    for key in reversed(keys):
        value = {key: value}
    return value


def _only_at(value: Any, keys: Sequence[str]) -> Any:
    """Return the values with all keys removed except these nested ones.

    For example, for the keys `image` and `tag`, the result is `{"image": {"tag": "1.2"}}`.
    """
    if not keys or not isinstance(value, dict):
        return value
    expanded = _with_merge_keys(value)
    key, *nested_keys = keys
    if key not in expanded:
        return {}
    return {key: _only_at(expanded[key], nested_keys)}


def _merged_over(earlier: Any, later: Any) -> Any:
    """Return earlier values with a later file's values merged over them.

    Mappings are merged key by key. Any other value, even null, replaces the earlier value.
    """
    if not isinstance(later, dict):
        return earlier
    if not isinstance(earlier, dict):
        return later
    merged = dict(earlier)
    for key, value in later.items():
        both_are_mappings = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged_over(merged[key], value) if both_are_mappings else value
    return merged


def _with_defaults(values: Any, defaults: Any) -> Any:
    """Return the values with a chart's defaults added. A null value removes the chart's default."""
    if not isinstance(values, dict) or not isinstance(defaults, dict):
        return values
    merged = dict(values)
    for key, default in defaults.items():
        if key not in merged:
            merged[key] = default
        elif merged[key] is None:
            del merged[key]
        else:
            merged[key] = _with_defaults(merged[key], default)
    return merged


def _no_effect(
    steps: Sequence[Segment],
    layer: _Layer,
    full_steps: Sequence[Segment],
    target: Target,
) -> TargetError:
    """Return the error for a value at `steps` in the written file that a layer of values hides.

    `full_steps` are the steps to the value in the layer. They begin with the subchart's keys if
    there is a subchart.
    """
    message = f"{layer.name} sets {path_text(full_steps)}, and Helm uses that value"
    return TargetError(
        f"{path_text(steps)} has no effect: {message}",
        hint=layer.hint,
        subject=target.path,
    )


def _keys_of(target: Target, written_values: Any) -> list[str]:
    """Return the keys that an update writes, such as `image.tag`.

    The key for the image's name is included only if the file already sets a name.
    """
    keys = target.keys
    if keys.spec:
        return [keys.spec]
    written_keys = [keys.tag or "image.tag"]
    if keys.digest:
        written_keys.append(keys.digest)
    if keys.name and _text_at(written_values, parse_path(keys.name)):
        written_keys.append(keys.name)
    return written_keys


def _both_name_the_image(
    written_values: Any,
    steps: Sequence[Segment],
    layer: _Layer,
    full_steps: Sequence[Segment],
    target: Target,
) -> bool:
    """Return whether the written file and the layer that hides it both name the target's image.

    If so, it does not matter which of the two names wins. The name is at `steps` in the written
    file and at `full_steps` in the layer.
    """
    key_in_layer = path_text(full_steps)
    name_in_file = _text_at(written_values, steps)
    name_in_layer = _text_at(layer.values, full_steps)
    for parameter in layer.parameters:
        if path_text(parse_path(parameter.name)) == key_in_layer:
            name_in_layer = parameter.value
    return _is_name_of_target(name_in_file, target) and _is_name_of_target(name_in_layer, target)


def _is_name_of_target(name: str, target: Target) -> bool:
    """Return whether a name is the target's image name, with or without its registry."""
    if not name:
        return False
    _, name_without_registry = split_registry(target.image.name)
    return name == name_without_registry or identity_of(name) == target.image.identity


def _merges_of_file(files: Files, sub: Subscription, source: Source) -> list[_Merge]:
    """Return the merges (the layers of values that Helm merges) in which this source reads the
    written file.

    If the file is one of the source's values files, there is one merge. If the file contains the
    own values of subcharts of the source, there is one merge for each subchart. Otherwise, the list
    is empty.
    """
    helm = _helm_section(files, sub, source)
    paths = [_path_of(sub, source, value_file) for value_file in helm.value_files]
    where_listed = "" if helm.files_from is None else f" (listed in {helm.files_from})"
    file_layers = [_file_layer(files, path, where_listed) for path in paths if path is not None]
    values_of_chart = _own_values(sub, source)
    charts = () if values_of_chart is None else (_file_layer(files, values_of_chart, ""),)
    merge = _Merge(
        files=tuple(file_layers),
        charts=charts,
        values=helm.values,
        parameters=(helm.parameters, helm.file_parameters),
    )
    is_own_values_file = sub.path in (*paths, values_of_chart)
    if is_own_values_file:
        return [merge]
    if values_of_chart is None:
        return []
    return [replace(merge, subchart_keys=keys) for keys in _chart_keys(files, sub, source)]


def _file_layer(files: Files, path: str, where_listed: str) -> _Layer:
    """Return a values file as a layer of values.

    `where_listed` is appended to the file's name in messages. It states which override file lists
    the values file, or is "".
    """
    hint = f"remove the key from that file, or set write-back-target: helmvalues:/{path}"
    name = f"the values file {path}{where_listed}"
    return _Layer(name, hint, _plain_of(files, path), path=path)


def _chart_keys(files: Files, sub: Subscription, source: Source) -> Iterator[tuple[str, ...]]:
    """Yield the keys under which a parent chart's values configure the written file's chart, such
    as `("database",)`, or `("a", "b")` for the chart b in the chart a.

    The file's chart is in a `charts` folder of the parent, perhaps several levels deep, or is a
    dependency with a `file://` URL. `source` is the parent chart's source.
    """
    folder, file_name = posixpath.split(sub.path)
    if file_name != _VALUES:
        return
    subcharts = _nested_subcharts(source.path, folder)
    parent_chart = _plain_of(files, posixpath.join(source.path, _CHART))
    keys = []
    for dependency in mappings(parent_chart, "dependencies"):
        name = text(dependency, "name")
        repository = text(dependency, "repository")
        path = posixpath.join(source.path, repository.removeprefix("file://"))
        is_in_folder = repository.startswith("file://") and posixpath.normpath(path) == folder
        is_outermost_subchart = bool(subcharts) and subcharts[0] == name
        if is_in_folder or is_outermost_subchart:
            keys.append(text(dependency, "alias") or name)
    if not keys:  # a chart in the `charts` folder does not have to be listed as a dependency
        keys = subcharts[:1]
    for key in keys:  # several if the parent includes the chart under several aliases
        yield (key, *subcharts[1:])


def _nested_subcharts(chart: str, folder: str) -> list[str]:
    """Return the names of the subcharts on the way from a chart's folder to this folder.

    For example, `charts/a/charts/b` contains the chart b, which is a subchart of the chart a.
    Return an empty list if the folder does not belong to a subchart.
    """
    match = re.fullmatch(re.escape(chart) + r"/?((?:charts/[^/]+/?)+)", folder)
    if match is None:
        return []
    names = match[1].strip("/").split("/")
    return names[1::2]  # omit the folders named `charts`


@dataclass(frozen=True)
class _Helm:
    """The parts of a source's Helm section that may hide values, after override files have been
    applied.
    """

    value_files: tuple[str, ...]
    files_from: str | None  # the override file that lists the values files, or None
    values: tuple[_Layer, ...]
    parameters: _Layer
    file_parameters: _Layer


# the Helm sections of override files, in order, each with the path of its file
_HelmOverrides = Sequence[tuple[str, Mapping[str, Any]]]


def _helm_section(files: Files, sub: Subscription, source: Source) -> _Helm:
    """Return the Helm section of a source in the form that Argo CD uses, after the source's
    override files have been applied as merge patches.

    A list in a merge patch replaces the earlier list.
    """
    override_files = _override_files(sub, source) if in_repository(source, sub) else []
    overrides = [(path, mapping(_plain_of(files, path), "helm")) for path in override_files]

    app = sub.application
    value_files = source.value_files
    files_from = None
    for path, helm in overrides:
        if isinstance(helm.get("valueFiles"), list):
            # Argo CD's namespace is unknown here; almost always, it is the Application's.
            value_files = tuple(
                with_variables(str(name), app, source, app.namespace)
                for name in elements(helm, "valueFiles")
            )
            files_from = path

    file_parameters = tuple(Parameter(name, "") for name in source.file_parameters)
    return _Helm(
        value_files=value_files,
        files_from=files_from,
        values=_value_layers(source, overrides),
        parameters=_parameter_layer("parameters", source.parameters, overrides),
        file_parameters=_parameter_layer("fileParameters", file_parameters, overrides),
    )


def _value_layers(source: Source, overrides: _HelmOverrides) -> tuple[_Layer, ...]:
    """Return the layers of the Application's values: those in its spec, and those in override
    files, which are merged with the spec's values or replace them.
    """
    field = source.values_field or "values"  # the field that Argo CD uses up to this file
    layers = [_spec_layer(f"helm.{field}", values=_values_in(source.values))]
    for path, helm in overrides:
        hint = f"remove it from {path}"
        values_object = helm.get("valuesObject")
        if isinstance(values_object, dict):
            layer = _Layer(f"helm.valuesObject in {path}", hint, values_object)
            # A merge patch merges the two objects. If there is an object, Argo CD ignores `values`.
            layers = [*layers, layer] if field == "valuesObject" else [layer]
            field = "valuesObject"
        elif field == "values" and isinstance(helm.get("values"), str):
            layers = [_Layer(f"helm.values in {path}", hint, _values_in(helm["values"]))]
    return tuple(layers)


def _parameter_layer(
    field: str,
    parameters_of_spec: tuple[Parameter, ...],
    overrides: _HelmOverrides,
) -> _Layer:
    """Return the layer of the parameters in one field of the Helm section: "parameters" or
    "fileParameters".

    The parameters come from the last override file that contains the field, or else from the
    Application's spec.
    """
    for path, helm in reversed(overrides):
        if isinstance(helm.get(field), list):
            items = mappings(helm, field)
            parameters = tuple(Parameter(text(item, "name"), text(item, "value")) for item in items)
            hint = f"remove it from {path}"
            return _Layer(f"helm.{field} in {path}", hint, parameters=parameters)
    return _spec_layer(f"helm.{field}", parameters=parameters_of_spec)


def _spec_layer(
    field: str,
    *,
    values: Any = None,
    parameters: tuple[Parameter, ...] = (),
) -> _Layer:
    """Return the layer for one field of the Application's spec, such as "helm.values"."""
    name = f"spec.source.{field} in the Application"
    hint = f"remove it from spec.source.{field}, in Git and in the live Application"
    return _Layer(name=name, hint=hint, values=values, parameters=parameters)


def _sets(layer: _Layer, steps: Sequence[Segment]) -> bool:
    """Return whether a layer sets the value at these steps (nested keys), or replaces one of the
    value's parents.
    """
    for parameter in layer.parameters:
        if _parameter_covers(parameter, steps, in_list=False):
            return True
    return isinstance(layer.values, dict) and _in_values(layer.values, steps)


def _parameter_covers(parameter: Parameter, steps: Sequence[Segment], *, in_list: bool) -> bool:
    """Return whether a Helm parameter, such as `image.tag` or `env[0].value`, sets the value at
    these steps or one of its parents.

    A parameter for a list item changes only that item if the list is in a values file (`in_list`),
    but replaces the whole list if the list is in a chart.
    """
    parameter_steps = parse_path(parameter.name)
    for parameter_step, step in zip(parameter_steps, steps, strict=False):
        if parameter_step.name != step.name:
            return False
        is_list_item = parameter_step.brackets != ""
        if is_list_item and not in_list:
            return True  # this parameter replaces the list
        if parameter_step.brackets != step.brackets:
            return not is_list_item  # this parameter sets the whole list or a different item
    return len(parameter_steps) <= len(steps)  # otherwise, the parameter sets a part of the value


def _in_values(value: Any, steps: Sequence[Segment]) -> bool:
    """Return whether values (as parsed from YAML) set the value at these steps, or replace one of
    its parents.
    """
    for step in steps:
        if not isinstance(value, dict):
            return True  # a scalar, list, or null replaces the whole mapping
        expanded = _with_merge_keys(value)
        if step.name not in expanded:
            return False
        value = expanded[step.name]
        if step.brackets:
            return True  # Helm never merges lists
    return True


def _with_merge_keys(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a mapping with its YAML merge key (`<<`) expanded.

    The mapping's own keys win over merged ones, and if several mappings are merged, the first
    mapping wins.
    """
    merge_value = value.get("<<")
    if merge_value is None:
        return value
    merged_mappings = merge_value if isinstance(merge_value, list) else [merge_value]
    expanded: dict[str, Any] = {}
    for item in reversed(merged_mappings):
        if isinstance(item, dict):
            expanded |= _with_merge_keys(item)
    return {**expanded, **value}


def _as_written(values: Any, steps: Sequence[Segment]) -> tuple[Segment, ...]:
    """Return the steps to a value, with the keys as they are spelled in these values.

    For example, the steps `image` and `tag` become a single step if the values contain
    `"image.tag": v1`, where the dot is part of the key.
    """
    if not steps or not isinstance(values, dict):
        return tuple(steps)
    expanded = _with_merge_keys(values)
    step = steps[0]
    if step.name in expanded:
        return (step, *_as_written(expanded[step.name], steps[1:]))
    for length in range(2, len(steps) + 1):
        key = ".".join(joined_step.text for joined_step in steps[:length])
        if key in expanded:
            return (Segment(key), *_as_written(expanded[key], steps[length:]))
    return tuple(steps)


def _text_at(value: Any, steps: Sequence[Segment]) -> str:
    """Return the string at this path (a sequence of keys and list indices), or "" if there is no
    string.
    """
    for step in steps:
        if not isinstance(value, dict):
            return ""
        value = _with_merge_keys(value).get(step.name)
        indices = step.indices or ()
        for index in indices:
            if not isinstance(value, list) or index >= len(value):
                return ""
            value = value[index]
    return value if isinstance(value, str) else ""


def _refuse_file_parameters(files: Files, sub: Subscription, target: Target) -> None:
    """Raise `TargetError` if one of the Application's file parameters sets a value that the update
    writes. Helm applies file parameters last, so they win.
    """
    file_parameters = _helm_section(files, sub, sub.source).file_parameters
    keys = target.keys
    written_keys = [keys.spec] if keys.spec else [keys.tag or "image.tag", keys.digest]
    for key in written_keys:
        if not key:
            continue
        steps = parse_path(key)
        if _sets(file_parameters, steps):
            raise _no_effect(steps, file_parameters, steps, target)


def _refuse_hidden_images(files: Files, sub: Subscription, target: Target) -> None:
    """Raise `TargetError` if the image that an update writes to a kustomization has no effect.

    Argo CD runs `kustomize edit set image` in the source's folder, which replaces entries with the
    same names. Overlays and components may contain further entries for the resulting name.
    """
    source = sub.source
    if not in_repository(source, sub):
        return
    source_images = _source_images(files, sub)  # the Application's `kustomize.images`
    entries = every_entry(files, target, sub.path)  # of the written kustomization
    names = [entry.name for entry in entries if is_for_image(entry, target)]
    if not names:  # the update will add an entry
        names = [target.keys.kustomize_name or target.image.name]

    is_source_folder = sub.path == source.path
    later_folders = [] if is_source_folder else lists_after(files, source.path, sub.path)
    if later_folders is None:  # the source does not include the written kustomization
        return
    later_entries = [(folder, every_entry(files, target, folder)) for folder in later_folders]

    # The update adds an entry if there is none. If there already is one, a second entry with the
    # same tag does not change the result.
    new_entries = [Replacement(name, "", "", "") for name in names]
    errors: list[TargetError] = []
    for name in names:
        updated_entries = _updated_entries([*entries, *new_entries], name)
        if is_source_folder:
            error = _hidden_by_source_images(name, updated_entries, source_images, sub)
        else:
            error = _hidden_by_folders(name, updated_entries, later_entries, source_images, sub)
        if error is None:  # one effective entry is enough
            return
        errors.append(error)
    raise errors[0]


def _hidden_by_source_images(
    name: str,
    updated_entries: Sequence[Replacement],
    source_images: _SourceImages,
    sub: Subscription,
) -> TargetError | None:
    """Return an error if the Application's `kustomize.images` hides the entry with this name in the
    kustomization. Otherwise, return None.

    In `updated_entries`, the entry's tag is the probe (a string that appears in no file).
    """
    merged_entries = override_kustomize.edited([*updated_entries, *source_images.replacements])
    has_effect = made_of(Replacement(name, "", "", ""), [merged_entries]).tag == _PROBE
    if has_effect:
        return None
    return _image_error(source_images.name, source_images.hint, name, sub)


def _hidden_by_folders(
    name: str,
    updated_entries: Sequence[Replacement],
    later_entries: Sequence[tuple[str, Sequence[Replacement]]],
    source_images: _SourceImages,
    sub: Subscription,
) -> TargetError | None:
    """Return an error about the last overlay or component that overrides the entry's image. Return
    None if nothing overrides it.

    `later_entries` are the folders that Kustomize applies later, with their entries. The written
    tag is the probe (a string that appears in no file), so any other tag means that the image is
    overridden.
    """
    error = None
    image = made_of(Replacement(name, "", _PROBE, ""), [updated_entries])
    for folder, entries in later_entries:
        is_source_folder = folder == sub.source.path
        applied_entries = list(entries)
        if is_source_folder and source_images.replacements:
            applied_entries = override_kustomize.edited([*entries, *source_images.replacements])
        elif folder in sub.beside:  # the same update also writes to this folder
            applied_entries = _updated_entries(entries, name, image.name)

        image_before = image
        image = made_of(image_before, [applied_entries])
        if image.tag == _PROBE:
            continue
        # The message blames the Application's images if they alone hide the entry, or else the
        # folder's entries.
        is_hidden_by_application = (
            is_source_folder and made_of(image_before, [source_images.replacements]).tag != _PROBE
        )
        if is_hidden_by_application:
            error = _image_error(source_images.name, source_images.hint, name, sub)
        else:
            hint = f"set write-back-target: kustomization:/{folder}"
            error = _image_error(f"the kustomization in {folder or '/'}", hint, name, sub)
    return error


def _updated_entries(entries: Sequence[Replacement], *names: str) -> list[Replacement]:
    """Return the entries after an update, which sets the new tag in entries with one of these
    names.

    The new tag is the probe, a string that appears in no file.
    """
    return [
        replace(entry, tag=_PROBE, digest="") if entry.name in names else entry for entry in entries
    ]


def is_for_image(entry: Replacement, target: Target) -> bool:
    """Return whether an entry in a kustomization's `images` is for the target's image, judging by
    the entry's name or its `newName`.
    """
    annotated_identity = identity_of(target.keys.kustomize_name)
    if annotated_identity and identity_of(entry.name) == annotated_identity:
        return True
    return identity_of(entry.new or entry.name) == target.image.identity


def _image_error(hidden_by: str, hint: str, name: str, sub: Subscription) -> TargetError:
    """Return the error for an entry with this name that is overridden by `hidden_by`."""
    message = f"the entry {name} has no effect: {hidden_by} sets the image later"
    return TargetError(message, hint=hint, subject=sub.path or "/")


class _SourceImages(NamedTuple):
    """The effective value of `kustomize.images` in Argo CD."""

    replacements: Sequence[Replacement]
    name: str  # how messages refer to the field
    hint: str


def _source_images(files: Files, sub: Subscription) -> _SourceImages:
    """Return the source's `kustomize.images` from the last override file that sets it, or else from
    the Application's spec.
    """
    field = "spec.source.kustomize.images"
    images = sub.source.images
    name = f"{field} in the Application"
    hint = f"remove the image from {field}, in Git and in the live Application"
    for path in _override_files(sub, sub.source):
        images_in_file = mapping(_plain_of(files, path), "kustomize").get("images")
        if isinstance(images_in_file, list):
            images = tuple(item for item in images_in_file if isinstance(item, str))
            name = f"kustomize.images in {path}"
            hint = f"remove the image from {path}"
    return _SourceImages(override_kustomize.given_replacements(images), name, hint)


def _override_files(sub: Subscription, source: Source) -> list[str]:
    """Return the override files that Argo CD applies to a source, in order.

    The common file comes first, followed by the files named after the Application, without and then
    with its namespace.
    """
    app = sub.application
    names = (
        COMMON,
        f".argocd-source-{app.name}.yaml",
        f".argocd-source-{app.namespace}_{app.name}.yaml",
    )
    return [posixpath.join(source.path, file_name) for file_name in names]


def in_repository(source: Source, sub: Subscription) -> bool:
    """Return whether the source is in the repository that is written to."""
    return not source.chart and normal_url(source.repo) == normal_url(sub.repo)


def _is_helm(files: Files, source: Source) -> bool:
    """Return whether a source is a Helm chart, according to its spec, or else according to its
    files.
    """
    kind = source.kind or source.section
    if kind:
        return kind == "Helm"
    return bool(source.chart) or posixpath.join(source.path, _CHART) in files


def _may_read(files: Files, sub: Subscription, source: Source) -> bool:
    """Return whether a source might read the written file, as far as can be determined without Argo
    CD.
    """
    if _is_helm(files, source):
        chart = posixpath.join(source.path, _CHART)
        if chart not in files and posixpath.basename(sub.path) == _VALUES:
            return True  # the file may belong to a chart on which this source depends
        for name in source.value_files:
            # The `$` at the start of `$ref/path` is not a variable.
            has_variable_or_glob = _UNKNOWN.search(name.lstrip("$")) is not None
            if has_variable_or_glob and _may_match(sub, source, name):
                return True
        return False
    if source.ref or not in_repository(source, sub):
        return False
    # Manifests and plugins may use any file in the source's folder.
    return source.path == "" or sub.path.startswith(f"{source.path}/")


def _may_match(sub: Subscription, source: Source, value_file: str) -> bool:
    """Return whether an entry of `valueFiles` with variables or globs, such as `env/*.yaml`, may
    match the written file.

    Any text may match a variable or a glob.
    """
    if value_file.startswith("$"):  # `$ref/path`, or a path that starts with a variable
        ref, _, path_in_ref = value_file[1:].partition("/")
        refs = {other_source.ref for other_source in sub.application.sources}
        if ref in refs:
            value_file = f"/{path_in_ref}"
    folder = "" if value_file.startswith("/") else source.path
    joined = posixpath.join("/", folder, value_file.lstrip("/"))
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
    """Return the paths of those of the source's values files that are in the written repository."""
    paths = [_own_values(sub, source)]
    last_names = source.value_files[-_MOST_FILES:]  # the last files win
    paths += [_path_of(sub, source, name) for name in last_names]
    return [path for path in paths if path is not None]


def _path_of(sub: Subscription, source: Source, name: str) -> str | None:
    """Return the path of a values file in the written repository, or None if the file is not in
    that repository.

    `name` is the file's entry in the source's `valueFiles`.
    """
    try:
        if name.startswith("$"):  # $ref/path
            ref, _, path_in_repo = name[1:].partition("/")
            repos = [other.repo for other in sub.application.sources if other.ref == ref]
            if not repos or normal_url(repos[0]) != normal_url(sub.repo):
                return None
            return inside("", path_in_repo)
        if "://" in name or not in_repository(source, sub):
            return None
        return inside(source.path, name)
    except TaskError:  # the path leads out of the repository, which Argo CD reports
        return None


def _plain_of(files: Files, path: str) -> Any:
    """Return the data in a YAML file, or None if the file is missing, empty, or invalid."""
    return _values_in(files.get(path, File("")).text)


@lru_cache(maxsize=256)  # several images of an Application use the same layers
def _values_in(values: str) -> Any:
    """Return the data in YAML text, or None if the text is empty or invalid."""
    try:
        return plain(values) if values.strip() else None
    except Malformed:  # Argo CD reports this
        return None
