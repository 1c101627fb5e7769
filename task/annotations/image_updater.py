"""Turns AIU's `ImageUpdater` resources into annotations on the Applications they reference.

Selection, specificity, and merge order (global < applicationRef < image) follow AIU v1.3 (its
docs/configuration/applications.md). Every setting becomes a per-image annotation, so that no
Application-wide annotation applies by accident.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

NO_FILES = ("", "cluster", "argocd")  # origins that messages omit
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
    def place(self) -> str:
        """The reference's name in messages."""
        return f"ImageUpdater {self.updater}, applicationRefs[{self.order[2]}]"

    @property
    def namespace(self) -> str:
        """The namespace of the resource and of the Applications it can reference."""
        return self.updater.partition("/")[0]

    @property
    def field(self) -> Path:
        """The reference's path in the resource."""
        return "spec", "applicationRefs", self.order[2]

    def takes(self, app: Application) -> bool:
        """Return whether the reference selects this Application in the resource's namespace."""
        return glob_match(self.pattern, app.name) and all(
            label.met(app.labels) for label in self.labels
        )


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
    """Return the Applications with the resources' settings.

    If a resource references an Application, the resource's settings replace the AIU annotations.

    With `useAnnotations`, the Application's annotations apply. If it has no `image-list`, the next
    reference applies, as in AIU. An Application that no resource references is unchanged.
    `namespace` is the default for resources without one, and `origins` are their locations.
    `complete` says whether `apps` has all Applications that the resources may reference. Problems
    are warnings: invalid parts of a resource are skipped, together with their images.
    """
    if not updaters:
        return tuple(apps), ()
    known_origins = origins or [""] * len(updaters)
    with_origins = list(zip(updaters, known_origins, strict=True))
    references, problems = _references_of_all(with_origins, namespace)
    settings: dict[Reference, ReferenceSettings] = {}
    configured = []
    used: set[Reference] = set()
    for app in apps:
        matching = _matching(app, references)
        used.update(matching)
        for position, reference in enumerate(matching):
            if reference not in settings:
                settings[reference] = reference_settings(
                    reference.spec,
                    reference.ref,
                    reference.namespace,
                )
                problems += _reference_warnings(reference, settings[reference])
            if settings[reference].annotations is not None or app.annotations.get("image-list"):
                configured.append(_configured(app, reference, settings[reference]))
                problems += _rivals(app, reference, matching[position + 1 :])
                break
        else:  # no reference applies
            configured.append(app)
    if complete:
        # Exact names come first. The name is "" if a pattern may match several.
        keys = sorted(references, key=lambda namespace_and_name: namespace_and_name[1] == "")
        distinct = dict.fromkeys(reference for key in keys for reference in references[key])
        problems += [_idle(reference) for reference in distinct if reference not in used]
    return tuple(configured), tuple(problems)


def _matching(
    app: Application,
    references: Mapping[tuple[str, str], Sequence[Reference]],
) -> list[Reference]:
    """Return the references that select an Application, the most specific first."""
    possible = (
        *references.get((app.namespace, app.name), ()),
        *references.get((app.namespace, ""), ()),
    )
    selecting = (reference for reference in possible if reference.takes(app))
    return sorted(selecting, key=lambda reference: reference.order)


def _rivals(app: Application, winner: Reference, others: Sequence[Reference]) -> list[Problem]:
    """Return a warning if several resources reference an Application: in AIU,
    they keep overwriting each other.
    """
    rivals = dict.fromkeys(other.updater for other in others if other.updater != winner.updater)
    if not rivals:
        return []
    message = (
        "several ImageUpdaters reference this Application: "
        f"{winner.updater} applies, not {', '.join(rivals)}"
    )
    hint = "reference each Application from only one ImageUpdater"
    return [
        replace(_resource_warning(winner.origin, message, hint, winner.field), application=app.key)
    ]


def _idle(reference: Reference) -> Problem:
    """Return the warning for a reference that does not select any Application."""
    message = f"{reference.place}: no Application in namespace {reference.namespace!r} matches"
    labels = " or labelSelectors" if reference.labels else ""
    hint = (
        f"fix namePattern {reference.pattern!r}{labels}, or move the ImageUpdater to the"
        " Applications' namespace"
    )
    return _resource_warning(reference.origin, message, hint, reference.field)


def _reference_warnings(reference: Reference, settings: ReferenceSettings) -> Iterator[Problem]:
    """Yield the warnings about a reference."""
    for warning in settings.warnings:
        message = f"{reference.place}: {warning}"
        yield _resource_warning(reference.origin, message, field=reference.field)
    for advice in settings.advice:
        message = f"{reference.place}: {advice}"
        problem = _resource_warning(reference.origin, message, _STRATEGY, reference.field)
        yield replace(problem, advice=True)


def _configured(app: Application, reference: Reference, settings: ReferenceSettings) -> Application:
    """Return the Application with the reference's settings."""
    app = replace(app, reference=reference.place)
    if settings.keys or settings.request_labels:
        app = replace(
            app,
            signing_keys=settings.keys,
            request_labels=settings.request_labels,
        )
    if settings.annotations is None:
        return app
    kept = {key: value for key, value in app.annotations.items() if _may_be_ours(key)}
    return replace(
        app,
        annotations={**kept, **settings.annotations},
        from_resource=frozenset(settings.annotations),
        resource=reference.updater,
        resource_origin=reference.origin,
    )


def _may_be_ours(key: str) -> bool:
    """Return whether a key is one of `OURS`, or similar to one, which then causes a warning."""
    without_alias = key.partition(".")[2]
    return key.endswith(OURS) or bool(nearest(key, OURS) or nearest(without_alias, OURS))


def _resource_warning(origin: str, message: str, hint: str = "", field: Path = ()) -> Problem:
    located = f"{origin}: {message}" if origin not in NO_FILES else message
    hint = hint or "see the ImageUpdater specification"
    return Problem(Trouble.warning("source", located, hint), field=field)


# an ImageUpdater's namespace and name, the resource, and its origin
_Named = tuple[tuple[str, str], Mapping[str, Any], str]


def _references_of_all(
    updaters: Sequence[tuple[Mapping[str, Any], str]],
    namespace: str,
) -> tuple[References, list[Problem]]:
    """Return the references in all resources, sorted by resource name, and the problems found."""
    references = References()
    named, problems = _in_order(updaters, namespace)
    previous = ("", "")
    for index, (name, item, origin) in enumerate(named):
        is_repeated = name == previous and name[1] != ""
        previous = name
        if is_repeated:
            continue  # the same object is in two files: use the first one, as for Applications
        called = f"ImageUpdater {'/'.join(name)}"
        for message, hint, path in unknown_fields(item):
            problems.append(_resource_warning(origin, f"{called}: {message}", hint, path))
        try:
            spec = mapping(item, "spec")
            # Up to v1.1, AIU read the Applications' namespace from this field.
            if spec.get("namespace") not in (None, "", name[0]):
                message = (
                    "spec.namespace is no longer read; only Applications in namespace"
                    f" {name[0]!r} are referenced"
                )
                hint = "move the ImageUpdater to its Applications' namespace"
                problems.append(
                    _resource_warning(origin, f"{called}: {message}", hint, ("spec", "namespace"))
                )
            for reference in _of_resource(index, name, spec, origin, problems):
                pattern = reference.pattern
                is_exact = not _WILD.search(pattern) and "\\" not in pattern
                key = (name[0], pattern if is_exact else "")
                references.setdefault(key, []).append(reference)
        except Malformed as error:
            problems.append(
                _resource_warning(origin, f"{called} is skipped: {error.message}", error.hint)
            )
    return references, problems


def _in_order(
    updaters: Sequence[tuple[Mapping[str, Any], str]],
    namespace: str,
) -> tuple[list[_Named], list[Problem]]:
    """Return the resources sorted by name, and a warning for each one without a usable name."""
    problems = list[Problem]()
    named: list[_Named] = []
    for item, origin in updaters:
        metadata = plain_data.mapping(item, "metadata")
        unusable = [
            f"metadata.{key}"
            for key in ("name", "namespace")
            if isinstance(metadata.get(key), (dict, list))
        ]
        if unusable:  # YAML parses `name: {{app}}` in a template as a mapping
            message = f"an ImageUpdater is skipped: {unusable[0]} is not a string"
            hint = "quote it, or render the template first"
            problems.append(_resource_warning(origin, message, hint))
            continue
        name = (str(metadata.get("namespace") or namespace), str(metadata.get("name") or ""))
        named.append((name, item, origin))
    named.sort(key=lambda resource: resource[0])
    return named, problems


def _of_resource(
    index: int,
    name: tuple[str, str],
    spec: Mapping[str, Any],
    origin: str,
    problems: list[Problem],
) -> list[Reference]:
    """Return a resource's references, or an empty list if AIU rejects the whole resource because of
    one of them.

    Adds any errors to `problems`. Raises `Malformed` if the resource cannot be read at all.
    """
    refs = mappings(spec, "applicationRefs")
    if not refs:
        raise Malformed(
            "spec.applicationRefs is empty",
            "add an entry with namePattern",
        )
    references = []
    rejected = False
    called = f"ImageUpdater {'/'.join(name)}"
    for at, ref in enumerate(refs):
        path = ("spec", "applicationRefs", at)
        try:
            pattern = _name_pattern(ref, at)
        except Malformed as error:
            message = f"{called} is skipped: {error.message}"
            problems.append(_resource_warning(origin, message, error.hint, path))
            rejected = True
            continue
        try:
            labels = tuple(_label_requirements(ref))
        except Malformed as error:  # in AIU, an invalid selector does not select any Application
            message = f"{called}, applicationRefs[{at}]: {error.message}"
            problems.append(_resource_warning(origin, message, field=(*path, "labelSelectors")))
            continue
        order = (index, -_score_in_aiu(pattern, ref.get("labelSelectors")), at)
        references.append(Reference(order, "/".join(name), pattern, labels, spec, ref, origin))
    return [] if rejected else references


def _score_in_aiu(pattern: str, selector: object) -> int:
    """Return a reference's specificity: an exact name, then a label selector and its parts,
    then literal characters.
    """
    is_exact = not _WILD.search(pattern)
    score = 1_000_000 if is_exact else 0
    literal = re.sub(r"[*?]", "", _SET.sub("", pattern))
    score += len(literal)
    if isinstance(selector, Mapping):
        score += 10_000 + 100 * sum(
            len(selector.get(key) or ()) for key in ("matchLabels", "matchExpressions")
        )
    return score


def _name_pattern(ref: Mapping[str, Any], at: int) -> str:
    """Return a reference's name glob.

    Raises `Malformed` if it is missing or unreadable.
    """
    try:
        pattern = text(ref, "namePattern")
        if pattern:
            check_glob(pattern)
    except Malformed as error:
        raise Malformed(f"applicationRefs[{at}].namePattern: {error.message}", error.hint) from None
    if not pattern:
        raise Malformed(f"applicationRefs[{at}] has no namePattern", "set it to a name or a glob")
    return pattern


def _label_requirements(ref: Mapping[str, Any]) -> Iterator[Requirement]:
    """Yield the requirements in `labelSelectors`. Raises `Malformed` for an invalid one."""
    selector = mapping(ref, "labelSelectors")
    labels = mapping(selector, "matchLabels")
    for key in labels:
        yield Requirement(
            str(key),
            "In",
            (text(labels, key),),
        )
    for raw in mappings(selector, "matchExpressions"):
        key = text(raw, "key")
        operator = text(raw, "operator")
        values = tuple(strings(raw, "values"))
        needs_values = operator in ("In", "NotIn")
        if not key or operator not in OPERATORS or bool(values) != needs_values:
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
    """Return whether a ConfigMap is AIU's."""
    return plain_data.text(item, "metadata", "name") == NAME


def options_of(item: Mapping[str, Any]) -> tuple[ConfigOption, ...]:
    """Return the equivalent option, or a note about why there is none, for each key in AIU's
    ConfigMap.
    """
    data = plain_data.mapping(item, "data")
    return tuple(_option_of(key, plain_data.text(value).strip()) for key, value in data.items())


def _option_of(key: str, text: str) -> ConfigOption:
    """Return the option for a ConfigMap key with the value `text`."""
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
        word = _WORDS.get(key, {}).get(text.lower(), shortened(text))
        return ConfigOption(key, f"{_VALUES[key]} {quote(word)}")
    if key in _SWITCHES:
        if text.lower() == "true":
            return ConfigOption(key, _SWITCHES[key])
        return ConfigOption(key, "", f"not needed: it is {text or 'empty'}")
    if key in _NOT_NEEDED:
        return ConfigOption(key, "", _NOT_NEEDED[key])
    if key.startswith("webhook."):
        return ConfigOption(key, "", NO_SERVER)
    return ConfigOption(key, "", "Image Updater does not read this key either")


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
_WORDS = {
    "log.level": {"trace": "debug", "warn": "warning"},
    "log.format": {"plain": "text"},
    "applications_api": {"kubernetes": "cluster", "argocd": "argocd"},
}
_SWITCHES = {
    "git.commit-sign-off": "--sign-off",
    "kube.events": "--kubernetes-events",
    "argocd.insecure": "--argocd-insecure",
    "argocd.plaintext": "--argocd-plaintext",
}
_NOT_NEEDED = {
    "argocd.grpc_web": "not needed: Argo CD is queried over HTTPS",
    "interval": NO_LOOP,
    "max_concurrent_apps": NO_LOOP,
    "max_concurrent_reconciles": NO_LOOP,
}
