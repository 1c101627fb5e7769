"""YAML documents: what is read from them, where each one begins, and limits for hostile
documents.
"""

import json
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from task.yaml_documents import documents

APP = "apiVersion: argoproj.io/v1alpha1\nkind: Application\n"


def data(text: str) -> list[object]:
    return [document.data for document in documents(text)]


def test_yaml_scalars_keep_their_text() -> None:
    text = APP + "a: 1.10\nb: 'true'\nc: true\nd: ~\ne: 0123\nf: !!str 5\ng: |\n  x\n"
    assert data(text) == [
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "a": "1.10",
            "b": "true",
            "c": True,
            "d": None,
            "e": "0123",
            "f": "5",
            "g": "x\n",
        }
    ]


def test_unrelated_documents_are_not_parsed() -> None:
    assert data("a: [\n---\n" + APP + "---\nb: {\n") == [
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}
    ]


def test_a_broken_document_does_not_hide_its_neighbors() -> None:
    found = list(documents(APP + "---\n" + APP + "x: [\n---\n" + APP))
    assert [bool(one.problem) for one in found] == [False, True, False]


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("", 1),
        ("---\n", 2),
        ("# c\n---\n", 3),
        ("a: b\n---\n", 3),
        ("a: b\n---\nc: d\n---\n", 5),
        ("\n\n", 3),
    ],
)
def test_each_document_has_its_line_number(before: str, line: int) -> None:
    assert [one.line for one in documents(before + APP)] == [line]


def test_yaml_directives_and_byte_order_marks_are_accepted() -> None:
    assert data("\ufeff%YAML 1.1\n---\n" + APP)[0] == {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
    }


@pytest.mark.parametrize(
    "between", ["---\n\ufeff", "--- \r\n\ufeff", "---\n# c\n\n\ufeff", "---\n\ufeff# c\n"]
)
def test_concatenated_files_with_byte_order_marks_are_read(between: str) -> None:
    """kubectl (1.32) reads both documents, too."""
    assert (
        data(APP + between + APP)
        == [{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}] * 2
    )


def test_a_block_scalar_may_contain_a_document_separator() -> None:
    text = APP + "x: |\n  ---\n  argoproj.io\ny: 1\n"
    assert data(text)[0]["y"] == "1"  # type: ignore[index]


def test_json_documents_are_read() -> None:
    assert data(json.dumps({"apiVersion": "argoproj.io/v1", "n": 1})) == [
        {"apiVersion": "argoproj.io/v1", "n": 1}
    ]


def test_flow_mappings_may_contain_urls() -> None:
    assert data(
        "apiVersion: argoproj.io/v1alpha1\nsource: {repoURL: https://git.example:8443/x, path: a}\n"
    ) == [
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "source": {"repoURL": "https://git.example:8443/x", "path": "a"},
        }
    ]


def test_a_yaml_alias_bomb_is_read_in_linear_time() -> None:
    lines = ["a0: &a0 [x, x]"] + [
        f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 60)
    ]
    start = time.process_time()
    assert len(data(APP + "\n".join(lines) + "\n")) == 1
    assert time.process_time() - start < 2


# The output of `kubectl label --local -o json` (1.32) for these mappings in a ConfigMap. kustomize
# differs if a key is in both mappings and precedes `<<`: it keeps that key's value.
@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{<<: *one}", {"a": "1", "b": "1"}),
        ("{<<: *one, b: '9'}", {"a": "1", "b": "9"}),
        ("{b: '9', <<: *one}", {"a": "1", "b": "1"}),
        ("{<<: [*one, *two]}", {"a": "1", "b": "1", "c": "2"}),
        ("{<<: {k: v, l: {<<: *one}}, k: z}", {"k": "z", "l": {"a": "1", "b": "1"}}),
        ("{<<: *one, <<: *two}", {"a": "2", "b": "1", "c": "2"}),
        ("{'<<': q, <<: *one}", {"<<": "q", "a": "1", "b": "1"}),
        ("{!!merge <<: [{c: x}, *two]}", {"a": "2", "c": "x"}),
        ("{a: <<, b: [<<]}", {"a": "<<", "b": ["<<"]}),
    ],
)
def test_merge_keys_are_resolved_as_in_kubectl(text: str, read: object) -> None:
    anchors = "one: &one {a: '1', b: '1'}\ntwo: &two {a: '2', c: '2'}\n"
    assert data(f"{APP}{anchors}read: {text}\n")[0]["read"] == read  # type: ignore[index]


def test_a_tab_in_the_indentation_is_mentioned() -> None:
    (found,) = documents(f"{APP}metadata:\n\tname: web\n")
    assert "(a tab?)" in found.problem


def test_a_tab_is_not_blamed_in_a_text_without_tabs() -> None:
    (found,) = documents(f"{APP}metadata: @web\n")
    assert "cannot start any token" in found.problem
    assert "tab" not in found.problem


@pytest.mark.parametrize("text", ["{<<: x}", "{<<: [a]}", "{<<: [*one, [*one]]}"])
def test_a_merge_key_without_a_mapping_is_a_problem(text: str) -> None:
    (found,) = documents(f"{APP}one: &one {{}}\nread: {text}\n")
    assert "expects a mapping" in found.problem


def test_excessive_merge_keys_are_rejected_in_bounded_time() -> None:
    """Each of many merge keys adds many keys, or the keys that another merge key has added. As in
    Go, a mapping cannot merge itself.
    """
    wide = (
        "big: &big {"
        + ", ".join(f"k{n}: v" for n in range(3000))
        + "}\nx:\n"
        + "- <<: *big\n" * 30_000
    )
    deep = "a0: &a0 {k: v}\n" + "".join(
        f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: v}}\n" for n in range(1, 30_000)
    )
    own = "a: &a {<<: *a, k: v}\n"
    start = time.process_time()
    problems = [one.problem for text in (wide, deep, own) for one in documents(APP + text)]
    assert [bool(problem) for problem in problems] == [True, True, True]
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "text",
    ["[" * 5000, "{a: " * 5000, "- " * 5000 + "x", "".join(f"{'  ' * n}a:\n" for n in range(400))],
)
def test_excessive_nesting_is_a_problem(text: str) -> None:
    assert [
        bool(one.problem)
        for one in documents(APP + "x:\n" + "\n".join("  " + line for line in text.split("\n")))
    ] == [True]


@given(
    st.recursive(
        st.text(alphabet="abc:-#é😀 ", max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
        ),
    )
)
def test_parsing_dumped_strings_returns_the_same_strings(value: object) -> None:
    text = yaml.safe_dump(
        {"apiVersion": "argoproj.io/v1", "value": value}, allow_unicode=True, default_style='"'
    )
    assert data(text) == [{"apiVersion": "argoproj.io/v1", "value": value}]


@given(st.text(max_size=60))
def test_any_text_results_in_documents_or_problems(text: str) -> None:
    for one in documents("argoproj.io\n" + text):
        assert isinstance(one.problem, str)
        assert one.line >= 1
