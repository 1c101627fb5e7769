"""The fast door: a plain command line → command and raw values, without importing Typer.

A pipeline's command line is long options with values. Whatever else comes (help, a
mistake, an abbreviation) is left to Typer, which costs 100 ms and knows the words for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from task.cli.options import OPTIONS, Option, options_of

Raw = Mapping[str, tuple[str, ...]]  # option name → the texts given for it, in order


FAST = ("run", "plan", "lint", "scan")  # what pipelines call; people can wait for Typer


@dataclass(frozen=True)
class Call:
    """One command with its options as texts; flags are "true" or "false"."""

    command: str
    values: Raw


def read(argv: Sequence[str]) -> Call | None:
    """The call that `argv` (without the program's name) makes; None when Typer has to look at it."""
    if not argv or argv[0] not in FAST:
        return None
    known = {f"--{option.name}": option for option in options_of(argv[0])}
    values: dict[str, list[str]] = {}
    words = iter(argv[1:])
    for word in words:
        flag, equals, value = word.partition("=")
        negated = known.get(flag.replace("--no-", "--", 1)) if flag.startswith("--no-") else None
        option = known.get(flag) or negated
        if option is None or (option.takes == "flag") == bool(equals) or (negated and option.takes != "flag"):
            if option is None or option.takes == "flag" or negated:
                return None
            value = next(words, "")
            if not value or (value.startswith("-") and value != "-"):
                return None
        elif option.takes == "flag":
            value = "false" if negated else "true"
        values.setdefault(option.name, []).append(value)
    return Call(argv[0], {name: tuple(texts) for name, texts in values.items()})


def with_environment(call: Call, environ: Mapping[str, str]) -> Call:
    """The call, with what it leaves out taken from the variables; an empty variable counts as unset."""
    values = dict(call.values)
    for option in options_of(call.command):
        text = environ.get(option.variable, "").strip()
        if text and option.name not in values:
            values[option.name] = tuple(_split(option, text))
    known = {option.name: option for option in OPTIONS}
    return Call(call.command, {name: _clean(known[name], texts) for name, texts in values.items()})


def _split(option: Option, text: str) -> list[str]:
    """A variable that holds several values has them on lines of their own."""
    return text.splitlines() if option.takes in ("words", "lines") and option.name != "image" else [text]


def _clean(option: Option, texts: tuple[str, ...]) -> tuple[str, ...]:
    stripped = (text.strip() for text in texts)
    if option.takes == "words":
        return tuple(word for text in stripped for word in text.replace(",", " ").split())
    return tuple(text for text in stripped if text)
