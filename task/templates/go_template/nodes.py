"""The nodes of a parsed template, and the limits that make a hostile template harmless."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from task.errors import Malformed

LONGEST_TEMPLATE = 256 * 1024  # characters
LONGEST_TEXT = 1024 * 1024  # characters of a result, or of a value that is used for it
DEEPEST = 100  # nested blocks and parentheses; each else-if counts


class FailedTemplate(Malformed):
    """A template parses, but fails while it runs.

    The reason may be an unknown field, an index out of range, or too many steps.
    """

    operand: Field | Variable | None = None  # the innermost one that failed
    line = 0


class GoMap(dict[str, Any]):
    """A Go `map[string]string` in a template's data. A missing key prints `<no value>`, while a struct's would fail."""

    zero: str | None = ""  # the result of `index` for a missing key


class AnyMap(GoMap):
    """A Go `map[string]interface{}`, the type of maps from JSON and YAML."""

    zero = None


class Printable(dict[str, Any]):
    """A struct that prints as its own text: a Go `Stringer`."""

    def __init__(self, text: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.text = text


@dataclass(frozen=True)
class Literal:
    """A string, number or boolean, or nil (`None`)."""

    value: str | int | float | bool | None
    text: str


@dataclass(frozen=True)
class Field:
    """`.A.B`, or `.` itself if there are no names."""

    names: tuple[str, ...]
    text: str
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)  # from 0


@dataclass(frozen=True)
class Variable:
    """`$x.A.B`. The name includes the dollar sign."""

    name: str
    names: tuple[str, ...]
    text: str
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Function:
    """The name of a builtin."""

    name: str
    text: str


@dataclass(frozen=True)
class Pipe:
    """`$x := a | b`: commands, each a list of operands, and the variables that get the result."""

    commands: tuple[tuple[Operand, ...], ...]
    variables: tuple[str, ...]
    assigns: bool  # "=", not ":="
    text: str


@dataclass(frozen=True)
class Chain:
    """`(pipeline).A.B`."""

    inner: Pipe | Function
    names: tuple[str, ...]
    text: str


Operand = Literal | Field | Variable | Function | Pipe | Chain


@dataclass(frozen=True)
class Text:
    """Text between actions."""

    text: str


@dataclass(frozen=True)
class Action:
    """A pipeline whose value is printed, unless a variable gets it."""

    pipe: Pipe
    line: int


@dataclass(frozen=True)
class Block:
    """`if`, `with` or `range`."""

    kind: str
    pipe: Pipe
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class Jump:
    """`break` or `continue`."""

    kind: str


@dataclass(frozen=True)
class TemplateCall:
    """`{{template "name" pipeline}}`."""

    name: str
    pipe: Pipe | None
    line: int


Node = Text | Action | Block | Jump | TemplateCall
