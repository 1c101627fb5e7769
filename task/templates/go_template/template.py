"""Parses and renders templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from task.errors import Malformed
from task.templates.go_template.execute import Run
from task.templates.go_template.functions import BUILTINS, Builtin
from task.templates.go_template.parse import Node, read
from task.templates.go_template.values import FailedTemplate, go_bytes

STEPS = 100_000  # the limit for a template from an annotation, which another team may have written


@dataclass(frozen=True, eq=False)
class Language:
    """A template language: the functions that its templates may call."""

    functions: Mapping[str, Builtin]


GO = Language(BUILTINS)


@dataclass(frozen=True)
class Template:
    """A parsed template."""

    nodes: tuple[Node, ...]
    defined: Mapping[str, tuple[Node, ...]]
    language: Language

    def render(self, data: Mapping[str, Any], steps: int = STEPS) -> str:
        """Render the template with the data in at most `steps` steps, and return the result.

        Raises FailedTemplate.
        """
        try:
            return self.counted(data, steps)[0]
        except FailedTemplate as error:
            raise FailedTemplate(f"template, line {error.line}: {error.message}") from None

    def counted(
        self,
        data: Mapping[str, Any],
        steps: int,
        missing_key: str = "default",
    ) -> tuple[str, int]:
        """Render the template with the data in at most `steps` steps. Return the result and the
        number of steps taken.

        `missing_key` is Go's option for keys that are missing from a map: "default", "zero", or
        "error". Raises a FailedTemplate that names the line and the operand that failed.
        """
        run = Run(data, steps, self.language.functions, self.defined, missing_key)
        try:
            run.walk(self.nodes, data)
        except FailedTemplate as error:
            error.line = run.line
            raise
        except RecursionError:
            raise FailedTemplate("nested too deeply") from None
        text = go_bytes(run.sink.text()).decode("utf-8", "replace")
        used_steps = steps - run.steps
        return text, used_steps


@lru_cache(maxsize=1024)
def parse(text: str, language: Language = GO) -> Template:
    """Parse a template. Raises a Malformed that describes the mistake and its line."""
    try:
        return Template(*read(text, language.functions), language)
    except RecursionError:
        raise Malformed("template: nested too deeply") from None
