"""Turns values into text like Go's `fmt`, for `print`, `println` and `printf`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from task.templates.go_template.nodes import LONGEST_TEXT, AnyMap, FailedTemplate, GoMap, Printable
from task.templates.go_template.scalars import PLAIN, Spec, padded, scalar

WIDEST = 1_000_000  # Go's limit; beyond it, Go prints garbage such as %!(BADWIDTH), but here the template fails
# Flags, width, precision and verb. Each of the last three may have an operand's index before it: %[3]*.[2]*[1]f.
DIRECTIVE = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<first>\[[^\]]*\])?(?P<width>\*|[0-9]*)"
    r"(?:\.(?P<second>\[[^\]]*\])?(?P<precision>\*|[0-9]*)(?=.))?(?P<third>\[[^\]]*\])?(?P<verb>.?)",
    re.DOTALL,
)


class Sink:
    """Collects the text of a template, up to the limit `LONGEST_TEXT`."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        """Append a text. Raises FailedTemplate if the text becomes too long."""
        self.size += len(text)
        if self.size > LONGEST_TEXT:
            raise FailedTemplate(f"the text grows beyond {LONGEST_TEXT} characters")
        self.parts.append(text)

    def text(self) -> str:
        """Return the whole text."""
        return "".join(self.parts)


def sprint(values: Sequence[Any]) -> str:
    """Format values like `fmt.Sprint`, with a space between two of them if neither is a string."""
    sink = Sink()
    for at, value in enumerate(values):
        if at and not isinstance(value, str) and not isinstance(values[at - 1], str):
            sink.add(" ")
        write(sink, PLAIN, "v", value)
    return sink.text()


def sprintln(values: Sequence[Any]) -> str:
    """Format values like `fmt.Sprintln`, with spaces between all of them and a line ending after the last."""
    sink = Sink()
    for at, value in enumerate(values):
        sink.add(" " if at else "")
        write(sink, PLAIN, "v", value)
    sink.add("\n")
    return sink.text()


def sprintf(form: str, values: Sequence[Any]) -> str:
    """Format values like `fmt.Sprintf`, with Go's notes about wrong verbs and missing operands.

    Raises FailedTemplate.
    """
    return Printf(form, values).text()


class Printf:
    """Formats operands with one format string, and remembers which operand is next."""

    def __init__(self, form: str, values: Sequence[Any]) -> None:
        self.form = form
        self.values = values
        self.operand = 0
        self.reordered = False
        self.sink = Sink()

    def text(self) -> str:
        """Return the formatted text. Call this only once."""
        at = 0
        for match in DIRECTIVE.finditer(self.form):
            self.sink.add(self.form[at : match.start()])
            self.directive(match)
            at = match.end()
        self.sink.add(self.form[at:])
        if not self.reordered and self.operand < len(self.values):
            self.extra()
        return self.sink.text()

    def directive(self, match: re.Match[str]) -> None:
        """Print one directive, such as `%-5d`."""
        self.choose(match["first"])
        flags, width = self.width(match["flags"], match["width"])
        self.choose(match["second"])
        precision = self.precision(match["precision"])
        self.choose(match["third"])
        verb = match["verb"]
        if verb in {"", "%"}:
            self.sink.add(verb or "%!(NOVERB)")
        elif self.operand >= len(self.values):
            self.sink.add(f"%!{verb}(MISSING)")
        else:
            spec = Spec(flags, width, precision)
            if verb == "v":
                spec = Spec(flags.replace("#", "").replace("+", ""), width, precision, "+" in flags, "#" in flags)
            write(self.sink, spec, verb, self.take())

    def choose(self, index: str | None) -> None:
        """Move to the operand with an explicit index, such as `[2]` for the second one. Raises FailedTemplate."""
        if index is None:
            return
        if not (index[1:-1].isascii() and index[1:-1].isdecimal() and 0 < int(index[1:-1][:9]) <= len(self.values)):
            raise FailedTemplate(f"printf: no operand {index[:20]}")
        self.operand = int(index[1:-1]) - 1
        self.reordered = True

    def take(self) -> Any:
        """Return the next operand, and move to the one after it."""
        self.operand += 1
        return self.values[self.operand - 1]

    def width(self, flags: str, text: str) -> tuple[str, int]:
        """Return the flags and the width. A negative width from an operand means left-aligned."""
        width = self.number(text, "%!(BADWIDTH)") or 0
        if width < 0:
            return flags.replace("0", "") + "-", -width
        return flags, width

    def precision(self, text: str | None) -> int | None:
        """Return the precision, or None if the directive has none, or a negative one."""
        if text is None:
            return None
        precision = self.number(text or "0", "%!(BADPREC)")
        return None if precision is None or precision < 0 else precision

    def number(self, text: str, bad: str) -> int | None:
        """Return a width or precision: the number, or for `*` the next operand.

        Raises FailedTemplate for a huge one.
        """
        value: Any = text
        if text == "*":
            value = self.take() if self.operand < len(self.values) else None
            if not isinstance(value, int) or isinstance(value, bool):
                self.sink.add(bad)
                return None
        if len(str(value)) > 8 or abs(int(value or 0)) > WIDEST:  # eight characters: a sign and 1000000
            raise FailedTemplate(f"printf: width or precision {str(value)[:20]} is too large")
        return int(value) if value else None if isinstance(value, str) else 0

    def extra(self) -> None:
        """Print Go's note about operands that no directive used."""
        notes = []
        for value in self.values[self.operand :]:
            sink = Sink()
            write(sink, PLAIN, "v", value)
            notes.append("<nil>" if value is None else f"{type_name(value)}={sink.text()}")
        self.sink.add(f"%!(EXTRA {', '.join(notes)})")


def type_name(value: object) -> str:
    """Return the name of the value's Go type.

    Raises FailedTemplate for other lists and for structs, because their Go type is not known here.
    """
    names: dict[type, str] = {str: "string", bool: "bool", int: "int", float: "float64", GoMap: "map[string]string"}
    names |= {AnyMap: "map[string]interface {}", list: "[]interface {}"}
    name = names.get(type(value))
    if name is None:
        raise FailedTemplate("printf: the type of a list or struct has no name here")
    return name


def write(sink: Sink, spec: Spec, verb: str, value: Any) -> None:
    """Print one value as the verb requires. Raises FailedTemplate for a verb that is not supported here."""
    if spec is PLAIN and isinstance(value, str | int):  # the usual case
        sink.add(value if isinstance(value, str) else str(value).lower())
    elif verb in {"p", "w"} or (spec.sharp_v and not isinstance(value, str | int | float | None)):
        raise FailedTemplate(f"printf: %{'#' * spec.sharp_v}{verb} is not supported here")
    elif value is None:
        sink.add(spec.pad("<nil>") if verb in {"v", "T"} else f"%!{verb}(<nil>)")
    elif isinstance(value, Printable):
        write(sink, spec, verb, value.text)
    elif verb == "T":
        sink.add(padded(spec, type_name(value)))
    elif isinstance(value, str | bool | int | float):
        text = scalar(spec, verb, value)
        if text is None:
            text = f"%!{verb}({type_name(value)}={scalar(spec, 'v', value)})"
        sink.add(text)
    else:
        _write_many(sink, spec, verb, value)


def _write_many(sink: Sink, spec: Spec, verb: str, value: Any) -> None:
    """Print a list, a map or a struct. The verb applies to each element."""
    labelled = isinstance(value, GoMap)
    sink.add("map[" if labelled else "{" if isinstance(value, Mapping) else "[")
    items = sorted(value.items()) if labelled else list(value.items()) if isinstance(value, Mapping) else None
    for at, (name, element) in enumerate(items if items is not None else (("", element) for element in value)):
        sink.add(" " if at else "")
        if labelled:
            write(sink, spec, verb, name)
        elif items is not None and spec.plus_v:
            sink.add(str(name))
        if labelled or (items is not None and spec.plus_v):
            sink.add(":")
        write(sink, spec, verb, element)
    sink.add("}" if isinstance(value, Mapping) and not labelled else "]")


def printed(value: Any) -> str:
    """Return the text that an action prints for a value."""
    if isinstance(value, str):
        return value
    return "<no value>" if value is None else sprint((value,))
