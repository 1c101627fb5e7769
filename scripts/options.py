"""Generate the options table in docs/reference.md, the help of each command, and the hosts' manifests.

    python -m scripts.options

Options are read from the Typer app. `scripts/hosts.py` generates the manifests.
"""

from __future__ import annotations

from pathlib import Path

from typer.core import TyperArgument

from scripts import hosts
from scripts.typer_options import (
    TyperParam,
    all_options,
    both_helps,
    commands,
    default_of,
    options_of,
)
from task.cli.app import GROUPS

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = (
    "<!-- options: `python -m scripts.options` writes what follows -->\n",
    "<!-- end of the options -->",
)
WRITING = (*GROUPS["Update"], *GROUPS["By hand"])
WITHOUT_APPLICATIONS = ("report", "demo")


def main() -> None:
    """Regenerate all files."""
    reference(ROOT / "docs/reference.md")
    for command in ("", *commands()):
        (ROOT / f"tests/data/help/{command or 'image-update'}.txt").write_text(both_helps(command))
    hosts.main()


def reference(path: Path) -> None:
    """Write the tables of all options between the two comments."""
    text = path.read_text()
    start = text.index(BEGIN) + len(BEGIN)
    path.write_text(text[:start] + table() + text[text.index(END) :])


def table() -> str:
    """Return all options with their variables, help, defaults, and commands, with a heading and a table per group."""
    rows, panel = [], ""
    for one in all_options():
        if one.rich_help_panel != panel:
            panel = str(one.rich_help_panel)
            rows += [
                "",
                f"### {panel}",
                "",
                "| option, variable | what it does | default | commands |",
                "|---|---|---|---|",
            ]
        rows.append(_row(one))
    return "\n".join(rows) + "\n\n"


def _row(one: TyperParam) -> str:
    default, metavar = default_of(one), str(one.metavar).replace("|", "\\|")
    if isinstance(one, TyperArgument):
        shown = f"`{one.metavar}`"
    elif one.is_flag:
        shown, default = (
            f"`{one.opts[0]}`, `{one.secondary_opts[0]}`",
            "on" if one.default else "off",
        )
    else:
        shown = f"`{one.opts[0]}` `{metavar}`{' (repeatable)' if one.multiple else ''}"
    # The variable is on its own line. With one more column, phones would not show what the option does.
    return f"| {shown}<br>`{one.envvar}` | {one.help} | {default or '–'} | {_taken_by(one)} |"


def _taken_by(one: TyperParam) -> str:
    """Return the commands that accept the option. The reference defines "all" and "writing"."""
    taking = [
        name
        for name in commands()
        if (one.name, one.help) in {(each.name, each.help) for each in options_of(name)}
    ]
    left_out = [name for name in commands() if name not in (*taking, *WITHOUT_APPLICATIONS)]
    if len(left_out) < 2:
        return f"all but `{left_out[0]}`" if left_out else "all"
    writing = set(WRITING) <= set(taking)
    named = [f"`{name}`" for name in taking if not (writing and name in WRITING)]
    return ", ".join(["writing", *named] if writing else named)


if __name__ == "__main__":
    main()
