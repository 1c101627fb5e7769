"""The guides whose commands need an Argo CD are run against one in this process, and print what the page shows."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from clusters import app
from fakes.argocd_api import ArgoCDServer, argocd_server
from runs import repository, target
from support import ROOT, Result, image_update, show
from test_wait_runs import Played, env, hook_fails, versioned

from scripts.transcripts import alike, blocks

HOW_TO = ROOT / "docs" / "how-to"
URL = "https://github.com/acme/gitops.git"


@pytest.fixture
def server() -> Iterator[ArgoCDServer]:
    with argocd_server() as one:
        yield one


def commands(page: Path) -> list[str]:
    """The lines of the page's shell blocks."""
    return [line for one in blocks(page.read_text()) if one.language == "sh" for line in one.code.splitlines()]


def shown(page: Path) -> list[str]:
    """What the page says is printed."""
    return [alike(one.code) for one in blocks(page.read_text()) if one.language == "text"]


def run(line: str, environ: Mapping[str, str]) -> Result:
    return image_update(*shlex.split(line)[1:], env=environ)


def environment(server: ArgoCDServer, repo: Path) -> Mapping[str, str]:
    return {
        **env(server),
        "IMAGE_UPDATE_REWRITE_URL": f"{URL}={repo}",
        "IMAGE_UPDATE_ALLOW_PROTOCOL": "file",
        "IMAGE_UPDATE_WAIT_TIMEOUT": "20",
    }


def test_roll_back_by_itself(tmp_path: Path, server: ArgoCDServer) -> None:
    page = HOW_TO / "roll-back-by-itself.md"
    repo = repository(tmp_path, "web")
    server.plays = Played(repo, {"web": hook_fails}, [versioned(app("web", URL))])
    first, later, release = (run(line, environment(server, repo)) for line in commands(page))
    assert [alike(first.stdout)] == shown(page), first.stderr
    assert [first.code, later.code, release.code] == [6, 0, 0]
    assert "held" in later.stdout
    assert "newTag: 1.2.0" in show(repo, "main", target("web"))
