"""The images that `--wait` expects to be running, and the key to check if an image is not."""

from typing import Any

import pytest
from support.clusters import full_application
from support.runs import WEB

from task.after.expecting import expected
from task.annotations.application import PREFIX, parse_application
from task.annotations.subscription import subscribe
from task.deciding.job import LandedApplication
from task.image import parse_image
from task.model import Decision, TargetKind, Verdict

DIGEST = f"sha256:{'a' * 64}"
HELM = {"write_back_target": "", "web__helm__image_tag": "img.tag"}
PLACES: list[tuple[str, dict[str, str], TargetKind, str, str]] = [
    ("a Helm key", HELM, "helm-override", "web.helm.image-tag (img.tag)", "does a chart template read img.tag?"),
    ("the usual Helm key", {"write_back_target": "helmvalues"}, "helmvalues", "web.helm.image-tag (image.tag)",
     "does a chart template read image.tag?"),
    ("a whole reference", {"web__helm__image_spec": "image"}, "helmvalues", "web.helm.image-spec (image)",
     "does a chart template read image?"),
    ("a kustomization", {}, "kustomization", f"web.kustomize.image-name ({WEB})", f"do the manifests use {WEB}?"),
    ("another name in it", {"web__kustomize__image_name": "web"}, "kustomize-override",
     "web.kustomize.image-name (web)", "do the manifests use web?"),
    ("a plug-in", {"write_back_target": "", "web__plugin__image_tag": "TAG"}, "plugin-override",
     "web.plugin.image-tag (TAG)", "does the plugin read TAG?"),
    ("manifests", {}, "manifests", "the written file", "does the Application deploy it?"),
]  # fmt: skip


def landed(
    kind: TargetKind, image: str = f"{WEB}:1.1.0", verdict: Any = "update", **annotations: str
) -> LandedApplication:
    item = full_application("web", "https://git.example.com/x.git", **annotations)
    item["status"] |= {"sourceType": "Plugin"} if kind == "plugin-override" else {}
    application = parse_application(item, PREFIX)
    (sub,) = subscribe(application).subscriptions
    decision = Decision(
        sub, parse_image(image), Verdict(verdict, "admitted", "x"), branch="main", kind=kind
    )
    return LandedApplication(application, "https://git.example.com/x.git", "c" * 40, (decision,))


@pytest.mark.parametrize(
    ("annotations", "kind", "key", "hint"),
    [row[1:] for row in PLACES],
    ids=[row[0] for row in PLACES],
)
def test_the_hint_names_the_key_to_check(
    annotations: dict[str, str], kind: TargetKind, key: str, hint: str
) -> None:
    (found,) = expected(
        [landed(kind, **annotations)], lambda _repo, _sub: pytest.fail("nothing is asked yet")
    )
    assert (found.image.reference, found.revision, found.key, found.hint) == (
        f"{WEB}:1.1.0",
        "c" * 40,
        key,
        hint,
    )


def test_a_hint_warns_that_old_kustomize_versions_misread_a_tag_with_a_digest() -> None:
    given = landed("kustomization", image=f"{WEB}:1.1.0@{DIGEST}")
    (found,) = expected([given], lambda _repo, _sub: pytest.fail("nothing is asked yet"))
    assert found.hint.endswith("Kustomize before 5 misreads tag@digest")


@pytest.mark.parametrize(
    ("verdict", "count"), [("update", 1), ("unchanged", 1), ("refuse", 0), ("defer", 0)]
)
def test_only_images_written_to_git_are_expected_to_run(verdict: str, count: int) -> None:
    given = landed("kustomization", verdict=verdict)
    assert len(expected([given], lambda _repo, _sub: pytest.fail("nothing is asked yet"))) == count
    nothing = landed("kustomization", image=WEB)
    assert expected([nothing], lambda _repo, _sub: pytest.fail("nothing is asked yet")) == []
