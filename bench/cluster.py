"""The cost of finding ten matching Applications among 10,000 in a cluster, compared with listing
all 10,000.

`python -m bench.cluster ours|theirs URL` runs one side, and prints its time in seconds and its
memory usage.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple
from urllib.request import urlopen

from bench.figure import Figure, Side, Unit
from bench.material import IMAGE, PREFIX
from task.applications.cluster import ClusterManifests
from task.kubernetes.access import ClusterAccess
from task.kubernetes.client import APPLICATIONS, Kubernetes
from task.kubernetes.kubeconfig import Kubeconfig, Server, User

COUNT, MATCHING = 10_000, 10
ROUNDS = 3
LIST = "kubectl get applications.argoproj.io --all-namespaces -o json"


class Cost(NamedTuple):
    """What one side of the comparison costs."""

    seconds: float
    memory: float  # peak memory of the process, in bytes
    sent: float  # bytes sent by the server


def figures() -> Iterator[Figure]:
    """Yield the number of bytes with and without compression, the time, and the memory usage."""
    with _server() as url:
        plain = {side: _run(side, url, "plain") for side in ("ours", "theirs")}
        runs = [
            {side: _run(side, url, "gzip") for side in ("ours", "theirs")} for _ in range(ROUNDS)
        ]
    command = f"image-update run --applications cluster  ({COUNT} Applications, {MATCHING} match)"
    packed = runs[0]["ours"].sent

    def middle(field: str, side: str = "ours") -> float:
        return float(median(getattr(run[side], field) for run in runs))

    def figure(what: str, ours: float, theirs: float, limit: float, unit: Unit) -> Figure:
        return Figure(
            f"Applications of a cluster: {what}",
            Side(command, ours),
            Side(LIST, theirs),
            limit,
            unit,
        )

    whole = plain["theirs"].sent
    yield replace(
        figure("bytes", plain["ours"].sent, whole, 1 / 8, "B"), note="both without compression"
    )
    yield replace(
        figure("bytes, compressed", packed, whole, 1 / 50, "B"), note="theirs: without compression"
    )
    yield figure("time", middle("seconds"), middle("seconds", "theirs"), 1 / 4, "s")
    yield figure("memory", middle("memory"), middle("memory", "theirs"), 1 / 3, "B")


@contextmanager
def _server() -> Iterator[str]:
    argv = [sys.executable, "-m", "bench.cluster_server", str(COUNT), str(MATCHING)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _run(side: str, url: str, how: str) -> Cost:
    for path in (how, "sent"):  # reading "sent" resets the counter
        _ask(f"{url}/{path}")
    done = subprocess.run(
        [sys.executable, "-m", "bench.cluster", side, url],
        check=True,
        capture_output=True,
        text=True,
    )
    said = json.loads(done.stdout)
    assert said["found"] == MATCHING, "did not find the Applications"
    return Cost(said["seconds"], said["memory"], float(_ask(f"{url}/sent")))


def _ask(url: str) -> bytes:
    with urlopen(url) as answer:  # noqa: S310 - local server
        return bytes(answer.read())


def _mentioned(item: Mapping[str, Any]) -> bool:
    return f"={IMAGE}:" in item["metadata"]["annotations"].get(f"{PREFIX}/image-list", "")


def ours(kubernetes: Kubernetes) -> int:
    """Find the matching Applications in the same way as the command."""
    return len(
        list(ClusterManifests(kubernetes, prefix=f"{PREFIX}/", wanted=_mentioned).manifests())
    )


def theirs(kubernetes: Kubernetes) -> int:
    """List all Applications in full, and then filter the list."""
    return sum(map(_mentioned, list(kubernetes.list(APPLICATIONS, full=True))))


def _measure(side: str, url: str) -> None:
    """Measure one side in this process, and print its cost."""
    kubernetes = Kubernetes(ClusterAccess(Kubeconfig("", Server(url), User()), {}))
    kubernetes.get(
        APPLICATIONS, "argocd", "service-00000"
    )  # imported in advance, so that neither side is charged for its imports
    began = time.perf_counter()
    found = {"ours": ours, "theirs": theirs}[side](kubernetes)
    seconds = time.perf_counter() - began
    print(json.dumps({"found": found, "seconds": seconds, "memory": _memory()}))


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    _measure(sys.argv[1], sys.argv[2])
