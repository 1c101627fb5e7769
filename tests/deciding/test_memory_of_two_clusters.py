"""Two Argo CD instances share a repository and an Application name, but not their memory."""

from collections.abc import Callable
from typing import Any

import pytest
from support.memory import URL, Branch, Story
from support.runs import WEB, application

CHART = "apiVersion: v2\nname: web\nversion: 0.1.0\n"
VALUES = "image:\n  tag: main-1\n"
KUSTOMIZATION = f"resources: []\nimages:\n- name: {WEB}\n  newTag: main-1\n"

Pair = tuple[Story, Story]


def web(path: str, target: str) -> dict[str, Any]:
    """Return `argocd/web`, which exists in each cluster."""
    app = application(
        "web",
        URL,
        update_strategy="newest-build",
        write_back_method="git",
        write_back_target=target,
    )
    app["spec"]["source"]["path"] = path
    if target.startswith("helmvalues:"):
        app["spec"]["source"]["helm"] = {"valueFiles": [target.removeprefix("helmvalues:")]}
    return app


def folders() -> Pair:
    """Return one story per cluster. Each cluster has its own folder."""
    branch = Branch(
        {f"clusters/{name}/web/kustomization.yaml": KUSTOMIZATION for name in ("staging", "prod")}
    )
    staging, prod = (
        Story(web(f"clusters/{name}/web", "kustomization"), branch) for name in ("staging", "prod")
    )
    return staging, prod


def chart() -> Pair:
    """Return one story per cluster. The clusters share a chart, but not a values file."""
    branch = Branch({"web/Chart.yaml": CHART, "web/staging.yaml": VALUES, "web/prod.yaml": VALUES})
    staging, prod = (
        Story(web("web", f"helmvalues:{name}.yaml"), branch) for name in ("staging", "prod")
    )
    return staging, prod


def states(story: Story) -> list[str]:
    return sorted(path for path in story.branch.files if path.startswith(".image-update/"))


@pytest.mark.parametrize("scene", [folders, chart])
def test_a_newer_build_on_staging_does_not_block_builds_on_production(
    scene: Callable[[], Pair],
) -> None:
    staging, prod = scene()
    assert staging.event("main-7", 7) == ("update", "admitted")
    assert prod.event("main-6", 6) == ("update", "admitted")
    assert staging.event("main-6", 6) == ("refuse", "superseded")
    assert prod.event("main-5", 5) == ("refuse", "superseded")
    assert prod.event("main-7", 7) == ("update", "admitted")


@pytest.mark.parametrize("scene", [folders, chart])
def test_a_hold_on_staging_does_not_hold_production(scene: Callable[[], Pair]) -> None:
    staging, prod = scene()
    staging.hold("load test")
    assert prod.event("main-3", 3) == ("update", "admitted")
    assert staging.event("main-3", 3) == ("defer", "held")
    assert prod.release().because == "it is not held, and no build is waiting"
    back = prod.rollback("previous", reason="errors")
    assert (back.verdict, back.candidate.tag) == ("update", "main-1")
    assert staging.release().verdict == "update"
    assert prod.event("main-4", 4) == ("defer", "held")


def test_each_cluster_has_its_own_state_file() -> None:
    staging, prod = folders()
    for one in (staging, prod):
        one.event("main-2", 2)
    assert states(prod) == [
        f".image-update/clusters/{name}/web/argocd_web.state" for name in ("prod", "staging")
    ]


def test_every_state_file_path_is_valid_on_every_file_system() -> None:
    deep = "/".join(["folder"] * 580)
    longest = "n" * 240
    branch = Branch(
        {f"{folder}/kustomization.yaml": KUSTOMIZATION for folder in ("web", deep, "Config")}
    )
    for name, path in ((longest, "web"), (f"{longest}2", "web"), ("web", deep), ("web", "Config")):
        app = web(path, "kustomization")
        app["metadata"]["name"] = name
        story = Story(app, branch)
        assert story.event("main-2", 2)[0] in ("update", "unchanged")
        story.hold("load test")
        assert story.event("main-3", 3) == ("defer", "held")
    found = [path for path in branch.files if path.startswith(".image-update/")]
    assert len(found) == 4
    assert all(len(path) <= 4096 and max(map(len, path.split("/"))) <= 255 for path in found)
    # on a case-insensitive file system, `.image-update/Config` would be the file `.image-update/config`
    assert ".image-update/Config-folder/argocd_web.state" in found


def test_one_state_file_remembers_several_values_files() -> None:
    staging, prod = chart()
    staging.event("main-2", 2)
    prod.event("main-3", 3)
    assert states(prod) == [".image-update/web/argocd_web.state"]
    text = prod.branch.files[states(prod)[0]]
    assert text.index("  web/prod.yaml:") < text.index("main-3") < text.index("  web/staging.yaml:")


def test_an_application_at_the_root_has_a_state_file_at_the_root() -> None:
    story = Story(web(".", "kustomization"), Branch({"kustomization.yaml": KUSTOMIZATION}))
    story.event("main-2", 2)
    assert states(story) == [".image-update/argocd_web.state"]
    assert "  kustomization.yaml:\n" in story.branch.files[states(story)[0]]


@pytest.mark.parametrize(
    "name", ["web/kustomization.yaml", "web", "./web/", "/web/kustomization.yml"]
)
def test_a_manually_written_hold_may_name_the_file_or_its_folder(name: str) -> None:
    state = f"files:\n  {name}:\n    hold:\n      reason: by hand\n"
    files = {"web/kustomization.yml": KUSTOMIZATION, ".image-update/web/argocd_web.state": state}
    story = Story(web("web", "kustomization"), Branch(files))
    assert story.event("main-2", 2) == ("defer", "held")
    assert story.branch.files[states(story)[0]].startswith(state)


def test_an_unknown_key_from_a_newer_version_does_not_stop_a_run() -> None:
    _, prod = folders()
    prod.event("main-2", 2)
    (path,) = states(prod)
    newer = prod.branch.files[path].replace(
        "        written:\n", "        pinned: {by: jane}  # from version 0.9\n        written:\n"
    )
    prod.branch.commit({path: "schema: 2\n" + newer})
    assert prod.event("main-3", 3) == ("update", "admitted")
    text = prod.branch.files[path]
    assert "\nschema: 2\n" in text
    assert "        pinned: {by: jane}\n" in text
    assert "main-3" in text


def test_state_files_from_version_0_1_are_ignored() -> None:
    _, prod = folders()
    prod.branch.commit({".image-update/argocd_web.state": "hold:\n  reason: of 0.1\n"})
    assert prod.event("main-2", 2) == ("update", "admitted")
