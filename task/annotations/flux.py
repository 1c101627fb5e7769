"""Flux v1 `HelmRelease` (Helm Operator) → the Subscriptions that its annotations ask for.

What Flux v1.21 reads: policies under `fluxcd.io/` and `flux.weave.works/`, tag filters also under
`filter.fluxcd.io/`; images where its `FindHelmReleaseContainers` finds them. Where Flux takes any tag
because a filter is broken, this is an error.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from task.annotations.flux_images import Container, containers, expanded, unmapped
from task.errors import Malformed
from task.model import Application, Entry, Flaw, Keys, Policy, Source, Subscribed, Subscription
from task.policy.tag_filter import allow_pattern, check_length, check_pattern
from task.policy.version_range import parse_range

GROUPS = ("helm.fluxcd.io/", "flux.weave.works/")
PREFIXES = ("fluxcd.io/", "flux.weave.works/")  # the first one wins
FILTER = "filter.fluxcd.io/"


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
    values = expanded(_mapping(item.get("spec")).get("values"))
    found = containers(values, annotations)
    flaws += _nameless(annotations, found)
    flaws += [_warned(*words) for words in unmapped(values, annotations)]
    app = replace(app, live=tuple(one.image.reference for one in found))
    held, subscriptions = _held(annotations), []
    for one in found:
        entry = Entry(one.name, one.bare, "", f"{one.name}={one.image.name}")
        policy = _filter(annotations, one, entry, flaws, held)
        if not repo:
            flaws.append(_homeless(entry, path))
        elif not one.path:
            flaws.append(_spread(entry))
        elif policy is not None:
            subscriptions.append(replace(_subscription(app, entry, policy, one.path, path), held=held))
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
        home=posixpath.dirname(path),
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


def _spread(entry: Entry) -> Flaw:
    key = f"repository.fluxcd.io/{entry.alias}"
    message = f"{key}: repository and tag do not stand side by side, or beside another image"
    hint = "keep the two keys in one mapping of their own, as repository and tag"
    return Flaw(entry.text, entry, key, "", message, hint)


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
        flaw = Flaw(entry.text, entry, key, value, f"{key}: {error.message}", error.hint)
        flaws.append(replace(flaw, severity="warning") if held else flaw)
        return Policy() if held else None


def filter_policy(text: str) -> Policy:
    """The Policy of `semver:<range>`, `glob:<glob>` (or a glob alone), `regex:<RE2>` or `regexp:<RE2>`.

    What no version orders, Flux orders by the time of the build. Raises `Malformed`.
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
        raise Malformed("the filter is empty, which no tag passes", "write glob:*, semver:<range> or regexp:<pattern>")
    if not glob.strip("*"):
        return Policy("newest-build")
    pattern = glob_pattern(glob)
    check_pattern(pattern)
    return Policy("newest-build", allow=pattern)


def glob_pattern(glob: str) -> str:
    """The RE2 pattern of a Flux glob: only `*` is special, and takes anything (github.com/ryanuber/go-glob)."""
    return r"(?s)\A" + ".*".join(map(re.escape, re.split(r"\*+", glob))) + r"\z"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
