"""Turns AIU's own resources into ours: an `ImageUpdater` into annotations on the Applications that it references.

Selection, specificity and merge order (global < applicationRef < image) are those of AIU v1.3
(its docs/configuration/applications.md). Every setting becomes a per-image annotation, so that no Application-wide
annotation applies by accident.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

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
from task.errors import Malformed
from task.model import Application, KeySecret, Problem
from task.policy.tag_filter import check_glob, glob_match
from task.text import nearest, shortened

# AIU ignores these keys. They stay on an Application that a resource configures, because no resource can set the same.
OURS = ("write-back-source", "pull-request", "pin-digest", "manifests.image-name", "helm.image-digest")
NO_FILES = ("", "cluster", "argocd")  # origins that messages leave out
_STRATEGY = "write updateStrategy into it"
_WILD = re.compile(r"[*?\[\]]")
_SET = re.compile(r"\[.*?]")


@dataclass(frozen=True)
class Reference:
    """One `applicationRef` of one resource. An Application belongs to the fitting reference with the least `order`."""

    order: tuple[int, int, int]  # the resource's number, the negative score, the place in its list
    updater: str  # namespace/name
    pattern: str
    labels: tuple[Requirement, ...]
    spec: Mapping[str, Any]
    ref: Mapping[str, Any]
    origin: str = ""  # the resource's place: "apps/updater.yaml:1"

    @property
    def place(self) -> str:
        """The reference's name in messages."""
        return f"ImageUpdater {self.updater}, applicationRefs[{self.order[2]}]"

    def takes(self, app: Application) -> bool:
        """Tell whether the reference selects this Application of the resource's namespace."""
        return glob_match(self.pattern, app.name) and all(label.met(app.labels) for label in self.labels)


@dataclass(frozen=True)
class References:
    """All references, indexed so that each Application is compared only with those that may select it."""

    exact: dict[tuple[str, str], list[Reference]]  # namespace, name
    others: dict[str, list[Reference]]  # namespace

    def all(self) -> Iterator[Reference]:
        """Yield all references."""
        for some in (*self.exact.values(), *self.others.values()):
            yield from some

    def of(self, app: Application) -> list[Reference]:
        """Return the references that select an Application, the winner first."""
        possible = (*self.exact.get((app.namespace, app.name), ()), *self.others.get(app.namespace, ()))
        return sorted((reference for reference in possible if reference.takes(app)), key=lambda taken: taken.order)


def is_image_updater(item: object) -> bool:
    """Tell whether a manifest is an `ImageUpdater` of Argo CD Image Updater."""
    return (
        isinstance(item, Mapping)
        and item.get("kind") == "ImageUpdater"
        and str(item.get("apiVersion", "")).startswith("argocd-image-updater.argoproj.io/")
    )


def configure(
    apps: Sequence[Application],
    updaters: Sequence[Mapping[str, Any]],
    namespace: str = "argocd",
    origins: Sequence[str] = (),
    *,
    complete: bool = True,
) -> tuple[tuple[Application, ...], tuple[Problem, ...]]:
    """Return the Applications. If a resource references one, its settings replace the AIU annotations.

    With `useAnnotations`, the Application's annotations count. If it has no `image-list`, the next reference counts, as
    in AIU. An Application that no resource references does not change. `namespace` is for a resource without one, and
    `origins` are the places of the resources. `complete` says whether all Applications that they may reference are
    there. Problems are warnings: the invalid parts of a resource are left out, with their images.
    """
    if not updaters:
        return tuple(apps), ()
    places = origins or [""] * len(updaters)
    references, problems = _references(list(zip(updaters, places, strict=True)), namespace)
    settings: dict[tuple[int, int, int], ReferenceSettings] = {}
    configured = []
    idle = {reference.order: reference for reference in references.all()} if complete else {}
    for app in apps:
        matching = references.of(app)
        for reference in matching:
            idle.pop(reference.order, None)
        while matching:
            reference = matching[0]
            if reference.order not in settings:
                settings[reference.order] = reference_settings(reference.spec, reference.ref)
                where = ("spec", "applicationRefs", reference.order[2])
                problems += [
                    _warning(reference.origin, f"{reference.place}: {words}", field=where)
                    for words in settings[reference.order].warnings
                ]
                problems += [
                    replace(_warning(reference.origin, f"{reference.place}: {words}", _STRATEGY, where), advice=True)
                    for words in settings[reference.order].advice
                ]
            if settings[reference.order].annotations is not None or app.annotations.get("image-list"):
                break
            matching = matching[1:]
        chosen = settings[matching[0].order] if matching else ReferenceSettings(None)
        if matching:
            app = replace(app, reference=matching[0].place)  # noqa: PLW2901 - the Application as configured
        wanted = chosen.annotations
        others = dict.fromkeys(other.updater for other in matching[1:] if other.updater != matching[0].updater)
        if others:  # in AIU, several resources overwrite each other's changes forever
            message = f"{matching[0].updater} counts, not {', '.join(others)}"
            problems.append(
                Problem(
                    application=app.key,
                    rule="source",
                    message=_placed(matching[0].origin, f"several ImageUpdaters reference this Application: {message}"),
                    hint="let each Application be referenced by one ImageUpdater",
                    severity="warning",
                    field=("spec", "applicationRefs", matching[0].order[2]),
                )
            )
        if wanted is not None:
            # A misspelt key of ours stays as well, so that there is a warning about it.
            ours = {
                key: value
                for key, value in app.annotations.items()
                if key.endswith(OURS) or any(nearest(name, OURS) for name in (key, key.partition(".")[2]))
            }
            app = replace(  # noqa: PLW2901 - as above
                app,
                annotations={**ours, **wanted},
                from_resource=frozenset(wanted),
                resource=matching[0].updater,
                resource_origin=matching[0].origin,
            )
        if chosen.keys or chosen.request_labels:
            home = matching[0].updater.partition("/")[0]
            keys = {alias: KeySecret(home, key.secret, key.field) for alias, key in chosen.keys.items()}
            app = replace(app, signing_keys=keys, request_labels=chosen.request_labels)  # noqa: PLW2901 - as above
        configured.append(app)
    for reference in idle.values():
        home = reference.updater.partition("/")[0]
        message = f"{reference.place}: no Application in namespace {home!r} fits"
        labels = ", or its labelSelectors" if reference.labels else ""
        hint = f"correct namePattern: {reference.pattern!r}{labels}, or put the ImageUpdater into their namespace"
        where = ("spec", "applicationRefs", reference.order[2])
        problems.append(_warning(reference.origin, message, hint, where))
    return tuple(configured), tuple(problems)


def _warning(origin: str, message: str, hint: str = "", field: Path = ()) -> Problem:
    told = _placed(origin, message)
    return Problem(
        rule="source",
        message=told,
        hint=hint or "see the ImageUpdater specification",
        severity="warning",
        field=field,
    )


def _placed(origin: str, message: str) -> str:
    """Return the message after its place, if that is a file."""
    return f"{origin}: {message}" if origin not in NO_FILES else message


def _references(updaters: Sequence[tuple[Mapping[str, Any], str]], namespace: str) -> tuple[References, list[Problem]]:
    """Return the references of all resources in the order of their names, and the problems in them."""
    references, problems = References({}, {}), list[Problem]()
    named = []
    for item, origin in updaters:
        metadata = item.get("metadata")
        known = metadata if isinstance(metadata, Mapping) else {}
        named.append(((str(known.get("namespace") or namespace), str(known.get("name") or "")), item, origin))
    named.sort(key=lambda one: one[0])
    for index, (name, item, origin) in enumerate(named):
        if index and name[1] and named[index - 1][0] == name:
            continue  # the same object from two files: the first one counts, as with Applications
        called = f"ImageUpdater {'/'.join(name)}"
        for unknown in unknown_fields(item):
            problems.append(_warning(origin, f"{called}: {unknown.message}", unknown.hint, unknown.path))
        try:
            spec = mapping(item, "spec")
            # AIU up to v1.1 read the Applications' namespace from here.
            if spec.get("namespace") not in (None, "", name[0]):
                message = f"spec.namespace is not read any more; only Applications in {name[0]!r} are referenced"
                hint = "put the ImageUpdater into the namespace of its Applications"
                problems.append(_warning(origin, f"{called}: {message}", hint, ("spec", "namespace")))
            for reference in _of_resource(index, name, spec, origin, problems):
                if _WILD.search(reference.pattern) or "\\" in reference.pattern:
                    references.others.setdefault(name[0], []).append(reference)
                else:
                    references.exact.setdefault((name[0], reference.pattern), []).append(reference)
        except Malformed as error:
            problems.append(_warning(origin, f"{called} is skipped: {error.message}", error.hint))
    return references, problems


def _of_resource(
    index: int, name: tuple[str, str], spec: Mapping[str, Any], origin: str, problems: list[Problem]
) -> list[Reference]:
    """Return the references of one resource, and none if AIU rejects the whole resource for one of them.

    Adds what is wrong to the problems. Raises `Malformed` if nothing can be read.
    """
    refs = mappings(spec, "applicationRefs")
    if not refs:
        raise Malformed("spec.applicationRefs is empty", "reference an Application with namePattern")
    references, rejected = [], False
    called = f"ImageUpdater {'/'.join(name)}"
    for at, ref in enumerate(refs):
        where = ("spec", "applicationRefs", at)
        try:
            pattern = _pattern(ref, at)
        except Malformed as error:
            problems.append(_warning(origin, f"{called} is skipped: {error.message}", error.hint, where))
            rejected = True
            continue
        try:
            labels = tuple(_labels(ref))
        except Malformed as error:  # AIU: an invalid selector selects nothing
            message = f"{called}, applicationRefs[{at}]: {error.message}"
            problems.append(_warning(origin, message, field=(*where, "labelSelectors")))
            continue
        # AIU's score: an exact name, then a label selector and its parts, then literal characters.
        score = 0 if _WILD.search(pattern) else 1_000_000
        score += len(re.sub(r"[*?]", "", _SET.sub("", pattern)))
        selector = ref.get("labelSelectors")
        if isinstance(selector, Mapping):
            score += 10_000 + 100 * sum(len(selector.get(key) or ()) for key in ("matchLabels", "matchExpressions"))
        references.append(Reference((index, -score, at), "/".join(name), pattern, labels, spec, ref, origin))
    return [] if rejected else references


def _pattern(ref: Mapping[str, Any], at: int) -> str:
    """Return the glob of names of a reference. Raises `Malformed` if there is none that can be read."""
    try:
        pattern = text(ref, "namePattern")
        if pattern:
            check_glob(pattern)
            return pattern
    except Malformed as error:
        raise Malformed(f"applicationRefs[{at}].namePattern: {error.message}", error.hint) from None
    raise Malformed(f"applicationRefs[{at}] has no namePattern", "write a name, or a glob of names")


def _labels(ref: Mapping[str, Any]) -> Iterator[Requirement]:
    selector = mapping(ref, "labelSelectors")
    labels = mapping(selector, "matchLabels")
    for key in labels:
        yield Requirement(str(key), "In", (text(labels, key),))
    for raw in mappings(selector, "matchExpressions"):
        key, operator, values = text(raw, "key"), text(raw, "operator"), tuple(strings(raw, "values") or ())
        if not key or operator not in OPERATORS or bool(values) != operator.endswith("In"):
            raise Malformed(
                f"matchExpressions: {key!r} {operator!r} {list(values)} is not a valid selector requirement"
            )
        yield Requirement(key, operator, values)


NAME = "argocd-image-updater-config"
LEVELS = {"trace": "debug", "warn": "warning"}
FORMATS = {"plain": "text"}
API = {"kubernetes": "cluster", "argocd": "argocd"}
NO_LOOP = "not needed: there is no loop. For images that others build, run scan on a schedule"
NO_SERVER = "not needed: nothing listens for webhooks, because the pipeline calls"


@dataclass(frozen=True)
class ConfigOption:
    """One key of the ConfigMap, and what takes its place."""

    key: str
    option: str  # "--log-level debug"; "" if nothing has to be given
    note: str = ""


def is_config(item: Mapping[str, Any]) -> bool:
    """Tell whether a ConfigMap is AIU's."""
    metadata = item.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get("name") == NAME


def options_of(item: Mapping[str, Any]) -> tuple[ConfigOption, ...]:
    """Return an option, or a note why there is none, for each key of AIU's ConfigMap."""
    data = item.get("data")
    found = []
    for key, value in data.items() if isinstance(data, Mapping) else ():
        text = value.strip() if isinstance(value, str) else ""
        made = KEYS.get(key) or next((make for start, make in BEGINNINGS.items() if key.startswith(start)), None)
        option, note = made(text) if made else ("", "Image Updater does not read this key either")
        found.append(ConfigOption(key, option, note))
    return tuple(found)


_Make = Callable[[str], tuple[str, str]]


def _value(option: str, words: Mapping[str, str] = {}) -> _Make:
    return lambda text: (f"{option} {quote(words.get(text.lower(), shortened(text)))}", "")


def _switch(option: str) -> _Make:
    return lambda text: (option, "") if text.lower() == "true" else ("", f"not needed: it is {text or 'empty'}")


def _file(option: str, name: str, note: str = "") -> _Make:
    return lambda _text: (f"{option} {name}", f"save the value as {name}{note}")


def _none(note: str) -> _Make:
    return lambda _text: ("", note)


def _registries(text: str) -> tuple[str, str]:
    scripts = " Scripts (ext:) need --allow-exec, and have to be in the image of the step." if "ext:" in text else ""
    variables = " Variables (env:) need --allow-env." if "env:" in text else ""
    return "--registries-conf registries.conf", f"save the value as registries.conf.{scripts}{variables}"


KEYS: Mapping[str, _Make] = {
    "registries.conf": _registries,
    "git.user": _value("--git-author-name"),
    "git.email": _value("--git-author-email"),
    "git.commit-message-template": _file("--commit-message-template", "commit.template"),
    "git.commit-sign-off": _switch("--sign-off"),
    "git.commit-signing-key": _value("--signing-key"),
    "git.commit-signing-method": _value("--signing-format"),
    "log.level": _value("--log-level", LEVELS),
    "log.format": _value("--log-format", FORMATS),
    "kube.events": _switch("--kubernetes-events"),
    "argocd.server_addr": _value("--argocd-server"),
    "argocd.insecure": _switch("--argocd-insecure"),
    "argocd.plaintext": _switch("--argocd-plaintext"),
    "argocd.grpc_web": _none("not needed: Argo CD is asked over HTTPS"),
    "applications_api": _value("--applications", API),
    "interval": _none(NO_LOOP),
    "max_concurrent_apps": _none(NO_LOOP),
    "max_concurrent_reconciles": _none(NO_LOOP),
}
BEGINNINGS: Mapping[str, _Make] = {"webhook.": _none(NO_SERVER)}
