"""Turns the annotations of a Flux v1 `HelmRelease` (Helm Operator) into Subscriptions.

Flux v1.21 reads policies under `fluxcd.io/` and `flux.weave.works/`, and tag filters also under
`filter.fluxcd.io/`. The images are the ones that Flux's `FindHelmReleaseContainers` finds: one at
the top level of the values, one below each top-level key, and any whose keys are set in
annotations. A broken filter is an error here; Flux accepted any tag.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from task.errors import Malformed, Trouble
from task.image import live_image, split_registry
from task.model import Entry, Flaw, Image, Keys, Policy, Source, Subscribed, Subscription, Tracker
from task.plain_data import mapping, text, value_at
from task.policy.tag_filter import allow_pattern, check_length, compiled
from task.policy.version_range import parse_range

GROUPS = ("helm.fluxcd.io/", "flux.weave.works/")
PREFIXES = ("fluxcd.io/", "flux.weave.works/")  # the first one that is set wins
FILTER = "filter.fluxcd.io/"


def is_helm_release(item: object) -> bool:
    """Return whether a manifest is a Flux v1 HelmRelease.

    In Flux v2, the group is `helm.toolkit.fluxcd.io`.
    """
    return text(item, "kind") == "HelmRelease" and text(item, "apiVersion").startswith(GROUPS)


def subscribe_helm_release(
    item: Mapping[str, Any],
    origin: str,
    repo: str,
    branch: str,
    path: str,
) -> Subscribed:
    """Return one Subscription for each image in `spec.values` that Flux would update,
    and the release's flaws.

    `repo`, `branch` ("" means the default branch), and `path` are the manifest's location in Git.
    Without a `repo`, every image gets a `source` flaw. A release that is not `automated`, or that
    has `ignore` set, gets no Subscriptions. In those of a locked release, `locked` says why.
    """
    annotations = _annotations(item)
    source = Source(repo, posixpath.dirname(path), branch, kind="Helm")
    release = _release(item, source, origin)
    flaws = _switch_flaws(annotations)
    automated = _policy(annotations, "automated")[1] == "true"
    if not automated or _policy(annotations, "ignore")[1] == "true":
        return Subscribed(release, (), tuple(flaws))
    values = mapping(item, "spec", "values")
    named = [key.removeprefix(MAPPED[0]) for key in annotations if key.startswith(MAPPED[0])]
    mapped = {name: _mapped_image(name, values, annotations) for name in named}
    images = containers(values, mapped)
    flaws += _unknown_containers(annotations, images)
    for name, container in mapped.items():
        if container is None:
            key = f"{MAPPED[0]}{name}"
            hint = "use a key path below spec.values"
            message = "spec.values has no image at this path"
            flaws.append(_warned(key, annotations[key], message, hint))
    release = replace(release, live=tuple(container.image.reference for container in images))
    locked = _why_locked(annotations)
    subscriptions = []
    for container in images:
        image = replace(container.image, tag="", digest="")
        entry = Entry(container.name, image, "", f"{container.name}={image.name}")
        policy, wrong = _filter_of(entry, annotations)
        if wrong:
            flaws.append(replace(wrong, trouble=wrong.trouble.as_warning()) if locked else wrong)
        if placeless := _without_place(entry, container, repo, path):
            flaws.append(placeless)
        elif not wrong or locked:
            subscriptions.append(
                Subscription(
                    application=release,
                    entry=entry,
                    policy=policy,
                    keys=Keys(tag=container.path),
                    source=source,
                    target="flux",
                    path=path,
                    repo=source.repo,
                    base=source.revision,
                    home=posixpath.dirname(path),
                    locked=locked,
                )
            )
    return Subscribed(release, tuple(subscriptions), tuple(flaws))


def _annotations(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the release's annotations. As in Flux, an unquoted `true` is treated as text."""
    found = {}
    for key, value in mapping(item, "metadata", "annotations").items():
        if isinstance(value, bool):
            found[str(key)] = str(value).lower()
        elif isinstance(value, str):
            found[str(key)] = value.strip()
    return found


def _release(item: Mapping[str, Any], source: Source, origin: str) -> Tracker:
    """Return the HelmRelease as an Application, without its running images."""
    metadata = mapping(item, "metadata")
    labels = mapping(metadata, "labels")
    return Tracker(
        namespace=str(metadata.get("namespace") or "") or "default",
        name=str(metadata.get("name") or ""),
        sources=(source,),
        labels={key: value for key, value in labels.items() if isinstance(value, str)},
        origin=origin,
    )


def _switch_flaws(annotations: Mapping[str, str]) -> list[Flaw]:
    """Return a warning for each switch that is neither true nor false. Flux treats it as off."""
    flaws = []
    for name in ("automated", "locked"):
        key, value = _policy(annotations, name)
        if key and value not in ("true", "false"):
            message = f"{value!r} is not true, so it is treated as false"
            flaws.append(_warned(key, value, message, f'set {key}: "true"'))
    return flaws


def _filter_of(entry: Entry, annotations: Mapping[str, str]) -> tuple[Policy, Flaw | None]:
    """Return the rules for an image's tags, or the default rules and a flaw if the annotation is
    invalid.
    """
    key, value = _policy(annotations, f"tag.{entry.alias}")
    try:
        return filter_policy(value if key else "glob:*"), None
    except Malformed as error:
        message = f"{key}: {error.message}"
        return Policy(), Flaw(
            entry.text,
            entry,
            key,
            value,
            Trouble("annotation", message, error.hint),
        )


def _without_place(entry: Entry, container: Container, repo: str, path: str) -> Flaw | None:
    """Return the reason the image's version cannot be written, or None if it can be."""
    if not repo:
        manifest = path or "the manifest"
        message = f"{manifest} is not in a Git work tree with an origin and a commit"
        hint = "clone the repository with git, or pass --applications REPO//PATH"
        return Flaw(entry.text, entry, "", "", Trouble("source", message, hint))
    if not container.path:
        key = f"repository.fluxcd.io/{entry.alias}"
        message = (
            f"{key}: repository and tag are not in the same mapping, or another image uses that"
            " mapping too"
        )
        hint = "put repository and tag in a separate mapping for this image"
        return Flaw(entry.text, entry, key, "", Trouble("annotation", message, hint))
    return None


def _policy(annotations: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return a policy's (key, value), or ("", "") if no annotation sets it."""
    keys = [prefix + name for prefix in PREFIXES]
    keys += [FILTER + name.removeprefix("tag.")] if name.startswith("tag.") else []
    return next(((key, annotations[key]) for key in keys if key in annotations), ("", ""))


def _why_locked(annotations: Mapping[str, str]) -> str:
    """Return why an automated release is not updated, or "" if it is not locked."""
    key, value = _policy(annotations, "locked")
    if value != "true":
        return ""
    words = [_policy(annotations, key)[1] for key in ("locked_msg", "locked_user")]
    return f"{key}: true" + (f" ({' by '.join(filter(None, words))})" if any(words) else "")


def _unknown_containers(
    annotations: Mapping[str, str],
    containers: tuple[Container, ...],
) -> Iterator[Flaw]:
    known = {container.name for container in containers}
    for key, value in annotations.items():
        for prefix in (*(f"{prefix}tag." for prefix in PREFIXES), FILTER):
            name = key.removeprefix(prefix)
            if name != key and name not in known:
                hint = f"available images: {', '.join(sorted(known)) or 'none'}"
                yield _warned(key, value, f"spec.values has no image {name!r}", hint)


def _warned(key: str, value: str, message: str, hint: str) -> Flaw:
    return Flaw("", None, key, value, Trouble.warning("annotation", f"{key}: {message}", hint))


def filter_policy(text: str) -> Policy:
    """Return the Policy for `semver:<range>`, `glob:<glob>` (or a glob alone),
    `regex:<RE2>` or `regexp:<RE2>`.

    Without a version range, Flux orders tags by build time. Raises `Malformed`.
    """
    kind, colon, pattern = text.partition(":")
    if colon and kind == "semver":
        parse_range(pattern)
        return Policy("semver", tuple(filter(None, (pattern.strip(),))))
    if colon and kind in ("regex", "regexp"):
        return Policy("newest-build", allow=allow_pattern(f"regexp:{pattern}") or None)
    glob = pattern if colon and kind == "glob" else text
    check_length(glob)
    if not glob:
        raise Malformed(
            "the filter is empty, so no tag matches",
            "use glob:*, semver:<range>, or regexp:<pattern>",
        )
    if not glob.strip("*"):
        return Policy("newest-build")
    pattern = glob_pattern(glob)
    compiled(pattern)
    return Policy("newest-build", allow=pattern)


def glob_pattern(glob: str) -> str:
    """Return the RE2 pattern for a Flux glob.

    Flux v1 used github.com/ryanuber/go-glob, in which only `*` is special.
    """
    return r"(?s)\A" + ".*".join(map(re.escape, re.split(r"\*+", glob))) + r"\z"


MAPPED = ("repository.fluxcd.io/", "tag.fluxcd.io/", "registry.fluxcd.io/")
TOP = "chart-image"  # Flux's name for the image at the top level of the values


@dataclass(frozen=True)
class Container:
    """An image in the values, with Flux's name for it and the editor's key path."""

    name: str
    image: Image
    path: str  # below `spec.values`; "chart-image": the top level; "" if the editor cannot write it


def containers(
    values: Mapping[str, Any],
    mapped: Mapping[str, Container | None],
) -> tuple[Container, ...]:
    """Return the images in the values, one for each name.

    An image mapped by annotations (`mapped`) wins over an image with the same name in the usual
    place.
    """
    named = ((str(key), mapping(value)) for key, value in values.items())
    usual = (
        _container(TOP, values, ""),
        *(_container(key, value, key.replace(".", "\\.")) for key, value in named),
    )
    return tuple(
        {
            container.name: container for container in (*usual, *mapped.values()) if container
        }.values()
    )


def _container(name: str, holder: Mapping[str, Any], path: str) -> Container | None:
    """Return the image in a mapping, or None.

    The form is `image: {repository, tag}`, or `image` with an optional `tag` and an optional
    `registry`.
    """
    raw = holder.get("image")
    inner = {} if isinstance(raw, str) else mapping(raw)
    image = _image(raw, holder) if isinstance(raw, str) else _image(inner.get("repository"), inner)
    if image is None:
        return None
    # Like Flux, rewrite a whole reference in `repository` in place.
    if inner and not isinstance(inner.get("tag"), str) and image.version:
        path = f"{path}.image.repository".lstrip(".")
    return Container(name, image, path or TOP)


def _image(text: object, beside: Mapping[str, Any]) -> Image | None:
    """Return the image that a value refers to, with the registry and tag from sibling keys, or None
    if the value is not a reference.
    """
    image = live_image(text) if isinstance(text, str) else None
    if image is None:
        return None
    registry = beside.get("registry")
    tag = beside.get("tag")
    if isinstance(registry, str) and registry.strip("/ "):
        whole = live_image(f"{registry.strip('/ ')}/{split_registry(image.name)[1]}")
        image = whole and replace(whole, tag=image.tag, digest=image.digest)
    return replace(image, tag=tag) if image and isinstance(tag, str) and tag else image


def _mapped_image(
    name: str,
    values: Mapping[str, Any],
    annotations: Mapping[str, str],
) -> Container | None:
    """Return the image at the keys in `repository.fluxcd.io/<name>: path`, `tag…` and `registry…`,
    or None.
    """
    where, tag, registry = (annotations.get(prefix + name, "") for prefix in MAPPED)
    beside = {"tag": _value_at(values, tag), "registry": _value_at(values, registry)}
    image = _image(_value_at(values, where), beside)
    if image is None or any(
        path and not isinstance(_value_at(values, path), str) for path in (tag, registry)
    ):
        return None
    return Container(name, image, _common_mapping(values, where, tag))


def _common_mapping(values: Mapping[str, Any], repository: str, tag: str) -> str:
    """Return the path of the mapping that has both keys, or "" if there is none.

    Without a tag key, return the repository's own path.
    """
    if not tag:
        return repository
    folder, _, name_key = repository.rpartition(".")
    tag_folder, _, tag_key = tag.rpartition(".")
    if folder != tag_folder or name_key not in ("repository", "image") or tag_key != "tag":
        return ""
    holder = mapping(values, *folder.split(".")) if folder else values
    # If there is also an `image`, the editor would use that as the mapping's image.
    return "" if name_key == "repository" and "image" in holder else folder or TOP


def _value_at(values: Mapping[str, Any], path: str) -> object:
    """Return the value at a dotted path, or None if there is none."""
    return value_at(values, *path.split("."))
