"""The CloudEvent that is sent for each commit."""

import json
from dataclasses import replace
from typing import Any

import pytest

from task.model import (
    Application,
    Commit,
    Decision,
    Entry,
    Image,
    Keys,
    Policy,
    Reading,
    Report,
    Source,
    Subscription,
    Verdict,
    VerdictName,
)
from task.output.notify import MERGED, NOBODY, PROPOSED, cloud_events

REPO = "https://robot:secret@git.example.com/acme/gitops.git"
PUBLIC = "https://git.example.com/acme/gitops.git"
NOW = "2026-11-21T08:00:00Z"
WEB = Image("ghcr.io/acme/web", "ghcr.io", "acme/web", "1.1.0")


def decision(name: str = "web", verdict: VerdictName = "update", head: str = "main") -> Decision:
    app = Application("argocd", name, {}, ())
    sub = Subscription(
        app, Entry("web", WEB, "", ""), Policy(), Keys(), Source(""), "override", "x", REPO
    )
    return Decision(
        sub, WEB, Verdict(verdict, "admitted", "so"), Reading(tag="1.0.0"), "main", head
    )


def commit(**more: Any) -> Commit:
    return replace(
        Commit(REPO, "main", "main", "a" * 40, "b" * 40, ("f",), ("argocd/web",)), **more
    )


def events(
    *commits: Commit, decisions: tuple[Decision, ...] = (decision(),), source: str = ""
) -> Any:
    report = Report("run", (WEB,), 1, decisions, commits, (), 0)
    return cloud_events(report, source, NOW)


def test_an_event_follows_the_cloudevents_and_cdevents_specifications() -> None:
    (event,) = events(commit(), source="https://ci.example.com/runs/7")
    assert {
        name: event[name]
        for name in ("specversion", "source", "type", "subject", "time", "datacontenttype")
    } == {
        "specversion": "1.0",
        "source": "https://ci.example.com/runs/7",
        "type": "dev.cdevents.change.merged.0.2.0",
        "subject": "a" * 40,
        "time": NOW,
        "datacontenttype": "application/json",
    }
    data = event["data"]
    context = {name: event[name] for name in ("id", "source", "type")}
    assert data["context"] == {"version": "0.4.1", "timestamp": NOW, **context}
    assert data["subject"] == {
        "id": "a" * 40,
        "source": PUBLIC,
        "type": "change",
        "content": {"repository": {"id": PUBLIC, "source": PUBLIC}},
    }


def test_the_event_contains_the_change() -> None:
    (event,) = events(commit())
    told = event["data"]["customData"]
    change = {
        "application": "argocd/web",
        "alias": "web",
        "image": "ghcr.io/acme/web",
        "from": "1.0.0",
        "to": "1.1.0",
    }
    assert told["changes"] == [change]
    assert (told["images"], told["applicationsCount"]) == (["ghcr.io/acme/web:1.1.0"], 1)


@pytest.mark.parametrize(
    ("one", "kind", "subject"),
    [
        (commit(), MERGED, "a" * 40),
        (commit(head="update"), PROPOSED, "a" * 40),
        (commit(head="update", pull_request=f"{PUBLIC}/pulls/1"), PROPOSED, f"{PUBLIC}/pulls/1"),
    ],
)
def test_the_event_type_depends_on_whether_the_change_is_merged(
    one: Commit, kind: str, subject: str
) -> None:
    (event,) = events(one)
    assert (event["type"], event["subject"]) == (kind, subject)
    assert ("description" in event["data"]["subject"]["content"]) is (kind == PROPOSED)


def test_a_rollback_is_reported_as_a_rollback() -> None:
    """The rollback event goes from the new version back to the old one. The update has a separate
    event.
    """
    back = commit(commit="c" * 40, rollback=True)
    undone = replace(decision(), candidate=replace(WEB, tag="1.0.0"), current=Reading(tag="1.1.0"))
    report = Report("run", (WEB,), 1, (decision(),), (commit(), back), (), 6, undone=(undone,))
    told = [one["data"]["customData"] for one in cloud_events(report, "", NOW)]
    assert [one["rollback"] for one in told] == [False, True]
    assert [[(two["from"], two["to"]) for two in one["changes"]] for one in told] == [
        [("1.0.0", "1.1.0")],
        [("1.1.0", "1.0.0")],
    ]


def test_a_predicted_commit_causes_no_event() -> None:
    assert events(commit(commit=None)) == ()


def test_the_event_for_each_commit_has_its_own_changes_and_id() -> None:
    two = (decision(), decision("api", head="update"), decision("old", "refuse"))
    here, there = events(
        commit(), commit(head="update", applications=("argocd/api",)), decisions=two
    )
    assert [one["data"]["customData"]["changes"][0]["application"] for one in (here, there)] == [
        "argocd/web",
        "argocd/api",
    ]
    assert here["id"] != there["id"]


def test_the_event_for_the_same_commit_has_the_same_id() -> None:
    assert events(commit())[0]["id"] == events(commit(attempts=2))[0]["id"]


def test_an_events_source_is_never_empty() -> None:
    assert events(commit())[0]["source"] == NOBODY


def test_no_event_contains_a_password() -> None:
    assert "secret" not in json.dumps(events(commit()))


def test_the_event_for_a_large_commit_stays_within_the_size_limit() -> None:
    many = tuple(f"argocd/application-{number:04}" for number in range(1000))
    (event,) = events(
        commit(applications=many, files=tuple(f"apps/{name}/kustomization.yaml" for name in many)),
        decisions=tuple(decision(name.partition("/")[2]) for name in many),
    )
    assert len(json.dumps(event)) < 64 * 1024
    assert event["data"]["customData"]["applicationsCount"] == 1000
