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
    """A literal: a string, number, boolean, or nil (`None`)."""

    value: str | int | float | bool | None
    text: str


@dataclass(frozen=True)
class Field:
    """A field: `.A.B` or `$x.A.B`, or just `.` or `$x` if there are no names."""

    variable: str  # including the dollar sign; "." refers to the data
    names: tuple[str, ...]
    text: str
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)  # counted from 0


DOT = Field(".", (), ".")


@dataclass(frozen=True)
class Function:
    """The name of a built-in function."""

    name: str


@dataclass(frozen=True)
class Pipe:
    """A pipeline such as `$x := a | b`: commands (each a list of operands), and the variables that
    receive the result.
    """

    commands: tuple[tuple[Operand, ...], ...]
    variables: tuple[str, ...]
    assigns: bool  # whether it uses "=" rather than ":="
    text: str


@dataclass(frozen=True)
class Chain:
    """A field of a parenthesized pipeline: `(pipeline).A.B`."""

    inner: Pipe | Function
    names: tuple[str, ...]
    text: str


Operand = Literal | Field | Function | Pipe | Chain


@dataclass(frozen=True)
class Action:
    """A pipeline whose value is printed unless it is assigned to a variable."""

    pipe: Pipe
    line: int


@dataclass(frozen=True)
class Block:
    """An `if`, `with`, or `range` block."""

    kind: str
    pipe: Pipe
    body: tuple[Node, ...]
    else_body: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class Jump:
    """A `break` or `continue`."""

    kind: str


@dataclass(frozen=True)
class TemplateCall:
    """A template call: `{{template "name" pipeline}}`."""

    name: str
    pipe: Pipe | None
    line: int


Node = str | Action | Block | Jump | TemplateCall  # a str is text between actions

Defined = dict[str, tuple[Node, ...]]


def read(text: str, functions: Collection[str]) -> tuple[tuple[Node, ...], Defined]:
    """Parse a template. Return its nodes, and the nodes of the templates that it defines, by name.

    `functions` are the names of the known functions. Raises a Malformed that names the line.
    """
    if len(text) > LONGEST_TEMPLATE:
        raise Malformed(f"template: longer than {LONGEST_TEMPLATE} characters")
    parser = Parser(scan(text), functions)
    nodes, end = parser.nodes()
    if end.kind != "end of text":
        raise malformed(end.line, f"unexpected {{{{{end.text}}}}}")
    return nodes, parser.defined


class Parser:
    """A recursive-descent parser for the tokens of a template."""

    def __init__(self, tokens: list[Token], functions: Collection[str]) -> None:
        self.tokens = tokens
        self.functions = functions
        self.defined: Defined = {}
        self.position = 0  # the next token's position
        self.variables = ["$"]  # the variables in scope
        self.depth = 0  # number of blocks and parentheses around the next token
        self.ranges = 0  # number of `range` blocks around the next token

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
        """Return the text of the tokens that have been consumed since this position."""
        return "".join(token.text for token in self.tokens[start : self.position])

    def consume_if(self, *kinds: str) -> Token | None:
        """Skip a space. If the next token has one of these kinds, consume and return it.

        Otherwise, return None without consuming that token.
        """
        if self.skip_space().kind not in kinds:
            return None
        return self.next()

    def consume(self, context: str, *kinds: str) -> Token:
        """Skip a space. Consume and return the next token, which must have one of these kinds.

        Raises Malformed if the token has a different kind. `context` describes what is being
        parsed, for the message.
        """
        token = self.consume_if(*kinds)
        if token is None:
            raise unexpected(self.peek(), context)
        return token

    def enter_level(self, line: int) -> None:
        """Enter a nested block or parenthesis. Raises Malformed if the nesting is too deep."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise malformed(line, f"more than {DEEPEST} nested blocks or parentheses")

    # Text and blocks

    def nodes(self) -> tuple[tuple[Node, ...], Token]:
        """Return the nodes up to `{{end`, `{{else`, or the end of the text, and the token that ends
        them, which is consumed as well.

        Template definitions along the way are stored separately, and are not among the nodes.
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
        """Parse an action such as `{{.Name}}` or `{{if …}}` to its end, and return its node.

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
        # `break` and `continue` exist as of Go 1.18
        self.consume(f"{{{{{keyword.text}}}}}", "close")
        if not self.ranges:
            raise malformed(keyword.line, f"{{{{{keyword.text}}}}} outside {{{{range}}}}")
        return Jump(keyword.kind)

    def block(self, keyword: Token) -> Block:
        """Parse an `if`, `with`, or `range` up to its `{{end}}`, and return its node.

        The keyword has already been consumed. Variables that the block declares go out of scope
        when it ends.
        """
        self.enter_level(keyword.line)
        outer_variable_count = len(self.variables)
        pipe = self.pipe(keyword.kind, "close")
        outer_ranges = self.ranges
        if keyword.kind == "range":
            self.ranges += 1
        body, end = self.nodes()
        self.ranges = outer_ranges  # the `else` part is not inside the loop

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
        """Return the node of a `{{template "name" pipeline}}`, or of a `{{block "name" pipeline}}`
        up to its `{{end}}`. A `block` also defines the template.

        The keyword has already been consumed.
        """
        name = self.template_name(keyword)
        pipe = None if self.consume_if("close") else self.pipe(keyword.text, "close")
        if keyword.kind == "block":
            self.store_definition(keyword, name)
        return TemplateCall(name, pipe, keyword.line)

    def template_name(self, keyword: Token) -> str:
        """Consume the quoted name of a template, and return the name."""
        token = self.consume(f"{keyword.text} clause", "string", "raw")
        return str(literal(token).value)

    def store_definition(self, keyword: Token, name: str) -> None:
        """Parse the nodes of a defined template up to its `{{end}}`, and store them in `defined`.

        The nodes cannot use variables from outside the definition, or jump out of a `range` around
        it.
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
        """Return the nodes after `{{else`, up to the `{{end}}`, in a block with this keyword.

        An `if` may have an `else if`, and (as of Go 1.23) a `with` may have an `else with`. In
        these cases, the only node is an inner block whose `{{end}}` also ends the outer block.
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
        """Parse and return a pipeline such as `$x := .Tag | printf "%s"`, and consume the token
        after it.

        That token must have the kind `end`: "close" for `}}`, or "right" for a closing parenthesis.
        `context` describes what the pipeline belongs to, for messages.
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
        line = self.next().line  # the line at which the pipeline ends
        if not commands:
            raise malformed(line, f"missing value for {context}")
        # Every command except the first receives the value of the previous one. (The first command
        # is stage 1.)
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
        """Return the names of the variables that precede a pipeline, and whether they are assigned
        with `=`: for example, (["$x"], False) for `$x :=`. Return ([], False) if there are no
        variables.

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
            if following.text != ",":  # the variable is an operand, so put its token back
                self.position = variable_position
                break
            is_first_of_range = context == "range" and not names
            if not is_first_of_range:
                raise malformed(following.line, f"too many declarations in {context}")
            self.position += 1  # consume the comma
            self.declare(names, variable)
            if self.skip_space().kind != "variable":
                raise malformed(following.line, "range can only initialize variables")
        if names:  # `$i, $e` is followed by neither `:=` nor `=`
            raise unexpected(self.skip_space(), context)
        return names, False

    def declare(self, names: list[str], token: Token) -> None:
        """Add the variable's name to `names`, and to the variables in scope.

        As in Go, an assignment also declares the name, so it can fail only at run time.
        """
        names.append(token.text)
        self.variables.append(token.text)

    def command(self) -> tuple[Operand, ...]:
        """Parse a command (one stage of a pipeline), and return its operands: for example,
        `printf`, `"%s"`, and `.Tag` for `printf "%s" .Tag`.

        The operands are separated by spaces. A `|` after them is consumed, but a `}}` or `)`, which
        ends the pipeline, is not. Raises Malformed if any other token follows.
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
        """Parse a term and the fields that follow it, such as `$x.A.B` or `(pipeline).A`, and
        return the operand.

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
        """Parse and return a literal, field, variable, function name, or parenthesized pipeline.

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
        # all other tokens are words
        if text in {"true", "false"}:
            return Literal(text == "true", text)
        if text not in self.functions and text not in SHORTCUTS:
            raise malformed(token.line, f'function "{text}" not defined')
        return Function(text)


def literal(token: Token) -> Literal:
    """Return the value of a string, character, or number literal. Raises Malformed if it is
    invalid.
    """
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
    """Return the error for an unexpected token."""
    if token.kind == "close" and context == "parenthesized pipeline":
        return malformed(token.line, "unclosed left paren")
    shown = token.text if token.kind == "end of text" else f'"{token.text[:20]}"'
    return malformed(token.line, f"unexpected {shown} in {context}")
