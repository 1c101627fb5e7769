"""Adds new variables with secrets (`task.wiring.SECRETS`) to the hosts' manifests and their READMEs.

This is part of `python -m scripts.options`. A row is added only once, so improve its words there.
"""

from __future__ import annotations

from pathlib import Path

from scripts.typer_options import all_options, name_of
from task.settings import SECRETS

ROOT = Path(__file__).resolve().parent.parent
TASK, TEMPLATE, ACTION = (
    ROOT / "tekton/task/image-update/image-update.yaml",
    ROOT / "argo-workflows/image-update/manifests.yaml",
    ROOT / "action.yml",
)
PREFIX = "IMAGE_UPDATE_"


def main() -> None:
    """Add what is missing to the manifests."""
    for variable in (one for one in SECRETS if one.startswith(PREFIX)):
        key = variable.removeprefix(PREFIX).lower().replace("_", "-")
        _add(TASK, "      computeResources:\n", _reference(8, variable, "$(params.secret)", key))
        _add(TEMPLATE, "        volumeMounts:\n", _reference(10, variable, '"{{inputs.parameters.secret}}"', key))
        _add(ACTION, "outputs:\n", f'  {key}:\n    description: "{_help(key)}"\n    default: ""\n')
        _append(ACTION, f"    {variable}: ${{{{ inputs.{key} }}}}\n")
        for manifest in (TASK, TEMPLATE):
            _add(manifest.parent / "README.md", _end_of_table, f"| `{key}` | `{variable}` | {_help(key)} |\n")


def _help(key: str) -> str:
    """Return the help of the option that takes the secret as a file, or of the option that it belongs to."""
    words = key.split("-")
    names = (f"{key}-file", f"{key.rpartition('-')[0]}-url")
    found = next(
        (str(one.help) for name in names for one in all_options() if name_of(one) == name), " ".join(words).capitalize()
    )
    return f"Secret: {found.partition('; or ')[0].rstrip('.')}."


def _reference(indent: int, variable: str, secret: str, key: str) -> str:
    pad = " " * indent
    place = f"{{name: {secret}, key: {key}, optional: true}}"
    return f"{pad}- name: {variable}\n{pad}  valueFrom: {{secretKeyRef: {place}}}\n"


def _end_of_table(text: str) -> int:
    """Return the place after the last row of the table of secrets."""
    return text.index("\n\n", text.index("| key | variable |")) + 1


def _add(path: Path, before: object, piece: str) -> None:
    text = path.read_text(encoding="utf-8")
    if piece.partition("\n")[0].partition(" | ")[0] + ("\n" if "|" not in piece else " | ") in text:
        return
    at = before(text) if callable(before) else text.index(f"\n{before}") + 1
    path.write_text(text[:at] + piece + text[at:], encoding="utf-8")


def _append(path: Path, line: str) -> None:
    text = path.read_text(encoding="utf-8")
    if line not in text:
        path.write_text(text + line, encoding="utf-8")


if __name__ == "__main__":
    main()
