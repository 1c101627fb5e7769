"""Flux v1 `HelmRelease` (Helm Operator) → the Subscriptions that its annotations ask for.

What Flux v1.21 reads: policies under `fluxcd.io/` and `flux.weave.works/`, tag filters also under
`filter.fluxcd.io/`; images where its `FindHelmReleaseContainers` finds them. Where Flux takes any tag
because a filter is broken, this is an error.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from task.errors import Malformed
from task.model import Application, Entry, Flaw, Image, Keys, Policy, Source, Subscribed, Subscription
from task.parse.image import live_image
from task.rules.tag_filter import allow_pattern
from task.rules.version_range import parse_range

GROUPS = ("helm.fluxcd.io/", "flux.weave.works/")
PREFIXES = ("fluxcd.io/", "flux.weave.works/")  # the first one wins
FILTER = "filter.fluxcd.io/"
MAPPED = ("repository.fluxcd.io/", "tag.fluxcd.io/", "registry.fluxcd.io/")
TOP = "chart-image"  # the image at the top level of the values


class Container(NamedTuple):
    """One image in the values: its name to Flux, and the key path under which the editor finds it."""

    name: str
    image: Image
    path: str


def is_helm_release(item: object) -> bool:
    """Whether a manifest is a HelmRelease of Flux v1; those of Flux v2 are not."""
    return (
        isinstance(item, Mapping)
        and item.get("kind") == "HelmRelease"
        and str(item.get("apiVersion", "")).startswith(GROUPS)
    )


def subscribe_helm_release(item: Mapping[str, Any], origin: str, repo: str, branch: str, path: str) -> Subscribed:
    """One Subscription for each image in `spec.values` that Flux would update, and what is wrong.

    `repo`, `branch` ("" is the default branch) and `path` say where the manifest is in Git; no `repo`: in none
    that is known, a `source` flaw of every image. Not `automated`, or `ignore`d: nothing. `locked`: the
    Subscriptions say so in `held`.
    """
    annotations = _annotations(item)
    app = _application(item, origin, Source(repo, posixpath.dirname(path), branch, kind="Helm"))
    flaws = list(_unmeant(annotations))
    if _policy(annotations, "automated")[1] != "true" or _policy(annotations, "ignore")[1] == "true":
        return Subscribed(app, (), tuple(flaws))
    containers, unmapped = _containers(_values(item), annotations)
    flaws += unmapped
    flaws += _nameless(annotations, containers)
    app = app._replace(live=tuple(one.image.reference for one in containers))
    held, subscriptions = _held(annotations), []
    for one in containers:
        entry = _entry(one)
        policy = _filter(annotations, one, entry, flaws, held)
        if not repo:
            flaws.append(_homeless(entry, path))
        elif policy is not None:
            subscriptions.append(_subscription(app, entry, policy, one.path, path)._replace(held=held))
    return Subscribed(app, tuple(subscriptions), tuple(flaws))


def _subscription(app: Application, entry: Entry, policy: Policy, key: str, path: str) -> Subscription:
    (source,) = app.sources
    return Subscription(
        application=app,
        entry=entry,
        policy=policy,
        keys=Keys(tag=key),
        source=source,
        target="flux",
        path=path,
        repo=source.repo,
        base=source.revision,
    )


def _application(item: Mapping[str, Any], origin: str, source: Source) -> Application:
    """The release, as everything behind here knows Applications. No annotation of AIU's is read on it."""
    metadata = _mapping(item.get("metadata"))
    labels = {k: v for k, v in _mapping(metadata.get("labels")).items() if isinstance(v, str)}
    namespace, name = (str(metadata.get(key) or "") for key in ("namespace", "name"))
    return Application(namespace or "default", name, {}, (source,), labels=labels, origin=origin)


def _annotations(item: Mapping[str, Any]) -> dict[str, str]:
    """All annotations; an unquoted `true` counts as text."""
    found = _mapping(_mapping(item.get("metadata")).get("annotations")).items()
    return {str(key): _text(value).strip() for key, value in found if isinstance(value, (str, bool))}


def _policy(annotations: Mapping[str, str], name: str) -> tuple[str, str]:
    """(key, value) of a policy; "" for both where there is none."""
    keys = [prefix + name for prefix in PREFIXES]
    keys += [FILTER + name.removeprefix("tag.")] if name.startswith("tag.") else []
    return next(((key, annotations[key]) for key in keys if key in annotations), ("", ""))


def _unmeant(annotations: Mapping[str, str]) -> Iterator[Flaw]:
    """Switches that are neither on nor off: Flux knows `true` only, and takes any other word for off."""
    for name in ("automated", "locked"):
        key, value = _policy(annotations, name)
        if key and value not in ("true", "false"):
            yield _warned(key, value, f"{value!r} is not true: it counts as false", f'write {key}: "true"')


def _nameless(annotations: Mapping[str, str], containers: tuple[Container, ...]) -> Iterator[Flaw]:
    known = {one.name for one in containers}
    for key, value in annotations.items():
        for prefix in (*(f"{prefix}tag." for prefix in PREFIXES), FILTER):
            name = key.removeprefix(prefix)
            if name != key and name not in known:
                hint = f"images there: {', '.join(sorted(known)) or 'none'}"
                yield _warned(key, value, f"no image in spec.values is called {name!r}", hint)


def _warned(key: str, value: str, message: str, hint: str) -> Flaw:
    return Flaw("", None, key, value, f"{key}: {message}", hint, severity="warning")


def _homeless(entry: Entry, path: str) -> Flaw:
    message = f"{path or 'the manifest'} lies in no Git work tree that has an origin and a commit"
    hint = "check the repository out with git, or give --applications REPO//PATH"
    return Flaw(entry.text, entry, "", "", message, hint, rule="source")


def _held(annotations: Mapping[str, str]) -> str:
    """Why nothing is written, "" where nothing holds."""
    key, value = _policy(annotations, "locked")
    if value != "true":
        return ""
    words = [_policy(annotations, name)[1] for name in ("locked_msg", "locked_user")]
    said = " by ".join(filter(None, (words[0], words[1])))
    return f"{key}: true" + (f" ({said})" if said else "")


def _filter(
    annotations: Mapping[str, str], one: Container, entry: Entry, flaws: list[Flaw], held: str
) -> Policy | None:
    """The policy of an image's tag filter. A broken one is a flaw, of a locked release only a warning."""
    key, value = _policy(annotations, f"tag.{one.name}")
    try:
        return filter_policy(value if key else "glob:*")
    except Malformed as error:
        severity = "warning" if held else "error"
        flaws.append(Flaw(entry.text, entry, key, value, f"{key}: {error.message}", error.hint, severity=severity))
        return Policy() if held else None


def filter_policy(text: str) -> Policy:
    """The Policy of `semver:<range>`, `glob:<glob>` (or a glob alone), `regex:<RE2>` or `regexp:<RE2>`.

    What no version orders, Flux orders by the time of the build. Raises `Malformed`.
    """
    kind, colon, pattern = text.partition(":")
    if colon and kind == "semver":
        parse_range(pattern)
        return Policy("semver", (pattern.strip(),) if pattern.strip() else ())
    if colon and kind in ("regex", "regexp"):
        return Policy("newest-build", allow=allow_pattern(f"regexp:{pattern}") or None)
    glob = pattern if colon and kind == "glob" else text
    return Policy("newest-build", allow=None if glob.strip("*") == "" and glob else glob_pattern(glob))


def glob_pattern(glob: str) -> str:
    """The RE2 pattern of a Flux glob: only `*` is special, and takes anything (github.com/ryanuber/go-glob)."""
    return r"(?s)\A" + ".*".join(map(re.escape, re.split(r"\*+", glob))) + r"\z"


def _entry(one: Container) -> Entry:
    """The image as an entry of an image-list would name it."""
    image = one.image._replace(tag="", digest="")
    return Entry(one.name, image, "", f"{one.name}={image.name}")


def _containers(
    values: Mapping[str, Any], annotations: Mapping[str, str]
) -> tuple[tuple[Container, ...], tuple[Flaw, ...]]:
    """The images in the values by Flux's rules, each once; those that annotations map win."""
    found = {TOP: top} if (top := _container(TOP, values, "")) else {}
    for key, value in values.items():
        if one := _container(key, _expanded(value), _escaped(key)):
            found[key] = one
    mapped, flaws = _mapped(values, annotations)
    return tuple((found | mapped).values()), flaws


def _container(name: str, holder: Mapping[str, Any], path: str) -> Container | None:
    """The image of a mapping: `image: {repository, tag}`, or `image` with or without `tag`; `registry` beside."""
    said = holder.get("image")
    if isinstance(said, str):
        image = _image(said, holder)
        return Container(name, image, path or TOP) if image else None
    inner = _expanded(said)
    if not isinstance(inner.get("repository"), str):
        return None
    image = _image(inner["repository"], inner)
    if image is None:
        return None
    # A whole reference in `repository` is rewritten there, as Flux does.
    whole = "tag" not in inner and (image.tag or image.digest)
    deep = f"{path}.image.repository".lstrip(".") if whole else path
    return Container(name, image, deep or TOP)


def _image(text: str, beside: Mapping[str, Any]) -> Image | None:
    """The image of a text, with the registry and the tag that stand beside it. None: the text is no reference."""
    image = live_image(text)
    registry, tag = beside.get("registry"), beside.get("tag")
    if image and isinstance(registry, str) and registry.strip("/ "):
        path = image.name if image.registry == "docker.io" and "." not in image.name.partition("/")[0] else ""
        path = path or image.repository
        image = live_image(f"{registry.strip('/ ')}/{path}{text[len(image.name) :]}")
    return image._replace(tag=tag) if image and isinstance(tag, str) and tag else image


def _mapped(values: Mapping[str, Any], annotations: Mapping[str, str]) -> tuple[dict[str, Container], tuple[Flaw, ...]]:
    """The images whose keys annotations name: `repository.fluxcd.io/<container>: path`, and `tag…`, `registry…`."""
    found: dict[str, Container] = {}
    flaws = []
    for key, where in annotations.items():
        if not key.startswith(MAPPED[0]):
            continue
        name = key.removeprefix(MAPPED[0])
        tag, registry = (annotations.get(prefix + name, "") for prefix in MAPPED[1:])
        beside = {"tag": _at(values, tag), "registry": _at(values, registry)}
        image = _image(repository, beside) if isinstance(repository := _at(values, where), str) else None
        path = _common(where, tag)
        if image is None or (tag and not isinstance(beside["tag"], str)):
            flaws.append(_warned(key, where, "spec.values has no image there", "name a key path below spec.values"))
        elif path is None:
            entry = _entry(Container(name, image, ""))
            message = f"{key}: {where} and {tag} do not stand side by side as repository (or image) and tag"
            hint = "keep the two keys in one mapping, as repository and tag"
            flaws.append(Flaw(entry.text, entry, key, where, message, hint))
            found.pop(name, None)
        else:
            found[name] = Container(name, image, path or TOP)
    return found, tuple(flaws)


def _common(repository: str, tag: str) -> str | None:
    """The path of the mapping that holds both keys; with no tag key the repository's own. None: there is none."""
    if not tag:
        return repository
    one, other = repository.rpartition("."), tag.rpartition(".")
    return one[0] if one[0] == other[0] and one[2] in ("repository", "image") and other[2] == "tag" else None


def _at(values: Mapping[str, Any], path: str) -> object:
    """What stands at a dotted path; None where nothing does."""
    place: object = values
    for step in path.split("."):
        place = _expanded(place).get(step)
    return place


def _values(item: Mapping[str, Any]) -> dict[str, Any]:
    return _expanded(_mapping(item.get("spec")).get("values"))


def _expanded(value: object) -> dict[str, Any]:
    """A mapping with what its merge keys (`<<`) bring in; {} for anything else. No alias is followed twice."""
    found: dict[str, Any] = {}
    queue, seen = [value], set[int]()
    while queue:
        one = queue.pop(0)
        if isinstance(one, list):
            queue = [*one, *queue]
        elif isinstance(one, Mapping) and id(one) not in seen:
            seen.add(id(one))
            found = {**{str(k): v for k, v in one.items() if k != "<<"}, **found}
            queue.append(one.get("<<"))
    return found if isinstance(value, Mapping) else {}


def _escaped(key: str) -> str:
    """A key as one step of a path."""
    return key.replace(".", "\\.")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
