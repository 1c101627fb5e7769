"""Reads plain data from outside: manifests, responses, configs.

`parsed_json` is the only JSON reader. The other functions first follow keys into nested mappings:
`text(item, "metadata", "name")`. A value of an unexpected type is treated as empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

DEEPEST = 200  # levels of nesting; Kubernetes, registries, and Git hosts return at most a few dozen
_FLAW = "it is nested too deeply"


def parsed_json(text: str | bytes) -> Any:
    r"""Parse untrusted JSON. Raises `ValueError` for anything else.

    Python's own parser raises `RecursionError` at a certain depth, and code that walks through the
    value does so even earlier. Python also accepts `NaN` and `1e999`, which other code does not
    expect. Lone surrogates (`\ud800`) become U+FFFD, as in Go, because a string that contains one
    cannot be sent.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    value, end = json_at(text, _after_blanks(text, 0))
    if _after_blanks(text, end) != len(text):
        raise ValueError(f"there is extra data after the value: char {end}")
    return value


def json_at(text: str, at: int) -> tuple[Any, int]:
    """Parse the JSON value that starts at index `at`, with the same rules as `parsed_json`. Return
    the value and the index where it ends. Raises `ValueError`.
    """
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError(_FLAW) from None

    part = text[at:end]
    # a fast check, which also counts brackets in strings
    may_be_deep = part.count("[") + part.count("{") > DEEPEST
    if may_be_deep and _is_deep(value):
        raise ValueError(_FLAW)

    has_surrogates = "\\ud" in part or "\\uD" in part  # an overestimate: \ud7ff is not a surrogate
    if has_surrogates:
        # the decoder joins pairs of surrogates, and replaces lone ones
        encoded = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
        value = json.loads(encoded.decode("utf-16", "replace"))
    return value, end


def _after_blanks(text: str, at: int) -> int:
    """Return the index of the first character at or after `at` that is not JSON whitespace."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # raised by Python's limit on digits; its message is meant for programmers
        raise ValueError("a number is too large") from None


_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole_number
)


def _is_deep(value: Any) -> bool:
    """Return whether a value is nested more than `DEEPEST` levels deep, without using recursion."""
    containers = [value]  # all lists and dictionaries on the same level
    for _ in range(DEEPEST):
        inner_containers = []
        for container in containers:
            items = container.values() if isinstance(container, dict) else container
            inner_containers += [item for item in items if isinstance(item, (dict, list))]
        if not inner_containers:
            return False
        containers = inner_containers
    return True


def value_at(value: object, *keys: str) -> Any:
    """Return the value at these keys, or None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def mapping(value: object, *keys: str) -> Mapping[str, Any]:
    """Return a mapping, or an empty mapping for any other value."""
    found = value_at(value, *keys)
    return found if isinstance(found, dict) else {}


def mappings(value: object, *keys: str) -> list[Mapping[str, Any]]:
    """Return the mappings in a list, skipping other elements."""
    return [element for element in elements(value, *keys) if isinstance(element, dict)]


def elements(value: object, *keys: str) -> list[Any]:
    """Return a list, or an empty list for any other value."""
    found = value_at(value, *keys)
    return found if isinstance(found, list) else []


def text(value: object, *keys: str) -> str:
    """Return a string, or "" for any other value."""
    found = value_at(value, *keys)
    return found if isinstance(found, str) else ""


def texts(value: object, *keys: str) -> dict[str, str]:
    """Return the strings in a mapping, skipping other values."""
    return {key: item for key, item in mapping(value, *keys).items() if isinstance(item, str)}


def dig(value: Any, *names: str | int) -> str:
    """Return the string or number at this path of keys and indices, or "" if it is missing or of a
    different type.
    """
    for name in names:
        try:
            value = value[name]
        except (KeyError, IndexError, TypeError):
            return ""
    return str(value) if isinstance(value, str | int) else ""
