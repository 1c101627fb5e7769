"""Tiny images of a few bytes: as content to serve, as an OCI layout, or pushed to a registry. No
network access is needed.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import requests

OCI, DOCKER = "oci", "docker"
TYPES = {
    OCI: ("application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"),
    DOCKER: (
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    ),
}
CONFIGS = {
    OCI: "application/vnd.oci.image.config.v1+json",
    DOCKER: "application/vnd.docker.container.image.v1+json",
}
LAYERS = {
    OCI: "application/vnd.oci.image.layer.v1.tar",
    DOCKER: "application/vnd.docker.image.rootfs.diff.tar",
}


class Content(NamedTuple):
    """The content of an image in a registry: blobs, manifests (parts first), and the digest of the
    top manifest.
    """

    blobs: dict[str, bytes]
    manifests: dict[str, tuple[str, bytes]]
    digest: str
    platform: str = ""

    @property
    def size(self) -> int:
        """The size of the top manifest in bytes."""
        return len(self.manifests[self.digest][1])


def digest_of(body: bytes) -> str:
    """Return the digest of these bytes."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def image(
    platform: str = "linux/amd64",
    created: str | None = "2026-01-02T03:04:05Z",
    labels: Mapping[str, str] | None = None,
    kind: str = OCI,
    seed: str = "",
) -> Content:
    """Return an image for one platform. `seed` distinguishes images that would otherwise be
    identical.
    """
    os, arch, variant = (*platform.split("/"), "", "")[:3]
    layer = f"layer {platform} {seed}".encode()
    config: dict[str, Any] = {
        "os": os,
        "architecture": arch,
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
    }
    config |= {"variant": variant} if variant else {}
    config |= {"created": created} if created is not None else {}
    config["config"] = {"Labels": dict(labels)} if labels else {}
    body = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": TYPES[kind][0],
        "config": {"mediaType": CONFIGS[kind], "digest": digest_of(body), "size": len(body)},
        "layers": [{"mediaType": LAYERS[kind], "digest": digest_of(layer), "size": len(layer)}],
    }
    return whole(
        manifest,
        TYPES[kind][0],
        {digest_of(body): body, digest_of(layer): layer},
        platform=platform,
    )


def attestation(subject: Content) -> tuple[Content, dict[str, Any]]:
    """Return the attestation for an image that BuildKit adds to the index, and the attestation's
    entry in the index.
    """
    made = image("unknown/unknown", None, seed=f"attestation of {subject.digest}")
    notes = {
        "vnd.docker.reference.type": "attestation-manifest",
        "vnd.docker.reference.digest": subject.digest,
    }
    return made, {"platform": {"os": "unknown", "architecture": "unknown"}, "annotations": notes}


def index(
    images: Sequence[Content],
    *,
    kind: str = OCI,
    attested: bool = False,
    extra: Sequence[tuple[Content, Any]] = (),
) -> Content:
    """Return an index: an image for several platforms."""
    parts = [(one, {"platform": _platform(one.platform)}) for one in images]
    parts += [attestation(one) for one in images] if attested else []
    parts += extra
    entries = [
        {"mediaType": one.manifests[one.digest][0], "digest": one.digest, "size": one.size, **more}
        for one, more in parts
    ]
    body = {"schemaVersion": 2, "mediaType": TYPES[kind][1], "manifests": entries}
    blobs = {digest: blob for one, _ in parts for digest, blob in one.blobs.items()}
    manifests = {digest: kept for one, _ in parts for digest, kept in one.manifests.items()}
    return whole(body, TYPES[kind][1], blobs, manifests)


def whole(
    data: Mapping[str, Any],
    media_type: str,
    blobs: dict[str, bytes],
    parts: Mapping[str, tuple[str, bytes]] | None = None,
    platform: str = "",
) -> Content:
    """Return the content that has this manifest at the top."""
    body = json.dumps(data).encode()
    return Content(
        blobs, {**(parts or {}), digest_of(body): (media_type, body)}, digest_of(body), platform
    )


def layout(folder: Path, tags: Mapping[str, Content]) -> Path:
    """Write an OCI image layout for skopeo, `oci:FOLDER:TAG`, and return its path."""
    (folder / "blobs/sha256").mkdir(parents=True)
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    entries = []
    for tag, content in tags.items():
        bodies = content.blobs | {digest: body for digest, (_, body) in content.manifests.items()}
        for digest, body in bodies.items():
            (folder / "blobs/sha256" / digest.partition(":")[2]).write_bytes(body)
        named = {"annotations": {"org.opencontainers.image.ref.name": tag}}
        media_type = content.manifests[content.digest][0]
        entries.append(
            {"mediaType": media_type, "digest": content.digest, "size": content.size, **named}
        )
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))
    return folder


def push(url: str, repository: str, tag: str, content: Content, **how: Any) -> None:
    """Push an image to a registry. `how` contains arguments for requests (auth, headers,
    verify).
    """
    base = f"{url}/v2/{repository}"
    for digest, blob in content.blobs.items():
        started = _sent("POST", f"{base}/blobs/uploads/", b"", how)
        place = started.headers["Location"]
        place = place if "://" in place else url + place
        _sent(
            "PUT",
            f"{place}{'&' if '?' in place else '?'}digest={digest}",
            blob,
            how,
            "application/octet-stream",
        )
    for digest, (media_type, body) in content.manifests.items():
        name = tag if digest == content.digest else digest
        _sent("PUT", f"{base}/manifests/{name}", body, how, media_type)


def _sent(
    method: str, url: str, body: bytes, how: dict[str, Any], media_type: str = ""
) -> requests.Response:
    headers = {**how.get("headers", {}), **({"Content-Type": media_type} if media_type else {})}
    rest = {key: value for key, value in how.items() if key != "headers"}
    answer = requests.request(method, url, data=body, headers=headers, timeout=20, **rest)
    assert answer.status_code in (201, 202), f"{method} {url}: {answer.status_code} {answer.text}"
    return answer


def _platform(text: str) -> dict[str, str]:
    return dict(zip(("os", "architecture", "variant"), text.split("/"), strict=False))
