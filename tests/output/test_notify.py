"""Real metrics files and real event receivers. Their failures only cause warnings."""

import json
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import image_update
from support.runs import application, arguments, manifest, repository

from task.errors import UsageError
from task.model import Commit, Report
from task.output.notify import TOKEN, check_url, count_run, send_events

pytestmark = pytest.mark.measured

REPORT = Report(
    "run", (), 1, (), (Commit("https://git/x", "main", "main", "a" * 40, "b" * 40, (), ()),), (), 0
)


class Receiver(ThreadingHTTPServer):
    """A server that receives events, and responds with the given statuses, then with 202."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[dict[str, str], Any]] = []
        self.answers: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/events"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(
            ({key.lower(): value for key, value in self.headers.items()}, json.loads(body))
        )
        self.send_response(self.server.answers.pop(0) if self.server.answers else 202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def told(
    url: str, environ: dict[str, str] | None = None, report: Report = REPORT, ca_file: str = ""
) -> list[str]:
    """Send events, and return the resulting warnings."""
    lines: list[tuple[str, str]] = []
    send_events(
        report, url, "", ca_file, environ or {}, lambda level, line: lines.append((level, line))
    )
    return [line for level, line in lines if level == "warning"]


def counted(path: str) -> list[str]:
    """Write metrics, and return the resulting warnings."""
    lines: list[str] = []
    count_run(REPORT, path, 1.5, lambda _level, line: lines.append(line))
    return lines


def test_an_event_is_sent_for_each_commit(receiver: Receiver) -> None:
    two = replace(REPORT, commits=(*REPORT.commits, replace(REPORT.commits[0], head="other")))
    assert told(receiver.url, report=two) == []
    assert len(receiver.got) == 2
    headers, event = receiver.got[0]
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert event["specversion"] == "1.0"
    assert "authorization" not in headers


def test_the_token_is_sent_in_a_header(receiver: Receiver) -> None:
    told(receiver.url, {TOKEN: " s3cret\n"})
    assert receiver.got[0][0]["authorization"] == "Bearer s3cret"


def test_an_event_is_sent_again_with_the_same_id_to_a_busy_receiver(receiver: Receiver) -> None:
    receiver.answers = [503]
    assert told(receiver.url) == []
    assert receiver.got[0][1]["id"] == receiver.got[1][1]["id"]


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_a_rejected_event_causes_a_warning_without_secrets(receiver: Receiver, status: int) -> None:
    receiver.answers = [status] * 3
    (line,) = told(f"{receiver.url}?key=s3cret", {TOKEN: "t0ken"})
    assert str(status) in line
    assert "s3cret" not in line
    assert "t0ken" not in line


def test_an_unreachable_receiver_causes_a_warning_without_secrets() -> None:
    (line,) = told("http://127.0.0.1:1/x?key=s3cret")
    assert "could not be reached" in line
    assert "s3cret" not in line


def test_no_event_is_sent_without_a_commit(receiver: Receiver) -> None:
    assert told(receiver.url, report=replace(REPORT, commits=())) == []
    assert receiver.got == []


def test_an_unreadable_ca_file_causes_a_warning(tmp_path: Path) -> None:
    (line,) = told("https://127.0.0.1:1/", ca_file=str(tmp_path / "none"))
    assert "--cloudevent-url" in line


@pytest.mark.parametrize(
    ("url", "environ", "words"),
    [
        ("ftp://x/", {}, "not an https or http URL"),
        ("events", {}, "not an https or http URL"),
        ("https://", {}, "not an https or http URL"),
        ("https://x/a b", {}, "not an https or http URL"),
        ("https://me:s3cret@x/", {}, "the URL contains credentials"),
        ("http://broker.example.com/", {TOKEN: "s3cret"}, "unencrypted"),
        ("http://localhost.example.com/", {TOKEN: "s3cret"}, "unencrypted"),
    ],
)
def test_an_invalid_receiver_url_is_rejected_immediately(
    url: str, environ: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError) as wrong:
        check_url(url, environ)
    assert words in str(wrong.value)
    assert "s3cret" not in f"{wrong.value}{wrong.value.hint}"


@pytest.mark.parametrize(
    "url",
    [
        "https://x/",
        "HTTPS://x",
        "http://broker/",
        "http://localhost:8080/x",
        "http://[::1]:1/",
        "http://127.0.0.1",
    ],
)
def test_a_valid_receiver_url_is_accepted(url: str) -> None:
    token = {TOKEN: "t"} if "broker" not in url else {}
    check_url(url, token)


def test_the_metrics_file_is_replaced_atomically_and_is_readable_by_everyone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "x.prom"
    assert counted(str(path)) == []
    assert "image_update_last_run_duration_seconds 1.5\n" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444 & ~umask()
    assert os.listdir(path.parent) == ["x.prom"]


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_counters_continue_from_the_values_in_the_metrics_file(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    counted(str(path))
    counted(str(path))
    assert "image_update_commits_total 2.0\n" in path.read_text()


def test_a_symbolic_link_to_the_metrics_file_is_kept(tmp_path: Path) -> None:
    link = tmp_path / "link.prom"
    link.symlink_to(tmp_path / "real.prom")
    counted(str(link))
    assert link.is_symlink()
    assert (tmp_path / "real.prom").is_file()


def test_a_device_as_the_metrics_file_is_kept() -> None:
    assert counted("/dev/null") == []
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_an_unwritable_metrics_file_causes_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (line,) = counted(str(tmp_path / "file" / "x.prom"))
    assert line.startswith("--metrics-file: cannot write")


def test_a_run_writes_metrics_and_sends_an_event(tmp_path: Path, receiver: Receiver) -> None:
    apps = manifest(tmp_path, application("shop", repository(tmp_path, "shop")))
    more = ("--metrics-file", tmp_path / "x.prom", "--cloudevent-url", receiver.url)
    done = image_update(
        *arguments(apps, *more), env={"IMAGE_UPDATE_PIPELINE_RUN": "https://ci.example.com/7"}
    )
    assert done.code == 0
    ((_, event),) = receiver.got
    assert event["subject"] == done.json["commits"][0]["commit"]
    assert event["source"] == "https://ci.example.com/7"
    assert 'runs_total{command="run",status="updated"} 1' in (tmp_path / "x.prom").read_text()


def test_failing_notifications_do_not_fail_the_run(tmp_path: Path) -> None:
    apps = manifest(tmp_path, application("shop", repository(tmp_path, "shop")))
    done = image_update(
        *arguments(apps, "--metrics-file", "/dev/null/x", "--cloudevent-url", "http://127.0.0.1:1/")
    )
    assert (done.code, done.json["status"]) == (0, "updated")
    assert done.stderr.count("warning: ") == 2


def test_a_run_that_could_not_start_is_counted(tmp_path: Path) -> None:
    done = image_update("run", "--metrics-file", tmp_path / "x.prom")
    assert done.code == 2
    assert 'runs_total{command="run",status="failed"} 1' in (tmp_path / "x.prom").read_text()
