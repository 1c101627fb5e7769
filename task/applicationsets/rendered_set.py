"""Turns an ApplicationSet into its Applications, or finds out why Argo CD would not generate any.

`may_name` and `template_of` are for a set that cannot be rendered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from task.applicationsets import go_yaml
from task.applicationsets.fill import Budget, Filler, Params
from task.applicationsets.generators import Generators, GitFiles, NamedCluster, UnknowableError
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
_MOST = 10_000  # values to search
_DEEPEST = 6  # levels of a source to keep


@dataclass(frozen=True)
class Rendered:
    """The result for an ApplicationSet."""

    applications: tuple[Mapping[str, Any], ...] = ()
    # The rules are Argo CD's reasons, with its messages. If one is PARAMS or TEMPLATE, there are no
    # Applications.
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
    """Return an ApplicationSet's Applications. `namespace` is the default if the manifest has none.

    Mistakes in the set are part of the result. Raises Git's errors.
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
    home = str(metadata.get("namespace") or namespace)
    owner = {"kind": "ApplicationSet", "name": str(metadata.get("name") or "")}
    applications = []
    for template, row in templates_and_rows:
        try:
            budget.make()
            applications.append(
                _application(
                    template,
                    row,
                    spec.get("templatePatch"),
                    filler,
                    home,
                    owner,
                )
            )
        except Malformed as error:
            return Rendered(
                troubles=(Trouble(TEMPLATE, error.message, error.hint),),
                unknown=tuple(unknown),
            )
    kept, troubles = _with_valid_names(applications, owner["name"])
    return Rendered(
        tuple(kept),
        tuple(troubles),
        tuple(unknown),
    )


def _parameter_sets(
    spec: Mapping[str, Any],
    generators: Generators,
    unknown: list[UnknowableError],
) -> Iterator[tuple[Mapping[str, Any], Params]]:
    """Yield each parameter set with its template.

    Generators that need a server are added to `unknown`.
    """
    common = _required_mapping(spec, "template")
    generator_specs = spec.get("generators")
    if not isinstance(generator_specs, list):
        raise Malformed(
            "the ApplicationSet has no generators",
            "see the ApplicationSet specification",
        )
    for generator in generator_specs:
        # the generator's body is under its kind: {"list": {"elements": …, "template": …}}
        bodies = [body for body in mapping(generator).values() if isinstance(body, dict)]
        own = bodies[0].get("template") if bodies else None
        template = _overridden(own, common) if isinstance(own, dict) else common
        try:
            for row in generators.params(generator):
                yield template, row
        except UnknowableError as error:
            unknown.append(error)


def _overridden(own: Any, common: Any) -> Any:
    """Return a generator's template, completed by the common template, merged as dario.cat/mergo
    merges Go structs.
    """
    if isinstance(own, dict) and isinstance(common, dict):
        return {key: _overridden(own.get(key), common.get(key)) for key in {**common, **own}}
    return own or common


def _application(
    template: Mapping[str, Any],
    row: Params,
    patch: Any,
    filler: Filler,
    namespace: str,
    owner: Mapping[str, str],
) -> Mapping[str, Any]:
    """Return the Application for one parameter set. Raises `Malformed`."""
    metadata = _required_mapping(template, "metadata")
    spec = _required_mapping(template, "spec")
    kept_metadata = {
        key: metadata[key] for key in ("name", "labels", "annotations") if metadata.get(key)
    }
    filled: dict[str, Any] = {"metadata": kept_metadata, "spec": spec}
    if row:  # without parameters, Argo CD does not render the template
        filled = filler.deep(filled, row)
    if isinstance(patch, str) and patch:
        filled = _with_template_patch(filled, patch, row, filler)
    filled_metadata = filled["metadata"]
    name = filled_metadata.get("name") or ""
    if not isinstance(name, str):
        raise Malformed(
            "spec.template.metadata.name is not a string",
            "put it in quotes: name: '{{name}}'",
        )
    labels_and_annotations = {
        key: filled_metadata[key] for key in ("labels", "annotations") if filled_metadata.get(key)
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
        "spec": filled["spec"],
    }


def _with_template_patch(
    filled: dict[str, Any],
    patch: str,
    row: Params,
    filler: Filler,
) -> dict[str, Any]:
    """Return the Application with `templatePatch` applied.

    Mappings are merged, lists are replaced, and null removes a key. The project is unchanged.
    """
    try:
        text = filler.text(patch, row)
    except Malformed as error:
        message = f"error replacing values in templatePatch: {error.message}"
        raise Malformed(message, error.hint) from None
    data = _parsed_patch(text)
    if data is None:
        return filled
    filler.budget.read(len(text))
    result: dict[str, Any] = _merge_patch(filled, data)
    result = {"metadata": result.get("metadata") or {}, "spec": result.get("spec") or {}}
    if "project" in filled["spec"]:
        result["spec"]["project"] = filled["spec"]["project"]
    return result


def _parsed_patch(text: str) -> dict[str, Any] | None:
    """Parse a rendered `templatePatch`. Return None if it is empty.

    Raises `Malformed` with Argo CD's wording.
    """
    try:
        data = go_yaml.load(text)
    except Malformed as error:
        quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        what = re.sub(r"not valid YAML: (.*), line ([0-9]+)$", r"yaml: line \2: \1", error.message)
        raise Malformed(f"error while converting template to json {quoted}: {what}") from None
    if data is None:
        return None
    if isinstance(data, dict):
        parts = (data.get("metadata") or {}, data.get("spec") or {})
        if all(isinstance(part, dict) for part in parts):
            return data
    raise Malformed(
        f"invalid templatePatch {text[:200]!r}: it is not a mapping like an Application"
    )


def _merge_patch(onto: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(onto) if isinstance(onto, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_patch(result.get(key), value)
    return result


def _with_valid_names(
    applications: Sequence[Mapping[str, Any]],
    name: str,
) -> tuple[list[Mapping[str, Any]], list[Trouble]]:
    """Return the Applications that Argo CD would create, skipping duplicate and invalid names, and
    the troubles.
    """
    count = Counter(app["metadata"]["name"] for app in applications)
    troubles = [
        Trouble(
            DUPLICATE,
            f"ApplicationSet {name} contains applications with duplicate name: {repeated}",
        )
        for repeated, times in count.items()
        if times > 1
    ]
    kept = [app for app in applications if count[app["metadata"]["name"]] == 1]
    accepted = []
    for app in kept:
        name = app["metadata"]["name"]
        if _NAME.fullmatch(name) and len(name) <= _LONGEST_NAME:
            accepted.append(app)
            continue
        why = f'metadata.name: Invalid value: "{name}": {_RULE}'
        message = f'Application.argoproj.io "{name}" is invalid: {why}'
        troubles.append(Trouble(REFUSED, message))
    return accepted, troubles


def _required_mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Malformed(f"{key} is not a mapping", "see the ApplicationSet specification")
    return value


def may_name(manifest: Mapping[str, Any], images: Collection[Image], prefix: str) -> bool:
    """Return whether an `image-list` in a template may contain one of the images.

    A placeholder may stand for any string.
    """
    names = [image.repository.rpartition("/")[2].lower() for image in images]
    return any(
        "{{" in text or any(name in text.lower() for name in names)
        for text in _image_lists(manifest.get("spec"), f"{prefix}image-list")
    )


def _image_lists(value: Any, key: str) -> Iterator[str]:
    """Yield the key's values at any depth, and each string that contains the key, such as a
    `templatePatch`.
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
    """Return the template as an Application, with unknown strings in place of its placeholders, or
    None if it has no usable `image-list`.

    A value with a placeholder could be anything, so it is omitted, except for `image-list`, whose
    aliases are known.
    """
    metadata = manifest.get("metadata")
    template = mapping(mapping(manifest.get("spec")).get("template"))
    annotations = mapping(mapping(template.get("metadata")).get("annotations"))
    image_list_key = f"{prefix}image-list"
    image_list = annotations.get(image_list_key)
    if not isinstance(metadata, dict) or not isinstance(image_list, str):
        return None
    if _CONTROL_TAG.search(image_list):
        return None
    known = {}
    for key, value in annotations.items():
        if key == image_list_key:
            known[_TAG.sub("x", key)] = _TAG.sub("x", image_list)
        elif isinstance(value, str) and "{{" not in value:
            known[_TAG.sub("x", key)] = value
    spec = mapping(template.get("spec"))
    sources = {key: _with_dummies(spec[key]) for key in ("source", "sources") if spec.get(key)}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": metadata.get("name"),
            "namespace": metadata.get("namespace"),
            "annotations": known,
        },
        # the source may be in the generators' templates
        "spec": sources or {"source": {"repoURL": "x", "path": "x"}},
    }


def _with_dummies(value: Any, depth: int = 0) -> Any:
    """Return the data with a dummy string in place of each placeholder, and null in place of all
    other scalars and of values that are nested too deeply.
    """
    if isinstance(value, str):
        return _TAG.sub("x", value)
    if isinstance(value, list) and depth < _DEEPEST:
        return [_with_dummies(item, depth + 1) for item in value]
    if isinstance(value, dict) and depth < _DEEPEST:
        return {key: _with_dummies(item, depth + 1) for key, item in value.items()}
    return None
