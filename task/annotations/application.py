"""Parses Argo CD Applications from JSON, and selects the ones that match `--application`,
`--selector`, and similar options.

The data is untrusted, because it comes from files, servers, and other teams. A value of the wrong
type is ignored or causes an error.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import zip_longest
from sys import intern
from typing import Any

from task.errors import Malformed, UsageError
from task.model import Application, Destination, Kind, Parameter, Source, Tracker
from task.plain_data import elements, mappings, text

PREFIX = "argocd-image-updater.argoproj.io/"
SECTIONS: Mapping[str, Kind] = {
    "helm": "Helm",
    "kustomize": "Kustomize",
    "plugin": "Plugin",
    "directory": "Directory",
}
_WRITE_IT = "use a mapping; see the Application specification"
_LONGEST_VALUES = 1_500_000  # characters; Kubernetes does not store larger Applications
KINDS: Mapping[str, Kind] = {kind: kind for kind in SECTIONS.values()}
# as in Go's `os.Expand`; `$$` is an escaped `$`
_VARIABLE = re.compile(r"\$\$|\$\{(\w+)\}|\$(\w+)", re.ASCII)


def is_application(item: object) -> bool:
    """Return whether a manifest is an Argo CD Application."""
    return text(item, "kind") == "Application" and text(item, "apiVersion").startswith(
        "argoproj.io/"
    )


def parse_application(
    item: Mapping[str, Any],
    prefix: str = PREFIX,
    origin: str = "",
    namespace: str = "argocd",
) -> Application:
    """Return the Application in a manifest or API object.

    Only annotations that start with `prefix` are kept, without the prefix. `origin` is the
    manifest's location, and `namespace` is Argo CD's, the default for manifests without one. Raises
    `Malformed` if the name is missing or a section is not a mapping.
    """
    metadata, spec, status = (_mapping_at(item, key) for key in ("metadata", "spec", "status"))
    name, own_namespace = _checked_name(metadata, namespace)
    sources, multi = _sources_of(spec, status)
    running_images = _only_texts(_mapping_at(status, "summary").get("images"))

    # Strip whitespace as AIU v1 does; v0 keeps it in some values. Intern the strings, because
    # thousands of Applications share them.
    annotations = {
        intern(key.removeprefix(prefix)): intern(value.strip())
        for key, value in _mapping_at(metadata, "annotations").items()
        if key.startswith(prefix) and key != prefix and isinstance(value, str)
    }
    sync = _mapping_at(status, "sync")
    health = _mapping_at(status, "health")
    destination = _mapping_at(spec, "destination")
    labels = _mapping_at(metadata, "labels")
    app = Application(
        namespace=own_namespace,
        name=name,
        annotations=annotations,
        sources=sources,
        multi=multi,
        live=tuple(map(intern, running_images)),
        sync=intern(_text(sync.get("status"))),
        health=intern(_text(health.get("status"))),
        project=intern(_text(spec.get("project"))),
        destination=Destination(
            server=intern(_text(destination.get("server"))),
            name=intern(_text(destination.get("name"))),
            namespace=intern(_text(destination.get("namespace"))),
        ),
        labels={
            intern(key): intern(value) for key, value in labels.items() if isinstance(value, str)
        },
        origin=origin,
    )
    if not any("$" in name for source in sources for name in source.value_files):
        return app
    expanded_sources = []
    for source in sources:
        names = [with_variables(name, app, source, namespace) for name in source.value_files]
        expanded_sources.append(replace(source, value_files=tuple(names)))
    return replace(app, sources=tuple(expanded_sources))


def with_variables(path: str, app: Tracker, source: Source, argocd_namespace: str) -> str:
    """Return the path of a values file with the variables of Argo CD's build environment replaced
    (argo-cd reposerver/repository, newEnv).

    Variables whose values are only known during a sync, such as `$ARGOCD_APP_REVISION`, are kept.
    So is the URL, because its spelling depends on Argo CD's settings.
    """
    is_in_argocd_namespace = app.namespace in ("", argocd_namespace)
    values = {
        "ARGOCD_APP_NAME": app.name if is_in_argocd_namespace else f"{app.namespace}_{app.name}",
        "ARGOCD_APP_NAMESPACE": app.destination.namespace,
        "ARGOCD_APP_PROJECT_NAME": app.project or "default",
        "ARGOCD_APP_SOURCE_PATH": source.path,
        "ARGOCD_APP_SOURCE_TARGET_REVISION": source.revision,
    }
    return _VARIABLE.sub(lambda match: values.get(match[1] or match[2] or "", match[0]), path)


def _checked_name(metadata: Mapping[str, Any], default: str) -> tuple[str, str]:
    """Return the name and the namespace in an Application's metadata.

    `default` is used if there is no namespace. Both are used in the paths of the override file and
    the state file. Raises `Malformed` if there is no name, or if either of them could alter the
    structure of these paths.
    """
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise Malformed("an Application has no metadata.name", "set metadata.name")
    if "/" in name or not name.isprintable():
        raise Malformed(
            f"{name!r} is not a valid Application name",
            "use a name that Kubernetes accepts",
        )
    namespace = intern(_text(metadata.get("namespace")) or default)
    if "/" in namespace or not namespace.isprintable():
        raise Malformed(
            f"{name}: {namespace!r} is not a valid namespace",
            "use a name that Kubernetes accepts",
        )
    return name, namespace


def annotated(item: Mapping[str, Any], prefix: str, origin: str = "") -> Application | None:
    """Return an Application built from its metadata alone, or None if the metadata has no name or
    no annotation with this prefix.
    """
    try:
        app = parse_application({"metadata": item.get("metadata")}, prefix, origin)
    except Malformed:
        return None
    return app if app.annotations else None


def _sources_of(
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
) -> tuple[tuple[Source, ...], bool]:
    """Return an Application's sources, and whether they are in `spec.sources` (a list) rather than
    in `spec.source` or `spec.sourceHydrator`.
    """
    hydrator = spec.get("sourceHydrator")
    # Argo CD generates the branch that it deploys (the hydrated one) from the dry source, so the
    # dry source is the one to update. AIU has read it since v1.3.
    if isinstance(hydrator, dict):
        dry_source = _source(_mapping_at(hydrator, "drySource"), status.get("sourceType"))
        return (dry_source,), False

    source_list = spec.get("sources")
    if isinstance(source_list, list) and source_list:
        # `status.sourceTypes` has the same order as `spec.sources`. It is shorter or absent until
        # Argo CD has compared the sources; a missing type becomes None.
        types = elements(status, "sourceTypes")[: len(source_list)]
        sources = [_source(raw, kind) for raw, kind in zip_longest(source_list, types)]
        return tuple(sources), True

    single = _mapping_at(spec, "source")
    if not single:
        return (), False
    return (_source(single, status.get("sourceType")),), False


def _source(raw: object, status_kind: object) -> Source:
    """Parse one source in an Application's spec. Raises `Malformed`.

    `status_kind` is the source's kind as reported in the Application's status, such as `Helm`. Argo
    CD detects it from the files. If it is unknown, the source's first section, such as `helm:`,
    determines the kind.
    """
    if not isinstance(raw, dict):
        raise Malformed("an Application source is not a mapping", _WRITE_IT)
    sections = {key: _mapping_at(raw, key) for key in SECTIONS if raw.get(key) is not None}
    section: Kind = ""
    if sections:
        first_key = next(iter(sections))
        section = SECTIONS[first_key]
    kind = section
    if isinstance(status_kind, str):
        kind = KINDS.get(status_kind, section)
    helm, kustomize, plugin, directory = (
        sections.get(key, NOTHING) for key in ("helm", "kustomize", "plugin", "directory")
    )
    # Argo CD treats `./apps/web/` and `/apps/web` as `apps/web`, and `.` as the root.
    path_parts = [part for part in _text(raw.get("path")).split("/") if part not in ("", ".")]
    has_values_object = isinstance(helm.get("valuesObject"), dict)
    return Source(
        repo=intern(_text(raw.get("repoURL"))),
        path="/".join(path_parts),
        revision=intern(_text(raw.get("targetRevision"))),
        chart=_text(raw.get("chart")),
        ref=_text(raw.get("ref")),
        name=_text(raw.get("name")),
        kind=kind,
        section=section,
        parameters=tuple(
            Parameter(
                name=_text(item.get("name")),
                value=_text(item.get("value")),
                force_string=item.get("forceString") is True,
            )
            for item in mappings(helm.get("parameters"))
            if item.get("name")
        ),
        images=tuple(_only_texts(kustomize.get("images"))),
        env=tuple(
            (_text(item.get("name")), _text(item.get("value")))
            for item in mappings(plugin.get("env"))
        ),
        value_files=tuple(_only_texts(helm.get("valueFiles"))),
        values=_values_text(helm),
        values_field="valuesObject" if has_values_object else "values",
        file_parameters=tuple(
            _text(item.get("name")) for item in mappings(helm.get("fileParameters"))
        ),
        recurse=directory.get("recurse") is True,
    )


def _values_text(helm: Mapping[str, Any]) -> str:
    """Return the Helm values in the spec as text, or "" if they are too large.

    Argo CD ignores `values` if `valuesObject` is set.
    """
    values = helm.get("valuesObject")
    if not isinstance(values, dict):
        return _text(helm.get("values"))
    output = io.StringIO()
    try:
        # Aliases in a manifest can create an object that contains itself, or one that expands
        # endlessly. So the JSON is generated in parts, and the size is checked after each part.
        for part in json.JSONEncoder(default=str).iterencode(values):
            output.write(part)
            if output.tell() > _LONGEST_VALUES:
                return ""
    except (ValueError, RecursionError):
        return ""
    return output.getvalue()


NOTHING: Mapping[str, Any] = {}


def _mapping_at(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping at a key, or an empty one if the key is absent or null. Raises `Malformed`
    for any other value.
    """
    value = raw.get(key)
    if value is None:
        return NOTHING
    if not isinstance(value, dict):
        raise Malformed(f"{key} is not a mapping", _WRITE_IT)
    return value


def _only_texts(raw: object) -> list[str]:
    return [item for item in raw if isinstance(item, str)] if isinstance(raw, list) else []


def _text(value: object) -> str:
    """Return a scalar as a string.

    A manifest may contain an unquoted number or boolean where Argo CD expects a string.
    """
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (dict, list)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


@dataclass(frozen=True)
class Narrow:
    """Criteria for which Applications to consider. An Application must match a value in each field
    that is set.
    """

    names: tuple[str, ...] = ()  # globs for `name` or `namespace/name`
    namespaces: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    selector: str = ""
    within: tuple[
        str, ...
    ] = ()  # additional globs like `names`: `status APP` narrows --application further
    # whether a person typed the names; if so, a name without a namespace must not match more than
    # one Application
    typed: bool = False


def considered(app: Tracker, narrow: Narrow) -> bool:
    """Return whether an Application matches every field of `narrow` that is set. Raises
    `UsageError` if the selector is invalid.
    """
    return (
        _is_named(app, narrow.names)
        and _is_named(app, narrow.within)
        and _fits(app.namespace, narrow.namespaces)
        and _fits(app.project, narrow.projects)
        and all(requirement.met(app.labels) for requirement in parse_selector(narrow.selector))
    )


def _is_named(app: Tracker, globs: Sequence[str]) -> bool:
    """Return whether one of the globs matches the Application. Returns True if there are no globs.

    A glob with a slash is matched against `namespace/name`, and any other glob against the name.
    """
    if not globs:
        return True
    for glob in globs:
        full_name = app.key if "/" in glob else app.name
        if fnmatchcase(full_name, glob):
            return True
    return False


def _fits(name: str, globs: Sequence[str]) -> bool:
    """Return whether one of the globs matches the name. Returns True if there are no globs."""
    return not globs or any(fnmatchcase(name, glob) for glob in globs)


def is_glob(text: str) -> bool:
    """Return whether the name is a glob, which may match several Applications."""
    return any(char in text for char in "*?[")


@dataclass(frozen=True)
class Requirement:
    """A requirement in a Kubernetes label selector."""

    key: str
    operator: str  # one of OPERATORS
    values: tuple[str, ...] = ()

    def met(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the requirement.

        As in Kubernetes, a missing label satisfies `NotIn`.
        """
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        has_value = labels.get(self.key) in self.values
        return has_value if self.operator == "In" else not has_value


# the operator names used in a Kubernetes selector's `matchExpressions`
OPERATORS = (
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
)
_SET = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<not>notin|in)\s*\((?P<values>[^()]*)\)")
_EQUAL = re.compile(r"(?P<key>[^\s!=,()]+)\s*(?P<not>!?)={1,2}\s*(?P<values>[^\s!=,()]*)")
_EXISTS = re.compile(r"(?P<not>!?)\s*(?P<key>[^\s!=,()]+)")
_PARTS = re.compile(r"(?:[^,()]|\([^()]*\))+")  # split at commas, except those in parentheses


@lru_cache(maxsize=16)
def parse_selector(text: str) -> tuple[Requirement, ...]:
    """Parse a selector such as `a=b,c in (d,e),!f`, in kubectl's grammar. Raises `UsageError`."""
    parts = [part.strip() for part in _PARTS.findall(text)]
    return tuple(_requirement(part) for part in parts if part)


def _requirement(part: str) -> Requirement:
    """Parse one part of a selector, such as `a=b` or `!f`. Raises `UsageError`."""
    with_values = _SET.fullmatch(part) or _EQUAL.fullmatch(part)
    if with_values:
        operator = "NotIn" if with_values["not"] in ("!", "notin") else "In"
        values = tuple(value.strip() for value in with_values["values"].split(","))
        return Requirement(with_values["key"], operator, values)
    key_alone = _EXISTS.fullmatch(part)
    if key_alone:
        operator = "DoesNotExist" if key_alone["not"] else "Exists"
        return Requirement(key_alone["key"], operator)
    hint = "use a=b, a!=b, a in (b,c), a, or !a, separated by commas"
    raise UsageError(f"--selector: cannot parse {part!r}", hint=hint)
