"""Renders templates in both of Argo CD's template languages with an Application's parameters,
within limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from task.applicationsets.sprig_data import DATA_FUNCTIONS, ELSEWHERE
from task.applicationsets.sprig_text import TEXT_FUNCTIONS
from task.errors import Malformed
from task.templates.go_template.functions import BUILTINS
from task.templates.go_template.template import STEPS, Language, parse
from task.templates.go_template.values import FailedTemplate

FUNCTIONS = {
    **BUILTINS,
    **TEXT_FUNCTIONS,
    **DATA_FUNCTIONS,
}
LANGUAGE = Language(FUNCTIONS)
MISSING_KEYS = {
    "default": "default",
    "invalid": "default",
    "zero": "zero",
    "error": "error",
}

Params = dict[str, Any]

_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_TEMPLATED = re.compile(r"\{\{.*\}\}")  # on one line, as in Argo CD's own regular expression
_LINE = re.compile(r"template, line ([0-9]+): ")


class Budget:
    """The limits on the total cost of all ApplicationSets in a run.

    The ApplicationSets have many authors, some of whom may be hostile.
    """

    def __init__(
        self,
        *,
        steps: int = 20_000_000,
        characters: int = 256 * 1024 * 1024,
        rows: int = 100_000,
        made: int = 10_000,
    ) -> None:
        self.steps = steps  # template steps that may still be executed
        self.characters = characters  # characters that may still be read or generated
        self.rows = rows  # parameter sets, including the ones that a selector drops
        self.made = made  # Applications that may still be generated
        self.most = made  # the maximum number of Applications, for the message

    def read(self, characters: int) -> None:
        """Count the text's characters. Raises Malformed if the budget is exhausted."""
        self.characters -= characters
        if self.characters < 0:
            raise Malformed(
                "the ApplicationSets are too large",
                "use smaller or fewer ApplicationSets",
            )

    def row(self) -> None:
        """Count a parameter set. Raises Malformed if there are too many."""
        self.rows -= 1
        if self.rows < 0:
            raise Malformed(
                "the generators produce too many parameter sets",
                "use fewer ApplicationSets",
            )

    def make(self) -> None:
        """Count an Application. Raises Malformed if there are too many."""
        self.made -= 1
        if self.made < 0:
            message = f"the ApplicationSets generate more than {self.most:,} Applications"
            raise Malformed(message, "pass fewer ApplicationSets with --applications")


class Filler:
    """Renders the strings of an ApplicationSet."""

    def __init__(self, budget: Budget, *, go: bool, options: tuple[str, ...] = ()) -> None:
        """`go` and `options` are `goTemplate` and `goTemplateOptions`.

        Raises Malformed for an option that Go does not support.
        """
        self.budget = budget
        self.go = go
        self.missing_key = "default"
        if not go:
            return
        for option in options:
            name, _, value = option.partition("=")
            if name != "missingkey" or value not in MISSING_KEYS:
                raise Malformed(
                    f"unrecognized option: {option}",
                    "use missingkey=error in goTemplateOptions",
                )
            self.missing_key = MISSING_KEYS[value]

    def text(self, template: str, params: Mapping[str, Any], missing_key: str = "") -> str:
        """Return the template rendered with these parameters.

        `missing_key` overrides Go's `missingkey` option. Raises `Malformed`, with Argo CD's
        wording, for a template that cannot be rendered, and if the budget is exhausted.
        """
        self.budget.read(len(template) + 1)  # even an empty string uses up some of the budget
        if "{{" not in template:
            return template
        if self.go:
            rendered_text = self._render_go(template, params, missing_key)
        else:
            rendered_text = _render_fasttemplate(template, params)
        self.budget.read(len(rendered_text))
        return rendered_text

    def _render_go(self, template: str, params: Mapping[str, Any], missing_key: str) -> str:
        """Return a Go template rendered with these parameters, and count its steps.

        Raises `Malformed` with Argo CD's wording, in which every template is called `base`.
        """
        try:
            parsed_template = parse(template, LANGUAGE)
        except Malformed as error:
            message = _LINE.sub(r"template: base:\1: ", error.message)
            # The message may be: function "now" not defined
            _, _, after_quote = message.partition('function "')
            function, _, _ = after_quote.partition('"')
            hint = error.hint
            if function in ELSEWHERE:
                message = message.replace("not defined", "is not available here")
                way_out = ELSEWHERE[function]
                hint = f"{way_out}, or read the Applications with --applications cluster"
            raise Malformed(f"failed to parse template {template}: {message}", hint) from None

        try:
            steps = min(STEPS, self.budget.steps)
            rendered_text, steps_taken = parsed_template.counted(
                params, steps, missing_key or self.missing_key
            )
        except FailedTemplate as error:
            position = error.place or error.line
            raise Malformed(
                f"failed to execute go template {template}: template: base:{position}:"
                f" {error.message}"
            ) from None
        self.budget.steps -= steps_taken
        return rendered_text

    def deep(self, value: Any, params: Mapping[str, Any], *, nulls: bool = True) -> Any:
        """Return data, such as an Application's spec, with all strings and keys in it rendered.

        Without `nulls`, nulls in mappings are omitted.
        """
        if isinstance(value, str):
            return self.text(value, params)
        self.budget.read(1)
        if isinstance(value, list):
            return [self.deep(item, params, nulls=nulls) for item in value]
        if not isinstance(value, dict):
            return value
        rendered_mapping = {}
        for key, item in value.items():
            if item is None and not nulls:
                continue
            rendered_item = self.deep(item, params, nulls=nulls)
            rendered_mapping[self.text(key, params)] = rendered_item
        return rendered_mapping


def _render_fasttemplate(template: str, params: Mapping[str, Any]) -> str:
    """Return a template such as `{{name}}-web`, rendered as by valyala/fasttemplate, the library
    that Argo CD uses without goTemplate.

    An unknown name is kept, including its braces. Raises `Malformed` for `{{` without `}}`.
    """
    if not _TEMPLATED.search(template):
        return template
    has_unclosed_tag = "{{" in _TAG.sub("", template)
    if has_unclosed_tag:
        _, _, after_opening = template.rpartition("{{")
        raise Malformed(
            f'invalid template: Cannot find end tag="}}}}" in the template="{template}" starting'
            f' from "{after_opening}"'
        )

    def value_of_tag(tag: re.Match[str]) -> str:
        """Return the parameter that a tag names, or the tag itself if it is unknown."""
        name = tag.group(1).strip()
        value = params.get(name)
        if name and isinstance(value, str):
            return value
        return tag.group()

    return _TAG.sub(value_of_tag, template)
