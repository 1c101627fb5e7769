"""Turns the settings of an `ImageUpdater`'s `applicationRef` into equivalent annotations.

An API server validates resources against the CRD's schema, but manifests in Git are not validated.
An image with invalid settings is skipped with a warning, so that a broken rule never lets a tag
through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from task.errors import Malformed
from task.image import parse_entry
from task.model import KeySecret
from task.text import nearest

ALIAS = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*")  # the CRD's pattern
UPDATE = {
    "updateStrategy": "update-strategy",
    "allowTags": "allow-tags",
    "ignoreTags": "ignore-tags",
    "pullSecret": "pull-secret",
    "forceUpdate": "force-update",
    "platforms": "platforms",
}
GIT = {
    "repository": "git-repository",
    "branch": "git-branch",
    "writeBackTarget": "write-back-target",
}
TARGETS = {
    "helm": {
        "name": "helm.image-name",
        "tag": "helm.image-tag",
        "spec": "helm.image-spec",
    },
    "kustomize": {"name": "kustomize.image-name"},
    "plugin": {
        "name": "plugin.image-name",
        "tag": "plugin.image-tag",
        "spec": "plugin.image-spec",
    },
}
# The field that sets each annotation.
FIELDS: Mapping[str, str] = {
    "image-list": "imageName",
    "write-back-method": "method",
    "pull-request": "pullRequest",
    **{name: field for field, name in (*UPDATE.items(), *GIT.items())},
    **{name: field for names in TARGETS.values() for field, name in names.items()},
}
MOST_LABELS = 100
LONGEST_LABEL = 255  # the CRD's limits
# Kubernetes reads manifests as YAML 1.1, in which `yes` and `on` are booleans.
_TRUE = frozenset(("true", "yes", "on", "y"))
_FALSE = frozenset(("false", "no", "off", "n"))


class UnknownFieldError(Malformed):
    """An unknown field that might determine whether an image is written.

    `unknown_fields` reports the field and its location.
    """


@dataclass(frozen=True)
class ReferenceSettings:
    """An `applicationRef`'s settings for its Applications, and the warnings about it."""

    annotations: Mapping[str, str] | None  # None: the Application's own annotations apply
    warnings: tuple[str, ...] = ()
    keys: Mapping[str, KeySecret] = field(default_factory=dict)  # by alias; "" means every image
    request_labels: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()  # settings that have a different meaning in a cluster


@dataclass(frozen=True)
class _Image:
    """An image in a resource: its `image-list` entry without the alias, and its settings."""

    entry: str
    annotations: Mapping[str, str]  # by key, without the alias
    signing_key: KeySecret | None  # None: no signature is required


@dataclass(frozen=True)
class _Images:
    """The images read so far, keyed by alias."""

    by_alias: dict[str, _Image]
    warnings: list[str]
    advice: list[str]


def reference_settings(
    spec: Mapping[str, Any],
    ref: Mapping[str, Any],
    namespace: str,
) -> ReferenceSettings:
    """Return the settings of a reference (an item in `applicationRefs`).

    They are merged from three levels: the resource's `spec`, the reference (`ref`), and each image.
    A later level wins. With `useAnnotations`, the result's `annotations` are None. If none of the
    images is usable, they are empty. `namespace` is the resource's namespace. An invalid setting
    becomes a warning, not an error.
    """
    images = _Images(by_alias={}, warnings=[], advice=[])
    try:
        if flag(ref, "useAnnotations"):
            # In this case, AIU ignores the reference's other settings. Its documentation does not
            # say whether this includes signatures. Here, a required signature is always checked.
            signing_key = _required_signing_key((ref, spec), namespace)
            return ReferenceSettings(None, keys={"": signing_key} if signing_key else {})
        write_back, labels = _write_back_annotations(spec, ref, images.warnings)
        raw_images = mappings(ref, "images")
    except UnknownFieldError:  # `unknown_fields` reports the field
        return ReferenceSettings({})
    except Malformed as error:
        return ReferenceSettings({}, (f"{error.message}, so nothing is updated",))

    for number, raw_image in enumerate(raw_images):
        try:
            _add_image(raw_image, (spec, ref), namespace, images)
        except UnknownFieldError:
            continue
        except Malformed as error:
            images.warnings.append(f"images[{number}] is skipped: {error.message}")
    if not images.by_alias:
        return ReferenceSettings({}, (*images.warnings, "no image is listed: nothing is updated"))

    entries = [f"{alias}={image.entry}" for alias, image in images.by_alias.items()]
    annotations = {"image-list": ", ".join(entries), **write_back}
    signing_keys = {}
    for alias, image in images.by_alias.items():
        for key, value in image.annotations.items():
            annotations[f"{alias}.{key}"] = value
        if image.signing_key:
            signing_keys[alias] = image.signing_key
    return ReferenceSettings(
        annotations=annotations,
        warnings=tuple(images.warnings),
        keys=signing_keys,
        request_labels=labels,
        advice=tuple(dict.fromkeys(images.advice)),
    )


def _write_back_annotations(
    spec: Mapping[str, Any],
    ref: Mapping[str, Any],
    warnings: list[str],
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the annotations that determine where changes are written, and the labels for pull
    requests.

    A setting in the reference (`ref`) takes precedence over one in `spec`. Raises `Malformed`. For
    invalid labels, a warning is added to `warnings`.
    """
    levels = [mapping(level, "writeBackConfig") for level in (spec, ref)]
    method = text(_merged_levels(levels), "method")
    git = _merged_levels([mapping(level, "gitConfig") for level in levels])
    if method == "argocd":  # in this case, AIU does not read gitConfig
        git = {}
    # An annotation is "" if no field sets it.
    annotations = {"write-back-method": method}
    annotations |= {name: text(git, key) for key, name in GIT.items()}
    annotations["pull-request"] = "true" if git.get("pullRequest") is not None else ""
    labels = _request_labels(git, warnings)
    return {name: value for name, value in annotations.items() if value}, labels


def _add_image(
    raw_image: Mapping[str, Any],
    levels: Sequence[Mapping[str, Any]],
    namespace: str,
    images: _Images,
) -> None:
    """Read one image, and add it to `images` under its alias, with any warnings about it.

    If an image has no valid alias, the last part of its name is used, such as `web`. If another
    image already has that alias, a number is appended: `web-2`. `levels` are the resource's `spec`
    and the reference. Raises `Malformed`.
    """
    # In a constraint, a comma means the same as a space, but in `image-list` it would end the
    # entry.
    entry = " ".join(text(raw_image, "imageName").replace(",", " ").split())
    if not entry:
        raise Malformed("it has no imageName")
    all_levels = (*levels, raw_image)
    blocks = [mapping(level, "commonUpdateSettings") for level in all_levels]
    _advise_on_missing_strategy(all_levels, blocks, images.advice)
    annotations = _update_annotations(blocks)
    annotations |= _manifest_targets(mapping(raw_image, "manifestTargets"))
    innermost_first = reversed(all_levels)
    signing_key = _required_signing_key(innermost_first, namespace)
    image = _Image(entry, annotations, signing_key)

    alias = text(raw_image, "alias")
    if not ALIAS.fullmatch(alias):
        # Without an alias, the text before the first `=` in a constraint would be parsed as the
        # alias.
        image_of_entry = parse_entry(f"alias={entry}").image
        short_name = image_of_entry.repository.rpartition("/")[2].lower()
        if alias:
            images.warnings.append(
                f"{alias!r} is not a valid alias: {entry} gets the alias {short_name!r}"
            )
        else:
            images.warnings.append(f"{entry} has no alias")
        alias = short_name

    if images.by_alias.get(alias) == image:  # the image is listed twice
        return
    # Two images with the same alias would read each other's annotations.
    number = 1
    unused_alias = alias
    while unused_alias in images.by_alias:
        number += 1
        unused_alias = f"{alias}-{number}"
    if unused_alias != alias:
        images.warnings.append(f"the alias {alias!r} is used twice: {entry} gets {unused_alias!r}")
    images.by_alias[unused_alias] = image


def _advise_on_missing_strategy(
    levels: Iterable[Mapping[str, Any]],
    blocks: Iterable[Mapping[str, Any]],
    advice: list[str],
) -> None:
    """Add a message to `advice` for each `commonUpdateSettings` block without a strategy, if an
    outer level's strategy is not semver.

    AIU's CRD (1.3) sets semver as the default in such a block, and that overrides the outer level's
    strategy. `levels` are the resource's `spec`, the reference, and the image. `blocks` contains
    each level's block, or {} if it has none.
    """
    outer_strategy = ""
    names = ("spec", "the reference", "the image")
    for name, level, settings in zip(names, levels, blocks, strict=True):
        strategy = text(settings, "updateStrategy")
        has_block = level.get("commonUpdateSettings") is not None
        if has_block and not strategy and outer_strategy not in ("", "semver"):
            advice.append(
                f"commonUpdateSettings in {name} has no updateStrategy: Image Update applies the"
                f" outer {outer_strategy}"
                " strategy, but in a cluster, Image Updater's CRD stores semver"
            )
        if strategy:
            outer_strategy = strategy


def _update_annotations(levels: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the annotations for the `commonUpdateSettings` of all levels.

    A later level wins, even if its value is empty. An empty value sets no annotation.
    """
    merged = _merged_levels(levels)
    annotations = {}
    for key, annotation in UPDATE.items():
        if key == "forceUpdate":
            value = "true" if flag(merged, key) else ""
        elif key in ("ignoreTags", "platforms"):
            # A comma would split the glob in the annotation. Tags cannot contain commas or `+`, so
            # a glob with either never matches.
            value = ",".join(glob.replace(",", "+") for glob in strings(merged, key))
        else:
            value = text(merged, key)
        if value:
            annotations[annotation] = value
    return annotations


def _manifest_targets(targets: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations for `manifestTargets`, such as `{helm: {tag: image.tag}}`.

    With a `spec`, `name` and `tag` are ignored. Raises `Malformed` if several kinds are set or a
    field is unknown.
    """
    kinds = [kind for kind in TARGETS if targets.get(kind) is not None]  # "helm", "kustomize", …
    if len(kinds) > 1:
        raise Malformed(
            f"manifestTargets has {' and '.join(kinds)}, but only one of them is allowed"
        )
    _refuse_unknown(targets, TARGETS)
    if not kinds:
        return {}
    (kind,) = kinds
    annotation_keys = TARGETS[kind]
    target = mapping(targets, kind)
    fields = {key: text(target, key) for key in annotation_keys}
    _refuse_unknown(target, annotation_keys)
    if fields.get("spec"):  # a whole reference (name:tag) replaces the name and the tag
        fields = {"spec": fields["spec"]}
    return {annotation_keys[key]: value for key, value in fields.items() if value}


def _request_labels(git: Mapping[str, Any], warnings: list[str]) -> tuple[str, ...]:
    """Return the first `MOST_LABELS` valid labels in `gitConfig.pullRequest`.

    If any other labels are dropped, add a warning to `warnings`.
    """
    raw_labels = strings(mapping(git, "pullRequest"), "labels")
    distinct_labels = dict.fromkeys(label.strip() for label in raw_labels)
    valid_labels = [
        label
        for label in distinct_labels
        if 0 < len(label) <= LONGEST_LABEL and label.isprintable()
    ]
    has_invalid_labels = len(valid_labels) < len(distinct_labels)
    if has_invalid_labels or len(valid_labels) > MOST_LABELS:
        warnings.append(
            f"gitConfig.pullRequest.labels: at most {MOST_LABELS} labels of 1 to {LONGEST_LABEL}"
            " characters are allowed; the rest are ignored"
        )
    return tuple(valid_labels[:MOST_LABELS])


def _required_signing_key(levels: Iterable[Mapping[str, Any]], namespace: str) -> KeySecret | None:
    """Return the signing key that `imagesVerification` requires for an image, or None if no
    signature is required.

    The first level is the innermost one, and its fields take precedence. A block without `enabled`
    counts as enabled, which is the default in AIU's CRD. Raises `Malformed` for an unsupported
    check, so that the image is skipped. AIU has verified signatures since v1.3.
    """
    outermost_first = reversed(tuple(levels))
    with_block = [level for level in outermost_first if level.get("imagesVerification") is not None]
    if not with_block:
        return None
    blocks = []
    try:
        for level in with_block:
            fields_set = _merged_levels([mapping(level, "imagesVerification")])  # leaves out nulls
            blocks.append({"enabled": True, **fields_set})
        return _signing_key(_merged_levels(blocks), namespace)
    except UnknownFieldError:  # also a `Malformed`, but callers handle it separately
        raise
    except Malformed as error:
        raise Malformed(f"imagesVerification: {error.message}", error.hint) from None


def _signing_key(verification: Mapping[str, Any], namespace: str) -> KeySecret | None:
    """Return the secret that contains the public key for an `imagesVerification` block, or None if
    the block's `enabled` is false.

    Raises `Malformed` if the block has no `cosignKey`, or has fields other than `cosignKey` and
    `enabled`.
    """
    has_switch = verification.get("enabled") is not None
    is_off = has_switch and not flag(verification, "enabled")
    if is_off:
        return None
    cosign_key = mapping(verification, "cosignKey")
    _refuse_unknown(verification, known=("enabled", "cosignKey"))
    _refuse_unknown(cosign_key, known=("secretName", "key"))
    secret = KeySecret(namespace, text(cosign_key, "secretName"), text(cosign_key, "key"))
    if not secret.name or not secret.key:
        raise Malformed("it has no cosignKey with secretName and key")
    return secret


def _refuse_unknown(fields: Iterable[str], known: Container[str]) -> None:
    """Raise `UnknownFieldError` for the first unknown field."""
    for name in fields:
        if name not in known:
            raise UnknownFieldError(name)


def _merged_levels(levels: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of all levels. A later level wins, but null counts as absent."""
    return {key: value for level in levels for key, value in level.items() if value is not None}


def mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping at a key, or {} if the key is absent or null.

    Raises `Malformed` for anything else.
    """
    return _value_that_fits(raw, key, "a mapping", lambda value: isinstance(value, Mapping)) or {}


def mappings(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list at a key, or [] if it is absent or null.

    Raises `Malformed` for anything else.
    """
    return _list_of_kind(Mapping, raw, key, "a list of mappings")


def strings(raw: Mapping[str, Any], key: str) -> list[str]:
    """Return the list of strings at a key, or [] if the key is absent or null.

    Raises `Malformed` for anything else.
    """
    return _list_of_kind(str, raw, key, "a list of strings")


def text(raw: Mapping[str, Any], key: str) -> str:
    """Return the string at a key, trimmed, or "" if the key is absent or null.

    Raises `Malformed` for anything else.
    """
    value = _value_that_fits(raw, key, "a string", lambda value: isinstance(value, str))
    return str(value or "").strip()


def _value_that_fits(
    raw: Mapping[str, Any],
    key: str,
    description: str,
    fits: Callable[[Any], bool],
) -> Any:
    """Return the value at a key, or None if it is absent.

    If `fits` rejects the value, raises `Malformed`. `description` describes valid values in the
    error message.
    """
    value = raw.get(key)
    if value is not None and not fits(value):
        raise Malformed(f"{key} is not {description}")
    return value


def _list_of_kind(kind: type, raw: Mapping[str, Any], key: str, description: str) -> list[Any]:
    """Return the list at a key, or [] if it is absent. Raises `Malformed` if an item has a
    different type than `kind`.
    """
    items = raw.get(key)
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise Malformed(f"{key} is not {description}")
    return items


def flag(raw: Mapping[str, Any], key: str) -> bool:
    """Return the boolean at a key, or False if the key is absent or null.

    Raises `Malformed` for anything else.
    """
    value = raw.get(key)
    word = _lower_word(value)
    if value is None or word in _FALSE:
        return False
    if word in _TRUE:
        return True
    raise Malformed(f"{key} is neither true nor false")


def _lower_word(value: object) -> str:
    return str(value).lower() if isinstance(value, (str, bool)) else ""


# field name → the fields below it, or in each item of its list; {} for a plain value
Fields = Mapping[str, Any]
Path = tuple[str | int, ...]
MOST = 50  # maximum number of unknown fields reported per resource
LONGEST = 100  # maximum characters of a field in a message

_VALUE: Fields = {}
_UPDATE: Fields = dict.fromkeys(UPDATE, _VALUE)
_VERIFICATION: Fields = {"enabled": _VALUE, "cosignKey": {"secretName": _VALUE, "key": _VALUE}}
_WRITE_BACK: Fields = {
    "method": _VALUE,
    "gitConfig": {
        **dict.fromkeys(GIT, _VALUE),
        "pullRequest": dict.fromkeys(("github", "gitlab", "labels"), _VALUE),
    },
}
SPEC: Fields = {
    "namespace": _VALUE,
    "commonUpdateSettings": _UPDATE,
    "writeBackConfig": _WRITE_BACK,
    "imagesVerification": _VERIFICATION,
    "applicationRefs": {
        "namePattern": _VALUE,
        "labelSelectors": {
            "matchLabels": _VALUE,
            "matchExpressions": dict.fromkeys(("key", "operator", "values"), _VALUE),
        },
        "useAnnotations": _VALUE,
        "commonUpdateSettings": _UPDATE,
        "writeBackConfig": _WRITE_BACK,
        "imagesVerification": _VERIFICATION,
        "images": {
            "alias": _VALUE,
            "imageName": _VALUE,
            "commonUpdateSettings": _UPDATE,
            "imagesVerification": _VERIFICATION,
            "manifestTargets": {
                kind: dict.fromkeys(names, _VALUE) for kind, names in TARGETS.items()
            },
        },
    },
}


def shown(path: Iterable[str | int]) -> str:
    """Return a field's path in the usual notation: `spec.applicationRefs[0].images[1]`."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in path
    ).removeprefix(".")


def unknown_fields(item: Mapping[str, Any]) -> Iterator[tuple[str, str, Path]]:
    """Yield the message, hint, and path of each unknown field of an `ImageUpdater`, in document
    order.

    Yields at most `MOST` fields. Values of the wrong type are skipped.
    """
    unknown = _unknown_below(item.get("spec"), SPEC, ("spec",))
    for path, hint in islice(unknown, MOST):
        *parents, key = path
        message = f"{shown(parents)} has an unknown field {str(key)[:LONGEST]!r}"
        if "manifestTargets" in parents or "imagesVerification" in parents:
            message += ": the images it applies to are skipped"
        yield message, hint, path


def _unknown_below(value: object, fields: Fields, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and hint of each unknown field in a value and below it.

    `fields` are the known fields of the value, or of each item if it is a list. `path` is the
    value's own path.
    """
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown_below(item, fields, (*path, number))
    elif isinstance(value, Mapping):
        for key, field_value in value.items():
            if key not in fields:
                yield (*path, str(key)), _unknown_field_hint(str(key), fields)
            elif fields[key]:  # there are known fields below this one
                yield from _unknown_below(field_value, fields[key], (*path, key))


def _unknown_field_hint(key: str, fields: Fields) -> str:
    """Return a hint for an unknown field: a similarly named field at this level or the nearest
    deeper one, or else all fields at this level.
    """
    # Each round searches one level: path → the fields below. In the first round, a path is just a
    # name.
    level = dict(fields)
    # a short name with two typos would resemble too many other names
    typos = 2 if len(key) > 4 else 1
    while level:
        paths_by_name = {path.rpartition(".")[2]: path for path in level}
        similar_name = nearest(key[:LONGEST], paths_by_name, typos)
        if similar_name:
            return f"did you mean {paths_by_name[similar_name]}?"

        next_level: dict[str, Any] = {}
        for path, fields_below in level.items():
            for name, below in fields_below.items():
                next_level[f"{path}.{name}"] = below
        level = next_level
        typos = 1  # a deeper field is less likely to be the intended one
    return f"remove it, or use {', '.join(fields)}"
