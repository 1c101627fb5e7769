"""A run loads little, and who needs the whole of a module gets it."""

import subprocess
import sys
from pathlib import Path

import pytest
from runs import application, arguments, manifest, repository

SPARE = "from task import light; light.spare_typing(); import sys; "


def python(code: str) -> str:
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def test_a_run_loads_nothing_for_threads_and_types(tmp_path: Path) -> None:
    apps = manifest(tmp_path, application("a", repository(tmp_path, "a")))
    argv = [sys.executable, "-X", "importtime", "-m", "task", *arguments(apps)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"task.pipeline", "task.edges.git"} <= loaded
    assert not loaded & {"threading", "asyncio", "logging", "subprocess", "pathlib", "inspect", "requests", "typer"}
    assert sys.version_info >= (3, 14) or "typing" not in loaded


@pytest.mark.parametrize("name", ["task.pipeline", "task.edits", "task.parse.forge", "task.edges.http"])
def test_the_house_is_content_without_types(name: str) -> None:
    code = f"{SPARE}import {name}; print(sys.modules['typing'].__class__.__name__)"
    assert python(code) == ("_Typing" if sys.version_info < (3, 14) else "module")


def test_a_table_made_of_a_type_is_the_same() -> None:
    names = "import task.parse.forge as forge; print(forge.NAMES)"
    assert python(SPARE + names) == python(names)


@pytest.mark.parametrize(
    "code",
    [
        "from typing import Any, get_type_hints; print(Any)",
        "import typing; print(typing.Any)",
        "import task.model; from typing import Any; print(Any)",
        "import task.model; import typing; print(typing.Any)",
        "import dataclasses, typing; print(typing.Any)",
    ],
)
def test_others_get_the_real_one(code: str) -> None:
    assert python(SPARE + code) == "typing.Any"


def test_from_then_on_it_is_there_for_all() -> None:
    code = "import typing as t; t.Union; import typing, task.model; print(t.Union is typing.Union)"
    assert python(SPARE + code) == "True"


@pytest.mark.parametrize("name", ["task.edges", "task.edges.registry.client", "task.schemas", "task.__main__"])
def test_what_is_found_quickly_is_what_is_found_otherwise(name: str) -> None:
    spec = f"import {name} as it; print(it.__file__, it.__spec__.cached, it.__package__, getattr(it, '__path__', ''))"
    assert python(f"from task import light; light.find_quickly(); {spec}") == python(spec)


def test_what_is_not_in_the_house_is_looked_for_elsewhere() -> None:
    code = """
from task import light
light.find_quickly()
try:
    import task.nothing
except ModuleNotFoundError as error:
    print(error)
"""
    assert python(code) == "No module named 'task.nothing'"
