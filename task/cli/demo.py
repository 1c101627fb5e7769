"""`demo`: demonstrates a run in a throwaway repository. Requires only Python and git."""

import os
import shutil
import sys
import tempfile
import textwrap
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated

import typer

from task.ci.publish import shown
from task.cli.update import carry_out
from task.errors import Exit
from task.git.command import Git
from task.output.console import say, stdout_console
from task.output.log import Log
from task.output.report_text import diff_text
from task.settings import EventOptions, Settings, SourceOptions, TransportOptions

TAG = "1.5.0"
IMAGES = (f"ghcr.io/acme/web:{TAG}", f"localhost:5000/acme/worker:{TAG}")
PREFIX = "argocd-image-updater.argoproj.io"
MANIFEST = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: {name}
  namespace: argocd
  annotations:
    {prefix}/write-back-method: git
    {prefix}/image-list: {images}
{more}spec:
  project: default
  source: {{repoURL: "{repo}", targetRevision: main, path: apps/{name}}}
  destination: {{server: https://kubernetes.default.svc, namespace: {name}}}
---
"""
FILES = {
    "apps/shop/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 0.1.0\n",
    "apps/shop/.argocd-source-shop.yaml": (
        "helm:\n  parameters:\n  - name: web.image\n    value: ghcr.io/acme/web\n    forcestring:"
        " true\n  - name: web.tag  # the web front end\n    value: 1.4.2\n    forcestring: true\n"
    ),
    "apps/worker/kustomization.yaml": (
        "resources:\n- deployment.yaml\nimages:\n# two images on one registry with a port\n- name:"
        " localhost:5000/acme/worker\n  newTag: 1.4.2\n- name: localhost:5000/acme/sidecar\n "
        " newTag: 0.9.0\n"
    ),
    "apps/worker/deployment.yaml": "apiVersion: v1\nkind: List\nitems: []\n",
    "apps/legacy/Chart.yaml": "apiVersion: v2\nname: legacy\nversion: 0.1.0\n",
    "apps/legacy/.argocd-source-legacy.yaml": (
        "helm:\n  parameters:\n  - name: image.tag\n    value: 1.4.2\n    forcestring: true\n"
    ),
}


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the repository so that you can experiment with it.")
    ] = False,
) -> int:
    """Try an update in a throwaway repository: one build, the decisions, the diff, and the
    commit.
    """
    folder = tempfile.mkdtemp(prefix="image-update-demo-")
    try:
        return _run_demo(folder)
    finally:
        if keep:
            say(f"\nKept: {folder} (repository gitops.git, Applications in applications.yaml)\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _run_demo(folder: str) -> int:
    """Create a repository in the folder; plan and run an update; print the decisions, the diff, and
    the commit; and return the exit code.
    """
    repo = os.path.join(folder, "gitops.git")
    applications = os.path.join(folder, "applications.yaml")
    git = Git(dict(os.environ), protocols=frozenset({"file"}))
    _make_repository(git, repo)
    with open(applications, "w", encoding="utf-8") as file:
        file.write(_applications(repo))

    say(f"A CI pipeline has just built {' and '.join(IMAGES)}\n")
    say(
        "Three Applications track them: shop (Helm), worker (Kustomize), legacy (limited to"
        " ~1.4)\n\n"
    )

    settings = Settings(
        "run",
        EventOptions(image=IMAGES),
        sources=SourceOptions(applications=(applications,)),
        transport=TransportOptions(allow_protocol=("file",)),
    )
    with ExitStack() as shielded:
        plan_settings = replace(settings, command="plan")
        plan = carry_out(plan_settings, {}, Log("warning"), shielded)
        report = carry_out(settings, {}, Log("warning"), shielded)

    environ = dict(os.environ)
    say(shown(report, environ))

    console = stdout_console(environ)
    say("\nThe diff:\n" + "\n".join(diff_text(item.diff or "", console) for item in plan.commits))

    log = git.run("--git-dir", repo, "log", "-1", "--format=%h %an: %B", "main")
    message = log.out.decode().rstrip()
    say("\nThe commit:\n" + textwrap.indent(message, "    ", lambda _line: True) + "\n")

    # The run must have done exactly what the plan showed.
    verdicts = sorted(decision.verdict for decision in report.decisions)
    planned_trees = [commit.tree for commit in plan.commits]
    written_trees = [commit.tree for commit in report.commits]
    if verdicts != ["refuse", "update", "update"] or written_trees != planned_trees:
        sys.stderr.write("the demo did not work as expected; please report this\n")
        return int(Exit.DEFECT)
    return report.exit


def _applications(repo: str) -> str:
    """Return the manifests of three Applications, as YAML. `repo` is the repository's URL."""

    def manifest(name: str, images: str, *annotations: str) -> str:
        """Return the manifest of an Application with an `image-list` and further annotations (`key:
        value`).
        """
        lines = "".join(f"    {PREFIX}/{annotation}\n" for annotation in annotations)
        return MANIFEST.format(
            name=name,
            prefix=PREFIX,
            images=images,
            more=lines,
            repo=repo,
        )

    shop = manifest(
        "shop",
        "web=ghcr.io/acme/web:^1",
        "web.helm.image-name: web.image",
        "web.helm.image-tag: web.tag",
    )
    worker = manifest(
        "worker", "worker=localhost:5000/acme/worker:^1", "write-back-target: kustomization"
    )
    legacy = manifest("legacy", "web=ghcr.io/acme/web:~1.4")
    return shop + worker + legacy


def _make_repository(git: Git, repo: str) -> None:
    """Create a bare repository with a single commit that contains `FILES`."""
    git.run("init", "--quiet", "--bare", "--initial-branch=main", "--", repo)
    commands = [
        "commit refs/heads/main",
        "committer You <you@example.com> 1700000000 +0000",
        "data 18\nThree applications",
    ]
    for path, text in FILES.items():
        commands.append(f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}")
    git.run("--git-dir", repo, "fast-import", "--quiet", stdin="\n".join(commands) + "\n")
