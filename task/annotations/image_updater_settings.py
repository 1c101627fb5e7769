"""The settings of one `applicationRef` of an `ImageUpdater` → the annotations that they correspond to.

An API server refuses what its schema does not know, but nobody has checked a manifest in Git. An image whose settings
cannot be read is left out with a warning, so that a broken rule never lets a tag through.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from task.errors import Malformed
from task.image import parse_entry

ALIAS = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*")  # the pattern of the CRD
UPDATE = {
    "updateStrategy": "update-strategy",
    "allowTags": "allow-tags",
    "ignoreTags": "ignore-tags",
    "pullSecret": "pull-secret",
    "forceUpdate": "force-update",
    "platforms": "platforms",
}
GIT = {"repository": "git-repository", "branch": "git-branch", "writeBackTarget": "write-back-target"}
TARGETS = {
    "helm": {"name": "helm.image-name", "tag": "helm.image-tag", "spec": "helm.image-spec"},
    "kustomize": {"name": "kustomize.image-name"},
    "plugin": {"name": "plugin.image-name", "tag": "plugin.image-tag", "spec": "plugin.image-spec"},
}
IMAGE = ("alias", "imageName", "commonUpdateSettings", "manifestTargets", "imagesVerification")
_TRUE, _FALSE = frozenset(("true", "yes", "on", "y")), frozenset(("false", "no", "off", "n"))


@dataclass(frozen=True)
class Said:
    """The annotations that one reference stands for; None: the Application's own count."""

    annotations: Mapping[str, str] | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Images:
    """The images read so far: alias → (image, settings)."""

    known: dict[str, tuple[str, Mapping[str, str]]]
    warnings: list[str]


def annotations(spec: Mapping[str, Any], ref: Mapping[str, Any]) -> Said:
    """The merged settings, global < reference < image; {} if none of them can be used. Never raises."""
    images = _Images({}, [])
    try:
        if flag(ref, "useAnnotations"):
            return Said(None)
        places = _write_back(spec, ref, images.warnings)
        levels = [mapping(level, "commonUpdateSettings") for level in (spec, ref)]
        listed = mappings(ref, "images")
    except Malformed as error:
        return Said({}, (f"{error.message}: nothing is updated",))
    for number, raw in enumerate(listed):
        try:
            _read(raw, levels, images)
        except Malformed as error:
            images.warnings.append(f"images[{number}] is left out: {error.message}")
    for image in listed:
        # The innermost level that mentions verification decides.
        said = [one for level in (image, ref, spec) if (one := level.get("imagesVerification")) is not None]
        if said and not (isinstance(said[0], Mapping) and _word(said[0].get("enabled")) in _FALSE):
            images.warnings.append("imagesVerification is not supported: signatures are not verified here")
            break
    if not images.known:
        return Said({}, (*images.warnings, "no image is named: nothing is updated"))
    named = {f"{alias}.{key}": value for alias, (_, keys) in images.known.items() for key, value in keys.items()}
    listing = ", ".join(f"{alias}={image}" for alias, (image, _) in images.known.items())
    return Said({"image-list": listing, **places, **named}, tuple(images.warnings))


def _read(raw: Mapping[str, Any], levels: Iterable[Mapping[str, Any]], images: _Images) -> None:
    """Add one image."""
    # A comma in a constraint means the same as a blank, and `image-list` has room for the blank only.
    image = " ".join(text(raw, "imageName").replace(",", " ").split())
    if not image:
        raise Malformed("it has no imageName")
    own = mapping(raw, "commonUpdateSettings")
    keys = {**_update((*levels, own), images.warnings), **_targets(mapping(raw, "manifestTargets"))}
    images.warnings.extend(f"{image}: unknown field {key!r}" for key in raw if key not in IMAGE)
    alias = text(raw, "alias")
    if not ALIAS.fullmatch(alias):
        short = parse_entry(f"alias={image}").image.repository.rpartition("/")[2].lower()
        said = f"{alias!r} is no alias: {image} is called {short!r}" if alias else f"{image} has no alias"
        images.warnings.append(said)
        alias = short
    if images.known.get(alias) == (image, keys):
        return
    number, free = 1, alias
    while free in images.known:
        number += 1
        free = f"{alias}-{number}"
    if free != alias:
        images.warnings.append(f"the alias {alias!r} stands twice: {image} is called {free!r}")
    images.known[free] = (image, keys)


def _update(levels: Iterable[Mapping[str, Any]], warnings: list[str]) -> dict[str, str]:
    """`commonUpdateSettings`: a later level wins, and an empty key hides those of earlier levels."""
    merged = {key: value for level in levels for key, value in level.items() if value is not None}
    unknown = (_unknown("commonUpdateSettings", key) for key in merged if key not in UPDATE)
    warnings += [one for one in unknown if one not in warnings]
    found = {}
    for key, name in UPDATE.items():
        if key == "forceUpdate":
            found[name] = "true" if flag(merged, key) else ""
        elif key in ("ignoreTags", "platforms"):
            # No tag holds a comma: any other letter that no tag holds says the same in a glob, and the list keeps it.
            found[name] = ",".join(one.replace(",", "+") for one in strings(merged, key) or ())
        else:
            found[name] = text(merged, key)
    return {name: value for name, value in found.items() if value}


def _targets(targets: Mapping[str, Any]) -> dict[str, str]:
    """`manifestTargets`: one kind only. With a `spec`, `name` and `tag` are ignored."""
    kinds = [kind for kind in TARGETS if targets.get(kind) is not None]
    if len(kinds) > 1:
        raise Malformed(f"manifestTargets has {' and '.join(kinds)}, and only one of them can be")
    if unknown := [key for key in targets if key not in TARGETS]:
        raise Malformed(_unknown("manifestTargets", unknown[0]))
    if not kinds:
        return {}
    raw = mapping(targets, kinds[0])
    found = {key: value for key in TARGETS[kinds[0]] if (value := text(raw, key))}
    if unknown := [key for key in raw if key not in TARGETS[kinds[0]]]:
        raise Malformed(_unknown(f"manifestTargets.{kinds[0]}", unknown[0]))
    if "spec" in found:
        found = {"spec": found["spec"]}
    return {TARGETS[kinds[0]][key]: value for key, value in found.items()}


def _write_back(spec: Mapping[str, Any], ref: Mapping[str, Any], warnings: list[str]) -> dict[str, str]:
    """`writeBackConfig`: each setting is the reference's, else the global one."""
    levels = [mapping(level, "writeBackConfig") for level in (spec, ref)]
    method = text(_merged(levels), "method")
    git = _merged([mapping(level, "gitConfig") for level in levels])
    found = {"write-back-method": method}
    if method != "argocd":  # AIU does not read them then
        found |= {name: text(git, key) for key, name in GIT.items()}
        request = mapping(git, "pullRequest")
        found["pull-request"] = "true" if git.get("pullRequest") is not None else ""
        if request.get("labels"):
            warnings.append("gitConfig.pullRequest.labels are not set on the pull request")
    warnings += [_unknown("writeBackConfig", key) for key in _merged(levels) if key not in ("method", "gitConfig")]
    warnings += [_unknown("gitConfig", key) for key in git if key not in (*GIT, "pullRequest")]
    return {name: value for name, value in found.items() if value}


def _merged(levels: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for level in levels for key, value in level.items() if value is not None}


def _unknown(where: str, key: object) -> str:
    return f"{where} has an unknown field {key!r}"


def mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping at a key, {} where there is none. Raises `Malformed` for anything else."""
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Malformed(f"{key} is not a mapping")
    return value


def mappings(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The list of mappings at a key, [] where there is none. Raises `Malformed` for anything else."""
    value = raw.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise Malformed(f"{key} is not a list of mappings")
    return value


def strings(raw: Mapping[str, Any], key: str) -> list[str] | None:
    """The list of texts at a key, None where there is none. Raises `Malformed` for anything else."""
    value = raw.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Malformed(f"{key} is not a list of strings")
    return value


def text(raw: Mapping[str, Any], key: str) -> str:
    """The text at a key, trimmed, "" where there is none. Raises `Malformed` for anything else."""
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"{key} is not a string")
    return value.strip()


def flag(raw: Mapping[str, Any], key: str) -> bool:
    """The boolean at a key, false where there is none; `yes` and `no` of YAML 1.1 count. Raises `Malformed`."""
    value = raw.get(key)
    if value is None or _word(value) in _FALSE:
        return False
    if _word(value) in _TRUE:
        return True
    raise Malformed(f"{key} is neither true nor false")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, (str, bool)) else ""
