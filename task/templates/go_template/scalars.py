"""Formats one string, number or boolean like Go's `fmt`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, isnan

from task.templates.go_template.literals import go_bytes
from task.templates.go_template.nodes import FailedTemplate
from task.text import go_float

ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
ROUND = {"f": 6, "F": 6, "e": 6, "E": 6}
BASES = {"d": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
PREFIXES = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}


@dataclass(frozen=True)
class Spec:
    """The flags, width and precision of one directive."""

    flags: str = ""
    width: int = 0
    precision: int | None = None
    plus_v: bool = False  # %+v, with the names of fields
    sharp_v: bool = False  # %#v, as Go source

    def pad(self, text: str, fill: str = " ") -> str:
        """Pad a text to the width of the directive."""
        if "-" in self.flags:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if "0" in self.flags else fill)


PLAIN = Spec()


def scalar(spec: Spec, verb: str, value: str | float) -> str | None:
    """Return the text of a scalar, or None if the verb does not fit its type."""
    if isinstance(value, str):
        return _string(spec, verb, value)
    if isinstance(value, bool):
        return spec.pad(str(value).lower()) if verb in {"t", "v"} else None
    if isinstance(value, int):
        return _integer(spec, "d" if verb == "v" else verb, value)
    return _float(spec, "g" if verb == "v" else verb, value)


def _string(spec: Spec, verb: str, value: str) -> str | None:
    if verb in {"x", "X"}:
        return _hexadecimal(spec, verb, go_bytes(value))
    text = value if spec.precision is None else value[: spec.precision]
    if verb == "q" or spec.sharp_v:
        raw = "#" in spec.flags and "`" not in text and all(c == "\t" or (c >= " " and c != "\x7f") for c in text)
        return spec.pad(f"`{text}`" if raw and text.isprintable() else quote(text, '"', ascii_only="+" in spec.flags))
    return spec.pad(text) if verb in {"s", "v"} else None


def padded(spec: Spec, text: str) -> str:
    """Return a string as %s prints it."""
    return spec.pad(text if spec.precision is None else text[: spec.precision])


def _hexadecimal(spec: Spec, verb: str, raw: bytes) -> str:
    raw = raw if spec.precision is None else raw[: spec.precision]
    prefix = f"0{verb}" if "#" in spec.flags and raw else ""
    text = prefix + raw.hex()
    if " " in spec.flags:
        text = " ".join(f"{prefix}{byte:02x}" for byte in raw)
    return spec.pad(text.upper() if verb == "X" else text)


def quote(text: str, mark: str, *, ascii_only: bool = False) -> str:
    """Return the text as a Go literal between the given quotes, `"` or `'`."""
    return mark + "".join(_quoted(letter, mark, ascii_only) for letter in text) + mark


def _quoted(letter: str, mark: str, ascii_only: bool) -> str:  # noqa: FBT001
    if letter == mark:
        return f"\\{letter}"
    if letter in ESCAPES:
        return ESCAPES[letter]
    if letter.isprintable() and (letter.isascii() or not ascii_only):
        return letter
    number = ord(letter)
    if number < 0x80 or 0xDC80 <= number <= 0xDCFF:  # control characters; bytes that are not UTF-8
        return f"\\x{number & 0xFF:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def _integer(spec: Spec, verb: str, value: int) -> str | None:
    if verb in {"c", "q", "U"}:
        return _rune(spec, verb, value)
    if verb not in BASES:
        return None
    sign = "-" if value < 0 else "+" if "+" in spec.flags else " " if " " in spec.flags else ""
    if spec.precision == 0 and not value:  # then Go prints only padding
        return " " * spec.width
    digits = format(abs(value), BASES[verb])
    if spec.precision is not None:
        digits = digits.rjust(spec.precision, "0")
    elif "0" in spec.flags and "-" not in spec.flags:
        digits = digits.rjust(spec.width - len(sign), "0")
    prefix = PREFIXES.get(verb, "") if "#" in spec.flags else ""
    if verb == "O":
        prefix = "0o" + ("0" if "#" in spec.flags and digits[0] != "0" else "")
    elif verb == "o" and digits[0] == "0":
        prefix = ""
    return replace(spec, flags=spec.flags.replace("0", "")).pad(sign + prefix + digits)


def _rune(spec: Spec, verb: str, value: int) -> str:
    valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000
    letter = chr(value) if valid else "\ufffd"
    if verb == "U":
        if spec.precision is not None or value < 0:
            raise FailedTemplate("printf: %U takes a character, and no precision here")
        shown = f" '{letter}'" if "#" in spec.flags and letter.isprintable() else ""
        return replace(spec, flags=spec.flags.replace("0", "")).pad(f"U+{value:04X}{shown}")
    return spec.pad(letter if verb == "c" else quote(letter, "'", ascii_only="+" in spec.flags))


def _float(spec: Spec, verb: str, value: float) -> str | None:
    if verb not in "eEfFgG":
        if verb in "bxX":
            raise FailedTemplate(f"printf: %{verb} of a float is not supported here")
        return None
    if "#" in spec.flags:
        raise FailedTemplate(f"printf: %#{verb} of a float is not supported here")
    if not isfinite(value):
        text = "NaN" if isnan(value) else f"{value:+}".replace("i", "I")
        return replace(spec, flags=spec.flags.replace("0", "")).pad(text)
    precision = ROUND.get(verb) if spec.precision is None else spec.precision
    number = abs(value)
    text = go_float(number) if precision is None else format(number, f".{precision}{verb}")
    text = text.upper() if verb in "EG" else text
    negative = str(value).startswith("-")
    sign = "-" if negative else "+" if "+" in spec.flags else " " if " " in spec.flags else ""
    if "0" in spec.flags and "-" not in spec.flags:
        text = text.rjust(spec.width - len(sign), "0")
    return replace(spec, flags=spec.flags.replace("0", "")).pad(sign + text)
