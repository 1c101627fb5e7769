"""Go's `text/template`: users of Argo CD Image Updater write branch names and commit messages in it.

The whole language but complex numbers and `define`, `template`, `block`; Go's builtin functions and no others. Data are
Mappings that stand for structs (an unknown field is an error), `GoMap`s, lists, strings, integers and booleans.
Templates come from annotations, so work, depth and length are bounded. The rules are those of Go's documentation of
`text/template` and `fmt`; the tests' table holds Go's own answers.
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
