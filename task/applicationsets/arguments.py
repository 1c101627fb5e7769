"""What the functions of templates share: arguments of the right type, and texts of bounded length."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from task.errors import Malformed
from task.templates.go_template import AnyMap, FailedTemplate, GoMap
from task.templates.go_template.functions import named
from task.templates.go_template.nodes import LONGEST_TEXT
from task.templates.go_template.printing import sprint

LARGEST = sys.float_info.max
MOST_ITEMS = 10_000  # of a list that a function makes out of nothing

T = TypeVar("T")


def text(value: Any) -> str:
    """An argument that Go declares as string."""
    if not isinstance(value, str):
        raise FailedTemplate(f"wrong type for value; expected string; got {named(value)}")
    return value


def number(value: Any) -> int:
    """An argument that Go declares as int: no float, which is what JSON's numbers are."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise FailedTemplate(f"wrong type for value; expected int; got {named(value)}")
    return value


def boolean(value: Any) -> bool:
    """An argument that Go declares as bool."""
    if not isinstance(value, bool):
        raise FailedTemplate(f"wrong type for value; expected bool; got {named(value)}")
    return value


def items(value: Any) -> Sequence[Any]:
    """An argument that is a list."""
    if named(value) != "list":
        raise FailedTemplate(f"wrong type for value; expected a list; got {named(value)}")
    return value  # type: ignore[no-any-return]


def mapping(value: Any) -> GoMap:
    """An argument that Go declares as map[string]interface{}."""
    if not isinstance(value, GoMap):
        raise FailedTemplate(f"wrong type for value; expected map[string]interface {{}}; got {named(value)}")
    return value


def shown(value: Any) -> str:
    """The text of any value, as `fmt.Sprintf("%v")` prints it."""
    return value if isinstance(value, str) else "<nil>" if value is None else sprint((value,))


def joined(parts: Iterable[str], between: str = "") -> str:
    """One text of all parts. Raises FailedTemplate where it becomes too long."""
    listed = list(parts)
    bounded(sum(map(len, listed)) + len(between) * len(listed))
    return between.join(listed)


def bounded(size: int) -> None:
    """Raises FailedTemplate for a text of that size, if it is too long."""
    if size > LONGEST_TEXT:
        raise FailedTemplate(f"the text grows beyond {LONGEST_TEXT} characters")


def go_value(value: Any) -> Any:
    """Data as Go's templates see it after JSON: every number is a float, every mapping a map.

    Raises Malformed for a number that is none in JSON.
    """
    if isinstance(value, bool) or value is None or isinstance(value, (str, GoMap)):
        return value
    if isinstance(value, (int, float)):
        if not -LARGEST <= value <= LARGEST:
            raise Malformed("a number is too large")
        return float(value)
    if isinstance(value, list):
        return [go_value(item) for item in value]
    return AnyMap({key: go_value(item) for key, item in value.items()})
