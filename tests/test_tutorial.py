"""The README and the tutorial show what really happens: their shell blocks are run in order in an
empty folder.
"""

import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fakes.argocd_states import at, operated
from fakes.kubernetes_api import APPLICATIONS, Asked, KubernetesApi, cluster_application, running
from support import ROOT, bare_repo, git, image_update

from scripts.transcripts import PAGES, alike, beginning, blocks, printed, runnable

pytestmark = pytest.mark.slow
README = PAGES[0]  # coverage is measured, because the page contains the demo


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(one, marks=pytest.mark.measured if one == README else (), id=one.name)
        for one in PAGES
    ],
)
def test_the_shell_blocks_print_the_output_shown_on_the_page(page: Path, tmp_path: Path) -> None:
    pairs = runnable(page.read_text())
    ends = list(printed([one.code for one, _ in pairs], tmp_path))
    assert [(one.code, code) for (one, _), (code, _) in zip(pairs, ends, strict=True) if code] == []
    for (one, shown), (_, output) in zip(pairs, ends, strict=True):
        if shown:
            now = alike(beginning(output, shown.code))
            assert alike(shown.code) == now, f"python -m scripts.transcripts writes it: {one.code}"


@pytest.mark.parametrize("of_git", ["1d0a3b5", "cdcebba", "1234567", "0" * 40])
def test_every_git_commit_id_is_replaced_with_a_placeholder(of_git: str) -> None:
    """One in a thousand short commit IDs contains no digits, and one in thirty contains no
    letters.
    """
    assert alike(f"{of_git} release web") == "ID release web"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_shell_block_is_run_unless_the_page_gives_a_reason(page: Path) -> None:
    shell = [
        block
        for block in blocks(page.read_text())
        if block.language in {"bash", "console", "shell", "sh"}
    ]
    assert {block.language for block in shell} == {"sh"}
    assert any(not block.why_not for block in shell)


def test_the_makefile_has_the_target_named_in_the_readme() -> None:
    done = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "image-update demo" in done.stdout


def test_a_repository_in_a_local_folder_is_refused_with_a_hint(tmp_path: Path) -> None:
    """This happens to people who skip a line in the tutorial."""
    (tmp_path / "web.yaml").write_text(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\n"
        "metadata:\n  name: web\n  namespace: argocd\n  annotations:\n"
        "    argocd-image-updater.argoproj.io/image-list: web=ghcr.io/acme/web:^1\n"
        f'spec:\n  source: {{repoURL: "{tmp_path}/gitops.git", targetRevision: main, path: apps/web}}\n'
    )
    ended = image_update("plan", "--image", "ghcr.io/acme/web:1.5.0", "--applications", tmp_path)
    assert (ended.code, "--allow-protocol file" in ended.stderr) == (3, True)


def test_the_cluster_commands_work_as_shown_on_the_page(tmp_path: Path) -> None:
    """The commands use an in-process API, which deploys every commit as soon as a refresh is
    requested.
    """
    text = (ROOT / "docs" / "tutorial.md").read_text()
    shown = [one.code for one in blocks(text) if one.why_not == "needs a cluster"]
    annotated = dict(word.split("=", 1) for word in shlex.split(shown[0]) if "argoproj.io/" in word)
    repo = bare_repo(
        tmp_path,
        {"apps/web/kustomization.yaml": "images:\n- name: ghcr.io/acme/web\n  newTag: 1.4.2\n"},
    )
    source = {"repoURL": str(repo), "targetRevision": "main", "path": "apps/web"}
    with running() as api:
        api.add(
            APPLICATIONS,
            cluster_application(
                "web", metadata={"annotations": annotated}, spec={"source": source}
            ),
        )
        api.before = lambda asked: _come_to_life(api, asked, git(repo, "rev-parse", "main"))
        environ = {
            "KUBECONFIG": str(_kubeconfig(tmp_path, api.url)),
            "IMAGE_UPDATE_ALLOW_PROTOCOL": "file",
        }
        lines = [line for code in shown[1:] for line in code.splitlines()]
        ends = [image_update(*shlex.split(line)[1:], env=environ) for line in lines]
    assert [end.code for end in ends] == [0, 0, 0], ends
    assert "1.4.2 → 1.5.0" in ends[1].stdout
    assert "newTag: 1.5.0" in git(repo, "show", "main:apps/web/kustomization.yaml")


def _come_to_life(api: KubernetesApi, asked: Asked, tip: str) -> None:
    if asked.verb == "patch" and asked.resource == APPLICATIONS:
        app = api.of(APPLICATIONS, "web")
        synced, seen = (
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + after))
            for after in (1, 3)
        )
        state: dict[str, Any] = at(
            app, "Synced", "Healthy", revision=tip, operation=operated(revision=tip)
        )["status"]
        state["reconciledAt"] = seen
        state["operationState"] |= {"startedAt": synced, "finishedAt": synced}
        app["status"] = state


def _kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
        f"clusters: [{{name: here, cluster: {{server: '{url}'}}}}]\n"
        "users: [{name: me, user: {token: admin-token}}]\n"
        "contexts: [{name: here, context: {cluster: here, user: me}}]\n"
    )
    return path
