"""The picture in the documentation is that of the command as it is."""

import re
from xml.etree import ElementTree as ET

from scripts.picture import PICTURE, demo, svg, text_of


def words(picture: str) -> list[str]:
    """The lines of text in a picture; several spans of a line follow each other."""
    root = ET.fromstring(picture)  # noqa: S314 - ours
    return ["".join(line.itertext()) for line in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_shows_what_the_demo_shows() -> None:
    kept = words(PICTURE.read_text(encoding="utf-8"))
    assert [text_of(line) for line in kept] == [text_of(line) for line in words(svg(demo()))], "make picture"


def test_the_picture_shows_every_letter() -> None:
    shown = demo()
    letters = re.sub(r"\s", "", text_of(shown))
    assert re.sub(r"\s", "", text_of("\n".join(words(svg(shown))[1:]))) == letters


def test_the_picture_needs_nothing_else() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert not re.search(r"<script|href|url\(|@import", text)
    assert "prefers-color-scheme:dark" in text
