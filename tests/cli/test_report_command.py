"""`report`: an HTML page from the JSON report of a real run, rendered by a real browser."""

import json
import re
import struct
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support import image_update, needs
from support.runs import application, arguments, manifest, repository

from task.cli.report import shown
from task.errors import Malformed
from task.output.report_json import report_of
from task.output.report_page import page
from task.output.report_text import table

EVIL = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u202e\x1b[2J"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a plan's report with every kind of decision that files alone can cause."""
    folder = tmp_path_factory.mktemp("run")
    repo = repository(folder, "shop", "worker", "legacy", "same")
    constraint = "web=ghcr.io/acme/web:~1.0.0"
    apps = manifest(
        folder,
        application("shop", repo),
        application("worker", repo, image_list="web=ghcr.io/acme/web:^1"),
        application("legacy", repo, image_list=constraint),
        application("gone", repo),
    )
    path = folder / "report.json"
    image_update("plan", *arguments(apps, "--report", path)[1:])
    return path


def changed(path: Path, **more: Any) -> dict[str, Any]:
    return {**json.loads(path.read_text()), **more}


def test_the_page_shows_the_duration_of_the_run(planned: Path) -> None:
    report = json.loads(planned.read_text())
    assert report["timings"]["seconds"] >= report["timings"]["land"] > 0
    assert f"{report['timings']['seconds']:.2f} s" in page(report)
    assert "deciding and pushing" in page(report)
    assert " s: " not in page({**report, "timings": None})


class Page(HTMLParser):
    """An HTML page, parsed as a browser would parse it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.mark.measured
def test_the_page_shows_decisions_and_diffs(planned: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert image_update("report", planned, "--html", out) == (0, "", "")
    words = Page(out.read_text()).words
    for told in ("argocd/shop", "constraint: 1.1.0 does not satisfy ~1.0.0", "-  newTag: 1.0.0", "+  newTag: 1.1.0",
                 "fix: check spec.source.path", "would commit", "apps/worker/kustomization.yaml"):  # fmt: skip
        assert told in words


@pytest.mark.parametrize("order", ["FILE --html", "--html FILE", "FILE --html -", "FILE --html=-"])
def test_without_a_file_the_page_goes_to_stdout(planned: Path, order: str) -> None:
    done = image_update("report", *(planned if word == "FILE" else word for word in order.split()))
    assert done.code == 0
    assert done.stdout.startswith("<!DOCTYPE html>")


def test_the_report_may_be_read_from_stdin_or_a_folder(planned: Path) -> None:
    whole = image_update("report", planned, "--html").stdout
    assert image_update("report", "-", "--html", stdin=planned.read_text()).stdout == whole
    assert image_update("report", planned.parent, "--html").stdout == whole


def test_without_the_html_option_the_report_is_printed_as_text(planned: Path) -> None:
    shown = image_update("report", planned).stdout
    assert "1.0.0 -> 1.1.0" in shown
    assert "+  newTag: 1.1.0" in shown
    assert "\x1b" not in shown


def test_errors_without_a_row_are_printed_again(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    failed = image_update("run", "--report", path)
    again = image_update("report", path)
    assert again.stderr == failed.stderr
    assert (
        "error: no image is set: --image is missing or empty\n"
        "  fix: set the newly built image" in again.stderr
    )
    assert again.code == 0


def test_the_page_is_self_contained(planned: Path) -> None:
    found = Page(page(changed(planned)))
    assert not found.tags.keys() & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not {name for name, _ in found.attributes} & {
        "src",
        "srcset",
        "onload",
        "style",
        "action",
    }
    assert "url(" not in page(changed(planned))
    assert "@import" not in page(changed(planned))


def test_names_in_the_report_are_not_interpreted_as_markup(planned: Path) -> None:
    plain = changed(planned)

    def evil(value: Any, schema: str = "") -> Any:
        if isinstance(value, dict):
            return {key: evil(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [evil(one, schema) for one in value]
        return EVIL if isinstance(value, str) else value

    shown = page(evil(plain))
    assert Page(shown).tags.keys() == Page(page(plain)).tags.keys()
    assert "<script" not in shown
    assert not set(shown) & set("\u202e\x1b")
    assert not [name for name, _ in Page(shown).attributes if name.startswith("on")]


@pytest.mark.parametrize(
    ("url", "linked"),
    [("https://git.example.com/a/1", True), ("javascript:alert(1)", False), ("data:text/html,x", False),
     ("/tmp/repo.git", False), ("git@git.example.com:a.git", False)],
)  # fmt: skip
def test_only_web_urls_become_links(planned: Path, url: str, linked: bool) -> None:
    found = changed(planned)
    found["commits"][0]["pull_request"] = url
    hrefs = [value for name, value in Page(page(found)).attributes if name == "href"]
    assert (url in hrefs) is linked


def test_an_untracked_image_is_shown_on_the_page(planned: Path) -> None:
    words = Page(
        page(changed(planned, decisions=[], commits=[], errors=[], status="unchanged"))
    ).words
    assert "no Application tracks it" in words


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("[1]", "not an image-update report"),
        ("{}", "not an image-update report"),
        ("[" * 5000, "not JSON"),
        ('{"schema": "image-update/report/v1", "decisions": [1]}', "this report is incomplete"),
        (
            '{"schema": "image-update/lint/v1", "findings": []}',
            "its schema is not image-update/report/v1",
        ),
    ],
)
def test_invalid_reports_are_rejected(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    done = image_update("report", path, "--html")
    assert (done.code, done.stdout) == (2, "")
    assert told in done.stderr
    assert "--report or --output json" in done.stderr


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("commits", {"a": 1}),
        ("images", None),
        ("errors", [{"application": 1}]),
        ("decisions", [{"verdict": "fine"}]),
    ],
)
@pytest.mark.parametrize("view", [page, lambda report: table(report, Console(width=120))])
def test_an_incomplete_report_does_not_count_as_a_defect(
    planned: Path, member: str, value: object, view: Callable[[Mapping[str, Any]], str]
) -> None:
    with pytest.raises(Malformed, match="this report is incomplete"):
        shown(changed(planned, **{member: value}), view)


def test_unknown_fields_from_a_later_version_are_accepted(planned: Path) -> None:
    assert report_of(json.dumps(changed(planned, more=1)))["more"] == 1


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("", "FILE is missing"),
        ("/nonexistent.json", "cannot read"),
        ("FILE --html /nonexistent/x", "cannot write"),
    ],
)
def test_an_unusable_path_is_an_error(planned: Path, args: str, told: str) -> None:
    done = image_update("report", *(planned if word == "FILE" else word for word in args.split()))
    assert done.code == 2
    assert told in done.stderr
    assert done.stderr.startswith("error: ")


SMALLER = 2  # renders the same page width with fewer pixels, because each pixel takes time here
BROWSER = 200  # bottom rows that a browser may reserve for itself if it renders too early


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(500, "dark"), (1280, "light")])
def test_a_browser_renders_the_page_in_light_and_dark_mode(
    planned: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    path, picture = tmp_path / "page.html", tmp_path / "page.png"
    path.write_text(page(changed(planned)))
    height = 900 if width < 800 else 600
    look(path, picture, width, height + BROWSER, scheme)
    width, height = width // SMALLER, height // SMALLER
    size, rows = pixels(picture.read_bytes(), height)
    assert size[0] == width
    colours = Counter(pixel for row in rows for pixel in row)
    ground = colours.most_common(1)[0][0]
    assert (sum(ground) > 600) is (scheme == "light")
    assert colours[ground] < 0.97 * width * height  # the page is not empty
    # The verdicts are colored, and nothing overflows the page: its right edge is empty.
    reds = sum(
        number
        for (red, green, blue), number in colours.items()
        if red > green + 40 and red > blue + 30
    )
    greens = sum(
        number
        for (red, green, blue), number in colours.items()
        if green > red + 20 and green > blue + 10
    )
    assert min(reds, greens) > 12
    assert {row[-1] for row in rows} == {ground}


def look(path: Path, picture: Path, width: int, height: int, scheme: str) -> None:
    """Render the page in a real browser. The bottom `BROWSER` rows may be empty."""
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    subprocess.run(
        [*needs("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *dark,
         "--disable-dev-shm-usage", f"--user-data-dir={path.parent / 'profile'}", f"--window-size={width},{height}",
         f"--force-device-scale-factor={1 / SMALLER}",
         f"--screenshot={picture}", path.as_uri()],
        check=True, capture_output=True, timeout=100,
    )  # fmt: skip


def pixels(data: bytes, upper: int) -> tuple[tuple[int, int], list[list[tuple[int, int, int]]]]:
    """Return the size of an 8-bit PNG with or without transparency, and its upper rows as RGB."""
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    step = {2: 3, 6: 4}[kind]
    packed = b"".join(chunk for name, chunk in chunks(data) if name == b"IDAT")
    raw, before, rows = zlib.decompress(packed), bytes(width * step), []
    for number in range(upper):
        start = number * (width * step + 1)
        before = unfiltered(raw[start], raw[start + 1 : start + 1 + width * step], before, step)
        rows.append(
            [(before[at], before[at + 1], before[at + 2]) for at in range(0, width * step, step)]
        )
    return (width, height), rows


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += size + 12
    return found


def unfiltered(kind: int, line: bytes, above: bytes, step: int) -> bytes:
    """Return the bytes of one pixel row with the PNG filter undone."""
    if not kind:
        return line
    done = bytearray(line)
    for at, value in enumerate(line):
        left, corner = (done[at - step], above[at - step]) if at >= step else (0, 0)
        up = above[at]
        guess = left + up - corner
        nearest = min((left, up, corner), key=lambda one: abs(guess - one))
        done[at] = (value + (0, left, up, (left + up) // 2, nearest)[kind]) % 256
    return bytes(done)


def test_the_page_contains_every_reason_from_the_report(planned: Path) -> None:
    words = Page(page(changed(planned))).words
    found = changed(planned)
    assert all(
        re.sub(r"\s+", " ", one["because"]) in re.sub(r"\s+", " ", words)
        for one in found["decisions"]
    )
