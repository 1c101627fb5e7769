"""Reads and writes YAML as Go's sigs.k8s.io/yaml does, which kubectl and Argo CD use.

The rules are those of YAML 1.1: `yes` and `y` are true, `1_000` is a number, and `017` is 15. A
date remains a string.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from task.errors import Malformed
from task.templates.go_template.printing import sprint
from task.text import go_float
from task.yaml_documents import NULL, Dialect, loaded

MOST = 1_000_000  # maximum values in a document after its aliases are expanded
_TRUE = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_LONGEST_NUMBER = 300  # maximum digits in a number
_FIRST = frozenset("+-.0123456789")  # characters that can start a number
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]*|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?")


def load(text: str) -> Any:
    """Return the first document in a YAML string, or None if the string is empty.

    Raises `NotYaml`, and `Malformed` for a document that is too large.
    """
    return next(iter(load_all(text)), None)


def load_all(text: str) -> list[Any]:
    """Return all documents in a YAML string. Raises the same errors as `load`."""
    return loaded(text, _DIALECT)


def _scalar(event: Any) -> Any:
    """Return the value of a scalar event of the YAML parser. A quoted scalar, or one with a tag
    other than `!!int`, is always a string.
    """
    value: str = event.value
    is_quoted = bool(event.style)
    has_other_tag = bool(event.tag) and event.tag != "tag:yaml.org,2002:int"
    if is_quoted or has_other_tag:
        return value
    if value and value[0] in _FIRST:
        return _scalar_number(value)
    if value in NULL:
        return None
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    return value


def _scalar_number(value: str) -> Any:
    """Return the value of a plain scalar that starts like a number: an int (`0x1F`), a float
    (`1e3`), or, if it is neither, a string (`1.2.3`).
    """
    plain = value.replace("_", "")
    if _INTEGER.fullmatch(plain):
        digits = plain.lstrip("+-")
        if len(digits) > _LONGEST_NUMBER:
            return value
        is_octal = len(digits) > 1 and digits.isdecimal() and digits[0] == "0"
        base = 8 if is_octal else 0  # 0: the base is in the prefix
        number = int(digits, base)
        return -number if plain[0] == "-" else number
    if _FLOAT.fullmatch(plain):
        decimal = float(plain)
        return decimal if math.isfinite(decimal) else value
    if _SPECIAL.fullmatch(value):
        return float(plain.replace(".", "", 1))  # Python has no dot in "-inf"
    return value


def _in_json(value: Any) -> Any:
    """Return a value (not a key) as Go reads it.

    Raises Malformed for infinity and NaN, because Go reads YAML via JSON.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed(f"json: unsupported value: {sprint((value,))}", "put it in quotes")
    return value


def _key(value: Any, _container: Mapping[str, Any]) -> str:
    """Return a key as a string, converted as for JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return ".nan"
        digits = ".inf" if math.isinf(value) else go_float(abs(value))
        return f"-{digits}" if value < 0 else digits
    raise Malformed("a key is a list or a mapping", "put a placeholder in quotes: '{{name}}'")


_DIALECT = Dialect(_scalar, _key, _in_json, merged=MOST, most=MOST)


def dump(value: Any, most: int) -> str:
    """Return the value as YAML, without a trailing newline.

    Raises `Malformed` if it has more than `most` characters.
    """
    if _is_block(value):
        all_lines = _block(value, indent="", start="")
    else:
        all_lines = iter([_flow(value, indent="")])
    lines = []
    size = 0
    for line in all_lines:
        size += len(line) + 1
        if size > most:
            raise Malformed("the text is too long")
        lines.append(line)
    return "\n".join(lines)


def _block(value: Any, indent: str, start: str) -> Iterator[str]:
    """Yield the lines of a non-empty mapping or list.

    `start` is the prefix of the first line: the indentation, or the "- " of an outer list.
    `indent` is the indentation of all other lines.
    """
    deeper = f"{indent}  "
    if isinstance(value, list):
        for item in value:
            if _is_block(item):
                yield from _block(item, deeper, f"{start}- ")
            else:
                yield f"{start}- {_flow(item, deeper)}"
            start = indent
        return
    for key, item in sorted(value.items()):
        key_text = _flow(key, "")
        if _is_block(item):
            yield f"{start}{key_text}:"
            indent_of_item = indent if isinstance(item, list) else deeper
            yield from _block(item, indent_of_item, indent_of_item)
        else:
            yield f"{start}{key_text}: {_flow(item, deeper)}"
        start = indent


def _is_block(value: Any) -> bool:
    """Return whether a value is written on several lines, as a non-empty mapping or list is."""
    return isinstance(value, (dict, list)) and len(value) > 0


def _flow(value: Any, indent: str) -> str:
    """Return a scalar, or an empty list or mapping, as YAML.

    `indent` is the indentation of a multi-line string. "" means that the string must be on one
    line.
    """
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if value == int(value) and abs(value) < 1e21:
            return str(int(value))  # Go converts via JSON, where 1000000 is written as digits
        digits = go_float(abs(value))
        return f"-{digits}" if value < 0 else digits
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    return _text(str(value), indent)


def _text(text: str, indent: str) -> str:
    """Return a string as YAML: plain, quoted, or in the literal style (`|`).

    `indent` is the indentation of a literal's lines. "" means that the string must be on one line.
    """
    has_control_characters = re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    if "\n" in text and not has_control_characters:
        if indent and not text.startswith((" ", "\n", "\t")):
            return _literal_style(text, indent)
        return json.dumps(text, ensure_ascii=False)
    if _means_something_else(text):
        return json.dumps(text)
    if not text.isprintable():
        return json.dumps(text, ensure_ascii=False)
    if _needs_quotes(text):
        return "'" + text.replace("'", "''") + "'"
    return text


def _literal_style(text: str, indent: str) -> str:
    """Return a multi-line string in the literal style: `|`, and then its lines, indented."""
    mark = "|"  # one line break at the end; `|+`: several; `|-`: none
    if text.endswith("\n\n"):
        mark = "|+"
    elif not text.endswith("\n"):
        mark = "|-"
    lines = text.removesuffix("\n").split("\n")
    return f"{mark}\n" + "\n".join(f"{indent}{line}" if line else "" for line in lines)


def _means_something_else(text: str) -> bool:
    """Return whether YAML would read the unquoted string as a number, a date, a bool, or null."""
    if text in _TRUE | _FALSE | NULL or text == "<<":
        return True
    if _SPECIAL.fullmatch(text) or _DATE.fullmatch(text):
        return True
    number = text.replace("_", "")
    return bool(_INTEGER.fullmatch(number) or _FLOAT.fullmatch(number))


def _needs_quotes(text: str) -> bool:
    """Return whether YAML would misread the unquoted string because it contains an indicator, such
    as `: ` or a leading `*`.
    """
    has_indicator_inside = ": " in text or " #" in text
    ends_with_colon_or_space = text[-1] in ": "
    if has_indicator_inside or ends_with_colon_or_space:
        return True
    has_more_after_sign = len(text) > 1 and text[1] != " "
    if text[0] in "-?:" and has_more_after_sign:  # `-x` is a string, but `---` begins a document
        return text.startswith("---")
    return text[0] in "-?:,[]{}#&*!|>'\"%@` ="
