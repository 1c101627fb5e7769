"""`sh` without its heavy imports, and everything as before afterwards."""

import subprocess
import sys

import pytest


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_sh_works_and_asyncio_is_not_loaded() -> None:
    code = (
        "import sys; from task.edges import quick_sh; sh = quick_sh.load();"
        "print(sh.echo('hello', _tty_out=False).strip(), 'asyncio' in sys.modules, 'importlib.metadata' in sys.modules)"
    )
    assert python(code) == "hello False False"


def test_the_real_modules_can_be_imported_afterwards() -> None:
    code = (
        "from task.edges import quick_sh; quick_sh.load();"
        "import asyncio, importlib.metadata; from importlib import metadata;"
        "async def one(): return 1\n"
        "print(asyncio.run(one()), metadata is importlib.metadata, bool(metadata.version('sh')))"
    ).replace("async def", "\nasync def")
    assert python(code) == "1 True True"


def test_what_is_loaded_already_is_kept() -> None:
    code = (
        "import asyncio, importlib.metadata as real; from task.edges import quick_sh; sh = quick_sh.load();"
        "import sys; print(sys.modules['asyncio'] is asyncio, sys.modules['importlib.metadata'] is real,"
        " sh.echo('x', _tty_out=False).strip())"
    )
    assert python(code) == "True True x"


@pytest.mark.parametrize("broken", ["_ASYNCIO", "_METADATA"])
def test_another_sh_that_needs_more_gets_the_real_modules(broken: str) -> None:
    code = (
        f"from task.edges import quick_sh; quick_sh.{broken}.clear(); sh = quick_sh.load();"
        "print(sh.echo('x', _tty_out=False).strip())"
    )
    assert python(code) == "x"


def test_it_is_loaded_once() -> None:
    assert python("from task.edges import quick_sh; print(quick_sh.load() is quick_sh.load())") == "True"
