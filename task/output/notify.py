"""Reports a run to a metrics file and to a receiver of CloudEvents. A failure here is only a warning."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from task import shutdown
from task.errors import UsageError
from task.files import read_text
from task.http import Http, Limits, NoAnswerError
from task.model import Report
from task.output.cloud_event import MEDIA_TYPE, cloud_events
from task.secret import Secret
from task.urls import is_loopback, origin, split

TOKEN = "IMAGE_UPDATE_CLOUDEVENT_TOKEN"  # noqa: S105 - the variable's name

Log = Callable[[str, str], None]


@dataclass(frozen=True)
class Receivers:
    """Where metrics and events are sent."""

    metrics_file: str = ""
    cloudevent_url: str = ""
    source: str = ""  # the pipeline's run
    ca_file: str = ""  # trust these authorities besides those of the machine


def check_url(url: str, environ: Mapping[str, str]) -> None:
    """Raise `UsageError` for a URL that cannot receive events. Call this before anything is done."""
    if not url:
        return
    parts = split(url)
    if parts.scheme not in ("https", "http") or not parts.host or not url.isprintable() or " " in url:
        raise UsageError("--cloudevent-url: this is not an https or http URL", hint="write https://HOST/PATH")
    if parts.login:
        raise UsageError(
            "--cloudevent-url: the URL contains a login, which everybody can read", hint=f"give a token by {TOKEN}"
        )
    if environ.get(TOKEN, "").strip() and parts.scheme == "http" and not is_loopback(parts.host):
        raise UsageError(f"--cloudevent-url: {TOKEN} would be sent unencrypted", hint="use https, or no token")


def notify(report: Report, receivers: Receivers, seconds: float, environ: Mapping[str, str], log: Log) -> None:
    """Write the metrics and send the events, if the options request them.

    Call this inside `shutdown.shield`, because a signal must not interrupt the imports or the writing.
    """
    if receivers.metrics_file:
        # Late, because prometheus_client imports an HTTP server, and few runs write metrics.
        from task.output.metrics import write_metrics  # noqa: PLC0415

        try:
            write_metrics(report, receivers.metrics_file, seconds)
        except OSError as error:
            log("warning", f"--metrics-file: cannot write {receivers.metrics_file!r}: {error.strerror}")
    if receivers.cloudevent_url and any(commit.commit and not commit.already_there for commit in report.commits):
        if shutdown.code():
            log("warning", "no CloudEvent was sent: the run was stopped")
        else:
            _send(report, receivers, Secret(environ.get(TOKEN, "").strip()), log)


def _send(report: Report, receivers: Receivers, token: Secret, log: Log) -> None:
    scheme, _, rest = receivers.cloudevent_url.partition("://")
    url = f"{scheme.lower()}://{rest}"
    where = origin(url)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    http = None
    try:
        http = Http(
            url,
            login=(lambda: {"Authorization": f"Bearer {token.reveal()}"}) if token.reveal() else None,
            more_ca=_authorities(receivers.ca_file),
            limits=Limits(connect=5.0, silence=10.0, total=20.0, size=1 << 20, tries=2),
            log=lambda line: log("debug", line),
        )
        for event in cloud_events(report, receivers.source, now):
            data = json.dumps(event, ensure_ascii=False).encode("utf-8", "backslashreplace")
            # An event always has the same id, so it may be sent again.
            answer = http.ask("POST", url, data=data, headers={"Content-Type": MEDIA_TYPE}, again=True)
            if answer.status // 100 != 2:  # success
                log("warning", f"--cloudevent-url: {where} answered {answer.status} to the event of {event['subject']}")
    except shutdown.StoppedError:
        log("warning", "the CloudEvents were not all sent: the run was stopped")
    except NoAnswerError as error:
        log("warning", f"--cloudevent-url: {error.message}")
    except Exception as error:  # noqa: BLE001 - the commits have landed, so no receiver may fail the run
        log("warning", f"--cloudevent-url: {where}: {type(error).__name__}")
    finally:
        if http:
            http.close()


def _authorities(path: str) -> str:
    """Return the PEM text in a file, or in all files of a folder."""
    if not path:
        return ""
    names = sorted(os.path.join(path, name) for name in os.listdir(path)) if os.path.isdir(path) else [path]
    texts = [read_text(name, errors="replace") for name in filter(os.path.isfile, names)]
    return "\n".join(text for text in texts if "BEGIN CERTIFICATE" in text)
