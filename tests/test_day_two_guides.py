"""Runs the guides whose commands need an Argo CD against a fake one in this process, and checks
that the commands print the output shown on the page.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from fakes.argocd_api import ArgoCDServer
from fakes.github_api import GitHub
from hosts.checks import maps
from support import ROOT, Result, bare_repo, commit, git, image_update, show
from support.clusters import full_application
from support.request_scenes import TOKEN, Scene
from support.runs import KUSTOMIZATION, WEB, repository, target
from support.serving import serving
from test_wait_runs import Played, env, good, hook_fails, versioned

from scripts.transcripts import alike, blocks

HOW_TO = ROOT / "docs" / "how-to"
URL = "https://github.com/acme/gitops.git"


def commands(page: Path) -> list[str]:
    """The lines in the page's shell blocks."""
    return [
        line
        for one in blocks(page.read_text())
        if one.language == "sh"
        for line in one.code.splitlines()
    ]


def shown(page: Path) -> list[str]:
    """The output that the page shows."""
    return [alike(one.code) for one in blocks(page.read_text()) if one.language == "text"]


def run_line(line: str, environ: Mapping[str, str]) -> Result:
    return image_update(*shlex.split(line)[1:], env=environ)


def environment(argo_cd: ArgoCDServer, repo: Path) -> Mapping[str, str]:
    return {
        **env(argo_cd),
        "IMAGE_UPDATE_REWRITE_URL": f"{URL}={repo}",
        "IMAGE_UPDATE_ALLOW_PROTOCOL": "file",
        "IMAGE_UPDATE_WAIT_TIMEOUT": "20",
    }


def test_the_automatic_rollback_guide_shows_the_real_output(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    page = HOW_TO / "roll-back-automatically.md"
    repo = repository(tmp_path, "web")
    argo_cd.plays = Played(repo, {"web": hook_fails}, [versioned(full_application("web", URL))])
    first, later, release = (run_line(line, environment(argo_cd, repo)) for line in commands(page))
    assert [alike(first.stdout)] == shown(page), first.stderr
    assert [first.code, later.code, release.code] == [6, 0, 0]
    assert "held" in later.stdout
    assert "newTag: 1.2.0" in show(repo, "main", target("web"))


def test_the_promotion_guide_shows_the_real_output(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    page = HOW_TO / "promote.md"
    repo = repository(tmp_path, "web-staging", "web-production")
    apps = [versioned(full_application(name, URL)) for name in ("web-staging", "web-production")]
    argo_cd.plays = Played(repo, {"web-staging": good, "web-production": good}, apps)
    staging, production, *others = (
        run_line(line, environment(argo_cd, repo)) for line in commands(page)
    )
    assert staging.code == 0, staging.stderr
    assert ([alike(production.stdout)], production.code) == (shown(page), 0), production.stderr
    assert "newTag: 1.1.0" in show(repo, "main", target("web-production"))
    assert [
        (one.code, "--from-selector: no Application matches" in one.stderr) for one in others
    ] == [
        (3, False),
        (3, True),
    ]


def promotions(page: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The promotion steps in the page's pipelines, each with its CI host and parameters."""
    for one in maps(
        [
            yaml.safe_load(block.code)
            for block in blocks(page.read_text())
            if block.language == "yaml"
        ]
    ):
        listed = one.get("params") or one.get("parameters") or ()
        given = (
            {pair["name"]: pair["value"] for pair in listed}
            or one.get("with")
            or one.get("inputs")
            or {}
        )
        if given.get("command") == "promote":
            yield next(host for key, host in HOSTS.items() if key in one), given


HOSTS = {"uses": "github", "component": "gitlab", "taskRef": "tekton", "parameters": "argo"}
PROMOTIONS = list(promotions(HOW_TO / "promote.md"))


def test_the_promotion_guide_covers_every_host() -> None:
    assert [host for host, _ in PROMOTIONS] == ["github", "gitlab", "tekton", "argo"]


@pytest.mark.parametrize(
    ("host", "given"), PROMOTIONS, ids=lambda one: one if isinstance(one, str) else ""
)
def test_each_promotion_pipeline_opens_a_pull_request(
    host: str, given: dict[str, str], tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    secrets = [name for name in given if name.endswith("-token")]
    assert bool(secrets) == (host == "github")
    assert "--argocd-server" in str(given["options"])
    params = {
        name: value
        for name, value in given.items()
        if name not in (*secrets, "command", "job-name", "options")
    }
    with serving(GitHub()) as forge:
        scene = Scene(tmp_path, forge, names=("web-staging", "web-production"))
        apps = [
            versioned(full_application(name, scene.url))
            for name in ("web-staging", "web-production")
        ]
        commit(scene.repo, {target("web-staging"): KUSTOMIZATION.replace("1.0.0", "1.1.0")})
        for one in apps:
            argo_cd.add(good(one, git(scene.repo, "rev-parse", "main"))[-1])
        environ = {
            **{
                f"IMAGE_UPDATE_PARAMETER_{name.upper().replace('-', '_')}": value
                for name, value in params.items()
            },
            **environment(argo_cd, scene.repo),
            "IMAGE_UPDATE_ARGOCD_SERVER": argo_cd.address,
            "IMAGE_UPDATE_ARGOCD_AUTH_TOKEN": "good-token",
            "IMAGE_UPDATE_ARGOCD_PLAINTEXT": "true",
            "IMAGE_UPDATE_FORGE_TOKEN": TOKEN,
            "IMAGE_UPDATE_FORGE": f"github={forge.url}",
            "IMAGE_UPDATE_REWRITE_URL": f"{scene.url}={scene.repo}",
            "IMAGE_UPDATE_GIT_CREDENTIALS_URL": "https://github.com/acme/",
        }
        result = image_update("promote", env=environ)
        assert result.code == 0, result.stderr
        assert "newTag: 1.0.0" in show(scene.repo, "main", target("web-production"))
        assert [pull.title for pull in forge.open] == [f"web-production: {WEB} 1.0.0 → 1.1.0"]


@pytest.mark.parametrize(
    ("page", "path", "line"),
    [
        ("app-of-apps", "apps/blog.yaml", "image: {repository: ghcr.io/acme/blog, tag: 1.4.2}"),
        (
            "application-sets",
            "sets/stores.yaml",
            '- {name: store-berlin, number: "0", tag: 1.4.2, track: "^1"}',
        ),
    ],
)
def test_the_guides_update_a_version_inside_the_manifest(
    tmp_path: Path, page: str, path: str, line: str
) -> None:
    shown = [
        one.code
        for one in blocks((HOW_TO / f"{page}.md").read_text())
        if f"helmvalues:/{path}" in one.code
    ]
    before = next(one for one in shown if "valuesObject" in one)
    repo = bare_repo(tmp_path, {path: before})
    source, platform = f"{repo}//{path}?ref=main", "https://git.example.com/platform.git"
    call = [
        "--image",
        f"ghcr.io/acme/{'blog' if 'blog' in path else 'web'}:1.5.0",
        "--applications",
        source,
        "--allow-protocol",
        "file",
    ]
    ended = image_update("run", *call, "--rewrite-url", f"{platform}={repo}")
    assert ended.code == 0, ended.stderr
    assert show(repo, "main", path) == before.replace(line, line.replace("1.4.2", "1.5.0"))
    assert show(repo, "main", path) != before
