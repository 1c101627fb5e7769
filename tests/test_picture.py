"""The pictures in the documentation show what the command does."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from support import ROOT, bare_repo, image_update, show
from support.runs import KUSTOMIZATION, WEB, application, manifest, target

from scripts.picture import BARS, FIGURES, PICTURE, bars, demo, svg, text_of
from scripts.screenshots import FOLDER, pages


def words(picture: str) -> list[str]:
    """Return the lines of text in a picture, with the spans of each line joined."""
    root = ET.fromstring(picture)  # noqa: S314 - ours
    return ["".join(line.itertext()) for line in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_matches_the_output_of_the_demo() -> None:
    kept = words(PICTURE.read_text(encoding="utf-8"))
    assert [text_of(line) for line in kept] == [text_of(line) for line in words(svg(demo()))], (
        "make picture"
    )


def test_the_picture_contains_every_character_of_the_output() -> None:
    shown = demo()
    letters = re.sub(r"\s", "", text_of(shown))
    assert re.sub(r"\s", "", text_of("\n".join(words(svg(shown))[1:]))) == letters


def test_the_picture_is_self_contained() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert not re.search(r"<script|href|url\(|@import", text)
    assert "prefers-color-scheme:dark" in text


def test_the_timeline_matches_real_runs(tmp_path: Path) -> None:
    """The runs are two builds (the older one finishes late), a rollback, a build that waits, and
    its release.
    """
    repo = bare_repo(tmp_path, {target("web"): KUSTOMIZATION.replace("1.0.0", "1.4.2")})
    place = [
        "--applications",
        str(manifest(tmp_path, application("web", repo))),
        "--allow-protocol",
        "file",
    ]
    steps = [
        ["run", "--image", f"{WEB}:1.5.1"],
        ["run", "--image", f"{WEB}:1.5.0"],
        ["rollback", "web", "--to", "previous", "--reason", "it fails"],
        ["run", "--image", f"{WEB}:1.5.2"],
        ["release", "web"],
    ]
    versions, ends = ["1.4.2"], []
    for step in steps:
        (decision,) = image_update(*step, *place, "--output", "json").json["decisions"]
        ends.append(decision["rule"])
        versions += re.findall(r"newTag: (.+)", show(repo, "main", target("web")))
    root = ET.parse(ROOT / "docs" / "diagrams" / "timeline.svg").getroot()  # noqa: S314 - ours
    drawn = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [one for one in drawn if re.fullmatch(r"[\d.]+", one)] == versions
    assert ends == ["admitted", "not-newer", "admitted", "held", "admitted"]


def test_the_bar_chart_matches_the_figures() -> None:
    drawn = BARS.read_text(encoding="utf-8")
    assert drawn == bars(FIGURES.read_text(encoding="utf-8")), "make picture"
    assert drawn.count("<rect class=") == 1 + 2 * (
        8 + 1
    )  # rectangles: the background, eight pairs of bars, and the legend


def test_every_screenshot_is_used_and_small(tmp_path: Path) -> None:
    made = {f"{name}-{scheme}.png" for name in pages(tmp_path) for scheme in ("light", "dark")}
    assert {path.name for path in FOLDER.glob("*.png")} == made, "python -m scripts.screenshots"
    shown = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert [name for name in made if f"screenshots/{name}" not in shown] == []
    assert [name for name in made if (FOLDER / name).stat().st_size > 150_000] == []
