"""In published files, changing one value changes one line, and nothing else is reported."""

import os
from pathlib import Path

import pytest
import yaml
from support import DATA, ROOT

from task.editors.yaml.edit import Splice, apply, splice
from task.editors.yaml.tree import Node, Tree, parse, walk

MOST = 10  # number of values changed per file; the whole file is checked after each change


def values(tree: Tree) -> list[Node]:
    """Return some non-key scalars, spread over the file."""
    found = [
        node
        for root in tree.roots
        for node in walk(root)
        if node.kind == "scalar" and tree.key_of(node) is not node
    ]
    return found[:: max(1, len(found) // MOST)]


def check(text: str) -> None:
    tree = parse(text)
    for node in values(tree):
        new = splice(tree, [(node, "1.10")])
        lines, now = text.splitlines(), new.text.splitlines()
        first = next(
            number
            for number, pair in enumerate(zip(lines, now, strict=False))
            if pair[0] != pair[1]
        )
        tail = len(now) - first - 1
        assert tail == 0 or lines[-tail:] == now[-tail:] or node.style in {"|", ">"}
        assert splice(new, []).text == new.text
        assert (
            sum(str(each).count("1.10") for each in yaml.load_all(new.text, yaml.CBaseLoader)) > 0
        )


def published() -> list[Path]:
    """Return real Applications, files that we ship, and the schema definitions in SCHEMAS_DIR."""
    shipped = [
        path
        for folder in ("tekton", "argo-workflows", "templates")
        for path in (ROOT / folder).rglob("*.y*ml")
    ]
    definitions = (
        Path(os.environ["SCHEMAS_DIR"]).rglob("*.yaml") if os.environ.get("SCHEMAS_DIR") else ()
    )
    small = [
        path for path in definitions if path.stat().st_size < 300_000
    ]  # a larger file would take half a minute
    return [
        *sorted((DATA / "examples").glob("*.yaml")),
        ROOT / "action.yml",
        *sorted(shipped),
        *sorted(small),
    ]


@pytest.mark.parametrize("path", published(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_changing_one_value_in_a_published_file_changes_one_line(path: Path) -> None:
    check(path.read_text())


def test_our_parser_reads_the_same_scalars_as_pyyaml() -> None:
    for path in sorted((DATA / "examples").glob("*.yaml")):
        text = path.read_text()
        nodes = [
            node
            for document in yaml.compose_all(text, yaml.SafeLoader)
            for node in scalars(document)
        ]
        ours = [node for root in parse(text).roots for node in walk(root) if node.kind == "scalar"]
        assert [(node.value, node.start) for node in ours] == nodes


def scalars(node: yaml.Node) -> list[tuple[str, int]]:
    if isinstance(node, yaml.ScalarNode):
        return [(node.value, node.start_mark.index)]
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for inner in pair for each in scalars(inner)]
    return [each for inner in node.value for each in scalars(inner)]


def test_splices_at_one_position_are_applied_in_order() -> None:
    assert apply("ab", [Splice(1, 1, "x"), Splice(1, 1, "y"), Splice(0, 1, "")]) == "xyb"
