"""Makes a CloudEvent 1.0 for each commit in a report, with a CDEvent (https://cdevents.dev) as its data.

The type says no more than what has happened. A commit on the branch that Argo CD follows is a merged change. One on
another branch (a pull request, `git-branch: base:head`) is a proposed change. Only Argo CD can say whether a service
was upgraded.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from task.model import Commit, Decision, Report
from task.output.report_json import current
from task.urls import without_login

SPEC = "0.4.1"  # of CDEvents
MERGED, PROPOSED = "dev.cdevents.change.merged.0.2.0", "dev.cdevents.change.created.0.3.0"
MEDIA_TYPE = "application/cloudevents+json; charset=utf-8"
NOBODY = "urn:image-update"  # the source if no pipeline run is known
_MOST = 200  # files and changes in one event, because brokers accept at most 64 KB


def cloud_events(report: Report, source: str, now: str) -> tuple[dict[str, Any], ...]:
    """Return one event for each commit that landed. `source` is the pipeline's run, and `now` is RFC 3339."""
    landed = (commit for commit in report.commits if commit.commit and not commit.already_there)
    return tuple(_event(report, commit, source or NOBODY, now) for commit in landed)


def _event(report: Report, commit: Commit, source: str, now: str) -> dict[str, Any]:
    repo, subject = without_login(commit.repo), commit.pull_request or str(commit.commit)
    # The same commit always has the same id, so that a consumer can detect a duplicate event.
    place = sha256(f"{repo}\0{commit.head}".encode("utf-8", "backslashreplace")).hexdigest()
    identity = f"{commit.commit}-{place[:12]}"
    kind = MERGED
    content: dict[str, Any] = {"repository": {"id": repo, "source": repo}}
    if commit.head != commit.branch:
        images = ", ".join(image.reference for image in report.images[:10])
        description = f"{report.command} of {images} for {len(commit.applications)} Applications"
        kind, content = PROPOSED, {"description": description, **content}
    decisions = report.undone if commit.rollback else report.updates
    changes = [_change(decision) for decision in decisions if _belongs(decision, commit)]
    return {
        "specversion": "1.0",
        "id": identity,
        "source": source,
        "type": kind,
        "subject": subject,
        "time": now,
        "datacontenttype": "application/json",
        "data": {
            "context": {"version": SPEC, "id": identity, "source": source, "type": kind, "timestamp": now},
            "subject": {"id": subject, "source": repo, "type": "change", "content": content},
            "customData": {
                "command": report.command,
                "images": [image.reference for image in report.images[:_MOST]],
                "branch": commit.branch,
                "head": commit.head,
                "commit": commit.commit,
                "tree": commit.tree,
                "pullRequest": commit.pull_request,
                "attempts": commit.attempts,
                "rollback": commit.rollback,
                "applications": list(commit.applications[:_MOST]),
                "applicationsCount": len(commit.applications),
                "files": list(commit.files[:_MOST]),
                "changes": changes[:_MOST],
            },
            "customDataContentType": "application/json",
        },
    }


def _belongs(decision: Decision, commit: Commit) -> bool:
    sub = decision.subscription
    return (
        decision.verdict == "update"
        and sub.repo == commit.repo
        and decision.branch in ("", commit.branch)
        and (decision.head or decision.branch) in ("", commit.head)
        and sub.application.key in commit.applications
    )


def _change(decision: Decision) -> dict[str, Any]:
    entry = decision.subscription.entry
    return {
        "application": decision.subscription.application.key,
        "alias": entry.alias or None,
        "image": entry.image.name,
        "from": current(decision),
        "to": decision.candidate.version or None,
    }
