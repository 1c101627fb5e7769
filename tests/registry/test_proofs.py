"""Provenance: certificates and statements in the documented formats. Invalid ones prove nothing.

Keys come from openssl, identities from the tests' own Sigstore. The sigstore package verifies them.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import cosign
from fakes.oci_images import Content, image
from fakes.registry_api import RegistryApi
from fakes.sigstore_instance import GITHUB, Sigstore, workflow
from support import DATA

from task.errors import RegistryDownError, TaskError, UsageError
from task.http import Limits
from task.image import parse_image
from task.model import Question, Verdict
from task.proof import Demand, Identity, Proof
from task.registry.client import Registry
from task.registry.logins import Logins
from task.registry.proofs import Prover
from task.registry.signature import LARGEST, objection, of_certificate, origin_of
from task.settings import VerifyOptions
from task.wiring.registries import WantedProofs

keyless = pytest.importorskip("task.registry.keyless", exc_type=ImportError)
pytestmark = pytest.mark.measured

IMAGE, OTHER = image(), image(seed="other")
V02, V1 = "https://slsa.dev/provenance/v0.2", "https://slsa.dev/provenance/v1"
WEB = "https://github.com/acme/web"
RELEASE = ".github/workflows/release.yml"
HOSTED = "https://github.com/actions/runner/github-hosted"
GENERATOR = (
    "https://github.com/slsa-framework/slsa-github-generator/.github/workflows/generator_container_slsa3.yml"
    "@refs/tags/v2.1.0"
)
CHAINS = "https://tekton.dev/chains/v2"
CI = Identity(f"{WEB}/{RELEASE}@refs/heads/main", GITHUB)
ASKED = Demand("provenance", (), (CI,), source_repository=WEB)
Predicate = dict[str, Any]


def github_v1(
    repository: str = WEB, ref: str = "refs/heads/main", path: str = RELEASE, builder: str = HOSTED
) -> Predicate:
    """Return a statement as written by actions/attest-build-provenance."""
    return {
        "buildDefinition": {
            "buildType": "https://actions.github.io/buildtypes/workflow/v1",
            "externalParameters": {
                "workflow": {"ref": ref, "repository": repository, "path": path}
            },
            "internalParameters": {
                "github": {
                    "event_name": "push",
                    "repository_id": "1",
                    "runner_environment": "github-hosted",
                }
            },
            "resolvedDependencies": [
                {"uri": f"git+{repository}@{ref}", "digest": {"gitCommit": "c" * 40}}
            ],
        },
        "runDetails": {
            "builder": {"id": builder},
            "metadata": {"invocationId": f"{repository}/actions/runs/1/attempts/1"},
        },
    }


def generator_v02(
    repository: str = WEB,
    ref: str = "refs/heads/main",
    path: str = RELEASE,
    builder: str = GENERATOR,
) -> Predicate:
    """Return a statement as written by slsa-github-generator's container generator."""
    source = {"uri": f"git+{repository}@{ref}", "digest": {"sha1": "c" * 40}}
    return {
        "builder": {"id": builder},
        "buildType": "https://github.com/slsa-framework/slsa-github-generator/container@v1",
        "invocation": {
            "configSource": {**source, "entryPoint": path},
            "parameters": {},
            "environment": {"github_actor": "x"},
        },
        "metadata": {"completeness": {"parameters": True}, "reproducible": False},
        "materials": [source],
    }


def chains_v1(
    repository: str = f"{WEB}.git", builder: str = CHAINS, pipeline: str = "release"
) -> Predicate:
    """Return a statement as written by Tekton Chains in its slsa/v2alpha4 format."""
    return {
        "buildDefinition": {
            "buildType": "https://tekton.dev/chains/v2/slsa",
            "externalParameters": {
                "runSpec": {
                    "pipelineRef": {"name": pipeline},
                    "params": [{"name": "url", "value": repository}],
                }
            },
            "internalParameters": {"tekton-pipelines-feature-flags": {"EnableAPIFields": "stable"}},
            "resolvedDependencies": [
                {
                    "uri": "git+https://github.com/tektoncd/catalog.git",
                    "digest": {"sha1": "d" * 40},
                    "name": "pipelineTask",
                },
                {"uri": "oci://cgr.dev/chainguard/kaniko", "digest": {"sha256": "e" * 64}},
                {"uri": f"git+{repository}", "digest": {"sha1": "c" * 40}, "name": "inputs/result"},
            ],
        },
        "runDetails": {"builder": {"id": builder}, "metadata": {"invocationID": "6b3a"}},
    }


def chains_v02(*repositories: str, builder: str = CHAINS) -> Predicate:
    """Return a statement as written by Tekton Chains in its slsa/v1 format, which is SLSA 0.2."""
    return {
        "builder": {"id": builder},
        "buildType": "tekton.dev/v1beta1/PipelineRun",
        "invocation": {"configSource": {}, "parameters": {"url": "x"}},
        "buildConfig": {"tasks": [{"name": "build", "ref": {"kind": "Task", "name": "kaniko"}}]},
        "materials": [
            *(
                {"uri": f"git+{one}", "digest": {"sha1": "c" * 40}}
                for one in repositories or (f"{WEB}.git",)
            ),
            {"uri": "oci://gcr.io/kaniko", "digest": {"sha256": "e" * 64}},
        ],
    }


def gitlab_v1(source: str = "https://gitlab.com/acme/web") -> Predicate:
    """Return a statement as written by GitLab's runner."""
    return {
        "buildDefinition": {
            "buildType": "https://gitlab.com/gitlab-org/gitlab-runner/-/blob/v18/PROVENANCE.md",
            "externalParameters": {
                "entryPoint": "build",
                "source": source,
                "variables": {"CI": ""},
            },
            "resolvedDependencies": [{"uri": source, "digest": {"sha256": "c" * 40}}],
        },
        "runDetails": {"builder": {"id": "https://gitlab.com/acme/web/-/runners/1"}},
    }


def statement(predicate: Any, kind: str = V1, digest: str = IMAGE.digest, **changed: Any) -> bytes:
    about = {"name": "ghcr.io/acme/api", "digest": {"sha256": digest.partition(":")[2]}}
    version = "v0.1" if kind == V02 else "v1"
    body = {
        "_type": f"https://in-toto.io/Statement/{version}",
        "subject": [about],
        "predicateType": kind,
        "predicate": predicate,
    }
    return json.dumps({**body, **changed}).encode()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> cosign.Keys:
    return cosign.keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> cosign.Keys:
    return cosign.keys(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def sigstore() -> Sigstore:
    return Sigstore()


@pytest.fixture
def server(oci_registry: RegistryApi) -> RegistryApi:
    oci_registry.put("acme/api", "1.0", IMAGE)
    return oci_registry


class Asking:
    """A run's provenance checks of the image."""

    def __init__(
        self, server: RegistryApi, folder: Path, sigstore: Sigstore, timeout: float = 0.0
    ) -> None:
        self.server, self.timeout = server, timeout
        root = sigstore.root(folder, server.url)
        for index, entry in sigstore.entries.items():
            server.faults[f"logIndex={index}"] = lambda _, one=entry: (
                200,
                {},
                json.dumps(one).encode(),
            )  # type: ignore[misc]
        self.wanted = WantedProofs(
            VerifyOptions(trust_root=str(root)), lambda: None, lambda *_: None
        )

    def __call__(self, *demands: Demand) -> Proof | str | TaskError:
        image = replace(parse_image(f"{self.server.name}/acme/api:1.0"), digest=IMAGE.digest)
        registry = Registry(Logins({}), limits=Limits(silence=2.0, tries=1))
        about = Question(image, (), demands=demands)
        answer = Prover(lambda: registry, self.wanted, self.timeout)([about])[about]
        return f"{answer.rule}: {answer.because}" if isinstance(answer, Verdict) else answer


def by_key(pair: cosign.Keys, **asked: Any) -> Demand:
    return Demand("provenance", ("ci.pub",), texts=(("ci.pub", pair.public.read_text()),), **asked)


def put(server: RegistryApi, content: Content, tag: str = "referring") -> None:
    server.put("acme/api", tag, content)


def bundle(
    sigstore: Sigstore, content: bytes, claims: Mapping[str, str] | None = None, **how: Any
) -> bytes:
    return json.dumps(sigstore.bundle(content, claims or workflow(), **how)).encode()


# --- valid: every documented format, from every location

FULL: dict[str, Any] = {"source_repository": WEB, "ref": "refs/heads/main", "workflow": RELEASE}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "predicate", "asked", "proof"),
    [
        (
            V1,
            github_v1(),
            FULL | {"builder": HOSTED},
            Proof("slsa-v1", CI.subject, WEB, "refs/heads/main", RELEASE, HOSTED),
        ),
        (V1, github_v1(ref="refs/tags/v1.2.0"), {"ref": "refs/tags/v*"}, None),
        (V1, github_v1(), {"source_repository": "https://github.com/acme/*"}, None),
        (V1, github_v1(), {"builder": "https://github.com/**"}, None),
        (
            V02,
            generator_v02(),
            FULL | {"builder": GENERATOR},
            Proof("slsa-v0.2", CI.subject, WEB, "refs/heads/main", RELEASE, GENERATOR),
        ),
        (V02, generator_v02(), {"builder": f"{GENERATOR.partition('@')[0]}@refs/tags/v*"}, None),
        (
            V1,
            chains_v1(),
            {"source_repository": WEB, "builder": CHAINS, "workflow": "release"},
            None,
        ),
        (V02, chains_v02(), {"source_repository": WEB, "builder": CHAINS}, None),
        (V02, chains_v02(WEB, f"{WEB}.git"), {"source_repository": WEB}, None),
        (V1, gitlab_v1(), {"source_repository": "https://gitlab.com/acme/web"}, None),
        (V1, github_v1(repository=f"{WEB}.git"), {"source_repository": WEB}, None),
    ],
)
@pytest.mark.parametrize("place", ["referrer", "unsaid", "tag"])
@pytest.mark.parametrize("signer", ["identity", "key"])
def test_valid_provenance_is_accepted(
    server: RegistryApi,
    tmp_path: Path,
    sigstore: Sigstore,
    pair: cosign.Keys,
    kind: str,
    predicate: Predicate,
    asked: dict[str, Any],
    proof: Proof | None,
    place: str,
    signer: str,
) -> None:
    content = statement(predicate, kind)
    demand = (
        Demand("provenance", identities=(CI,), **asked)
        if signer == "identity"
        else by_key(pair, **asked)
    )
    if place == "tag":
        of_key = (
            cosign.envelope(pair, content),
            {"dev.cosignproject.cosign/signature": "", "predicateType": kind},
        )
        made = sigstore.attested(content, workflow()) if signer == "identity" else of_key
        put(server, cosign.attestations(made), cosign.tag_of(IMAGE.digest, "att"))
    else:
        body = json.loads(bundle(sigstore, content))
        if signer == "key":
            body = {**body, "dsseEnvelope": json.loads(cosign.envelope(pair, content))}
            body["verificationMaterial"] = {"publicKey": {"hint": "x"}}
        put(
            server,
            cosign.referrer(json.dumps(body).encode(), IMAGE, kind if place == "referrer" else ""),
        )
    answer = Asking(server, tmp_path, sigstore)(demand)
    assert isinstance(answer, Proof), answer
    if proof:
        assert answer == replace(proof, signer=CI.subject if signer == "identity" else "ci.pub")


@pytest.mark.parametrize("form", ["payload", "bundle"])
def test_certificate_claims_are_accepted_as_provenance(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, form: str
) -> None:
    if form == "payload":
        signed, notes = sigstore.of_layer(cosign.payload(IMAGE.digest), workflow())
        put(
            server,
            cosign.signatures(cosign.layer(cosign.payload(IMAGE.digest), signed, **notes)),
            cosign.tag_of(IMAGE.digest),
        )
    else:
        signing = statement({}, cosign.SIGN)
        put(server, cosign.referrer(bundle(sigstore, signing), IMAGE, cosign.SIGN))
    demand = Demand("provenance", identities=(CI,), builder=HOSTED, **FULL)
    answer = Asking(server, tmp_path, sigstore)(demand, Demand("signature", identities=(CI,)))
    assert isinstance(answer, Proof), answer
    assert (answer.kind, answer.signer, answer.source_repository, answer.workflow) == (
        "certificate",
        CI.subject,
        WEB,
        RELEASE,
    )
    wrong = Asking(server, tmp_path, sigstore)(replace(demand, ref="refs/heads/release"))
    assert "its ref is 'refs/heads/main', but 'refs/heads/release' is required" in str(wrong)


@pytest.mark.parametrize("kept", ["slsa-v1", "slsa-v0.2"])
def test_attestations_created_by_a_real_cosign_are_accepted(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, kept: str
) -> None:
    said = json.loads((DATA / "recorded" / "cosign-3.1" / "attestations.json").read_text())
    assert said["image"] == IMAGE.digest
    server.referrers_api = False
    server.manifests.update(
        {digest: (kind, body.encode()) for digest, (kind, body) in said["manifests"].items()}
    )
    server.blobs.update({digest: body.encode() for digest, body in said["blobs"].items()})
    for tag, digest in said["tags"].items():
        if tag.endswith(".att") is (kept == "slsa-v0.2"):
            server.tags["acme/api"][tag] = digest
    demand = Demand(
        "provenance", texts=(("ci.pub", said["key"]),), builder="https://builder.example", **FULL
    )
    answer = Asking(server, tmp_path, sigstore)(demand)
    assert answer == Proof(
        kept,  # type: ignore[arg-type]
        "ci.pub",
        WEB,
        "refs/heads/main",
        RELEASE,
        "https://builder.example",
    )
    assert isinstance(Asking(server, tmp_path, sigstore)(replace(demand, workflow="x")), str)


# --- invalid

ELSE = "https://github.com/evil/web"
DIGITS = IMAGE.digest.partition(":")[2]
OF_A_TASK = chains_v1()
OF_A_TASK["buildDefinition"]["resolvedDependencies"] = [
    {"uri": f"git+{WEB}", "name": "pipelineTask"}
]
LAW: list[tuple[str, Any, str, dict[str, Any]]] = [
    ("another repository", github_v1(repository=ELSE), "its source repository is 'https://github.com/evil/web'", {}),
    ("a longer repository", github_v1(repository=f"{WEB}-fork"), "its source repository is", {}),
    ("a login like a host", github_v1(repository="https://github.com@evil.example/acme/web"), "its source repo", {}),
    ("a way out of the owner", github_v1(repository="https://github.com/acme/../evil/web"), "is not specified", {}),
    ("another ref", github_v1(ref="refs/heads/dev"), "its ref is 'refs/heads/dev'", {}),
    ("a tag of that name", github_v1(ref="refs/tags/main"), "its ref is", {}),
    ("another workflow", github_v1(path=".github/workflows/pr.yml"), "its workflow is '.github/workflows/pr.yml'", {}),
    ("another builder", github_v1(builder="https://github.com/actions/runner/self-hosted"), "its builder is", {}),
    ("no builder", github_v1(builder=""), "its builder is not specified", {}),
    ("v0.2 with the words of v1", github_v1(), "its source repository is not specified", {"kind": V02}),
    ("v1 with the words of v0.2", generator_v02(), "its source repository is not specified", {"kind": V1}),
    ("another predicate", github_v1(), "it is not SLSA provenance", {"kind": "https://slsa.dev/verification_summary/v1"}),
    ("an older version", github_v1(), "it is not SLSA provenance", {"kind": "https://slsa.dev/provenance/v0.1"}),
    ("a version with a suffix", github_v1(), "it is not SLSA provenance", {"kind": f"{V1}/"}),
    ("another image", github_v1(), "for another image", {"digest": OTHER.digest}),
    ("no subject", github_v1(), "for another image", {"subject": []}),
    ("a subject with another algorithm", github_v1(), "for another", {"subject": [{"digest": {"sha512": DIGITS}}]}),
    ("the digest as a name", github_v1(), "for another image", {"subject": [{"name": IMAGE.digest, "digest": {}}]}),
    ("a statement of another type", github_v1(), "statement of an unknown type", {"_type": "https://in-toto.io/Link/v1"}),
    ("no statement type", github_v1(), "statement of an unknown type", {"_type": None}),
    ("a predicate that is a list", [github_v1()], "is not specified", {}),
    ("no predicate", None, "is not specified", {}),
    ("numbers for texts", github_v1(repository=1, ref=2), "is not specified", {}),  # type: ignore[arg-type]
    ("lists for mappings", {"buildDefinition": [], "runDetails": []}, "is not specified", {}),
    ("several sources", chains_v02(WEB, ELSE), "and 'https://github.com/evil/web'", {"kind": V02}),
    ("Chains of another source", chains_v1(repository=ELSE), "its source repository is 'https://github.com/evil", {}),
    ("what only a task's own code names", OF_A_TASK, "its source repository is not specified", {}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("predicate", "why", "how"), [one[1:] for one in LAW], ids=[one[0] for one in LAW]
)
@pytest.mark.parametrize("place", ["referrer", "tag"])
def test_wrong_statements_are_rejected_with_a_reason(
    server: RegistryApi,
    tmp_path: Path,
    sigstore: Sigstore,
    pair: cosign.Keys,
    predicate: Any,
    why: str,
    how: Any,
    place: str,
) -> None:
    content = statement(predicate, **how)
    asked = {**FULL, "builder": HOSTED}
    if place == "referrer":
        put(server, cosign.referrer(bundle(sigstore, content), IMAGE))
        answer = Asking(server, tmp_path, sigstore)(Demand("provenance", identities=(CI,), **asked))
    else:
        put(
            server,
            cosign.attestations((cosign.envelope(pair, content), {})),
            cosign.tag_of(IMAGE.digest, "att"),
        )
        answer = Asking(server, tmp_path, sigstore)(by_key(pair, **asked))
    assert isinstance(answer, str)
    assert answer.startswith("provenance: ")
    assert why in answer


WHO: list[tuple[str, dict[str, str], Identity, str]] = [
    ("another workflow signs", workflow(path=".github/workflows/pr.yml"), CI, "it is by"),
    ("another ref signs", workflow(ref="refs/pull/1/merge"), CI, "it is by"),
    ("another issuer", workflow(issuer="https://evil.example"), CI, "according to https://evil.example"),
    ("an issuer with more behind it", workflow(issuer=f"{GITHUB}.evil.example"), CI, "it is by"),
    ("an older field with another issuer", {**workflow(issuer="https://evil.example"), "1": GITHUB}, CI, "it is by"),
    ("a person", {"subject": "me@acme.example", "8": GITHUB}, CI, "it is by me@acme.example"),
    ("a glob does not cross a slash", workflow(), Identity("https://github.com/*/release.yml@**", GITHUB), "it is by"),
    ("a glob is of the whole text", workflow(), Identity("https://github.com/acme/**/release.yml", GITHUB), "it is by"),
    ("letters count", workflow(), Identity(CI.subject.replace("acme", "ACME"), GITHUB), "it is by"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("claims", "identity", "why"), [one[1:] for one in WHO], ids=[one[0] for one in WHO]
)
def test_wrong_signers_are_rejected_with_a_reason(
    server: RegistryApi,
    tmp_path: Path,
    sigstore: Sigstore,
    claims: dict[str, str],
    identity: Identity,
    why: str,
) -> None:
    put(server, cosign.referrer(bundle(sigstore, statement(github_v1()), claims), IMAGE, V1))
    answer = Asking(server, tmp_path, sigstore)(replace(ASKED, identities=(identity,)))
    assert isinstance(answer, str)
    assert "a signature is not by" in answer
    assert why in answer


def changed(made: bytes, act: Callable[[dict[str, Any]], None]) -> bytes:
    body = json.loads(made)
    act(body)
    return json.dumps(body).encode()


def another_payload(body: dict[str, Any]) -> None:
    body["dsseEnvelope"]["payload"] = base64.b64encode(
        statement(github_v1(), digest=IMAGE.digest) + b" "
    ).decode()


def another_type(body: dict[str, Any]) -> None:
    body["dsseEnvelope"]["payloadType"] = "application/json"


def no_signature(body: dict[str, Any]) -> None:
    body["dsseEnvelope"]["signatures"] = []


def two_signatures(body: dict[str, Any]) -> None:
    body["dsseEnvelope"]["signatures"] *= 2


def no_log(body: dict[str, Any]) -> None:
    body["verificationMaterial"]["tlogEntries"] = []


def no_promise(body: dict[str, Any]) -> None:
    del body["verificationMaterial"]["tlogEntries"][0]["inclusionPromise"]


def another_time(body: dict[str, Any]) -> None:
    body["verificationMaterial"]["tlogEntries"][0]["integratedTime"] = "1"


def a_key_and_no_certificate(body: dict[str, Any]) -> None:
    body["verificationMaterial"] = {"publicKey": {"hint": "x"}}


@pytest.mark.parametrize(
    "act",
    [
        another_payload, another_type, no_signature, two_signatures, no_log, no_promise, another_time,
        a_key_and_no_certificate,
    ],
)  # fmt: skip
def test_modified_bundles_are_rejected(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, act: Callable[[dict[str, Any]], None]
) -> None:
    good = bundle(sigstore, statement(github_v1()))
    put(server, cosign.referrer(changed(good, act), IMAGE, V1))
    answer = Asking(server, tmp_path, sigstore)(ASKED)
    assert isinstance(answer, str), answer
    assert answer.startswith("provenance: ")


@pytest.mark.parametrize("signatures", [[], None, [{"sig": ""}]])
@pytest.mark.parametrize("signer", ["identity", "key"])
@pytest.mark.parametrize("form", ["signature", "bundle", "envelope"])
def test_an_envelope_without_signatures_proves_nothing_in_any_form(
    server: RegistryApi,
    tmp_path: Path,
    sigstore: Sigstore,
    pair: cosign.Keys,
    form: str,
    signer: str,
    signatures: object,
) -> None:
    kind = cosign.SIGN if form == "signature" else V1
    content = statement({} if form == "signature" else github_v1(), kind)
    envelope, notes = sigstore.attested(content, workflow())
    body = json.loads(bundle(sigstore, content))
    if signer == "key":
        envelope, notes = cosign.envelope(pair, content), {}
        body["dsseEnvelope"] = json.loads(envelope)
        body["verificationMaterial"] = {"publicKey": {"hint": "x"}}

    def prove(change: Mapping[str, object]) -> Proof | str | TaskError:
        if form == "envelope":
            blob = json.dumps({**json.loads(envelope), **change}).encode()
            put(server, cosign.attestations((blob, notes)), cosign.tag_of(IMAGE.digest, "att"))
        else:
            unsigned = {**body, "dsseEnvelope": {**body["dsseEnvelope"], **change}}
            put(server, cosign.referrer(json.dumps(unsigned).encode(), IMAGE, kind))
        demand = by_key(pair) if signer == "key" else Demand("provenance", identities=(CI,))
        if form == "signature":
            demand = replace(demand, rule="signature")
        return Asking(server, tmp_path, sigstore)(demand)

    assert isinstance(prove({}), Proof)
    server.manifests = {
        digest: kept for digest, kept in server.manifests.items() if digest == IMAGE.digest
    }
    refusal = prove({"signatures": signatures})
    assert isinstance(refusal, str), refusal
    assert "a signature" in refusal


def test_a_bundle_from_another_sigstore_is_rejected(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore
) -> None:
    put(server, cosign.referrer(bundle(Sigstore(), statement(github_v1())), IMAGE, V1))
    assert "a signature is not by" in str(Asking(server, tmp_path, sigstore)(ASKED))


def test_a_bundle_with_a_duplicate_envelope_is_rejected(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore
) -> None:
    """A JSON object may contain a key twice. Parsers differ in which one they use."""
    good = bundle(sigstore, statement(github_v1(repository=ELSE)))
    forged = json.dumps({"payloadType": cosign.STATEMENT, "payload": base64.b64encode(statement(github_v1())).decode(),
                         "signatures": json.loads(good)["dsseEnvelope"]["signatures"]})  # fmt: skip
    for text in (
        good[:-1] + b', "dsseEnvelope": ' + forged.encode() + b"}",
        b'{"dsseEnvelope": ' + forged.encode() + b", " + good[1:],
    ):
        put(server, cosign.referrer(text, IMAGE, V1))
        answer = Asking(server, tmp_path, sigstore)(ASKED)
        assert isinstance(answer, str), answer


@pytest.mark.parametrize("form", ["key", "identity"])
def test_a_signature_from_an_unknown_key_is_rejected(
    server: RegistryApi,
    tmp_path: Path,
    sigstore: Sigstore,
    pair: cosign.Keys,
    stranger: cosign.Keys,
    form: str,
) -> None:
    content = statement(chains_v1())
    put(
        server,
        cosign.attestations((cosign.envelope(stranger, content), {})),
        cosign.tag_of(IMAGE.digest, "att"),
    )
    demand = by_key(pair, source_repository=WEB) if form == "key" else ASKED
    answer = str(Asking(server, tmp_path, sigstore)(demand))
    assert (
        "not made with the required key" in answer
        if form == "key"
        else "with a key, not by an identity" in answer
    )


@pytest.mark.parametrize(
    "blob",
    [
        b"", b"[]", b"{", b"null", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe",
        b"a: &a [1]\nb: &b [*a,*a,*a]\n", b'{"payload": 1}', b'{"payloadType": "application/vnd.in-toto+json"}',
    ],
)  # fmt: skip
def test_unreadable_statements_are_rejected(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, pair: cosign.Keys, blob: bytes
) -> None:
    put(server, cosign.attestations((blob, {})), cosign.tag_of(IMAGE.digest, "att"))
    put(server, cosign.referrer(blob, IMAGE, V1))
    answer = Asking(server, tmp_path, sigstore)(
        replace(by_key(pair, source_repository=WEB), identities=(CI,))
    )
    assert isinstance(answer, str)
    assert "cannot be read" in answer


@pytest.mark.parametrize("nested", ['{"a":' * 3000 + "1" + "}" * 3000, "[" * 50_000 + "]" * 50_000])
def test_a_deeply_nested_predicate_is_rejected(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, pair: cosign.Keys, nested: str
) -> None:
    content = statement("NESTED").replace(b'"NESTED"', nested.encode())
    put(
        server,
        cosign.attestations((cosign.envelope(pair, content), {})),
        cosign.tag_of(IMAGE.digest, "att"),
    )
    assert isinstance(Asking(server, tmp_path, sigstore)(by_key(pair, source_repository=WEB)), str)


def test_a_statement_that_is_too_large_is_not_read(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, pair: cosign.Keys
) -> None:
    content = statement({**github_v1(), "x": "x" * LARGEST})
    put(
        server,
        cosign.attestations((cosign.envelope(pair, content), {})),
        cosign.tag_of(IMAGE.digest, "att"),
    )
    answer = Asking(server, tmp_path, sigstore)(by_key(pair, source_repository=WEB))
    assert (
        answer
        == "provenance: the registry has no provenance; .image-update/config, line 0, requires it"
    )
    lie = cosign.attestations((cosign.envelope(pair, content), {}))
    kind, body = lie.manifests[lie.digest]
    short = json.loads(body)
    short["layers"][0]["size"] = 10
    server.manifests[lie.digest] = (kind, json.dumps(short).encode())
    assert isinstance(
        Asking(server, tmp_path, sigstore)(by_key(pair, source_repository=WEB)), str | TaskError
    )


def test_one_statement_must_meet_all_required_values(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, pair: cosign.Keys
) -> None:
    first, second = github_v1(ref="refs/heads/dev"), github_v1(path=".github/workflows/pr.yml")
    parts: list[tuple[bytes, dict[str, str]]] = [
        (cosign.envelope(pair, statement(one)), {}) for one in (first, second)
    ]
    att = cosign.tag_of(IMAGE.digest, "att")
    put(server, cosign.attestations(*parts), att)
    asking, demand = (
        Asking(server, tmp_path, sigstore),
        by_key(pair, ref="refs/heads/main", workflow=RELEASE),
    )
    assert "(none of the 2 statements is valid)" in str(asking(demand))
    put(
        server,
        cosign.attestations(*parts, (cosign.envelope(pair, statement(github_v1())), {})),
        att,
    )
    assert isinstance(asking(demand), Proof)
    both = (demand, by_key(pair, ref="refs/heads/dev"))
    assert isinstance(asking(*both), Proof)
    assert isinstance(asking(*both, by_key(pair, ref="refs/heads/other")), str)


def test_attestations_and_signatures_are_not_interchangeable(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, pair: cosign.Keys
) -> None:
    put(server, cosign.referrer(bundle(sigstore, statement(github_v1())), IMAGE))
    asking = Asking(server, tmp_path, sigstore)
    assert "it is an attestation, not a signature" in str(
        asking(Demand("signature", identities=(CI,)))
    )
    put(server, cosign.signed(pair, IMAGE.digest), cosign.tag_of(IMAGE.digest))
    keys = by_key(pair, source_repository=WEB)
    assert isinstance(asking(Demand("signature", texts=keys.texts)), Proof)
    assert isinstance(asking(keys), str)


def test_unrelated_attestations_are_not_fetched(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, pair: cosign.Keys
) -> None:
    for number in range(40):
        sbom = cosign.envelope(pair, statement({"n": number}, "https://spdx.dev/Document"))
        put(
            server,
            cosign.referrer(b'{"dsseEnvelope": ' + sbom + b"}", IMAGE, "https://spdx.dev/Document"),
            f"s{number}",
        )
    put(server, cosign.referrer(bundle(sigstore, statement(github_v1())), IMAGE, V1))
    server.seen.clear()
    assert isinstance(Asking(server, tmp_path, sigstore)(ASKED), Proof)
    assert len(server.seen) <= 6, server.asked


def requests(server: RegistryApi, asking: Asking, *demands: Demand) -> int:
    server.seen.clear()
    answer = asking(*demands)
    assert isinstance(answer, Proof), answer
    return len([one for one in server.seen if "/log/" not in one.path and one.path != "/v2/"])


@pytest.mark.parametrize("tool", ["cosign 2", "cosign 3", "Chains"])
def test_provenance_takes_at_most_two_more_requests_than_a_signature(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, pair: cosign.Keys, tool: str
) -> None:
    content = statement(github_v1())
    if tool == "cosign 3":
        put(
            server,
            cosign.referrer(bundle(sigstore, statement({}, cosign.SIGN)), IMAGE, cosign.SIGN),
            "sig",
        )
        put(server, cosign.referrer(bundle(sigstore, content), IMAGE, V1), "att")
    elif tool == "cosign 2":
        signed, notes = sigstore.of_layer(cosign.payload(IMAGE.digest), workflow())
        put(
            server,
            cosign.signatures(cosign.layer(cosign.payload(IMAGE.digest), signed, **notes)),
            cosign.tag_of(IMAGE.digest),
        )
        put(
            server,
            cosign.attestations(sigstore.attested(content, workflow())),
            cosign.tag_of(IMAGE.digest, "att"),
        )
    else:
        put(server, cosign.signed(pair, IMAGE.digest), cosign.tag_of(IMAGE.digest))
        put(
            server,
            cosign.attestations((cosign.envelope(pair, content), {})),
            cosign.tag_of(IMAGE.digest, "att"),
        )
    asking = Asking(server, tmp_path, sigstore)
    demand = by_key(pair, source_repository=WEB) if tool == "Chains" else ASKED
    signature = replace(demand, rule="signature", source_repository="")
    alone = requests(server, asking, signature)
    assert requests(server, asking, demand) <= alone + 2
    assert requests(server, asking, signature, demand) <= alone + 2


def test_the_check_waits_for_a_late_statement(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.registry.proofs._PAUSES", (0.05,))
    made = cosign.referrer(bundle(sigstore, statement(github_v1())), IMAGE, V1)
    asked: list[object] = []

    def late(seen: object) -> None:
        asked.append(seen)
        if len(asked) == 3:
            put(server, made)

    server.faults[f"/referrers/{IMAGE.digest}"] = late
    assert isinstance(Asking(server, tmp_path, sigstore, timeout=30)(ASKED), Proof)


def test_an_unavailable_transparency_log_causes_a_temporary_error(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore
) -> None:
    signed, notes = sigstore.of_layer(cosign.payload(IMAGE.digest), workflow())
    put(
        server,
        cosign.signatures(cosign.layer(cosign.payload(IMAGE.digest), signed, **notes)),
        cosign.tag_of(IMAGE.digest),
    )
    asking = Asking(server, tmp_path, sigstore)
    server.faults[f"logIndex={sigstore.index}"] = lambda _: (503, {}, b"")
    assert isinstance(asking(Demand("signature", identities=(CI,))), RegistryDownError)
    server.faults[f"logIndex={sigstore.index}"] = lambda _: (404, {}, b"{}")
    assert "not in the transparency log" in str(asking(Demand("signature", identities=(CI,))))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"mediaType": "x"}', "\xff"])
def test_an_invalid_trust_root_causes_a_usage_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "root.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="--trust-root"):
        keyless.Sigstore(print, str(path))


def test_an_invalid_key_in_the_repository_causes_an_error(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore
) -> None:
    demand = Demand("signature", ("ci.pub",), texts=(("ci.pub", "hello"),), line=4)
    answer = Asking(server, tmp_path, sigstore)(demand)
    assert isinstance(answer, TaskError)
    assert (
        ".image-update/config, line 4: ci.pub: it does not contain a public key" in answer.message
    )


def test_the_old_issuer_field_is_used_if_the_new_field_is_missing(
    server: RegistryApi, tmp_path: Path, sigstore: Sigstore
) -> None:
    claims = workflow()
    old = {**{key: value for key, value in claims.items() if key != "8"}, "1": GITHUB}
    put(
        server,
        cosign.referrer(bundle(sigstore, statement({}, cosign.SIGN), old), IMAGE, cosign.SIGN),
    )
    assert isinstance(
        Asking(server, tmp_path, sigstore)(Demand("signature", identities=(CI,))), Proof
    )


def test_the_workflow_must_belong_to_the_source_repository() -> None:
    gitlab = "https://gitlab.com/acme/web"
    found = of_certificate(
        "https://gitlab.com",
        {"12": gitlab, "14": "refs/heads/main", "18": f"{gitlab}//.gitlab-ci.yml@refs/heads/main"},
    )
    assert (found.workflow, found.builders) == (".gitlab-ci.yml", ())
    other = of_certificate(GITHUB, {**workflow(), "18": f"{ELSE}/{RELEASE}@refs/heads/main"})
    assert other.workflow == ""
    assert objection(other, Demand("provenance", workflow=RELEASE))


@pytest.mark.parametrize(
    ("config", "ref", "expected"),
    [
        (f"{WEB}/{RELEASE}@x.yml@refs/heads/main", "refs/heads/main", f"{RELEASE}@x.yml"),
        (f"{WEB}/{RELEASE}@refs/heads/x@y", "refs/heads/x@y", RELEASE),
        (f"{WEB}/{RELEASE}@refs/heads/main", "refs/heads/other", ""),
        (f"{WEB}/{RELEASE}", "", ""),
    ],
)
def test_the_workflow_name_ends_before_the_ref(config: str, ref: str, expected: str) -> None:
    """Once, `release.yml@x.yml` was accepted as `release.yml`."""
    found = of_certificate(GITHUB, {**workflow(), "14": ref, "18": config})
    assert found.workflow == expected


@pytest.mark.parametrize("value", [None, 1, [], {}, "x", [[]], [{"uri": 1}], [None]])
def test_statements_of_any_shape_never_crash(value: Any) -> None:
    for kind, made in (
        (V1, github_v1()),
        (V02, generator_v02()),
        (V1, chains_v1()),
        (V02, chains_v02()),
    ):
        for key in made:
            origin_of({"predicateType": kind, "predicate": {**made, key: value}})
            inner = made[key]
            for deep in inner if isinstance(inner, dict) else ():
                origin_of(
                    {"predicateType": kind, "predicate": {**made, key: {**inner, deep: value}}}
                )
