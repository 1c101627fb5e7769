"""No value in an ApplicationSet, and no function argument, can crash a run."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from support import DATA

from task.applicationsets.arguments import go_value
from task.applicationsets.fill import FUNCTIONS, LANGUAGE, Budget
from task.applicationsets.generators import NamedCluster
from task.applicationsets.rendered_set import render
from task.templates.go_template.template import parse
from task.templates.go_template.values import AnyMap, FailedTemplate

ODD: list[Any] = [None, 3, 1e999, 10**400, "x", True, [], {}, [None], {"a": None}, "{{"]
ARGUMENTS = [
    None,
    True,
    -1,
    5,
    1.5,
    "",
    "a.b-C_d\n",
    "\udc80",
    go_value({"a": 1, "b": {"c": []}}),
    ["a", None],
    "1e999",
]
NAMES = (
    "clusters-gotemplate",
    "git-files-fasttemplate",
    "matrix-list-git",
    "merge-gotemplate",
    "template-patch",
)


class Files:
    """The same few files in every repository."""

    def paths(self, _repo: str, _revision: str) -> Sequence[str]:
        return ["apps/web/x.yaml", "clusters/eu/web.yaml"]

    def texts(self, _repo: str, _revision: str, paths: Sequence[str]) -> Mapping[str, str]:
        return dict.fromkeys(paths, "name: web\n")


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each nested value, starting with the outermost value."""
    yield path
    for key, one in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    ):
        yield from nodes(one, (*path, key))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_unexpected_values_in_an_application_set_do_not_crash(name: str) -> None:
    case = json.loads((DATA / "applicationsets" / f"{name}.json").read_text())
    clusters = [NamedCluster("eu", "https://eu", "", {"env": "production"})]
    for path in nodes(case["applicationset"]["spec"]):
        for odd in ODD:
            changed = copy.deepcopy(case["applicationset"])
            parent, last = changed, "spec"
            for key in path:
                parent, last = parent[last], key
            parent[last] = odd
            render(changed, Files(), Budget(), clusters=clusters)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_unexpected_function_arguments_fail_only_the_template(name: str) -> None:
    function = FUNCTIONS[name]
    for count in range(function.least, min(3, 3 if function.most is None else function.most) + 1):
        template = parse(f"{{{{{name} {' '.join(f'$.a{at}' for at in range(count))}}}}}", LANGUAGE)
        for given in itertools.product(ARGUMENTS if count < 3 else ARGUMENTS[::3], repeat=count):
            data = AnyMap({f"a{at}": copy.deepcopy(value) for at, value in enumerate(given)})
            try:
                assert isinstance(template.counted(data, 10_000)[0], str)
            except FailedTemplate as error:
                assert error.message  # noqa: PT017 - either is right
