"""The cost of one update in a small repository, compared with merely importing the packages that
the update uses.

This comparison reveals unnecessary work.
"""

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import event, material
from bench.figure import Figure, Side, alternate
from bench.process import room, run

ROUNDS = 9
# The dependencies in pyproject.toml, including the parts that runs import. This run does not need
# requests or ruamel.yaml.
PACKAGES = "re2, requests, rich.console, ruamel.yaml, semver, sh, typer, yaml"


def figures() -> Iterator[Figure]:
    """Yield the CPU time of a run, including its git commands, compared with that of a Python
    process that only imports packages.
    """
    with TemporaryDirectory() as name:
        where = room(Path(name))
        apps = material.apps(1)
        repo = material.repository(where.folder / "repo.git", apps)
        applications = material.write_manifests(where.folder / "apps.json", apps, repo)
        tags = (f"1.0.{number}" for number in count(1))

        def ours() -> float:
            tag = next(tags)
            spent = run(where, event.command(tag, applications)).processor
            event.landed(repo, apps, tag)
            return spent

        def theirs() -> float:
            return run(where, [sys.executable, "-c", f"import {PACKAGES}"]).processor

        both = alternate(ROUNDS, ours, theirs)
    note = "CPU time; ours includes git commands"
    imports = Side("python -c 'import requests, …'  (every package that a run uses)", both[1])
    yield Figure(
        "one update in a small repository", Side(event.shown(), both[0]), imports, 2, note=note
    )
