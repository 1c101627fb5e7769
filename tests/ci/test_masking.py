"""What GitHub's runner is told to hide."""

import io
from base64 import b64encode

import pytest
from runs import WEB
from support import image_update

from task.ci.publish import mask

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ("s3cret", ["s3cret", b64encode(b"s3cret").decode()]),
        ("a/b c", ["a/b c", "a%252Fb%2520c", b64encode(b"a/b c").decode()]),
        (KEY, ["c2VjcmV0", b64encode(b"c2VjcmV0").decode()]),
        ("100%", ["100%25", "100%2525", b64encode(b"100%").decode()]),
        ("", []),
        ("abc\n", []),
    ],
)
def test_masks_each_line_in_every_form(value: str, masked: list[str]) -> None:
    out = io.StringIO()
    mask(["TOKEN"], {"TOKEN": value, "OTHER": "untouched"}, out)
    assert out.getvalue().splitlines() == [f"::add-mask::{one}" for one in masked]


def test_a_workflow_hides_secrets_before_anything_else() -> None:
    env = {"GITHUB_ACTIONS": "true", "IMAGE_UPDATE_GIT_TOKEN": "s3cret"}
    done = image_update("run", "--image", WEB, "--applications", "x", env=env)
    assert done.stderr.splitlines()[0] == "::add-mask::s3cret"
    assert "s3cret" not in done.stdout


def test_elsewhere_nothing_is_said() -> None:
    done = image_update("run", "--image", WEB, "--applications", "x", env={"IMAGE_UPDATE_GIT_TOKEN": "s3cret"})
    assert "s3cret" not in done.stdout + done.stderr
