"""The first check of an Application: does its metadata show that it must be read in full?"""

from typing import Any

import pytest
from support.memory import SCOPE
from support.runs import application

from task.image import parse_images
from task.model import Found
from task.pipeline.discover import concerns, discovered

PREFIX = "argocd-image-updater.argoproj.io/"
WEB = "ghcr.io/acme/web:1.1.0"
LOOKS = [
    ("the very image", "web=ghcr.io/acme/web:~1.0", WEB, True),
    ("one of several", "db=postgres, web = ghcr.io/acme/web@sha256:x", WEB, True),
    ("another spelling of it", "Library/Nginx, docker.io/nginx", "nginx:1", True),
    ("upper case in a host", "GHCR.io/acme/web", WEB, True),
    ("a name that holds the name", "ghcr.io/acme/web-api,ghcr.io/acme/webhook", WEB, False),
    ("the same last part elsewhere", "quay.io/acme/web,ghcr.io/other/web", WEB, False),
    ("a path that holds the name", "ghcr.io/web/api", WEB, False),
    ("an alias that is the name", "web=ghcr.io/acme/api", WEB, False),
    ("an entry that cannot be read", "web=https://ghcr.io/acme/web", WEB, True),
    ("another one that cannot be read", "web=https://ghcr.io/acme/api", WEB, True),
    ("one that cannot be read and holds no such name", "x=https://ghcr.io/acme/api", WEB, False),
    ("any of several images", "ghcr.io/acme/api", f"{WEB},ghcr.io/acme/api:2", True),
    ("nothing", "", WEB, False),
    ("any image", "ghcr.io/acme/api", "", True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "images", "expected"), [row[1:] for row in LOOKS], ids=[row[0] for row in LOOKS]
)
def test_image_names_are_compared_as_a_whole(listed: str, images: str, expected: bool) -> None:
    item: dict[str, Any] = {"metadata": {"annotations": {f"{PREFIX}image-list": listed}}}
    assert concerns(parse_images([images] if images else []), PREFIX)(item) is expected


def test_only_one_of_2_000_applications_is_read() -> None:
    items = [
        {
            "metadata": {
                "name": str(number),
                "annotations": {f"{PREFIX}image-list": f"ghcr.io/acme/web-{number:x}"},
            }
        }
        for number in range(2000)
    ]
    wanted = concerns(parse_images(["ghcr.io/acme/web-1f:2"]), PREFIX)
    assert [item["metadata"]["name"] for item in items if wanted(item)] == ["31"]


@pytest.mark.parametrize(
    ("other", "generated_by", "told"),
    [
        ("https://git.example/prod.git", "", 1),
        ("https://git.example/staging.git", "", 0),  # the same Application found twice
        (
            "https://git.example/prod.git",
            "argocd/set",
            0,
        ),  # the Application's own manifest takes precedence because it is more precise
    ],
)
def test_two_applications_with_the_same_name_are_reported(
    other: str, generated_by: str, told: int
) -> None:
    """If two clusters' manifests are in one folder, only one Application would be updated, without
    warning.
    """
    staging = application("web", "https://git.example/staging.git")
    found = [
        Found(staging, "staging.yaml:1"),
        Found(application("web", other), "prod.yaml:1", generated_by=generated_by),
    ]
    result = discovered(found, SCOPE, lambda _origin: None)
    assert [one.origin for one in result.applications] == ["staging.yaml:1"]
    message = "two Applications have the same name, and only the first one is used: argocd/web (staging.yaml:1 and prod.yaml:1)"
    assert [(one.message, one.severity) for one in result.problems] == [(message, "warning")] * told


UPDATER = {
    "apiVersion": "argocd-image-updater.argoproj.io/v1alpha1",
    "kind": "ImageUpdater",
    "metadata": {"name": "one", "namespace": "argocd"},
    "spec": {
        "applicationRefs": [
            {
                "namePattern": "web",
                "images": [{"alias": "web", "imageName": "ghcr.io/acme/web:^1"}],
                "writeBackConfig": {
                    "method": "git",
                    "gitConfig": {"writeBackTarget": "helmvalues:values.yaml"},
                },
            }
        ]
    },
}


@pytest.mark.parametrize(
    ("annotations", "running", "updater", "kept"),
    [
        ({}, ["ghcr.io/acme/web:1.0.0"], False, False),
        ({}, [], False, True),
        ({"write_back_target": "helmvalues"}, ["ghcr.io/acme/web:1.0.0"], False, True),
        # a leftover image-list, and an Application targeted by an ImageUpdater
        ({}, ["ghcr.io/acme/web:1.0.0"], True, True),
    ],
)
def test_helm_values_are_kept_only_if_they_are_needed(
    annotations: dict[str, str], running: list[str], updater: bool, kept: bool
) -> None:
    annotations = {"write_back_target": "", **annotations}
    app = application("web", "https://git.example/staging.git", **annotations)
    app["spec"]["source"]["helm"] = {"values": "image: {tag: 1.0.0}"}
    app["status"] = {"summary": {"images": running}}
    found = [Found(app, "web.yaml:1"), *([Found(UPDATER, "updater.yaml:1")] if updater else [])]
    (web,) = discovered(found, SCOPE, lambda _origin: None).applications
    assert [source.values for source in web.sources] == (["image: {tag: 1.0.0}"] if kept else [""])
