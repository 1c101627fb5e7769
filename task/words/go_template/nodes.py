"""What a parsed template is made of, and the bounds that keep a hostile one harmless."""

from __future__ import annotations

from task.errors import Malformed
from task.record import NamedTuple

LONGEST_TEMPLATE = 256 * 1024  # characters
LONGEST_TEXT = 1024 * 1024  # characters of a result, or of one value on the way to it
DEEPEST = 100  # blocks and parentheses in one another, else-if counts as well


class FailedTemplate(Malformed):
    """A template that parses and fails while it runs: a field that does not exist, an index out of range, no end."""


class GoMap(dict[str, str]):
    """A Go `map[string]string` in a template's data: a missing key prints `<no value>`, where a struct's fails."""


class Literal(NamedTuple):
    """A string, number or boolean, or nil (`None`)."""

    value: str | int | float | bool | None
    text: str


class Field(NamedTuple):
    """`.A.B`; no names: `.` itself."""

    names: tuple[str, ...]
    text: str


class Variable(NamedTuple):
    """`$x.A.B`; the name includes the dollar sign."""

    name: str
    names: tuple[str, ...]
    text: str


class Function(NamedTuple):
    """The name of a builtin."""

    name: str
    text: str


class Pipe(NamedTuple):
    """`$x := a | b`: commands, each a list of operands, and the variables that take the result."""

    commands: tuple[tuple[Operand, ...], ...]
    variables: tuple[str, ...]
    assigns: bool  # "=" rather than ":="
    text: str


class Chain(NamedTuple):
    """`(pipeline).A.B`."""

    inner: Pipe | Function
    names: tuple[str, ...]
    text: str


Operand = Literal | Field | Variable | Function | Pipe | Chain


class Text(NamedTuple):
    """Text outside of actions."""

    text: str


class Action(NamedTuple):
    """A pipeline whose value is printed, unless it goes into a variable."""

    pipe: Pipe
    line: int


class Block(NamedTuple):
    """`if`, `with` or `range`."""

    kind: str
    pipe: Pipe
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    line: int


class Jump(NamedTuple):
    """`break` or `continue`."""

    kind: str


Node = Text | Action | Block | Jump
