"""Turns the annotations of a Flux v1 `HelmRelease` (Helm Operator) into Subscriptions.

Flux v1.21 reads policies under `fluxcd.io/` and `flux.weave.works/`, and tag filters also under
`filter.fluxcd.io/`. The images are the ones that Flux's `FindHelmReleaseContainers` finds: one at
the top level of the values, one below each top-level key, and any whose paths are set by
annotations. A broken filter is an error here, whereas in Flux it accepts any tag.
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
    and the flaws (mistakes) in the release's annotations.

    `repo`, `branch` ("" means the default branch), and `path` are the manifest's location in Git.
    Without a `repo`, there is a `source` flaw instead of a Subscription for each image. A release
    that is not `automated`, or that has `ignore` set, has no Subscriptions. If the release is
    locked, the `locked` field of its Subscriptions contains the reason.
    """
    annotations = _annotations(item)
    folder = posixpath.dirname(path)
    source = Source(repo, folder, branch, kind="Helm")
    release = _release(item, source, origin)
    flaws = _switch_flaws(annotations)
    _, automated = _policy_annotation(annotations, "automated")
    _, ignored = _policy_annotation(annotations, "ignore")
    is_updated_by_flux = automated == "true" and ignored != "true"
    if not is_updated_by_flux:
        return Subscribed(release, (), tuple(flaws))

    values = mapping(item, "spec", "values")
    # The images whose paths are set by annotations. `images` contains these and the usual ones.
    mapped_images = _mapped_images(values, annotations)
    images = containers(values, mapped_images)
    flaws += _unknown_image_flaws(annotations, images)
    flaws += _missing_image_flaws(annotations, mapped_images)
    # A release's status does not list images, so those in the manifest count as running.
    release = replace(release, live=tuple(container.image.reference for container in images))

    locked = _why_locked(annotations)
    subscriptions = []
    for container in images:
        image = replace(container.image, tag="", digest="")
        entry = Entry(
            container.name,
            image,
            constraint="",
            text=f"{container.name}={image.name}",
        )
        policy, filter_flaw = _filter_of(entry, annotations)
        if filter_flaw:
            # A locked release is not updated, so its filter does not matter for now.
            trouble = filter_flaw.trouble.as_warning() if locked else filter_flaw.trouble
            flaws.append(replace(filter_flaw, trouble=trouble))
        unwritable = _unwritable_flaw(entry, container, repo, path)
        if unwritable:
            flaws.append(unwritable)
            continue
        if filter_flaw and not locked:  # a broken filter must not let a tag through
            continue
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
                home=folder,
                locked=locked,
            )
        )
    return Subscribed(release, tuple(subscriptions), tuple(flaws))


def _annotations(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the release's annotations. As in Flux, an unquoted `true` is treated as text."""
    annotations = {}
    for key, value in mapping(item, "metadata", "annotations").items():
        if isinstance(value, bool):
            annotations[str(key)] = str(value).lower()
        elif isinstance(value, str):
            annotations[str(key)] = value.strip()
    return annotations


def _release(item: Mapping[str, Any], source: Source, origin: str) -> Tracker:
    """Return the HelmRelease as an Application, with no running images set."""
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
    """Return a warning for each switch (`automated`, `locked`) that is neither true nor false.

    Flux treats such a switch as off.
    """
    flaws = []
    for name in ("automated", "locked"):
        key, value = _policy_annotation(annotations, name)
        if key and value not in ("true", "false"):
            message = f"{value!r} is not true, so it is treated as false"
            flaws.append(_annotation_warning(key, value, message, f'set {key}: "true"'))
    return flaws


def _filter_of(entry: Entry, annotations: Mapping[str, str]) -> tuple[Policy, Flaw | None]:
    """Return the tag rules for an image. If the filter annotation is invalid, return the default
    rules and a flaw.

    Without a filter annotation, the rules accept every tag.
    """
    key, value = _policy_annotation(annotations, f"tag.{entry.alias}")
    tag_filter = value if key else "glob:*"
    try:
        return filter_policy(tag_filter), None
    except Malformed as error:
        message = f"{key}: {error.message}"
        trouble = Trouble("annotation", message, error.hint)
        return Policy(), Flaw(text=entry.text, entry=entry, key=key, value=value, trouble=trouble)


def _unwritable_flaw(entry: Entry, container: Container, repo: str, path: str) -> Flaw | None:
    """Return a flaw if the image's version cannot be written, or else None.

    `repo` and `path` are the manifest's location in Git. `repo` is "" if the manifest is not in a
    Git repository.
    """
    if not repo:
        manifest = path or "the manifest"
        message = f"{manifest} is not in a Git work tree with an origin and a commit"
        hint = "clone the repository with git, or pass --applications REPO//PATH"
        return Flaw(
            text=entry.text,
            entry=entry,
            key="",
            value="",
            trouble=Trouble("source", message, hint),
        )
    if not container.path:
        key = f"repository.fluxcd.io/{entry.alias}"
        message = (
            f"{key}: repository and tag are not in the same mapping, or another image uses that"
            " mapping too"
        )
        hint = "put repository and tag in a separate mapping for this image"
        return Flaw(
            text=entry.text,
            entry=entry,
            key=key,
            value="",
            trouble=Trouble("annotation", message, hint),
        )
    return None


def _policy_annotation(annotations: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the key and value of the annotation that sets a Flux policy, such as `automated`.
    Return ("", "") if no annotation sets it.
    """
    keys = [prefix + name for prefix in PREFIXES]
    if name.startswith("tag."):
        keys.append(FILTER + name.removeprefix("tag."))
    for key in keys:
        if key in annotations:
            return key, annotations[key]
    return "", ""


def _why_locked(annotations: Mapping[str, str]) -> str:
    """Return why an automated release is not updated, or "" if it is not locked."""
    key, value = _policy_annotation(annotations, "locked")
    if value != "true":
        return ""
    _, message = _policy_annotation(annotations, "locked_msg")
    _, user = _policy_annotation(annotations, "locked_user")
    details = " by ".join(part for part in (message, user) if part)
    return f"{key}: true ({details})" if details else f"{key}: true"


def _unknown_image_flaws(
    annotations: Mapping[str, str],
    containers: tuple[Container, ...],
) -> Iterator[Flaw]:
    """Yield a warning for each tag filter annotation whose image is not in the values."""
    names_in_values = {container.name for container in containers}
    filter_prefixes = [*(f"{prefix}tag." for prefix in PREFIXES), FILTER]
    for key, value in annotations.items():
        for prefix in filter_prefixes:
            if not key.startswith(prefix):
                continue
            name = key.removeprefix(prefix)
            if name not in names_in_values:
                hint = f"available images: {', '.join(sorted(names_in_values)) or 'none'}"
                yield _annotation_warning(key, value, f"spec.values has no image {name!r}", hint)


def _missing_image_flaws(
    annotations: Mapping[str, str],
    mapped: Mapping[str, Container | None],
) -> Iterator[Flaw]:
    """Yield a warning for each annotation that sets an image's path, if there is no image at that
    path in the values.

    `mapped` contains the images whose paths are set by annotations, keyed by name. A missing image
    is None.
    """
    for name, container in mapped.items():
        if container is None:
            key = f"{REPOSITORY_KEY}{name}"
            hint = "use a key path below spec.values"
            message = "spec.values has no image at this path"
            yield _annotation_warning(key, annotations[key], message, hint)


def _annotation_warning(key: str, value: str, message: str, hint: str) -> Flaw:
    """Return a warning about an annotation."""
    return Flaw(
        text="",
        entry=None,
        key=key,
        value=value,
        trouble=Trouble.warning("annotation", f"{key}: {message}", hint),
    )


def filter_policy(text: str) -> Policy:
    """Return the Policy for a Flux tag filter: `semver:<range>`, `glob:<glob>` (or a glob alone),
    `regex:<RE2>`, or `regexp:<RE2>`. Raises `Malformed`.

    Without a version range, Flux orders tags by build time.
    """
    prefix, colon, pattern = text.partition(":")
    kind = prefix if colon else ""
    if kind == "semver":
        parse_range(pattern)  # raises `Malformed`
        version_range = pattern.strip()
        return Policy("semver", constraints=(version_range,) if version_range else ())
    if kind in ("regex", "regexp"):
        return Policy("newest-build", allow=allow_pattern(f"regexp:{pattern}") or None)
    glob = pattern if kind == "glob" else text
    check_length(glob)  # raises `Malformed`
    if not glob:
        raise Malformed(
            "the filter is empty, so no tag matches",
            "use glob:*, semver:<range>, or regexp:<pattern>",
        )
    matches_every_tag = not glob.strip("*")
    if matches_every_tag:
        return Policy("newest-build")
    regexp = glob_pattern(glob)
    compiled(regexp)  # raises `Malformed`
    return Policy("newest-build", allow=regexp)


def glob_pattern(glob: str) -> str:
    """Return the RE2 pattern for a Flux glob.

    Flux v1 used github.com/ryanuber/go-glob, in which only `*` is special.
    """
    literals = [re.escape(literal) for literal in re.split(r"\*+", glob)]
    return r"(?s)\A" + ".*".join(literals) + r"\z"


# Prefixes of the annotation keys that set an image's paths in the values. The image's name follows
# the prefix.
REPOSITORY_KEY = "repository.fluxcd.io/"
TAG_KEY = "tag.fluxcd.io/"
REGISTRY_KEY = "registry.fluxcd.io/"
TOP = "chart-image"  # Flux's name for the image at the top level of the values


@dataclass(frozen=True)
class Container:
    """An image in the values, with Flux's name for it and the key path that the editor uses."""

    name: str
    image: Image
    path: str  # below `spec.values`; "chart-image": the top level; "" if the editor cannot write it


def containers(
    values: Mapping[str, Any],
    mapped: Mapping[str, Container | None],
) -> tuple[Container, ...]:
    """Return the images in the values, one per name.

    The usual places are the top level and each top-level key. An image whose path is set by
    annotations (`mapped`) takes precedence over an image with the same name in a usual place.
    """
    possible = [_container(TOP, values, "")]
    for key, value in values.items():
        name = str(key)
        escaped_name = name.replace(".", "\\.")  # a dot would separate two keys of the path
        possible.append(_container(name, mapping(value), escaped_name))
    possible += mapped.values()
    # the last one wins
    by_name = {container.name: container for container in possible if container}
    return tuple(by_name.values())


def _container(name: str, holder: Mapping[str, Any], path: str) -> Container | None:
    """Return the image in a mapping of the values, or None if there is none.

    The mapping (`holder`) contains `image: {repository, tag}`, or a string at `image`, with an
    optional `tag` and an optional `registry` next to it. `path` is the mapping's key path, or ""
    for the top level.
    """
    raw = holder.get("image")
    if isinstance(raw, str):
        image = _image(raw, holder)
        return Container(name, image, path or TOP) if image else None
    fields = mapping(raw)
    image = _image(fields.get("repository"), fields)
    if image is None:
        return None
    # Like Flux, rewrite a whole reference in `repository`, such as `nginx:1.2`, in place.
    has_own_tag = isinstance(fields.get("tag"), str)
    if image.version and not has_own_tag:
        path = f"{path}.image.repository".lstrip(".")
    return Container(name, image, path or TOP)


def _image(text: object, siblings: Mapping[str, Any]) -> Image | None:
    """Return the image that a value refers to, or None if the value is not a reference.

    `siblings` is the mapping that contains the value. A `registry` or `tag` in this mapping
    replaces the one in the reference.
    """
    image = live_image(text) if isinstance(text, str) else None
    if image is None:
        return None

    registry = siblings.get("registry")
    host = registry.strip("/ ") if isinstance(registry, str) else ""
    if host:
        _, path = split_registry(image.name)
        image_at_host = live_image(f"{host}/{path}")
        if image_at_host is None:
            return None
        image = replace(image_at_host, tag=image.tag, digest=image.digest)

    tag = siblings.get("tag")
    if isinstance(tag, str) and tag:
        image = replace(image, tag=tag)
    return image


def _mapped_images(
    values: Mapping[str, Any],
    annotations: Mapping[str, str],
) -> dict[str, Container | None]:
    """Return the images whose paths in the values are set by annotations, keyed by name.

    If there is no image at its path, an image is None.
    """
    names = [
        key.removeprefix(REPOSITORY_KEY) for key in annotations if key.startswith(REPOSITORY_KEY)
    ]
    return {name: _mapped_image(name, values, annotations) for name in names}


def _mapped_image(
    name: str,
    values: Mapping[str, Any],
    annotations: Mapping[str, str],
) -> Container | None:
    """Return the image whose paths in the values are set by the annotations
    `repository.fluxcd.io/<name>`, `tag.fluxcd.io/<name>`, and `registry.fluxcd.io/<name>`.

    Returns None if there is no value at one of these paths.
    """
    repository_path = annotations.get(REPOSITORY_KEY + name, "")
    tag_path = annotations.get(TAG_KEY + name, "")
    registry_path = annotations.get(REGISTRY_KEY + name, "")
    tag = _value_at(values, tag_path)
    registry = _value_at(values, registry_path)
    if tag_path and not isinstance(tag, str):
        return None
    if registry_path and not isinstance(registry, str):
        return None
    siblings = {"tag": tag, "registry": registry}
    image = _image(_value_at(values, repository_path), siblings)
    if image is None:
        return None
    return Container(name, image, _common_mapping(values, repository_path, tag_path))


def _common_mapping(values: Mapping[str, Any], repository: str, tag: str) -> str:
    """Return the path of the mapping that contains both an image's `repository` (or `image`) and
    its `tag`, or "" if there is no such mapping that the editor can update.

    `repository` and `tag` are the paths of the two values, such as `web.image.tag`. If `tag` is "",
    returns the path of the repository.
    """
    if not tag:
        return repository
    parent, _, repository_key = repository.rpartition(".")
    tag_parent, _, tag_key = tag.rpartition(".")
    has_usual_keys = repository_key in ("repository", "image") and tag_key == "tag"
    if tag_parent != parent or not has_usual_keys:
        return ""
    common_mapping = mapping(values, *parent.split(".")) if parent else values
    if repository_key == "repository" and "image" in common_mapping:
        return ""  # otherwise, the editor would treat `image` as the mapping's image
    return parent or TOP


def _value_at(values: Mapping[str, Any], path: str) -> object:
    """Return the value at a dotted path, or None if there is none."""
    return value_at(values, *path.split("."))
