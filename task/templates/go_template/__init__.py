"""Go's `text/template`, as far as the users of Argo CD Image Updater write it in branch names and commit messages.

Everything of the language but complex numbers and `define`, `template`, `block`; the builtin functions and no others.
Data are Mappings that stand for structs (an unknown field is an error), `GoMap`s, lists, strings, integers, booleans.
Templates come from annotations, so work, depth and length are bounded. Source of the rules: Go's documentation of
`text/template` and `fmt`, and their answers in the tests' table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from task.errors import Malformed
from task.templates.go_template.literals import go_bytes
from task.templates.go_template.nodes import FailedTemplate, GoMap, Node
from task.templates.go_template.parse import read
from task.templates.go_template.run import Run

__all__ = ["FailedTemplate", "GoMap", "Template", "parse"]

STEPS = 100_000


@dataclass(frozen=True)
class Template:
    """A template that parses."""

    nodes: tuple[Node, ...]

    def render(self, data: Mapping[str, Any], steps: int = STEPS) -> str:
        """The text the template makes of the data; raises FailedTemplate. More data may need more `steps`."""
        run = Run(data, steps)
        try:
            run.walk(self.nodes, data)
        except FailedTemplate as error:
            raise FailedTemplate(f"template, line {run.line}: {error.message}") from None
        return go_bytes(run.sink.text()).decode("utf-8", "replace")


@lru_cache(maxsize=256)
def parse(text: str) -> Template:
    """The template of this text; raises Malformed with the line and what is wrong there."""
    try:
        return Template(read(text))
    except RecursionError:
        raise Malformed("template: nested too deeply") from None
