"""`ImageUpdater`, AIU's custom resource → the annotations that say the same on the Applications it references.

Selection, specificity and merge order (global < applicationRef < image) are those of AIU v1.3
(its docs/configuration/applications.md). What a resource says about an image is said per image and
complete, so that no Application-wide key is needed and none shines through.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from task.annotations.image_updater_settings import Said, annotations, mapping, mappings, strings, text
from task.annotations.known_keys import nearest
from task.errors import Malformed
from task.model import Application, Problem
from task.policy.tag_filter import glob_match, ignore_globs

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
# AIU ignores these on an Application that a resource configures as on any other: they say what no resource can.
OURS = ("write-back-source", "pull-request", "pin-digest", "manifests.image-name")
_WILD = re.compile(r"[*?\[\]]")
_SET = re.compile(r"\[.*?]")


@dataclass(frozen=True)
class Requirement:
    """One part of a Kubernetes label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def met(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet it, as Kubernetes decides: a missing label meets every negated one."""
        if self.operator in ("Exists", "DoesNotExist"):
            return (self.key in labels) == (self.operator == "Exists")
        return (labels.get(self.key) in self.values) == (self.operator == "In")


@dataclass(frozen=True)
class Reference:
    """One `applicationRef` of one resource. The least `order` wins an Application."""

    order: tuple[int, int, int]  # the resource; how unspecific; the place in its list
    updater: str  # namespace/name
    pattern: str
    labels: tuple[Requirement, ...]
    spec: Mapping[str, Any]
    ref: Mapping[str, Any]

    @property
    def place(self) -> str:
        """How messages name it."""
        return f"ImageUpdater {self.updater}, applicationRefs[{self.order[2]}]"

    def takes(self, app: Application) -> bool:
        """Whether it references an Application of its namespace."""
        return glob_match(self.pattern, app.name) and all(one.met(app.labels) for one in self.labels)


@dataclass(frozen=True)
class References:
    """All references, so that an Application meets only those that may reference it."""

    exact: dict[tuple[str, str], list[Reference]]  # namespace, name
    others: dict[str, list[Reference]]  # namespace

    def of(self, app: Application) -> list[Reference]:
        """Those that take an Application, the winner first."""
        found = (*self.exact.get((app.namespace, app.name), ()), *self.others.get(app.namespace, ()))
        return sorted((reference for reference in found if reference.takes(app)), key=lambda reference: reference.order)


def is_image_updater(item: object) -> bool:
    """Whether a manifest is an `ImageUpdater` of Argo CD Image Updater."""
    return (
        isinstance(item, Mapping)
        and item.get("kind") == "ImageUpdater"
        and str(item.get("apiVersion", "")).startswith("argocd-image-updater.argoproj.io/")
    )


def configure(
    apps: Sequence[Application], updaters: Sequence[Mapping[str, Any]], namespace: str = "argocd"
) -> tuple[tuple[Application, ...], tuple[Problem, ...]]:
    """The Applications, those that a resource references with its settings in place of AIU's own annotations.

    With `useAnnotations` the Application's annotations stand; where it has no `image-list`, the next reference is
    asked, as AIU does. An Application that no resource references is left as it is. `namespace` is taken for a
    resource that names none. Problems are warnings: of a malformed resource what cannot be read is left out, and with
    it the images that it is about.
    """
    if not updaters:
        return tuple(apps), ()
    references, problems = _references(updaters, namespace)
    said: dict[tuple[int, int, int], Said] = {}
    done = []
    for app in apps:
        found = references.of(app)
        while found:
            reference = found[0]
            if reference.order not in said:
                said[reference.order] = annotations(reference.spec, reference.ref)
                problems += [_warning(f"{reference.place}: {words}") for words in said[reference.order].warnings]
            if said[reference.order].annotations is not None or app.annotations.get("image-list"):
                break
            found = found[1:]
        problems += _disputed(app, found) if found else ()
        done.append(_configured(app, said[found[0].order]) if found else app)
    return tuple(done), tuple(problems)


def _configured(app: Application, said: Said) -> Application:
    if said.annotations is None:
        return app
    ours = {key: value for key, value in app.annotations.items() if _of_ours(key)}
    return replace(app, annotations={**ours, **said.annotations})


def _of_ours(key: str) -> bool:
    """Whether it is such a key, or was meant to be one: a misspelt one must not vanish without a word."""
    return key.endswith(OURS) or any(nearest(one, OURS) for one in (key, key.partition(".")[2]))


def _disputed(app: Application, found: Sequence[Reference]) -> Iterator[Problem]:
    """AIU lets several resources overwrite each other's changes for ever; here the first one by name wins."""
    others = dict.fromkeys(reference.updater for reference in found if reference.updater != found[0].updater)
    if others:
        yield Problem(
            app.key,
            "source",
            f"several ImageUpdaters reference this Application: {found[0].updater} counts, not {', '.join(others)}",
            "let each Application be referenced by one ImageUpdater",
            "warning",
        )


def _warning(message: str, hint: str = "") -> Problem:
    return Problem("", "source", message, hint or "see the ImageUpdater specification", "warning")


def _references(updaters: Sequence[Mapping[str, Any]], namespace: str) -> tuple[References, list[Problem]]:
    """The references of all resources in the order of their names, and what is wrong with them."""
    references, problems = References({}, {}), list[Problem]()
    named = sorted(((_name(item, namespace), item) for item in updaters), key=lambda pair: pair[0])
    for index, (name, item) in enumerate(named):
        if index and name[1] and named[index - 1][0] == name:
            continue  # the same object from two files: the first one counts, as with Applications
        try:
            spec = mapping(item, "spec")
            problems += _moved(spec, name)
            for reference in _refs(index, name, spec, problems):
                if _WILD.search(reference.pattern) or "\\" in reference.pattern:
                    references.others.setdefault(name[0], []).append(reference)
                else:
                    references.exact.setdefault((name[0], reference.pattern), []).append(reference)
        except Malformed as error:
            problems.append(_warning(f"ImageUpdater {'/'.join(name)} is passed over: {error.message}", error.hint))
    return references, problems


def _name(item: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    metadata = item.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    return str(known.get("namespace") or namespace), str(known.get("name") or "")


def _moved(spec: Mapping[str, Any], name: tuple[str, str]) -> Iterator[Problem]:
    """AIU up to v1.1 took the Applications' namespace from the spec."""
    if spec.get("namespace") not in (None, "", name[0]):
        yield _warning(
            f"ImageUpdater {'/'.join(name)}: spec.namespace is not read any more; only Applications in "
            f"{name[0]!r} are referenced",
            "put the ImageUpdater into the namespace of its Applications",
        )


def _refs(index: int, name: tuple[str, str], spec: Mapping[str, Any], problems: list[Problem]) -> list[Reference]:
    """The references of one resource. Raises `Malformed` where AIU gives up the whole of it."""
    refs = mappings(spec, "applicationRefs")
    if not refs:
        raise Malformed("spec.applicationRefs is empty", "reference an Application with namePattern")
    references = []
    for at, ref in enumerate(refs):
        pattern = _pattern(ref, at)
        try:
            labels = tuple(_labels(ref))
        except Malformed as error:  # AIU: an invalid selector selects nothing
            problems.append(_warning(f"ImageUpdater {'/'.join(name)}, applicationRefs[{at}]: {error.message}"))
            continue
        order = (index, -_specificity(pattern, ref), at)
        references.append(Reference(order, "/".join(name), pattern, labels, spec, ref))
    return references


def _pattern(ref: Mapping[str, Any], at: int) -> str:
    pattern = text(ref, "namePattern")
    if not pattern:
        raise Malformed(f"applicationRefs[{at}] has no namePattern", "write a name, or a glob of names")
    try:
        ignore_globs(pattern.replace(",", "_"))  # a comma is no separator here
    except Malformed as error:
        raise Malformed(f"applicationRefs[{at}].namePattern: {error.message}", error.hint) from None
    return pattern


def _labels(ref: Mapping[str, Any]) -> Iterator[Requirement]:
    selector = mapping(ref, "labelSelectors")
    labels = mapping(selector, "matchLabels")
    for key in labels:
        yield Requirement(str(key), "In", (text(labels, key),))
    for one in mappings(selector, "matchExpressions"):
        key, operator, values = text(one, "key"), text(one, "operator"), tuple(strings(one, "values") or ())
        if not key or operator not in OPERATORS or bool(values) != operator.endswith("In"):
            raise Malformed(f"matchExpressions: {key!r} {operator!r} {list(values)} is no requirement of a selector")
        yield Requirement(key, operator, values)


def _specificity(pattern: str, ref: Mapping[str, Any]) -> int:
    """AIU's score: an exact name, then a label selector and its parts, then literal characters."""
    score = 0 if _WILD.search(pattern) else 1_000_000
    score += len(re.sub(r"[*?]", "", _SET.sub("", pattern)))
    selector = ref.get("labelSelectors")
    if isinstance(selector, Mapping):
        score += 10_000 + 100 * sum(len(selector.get(key) or ()) for key in ("matchLabels", "matchExpressions"))
    return score
