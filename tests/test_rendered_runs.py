"""Whole runs on Applications that are not among the manifests: those from a chart, and those
deployed by other Applications.
"""

import json
import os
from pathlib import Path

import pytest
from support import bare_repo, changed_paths, image_update, needs
from support.runs import KUSTOMIZATION, PREFIX, WEB, application, arguments, manifest, target

TEMPLATE = """\
{{{{- range .Values.apps }}}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: {{{{ . }}}}
  namespace: {{{{ $.Release.Namespace }}}}
  annotations: {{ {prefix}image-list: web={web}, {prefix}write-back-target: kustomization }}
spec:
  source: {{ repoURL: "{repo}", path: apps/{{{{ . }}}}, targetRevision: main }}
{{{{- end }}}}
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a chart that generates two Applications, and with their folders."""
    return bare_repo(
        tmp_path,
        {
            **{target(one): KUSTOMIZATION for one in ("web", "shop")},
            "chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 0.1.0\n",
            "chart/values.yaml": "apps: [web, shop]\n",
            "chart/templates/apps.yaml": TEMPLATE.format(
                prefix=PREFIX, web=WEB, repo=tmp_path / "repo.git"
            ),
        },
    )


@pytest.mark.measured
def test_the_applications_of_a_chart_in_git_are_updated_in_one_commit(repo: Path) -> None:
    (helm,) = needs("helm")
    path = os.pathsep.join((os.path.dirname(helm), os.environ["PATH"]))
    result = image_update(
        *arguments(f"{repo}//chart?ref=main", "--render", "helm"), env={"PATH": path}
    )
    assert result.code == 0, result.stderr
    assert sorted(changed_paths(repo)) == [target("shop"), target("web")]
    assert [one["application"] for one in result.json["decisions"]] == ["argocd/shop", "argocd/web"]


def test_a_chart_that_fails_to_render_is_a_single_lint_finding(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "helm").write_text("#!/bin/sh\necho 'Error: no' >&2\nexit 1\n")
    (tmp_path / "bin" / "helm").chmod(0o755)
    (tmp_path / "chart").mkdir()
    (tmp_path / "chart" / "Chart.yaml").write_text("name: chart\n")
    wrong = application("web", "https://h/x.git")
    wrong["metadata"]["annotations"][f"{PREFIX}image-list"] = "no image"
    path = os.pathsep.join((str(tmp_path / "bin"), os.environ["PATH"]))
    sources = ("chart", manifest(tmp_path, wrong))
    result = image_update(
        "lint", *sources, "--render", "helm", "--output", "json", cwd=tmp_path, env={"PATH": path}
    )
    assert result.code == 3
    first, *others = result.json["findings"]
    assert (first["file"], first["severity"]) == ("chart", "error")
    assert first["message"] == "cannot render this Helm chart: helm exited with 1: Error: no"
    assert "web" in str(others[0]["application"])


def test_an_unrendered_chart_is_a_warning_with_a_hint(repo: Path) -> None:
    result = image_update(*arguments(f"{repo}//chart?ref=main"))
    assert (result.code, result.json["decisions"]) == (0, [])
    (warning,) = [one for one in result.json["errors"] if "Helm chart" in one["message"]]
    assert (warning["severity"], warning["rule"]) == ("warning", "source")
    assert (
        warning["message"]
        == f"{repo}//chart: this Helm chart generates Applications, but it is not rendered"
    )
    assert "render it with --render helm" in result.stderr


@pytest.mark.measured
def test_applications_below_a_parent_are_updated_through_the_rewritten_url(
    tmp_path: Path,
) -> None:
    url = "https://git.example.com/repo.git"
    parent = application("root", url)
    del parent["metadata"]["annotations"]
    parent["spec"]["source"]["path"] = "children"
    children = {
        f"children/{one}.json": json.dumps(application(one, url)) for one in ("web", "shop")
    }
    repo = bare_repo(
        tmp_path, {**children, **{target(one): KUSTOMIZATION for one in ("web", "shop")}}
    )
    rewrite = f"https://git.example.com/=file://{tmp_path}/"
    args = arguments(manifest(tmp_path, parent), "--rewrite-url", rewrite)
    without = image_update(*args)
    assert (without.code, without.json["decisions"]) == (0, [])
    result = image_update(*args, "--follow-apps", "1")
    assert result.code == 0, result.stderr
    assert sorted(changed_paths(repo)) == [target("shop"), target("web")]
    assert [one["repository"] for one in result.json["commits"]] == [url]
