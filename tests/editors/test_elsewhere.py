"""Other versions of the image in parts of the target's files that no alias writes."""

from typing import Any

import pytest
from editors.editing import DIGEST, OTHER, image, target

from task.editors import also_at
from task.model import Claim, File, Keys

API = "ghcr.io/acme/api"
HEAD = "apiVersion: x.dev/v1\nkind: Recipe\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"runs: {API}:v1\n", [3]),
        (f"runs: {API}:v2\n", []),
        (f"runs: {API}\n", []),
        (f"runs: '{API}:v2-debug'\nthen: [\"{API}:v1\"]\n", [3, 4]),
        (f"runs: {API}@{OTHER}\n", [3]),
        (f"runs: {API}:v2@{DIGEST}\n", []),
        (f"runs: use {API}:v1\n", []),
        (f"{API}:v1: a key\n", []),
        (f"runs: ghcr.io/other/api:v1\nthen: {API}-db:v1\n", []),
        (
            f"metadata: {{annotations: {{argocd-image-updater.argoproj.io/image-list: '{API}:v1'}}}}\n",
            [],
        ),
        (f"# {API}:v1\n", []),
        (f"---\nruns: {API}:v1\n", [4]),
        (f"- broken: {API}:v1\n", []),
        (f"values: |\n  image: {API}:v1\n", []),
    ],
)
def test_other_versions_of_the_image_in_manifests_are_found(text: str, lines: list[int]) -> None:
    files = {
        "apps/web/r.yaml": File(HEAD + text),
        "apps/web/x/r.yaml": File(f"{HEAD}runs: {API}:v0\n"),
    }
    assert also_at("manifests", files, target("manifests"), image(f"{API}:v2")) == tuple(
        ("apps/web/r.yaml", line) for line in lines
    )


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, True),
        ({"managed": ("worker.image",)}, False),  # another alias writes it
        ({"managed": ("other.image",)}, True),
    ],
)
def test_a_value_that_another_alias_writes_is_not_reported(more: Any, found: bool) -> None:
    values = {"apps/web/values.yaml": File(f"image: {{tag: v2}}\nworker:\n  image: {API}:v1\n")}
    aim = target("helmvalues", keys=Keys(tag="image.tag"), **more)
    assert also_at("helmvalues", values, aim, image(f"{API}:v2")) == (
        (("apps/web/values.yaml", 3),) if found else ()
    )
    item = f"helm:\n  parameters:\n  - name: worker.image\n    value: {API}:v1\n    forcestring: true\n"
    override = {"apps/web/.argocd-source-web.yaml": File(item)}
    assert (
        bool(
            also_at("helm-override", override, target("helm-override", **more), image(f"{API}:v2"))
        )
        is found
    )


def test_a_container_that_belongs_to_another_alias_is_not_reported() -> None:
    files = {"apps/web/r.yaml": File(f"{HEAD}containers: [{{image: '{API}:v1'}}]\n")}
    aim = target("manifests", keys=Keys(manifests_name="mirror/api"), others=(Claim("db", API),))
    assert also_at("manifests", files, aim, image(f"{API}:v2")) == ()


SHAPES = {
    "repository and tag": f"repository: {API}\n  tag: v1\n",
    "name and version": f"name: {API}\n  version: v1\n",
    "image and tag": f"image: {API}\n  tag: v1\n",
    "a registry beside it": "registry: ghcr.io\n  repository: acme/api\n  tag: v1\n",
    "a registry beside a name": "imageRegistry: ghcr.io\n  imageName: acme/api\n  imageTag: v1\n",
    "no registry": "repository: acme/api\n  tag: v1\n",
    "one prefix": f"sidecar_image: {API}\n  sidecar_tag: v1\n",
    "a prefix and a name": f"apiImageName: {API}\n  apiImageTag: v1\n",
    "image beside its tag": f"image: {API}\n  imageTag: v1\n",
    "image and version": f"image: {API}\n  imageVersion: v1\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_image_split_into_name_and_version_keys_is_found(shape: str) -> None:
    text = f"image: {{repository: {API}, tag: v2}}\nworker:\n  {SHAPES[shape]}"
    files = {"apps/web/values.yaml": File(text)}
    aim = target("helmvalues", keys=Keys(tag="image.tag"))
    (found,) = also_at("helmvalues", files, aim, image(f"{API}:v2"))
    assert "v1" in text.splitlines()[found[1] - 1]
    managed = target("helmvalues", keys=Keys(tag="image.tag"), managed=_keys_of(text))
    assert also_at("helmvalues", files, managed, image(f"{API}:v2")) == ()
    files = {"apps/web/values.yaml": File(text.replace("v1", "v2"))}
    assert also_at("helmvalues", files, aim, image(f"{API}:v2")) == ()


def _keys_of(text: str) -> tuple[str, ...]:
    return tuple(f"worker.{line.split(':')[0].strip()}" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "repository: ghcr.io/other/api\n  tag: v1\n",
        "registry: quay.io\n  repository: acme/api\n  tag: v1\n",
        f"repository: {API}\n  tag: ''\n",
        f"repository: {API}\n  debugTag: v1\n",
        f"apiImage: {API}\n  webTag: v1\n",
        f"image: {API}-db\n  tag: v1\n",
    ],
)
def test_another_image_split_into_two_keys_is_not_reported(text: str) -> None:
    files = {"apps/web/values.yaml": File(f"image: {{tag: v2}}\nworker:\n  {text}")}
    aim = target("helmvalues", keys=Keys(tag="image.tag"))
    assert also_at("helmvalues", files, aim, image(f"{API}:v2")) == ()
