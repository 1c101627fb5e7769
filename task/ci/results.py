"""Turns a report into the few short results that the next step of the pipeline reads.

Together they stay below 2 KiB: all steps share Tekton's limit of 4096 bytes, and a step above it fails after its push.
Tekton Chains takes results named `*IMAGE_URL`, `*IMAGE_DIGEST`, `IMAGES` or `*ARTIFACT_OUTPUTS` for images that the
step has built, so none of ours has such a name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from task.model import Report
from task.output.report_json import as_json, status
from task.output.words import outcome
from task.text import exact_json, one_line, printable
from task.urls import web_page, without_login

LIMIT = 2048
LONGEST_MESSAGE, _SHORT_MESSAGE = 300, 30  # bytes; the short one where all other values are as long as can be
_OF_APPLICATIONS = 100  # bytes that the message leaves for the names of Applications
DOTENV_PREFIX = "IMAGE_UPDATE_RESULT_"
NAMES = (
    "status",
    "updated",
    "commit",
    "pull-request",
    "repository",
    "branch",
    "tag",
    "digest",
    "applications",
    "applications-count",
    "rolled-back",
    "message",
    "image_ARTIFACT_INPUTS",
)


def results(report: Report) -> Mapping[str, str]:
    """Return all results.

    Those without a value are "", because a pipeline fails if it reads a result that was not written. A name that is too
    long is left out, because a cut name would mean something else. The report has the whole name.
    """
    written = {(one.subscription.repo, one.subscription.application.key) for one in report.updates}
    # Take the first commit that was written. One with an image comes before one that only remembers an event.
    commit = min(
        report.commits or report.earlier,
        key=lambda commit: (
            commit.already_there,
            not any((commit.repo, app) in written for app in commit.applications),
        ),
        default=None,
    )
    image = report.images[0] if report.images else None
    updated = sorted({one.subscription.application.key for one in report.updates})
    uri = image.name + (f":{image.tag}" if image.tag else "") if image else ""
    inputs = {"uri": (uri, 400), "digest": (image.digest if image else "", 135)}
    values = {
        "status": status(report),
        "updated": "true" if updated and not report.dry else "false",  # a hold's memory alone changes no image
        "commit": _within(64, commit.commit) if commit else "",
        "pull-request": web_page(commit.pull_request, 400) if commit else "",
        "repository": _within(250, without_login(commit.repo)) if commit else "",
        "branch": _within(250, commit.head) if commit else "",
        "tag": _within(128, image.tag) if image else "",
        "digest": _within(135, image.digest) if image else "",
        "applications": "",
        "applications-count": str(len(updated)),
        "rolled-back": "true" if any(one.rollback for one in report.commits) else "false",
        "message": "",
        # For Chains, this is a material of this run. A Tekton step fails if its object result lacks a declared member.
        "image_ARTIFACT_INPUTS": json.dumps(
            {name: text if len(json.dumps(text)) <= most + 2 else "" for name, (text, most) in inputs.items()}
        ),
    }
    room = LIMIT - 1 - sum(len(name) + len(value.encode()) for name, value in values.items()) - len("[]")
    message = cut(_message(report), min(LONGEST_MESSAGE, max(room - _OF_APPLICATIONS, _SHORT_MESSAGE)))
    room -= len(message.encode())
    kept: list[str] = []
    for name in updated:
        room -= len(json.dumps(name, ensure_ascii=False).encode()) + len(", ")
        if room < 0:
            break
        kept.append(name)
    return {**values, "message": message, "applications": json.dumps(kept, ensure_ascii=False)}


def _message(report: Report) -> str:
    """Return the first error, or else how many decisions there are of each kind."""
    for one in report.problems:
        if one.severity == "error":
            return f"{one.application}: {one.message}" if one.application else one.message
    return outcome(as_json(report))


def cut(text: str, size: int) -> str:
    """Return the beginning of the text that fits into `size` bytes, on one line that no terminal or runner obeys."""
    line = printable(one_line(text)).encode(errors="replace")
    return (line if len(line) <= size else line[: size - len("…".encode())] + "…".encode()).decode(errors="ignore")


def _within(size: int, text: str | None) -> str:
    """Return the text on one line, or "" if it is longer than `size` bytes."""
    line = " ".join((text or "").encode(errors="replace").decode().splitlines())
    return line if len(line.encode()) <= size else ""


def repositories(report: Report) -> str:
    """Return the repositories that would be written, as a JSON list on one line.

    A pipeline can start one run with `--only-repository` for each.
    """
    repos = sorted({without_login(commit.repo) for commit in report.commits})
    return exact_json(json.dumps(repos, ensure_ascii=False)) + "\n"


def dotenv(values: Mapping[str, str]) -> str:
    """Return the results as GitLab's dotenv report: one line each, with letters, digits and `_` in the keys.

    Later jobs get these lines as variables, and variables win over a component's inputs. So no key may be an option's
    variable: `IMAGE_UPDATE_PULL_REQUEST=` made the second update of a pipeline push to the branch.
    """
    # The runner expands variables in these values, and "$$" becomes "$". An error may quote "$CI_JOB_TOKEN".
    lines = {f"{DOTENV_PREFIX}{name.upper().replace('-', '_')}": _one_line(value) for name, value in values.items()}
    return "".join(f"{name}={value.replace('$', '$$')}\n" for name, value in lines.items())


def github_output(values: Mapping[str, str]) -> str:
    """Return the results as `name=value` lines for $GITHUB_OUTPUT.

    A value with a line break would need a delimiter, so that it could not set another output. Ours have none.
    """
    return "".join(f"{name}={_one_line(value)}\n" for name, value in values.items())


def _one_line(value: str) -> str:
    return " ".join(value.splitlines())
