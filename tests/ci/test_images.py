"""Images read from files written by image builders, and the errors for other files."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import image_update, runs

from task.ci.events.forms import LARGEST
from task.ci.images import MOST, Built, event_images, images_of_builder, with_built
from task.ci.images_from import read_images_from
from task.errors import Malformed, UsageError
from task.text import without_logins

DIGEST = f"sha256:{'a' * 64}"


def plan(tmp_path: Path, *arguments: str) -> dict[str, object]:
    apps = runs.manifest(tmp_path, runs.application("web", runs.repository(tmp_path, "web")))
    given = [
        "--applications",
        str(apps),
        "--allow-protocol",
        "file",
        "--output",
        "json",
        *arguments,
    ]
    done = image_update("plan", *given)
    assert done.code == 0, done.stderr
    (image,) = json.loads(done.stdout)["images"]
    return dict(image)


@pytest.mark.slow
def test_the_image_is_read_from_the_file_that_the_builder_wrote(tmp_path: Path) -> None:
    path = tmp_path / "metadata.json"
    path.write_text(
        json.dumps({"image.name": f"{runs.WEB}:1.1.0", "containerimage.digest": DIGEST})
    )
    image = plan(tmp_path, "--images-from", str(path))
    assert (image["tag"], image["digest"]) == ("1.1.0", DIGEST)


def test_a_digest_file_completes_the_image(tmp_path: Path) -> None:
    path = tmp_path / "digest"
    path.write_text(DIGEST)
    image = plan(tmp_path, "--images-from", str(path), "--image", f"{runs.WEB}:1.1.0")
    assert (image["tag"], image["digest"]) == ("1.1.0", DIGEST)


def test_a_reference_without_a_tag_receives_the_tag_from_the_option(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_text(f"{runs.WEB}@{DIGEST}\n")
    image = plan(tmp_path, "--images-from", str(path), "--tag", "1.1.0")
    assert (image["tag"], image["digest"]) == ("1.1.0", DIGEST)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "No such file"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"{}", "empty JSON"),
    ],
)
def test_an_unusable_file_causes_a_usage_error(
    tmp_path: Path, content: bytes | None, part: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=part) as raised:
        read_images_from([str(path)])
    assert "--images-from" in str(raised.value)


def test_a_file_that_is_too_large_causes_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (LARGEST + 1))
    with pytest.raises(UsageError, match="larger"):
        read_images_from([str(path)])


def test_a_folder_in_place_of_a_file_causes_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="directory"):
        read_images_from([str(tmp_path)])


A, B, C = (f"sha256:{letter * 64}" for letter in "abc")

BUILDX = {
    "buildx.build.provenance": {
        "builder": {"id": ""},
        "buildType": "https://mobyproject.org/buildkit@v1",
    },
    "buildx.build.ref": "mybuilder/mybuilder0/0fjb6ubs52xx3vygf6fgdl611",
    "containerimage.config.digest": B,
    "containerimage.descriptor": {
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "digest": A,
        "size": 506,
    },
    "containerimage.digest": A,
    "image.name": "docker.io/library/moby-buildkit:latest,docker.io/library/moby-buildkit:v1.2.3",
}
BAKE = {
    "buildx.build.warnings": [{"vertex": "sha256:x", "level": 1}],
    "db": {
        "buildx.build.ref": "mybuilder/mybuilder0/0fjb6ubs52xx3vygf6fgdl611",
        "containerimage.digest": A,
        "image.name": "ghcr.io/acme/db:1.0",
    },
    "webapp-dev": {
        "buildx.build.ref": "mybuilder/mybuilder0/kamngmcgyzebqxwu98b4lfv3n",
        "containerimage.digest": B,
        "image.name": "ghcr.io/acme/web:1.0",
    },
    "binaries": {"buildx.build.ref": "mybuilder/mybuilder0/kamngmcgyzebqxwu98b4lfv3m"},
}
JIB = {
    "image": "gcr.io/project/image:tag",
    "imageId": B,
    "imageDigest": A,
    "tags": ["latest", "tag"],
    "imagePushed": True,
}
SKAFFOLD = {
    "builds": [
        {"imageName": "gcr.io/acme/web", "tag": f"gcr.io/acme/web:v1.2-3-gabc@{A}"},
        {"imageName": "gcr.io/acme/api", "tag": f"gcr.io/acme/api:v1.2-3-gabc@{B}"},
    ]
}


def artifact(name: str, kind: str, digest: str = "", **more: Any) -> dict[str, Any]:
    extra = {
        "DockerConfig": {"goos": "linux"},
        "ID": "acme",
        **({"Digest": digest} if digest else {}),
    }
    return {"name": name, "path": name, "type": kind, "extra": extra, **more}


GORELEASER = [
    {
        "name": "app",
        "path": "dist/app_linux_amd64_v1/app",
        "goos": "linux",
        "goarch": "amd64",
        "type": "Binary",
    },
    {"name": "checksums.txt", "path": "dist/checksums.txt", "type": "Checksum", "extra": {}},
    artifact("ghcr.io/acme/app:v1.2.3-amd64", "Docker Image", goos="linux", goarch="amd64"),
    artifact(
        "ghcr.io/acme/app:v1.2.3-amd64", "Published Docker Image", A, goos="linux", goarch="amd64"
    ),
    artifact(
        "ghcr.io/acme/app:v1.2.3-arm64", "Published Docker Image", B, goos="linux", goarch="arm64"
    ),
    artifact("ghcr.io/acme/app:v1.2.3", "Docker Manifest", C),
    artifact("ghcr.io/acme/tool:v1.2.3", "Docker Image"),
    artifact("ghcr.io/acme/tool:v1.2.3", "Docker Image", A),
]

KNOWN: dict[str, tuple[Any, Built]] = {
    "buildx": (
        BUILDX,
        Built(
            (
                f"docker.io/library/moby-buildkit:latest@{A}",
                f"docker.io/library/moby-buildkit:v1.2.3@{A}",
            )
        ),
    ),
    "buildctl": (
        {"containerimage.digest": A, "image.name": "reg:5000/x:1"},
        Built((f"reg:5000/x:1@{A}",)),
    ),
    "buildx, pushed by digest": (
        {"containerimage.digest": A, "image.name": "ghcr.io/acme/web"},
        Built((f"ghcr.io/acme/web@{A}",)),
    ),
    "buildx without a name": (
        {"containerimage.digest": A, "containerimage.config.digest": B},
        Built(digest=A),
    ),
    "buildx without a digest": (
        {"image.name": "ghcr.io/acme/web:1"},
        Built(("ghcr.io/acme/web:1",)),
    ),
    "bake": (BAKE, Built((f"ghcr.io/acme/db:1.0@{A}", f"ghcr.io/acme/web:1.0@{B}"))),
    "kaniko --digest-file": (A, Built(digest=A)),
    "kaniko --image-name-with-digest-file": (
        f"gcr.io/acme/web@{A}\ngcr.io/acme/copy@{A}\n",
        Built((f"gcr.io/acme/web@{A}", f"gcr.io/acme/copy@{A}")),
    ),
    "kaniko --image-name-tag-with-digest-file": (
        f"gcr.io/acme/web:1.2@{A}\n",
        Built((f"gcr.io/acme/web:1.2@{A}",)),
    ),
    "kaniko to a registry with a port": (
        f"reg:5000/web:1.2@{A}",
        Built((f"reg:5000/web:1.2@{A}",)),
    ),
    "ko --image-refs": (
        f"ghcr.io/acme/app-4f2a9c1@{A}\nghcr.io/acme/tool-07be913@{B}",
        Built((f"ghcr.io/acme/app-4f2a9c1@{A}", f"ghcr.io/acme/tool-07be913@{B}")),
    ),
    "Tekton's IMAGES, by commas": (f"a@{A}, b@{B}", Built((f"a@{A}", f"b@{B}"))),
    "Tekton's IMAGES, on lines": (
        f"ghcr.io/a@{A}\r\nghcr.io/b@{B}\r\n",
        Built((f"ghcr.io/a@{A}", f"ghcr.io/b@{B}")),
    ),
    "an array of Tekton": (
        [f"ghcr.io/a@{A}", "ghcr.io/b:1"],
        Built((f"ghcr.io/a@{A}", "ghcr.io/b:1")),
    ),
    "a name and a tag": ("ghcr.io/acme/web:1.2.3\n", Built(("ghcr.io/acme/web:1.2.3",))),
    "the same twice": (f"ghcr.io/a@{A}\nghcr.io/a@{A}", Built((f"ghcr.io/a@{A}",))),
    "Jib": (JIB, Built((f"gcr.io/project/image:tag@{A}", f"gcr.io/project/image:latest@{A}"))),
    "Jib without tags": (
        {"image": "gcr.io/p/i", "imageId": B, "imageDigest": A},
        Built((f"gcr.io/p/i@{A}",)),
    ),
    "Skaffold": (
        SKAFFOLD,
        Built((f"gcr.io/acme/web:v1.2-3-gabc@{A}", f"gcr.io/acme/api:v1.2-3-gabc@{B}")),
    ),
    "goreleaser": (
        GORELEASER,
        Built((f"ghcr.io/acme/app:v1.2.3@{C}", f"ghcr.io/acme/tool:v1.2.3@{A}")),
    ),
}

UNKNOWN: dict[str, tuple[Any, str]] = {
    "nothing": ("  \n", "empty"),
    "half a file": ('{"image.name": "x', "JSON"),
    "a deep one": ("[" * 100_000, "nested too deeply"),
    "an empty object": ({}, "empty JSON object"),
    "an empty list": ([], "it does not contain an image"),
    "another object": ({"auths": {"ghcr.io": {"auth": "c2VjcmV0"}}}, "'auths'"),
    "goreleaser's metadata.json": ({"project_name": "x", "tag": "v1"}, "'project_name', 'tag'"),
    "docker inspect": ([{"Id": "sha256:x", "RepoTags": ["a:1"]}], "'Id', 'RepoTags'"),
    "mixed": (["a:1", {"type": "x"}], "mixed"),
    "buildx that made no image": ({"buildx.build.ref": "x/y/z"}, "it does not contain an image"),
    "goreleaser without images": (GORELEASER[:2], "'Binary', 'Checksum'"),
    "two formats at once": ({**JIB, **SKAFFOLD}, "jib-image.json or Skaffold"),
    "buildx and Jib at once": ({**JIB, **BUILDX}, "buildx metadata or jib-image.json"),
    "an image id": ("c" * 64, "line 1"),
    "a digest beside a reference": (f"{A}\nghcr.io/a/b:1", "it is not clear which belong together"),
    "several digests": (f"{A}\n{B}", "several digests"),
    "upper case": (f"ghcr.io/Acme/web@{A}", "uppercase"),
    "neither a tag nor a digest": ("ghcr.io/acme/web", "neither a tag nor a digest"),
    "two digests": (
        {"image.name": f"a/b@{A}", "containerimage.digest": B},
        "two different digests",
    ),
    "a bake target without a name": (
        {"web": {"containerimage.digest": A}, "db": BAKE["db"]},
        "no image.name",
    ),
    "a digest that is none": (
        {"image.name": "a/b:1", "containerimage.digest": "sha256:abc"},
        "is not a digest",
    ),
    "a number for a name": ({"image.name": 7}, "image.name is not a string"),
    "Jib without a digest": ({"image": "a/b:1", "imageDigest": ""}, "imageDigest is empty"),
    "Jib with strange tags": ({**JIB, "tags": {"a": 1}}, "tags are not a list"),
    "Skaffold without a tag": ({"builds": [{"imageName": "x"}]}, "no tag"),
    "Skaffold with strange builds": ({"builds": ["x"]}, "no tag"),
    "Skaffold that built nothing": ({"builds": []}, "it does not contain an image"),
    "too many": ([f"a/b:{number}" for number in range(MOST + 1)], "at most 1000 are accepted"),
}


def text_of(sample: Any) -> str:
    return sample if isinstance(sample, str) else json.dumps(sample)


@pytest.mark.parametrize("name", KNOWN)
def test_each_builder_file_is_recognized_by_its_content(name: str) -> None:
    sample, expected = KNOWN[name]
    assert images_of_builder(text_of(sample)) == expected


@pytest.mark.parametrize("name", KNOWN)
def test_surrounding_whitespace_and_byte_order_marks_are_ignored(name: str) -> None:
    sample, expected = KNOWN[name]
    text = sample if isinstance(sample, str) else json.dumps(sample, indent=2)
    assert images_of_builder(f"\ufeff\n{text}\n\n") == expected


@pytest.mark.parametrize("name", UNKNOWN)
def test_the_error_for_an_unknown_file_describes_its_content(name: str) -> None:
    sample, part = UNKNOWN[name]
    with pytest.raises(Malformed) as raised:
        images_of_builder(text_of(sample))
    assert part in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "hunter2",
        "admin:hunter2",
        "password=hunter2",
        "https://user:hunter2@example.com",
        "user:hunter2@example.com/x",
        '{"auths": {"ghcr.io": {"auth": "hunter2"}}}',
        '{"image.name": "https://user:hunter2@ghcr.io/x:1"}',
        '[{"type": "hunter", "value": "hunter2"}]',
    ],
)
def test_the_content_of_an_unsuitable_file_is_never_shown(text: str) -> None:
    with pytest.raises(Malformed) as raised:
        images_of_builder(text)
    assert "hunter2" not in raised.value.message + raised.value.hint


@pytest.mark.parametrize(
    "reference",
    [
        "https://user:hunter2@ghcr.io/acme/web:1",
        "https://user:a@hunter2@ghcr.io/acme/web:1",
        "https://user:a/hunter2@ghcr.io/acme/web:1",
        "user:hunter2@ghcr.io/acme/web:1",
        "user:a@hunter2@ghcr.io:5000/acme/web:1",
        "//user:hunter2@ghcr.io/acme/web:1",
        "hunter2@ghcr.io/acme/web",
    ],
)
def test_a_login_in_a_reference_is_never_shown(reference: str) -> None:
    with pytest.raises(UsageError, match=r"^--image: '.*ghcr\.io") as caught:
        event_images([reference])
    assert "hunter2" not in without_logins(f"{caught.value.message} {caught.value.hint}")


def test_a_malformed_digest_is_shown_with_its_image() -> None:
    with pytest.raises(UsageError, match=r"'ghcr\.io/web:1@sha256:ab'"):
        event_images(["ghcr.io/web:1@sha256:ab"])
    with pytest.raises(UsageError, match="'web:1@sha256:ab'"):
        event_images(["web:1@sha256:ab"])


@pytest.mark.parametrize(
    ("given", "digest", "files", "references", "expected"),
    [
        ([], "", [Built((f"a/b:1@{A}",))], (f"a/b:1@{A}",), ""),
        (["a/b:1"], "", [Built(digest=A)], ("a/b:1",), A),
        (["a/b:1"], A, [Built(digest=A), Built(digest=A)], ("a/b:1",), A),
        (
            ["a/b:1", "a/b:latest"],
            "",
            [Built((f"a/b@{A}",))],
            ("a/b:1", "a/b:latest", f"a/b:1@{A}", f"a/b:latest@{A}"),
            "",
        ),
        (
            [],
            "",
            [Built(("docker.io/x/y:1",)), Built((f"x/y@{A}",))],
            (f"docker.io/x/y:1@{A}",),
            "",
        ),
        (["a/b:1"], "", [Built((f"c/d@{A}",))], ("a/b:1", f"c/d@{A}"), ""),
        (["a b:"], "", [Built((f"c/d@{A}",))], ("a b:", f"c/d@{A}"), ""),
    ],
)
def test_references_and_digests_from_one_build_are_combined(
    given: list[str], digest: str, files: list[Built], references: tuple[str, ...], expected: str
) -> None:
    assert with_built(given, digest, files) == (references, expected)


@pytest.mark.parametrize("files", [[Built(digest=B)], [Built(digest=A), Built(digest=B)]])
def test_two_digests_for_one_image_are_an_error(files: list[Built]) -> None:
    with pytest.raises(UsageError, match="two different digests"):
        with_built(["a/b:1"], A, files)


KEYS = st.sampled_from(
    [
        "image.name",
        "containerimage.digest",
        "image",
        "imageDigest",
        "tags",
        "builds",
        "type",
        "name",
        "extra",
        "x",
    ]
)
VALUES = st.sampled_from(
    [
        A,
        "ghcr.io/a/b:1",
        "a@b",
        "",
        "Docker Image",
        "Docker Manifest",
        7,
        None,
        True,
        "\ud800",
        "a,b:2,",
    ]
)
TREES = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.text() | TREES.map(json.dumps))
def test_any_file_content_is_parsed_or_rejected(text: str) -> None:
    try:
        found = images_of_builder(text)
    except Malformed:
        return
    assert found.digest or found.references
