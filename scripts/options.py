"""Writes the table of options in docs/reference.md, and adds new options to the hosts' manifests.

    python -m scripts.options

Options are read from the Typer app. The table is made anew. In manifests and their READMEs, where the words may be
better than the help of an option, only missing rows are added, each after the option that is before it in the table.
Then the manifests that are made from others are made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from typer.core import TyperArgument

from scripts import cluster_template, host_secrets, stepaction
from scripts.typer_options import (
    TyperParam,
    all_options,
    both_helps,
    choices_of,
    commands,
    default_of,
    host_default_of,
    name_of,
    options_of,
    takes_many,
)
from task.cli.command_files import GROUPS

ROOT = Path(__file__).resolve().parent.parent
TASK, TEMPLATE, ACTION, COMPONENT = (
    ROOT / "tekton/task/image-update/image-update.yaml",
    ROOT / "argo-workflows/image-update/manifests.yaml",
    ROOT / "action.yml",
    ROOT / "templates/image-update.yml",
)
READMES = (ROOT / "tekton/task/image-update/README.md", ROOT / "argo-workflows/image-update/README.md")
BEGIN, END = "<!-- options: `python -m scripts.options` writes what follows -->\n", "<!-- end of the options -->"
# These are set by the host itself.
SETTLED = ("results-dir", "dotenv", "report", "ssh-directory", "basic-auth-directory", "ca-file")

WRITING = (*GROUPS["Update"], *GROUPS["By hand"])
WITHOUT_APPLICATIONS = ("report", "demo")


def main() -> None:
    """Write everything again."""
    reference(ROOT / "docs/reference.md")
    options = options_of("run")
    # Outputs and workspaces may have the names of options as well, so only the section of the parameters counts.
    lines(TASK, options, "    - name: {name}\n", _tekton, ("\n  params:\n", "\n  workspaces:\n"))
    lines(TEMPLATE, options, "          - name: {name}\n", _argo, ("\n        parameters:\n", "\n        artifacts:\n"))
    lines(ACTION, options, "  {name}:\n", _action, ("\ninputs:\n", "\noutputs:\n"))
    lines(COMPONENT, options, "    {name}:\n", _component, ("\n  inputs:\n", "\n---\n"))
    lines(COMPONENT, options, "    {variable}: ", "    {variable}: $[[ inputs.{name} ]]\n")
    lines(TASK, options, "        - {{name: {variable}, ", _tekton_variable)
    lines(TEMPLATE, options, "          - {{name: {variable}, ", _argo_variable)
    lines(ACTION, options, "    {variable}: ", "    {variable}: ${{{{ inputs.{name} }}}}\n")
    for path in READMES:
        lines(
            path,
            options,
            "| `{name}` |",
            "| `{name}` | {shown} | {help} |\n",
            ("\n## Parameters\n", "\nAn empty value"),
        )
    for command in ("", *commands()):
        (ROOT / f"tests/data/help/{command or 'image-update'}.txt").write_text(both_helps(command))
    host_secrets.main()
    stepaction.main()
    cluster_template.main()


def reference(path: Path) -> None:
    """Write the tables of all options, between the two comments."""
    text = path.read_text()
    start = text.index(BEGIN) + len(BEGIN)
    path.write_text(text[:start] + table() + text[text.index(END) :])


def table() -> str:
    """Return every option with its variable, help, default and commands: a heading and a table for each group."""
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
        shown, default = f"`{one.opts[0]}`, `{one.secondary_opts[0]}`", "on" if one.default else "off"
    else:
        shown = f"`{one.opts[0]}` `{metavar}`{' (repeatable)' if one.multiple else ''}"
    # The variable has its own line: with another column before it, no phone would show what the option does.
    return f"| {shown}<br>`{one.envvar}` | {one.help} | {default or '–'} | {_taken_by(one)} |"


def _taken_by(one: TyperParam) -> str:
    """Return the commands that take the option. The reference says which ones "all" and "writing" are."""
    taking = [
        name for name in commands() if (one.name, one.help) in {(each.name, each.help) for each in options_of(name)}
    ]
    left_out = [name for name in commands() if name not in (*taking, *WITHOUT_APPLICATIONS)]
    if len(left_out) < 2:
        return f"all but `{left_out[0]}`" if left_out else "all"
    writing = set(WRITING) <= set(taking)
    named = [f"`{name}`" for name in taking if not (writing and name in WRITING)]
    return ", ".join(["writing", *named] if writing else named)


def lines(
    path: Path,
    options: Sequence[TyperParam],
    mark: str,
    new: str | Callable[[TyperParam], str],
    section: tuple[str, str] = ("", ""),
) -> None:
    """Add a piece of text for every option whose mark is missing, after the piece for the previous option.

    Only the text between the two marks of the section counts.
    """
    whole = path.read_text()
    begin = whole.index(section[0])
    finish = whole.index(section[1], begin) if section[1] else len(whole)
    text = whole[begin:finish] + "\n"
    known = [one for one in options if name_of(one) not in SETTLED]
    for before, one in pairwise(known):
        wanted = _filled(mark, one)
        if f"\n{wanted}" in text:
            continue
        at = text.index(f"\n{_filled(mark, before)}") + 1
        piece = _filled(new, one) if isinstance(new, str) else new(one)
        end = _end(text, at, indent=len(mark) - len(mark.lstrip(" ")))
        text = text[:end] + piece + text[end:]
    path.write_text(whole[:begin] + text[:-1] + whole[finish:])


def _end(text: str, at: int, indent: int) -> int:
    """Return where the piece that begins at `at` ends: before the next line that is not indented more."""
    end = text.index("\n", at) + 1
    while (line := text[end : text.find("\n", end)]).strip() and len(line) - len(line.lstrip(" ")) > indent:
        end = text.index("\n", end) + 1
    return end


def _filled(template: str, one: TyperParam) -> str:
    return template.format(
        name=name_of(one),
        variable=one.envvar,
        help=help_of(one),
        default=host_default_of(one),
        shown=f"`{host_default_of(one)}`" if host_default_of(one) else "",
    )


def help_of(one: TyperParam) -> str:
    """Return the option's help, with the values that it takes."""
    text = str(one.help).replace('"', "'")
    if isinstance(one.default, bool):
        return f"{text.rstrip('.')} (true or false)."
    choices = choices_of(one)
    if not all(choice in text for choice in choices):
        return f"{text.rstrip('.')} ({', '.join(choices)})."
    return f"{text} One value per line." if takes_many(one) else text


def _tekton(one: TyperParam) -> str:
    return _filled(
        '    - name: {name}\n      type: string\n      default: "{default}"\n      description: "{help}"\n', one
    )


def _argo(one: TyperParam) -> str:
    return _filled('          - name: {name}\n            value: "{default}"\n            description: "{help}"\n', one)


def _tekton_variable(one: TyperParam) -> str:
    return f"        - {{name: {one.envvar}, value: $(params.{name_of(one)})}}\n"


def _argo_variable(one: TyperParam) -> str:
    return f'          - {{name: {one.envvar}, value: "{{{{inputs.parameters.{name_of(one)}}}}}"}}\n'


def _component(one: TyperParam) -> str:
    return _filled('    {name}:\n      default: "{default}"\n      description: "{help}"\n', one)


def _action(one: TyperParam) -> str:
    return _filled('  {name}:\n    description: "{help}"\n    default: "{default}"\n', one)


if __name__ == "__main__":
    main()
