"""GitLab CI: reads the shipped component, and creates its container like the Docker executor."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hosts.runners import NOTHING, Given, Refused, fill, values_of
from hosts.steps import Step, Volume
from support import ROOT

from task.ci.publish import NAMES

COMPONENT = ROOT / "templates" / "image-update.yml"
PROJECT = "/builds/acme/web"
INPUT = re.compile(r"\$\[\[ *inputs\.([\w-]+) *\]\]")
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
PREDEFINED = {
    "CI": "true",
    "GITLAB_CI": "true",
    "CI_PROJECT_DIR": PROJECT,
    "CI_SERVER_URL": "https://gitlab.example.com",
    "CI_PROJECT_URL": "https://gitlab.example.com/acme/web",
    "CI_COMMIT_SHA": "a" * 40,
    "CI_COMMIT_REF_NAME": "main",
    "CI_PIPELINE_IID": "7",
    "CI_JOB_URL": "https://gitlab.example.com/acme/web/-/jobs/17",
    "CI_PIPELINE_URL": "https://gitlab.example.com/acme/web/-/pipelines/1",
}


@cache
def documents() -> tuple[Any, Any]:
    """Return the component's header and its jobs."""
    head, jobs = yaml.safe_load_all(COMPONENT.read_text(encoding="utf-8"))
    return head, jobs


def gitlab(
    inputs: Mapping[str, Any],
    project: Volume,
    variables: Given = NOTHING,
    script: Sequence[str] = (),
) -> Step:
    """Return the container of the component's job. `variables` are the project variables.

    `script` comes from the project's own job of the same name, and replaces the component's script.
    """
    head, jobs = documents()
    declared = head["spec"]["inputs"]
    for name, value in inputs.items():
        if not isinstance(
            value, str
        ):  # as in gitlab-ci-local (tests/real) and GitLab: an input's default type is string
            raise Refused(f"`{name}` input: provided value is not a string")
    values = values_of([{"name": name, **(one or {})} for name, one in declared.items()], inputs)
    for name, value in values.items():
        if value not in declared[name].get("options", [value]):
            raise Refused(f"{name}: {value}")
    (job,) = fill(jobs, INPUT, lambda name: _text(values[name])).values()
    env = {
        **PREDEFINED,
        **{name: _text(one) for name, one in job.get("variables", {}).items()},
        **variables,
    }
    env = {name: _expanded(value, env) for name, value in env.items()}
    image = job["image"] if isinstance(job["image"], dict) else {"name": job["image"]}
    script = "\n".join(["set -e", *job.get("before_script", ()), *(script or job["script"])])
    report = job["artifacts"]["reports"]["dotenv"]
    return Step(
        image=image["name"],
        command=["sh", "-c", script],
        env=env,
        volumes={"/builds": Volume(), PROJECT: project},
        results=lambda root: _dotenv(Path(f"{root}{PROJECT}", report)),
        folder=PROJECT,
        entrypoint=_entrypoint(image),
    )


def _entrypoint(image: Mapping[str, Any]) -> str:
    """Return "", but reject an image whose entrypoint would receive the runner's shell as an
    argument.
    """
    if image.get("entrypoint") != [""]:
        raise Refused("the job's shell would be an argument of the image's entrypoint")
    return ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _expanded(value: str, env: Given) -> str:
    return VARIABLE.sub(lambda found: env.get(found[1] or found[2], ""), value)


def _dotenv(path: Path) -> Mapping[str, str]:
    """Return the results from the dotenv report.

    Names must consist of letters, digits, and `_`, values of one line. At most 5 KB are allowed.
    """
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) <= 5 * 1024
    assert all(re.fullmatch(r"\w+=.*", line) for line in text.splitlines())
    names = {f"IMAGE_UPDATE_RESULT_{name.upper().replace('-', '_')}": name for name in NAMES}
    found = dict(line.split("=", 1) for line in text.splitlines())
    return {names[key]: value for key, value in found.items()}
