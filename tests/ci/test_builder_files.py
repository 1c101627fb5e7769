"""`--images-from`, from the file to the decision."""

import json
from pathlib import Path

import pytest
import runs
from support import image_update

from task.ci.images import LARGEST, read_built
from task.errors import UsageError

DIGEST = f"sha256:{'a' * 64}"


def plan(tmp_path: Path, *arguments: str) -> dict[str, object]:
    apps = runs.manifest(tmp_path, runs.application("web", runs.repository(tmp_path, "web")))
    given = ["--applications", str(apps), "--allow-protocol", "file", "--output", "json", *arguments]
    done = image_update("plan", *given)
    assert done.code == 0, done.stderr
    (image,) = json.loads(done.stdout)["images"]
    return dict(image)


@pytest.mark.slow
def test_an_event_comes_from_what_the_builder_wrote(tmp_path: Path) -> None:
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps({"image.name": f"{runs.WEB}:1.1.0", "containerimage.digest": DIGEST}))
    image = plan(tmp_path, "--images-from", str(path))
    assert (image["tag"], image["digest"]) == ("1.1.0", DIGEST)


def test_a_digest_file_completes_the_image(tmp_path: Path) -> None:
    path = tmp_path / "digest"
    path.write_text(DIGEST)
    image = plan(tmp_path, "--images-from", str(path), "--image", f"{runs.WEB}:1.1.0")
    assert (image["tag"], image["digest"]) == ("1.1.0", DIGEST)


def test_a_reference_without_a_tag_gets_the_one_given(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_text(f"{runs.WEB}@{DIGEST}\n")
    image = plan(tmp_path, "--images-from", str(path), "--tag", "1.1.0")
    assert (image["tag"], image["digest"]) == ("1.1.0", DIGEST)


@pytest.mark.parametrize(
    ("content", "part"),
    [(None, "No such file"), (b"\xff\xfe\x00", "not text"), (b"x" * (LARGEST + 1), "larger"), (b"{}", "empty JSON")],
)
def test_a_file_that_does_not_serve_is_a_usage_error(tmp_path: Path, content: bytes | None, part: str) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=part) as raised:
        read_built([str(path)])
    assert "--images-from" in str(raised.value)


def test_a_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="directory"):
        read_built([str(tmp_path)])
