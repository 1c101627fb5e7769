"""Prints and checks the shape of the code against `scripts/house.toml`: what a reader of one event meets.

    python -m scripts.house

The figures are guards, not goals. One may rise, but only in a commit of its own that says what the reader gets for it,
and nothing is cut in two to please them.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from task.cli.app import main as image_update

ROOT = Path(__file__).resolve().parent.parent
TASK, TABLE = ROOT / "task", ROOT / "scripts/house.toml"
APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: web
  namespace: argocd
  annotations:
    argocd-image-updater.argoproj.io/image-list: web=ghcr.io/acme/web:^1
    argocd-image-updater.argoproj.io/write-back-method: git
spec:
  source: {repoURL: "%s", path: apps/web, targetRevision: main, helm: {}}
"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Print each figure with its limit, and end with 1 if one is above it."""
    limits = tomllib.loads(TABLE.read_text())
    figures = of_the_source() | of_one_push()
    high = []
    for name, figure in figures.items():
        sys.stdout.write(f"{figure:>7,}  {name} (at most {limits[name]:,})\n")
        if figure > limits[name]:
            high.append(name)
    if high:
        sys.exit(f"{', '.join(high)}: above scripts/house.toml. Simplify, or raise the limit in a commit of its own.")


def of_the_source() -> dict[str, int]:
    """Return the figures that the text of `task/` gives."""
    texts = {path: path.read_text() for path in TASK.rglob("*.py")}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, Function)]
    names = Counter(name for text in texts.values() for name in re.findall(r"\b_[a-z]\w*", text))
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    modules = Counter(path.stem for path in texts if path.stem != "__init__")
    dust = [
        one.name
        for one in functions
        if re.match("_[a-z]", one.name) and names[one.name] == 2 and len(lines_of(one)) <= 3 and not one.decorator_list
    ]
    return {
        "code lines": sum(code_lines(text, trees[path]) for path, text in texts.items()),
        "late imports": sum(
            isinstance(inner, ast.Import | ast.ImportFrom) for one in functions for inner in ast.walk(one)
        ),
        "private functions of at most three lines, used once": len(dust),
        "most parameters": max(map(parameters, functions)),
        "longest function": max(len(lines_of(one)) for one in functions),
        "names of classes and modules that exist twice": sum(n > 1 for n in (classes | modules).values()),
    }


def code_lines(text: str, tree: ast.AST) -> int:
    """Return how many lines are neither blank, nor a comment, nor a docstring."""
    prose: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef | ast.Module) and ast.get_docstring(node, clean=False):
            prose.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and at not in prose for at, line in lines)


def lines_of(function: Function) -> range:
    """Return the lines of the body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return range(body[0].lineno, (body[-1].end_lineno or 0) + 1) if body else range(0)


def parameters(function: Function) -> int:
    """Return how many parameters a function has, without `self`."""
    given = function.args
    named = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"]))


def of_one_push() -> dict[str, int]:
    """Return what one event passes until its commit is pushed: a real run, on a repository of one file."""
    functions: set[Any] = set()
    records: set[type] = set()
    frames = 0

    def watch(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal frames
        if event != "call" or frames:  # what comes after the push is another story
            return
        code = frame.f_code
        if code.co_name.startswith("<") or not code.co_flags & inspect.CO_OPTIMIZED:
            return  # a module or the body of a class, which is imported; a part of a function
        if code.co_filename.startswith(f"{TASK}/"):
            functions.add(code)
            if code.co_qualname == "Git.run" and "push" in frame.f_locals["argv"]:
                frames = depth(frame)
        elif code.co_name == "__init__" and code.co_filename == "<string>":  # dataclasses make it
            kind, caller = type(frame.f_locals["self"]), frame.f_back
            imported = caller is not None and not caller.f_code.co_flags & inspect.CO_OPTIMIZED
            if is_dataclass(kind) and kind.__module__.startswith("task.") and not imported:
                records.add(kind)

    import_module("task.cli.update")  # what modules call while they are imported is not on the way
    with tempfile.TemporaryDirectory() as folder:
        words, said = prepared(Path(folder)), io.TextIOWrapper(io.BytesIO(), write_through=True)
        threading.setprofile(watch)
        sys.setprofile(watch)
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = image_update(words)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    if code or not frames:
        sys.exit(f"the run that is measured ended with {code}: {said.buffer.getvalue().decode()}")
    return {
        "functions on the way of one push": len(functions),
        "files on the way of one push": len({code.co_filename for code in functions}),
        "frames at the push": frames,
        "kinds of records on the way": len(records),
    }


def depth(frame: FrameType | None) -> int:
    """Return how many frames of `task/` are on the stack."""
    found = 0
    while frame is not None:
        found += frame.f_code.co_filename.startswith(f"{TASK}/")
        frame = frame.f_back
    return found


def prepared(folder: Path) -> list[str]:
    """Make a repository and an Application in this folder, and return the command line of the event."""
    os.environ.clear()
    os.environ.update(PATH=os.defpath, HOME=str(folder), GIT_CONFIG_NOSYSTEM="1", LANG="C.UTF-8")
    repo = folder / "gitops.git"
    stream = (
        "commit refs/heads/main\ncommitter a <a@b> 0 +0000\ndata 0\nM 644 inline apps/web/values.yaml\ndata 5\na: 1\n"
    )
    for words, said in ((["init", "--bare", "--quiet", str(repo)], ""), (["fast-import", "--quiet"], stream)):
        subprocess.run(["git", *words], input=said.encode(), cwd=folder if not said else repo, check=True)
    applications = folder / "applications.yaml"
    applications.write_text(APPLICATION % f"file://{repo}")
    return ["run", "--image", "ghcr.io/acme/web:1.5.0", "--applications", str(applications), "--allow-protocol=file"]


if __name__ == "__main__":
    main()
