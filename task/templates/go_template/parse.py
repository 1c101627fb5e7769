"""Parses tokens into nodes, following the grammar of Go's `text/template`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from task.errors import Malformed
from task.templates.go_template.lexer import Token, character, malformed, number, scan, string
from task.templates.go_template.values import DEEPEST, SHORTCUTS

OPERANDS = frozenset(
    ("string", "raw", "char", "number", "nil", "field", "dot", "word", "variable", "left")
)
LONGEST_TEMPLATE = 256 * 1024  # characters


@dataclass(frozen=True)
class Literal:
    """A string, number, boolean, or nil (`None`)."""

    value: str | int | float | bool | None
    text: str


@dataclass(frozen=True)
class Field:
    """`.A.B` or `$x.A.B`, or just `.` or `$x` if there are no names."""

    variable: str  # with the dollar sign, or "." for the data
    names: tuple[str, ...]
    text: str
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)  # counting from 0


DOT = Field(".", (), ".")


@dataclass(frozen=True)
class Function:
    """The name of a built-in function."""

    name: str


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


Operand = Literal | Field | Function | Pipe | Chain


@dataclass(frozen=True)
class Action:
    """A pipeline whose value is printed, unless it is assigned to a variable."""

    pipe: Pipe
    line: int


@dataclass(frozen=True)
class Block:
    """`if`, `with`, or `range`."""

    kind: str
    pipe: Pipe
    body: tuple[Node, ...]
    else_body: tuple[Node, ...]
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


Node = str | Action | Block | Jump | TemplateCall  # a str is the text between actions

Defined = dict[str, tuple[Node, ...]]


def read(text: str, functions: Collection[str]) -> tuple[tuple[Node, ...], Defined]:
    """Return the nodes of a template, and the nodes of each template that it defines, by name.

    `functions` are the names of the known functions. Raises a Malformed with the line.
    """
    if len(text) > LONGEST_TEMPLATE:
        raise Malformed(f"template: longer than {LONGEST_TEMPLATE} characters")
    parser = Parser(scan(text), functions)
    nodes, end = parser.nodes()
    if end.kind != "end of text":
        raise malformed(end.line, f"unexpected {{{{{end.text}}}}}")
    return nodes, parser.defined


class Parser:
    """A recursive descent parser for a template's tokens."""

    def __init__(self, tokens: list[Token], functions: Collection[str]) -> None:
        self.tokens = tokens
        self.functions = functions
        self.defined: Defined = {}
        self.position = 0  # of the next token
        self.variables = ["$"]  # in scope
        self.depth = 0  # blocks and parentheses around the next token
        self.ranges = 0  # `range` blocks around the next token

    # Tokens

    def peek(self) -> Token:
        """Return the next token, which may be a space, without consuming it."""
        return self.tokens[self.position]

    def next(self) -> Token:
        """Consume the next token, which may be a space, and return it."""
        token = self.tokens[self.position]
        self.position += 1
        return token

    def skip_space(self) -> Token:
        """Consume a space, if there is one, and return the next token without consuming it."""
        if self.tokens[self.position].kind == "space":
            self.position += 1
        return self.tokens[self.position]

    def text_since(self, start: int) -> str:
        """Return the text of the consumed tokens from this position on."""
        return "".join(token.text for token in self.tokens[start : self.position])

    def consume_if(self, *kinds: str) -> Token | None:
        """Skip a space, and consume and return the next token if it has one of these kinds.

        Otherwise, return None, and do not consume that token.
        """
        if self.skip_space().kind not in kinds:
            return None
        return self.next()

    def consume(self, context: str, *kinds: str) -> Token:
        """Skip a space, and consume and return the next token, which must have one of these kinds.

        Raises Malformed if it has a different kind. `context` is what is being parsed, for the
        message.
        """
        token = self.consume_if(*kinds)
        if token is None:
            raise unexpected(self.peek(), context)
        return token

    def enter_level(self, line: int) -> None:
        """Enter a nested block or parenthesis. Raises Malformed if there are too many levels."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise malformed(line, f"more than {DEEPEST} nested blocks or parentheses")

    # Text and blocks

    def nodes(self) -> tuple[tuple[Node, ...], Token]:
        """Return the nodes up to `{{end`, `{{else`, or the end of the text, and the token of that
        kind, which is consumed too.

        Template definitions along the way are stored, and are not among the nodes.
        """
        nodes: list[Node] = []
        while True:
            token = self.next()
            if token.kind == "text":
                nodes.append(token.text)
                continue
            if token.kind != "open":  # the end of the text
                return tuple(nodes), token
            end = self.consume_if("end", "else")
            if end is not None:
                return tuple(nodes), end
            define_keyword = self.consume_if("define")
            if define_keyword is not None:
                self.parse_definition(define_keyword)
            else:
                nodes.append(self.action())

    def action(self) -> Node:
        """Return the node of an action such as `{{.Name}}` or `{{if …}}`, up to its end.

        The opening delimiter `{{` has already been consumed.
        """
        keyword = self.consume_if("template", "block", "if", "with", "range", "break", "continue")
        if keyword is None:
            line = self.peek().line
            return Action(self.pipe("command", "close"), line)
        if keyword.kind in {"template", "block"}:
            return self.template_call(keyword)
        if keyword.kind in {"if", "with", "range"}:
            return self.block(keyword)
        # `break` and `continue`, as of Go 1.18
        self.consume(f"{{{{{keyword.text}}}}}", "close")
        if not self.ranges:
            raise malformed(keyword.line, f"{{{{{keyword.text}}}}} outside {{{{range}}}}")
        return Jump(keyword.kind)

    def block(self, keyword: Token) -> Block:
        """Return an `if`, `with`, or `range` up to its `{{end}}`.

        The keyword has already been consumed. Variables that the block declares are out of scope
        after it.
        """
        self.enter_level(keyword.line)
        outer_variable_count = len(self.variables)
        pipe = self.pipe(keyword.kind, "close")
        outer_ranges = self.ranges
        if keyword.kind == "range":
            self.ranges += 1
        body, end = self.nodes()
        self.ranges = outer_ranges  # the `else` does not belong to the loop

        else_body: tuple[Node, ...] = ()
        if end.kind == "else":
            else_body = self.nodes_after_else(keyword)
        elif end.kind == "end":
            self.consume("end", "close")
        else:
            raise malformed(
                keyword.line,
                f"unexpected end of text: {{{{{keyword.text}}}}} has no {{{{end}}}}",
            )
        del self.variables[outer_variable_count:]
        self.depth -= 1
        return Block(
            kind=keyword.kind,
            pipe=pipe,
            body=body,
            else_body=else_body,
            line=keyword.line,
        )

    def parse_definition(self, keyword: Token) -> None:
        """Parse a `{{define "name"}}` up to its `{{end}}`, and store the template in `defined`.

        The keyword has already been consumed. As in Go, a definition must not be inside another
        block.
        """
        if self.depth:
            raise malformed(keyword.line, "unexpected {{define}}")
        name = self.template_name(keyword)
        self.consume("define clause", "close")
        self.store_definition(keyword, name)

    def template_call(self, keyword: Token) -> TemplateCall:
        """Return a `{{template "name" pipeline}}`, or a `{{block "name" pipeline}}` up to its
        `{{end}}`, which also defines that template.

        The keyword has already been consumed.
        """
        name = self.template_name(keyword)
        pipe = None if self.consume_if("close") else self.pipe(keyword.text, "close")
        if keyword.kind == "block":
            self.store_definition(keyword, name)
        return TemplateCall(name, pipe, keyword.line)

    def template_name(self, keyword: Token) -> str:
        """Consume and return a template's quoted name."""
        token = self.consume(f"{keyword.text} clause", "string", "raw")
        return str(literal(token).value)

    def store_definition(self, keyword: Token, name: str) -> None:
        """Parse the nodes of a defined template up to its `{{end}}`, and store them in `defined`.

        They cannot use variables from outside, or jump out of a `range` around the definition.
        """
        self.enter_level(keyword.line)
        outer_variables = self.variables
        outer_ranges = self.ranges
        self.variables = ["$"]
        self.ranges = 0
        nodes, end = self.nodes()
        if end.kind != "end":
            raise malformed(end.line, f"unexpected {end.text} in {keyword.text} clause")
        self.consume("end", "close")
        self.variables = outer_variables
        self.ranges = outer_ranges
        self.depth -= 1
        self.defined[name] = nodes

    def nodes_after_else(self, keyword: Token) -> tuple[Node, ...]:
        """Return the nodes after `{{else` in the block with this keyword, up to the `{{end}}`.

        An `if` may have an `else if`, and (as of Go 1.23) a `with` an `else with`. The nodes are
        then a single inner block, whose `{{end}}` also ends the outer one.
        """
        if keyword.kind != "range":
            same_keyword = self.consume_if(keyword.kind)
            if same_keyword is not None:
                return (self.block(same_keyword),)
        self.consume("else", "close")
        nodes, end = self.nodes()
        if end.kind != "end":
            raise malformed(end.line, f"expected {{{{end}}}}, found {end.text}")
        self.consume("end", "close")
        return nodes

    # Pipelines

    def pipe(self, context: str, end: str) -> Pipe:
        """Return a pipeline such as `$x := .Tag | printf "%s"`, and consume the token after it.

        That token has the kind `end`: "close" for `}}`, or "right" for a parenthesis. `context` is
        what the pipeline belongs to, for messages.
        """
        start = self.position
        names, assigns = self.declarations(context)
        commands: list[tuple[Operand, ...]] = []
        token = self.skip_space()
        while token.kind != end:
            if token.kind not in OPERANDS:
                raise unexpected(token, context)
            commands.append(self.command())
            token = self.skip_space()
        text = self.text_since(start).strip()
        line = self.next().line  # of the end
        if not commands:
            raise malformed(line, f"missing value for {context}")
        # All commands except the first get the value of the previous one. (The first is stage 1.)
        for stage, command in enumerate(commands[1:], 2):
            first_operand = command[0]
            takes_no_value = isinstance(first_operand, Literal) or first_operand == DOT
            if takes_no_value:
                raise malformed(line, f"non executable command in pipeline stage {stage}")
        return Pipe(
            commands=tuple(commands),
            variables=tuple(names),
            assigns=assigns,
            text=text,
        )

    def declarations(self, context: str) -> tuple[list[str], bool]:
        """Return the names of the variables before a pipeline, and whether they are assigned with
        `=`: (["$x"], False) for `$x :=`. Without such variables, return ([], False).

        The forms are `$x :=`, `$x =`, and in a `range` also `$i, $e :=`. If the first token is a
        variable that is only an operand, it is not consumed.
        """
        names: list[str] = []
        while True:
            variable = self.consume_if("variable")
            if variable is None:
                break
            variable_position = self.position - 1
            sign = self.consume_if("assign", "declare")
            if sign is not None:
                self.declare(names, variable)
                return names, sign.kind == "assign"
            following = self.peek()
            if following.text != ",":  # the variable is an operand, so put it back
                self.position = variable_position
                break
            is_first_of_range = context == "range" and not names
            if not is_first_of_range:
                raise malformed(following.line, f"too many declarations in {context}")
            self.position += 1  # the comma
            self.declare(names, variable)
            if self.skip_space().kind != "variable":
                raise malformed(following.line, "range can only initialize variables")
        if names:  # after `$i, $e`, there is neither `:=` nor `=`
            raise unexpected(self.skip_space(), context)
        return names, False

    def declare(self, names: list[str], token: Token) -> None:
        """Add the variable's name to these names, and to the variables in scope.

        As in Go, an assignment also declares the name, and can fail only when it runs.
        """
        names.append(token.text)
        self.variables.append(token.text)

    def command(self) -> tuple[Operand, ...]:
        """Return the operands of a command, one stage of a pipeline: `printf`, `"%s"`, and `.Tag`
        for `printf "%s" .Tag`.

        The operands are separated by spaces. A `|` after them is consumed, but `}}` or `)`, the end
        of the pipeline, is not. Raises Malformed if any other token follows.
        """
        operands: list[Operand] = []
        token = self.skip_space()
        while token.kind in OPERANDS:
            operands.append(self.operand())
            following = self.peek()
            if following.kind not in {"space", "close", "right", "pipe"}:
                raise unexpected(following, "operand")
            token = self.skip_space()
        has_next_stage = self.consume_if("pipe") is not None
        is_end_of_pipeline = token.kind in {"close", "right"}
        if not has_next_stage and not is_end_of_pipeline:
            raise unexpected(token, "operand")
        return tuple(operands)

    def operand(self) -> Operand:
        """Return a term with the fields that follow it, such as `$x.A.B` or `(pipeline).A`.

        Raises Malformed if fields follow a term that cannot have any, such as a literal.
        """
        start = self.position
        term = self.term()
        names: list[str] = []
        while self.peek().kind == "field":
            names.append(self.next().text.removeprefix("."))
        if not names:
            return term
        text = self.text_since(start)
        if isinstance(term, Field) and term != DOT:
            return replace(term, names=(*term.names, *names), text=text)
        if isinstance(term, Pipe | Function):
            return Chain(term, tuple(names), text)
        first_token = self.tokens[start]
        raise malformed(first_token.line, f"unexpected . after term {first_token.text}")

    def term(self) -> Operand:
        """Return a literal, a field, a variable, a function name, or a pipeline in parentheses.

        Raises Malformed for a variable that is not in scope, or for an unknown function.
        """
        token = self.next()
        text = token.text
        if token.kind == "left":
            self.enter_level(token.line)
            inner = self.pipe("parenthesized pipeline", "right")
            self.depth -= 1
            return replace(inner, text=f"({inner.text})")
        if token.kind == "variable":
            if text not in self.variables:
                raise malformed(token.line, f'undefined variable "{text}"')
            return Field(text, names=(), text=text, line=token.line, column=token.column)
        if token.kind == "field":
            name = text.removeprefix(".")
            return Field(".", names=(name,), text=text, line=token.line, column=token.column)
        if token.kind == "dot":
            return Field(".", names=(), text=text, line=token.line, column=token.column)
        if token.kind == "nil":
            return Literal(None, text)
        if token.kind in {"string", "raw", "char", "number"}:
            return literal(token)
        # the rest are words
        if text in {"true", "false"}:
            return Literal(text == "true", text)
        if text not in self.functions and text not in SHORTCUTS:
            raise malformed(token.line, f'function "{text}" not defined')
        return Function(text)


def literal(token: Token) -> Literal:
    """Return the value of a string, character, or number. Raises Malformed if it is invalid."""
    readers: dict[str, Callable[[str], str | float]] = {
        "char": character,
        "number": number,
        "string": string,
        "raw": string,
    }
    read_literal = readers[token.kind]
    try:
        return Literal(read_literal(token.text), token.text)
    except Malformed as error:
        raise malformed(token.line, error.message) from None


def unexpected(token: Token, context: str) -> Malformed:
    """Return the error for a token that is not allowed at its position."""
    if token.kind == "close" and context == "parenthesized pipeline":
        return malformed(token.line, "unclosed left paren")
    shown = token.text if token.kind == "end of text" else f'"{token.text[:20]}"'
    return malformed(token.line, f"unexpected {shown} in {context}")
