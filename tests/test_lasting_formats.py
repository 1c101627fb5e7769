"""The format of data that outlives a run is stable: later versions can read what earlier versions
have written.

Waiting lists of head branches are tested in `landing/test_waiting_list.py`.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import DATA
from support.reports import WEB, commit, decision, report

from task.deciding.decide import state_path_in
from task.editors.state_file import read_state, write_state
from task.forges.proposal import (
    Content,
    applied_wishes,
    body,
    described,
    digest,
    has_changed_title,
    wish_key,
    wishes,
    with_applied_wishes,
    with_fitting_text,
)
from task.git.names import memory_branch
from task.landing.head_branches import request_head
from task.landing.waiting_list import list_path
from task.model import Build, Hold, Meant, Memory, Proposal, Proposed, State, Written
from task.output.metrics import write_metrics
from task.registry.manifest import Config, Member
from task.registry.repository import AnswerCache
from task.templates.change import AppChanges, Change

FORMS = DATA / "formats"
HOLD = Hold("not before Christmas", "jane", "2026-11-21T06:00:00Z", "2026-12-27T00:00:00Z")
BUILD = Build(
    42, "github:acme/web", "c" * 40, "https://github.com/acme/web", "2026-11-21T05:00:00Z"
)
STATES = {
    "apps/web/values.yaml": State(
        HOLD,
        {
            "web": Memory(
                written=Written("1.10", f"sha256:{'a' * 64}", BUILD, f"sha256:{'b' * 64}"),
                replaced=("1.9", "1.8"),
                failed=("1.7",),
                hold=HOLD,
                deferred=Written("1.11", build=Build(43, "github:acme/web")),
                rollback=Meant("previous", "1.10", f"sha256:{'a' * 64}", "1.11"),
            )
        },
    )
}
DIGEST = f"sha256:{'d' * 64}"
CHANGE = Change(WEB, "web", "1.0.0", "1.1.0", file="apps/web/values.yaml")


def golden(name: str) -> str:
    return (FORMS / name).read_text(encoding="utf-8")


def test_the_format_of_the_state_file_is_stable() -> None:
    assert write_state("", STATES) == golden("state")
    assert read_state(golden("state")) == STATES


def test_the_hidden_markers_in_a_pull_request_are_stable() -> None:
    content = Content([AppChanges("argocd", "web", (CHANGE,))], commit="c" * 40, base="main")
    wanted = Proposal(
        "https://git.example/acme/deploy",
        "main",
        "image-update/web",
        "update web",
        body(content),
        labels=("bot",),
        reviewers=("Ann",),
        auto_merge=True,
    )
    made = with_fitting_text(wanted, 60_000)
    lines = with_applied_wishes(made.body, wishes(wanted)).splitlines()
    assert [line for line in lines if line.startswith("<!--")] == golden("request.md").splitlines()
    found = Proposed("https://git.example/1", "1", "open", made.title, golden("request.md"))
    assert (described(found.body), has_changed_title(found)) == ("c" * 40, False)
    assert applied_wishes(found.body) == wishes(wanted)


def test_the_format_of_the_registry_cache_is_stable(tmp_path: Path) -> None:
    cache = AnswerCache(str(tmp_path), "ghcr.io/acme/web")
    cache.store_tag("1.10", DIGEST)
    cache.store_members(DIGEST, (Member(DIGEST, "linux/amd64", f"sha256:{'e' * 64}"),))
    cache.store_config(DIGEST, Config("2026-11-21T05:00:00Z", "linux/amd64", {"team": "web"}))
    cache.save()
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text()) == json.loads(golden("registry-cache.json"))
    again = AnswerCache(str(tmp_path), "ghcr.io/acme/web")
    assert (again.tags, again.members, again.configs) == (cache.tags, cache.members, cache.configs)


def test_the_format_of_the_metrics_file_is_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.output.metrics.time", SimpleNamespace(time=lambda: 1000.0))
    file = tmp_path / "metrics.prom"
    done = report(decision(), decision("refuse", "not-newer"), commits=(commit(attempts=3),))
    write_metrics(done, str(file), 1.5)
    assert file.read_text() == golden("metrics.prom")


def test_names_of_branches_and_files_are_stable() -> None:
    """If a name changed, data stored under the old name would be orphaned."""
    assert {
        "head branch": request_head(decision().subscription, "main"),
        "memory branch": memory_branch("https://git.example/acme/deploy.git", "main"),
        "list of a head branch": list_path("image-update/web-0123abcd"),
        "list of a long head branch": list_path("image-update/" + "w" * 300),
        "state file": state_path_in("apps/web", "argocd/web"),
        "state file of a long name": state_path_in("apps/web", "argocd/" + "w" * 300),
        "state file at a long path": state_path_in("w/" * 3000, "argocd/web"),
        "label of a request": wish_key("label", "Bot"),
        "title of a request": digest("update web"),
    } == json.loads(golden("names.json"))
