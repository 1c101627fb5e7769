"""Parses YAML text into events, with the best available parser.

Go's YAML, and so Helm, Argo CD and kustomize, descends from libyaml 0.2, which PyYAML's wheels contain. It is ten times
faster than ruamel.yaml's parser in Python. That one comes second, where libyaml refuses a text (`%YAML 1.2`, `[a:1]`)
or is missing. ruamel.yaml's own C extension is libyaml 0.1, which refuses `{url: https://example.com}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from task.errors import Malformed

# Go's readers skip a byte order mark before the first word of each document, and two files may have been put together.
_BOM = re.compile(r"((?:\A|^---[^\n]*\n)(?:[ \t]*(?:#[^\n]*)?\r?\n)*)\ufeff", re.MULTILINE)
_LARGE = 1_000_000  # characters; there is no second try, because the parser in Python would take minutes

Build = Callable[[Iterator[Any]], Any]


def parsed(text: str, build: Build) -> Any:
    """Call `build` with the events of `text`, and return its result. Raises `NotYaml`.

    The text must not begin with a byte order mark, which the parsers do not count.
    """
    if "\ufeff" in text:
        text = _BOM.sub(r"\1\n", text)  # as long as before, so that places in the text stay
    problem: Exception | None = None  # the message of the first parser counts
    if yaml.__with_libyaml__:
        try:
            return build(yaml.parse(text, Loader=yaml.CSafeLoader))
        except Malformed:
            raise
        except (yaml.YAMLError, ValueError) as error:
            problem = error
            if len(text) > _LARGE:
                raise NotYaml(problem) from error

    # Imported here because few runs need it, and it is a thirtieth of the time that every other run takes to start.
    from ruamel.yaml import YAML  # noqa: PLC0415
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    try:
        return build(YAML(typ="safe", pure=True).parse(text))
    except Malformed:
        raise
    except (YAMLError, RecursionError, ValueError) as error:
        raise NotYaml(problem or error) from error


class NotYaml(Malformed):
    """No parser can read the text. `line` counts from 1, and is 0 if the parser does not say it."""

    def __init__(self, error: Exception) -> None:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        self.line = mark.line + 1 if mark is not None else 0
        self.what = str(what)
        super().__init__(f"not valid YAML: {what}" + (f", line {self.line}" if self.line else ""))
