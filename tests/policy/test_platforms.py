"""Platforms, as Image Updater matches them. Rows of `cases/annotations.json` are its own outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

from task.annotations.keys import Setting, platforms
from task.policy.judge import accepts, is_platform

CASES = json.loads((Path(__file__).parents[1] / "data" / "cases" / "annotations.json").read_text(encoding="utf-8"))
RUNTIME = "linux/amd64"
# Where ours differs on purpose.
OURS = {
    "platform-empty": "an empty value counts as absent",
}


@pytest.mark.parametrize(
    "case",
    [c for c in CASES["cases"] if c["input"]["op"] == "platform" and c["id"] not in OURS],
    ids=lambda case: case["id"],
)
def test_platforms_as_image_updater_matches_them(case: dict[str, Any]) -> None:
    given = case["input"]
    said = given["platforms"]
    wanted = platforms(Setting("web.platforms", said)) if said else ()
    assert accepts(wanted, given["os"], given["arch"], given["variant"], RUNTIME) is case["expect"]


@pytest.mark.parametrize(
    ("wanted", "image", "expected"),
    [
        ("linux/arm64/v8", "linux/arm64/v8", True),
        ("linux/arm64/v8", "linux/arm64/invalid", False),
        ("linux/arm/v6", "linux/arm/", False),  # a wanted variant, and an image that says none
        ("linux/arm/v6", "linux/arm/v7", False),
        ("linux/arm/v6", "linux/amd64/", False),
        ("linux/arm/v6", "linux/amd64/v6", False),
        ("linux/arm", "linux/arm/v7", True),  # no wanted variant: any
        ("linux/arm/", "linux/arm/v7", True),
        ("linux/arm/v6, linux/amd64", "linux/amd64/v6", True),
        ("linux/arm/v6, linux/amd64", "linux/arm/", False),
        (" linux/amd64 , windows/amd64", "windows/amd64/", True),
        ("linux/amd64", "windows/amd64/", False),
        ("invalid", "linux/amd64/", False),
        ("invalid", "invalid//", False),
        ("linux/", "linux//", False),
        ("Linux/AMD64", "linux/amd64/", False),
        ("a/b/c/d", "a/b/c/d", True),
        ("a/b/c/d", "a/b/c", False),
    ],
)
def test_a_platform_takes_its_own_images(wanted: str, image: str, expected: bool) -> None:
    os, arch, variant = image.split("/", 2)
    assert accepts(platforms(Setting("web.platforms", wanted)), os, arch, variant) is expected


def test_without_the_annotation_the_runtime_s_platform_or_any_is_taken() -> None:
    assert accepts((), "windows", "amd64")
    assert not accepts((), "windows", "amd64", runtime=RUNTIME)
    assert accepts((), "linux", "amd64", "v3", runtime=RUNTIME)


@pytest.mark.parametrize(
    ("text", "expected"), [("linux/amd64", True), ("linux", False), ("/amd64", False), ("", False)]
)
def test_what_is_a_platform(text: str, expected: bool) -> None:
    assert is_platform(text) is expected
