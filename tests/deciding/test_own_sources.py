"""An Application's first update, without a status, must not be older than its own sources."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import needs
from support.memory import SCOPE, URL, WORDING, Branch, Story
from support.runs import WEB, application

from task.annotations.application import parse_application
from task.annotations.subscription import subscribe
from task.deciding.job import Job, Terms
from task.deciding.target import own_places, own_reading
from task.image import parse_image
from task.model import File, Judged, Subscription

CHART = {"apps/a/Chart.yaml": "apiVersion: v2\nname: a\nversion: 0.1.0\n"}
VALUES = f"image:\n  name: {WEB}\n  tag: 2.0.0\n"
KUSTOMIZATION = "resources: [d.yaml]\n"
NAMED = f"images:\n- name: {WEB}\n  newTag: 2.0.0\n"
HELM = {"parameters": [{"name": "image.tag", "value": "2.0.0"}]}


def story(
    section: dict[str, Any], files: dict[str, str], status: Any = None, **annotations: str
) -> Story:
    app = application("a", URL, **{"write_back_target": "", **annotations})
    app["spec"]["source"] |= section
    app |= {"status": status} if status else {}
    return Story(app, Branch({"apps/a/README": "", **files}))


def decided(told: Story, tag: str, command: str = "run") -> tuple[Judged, list[str]]:
    report = told.run(
        Job(command, (parse_image(f"{WEB}:{tag}"),), SCOPE, Terms(), WORDING, dry=command == "plan")
    )
    return report.decisions[0], [one.message for one in report.problems]


ROWS: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, str]]] = {
    "parameters": ({"helm": HELM}, CHART, {}),
    "values": ({"helm": {"values": VALUES}}, CHART, {}),
    "values object": ({"helm": {"valuesObject": yaml.safe_load(VALUES), "values": "image: {tag: 0.1.0}"}}, CHART, {}),
    "the chart's values": ({}, {**CHART, "apps/a/values.yaml": VALUES}, {}),
    "a values file": (
        {"helm": {"valueFiles": ["../base.yaml", "/top.yaml"]}},
        {**CHART, "apps/a/values.yaml": "image: {tag: 0.1.0}", "apps/base.yaml": VALUES, "top.yaml": "replicas: 2\n"},
        {},
    ),
    "the name in another file than the tag": (
        {"helm": {"valueFiles": ["prod.yaml"]}},
        {**CHART, "apps/a/values.yaml": "image: {name: acme/web}", "apps/a/prod.yaml": "image: {tag: 2.0.0}"},
        {},
    ),
    "an annotated key": (
        {"helm": {"values": f"web: {{image: '{WEB}:2.0.0'}}"}}, CHART, {"web.helm.image-spec": "web.image"},
    ),
    "a values file that is written, and lacks the key": (
        {"helm": {"valueFiles": ["values.yaml", "prod.yaml"]}},
        {**CHART, "apps/a/values.yaml": VALUES, "apps/a/prod.yaml": "replicas: 2\n"},
        {"write_back_target": "helmvalues:prod.yaml"},
    ),
    "images": ({"kustomize": {"images": [f"{WEB}:2.0.0"]}}, {"apps/a/kustomization.yaml": KUSTOMIZATION}, {}),
    "the kustomization": ({}, {"apps/a/kustomization.yaml": KUSTOMIZATION + NAMED}, {}),
    "images over the kustomization": (
        {"kustomize": {"images": [f"{WEB}:2.0.0"]}},
        {"apps/a/kustomization.yaml": KUSTOMIZATION + NAMED.replace("2.0.0", "0.1.0")},
        {},
    ),
    "the common override file": (
        {"helm": {"parameters": [{"name": "image.tag", "value": "0.1.0"}]}},
        {**CHART, "apps/a/.argocd-source.yaml": yaml.safe_dump({"helm": HELM})},
        {},
    ),
    "a plugin's variables": (
        {"plugin": {"env": [{"name": "TAG", "value": "2.0.0"}]}}, {}, {"web.plugin.image-tag": "TAG"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_an_older_build_than_the_version_in_the_sources_is_refused(row: str) -> None:
    section, files, annotations = ROWS[row]
    told = story(section, files, **annotations)
    one, _ = decided(told, "1.0.0")
    assert (one.verdict, one.rule, one.current.tag) == ("refuse", "not-newer", "2.0.0")
    assert len(told.branch.commits) == 1
    one, _ = decided(told, "2.0.0")
    assert (one.verdict, "own sources already have 2.0.0" in one.because) == ("unchanged", True)
    one, problems = decided(told, "3.0.0", "plan")
    assert (one.verdict, [text for text in problems if "was not compared" in text]) == (
        "update",
        [],
    )
    assert decided(told, "3.0.0")[0].verdict == "update"
    assert decided(told, "2.5.0")[0].current.tag == "3.0.0"


@pytest.mark.parametrize(
    ("section", "files"),
    [
        ({}, CHART),
        ({}, {**CHART, "apps/a/values.yaml": "image: {tag: [2.0.0]}"}),
        ({}, {**CHART, "apps/a/values.yaml": "image: {name: ghcr.io/acme/other, tag: 2.0.0}"}),
        # a list in the override file hides the spec's parameters
        ({"helm": HELM}, {**CHART, "apps/a/.argocd-source-a.yaml": "helm: {parameters: []}"}),
        (
            {"helm": {"valueFiles": ["https://example.com/v.yaml", "../../../x", "$other/v.yaml"]}},
            CHART,
        ),
        ({}, {"apps/a/kustomization.yaml": KUSTOMIZATION}),
    ],
)
def test_a_first_tag_without_any_current_version_is_written_with_a_warning(
    section: dict[str, Any], files: dict[str, str]
) -> None:
    told = story(section, files)
    one, problems = decided(told, "1.0.0", "plan")
    assert (one.verdict, one.current.tag) == ("update", "")
    assert [text for text in problems if "1.0.0 was not compared with anything" in text]
    assert [
        text for text in decided(told, "1.0.0")[1] if "1.0.0 was not compared with anything" in text
    ]
    assert not [text for text in decided(told, "1.0.0")[1] if "was not compared" in text]


def test_the_running_version_takes_precedence_over_the_spec() -> None:
    told = story(
        {"helm": HELM}, CHART, {"sourceType": "Helm", "summary": {"images": [f"{WEB}:0.9.0"]}}
    )
    one, _ = decided(told, "1.0.0")
    assert (one.verdict, one.current.tag) == ("update", "0.9.0")


LAYERS = ("values.yaml", "one.yaml", "two.yaml", "values", "valuesObject", "parameters")


@pytest.mark.parametrize("strongest", range(1, len(LAYERS) + 1))
def test_the_version_in_the_sources_matches_the_output_of_helm(
    tmp_path: Path, strongest: int
) -> None:
    there = LAYERS[:strongest]
    texts = {name: f"image: {{tag: 1.{number}.0}}\n" for number, name in enumerate(there)}
    files = {name: text for name, text in texts.items() if name.endswith(".yaml")}
    section: dict[str, Any] = {"valueFiles": [name for name in files if name != "values.yaml"]}
    section |= {"values": texts["values"]} if "values" in there else {}
    section |= (
        {"valuesObject": yaml.safe_load(texts["valuesObject"])} if "valuesObject" in there else {}
    )
    if "parameters" in there:
        section["parameters"] = [{"name": "image.tag", "value": "1.5.0"}]

    chart = {
        "Chart.yaml": "apiVersion: v2\nname: a\nversion: 0.1.0\n",
        "templates/a.yaml": "tag: {{ .Values.image.tag }}\n",
    }
    for name, text in {**chart, **files}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    # as in Argo CD's repo-server: values files, the spec's values as a file, parameters
    flags = [flag for name in section["valueFiles"] for flag in ("--values", str(tmp_path / name))]
    if own := section.get("valuesObject") or section.get("values"):
        (tmp_path / "own.json").write_text(own if isinstance(own, str) else json.dumps(own))
        flags += ["--values", str(tmp_path / "own.json")]
    flags += [f"--set=image.tag={one['value']}" for one in section.get("parameters", ())]
    command = [*needs("helm"), "template", "a", str(tmp_path), *flags]
    rendered = yaml.safe_load(subprocess.run(command, capture_output=True, check=True).stdout)[
        "tag"
    ]

    sub = subscription({"helm": section})
    wanted = [place.path for place in own_places(sub, "helm-override")]
    snapshot = {f"apps/a/{name}": File(text) for name, text in files.items()}
    assert set(snapshot) <= set(wanted)
    assert own_reading(snapshot, sub, "helm-override").tag == rendered


def subscription(section: dict[str, Any]) -> Subscription:
    app = application("a", URL, write_back_target="")
    app["spec"]["source"] |= section
    return subscribe(parse_application(app)).subscriptions[0]
