"""The samples run with the real code of Tekton Triggers and Argo Events: registry events arrive."""

import json
import subprocess
from typing import Any

import pytest
from real.programs import installed
from support import ROOT

from task.ci.events.forms import events_in

pytestmark = pytest.mark.real
SAMPLES = (
    ROOT / "tekton/task/image-update/samples/trigger-registry.yaml",
    ROOT / "argo-workflows/image-update/samples/events-registry.yaml",
)
RECORDED = [
    json.loads(path.read_text()) for path in sorted((ROOT / "tests/data/events").glob("*.json"))
]
CASES = [case for file in RECORDED for case in file["cases"]]
EVIL = {"evil": "\"; $(touch /tmp/x) ' \\ \n ${{x}} $(params.events) {{x}}"}


def handed_on(bodies: list[Any]) -> list[dict[str, str]]:
    argv = [installed("bin/triggers"), *map(str, SAMPLES)]
    done = subprocess.run(
        argv, input=json.dumps(bodies), text=True, check=True, capture_output=True
    )
    made: list[dict[str, str]] = json.loads(done.stdout)
    return made


def test_triggers_pass_on_the_exact_event() -> None:
    bodies = [*(case["payload"] for case in CASES), EVIL]
    for body, made in zip(bodies, handed_on(bodies), strict=True):
        assert json.loads(made["argo"]) == body
        if isinstance(body, dict):  # Tekton's interceptors accept only JSON objects
            assert json.loads(made["tekton"]) == body
            assert made["forged"] == "refused"
        else:
            assert made["tekton"].startswith("error")


def test_events_passed_on_by_triggers_name_the_image() -> None:
    cases = [one for one in CASES if one["images"] and isinstance(one["payload"], dict)]
    for case, made in zip(cases, handed_on([one["payload"] for one in cases]), strict=True):
        for host in ("tekton", "argo"):
            found = events_in(made[host], "registry", "registry.example:5000")
            assert found is not None
            assert len(found.pushes) == len(case["images"])
