"""Whole runs with ApplicationSets: the Applications that these generate are updated in one
commit.
"""

import json
from pathlib import Path

import jsonschema
import pytest
from support import bare_repo, changed_paths, image_update
from support.runs import KUSTOMIZATION, PREFIX, WEB, arguments, target

from task.schemas import load

SET = """\
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {{name: fleet, namespace: argocd}}
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
  - matrix:
      generators:
      - git: {{repoURL: "{repo}", revision: HEAD, directories: [{{path: apps/*}}, {{path: apps/old, exclude: true}}]}}
      - clusters: {{selector: {{matchLabels: {{env: production}}}}}}
  template:
    metadata:
      name: "{{{{.path.basename}}}}-{{{{.name}}}}"
      annotations:
        {prefix}image-list: web={web}
        {prefix}{key}: kustomization
    spec:
      project: default
      source: {{repoURL: "{repo}", targetRevision: main, path: "{{{{.path.path}}}}"}}
      destination: {{server: "{{{{.server}}}}", namespace: web}}
"""
CLUSTERS = "- {name: eu, server: https://eu, labels: {env: production}}\n- {name: us, server: https://us}\n"


def made(folder: Path, key: str = "write-back-target") -> tuple[Path, Path]:
    """A repository for Applications, and the file that lists the clusters."""
    repo = folder / "repo.git"
    text = SET.format(repo=repo, prefix=PREFIX, web=WEB, key=key)
    bare_repo(
        folder,
        {**{target(one): KUSTOMIZATION for one in ("web", "shop", "old")}, "sets/fleet.yaml": text},
    )
    clusters = folder / "clusters.yaml"
    clusters.write_text(CLUSTERS)
    return repo, clusters


def test_updates_all_applications_generated_by_a_set_in_git_in_one_commit(tmp_path: Path) -> None:
    repo, clusters = made(tmp_path)
    result = image_update(*arguments(f"{repo}//sets?ref=main", "--clusters", clusters))
    assert result.code == 0, result.stderr
    assert sorted(changed_paths(repo)) == [target("shop"), target("web")]
    found = [
        (one["application"], one["verdict"], one["generated_by"])
        for one in result.json["decisions"]
    ]
    assert found == [
        ("argocd/shop-eu", "update", "argocd/fleet"),
        ("argocd/web-eu", "update", "argocd/fleet"),
    ]
    assert "rendered ApplicationSets: 1; generated Applications: 2" in result.stderr


@pytest.mark.slow
def test_lint_reports_a_template_mistake_once_at_its_line_in_the_set(tmp_path: Path) -> None:
    repo, clusters = made(tmp_path, key="write-back-targt")
    text = SET.format(repo=repo, prefix=PREFIX, web=WEB, key="write-back-targt")
    (tmp_path / "set.yaml").write_text(f"---\n{text}")
    args = (
        "lint",
        "--applications",
        str(tmp_path / "set.yaml"),
        "--output",
        "json",
        "--allow-protocol",
        "file",
    )
    for more in (
        ("--clusters", str(clusters)),
        (),
    ):  # once rendered, and once with its placeholders unchanged
        result = image_update(*args, *more)
        assert result.code == 3
        (finding,) = [
            one for one in json.loads(result.stdout)["findings"] if one["key"] == "write-back-targt"
        ]
        assert (finding["file"], finding["line"]) == (str(tmp_path / "set.yaml"), 18)


PLACEHOLDERS = """\
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {{name: shop, namespace: argocd}}
spec:
  generators:
  - list:
      elements: [{{env: dev, r: newst}}, {{env: test, r: oldst}}, {{env: web, r: newst}}, {{env: live, r: semver}}]
  template:
    metadata:
      name: '{{{{env}}}}'
      annotations:
        {prefix}image-list: web=ghcr.io/acme/{{{{env}}}}:~1, db=acme/db
        {prefix}web.allow-tags: "^{{{{env}}}}"
        {prefix}db.allow-tags: "^{{{{env}}}}"
        {prefix}write-back-target: "helm:{{{{env}}}}/x"
        {prefix}web.update-strategy: "{{{{r}}}}"
    spec:
      project: default
      source: {{repoURL: https://git.example.com/p.git, path: 'apps/{{{{env}}}}', targetRevision: main}}
"""


def test_a_mistake_in_a_template_with_placeholders_is_reported_once(tmp_path: Path) -> None:
    """A mistake caused by one Application's parameters is reported for that Application."""
    (tmp_path / "set.yaml").write_text(PLACEHOLDERS.format(prefix=PREFIX))
    result = image_update("lint", tmp_path, "--output", "json")
    jsonschema.validate(result.json, load("lint.v1"))
    errors = [one for one in result.json["findings"] if one["severity"] == "error"]
    first = "ApplicationSet argocd/shop: "
    assert [
        (one["line"], one["application"], one["message"].partition(": unk")[0]) for one in errors
    ] == [
        (16, None, f"{first}web.update-strategy"),
        (
            13,
            None,
            f"{first}web.allow-tags: '^dev' is neither 'any' nor 'regexp:…' (argocd/dev and 3 more Applications)",
        ),
        (
            14,
            None,
            f"{first}db.allow-tags: '^dev' is neither 'any' nor 'regexp:…' (argocd/dev and 3 more Applications)",
        ),
        (15, None, f"{first}write-back-target"),
        (16, "argocd/test", "web.update-strategy"),
    ]
    assert errors[0]["message"].endswith("'newst' (argocd/dev and 1 more Application)")


LIVE = """\
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {{name: shop, namespace: argocd}}
spec:
  generators:
  - list: {{elements: [{{env: dev}}, {{env: test}}]}}
  {ignores}
  template:
    metadata:
      name: 'shop-{{{{env}}}}'
      annotations: {{{prefix}image-list: web=acme/web, {prefix}write-back-method: argocd}}
    spec:
      project: default
      source: {{repoURL: https://git.example.com/p.git, path: apps/web, targetRevision: main}}
"""


@pytest.mark.parametrize(
    ("ignores", "count"),
    [
        ("", 1),
        ("ignoreApplicationDifferences: [{jsonPointers: [/spec/syncPolicy]}]", 1),
        ("ignoreApplicationDifferences: [{jsonPointers: [/spec/source/helm/parameters]}]", 0),
    ],
)
def test_lint_warns_once_if_a_set_reverts_live_patches(
    tmp_path: Path, ignores: str, count: int
) -> None:
    (tmp_path / "set.yaml").write_text(LIVE.format(prefix=PREFIX, ignores=ignores))
    result = image_update("lint", str(tmp_path / "set.yaml"), "--output", "json")
    taken = [
        one
        for one in json.loads(result.stdout)["findings"]
        if "reverts the patch" in one["message"]
    ]
    assert (result.code, [(one["severity"], one["key"], one["line"]) for one in taken]) == (
        0,
        [("warning", "write-back-method", 11)] * count,
    )
