"""Parses image signatures, signed statements about images, and the public keys that verify them.

Pure functions.

There are two signature formats. cosign 1 and 2, as well as Tekton Chains, store a "simple signing"
payload, whose signature is in an annotation on its layer. cosign 3 stores a Sigstore bundle, which
is an in-toto statement in a DSSE envelope. Attestations are such bundles, too, or (in cosign 1 and
2 and Chains) bare envelopes. Sources: cosign's SIGNATURE_SPEC, ATTESTATION_SPEC, and BUNDLE_SPEC,
the DSSE protocol, and the in-toto statement.

Provenance states where an image was built, which is compared with the demand. Sources: the SLSA
provenance predicates v0.2 and v1, the build types of GitHub's workflows, and the provenance that
slsa-github-generator, actions/attest-build-provenance, GitLab's runner, and Tekton Chains write.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from task.errors import Malformed
from task.plain_data import elements, mapping, mappings, parsed_json, text, texts, value_at
from task.proof import Demand
from task.text import fits_glob, shortened

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle"  # followed by .v0.3+json or +json;version=0.2
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
# prefixes of the artifact types that signatures have
ARTIFACTS = (
    "application/vnd.dev.cosign.artifact.sig.v1+json",
    BUNDLE,
)
MOST = 32  # the maximum number of signatures to check per image
LARGEST = 1024 * 1024  # maximum size of a signature, in bytes
_TYPE = "cosign container image signature"
_STATEMENT_MEDIA_TYPE = "application/vnd.in-toto+json"
# a signature's predicate; all other predicates belong to attestations (provenance, SBOM)
SIGNED = "https://sigstore.dev/cosign/sign/v1"
_STATEMENT_TYPES = ("https://in-toto.io/Statement/v0.1", "https://in-toto.io/Statement/v1")
_ANNOTATION = "dev.cosignproject.cosign/signature"
_CERTIFICATE = "dev.sigstore.cosign/certificate"
_LOGGED = "dev.sigstore.cosign/bundle"
# an annotation on artifacts that refer to an image
_PREDICATE = "dev.sigstore.bundle.predicateType"
Form = Literal["payload", "bundle", "envelope"]
_FORMS: Mapping[str, Form] = {PAYLOAD: "payload", ENVELOPE: "envelope"}
_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=\s]+-----END PUBLIC KEY-----", re.ASCII)
# Matches a URI such as `git+https://github.com/acme/web@refs/heads/main`. The groups are the
# scheme, the host and path without credentials or `.git`, and the ref.
_REPOSITORY = re.compile(
    r"(?:git\+)?(https?|ssh|git)://(?:[^/@]*@)?([^/@]+(?:/[^@]*?)?)(?:\.git)?/?(?:@(.+))?",
    re.DOTALL,
)
_TEKTON = re.compile(r"(?:https://)?tekton\.dev/")


@dataclass(frozen=True)
class Layer:
    """A manifest layer that contains a signature or a signed statement."""

    digest: str
    form: Form
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class Signed:
    """A signature: the signed bytes, and the images that they refer to."""

    form: Form
    content: bytes  # the signed bytes
    signatures: tuple[bytes, ...]
    digests: tuple[str, ...]
    raw: bytes = b""  # the bundle or envelope as stored
    certificate: str = ""  # PEM; only for payloads and envelopes with keyless signatures
    log_index: int = -1  # the index of the signature's entry in the transparency log
    statement: Mapping[str, Any] | None = None  # an attestation's statement


def signature_tag(digest: str, ending: str = "sig") -> str:
    """Return the tag under which cosign stores an image's signatures or, for the ending "att", its
    attestations.
    """
    return f"{digest.replace(':', '-')}.{ending}"


def layers(manifest: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Return those layers of a manifest that contain a signature or a signed statement. Layers that
    are too large are skipped.
    """
    signed_layers = []
    for raw in elements(manifest, "layers")[:MOST]:
        media_type = text(raw, "mediaType")
        form = "bundle" if media_type.startswith(BUNDLE) else _FORMS.get(media_type)
        digest = text(raw, "digest")
        size = value_at(raw, "size")
        is_small = isinstance(size, int) and size <= LARGEST
        if form and digest and is_small:
            signed_layers.append(Layer(digest, form, texts(raw, "annotations")))
    return tuple(signed_layers)


def predicate_of(annotations: Mapping[str, str]) -> str:
    """Return the predicate (a URL that identifies the type of statement) that a referrer's or
    layer's annotations claim, or "" if they claim none.
    """
    return annotations.get(_PREDICATE) or annotations.get("predicateType", "")


def parse_signature(layer: Layer, blob: bytes) -> Signed:
    """Parse the signature in a layer without verifying it. `blob` is the layer's content. Raises
    `Malformed`.
    """
    if len(blob) > LARGEST:
        raise Malformed(f"it is larger than {LARGEST // 1024} KiB")
    if layer.form == "payload":
        return _payload(layer, blob)
    data = _json(blob)
    envelope = mapping(data, "dsseEnvelope") if layer.form == "bundle" else data
    return _statement(layer, blob, envelope)


def _payload(layer: Layer, blob: bytes) -> Signed:
    """Parse a "simple signing" payload (cosign 1 and 2), whose signature is in an annotation on its
    layer. Raises `Malformed`.
    """
    critical = mapping(_json(blob), "critical")
    if critical.get("type") != _TYPE:
        raise Malformed("it is not an image signature")
    signature = _decode_base64(layer.annotations.get(_ANNOTATION, ""))
    digest = text(critical, "image", "docker-manifest-digest")
    certificate, log_index = _certificate_and_log_index(layer)
    return Signed(
        form="payload",
        content=blob,
        signatures=(signature,),
        digests=(digest,) if digest else (),
        certificate=certificate,
        log_index=log_index,
    )


def _certificate_and_log_index(layer: Layer) -> tuple[str, int]:
    """Return the certificate from a layer's annotations ("" if there is none), and the index of the
    signature's entry in the transparency log (-1 if there is none).
    """
    certificate = layer.annotations.get(_CERTIFICATE, "")
    logged = _json(layer.annotations.get(_LOGGED, "{}"))
    index = value_at(logged, "Payload", "logIndex")
    if not isinstance(index, int):
        index = -1
    return certificate, index


def _statement(layer: Layer, blob: bytes, envelope: Mapping[str, Any]) -> Signed:
    """Parse a DSSE envelope (signed JSON) that contains an in-toto statement about an image. `blob`
    is the layer's content: either the envelope itself, or its bundle. Raises `Malformed`.
    """
    payload_type = envelope.get("payloadType")
    payload = _decode_base64(envelope.get("payload"))
    if payload_type != _STATEMENT_MEDIA_TYPE:
        raise Malformed(f"it is a {layer.form} without a statement about an image")
    statement = _json(payload)

    digests = []
    for subject in elements(statement, "subject"):
        digits = text(subject, "digest", "sha256")
        if digits:
            digests.append(f"sha256:{digits}")
    signatures = [
        _decode_base64(mapping(entry).get("sig"))
        for entry in elements(envelope, "signatures")[:MOST]
    ]

    # a cosign 3 signature is also a statement, with its own predicate
    is_attestation = layer.form == "envelope" or statement.get("predicateType") != SIGNED
    if is_attestation and statement.get("_type") not in _STATEMENT_TYPES:
        raise Malformed("it has a statement of an unknown type")
    certificate, log_index = _certificate_and_log_index(layer)
    return Signed(
        form=layer.form,
        content=dsse_encoding(payload_type, payload),
        signatures=tuple(signatures),
        digests=tuple(digests),
        raw=blob,
        certificate=certificate,
        log_index=log_index,
        statement=statement if is_attestation else None,
    )


def dsse_encoding(payload_type: str, content: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding, which is what a DSSE signature covers."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(content), content)


def public_keys(text: str) -> tuple[str, ...]:
    """Return the public keys in the text of a PEM file, each as PEM. Raises `Malformed`."""
    if "PRIVATE KEY-----" in text:
        raise Malformed("it contains a private key", hint="use the public key, cosign.pub")
    keys = tuple(f"{pem}\n" for pem in _KEY.findall(text))
    if not keys:
        raise Malformed(
            "it does not contain a public key",
            hint="use cosign.pub, or the output of `cosign public-key --key …`",
        )
    return keys


def as_bundle(signature: Signed, entry: Mapping[str, Any]) -> str:
    """Convert a signature in one of cosign's older formats to a Sigstore bundle, as JSON text. The
    bundle consists of the payload or envelope, its certificate, and its `entry` in the transparency
    log (Rekor).

    Nothing is verified here, because everything is checked when the bundle is verified. Raises
    `Malformed`.
    """
    try:
        # -----BEGIN CERTIFICATE-----<base64, on several lines>-----END CERTIFICATE-----
        _, _begin, base64_lines, *_end = signature.certificate.split("-----")
        certificate = "".join(base64_lines.split())
        log_entry = _log_entry_for_bundle(entry)
    except (LookupError, TypeError, ValueError):
        raise Malformed("its entry in the transparency log cannot be read") from None
    bundle: dict[str, Any] = {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {
            "certificate": {"rawBytes": certificate},
            "tlogEntries": [log_entry],
        },
    }
    if signature.form == "payload":
        digest = b64encode(sha256(signature.content).digest()).decode()
        bundle["messageSignature"] = {
            "messageDigest": {"algorithm": "SHA2_256", "digest": digest},
            "signature": b64encode(signature.signatures[0]).decode(),
        }
    else:
        bundle["dsseEnvelope"] = _json(signature.raw)
    return json.dumps(bundle)


def _log_entry_for_bundle(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a transparency log entry to the format required in a bundle.

    Raises `LookupError`, `TypeError`, or `ValueError` for an invalid entry.
    """
    verification = entry["verification"]
    proof = verification["inclusionProof"]
    body = _json(_decode_base64(entry["body"]))
    return {
        "logIndex": str(entry["logIndex"]),
        "logId": {"keyId": _hex_to_base64(entry["logID"])},
        "kindVersion": {"kind": body["kind"], "version": body["apiVersion"]},
        "integratedTime": str(entry["integratedTime"]),
        "inclusionPromise": {"signedEntryTimestamp": verification["signedEntryTimestamp"]},
        "inclusionProof": {
            "logIndex": str(proof["logIndex"]),
            "rootHash": _hex_to_base64(proof["rootHash"]),
            "treeSize": str(proof["treeSize"]),
            "hashes": [_hex_to_base64(digits) for digits in proof["hashes"]],
            "checkpoint": {"envelope": proof["checkpoint"]},
        },
        "canonicalizedBody": entry["body"],
    }


def _hex_to_base64(text: str) -> str:
    return b64encode(bytes.fromhex(text)).decode()


def _json(raw: bytes | str) -> Mapping[str, Any]:
    try:
        return mapping(parsed_json(raw))
    except ValueError:
        raise Malformed("it is not JSON") from None


def _decode_base64(text: Any) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise Malformed("its signature cannot be read") from None


@dataclass(frozen=True)
class BuildOrigin:
    """Where an image was built; unknown fields are empty."""

    kind: Literal["certificate", "slsa-v0.2", "slsa-v1"]
    repositories: tuple[str, ...] = ()  # source repositories; each must match the demand
    ref: str = ""
    workflow: str = ""
    builders: tuple[str, ...] = ()  # the builder's names; any of them may match the demand


def objection(origin: BuildOrigin, demand: Demand) -> str:
    """Return the reason why a build's origin does not match the demand, or "" if it does.

    Each non-empty field of the demand is a glob for the corresponding field of the origin.
    """
    for what, values, glob in (
        ("source repository", origin.repositories, demand.source_repository),
        ("ref", (origin.ref,), demand.ref),
        ("workflow", (origin.workflow,), demand.workflow),
        ("builder", origin.builders, demand.builder),
    ):
        if not glob:
            continue
        known_values = [value for value in values if value]
        if not known_values:
            return f"its {what} is not specified, but {glob!r} is required"
        matches = [fits_glob(glob, value) for value in known_values]
        # A builder may have two names, either of which may match. But if an image was built from
        # two repositories, the demand must match both.
        is_met = any(matches) if what == "builder" else all(matches)
        if not is_met:
            shown = " and ".join(repr(shortened(value)) for value in known_values)
            return f"its {what} is {shown}, but {glob!r} is required"
    return ""


def origin_of(statement: Mapping[str, Any]) -> BuildOrigin:
    """Return where an image was built, according to a statement about it.

    Raises `Malformed` if the statement is not SLSA provenance.
    """
    predicate_type = text(statement, "predicateType")
    parse_predicate = PREDICATES.get(predicate_type)
    if parse_predicate is None:
        raise Malformed(f"it is not SLSA provenance, but {shortened(predicate_type, 80)!r}")
    return parse_predicate(mapping(statement, "predicate"))


def _v0_2(predicate: Mapping[str, Any]) -> BuildOrigin:
    """Return where an image was built, according to an SLSA v0.2 predicate (the content of a
    provenance statement).
    """
    source = mapping(predicate, "invocation", "configSource")
    # Tekton's config source is the source of the pipeline, not of the image
    if _TEKTON.match(text(predicate, "buildType")):
        repositories = _git_dependencies(mappings(predicate, "materials"))
        ref = ""
    else:
        repository, ref = _repository(source.get("uri"))
        repositories = [repository]
    return BuildOrigin(
        kind="slsa-v0.2",
        repositories=_without_duplicates(repositories),
        ref=ref,
        workflow=_path(source.get("entryPoint")),
        builders=_without_duplicates([text(predicate, "builder", "id")]),
    )


def _v1(predicate: Mapping[str, Any]) -> BuildOrigin:
    """Return where an image was built, according to an SLSA v1 predicate (the content of a
    provenance statement), which describes a GitHub workflow, a Tekton run, or a GitLab job, or at
    least lists dependencies.
    """
    definition = mapping(predicate, "buildDefinition")
    parameters = mapping(definition, "externalParameters")
    workflow = mapping(parameters, "workflow")
    dependencies = mappings(definition, "resolvedDependencies")
    path = _path(workflow.get("path"))
    ref = text(workflow, "ref")

    if workflow:  # GitHub
        repository, _ref = _repository(workflow.get("repository"))
        repositories = [repository]
    elif _TEKTON.match(text(definition, "buildType")):
        run = mapping(parameters, "runSpec")
        path = text(run, "pipelineRef", "name") or text(run, "taskRef", "name")
        # the other dependencies include repositories that contain the pipeline and its tasks
        results = (item for item in dependencies if item.get("name") == "inputs/result")
        repositories = _git_dependencies(results)
    elif isinstance(parameters.get("source"), str):  # GitLab
        repository, _ref = _repository(parameters["source"])
        repositories = [repository]
        path = _path(parameters.get("entryPoint"))
    else:
        repositories = _git_dependencies(dependencies)
        ref = _only_ref(dependencies)
    return BuildOrigin(
        kind="slsa-v1",
        repositories=_without_duplicates(repositories),
        ref=ref,
        workflow=path,
        builders=_without_duplicates([text(predicate, "runDetails", "builder", "id")]),
    )


PREDICATES: Mapping[str, Callable[[Mapping[str, Any]], BuildOrigin]] = {
    "https://slsa.dev/provenance/v0.2": _v0_2,
    "https://slsa.dev/provenance/v1": _v1,
}


def of_certificate(issuer: str, claims: Mapping[str, str]) -> BuildOrigin:
    """Return where an image was built, according to the claims in a keyless signature's
    certificate. The keys of `claims` are the last components of the OIDs of Fulcio's extensions.
    """
    signer = claims.get("9", "")
    runner = claims.get("11", "")
    repository = claims.get("12", "")
    ref = claims.get("14", "")
    config = claims.get("18", "")  # the build config: REPOSITORY/WORKFLOW@REF

    workflow = ""
    # The claim about the ref reveals where the file's name ends, which may contain an `@` itself,
    # as in `release.yml@x.yml`.
    if config.startswith(f"{repository}/") and config.endswith(f"@{ref}"):
        workflow = config.removeprefix(f"{repository}/").removesuffix(f"@{ref}").lstrip("/")

    builders = [signer]
    # GitHub's claim is just a name ("github-hosted"), but its provenance contains this URL.
    by_github = issuer.startswith("https://token.actions.githubusercontent.com")
    if runner and by_github:
        builders.append(f"https://github.com/actions/runner/{runner}")
    return BuildOrigin(
        kind="certificate",
        repositories=_without_duplicates([repository]),
        ref=ref,
        workflow=workflow,
        builders=_without_duplicates(builders),
    )


def _repository(uri: object) -> tuple[str, str]:
    """Split a URI, such as `git+https://github.com/acme/web@refs/heads/main`, into the repository
    (`https://github.com/acme/web`) and the ref (`refs/heads/main`). Both are "" if the URI does not
    refer to a repository.
    """
    match = _REPOSITORY.fullmatch(text(uri))
    if match is None:
        return "", ""
    scheme, host_and_path, ref = match.groups()
    if ".." in host_and_path.split("/"):
        return "", ""
    return f"{scheme}://{host_and_path}", ref or ""


def _git_dependencies(dependencies: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the URLs of all Git repositories among a build's dependencies."""
    repositories = []
    for dependency in dependencies:
        uri = text(dependency, "uri")
        if uri.startswith("git+") or uri.endswith(".git"):
            repository, _ref = _repository(uri)
            repositories.append(repository or uri)
    return repositories


def _only_ref(dependencies: Iterable[Mapping[str, Any]]) -> str:
    """Return the ref that the URIs of a build's dependencies contain, or "" if there is none or
    more than one.
    """
    refs = set()
    for dependency in dependencies:
        _repository_url, ref = _repository(dependency.get("uri"))
        if ref:
            refs.add(ref)
    return refs.pop() if len(refs) == 1 else ""


def _path(value: object) -> str:
    return text(value).removeprefix("./")


def _without_duplicates(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for item in texts if item))
