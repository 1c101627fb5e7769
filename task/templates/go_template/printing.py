"""Formats values as Go's `fmt` does, for `print`, `println`, and `printf`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan
from typing import Any

from task.templates.go_template.values import (
    LONGEST_TEXT,
    AnyMap,
    FailedTemplate,
    GoMap,
    Printable,
    go_bytes,
)
from task.text import go_float

ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
}
PREFIXES = {
    "b": "0b",
    "o": "0",
    "x": "0x",
    "X": "0X",
}
# Go's limit, beyond which Go prints notes such as %!(BADWIDTH), whereas here the template fails
WIDEST = 1_000_000
# Flags, width, precision, and verb. Each of the last three may be preceded by an operand index:
# %[3]*.[2]*[1]f.
DIRECTIVE = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<first>\[[^\]]*\])?(?P<width>\*|[0-9]*)"
    r"(?:\.(?P<second>\[[^\]]*\])?(?P<precision>\*|[0-9]*)(?=.))?(?P<third>\[[^\]]*\])?(?P<verb>.?)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Spec:
    """The flags, width, and precision of a directive."""

    flags: str = ""
    width: int = 0
    precision: int | None = None
    plus_v: bool = False  # %+v, with field names
    sharp_v: bool = False  # %#v, as Go source

    @property
    def pads_with_zeros(self) -> bool:
        """True if numbers are padded with zeros. Padding on the right is always done with
        spaces.
        """
        return "0" in self.flags and "-" not in self.flags

    def pad(self, text: str, *, zeros: bool = True) -> str:
        """Pad a string to the directive's width: with zeros if the flags request them and `zeros`
        is true, and with spaces otherwise.
        """
        if "-" in self.flags:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if zeros and "0" in self.flags else " ")

    def sign(self, *, negative: bool) -> str:
        """Return the sign to print before a number: `-` if it is negative, otherwise the `+` or
        space that the flags request, or "".
        """
        if negative:
            return "-"
        if "+" in self.flags:
            return "+"
        return " " if " " in self.flags else ""


PLAIN = Spec()


def format_scalar(spec: Spec, verb: str, value: str | float) -> str | None:
    """Format a string, boolean, or number. Return None if the verb does not match the value's
    type.
    """
    if isinstance(value, str):
        return _format_string(spec, verb, value)
    if isinstance(value, bool):
        return spec.pad(str(value).lower()) if verb in {"t", "v"} else None
    if isinstance(value, int):
        return _format_integer(spec, "d" if verb == "v" else verb, value)
    return _format_float(spec, "g" if verb == "v" else verb, value)


def _format_string(spec: Spec, verb: str, value: str) -> str | None:
    """Format a string for `%s`, `%v`, `%q`, `%x`, or `%X`. Return None for any other verb."""
    if verb in {"x", "X"}:
        return _hexadecimal(spec, verb, go_bytes(value))
    text = value[: spec.precision]
    if verb == "q" or spec.sharp_v:
        can_be_raw = "`" not in text and text.isprintable()
        if "#" in spec.flags and can_be_raw:
            return spec.pad(f"`{text}`")
        return spec.pad(quote(text, '"', ascii_only="+" in spec.flags))
    if verb in {"s", "v"}:
        return spec.pad(text)
    return None


def _hexadecimal(spec: Spec, verb: str, raw: bytes) -> str:
    """Format bytes for `%x` or `%X`: as `6f6b`, or as `6f 6b` if the flags contain a space.

    If the flags contain `#`, the digits get the prefix `0x`.
    """
    shown = raw[: spec.precision]
    prefix = f"0{verb}" if "#" in spec.flags and shown else ""
    if " " in spec.flags:
        text = " ".join(f"{prefix}{byte:02x}" for byte in shown)
    else:
        text = prefix + shown.hex()
    return spec.pad(text.upper() if verb == "X" else text)


def quote(text: str, mark: str, *, ascii_only: bool = False) -> str:
    """Return the text as a Go literal between the given quotes, `"` or `'`."""
    return mark + "".join(_character_in_quotes(letter, mark, ascii_only) for letter in text) + mark


def _character_in_quotes(letter: str, mark: str, ascii_only: bool) -> str:  # noqa: FBT001
    """Return a character as it appears in a Go literal that is quoted with `mark`: the character
    itself, or an escape.
    """
    if letter == mark:
        return f"\\{letter}"
    if letter in ESCAPES:
        return ESCAPES[letter]
    if letter.isprintable() and (letter.isascii() or not ascii_only):
        return letter
    code_point = ord(letter)
    is_undecoded_byte = 0xDC80 <= code_point <= 0xDCFF  # 0xDC80 + N is byte 0x80 + N (`go_bytes`)
    if letter.isascii() or is_undecoded_byte:
        byte = code_point & 0xFF
        return f"\\x{byte:02x}"
    return f"\\u{code_point:04x}" if code_point <= 0xFFFF else f"\\U{code_point:08x}"


def _format_integer(spec: Spec, verb: str, value: int) -> str | None:
    """Format an integer, such as `+0x1f`. Return None if the verb is not for integers."""
    if verb in {"c", "q", "U"}:
        return _rune(spec, verb, value)
    if verb not in "dboOxX":
        return None
    if spec.precision == 0 and value == 0:  # as in Go, only the padding is printed
        return " " * spec.width
    sign = spec.sign(negative=value < 0)
    digits = format(abs(value), "o" if verb == "O" else verb)
    if spec.precision is not None:
        digits = digits.rjust(spec.precision, "0")
    elif spec.pads_with_zeros:
        digits = digits.rjust(spec.width - len(sign), "0")
    prefix = _prefix_of_digits(spec, verb, digits)
    return spec.pad(sign + prefix + digits, zeros=False)


def _prefix_of_digits(spec: Spec, verb: str, digits: str) -> str:
    """Return the prefix that indicates an integer's base, such as `0x`, or "" for no prefix.

    The verb `O` always prints a prefix, and other verbs do so only if the flags contain `#`. Octal
    digits that already begin with a zero do not get another one.
    """
    shows_base = "#" in spec.flags
    has_leading_zero = digits.startswith("0")
    if verb == "O":
        return "0o0" if shows_base and not has_leading_zero else "0o"
    if verb == "o" and has_leading_zero:
        return ""
    return PREFIXES.get(verb, "") if shows_base else ""


def _rune(spec: Spec, verb: str, value: int) -> str:
    """Format a code point for `%c` (x), `%q` ('x'), or `%U` (U+0078).

    As in Go, an invalid code point is printed as the character U+FFFD. Raises FailedTemplate for a
    `%U` with a precision or a negative value.
    """
    is_surrogate = 0xD800 <= value < 0xE000
    is_valid = 0 <= value <= 0x10FFFF and not is_surrogate
    letter = chr(value) if is_valid else "\ufffd"
    if verb == "c":
        return spec.pad(letter)
    if verb == "q":
        return spec.pad(quote(letter, "'", ascii_only="+" in spec.flags))
    if spec.precision is not None or value < 0:
        raise FailedTemplate("printf: %U accepts only a character, without precision, here")
    text = f"U+{value:04X}"
    if "#" in spec.flags and letter.isprintable():
        text += f" '{letter}'"
    return spec.pad(text, zeros=False)


def _format_float(spec: Spec, verb: str, value: float) -> str | None:
    """Format a float for `%e`, `%f`, `%g`, and their uppercase forms. Return None for a verb that
    is not for floats.

    Raises FailedTemplate for a format that is not supported here.
    """
    if verb in "bxX":
        raise FailedTemplate(f"printf: %{verb} of a float is not supported")
    if verb not in "eEfFgG":
        return None
    if "#" in spec.flags:
        raise FailedTemplate(f"printf: %#{verb} of a float is not supported")
    if isnan(value):
        return spec.pad("NaN", zeros=False)
    if not isfinite(value):
        return spec.pad("+Inf" if value > 0 else "-Inf", zeros=False)
    sign = spec.sign(negative=str(value).startswith("-"))  # also for -0.0
    digits = _digits_of_float(spec, verb, abs(value))
    if spec.pads_with_zeros:
        digits = digits.rjust(spec.width - len(sign), "0")
    return spec.pad(sign + digits, zeros=False)


def _digits_of_float(spec: Spec, verb: str, number: float) -> str:
    """Format a float without its sign. The default precision is 6, or for `%g`, as many digits as
    necessary.
    """
    precision = spec.precision
    if precision is None and verb in "eEfF":
        precision = 6
    text = go_float(number) if precision is None else format(number, f".{precision}{verb}")
    return text.upper() if verb in "EG" else text


class Sink:
    """Collects a template's output, up to the limit `LONGEST_TEXT`."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        """Append text. Raises FailedTemplate if the output becomes too long."""
        self.size += len(text)
        if self.size > LONGEST_TEXT:
            raise FailedTemplate(f"the text exceeds {LONGEST_TEXT} characters")
        self.parts.append(text)

    def text(self) -> str:
        """Return the complete output."""
        return "".join(self.parts)


def sprint(values: Sequence[Any]) -> str:
    """Format values as `fmt.Sprint` does, with a space between two values if neither is a
    string.
    """
    sink = Sink()
    previous: Any = ""  # a string, so that no space precedes the first value
    for value in values:
        is_next_to_string = isinstance(previous, str) or isinstance(value, str)
        if not is_next_to_string:
            sink.add(" ")
        write(sink, PLAIN, "v", value)
        previous = value
    return sink.text()


def sprintln(values: Sequence[Any]) -> str:
    """Format values as `fmt.Sprintln` does, with spaces between them and a newline at the end."""
    sink = Sink()
    for number, value in enumerate(values):
        if number > 0:
            sink.add(" ")
        write(sink, PLAIN, "v", value)
    sink.add("\n")
    return sink.text()


def sprintf(form: str, values: Sequence[Any]) -> str:
    """Format values like `fmt.Sprintf`, with Go's notes about wrong verbs and missing operands.

    Raises FailedTemplate.
    """
    return Printf(form, values).text()


class Printf:
    """Formats operands according to a format string, and keeps track of the next operand."""

    def __init__(self, form: str, values: Sequence[Any]) -> None:
        self.form = form
        self.values = values
        self.next_operand = 0  # the number of the next operand
        self.has_explicit_index = False  # whether a directive has chosen an operand by its index
        self.sink = Sink()

    def text(self) -> str:
        """Return the formatted text. This may be called only once."""
        end_of_previous = 0
        for match in DIRECTIVE.finditer(self.form):
            self.sink.add(self.form[end_of_previous : match.start()])
            self.directive(match)
            end_of_previous = match.end()
        self.sink.add(self.form[end_of_previous:])
        # as in Go, a format string with explicit indexes may leave operands unused
        has_unused_operands = self.next_operand < len(self.values)
        if has_unused_operands and not self.has_explicit_index:
            self.add_note_about_unused()
        return self.sink.text()

    def directive(self, match: re.Match[str]) -> None:
        """Add the text for a directive, such as `%-5d`: normally the next operand, formatted.

        If the verb or the operand is missing, add Go's note, such as `%!d(MISSING)`.
        """
        # The width and the precision may be operands, too, each with its own index. They precede
        # the operand that is printed, so the order of these calls matters.
        self.choose_operand(match["first"])
        flags, width = self.width(match["flags"], match["width"])
        self.choose_operand(match["second"])
        precision = self.precision(match["precision"])
        self.choose_operand(match["third"])
        verb = match["verb"]
        if verb == "":
            self.sink.add("%!(NOVERB)")
        elif verb == "%":
            self.sink.add("%")
        elif self.next_operand >= len(self.values):
            self.sink.add(f"%!{verb}(MISSING)")
        else:
            spec = Spec(flags, width, precision)
            if verb == "v":  # with this verb, `+` and `#` have different meanings
                spec = replace(
                    spec,
                    flags=flags.replace("#", "").replace("+", ""),
                    plus_v="+" in flags,
                    sharp_v="#" in flags,
                )
            write(self.sink, spec, verb, self.take_operand())

    def choose_operand(self, index: str | None) -> None:
        """If there is an explicit index, make that operand the next one: for `[2]`, the second
        operand. Otherwise, do nothing.

        Raises FailedTemplate if there is no such operand.
        """
        if index is None:
            return
        digits = index[1:-1].lstrip("0")  # without the brackets
        is_number = digits.isascii() and digits.isdecimal()
        # Python may refuse to convert a number with thousands of digits
        exists = is_number and len(digits) <= 9 and int(digits) <= len(self.values)
        if not exists:
            raise FailedTemplate(f"printf: no operand {index[:20]}")
        self.next_operand = int(digits) - 1
        self.has_explicit_index = True

    def take_operand(self) -> Any:
        """Return the next operand and move past it."""
        value = self.values[self.next_operand]
        self.next_operand += 1
        return value

    def width(self, flags: str, text: str) -> tuple[str, int]:
        """Return a directive's flags and width.

        A negative width that comes from an operand means left alignment: the width becomes
        positive, and `-` is added to the flags.
        """
        width = self.number(text, "%!(BADWIDTH)") or 0
        if width < 0:
            return flags.replace("0", "") + "-", -width
        return flags, width

    def precision(self, text: str | None) -> int | None:
        """Return a directive's precision, or None if it is missing or negative."""
        if text is None:
            return None
        precision = self.number(text or "0", "%!(BADPREC)")  # `%.f` means `%.0f`
        return None if precision is None or precision < 0 else precision

    def number(self, text: str, bad: str) -> int | None:
        """Return a width or precision: the number in the directive, or for `*`, the next operand.

        Return None if the directive contains no number. If the operand is missing or is not an
        integer, also return None, and add Go's note `bad` to the output. Raises FailedTemplate if
        the number is too large.
        """
        if not text:
            return None
        digits = text
        if text == "*":
            operand = self.take_operand() if self.next_operand < len(self.values) else None
            is_integer = isinstance(operand, int) and not isinstance(operand, bool)
            if not is_integer:
                self.sink.add(bad)
                return None
            digits = str(operand)
        # The length is checked first, because Python refuses to convert very long numbers.
        longest_number = f"-{WIDEST}"
        if len(digits) > len(longest_number) or abs(int(digits)) > WIDEST:
            raise FailedTemplate(f"printf: width or precision {digits[:20]} is too large")
        return int(digits)

    def add_note_about_unused(self) -> None:
        """Add Go's note about operands that no directive has used."""
        notes = []
        for value in self.values[self.next_operand :]:
            if value is None:
                notes.append("<nil>")
                continue
            sink = Sink()
            write(sink, PLAIN, "v", value)
            notes.append(f"{type_name(value)}={sink.text()}")
        self.sink.add(f"%!(EXTRA {', '.join(notes)})")


def type_name(value: object) -> str:
    """Return the name of a value's Go type.

    Raises FailedTemplate for a struct, and for a list that is not a Python list, because the Go
    types of these are unknown here.
    """
    names: dict[type, str] = {
        str: "string",
        bool: "bool",
        int: "int",
        float: "float64",
        GoMap: "map[string]string",
        AnyMap: "map[string]interface {}",
        list: "[]interface {}",
    }
    name = names.get(type(value))
    if name is None:
        raise FailedTemplate("printf: the type name of a list or struct is not supported")
    return name


def write(sink: Sink, spec: Spec, verb: str, value: Any) -> None:
    """Format a value according to the verb, and append it to the output `sink`.

    If the verb does not match the value's type, add Go's note, such as `%!d(string=x)`. Raises
    FailedTemplate for a verb that is not supported here.
    """
    if spec is PLAIN and isinstance(value, str | int):  # a fast path for the usual case
        sink.add(value if isinstance(value, str) else str(value).lower())  # `true`, not `True`
        return
    _refuse_unsupported(spec, verb, value)
    if value is None:
        sink.add(spec.pad("<nil>") if verb in {"v", "T"} else f"%!{verb}(<nil>)")
    elif isinstance(value, Printable):
        write(sink, spec, verb, value.text)
    elif verb == "T":
        sink.add(spec.pad(type_name(value)[: spec.precision]))
    elif isinstance(value, str | bool | int | float):
        text = format_scalar(spec, verb, value)
        if text is None:  # the wrong verb for this type
            text = f"%!{verb}({type_name(value)}={format_scalar(spec, 'v', value)})"
        sink.add(text)
    else:
        _write_collection(sink, spec, verb, value)


def _refuse_unsupported(spec: Spec, verb: str, value: Any) -> None:
    """Raise FailedTemplate for `%p`, for `%w`, and for a list, map, or struct that would be printed
    as Go source.
    """
    is_scalar = isinstance(value, str | int | float | None)
    if verb in {"p", "w"} or (spec.sharp_v and not is_scalar):
        sharp = "#" if spec.sharp_v else ""
        raise FailedTemplate(f"printf: %{sharp}{verb} is not supported")


def _write_collection(sink: Sink, spec: Spec, verb: str, value: Any) -> None:
    """Append a list, map, or struct to the output. The verb applies to each element."""
    if isinstance(value, GoMap):
        _write_map(sink, spec, verb, value)
        return
    if isinstance(value, Mapping):
        _write_struct(sink, spec, verb, value)
        return
    sink.add("[")
    for number, element in enumerate(value):
        if number > 0:
            sink.add(" ")
        write(sink, spec, verb, element)
    sink.add("]")


def _write_map(sink: Sink, spec: Spec, verb: str, value: GoMap) -> None:
    """Append a map to the output, sorted by key as in Go: `map[a:1 b:2]`."""
    sink.add("map[")
    for number, (name, element) in enumerate(sorted(value.items())):
        if number > 0:
            sink.add(" ")
        write(sink, spec, verb, name)
        sink.add(":")
        write(sink, spec, verb, element)
    sink.add("]")


def _write_struct(sink: Sink, spec: Spec, verb: str, value: Mapping[str, Any]) -> None:
    """Append a struct to the output: its values (`{1 2}`), and with `%+v`, also the names of its
    fields (`{A:1 B:2}`).
    """
    sink.add("{")
    for number, (name, element) in enumerate(value.items()):
        if number > 0:
            sink.add(" ")
        if spec.plus_v:
            sink.add(f"{name}:")
        write(sink, spec, verb, element)
    sink.add("}")


def printed_text(value: Any) -> str:
    """Return the text that an action prints for a value."""
    if isinstance(value, str):
        return value
    return "<no value>" if value is None else sprint((value,))
