"""Pure code that reads the values of `hold`, `release` and `rollback`: until when, by whom, and back to what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from task.errors import Malformed
from task.text import one_line

DURATION = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
BACK = re.compile(r"[1-9][0-9]{0,3}-back")
_LIKE_BACK = re.compile(r"[0-9]+-back")  # 0-back is more likely a mistake than a tag
# Who started the pipeline, as the CI systems document it. The first variable that is set wins.
ACTORS = (
    "GITHUB_ACTOR",
    "GITLAB_USER_LOGIN",
    "BUILD_USER_ID",  # Jenkins, with the build user vars plugin
    "BITBUCKET_STEP_TRIGGERER_UUID",
    "BUILD_REQUESTEDFOR",  # Azure Pipelines
    "CIRCLE_USERNAME",
    "BUILDKITE_BUILD_CREATOR",
    "DRONE_BUILD_TRIGGER",
)
LONGEST = 500  # characters of a reason or a name


def until_of(text: str, now: str) -> str:
    """Return the end of a hold as RFC 3339 in UTC. `text` is a time, a date (from its start) or a duration from `now`.

    Raises `Malformed` for anything else, and for a time in the past.
    """
    if not text:
        return ""
    start = datetime.fromisoformat(now)
    try:
        if found := DURATION.fullmatch(text):
            end = start + timedelta(seconds=int(found[1]) * SECONDS[found[2]])
        else:
            read = datetime.fromisoformat(text)
            end = read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        hint = "write 2026-12-24, 2026-12-24T08:00:00Z, or 90m, 12h, 3d, 2w"
        raise Malformed(f"{text!r} is not a time", hint) from None
    if end <= start:
        raise Malformed(f"{text!r} has already passed", "name a time in the future")
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")


def destination_of(text: str) -> str:
    """Return what to go back to. Raises `Malformed` unless it is a tag, a digest, `previous` or `N-back`."""
    tag, at, digest = text.partition("@")
    if text == "previous" or BACK.fullmatch(text) or DIGEST.fullmatch(text):
        return text
    if not _LIKE_BACK.fullmatch(text) and TAG.fullmatch(tag) and (not at or DIGEST.fullmatch(digest)):
        return text
    raise Malformed(f"{text!r} is not a version to go back to", "write a tag, tag@sha256:…, previous, or 3-back")


def actor_of(environ: Mapping[str, str]) -> str:
    """Return who started the pipeline, from the CI system's variables, or "" outside of one."""
    return next((name for key in ACTORS if (name := environ.get(key, "").strip())), "")[:LONGEST]


def words_of(text: str) -> str:
    """Return a reason or a name on one line, without characters that control a terminal or a log."""
    return one_line(text)[:LONGEST]
