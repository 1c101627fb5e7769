"""Writes the Tekton StepAction: the Task without parts that a StepAction cannot have.

Run `python -m scripts.stepaction`. A StepAction has no workspaces, so each becomes a parameter with a path, unless the
Task already has a parameter for it. Timeout and resources belong to the step that uses the StepAction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TASK = ROOT / "tekton/task/image-update/image-update.yaml"
STEP_ACTION = ROOT / "tekton/stepaction/image-update/image-update.yaml"
NOTE = "# Generated from tekton/task/image-update/image-update.yaml by `python -m scripts.stepaction`: do not edit.\n"
# The folder of all results: a StepAction knows only the path of each.
RESULTS = "$(step.results.status.path)/.."


def main() -> None:
    """Write the StepAction again, from the Task."""
    STEP_ACTION.write_text(rendered(), encoding="utf-8")


def rendered(source: Path = TASK) -> str:
    """Return the text of the StepAction."""
    return NOTE + dumped(step_action(yaml.safe_load(source.read_text(encoding="utf-8"))))


def step_action(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the StepAction for a Task with one step."""
    spec = task["spec"]
    (step,) = spec["steps"]
    folders, params = spec["workspaces"], spec["params"]
    known = {one["name"] for one in params}
    made = {
        "description": spec["description"],
        "params": [*params, *(_path_of(one) for one in folders if one["name"] not in known)],
        "results": spec["results"],
        **{key: step[key] for key in ("image", "command", "args", "workingDir", "env")},
        "securityContext": spec["stepTemplate"]["securityContext"],
    }
    made["env"] = [
        one | {"value": RESULTS} if one["name"] == "IMAGE_UPDATE_RESULTS_DIR" else one for one in made["env"]
    ]
    made = texts(made, lambda text: _without_workspaces(text, [one["name"] for one in folders]))
    return {"apiVersion": "tekton.dev/v1beta1", "kind": "StepAction", "metadata": task["metadata"], "spec": made}


def _path_of(workspace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameter that replaces a workspace. It is empty if the workspace would not be bound."""
    told = f"Path of a folder. {workspace['description']}"
    return {"name": folder_of(workspace["name"]), "type": "string", "default": "", "description": told}


def folder_of(workspace: str) -> str:
    """Return the name of the parameter that replaces a workspace."""
    return f"{workspace.removesuffix('-directory')}-directory"


def _without_workspaces(text: str, names: list[str]) -> str:
    text = re.sub(r", where no workspace [\w-]+ is bound", "", text)
    for name in names:
        text = text.replace(f"$(workspaces.{name}.path)$(params.{name})", f"$(params.{name})")
        text = text.replace(f"$(workspaces.{name}.path)", f"$(params.{folder_of(name)})")
        text = text.replace(f"elative to the workspace {name}", f"elative to {folder_of(name)}")
    return text


def texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a document after changing all its texts."""
    if isinstance(value, Mapping):
        return {key: texts(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [texts(one, change) for one in value]
    return change(value) if isinstance(value, str) else value


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no aliases."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def dumped(document: Mapping[str, Any]) -> str:
    """Return a document as YAML text."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=140)


if __name__ == "__main__":
    main()
