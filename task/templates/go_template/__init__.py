"""Go's `text/template`, in which users of Argo CD write branch names, commit messages and ApplicationSets.

This is the whole language but for complex numbers, with Go's builtin functions; AIU has no others. A `Language` may
have more of them. Data are Mappings that stand for structs (an unknown field is an error), `GoMap`s and `AnyMap`s,
lists, strings, numbers and booleans. Templates come from annotations, so work, depth and length are bounded. The rules
are those of Go's documentation of `text/template` and `fmt`; the tests' table holds Go's own answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from task.errors import Malformed
from task.templates.go_template.execute import Run
from task.templates.go_template.functions import BUILTINS, NAMES, Builtin
from task.templates.go_template.literals import go_bytes
from task.templates.go_template.nodes import AnyMap, FailedTemplate, GoMap, Node
from task.templates.go_template.parse import read

__all__ = ["AnyMap", "FailedTemplate", "GoMap", "Language", "Template", "parse"]

STEPS = 100_000  # for a template from an annotation, which another team wrote


@dataclass(frozen=True, eq=False)
class Language:
    """The functions that templates may call."""

    functions: Mapping[str, Builtin] = field(default_factory=lambda: BUILTINS)
    names: Collection[str] = NAMES


GO = Language()


@dataclass(frozen=True)
class Template:
    """A parsed template."""

    nodes: tuple[Node, ...]
    defined: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    language: Language = GO

    def render(self, data: Mapping[str, Any], steps: int = STEPS) -> str:
        """The text that the template makes of the data, in at most `steps` steps. Raises FailedTemplate."""
        try:
            return self.counted(data, steps)[0]
        except FailedTemplate as error:
            raise FailedTemplate(f"template, line {error.line}: {error.message}") from None

    def counted(self, data: Mapping[str, Any], steps: int, missing_key: str = "default") -> tuple[str, int]:
        """The text, and how many steps it took. `missing_key` is Go's option: default, zero or error.

        Raises FailedTemplate, with the line and the operand that failed.
        """
        run = Run(data, steps, self.language.functions, self.defined, missing_key)
        try:
            run.walk(self.nodes, data)
        except FailedTemplate as error:
            error.line = run.line
            raise
        except RecursionError:
            raise FailedTemplate("nested too deeply") from None
        return go_bytes(run.sink.text()).decode("utf-8", "replace"), steps - run.steps


@lru_cache(maxsize=1024)
def parse(text: str, language: Language = GO) -> Template:
    """The template of a text. Raises Malformed, which names the line and its mistake."""
    try:
        return Template(*read(text, language.names), language)
    except RecursionError:
        raise Malformed("template: nested too deeply") from None
