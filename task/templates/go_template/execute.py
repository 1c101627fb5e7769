"""Executes a template's nodes on data, as Go's `text/template` does, but within limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from task.errors import Malformed
from task.templates.go_template.functions import Builtin, named, truth
from task.templates.go_template.parse import (
    Action,
    Block,
    Chain,
    Field,
    Function,
    Jump,
    Literal,
    Node,
    Operand,
    Pipe,
    TemplateCall,
)
from task.templates.go_template.printing import Sink, printed_text
from task.templates.go_template.values import DEEPEST, SHORTCUTS, FailedTemplate, GoMap

# Go turns a panic in a function into an error. Here, too, an unusual argument makes only the
# template fail, not the whole run.
PANICS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
CHARACTERS_PER_STEP = 40  # copying this much of a long value counts as a step
# Marks a missing value in a pipeline. None would not work, because it represents nil, which is a
# value.
MISSING: Any = object()


class Run:
    """An execution of a template: the output so far, the variables in scope, and the remaining
    steps.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        steps: int,
        functions: Mapping[str, Builtin],
        defined: Mapping[str, Sequence[Node]],
        missing_key: str,
    ) -> None:
        self.sink = Sink()
        self.functions = functions
        self.defined = defined
        self.missing_key = missing_key
        self.depth = 0  # the depth of nested template calls
        self.steps = steps
        self.variables: list[tuple[str, Any]] = [("$", data)]
        self.line = 1

    def count_steps(self, steps: int) -> None:
        """Subtract steps from those that remain. Raises FailedTemplate if too few remain."""
        self.steps -= steps
        if self.steps < 0:
            raise FailedTemplate("it takes too many steps")

    # Nodes

    def walk(self, nodes: Sequence[Node], dot: Any) -> str:
        """Execute the nodes, and append what they print to the output. `dot` is the value of `.`.

        Return "break" or "continue" if such a node ends the execution early, or else "".
        """
        for node in nodes:
            self.count_steps(1)
            if isinstance(node, str):
                self.sink.add(node)
            elif isinstance(node, Action):
                self.line = node.line
                value = self.pipe(node.pipe, dot)
                is_printed = not node.pipe.variables
                if is_printed:
                    self.sink.add(self.counted_value(printed_text(value)))
            elif isinstance(node, Jump):
                return node.kind
            elif isinstance(node, TemplateCall):
                self.template(node, dot)
            else:
                jump = self.block(node, dot)
                if jump:
                    return jump
        return ""

    def template(self, node: TemplateCall, dot: Any) -> None:
        """Run a `{{template "name" pipeline}}`: the defined template, with the pipeline's value as
        its data. The template cannot use its caller's variables.
        """
        self.line = node.line
        if node.name not in self.defined:
            raise FailedTemplate(f'template "{node.name}" not defined')
        value = self.pipe(node.pipe, dot) if node.pipe else None
        self.depth += 1
        if self.depth > DEEPEST:
            raise FailedTemplate(f"more than {DEEPEST} templates call one another")
        outer_variables = self.variables
        self.variables = [("$", value)]
        self.walk(self.defined[node.name], value)
        self.variables = outer_variables
        self.depth -= 1

    def block(self, node: Block, dot: Any) -> str:
        """Run an `if`, `with`, or `range` block. Its variables go out of scope when it ends.

        Return "break" or "continue" if such a node ends the block and applies to a `range` around
        it, or else "".
        """
        self.line = node.line
        outer_count = len(self.variables)
        value = self.pipe(node.pipe, dot)
        if node.kind == "range":
            jump = self.run_range(node, value, dot)
        elif truth(value):
            body_dot = value if node.kind == "with" else dot
            jump = self.walk(node.body, body_dot)
        else:
            jump = self.walk(node.else_body, dot)
        del self.variables[outer_count:]
        return jump

    def run_range(self, node: Block, value: Any, dot: Any) -> str:
        """Run the body of a `range` for each element, or its `else` if there are no elements.

        Return "break" or "continue" if such a node ends the `else` and applies to an outer `range`,
        or else "".
        """
        count_before = len(self.variables)  # including the variables of the `range` itself
        has_elements = False
        for key, element in self.elements(node, value):
            has_elements = True
            self.count_steps(1)
            self.set_range_variables(node.pipe, key, element)
            jump = self.walk(node.body, element)
            del self.variables[count_before:]  # drop the body's variables
            if jump == "break":
                break
        if has_elements:
            return ""
        return self.walk(node.else_body, dot)

    def elements(self, node: Block, value: Any) -> Iterable[tuple[Any, Any]]:
        """Return the keys and values that `range` iterates over: an index and an element for a
        list, sorted entries for a map, and numbers without keys for an integer.

        Raises FailedTemplate for any other value except nil, which has no elements.
        """
        if value is None:
            return ()
        if named(value) == "list":
            return enumerate(value)
        if isinstance(value, GoMap):
            return sorted(value.items())  # Go's templates visit the keys of a map in sorted order
        if named(value) == "int":  # supported as of Go 1.24
            if len(node.pipe.variables) > 1:
                raise FailedTemplate(f"can't use {value} to iterate over more than one variable")
            return ((None, number) for number in range(value))
        raise FailedTemplate(f"range can't iterate over {named(value)}")

    def set_range_variables(self, pipe: Pipe, key: Any, element: Any) -> None:
        """Set the variables of a `range` for one element: none, `$element`, or `$key, $element`."""
        names = pipe.variables
        if not names:
            return
        values = [element] if len(names) == 1 else [key, element]
        names_and_values = list(zip(names, values, strict=True))
        if pipe.assigns:
            for name, value in names_and_values:
                self.assign(name, value)
        else:
            # `pipe` has already declared these variables, so they are the last ones in the list.
            self.variables[-len(names) :] = names_and_values

    # Variables

    def assign(self, name: str, value: Any) -> None:
        """Run `$x = …`: assign to the innermost variable with this name."""
        for position in reversed(range(len(self.variables))):
            variable_name, _ = self.variables[position]
            if variable_name == name:
                self.variables[position] = (name, value)
                return
        raise FailedTemplate(f'undefined variable "{name}"')

    def variable(self, name: str) -> Any:
        """Return the value of the innermost variable with this name."""
        for variable_name, value in reversed(self.variables):
            if variable_name == name:
                return value
        raise FailedTemplate(f'undefined variable "{name}"')

    # Pipelines

    def pipe(self, pipe: Pipe, dot: Any) -> Any:
        """Evaluate a pipeline, set its variables to the resulting value, and return the value.

        In a `range`, the elements later replace the value of the variables.
        """
        value: Any = MISSING
        for command in pipe.commands:
            value = self.command(command, dot, value)
        for name in pipe.variables:
            if pipe.assigns:
                self.assign(name, value)
            else:
                self.variables.append((name, value))
        return value

    def command(self, operands: tuple[Operand, ...], dot: Any, last: Any) -> Any:
        """Evaluate a command, such as `printf "%d" .Count`, and return its value.

        `last` is the value of the pipeline's previous stage, or `MISSING` for the first stage. A
        function receives it as its last argument. Raises FailedTemplate if arguments are given to
        anything other than a function.
        """
        self.count_steps(1)
        first_operand, *arguments = operands
        if isinstance(first_operand, Function):
            return self.call(first_operand.name, arguments, dot, last)
        if arguments or last is not MISSING:
            raise FailedTemplate(f"can't give argument to non-function {first_operand.text}")
        if isinstance(first_operand, Literal) and first_operand.value is None:
            raise FailedTemplate("nil is not a command")
        return self.operand(first_operand, dot)

    def operand(self, operand: Operand, dot: Any) -> Any:
        """Return the value of an operand."""
        if isinstance(operand, Literal):
            return operand.value
        if isinstance(operand, Field):
            return self.field(operand, dot)
        if isinstance(operand, Pipe):
            return self.pipe(operand, dot)
        if isinstance(operand, Chain):
            inner = self.operand(operand.inner, dot)
            return self.field_of_value(inner, operand.names)
        # a function that is used as an argument is called without arguments
        return self.call(operand.name, (), dot, MISSING)

    def field(self, field: Field, dot: Any) -> Any:
        """Return the value of `.A.B` or `$x.A.B`.

        Adds the field's position to a FailedTemplate that does not have a position yet.
        """
        try:
            value = dot if field.variable == "." else self.variable(field.variable)
            return self.field_of_value(value, field.names)
        except FailedTemplate as error:
            place = f'{field.line}:{field.column}: executing "base" at <{field.text}>'
            error.place = error.place or place
            raise

    def field_of_value(self, value: Any, names: tuple[str, ...]) -> Any:
        """Return the field `.A.B` of a value, where A and B are these names.

        A missing key in a map yields nil (with `missingkey=zero`, the map's zero value), and any
        field of nil yields nil. With `missingkey=error`, both fail. Accessing a field of a null in
        a map, or a missing field of a struct, always fails.
        """
        is_null_in_map = False  # whether None stands for a null in a map rather than a missing key
        for name in names:
            if value is None and is_null_in_map:
                raise FailedTemplate(f"nil pointer evaluating interface {{}}.{name}")
            if value is None:
                if self.missing_key == "error":
                    raise FailedTemplate(f'nil data; no entry for key "{name}"')
                return None
            if isinstance(value, GoMap):
                if name not in value and self.missing_key == "error":
                    raise FailedTemplate(f'map has no entry for key "{name}"')
                is_null_in_map = name in value
                missing_value = value.zero if self.missing_key == "zero" else None
                value = value.get(name, missing_value)
            elif isinstance(value, Mapping) and name in value:
                value = value[name]
            else:
                raise FailedTemplate(f"can't evaluate field {name} in type {named(value)}")
        return value

    def call(
        self,
        name: str,
        operands: Sequence[Operand],
        dot: Any,
        last: Any,
    ) -> Any:
        """Call the function with this name on the operands' values, and return the result.

        `last` is the value of the pipeline's previous stage. Unless it is `MISSING`, it is passed
        as the last argument. Raises FailedTemplate if the function fails.
        """
        if name in SHORTCUTS:
            return self.shortcut(name, operands, dot, last)
        builtin = self.functions[name]
        count = len(operands)
        if last is not MISSING:
            count += 1
        is_too_many = builtin.most is not None and count > builtin.most
        is_too_few = count < builtin.least
        if is_too_few or is_too_many:
            raise FailedTemplate(
                f"wrong number of args for {name}: want {builtin.least}, got {count}"
            )

        arguments = [self.counted_value(self.operand(operand, dot)) for operand in operands]
        if last is not MISSING:
            arguments.append(self.counted_value(last))
        self.count_steps(len(arguments))
        try:
            return self.counted_value(builtin.call(*arguments))
        except Malformed as error:
            raise FailedTemplate(f"error calling {name}: {error.message}") from None
        except PANICS as error:
            raise FailedTemplate(f"error calling {name}: {error}") from None

    def shortcut(
        self,
        name: str,
        operands: Sequence[Operand],
        dot: Any,
        last: Any,
    ) -> Any:
        """Return the value of `and` or `or`: the first operand that decides the result, or else the
        last argument, as in Python.

        A true value decides `or`, and a false value decides `and`. As of Go 1.18, the operands
        after the deciding one are not evaluated. `last`, the value of the previous stage, is the
        last argument, unless it is `MISSING`.
        """
        deciding_truth = name == "or"
        value: Any = MISSING
        for operand in operands:
            value = self.operand(operand, dot)
            if truth(value) == deciding_truth:
                return value
        if last is not MISSING:
            return last
        if value is MISSING:
            raise FailedTemplate(f"wrong number of args for {name}: want at least 1, got 0")
        return value

    def counted_value(self, value: Any) -> Any:
        """Count the steps for a value, and return the value itself.

        Only long values cost steps, because reading and copying them takes time.
        """
        if isinstance(value, str | Sequence | GoMap):
            self.count_steps(len(value) // CHARACTERS_PER_STEP)
        return value
