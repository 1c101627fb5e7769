"""Complete updates of one Application (without Git), from annotations to files, compared with AIU.

AIU checks all tags in the registry. Here, all tags arrive in one event.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from support import DATA

from task.annotations.application import PREFIX, parse_application
from task.annotations.subscription import subscribe
from task.deciding.decide import decide, settled_without_git
from task.deciding.job import Ask, Terms, Wording
from task.image import parse_image
from task.landing.changeset import prepare_commits
from task.model import File, Image, Person, Snapshot
from task.pipeline.match import asks_for_images

SUITES = ("update-flow", "override-helm", "override-kustomize", "kustomization", "helmvalues")
CASES = [
    case
    for suite in SUITES
    for case in json.loads((DATA / "cases" / f"{suite}.json").read_text())["cases"]
    if "registry_tags" in case["input"]
]
# Intentional differences from AIU's output.
OURS = {
    "tags-v-prefix-live": "v1.0.0 runs and 1.0.0 is the same version with the lesser text: not newer",
    "git-write-branch-digest": "a digest's colon is no branch name: an annotation error",
    "flow-hostport-existing-file": "images on one registry with a port do not overwrite one another",
    "flow-two-images-only-one-live": "the event, not the running pods, says what is updated: both images are",
    "flow-not-live-1584": "the event, not the running pods, says what is updated: both images are",
    "k-multi-registry": "what the spec holds of other repositories is carried along",
    "flow-missing-dir": "no source reads the values file: a target error",
    "flow-parent-dir": "no source reads the values file: a target error",
    "flow-type-none": "the type is found in Git: here nothing tells it",
}


def events(given: dict[str, Any]) -> list[Image]:
    found = []
    for name, tags in given["registry_tags"].items():
        for tag in tags:
            image = parse_image(f"{name}:{tag if isinstance(tag, str) else tag['name']}")
            found.append(image if isinstance(tag, str) else replace(image, digest=tag["digest"]))
    return found


def outcome(given: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return the changed files with their parsed data, and the decisions."""
    metadata = {
        "name": given["app_name"],
        "namespace": given["app_namespace"],
        "annotations": {PREFIX + key: value for key, value in given["annotations"].items()},
    }
    status = {
        "sourceType": given.get("source_type", ""),
        "summary": {"images": given["live_images"]},
    }
    app = parse_application(
        {"metadata": metadata, "spec": {"source": given["source"]}, "status": status}
    )
    matched = asks_for_images([subscribe(app)], events(given))
    files = {path: File(text) for path, text in given["files"].items()}
    files[given["source"]["path"]] = File("", "040000")
    snapshot = Snapshot(given["source"]["repoURL"], "main", "tip", files)
    asks: list[Ask] = [ask for ask in matched.asks if settled_without_git(ask, Terms()) is None]
    decisions = decide(snapshot, asks, Terms())
    prepared = prepare_commits(snapshot, decisions, Terms(), Wording(Person("a", "b")))
    changed = {
        path: yaml.safe_load(file.text)
        for one in prepared.commits
        for path, file in one.changeset.files.items()
    }
    return changed, [
        *matched.decisions,
        *prepared.without_commit,
        *(one for draft in prepared.commits for one in draft.decisions),
    ]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["id"] not in OURS], ids=lambda case: case["id"]
)
def test_files_have_the_same_content_as_those_written_by_image_updater(
    case: dict[str, Any],
) -> None:
    expected = case.get("expect_v1", case["expect"])
    changed, decisions = outcome(case["input"])
    assert changed == {
        path: file["parsed"] for path, file in expected.get("files_changed", {}).items()
    }, decisions


def test_two_images_in_a_registry_with_a_port_are_both_written() -> None:
    case = next(case for case in CASES if case["id"] == "flow-hostport-existing-file")
    changed, _ = outcome(case["input"])
    assert changed["apps/web/.argocd-source-web.yaml"] == {
        "kustomize": {"images": ["reg.example:5000/a:1.1.0", "reg.example:5000/b:1.2.0"]}
    }


def test_every_known_difference_is_in_the_samples() -> None:
    assert {case["id"] for case in CASES} >= set(OURS)
