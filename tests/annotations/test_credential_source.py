"""Credential sources. The expected results were recorded from Image Updater itself."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from task.annotations.keys import CredentialSource, parse_credential_source
from task.errors import Malformed

CASES = Path(__file__).parents[1] / "data" / "cases"


def rows(suite: str) -> list[Any]:
    content = json.loads((CASES / f"{suite}.json").read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["id"]) for case in content]


def as_said(source: CredentialSource) -> dict[str, str]:
    return {
        "type": source.kind,
        **{key: value for key, value in asdict(source).items() if key != "kind"},
    }


@pytest.mark.parametrize("case", rows("credentials"))
def test_credential_sources_are_read_as_in_image_updater(case: dict[str, Any]) -> None:
    given, expected = case["input"], case.get("expect_v1", case["expect"])
    if expected.get("error"):
        with pytest.raises(Malformed) as refused:
            parse_credential_source(given["spec"])
        assert refused.value.hint
        return
    found = as_said(parse_credential_source(given["spec"]))
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    "case", [row for row in rows("annotations") if row.values[0]["input"]["op"] == "pull_secret"]
)
def test_pull_secret_annotations_are_read_as_in_image_updater(case: dict[str, Any]) -> None:
    (text,) = case["input"]["annotations"].values()
    found = as_said(parse_credential_source(text))
    assert {key: found[key] for key in case["expect"]} == case["expect"]


SECRET = CredentialSource("secret", namespace="ns", name="n", field="f")
PULL = CredentialSource("pullsecret", namespace="ns", name="n", field=".dockerconfigjson")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("secret:ns/n#f", SECRET),
        ("pullsecret:ns/n", PULL),
        ("env:TOKEN", CredentialSource("env", env="TOKEN")),
        ("ext:/scripts/x.sh", CredentialSource("ext", script="/scripts/x.sh")),
        (
            "ext:x.sh",
            CredentialSource("ext", script="x.sh"),
        ),  # rejected only when the script is run
        ("Secret:ns/n#f", SECRET),
        ("gcr.io=secret:ns/n#f", replace(SECRET, registry="gcr.io")),
        ("reg:5000=pullsecret:ns/n", replace(PULL, registry="reg:5000")),
        ("gcr.io=env:A=B", CredentialSource("env", registry="gcr.io", env="A=B")),
        ("secret:ns/n#a=b", None),  # the part before the first "=" is parsed as a registry
        ("pullsecret:ns/n#f", replace(PULL, name="n#f")),
    ],
)
def test_each_kind_of_credential_source_is_parsed(
    spec: str, expected: CredentialSource | None
) -> None:
    if expected is None:
        with pytest.raises(Malformed):
            parse_credential_source(spec)
    else:
        assert parse_credential_source(spec) == expected


@pytest.mark.parametrize(
    "spec", ["gcr.io=secret:ns/n#f", "gcr.io=pullsecret:ns/n", "gcr.io=env:TOKEN", "gcr.io=ext:/x"]
)
def test_the_registry_of_a_credential_source_is_read(spec: str) -> None:
    assert parse_credential_source(spec).registry == "gcr.io"


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "secret",
        "secret:",
        "secrets:ns/n#f",
        "=secret:ns/n#f",
        "secret:ns/n",
        "secret:ns/n#",
        "secret:ns/n#f#g",
        "secret:/n#f",
        "secret:ns/#f",
        "secret:n#f",
        "secret:a/b/n#f",
        "secret:ns/n#f:g",
        "pullsecret:ns",
        "pullsecret:/n",
        "pullsecret:ns/",
        "pullsecret:a/b/c",
        "env:",
        "env:A:B",
        "ext:",
        "ext:/a:b",
        ":ns/n",
    ],
)
def test_invalid_credential_sources_are_rejected_with_the_valid_forms(spec: str) -> None:
    with pytest.raises(Malformed) as refused:
        parse_credential_source(spec)
    assert "pullsecret:<namespace>/<name>" in refused.value.hint


def test_long_text_is_truncated_in_messages() -> None:
    with pytest.raises(Malformed) as refused:
        parse_credential_source("x" * 100_000)
    assert len(refused.value.message) < 300
