"""Turns an ApplicationSet into its Applications, or determines why Argo CD would not generate any.

`may_name` and `template_of` are for an ApplicationSet that cannot be rendered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from task.applicationsets import go_yaml
from task.applicationsets.fill import Budget, Filler, Params
from task.applicationsets.generators import (
    Generators,
    GitFiles,
    NamedCluster,
    UnknowableError,
    with_one_kind,
)
from task.errors import Malformed, Trouble
from task.model import Image
from task.plain_data import mapping

# The reasons in Argo CD's status conditions.
PARAMS = "ApplicationGenerationFromParamsError"
TEMPLATE = "RenderTemplateParamsError"
DUPLICATE = "ApplicationValidationError"
REFUSED = "UpdateApplicationError"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253
_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com', regex used for"
    " validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_TAG = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_CONTROL_TAG = re.compile(r"\{\{-?\s*(?:if|else|end|range|with|template|define|block|\$)")
_MOST = 10_000  # the maximum number of values to search
_DEEPEST = 6  # the number of nesting levels to keep in a source


@dataclass(frozen=True)
class Rendered:
    """The result of rendering an ApplicationSet."""

    applications: tuple[Mapping[str, Any], ...] = ()
    # The rules are Argo CD's reasons, and the messages are Argo CD's, too. If a rule is PARAMS or
    # TEMPLATE, there are no Applications.
    troubles: tuple[Trouble, ...] = ()
    unknown: tuple[UnknowableError, ...] = ()  # generators with unknown parameters

    @property
    def failed(self) -> bool:
        """Whether a generator or template failed, so that Argo CD does not generate any
        Applications.
        """
        return any(trouble.rule in (PARAMS, TEMPLATE) for trouble in self.troubles)


def render(
    manifest: Mapping[str, Any],
    git: GitFiles,
    budget: Budget,
    *,
    clusters: Sequence[NamedCluster] | None = None,
    namespace: str = "argocd",
) -> Rendered:
    """Return an ApplicationSet's Applications, and any mistakes in it.

    `git` reads repositories for `git` generators. `clusters` are the clusters for `clusters`
    generators; None means unknown. `namespace` is the default if the manifest has none. Raises
    Git's errors.
    """
    unknown: list[UnknowableError] = []
    try:
        metadata = _required_mapping(manifest, "metadata")
        spec = _required_mapping(manifest, "spec")
        options = spec.get("goTemplateOptions") or []
        if not isinstance(options, list):
            options = [options]
        filler = Filler(budget, go=spec.get("goTemplate") is True, options=tuple(map(str, options)))
        generators = Generators(filler, git, clusters)
        templates_and_rows = list(_parameter_sets(spec, generators, unknown))
    except Malformed as error:
        return Rendered(troubles=(Trouble(PARAMS, error.message, error.hint),))

    own_namespace = str(metadata.get("namespace") or namespace)
    owner = {"kind": "ApplicationSet", "name": str(metadata.get("name") or "")}
    patch = spec.get("templatePatch")
    generated_apps = []
    for template, row in templates_and_rows:
        try:
            budget.make()  # raises `Malformed` if there are too many
            app = _application(
                template,
                row,
                patch=patch,
                filler=filler,
                namespace=own_namespace,
                owner=owner,
            )
        except Malformed as error:
            return Rendered(
                troubles=(Trouble(TEMPLATE, error.message, error.hint),),
                unknown=tuple(unknown),
            )
        generated_apps.append(app)
    valid_apps, troubles = _with_valid_names(generated_apps, owner["name"])
    return Rendered(
        applications=tuple(valid_apps),
        troubles=tuple(troubles),
        unknown=tuple(unknown),
    )


def _parameter_sets(
    spec: Mapping[str, Any],
    generators: Generators,
    unknown: list[UnknowableError],
) -> Iterator[tuple[Mapping[str, Any], Params]]:
    """Yield the template and the parameters of each Application: (template, row).

    If a generator's parameters cannot be determined here, the error is added to `unknown`. Raises
    `Malformed`.
    """
    common_template = _required_mapping(spec, "template")
    generator_specs = spec.get("generators")
    if not isinstance(generator_specs, list):
        raise Malformed(
            "the ApplicationSet has no generators",
            "see the ApplicationSet specification",
        )
    for generator in chain.from_iterable(map(with_one_kind, generator_specs)):
        # The body is under the generator's kind: {"list": {"elements": …, "template": …}}. A
        # selector may come before or after it.
        bodies = [
            body
            for key, body in mapping(generator).items()
            if key != "selector" and isinstance(body, dict)
        ]
        own_template = bodies[0].get("template") if bodies else None
        template = common_template
        if isinstance(own_template, dict):
            template = _template_with_defaults(own_template, common_template)
        try:
            for row in generators.params(generator):
                yield template, row
        except UnknowableError as error:
            unknown.append(error)


def _template_with_defaults(own: Any, common: Any) -> Any:
    """Return a generator's own template, with missing and empty values taken from the common
    template, as when dario.cat/mergo merges Go structs.
    """
    if isinstance(own, dict) and isinstance(common, dict):
        return {
            key: _template_with_defaults(own.get(key), common.get(key)) for key in {**common, **own}
        }
    return own or common


def _application(
    template: Mapping[str, Any],
    row: Params,
    patch: Any,
    filler: Filler,
    namespace: str,
    owner: Mapping[str, str],
) -> Mapping[str, Any]:
    """Return the Application that the template generates with one parameter set, `row`.

    `patch` is the ApplicationSet's `templatePatch`, and `owner` is the reference to the
    ApplicationSet for `ownerReferences`. Raises `Malformed`.
    """
    metadata = _required_mapping(template, "metadata")
    spec = _required_mapping(template, "spec")
    used_metadata = {
        key: metadata[key] for key in ("name", "labels", "annotations") if metadata.get(key)
    }
    rendered_parts: dict[str, Any] = {"metadata": used_metadata, "spec": spec}
    if row:  # without parameters, Argo CD does not render the template
        rendered_parts = filler.deep(rendered_parts, row)
    if isinstance(patch, str) and patch:
        rendered_parts = _with_template_patch(rendered_parts, patch, row, filler)

    rendered_metadata = rendered_parts["metadata"]
    name = rendered_metadata.get("name") or ""
    if not isinstance(name, str):
        raise Malformed(
            "spec.template.metadata.name is not a string",
            "put it in quotes: name: '{{name}}'",
        )
    labels_and_annotations = {
        key: rendered_metadata[key]
        for key in ("labels", "annotations")
        if rendered_metadata.get(key)
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": name,
            "namespace": namespace,
            **labels_and_annotations,
            "ownerReferences": [owner],
        },
        "spec": rendered_parts["spec"],
    }


def _with_template_patch(
    rendered_parts: dict[str, Any],
    patch: str,
    row: Params,
    filler: Filler,
) -> dict[str, Any]:
    """Return an Application's metadata and spec with the `templatePatch` applied.

    `rendered_parts` are the metadata and the spec as the template generates them. The patch is
    first rendered with `row`. Its mappings are merged, its lists replace lists, and null removes a
    key. The project is never changed. Raises `Malformed`.
    """
    try:
        text = filler.text(patch, row)
    except Malformed as error:
        message = f"error replacing values in templatePatch: {error.message}"
        raise Malformed(message, error.hint) from None
    parsed_patch = _parse_patch(text)
    if parsed_patch is None:
        return rendered_parts
    filler.budget.read(len(text))
    patched: dict[str, Any] = _merge_patch(rendered_parts, parsed_patch)
    metadata = patched.get("metadata") or {}
    spec = patched.get("spec") or {}
    if "project" in rendered_parts["spec"]:
        spec["project"] = rendered_parts["spec"]["project"]
    return {"metadata": metadata, "spec": spec}


def _parse_patch(text: str) -> dict[str, Any] | None:
    """Return the mapping in a rendered `templatePatch`, or None if it is empty.

    Raises `Malformed` with Argo CD's wording.
    """
    try:
        data = go_yaml.load(text)
    except Malformed as error:
        # The text is quoted as in Go, and our message is reworded to match Go's YAML library.
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        why = re.sub(r"not valid YAML: (.*), line ([0-9]+)$", r"yaml: line \2: \1", error.message)
        raise Malformed(f'error while converting template to json "{escaped}": {why}') from None
    if data is None:
        return None
    if isinstance(data, dict):
        parts = (data.get("metadata") or {}, data.get("spec") or {})
        if all(isinstance(part, dict) for part in parts):
            return data
    raise Malformed(
        f"invalid templatePatch {text[:200]!r}: it is not a mapping like an Application"
    )


def _merge_patch(original: Any, patch: Any) -> Any:
    """Return the original data with a JSON merge patch applied (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_patch(result.get(key), value)
    return result


def _with_valid_names(
    applications: Sequence[Mapping[str, Any]],
    set_name: str,
) -> tuple[list[Mapping[str, Any]], list[Trouble]]:
    """Return the Applications that Argo CD would create, and a trouble for each duplicate or
    invalid name. Applications with these names are left out.

    `set_name` is the ApplicationSet's name.
    """
    troubles = []
    count_by_name = Counter(app["metadata"]["name"] for app in applications)
    for name, count in count_by_name.items():
        if count > 1:
            message = f"ApplicationSet {set_name} contains applications with duplicate name: {name}"
            troubles.append(Trouble(DUPLICATE, message))

    valid_apps = []
    for app in applications:
        name = app["metadata"]["name"]
        if count_by_name[name] > 1:
            continue
        if _NAME.fullmatch(name) and len(name) <= _LONGEST_NAME:
            valid_apps.append(app)
            continue
        why = f'metadata.name: Invalid value: "{name}": {_RULE}'
        message = f'Application.argoproj.io "{name}" is invalid: {why}'
        troubles.append(Trouble(REFUSED, message))
    return valid_apps, troubles


def _required_mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping at a key, or {} if the key is absent. Raises `Malformed`."""
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Malformed(f"{key} is not a mapping", "see the ApplicationSet specification")
    return value


def may_name(manifest: Mapping[str, Any], images: Collection[Image], prefix: str) -> bool:
    """Return whether an `image-list` anywhere in an ApplicationSet may contain one of the images.

    Returns True for a list with a placeholder, because it can stand for any string. `prefix` is the
    annotations' prefix.
    """
    # Only the last part of the name is compared, because the rest may be spelled differently in the
    # list: `nginx` is also `docker.io/library/nginx`.
    short_names = [image.repository.rpartition("/")[2].lower() for image in images]
    for image_list in _image_lists(manifest.get("spec"), f"{prefix}image-list"):
        if "{{" in image_list:
            return True
        if any(name in image_list.lower() for name in short_names):
            return True
    return False


def _image_lists(value: Any, key: str) -> Iterator[str]:
    """Yield the strings at a key, at any depth, and each string that contains the key itself, such
    as a `templatePatch`.

    At most `_MOST` values are searched.
    """
    waiting = [value]
    for _ in range(_MOST):
        if not waiting:
            return
        item = waiting.pop()
        if isinstance(item, dict):
            image_list = item.get(key)
            if isinstance(image_list, str):
                yield image_list
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and key in item:
            yield item


def template_of(manifest: Mapping[str, Any], prefix: str) -> Mapping[str, Any] | None:
    """Return an ApplicationSet's template as an Application, with "x" in place of placeholders, or
    None if it has no usable `image-list`.

    An annotation with a placeholder could have any value, so it is omitted, except for
    `image-list`, whose aliases are known. `prefix` is the annotations' prefix.
    """
    metadata = manifest.get("metadata")
    template = mapping(manifest, "spec", "template")
    annotations = mapping(template, "metadata", "annotations")
    image_list_key = f"{prefix}image-list"
    image_list = annotations.get(image_list_key)
    if not isinstance(metadata, dict) or not isinstance(image_list, str):
        return None
    if _CONTROL_TAG.search(image_list):  # a condition or a loop, so the entries are unknown
        return None

    known_annotations = {}
    for key, value in annotations.items():
        if key == image_list_key:
            known_annotations[_TAG.sub("x", key)] = _TAG.sub("x", image_list)
        elif isinstance(value, str) and "{{" not in value:
            known_annotations[_TAG.sub("x", key)] = value
    spec = mapping(template.get("spec"))
    sources = {key: _with_dummies(spec[key]) for key in ("source", "sources") if spec.get(key)}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": metadata.get("name"),
            "namespace": metadata.get("namespace"),
            "annotations": known_annotations,
        },
        # the source may be in the generators' templates
        "spec": sources or {"source": {"repoURL": "x", "path": "x"}},
    }


def _with_dummies(value: Any, depth: int = 0) -> Any:
    """Return the data with "x" in place of each placeholder in a string, and None in place of all
    other scalars and of values that are nested too deeply.
    """
    if isinstance(value, str):
        return _TAG.sub("x", value)
    if isinstance(value, list) and depth < _DEEPEST:
        return [_with_dummies(item, depth + 1) for item in value]
    if isinstance(value, dict) and depth < _DEEPEST:
        return {key: _with_dummies(item, depth + 1) for key, item in value.items()}
    return None
