"""Only signed images are written, and only by the digest that was signed: whole runs with real
keys.
"""

import base64
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import cosign
from fakes.kubernetes_api import APPLICATIONS, SECRETS, UPDATERS, running
from fakes.oci_images import image, push
from fakes.registry_api import RegistryApi
from support import Result, bare_repo, git, image_update, show
from support.clusters import full_application, kubeconfig, live_app
from support.real_registry import open_registry
from support.runs import application, manifest, run, wait_until

ASK = {"IMAGE_UPDATE_REGISTRY_CHECK": "auto"}
IMAGE = image()
TARGET = "apps/a/kustomization.yaml"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> cosign.Keys:
    return cosign.keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def server(oci_registry: RegistryApi) -> RegistryApi:
    oci_registry.put("acme/web", "1.1.0", IMAGE)
    return oci_registry


class Scene:
    """One Application with an image in a registry."""

    def __init__(self, folder: Path, registry: str) -> None:
        self.named = f"{registry}/acme/web"
        text = f"resources: []\nimages:\n- name: {self.named}\n  newTag: 1.0.0\n"
        self.repo = bare_repo(folder, {TARGET: text})
        self.apps = manifest(folder, application("a", self.repo, image_list=f"web={self.named}"))

    def call(self, *more: str | Path, command: str = "run", version: str = "1.1.0") -> Result:
        event = () if command not in ("run", "plan") else ("--image", f"{self.named}:{version}")
        given = (
            "--applications",
            self.apps,
            "--allow-protocol",
            "file",
            "--output",
            "json",
            *event,
            *more,
        )
        return image_update(command, *given, env=ASK)

    @property
    def text(self) -> str:
        return show(self.repo, "main", TARGET)


def decision(result: Result) -> tuple[str, str]:
    one = result.json["decisions"][0]
    return one["verdict"], one["rule"]


def sign(server: RegistryApi, pair: cosign.Keys) -> None:
    server.put("acme/web", cosign.tag_of(IMAGE.digest), cosign.signed(pair, IMAGE.digest))


@pytest.mark.parametrize("command", ["run", "scan"])
def test_a_signed_image_is_written_by_its_digest(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys, command: str
) -> None:
    sign(server, pair)
    scene = Scene(tmp_path, server.name)
    result = scene.call("--verify", pair.public, command=command)
    assert (result.code, decision(result)) == (0, ("update", "admitted")), result.stderr
    assert f"digest: {IMAGE.digest}" in scene.text
    many = len(server.seen)
    again = scene.call("--verify", pair.public, command=command)
    assert decision(again) == ("unchanged", "same")
    assert [
        one for one in server.asked[many:] if ".sig" in one
    ] == []  # nothing is written, so no signature is checked


def test_the_signature_is_checked_for_the_given_digest(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    sign(server, pair)
    other = server.put("acme/web", "other", image(seed="other"))
    scene = Scene(tmp_path, server.name)
    refused = scene.call("--verify", pair.public, version=f"1.1.0@{other}")
    assert decision(refused) == ("refuse", "signature")
    assert decision(scene.call("--verify", pair.public, version=f"1.1.0@{IMAGE.digest}")) == (
        "update",
        "admitted",
    )


def test_an_unsigned_image_is_refused_and_not_written(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    scene = Scene(tmp_path, server.name)
    tip = git(scene.repo, "rev-parse", "main")
    for command in ("plan", "run", "scan"):
        result = scene.call("--verify", pair.public, command=command)
        assert (result.code, decision(result)) == (0, ("refuse", "signature"))
        assert "the registry has no signature" in result.json["decisions"][0]["because"]
    assert scene.call("--verify", pair.public, "--require-update").code == 5
    assert git(scene.repo, "rev-parse", "main") == tip


def test_a_signature_made_with_another_key_is_refused(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    sign(server, cosign.keys(tmp_path, name="other"))
    result = Scene(tmp_path, server.name).call("--verify", pair.public)
    assert decision(result) == ("refuse", "signature")
    assert "not made with the required key" in result.json["decisions"][0]["because"]


def test_a_signature_that_cannot_be_checked_is_an_error(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    server.faults[".sig"] = lambda _: (503, {}, b"")
    scene = Scene(tmp_path, server.name)
    result = scene.call("--verify", pair.public)
    assert (result.code, decision(result)) == (75, ("error", "registry"))
    never = scene.call("--verify", pair.public, "--registry-check", "never")
    assert (never.code, decision(never)) == (3, ("error", "registry"))
    assert "newTag: 1.0.0" in scene.text


def test_a_run_waits_for_a_late_signature(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    scene = Scene(tmp_path, server.name)

    def sign_late() -> None:
        """Sign the image after the run has looked for a signature and found none."""
        wait_until(lambda: any(".sig" in one.path for one in server.seen))
        time.sleep(1.5)  # longer than --deadline, which does not cover the wait for a signature
        sign(server, pair)

    signer = threading.Thread(target=sign_late)
    signer.start()
    result = scene.call("--verify", pair.public, "--verify-timeout", "30", "--deadline", "1")
    signer.join()
    assert (result.code, decision(result)) == (0, ("update", "admitted"))
    assert "waiting for a signature" in result.stderr


@pytest.mark.measured
def test_a_rollback_checks_the_signature_as_well(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    scene = Scene(tmp_path, server.name)
    arguments = ("a", "--to", "1.1.0", "--verify", pair.public)
    assert decision(scene.call(*arguments, command="rollback")) == ("refuse", "signature")
    sign(server, pair)
    assert scene.call(*arguments, command="rollback").code == 0
    assert f"digest: {IMAGE.digest}" in scene.text


def test_a_live_application_is_patched_only_with_a_signed_image(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    named = f"{server.name}/acme/web"
    with running() as api:
        api.add(APPLICATIONS, live_app("a", image_list=f"web={named}"))
        cluster = (
            "--applications",
            "cluster",
            "--kubeconfig",
            kubeconfig(tmp_path, api),
            "--verify",
            pair.public,
        )
        refused = run(*cluster, image=f"{named}:1.1.0", env=ASK)
        assert decision(refused) == ("refuse", "signature")
        assert "kustomize" not in api.of(APPLICATIONS, "a")["spec"]["source"]
        sign(server, pair)
        assert decision(run(*cluster, image=f"{named}:1.1.0", env=ASK)) == ("update", "admitted")
        patched = api.of(APPLICATIONS, "a")["spec"]["source"]["kustomize"]["images"]
    assert patched == [f"{named}:1.1.0@{IMAGE.digest}"]


def test_a_deferred_image_is_checked_on_release(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    scene = Scene(tmp_path, server.name)
    assert scene.call("a", "--reason", "freeze", command="hold").code == 0
    assert decision(scene.call()) == ("defer", "held")  # without --verify, so without a digest
    arguments = ("a", "--verify", pair.public)
    assert decision(scene.call(*arguments, command="release")) == ("refuse", "signature")
    assert decision(scene.call()) == ("defer", "held")  # the hold was not released
    sign(server, pair)
    assert decision(scene.call(*arguments, command="release")) == ("update", "admitted")
    assert f"digest: {IMAGE.digest}" in scene.text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--verify", "/nonexistent/cosign.pub"], "cannot read"),
        (["--verify-identity", "me@example.com"], "--verify-identity requires --verify-issuer"),
        (
            ["--verify-issuer", "https://issuer.example"],
            "--verify-issuer requires --verify-identity",
        ),
        (
            ["--verify", "k", "--verify-identity", "me", "--verify-issuer", "i"],
            "cannot be combined",
        ),
        (["--verify", "k", "--trust-root", "/nonexistent/root.json"], "--trust-root: cannot read"),
        (["--verify", "k", "--verify-timeout", "soon"], "number of seconds"),
    ],
)
def test_invalid_verify_options_are_usage_errors(
    tmp_path: Path, server: RegistryApi, more: list[str], words: str
) -> None:
    result = Scene(tmp_path, server.name).call(*more)
    assert result.code == 2
    assert words in result.stderr
    assert server.seen == []


class WithResource(Scene):
    """The same Application, but with an ImageUpdater resource that requires a signature."""

    def __init__(self, folder: Path, registry: str) -> None:
        super().__init__(folder, registry)
        key = {"secretName": "keys", "key": "cosign.pub"}
        image = {"alias": "web", "imageName": self.named, "imagesVerification": {"cosignKey": key}}
        self.updater = {
            "apiVersion": "argocd-image-updater.argoproj.io/v1alpha1",
            "kind": "ImageUpdater",
            "metadata": {"name": "all", "namespace": "argocd"},
            "spec": {
                "writeBackConfig": {
                    "method": "git",
                    "gitConfig": {"writeBackTarget": "kustomization"},
                },
                "applicationRefs": [{"namePattern": "a", "images": [image]}],
            },
        }
        self.apps = manifest(folder, application("a", self.repo), self.updater)


def key_secret(
    text: str, name: str = "keys", key: str = "cosign.pub", kind: str = ""
) -> dict[str, Any]:
    labels = {"argocd.argoproj.io/secret-type": kind} if kind else {}
    data = {key: base64.b64encode(text.encode()).decode()}
    return {"metadata": {"name": name, "namespace": "argocd", "labels": labels}, "data": data}


@pytest.mark.parametrize("source", ["cluster", "files"])
def test_the_signature_must_match_the_key_named_by_the_image_updater_resource(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys, source: str
) -> None:
    other = cosign.keys(tmp_path, name="other")
    with running() as api:
        scene = WithResource(tmp_path, server.name)
        api.add(SECRETS, key_secret(pair.public.read_text()))
        given: list[str | Path] = ["--kubeconfig", kubeconfig(tmp_path, api)]
        if source == "cluster":
            api.add(APPLICATIONS, full_application("a", scene.repo))
            api.add(UPDATERS, scene.updater)
            given += ["--applications", "cluster"]
            scene.apps = Path("cluster")
        sign(server, other)
        refused = scene.call(*given)
        assert (refused.code, decision(refused)) == (0, ("refuse", "signature")), refused.stderr
        assert "secret argocd/keys (cosign.pub)" in refused.json["decisions"][0]["because"]
        sign(server, pair)
        both = scene.call(*given, "--verify", other.public)  # the option also applies
        assert decision(both) == ("refuse", "signature")
        assert "newTag: 1.0.0" in scene.text
        assert decision(scene.call(*given, command="plan")) == ("update", "admitted")
        assert decision(scene.call(*given)) == ("update", "admitted")
    assert f"digest: {IMAGE.digest}" in scene.text


@pytest.mark.parametrize(
    ("secret", "code", "rule", "words"),
    [
        (None, 4, "registry", "secret argocd/keys not found"),
        (key_secret("x", key="other"), 4, "registry", "has no text at 'cosign.pub'"),
        (key_secret("hello"), 3, "registry", "does not contain a public key"),
        (key_secret("hello", kind="cluster"), 3, "annotation", "belongs to Argo CD"),
    ],
)
def test_a_key_that_cannot_be_read_admits_no_image(
    tmp_path: Path,
    server: RegistryApi,
    pair: cosign.Keys,
    secret: Any,
    code: int,
    rule: str,
    words: str,
) -> None:
    sign(server, pair)
    with running() as api:
        api.add(SECRETS, *([secret] if secret else []))
        scene = WithResource(tmp_path, server.name)
        result = scene.call("--kubeconfig", kubeconfig(tmp_path, api))
    assert (result.code, decision(result)) == (code, ("error", rule)), result.stderr
    assert words in result.json["errors"][0]["message"]
    assert "hello" not in result.stdout + result.stderr
    assert "newTag: 1.0.0" in scene.text


def test_without_a_cluster_the_key_cannot_be_read(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    sign(server, pair)
    result = WithResource(tmp_path, server.name).call("--verify", pair.public)
    assert (result.code, decision(result)) == (3, ("error", "registry"))
    assert "--kubeconfig" in result.json["errors"][0]["hint"]


@pytest.mark.servers
@pytest.mark.xdist_group("registry")
@pytest.mark.parametrize("form", ["tag", "bundle"])
def test_signatures_in_a_real_registry_are_verified(
    tmp_path: Path, pair: cosign.Keys, form: str
) -> None:
    with open_registry(tmp_path) as real:
        push(real.url, "acme/web", "1.1.0", IMAGE)
        scene = Scene(tmp_path, real.name)
        assert decision(scene.call("--verify", pair.public)) == ("refuse", "signature")
        if form == "tag":
            push(
                real.url, "acme/web", cosign.tag_of(IMAGE.digest), cosign.signed(pair, IMAGE.digest)
            )
        else:
            listed = cosign.fallback(cosign.bundle(pair, IMAGE))
            push(real.url, "acme/web", IMAGE.digest.replace(":", "-"), listed)
        assert decision(scene.call("--verify", pair.public)) == ("update", "admitted")
        assert f"digest: {IMAGE.digest}" in scene.text
