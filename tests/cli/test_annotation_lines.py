"""The line number of an annotation in its file."""

from pathlib import Path

import pytest

from task.cli.lint import line_of

TEXT = """\
# two Applications
---
kind: Application
metadata:
  annotations:
    p/image-list: web=a
    "p/web.allow-tags": any
---
kind: Application
metadata:
  annotations:
    p/image-list: web=b
    p/image-list-more: x
"""
LIST = """\
items:
- metadata: {annotations: {
    "p/image-list": "web=a"}}
- metadata: {annotations: {
    "p/image-list": "web=b"}}
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "apps.yaml").write_text(TEXT)
    return str(tmp_path / "apps.yaml")


@pytest.mark.parametrize(
    ("start", "key", "value", "line"),
    [
        (3, "p/image-list", "web=a", 6),
        (3, "p/web.allow-tags", "any", 7),
        (9, "p/image-list", "web=b", 12),
        (9, "p/image-list", "said elsewhere", 12),
        (9, "p/web.allow-tags", "any", 9),  # in the other YAML document
        (3, "p/image-list-more", "x", 3),
        (9, "p/image", "x", 9),  # only a prefix of a key
        (0, "p/nowhere", "x", 0),
    ],
)
def test_the_line_of_a_key_is_found_within_its_document(
    path: str, start: int, key: str, value: str, line: int
) -> None:
    assert line_of(path, start, key, value) == line


def test_applications_in_a_list_are_distinguished_by_their_values(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text(LIST)
    assert [line_of(str(file), 1, "p/image-list", value) for value in ("web=a", "web=b")] == [3, 5]


def test_an_unreadable_file_does_not_change_the_given_line_number(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    assert [
        line_of(str(path), 4, "p/a", "b") for path in (tmp_path / "x", tmp_path / "none", "cluster")
    ] == [4, 4, 4]
