"""The proofs that a repository's config requires, from the command line to the commit: whole runs
with real keys.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fakes import cosign
from fakes.oci_images import image
from fakes.registry_api import RegistryApi
from fakes.sigstore_instance import GITHUB, Sigstore, workflow
from support import Result, bare_repo, commit, git, image_update, show
from support.runs import application, manifest

from task.schemas import load

CONFIG = ".image-update/config"
IMAGE, OLD = image(), image(seed="old")
WEB = "https://github.com/acme/web"
PROVENANCE = f"provenance: {{keys: [keys/ci.pub], sourceRepository: {WEB}, ref: refs/heads/main}}"
SIGNATURES = "signatures: {keys: [keys/ci.pub]}"
PROOF = {
    "kind": "slsa-v1", "signer": "keys/ci.pub", "source_repository": WEB, "ref": "refs/heads/main",
    "workflow": "release.yml", "builder": "https://builder.example",
}  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> cosign.Keys:
    return cosign.keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def server(oci_registry: RegistryApi) -> RegistryApi:
    oci_registry.put("acme/web", "1.0.0", OLD)
    oci_registry.put("acme/web", "1.1.0", IMAGE)
    return oci_registry


def target(name: str) -> str:
    return f"apps/{name}/kustomization.yaml"


class Scene:
    """A repository whose config requires proofs for `b`, and the Applications `a` and `b`. Versions
    are promoted from `a` to `b`.
    """

    def __init__(self, folder: Path, registry: str, pair: cosign.Keys, *wanted: str) -> None:
        self.named = f"{registry}/acme/web"
        text = f"resources: []\nimages:\n- name: {self.named}\n  newTag: 1.0.0\n"
        rules = "".join(f"- match: {{applications: [b]}}\n  {one}\n" for one in wanted)
        config = f"version: 1\nrules:\n{rules}" if rules else "version: 1\n"
        keys = pair.public.read_text()
        self.repo = bare_repo(
            folder, {target("a"): text, target("b"): text, CONFIG: config, "keys/ci.pub": keys}
        )
        apps = (application(name, self.repo, image_list=f"web={self.named}") for name in "ab")
        self.apps = manifest(folder, *apps)

    def call(self, command: str, *more: str | Path) -> Result:
        event = () if command not in ("run", "plan") else ("--image", f"{self.named}:1.1.0")
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
        result = image_update(command, *given, env={"IMAGE_UPDATE_REGISTRY_CHECK": "auto"})
        if command not in ("status", "lint"):
            jsonschema.validate(result.json, load("report.v1"))
        return result

    def of(self, command: str, *more: str | Path, name: str = "b") -> dict[str, Any]:
        result = self.call(command, *more)
        found = [one for one in result.json["decisions"] if one["application"] == f"argocd/{name}"]
        assert len(found) == 1, result.stderr
        return dict(found[0])

    def tag(self, name: str = "b") -> str:
        return show(self.repo, "main", target(name)).partition("newTag: ")[2].partition("\n")[0]


def attest(
    server: RegistryApi, pair: cosign.Keys, digest: str = IMAGE.digest, ref: str = "refs/heads/main"
) -> None:
    """Store a statement next to an image, as Tekton Chains does."""
    workflow = {"ref": ref, "repository": WEB, "path": "release.yml"}
    definition = {
        "buildType": "x",
        "externalParameters": {"workflow": workflow},
        "resolvedDependencies": [],
    }
    predicate = {
        "buildDefinition": definition,
        "runDetails": {"builder": {"id": "https://builder.example"}},
    }
    about = [{"name": "web", "digest": {"sha256": digest.partition(":")[2]}}]
    kinds = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://slsa.dev/provenance/v1",
    }
    statement = json.dumps({**kinds, "subject": about, "predicate": predicate}).encode()
    made = cosign.attestations((cosign.envelope(pair, statement), {}))
    server.put("acme/web", cosign.tag_of(digest, "att"), made)


def sign(server: RegistryApi, pair: cosign.Keys) -> None:
    server.put("acme/web", cosign.tag_of(IMAGE.digest), cosign.signed(pair, IMAGE.digest))


def test_a_proved_image_is_written_by_digest_and_its_proof_is_reported(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    scene = Scene(tmp_path, server.name, pair, PROVENANCE)
    attest(server, pair)
    planned, written = scene.of("plan"), scene.call("run")
    found = {one["application"]: one for one in written.json["decisions"]}
    assert (planned["proof"], found["argocd/b"]["proof"], found["argocd/a"]["proof"]) == (
        PROOF,
        PROOF,
        None,
    )
    assert f"digest: {IMAGE.digest}" in show(scene.repo, "main", target("b"))
    assert "digest" not in show(scene.repo, "main", target("a"))
    trailers = git(scene.repo, "log", "-1", "--format=%(trailers:key=Proof,valueonly)", "main")
    assert trailers.strip() == (
        f"{scene.named} slsa-v1; signer=keys/ci.pub; source_repository={WEB}; ref=refs/heads/main; "
        "workflow=release.yml; builder=https://builder.example"
    )
    builds = {one["application"]: one["builds"] for one in scene.call("status").json["images"]}
    assert builds["argocd/b"][0]["proof"] == trailers.strip().partition(" ")[2]
    assert scene.of("run")["proof"] is None  # nothing is written, so no proof is looked up
    saved = tmp_path / "report.json"
    saved.write_text(written.stdout)
    for shown in (
        image_update("report", saved).stdout,
        image_update("report", saved, "--html", "-").stdout,
    ):
        assert "proof: slsa-v1; signer=keys/ci.pub; source_repository=" in " ".join(shown.split())


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("demand", [PROVENANCE, SIGNATURES])
def test_a_proof_for_another_digest_of_the_same_tag_does_not_count(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys, command: str, demand: str
) -> None:
    scene = Scene(tmp_path, server.name, pair, demand)
    attest(server, pair)
    sign(server, pair)
    found = scene.of(command, "--image-digest", OLD.digest)
    assert found["verdict"] == "refuse", found["because"]
    assert found["candidate"] == f"1.1.0@{OLD.digest}"
    nowhere = f"sha256:{'0' * 64}"
    assert scene.of(command, "--image-digest", nowhere)["verdict"] in ("refuse", "error")
    assert scene.tag() == "1.0.0"


@pytest.mark.parametrize("command", ["plan", "run", "scan"])
def test_an_unproved_image_is_refused_only_where_a_proof_is_required(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys, command: str
) -> None:
    scene = Scene(tmp_path, server.name, pair, PROVENANCE)
    result = scene.call(command)
    verdicts = {
        one["application"]: (one["verdict"], one["rule"]) for one in result.json["decisions"]
    }
    assert (result.code, verdicts["argocd/b"]) == (0, ("refuse", "provenance"))
    assert verdicts["argocd/a"] == ("update", "admitted")
    assert scene.tag() == "1.0.0"
    because = next(
        one["because"] for one in result.json["decisions"] if one["rule"] == "provenance"
    )
    said = "the registry has no provenance; .image-update/config, line 4, requires it"
    assert because == f"1.1.0@{IMAGE.digest}: {said}"
    attest(server, pair, ref="refs/heads/dev")
    assert (
        "its ref is 'refs/heads/dev', but 'refs/heads/main' is required"
        in scene.of(command)["because"]
    )


def test_the_requirements_of_options_and_of_the_config_must_both_be_met(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    other = cosign.keys(tmp_path, name="other")
    scene = Scene(tmp_path, server.name, pair, SIGNATURES)
    sign(server, pair)
    assert scene.of("plan")["verdict"] == "update"
    assert scene.of("plan", name="a")["verdict"] == "update"
    assert scene.of("plan", "--verify", other.public)["rule"] == "signature"
    sign(server, other)
    assert scene.of("plan", "--verify", other.public, name="a")["verdict"] == "update"
    found = scene.of("plan", "--verify", other.public)
    assert (found["rule"], "requires it" in found["because"]) == ("signature", True)


def test_the_keys_are_read_from_the_branch_that_is_written(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    other = cosign.keys(tmp_path, name="other")
    scene = Scene(tmp_path, server.name, pair, SIGNATURES)
    sign(server, other)
    assert scene.of("run")["rule"] == "signature"
    commit(scene.repo, {"keys/ci.pub": other.public.read_text()})
    assert scene.of("run")["verdict"] == "update"


@pytest.mark.parametrize(
    ("files", "rule", "words"),
    [
        ({"keys/ci.pub": None}, "target", "keys/ci.pub: there is no such file"),
        ({"keys/ci.pub": "hello"}, "target", "keys/ci.pub: it does not contain a public key"),
        ({"keys/ci.pub": "x" * 70_000}, "target", "keys/ci.pub: it is larger than 64 KiB"),
    ],
)
def test_an_unusable_key_admits_no_image(
    tmp_path: Path,
    server: RegistryApi,
    pair: cosign.Keys,
    files: dict[str, str | None],
    rule: str,
    words: str,
) -> None:
    scene = Scene(tmp_path, server.name, pair, SIGNATURES)
    sign(server, pair)
    commit(scene.repo, files)
    found = scene.of("run")
    assert (found["verdict"], found["rule"], scene.tag()) == ("error", rule, "1.0.0")
    assert words in found["because"]
    git(tmp_path, "clone", "--quiet", str(scene.repo), "work")
    listed = image_update("lint", tmp_path / "work", "--allow-protocol", "file")
    assert words in listed.stdout


def test_promote_and_release_check_the_proof_again(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    scene = Scene(tmp_path, server.name, pair, PROVENANCE)
    assert scene.of("run", "--application", "a", name="a")["verdict"] == "update"
    given = ("--from", "a", "--to", "b")
    assert scene.of("promote", *given)["rule"] == "provenance"
    assert scene.call("hold", "b", "--reason", "freeze").code == 0
    assert scene.of("run", "--application", "b")["verdict"] == "defer"
    assert scene.of("release", "b")["rule"] == "provenance"
    attest(server, pair)
    assert scene.of("release", "b", "--dry-run")["proof"] == PROOF
    assert scene.call("release", "b", "--discard").code == 0
    found = scene.of("promote", *given)
    assert (found["verdict"], found["proof"]) == ("update", PROOF)


def test_a_rollback_to_an_unproved_image_is_written_with_a_warning(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    scene = Scene(tmp_path, server.name, pair, PROVENANCE)
    attest(server, pair)
    assert scene.of("run")["verdict"] == "update"
    result = scene.call("rollback", "b", "--to", "1.0.0")
    (found,) = result.json["decisions"]
    assert (result.code, found["verdict"], found["proof"], scene.tag()) == (
        0,
        "update",
        None,
        "1.0.0",
    )
    (warning,) = [one for one in result.json["errors"] if "not proved" in one["message"]]
    assert warning["severity"] == "warning"
    assert "the registry has no provenance" in warning["message"]
    forward = scene.call("rollback", "b", "--to", "1.1.0")
    assert forward.json["decisions"][0]["proof"] == PROOF
    refused = scene.call(
        "rollback", "b", "--to", "1.0.0", "--verify", pair.public
    )  # a requirement set by an option still applies
    assert refused.json["decisions"][0]["rule"] == "signature"
    server.faults["/acme/web/manifests/1.0.0"] = lambda _: (503, {}, b"")
    assert scene.call("rollback", "b", "--to", "1.0.0", "--registry-check", "never").code == 0


def test_an_identity_without_the_sigstore_package_is_a_usage_error_with_a_hint(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    (tmp_path / "without" / "sigstore").mkdir(parents=True)
    (tmp_path / "without" / "sigstore" / "__init__.py").write_text("raise ImportError\n")
    identities = (
        "signatures: {identities: [{subject: me@acme.example, issuer: https://issuer.example}]}"
    )
    scene = Scene(tmp_path, server.name, pair, identities)
    env = {"IMAGE_UPDATE_REGISTRY_CHECK": "auto", "PYTHONPATH": str(tmp_path / "without")}
    given = ("--applications", scene.apps, "--allow-protocol", "file", "--output", "json")
    result = image_update("run", *given, "--image", f"{scene.named}:1.1.0", env=env)
    assert result.code == 2
    assert "argocd-image-update[sigstore]" in result.stderr
    assert scene.tag() == "1.0.0"
    asked = ("--verify-identity", "me", "--verify-issuer", "i")
    server.seen.clear()
    at_once = image_update("run", *given, "--image", f"{scene.named}:1.1.0", *asked, env=env)
    assert (at_once.code, server.seen) == (2, [])
    assert "argocd-image-update[sigstore]" in at_once.stderr


def test_identities_of_a_private_sigstore_instance_are_verified(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    pytest.importorskip("sigstore")
    own, claims = Sigstore(), workflow()
    who, config = claims["subject"], "https://github.com/acme/*/.github/workflows/*@refs/heads/main"
    asked = f'signatures: {{identities: [{{subject: "{config}", issuer: "{GITHUB}"}}]}}'
    scene = Scene(tmp_path, server.name, pair, asked)
    about = [{"name": "web", "digest": {"sha256": IMAGE.digest.partition(":")[2]}}]
    signed = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": about,
        "predicateType": cosign.SIGN,
        "predicate": {},
    }
    blob = json.dumps(own.bundle(json.dumps(signed).encode(), claims)).encode()
    server.put("acme/web", "signature", cosign.referrer(blob, IMAGE, cosign.SIGN))
    root = ("--trust-root", own.root(tmp_path))
    found = scene.of("plan", *root)
    assert (found["verdict"], found["proof"]["kind"], found["proof"]["signer"]) == (
        "update",
        "certificate",
        who,
    )
    assert (found["proof"]["source_repository"], found["proof"]["ref"]) == (WEB, "refs/heads/main")
    exact = ("--verify-issuer", GITHUB, "--verify-identity")
    assert scene.of("plan", *root, *exact, who)["verdict"] == "update"
    assert (
        scene.of("plan", *root, *exact, config)["rule"] == "signature"
    )  # the option takes a single identity, not a glob
    other = tmp_path / "other"
    other.mkdir()
    assert scene.of("run", "--trust-root", Sigstore().root(other))["rule"] == "signature"
    assert scene.of("run", *root)["verdict"] == "update"


def test_requirements_in_the_config_of_the_target_branch_apply_as_well(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    scene = Scene(tmp_path, server.name, pair)
    git(scene.repo, "branch", "release", "main")
    wanted = f"version: 1\n{SIGNATURES}\n"
    commit(scene.repo, {CONFIG: wanted}, branch="release")
    apps = manifest(
        tmp_path,
        application("b", scene.repo, image_list=f"web={scene.named}", git_branch="main:release"),
    )
    scene.apps = apps
    assert scene.of("run")["rule"] == "signature"
    sign(server, pair)
    assert scene.of("run")["verdict"] == "update"
    assert "1.1.0" in show(scene.repo, "release", target("b"))


def test_a_signed_build_stays_on_its_head_branch_if_another_image_is_built(
    tmp_path: Path, server: RegistryApi, pair: cosign.Keys
) -> None:
    server.put("acme/api", "1.1.0", IMAGE)
    for name in ("acme/web", "acme/api"):
        server.put(name, cosign.tag_of(IMAGE.digest), cosign.signed(pair, IMAGE.digest))
    scene = Scene(tmp_path, server.name, pair, SIGNATURES)
    images = {alias: f"{server.name}/acme/{alias}" for alias in ("web", "api")}
    entries = "".join(f"- name: {name}\n  newTag: 1.0.0\n" for name in images.values())
    commit(scene.repo, {target("b"): f"resources: []\nimages:\n{entries}"})
    image_list = ",".join(f"{alias}={name}" for alias, name in images.items())
    app = application("b", scene.repo, image_list=image_list, git_branch="main:bump")
    scene.apps = manifest(tmp_path, app)
    for name in images.values():
        scene.named = name
        assert scene.of("run")["verdict"] == "update"
    waiting = show(scene.repo, "bump", target("b"))
    assert waiting.count(f"digest: {IMAGE.digest}") == 2
