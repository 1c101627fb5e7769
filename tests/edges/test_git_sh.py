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


IDLE = """
import os, tempfile
with tempfile.TemporaryFile() as out, open(os.devnull, "r+b") as null, quick_sh.idle():
    running = sh.Command("sh")("-c", "echo hello; exit 3", _in=null, _out=out, _err=null, _bg=1, _bg_exc=False)
    try:
        running.wait()
    except sh.ErrorReturnCode as error:
        out.seek(0)
        print(out.read().decode().strip(), error.exit_code)
"""


def test_sh_works_without_them() -> None:
    known = "import sys, tempfile; before = set(sys.modules)\n"
    code = f"{known}{LOAD}{IDLE}print({set(_STAND_INS)} & (set(sys.modules) - before))"
    assert python(code) == "hello 3\nset()"


def test_a_process_with_files_needs_no_thread() -> None:
    name = "start_joinable_thread" if sys.version_info >= (3, 13) else "start_new_thread"
    started = f"import _thread; start = _thread.{name}; count = []\n"
    started += f"_thread.{name} = lambda *given, **more: (count.append(given), start(*given, **more))[1]\n"
    assert python(f"{started}{LOAD}{IDLE}print(len(count))") == "hello 3\n0"
    assert python(f"{started}{LOAD}print({ECHO}, len(count) > 1)") == "hello True"


def test_a_process_with_pipes_works_after_one_without() -> None:
    assert python(f"{LOAD}{IDLE}print({ECHO})") == "hello 3\nhello"


@pytest.mark.parametrize("name", sorted(_STAND_INS))
def test_the_real_module_can_be_imported_afterwards(name: str) -> None:
    assert python(f"{LOAD}import {name}\nprint({name}.__name__, {ECHO})") == f"{name} hello"


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
