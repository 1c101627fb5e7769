"""The built-in functions of Go's `text/template`.

AIU does not add any functions, so those of sprig are not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from task.templates.go_template.printing import printed_text, sprint, sprintf, sprintln
from task.templates.go_template.values import FailedTemplate, GoMap, go_bytes, go_text

HTML = str.maketrans(
    {
        "\0": "\ufffd",
        '"': "&#34;",
        "'": "&#39;",
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
    }
)
SCRIPT = {
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
    "<": "\\u003C",
    ">": "\\u003E",
    "&": "\\u0026",
    "=": "\\u003D",
}
MOST_SLICES = 3


@dataclass(frozen=True)
class Builtin:
    """A function, and the number of arguments it accepts."""

    call: Callable[..., Any]
    least: int
    most: int | None = None  # None means any number


def kind(value: object) -> str:
    """Return a value's kind for comparisons: "bool", "int", "float64", or "string". Return "" for
    nil, lists, maps, and structs, which have no order.
    """
    if isinstance(value, bool):  # before int, because Python's bool is an int
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float64"
    return "string" if isinstance(value, str) else ""


def named(value: object) -> str:
    """Return the name of a value's kind: "nil", "list", "map", "struct", or the result of
    `kind`.
    """
    if value is None:
        return "nil"
    if isinstance(value, GoMap):
        return "map"
    if isinstance(value, Mapping):
        return "struct"
    return kind(value) or "list"


def truth(value: object) -> bool:
    """Return whether `if` treats a value as true, which it does unless the value is the empty value
    of its type.

    A struct is always true, even without fields.
    """
    is_struct = isinstance(value, Mapping) and not isinstance(value, GoMap)
    return is_struct or bool(value)


def equal(first: Any, *others: Any) -> bool:
    """Run `eq`: return whether the first argument equals any of the others."""
    if not others:
        raise FailedTemplate("missing argument for comparison")
    return any(_go_equal(first, other) for other in others)


def _go_equal(value: Any, other: Any) -> bool:
    """Return whether two values are equal.

    As in Go, the template fails if their types differ or cannot be compared. Only nil may be
    compared with any type.
    """
    if value is None or other is None:
        return value is other
    if named(value) != named(other):
        raise FailedTemplate(
            f"incompatible types for comparison: {named(value)} and {named(other)}"
        )
    if not _comparable(other):
        raise FailedTemplate(f"non-comparable type {named(other)}")
    return bool(value == other)


def _comparable(value: Any) -> bool:
    """Return whether Go can compare the value. It can compare scalars and structs of comparable
    values, but not lists and maps.
    """
    if named(value) == "struct":
        return all(map(_comparable, value.values()))
    return bool(kind(value))


def less(value: Any, other: Any) -> bool:
    """Run `lt`: return whether the first argument is less than the second.

    Both must be numbers of the same type, or strings (which are compared bytewise). Otherwise, the
    template fails.
    """
    for operand in (value, other):
        if kind(operand) in {"", "bool"}:
            raise FailedTemplate(f"invalid type for comparison: {named(operand)}")
    if kind(value) != kind(other):
        raise FailedTemplate(
            f"incompatible types for comparison: {named(value)} and {named(other)}"
        )
    if isinstance(value, str):
        return go_bytes(value) < go_bytes(other)
    return bool(value < other)


def length_of(value: Any) -> int:
    """Run `len`: return the length of a list or map, or a string's length in bytes."""
    if isinstance(value, str):
        return len(go_bytes(value))
    if kind(value) or value is None or named(value) == "struct":
        raise FailedTemplate(f"len of {named(value)}")
    return len(value)


def index(value: Any, *keys: Any) -> Any:
    """Run `index`: for `index x 1 "a"`, return `x[1]["a"]`. Lists, maps, and strings (by byte) can
    be indexed.
    """
    if value is None:
        raise FailedTemplate("index of nil")
    for key in keys:
        if isinstance(value, GoMap):
            if not isinstance(key, str):
                raise FailedTemplate(f"index of a map is {named(key)}, not string")
            # for a missing key; by contrast, the field `.Labels.x` prints <no value>
            value = value.get(key, value.zero)
        elif isinstance(value, str):
            raw = go_bytes(value)
            value = raw[checked_position(key, len(raw) - 1)]
        elif named(value) == "list":
            value = value[checked_position(key, len(value) - 1)]
        else:
            raise FailedTemplate(f"can't index {named(value)}")
    return value


def checked_position(key: Any, last: int) -> int:
    """Check that the index `key` is an integer from 0 to `last`, and return it."""
    if not isinstance(key, int) or isinstance(key, bool):
        raise FailedTemplate(f"cannot index with {named(key)}")
    if not 0 <= key <= last:
        raise FailedTemplate(f"index out of range: {key}")
    return key


def cut(value: Any, *bounds: Any) -> Any:
    """Run `slice`: for `slice x 1 2`, return x[1:2]. Strings are sliced by byte."""
    is_string = isinstance(value, str)
    # the third bound is the capacity, which strings do not have
    most_bounds = MOST_SLICES - 1 if is_string else MOST_SLICES
    if len(bounds) > most_bounds:
        raise FailedTemplate(f"too many slice indexes: {len(bounds)}")
    if is_string:
        return go_text(_slice_of(go_bytes(value), bounds))
    if named(value) != "list":
        raise FailedTemplate(f"can't slice {named(value)}")
    return _slice_of(value, bounds)


def _slice_of(value: Any, bounds: Sequence[Any]) -> Any:
    """Return `value[low:high]`. There may be up to three bounds: `low`, `high`, and the capacity,
    which must not be less than `high`.

    `low` defaults to 0, and the other bounds default to the length.
    """
    # unlike an index, a bound may equal the length
    given = [checked_position(bound, len(value)) for bound in bounds]
    defaults = [0, len(value), len(value)]
    defaults_of_missing = defaults[len(given) :]
    low, high, capacity = [*given, *defaults_of_missing]
    if low > high or high > capacity:
        raise FailedTemplate(f"invalid slice index: {low} > {high}")
    return value[low:high]


def _as_one_text(values: Sequence[Any]) -> str:
    """Join the arguments of `html`, `js`, or `urlquery` into one string, as `print` does. A nil
    becomes `<no value>`.
    """
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return sprint([printed_text(value) if value is None else value for value in values])


def escape_for_html(*values: Any) -> str:
    """Run `html`. Python's `html.escape` differs: it writes `&quot;`."""
    return _as_one_text(values).translate(HTML)


def escape_for_javascript(*values: Any) -> str:
    """Run `js`: escape a value for a JavaScript string."""
    escaped = []
    for letter in _as_one_text(values):
        if letter in SCRIPT:
            escaped.append(SCRIPT[letter])
        elif letter.isprintable() or letter == "\x7f":
            escaped.append(letter)
        else:
            escaped.append(f"\\u{ord(letter):04X}")
    return "".join(escaped)


def escape_for_url_query(*values: Any) -> str:
    """Run `urlquery`: escape a value for a URL query."""
    return quote_plus(go_bytes(_as_one_text(values)))


def run_printf(form: Any, *values: Any) -> str:
    """Run `printf`."""
    if not isinstance(form, str):
        raise FailedTemplate(f"wrong type for value; expected string; got {named(form)}")
    return sprintf(form, values)


def refuse_call(*_values: Any) -> Any:
    """Run `call`, which always fails, because the data never contains functions."""
    raise FailedTemplate("there is no function to call")


BUILTINS: dict[str, Builtin] = {
    "call": Builtin(refuse_call, 1),
    "eq": Builtin(equal, 1),
    "ge": Builtin(lambda value, other: not less(value, other), 2, 2),
    "gt": Builtin(lambda value, other: not (less(value, other) or equal(value, other)), 2, 2),
    "html": Builtin(escape_for_html, 0),
    "index": Builtin(index, 1),
    "js": Builtin(escape_for_javascript, 0),
    "le": Builtin(lambda value, other: less(value, other) or equal(value, other), 2, 2),
    "len": Builtin(length_of, 1, 1),
    "lt": Builtin(less, 2, 2),
    "ne": Builtin(lambda value, other: not equal(value, other), 2, 2),
    "not": Builtin(lambda value: not truth(value), 1, 1),
    "print": Builtin(lambda *values: sprint(values), 0),
    "printf": Builtin(run_printf, 1),
    "println": Builtin(lambda *values: sprintln(values), 0),
    "slice": Builtin(cut, 1),
    "urlquery": Builtin(escape_for_url_query, 0),
}
