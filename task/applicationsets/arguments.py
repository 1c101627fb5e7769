"""Checks shared by all template functions: argument types, and limits on string length."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from task.errors import Malformed
from task.templates.go_template.functions import named
from task.templates.go_template.printing import sprint
from task.templates.go_template.values import LONGEST_TEXT, AnyMap, FailedTemplate, GoMap

LARGEST = sys.float_info.max
MOST_ITEMS = 10_000  # maximum items in a list that a function creates from a number

T = TypeVar("T")


def text(value: Any) -> str:
    """Check and return an argument that Go declares as a string."""
    if not isinstance(value, str):
        raise FailedTemplate(f"wrong type for value; expected string; got {named(value)}")
    return value


def number(value: Any) -> int:
    """Check and return an argument that Go declares as an int.

    A float, such as any number in JSON, is rejected.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise FailedTemplate(f"wrong type for value; expected int; got {named(value)}")
    return value


def boolean(value: Any) -> bool:
    """Check and return an argument that Go declares as a bool."""
    if not isinstance(value, bool):
        raise FailedTemplate(f"wrong type for value; expected bool; got {named(value)}")
    return value


def items(value: Any) -> Sequence[Any]:
    """Check and return an argument that must be a list."""
    if named(value) != "list":
        raise FailedTemplate(f"wrong type for value; expected a list; got {named(value)}")
    return value  # type: ignore[no-any-return]


def mapping(value: Any) -> AnyMap:
    """Check and return an argument that Go declares as a map[string]interface{}.

    A missing argument is an empty map.
    """
    if value is None:
        return AnyMap()
    if isinstance(value, AnyMap):
        return value
    # A `GoMap` that is not an `AnyMap` has a different type in Go, so Go rejects it, too.
    kind = "map[string]string" if isinstance(value, GoMap) else named(value)
    raise FailedTemplate(f"wrong type for value; expected map[string]interface {{}}; got {kind}")


def texts(value: Any) -> list[str]:
    """Return the items of a list as strings, without nil items.

    Any other value, even nil, is treated as a one-item list.
    """
    if named(value) != "list":
        return [shown(value)]
    return [shown(item) for item in value if item is not None]


def shown(value: Any) -> str:
    """Return any value as a string, like `fmt.Sprintf("%v")`."""
    if value is None:
        return "<nil>"
    if isinstance(value, str):
        return value
    return sprint((value,))


def joined(parts: Iterable[str], separator: str = "") -> str:
    """Join all parts. Raises `FailedTemplate` if the result becomes too long."""
    all_parts = list(parts)
    bounded(sum(map(len, all_parts)) + len(separator) * len(all_parts))
    return separator.join(all_parts)


def bounded(size: int) -> None:
    """Raise FailedTemplate if a string of this size is too long."""
    if size > LONGEST_TEXT:
        raise FailedTemplate(f"the text exceeds {LONGEST_TEXT} characters")


def go_value(value: Any) -> Any:
    """Convert plain data to what Go templates see after a JSON round trip: every number is a float,
    and every mapping is an `AnyMap`.

    Raises `Malformed` for a number that JSON cannot represent.
    """
    if value is None or isinstance(value, (bool, str, GoMap)):
        return value  # a `GoMap` has already been converted
    if isinstance(value, (int, float)):
        if not -LARGEST <= value <= LARGEST:
            raise Malformed("a number is too large")
        return float(value)
    if isinstance(value, list):
        return [go_value(item) for item in value]
    return AnyMap({key: go_value(item) for key, item in value.items()})
