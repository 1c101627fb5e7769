"""The CPU time of 1,000 registry events in one run, compared with a single event for the same 2,000
Applications.
"""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import material
from bench.figure import Figure, Side, alternate
from bench.process import IMAGE_UPDATE, Room, room, run

ROUNDS = 3
APPS, EVENTS = 2000, 1000
OWN, SHARED = "ghcr.io/acme/part", "ghcr.io/acme/base"
LIMIT = 3
FILE = "apps/{number}/kustomization.yaml"
TEXT = "resources: []\nimages:\n- name: {own}\n  newTag: 1.0.0\n- name: {shared}\n  newTag: 1.0.0\n"
BEFORE = "image-update run --applications apps.json --allow-protocol file"


class Burst:
    """Applications with two images each: one shared with one other Application, and one shared by
    all Applications.
    """

    def __init__(self, where: Room) -> None:
        self.where = where
        self.repo = material.fill(where.folder / "repo.git", map(_file, range(APPS)))
        apps = [_application(number, self.repo) for number in range(APPS)]
        self.apps = where.folder / "apps.json"
        self.apps.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": apps}))
        self.events = where.folder / "events.jsonl"
        self.tags = (f"1.0.{number}" for number in count(1))

    def all_events(self) -> float:
        """Send an event for each image, and return the CPU time in seconds."""
        tag = next(self.tags)
        lines = ({"image": f"{OWN}-{number}:{tag}", "sequence": 1} for number in range(EVENTS))
        self.events.write_text("\n".join(map(json.dumps, lines)))
        return self._run("--images-from", str(self.events), "--images-format", "lines")

    def one_event(self) -> float:
        """Send one event for the image that all Applications share, and return the CPU time in
        seconds.
        """
        return self._run("--image", f"{SHARED}:{next(self.tags)}")

    def _run(self, *images: str) -> float:
        tip = material.git(self.repo, "rev-parse", "main").strip()
        given = ("--applications", str(self.apps), "--allow-protocol", "file", "--output", "json")
        spent = run(self.where, [IMAGE_UPDATE, "run", *images, *given]).processor
        changed = material.git(self.repo, "diff", "--name-only", tip, "main").split()
        kustomizations = [path for path in changed if path.endswith("kustomization.yaml")]
        assert len(kustomizations) == APPS, len(kustomizations)
        assert material.git(self.repo, "rev-list", "--count", f"{tip}..main").strip() == "1"
        return spent


def _file(number: int) -> tuple[str, str]:
    own = f"{OWN}-{number % EVENTS}"
    return FILE.format(number=number), TEXT.format(own=own, shared=SHARED)


def _application(number: int, repo: Path) -> dict[str, Any]:
    app = material.manifest(material.App(f"web-{number}", SHARED), repo)
    images = f"own={OWN}-{number % EVENTS}:1.x,shared={SHARED}:1.x"
    app["metadata"]["annotations"] = {
        f"{material.PREFIX}/image-list": images,
        f"{material.PREFIX}/write-back-target": "kustomization",
    }
    path = FILE.format(number=number).rpartition("/")[0]
    app["spec"]["source"] = {"repoURL": f"file://{repo}", "path": path, "targetRevision": "main"}
    return app


def figures() -> Iterator[Figure]:
    """Yield the CPU time of a burst, compared with a single event that changes the same number of
    files.
    """
    with TemporaryDirectory() as name:
        burst = Burst(room(Path(name)))
        ours, alone = alternate(ROUNDS, burst.all_events, burst.one_event)
    yield Figure(
        "1,000 events in one run, CPU time",
        Side(f"{BEFORE} --images-from events.jsonl  (1,000 events, 2,000 Applications)", ours),
        Side(f"{BEFORE} --image {SHARED}:TAG  (the same Applications, as many files)", alone),
        LIMIT,
    )
