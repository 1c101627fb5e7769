"""The host guides: their YAML uses only known parameters and results, and works when copied."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hosts import runners
from hosts.checks import maps
from hosts.gitlab import PREDEFINED, VARIABLE, documents
from hosts.gitlab import gitlab as gitlab_job
from hosts.steps import Ran, Step, Volume, as_process
from support import ROOT, bare_repo, git
from support.git_servers import GitServer, git_server
from support.runs import application

from scripts.transcripts import blocks
from scripts.typer_options import all_options
from task.ci.publish import NAMES
from task.settings import SECRETS

FOLDERS = ("docs", "tekton", "argo-workflows", "templates")
PAGES = [
    ROOT / "README.md",
    *sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")),
]
DIGEST, COMMIT = f"sha256:{'1' * 64}", "4f2a9c1d5e6b7a8c9d0e1f2a3b4c5d6e7f8a9b0c"
TOKEN = "token-of-the-page"


def shown(page: Path) -> Iterator[Any]:
    """Yield the YAML documents on a page."""
    for one in blocks(page.read_text(encoding="utf-8")):
        if one.language == "yaml":
            yield from yaml.safe_load_all(one.code)


class Use(NamedTuple):
    """A place on a page that uses one of our files."""

    host: str
    page: str
    given: Mapping[str, Any]


def uses() -> Iterator[Use]:
    for page in PAGES:
        for one in maps(list(shown(page))):
            params = {
                given["name"]: given.get("value")
                for given in one.get("params", ())
                if isinstance(given, dict)
            }
            reference = one.get("templateRef")
            if isinstance(reference, dict) and reference["name"] == "image-update":
                yield Use(
                    "argo",
                    page.name,
                    {given["name"]: given["value"] for given in one["arguments"]["parameters"]},
                )
            if one.get("taskRef") == {"name": "image-update"}:
                yield Use("tekton", page.name, params)
            if one.get("ref") == {"name": "image-update"}:
                yield Use("stepaction", page.name, params)
            if str(one.get("uses", "")).startswith("argocd-image-update/image-update@"):
                yield Use("github", page.name, one["with"])
            if "/image-update/image-update@" in str(one.get("component", "")):
                yield Use("gitlab", page.name, one["inputs"])


def declared(host: str) -> set[str]:
    if host == "github":
        return set(runners.manifest(runners.ACTION)["inputs"])
    if host == "gitlab":
        return set(documents()[0]["spec"]["inputs"])
    if host == "argo":
        (leaf,) = runners.manifest(runners.TEMPLATE)["spec"]["templates"]
        return {one["name"] for one in leaf["inputs"]["parameters"]}
    path = runners.TASK if host == "tekton" else runners.STEP_ACTION
    return {one["name"] for one in runners.manifest(path)["spec"]["params"]}


def test_pages_use_only_declared_parameters() -> None:
    found = list(uses())
    assert {one.host for one in found} == {"tekton", "stepaction", "argo", "github", "gitlab"}
    assert [
        (one.page, one.host, unknown)
        for one in found
        if (unknown := set(one.given) - declared(one.host))
    ] == []


def test_pages_read_only_existing_results() -> None:
    read = re.compile(r"(?:tasks|steps)\.update\.(?:results|outputs)(?:\.parameters)?\.([\w-]+)")
    found = {
        (page.name, name)
        for page in PAGES
        for name in read.findall(page.read_text(encoding="utf-8"))
    }
    assert len(found) > 5
    assert {one for one in found if one[1] not in NAMES} == set()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    """Yield a Git server with the repositories in the guides. Each contains its Application."""
    folder = tmp_path / "served"
    with git_server(folder) as serving:
        for name, apps in (
            ("platform", "apps"),
            ("acme/gitops", "applications"),
            ("platform/gitops", "applications"),
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            files = {
                "web/kustomization.yaml": "images:\n- name: ghcr.io/acme/web\n  newTag: 1.0.0\n",
                f"{apps}/web.yaml": yaml.safe_dump(
                    application("web", f"{serving.url}{name}.git", path="web")
                ),
            }
            bare_repo(folder, files, name=f"{name}.git")
        yield serving


def landed(server: GitServer, name: str) -> bool:
    return "newTag: 1.5.0" in git(
        server.folder / f"{name}.git", "show", "main:web/kustomization.yaml"
    )


def filled(value: Any, words: Mapping[str, str]) -> Any:
    """Return part of a page with its references replaced as on the host."""
    if isinstance(value, Mapping):
        return {key: filled(one, words) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, words) for one in value]
    text = str(value)
    for word, given in words.items():
        text = text.replace(word, given)
    return text


def ran(step: Step, folder: Path) -> Ran:
    done = as_process(step, folder / "root")
    assert done.code == 0, done.stderr
    assert done.results["updated"] == "true"
    return done


def test_the_tekton_guide_updates_the_application(server: GitServer, tmp_path: Path) -> None:
    server.logins = {"ci": "a-token"}
    words = {
        "$(tasks.build.results.IMAGE_URL)": "ghcr.io/acme/web:1.5.0",
        "$(tasks.build.results.IMAGE_DIGEST)": DIGEST,
        "$(params.commit)": COMMIT,
        "https://git.example.com": server.url.rstrip("/"),
        "https://ci:a-token@git.example.com": server.url.rstrip("/").replace(
            "://", "://ci:a-token@"
        ),
    }
    page = list(shown(ROOT / "docs/how-to/tekton.md"))
    (pipeline,) = (one for one in page if isinstance(one, dict) and one.get("kind") == "Pipeline")
    (secret,) = (one for one in page if isinstance(one, dict) and one.get("kind") == "Secret")
    (update,) = (one for one in pipeline["spec"]["tasks"] if one["name"] == "update")
    (bound,) = update["workspaces"]
    params = {one["name"]: filled(one["value"], words) for one in update["params"]}
    volume = Volume(filled(secret["stringData"], words), secret=True, read_only=True)
    done = ran(runners.tekton(params, {"source": Volume(), bound["name"]: volume}), tmp_path)
    assert landed(server, "platform")
    assert done.results["digest"] == DIGEST


def test_the_argo_workflows_guide_updates_the_application(
    server: GitServer, tmp_path: Path
) -> None:
    words = {
        "{{workflow.parameters.tag}}": "1.5.0",
        "{{workflow.creationTimestamp.s}}": "1795430000",
        "https://git.example.com": server.url.rstrip("/"),
    }
    page = [one for one in shown(ROOT / "docs/how-to/argo-workflows.md") if isinstance(one, dict)]
    (template,) = (one for one in page if one.get("metadata", {}).get("name") == "web")
    (update,) = (
        one for one in maps(template) if one.get("name") == "update" and "templateRef" in one
    )
    given = {one["name"]: filled(one["value"], words) for one in update["arguments"]["parameters"]}
    ran(runners.argo(given, template=update["templateRef"]["template"]), tmp_path)
    assert landed(server, "platform")


def test_argo_workflows_keeps_a_report_only_on_request(tmp_path: Path) -> None:
    """This applies to every outcome, because a default installation cannot store the artifact."""
    wanted, plain = (
        runners.argo({"image": "x:1", "report": text}, template="update")
        for text in ("true", "false")
    )
    kept = [
        as_process(step, tmp_path / name) for step, name in ((wanted, "wanted"), (plain, "plain"))
    ]
    assert [one.code for one in kept] == [2, 2]  # no source of Applications is specified
    assert (tmp_path / "wanted/out/report.json").exists()
    assert not (tmp_path / "plain/out/report.json").exists()


def test_the_github_actions_guide_updates_the_application(
    server: GitServer, tmp_path: Path
) -> None:
    server.logins = {"x-access-token": TOKEN}
    words = {
        "${{ github.ref_name }}": "1.5.0",
        "${{ steps.build.outputs.digest }}": DIGEST,
        "${{ secrets.GITOPS_TOKEN }}": TOKEN,
        "https://github.com": server.url.rstrip("/"),
    }
    page = [one for one in shown(ROOT / "docs/how-to/github-actions.md") if isinstance(one, dict)]
    (update,) = (one for one in maps(page) if one.get("id") == "update")
    host = {
        "GITHUB_SERVER_URL": server.url.rstrip("/")
    }  # the token is for this server, because no other server is named
    done = ran(runners.github(filled(update["with"], words), Volume(), host), tmp_path)
    assert landed(server, "acme/gitops")
    summary = (tmp_path / "root/github/file_commands/step_summary_1").read_text()
    assert done.results["commit"][:12] in summary


def test_the_gitlab_component_in_the_guide_updates_the_application(
    server: GitServer, tmp_path: Path
) -> None:
    server.logins = {"x-access-token": TOKEN}
    words = {
        "$CI_REGISTRY_IMAGE:$CI_COMMIT_TAG": "ghcr.io/acme/web:1.5.0",
        "https://gitlab.example.com": server.url.rstrip("/"),
    }
    page = [one for one in shown(ROOT / "docs/how-to/gitlab.md") if isinstance(one, dict)]
    component = page[0]["include"][0]
    ran(
        gitlab_job(filled(component["inputs"], words), Volume(), {"IMAGE_UPDATE_GIT_TOKEN": TOKEN}),
        tmp_path,
    )
    assert landed(server, "platform/gitops")


def test_the_gitlab_job_in_the_guide_updates_the_application(
    server: GitServer, tmp_path: Path
) -> None:
    server.logins = {"x-access-token": TOKEN}
    page = [one for one in shown(ROOT / "docs/how-to/gitlab.md") if isinstance(one, dict)]
    (job,) = (one["update"] for one in page if "update" in one)
    project = {
        "CI_SERVER_URL": server.url.rstrip("/"),
        "CI_REGISTRY_IMAGE": "ghcr.io/acme/web",
        "CI_COMMIT_TAG": "1.5.0",
    }
    env = {**PREDEFINED, **project, "GITOPS_TOKEN": TOKEN, **job["variables"]}
    env = {
        name: VARIABLE.sub(lambda found: env[found[1] or found[2]], text)
        for name, text in env.items()
    }
    known = {str(one.envvar) for one in all_options()} | set(SECRETS) | {"GIT_STRATEGY"}
    assert set(job["variables"]) <= known
    folder = PREDEFINED["CI_PROJECT_DIR"]
    report = job["artifacts"]["reports"]["dotenv"]
    step = Step(
        image=job["image"]["name"],
        command=["sh", "-c", "\n".join(["set -e", *job["script"]])],
        env=env,
        volumes={folder: Volume()},
        results=lambda root: results(Path(f"{root}{folder}", report)),
        folder=folder,
    )
    ran(step, tmp_path)
    assert landed(server, "platform/gitops")


def results(path: Path) -> Mapping[str, str]:
    lines = dict(line.split("=", 1) for line in path.read_text().splitlines())
    return {name: lines[f"IMAGE_UPDATE_RESULT_{name.upper().replace('-', '_')}"] for name in NAMES}
