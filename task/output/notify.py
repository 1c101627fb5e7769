"""Records a run in a metrics file, and reports it to a CloudEvents receiver.

Failures here are only warnings.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from task import shutdown
from task.errors import NoAnswerError, UsageError
from task.files import read_text
from task.http import Http, Limits, bearer
from task.model import Commit, Decision, Report
from task.output.report_json import current
from task.secret import Secret
from task.urls import is_loopback, origin, split, without_login

TOKEN = "IMAGE_UPDATE_CLOUDEVENT_TOKEN"  # noqa: S105 - the variable's name

Log = Callable[[str, str], None]


def check_url(url: str, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` if `url`, the value of `--cloudevent-url`, cannot receive events.

    It must be an http or https URL without credentials. If a token is set, an http URL must refer
    to this machine.
    """
    parts = split(url)
    is_web_address = parts.scheme in ("https", "http") and parts.host != ""
    has_odd_characters = not url.isprintable() or " " in url
    if not is_web_address or has_odd_characters:
        raise UsageError(
            "--cloudevent-url: this is not an https or http URL",
            hint="use https://HOST/PATH",
        )
    if parts.login:
        hint = f"set the token in {TOKEN}"
        raise UsageError(
            "--cloudevent-url: the URL contains credentials, which anyone can read",
            hint=hint,
        )
    has_token = environ.get(TOKEN, "").strip() != ""
    is_unencrypted = parts.scheme == "http" and not is_loopback(parts.host)
    if has_token and is_unencrypted:
        raise UsageError(
            f"--cloudevent-url: {TOKEN} would be sent unencrypted",
            hint="use https, or no token",
        )


def count_run(report: Report, path: str, seconds: float, log: Log) -> None:
    """Add this run, which took `seconds`, to the metrics file at `path`. Log a warning if the file
    cannot be written.

    Call this inside `shutdown.shield`: a signal must not interrupt the imports or the write.
    """
    # Imported lazily, because prometheus_client imports an HTTP server, and few runs write metrics.
    from task.output.metrics import write_metrics  # noqa: PLC0415

    try:
        write_metrics(report, path, seconds)
    except OSError as error:
        log("warning", f"--metrics-file: cannot write {path!r}: {error.strerror}")


def send_events(
    report: Report,
    receiver: str,
    source: str,
    ca_file: str,
    environ: Mapping[str, str],
    log: Log,
) -> None:
    """Send an event to the receiver's URL for each commit that landed (was pushed). Log a warning
    if that fails.

    Call this inside `shutdown.shield`. `source` is the pipeline run. The CAs in `ca_file` are
    trusted in addition to the system's.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    events = cloud_events(report, source, now)
    if events and shutdown.code():
        log("warning", "no CloudEvent was sent: the run was stopped")
        return
    scheme, _, host_and_path = receiver.partition("://")
    url = f"{scheme.lower()}://{host_and_path}"
    address = origin(url)
    http = None
    try:
        http = _event_client(url, ca_file, environ, log)
        for event in events:
            data = json.dumps(event, ensure_ascii=False).encode("utf-8", "backslashreplace")
            # The event's ID does not change, so it is safe to send the event again.
            answer = http.ask(
                "POST",
                url,
                data=data,
                headers={"Content-Type": MEDIA_TYPE},
                again=True,
            )
            is_accepted = 200 <= answer.status < 300
            if not is_accepted:
                log(
                    "warning",
                    f"--cloudevent-url: {address} responded with {answer.status} to the event for"
                    f" {event['subject']}",
                )
    except shutdown.StoppedError:
        log("warning", "not all CloudEvents were sent: the run was stopped")
    except NoAnswerError as error:
        log("warning", f"--cloudevent-url: {error.message}")
    except Exception as error:  # noqa: BLE001 - the commits have landed, so this must not fail the run
        log("warning", f"--cloudevent-url: {address}: {type(error).__name__}")
    finally:
        if http:
            http.close()


def _event_client(url: str, ca_file: str, environ: Mapping[str, str], log: Log) -> Http:
    """Return an HTTP client for the event receiver. It sends the token if one is set.

    Raises `OSError` if `ca_file` is unreadable.
    """
    token = Secret(environ.get(TOKEN, "").strip())
    return Http(
        url,
        login=(lambda: bearer(token)) if token else None,
        more_ca=_authorities(ca_file),
        limits=Limits(
            connect=5.0,
            silence=10.0,
            total=20.0,
            size=1024 * 1024,
            tries=2,
        ),
        log=lambda line: log("debug", line),
    )


def _authorities(path: str) -> str:
    """Return the certificates in a file, or in all files in a folder, as PEM text. Return "" if the
    path is "".
    """
    if not path:
        return ""
    paths = [path]
    if os.path.isdir(path):
        paths = sorted(os.path.join(path, name) for name in os.listdir(path))
    texts = [read_text(file, errors="replace") for file in paths if os.path.isfile(file)]
    return "\n".join(text for text in texts if "BEGIN CERTIFICATE" in text)


# Each commit in a report produces a CloudEvent 1.0 with a CDEvent (https://cdevents.dev) as its
# data. The event type describes only what has already happened. A commit on the branch that Argo CD
# follows is a merged change. A commit on any other branch (a pull request, `git-branch: base:head`)
# is a proposed change. Only Argo CD knows whether a service was upgraded.
SPEC = "0.4.1"  # the CDEvents version
MERGED = "dev.cdevents.change.merged.0.2.0"
PROPOSED = "dev.cdevents.change.created.0.3.0"
MEDIA_TYPE = "application/cloudevents+json; charset=utf-8"
NOBODY = "urn:image-update"  # the source if the pipeline run is unknown
_MOST = 200  # maximum files and changes in an event, because brokers accept at most 64 KB


def cloud_events(report: Report, source: str, now: str) -> tuple[dict[str, Any], ...]:
    """Return one event, as JSON data, for each commit that this run pushed.

    Commits on the memory branch, which stores holds and waiting builds, are left out. `source` is
    the pipeline run, and `now` is RFC 3339.
    """
    events = []
    for commit in report.commits:
        is_pushed = bool(commit.commit) and not commit.already_there
        if not is_pushed or commit.remembers:
            continue
        events.append(_cloud_event(report, commit, source or NOBODY, now))
    return tuple(events)


def _cloud_event(report: Report, commit: Commit, source: str, now: str) -> dict[str, Any]:
    """Return the event for one commit, as JSON data.

    A commit on the base branch is a merged change. A commit on any other branch is a proposed
    change. `source` is the pipeline run, and `now` is RFC 3339.
    """
    repo = without_login(commit.repo)
    subject = commit.pull_request or str(commit.commit)
    # A commit's event always has the same ID, so that consumers can detect duplicates.
    place = sha256(f"{repo}\0{commit.head}".encode("utf-8", "backslashreplace")).hexdigest()
    identity = f"{commit.commit}-{place[:12]}"

    kind = MERGED
    content: dict[str, Any] = {"repository": {"id": repo, "source": repo}}
    is_proposed = commit.head != commit.branch
    if is_proposed:
        images = ", ".join(image.reference for image in report.images[:10])
        description = f"{report.command} of {images} for {len(commit.applications)} Applications"
        kind = PROPOSED
        content = {"description": description, **content}

    decisions = report.undone if commit.rollback else report.updates
    changes = [_change(decision) for decision in decisions if _is_in_commit(decision, commit)]
    return {
        "specversion": "1.0",
        "id": identity,
        "source": source,
        "type": kind,
        "subject": subject,
        "time": now,
        "datacontenttype": "application/json",
        "data": {
            "context": {
                "version": SPEC,
                "id": identity,
                "source": source,
                "type": kind,
                "timestamp": now,
            },
            "subject": {
                "id": subject,
                "source": repo,
                "type": "change",
                "content": content,
            },
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


def _is_in_commit(decision: Decision, commit: Commit) -> bool:
    """Return whether the commit contains this decision's update.

    A decision's branches may be unknown (""), in which case they are not compared.
    """
    sub = decision.subscription
    if decision.verdict != "update" or sub.repo != commit.repo:
        return False
    if decision.branch not in ("", commit.branch):
        return False
    head = decision.head or decision.branch
    return head in ("", commit.head) and sub.application.key in commit.applications


def _change(decision: Decision) -> dict[str, Any]:
    """Return an update as one element of an event's `changes`."""
    entry = decision.subscription.entry
    return {
        "application": decision.subscription.application.key,
        "alias": entry.alias or None,
        "image": entry.image.name,
        "from": current(decision),
        "to": decision.candidate.version or None,
    }
