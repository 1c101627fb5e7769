"""Pull request texts, truncated to a forge's limits, and values from a forge's responses."""

from dataclasses import replace
from typing import Any

import pytest

from task.errors import UnreachableError
from task.forges.client import numbered
from task.forges.host import Host, plausible
from task.forges.proposal import digest, has_same_text, rewritten_by_another_run, with_fitting_text
from task.model import Proposal, Proposed
from task.plain_data import dig, elements

BEGIN, END = "[//]: # (image-update-begin: ours)", "[//]: # (image-update-end: -)"
MARKS = f"[//]: # (image-update: {'a' * 64})\n[//]: # (image-update-commit: {'b' * 40})"
TITLE = f"[//]: # (image-update-title: {digest('Update web')})"
BODY = f"{BEGIN}\n\ntext\n\n{MARKS}\n{END}\n"
WANTED = Proposal(
    "https://git.example.com/acme/deploy", "main", "image-update/web-0123abcd", "Update web", BODY
)


def test_the_body_contains_a_mark_derived_from_the_title() -> None:
    assert with_fitting_text(WANTED, 1000) == replace(
        WANTED, body=f"{BEGIN}\n\ntext\n\n{MARKS}\n{TITLE}\n{END}\n"
    )


@pytest.mark.parametrize(
    ("title", "before", "after"),
    [
        ("Update web", "", "\n"),
        ("Checked by Ann", "", "\n"),
        ("Update web", "- [ ] look\n\n", "\n\nAsk Bob.\n"),
        (" Update  web ", "- [ ] look\r\n\r\n", "\n"),
    ],
)
def test_titles_and_texts_written_by_people_are_kept(title: str, before: str, after: str) -> None:
    now = Proposed(
        "", "1", "open", title, before + with_fitting_text(WANTED, 1000).body.strip() + after
    )
    newer = replace(WANTED, title="Update web to 2", body=BODY.replace("text", "newer"))
    kept = with_fitting_text(newer, 1000, now)
    ours = title.split() == ["Update", "web"]
    assert kept.title == (newer.title if ours else title)
    mark = TITLE if not ours else f"[//]: # (image-update-title: {digest(newer.title)})"
    assert kept.body == f"{before}{BEGIN}\n\nnewer\n\n{MARKS}\n{mark}\n{END}{after}"
    assert with_fitting_text(newer, 1000, replace(now, title=kept.title, body=kept.body)) == kept


def test_a_text_without_our_marks_is_assumed_to_be_written_by_a_person_and_kept() -> None:
    now = Proposed("", "1", "open", "By hand", "Who needs this?\n")
    kept = with_fitting_text(WANTED, 1000, now)
    assert (kept.title, kept.body) == ("By hand", f"Who needs this?\n\n{BODY}")


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
def test_an_invalid_page_url_is_replaced_with_the_repository_page(url: str, kept: bool) -> None:
    assert plausible(Proposed(url, "1", "open"), PAGE).url == (url if kept else PAGE)


@pytest.mark.parametrize(
    ("commit", "kept"), [("a" * 40, True), ("0123456789ab", True), ("f" * 64, True), ("", True), ("a" * 20_000, False),
                         ("main", False), ("a" * 40 + "\n", False)]
)  # fmt: skip
def test_an_invalid_merge_commit_id_is_discarded(commit: str, kept: bool) -> None:
    found = Proposed("", "1", "merged", merge_commit=commit)
    assert plausible(found, PAGE).merge_commit == (commit if kept else "")


def test_truncating_a_body_keeps_its_marks() -> None:
    cut = with_fitting_text(replace(WANTED, body=BODY.replace("text", "x" * 500)), 400)
    assert len(cut.body) == 400
    assert cut.body.endswith(f"x\n…\n\n{MARKS}\n{TITLE}\n{END}\n")


@pytest.mark.parametrize(
    ("title", "cut"),
    [
        ("t" * 255, "t" * 255),
        ("t" * 300, "t" * 254 + "…"),
        ("版" * 127, "版" * 127),
        ("版" * 130, "版" * 127 + "…"),  # a wide character counts twice
        (
            "t\u200b" * 200,
            "t\u200b" * 127 + "…",
        ),  # where characters are counted, zero-width characters count, too
    ],
)
def test_a_long_title_is_truncated(title: str, cut: str) -> None:
    assert with_fitting_text(replace(WANTED, title=title), 1000).title == cut


@pytest.mark.parametrize(
    ("title", "body", "alike"),
    [
        ("Update web", BODY, True),
        (" Update web ", f"{BODY.rstrip()} \r\n\r\n", True),
        ("Update api", BODY, False),
        ("Update web", "other\n", False),
    ],
)
def test_titles_and_bodies_are_compared_without_surrounding_whitespace(
    title: str, body: str, alike: bool
) -> None:
    assert has_same_text(Proposed("", "1", "open", title, body), WANTED) is alike


@pytest.mark.parametrize(
    ("found", "now", "ours", "answer"),
    [
        ("b", "b", "c", False),
        ("b", "c", "c", False),
        ("b", "d", "c", True),
        ("", "d", "c", True),
        ("", "", "c", False),
    ],
)
def test_a_body_changed_by_another_build_counts_as_overtaken(
    found: str, now: str, ours: str, answer: bool
) -> None:
    bodies = [
        f"[//]: # (image-update-commit: {one * 40})" if one else "" for one in (found, now, ours)
    ]
    requests = [Proposed("", "1", "open", body=body) for body in bodies[:2]]
    assert (
        rewritten_by_another_run(requests[0], requests[1], replace(WANTED, body=bodies[2]))
        is answer
    )


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
def test_dig_returns_nested_values_as_text(
    value: Any, names: tuple[str | int, ...], text: str
) -> None:
    assert dig(value, *names) == text


@pytest.mark.parametrize(
    ("value", "found"), [({"a": [1]}, [1]), ({"a": "x"}, []), ({}, []), ([], []), (None, [])]
)
def test_elements_returns_an_empty_list_for_a_missing_list(value: Any, found: list[int]) -> None:
    assert elements(value, "a") == found


def test_a_request_without_a_number_is_not_accepted() -> None:
    with pytest.raises(UnreachableError, match="not a pull request"):
        numbered("", "git.example.com")


@pytest.mark.parametrize(
    ("head", "ours"),
    [
        ("image-update/web-0123abcd", True),
        ("bots/iu/web-0123abcd", True),
        ("bots/other", False),
        ("staging", False),
        ("main", False),
    ],
)
def test_only_branches_that_we_named_are_ours_to_delete(head: str, ours: bool) -> None:
    proposal = Proposal("", "main", head, "", "", prefix="bots/iu")
    assert Host.ours_to_delete(proposal) is ours
