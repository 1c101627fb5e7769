"""Kubernetes Events in the format of Argo CD Image Updater."""

from typing import Any

import pytest

from task.after.follow import updated_event
from task.model import Image
from task.templates.change import Change

METADATA = {"name": "web", "namespace": "team", "uid": "u-1", "resourceVersion": "42"}
API = Image("ghcr.io/acme/api", "ghcr.io", "acme/api")
NGINX = Image("nginx", "docker.io", "library/nginx")


def test_an_event_has_the_same_fields_as_an_image_updater_event() -> None:
    assert updated_event(METADATA, [Change(API, "api", "1.0", "1.1")], 1_700_000_000.25) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": "web.17979cfe4510b200",
            "namespace": "team",
            "annotations": {
                "argocd-image-updater.image-0/full-image-name": "ghcr.io/acme/api",
                "argocd-image-updater.image-0/image-name": "acme/api",
                "argocd-image-updater.image-0/old-tag": "1.0",
                "argocd-image-updater.image-0/new-tag": "1.1",
            },
        },
        "involvedObject": {
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "name": "web", "namespace": "team",
            "resourceVersion": "42", "uid": "u-1",
        },
        "source": {"component": "ArgocdImageUpdater"},
        "reportingComponent": "ArgocdImageUpdater",
        "reportingInstance": "ArgocdImageUpdater",
        "type": "Normal",
        "reason": "ImagesUpdated",
        "message": "Successfully updated application 'web'",
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], {}),
        (
            [Change(API, "a", "1", "2"), Change(NGINX, "b", "latest", "latest", "sha256:a", "sha256:b")],
            {"image-0/new-tag": "2", "image-1/full-image-name": "nginx", "image-1/old-tag": "sha256:a",
             "image-1/new-tag": "sha256:b"},
        ),
    ],
)  # fmt: skip
def test_image_annotations_are_numbered_from_zero(
    changes: list[Change], expected: dict[str, str]
) -> None:
    found: dict[str, Any] = updated_event(METADATA, changes, 0.0)["metadata"]["annotations"]
    assert len(found) == 4 * len(changes)
    assert {key: found[f"argocd-image-updater.{key}"] for key in expected} == expected


def test_an_event_name_is_truncated_to_a_valid_length() -> None:
    event = updated_event(
        {"name": "a" * 240 + "-" + "b" * 12, "namespace": "n"}, [], 1_700_000_000.0
    )
    assert len(event["metadata"]["name"]) <= 253
    assert "resourceVersion" not in event["involvedObject"]
