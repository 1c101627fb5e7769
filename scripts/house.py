"""Print code metrics, and check them against the limits in `scripts/house.toml`.

    python -m scripts.house

The metrics indicate how hard the code is to read: how dense its lines are, how many branches its
functions have, and how long its lines are. They are guardrails, not goals. A metric may rise, but
only in a separate commit that states how readers benefit. Do not split code just to meet a limit.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import os
import subprocess
import sys
import tempfile
import threading
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from task.cli.app import main as image_update
from task.command_kinds import COMMANDS

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
COLUMNS = 100
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.IfExp,
    ast.ExceptHandler,
    ast.match_case,
    ast.Assert,
)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)


def main() -> None:
    """Print each figure with its limit. Exit with 1 if any figure exceeds its limit."""
    limits = tomllib.loads(TABLE.read_text())
    high = []
    for name, figure in (of_the_source() | of_one_push()).items():
        places = f": {figure.places}" if figure.places else ""
        sys.stdout.write(f"{figure.value:>9,}  {name} (at most {limits[name]:,}){places}\n")
        if figure.value > limits[name]:
            high.append(name)
    if high:
        sys.exit(
            f"{', '.join(high)}: above scripts/house.toml. Simplify, or raise the limit in a separate"
            " commit."
        )


def of_the_source() -> dict[str, Figure]:
    """Return the figures for the source code in `task/`."""
    sources = [Source(path) for path in sorted(TASK.rglob("*.py"))]
    functions = [function for source in sources for function in source.functions()]
    classes = Counter(name for source in sources for name in source.classes())
    modules = Counter(source.path.stem for source in sources if source.path.stem != "__init__")
    tokens = {source.name: source.tokens for source in sources}
    lines = sum(source.code_lines for source in sources)
    wide = {source.name: source.wide_lines for source in sources}
    return {
        "tokens": Figure(sum(tokens.values()), worst(tokens)),
        "tokens per code line": Figure(
            round(sum(tokens.values()) / lines, 2),
            worst(
                {
                    source.name: round(source.tokens / (source.code_lines or 1), 1)
                    for source in sources
                }
            ),
        ),
        "lines over 100 columns": Figure(sum(wide.values()), worst(wide)),
        "functions with more than 15 branches": many(functions, branches, 15),
        "most branches": most(functions, branches),
        "names bound in more than a tenth of the functions": common_names(functions),
        "assignments of a tuple to a tuple": found(sources, is_packed),
        "loops with a condition in the header": found(sources, is_guarded),
        # modules in wiring/ import a client at the point where they create it
        "late imports outside wiring/": found(
            [function for function in functions if not function.name.startswith("task/wiring/")],
            is_import,
        ),
        "most parameters": most(functions, parameters),
        "longest function": most(functions, lambda function: len(lines_of(function.node))),
        "names of classes and modules that exist twice": twice(classes + modules),
        "names of functions that exist twice": twice(Counter(top_level(sources))),
    }


@dataclass(frozen=True)
class Figure:
    """A figure, and the three places that contribute the most to it."""

    value: float
    places: str = ""


class Source:
    """A file in `task/` and its metrics."""

    def __init__(self, path: Path) -> None:
        text = path.read_text()
        self.path = path
        self.name = str(path.relative_to(ROOT))
        self.node: ast.AST = ast.parse(text)
        docstrings = prose_lines(self.node)
        code = [
            token
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in LAYOUT and token.start[0] not in docstrings
        ]
        self.tokens = len(code)
        self.code_lines = len({token.start[0] for token in code})
        self.wide_lines = sum(len(line) > COLUMNS for line in text.splitlines())

    def functions(self) -> list[Member]:
        """Return the functions and methods in the file, including nested ones."""
        return [
            Member(f"{self.name}:{node.name}", node)
            for node in ast.walk(self.node)
            if isinstance(node, Function)
        ]

    def classes(self) -> list[str]:
        """Return the names of the classes in the file."""
        return [node.name for node in nodes(self.node, ast.ClassDef)]


@dataclass(frozen=True)
class Member:
    """A function and where it is located."""

    name: str
    node: Function


def nodes(tree: ast.AST, kind: type[Node]) -> Iterator[Node]:
    """Yield the nodes of the given kind."""
    for node in ast.walk(tree):
        if isinstance(node, kind):
            yield node


def prose_lines(tree: ast.AST) -> set[int]:
    """Return the numbers of all lines that belong to docstrings."""
    lines: set[int] = set()
    for node in nodes(tree, ast.Expr):
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def worst(values: Mapping[str, float]) -> str:
    """Return the three places with the highest values above zero, as a string."""
    first = sorted(values.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{name} {value:,}" for name, value in first if value)


def many(functions: Iterable[Member], measure: Callable[[Member], int], limit: int) -> Figure:
    """Return how many functions exceed a limit."""
    high = {function.name: size for function in functions if (size := measure(function)) > limit}
    return Figure(len(high), worst(high))


def most(functions: Iterable[Member], measure: Callable[[Member], int]) -> Figure:
    """Return the highest value that a measure has for any function."""
    sizes = {function.name: measure(function) for function in functions}
    return Figure(max(sizes.values()), worst(sizes))


def found(parts: Iterable[Source | Member], test: Callable[[ast.AST], bool]) -> Figure:
    """Return how many nodes pass a test."""
    counts = {part.name: sum(map(test, ast.walk(part.node))) for part in parts}
    return Figure(sum(counts.values()), worst(counts))


def twice(names: Mapping[str, int]) -> Figure:
    """Return how many names exist more than once."""
    double = {name: count for name, count in names.items() if count > 1}
    return Figure(len(double), worst(double))


def branches(function: Member) -> int:
    """Return the cyclomatic complexity (McCabe) of a function."""
    ways = 1
    for node in ast.walk(function.node):
        if isinstance(node, ast.BoolOp):
            ways += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            ways += 1 + len(node.ifs)
        else:
            ways += isinstance(node, BRANCHES)
    return ways


def is_packed(node: ast.AST) -> bool:
    """Return whether a node assigns several values to several names in a single statement."""
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def is_guarded(node: ast.AST) -> bool:
    """Return whether a node is a loop with a condition in its header."""
    return isinstance(node, ast.For) and isinstance(node.iter, ast.IfExp)


def is_import(node: ast.AST) -> bool:
    """Return whether a node is an import."""
    return isinstance(node, ast.Import | ast.ImportFrom)


def common_names(functions: Sequence[Member]) -> Figure:
    """Return how many names are bound in more than a tenth of the functions. Such common names
    carry no meaning.
    """
    bound: Counter[str] = Counter()
    for function in functions:
        bound.update(
            {node.id for node in nodes(function.node, ast.Name) if isinstance(node.ctx, ast.Store)}
        )
    common = {name: count for name, count in bound.items() if count > len(functions) / 10}
    return Figure(len(common), worst(common))


# Modules in these folders are entries of a table (`FORMS`, `EDITORS`,
# the commands). The table determines the names of their functions, so
# it is intentional that each module uses the same names.
PLUGINS = {
    "task/ci/events/": {"known", "read"},
    "task/editors/": {"read", "write", "places", "read_below", "strays"},
    "task/cli/": set(COMMANDS),
}


def top_level(sources: Iterable[Source]) -> Iterator[str]:
    """Yield the names of all functions, other than methods and functions that are called through a
    table.
    """
    for source in sources:
        of_tables = [names for folder, names in PLUGINS.items() if source.name.startswith(folder)]
        for node in ast.iter_child_nodes(source.node):
            if isinstance(node, Function) and not any(node.name in names for names in of_tables):
                yield node.name


def lines_of(function: Function) -> range:
    """Return the lines of a function's body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return range(body[0].lineno, (body[-1].end_lineno or 0) + 1) if body else range(0)


def parameters(function: Member) -> int:
    """Return how many parameters a function has, not counting `self`."""
    given = function.node.args
    named = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(named) - (named[:1] in (["self"], ["cls"]))


def of_one_push() -> dict[str, Figure]:
    """Return the figures for the code that handles an event until the push. They come from a real
    run on a one-file repository.
    """
    functions: set[Any] = set()
    records: set[type] = set()
    frames = 0

    def watch(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal frames
        if event != "call" or frames:  # code that runs after the push does not count
            return
        code = frame.f_code
        if code.co_name.startswith("<") or not code.co_flags & inspect.CO_OPTIMIZED:
            return  # the body of a module or class, or a part of a function, such as a lambda
        if code.co_filename.startswith(f"{TASK}/"):
            functions.add(code)
            if code.co_qualname == "Git.run" and "push" in frame.f_locals["argv"]:
                frames = depth(frame)
        # an `__init__` that was generated for a dataclass
        elif code.co_name == "__init__" and code.co_filename == "<string>":
            kind, caller = type(frame.f_locals["self"]), frame.f_back
            imported = caller is not None and not caller.f_code.co_flags & inspect.CO_OPTIMIZED
            if is_dataclass(kind) and kind.__module__.startswith("task.") and not imported:
                records.add(kind)

    # imported first, so that calls during the imports do not count
    import_module("task.cli.update")
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
        sys.exit(f"the measured run exited with {code}: {said.buffer.getvalue().decode()}")
    return {
        "functions on the way of one push": Figure(len(functions)),
        "files on the way of one push": Figure(len({code.co_filename for code in functions})),
        "frames at the push": Figure(frames),
        "kinds of records on the way": Figure(len(records)),
    }


def depth(frame: FrameType | None) -> int:
    """Return how many of the stack frames are in `task/`."""
    found = 0
    while frame is not None:
        found += frame.f_code.co_filename.startswith(f"{TASK}/")
        frame = frame.f_back
    return found


def prepared(folder: Path) -> list[str]:
    """Create a repository and an Application in this folder, and return the arguments for the
    event.
    """
    os.environ.clear()
    os.environ.update(PATH=os.defpath, HOME=str(folder), GIT_CONFIG_NOSYSTEM="1", LANG="C.UTF-8")
    repo = folder / "gitops.git"
    stream = "commit refs/heads/main\ncommitter a <a@b> 0 +0000\ndata 0\nM 644 inline apps/web/values.yaml\ndata 5\na: 1\n"
    for words, said in (
        (["init", "--bare", "--quiet", str(repo)], ""),
        (["fast-import", "--quiet"], stream),
    ):
        subprocess.run(
            ["git", *words], input=said.encode(), cwd=folder if not said else repo, check=True
        )
    applications = folder / "applications.yaml"
    applications.write_text(APPLICATION % f"file://{repo}")
    return [
        "run",
        "--image",
        "ghcr.io/acme/web:1.5.0",
        "--applications",
        str(applications),
        "--allow-protocol=file",
    ]


if __name__ == "__main__":
    main()
