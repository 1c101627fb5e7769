"""Sends one event to the command, and checks that the measured work was actually done."""

from collections.abc import Sequence
from pathlib import Path

from bench.material import IMAGE, App, tag_at_tip
from bench.process import IMAGE_UPDATE


def arguments(tag: str, applications: Path, image: str = IMAGE) -> list[str]:
    """Return the arguments that pass one event to `image-update`."""
    source = ["--applications", str(applications), "--allow-protocol", "file"]
    return ["run", "--image", f"{image}:{tag}", *source, "--output", "json"]


def command(tag: str, applications: Path, image: str = IMAGE) -> list[str]:
    """Return the full command line that sends one event."""
    return [IMAGE_UPDATE, *arguments(tag, applications, image)]


def shown(applications: str = "apps.json") -> str:
    """Return the command line in the form displayed in figures."""
    return (
        f"image-update run --image {IMAGE}:TAG --applications {applications} --allow-protocol file"
    )


def landed(repo: Path, wanted: Sequence[App], tag: str) -> None:
    """Abort the measurement unless Git contains the tag for all these Applications."""
    behind = [app.name for app in wanted if tag_at_tip(repo, app) != tag]
    assert not behind, f"{len(behind)} of {len(wanted)} Applications are not at {tag}: {behind[:3]}"
