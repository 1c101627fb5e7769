"""Label selectors for the parameters of generators, and for cluster secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from task.applicationsets.arguments import shown
from task.errors import Malformed


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Tell whether a `LabelSelector` selects these labels. None selects everything. Raises Malformed."""
    if selector is None:
        return True
    if not isinstance(selector, dict):
        raise Malformed("error parsing label selector: it is not a mapping")
    wanted, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if not isinstance(wanted, dict) or not isinstance(expressions, list):
        raise Malformed("error parsing label selector: matchLabels is not a mapping, or matchExpressions is not a list")
    for key, value in wanted.items():
        if labels.get(key) != value:
            return False
    for expression in expressions:
        values = expression.get("values") or [] if isinstance(expression, dict) else None
        if not isinstance(values, list):
            raise Malformed(
                "error parsing label selector: an expression is not a mapping, or its values are not a list"
            )
        key, operator = str(expression.get("key")), expression.get("operator")
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise Malformed(f'error parsing label selector: "{operator}" is not a valid label selector operator')
        if operator in ("In", "NotIn") and not values:
            raise Malformed("error parsing label selector: for 'in', 'notin' operators, values set can't be empty")
        within = key in labels and (operator == "Exists" or labels[key] in values)
        if operator in ("In", "Exists") and not within:
            return False
        if within if operator == "NotIn" else operator == "DoesNotExist" and key in labels:
            return False
    return True


def flat(value: Any, room: int = 100_000) -> dict[str, str]:
    """Return nested parameters as texts under dotted keys. Empty lists and mappings disappear. Raises Malformed."""
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, one = waiting.pop()
        if isinstance(one, (dict, list)):
            items = one.items() if isinstance(one, dict) else enumerate(one)
            room -= len(one)
            if room < 0:
                raise Malformed("a set of parameters is too large")
            waiting += [(f"{name}.{key}" if name else str(key), item) for key, item in items]
        elif name:
            found[name] = shown(float(one) if isinstance(one, int) and not isinstance(one, bool) else one)
    return found
