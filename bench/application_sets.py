"""The time that 2,000 Applications from 20 ApplicationSets take, compared with 2,000 plain
manifests in the same repository.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figure import Figure, Side, alternate
from bench.material import PREFIX, fill
from task.after.follow_up import follow_up
from task.ci.images import event_images
from task.cli.job import job_of
from task.output.log import Log
from task.pipeline.match import match_images
from task.pipeline.run import run
from task.settings import EventOptions, Settings, SourceOptions, TransportOptions
from task.wiring.world import RealWorld

SETS, EACH = 20, 100
# the constraint rejects this image, so everything is read and decided, but nothing is written
EVENT = "ghcr.io/acme/web:2.0.0"
ROUNDS = 3
ABOUT = f"""\
    {PREFIX}/image-list: web=ghcr.io/acme/web:~1
    {PREFIX}/web.update-strategy: semver
    {PREFIX}/web.allow-tags: "regexp:^[0-9]+\\\\.[0-9]+\\\\.[0-9]+$"
    {PREFIX}/web.helm.image-name: image.name
    {PREFIX}/web.helm.image-tag: image.tag
    {PREFIX}/write-back-method: git
"""
APPLICATION = f"""\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: {{app}}
  namespace: argocd
  labels: {{{{team: "{{team}}"}}}}
  annotations:
{ABOUT}    {PREFIX}/write-back-target: helmvalues:/{{path}}/values.yaml
spec:
  project: default
  source: {{{{repoURL: "{{repo}}", targetRevision: main, path: "{{path}}", helm: {{{{releaseName: "{{app}}"}}}}}}}}
  destination: {{{{server: https://kubernetes.default.svc, namespace: "{{team}}"}}}}
"""
SET = f"""\
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {{{{name: "{{team}}", namespace: argocd}}}}
spec:
  goTemplate: true
  goTemplateOptions: [missingkey=error]
  generators:
  - git: {{{{repoURL: "{{repo}}", revision: main, directories: [{{{{path: "teams/{{team}}/*"}}}}]}}}}
  template:
    metadata:
      name: "{{{{{{{{.path.basename}}}}}}}}"
      labels: {{{{team: "{{{{{{{{index .path.segments 1}}}}}}}}"}}}}
      annotations:
{"".join(f"    {line}" for line in ABOUT.splitlines(keepends=True))}\
        {PREFIX}/write-back-target: helmvalues:/{{{{{{{{.path.path}}}}}}}}/values.yaml
    spec:
      project: default
      source:
        repoURL: {{repo}}
        targetRevision: main
        path: "{{{{{{{{.path.path}}}}}}}}"
        helm: {{{{releaseName: "{{{{{{{{.path.basename}}}}}}}}"}}}}
      destination: {{{{server: https://kubernetes.default.svc, namespace: "{{{{{{{{index .path.segments 1}}}}}}}}"}}}}
"""


def figures() -> Iterator[Figure]:
    """Yield the time it takes to read, render, and decide, including all fetches."""
    with TemporaryDirectory() as name:
        repo = Path(name) / "repo.git"
        fill(repo, _files(f"file://{repo}"))
        sets, plain = alternate(
            ROUNDS, lambda: _decide(repo, "sets"), lambda: _decide(repo, "plain")
        )
        shown = f"image-update run --image {EVENT} --applications REPO//FOLDER?ref=main"
        ours = Side(f"{shown}  ({SETS} ApplicationSets that generate {EACH} each)", sets)
        yield Figure(
            "2,000 Applications from 20 ApplicationSets",
            ours,
            Side(f"{shown}  (plain manifests)", plain),
            2,
        )


def _files(repo: str) -> Iterator[tuple[str, str]]:
    for number in range(SETS):
        team = f"team-{number}"
        yield f"sets/{team}.yaml", SET.format(team=team, repo=repo)
        for one in range(EACH):
            app = f"{team}-web-{one}"
            path = f"teams/{team}/{app}"
            yield f"{path}/values.yaml", "image:\n  name: ghcr.io/acme/web\n  tag: 1.0.0\n"
            yield f"plain/{app}.yaml", APPLICATION.format(app=app, team=team, path=path, repo=repo)


def _decide(repo: Path, folder: str) -> float:
    source = f"file://{repo}//{folder}?ref=main"
    settings = Settings(
        "run",
        EventOptions(image=(EVENT,)),
        sources=SourceOptions(applications=(source,)),
        transport=TransportOptions(allow_protocol=("file",)),
    )
    gc.collect()
    began = time.perf_counter()
    job = job_of(settings, event_images((EVENT,)), {})
    world = RealWorld(settings, {}, Log(), job.scope)
    with ExitStack() as shielded:
        report = run(job, world, shielded, match_images, follow_up)
    world.close()
    spent = time.perf_counter() - began
    rules = [decision.rule for decision in report.decisions]
    assert rules == ["constraint"] * SETS * EACH, f"{len(rules)} decisions: {set(rules)}"
    return spent
