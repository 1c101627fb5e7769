"""The cost of a single edit in a long values file, compared with ruamel.yaml's load and dump."""

import io
import time
from collections.abc import Callable, Iterator
from itertools import count

from ruamel.yaml import YAML

from bench.figure import Figure, Side, alternate
from task.editors import EDITORS
from task.image import parse_image
from task.model import File, Keys, Source, Target

LINES = 5_000
ROUNDS = 5
BLOCK = """\
service{number}:
  # How many of these there are.
  replicas: {number}
  image:
    repository: "ghcr.io/acme/service-{number}"
    tag: v1.0.{number}  # set by the pipeline
  resources:
    limits: {{cpu: 100m, memory: 128Mi}}
  env:
  - name: LEVEL
    value: 'info'
"""
MIDDLE = LINES // BLOCK.count("\n") // 2
IMAGE = parse_image(f"ghcr.io/acme/service-{MIDDLE}:v2.0.0")
TARGET = Target(
    "helmvalues", "values.yaml", Keys(tag=f"service{MIDDLE}.image.tag"), IMAGE, Source("")
)


def figures() -> Iterator[Figure]:
    """Yield the cost of a single edit, compared with only a load, and with load and dump."""
    # Each text is different, so that caches do not help.
    texts = (_text(number) for number in count())
    shown = f"one edit in a values file of {LINES:,} lines: find, read, write"
    both = alternate(ROUNDS, _timed(_edit, texts), _timed(_load, texts))
    yield Figure(
        "one edit against a load", Side(shown, both[0]), Side("ruamel's YAML().load", both[1]), 1.5
    )
    both = alternate(ROUNDS, _timed(_edit, texts), _timed(_load_and_dump, texts))
    theirs = Side("ruamel's YAML().load and dump", both[1])
    yield Figure("one edit against load and dump", Side(shown, both[0]), theirs, 1 / 2)


def _text(number: int) -> str:
    blocks = "".join(BLOCK.format(number=block) for block in range(LINES // BLOCK.count("\n") + 1))
    return f"# Version {number}\n{blocks}"


def _edit(text: str) -> None:
    files, editor = {"values.yaml": File(text)}, EDITORS["helmvalues"]
    assert editor.read(files, TARGET).tag == f"v1.0.{MIDDLE}"
    written, edits = editor.write(files, TARGET, IMAGE)
    assert len(edits) == 1
    assert written["values.yaml"].text == text.replace(f"tag: v1.0.{MIDDLE} ", "tag: v2.0.0 ")


def _load(text: str) -> None:
    assert YAML().load(text)


def _load_and_dump(text: str) -> None:
    yaml, out = YAML(), io.StringIO()
    yaml.dump(yaml.load(text), out)
    assert out.getvalue()


def _timed(work: Callable[[str], None], texts: Iterator[str]) -> Callable[[], float]:
    def measure() -> float:
        text = next(texts)
        began = time.perf_counter()
        work(text)
        return time.perf_counter() - began

    return measure
