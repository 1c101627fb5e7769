"""Whole runs triggered by registry events: from an image push to the commit, and a burst of
events.
"""

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fakes.oci_images import image, index, push
from support import bare_repo, git, image_update, scale, show
from support.git_servers import git_server
from support.real_registry import notifying_registry
from support.runs import application, manifest, target

DIGEST = f"sha256:{'a' * 64}"
ASK = {"IMAGE_UPDATE_REGISTRY_CHECK": "auto"}
FILE = ("--allow-protocol", "file", "--output", "json")


class Listener(ThreadingHTTPServer):
    """A webhook receiver that keeps the bodies of all POST requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/events"


class _Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        self.server.bodies.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_message: object) -> None:
        """Log nothing."""


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.servers
def test_a_push_to_a_real_registry_becomes_a_commit(tmp_path: Path, listener: Listener) -> None:
    """As with a trigger, each body from the registry starts a run: those for the layers, for the
    manifests, and finally for the index.
    """
    folder = tmp_path / "registry"
    folder.mkdir()
    with notifying_registry(folder, listener.url) as registry:
        name = f"{registry.name}/acme/web"
        before = f"resources: []\nimages:\n- name: {name}\n  newTag: 1.0.0\n"
        repo = bare_repo(tmp_path, {target("web"): before})
        apps = manifest(tmp_path, application("web", repo, image_list=f"web={name}"))
        content = index([image("linux/amd64"), image("linux/arm64/v8")])
        push(registry.url, "acme/web", "1.1.0", content)
        reports = []
        while "newTag: 1.1.0" not in show(repo, "main", target("web")):
            body = listener.bodies.get(timeout=20)
            more = ("--images-format", "distribution", "--applications", apps, *FILE)
            done = image_update("run", "--images-from", "-", *more, stdin=body, env=ASK)
            assert done.code == 0, done.stderr
            reports.append(done.json)
        passed = sum(report["images_passed_over"] for report in reports)
        (decision,) = reports[-1]["decisions"]
        assert (decision["verdict"], decision["event"]) == (
            "update",
            "registry event, distribution",
        )
        assert decision["candidate"] == "1.1.0"
        assert reports[-1]["images"][0]["digest"] == content.digest
        assert passed >= 4, reports  # for layers, configs, and platform manifests

        forged = json.dumps({"events": [_notification(registry.name, "9.9.9")]})
        more = ("--images-format", "registry", "--applications", apps, *FILE)
        done = image_update("run", "--images-from", "-", *more, stdin=forged, env=ASK)
        (decision,) = done.json["decisions"]
        assert (done.code, decision["rule"]) == (0, "not-in-registry")
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    message = git(repo, "log", "-1", "--format=%B", "main")
    assert f"Event: {name} registry event, distribution" in message


def _notification(host: str, tag: str) -> dict[str, Any]:
    media = "application/vnd.oci.image.index.v1+json"
    where = {"mediaType": media, "repository": "acme/web", "tag": tag, "digest": DIGEST}
    return {"action": "push", "target": where, "request": {"host": host}}


APPS = scale(400, at_night=2000)
EVENTS = APPS // 2


@pytest.mark.slow
def test_a_burst_of_events_makes_one_commit_and_few_requests(tmp_path: Path) -> None:
    """At night, 1,000 events for 2,000 Applications on one base may cause at most 10 requests to
    the Git server.
    """
    lines = (
        f"resources: []\nimages:\n- name: ghcr.io/acme/img-{number % EVENTS}\n  newTag: 1.0.0\n"
        for number in range(APPS)
    )
    repo = bare_repo(tmp_path, {target(f"a{n}"): text for n, text in enumerate(lines)})
    git(repo, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server:
        url = f"{server.url}{repo.name}"
        apps = [
            application(f"a{n}", url, image_list=f"web=ghcr.io/acme/img-{n % EVENTS}")
            for n in range(APPS)
        ]
        events = "\n".join(
            json.dumps({"image": f"ghcr.io/acme/img-{n}:1.1.0", "sequence": n})
            for n in range(EVENTS)
        )
        given = ("--images-format", "lines", "--applications", manifest(tmp_path, *apps))
        more = ("--output", "json", "--allow-protocol", "http")
        done = image_update("run", "--images-from", "-", *given, *more, stdin=events, timeout=110)
        assert done.code == 0, done.stderr
        asked = len(server.seen)
    assert asked <= 10, server.seen
    (commit,) = done.json["commits"]
    assert (len(commit["files"]), done.json["counts"]["updated"]) == (APPS, APPS)
