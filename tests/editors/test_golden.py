"""Golden folders (`before/`, `event.json`, `after/`) for every target and every YAML style.

`event.json` contains the image and the target's data. If it contains `error`, nothing may be
written, and the error must contain this text. Files are compared byte by byte.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from editors.editing import edit, parameters, read, source, target
from support import DATA

from task.editors.yaml import tree as yaml_tree
from task.errors import TaskError
from task.model import File, Keys, Target

FOLDERS = sorted(path.parent for path in (DATA / "golden").glob("*/*/event.json"))
MODES = {"link": "120000", "submodule": "160000", "folder": "040000"}


def texts(folder: Path) -> dict[str, str]:
    """Return the texts of the files below a folder, keyed by path."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes().decode() for path in found}


def aim_of(kind: str, event: dict[str, Any]) -> Target:
    spec = event.get("spec", {})
    origin = source(
        parameters=parameters(*spec.get("parameters", ())),
        images=tuple(spec.get("images", ())),
        env=tuple(map(tuple, spec.get("env", ()))),
    )
    return target(
        kind,  # type: ignore[arg-type]
        event.get("entry", event["image"]),
        Keys(**event.get("keys", {})),
        path=event["path"],
        source=origin,
        **event.get("target", {}),
    )


@pytest.mark.parametrize(
    "folder", [pytest.param(path, id=f"{path.parent.name}-{path.name}") for path in FOLDERS]
)
def test_each_golden_folder_is_edited_as_expected(folder: Path) -> None:
    event = json.loads((folder / "event.json").read_text())
    aim = aim_of(folder.parent.name, event)
    before = {path: File(text) for path, text in texts(folder / "before").items()}
    before |= {path: File("", MODES[mode]) for path, mode in event.get("modes", {}).items()}
    if "error" in event:
        with pytest.raises(TaskError) as caught:
            edit(before, aim, event["image"])
        assert event["error"] in str(caught.value)
        assert caught.value.hint
        return
    changed, edits = edit(before, aim, event["image"])
    after = {**before, **changed}
    assert {path: file.text for path, file in after.items()} == texts(folder / "after")
    assert bool(edits) == bool(changed)
    assert edit(after, aim, event["image"]) == ({}, ())
    assert read(after, aim).sound


@pytest.fixture
def _parser_in_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parse as if PyYAML had been built without libyaml."""
    monkeypatch.setattr("yaml.__with_libyaml__", False)
    yaml_tree._cached_parse.cache_clear()
    yield
    yaml_tree._cached_parse.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("_parser_in_python")
def test_all_golden_folders_pass_without_libyaml() -> None:
    for folder in FOLDERS:
        if folder.name == "tab-in-comment":
            continue  # only ruamel.yaml's parser rejects a tab before a comment
        event = json.loads((folder / "event.json").read_text())
        if "error" not in event:
            before = {path: File(text) for path, text in texts(folder / "before").items()}
            changed, _ = edit(before, aim_of(folder.parent.name, event), event["image"])
            after = {path: file.text for path, file in {**before, **changed}.items()}
            assert after == texts(folder / "after"), folder


def test_there_are_golden_folders_for_every_target() -> None:
    assert len(FOLDERS) >= 80
    assert {path.parent.name for path in FOLDERS} >= {
        "helm-override",
        "kustomize-override",
        "plugin-override",
        "kustomization",
        "helmvalues",
        "manifests",
        "flux",
    }
