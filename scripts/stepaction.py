"""Writes the Tekton StepAction, the Task without what a StepAction cannot have: `python -m scripts.stepaction`.

A StepAction has no workspaces, so each becomes a parameter with a path, unless the Task has a parameter for it already;
the step of the using Task says how long it may take and what it needs of the machine.
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
    """Bring the StepAction in step with the Task."""
    STEP_ACTION.write_text(rendered(), encoding="utf-8")


def rendered(source: Path = TASK) -> str:
    """The text of the StepAction."""
    return NOTE + dumped(step_action(yaml.safe_load(source.read_text(encoding="utf-8"))))


def step_action(task: Mapping[str, Any]) -> dict[str, Any]:
    """The StepAction of a Task with one step."""
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
    """The parameter in place of a workspace; empty as where the workspace is not bound."""
    told = f"Path of a folder. {workspace['description']}"
    return {"name": f"{workspace['name']}-path", "type": "string", "default": "", "description": told}


def _without_workspaces(text: str, names: list[str]) -> str:
    text = re.sub(r", where no workspace [\w-]+ is bound", "", text)
    for name in names:
        text = text.replace(f"$(workspaces.{name}.path)$(params.{name})", f"$(params.{name})")
        text = text.replace(f"$(workspaces.{name}.path)", f"$(params.{name}-path)")
        text = text.replace(f"elative to the workspace {name}", f"elative to {name}-path")
    return text


def texts(value: Any, change: Callable[[str], str]) -> Any:
    """A document with all its texts changed."""
    if isinstance(value, Mapping):
        return {key: texts(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [texts(one, change) for one in value]
    return change(value) if isinstance(value, str) else value


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, no aliases."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def dumped(document: Mapping[str, Any]) -> str:
    """A document as YAML text."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=140)


if __name__ == "__main__":
    main()
