"""Templates of Helm charts among manifests: skipped, and told where they make Applications."""

from pathlib import Path

import pytest
from support import bare_repo

from task.applications.charts import ChartTemplates
from task.applications.git import GitManifests
from task.applications.manifest_files import Manifests
from task.applications.rendering import Rendering
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.model import Found

APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: web}
"""
TEMPLATE = APPLICATION.replace("web", '"{{ .Values.name }}"')
LOOP = f"{{{{- range .Values.apps }}}}\n---\n{TEMPLATE}{{{{- end }}}}\n"
FILES = {
    "web.yaml": APPLICATION,
    "chart/Chart.yaml": "name: apps\n",
    "chart/templates/loop.yaml": LOOP,
    "chart/templates/deep/one.yaml": TEMPLATE,
    "chart/templates/plain.yaml": APPLICATION.replace("web", "plain"),
    "rollouts/Chart.yaml": "name: rollouts\n",
    "rollouts/templates/x.yaml": LOOP.replace("Application", "Rollout"),
}


def told(found: list[Found]) -> list[tuple[str, bool]]:
    return [(one.problem, one.advice) for one in found if one.problem]


def names(found: list[Found]) -> list[str]:
    return [one.item["metadata"]["name"] for one in found if one.item]


def test_a_folder_is_read_without_the_templates_of_its_charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    for source, where in ((".", "chart"), ("./", "chart"), (str(tmp_path), f"{tmp_path}/chart")):
        found = list(Manifests(source).all())
        assert names(found) == ["web", "plain"]
        message = f"{where}: this Helm chart makes Applications, and it is not rendered"
        assert told(found) == [(message, True)]
    assert [one.origin for one in Manifests(".").all() if one.item] == ["web.yaml:1", "chart/templates/plain.yaml:1"]
    inside = [one.problem for one in Manifests("chart").all() if one.problem]
    assert inside == ["chart: this Helm chart makes Applications, and it is not rendered"]


def test_a_repository_is_read_without_the_templates_of_its_charts(tmp_path: Path) -> None:
    repo = str(bare_repo(tmp_path, FILES))
    for path, where in (("", f"{repo}//chart"), ("chart", f"{repo}//chart")):
        git = BareRepository(Git({}, protocols=frozenset({"file"})), repo)
        found = list(GitManifests(git, path).all())
        assert set(names(found)) >= {"plain"}
        assert told(found)[0][0].startswith(f"{where}: this Helm chart")


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("chart/templates/x.yaml", TEMPLATE, True),
        ("chart/templates/x.yaml", APPLICATION, False),
        ("chart/x.yaml", TEMPLATE, False),
        ("templates/x.yaml", TEMPLATE, False),
        ("chart/charts/sub/templates/x.yaml", TEMPLATE, True),
        ("chart/templates", TEMPLATE, False),
    ],
)
def test_what_a_template_is(path: str, text: str, *, expected: bool) -> None:
    charts = ChartTemplates(["chart/Chart.yaml", "chart/charts/sub/Chart.yaml", "chart/values.yaml"])
    assert charts.holds(path, text) == expected


def test_a_chart_at_the_root() -> None:
    charts = ChartTemplates(["Chart.yaml"])
    assert charts.holds("templates/x.yaml", TEMPLATE)
    assert charts.of_applications == ("",)
    told = Rendering().unrendered("", charts.of_applications, "", applications=True)
    assert [one.origin for one in told] == ["."]
    told = Rendering().unrendered("", charts.of_applications, "", applications=True, before="https://h/x.git//")
    assert [one.origin for one in told] == ["https://h/x.git"]
