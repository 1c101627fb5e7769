"""Turns AIU's `ImageUpdater` resources into annotations on the Applications they reference.

Selection, specificity, and merge order (global < applicationRef < image) follow AIU v1.3 (its
docs/configuration/applications.md). Every setting becomes a per-image annotation, so that no
Application-wide annotation applies by accident.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from shlex import quote
from typing import Any

from task import plain_data
from task.annotations.application import OPERATORS, Requirement
from task.annotations.image_updater_settings import (
    Path,
    ReferenceSettings,
    mapping,
    mappings,
    reference_settings,
    strings,
    text,
    unknown_fields,
)
from task.annotations.keys import OURS
from task.errors import Malformed, Trouble
from task.model import Application, Problem
from task.policy.tag_filter import check_glob, glob_match
from task.text import nearest, shortened

NO_FILES = ("", "cluster", "argocd")  # origins that are omitted from messages
_STRATEGY = "set updateStrategy explicitly"
_WILD = re.compile(r"[*?\[\]]")
_SET = re.compile(r"\[.*?]")


@dataclass(frozen=True, eq=False)
class Reference:
    """An `applicationRef` in a resource.

    An Application belongs to the matching reference with the lowest `order`.
    """

    order: tuple[int, int, int]  # resource index, negated score, position in the resource
    updater: str  # namespace/name
    pattern: str
    labels: tuple[Requirement, ...]
    spec: Mapping[str, Any]
    ref: Mapping[str, Any]
    origin: str = ""  # the resource's location: "apps/updater.yaml:1"

    @property
    def position(self) -> int:
        """The reference's index in `applicationRefs`."""
        _, _, position = self.order
        return position

    @property
    def place(self) -> str:
        """How messages refer to the reference."""
        return f"ImageUpdater {self.updater}, applicationRefs[{self.position}]"

    @property
    def namespace(self) -> str:
        """The namespace of the resource and of the Applications it can reference."""
        return self.updater.partition("/")[0]

    @property
    def field(self) -> Path:
        """The reference's path in the resource."""
        return "spec", "applicationRefs", self.position

    def selects(self, app: Application) -> bool:
        """Return whether the reference selects this Application, which is in the resource's
        namespace.
        """
        has_name = glob_match(self.pattern, app.name)
        return has_name and all(requirement.met(app.labels) for requirement in self.labels)


# References by namespace and name; the name is "" if the pattern may match several names. With this
# index, each Application is compared only with references that may select it.
References = dict[tuple[str, str], list[Reference]]


def is_image_updater(item: object) -> bool:
    """Return whether a manifest is an Argo CD Image Updater `ImageUpdater`."""
    version = plain_data.text(item, "apiVersion")
    return plain_data.text(item, "kind") == "ImageUpdater" and version.startswith(
        "argocd-image-updater.argoproj.io/"
    )


def configure(
    apps: Sequence[Application],
    updaters: Sequence[Mapping[str, Any]],
    namespace: str = "argocd",
    origins: Sequence[str] = (),
    *,
    complete: bool = True,
) -> tuple[tuple[Application, ...], tuple[Problem, ...]]:
    """Return the Applications with the settings of the `ImageUpdater` resources (`updaters`), and
    warnings about the resources.

    If a resource references an Application, the resource's settings replace its AIU annotations.
    With `useAnnotations`, the Application's annotations apply instead; if they do not include an
    `image-list`, the next reference applies, as in AIU. An Application that no resource references
    is left unchanged.

    `namespace` is the default for resources without one, and `origins` are their locations. With
    `complete`, `apps` contains every Application that the resources may reference, so a reference
    that selects none gets a warning. Invalid parts of a resource are skipped, along with their
    images.
    """
    if not updaters:
        return tuple(apps), ()
    origin_of_each = origins or [""] * len(updaters)
    with_origins = list(zip(updaters, origin_of_each, strict=True))
    references, problems = _references_of_all(with_origins, namespace)
    settings_cache: dict[Reference, ReferenceSettings] = {}

    def settings_of(reference: Reference) -> ReferenceSettings:
        """Return a reference's settings. The first call for a reference adds its warnings to
        `problems`.
        """
        if reference not in settings_cache:
            settings = reference_settings(reference.spec, reference.ref, reference.namespace)
            settings_cache[reference] = settings
            problems.extend(_reference_warnings(reference, settings))
        return settings_cache[reference]

    configured_apps = []
    used_references: set[Reference] = set()  # the references that select at least one Application
    for app in apps:
        matching = _matching_references(app, references)
        used_references.update(matching)
        configured_app = app
        for position, reference in enumerate(matching):
            settings = settings_of(reference)
            uses_own_annotations = settings.annotations is None  # because of `useAnnotations`
            if uses_own_annotations and not app.annotations.get("image-list"):
                continue
            configured_app = _with_settings(app, reference, settings)
            less_specific = matching[position + 1 :]
            problems += _rival_warnings(app, reference, less_specific)
            break
        configured_apps.append(configured_app)

    if complete:
        every_reference = _exact_names_first(references)
        problems += [
            _idle_warning(reference)
            for reference in every_reference
            if reference not in used_references
        ]
    return tuple(configured_apps), tuple(problems)


def _matching_references(
    app: Application,
    references: Mapping[tuple[str, str], Sequence[Reference]],
) -> list[Reference]:
    """Return the references that select an Application, most specific first.

    The keys of `references` are (namespace, name). The name is "" if a pattern may match several
    names.
    """
    with_exact_name = references.get((app.namespace, app.name), ())
    with_pattern = references.get((app.namespace, ""), ())
    selecting = [
        reference for reference in (*with_exact_name, *with_pattern) if reference.selects(app)
    ]
    return sorted(selecting, key=lambda reference: reference.order)


def _exact_names_first(references: References) -> Iterator[Reference]:
    """Yield all references. Those with an exact name come before those with a pattern."""
    with_exact_name = [same_name for (_, name), same_name in references.items() if name]
    with_pattern = [patterns for (_, name), patterns in references.items() if not name]
    return chain(*with_exact_name, *with_pattern)


def _rival_warnings(
    app: Application,
    winner: Reference,
    others: Sequence[Reference],
) -> list[Problem]:
    """Return a warning if several resources reference an Application: in AIU,
    they keep overwriting each other.

    `winner` is the reference that applies. `others` select the Application too, but are less
    specific.
    """
    updaters = dict.fromkeys(reference.updater for reference in others)
    updaters.pop(winner.updater, None)  # several references in one resource are harmless
    if not updaters:
        return []
    message = (
        "several ImageUpdaters reference this Application: "
        f"{winner.updater} applies, not {', '.join(updaters)}"
    )
    hint = "reference each Application from only one ImageUpdater"
    warning = _resource_warning(winner.origin, message, hint, winner.field)
    return [replace(warning, application=app.key)]


def _idle_warning(reference: Reference) -> Problem:
    """Return the warning for a reference that selects no Application."""
    message = f"{reference.place}: no Application in namespace {reference.namespace!r} matches"
    labels = " or labelSelectors" if reference.labels else ""
    hint = (
        f"fix namePattern {reference.pattern!r}{labels}, or move the ImageUpdater to the"
        " Applications' namespace"
    )
    return _resource_warning(reference.origin, message, hint, reference.field)


def _reference_warnings(reference: Reference, settings: ReferenceSettings) -> Iterator[Problem]:
    """Yield a problem for each warning and piece of advice in a reference's settings."""
    for warning in settings.warnings:
        message = f"{reference.place}: {warning}"
        yield _resource_warning(reference.origin, message, field=reference.field)
    for advice in settings.advice:
        message = f"{reference.place}: {advice}"
        problem = _resource_warning(reference.origin, message, _STRATEGY, reference.field)
        yield replace(problem, advice=True)


def _with_settings(
    app: Application,
    reference: Reference,
    settings: ReferenceSettings,
) -> Application:
    """Return the Application with the reference's settings.

    The settings replace the Application's annotations, except those that a resource cannot set. If
    the settings have no annotations, the Application keeps its own.
    """
    app = replace(app, reference=reference.place)
    if settings.keys or settings.request_labels:
        app = replace(
            app,
            signing_keys=settings.keys,
            request_labels=settings.request_labels,
        )
    if settings.annotations is None:
        return app
    own_annotations = {key: value for key, value in app.annotations.items() if _may_be_ours(key)}
    return replace(
        app,
        annotations={**own_annotations, **settings.annotations},
        from_resource=frozenset(settings.annotations),
        resource=reference.updater,
        resource_origin=reference.origin,
    )


def _may_be_ours(key: str) -> bool:
    """Return whether a key is one of `OURS` (the keys that AIU does not know), or is similar to
    one. In either case, the key may follow an alias.

    A similar key is probably misspelled, and causes a warning.
    """
    if key.endswith(OURS):
        return True
    without_alias = key.partition(".")[2]
    similar_key = nearest(key, OURS) or nearest(without_alias, OURS)
    return bool(similar_key)


def _resource_warning(origin: str, message: str, hint: str = "", field: Path = ()) -> Problem:
    """Return a warning about a field of the resource at `origin`."""
    message_with_origin = f"{origin}: {message}" if origin not in NO_FILES else message
    hint = hint or "see the ImageUpdater specification"
    return Problem(Trouble.warning("source", message_with_origin, hint), field=field)


# an ImageUpdater's (namespace, name), the resource, and its origin
_NamedResource = tuple[tuple[str, str], Mapping[str, Any], str]


def _references_of_all(
    updaters: Sequence[tuple[Mapping[str, Any], str]],
    namespace: str,
) -> tuple[References, list[Problem]]:
    """Return the references in all resources, and warnings about the resources.

    `updaters` are the resources with their origins. `namespace` is the default for resources
    without one.
    """
    references = References()
    sorted_resources, problems = _sorted_resources(updaters, namespace)
    previous_name = ("", "")
    for index, (full_name, item, origin) in enumerate(sorted_resources):
        own_namespace, name = full_name
        is_repeated = full_name == previous_name and name != ""
        previous_name = full_name
        if is_repeated:
            continue  # the object is in two files: use the first one, as with Applications

        title = f"ImageUpdater {own_namespace}/{name}"
        for message, hint, path in unknown_fields(item):
            problems.append(_resource_warning(origin, f"{title}: {message}", hint, path))
        try:
            spec = mapping(item, "spec")
            problems += _namespace_warnings(spec, own_namespace, title, origin)
            # `_references_in` also adds the errors that it finds to `problems`.
            for reference in _references_in(index, full_name, spec, origin, problems):
                pattern = reference.pattern
                has_wildcard = _WILD.search(pattern) is not None
                has_escape = "\\" in pattern  # an escaped pattern differs from the name
                is_exact = not has_wildcard and not has_escape
                key = (own_namespace, pattern if is_exact else "")
                references.setdefault(key, []).append(reference)
        except Malformed as error:
            message = f"{title} is skipped: {error.message}"
            problems.append(_resource_warning(origin, message, error.hint))
    return references, problems


def _namespace_warnings(
    spec: Mapping[str, Any],
    namespace: str,
    title: str,
    origin: str,
) -> Iterator[Problem]:
    """Yield a warning if `spec.namespace` is set to a namespace other than the resource's own.

    Up to v1.1, AIU read the Applications' namespace from this field. `title` names the resource.
    """
    if spec.get("namespace") not in (None, "", namespace):
        message = (
            f"{title}: spec.namespace is no longer read; only Applications in namespace"
            f" {namespace!r} are referenced"
        )
        hint = "move the ImageUpdater to its Applications' namespace"
        yield _resource_warning(origin, message, hint, ("spec", "namespace"))


def _sorted_resources(
    updaters: Sequence[tuple[Mapping[str, Any], str]],
    namespace: str,
) -> tuple[list[_NamedResource], list[Problem]]:
    """Return the resources sorted by namespace and name, and a warning for each resource whose name
    or namespace is not a string. Those resources are left out.

    `updaters` are the resources with their origins. `namespace` is the default for resources
    without one.
    """
    problems = list[Problem]()
    named: list[_NamedResource] = []
    for item, origin in updaters:
        metadata = plain_data.mapping(item, "metadata")
        not_strings = [
            f"metadata.{key}"
            for key in ("name", "namespace")
            if isinstance(metadata.get(key), (dict, list))
        ]
        if not_strings:  # YAML parses `name: {{app}}` in a template as a mapping
            message = f"an ImageUpdater is skipped: {not_strings[0]} is not a string"
            hint = "quote it, or render the template first"
            problems.append(_resource_warning(origin, message, hint))
            continue
        full_name = (str(metadata.get("namespace") or namespace), str(metadata.get("name") or ""))
        named.append((full_name, item, origin))
    named.sort(key=itemgetter(0))  # by (namespace, name)
    return named, problems


def _references_in(
    index: int,
    full_name: tuple[str, str],
    spec: Mapping[str, Any],
    origin: str,
    problems: list[Problem],
) -> list[Reference]:
    """Return a resource's references, and add a warning about each invalid one to `problems`.

    Returns an empty list if a reference has no valid `namePattern`, because AIU then rejects the
    whole resource. A reference with an invalid label selector is left out. Raises `Malformed` if
    `applicationRefs` is empty or unreadable.

    `index` is the resource's position, and `full_name` its namespace and name.
    """
    refs = mappings(spec, "applicationRefs")
    if not refs:
        raise Malformed("spec.applicationRefs is empty", "add an entry with namePattern")
    updater = "/".join(full_name)
    references = []
    is_rejected = False
    for position, ref in enumerate(refs):
        path = ("spec", "applicationRefs", position)
        try:
            pattern = _name_pattern(ref, position)
        except Malformed as error:
            message = f"ImageUpdater {updater} is skipped: {error.message}"
            problems.append(_resource_warning(origin, message, error.hint, path))
            is_rejected = True  # continue anyway, to report any other invalid references as well
            continue
        try:
            labels = tuple(_label_requirements(ref))
        except Malformed as error:  # in AIU, an invalid selector does not select any Application
            message = f"ImageUpdater {updater}, applicationRefs[{position}]: {error.message}"
            problems.append(_resource_warning(origin, message, field=(*path, "labelSelectors")))
            continue
        score = _score_in_aiu(pattern, ref.get("labelSelectors"))
        order = (index, -score, position)
        references.append(
            Reference(
                order=order,
                updater=updater,
                pattern=pattern,
                labels=labels,
                spec=spec,
                ref=ref,
                origin=origin,
            )
        )
    return [] if is_rejected else references


def _score_in_aiu(pattern: str, selector: object) -> int:
    """Return a reference's specificity, as AIU computes it. A higher score is more specific.

    An exact name counts most, then a label selector and its parts, then each literal character of
    the pattern.
    """
    is_exact = not _WILD.search(pattern)
    score = 1_000_000 if is_exact else 0
    if isinstance(selector, Mapping):
        score += 10_000
        for key in ("matchLabels", "matchExpressions"):
            score += 100 * len(selector.get(key) or ())
    without_sets = _SET.sub("", pattern)  # sets such as `[a-z]` are wildcards, too
    literal_characters = re.sub(r"[*?]", "", without_sets)
    return score + len(literal_characters)


def _name_pattern(ref: Mapping[str, Any], position: int) -> str:
    """Return a reference's `namePattern`, a glob for Application names such as `web-*`.

    Raises `Malformed` if the pattern is missing or invalid. `position` is the reference's index,
    which the error message mentions.
    """
    place = f"applicationRefs[{position}]"
    try:
        pattern = text(ref, "namePattern")
        if pattern:
            check_glob(pattern)
    except Malformed as error:
        raise Malformed(f"{place}.namePattern: {error.message}", error.hint) from None
    if not pattern:
        raise Malformed(f"{place} has no namePattern", "set it to a name or a glob")
    return pattern


def _label_requirements(ref: Mapping[str, Any]) -> Iterator[Requirement]:
    """Yield the requirements in a reference's `labelSelectors`.

    Raises `Malformed` for an invalid requirement.
    """
    selector = mapping(ref, "labelSelectors")
    labels = mapping(selector, "matchLabels")
    for key in labels:
        yield Requirement(str(key), operator="In", values=(text(labels, key),))
    for raw in mappings(selector, "matchExpressions"):
        key = text(raw, "key")
        operator = text(raw, "operator")
        values = tuple(strings(raw, "values"))
        needs_values = operator in ("In", "NotIn")
        has_right_values = bool(values) == needs_values
        is_valid = key != "" and operator in OPERATORS and has_right_values
        if not is_valid:
            raise Malformed(
                f"matchExpressions: {key!r} {operator!r} {list(values)} is not a valid selector"
                " requirement"
            )
        yield Requirement(key, operator, values)


NAME = "argocd-image-updater-config"
NO_LOOP = (
    "not needed: Image Update does not run in a loop. For images built elsewhere, run scan on a"
    " schedule"
)
NO_SERVER = "not needed: the pipeline runs Image Update, so nothing listens for webhooks"


@dataclass(frozen=True)
class ConfigOption:
    """A ConfigMap key and the option that replaces it."""

    key: str
    option: str  # "--log-level debug"; "" if no option is needed
    note: str = ""


def is_config(item: Mapping[str, Any]) -> bool:
    """Return whether a ConfigMap is the one that configures AIU."""
    return plain_data.text(item, "metadata", "name") == NAME


def options_of(item: Mapping[str, Any]) -> tuple[ConfigOption, ...]:
    """For each key in AIU's ConfigMap, return the equivalent option, or a note that explains why
    there is none.
    """
    data = plain_data.mapping(item, "data")
    return tuple(_option_of(key, plain_data.text(value).strip()) for key, value in data.items())


def _option_of(key: str, text: str) -> ConfigOption:
    """Return the command-line option that replaces a ConfigMap key with the value `text`, or a note
    that explains why there is none.
    """
    if key == "registries.conf":
        note = "save the value as registries.conf."
        if "ext:" in text:
            note += " Scripts (ext:) need --allow-exec, and must be in the step's image."
        if "env:" in text:
            note += " Variables (env:) need --allow-env."
        return ConfigOption(key, "--registries-conf registries.conf", note)
    if key == "git.commit-message-template":
        option = "--commit-message-template commit.template"
        return ConfigOption(key, option, "save the value as commit.template")
    if key in _VALUES:
        renamed_values = _WORDS.get(key, {})
        value = renamed_values.get(text.lower(), shortened(text))
        return ConfigOption(key, f"{_VALUES[key]} {quote(value)}")
    if key in _SWITCHES:
        if text.lower() == "true":
            return ConfigOption(key, _SWITCHES[key])
        return ConfigOption(key, "", f"not needed: it is {text or 'empty'}")
    if key in _NOT_NEEDED:
        return ConfigOption(key, "", _NOT_NEEDED[key])
    if key.startswith("webhook."):
        return ConfigOption(key, "", NO_SERVER)
    return ConfigOption(key, "", "Image Updater does not read this key either")


# key → the option that accepts the key's value
_VALUES = {
    "git.user": "--git-author-name",
    "git.email": "--git-author-email",
    "git.commit-signing-key": "--signing-key",
    "git.commit-signing-method": "--signing-format",
    "log.level": "--log-level",
    "log.format": "--log-format",
    "argocd.server_addr": "--argocd-server",
    "applications_api": "--applications",
}
# key → its values that have a different name in Image Update
_WORDS = {
    "log.level": {"trace": "debug", "warn": "warning"},
    "log.format": {"plain": "text"},
    "applications_api": {"kubernetes": "cluster", "argocd": "argocd"},
}
# key → the option that replaces it if its value is "true"
_SWITCHES = {
    "git.commit-sign-off": "--sign-off",
    "kube.events": "--kubernetes-events",
    "argocd.insecure": "--argocd-insecure",
    "argocd.plaintext": "--argocd-plaintext",
}
# key → why no option replaces it
_NOT_NEEDED = {
    "argocd.grpc_web": "not needed: Argo CD is queried over HTTPS",
    "interval": NO_LOOP,
    "max_concurrent_apps": NO_LOOP,
    "max_concurrent_reconciles": NO_LOOP,
}
