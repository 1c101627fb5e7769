"""The help of the whole and of each command: what matters first, no line cut, each option with its variable."""

from __future__ import annotations

from collections.abc import Iterable

from task.cli.options import (
    ARGO,
    COMMANDS,
    COMMIT,
    EVENT,
    FIND,
    GIT,
    HELD,
    REGISTRY,
    REQUEST,
    RESULTS,
    RULES,
    Option,
    options_of,
)
from task.output.colour import Look, paint
from task.output.columns import columns, wrap

# What a first run needs comes first; how servers are reached comes last.
PANELS = (EVENT, HELD, FIND, RULES, COMMIT, REQUEST, RESULTS, GIT, ARGO, REGISTRY)
ABOUT = "Deploys an image just built: finds the Argo CD Applications that ask for it, commits the new tag."
_ROOT = (
    ("--version", "Show the version."),
    ("-h, --help", "Show this message; after a command, that of the command."),
    ("--install-completion", "Install completion for this shell."),
    ("--show-completion", "Show completion for this shell, to copy it."),
)
_DEMO = (("--keep", "Leave the repository, to play with."),)  # the one option that is no variable
_INDENT, _VARIABLE = 6, 40  # columns


def root_help(look: Look) -> str:
    """What `image-update --help` shows."""
    lines = [f"{paint('Usage:', 'bold', look)} image-update COMMAND [OPTIONS]", "", *wrap(ABOUT, look.width)]
    lines += _pairs("Commands", COMMANDS.items(), look)
    lines += _pairs("Options", _ROOT, look)
    more = "Every option is also a variable: --git-author-name is IMAGE_UPDATE_GIT_AUTHOR_NAME."
    return "\n".join([*lines, "", *wrap(more, look.width)]) + "\n"


def command_help(command: str, look: Look) -> str:
    """What `image-update COMMAND --help` shows."""
    options = options_of(command)
    given = "".join(f" {_name(one)}" for one in options if one.positional)
    lines = [f"{paint('Usage:', 'bold', look)} image-update {command}{given} [OPTIONS]", ""]
    lines += wrap(COMMANDS[command], look.width)
    for panel in _panels(options):
        lines += ["", paint(panel, "bold", look)]
        lines += [line for one in options if one.panel == panel for line in _option(one, look)]
    if command == "demo":
        lines += _pairs("Options", _DEMO, look)
    return "\n".join(lines) + "\n"


def _panels(options: Iterable[Option]) -> list[str]:
    found = dict.fromkeys(one.panel for one in options)
    return [*(panel for panel in PANELS if panel in found), *(panel for panel in found if panel not in PANELS)]


def _pairs(title: str, pairs: Iterable[tuple[str, str]], look: Look) -> list[str]:
    pairs = tuple(pairs)
    widest = max(len(name) for name, _ in pairs)
    lines = ["", paint(title, "bold", look)]
    for name, text in pairs:
        first, *rest = wrap(text, look.width - widest - 4)
        lines.append(f"  {paint(name, 'cyan', look)}{' ' * (widest - len(name))}  {first}")
        lines += [" " * (widest + 4) + line for line in rest]
    return lines


def _name(one: Option) -> str:
    """As it is written on a command line."""
    if one.positional:
        return f"{one.metavar}{'...' if one.takes == 'words' else ''}"
    if one.takes == "flag":
        return f"--no-{one.name}" if one.default == "true" else f"--{one.name}"
    value = "|".join(one.choices) or one.metavar
    return f"--{one.name} {value}"


def _option(one: Option, look: Look) -> list[str]:
    """Its name with its variable, then what it does."""
    name, more = _name(one), []
    if one.takes in ("words", "lines") and not one.positional:
        more.append("repeatable")
    if one.default and one.takes != "flag":
        more.append(f"default {one.default}")
    if one.default == "true":
        more.append("on by default")
    head = f"  {paint(name, 'cyan', look)}"
    gap = max(_VARIABLE - columns(name) - 2, 2)
    if columns(name) + 2 + gap + len(one.variable) <= look.width:
        lines = [f"{head}{' ' * gap}{paint(one.variable, 'dim', look)}"]
    else:
        lines = [head, " " * _INDENT + paint(one.variable, "dim", look)]
    text = f"{one.help} ({', '.join(more)})" if more else one.help
    return [*lines, *(" " * _INDENT + line for line in wrap(text, look.width - _INDENT))]
