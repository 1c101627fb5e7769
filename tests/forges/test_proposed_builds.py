"""What a request's text remembers of builds: read back whole, cut where there is no room, and nothing of others."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.forges.marks import build_key, packed, unpacked
from task.model import Build, Written

BUILD = Build(12, "ci", "c" * 40, "https://git.example.com/acme/web", "2026-11-21T06:00:00Z")


def rows(number: int) -> dict[str, Written]:
    return {
        build_key(f"argocd/app-{one}", "web", "ghcr.io/acme/web"): Written("1.1.0", "", BUILD) for one in range(number)
    }


@pytest.mark.parametrize("number", [1, 2, 500])
def test_read_back(number: int) -> None:
    assert unpacked(packed(rows(number), 16_384)) == rows(number)


def test_nothing_is_nothing() -> None:
    assert packed({}, 1000) == ""
    assert unpacked("") == {}


@pytest.mark.parametrize("room", [0, 10, 300, 1000])
def test_what_does_not_fit_is_left_out(room: int) -> None:
    text = packed(rows(500), room)
    assert len(text) <= room
    assert unpacked(text).items() <= rows(500).items()
    assert len(unpacked(text)) >= (room - 300) / 12  # each Application takes eleven letters


@pytest.mark.parametrize(
    "data",
    [
        "[]",
        "[[]]",
        "[1]",
        '{"a": 1}',
        '[[["1.0"], "0123abcd"]]',
        '[[["1.0", "", 1, "", "", "", "yesterday"], "0123abcd"]]',
        '[[["1.0", "", "1", "", "", "", ""], "0123abcd"]]',
        '[[["1.0", "", 1, "", "", "", ""], 7]]',
        '[[[[], "", 1, "", "", "", ""], "0123abcd"]]',
        "[" * 30_000,
        "\ud800",
    ],
)
def test_anybody_may_write_there(data: str) -> None:
    assert unpacked(b64encode(data.encode("utf-8", "surrogatepass")).decode()) == {}


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    unpacked(text)
