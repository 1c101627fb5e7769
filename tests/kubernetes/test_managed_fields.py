"""Only `managedFields` are removed from responses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.kubernetes.client import without_managed_fields

FIELDS = [{"manager": "a", "fieldsV1": {'k:{"name":"x"}': {".": {}, "f:x": {}}}}]


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"managedFields": FIELDS, "uid": "u"}, {"managedFields": [], "uid": "u"}),
        ({"items": [{"managedFields": FIELDS}, {"a": 1}]}, {"items": [{"managedFields": []}, {"a": 1}]}),
        ({"a": '"managedFields":[', "b": ["]"]}, {"a": '"managedFields":[', "b": ["]"]}),
        ({"managedFields": [{"a": "]"}], "b": 1}, {"managedFields": [], "b": 1}),
        ({"managedFields": [{"a": "\\"}, "]"]}, {"managedFields": [{"a": "\\"}, "]"]}),
        ({"managedFields": [["x"], "]"]}, {"managedFields": [["x"], "]"]}),
        ({"managedFields": None}, {"managedFields": None}),
    ],
)  # fmt: skip
def test_managed_fields_are_emptied(before: Any, after: Any) -> None:
    assert json.loads(without_managed_fields(compact(before))) == after


JSON = st.recursive(
    st.none()
    | st.integers()
    | st.text(alphabet='a"\\[]{}:,é')
    | st.just('"managedFields":[')
    | st.just("managedFields"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["managedFields", "a", 'b"', "c\\", "[", "]"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


def emptied(one: Any, other: Any) -> bool:
    """Return whether two values are equal, except for empty `managedFields` lists in the second."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            (key == "managedFields" and isinstance(one[key], list) and other[key] == [])
            or emptied(one[key], other[key])
            for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(emptied, one, other))
    return bool(one == other)


@given(JSON)
def test_removing_managed_fields_changes_nothing_else(value: Any) -> None:
    assert emptied(value, json.loads(without_managed_fields(compact(value))))


@given(st.binary(max_size=60))
def test_invalid_json_causes_no_crash(body: bytes) -> None:
    without_managed_fields(body + b'"managedFields":[' + body)
