"""A real Gitea's package webhook: a push to the package registry becomes a commit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from fakes.oci_images import Content, attestation, image, index, push
from real.gitea_server import PASSWORD, GiteaServer, gitea_server
from support import Result, bare_repo, image_update, show
from support.runs import application, manifest
from support.serving import serving
from test_trigger_runs import Listener

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("gitea")]
TARGET = "apps/a/kustomization.yaml"


@pytest.fixture(scope="module")
def gitea(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GiteaServer]:
    with gitea_server(tmp_path_factory.mktemp("gitea")) as found:
        yield found


@pytest.fixture
def listener(gitea: GiteaServer) -> Iterator[Listener]:
    with serving(Listener()) as running:
        config = {"url": running.url, "content_type": "json", "secret": "of-the-tests"}
        hook = {"type": "gitea", "active": True, "events": ["package"], "config": config}
        gitea.ask("person", "POST", "user/hooks", hook)
        yield running


class Scene:
    """An Application that tracks an image in Gitea's registry, which is readable by everyone."""

    def __init__(self, gitea: GiteaServer, folder: Path) -> None:
        self.host = gitea.url.partition("://")[2]
        self.url = gitea.url
        self.image = f"{self.host}/person/team/web"
        before = f"resources: []\nimages:\n- name: {self.image}\n  newTag: 1.0.0\n"
        self.repo = bare_repo(folder, {TARGET: before})
        self.apps = manifest(folder, application("a", self.repo, image_list=f"web={self.image}"))

    def push(self, tag: str, content: Content) -> None:
        login = {"scope": "repository:person/team/web:push,pull", "service": "container_registry"}
        auth = ("person", PASSWORD)
        answer = requests.get(f"{self.url}/v2/token", params=login, auth=auth, timeout=30)
        headers = {"Authorization": f"Bearer {answer.json()['token']}"}
        push(self.url, "person/team/web", tag, content, headers=headers)

    def run(self, body: bytes, form: str = "gitea") -> Result:
        given = ("--images-format", form, "--applications", self.apps, "--allow-protocol", "file")
        env = {"IMAGE_UPDATE_REGISTRY_CHECK": "auto"}
        more = ("--output", "json")
        return image_update("run", "--images-from", "-", *given, *more, stdin=body, env=env)


def test_a_push_to_the_package_registry_becomes_a_commit(
    gitea: GiteaServer, listener: Listener, tmp_path: Path
) -> None:
    """Each request body starts a run, as with a trigger: platform manifests, then the index."""
    scene = Scene(gitea, tmp_path)
    parts = [image("linux/amd64"), image("linux/arm64/v8")]
    scene.push("1.1.0", index(parts, extra=[attestation(parts[0])]))
    reports: list[Any] = []
    while "newTag: 1.1.0" not in show(scene.repo, "main", TARGET):
        done = scene.run(listener.bodies.get(timeout=30))
        assert done.code == 0, done.stderr
        reports.append(done.json)
    (decision,) = reports[-1]["decisions"]
    assert (decision["verdict"], decision["event"]) == ("update", "registry event, gitea")
    assert [report["images_passed_over"] for report in reports] == [1, 1, 1, 0]


def test_moved_tags_cause_updates_and_other_webhook_events_are_skipped(
    gitea: GiteaServer, listener: Listener, tmp_path: Path
) -> None:
    scene = Scene(gitea, tmp_path)
    scene.push("2.0.0", image(seed="first"))
    first = listener.bodies.get(timeout=30)
    scene.push("2.0.0", image(seed="second"))  # the tag moves
    moved = listener.bodies.get(timeout=30)
    assert [verdicts(scene.run(body)) for body in (moved, first)] == [["update"], ["unchanged"]]

    scene.push(f"sha256-{'a' * 64}.sig", image(seed="a signature"))
    signed = scene.run(listener.bodies.get(timeout=30))
    gitea.ask("person", "DELETE", "packages/person/container/team%2Fweb/2.0.0")
    deleted = scene.run(listener.bodies.get(timeout=30))
    for done in (signed, deleted):
        assert (done.code, done.json["images_passed_over"]) == (0, 1), done.stderr
    late = scene.run(first.replace(b"2.0.0", b"3.0.0"))  # this tag was never pushed
    assert late.json["decisions"][0]["rule"] == "not-in-registry"


def verdicts(done: Result) -> list[str]:
    assert done.code == 0, done.stderr
    return [decision["verdict"] for decision in done.json["decisions"]]
