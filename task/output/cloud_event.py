"""Report → a CloudEvent 1.0 for each commit, its data a CDEvent (https://cdevents.dev).

The type says no more than what is known to have happened. A commit on the branch that Argo CD follows is a merged
change. One on another branch (a pull request, `git-branch: base:head`) is a proposed change. Argo CD is the one to say
that a service was upgraded.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from task.model import Commit, Decision, Report
from task.output.outcome import current
from task.urls import without_login

SPEC = "0.4.1"  # of CDEvents
MERGED, PROPOSED = "dev.cdevents.change.merged.0.2.0", "dev.cdevents.change.created.0.3.0"
MEDIA_TYPE = "application/cloudevents+json; charset=utf-8"
NOBODY = "urn:image-update"  # the source, where no pipeline run is known
_MOST = 200  # files and changes in one event: brokers take no more than 64 KB


def cloud_events(report: Report, source: str, now: str) -> tuple[dict[str, Any], ...]:
    """One event for each commit that landed; `source` is the pipeline's run, `now` RFC 3339."""
    return tuple(
        _event(report, one, source or NOBODY, now) for one in report.commits if one.commit and not one.already_there
    )


def _event(report: Report, commit: Commit, source: str, now: str) -> dict[str, Any]:
    repo, subject = without_login(commit.repo), commit.pull_request or str(commit.commit)
    # The same for the same commit: a consumer that gets an event twice can tell.
    place = sha256(f"{repo}\0{commit.head}".encode("utf-8", "backslashreplace")).hexdigest()
    identity = f"{commit.commit}-{place[:12]}"
    kind = MERGED
    content: dict[str, Any] = {"repository": {"id": repo, "source": repo}}
    if commit.head != commit.branch:
        images = ", ".join(image.reference for image in report.images[:10])
        description = f"{report.command} of {images} for {len(commit.applications)} Applications"
        kind, content = PROPOSED, {"description": description, **content}
    changes = [_change(one) for one in report.decisions if _belongs(one, commit)]
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
                "applications": list(commit.applications[:_MOST]),
                "applicationsCount": len(commit.applications),
                "files": list(commit.files[:_MOST]),
                "changes": changes[:_MOST],
            },
            "customDataContentType": "application/json",
        },
    }


def _belongs(one: Decision, commit: Commit) -> bool:
    sub = one.subscription
    return (
        one.verdict.verdict == "update"
        and sub.repo == commit.repo
        and one.branch in ("", commit.branch)
        and (one.head or one.branch) in ("", commit.head)
        and sub.application.key in commit.applications
    )


def _change(one: Decision) -> dict[str, Any]:
    entry = one.subscription.entry
    return {
        "application": one.subscription.application.key,
        "alias": entry.alias or None,
        "image": entry.image.name,
        "from": current(one),
        "to": one.candidate.version or None,
    }
