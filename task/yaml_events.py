"""YAML text → parse events, from the best parser at hand.

Go's YAML, and so Helm, Argo CD and kustomize, descends from libyaml 0.2, which PyYAML's wheels contain. It is ten
times faster than the parser in Python (ruamel.yaml's). That one is asked second, where libyaml refuses (`%YAML 1.2`,
`[a:1]`) or is missing. ruamel.yaml's own C extension is libyaml 0.1, which refuses `{url: https://example.com}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError as RuamelError

from task.errors import Malformed

_LARGE = 1_000_000  # characters: no second try, the parser in Python would take minutes

Build = Callable[[Iterator[Any]], Any]


def parsed(text: str, build: Build) -> Any:
    """What `build` makes of the events of `text`.

    The text must not begin with a byte order mark: parsers do not count it. Raises `NotYaml`.
    """
    attempts: list[tuple[Callable[[str], Iterator[Any]], tuple[type[Exception], ...]]] = []
    if yaml.__with_libyaml__:
        attempts.append((lambda text: yaml.parse(text, Loader=yaml.CSafeLoader), (yaml.YAMLError, ValueError)))
    if not attempts or len(text) <= _LARGE:
        pure = YAML(typ="safe", pure=True)
        attempts.append((pure.parse, (RuamelError, RecursionError, ValueError)))
    problem: Exception | None = None
    for parse, errors in attempts:
        try:
            return build(parse(text))
        except Malformed:
            raise
        except errors as error:
            problem = problem or error  # what the first parser says counts
    raise NotYaml(problem)


class NotYaml(Malformed):
    """Text that no parser reads; `line` counts from 1, and is 0 where the parser names none."""

    def __init__(self, error: Exception | None) -> None:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        self.line = mark.line + 1 if mark is not None else 0
        self.what = str(what)
        super().__init__(f"not valid YAML: {what}" + (f", line {self.line}" if self.line else ""))
