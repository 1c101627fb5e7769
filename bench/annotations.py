"""The time to read Applications and make decisions, compared with merely parsing the same bytes."""

import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from bench.figure import Figure, Side, alternate
from bench.material import PREFIX
from task.after.follow_up import follow_up
from task.ci.images import event_images
from task.cli.job import job_of
from task.output.log import Log
from task.pipeline.match import match_images
from task.pipeline.run import run
from task.policy.tag_filter import allowed
from task.settings import EventOptions, Settings, SourceOptions
from task.wiring.world import RealWorld

APPLICATIONS, IMAGES = 10_000, 5
# allow-tags rejects this image, so all decisions are made without reading Git
EVENT = "ghcr.io/acme/shop/part-3:nightly"
LETTERS = 10_000


def figures() -> Iterator[Figure]:
    """Yield the figures for 10,000 Applications with 5 images each (from JSON and from YAML), and
    for a hostile pattern.
    """
    with TemporaryDirectory() as name:
        yield _json(Path(name) / "apps.json")
        yield _yaml(Path(name) / "apps")
    yield _pattern()


def _json(file: Path) -> Figure:
    file.write_text(
        json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": [_application(n) for n in _numbers()]}
        )
    )
    both = alternate(
        3, _timed(lambda: _decide(file)), _timed(lambda: json.loads(file.read_bytes()))
    )
    ours = Side(
        f"{APPLICATIONS:,} Applications x {IMAGES} images, read from JSON and decided", both[0]
    )
    note = f"{file.stat().st_size / APPLICATIONS / 1000:.1f} kB of JSON per Application"
    return Figure(
        "10,000 Applications from JSON",
        ours,
        Side("json.loads of the same file", both[1]),
        3,
        note=note,
    )


def _yaml(folder: Path) -> Figure:
    folder.mkdir()
    for number in _numbers():
        (folder / f"{number}.yaml").write_text(
            yaml.dump(_application(number), Dumper=yaml.CSafeDumper)
        )
    both = alternate(1, _timed(lambda: _decide(folder)), _timed(lambda: _load(folder)))
    ours = Side(
        f"{APPLICATIONS:,} Applications x {IMAGES} images, read from a folder of YAML and decided",
        both[0],
    )
    theirs = Side("yaml.load(…, CSafeLoader) of the same files", both[1])
    return Figure("10,000 Applications from YAML", ours, theirs, 1.5)


def _pattern() -> Figure:
    tag = "a" * LETTERS + "!"
    assert not allowed("(a+)+$", tag)
    assert not allowed("a+$", tag)
    both = alternate(
        15, _timed(lambda: allowed("(a+)+$", tag)), _timed(lambda: allowed("a+$", tag))
    )
    ours = Side(f"allow-tags regexp:(a+)+$ on {LETTERS:,} characters", both[0])
    return Figure("a hostile pattern", ours, Side("allow-tags regexp:a+$ on the same", both[1]), 20)


def _decide(source: Path) -> None:
    settings = Settings(
        "run", EventOptions(image=(EVENT,)), sources=SourceOptions(applications=(str(source),))
    )
    with ExitStack() as shielded:
        job = job_of(settings, event_images((EVENT,)), {})
        world = RealWorld(settings, {}, Log(), job.scope)
        report = run(job, world, shielded, match_images, follow_up)
    rules = [decision.rule for decision in report.decisions]
    assert rules == ["allow-tags"] * APPLICATIONS, f"{len(rules)} decisions: {set(rules)}"


def _load(folder: Path) -> None:
    for file in folder.iterdir():
        yaml.load(file.read_bytes(), Loader=yaml.CSafeLoader)


def _timed(work: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        gc.collect()
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return measure


def _numbers() -> range:
    return range(APPLICATIONS)


def _application(number: int) -> dict[str, Any]:
    """Return an Application as found in a cluster, with annotations for 5 images and a status."""
    images = [f"ghcr.io/acme/shop/part-{part}" for part in range(IMAGES)]
    entries = ", ".join(f"part{part}={image}:~1.{part}" for part, image in enumerate(images))
    keys = {f"part{part}.helm.image-tag": f"parts.part{part}.tag" for part in range(IMAGES)}
    keys |= {
        f"part{part}.allow-tags": r"regexp:^v?[0-9]+\.[0-9]+\.[0-9]+$" for part in range(IMAGES)
    }
    texts = {"image-list": entries, "write-back-method": "git", **keys}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": f"shop-{number}",
            "namespace": "argocd",
            "annotations": {f"{PREFIX}/{key}": text for key, text in texts.items()},
        },
        "spec": {
            "project": "default",
            "destination": {
                "server": "https://kubernetes.default.svc",
                "namespace": f"shop-{number}",
            },
            "source": {
                "repoURL": "https://git.example.com/acme/deploy.git",
                "path": f"apps/shop-{number}",
                "targetRevision": "main",
                "helm": {"valueFiles": ["values.yaml"]},
            },
        },
        "status": _status(number, images),
    }


def _status(number: int, images: list[str]) -> dict[str, Any]:
    resources = [
        {
            "kind": kind,
            "name": f"shop-{number}",
            "namespace": f"shop-{number}",
            "status": "Synced",
            "version": "v1",
        }
        for kind in ("ConfigMap", "Deployment", "Ingress", "Secret", "Service", "ServiceAccount")
    ]
    return {
        "health": {"status": "Healthy"},
        "resources": resources,
        "sourceType": "Helm",
        "summary": {"images": [f"{image}:1.{part}.0" for part, image in enumerate(images)]},
        "sync": {"status": "Synced", "revision": "5e2bf5365c806caefc746c879fa7098eb0f6a775"},
    }
