"""Turns the result of `status` into JSON: docs/status.md."""

from __future__ import annotations

import json
from typing import Any

from task.model import ImageStatus, Status
from task.output.report_json import constraint_of, problem_as_json
from task.text import exact_json, without_logins
from task.urls import without_login

SCHEMA = "image-update/status/v1"


def as_json(status: Status) -> dict[str, Any]:
    """Return the status as plain data. Absent values are None, never left out."""
    return {
        "schema": SCHEMA,
        "at": status.at or None,
        "images": [_image(one) for one in status.images],
        "errors": [problem_as_json(problem) for problem in status.problems],
    }


def json_text(status: Status) -> str:
    """Return the status as one JSON text with a final newline."""
    return exact_json(json.dumps(as_json(status), indent=2, ensure_ascii=False)) + "\n"


def _image(one: ImageStatus) -> dict[str, Any]:
    sub, hold, request, would = one.subscription, one.hold, one.request, one.would
    live = one.kind == "live"  # then nothing is in Git
    return {
        "application": sub.application.key,
        "alias": sub.entry.alias or None,
        "image": sub.entry.image.name,
        "strategy": sub.policy.strategy,
        "constraint": constraint_of(sub),
        "repository": None if live else without_login(sub.repo) or None,
        "branch": None if live else one.branch or None,
        "file": one.in_git.file or None,
        "current": _version(one.in_git.tag, one.in_git.digest),
        "live": [_version(image.tag, image.digest) for image in one.live],
        "newest": one.newest and _version(one.newest.tag, one.newest.digest),
        "too_young_until": one.too_young_until or None,
        "hold": hold
        and {
            "reason": without_logins(hold.reason),
            "by": hold.by.rstrip(",") or None,  # that of a freeze ends with a comma, for sentences
            "at": hold.at or None,
            "until": hold.until or None,
            "scope": one.scope,
        },
        "deferred": one.deferred and {**_version(one.deferred.tag, one.deferred.digest), "at": one.deferred_at or None},
        "pull_request": request
        and {
            "url": request.url or None,
            "number": int(request.number) if request.number.isdecimal() else None,
            "head": request.head,
            "tag": request.tag or None,
        },
        "builds": [
            {
                **_version(build.tag, build.digest),
                "commit": build.commit,
                "at": build.at or None,
                "by": build.by or None,
                "pipeline_run": build.pipeline_run or None,
                "proof": build.proof or None,
                "url": build.url or None,
            }
            for build in one.builds
        ],
        "would": would and {"verdict": would.verdict, "rule": would.rule, "because": without_logins(would.because)},
    }


def _version(tag: str, digest: str) -> dict[str, str | None]:
    return {"tag": tag or None, "digest": digest or None}
