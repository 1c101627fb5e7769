"""The fields in the schema of `ImageUpdater`, and a search for unknown ones.

An API server silently drops an unknown field. In Git, the manifest keeps it, but nothing reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from task.annotations.image_updater_settings import GIT, TARGETS, UPDATE
from task.annotations.known_keys import nearest

Fields = Mapping[str, Any]  # the name of a field → the fields in it, or in each item of its list; {} for a value
Path = tuple[str | int, ...]
MOST = 50  # unknown fields that are reported for one resource
LONGEST = 100  # characters of a field in a message

_VALUE: Fields = {}
_UPDATE: Fields = dict.fromkeys(UPDATE, _VALUE)
_VERIFICATION: Fields = {"enabled": _VALUE, "cosignKey": {"secretName": _VALUE, "key": _VALUE}}
_WRITE_BACK: Fields = {
    "method": _VALUE,
    "gitConfig": {
        **dict.fromkeys(GIT, _VALUE),
        "pullRequest": {"github": _VALUE, "gitlab": _VALUE, "labels": _VALUE},
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
            "matchExpressions": {"key": _VALUE, "operator": _VALUE, "values": _VALUE},
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
            "manifestTargets": {kind: dict.fromkeys(names, _VALUE) for kind, names in TARGETS.items()},
        },
    },
}


@dataclass(frozen=True)
class UnknownField:
    """A field that nothing reads, where it is, and what was probably meant."""

    path: Path  # from the resource: ("spec", "applicationRefs", 0, "namePatern")
    hint: str

    @property
    def message(self) -> str:
        """The problem, without the resource's name."""
        what = f"{shown(self.path[:-1])} has an unknown field {str(self.path[-1])[:LONGEST]!r}"
        images = any(part in self.path[:-1] for part in ("manifestTargets", "imagesVerification"))
        return f"{what}: the images that this is for are left out" if images else what


def shown(path: Path) -> str:
    """Return the path as people write it: `spec.applicationRefs[0].images[1]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def unknown_fields(item: Mapping[str, Any]) -> tuple[UnknownField, ...]:
    """Return the unknown fields of a resource in the order of its text, at most `MOST`.

    Values of a wrong shape are skipped.
    """
    return tuple(islice(_unknown(item.get("spec"), SPEC, ("spec",)), MOST))


def _unknown(value: object, fields: Fields, path: Path) -> Iterator[UnknownField]:
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _unknown(one, fields, (*path, number))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if key not in fields:
                yield UnknownField((*path, str(key)), _hint(str(key), fields))
            elif fields[key]:
                yield from _unknown(one, fields[key], (*path, key))


def _hint(key: str, fields: Fields) -> str:
    """Return the hint: the field of this level, or of a deeper one, that is similar to the key."""
    level = dict(fields)
    while level:
        names = {path.rpartition(".")[2]: path for path in level}
        if near := nearest(key[:LONGEST], names, 2 if level.keys() == fields.keys() and len(key) > 4 else 1):
            return f"did you mean {names[near]}?"
        level = {f"{path}.{name}": below for path, one in level.items() for name, below in one.items()}
    return f"remove it, or use {', '.join(fields)}"
