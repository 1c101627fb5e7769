"""The texts of pull requests, cut to what a forge takes, and values of a forge's answers."""

from dataclasses import replace
from typing import Any

import pytest

from task.errors import UnreachableError
from task.forges.content import dig, fitted, honest, listed, numbered, ours_to_delete, overtaken, same
from task.model import Proposal, Proposed

MARKS = f"[//]: # (image-update: {'a' * 64})\n[//]: # (image-update-commit: {'b' * 40})"
WANTED = Proposal("https://git.example.com/acme/deploy", "main", "image-update/web-0123abcd", "Update web", "text\n")


def test_what_fits_stays_as_it_is() -> None:
    assert fitted(WANTED, 100) == WANTED


PAGE = "https://git.example.com/acme/deploy"


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (f"{PAGE}/pulls/1", True),
        ("", False),
        ("javascript:alert(1)", False),
        (f"{PAGE}/{'x' * 20_000}", False),
        (f"{PAGE}/\n::add-mask::x", False),
    ],
)
def test_a_page_that_can_be_none_is_the_repositorys(url: str, kept: bool) -> None:
    assert honest(Proposed(url, "1", "open"), PAGE).url == (url if kept else PAGE)


@pytest.mark.parametrize(
    ("commit", "kept"), [("a" * 40, True), ("0123456789ab", True), ("f" * 64, True), ("", True), ("a" * 20_000, False),
                         ("main", False), ("a" * 40 + "\n", False)]
)  # fmt: skip
def test_a_merge_commit_is_an_id(commit: str, kept: bool) -> None:
    found = Proposed("", "1", "merged", merge_commit=commit)
    assert honest(found, PAGE).merge_commit == (commit if kept else "")


def test_marks_are_kept_whole() -> None:
    cut = fitted(replace(WANTED, body=f"{'x' * 500}\n\n{MARKS}\n"), 300)
    assert len(cut.body) == 300
    assert cut.body.endswith(f"x\n…\n\n{MARKS}\n")


def test_a_body_without_marks_is_cut_at_its_end() -> None:
    cut = fitted(replace(WANTED, body=f"{'x' * 500}\n\nlast"), 300)
    assert len(cut.body) == 300
    assert cut.body.endswith("x\n…\n")


@pytest.mark.parametrize(
    ("title", "cut"),
    [
        ("t" * 255, "t" * 255),
        ("t" * 300, "t" * 254 + "…"),
        ("版" * 127, "版" * 127),
        ("版" * 130, "版" * 127 + "…"),  # a wide letter counts twice
        ("t\u200b" * 200, "t\u200b" * 127 + "…"),  # where letters are counted, those without width count, too
    ],
)
def test_a_long_title_is_cut(title: str, cut: str) -> None:
    assert fitted(replace(WANTED, title=title), 100).title == cut


@pytest.mark.parametrize(
    ("title", "body", "alike"),
    [
        ("Update web", "text\n", True),
        (" Update web ", "text \r\n\r\n", True),
        ("Update api", "text\n", False),
        ("Update web", "other\n", False),
    ],
)
def test_same(title: str, body: str, alike: bool) -> None:
    assert same(Proposed("", "1", "open", title, body), WANTED) is alike


@pytest.mark.parametrize(
    ("found", "now", "ours", "answer"),
    [("b", "b", "c", False), ("b", "c", "c", False), ("b", "d", "c", True), ("", "d", "c", True), ("", "", "c", False)],
)
def test_overtaken(found: str, now: str, ours: str, answer: bool) -> None:
    bodies = [f"[//]: # (image-update-commit: {one * 40})" if one else "" for one in (found, now, ours)]
    requests = [Proposed("", "1", "open", body=body) for body in bodies[:2]]
    assert overtaken(requests[0], requests[1], replace(WANTED, body=bodies[2])) is answer


@pytest.mark.parametrize(
    ("value", "names", "text"),
    [
        ({"a": {"b": ["x", "y"]}}, ("a", "b", 1), "y"),
        ({"a": 7}, ("a",), "7"),
        ({"a": None}, ("a",), ""),
        ({"a": None}, ("a", "b"), ""),
        ({"a": []}, ("a", 0), ""),
        ({"a": {}}, ("a",), ""),
        ("text", ("a",), ""),
        (None, ("a",), ""),
    ],
)
def test_dig(value: Any, names: tuple[str | int, ...], text: str) -> None:
    assert dig(value, *names) == text


@pytest.mark.parametrize(("value", "found"), [({"a": [1]}, [1]), ({"a": "x"}, []), ({}, []), ([], []), (None, [])])
def test_listed(value: Any, found: list[int]) -> None:
    assert listed(value, "a") == found


def test_a_request_without_a_number_is_none() -> None:
    with pytest.raises(UnreachableError, match="not a pull request"):
        numbered("", "git.example.com")


@pytest.mark.parametrize(("head", "ours"), [("image-update/web-0123abcd", True), ("staging", False), ("main", False)])
def test_only_branches_that_we_named_are_ours_to_delete(head: str, ours: bool) -> None:
    assert ours_to_delete(head) is ours
