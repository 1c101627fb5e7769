"""Reads the JSON report of a run, and checks it against the schema in this package."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from task.errors import Malformed
from task.schemas import load

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip
LARGEST = 64 * 1024 * 1024  # bytes; the diffs of `plan` are in the report


def report_of(text: str) -> Mapping[str, Any]:
    """Parse a report. Raises `Malformed`, which says what is wrong and where.

    Unknown members are allowed, because a later version may have written the report.
    """
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"this is not JSON: {error}", "give what --report or --output json wrote") from None
    for problem in _problems(report, load("report.v1"), ""):
        raise Malformed(f"this is not a report of image-update: {problem}", "give what --report or --output json wrote")
    return dict(report)


def _problems(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield where a value violates a schema. This supports only the part of JSON Schema that ours use.

    That is types, constants, choices, required members, items and minimums. The package `jsonschema` would be another
    dependency, for this one command.
    """
    here = where or "the whole"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    # In Python, but not in JSON, True is an integer.
    own = ["boolean"] if isinstance(value, bool) else [name for name, kind in _TYPES.items() if isinstance(value, kind)]
    if kinds and not set(kinds) & set(own):
        yield f"{here} is not of type {' or '.join(kinds)}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{here} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{here} is none of {', '.join(str(choice) for choice in schema['enum'] if choice is not None)}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{here} is below {schema['minimum']}"
    if isinstance(value, dict):
        yield from (
            f"{where}{'.' if where else ''}{name} is missing"
            for name in schema.get("required", ())
            if name not in value
        )
        for name, below in schema.get("properties", {}).items():
            if name in value:
                yield from _problems(value[name], below, f"{where}.{name}" if where else name)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _problems(item, schema["items"], f"{where}[{number}]")
