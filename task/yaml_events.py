"""YAML text → parse events, from the best parser at hand.

libyaml 0.2 (in PyYAML's wheels) is what Go's YAML, and so Helm, Argo CD and kustomize,
descends from, and ten times faster than the parser in Python (ruamel.yaml's), which has
the second word where libyaml refuses (`%YAML 1.2`, `[a:1]`) or is missing. ruamel.yaml's
own C extension is libyaml 0.1, which refuses `{url: https://example.com}`.
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

    A leading byte order mark must have been taken off: parsers leave it out when they
    count. Raises `Malformed`: what is wrong, with the line counted from 1 in `line`.
    """
    problem: Exception | None = None
    for events in _parsers(len(text)):
        try:
            return build(events(text))
        except Malformed:
            raise
        except _errors(events) as error:
            problem = problem or error
    raise NotYaml(problem)


class NotYaml(Malformed):
    """Text that no parser reads."""

    def __init__(self, error: Exception | None) -> None:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        self.line = mark.line + 1 if mark is not None else 0
        self.what = str(what)
        super().__init__(f"not valid YAML: {what}" + (f", line {self.line}" if self.line else ""))


def _parsers(size: int) -> tuple[Callable[[str], Iterator[Any]], ...]:
    if not yaml.__with_libyaml__:
        return (_python,)
    return (_libyaml, _python) if size <= _LARGE else (_libyaml,)


def _errors(events: Callable[[str], Iterator[Any]]) -> tuple[type[Exception], ...]:
    """What a parser raises for text that is not YAML."""
    return (RuamelError, RecursionError, ValueError) if events is _python else (yaml.YAMLError, ValueError)


def _libyaml(text: str) -> Iterator[Any]:
    yield from yaml.parse(text, Loader=yaml.CSafeLoader)


def _python(text: str) -> Iterator[Any]:
    yield from YAML(typ="safe", pure=True).parse(text)
