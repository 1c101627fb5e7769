"""The Masterminds/sprig v3 functions for lists, maps, and numbers,
and Argo CD's own functions for YAML.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial, reduce
from typing import Any

from task.applicationsets import go_yaml
from task.applicationsets.arguments import (
    MOST_ITEMS,
    bounded,
    go_value,
    items,
    joined,
    mapping,
    number,
    shown,
    text,
)
from task.errors import Malformed
from task.plain_data import parsed_json
from task.templates.go_template.functions import Builtin, cut, named, truth
from task.templates.go_template.values import LONGEST_TEXT, AnyMap, FailedTemplate, GoMap

DEEPEST = 100
_WHOLE_NUMBER = re.compile(r"([+-]?\w{1,70})(?:\.0+)?", re.ASCII)  # int64 has at most 64 digits
_OCTAL = re.compile(r"\b0(?=[0-9_])")  # the prefix of an octal number in Go


def _as_integer(value: Any) -> int:
    """Return any value as an int64, as spf13/cast does: a string that is not such a number becomes
    0.

    A prefix determines the base of a string: `0x10` is 16, and `010` is 8.
    """
    if isinstance(value, (int, float)):
        whole = int(value) if math.isfinite(value) else 0
        return whole if whole == _int64(whole) else -(2**63)  # as on amd64
    digits = _WHOLE_NUMBER.fullmatch(value) if isinstance(value, str) else None
    if not digits:
        return 0
    try:
        whole = int(_OCTAL.sub("0o", digits[1]), 0)
    except ValueError:
        return 0
    return whole if whole == _int64(whole) else 0


def _as_float(value: Any) -> float:
    try:
        return float(value if isinstance(value, (str, int, float)) else 0)
    except (ValueError, OverflowError):
        return 0.0


def _int64(value: int) -> int:
    """Return the value as an int64, which overflows silently, as in Go."""
    return (value + 2**63) % 2**64 - 2**63


def _divide(first: Any, second: Any) -> int:
    """Run `div`: return the quotient, rounded toward zero, as in Go."""
    dividend = _as_integer(first)
    divisor = _as_integer(second)
    if not divisor:
        raise FailedTemplate("runtime error: integer divide by zero")
    quotient = abs(dividend) // abs(divisor)
    same_sign = (dividend < 0) == (divisor < 0)
    return _int64(quotient if same_sign else -quotient)


def _multiply(*values: Any) -> int:
    """Run `mul`."""
    product = 1
    for value in values:
        product = _int64(product * _as_integer(value))
    return product


def _until(start: int, stop: int, step: int) -> list[int]:
    """Run `untilStep`: return the numbers from `start` up to, but not including, `stop`.

    A step of 0 returns no numbers. Raises `FailedTemplate` for too many.
    """
    numbers = range(start, stop, step) if step else range(0)
    if len(numbers) > MOST_ITEMS:
        raise FailedTemplate(f"a list of more than {MOST_ITEMS} numbers")
    return list(numbers)


def _default(fallback: Any, *values: Any) -> Any:
    """Run `default`: return the value, or the fallback if it is missing or empty."""
    value = values[0] if values else None
    return value if truth(value) else fallback


def _ternary(yes: Any, no: Any, condition: Any) -> Any:
    """Run `ternary`: return `yes` or `no`, depending on the condition."""
    if not isinstance(condition, bool):
        raise FailedTemplate("wrong type for value; expected bool")
    return yes if condition else no


def _fail(message: Any) -> Any:
    raise FailedTemplate(text(message))


def _dict(*pairs: Any) -> AnyMap:
    """Run `dict key value …`: return a map. If the last value is missing, it is ""."""
    keys = pairs[::2]
    values = (*pairs[1::2], "")  # an extra value, in case the last one is missing
    return AnyMap({shown(key): value for key, value in zip(keys, values, strict=False)})


def _set(map_value: Any, key: Any, value: Any) -> GoMap:
    """Run `set`, which changes and returns the map."""
    if map_value is None:
        raise FailedTemplate("assignment to entry in nil map")
    target = mapping(map_value)
    target[text(key)] = value
    return target


def _unset(map_value: Any, key: Any) -> GoMap:
    """Run `unset`, which changes and returns the map."""
    target = mapping(map_value)
    target.pop(text(key), None)
    return target


def _dig(*arguments: Any) -> Any:
    """Run `dig key … fallback map`: follow these keys through nested maps, and return the value, or
    the fallback if a key is missing.
    """
    *keys, fallback, value = arguments
    for key in keys:
        if not isinstance(value, AnyMap):
            raise FailedTemplate(
                f"interface conversion: interface {{}} is {_type(value)}, not map[string]interface"
                " {}"
            )
        if text(key) not in value:
            return fallback
        value = value[key]
    return value


def _merge_into(target: Any, *others: Any, overwrite: bool = False, depth: int = 0) -> GoMap:
    """Run `merge` or, with `overwrite`, `mergeOverwrite`, which change and return the first map.

    Nested maps are merged, too. Without `overwrite`, only missing and empty values are set.
    """
    if depth > DEEPEST:
        raise FailedTemplate("maps nested too deeply")
    result = mapping(target)
    for other in others:
        for key, value in mapping(other).items():
            current = result.get(key)
            if isinstance(value, GoMap) and isinstance(current, GoMap):
                _merge_into(current, value, overwrite=overwrite, depth=depth + 1)
            elif overwrite or not truth(current):
                result[key] = value
    return result


def _deep_copy(value: Any) -> Any:
    """Run `deepCopy`: return a copy of a value, with copies of all maps and lists in it.

    The size is limited, because a map may contain another map several times.
    """
    if value is None:
        raise FailedTemplate("reflect: call of reflect.Value.Type on zero Value")
    remaining_values = LONGEST_TEXT

    def copy(original: Any) -> Any:
        """Return a copy of one value in the data, and count the value."""
        nonlocal remaining_values
        remaining_values -= 1
        if remaining_values < 0:
            raise FailedTemplate("too much to copy")
        if isinstance(original, GoMap):
            return type(original)({key: copy(item) for key, item in original.items()})
        if isinstance(original, list):
            return [copy(item) for item in original]
        return original

    return copy(value)


def _pick(map_value: Any, *keys: Any) -> AnyMap:
    return AnyMap({key: value for key, value in mapping(map_value).items() if key in keys})


def _omit(map_value: Any, *keys: Any) -> AnyMap:
    return AnyMap({key: value for key, value in mapping(map_value).items() if key not in keys})


def _equality_text(value: Any) -> str:
    """Return a string that is the same for any two values that `deepEqual` considers equal.

    An int and a float have different strings.
    """
    return json.dumps(_plain_json(value), sort_keys=True)


def _distinct_items(values: Any) -> list[Any]:
    """Run `uniq`: return the items of a list, without duplicates."""
    item_by_text: dict[str, Any] = {}
    for value in items(values):
        item_by_text.setdefault(_equality_text(value), value)
    return list(item_by_text.values())


def _without(values: Any, *unwanted: Any) -> list[Any]:
    """Run `without`: return the items of a list, without those that equal an unwanted value."""
    unwanted_texts = set(map(_equality_text, unwanted))
    return [value for value in items(values) if _equality_text(value) not in unwanted_texts]


def _has(value: Any, values: Any) -> bool:
    return values is not None and len(_without(values, value)) < len(values)


def _slice(values: Any, *bounds: Any) -> Any:
    if values == []:  # sprig returns nil, regardless of the bounds
        return None
    return cut(items(values), *map(_as_integer, bounds))


def _chunk(size: Any, values: Any) -> list[Any]:
    step = max(number(size), 1)
    return [values[at : at + step] for at in range(0, len(items(values)), step)]


def _concat(*lists: Any) -> list[Any]:
    return [item for values in lists for item in items(values)]


class NotJson(FailedTemplate):
    """The value cannot be represented in JSON."""


def _plain_json(value: Any) -> Any:
    """Return a template's value as plain data for JSON. Raises `NotJson` for infinity and NaN.

    The size is limited, because a map may contain another map twice, or itself.
    """
    remaining_characters = LONGEST_TEXT

    def converted(original: Any, depth: int) -> Any:
        """Return one value in the data as plain data, and count its characters.

        `depth` is the number of lists and maps around it.
        """
        nonlocal remaining_characters
        size = len(original) if isinstance(original, str) else 0
        remaining_characters -= size + 2  # also count the punctuation
        if remaining_characters < 0 or depth > DEEPEST:
            raise FailedTemplate("the value is too large")
        if isinstance(original, Mapping):
            return {key: converted(item, depth + 1) for key, item in original.items()}
        if isinstance(original, list | tuple):
            return [converted(item, depth + 1) for item in original]
        if isinstance(original, float):
            if not math.isfinite(original):
                raise NotJson(f"json: unsupported value: {shown(original)}")
            # Go writes the shortest digits that identify the float, and then zeros: 2**69 as
            # 590295810358705700000, not as 590295810358705651712.
            if original == int(original) and abs(original) < 1e21:
                return int(Decimal(repr(original)))
        return original

    return converted(value, 0)


def _json_text(value: Any, line_start: str) -> str:
    """Return plain data as JSON, formatted as Go does.

    `line_start` is "" for JSON on one line. For indented JSON, it is a line break and the current
    indentation.
    """
    if isinstance(value, float):
        # Go uses an exponent only outside this range, and writes e-7 instead of e-07.
        if 1e-6 <= abs(value) < 1e21:
            return f"{Decimal(repr(value)):f}"
        return repr(value).replace("e-0", "e-")
    if not value or not isinstance(value, dict | list):  # a scalar, `{}`, or `[]`
        return json.dumps(value, ensure_ascii=False)

    item_start = f"{line_start}  " if line_start else ""
    separator = f",{item_start}"
    if isinstance(value, list):
        items_text = separator.join(_json_text(item, item_start) for item in value)
        return f"[{item_start}{items_text}{line_start}]"
    colon = ": " if line_start else ":"
    pairs = []
    for key, item in sorted(value.items()):
        key_text = json.dumps(key, ensure_ascii=False)
        pairs.append(f"{key_text}{colon}{_json_text(item, item_start)}")
    return f"{{{item_start}{separator.join(pairs)}{line_start}}}"


def _to_json(value: Any, *, pretty: bool = False, escape: bool = True, must: bool = True) -> str:
    """Run `toJson` and its variants.

    With `pretty`, the JSON is indented. With `escape`, characters that are special in HTML are
    escaped. For a value that JSON cannot represent, the variants without `must` return "".
    """
    line_start = "\n" if pretty else ""
    try:
        result = _json_text(_plain_json(value), line_start)
    except NotJson:
        if must:
            raise
        return ""
    if escape:
        for sign in "<>&\u2028\u2029":
            result = result.replace(sign, f"\\u{ord(sign):04x}")
    bounded(len(result))
    return result


def _from_json(value: Any) -> Any:
    try:
        return go_value(parsed_json(text(value)))
    except ValueError as error:
        raise FailedTemplate(f"error unmarshalling JSON: {error}") from None


def _to_yaml(value: Any) -> str:
    return go_yaml.dump(_plain_json(value), LONGEST_TEXT)


def _from_yaml(kind: type, name: str, value: Any) -> Any:
    try:
        data = go_yaml.load(text(value))
    except Malformed as error:
        raise FailedTemplate(f"error converting YAML to JSON: {error.message}") from None
    if data is not None and not isinstance(data, kind):
        raise FailedTemplate(f"error unmarshaling JSON: the text is no {name}")
    return go_value(kind() if data is None else data)


def _go_kind(value: Any) -> str:
    """Return the name of a value's kind in Go's `reflect`."""
    kinds = {"nil": "invalid", "list": "slice"}
    return kinds.get(named(value), named(value))


def _type(value: Any) -> str:
    """Return the name of a value's type in Go."""
    types = {
        "nil": "<nil>",
        "list": "[]interface {}",
        "map": "map[string]interface {}",
    }
    return types.get(named(value), named(value))


def _round(value: Any, places: Any, threshold: Any = 0.5) -> float:
    """Run `round`: return the value rounded to the given number of decimal places.

    The last place is rounded up if the fraction after it is at least the threshold.
    """
    scale = 10.0 ** max(min(number(places), 15), -15)
    scaled = _as_float(value) * scale
    fraction = scaled - math.floor(scaled)
    rounds_up = fraction >= _as_float(threshold)
    rounded = math.ceil(scaled) if rounds_up else math.floor(scaled)
    return rounded / scale


def _seq(*bounds: Any) -> str:
    """Run `seq [first [step]] last`: return the numbers as text, separated by spaces: `1 2 3` for
    `seq 3`.

    The last number is included. Without a step, it is 1 or -1, depending on the direction.
    """
    numbers = [number(bound) for bound in bounds]
    if not 1 <= len(numbers) <= 3:
        return ""
    first = numbers[0] if len(numbers) > 1 else 1
    last = numbers[-1]
    step = 1 if last >= first else -1
    if len(numbers) == 3:
        step = numbers[1]
    stop = last + 1 if step > 0 else last - 1  # the number after the last one
    return joined(map(str, _until(first, stop, step)), " ")


def _pluck(key: Any, *maps: Any) -> list[Any]:
    return [any_map[text(key)] for any_map in map(mapping, maps) if key in any_map]


DATA_FUNCTIONS: dict[str, Builtin] = {
    "toYaml": Builtin(_to_yaml, 1, 1),
    "fromYaml": Builtin(partial(_from_yaml, dict, "mapping"), 1, 1),
    "fromYamlArray": Builtin(partial(_from_yaml, list, "list"), 1, 1),
    "fromJson": Builtin(_from_json, 1, 1),
    "default": Builtin(_default, 1, 2),
    "empty": Builtin(lambda value: not truth(value), 1, 1),
    "coalesce": Builtin(lambda *values: next((value for value in values if truth(value)), None), 0),
    "all": Builtin(lambda *values: all(map(truth, values)), 0),
    "any": Builtin(lambda *values: any(map(truth, values)), 0),
    "ternary": Builtin(_ternary, 3, 3),
    "fail": Builtin(_fail, 1, 1),
    "list": Builtin(lambda *values: list(values), 0),
    "tuple": Builtin(lambda *values: list(values), 0),
    "first": Builtin(lambda values: items(values)[0] if items(values) else None, 1, 1),
    "rest": Builtin(lambda values: list(items(values)[1:]), 1, 1),
    "last": Builtin(lambda values: items(values)[-1] if items(values) else None, 1, 1),
    "initial": Builtin(lambda values: list(items(values)[:-1]), 1, 1),
    "append": Builtin(lambda values, value: [*items(values), value], 2, 2),
    "prepend": Builtin(lambda values, value: [value, *items(values)], 2, 2),
    "concat": Builtin(_concat, 0),
    "reverse": Builtin(lambda values: list(reversed(items(values))), 1, 1),
    "uniq": Builtin(_distinct_items, 1, 1),
    "without": Builtin(_without, 1),
    "has": Builtin(_has, 2, 2),
    "compact": Builtin(lambda values: [item for item in items(values) if truth(item)], 1, 1),
    "slice": Builtin(_slice, 1),
    "chunk": Builtin(_chunk, 2, 2),
    "until": Builtin(
        lambda count: _until(
            0,
            number(count),
            1 if count >= 0 else -1,
        ),
        1,
        1,
    ),
    "untilStep": Builtin(lambda *numbers: _until(*map(number, numbers)), 3, 3),
    "seq": Builtin(_seq, 0),
    "dict": Builtin(_dict, 0),
    "get": Builtin(lambda map_value, key: mapping(map_value).get(text(key), ""), 2, 2),
    "set": Builtin(_set, 3, 3),
    "unset": Builtin(_unset, 2, 2),
    "hasKey": Builtin(lambda map_value, key: text(key) in mapping(map_value), 2, 2),
    "pluck": Builtin(_pluck, 1),
    "keys": Builtin(lambda *maps: sorted(key for item in maps for key in mapping(item)), 0),
    "values": Builtin(
        lambda map_value: [value for _, value in sorted(mapping(map_value).items())], 1, 1
    ),
    "pick": Builtin(_pick, 1),
    "omit": Builtin(_omit, 1),
    "dig": Builtin(_dig, 3),
    "merge": Builtin(_merge_into, 1),
    "mergeOverwrite": Builtin(lambda onto, *others: _merge_into(onto, *others, overwrite=True), 1),
    "deepCopy": Builtin(_deep_copy, 1, 1),
    "deepEqual": Builtin(lambda value, other: _equality_text(value) == _equality_text(other), 2, 2),
    "kindOf": Builtin(_go_kind, 1, 1),
    "kindIs": Builtin(lambda kind, value: _go_kind(value) == kind, 2, 2),
    "typeOf": Builtin(_type, 1, 1),
    "typeIs": Builtin(lambda kind, value: _type(value) == kind, 2, 2),
    "int": Builtin(_as_integer, 1, 1),
    "int64": Builtin(_as_integer, 1, 1),
    "float64": Builtin(_as_float, 1, 1),
    "atoi": Builtin(
        lambda value: int(text(value)) if text(value).lstrip("+-").isdecimal() else 0,
        1,
        1,
    ),
    "add": Builtin(lambda *values: _int64(sum(map(_as_integer, values))), 0),
    "add1": Builtin(lambda value: _int64(_as_integer(value) + 1), 1, 1),
    "sub": Builtin(lambda number, other: _int64(_as_integer(number) - _as_integer(other)), 2, 2),
    "mul": Builtin(_multiply, 1),
    "div": Builtin(_divide, 2, 2),
    "mod": Builtin(
        lambda number, other: _int64(
            _as_integer(number) - _as_integer(other) * _divide(number, other)
        ),
        2,
        2,
    ),
    "max": Builtin(lambda *values: max(map(_as_integer, values)), 1),
    "min": Builtin(lambda *values: min(map(_as_integer, values)), 1),
    "floor": Builtin(lambda value: float(math.floor(_as_float(value))), 1, 1),
    "ceil": Builtin(lambda value: float(math.ceil(_as_float(value))), 1, 1),
    "round": Builtin(_round, 2, 3),
}
_FLOATS: dict[str, Callable[[float, float], float]] = {
    "addf": lambda number, other: number + other,
    "subf": lambda number, other: number - other,
    "mulf": lambda number, other: number * other,
    "divf": lambda number, other: number / other,
    "maxf": max,
    "minf": min,
}
for _name, _work in _FLOATS.items():
    DATA_FUNCTIONS[_name] = Builtin(
        lambda *values, work=_work: reduce(work, map(_as_float, values)),
        1,
    )
DATA_FUNCTIONS |= {
    "add1f": Builtin(lambda value: _as_float(value) + 1, 1, 1),
    "biggest": DATA_FUNCTIONS["max"],
    "typeIsLike": Builtin(lambda kind, value: _type(value) in (kind, f"*{kind}"), 2, 2),
}
for _name, _options in (
    ("Json", {}),
    ("RawJson", {"escape": False}),
    ("PrettyJson", {"pretty": True}),
):
    DATA_FUNCTIONS[f"mustTo{_name}"] = Builtin(partial(_to_json, **_options), 1, 1)
    DATA_FUNCTIONS[f"to{_name}"] = Builtin(partial(_to_json, must=False, **_options), 1, 1)
for _name in (
    "first", "rest", "last", "initial", "append", "prepend", "reverse", "uniq", "without", "has", "compact", "slice",
    "chunk", "merge", "mergeOverwrite", "deepCopy", "fromJson",
):  # fmt: skip
    DATA_FUNCTIONS[f"must{_name[0].upper()}{_name[1:]}"] = DATA_FUNCTIONS[_name]
_CHANCE = (
    "now date dateInZone date_in_zone dateModify date_modify mustDateModify ago htmlDate"
    " htmlDateInZone toDate mustToDate unixEpoch durationRound randAlpha randAlphaNum randAscii"
    " randNumeric randBytes randInt shuffle uuidv4 genPrivateKey genCA genCAWithKey"
    " genSelfSignedCert genSelfSignedCertWithKey genSignedCert genSignedCertWithKey buildCustomCert"
    " derivePassword htpasswd bcrypt encryptAES decryptAES"
)
# Argo CD functions that are not supported here, and what to use instead.
ELSEWHERE = dict.fromkeys(
    _CHANCE.split(),
    "its value differs between runs: set it with a generator",
)
