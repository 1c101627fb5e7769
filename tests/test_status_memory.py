"""The memory that `status` needs for many Applications: CI systems limit the memory of pods."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, bare_repo, clean_environment, command, scale
from support.peak import peak
from support.runs import KUSTOMIZATION, PREFIX, target
from support.serving import serving

from bench.cluster_server import Cluster, applications, server_of

MANY = scale(500, at_night=2_000)
# The allowed increase over a single Application, in megabytes. Measured with Python 3.11: 6 and 6,
# and at night 10 and 13. When the JSON was a single string, the increase was 16 and 18.
MORE = {"argocd": scale(7, at_night=12), "git": scale(8, at_night=16)}
MANIFEST = ROOT / "tekton/task/image-update/image-update.yaml"


def scene(folder: Path, method: str, count: int) -> list[dict[str, Any]]:
    """Return this many Applications as a real API server would return them, with 16 kB each."""
    items = applications(count, count)
    paths = [target(item["metadata"]["name"]) for item in items]
    repo = bare_repo(folder, dict.fromkeys(paths, KUSTOMIZATION), name=f"{count}.git")
    for item in items:
        annotations = item["metadata"]["annotations"]
        annotations[f"{PREFIX}write-back-method"] = method
        if method == "git":
            annotations[f"{PREFIX}write-back-target"] = "kustomization"
            item["status"]["sourceType"] = "Kustomize"
        item["spec"]["source"]["repoURL"] = str(repo)
    return items


def most(folder: Path, method: str, output: str, count: int) -> float:
    """Return the process's peak memory use, in megabytes."""
    config = folder / f"kubeconfig-{count}"
    with serving(server_of(Cluster(scene(folder, method, count)))) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        one = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": address}}],
            "users": [{"name": "me", "user": {"token": "a-token"}}],
        }
        config.write_text(json.dumps(one))
        argv = ["status", "--applications", "cluster", "--kubeconfig", str(config)]
        argv += ["--allow-protocol", "file", "--output", output]
        pipe = subprocess.PIPE
        # This must be a new process, because a forked process starts with its parent's memory.
        with (
            subprocess.Popen(
                [command(), *argv], stdout=pipe, stderr=pipe, env=clean_environment(folder)
            ) as running,
            peak(running.pid) as found,
        ):
            out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    shown = len(json.loads(out)["images"]) if output == "json" else out.count(b"\nok ") + 1
    assert shown == count
    return found.own


@pytest.mark.slow
@pytest.mark.parametrize(("method", "output"), [("argocd", "text"), ("git", "json")])
def test_many_applications_need_little_more_memory_than_one(
    tmp_path: Path, method: str, output: str
) -> None:
    few, many = (most(tmp_path, method, output, count) for count in (1, MANY))
    said = f"{few:.1f} MB for one, {many:.1f} MB for {MANY}"
    assert many - few < MORE[method], said
    requested = re.search(r"requests: {cpu: 50m, memory: (\d+)Mi}", MANIFEST.read_text())
    assert requested
    assert many < 0.85 * int(requested[1]) * 1024 * 1024 / 1e6, said  # headroom for later versions
