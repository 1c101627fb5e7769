"""Turns a Flux v1 `HelmRelease` (Helm Operator) into the Subscriptions that its annotations ask for.

Flux v1.21 reads policies under `fluxcd.io/` and `flux.weave.works/`, and tag filters also under `filter.fluxcd.io/`.
Images are those that its `FindHelmReleaseContainers` finds. A broken filter is an error here, while Flux took any tag.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from task.annotations.flux_images import Container, containers, unmapped
from task.errors import Malformed
from task.model import Entry, Flaw, HelmRelease, Keys, Policy, Source, Subscribed, Subscription
from task.plain_data import mapping
from task.policy.tag_filter import allow_pattern, check_length, check_pattern
from task.policy.version_range import parse_range

GROUPS = ("helm.fluxcd.io/", "flux.weave.works/")
PREFIXES = ("fluxcd.io/", "flux.weave.works/")  # the first one wins
FILTER = "filter.fluxcd.io/"


def is_helm_release(item: object) -> bool:
    """Tell whether a manifest is a HelmRelease of Flux v1. Those of Flux v2 have the group `helm.toolkit.fluxcd.io`."""
    return (
        isinstance(item, Mapping)
        and item.get("kind") == "HelmRelease"
        and str(item.get("apiVersion", "")).startswith(GROUPS)
    )


def subscribe_helm_release(item: Mapping[str, Any], origin: str, repo: str, branch: str, path: str) -> Subscribed:
    """Return one Subscription for each image in `spec.values` that Flux would update, and the release's flaws.

    `repo`, `branch` ("" is the default branch) and `path` say where the manifest is in Git. Without a `repo`, every
    image gets a `source` flaw. A release that is not `automated`, or that Flux has to `ignore`, has no Subscriptions.
    Those of a `locked` release are `suspended`.
    """
    metadata = mapping(item.get("metadata"))
    annotations = {
        str(key): str(value).lower() if isinstance(value, bool) else value.strip()  # an unquoted `true` counts as text
        for key, value in mapping(metadata.get("annotations")).items()
        if isinstance(value, (str, bool))
    }
    release = HelmRelease(
        namespace=str(metadata.get("namespace") or "") or "default",
        name=str(metadata.get("name") or ""),
        sources=(source := Source(repo, posixpath.dirname(path), branch, kind="Helm"),),
        labels={k: v for k, v in mapping(metadata.get("labels")).items() if isinstance(v, str)},
        origin=origin,
    )
    flaws = []
    for name in ("automated", "locked"):  # for Flux, any word but `true` means off
        key, value = _policy(annotations, name)
        if key and value not in ("true", "false"):
            flaws.append(_warned(key, value, f"{value!r} is not true: it counts as false", f'write {key}: "true"'))
    if _policy(annotations, "automated")[1] != "true" or _policy(annotations, "ignore")[1] == "true":
        return Subscribed(release, (), tuple(flaws))
    values = mapping(mapping(item.get("spec")).get("values"))
    images = containers(values, annotations)
    flaws += _unknown_containers(annotations, images)
    flaws += [_warned(*words) for words in unmapped(values, annotations)]
    release = replace(release, live=tuple(container.image.reference for container in images))
    held = ""
    key, value = _policy(annotations, "locked")
    if value == "true":  # a locked release does not change, although it is automated
        words = [_policy(annotations, name)[1] for name in ("locked_msg", "locked_user")]
        held = f"{key}: true" + (f" ({' by '.join(filter(None, words))})" if any(words) else "")
    subscriptions = []
    for container in images:
        entry = Entry(container.name, container.bare, "", f"{container.name}={container.image.name}")
        key, value = _policy(annotations, f"tag.{container.name}")
        try:
            policy: Policy | None = filter_policy(value if key else "glob:*")
        except Malformed as error:
            flaw = Flaw(entry.text, entry, key, value, f"{key}: {error.message}", error.hint)
            flaws.append(replace(flaw, severity="warning") if held else flaw)
            policy = Policy() if held else None
        if not repo:
            message = f"{path or 'the manifest'} is not in a Git work tree with an origin and a commit"
            hint = "clone the repository with git, or give --applications REPO//PATH"
            flaws.append(Flaw(entry.text, entry, "", "", message, hint, rule="source"))
        elif not container.path:
            key = f"repository.fluxcd.io/{entry.alias}"
            message = f"{key}: repository and tag are not next to each other, or are next to another image"
            hint = "keep the two keys in one mapping of their own, as repository and tag"
            flaws.append(Flaw(entry.text, entry, key, "", message, hint))
        elif policy is not None:
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
                    suspended=held,
                )
            )
    return Subscribed(release, tuple(subscriptions), tuple(flaws))


def _policy(annotations: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return (key, value) of a policy, or ("", "") if no annotation sets it."""
    keys = [prefix + name for prefix in PREFIXES]
    keys += [FILTER + name.removeprefix("tag.")] if name.startswith("tag.") else []
    return next(((key, annotations[key]) for key in keys if key in annotations), ("", ""))


def _unknown_containers(annotations: Mapping[str, str], containers: tuple[Container, ...]) -> Iterator[Flaw]:
    known = {container.name for container in containers}
    for key, value in annotations.items():
        for prefix in (*(f"{prefix}tag." for prefix in PREFIXES), FILTER):
            name = key.removeprefix(prefix)
            if name != key and name not in known:
                hint = f"name one of the images there: {', '.join(sorted(known)) or 'none'}"
                yield _warned(key, value, f"no image in spec.values is called {name!r}", hint)


def _warned(key: str, value: str, message: str, hint: str) -> Flaw:
    return Flaw("", None, key, value, f"{key}: {message}", hint, severity="warning")


def filter_policy(text: str) -> Policy:
    """Return the Policy for `semver:<range>`, `glob:<glob>` (or a glob alone), `regex:<RE2>` or `regexp:<RE2>`.

    Without a range of versions, Flux orders tags by build time. Raises `Malformed`.
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
        raise Malformed("the filter is empty, so no tag passes it", "write glob:*, semver:<range> or regexp:<pattern>")
    if not glob.strip("*"):
        return Policy("newest-build")
    pattern = glob_pattern(glob)
    check_pattern(pattern)
    return Policy("newest-build", allow=pattern)


def glob_pattern(glob: str) -> str:
    """Return the RE2 pattern for a Flux glob.

    Flux v1 used github.com/ryanuber/go-glob, in which only `*` is special.
    """
    return r"(?s)\A" + ".*".join(map(re.escape, re.split(r"\*+", glob))) + r"\z"
