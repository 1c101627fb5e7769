"""Go's `text/template`, in which users of Argo CD Image Updater write branch names and commit messages.

This is the whole language but for complex numbers, `define`, `template` and `block`, with Go's builtin functions and no
others, as AIU has no others. Data are Mappings that stand for structs (an unknown field is an error), `GoMap`s, lists,
strings, integers and booleans. Templates come from annotations, so work, depth and length are bounded. The rules are
those of Go's documentation of `text/template` and `fmt`; the tests' table holds Go's own answers.
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

STEPS = 100_000  # for a template from an annotation, which another team wrote


@dataclass(frozen=True)
class Template:
    """A parsed template."""

    nodes: tuple[Node, ...]

    def render(self, data: Mapping[str, Any], steps: int = STEPS) -> str:
        """The text that the template makes of the data, in at most `steps` steps. Raises FailedTemplate."""
        run = Run(data, steps)
        try:
            run.walk(self.nodes, data)
        except FailedTemplate as error:
            raise FailedTemplate(f"template, line {run.line}: {error.message}") from None
        return go_bytes(run.sink.text()).decode("utf-8", "replace")


@lru_cache(maxsize=256)
def parse(text: str) -> Template:
    """The template of a text. Raises Malformed, which names the line and its mistake."""
    try:
        return Template(read(text))
    except RecursionError:
        raise Malformed("template: nested too deeply") from None
