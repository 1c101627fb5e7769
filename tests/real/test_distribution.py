"""Complete runs with the CNCF registry 3: paged tags, which version 2 lacks, and signatures.

The signatures are made by a real cosign 3 in both formats, with a key and no transparency log.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from fakes.oci_images import image, index, push
from real.programs import installed
from support import Result, bare_repo, commit, image_update, show
from support.real_servers import free_port, started
from support.runs import application, manifest
from support.serving import serving
from test_trigger_runs import Listener

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("distribution")]
TARGET = "apps/a/kustomization.yaml"
TAGS, PAGE = 120, 50
CONFIGURATION = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}/store}}}}
tags: {{maxtags: {page}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@contextmanager
def running(folder: Path, more: str = "") -> Iterator[str]:
    """Run the registry with additional configuration, and yield its address."""
    port = free_port()
    file = folder / "config.yml"
    file.write_text(CONFIGURATION.format(folder=folder, port=port, page=PAGE) + more)
    with started([installed("bin/registry"), "serve", str(file)], port, folder / "log"):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("distribution")) as address:
        yield address


class Cosign:
    """A key pair, and signatures made with it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.public = folder, folder / "cosign.pub"
        self._ran("generate-key-pair")
        self._ran(
            "signing-config", "create", "--out", "nobody.json"
        )  # no transparency log or authority

    def sign(self, image: str, *, old: bool) -> None:
        """Store a signature next to an image, as a bundle or in the cosign 2 format."""
        how = (
            ["--use-signing-config=false", "--new-bundle-format=false", "--tlog-upload=false"]
            if old
            else []
        )
        how = how or ["--signing-config", "nobody.json"]
        self._ran("sign", "--key", "cosign.key", *how, "--allow-http-registry", "--yes", image)

    def attest(self, image: str, predicate: Mapping[str, Any], *, old: bool) -> None:
        """Store a provenance statement next to an image."""
        (self.folder / "predicate.json").write_text(json.dumps(predicate))
        how = (
            ["--use-signing-config=false", "--new-bundle-format=false", "--tlog-upload=false"]
            if old
            else []
        )
        how = how or ["--signing-config", "nobody.json"]
        kind = [
            "--type",
            "slsaprovenance02" if old else "slsaprovenance1",
            "--predicate",
            "predicate.json",
        ]
        self._ran(
            "attest", "--key", "cosign.key", *kind, *how, "--allow-http-registry", "--yes", image
        )

    def _ran(self, *argv: str) -> None:
        env = {**os.environ, "COSIGN_PASSWORD": ""}
        argv = (installed("bin/cosign"), *argv)
        done = subprocess.run(
            argv, cwd=self.folder, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr


class Scene:
    """An Application that tracks an image in the registry."""

    def __init__(self, folder: Path, named: str, **annotations: str) -> None:
        self.repo = bare_repo(
            folder, {TARGET: f"resources: []\nimages:\n- name: {named}\n  newTag: 1.0.0\n"}
        )
        self.apps = manifest(
            folder, application("a", self.repo, image_list=f"web={named}", **annotations)
        )

    def call(self, command: str, *more: str | Path) -> Result:
        given = ("--applications", self.apps, "--allow-protocol", "file", "--output", "json", *more)
        return image_update(command, *given, env={"IMAGE_UPDATE_REGISTRY_CHECK": "auto"})

    def text(self) -> str:
        return show(self.repo, "main", TARGET)


def verdict(result: Result) -> str:
    return str(result.json["decisions"][0]["verdict"])


def test_a_scan_finds_the_newest_of_many_pages_of_tags(registry: str, tmp_path: Path) -> None:
    url, content = f"http://{registry}", image()
    push(url, "acme/many", "1.0.0", content)
    (kind, body), session = content.manifests[content.digest], requests.Session()
    for number in range(1, TAGS):
        put = session.put(
            f"{url}/v2/acme/many/manifests/1.0.{number}", data=body, headers={"Content-Type": kind}
        )
        assert put.status_code == 201, put.text
    page = session.get(f"{url}/v2/acme/many/tags/list?n=1000", timeout=30)
    assert (len(page.json()["tags"]), "Link" in page.headers) == (PAGE, True)
    scene = Scene(tmp_path, f"{registry}/acme/many")
    result = scene.call("scan")
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert f"newTag: 1.0.{TAGS - 1}" in scene.text()


def test_a_push_notification_becomes_a_commit(tmp_path: Path) -> None:
    """Each request body starts a run, as with a trigger: layers, manifests, then the index."""
    folder = tmp_path / "registry"
    folder.mkdir()
    with serving(Listener()) as listener:
        endpoint = f"{{name: test, url: '{listener.url}', timeout: 5s, threshold: 3, backoff: 1s}}"
        with running(folder, f"notifications: {{endpoints: [{endpoint}]}}\n") as registry:
            scene = Scene(tmp_path, f"{registry}/acme/web")
            content = index([image("linux/amd64"), image("linux/arm64/v8")])
            push(f"http://{registry}", "acme/web", "1.1.0", content)
            reports = []
            while "newTag: 1.1.0" not in scene.text():
                file = tmp_path / "event.json"
                file.write_bytes(listener.bodies.get(timeout=30))
                done = scene.call("run", "--images-from", file, "--images-format", "distribution")
                assert done.code == 0, done.stderr
                reports.append(done.json)
    (decision,) = reports[-1]["decisions"]
    assert (decision["verdict"], decision["event"]) == ("update", "registry event, distribution")
    assert reports[-1]["images"][0]["digest"] == content.digest
    # layers, configs, and platform manifests
    assert sum(report["images_passed_over"] for report in reports) >= 4


def test_a_scan_finds_the_newest_of_several_builds(registry: str, tmp_path: Path) -> None:
    url = f"http://{registry}"
    for tag, created in (
        ("b", "2026-01-03T00:00:00Z"),
        ("c", "2026-01-02T00:00:00Z"),
        ("a", "2026-01-01T00:00:00Z"),
    ):
        push(url, "acme/builds", tag, image(created=created, seed=tag))
    scene = Scene(tmp_path, f"{registry}/acme/builds", **{"web.update-strategy": "newest-build"})
    assert scene.call("scan").code == 0
    assert "newTag: b" in scene.text()


def test_a_missing_tag_is_not_written(registry: str, tmp_path: Path) -> None:
    push(f"http://{registry}", "acme/web", "1.0.0", image())
    scene = Scene(tmp_path, f"{registry}/acme/web")
    result = scene.call(
        "run", "--image", f"{registry}/acme/web:9.9.9", "--registry-check", "always"
    )
    assert verdict(result) != "update"
    assert "newTag: 1.0.0" in scene.text()


@pytest.mark.parametrize("old", [False, True], ids=["a bundle", "as cosign 2"])
def test_signatures_made_by_cosign_are_verified(registry: str, tmp_path: Path, old: bool) -> None:
    named, content = f"{registry}/acme/{'old' if old else 'new'}", image(seed=str(old))
    push(f"http://{registry}", named.partition("/")[2], "1.1.0", content)
    (tmp_path / "other").mkdir()
    pair, other, scene = Cosign(tmp_path), Cosign(tmp_path / "other"), Scene(tmp_path, named)
    given = ("run", "--image", f"{named}:1.1.0", "--verify")
    assert verdict(scene.call(*given, pair.public)) == "refuse"
    pair.sign(f"{named}@{content.digest}", old=old)
    assert verdict(scene.call(*given, other.public)) == "refuse"
    result = scene.call(*given, pair.public)
    assert (result.code, verdict(result)) == (0, "update"), result.stderr
    assert content.digest in scene.text()


REPOSITORY, REF = "https://github.com/acme/web", "refs/heads/main"
WORKFLOW = {"ref": REF, "repository": REPOSITORY, "path": "release.yml"}
SOURCE = {
    "uri": f"git+{REPOSITORY}@{REF}",
    "digest": {"sha1": "c" * 40},
    "entryPoint": "release.yml",
}
PREDICATES: Mapping[bool, Mapping[str, Any]] = {
    True: {"builder": {"id": "x"}, "buildType": "x", "invocation": {"configSource": SOURCE}},
    False: {
        "buildDefinition": {
            "buildType": "x",
            "externalParameters": {"workflow": WORKFLOW},
            "resolvedDependencies": [],
        },
        "runDetails": {"builder": {"id": "x"}},
    },
}


@pytest.mark.parametrize("old", [False, True], ids=["a bundle", "as cosign 2"])
def test_attestations_made_by_cosign_are_verified(registry: str, tmp_path: Path, old: bool) -> None:
    named, content = (
        f"{registry}/acme/{'attested2' if old else 'attested3'}",
        image(seed=f"attested {old}"),
    )
    push(f"http://{registry}", named.partition("/")[2], "1.1.0", content)
    pair, scene = Cosign(tmp_path), Scene(tmp_path, named)
    wanted = f"provenance: {{keys: [ci.pub], sourceRepository: {REPOSITORY}, ref: {REF}, workflow: release.yml}}"
    commit(
        scene.repo,
        {".image-update/config": f"version: 1\n{wanted}\n", "ci.pub": pair.public.read_text()},
    )
    given = ("run", "--image", f"{named}:1.1.0")
    assert scene.call(*given).json["decisions"][0]["rule"] == "provenance"
    pair.sign(f"{named}@{content.digest}", old=old)
    assert scene.call(*given).json["decisions"][0]["rule"] == "provenance"
    pair.attest(f"{named}@{content.digest}", PREDICATES[old], old=old)
    result = scene.call(*given)
    assert (result.code, verdict(result)) == (0, "update"), result.stderr
    assert result.json["decisions"][0]["proof"]["kind"] == ("slsa-v0.2" if old else "slsa-v1")
    assert content.digest in scene.text()
