"""Test data for the benchmarks: repositories of any size, and Applications that update files in
those repositories.
"""

import json
import random
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

IMAGE = "ghcr.io/acme/web"
PREFIX = "argocd-image-updater.argoproj.io"
FIRST = "1.0.0"
# Filler for repositories. Each file contains a unique checksum, words, and numbers, as in a
# deployment repository, so that 30,000 files take up 8 MB rather than 2.
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: {team}
  labels: {{app.kubernetes.io/name: {name}, app.kubernetes.io/part-of: {team}}}
spec:
  replicas: {few}
  selector: {{matchLabels: {{app.kubernetes.io/name: {name}}}}}
  template:
    metadata:
      labels: {{app.kubernetes.io/name: {name}}}
      annotations: {{checksum/config: {checksum}}}
    spec:
      containers:
      - name: {name}
        image: registry.example.com/{team}/{name}:1.{few}.{many}
        ports: [{{containerPort: {many}}}]
        resources: {{limits: {{cpu: {few}00m, memory: {many}Mi}}, requests: {{cpu: 50m, memory: 64Mi}}}}
        env:
        - {{name: DATABASE_URL, value: "postgres://{name}.{team}.svc:5432/{words[0]}"}}
        - {{name: FEATURES, value: "{words[1]},{words[2]},{words[3]},{words[4]},{words[5]},{words[6]}"}}
"""
OVERRIDE = """\
helm:
  parameters:
  - name: image.name
    value: {image}
    forcestring: true
  - name: image.tag
    value: {tag}
    forcestring: true
"""


class App(NamedTuple):
    """The name and image of an Application."""

    name: str
    image: str = IMAGE

    @property
    def folder(self) -> str:
        """The folder that contains the chart in the repository."""
        return f"apps/{self.name}"

    @property
    def override(self) -> str:
        """The path of the file that an update edits."""
        return f"{self.folder}/.argocd-source-{self.name}.yaml"


def apps(count: int, *, same_image: bool = True) -> list[App]:
    """Return the given number of Applications, which either share one image or each have
    their own.
    """
    return [
        App(f"web-{number}", IMAGE if same_image else f"{IMAGE}-{number}")
        for number in range(count)
    ]


def manifest(app: App, repo: Path) -> dict[str, Any]:
    """Return the Application's manifest as printed by `kubectl get -o json`."""
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": app.name,
            "namespace": "argocd",
            "annotations": {f"{PREFIX}/image-list": f"web={app.image}:1.x"},
        },
        "spec": {
            "project": "default",
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "web"},
            "source": {
                "repoURL": f"file://{repo}",
                "path": app.folder,
                "targetRevision": "main",
                "helm": {},
            },
        },
        "status": {"sourceType": "Helm", "summary": {"images": [f"{app.image}:{FIRST}"]}},
    }


def write_manifests(file: Path, wanted: Iterable[App], repo: Path) -> Path:
    """Write the Applications to a file for `--applications`, and return the file."""
    file.write_text(
        json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": [manifest(app, repo) for app in wanted]}
        )
    )
    return file


def repository(folder: Path, wanted: Iterable[App], fill_up_to: int = 0) -> Path:
    """Create a bare repository with a chart for each Application, plus filler files up to the given
    total. Return its folder.
    """
    return fill(folder, _files(list(wanted), fill_up_to))


def fill(folder: Path, files: Iterable[tuple[str, str]]) -> Path:
    """Create a bare repository that contains these files, and return its folder."""
    subprocess.run(
        ["git", "init", "--quiet", "--bare", "--initial-branch=main", str(folder)], check=True
    )
    # configured as on Git hosts
    for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        subprocess.run(["git", "-C", str(folder), "config", key, "true"], check=True)
    importer = subprocess.Popen(
        ["git", "-C", str(folder), "fast-import", "--quiet"], stdin=subprocess.PIPE
    )
    assert importer.stdin
    with importer.stdin as stream:
        stream.write(
            b"commit refs/heads/main\ncommitter Bench <bench@example.com> 1700000000 +0000\n"
        )
        stream.write(_data("Start"))
        for path, text in files:
            stream.write(f"M 100644 inline {path}\n".encode() + _data(text))
    if importer.wait():
        raise RuntimeError(folder)
    return folder


def _files(wanted: list[App], fill_up_to: int) -> Iterator[tuple[str, str]]:
    for app in wanted:
        yield f"{app.folder}/Chart.yaml", f"apiVersion: v2\nname: {app.name}\nversion: 0.1.0\n"
        yield f"{app.folder}/values.yaml", "image:\n  name: example\n  tag: latest\n"
        yield app.override, OVERRIDE.format(image=app.image, tag=FIRST)
    for number in range(fill_up_to - 3 * len(wanted)):
        path = f"team-{number // 1000}/service-{number // 50 % 20}/file-{number % 50}.yaml"
        yield path, _deployment(number)


def _deployment(number: int) -> str:
    chance = random.Random(number)  # noqa: S311 - reproducible files
    return DEPLOYMENT.format(
        name=f"service-{number}",
        team=f"team-{number // 1000}",
        few=chance.randint(1, 9),
        many=chance.randint(1000, 9999),
        checksum=chance.randbytes(32).hex(),
        words=[chance.randbytes(4).hex() for _ in range(7)],
    )


def _data(text: str) -> bytes:
    body = text.encode()
    return b"data %d\n%s\n" % (len(body), body)


def tag_at_tip(repo: Path, app: App) -> str:
    """Return the tag that the tip of the repository currently contains."""
    text = git(repo, "show", f"main:{app.override}")
    return text.rsplit("value: ", 1)[1].split()[0].strip("\"'")


def git(repo: Path, *args: str) -> str:
    """Run a git command in a repository and return its output."""
    return subprocess.run(
        ["git", "-C", str(repo), *args], check=True, capture_output=True, text=True
    ).stdout.strip()
