"""`sh` without its heavy imports, and everything as before afterwards."""

import subprocess
import sys

import pytest

from task.edges.quick_sh import _STAND_INS

LOAD = "import sys; from task.edges import quick_sh; sh = quick_sh.load()\n"
ECHO = "sh.echo('hello', _tty_out=False).strip()"


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_sh_works_without_them() -> None:
    code = (
        f"import sys; before = set(sys.modules)\n{LOAD}print({ECHO}, {set(_STAND_INS)} & (set(sys.modules) - before))"
    )
    assert python(code) == "hello set()"


@pytest.mark.parametrize("name", sorted(_STAND_INS))
def test_the_real_module_can_be_imported_afterwards(name: str) -> None:
    assert python(f"{LOAD}import {name}\nprint(bool({name}.__file__), {ECHO})") == "True hello"


@pytest.mark.parametrize("name", sorted(_STAND_INS))
def test_what_is_loaded_already_is_kept(name: str) -> None:
    code = f"import {name} as real\n{LOAD}print(sys.modules[{name!r}] is real, {ECHO})"
    assert python(code) == "True hello"


@pytest.mark.parametrize("name", sorted(_STAND_INS))
def test_what_is_needed_after_all_is_loaded(name: str) -> None:
    code = f"from task.edges import quick_sh; quick_sh._STAND_INS[{name!r}].clear()\n{LOAD}print({ECHO})"
    assert python(code) == "hello"


def test_asyncio_runs_afterwards() -> None:
    code = f"{LOAD}import asyncio\nasync def one(): return 1\nprint(asyncio.run(one()))"
    assert python(code) == "1"


def test_its_own_use_of_inspect_works() -> None:
    assert python(f"{LOAD}said = []\nsh.echo('x', _out=said.append, _tty_out=False)\nprint(said)") == "['x\\n']"


def test_it_is_loaded_once() -> None:
    assert python(f"{LOAD}print(quick_sh.load() is sh)") == "True"
